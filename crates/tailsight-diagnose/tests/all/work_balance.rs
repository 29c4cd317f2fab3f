//! Own work beside what the threads ran: a contradiction is known.

use tailsight_diagnose::{Diagnosis, RecordingFacts, diagnose, work_balance};
use tailsight_lifetime::Context;
use tailsight_lifetime::timelines::work::{ThreadWork, Work};

use crate::common::{a, lifetimes, options, owner};

/// Three thousand messages with 100 us of own work, the last thirty with 1 ms, and a diagnosis of their total leg.
fn diagnosed() -> Diagnosis {
    let own = vec![owner(Context::Own, &[])];
    let parts =
        (0..3_000).map(|i| [vec![], vec![a(0, if i < 2_970 { 100_000 + i % 7 } else { 1_000_000 + i % 7 })], vec![]]);
    let options = tailsight_diagnose::Options { leg: tailsight_lifetime::Leg::Total, ..options() };
    diagnose(&lifetimes(own, parts.collect()), &options, &RecordingFacts::default()).unwrap()
}

/// The thread that received them all, and one that received none; us.
fn ran(receiver_us: u64, other_us: u64) -> Work {
    let thread = ThreadWork {
        messages: 3_000,
        user_ns: receiver_us * 600,
        kernel_ns: receiver_us * 400,
        ..ThreadWork::default()
    };
    Work { threads: vec![thread], others_ns: other_us * 1_000, ..Work::default() }
}

#[test]
fn more_own_work_than_the_threads_ran_is_a_contradiction() {
    let mut diagnosis = diagnosed();
    work_balance::set_ran(&mut diagnosis, &ran(60_000, 60_000));
    let balance = diagnosis.work.unwrap();
    // 109 us on average, of 40.
    assert_eq!((balance.own_ns / 1_000, balance.ran_ns), (109, 40_000));
    assert!(balance.is_contradiction());
}

#[test]
fn work_of_threads_that_received_nothing_counts() {
    let mut diagnosis = diagnosed();
    work_balance::set_ran(&mut diagnosis, &ran(60_000, 300_000));
    assert!(!diagnosis.work.unwrap().is_contradiction());
}
