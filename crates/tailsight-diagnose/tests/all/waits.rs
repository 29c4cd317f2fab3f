//! Rows of waits: other servers, locks with a holder, messages ahead on other threads and their root, and messages served out
//! of order.

use syscalls::Sysno;
use tailsight_diagnose::categories::Task;
use tailsight_diagnose::cause::Subject;
use tailsight_diagnose::{CategoryTable, Diagnosis, Options, RecordingFacts, diagnose};
use tailsight_lifetime::model::flags;
use tailsight_lifetime::{Context, Frame, Leg, Lifetimes, Owner, Part, Role};

use crate::common::{a, lifetimes, options, owner};

const PEER: &str = "python3 (127.0.0.1:9101)";

fn sleep(call: Sysno) -> Frame {
    Frame::SleepIn { nr: call as u32, uninterruptible: false, io: false }
}

fn sibling() -> Context {
    Context::Sibling { comm: "worker".into() }
}

fn counts_to(owner: &Owner, leg: Leg) -> (String, String) {
    let symbols = [String::new(), PEER.into(), "redis".into()];
    let verdict = CategoryTable::default().classify(owner, &Task::default(), leg, Role::A, "gosrv", &symbols);
    (verdict.category.to_string(), verdict.name)
}

/// The decision table of docs/categories.md.
#[test]
fn a_wait_is_named_by_what_it_was_for() {
    let peer = Frame::Peer { symbol: 1, guessed: false };
    let futex = sleep(Sysno::futex);
    for (owner, leg, category, name) in [
        (owner(Context::Blocked, &[peer]), Leg::Service, "backend-wait", PEER),
        (owner(Context::Blocked, &[sleep(Sysno::epoll_pwait), peer]), Leg::Service, "backend-wait", PEER),
        (owner(Context::Blocked, &[sleep(Sysno::recvfrom), peer]), Leg::Receive, "backend-wait", PEER),
        (owner(Context::Ahead, &[sleep(Sysno::recvfrom), peer]), Leg::Receive, "hol-blocking", "gosrv"),
        (owner(sibling(), &[Frame::Serving]), Leg::Receive, "hol-blocking", "gosrv (other threads)"),
        (owner(sibling(), &[futex, Frame::Serving]), Leg::Service, "hol-blocking", "gosrv (other threads)"),
        (owner(sibling(), &[futex]), Leg::Service, "lock-wait", "worker holds it"),
        (owner(sibling(), &[]), Leg::Receive, "app-processing", "worker (other thread)"),
        (owner(Context::Blocked, &[sleep(Sysno::epoll_pwait)]), Leg::Service, "app-processing", "waits in epoll_pwait"),
        (owner(Context::Blocked, &[futex]), Leg::Service, "app-processing", "waits in futex"),
        (owner(Context::Blocked, &[futex, Frame::WokenBy { symbol: 2 }]), Leg::Service, "lock-wait", "futex"),
        (owner(Context::Blocked, &[sleep(Sysno::flock)]), Leg::Service, "lock-wait", "flock"),
    ] {
        assert_eq!(counts_to(&owner, leg), (category.to_owned(), name.to_owned()), "{owner:?}");
    }
}

/// 5,000 messages; the slowest 50 have `extra` in their service leg beside 10 us of their own.
fn slow_service(owners: Vec<Owner>, extra: &[Part]) -> Lifetimes {
    let parts = (0..5000u64).map(|i| {
        let mut service = vec![a(0, 10_000 + i % 100)];
        if i % 100 == 0 {
            service.extend_from_slice(extra);
        }
        [vec![a(0, 1_000)], service, vec![a(0, 1_000)]]
    });
    let mut out = lifetimes(owners, parts.collect());
    out.symbols = vec![String::new(), PEER.into()];
    out
}

fn service(lifetimes: &Lifetimes) -> Diagnosis {
    diagnose(lifetimes, &Options { leg: Leg::Service, ..options() }, &RecordingFacts::default()).unwrap()
}

#[test]
fn a_wait_for_another_server_is_that_server_s() {
    let owners = vec![owner(Context::Own, &[]), owner(Context::Blocked, &[Frame::Peer { symbol: 1, guessed: false }])];
    let d = service(&slow_service(owners, &[a(1, 30_000_000)]));
    assert_eq!((d.causes[0].category.as_str(), d.causes[0].name.as_str()), ("backend-wait", PEER));
    assert_eq!(d.causes[0].deviation_ns, 30_000_000);
}

/// Whose call it was is known of a part of a row, and guessed of the rest: the row is one, and says how much of it is a guess.
#[test]
fn it_is_known_which_part_of_a_row_is_guessed() {
    let [certain, guessed] =
        [false, true].map(|guessed| owner(Context::Blocked, &[Frame::Peer { symbol: 1, guessed }]));
    let ahead = owner(Context::Ahead, &[sleep(Sysno::recvfrom), Frame::Peer { symbol: 1, guessed: true }]);
    let owners = vec![owner(Context::Own, &[]), certain, guessed, ahead];
    let with = |extra: &[Part]| service(&slow_service(owners.clone(), extra)).causes.swap_remove(0);
    let cause = with(&[a(1, 10_000_000), a(2, 30_000_000)]);
    assert_eq!((cause.name.as_str(), cause.guessed), (PEER, Some(0.75)));
    assert_eq!(with(&[a(1, 30_000_000), a(2, 1_000_000)]).guessed, None, "a thirtieth is not worth a word");
    assert_eq!(with(&[a(3, 30_000_000)]).guessed, None, "who waits behind a call waits, whoever asked");
}

/// "memcached itself took longer (waits in epoll_wait)" said the opposite of what it meant.
#[test]
fn a_wait_is_not_called_work() {
    let owners = vec![owner(Context::Own, &[]), owner(Context::Blocked, &[sleep(Sysno::epoll_wait)])];
    let d = service(&slow_service(owners, &[a(1, 2_000_000)]));
    assert!(matches!(&d.causes[0].subject, Some(Subject::WaitIn { call: Some(call), .. }) if call == "epoll_wait"));
}

#[test]
fn the_paths_of_a_lock_wait_tell_what_the_holder_did() {
    let futex = sleep(Sysno::futex);
    let owners = vec![
        owner(Context::Own, &[]),
        owner(sibling(), &[futex]),
        owner(sibling(), &[futex, sleep(Sysno::clock_nanosleep)]),
    ];
    let d = service(&slow_service(owners, &[a(1, 1_000_000), a(2, 3_000_000)]));
    assert_eq!(d.causes[0].category.as_str(), "lock-wait");
    let paths = d.causes[0].paths.iter().map(|(_, ns)| *ns).zip(d.causes[0].path_frames.iter().map(Vec::len));
    assert_eq!(paths.collect::<Vec<_>>(), [(3_000_000, 2), (1_000_000, 1)], "it slept, and it ran");
}

/// Bursts of 100 messages to one thread. The first of each tenth burst takes a page fault of 1 ms; those that arrive after it
/// wait for each other only.
fn bursts() -> Lifetimes {
    bursts_with(1_000_000)
}

/// The same with a page fault of `fault_ns`.
fn bursts_with(fault_ns: u64) -> Lifetimes {
    bursts_that_serve(|_, first| {
        let fault = first.then(|| a(2, fault_ns));
        [a(0, 10_000)].into_iter().chain(fault).collect()
    })
}

/// The same with these service parts of a message, by its number and whether others wait for it.
fn bursts_that_serve(service: impl Fn(usize, bool) -> Vec<Part>) -> Lifetimes {
    bursts_with_interrupts(service, 0)
}

/// The same, where each of those that wait is interrupted for `interrupts_ns` meanwhile.
fn bursts_with_interrupts(service: impl Fn(usize, bool) -> Vec<Part>, interrupts_ns: u64) -> Lifetimes {
    let owners = vec![
        owner(Context::Own, &[]),
        owner(Context::Ahead, &[]),
        owner(
            Context::Blocked,
            &[Frame::SleepIn { nr: tailsight_lifetime::model::NO_SYSCALL, uninterruptible: true, io: false }],
        ),
        owner(Context::Ahead, &[Frame::Irq { irq: 24 }]),
    ];
    let mut parts = vec![];
    for i in 0..5000u64 {
        let (burst, place) = (i / 100, i % 100);
        let held = burst % 10 == 0;
        let waits = if held && (1..=30).contains(&place) { 1_000_000 - place * 10_000 } else { 0 };
        let service = service(i as usize, held && place == 0);
        let mut receive = vec![a(0, 1_000)];
        let interrupts = if waits > 0 { interrupts_ns } else { 0 };
        receive.extend((waits > 0).then(|| a(1, waits - interrupts)));
        receive.extend((interrupts > 0).then(|| a(3, interrupts)));
        parts.push([receive, service, vec![a(0, 1_000)]]);
    }
    let mut out = lifetimes(owners, parts);
    let mut at = 1_000_000;
    for i in 0..out.messages.len() {
        let place = i as u64 % 100;
        // A burst's messages arrive 50 us apart, those that wait are received 40 us after each other, and before the others come.
        if place == 0 {
            at += 100_000_000;
        }
        let (receive, service) =
            (out.messages[i].recv_ns - out.messages[i].driver_ns, out.messages[i].send_ns - out.messages[i].recv_ns);
        let m = &mut out.messages[i];
        m.tid = 7;
        m.driver_ns = at + place * 50_000 + if place > 30 { 1_000_000 } else { 0 };
        m.handoff_ns = m.driver_ns;
        m.recv_ns = m.driver_ns + receive;
        m.send_ns = m.recv_ns + service;
        m.xmit_ns = m.send_ns + 1_000;
        m.ahead = u32::from(receive > 1_000);
    }
    out
}

/// A page fault of 1 ms in one message delayed thirty, which were said to wait for messages before them.
#[test]
fn the_root_of_a_queue_is_what_held_the_message_in_front() {
    let d = diagnose(&bursts(), &options(), &RecordingFacts::default()).unwrap();
    let first = &d.causes[0];
    assert_eq!(first.category.as_str(), "hol-blocking");
    let root = first.root.first().expect("a root");
    assert_eq!((root.category.as_str(), root.name.as_str(), root.mean_ns), ("paging", "page fault", 1_000_000));
    assert!(root.share > 0.9 && root.messages >= 1, "{root:?}");
}

/// Minor page faults are counted and not timed. In the total leg of `lab run write-barrier` those of the message in front were called
/// the server's own work, although the same run's service leg told them.
#[test]
fn the_root_of_a_queue_may_be_page_faults_that_no_event_times() {
    let faults = |i: usize, first: bool| if first { 1_400 } else { i as u32 * 7 % 30 };
    let mut with_faults = bursts_that_serve(|i, first| vec![a(0, 10_000 + 700 * u64::from(faults(i, first)))]);
    with_faults.faults = (0..5000).map(|i| faults(i, i % 1000 == 0)).collect();
    let d = diagnose(&with_faults, &options(), &RecordingFacts::default()).unwrap();
    assert_eq!(d.causes[0].category.as_str(), "hol-blocking");
    let roots: Vec<(&str, &str)> = d.causes[0].root.iter().map(|r| (r.category.as_str(), r.name.as_str())).collect();
    assert_eq!(roots, [("paging", "page faults")]);
    // In five bursts, 1,385 faults of 700 ns more than usual. Those behind the first have some, too, and held nobody.
    let root = &d.causes[0].root[0];
    assert_eq!(root.messages, 5, "{root:?}");
    assert!((950_000..1_000_000).contains(&root.mean_ns) && root.share > 0.95, "{root:?}");
    // Without their number it is the server's own time.
    with_faults.faults.clear();
    let d = diagnose(&with_faults, &options(), &RecordingFacts::default()).unwrap();
    assert_eq!(d.causes[0].root[0].name, "user");
}

/// php-fpm: the first sentence named the recorder's hooks, with 15 us of a wait of 17 ms, as what had held the messages ahead.
#[test]
fn a_thousandth_of_a_wait_has_no_root() {
    let with = |fault_ns| diagnose(&bursts_with(fault_ns), &options(), &RecordingFacts::default()).unwrap();
    let (d, first) = (with(15_000), with(300_000));
    assert_eq!(d.causes[0].category.as_str(), "hol-blocking");
    assert_eq!(d.causes[0].root, []);
    assert_eq!(first.causes[0].root[0].name, "page fault");
}

/// Copas, 80 messages at once: the recorder's hooks were said to have held those ahead. Each of them had the same few hooks in its
/// own wait, and all were added up.
#[test]
fn what_interrupted_all_that_wait_is_counted_once() {
    let root = |interrupts_ns| {
        let bursts = bursts_with_interrupts(|_, _| vec![a(0, 38_000)], interrupts_ns);
        diagnose(&bursts, &options(), &RecordingFacts::default()).unwrap().causes[0].root.clone()
    };
    assert_eq!(root(50_000), []);
    // A thread that was interrupted between any two messages is told.
    let bursts = bursts_with_interrupts(|_, _| vec![a(0, 1_000)], 50_000);
    let d = diagnose(&bursts, &options(), &RecordingFacts::default()).unwrap();
    assert_eq!(d.causes[0].root.first().map(|root| root.category.as_str()), Some("interrupts"), "{:?}", d.causes[0]);
}

/// Mojolicious, 30 messages at once: it reads the last arrival first, and replies to none before all are read. The first read has the work for all
/// others in its service, and was said to have held them.
#[test]
fn the_work_for_a_batch_is_not_what_held_the_messages_in_it() {
    const TURN: u64 = 40_000;
    let batched = |i: u64| (i / 100).is_multiple_of(10) && i % 100 <= 30;
    // In the order of the receive calls: 0, 30, 29, ... 1.
    let turn = |i: u64| if i.is_multiple_of(100) { 0 } else { 31 - i % 100 };
    let of_batch = |i: u64| {
        let waits = turn(i) * TURN;
        let service = 31 * TURN - waits + turn(i) * 1_000;
        [
            [vec![a(0, 1_000)], if waits > 0 { vec![a(1, waits)] } else { vec![] }].concat(),
            vec![a(0, service)],
            vec![a(0, 1_000)],
        ]
    };
    let alone = || [vec![a(0, 1_000)], vec![a(0, TURN)], vec![a(0, 1_000)]];
    let owners = vec![owner(Context::Own, &[]), owner(Context::Ahead, &[])];
    let mut batched_messages =
        lifetimes(owners, (0..5000).map(|i| if batched(i) { of_batch(i) } else { alone() }).collect());
    let mut at = 1_000_000;
    for (i, m) in (0u64..).zip(&mut batched_messages.messages) {
        let (receive, service) = (m.recv_ns - m.driver_ns, m.send_ns - m.recv_ns);
        at += if batched(i) && !i.is_multiple_of(100) { 1 } else { 2_000_000 };
        m.tid = 7;
        m.driver_ns = at;
        m.handoff_ns = at;
        m.recv_ns = at + receive;
        m.send_ns = m.recv_ns + service;
        m.xmit_ns = m.send_ns + 1_000;
        m.ahead = if batched(i) { turn(i) as u32 } else { 0 };
    }
    batched_messages.overtaken =
        (0..5000).map(|i| if batched(i) { turn(i).saturating_sub(1) * TURN } else { 0 }).collect();
    let d = diagnose(&batched_messages, &options(), &RecordingFacts::default()).unwrap();
    assert_eq!(d.causes[0].name, "later arrivals first", "{:?}", d.causes[0]);
    assert_eq!(d.causes[0].root, []);
}

/// Time behind later arrivals is a row of its own, taken from the time ahead, and shares still sum to 1.
#[test]
fn messages_served_out_of_order_are_counted_and_a_cause() {
    let mut overtaken = bursts();
    overtaken.overtaken = overtaken.messages.iter().map(|m| if m.ahead > 0 { 600_000 } else { 0 }).collect();
    overtaken.messages.iter_mut().filter(|m| m.ahead > 0).for_each(|m| m.flags |= flags::OVERTAKEN);
    let d = diagnose(&overtaken, &options(), &RecordingFacts::default()).unwrap();
    assert_eq!(d.messages.out_of_order, 150);
    let row = d.causes.iter().find(|c| c.name == "later arrivals first").expect("a row");
    assert_eq!((row.category.as_str(), row.deviation_ns), ("hol-blocking", 600_000));
    assert!((d.causes.iter().map(|c| c.share).sum::<f64>() - 1.0).abs() < 1e-9);
    let json = serde_json::to_value(&d).unwrap();
    assert_eq!(json["messages"]["out_of_order"], 150);
    // A diagnosis of before has neither.
    let mut older = json.clone();
    older["messages"].as_object_mut().unwrap().remove("out_of_order");
    older["causes"].as_array_mut().unwrap().iter_mut().for_each(|c| drop(c.as_object_mut().unwrap().remove("root")));
    assert_eq!(serde_json::from_value::<Diagnosis>(older).unwrap().messages.out_of_order, 0);
}
