//! Rows in words: waits and whom for, who had the core, queues, what is inferred or counted twice, and what is no cause.

use syscalls::Sysno;
use tailsight_diagnose::work_balance;
use tailsight_diagnose::{Diagnosis, Options, RecordingFacts, diagnose};
use tailsight_lifetime::timelines::work::{ThreadWork, Work};
use tailsight_lifetime::{Context, Frame, Leg, Lifetimes, Owner, Part, Who};

use crate::common::{a, foreign, lifetimes, options, owner, receive};
use crate::sampled::{bursts, total};
use crate::{with_words, worded};

const PEER: &str = "python3 (127.0.0.1:9101)";

fn sleep(call: Sysno) -> Frame {
    Frame::SleepIn { nr: call as u32, uninterruptible: false, io: false }
}

/// 5,000 messages whose own work takes 10 us; each hundredth has `extra` in its service leg.
fn slow(others: &[Owner], extra: &[Part]) -> Lifetimes {
    let parts = (0..5_000u64).map(|i| {
        let own = [a(0, 10_000 + i % 100)];
        [vec![], [&own[..], if i % 100 == 0 { extra } else { &[] }].concat(), vec![]]
    });
    let owners = [&[owner(Context::Own, &[])], others].concat();
    let mut out = lifetimes(owners, parts.collect());
    out.symbols = vec![String::new(), PEER.into()];
    out
}

/// The sentence of the first cause.
fn said(lifetimes: &Lifetimes) -> String {
    let options = Options { leg: Leg::Service, ..options() };
    worded(lifetimes, &options, &RecordingFacts::default()).causes.swap_remove(0).explanation
}

#[test]
fn a_wait_for_another_server_says_for_whom() {
    let asked = owner(Context::Blocked, &[Frame::Peer { symbol: 1, guessed: false }]);
    let text = said(&slow(&[asked], &[a(1, 30_000_000)]));
    assert!(text.starts_with(&format!("memcached waited for {PEER}: 30.0 ms ")), "{text}");
}

/// Whose call it was is known of a part of a row, and guessed of the rest.
#[test]
fn a_row_says_which_part_of_it_is_guessed() {
    let asked = [false, true].map(|guessed| owner(Context::Blocked, &[Frame::Peer { symbol: 1, guessed }]));
    let text = said(&slow(&asked, &[a(1, 10_000_000), a(2, 30_000_000)]));
    let clause = "; guessed (75 % of it): its thread had several requests open, and the order of calls alone says which of them asked";
    assert!(text.ends_with(clause), "{text}");
}

/// "memcached itself took longer (waits in epoll_wait)" said the opposite of what it meant.
#[test]
fn a_wait_is_not_called_work() {
    let text = said(&slow(&[owner(Context::Blocked, &[sleep(Sysno::epoll_wait)])], &[a(1, 2_000_000)]));
    let waits = "memcached waited for what the kernel does not show, its thread in epoll_wait: ";
    assert!(text.starts_with(waits), "{text}");
}

/// In three set-ups of a trial the true cause stood in the second row, and the sentence did not say so.
#[test]
fn a_wait_that_is_not_shown_has_the_largest_cause_that_is_beside_it() {
    let owners = [sleep(Sysno::epoll_wait), Frame::Peer { symbol: 1, guessed: false }]
        .map(|frame| owner(Context::Blocked, &[frame]));
    let text = said(&slow(&owners, &[a(1, 20_000_000), a(2, 10_000_000)]));
    let beside = format!("; the largest cause that the kernel does show is another server: {PEER}, 33 %");
    assert!(text.contains("does not show") && text.ends_with(&beside), "{text}");
    let text = said(&slow(&owners, &[a(1, 20_000_000), a(2, 200_000)]));
    assert!(!text.contains("does show"), "it is hardly anything: {text}");
    let text = said(&slow(&owners, &[a(1, 10_000_000), a(2, 20_000_000)]));
    assert!(!text.contains("does show"), "it is the first: {text}");
}

#[test]
fn a_lock_wait_says_what_the_holder_did() {
    let sibling = || Context::Sibling { comm: "worker".into() };
    let futex = sleep(Sysno::futex);
    let holder = [owner(sibling(), &[futex]), owner(sibling(), &[futex, sleep(Sysno::clock_nanosleep)])];
    let text = said(&slow(&holder, &[a(1, 1_000_000), a(2, 3_000_000)]));
    assert!(text.ends_with("; the holder meanwhile: slept in clock_nanosleep 75 %, ran 25 %"), "{text}");
}

#[test]
fn a_process_is_named_with_its_number_or_its_threads() {
    let task = |pid, tid| Who { pid, tid, process: "rustc".into(), recorder: false };
    let said = |who: &[Who], cgroup: &str| {
        let owners: Vec<Owner> = who.iter().map(|who| owner(foreign(&format!("cgu.{}", who.tid)), &[])).collect();
        let extra: Vec<Part> = (1..=who.len()).map(|at| a(at as u32, 10_000)).collect();
        let mut lifetimes = slow(&owners, &extra);
        lifetimes.who = [&[Who::default()], who].concat();
        let groups = who.iter().filter(|_| !cgroup.is_empty()).map(|who| (who.pid, cgroup.to_owned()));
        lifetimes.cgroups = groups.collect();
        said(&lifetimes)
    };
    let one = said(&[task(812, 812)], "");
    assert!(one.starts_with("rustc (process 812) ran on the core that memcached was waiting for: "), "{one}");
    let two = [task(100, 100), task(100, 101), task(200, 201)];
    assert!(said(&two, "").starts_with("rustc (2 processes, 3 threads) ran on"), "{}", said(&two, ""));
    let unit = said(&two, "/system.slice/ci.service");
    assert!(unit.starts_with("rustc (2 processes, 3 threads, ci.service) ran on"), "{unit}");
}

/// Work of 1 ms in one message delayed thirty, which were said to wait for messages before them.
#[test]
fn a_queue_says_what_held_the_message_in_front_and_how_many_were_ahead() {
    let of = |lifetimes: &Lifetimes| worded(lifetimes, &options(), &RecordingFacts::default()).causes.swap_remove(0);
    let mut queued = bursts();
    let text = of(&queued).explanation;
    let held = "; what held those: the server itself (running), in 5 messages, 609 us more than usual on average, behind which 50 waited (at least 61 % \
                of the wait)";
    assert!(text.contains(held), "{text}");
    assert!(text.contains(" (1.0 messages ahead on average, usually 0.0)"), "{text}");
    // As many ahead as usual, to the digits shown: "(0.0 messages ahead on average, usually 0.0)" says nothing.
    queued.messages.iter_mut().for_each(|m| m.ahead = u32::from(m.id == 1));
    let text = of(&queued).explanation;
    assert!(!text.contains("messages ahead on average"), "{text}");
}

/// Who reads on looks for fairness, and the queue is what is to be made shorter.
#[test]
fn messages_served_out_of_order_are_said_to_be() {
    let mut overtaken = bursts();
    overtaken.overtaken = overtaken.messages.iter().map(|m| if m.ahead > 0 { 600_000 } else { 0 }).collect();
    let d = worded(&overtaken, &options(), &RecordingFacts::default());
    let row = d.causes.iter().find(|c| c.name == "later arrivals first").expect("a row");
    assert!(row.explanation.starts_with("memcached served later messages first: "), "{}", row.explanation);
    assert!(row.fix[0].contains("see first why there is a queue"), "{:?}", row.fix);
}

/// Page faults of 700 ns each, of which a slow message has 200 more than usual.
#[test]
fn what_is_inferred_is_said_to_be_with_what_it_is_made_of() {
    let faults = |i: u64| i * 7 % 30 + if i.is_multiple_of(50) { 200 } else { 0 };
    let parts = (0..4_000).map(|i| [vec![], vec![a(0, 10_000 + i * 11 % 2_000 + 700 * faults(i))], vec![]]);
    let mut with_faults = lifetimes(vec![owner(Context::Own, &[])], parts.collect());
    with_faults.faults = (0..4_000).map(|i| faults(i) as u32).collect();
    let options = Options { leg: Leg::Service, focus: (0.98, 1.0), ..options() };
    let d = worded(&with_faults, &options, &RecordingFacts::default());
    assert_eq!(d.causes[0].name, "page faults", "{:?}", d.causes);
    let text = &d.causes[0].explanation;
    assert!(text.contains("; estimated from how the application's own time grows with their number"), "{text}");
    let note = d.notes.iter().find(|note| note.starts_with("the time of page faults is estimated, not measured; "));
    assert!(note.is_some_and(|note| note.contains(" more in a slow message: ")), "{:?}", d.notes);
}

/// A retransmission of 200 ms in one message of the focus was most of the deviation and stood nowhere but in a sum.
#[test]
fn what_is_rare_but_large_has_a_note() {
    let note = |once_ns| {
        let fsync = Frame::SleepIn { nr: Sysno::fsync as u32, uninterruptible: true, io: false };
        let mut with = slow(&[owner(foreign("nginx"), &[]), owner(Context::Blocked, &[fsync])], &[a(1, 500_000)]);
        let parts = (0..5_000u32).map(|id| {
            let rare = (id == 2_000).then(|| a(2, once_ns));
            [vec![], with.parts(id, Leg::Service).into_iter().chain(rare).collect(), vec![]]
        });
        with = lifetimes(with.owners.clone(), parts.collect());
        let options = Options { leg: Leg::Service, ..options() };
        let d = worded(&with, &options, &RecordingFacts::default());
        let chance = d.causes.iter().find(|c| c.category.as_str() == "not-significant").map(|c| c.explanation.clone());
        (d.notes.into_iter().find(|note| note.contains("chance")), chance)
    };
    let (large, chance) = note(20_000_000);
    let large = large.expect("a note");
    assert!(
        large.contains("44 % of the difference, in 1 of 50 messages, most in message 2000: which varies"),
        "{large}"
    );
    assert!(chance.is_some_and(|text| text.starts_with("a difference that cannot be told from chance: ")));
    // What is not large has none.
    assert_eq!(note(90_000).0, None);
}

#[test]
fn messages_that_are_faster_are_said_to_be() {
    let parts = (0..2_000u64).map(|i| vec![a(0, if i < 200 { 500 } else { 5_000 } + i % 7)]);
    let options = Options { focus: (0.0, 0.1), ..options() };
    let d = worded(&receive(vec![owner(Context::Own, &[])], parts.collect()), &options, &RecordingFacts::default());
    assert!(d.causes[0].fix.is_empty() && d.causes[0].explanation.contains(" less, of the "), "{:?}", d.causes[0]);
    assert!(d.notes.iter().any(|n| n.contains("faster than those that they are compared with")), "{:?}", d.notes);
}

/// Three thousand messages with 100 us of own work, the last thirty with 1 ms, of whose thread and of another one this is known; us.
fn diagnosed(receiver_us: u64, other_us: u64) -> Diagnosis {
    let own = |i: u64| if i < 2_970 { 100_000 + i % 7 } else { 1_000_000 + i % 7 };
    let parts = (0..3_000).map(|i| [vec![], vec![a(0, own(i))], vec![]]);
    let lifetimes = lifetimes(vec![owner(Context::Own, &[])], parts.collect());
    let mut diagnosis = diagnose(&lifetimes, &total(), &RecordingFacts::default()).unwrap();
    let thread = ThreadWork { messages: 3_000, user_ns: receiver_us * 1_000, ..ThreadWork::default() };
    let work = Work { threads: vec![thread], others_ns: other_us * 1_000, ..Work::default() };
    work_balance::set_ran(&mut diagnosis, &work);
    with_words(diagnosis, &total(), &RecordingFacts::default())
}

/// What messages are said to have worked was printed beside less that the threads ran, as two facts.
#[test]
fn more_own_work_than_the_threads_ran_is_said_of_each_cause_that_is_own_work() {
    let d = diagnosed(60_000, 60_000);
    let own = d.causes.iter().find(|cause| cause.category.as_str() == "app-processing").unwrap();
    let clause = "; a part of it is work for other requests: the threads ran only 40.0 us for each";
    assert!(own.explanation.ends_with(clause), "{}", own.explanation);
    assert!(d.notes.last().is_some_and(|note| note.starts_with("own work is counted more than once")), "{:?}", d.notes);
    let d = diagnosed(60_000, 300_000);
    let all = d.notes.iter().chain(d.causes.iter().map(|cause| &cause.explanation));
    assert!(all.into_iter().all(|text| !text.contains("own work is counted") && !text.contains("ran only")));
}
