//! `import --with RUN`, then `diagnose`: functions of an Intel PT recording become parts of messages, and the cause of the slow ones.
//!
//! The recording is the lab's (`tailsight-pt/tests/fixtures/requests`): two workers serve requests, one request in six goes through
//! `slow_path`. Its control flow is real, its time assigned. The run beside it is written here, from the recording's context switches: a
//! message arrives before each round of a worker and is answered at its end.

use std::path::{Path, PathBuf};

use tailsight_pt::{Places, Recording};
use tailsight_trace::clock_log::{Clock, ClockChangeRow, ClockLog};
use tailsight_trace::event::{Kind, switch_flags};
use tailsight_trace::meta::{Cpu, RunMeta, State, Target};
use tailsight_trace::tables::TaskRow;
use tailsight_trace::write::RunWriter;
use tailsight_trace::{Event, FORMAT_VERSION};

use crate::support::{run, shown};

/// The run's CLOCK_MONOTONIC is this far ahead of perf's time, ns.
const AHEAD_NS: u64 = 4_000_000_000;
/// A worker's code begins so long after it has the core, and ends so long before it leaves it (half a microsecond in the recording).
const EDGE_NS: u64 = 100;
const WORKERS: [u32; 2] = [1001, 1002];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tailsight-pt/tests/fixtures/requests")
}

/// What a worker is in.
#[derive(Default)]
struct Worker {
    /// Its message was told.
    serves: bool,
    received: u64,
    sent: u64,
}

/// The events of a server whose threads have the cores as in the recording.
fn events(recording: &Recording) -> (Vec<Vec<Event>>, usize) {
    let mut switches: Vec<(u64, usize, u32, bool)> = Vec::new();
    for (cpu, of) in &recording.sideband.switches {
        switches.extend(
            of.iter().filter(|s| s.time_ns > 0).map(|s| (s.time_ns + AHEAD_NS, *cpu as usize, s.tid, s.preempted)),
        );
    }
    switches.sort_unstable();
    let mut out = vec![Vec::new(); 2];
    let mut on = [0u32; 2];
    let mut workers = [Worker::default(), Worker::default()];
    let mut messages = 0;
    for (ns, cpu, tid, preempted) in switches {
        let push = |out: &mut Vec<Vec<Event>>, ts: u64, kind: Kind, tid: u32, [a, b, c]: [u64; 3], aux: u16| {
            out[cpu].push(Event { ts, kind: kind as u8, aux, tid, a, b, c, ..Event::default() });
        };
        let ports = |tid: u32| 11211 << 16 | u64::from(tid);
        let from = std::mem::replace(&mut on[cpu], tid);
        // Who leaves by a system call has answered.
        if let Some(i) = WORKERS.iter().position(|w| *w == from).filter(|_| !preempted) {
            let worker = &mut workers[i];
            worker.sent += 50;
            worker.serves = false;
            push(
                &mut out,
                ns - EDGE_NS,
                Kind::Send,
                from,
                [1, ports(from) | worker.sent << 32, 50 | u64::from(from) << 32],
                0,
            );
        }
        // Who comes for a new round was sent a message.
        let new = WORKERS.iter().position(|w| *w == tid).filter(|i| !workers[*i].serves);
        if let Some(i) = new {
            let before = workers[i].received;
            workers[i].received += 50;
            messages += 1;
            push(&mut out, ns - 60, Kind::SoftirqEntry, from, [3, 0, 0], 0);
            push(&mut out, ns - 50, Kind::RxStack, from, [1, ports(tid) | before << 32, 50 | 2 << 32], 0);
            push(
                &mut out,
                ns - 40,
                Kind::Handoff,
                from,
                [1, ports(tid) | workers[i].received << 32, u64::from(tid)],
                0,
            );
            push(&mut out, ns - 30, Kind::SchedWakeup, from, [u64::from(tid) | (cpu as u64) << 32, 0, 0], 0);
            push(&mut out, ns - 20, Kind::SoftirqExit, from, [3, 0, 0], 0);
        }
        let (aux, state) = if preempted { (switch_flags::PREEMPTED, 0) } else { (0, 1) };
        push(
            &mut out,
            ns,
            Kind::SchedSwitch,
            from,
            [u64::from(from) | u64::from(tid) << 32, state | 120 << 32, 0],
            aux,
        );
        if let Some(i) = new {
            workers[i].serves = true;
            let at = workers[i].received;
            push(&mut out, ns + EDGE_NS, Kind::Recv, tid, [1, ports(tid) | at << 32, 50 | u64::from(tid) << 32], 0);
        }
    }
    (out, messages)
}

fn write_run(dir: &Path, recording: &Recording) -> usize {
    let (events, messages) = events(recording);
    let all = || events.iter().flatten().map(|event| event.ts);
    let mut meta = RunMeta {
        format: "tailsight-run".into(),
        version: FORMAT_VERSION,
        source: "ebpf".into(),
        start_ns: all().min().unwrap() - 1000,
        end_ns: all().max().unwrap() + 1000,
        target: Target { pids: vec![1000], ports: vec![11211], ..Target::default() },
        ..RunMeta::default()
    };
    meta.host.cpus = 2;
    let mut writer = RunWriter::create_in(dir, &meta, true).unwrap();
    for (cpu, events) in events.iter().enumerate() {
        writer.events(u32::try_from(cpu).unwrap(), events).unwrap();
    }
    let task = |tid: u32| TaskRow { tid, tgid: 1000, comm: "two-threads".into(), target: true, ..TaskRow::default() };
    writer.tasks(&[task(1000), task(1001), task(1002)]).unwrap();
    writer.sockets(&[]).unwrap();
    writer.clocks(&[]).unwrap();
    // perf's time is 1 s at counter 0, two ticks a nanosecond.
    let row = |seq, s: u64| ClockChangeRow {
        seq,
        cycle_last: s * 2_000_000_000,
        mult: 512,
        shift: 10,
        monotonic_s: 1 + AHEAD_NS / 1_000_000_000 + s,
        ..ClockChangeRow::default()
    };
    writer.clock_log(&[row(2, 1), row(4, 2), row(6, 3)]).unwrap();
    meta.cpus = (0..2).map(|cpu| Cpu { cpu, events: writer.written(cpu), lost: 0 }).collect();
    meta.state = State::Complete;
    writer.finish(&mut meta).unwrap();
    messages
}

#[test]
fn functions_of_a_recording_are_in_the_lifetimes_and_name_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let (of, both) = (dir.path().join("messages"), dir.path().join("both"));
    std::fs::create_dir(&of).unwrap();
    let perf_data = fixture().join("perf.data");
    let places = Places { roots: vec![fixture()], ..Places::default() };
    let messages = write_run(&of, &Recording::open(&perf_data, &places).unwrap());
    assert!(messages > 200, "{messages}");
    let text = |path: &Path| path.display().to_string();
    let (recording, root) = (text(&perf_data), text(&fixture()));
    let output =
        run(&["import", &recording, "--root", &root, "--with", &text(&of), "-o", &text(&both), "--all", "--json"]);
    assert!(output.status.success(), "{}", shown(&output));
    let imported: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(imported["events_outside"], 0);
    assert_eq!(imported["clock_error_ns"], 1);
    // In the lifetimes.
    let output = run(&["diagnose", &text(&both), "--focus", "p85..p100", "--json"]);
    let said: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", shown(&output)));
    println!("{}", serde_json::to_string_pretty(&said["causes"]).unwrap());
    let first = &said["causes"][0];
    assert!(first.to_string().contains("slow_path"), "{first}");
}

/// With its log of clock changes a run says when a counter was to the nanosecond; its own comparisons of the clocks agree.
#[test]
fn record_keeps_the_changes_of_the_clock_where_it_is_asked_to() {
    if let Some(why) = tailsight_testing::lacks_root() {
        return tailsight_testing::skip(why);
    }
    if let Err(why) = tailsight_host::vvar::Page::open() {
        return tailsight_testing::skip(why);
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run").display().to_string();
    let output = run(&["record", "-d", "400ms", "--clock-log", "-o", &out, "--", "sleep", "30"]);
    assert!(output.status.success(), "{}", shown(&output));
    let run = tailsight_trace::Run::open(Path::new(&out)).unwrap();
    let log = ClockLog::new(run.clock_log.iter().copied());
    assert!(log.rows().len() > 10, "{} changes", log.rows().len());
    assert!(run.clocks.len() >= 2);
    for row in &run.clocks {
        let time = log.convert(Clock::Monotonic, row.tsc).unwrap();
        let apart = time.ns.abs_diff(row.monotonic_ns);
        assert!(apart <= row.bracket_ns + time.error_ns, "{apart} ns of {row:?}, {time:?}");
    }
}
