//! What a recorder does to the server that it records: a client's latency from before the first hook is attached until after the last
//! is gone, and where the recorder ran meanwhile.
//!
//! `TAILSIGHT_ROUNDS=N` measures more often (for docs/journal/0040), `TAILSIGHT_OTHER=PROGRAM` another build beside this one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tailsight_testbed::load::{self, Proto, Workload};
use tailsight_testbed::server::{MemcachedOpts, Server};
use tailsight_trace::event::Kind;
use tailsight_trace::{Run, fields};

use crate::support::{Live, address, shown};

const PORT: u16 = 25300;
/// Time before and after a recorder.
const ALONE: Duration = Duration::from_millis(1_200);

/// The nearest rank of a part, microseconds.
fn quantile(values: &mut [u64], part: f64) -> f64 {
    values.sort_unstable();
    let at = ((values.len() as f64 * part).ceil() as usize).clamp(1, values.len().max(1)) - 1;
    values.get(at).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The windows of a round, in order.
const WINDOWS: [&str; 5] = ["before", "attaching", "recording", "ending", "after"];

/// The client's p50 and p99 in each window, us, and the whole life of the recorder as a sixth.
fn round(live: &Live, program: &str, pid: &str, out: &str) -> Vec<(f64, f64)> {
    let load = Workload::new(Proto::Memcached, address(false, PORT)).rate(2_000.0);
    let ((begun, finished, ended), loads) = live.under_load(&[load], || {
        std::thread::sleep(ALONE);
        let begun = load::now_ns();
        let finished = Command::new(program)
            .args(["record", "-d", "1s", "-p", pid, "-o", out])
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .output()
            .expect("the program starts");
        let ended = load::now_ns();
        std::thread::sleep(ALONE);
        (begun, finished, ended)
    });
    assert_eq!(finished.status.code(), Some(0), "{}", shown(&finished));
    let meta = Run::open(Path::new(out)).unwrap().meta;
    assert!(begun < meta.start_ns && meta.start_ns < meta.end_ns && meta.end_ns < ended, "the clocks are the same");
    let alone = ALONE.as_nanos() as u64;
    let edges = [begun - alone, begun, meta.start_ns, meta.end_ns, ended, ended + alone];
    let quantiles_between = |from: u64, to: u64| {
        let due = loads[0].timed_ns.iter().filter(|(due, _)| (from..to).contains(due));
        let mut latencies: Vec<u64> = due.map(|(_, latency)| *latency).collect();
        (quantile(&mut latencies, 0.5), quantile(&mut latencies, 0.99))
    };
    edges.windows(2).map(|edge| quantiles_between(edge[0], edge[1])).chain([quantiles_between(begun, ended)]).collect()
}

/// In trials a clean server's p99 went from 0.2 to 2 to 3 ms when recording began and ended: loading programs, making buffers and writing
/// took the server's core in turns of 3 ms. The times are printed, for they are also those of what else runs here; where the recorder ran is held.
#[test]
fn a_recorder_stays_off_the_server_s_core_from_attaching_to_the_end() {
    let Some(live) = Live::new("a_recorder_stays_off_the_server_s_core_from_attaching_to_the_end") else { return };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return tailsight_testing::skip("needs two cores");
    }
    let rounds = std::env::var("TAILSIGHT_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let mut programs = vec![env!("CARGO_BIN_EXE_tailsight").to_owned()];
    programs.extend(std::env::var("TAILSIGHT_OTHER"));
    for cpu in [Some(0), None] {
        let opts = MemcachedOpts { port: PORT, threads: 2, cpu, ..Default::default() };
        let server = Server::memcached(&live.pair.server, opts).unwrap();
        let pid = server.pid().to_string();
        let mut measured: Vec<Vec<Vec<(f64, f64)>>> = vec![vec![]; programs.len()];
        for number in 0..rounds {
            for turn in 0..programs.len() {
                let which = (turn + number) % programs.len();
                let out = live.path(&format!("run-{which}-{}", cpu.is_some()));
                measured[which].push(round(&live, &programs[which], &pid, &out));
            }
        }
        for (program, rounds) in programs.iter().zip(&measured) {
            println!("{program}, server on {}:", if cpu.is_some() { "core 0" } else { "any core" });
            for (at, window) in WINDOWS.iter().chain([&"whole"]).enumerate() {
                let median_of =
                    |pick: fn(&(f64, f64)) -> f64| median(rounds.iter().map(|round| pick(&round[at])).collect());
                println!("  {window:<10} p50 {:7.0} us  p99 {:7.0} us", median_of(|w| w.0), median_of(|w| w.1));
            }
        }
        if cpu.is_some() {
            stays_away(&live.path("run-0-true"));
        }
    }
}

/// No thread of the recorder ran on the core of the server, which another one was free beside: by the recording itself.
fn stays_away(out: &str) {
    let mut run = Run::open(Path::new(out)).unwrap();
    let recorder = run.meta.recorder.clone().unwrap();
    let placement = recorder.placement.clone().unwrap();
    assert!(placement.apart && !placement.cores.is_empty() && !placement.cores.contains(&0), "{placement:?}");
    let events = run.events().unwrap();
    let mut elsewhere = 0;
    for core in &events {
        let came = core.events.iter().filter(|e| e.kind() == Some(Kind::SchedSwitch));
        let came = came.filter(|e| recorder.threads.contains(&fields::Switch::of(e).next_tid)).count();
        assert!(core.cpu != 0 || came == 0, "the recorder ran {came} times on the server's core");
        elsewhere += came;
    }
    assert!(elsewhere > 0, "it ran somewhere");
}

/// It took 20 s nearly always, for 200 samples in slow messages that did not run.
#[test]
fn a_recording_ends_when_more_samples_are_not_needed() {
    let Some(live) = Live::new("a_recording_ends_when_more_samples_are_not_needed") else { return };
    let opts = MemcachedOpts { port: PORT, threads: 1, ..Default::default() };
    let server = Server::memcached(&live.pair.server, opts).unwrap();
    let out = live.path("run");
    let pid = server.pid().to_string();
    let load = Workload::new(Proto::Memcached, address(false, PORT)).rate(2_000.0);
    let (output, _) = live.under_load(&[load], || crate::support::run(&["record", "-p", &pid, "-o", &out]));
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let (messages, ..) = crate::support::check_run(Path::new(&out));
    let meta = Run::open(Path::new(&out)).unwrap().meta;
    let seconds = (meta.end_ns - meta.start_ns) as f64 / 1e9;
    let slow = meta.sampling.as_ref().and_then(|s| s.slow).unwrap_or_default();
    println!("{messages} messages and {slow} samples in slow ones in {seconds:.1} s");
    assert!(messages >= 2_000, "{messages}");
    // At the rate of fewer, not even 60 samples in slow messages could come in 20 s, by an upper bound.
    assert!(seconds < 19.0 || slow > 30, "{seconds:.1} s with {slow} samples in slow messages");
}
