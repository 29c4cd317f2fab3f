//! Schedules as they come out of a run, sampling, stepwise measuring, and errors before the first request.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tailsight_load::{Arrivals, Cursor, Driver, LoadError, Plan, Protocol, Receive, Schedule, Wait, run};

use crate::support::{echo, plain, plan, run_checked, scripted};

/// A server that echoes.
fn server() -> std::net::SocketAddr {
    scripted(|_, socket| echo(socket, plain))
}

#[test]
fn intended_times_are_the_schedule_of_the_seed() {
    for (arrivals, threads) in [("exponential", 1), ("fixed", 2), ("mmpp:8,0.1,10ms", 2)] {
        let mut plan = plan(server(), Protocol::Echo);
        plan.arrivals = arrivals.parse().unwrap();
        plan.threads = threads;
        plan.seed = 77;
        let outcome = run_checked(plan.clone());
        let expected: Vec<u64> = Schedule::new(&plan.arrivals, &plan.rate, 77)
            .unwrap()
            .unwrap()
            .take_while(|at| *at < plan.duration_ns.unwrap())
            .collect();
        let intended: Vec<u64> = outcome.samples.iter().map(|s| s.intended_ns - outcome.start_ns).collect();
        assert_eq!(intended, expected, "{arrivals}");
        assert_eq!(outcome.counts.ok, expected.len() as u64, "{:?}", outcome.counts);
    }
}

#[test]
fn a_replay_is_sent_once_with_its_gaps() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "100.0\n100.001\n100.001\n100.0505\n").unwrap();
    let mut plan = plan(server(), Protocol::Echo);
    plan.arrivals = Arrivals::Replay(file.path().into());
    let outcome = run_checked(plan);
    let intended: Vec<u64> = outcome.samples.iter().map(|s| s.intended_ns - outcome.start_ns).collect();
    assert_eq!(intended, [0, 1_000_000, 1_000_000, 50_500_000]);
    assert_eq!(outcome.counts.ok, 4);
}

#[test]
fn every_way_to_wait_and_read_answers_everything() {
    for wait in [Wait::Auto, Wait::Sleep, Wait::Poll(20_000), Wait::Spin] {
        for receive in [Receive::Eager, Receive::Auto] {
            let outcome = run_checked(Plan { wait, receive, ..plan(server(), Protocol::Echo) });
            assert_eq!(outcome.counts.ok, outcome.counts.intended, "{wait} {receive:?} {:?}", outcome.counts);
        }
    }
}

#[test]
fn a_closed_loop_keeps_its_requests_outstanding() {
    for arrivals in [Arrivals::Closed(8), Arrivals::Batch(8)] {
        let mut plan = plan(server(), Protocol::Echo);
        plan.arrivals = arrivals;
        plan.duration_ns = Some(200_000_000);
        let outcome = run_checked(plan);
        assert!(outcome.counts.ok > 100, "{:?}", outcome.counts);
        assert_eq!(outcome.counts.unsent + outcome.counts.unanswered, 0, "{:?}", outcome.counts);
    }
}

#[test]
fn a_closed_loop_goes_on_after_its_connection_was_closed() {
    let address = scripted(|_, socket| {
        let mut left = 20;
        echo(socket, move |bytes, socket| {
            left -= 1;
            if left == 0 { None } else { plain(bytes, socket) }
        });
    });
    let mut plan = plan(address, Protocol::Echo);
    plan.arrivals = Arrivals::Closed(1);
    plan.duration_ns = Some(300_000_000);
    let counts = run_checked(plan).counts;
    // Without a request after connecting anew, each connection would end with its first 20 replies.
    assert!(counts.reconnects > 8 && counts.ok > 200, "{counts:?}");
}

#[test]
fn sampling_keeps_a_random_share_and_counts_all() {
    let mut plan = plan(server(), Protocol::Echo);
    plan.sampling = 0.25;
    plan.rate = "8k".parse().unwrap();
    let outcome = run_checked(plan);
    let share = outcome.samples.len() as f64 / outcome.counts.sent as f64;
    assert!((share - 0.25).abs() < 0.04, "{share}");
    // Random, not every k-th: gaps between samples differ.
    let places: Vec<usize> = outcome
        .samples
        .iter()
        .map(|s| outcome.sends.partition_point(|send| send.intended_ns < s.intended_ns))
        .collect();
    let gaps: std::collections::HashSet<usize> = places.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps.len() > 4, "{gaps:?}");
}

#[test]
fn more_is_measured_while_the_load_goes_on() {
    let mut plan = plan(server(), Protocol::Echo);
    plan.duration_ns = None;
    plan.sampling = 0.0;
    let driver = Driver::start(plan).unwrap();
    let mut cursor = Cursor::default();
    std::thread::sleep(Duration::from_millis(150));
    assert!(driver.progress().sent > 0);
    assert!(driver.samples_since(&mut cursor).is_empty() && driver.sends_since(&mut cursor).is_empty());
    let first = driver.measure(1.0);
    std::thread::sleep(Duration::from_millis(150));
    let samples = driver.samples_since(&mut cursor);
    assert!(!samples.is_empty() && samples.iter().all(|s| s.window() == first));
    let sends = driver.sends_since(&mut cursor);
    assert!(sends.len() >= samples.len() && sends.is_sorted_by_key(|s| s.intended_ns));
    let second = driver.measure(0.5);
    assert_ne!(first, second);
    std::thread::sleep(Duration::from_millis(150));
    assert!(driver.samples_since(&mut cursor).iter().any(|s| s.window() == second));
    assert!(!driver.intervals_since(&mut cursor)[0].is_empty());
    let outcome = driver.stop();
    assert_eq!(outcome.counts.ok, outcome.counts.intended, "{:?}", outcome.counts);
}

#[test]
fn samples_without_room_are_counted() {
    let mut plan = plan(server(), Protocol::Echo);
    plan.max_samples = 10;
    plan.sampling = 0.999_999;
    let outcome = run_checked(plan);
    assert!(outcome.samples.len() < 100);
    assert!(outcome.complaints.iter().any(|c| c.to_string().contains("no room")), "{:?}", outcome.complaints);
}

#[test]
fn nobody_there_is_an_error_that_says_so() {
    let stop = AtomicBool::new(false);
    let port = crate::support::free_port();
    let refused = run(plan(format!("127.0.0.1:{port}"), Protocol::Echo), &stop, |_| {}).unwrap_err();
    assert!(matches!(refused, LoadError::Connect { .. }), "{refused}");
    let missing = run(plan("unix:/nonexistent/socket", Protocol::Echo), &stop, |_| {}).unwrap_err();
    assert!(matches!(missing, LoadError::Connect { .. }), "{missing}");
    let udp = run(plan(format!("udp://127.0.0.1:{port}"), Protocol::MemcachedText), &stop, |_| {}).unwrap_err();
    assert!(matches!(udp, LoadError::Setup { .. } | LoadError::Connect { .. }), "{udp}");
    let name = run(plan("name.invalid:1", Protocol::Echo), &stop, |_| {}).unwrap_err();
    assert!(matches!(name, LoadError::Resolve { .. }), "{name}");
}
