//! The gate for a whole machine: kernel and user space, interrupts, system calls and context switches.
//!
//! `tests/fixtures/vm` is made by `scripts/pt-vm.sh`: what an emulated machine with memcached and a client executed between two marks,
//! encoded by the lab. Its control flow is real, its **time is assigned and not measured**. Only code that ran is in the files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tailsight_pt::decode::{Op, Step};
use tailsight_pt::index::PIECE;
use tailsight_pt::memory::Memory;
use tailsight_pt::sideband::{Switch, Switches};
use tailsight_pt::stacks::{Core, Stacks};
use tailsight_pt::{By, Entry, Places, Recording, What};

use crate::unpack::unpack;

/// The fixture, unpacked.
fn unpacked() -> tempfile::TempDir {
    fixture("vm")
}

fn fixture(name: &str) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    unpack(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name), to.path());
    to
}

fn open(folder: &Path) -> Recording {
    let places = Places { roots: vec![folder.join("root")], ..Places::default() };
    Recording::open(&folder.join("recording"), &places).unwrap()
}

/// A thread as the log names it: an idle one by its processor.
fn thread(tid: u32, cpu: u32) -> String {
    if tid == 0 { format!("0/{cpu}") } else { tid.to_string() }
}

/// By thread: call or return, from, to.
type Transfers = BTreeMap<String, Vec<(bool, u64, u64)>>;

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap()
}

/// The emulator's own log: transfers, and instructions; those of all idle threads together.
fn log(folder: &Path) -> (Transfers, BTreeMap<u32, u64>) {
    let text = std::fs::read_to_string(folder.join("log.txt")).unwrap();
    let (mut transfers, mut instructions) = (Transfers::new(), BTreeMap::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[1] {
            "instructions" => {
                let tid: u32 = words[0].split('/').next().unwrap().parse().unwrap();
                *instructions.entry(tid).or_default() += words[2].parse::<u64>().unwrap();
            }
            kind => transfers.entry(words[0].into()).or_default().push((kind == "call", hex(words[2]), hex(words[3]))),
        }
    }
    (transfers, instructions)
}

/// The first place where two differ, with what is around it.
fn differ(name: &str, found: &Transfers, log: &Transfers) {
    let threads = |of: &Transfers| of.keys().cloned().collect::<Vec<_>>();
    for (thread, log) in log {
        let decoded = found.get(thread).map_or(&[][..], Vec::as_slice);
        let at = log
            .iter()
            .zip(decoded)
            .position(|(a, b)| a != b)
            .or((log.len() != decoded.len()).then_some(log.len().min(decoded.len())));
        let around = |of: &[(bool, u64, u64)], at: usize| {
            let around = &of[at.saturating_sub(2).min(of.len())..(at + 3).min(of.len())];
            around
                .iter()
                .map(|(call, from, to)| format!("{} {from:x} {to:x}", if *call { "call" } else { "return" }))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            at.map(|at| (at, around(log, at), around(decoded, at))),
            None,
            "{name}: thread {thread}: at, what ran, what was found"
        );
    }
    assert_eq!(threads(found), threads(log), "{name}");
}

#[test]
fn calls_returns_and_instructions_of_kernel_and_programs_are_those_that_ran() {
    let folder = unpacked();
    let (log, instructions) = log(folder.path());
    assert!(log.len() >= 3 && instructions.values().sum::<u64>() > 100_000, "{instructions:?}");
    let recording = open(folder.path());
    let mut decoded = Transfers::new();
    let each = |t: &tailsight_pt::stacks::Transfer| {
        decoded.entry(thread(t.tid, t.cpu)).or_default().push((t.call, t.from, t.to))
    };
    let summary = recording.transfers(PIECE, each).unwrap();
    assert!(summary.errors.is_empty(), "{:?}", summary.errors);
    assert!(summary.counts.gaps.is_empty(), "{:?}", summary.counts.gaps);
    differ("ours", &decoded, &log);
    assert_eq!(summary.instructions.into_iter().collect::<BTreeMap<_, _>>(), instructions);
}

/// Ours and libipt's decoders of packets and of blocks ([`tailsight_pt::decode`]) give the same events at the same times, of kernel and
/// programs, and with BPF programs and their trampolines (`vm-queue`).
#[test]
fn the_decoders_of_libipt_give_the_same() {
    for name in ["vm", "vm-queue"] {
        let folder = fixture(name);
        let mut recording = open(folder.path());
        let mut decoded = |by: By| {
            recording.by = by;
            let mut events = Vec::new();
            let summary = recording.decode(None, |event| events.push(*event)).unwrap();
            (events, summary)
        };
        let (events, summary) = decoded(By::Ours);
        for by in [By::LibiptPackets, By::Libipt] {
            let (theirs, of_libipt) = decoded(by);
            let at = events.iter().zip(&theirs).position(|(a, b)| a != b);
            assert_eq!(at.map(|at| (at, &events[at..at + 2], &theirs[at..at + 2])), None, "{name}, {by:?}");
            assert_eq!(events.len(), theirs.len(), "{name}, {by:?}");
            assert_eq!(
                (&summary.counts, &summary.instructions, &summary.errors),
                (&of_libipt.counts, &of_libipt.instructions, &of_libipt.errors),
                "{name}, {by:?}"
            );
        }
        let left = (summary.packets_left_to_libipt, summary.left_to_libipt);
        assert_eq!(left, (0, 0), "{name}: bytes whose packets or blocks only libipt could decode");
    }
}

/// Debian's perf decodes it by itself: `perf script --itrace=cr`.
#[test]
fn perf_finds_the_same_calls_and_returns() {
    if let Some(why) = tailsight_testing::lacks_program("perf") {
        return tailsight_testing::skip(why);
    }
    let folder = unpacked();
    let (recording, root): (PathBuf, PathBuf) = (folder.path().join("recording"), folder.path().join("root"));
    let mut perf = Command::new("perf");
    perf.args(["script", "--itrace=cr", "-F", "tid,cpu,flags,ip,addr", "-i"]).arg(recording).arg("--symfs").arg(root);
    let printed = perf.output().unwrap();
    let mut printed_transfers = Transfers::new();
    for line in String::from_utf8_lossy(&printed.stdout).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [tid, cpu, kind @ ("call" | "return"), from, "=>", to] = words[..] {
            let cpu = cpu.trim_matches(['[', ']']).parse().unwrap();
            printed_transfers.entry(thread(tid.parse().unwrap(), cpu)).or_default().push((
                kind == "call",
                hex(from),
                hex(to),
            ));
        }
    }
    differ("perf", &printed_transfers, &log(folder.path()).0);
}

#[test]
fn functions_of_kernel_and_programs_nest_by_thread_and_have_names() {
    let folder = unpacked();
    let recording = open(folder.path());
    let (mut events, mut stacks) = (Vec::new(), BTreeMap::<(u32, u32), Vec<u32>>::new());
    let summary = recording.decode(None, |event| events.push(*event)).unwrap();
    let (mut last, mut entries) = (0, BTreeMap::<&str, u64>::new());
    for event in &events {
        assert!(event.ns >= last, "all cores in order of time");
        last = event.ns;
        let stack = stacks.entry((event.tid, if event.tid == 0 { event.cpu } else { 0 })).or_default();
        match event.what {
            What::Enter(f, entry) => {
                stack.push(f);
                let kind = match entry {
                    Entry::Call => "call",
                    Entry::Known => "known",
                    Entry::Interrupt => "interrupt",
                    Entry::SystemCall => "system call",
                };
                *entries.entry(kind).or_default() += 1;
            }
            What::Leave(f) => assert_eq!(stack.pop(), Some(f)),
            _ => {}
        }
    }
    assert!(["call", "interrupt", "system call"].iter().all(|kind| entries.contains_key(kind)), "{entries:?}");
    let names: Vec<&str> = summary.functions.iter().map(|f| f.function.as_str()).collect();
    for wanted in [
        "tcp_sendmsg",
        "tcp_v4_rcv",
        "ip_rcv",
        "__schedule",
        "sock_def_readable",
        "do_epoll_wait",
        "do_syscall_64",
        "main",
    ] {
        assert!(names.contains(&wanted), "{wanted} of {names:?}");
    }
    let (strays, spans) = (summary.counts.strays, summary.counts.spans);
    assert!(strays * 1000 < spans, "{strays} strays of {spans} spans");
}

/// perf's record of a switch says 130 ns; the trace shows that it takes place at 100 ns.
#[test]
fn a_switch_takes_place_where_the_trace_of_the_kernel_shows_it() {
    const AT: u64 = 0xffff_ffff_8100_0200;
    let mut memory = Memory::default();
    memory.switch_ip = Some(AT);
    let switches = [(0, 7), (130, 9)].map(|(time_ns, tid)| Switch { time_ns, pid: tid, tid, preempted: false });
    let switches = Switches::from_iter(switches);
    let steps = [
        (10, Op::On { ip: AT - 0x100 }),
        (90, Op::Call { from: AT - 0x90, to: AT - 0x80 }),
        (100, Op::Jump { to: AT }),
        (110, Op::Call { from: AT + 8, to: AT + 0x100 }),
        (140, Op::Call { from: AT + 0x108, to: AT + 0x200 }),
    ];
    let tids = |shows: bool| -> Vec<u32> {
        let mut stacks = Stacks::new(&memory);
        stacks.transfers = Some(Vec::new());
        let mut core = Core::new(Some(0), None, switches.iter()).shows_switches(shows);
        for (ns, op) in steps {
            stacks.step(&mut core, ns, &Step { ns, op });
        }
        stacks.transfers.iter().flatten().map(|t| t.tid).collect()
    };
    assert_eq!(tids(true), [7, 9, 9]);
    assert_eq!(tids(false), [7, 7, 9]);
}
