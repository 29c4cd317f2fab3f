//! Records beside the trace: code that the kernel generated, as perf writes it while a BPF program comes and goes; trace that the kernel
//! marks as lost, beside perf's own dump.

use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tailsight_pt::container::Container;
use tailsight_pt::sideband::{Generated, KernelSymbol, Sideband};
use tailsight_pt::{Event, Gap, Places, Recording, Summary, What};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// What perf's dump of a file says in lines that hold a word.
fn dump(path: &Path, word: &str) -> Vec<String> {
    let output = Command::new("perf").args(["script", "-D", "-i"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
}

/// Loads a socket filter that says 0; it is gone when this is dropped. `None`: the kernel does not let us.
fn bpf_program(name: &str) -> Option<OwnedFd> {
    /// The beginning of `union bpf_attr` for BPF_PROG_LOAD.
    #[repr(C)]
    #[derive(Default)]
    struct Load {
        kind: u32,
        instructions: u32,
        code: u64,
        licence: u64,
        log: [u32; 2],
        log_buffer: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
    }
    const PROG_LOAD: libc::c_long = 5;
    const SOCKET_FILTER: u32 = 1;
    // r0 = 0; exit
    let code = [0xb7u64, 0x95];
    let mut load = Load {
        kind: SOCKET_FILTER,
        instructions: 2,
        code: code.as_ptr() as u64,
        licence: c"GPL".as_ptr() as u64,
        ..Load::default()
    };
    load.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the attribute and what it points to live over the call, which only reads them.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const load, size_of::<Load>()) };
    // SAFETY: a new descriptor, which nobody else has.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()) })
}

/// The symbol as perf's dump writes it behind `PERF_RECORD_KSYMBOL `.
fn as_dumped(of: &KernelSymbol) -> String {
    let kind = match of.kind {
        Generated::Bpf => 1,
        Generated::OutOfLine => 2,
        _ => 0,
    };
    let flags = u8::from(of.unregistered);
    format!("addr {:x} len {} type {kind} flags 0x{flags:x} name {}", of.start, of.len, of.name)
}

#[test]
fn bpf_programs_that_come_and_go_are_those_of_perf_s_dump() {
    if let Some(why) = tailsight_testing::lacks_root().or_else(|| tailsight_testing::lacks_program("perf")) {
        return tailsight_testing::skip(why);
    }
    if std::fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").is_ok_and(|jit| jit.trim() == "0") {
        return tailsight_testing::skip("the kernel does not compile BPF programs (net.core.bpf_jit_enable is 0)");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let started = dir.path().join("started");
    let mut perf = Command::new("perf")
        .args(["record", "-q", "-a", "-e", "dummy", "-o"])
        .arg(&path)
        // It begins when perf records.
        .args(["--", "sh", "-c", "touch \"$1\"; sleep 2", "sh"])
        .arg(&started)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let patience = std::time::Instant::now();
    while !started.exists() && patience.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let program = bpf_program("pt_test");
    std::thread::sleep(std::time::Duration::from_millis(200));
    let loaded = program.is_some();
    drop(program);
    let status = perf.wait().unwrap();
    if !loaded {
        return tailsight_testing::skip("the kernel refuses to load a BPF program");
    }
    assert!(status.success());
    let (sideband, traced) = Sideband::records(&Container::open(&path).unwrap()).unwrap();
    assert!(!traced);
    let dumped = dump(&path, "PERF_RECORD_KSYMBOL");
    let dumped: Vec<&str> = dumped.iter().map(|line| line.split_once("PERF_RECORD_KSYMBOL ").unwrap().1).collect();
    let ours: Vec<String> = sideband.kernel_symbols.iter().map(as_dumped).collect();
    assert_eq!(ours, dumped);
    let own: Vec<&KernelSymbol> = sideband.kernel_symbols.iter().filter(|s| s.name.ends_with("_pt_test")).collect();
    let [came, went] = own[..] else { panic!("it came and went: {ours:?}") };
    assert!(!came.unregistered && went.unregistered && came.time_ns < went.time_ns && came.kind == Generated::Bpf);
}

/// The recording with the AUX record of its first core cut after `len` bytes, with these flags.
fn cut(flags: u64, len: u64) -> Vec<u8> {
    const AUX: u32 = 11;
    let mut file = std::fs::read(fixtures().join("tsc/perf.data")).unwrap();
    let word = |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let mut at = usize::try_from(word(&file, 40)).unwrap();
    loop {
        let kind = u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        if kind == AUX {
            break;
        }
        at += usize::from(u16::from_le_bytes(file[at + 6..at + 8].try_into().unwrap()));
    }
    file[at + 16..at + 24].copy_from_slice(&len.to_le_bytes());
    file[at + 24..at + 32].copy_from_slice(&flags.to_le_bytes());
    file
}

type Calls = Vec<(u32, bool, u64, u64)>;

fn decoded(path: &Path) -> (Vec<Event>, Calls, Summary) {
    let recording = Recording::open(path, &Places { roots: vec![fixtures()], ..Places::default() }).unwrap();
    let (mut events, mut transfers) = (Vec::new(), Vec::new());
    let summary = recording.decode(None, |event| events.push(*event)).unwrap();
    recording.transfers(u64::MAX, |t| transfers.push((t.tid, t.call, t.from, t.to))).unwrap();
    (events, transfers, summary)
}

#[test]
fn trace_that_the_kernel_marks_as_lost_is_a_gap_and_nothing_goes_over_it() {
    let whole = fixtures().join("tsc/perf.data");
    let (_, whole_transfers, _) = decoded(&whole);
    let dir = tempfile::tempdir().unwrap();
    // In the middle of the first core's trace.
    let len = Container::open(&whole).unwrap().queues[0].len() / 2;
    // PERF_AUX_FLAG_TRUNCATED, PARTIAL and COLLISION, and how perf's dump writes them.
    for (flags, why, gaps, letters) in [
        (1, Gap::Truncated, 1, "[T]"),
        (4, Gap::Partial, 2, "[P]"),
        (8, Gap::Partial, 2, "[C]"),
        (5, Gap::Truncated, 1, "[TP]"),
    ] {
        let path = dir.path().join("perf.data");
        std::fs::write(&path, cut(flags, len)).unwrap();
        if tailsight_testing::lacks_program("perf").is_none() {
            let dumped = dump(&path, "PERF_RECORD_AUX ");
            let marked = dumped.iter().filter(|line| line.contains(letters)).count();
            // perf 6.1 has no letter for a collision.
            assert_eq!(marked, usize::from(flags != 8), "{dumped:?}");
        }
        let (events, transfers, summary) = decoded(&path);
        assert_eq!(summary.counts.gaps.get(&why).map(|(n, _)| *n), Some(gaps), "{flags}: {:?}", summary.counts.gaps);
        assert!(summary.errors.is_empty(), "{flags}: {:?}", summary.errors);
        // What is lost is what lies between the mark and the next synchronisation point: what is left is right.
        assert!(
            transfers.len() < whole_transfers.len() && transfers.len() * 10 > whole_transfers.len() * 8,
            "{} of {}",
            transfers.len(),
            whole_transfers.len()
        );
        for tid in [1000, 1001, 1002] {
            let of_thread =
                |all: &[(u32, bool, u64, u64)]| all.iter().filter(|t| t.0 == tid).copied().collect::<Vec<_>>();
            let (truth, decoded) = (of_thread(&whole_transfers), of_thread(&transfers));
            let before = truth.iter().zip(&decoded).take_while(|(a, b)| a == b).count();
            let behind = truth.iter().rev().zip(decoded.iter().rev()).take_while(|(a, b)| a == b).count();
            assert!(
                before + behind >= decoded.len(),
                "{flags}, thread {tid}: {before} and {behind} of {}",
                decoded.len()
            );
        }
        let gap = events.iter().rposition(|e| e.what == What::Gap(why)).unwrap();
        let open = events[..gap].iter().filter(|e| e.tid == events[gap].tid).fold(0i64, |n, e| match e.what {
            What::Enter(..) => n + 1,
            What::Leave(_) => n - 1,
            _ => n,
        });
        assert_eq!(open, 0, "{flags}: every span of the thread ended where the gap begins");
    }
}
