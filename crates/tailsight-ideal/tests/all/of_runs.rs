//! The ideal of a server: which queue fits, what it gives each message, what is refused.

use std::collections::BTreeMap;

use tailsight_ideal::{Error, GivenParameters, Inherent, Queues, fit, ideal, inherent, latencies};
use tailsight_lifetime::timelines::work::{ThreadWork, Work};
use tailsight_lifetime::{Leg, Lifetimes, Message};

/// A message on a flow, taken by a thread, at `at` us, answered after `length` us.
fn message(id: u32, flow: u32, tid: u32, at: u64, length: u64) -> Message {
    let driver_ns = at * 1000 + 1;
    Message {
        id,
        flow,
        tid,
        driver_ns,
        recv_ns: driver_ns + 100,
        send_ns: driver_ns + 200,
        xmit_ns: driver_ns + length * 1000,
        ..Message::default()
    }
}

fn run(messages: Vec<Message>) -> Lifetimes {
    let parts = messages.iter().map(|_| [vec![], vec![], vec![]]).collect();
    Lifetimes::from_parts("server", messages, vec![], vec![], parts)
}

/// Threads on cores of their own from 2 up: messages, and us of user time in all.
fn work(threads: &[(u32, u64, u64)], receive: &[(u16, u64)]) -> Work {
    let thread = |(cpu, (tid, messages, us)): (u16, &(u32, u64, u64))| ThreadWork {
        tid: *tid,
        messages: *messages,
        user_ns: us * 1000,
        kernel_ns: 0,
        cpus: BTreeMap::from([(cpu, us * 1000)]),
    };
    Work {
        span_ns: (0, 1),
        threads: (2..).zip(threads).map(thread).collect(),
        others_ns: 0,
        receive: receive.iter().map(|(cpu, us)| (*cpu, us * 1000)).collect(),
        packets: 2000,
    }
}

/// Every 10 us one, on alternating flows and threads.
fn two_threads(bound: bool) -> Lifetimes {
    let tid = |i: u32| 7 + if bound { i % 2 } else { i / 3 % 2 };
    run((0..1000).map(|i| message(i, i % 2, tid(i), u64::from(i) * 10, 20)).collect())
}

#[test]
fn one_thread_is_one_worker_and_its_packets_are_part_of_its_work() {
    // Pairs every 20 us; 4 us of work and 2 us of receiving a message: the second of a pair waits for 6 us.
    let messages = (0..1000).map(|i| message(i, 0, 7, u64::from(i / 2) * 20, 30)).collect();
    let (lifetimes, work) = (run(messages), work(&[(7, 1000, 4000)], &[(2, 2000)]));
    let of_run = ideal("run", &lifetimes, &work, &GivenParameters::default(), &[0.5, 0.99, 0.9999]).unwrap();
    assert_eq!((of_run.model.workers, of_run.model.service_ns, of_run.model.queues), (1, 6000, Queues::One));
    assert_eq!((of_run.model.user_ns, of_run.model.receive_ns, of_run.model.apart_ns), (4000, 2000, 0));
    assert!((of_run.model.utilisation - 0.6).abs() < 0.001, "{}", of_run.model.utilisation);
    assert_eq!((of_run.ideal_ns["p50"], of_run.ideal_ns["p99"]), (6000, 12_000));
    assert_eq!((of_run.measured_ns["p99"], of_run.ratio["p99"]), (30_000, 2.5));
    assert_eq!(of_run.not_available["p99.99"], "needs 36887 messages with a reply, there are 1000");
    assert_eq!(of_run.ccdf.ideal.last(), Some(&(12_000, 0.0)));
}

#[test]
fn packets_received_on_other_cores_are_a_constant() {
    let messages = (0..1000).map(|i| message(i, 0, 7, u64::from(i) * 10, 30)).collect();
    let given = GivenParameters::default();
    let of_run = ideal("run", &run(messages), &work(&[(7, 1000, 4000)], &[(0, 2000)]), &given, &[0.5]).unwrap();
    assert_eq!((of_run.model.service_ns, of_run.model.apart_ns, of_run.ideal_ns["p50"]), (4000, 2000, 6000));
}

#[test]
fn connections_that_belong_to_threads_are_a_queue_a_worker() {
    let work = work(&[(7, 500, 4000), (8, 500, 4000)], &[]);
    let own = fit(&two_threads(true), &work, &GivenParameters::default()).unwrap();
    assert_eq!((own.workers, own.queues), (2, Queues::OneAWorker));
    let shared = fit(&two_threads(false), &work, &GivenParameters::default()).unwrap();
    assert_eq!((shared.workers, shared.queues), (2, Queues::One));
}

#[test]
fn many_threads_on_few_cores_are_one_queue_of_the_scheduler() {
    let mut work = work(&[(7, 500, 4000), (8, 500, 4000)], &[]);
    work.threads[1].cpus = work.threads[0].cpus.clone();
    let model =
        fit(&two_threads(true), &work, &GivenParameters { workers: None, ..GivenParameters::default() }).unwrap();
    assert_eq!((model.workers, model.threads, model.cores, model.queues), (1, 2, 1, Queues::One));
}

#[test]
fn one_queue_is_shown_beside_a_queue_a_worker() {
    // Two at once on one connection: one waits for the other although the second worker is idle.
    let messages = (0..1000).map(|i| message(i, i / 2 % 2, 7 + i / 2 % 2, u64::from(i / 2) * 20, 30)).collect();
    let work = work(&[(7, 500, 2500), (8, 500, 2500)], &[]);
    let of_run = ideal("run", &run(messages), &work, &GivenParameters::default(), &[0.99]).unwrap();
    assert_eq!((of_run.ideal_ns["p99"], of_run.one_queue_ns.unwrap()["p99"]), (10_000, 5000));
}

#[test]
fn a_run_without_replies_has_no_ideal() {
    let silent = |i| Message { send_ns: 0, xmit_ns: 0, ..message(i, 0, 7, u64::from(i) * 10, 20) };
    let lifetimes = run((0..10).map(silent).collect());
    let error = ideal("run", &lifetimes, &work(&[(7, 10, 40)], &[]), &GivenParameters::default(), &[0.5]).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::NoIdeal { .. }) && text.contains("no service leg"), "{text}");
    let none = ideal("run", &run(vec![]), &work(&[], &[]), &GivenParameters::default(), &[0.5]).unwrap_err();
    assert!(matches!(none, Error::NoIdeal { .. }), "{none}");
}

#[test]
fn more_work_than_workers_is_unstable() {
    let lifetimes = run((0..1000).map(|i| message(i, 0, 7, u64::from(i) * 10, 20)).collect());
    let given = GivenParameters { service_ns: Some(11_000), ..GivenParameters::default() };
    let error = ideal("run", &lifetimes, &work(&[(7, 1000, 4000)], &[]), &given, &[0.5]).unwrap_err();
    assert!(error.to_string().contains("unstable"), "{error}");
}

#[test]
fn inherent_is_never_more_than_the_latency() {
    // Pairs, 6 us of service: ideal 6 and 12 us; measured 8 and 10.
    let messages: Vec<Message> =
        (0..1000).map(|i| message(i, 0, 7, u64::from(i / 2) * 20, if i % 2 == 0 { 8 } else { 10 })).collect();
    let lifetimes = run(messages);
    let model = fit(&lifetimes, &work(&[(7, 1000, 6000)], &[]), &GivenParameters::default()).unwrap();
    let by_id = latencies(&lifetimes.messages, &model).unwrap();
    assert_eq!((by_id[0], by_id[1]), (Some(6000), Some(12_000)));
    let totals = |n| lifetimes.messages.iter().take(n).filter_map(|m| Some((m.latency(Leg::Total)?, m.id)));
    let parts = inherent(totals(1000), &by_id);
    assert_eq!(parts, Some(Inherent { mean_ns: 9000, inherent_ns: 8000, excess_ns: 1000 }));
    assert_eq!(inherent(totals(0), &by_id), None);
}
