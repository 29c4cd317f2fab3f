//! The rule on made-up recordings: a server on core 0 whose messages wait for whatever has the core.

use super::*;

const SERVER: u32 = 10;
const HOG: u32 = 20;
const CC: u32 = 30;
const PERIOD: u64 = 1_000_000;
const US: u64 = 1_000;

fn task(tid: u32, target: bool, kernel: bool) -> TaskRow {
    TaskRow { from_ns: 0, tid, tgid: tid, comm: String::new(), target, kernel, cgroup: String::new() }
}

/// The server, a fault of the lab's, and a program that is nobody's.
fn tasks() -> Vec<TaskRow> {
    vec![task(SERVER, true, false), task(HOG, false, false), task(CC, false, false), task(5, false, true)]
}

fn ours() -> BTreeSet<u32> {
    BTreeSet::from([HOG])
}

fn event(ts: u64, kind: Kind, a: u64) -> Event {
    Event { ts, kind: kind as u8, a, ..Event::default() }
}

fn switch(ts: u64, previous: u32, next: u32, asleep: bool) -> Event {
    Event { b: u64::from(asleep), ..event(ts, Kind::SchedSwitch, u64::from(previous) | u64::from(next) << 32) }
}

/// The i-th message: it comes at its period's begin, its thread is woken, waits `us` for `who`, and reads it 10 us later.
fn message(i: u64, us: u64, who: u32) -> Vec<Event> {
    let (at, seq) = (1 + i * PERIOD, (i as u32).wrapping_mul(100).wrapping_sub(500));
    let packet = Event { b: 7 | u64::from(seq) << 32, c: 100, ..event(at, Kind::RxStack, 77) };
    let read = |end: u32| u64::from(end) << 32;
    let got = at + us * US + 10 * US;
    vec![
        switch(at - 1, 0, who, true),
        packet,
        event(at, Kind::SchedWaking, u64::from(SERVER)),
        switch(at + us * US, who, SERVER, true),
        Event { b: 7 | read(seq.wrapping_add(100)), c: 100, ..event(got, Kind::Recv, 77) },
        Event { b: 7, c: 50, ..event(got + 5 * US, Kind::Send, 77) },
        switch(got + 6 * US, SERVER, 0, true),
    ]
}

/// 1,000 messages; the last ten wait 300 us, `others` of them for a program that is nobody's, the rest for the fault.
fn recording(others: u64) -> Vec<CpuEvents> {
    let events_of = |i: u64| match i {
        0..990 => message(i, 0, 0),
        _ if i < 990 + others => message(i, 300, CC),
        _ => message(i, 300, HOG),
    };
    vec![CpuEvents { cpu: 0, events: (0..1000).flat_map(events_of).collect() }]
}

#[test]
fn the_share_is_what_other_programs_had_of_the_slowest_messages() {
    for (others, share, disturbed) in [(0, 0.0, false), (3, 0.3, false), (4, 0.4, true), (10, 1.0, true)] {
        let other_work = disturbance(&tasks(), &recording(others), &ours(), "receive", SLOWEST, true).unwrap();
        assert!((other_work.share - share).abs() < 1e-9, "{others}: {other_work:?}");
        assert_eq!(other_work.is_disturbed(), disturbed, "{others}: {other_work:?}");
        assert_eq!((other_work.messages, other_work.tasks_ns, other_work.stolen_ns), (1000, others * 300 * US, 0));
        assert_eq!(other_work.excess_ns, 10 * 300 * US);
    }
    // The whole stay holds the same wait; of the service leg nobody had anything.
    assert!(disturbance(&tasks(), &recording(10), &ours(), "total", SLOWEST, true).unwrap().is_disturbed());
    let service = disturbance(&tasks(), &recording(10), &ours(), "service", SLOWEST, true).unwrap();
    assert_eq!((service.share, service.excess_ns), (0.0, 0));
    assert!(disturbance(&tasks(), &[], &ours(), "receive", SLOWEST, true).is_none(), "no messages");
}

#[test]
fn a_program_on_the_core_of_one_that_sleeps_or_is_throttled_disturbs_nobody() {
    let mut cores = recording(0);
    // Between messages the server sleeps: a program has its core for 900 us of each period.
    let beside = (0..1000).flat_map(|i| {
        let at = 1 + i * PERIOD;
        [switch(at + 350 * US, 0, CC, true), switch(at + 900 * US, CC, 0, true)]
    });
    cores[0].events.extend(beside);
    cores[0].events.sort_by_key(|event| event.ts);
    let other_work = disturbance(&tasks(), &cores, &ours(), "receive", SLOWEST, true).unwrap();
    assert_eq!((other_work.share, other_work.tasks_ns), (0.0, 0), "{other_work:?}");

    // Switched out while it would run on: it waits, unless its quota is used up.
    for (aux, waited) in [(switch_flags::PREEMPTED, 200), (switch_flags::PREEMPTED | switch_flags::THROTTLED, 0)] {
        let events = vec![
            switch(1000, 0, SERVER, true),
            Event { aux, ..switch(2000, SERVER, CC, false) },
            switch(2200, CC, SERVER, true),
        ];
        let cores = [CpuEvents { cpu: 0, events }];
        let events = in_order(&cores);
        let core = &timeline(&events, &Whose::of(&tasks(), &events, &ours()))[&0];
        let sum: u64 = both(&core.others.0, &core.waits.0).iter().map(|(from, to)| to - from).sum();
        assert_eq!(sum, waited);
    }
}

/// The first version of the rule asked for `SchedWakeup`, which recordings do not have unless asked: other work was 0 % beside a
/// compiler.
#[test]
fn a_thread_waits_from_its_waking_on_or_its_wakeup_on_the_core_that_it_is_put_on() {
    for (wake, moved) in [(Kind::SchedWaking, false), (Kind::SchedWakeup, false), (Kind::SchedWaking, true)] {
        // Its last core is 1 when it is moved: then the core that it waits for is told by the migration.
        let last = u64::from(moved) << 32;
        let mut first = vec![switch(500, 0, CC, true), event(1000, wake, u64::from(SERVER) | last)];
        if moved {
            first.push(Event { b: 1, ..event(1100, Kind::SchedMigrate, u64::from(SERVER)) });
        }
        first.push(switch(4000, CC, SERVER, true));
        let cores = [CpuEvents { cpu: 0, events: first }];
        let events = in_order(&cores);
        let core = &timeline(&events, &Whose::of(&tasks(), &events, &ours()))[&0];
        let from = if moved { 1100 } else { 1000 };
        assert_eq!(both(&core.others.0, &core.waits.0), [(from, 4000)], "{wake:?}");
    }
}

#[test]
fn the_kernel_and_the_lab_are_nobody_else_and_a_stranger_that_ended_is() {
    let fork = |parent: u32, tid: u32| Event {
        tid: parent,
        ..event(1, Kind::TaskFork, u64::from(tid) | u64::from(tid) << 32)
    };
    let cores = [CpuEvents { cpu: 1, events: vec![fork(2, 40), fork(CC, 41)] }];
    let whose = Whose::of(&tasks(), &in_order(&cores), &ours());
    let other = |tid| whose.is_other(tid);
    assert_eq!([0, SERVER, HOG, 5, 40].map(other), [false; 5], "idle, the server, the fault, kernel threads");
    assert_eq!([CC, 41, 999].map(other), [true; 3], "others, one that it made, one that nothing is known of");
}

#[test]
fn stolen_time_counts_where_the_application_wants_the_core_and_where_it_is_not_the_scenarios() {
    let mut cores = recording(0);
    // 150 us of each slow message's wait were stolen; as much was stolen of the idle core between messages.
    let stolen = (990..1000).flat_map(|i| {
        let at = 1 + i * PERIOD;
        [event(at + 200 * US, Kind::Steal, 150 * US), event(at + 900 * US, Kind::Steal, 150 * US)]
    });
    cores[0].events.extend(stolen);
    cores[0].events.sort_by_key(|event| event.ts);
    let other_work = disturbance(&tasks(), &cores, &ours(), "receive", SLOWEST, true).unwrap();
    assert!((other_work.share - 0.5).abs() < 1e-9 && other_work.is_disturbed(), "{other_work:?}");
    assert_eq!(other_work.stolen_ns, 10 * 150 * US);
    let other_work = disturbance(&tasks(), &cores, &ours(), "receive", SLOWEST, false).unwrap();
    assert_eq!((other_work.share, other_work.stolen_ns), (0.0, 0));
}

#[test]
fn a_message_comes_with_its_first_packet_also_behind_a_hole_and_when_one_packet_is_read_twice() {
    let packet = |ts, seq: u32, bytes| Event { b: 7 | u64::from(seq) << 32, c: bytes, ..event(ts, Kind::RxStack, 1) };
    let read = |ts, upto: u32| Event { b: 7 | u64::from(upto) << 32, c: 1, ..event(ts, Kind::Recv, 1) };
    let events = [
        // The second came first and waits for the first; the packet is seen twice on its way.
        packet(100, 50, 50),
        packet(110, 50, 50),
        packet(300, 0, 50),
        read(310, 100),
        // One packet of two requests, read one at a time; then a copy that nobody needs, and the next.
        packet(400, 100, 80),
        read(410, 140),
        read(450, 180),
        packet(460, 100, 80),
        packet(500, 180, 20),
        read(520, 200),
    ];
    let cores = [CpuEvents { cpu: 0, events: events.to_vec() }];
    assert_eq!(residences(&in_order(&cores), "receive"), [(100, 310), (400, 410), (400, 450), (500, 520)]);
}

#[test]
fn datagrams_are_taken_in_the_order_of_their_hand_offs() {
    let udp = flow_flags::UDP;
    let handoff = |ts| Event { aux: udp, c: 9, ..event(ts, Kind::Handoff, 1) };
    let read = |ts| Event { aux: udp, c: 1 | 9 << 32, ..event(ts, Kind::Recv, 1) };
    let events = vec![handoff(10), handoff(20), read(30), read(35), read(40)];
    let cores = [CpuEvents { cpu: 0, events }];
    assert_eq!(residences(&in_order(&cores), "receive"), [(10, 30), (20, 35)]);
}
