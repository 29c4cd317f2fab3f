//! Our own servers, live: each kind answers what it was asked. Needs root; skipped by name without.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tailsight_lab::clock::now_ns;
use tailsight_lab::probe::{self, Plan, ProbeProtocol, Sample, Special};
use tailsight_lab::servers::Service;
use tailsight_lab::truth::{Interval, TruthLog, kind};
use tailsight_lab::wire::flags;
use tailsight_testbed::netns::SERVER_V4;

use super::programs::Program;

const PORT: u16 = 7000;
/// A client that had no core for so long sends what was due then at once: a socket holds about 250 datagrams.
const FULL_NS: u64 = 50_000_000;
const ATTEMPTS: u32 = 3;

/// Loads a server of a kind for a third of a second and gives the samples.
fn load(
    test: &str,
    arguments: &str,
    protocol: ProbeProtocol,
    change: impl FnOnce(Plan) -> Plan,
) -> Option<Vec<Sample>> {
    let pair = super::pair(test)?;
    let _server = Program::start(&pair.server, &format!("serve {arguments} --port {PORT}"));
    let plan = change(Plan { rate_per_s: 1000.0, ..Plan::new(SocketAddr::new(SERVER_V4, PORT), protocol) });
    let stop = AtomicBool::new(false);
    let mut samples = vec![];
    for _ in 0..ATTEMPTS {
        samples = pair.client.run(|| probe::run(&plan, Duration::from_millis(300), &stop)).unwrap().unwrap();
        assert!(samples.len() > 150, "{} requests in 0.3 s at 1000/s", samples.len());
        let unanswered = samples.iter().filter(|s| s.answered_ns == 0).count();
        let late_ns = samples.iter().map(|s| s.sent_ns - s.due_ns).max().unwrap_or(0);
        let is_disturbed = protocol == ProbeProtocol::EchoUdp && late_ns > FULL_NS;
        assert!(
            unanswered == 0 || is_disturbed,
            "{unanswered} of {}, the client at most {late_ns} ns late",
            samples.len()
        );
        if unanswered == 0 {
            break;
        }
        samples.clear();
    }
    if samples.is_empty() {
        tailsight_testing::not_judged(
            test,
            "the client had no core, and sent more datagrams at once than a socket holds",
        );
        return None;
    }
    assert!(samples.iter().all(|s| s.due_ns <= s.sent_ns && s.sent_ns < s.answered_ns && s.answered_ns < now_ns()));
    Some(samples)
}

/// Two protocols were called synthetic: `tailsight load synthetic://` could not speak with `lab serve synthetic`.
#[test]
fn the_load_generator_speaks_with_the_synthetic_server() {
    for arguments in ["", "--read-one", "--work sleep", "--threads 2 --queue shared"] {
        let (_server, port) = Program::here(&format!("serve synthetic {arguments} --port 0"));
        for workload in ["service=20000;value=0", "service=20000;value=1000"] {
            let target = format!("127.0.0.1:{port}").parse().unwrap();
            let mut plan = tailsight_load::Plan::new(target, tailsight_load::Protocol::Synthetic);
            plan.rate = "1k".parse().unwrap();
            plan.duration_ns = Some(300_000_000);
            plan.connections = 3;
            plan.drain_ns = 2_000_000_000;
            plan.workload = workload.parse().unwrap();
            let outcome = tailsight_load::run(plan, &AtomicBool::new(false), |_| {}).unwrap();
            let counts = outcome.counts;
            assert!(counts.intended > 100, "{arguments} {workload}: {counts:?}");
            // A reply of another length or other bytes than asked for is not ok.
            assert_eq!(counts.ok, counts.intended, "{arguments} {workload}: {counts:?} {:?}", outcome.complaints);
        }
    }
}

#[test]
fn null_rpc_of_all_three_kinds_echoes() {
    let test = "null_rpc_of_all_three_kinds_echoes";
    for (kind, protocol) in
        [("rpc", ProbeProtocol::Echo), ("rpc-epoll", ProbeProtocol::Echo), ("rpc-udp", ProbeProtocol::EchoUdp)]
    {
        if load(test, kind, protocol, |plan| Plan { burst: 8, burst_part: 0.1, ..plan }).is_none() {
            return;
        }
    }
}

/// The stamps lie in order between sending and answering, and the service took at least what was asked for.
fn assert_served(samples: &[Sample]) {
    for s in samples {
        let t = s.stamps;
        assert!(s.sent_ns < t.received_ns && t.received_ns <= t.began_ns, "{s:?}");
        assert!(t.began_ns + u64::from(s.service_ns) <= t.ended_ns && t.ended_ns < s.answered_ns, "{s:?}");
    }
}

#[test]
fn synthetic_serves_for_as_long_as_it_is_asked() {
    let test = "synthetic_serves_for_as_long_as_it_is_asked";
    for arguments in [
        "synthetic",
        "synthetic --read-one",
        "synthetic --threads 3 --queue shared",
        "synthetic --threads 2 --queue worker --work sleep",
    ] {
        let bimodal =
            |plan| Plan { service: Service::Bimodal(20_000.0), burst: 5, burst_part: 0.05, fresh: 0.05, ..plan };
        let Some(samples) = load(test, arguments, ProbeProtocol::Synthetic, bimodal) else { return };
        assert_served(&samples);
        let slow = samples.iter().filter(|s| s.service_ns == 200_000).count();
        let part = slow as f64 / samples.len() as f64;
        assert!((0.02..0.25).contains(&part), "{arguments}: {part} of requests are slow, 0.1 asked for");
        assert!(samples.iter().any(|s| s.fresh), "{arguments}");
    }
}

#[test]
fn what_flags_ask_for_is_done_and_logged() {
    let test = "what_flags_ask_for_is_done_and_logged";
    let dir = tempfile::tempdir().unwrap();
    for (flag, kind) in [
        (flags::FSYNC, kind::FSYNC),
        (flags::TOUCH, kind::PAGES),
        (flags::PROTECT, kind::PAGES),
        (flags::RECLAIM, kind::PAGES),
        (flags::LOCK, kind::HELD),
    ] {
        let path = dir.path().join(format!("truth-{flag}"));
        let log = TruthLog::create(&path).unwrap();
        let arguments = format!(
            "synthetic --dir {} --truth {} --hold 5ms/20ms --handoff 1ms",
            dir.path().display(),
            path.display()
        );
        let special = Special { part: 0.1, flags: flag, service: None };
        let Some(samples) =
            load(test, &arguments, ProbeProtocol::Synthetic, |plan| Plan { special: Some(special), ..plan })
        else {
            return;
        };
        let mut asked: Vec<&Sample> = samples.iter().filter(|s| s.flags == flag).collect();
        // Requests of different connections may be served in another order than they were sent.
        asked.sort_by_key(|s| s.stamps.began_ns);
        assert!(!asked.is_empty());
        let logged: Vec<_> = log.intervals().unwrap().into_iter().filter(|entry| entry.kind == kind).collect();
        if kind != kind::HELD {
            // One entry a request, within its service.
            assert_eq!(logged.len(), asked.len(), "flag {flag}");
            for (entry, s) in logged.iter().zip(&asked) {
                assert!(
                    s.stamps.began_ns <= entry.begin_ns && entry.end_ns <= s.stamps.ended_ns,
                    "{flag}: {entry:?} {s:?}"
                );
            }
        } else {
            assert!(logged.len() > 5, "{logged:?}");
            // The server may be killed while it is held: that entry has no end.
            let long = |entry: &Interval| entry.end_ns != u64::MAX && entry.end_ns - entry.begin_ns > 1_000_000_000;
            assert!(!logged.iter().any(long), "{logged:?}");
        }
        let accepted = log.intervals().unwrap().iter().filter(|entry| entry.kind == kind::HANDOFF).count();
        assert!(accepted >= 8, "{accepted} connections");
    }
}
