//! Schedules as they come out of a run, sampling, stepwise measuring, and errors before the first request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tailsight_load::{
    Arrivals, BurstOver, Complaint, Cursor, Driver, LEAD_NS, LoadError, Outcome, Plan, Protocol, Receive, Sample,
    Schedule, Wait, now_ns, run,
};

use crate::support::{alone, echo, plain, plan, run_checked, scripted};

/// A server that echoes.
fn server() -> std::net::SocketAddr {
    scripted(|_, socket| echo(socket, plain))
}

#[test]
fn intended_times_are_the_schedule_of_the_seed() {
    let _alone = alone();
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
fn loopback_has_the_kernels_stamps_and_the_outcome_says_why() {
    let _alone = alone();
    let outcome = run_checked(plan(server(), Protocol::Echo));
    let source = outcome.stamps().unwrap();
    assert_eq!((source.source.as_str(), source.hint), ("software", None));
    assert_eq!(source.why.as_deref(), Some("loopback: no NIC between client and server"));
    let hardware = Sample::SENT_HARDWARE | Sample::RECEIVED_HARDWARE;
    assert!(outcome.samples.iter().all(|s| s.flags & hardware == 0));
    let outcome = run_checked(Plan { stamps: false, ..plan(server(), Protocol::Echo) });
    assert_eq!(outcome.stamps().unwrap().source, "none");
}

#[test]
fn a_replay_is_sent_once_with_its_gaps() {
    let _alone = alone();
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
    let _alone = alone();
    for wait in [Wait::Auto, Wait::Sleep, Wait::Poll(20_000), Wait::Spin, Wait::Batch(1_000_000)] {
        for receive in [Receive::Eager, Receive::Auto] {
            let outcome = run_checked(Plan { wait, receive, ..plan(server(), Protocol::Echo) });
            assert_eq!(outcome.counts.ok, outcome.counts.intended, "{wait} {receive:?} {:?}", outcome.counts);
        }
    }
}

/// Regression: a thread that gathered slept with every connection full, until its housekeeping, and sent one request in twenty.
#[test]
fn gathering_ends_when_replies_make_room() {
    let _alone = alone();
    let mut plan = Plan { wait: Wait::Batch(10_000_000), outstanding: 1, ..plan(server(), Protocol::Echo) };
    plan.rate = "4k".parse().unwrap();
    for receive in [Receive::Eager, Receive::Auto] {
        let outcome = run_checked(Plan { receive, ..plan.clone() });
        assert_eq!(outcome.counts.ok, outcome.counts.intended, "{receive:?} {:?}", outcome.counts);
    }
}

/// What came due while the thread let requests gather is late because it slept; what comes due behind requests of the same
/// time is late because the thread was busy with them.
#[test]
fn lateness_is_told_apart_by_what_the_thread_did() {
    let _alone = alone();
    let mut batched = plan(server(), Protocol::Echo);
    (batched.wait, batched.rate) = (Wait::Batch(10_000_000), "4k".parse().unwrap());
    let slept = run(batched, &AtomicBool::new(false), |_| {}).unwrap();
    // Nine in ten came due in a sleep and were late by a tenth of it at least.
    assert!(slept.overslept.quantile(0.5).unwrap() > 1_000_000, "{:?}", slept.overslept.quantile(0.5));
    assert!(slept.overslept.quantile(0.5) <= slept.lateness.quantile(0.5));
    let file = tempfile::NamedTempFile::new().unwrap();
    // All but the first of each group find the thread sending the ones before.
    let group = |g: u32| (0..1000).map(move |i| format!("{:.9}\n", f64::from(g) * 0.05 + f64::from(i) * 1e-8));
    std::fs::write(file.path(), (0..8).flat_map(group).collect::<String>()).unwrap();
    let mut crowded = plan(server(), Protocol::Echo);
    (crowded.arrivals, crowded.wait) = (Arrivals::Replay(file.path().into()), Wait::Spin);
    let busy = run(crowded, &AtomicBool::new(false), |_| {}).unwrap();
    let (late, overslept) = (busy.lateness.quantile(0.5).unwrap(), busy.overslept.quantile(0.5).unwrap());
    assert!(overslept * 10 < late, "{overslept} of {late}");
}

/// Regression: a host whose sleeps end late gave N/A at every try although a core was free to poll on. A server on this host needs a
/// core of its own, and so does all the rest.
#[test]
fn a_load_is_made_punctual_while_it_runs() {
    let _alone = alone();
    let driver = |wait| Driver::start(Plan { wait, ..plan(server(), Protocol::Echo) }).unwrap();
    let auto = driver(Wait::Auto);
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(auto.be_punctual(), cores > 2);
    assert!(!auto.be_punctual(), "it is already, or cannot be");
    let elsewhere = Plan { wait: Wait::Auto, ..plan("192.0.2.1:9", Protocol::Echo) };
    assert_eq!(Driver::could_be_punctual(&elsewhere), cores > 1);
    let outcome = auto.wait();
    assert_eq!(outcome.plan.wait, if cores > 2 { Wait::Spin } else { Wait::Auto });
    assert_eq!(outcome.counts.ok, outcome.counts.intended);
    // What was asked for by name stays.
    let sleeps = driver(Wait::Sleep);
    assert!(!sleeps.be_punctual());
    assert_eq!(sleeps.stop().plan.wait, Wait::Sleep);
}

#[test]
fn bursts_are_due_at_once_and_leave_together_at_the_rate_asked_for() {
    let _alone = alone();
    let mut plan = plan(server(), Protocol::Echo);
    (plan.burst, plan.outstanding) = (40, 64);
    plan.rate = "8k".parse().unwrap();
    plan.arrivals = Arrivals::FIXED;
    let outcome = run(plan, &AtomicBool::new(false), |_| {}).unwrap();
    // 4,000 requests in half a second: 100 bursts.
    assert_eq!((outcome.counts.intended, outcome.counts.ok), (4000, 4000), "{:?}", outcome.counts);
    for burst in outcome.samples.chunk_by(|a, b| a.intended_ns == b.intended_ns) {
        assert_eq!(burst.len(), 40);
        let first = burst[0];
        assert!(burst.iter().all(|s| s.connection == first.connection && s.called_ns == first.called_ns));
        assert!(burst.iter().all(|s| s.flags & Sample::SENT_TOGETHER != 0));
    }
    // As an arrival process each burst is one.
    assert_eq!(outcome.sends.len(), 100);
    assert!(outcome.complaints.iter().all(|c| !matches!(c, Complaint::RateMissed { .. })), "{:?}", outcome.complaints);
}

#[test]
fn a_burst_over_connections_takes_one_after_the_other() {
    let _alone = alone();
    let mut plan = plan(server(), Protocol::Echo);
    // More than there are connections: the round goes on with the first. A server that is slow for a while must not fill one.
    (plan.burst, plan.burst_over, plan.outstanding) = (6, BurstOver::Connections, 4096);
    plan.rate = "6k".parse().unwrap();
    plan.arrivals = Arrivals::FIXED;
    let outcome = run(plan.clone(), &AtomicBool::new(false), |_| {}).unwrap();
    assert_eq!((outcome.counts.intended, outcome.counts.ok), (3000, 3000), "{:?}", outcome.counts);
    assert_eq!(outcome.sends.len(), 500);
    for burst in outcome.samples.chunk_by(|a, b| a.intended_ns == b.intended_ns) {
        let on = |connection| burst.iter().filter(|s| s.connection == connection).count();
        assert_eq!(burst.len(), 6);
        assert!((0..4).all(|connection| (1..=2).contains(&on(connection))), "{burst:?}");
    }
    (plan.burst, plan.outstanding) = (17, 4);
    assert!(plan.validate().is_err(), "4 connections with 4 outstanding on each hold 16");
}

#[test]
fn bursts_without_room_wait_and_are_counted() {
    let _alone = alone();
    // Nobody answers after the first exchange of each connection.
    let address = scripted(|_, socket| {
        let mut first = true;
        echo(socket, move |bytes, socket| if std::mem::take(&mut first) { plain(bytes, socket) } else { Some(()) });
    });
    let mut plan = plan(address, Protocol::Echo);
    (plan.burst, plan.outstanding, plan.connections, plan.receive) = (8, 20, 1, Receive::Eager);
    plan.arrivals = Arrivals::FIXED;
    let counts = run(plan, &AtomicBool::new(false), |_| {}).unwrap().counts;
    // Two bursts fit, half of one is not sent.
    assert_eq!((counts.intended, counts.sent, counts.unanswered), (1000, 16, 16), "{counts:?}");
}

/// Regression: with one request outstanding, keys were stored one at a time, which cost the CPU time of a second of load.
#[test]
fn keys_are_stored_many_at_a_time_however_few_are_outstanding() {
    let _alone = alone();
    let (reads, stored) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counts = (reads.clone(), stored.clone());
    // Says STORED to each set and END to each get.
    let address = scripted(move |_, socket| {
        let (mut come, (reads, stored)) = (Vec::new(), &counts);
        echo(socket, |bytes, socket| {
            reads.fetch_add(1, Ordering::Relaxed);
            come.extend_from_slice(bytes);
            let mut answers = Vec::new();
            while let Some(end) = come.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8(come[..end].to_vec()).unwrap();
                let value = line.strip_prefix("set ").and_then(|words| words.rsplit(' ').next());
                let whole = end + 2 + value.map_or(0, |length| length.parse::<usize>().unwrap() + 2);
                if come.len() < whole {
                    break;
                }
                come.drain(..whole);
                stored.fetch_add(u32::from(value.is_some()), Ordering::Relaxed);
                answers.extend_from_slice(if value.is_some() { b"STORED\r\n" } else { b"END\r\n" });
            }
            plain(&answers, socket)
        });
    });
    let mut plan = plan(address, Protocol::MemcachedText);
    (plan.outstanding, plan.workload.keys) = (1, 1000);
    drop(Driver::prepare(plan).unwrap());
    assert_eq!(stored.load(Ordering::Relaxed), 1000);
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads < 200, "{reads} reads of the server for 1000 keys");
}

#[test]
fn loads_that_spin_share_a_thread() {
    let _alone = alone();
    let spinning = |rate: &str, ms: u64| {
        let mut plan = plan(server(), Protocol::Echo);
        plan.rate = rate.parse().unwrap();
        (plan.wait, plan.duration_ns, plan.pin) = (Wait::Spin, Some(ms * 1_000_000), false);
        plan
    };
    let prepared = Driver::prepare_together(vec![spinning("2k", 400), spinning("1k", 200)]).unwrap();
    let start = now_ns() + LEAD_NS;
    let drivers: Vec<Driver> = prepared.into_iter().map(|p| p.go(start)).collect();
    let [long, short]: [Outcome; 2] = drivers.into_iter().map(Driver::wait).collect::<Vec<_>>().try_into().unwrap();
    for (outcome, expected) in [(&long, 800.0_f64), (&short, 200.0)] {
        assert_eq!(outcome.counts.ok, outcome.counts.intended, "{:?}", outcome.counts);
        // Six standard deviations of a Poisson count.
        assert!((outcome.counts.ok as f64 - expected).abs() < 6.0 * expected.sqrt(), "{:?}", outcome.counts);
    }
    // One of both threads did the work, the other slept.
    let cpu = [&long, &short].map(|o| o.threads[0].treatment.cpu_ns);
    assert!(cpu[0].min(cpu[1]) * 10 < cpu[0].max(cpu[1]), "{cpu:?}");

    // One that is dropped does not keep the others waiting, and one can be stopped while others go on.
    let mut prepared =
        Driver::prepare_together(vec![spinning("1k", 300), spinning("1k", 300), spinning("1k", 60_000)]).unwrap();
    drop(prepared.remove(0));
    let drivers: Vec<Driver> = prepared.into_iter().map(|p| p.go(0)).collect();
    drivers[1].end();
    for outcome in drivers.into_iter().map(Driver::wait) {
        assert_eq!(outcome.counts.ok, outcome.counts.intended, "{:?}", outcome.counts);
    }

    let sleeps = Plan { wait: Wait::Sleep, ..spinning("1k", 100) };
    let (which, error) = Driver::prepare_together(vec![spinning("1k", 100), sleeps]).unwrap_err();
    assert!(which == 1 && matches!(error, LoadError::Plan(_)), "{error}");
}

#[test]
fn a_closed_loop_keeps_its_requests_outstanding() {
    let _alone = alone();
    for arrivals in [Arrivals::Closed(8), Arrivals::Batch(8)] {
        let mut plan = plan(server(), Protocol::Echo);
        plan.arrivals = arrivals;
        plan.duration_ns = Some(200_000_000);
        let outcome = run_checked(plan);
        assert!(outcome.counts.ok > 100, "{:?}", outcome.counts);
        assert_eq!(outcome.counts.unsent + outcome.counts.unanswered, 0, "{:?}", outcome.counts);
    }
}

/// Regression: a closed loop did not heed `batch`, woke for each reply and sent for each.
#[test]
fn a_closed_loop_that_gathers_answers_everything_and_sends_together() {
    let _alone = alone();
    let mut plan = plan(server(), Protocol::Echo);
    (plan.arrivals, plan.outstanding, plan.wait) = (Arrivals::Closed(8), 8, Wait::Batch(1_000_000));
    let outcome = run_checked(plan);
    assert_eq!(outcome.counts.ok, outcome.counts.sent, "{:?}", outcome.counts);
    let together = outcome.samples.iter().filter(|s| s.flags & Sample::SENT_TOGETHER != 0).count();
    assert!(2 * together > outcome.samples.len(), "{together} of {}", outcome.samples.len());
    // A millisecond gathers at least: so many turns of 4 connections with 8 requests, the first one and the last one whole. The last one may
    // be late.
    let called_ns = || outcome.samples.iter().map(|s| s.called_ns);
    let turns = (called_ns().max().unwrap() - called_ns().min().unwrap()) / 1_000_000 + 2;
    assert!(outcome.counts.sent <= turns * 32, "{turns} turns, {:?}", outcome.counts);
}

#[test]
fn a_closed_loop_goes_on_after_its_connection_was_closed() {
    let _alone = alone();
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
    // Without a request after connecting again, each connection would end with its first 20 replies.
    assert!(counts.reconnects > 8 && counts.ok > 200, "{counts:?}");
}

#[test]
fn sampling_keeps_a_random_share_and_counts_all() {
    let _alone = alone();
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
    let _alone = alone();
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
    let _alone = alone();
    let mut plan = plan(server(), Protocol::Echo);
    plan.max_samples = 10;
    plan.sampling = 0.999_999;
    let outcome = run_checked(plan);
    assert!(outcome.samples.len() < 100);
    assert!(
        outcome.complaints.iter().any(|c| c.to_string().contains("samples were dropped")),
        "{:?}",
        outcome.complaints
    );
}

/// Regression: a core that there is not was left out without a word, and the thread ran anywhere.
#[test]
fn a_core_that_there_is_not_is_an_error() {
    let _alone = alone();
    let plan = Plan { cpus: vec![4095], pin: true, ..plan(server(), Protocol::Echo) };
    let error = run(plan, &AtomicBool::new(false), |_| {}).unwrap_err();
    assert!(matches!(&error, LoadError::Plan(reason) if reason.contains("core 4095")), "{error}");
}

/// Regression: each cause was said twice where a chain of errors is printed.
#[test]
fn an_error_says_its_cause_once() {
    let _alone = alone();
    let error = run(plan("unix:/nonexistent/socket", Protocol::Echo), &AtomicBool::new(false), |_| {}).unwrap_err();
    let (text, chain) = (error.to_string(), tailsight_units::chain(&error));
    assert!(!text.contains("No such file"), "{text}");
    assert_eq!(chain.matches("No such file").count(), 1, "{chain}");
}

#[test]
fn nobody_there_is_an_error_that_says_so() {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    let port = tailsight_testing::free_port();
    let refused = run(plan(format!("127.0.0.1:{port}"), Protocol::Echo), &stop, |_| {}).unwrap_err();
    assert!(matches!(refused, LoadError::Connect { .. }), "{refused}");
    let missing = run(plan("unix:/nonexistent/socket", Protocol::Echo), &stop, |_| {}).unwrap_err();
    assert!(matches!(missing, LoadError::Connect { .. }), "{missing}");
    let udp = run(plan(format!("udp://127.0.0.1:{port}"), Protocol::MemcachedText), &stop, |_| {}).unwrap_err();
    assert!(matches!(udp, LoadError::Setup { .. } | LoadError::Connect { .. }), "{udp}");
    let name = run(plan("name.invalid:1", Protocol::Echo), &stop, |_| {}).unwrap_err();
    assert!(matches!(name, LoadError::Resolve { .. }), "{name}");
}
