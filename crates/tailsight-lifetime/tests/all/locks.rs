//! Locks whose holder shares the core with those who need it, and messages that queue behind the one that waits. TWO compacts and
//! holds; ONE serves.

use tailsight_lifetime::{Leg, Rule};
use tailsight_trace::Event;
use tailsight_trace::event::Kind;

use crate::by_hand::{decides, event, is, path, recv, send, switch};
use crate::waits::{
    A, B, EPOLL, FUTEX, LOCAL_TIMER, NANOSLEEP, ONE, PEER, THREE, TWO, analyse, answer, ask, merged, ready, request,
    waking,
};

const HELD: &str = "sibling:two/sleep:futex";

/// A request of ONE arrives while TWO runs on the core, whose softirq wakes ONE.
fn arrives(ts: u64) -> Vec<Event> {
    let softirq = |ts, kind| Event { ts, kind: kind as u8, tid: TWO, a: 3, ..Event::default() };
    let mut out = vec![softirq(ts - 1, Kind::SoftirqEntry)];
    out.extend(request(ts, A).into_iter().map(|e| Event { tid: TWO, ..e }));
    out.extend([waking(ts + 2, TWO, ONE), softirq(ts + 3, Kind::SoftirqExit)]);
    out
}

fn time(path: &[(u64, u64, String)], owner: &str) -> u64 {
    path.iter().filter(|s| s.2 == owner).map(|s| s.1 - s.0).sum()
}

/// ONE waits for the core, gets it when TWO is preempted, and sleeps in the lock at once: three fifths of the wait were called the other
/// thread's work, though the lock would have made it wait as long on a core of its own.
#[test]
fn the_core_of_a_lock_s_holder_is_waited_for_as_the_lock() {
    let core = merged(
        [
            vec![switch(5, 0, TWO, 0)],
            arrives(100),
            vec![
                switch(2_000_000, TWO, ONE, 0),
                recv(2_000_010, A, ONE),
                switch(2_000_020, ONE, TWO, FUTEX),
                waking(3_000_000, TWO, ONE),
                switch(3_000_010, TWO, ONE, 0),
                send(3_000_100, A, ONE),
            ],
        ]
        .concat(),
    );
    let analysis = analyse(vec![core]);
    let receive = path(&analysis, 2_000_010, Leg::Receive);
    assert_eq!(time(&receive, HELD), 2_000_000 - 103, "{receive:?}");
    let service = path(&analysis, 2_000_010, Leg::Service);
    // From the release on ONE waits for the core and nothing else.
    assert_eq!((time(&service, HELD), time(&service, "sibling:two")), (3_000_000 - 2_000_020, 10), "{service:?}");
}

/// The same, but TWO slept for a while after the request came: what it did before is another stretch of it, of which nothing tells that
/// it held the lock.
#[test]
fn only_the_stretch_in_which_the_lock_was_found_held_counts() {
    let core = merged(
        [
            vec![switch(5, 0, TWO, 0)],
            arrives(100),
            vec![
                switch(500_000, TWO, 0, NANOSLEEP),
                waking(600_000, 0, TWO),
                switch(600_000, 0, TWO, 0),
                switch(2_000_000, TWO, ONE, 0),
                recv(2_000_010, A, ONE),
                switch(2_000_020, ONE, TWO, FUTEX),
                waking(3_000_000, TWO, ONE),
                switch(3_000_010, TWO, ONE, 0),
                send(3_000_100, A, ONE),
            ],
        ]
        .concat(),
    );
    let analysis = analyse(vec![core]);
    let receive = path(&analysis, 2_000_010, Leg::Receive);
    assert_eq!((time(&receive, HELD), time(&receive, "sibling:two")), (1_400_000, 500_000 - 103), "{receive:?}");
}

/// ONE needs no lock: TWO had the core and nothing else. The same where it sleeps in one after it had answered.
#[test]
fn a_thread_that_has_the_core_and_no_lock_is_another_thread_s_work() {
    let after = [vec![], vec![switch(2_000_200, ONE, TWO, FUTEX), waking(3_000_000, TWO, ONE)]];
    for after in after {
        let begins = vec![switch(5, 0, TWO, 0)];
        let serves = vec![switch(2_000_000, TWO, ONE, 0), recv(2_000_010, A, ONE), send(2_000_100, A, ONE)];
        let core = merged([begins, arrives(100), serves, after].concat());
        let receive = path(&analyse(vec![core]), 2_000_010, Leg::Receive);
        assert_eq!((time(&receive, HELD), time(&receive, "sibling:two")), (0, 2_000_000 - 103), "{receive:?}");
    }
}

/// B's request comes while ONE sleeps in the lock for A's: it was taken for one that waited for work and was handed it.
#[test]
fn a_message_behind_the_one_that_waits_for_a_lock_waits_for_it_too() {
    let working = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        switch(60, ONE, 0, FUTEX),
        switch(1_000_060, 0, ONE, 0),
        send(1_000_100, A, ONE),
        recv(1_000_110, B, ONE),
        send(1_000_200, B, ONE),
    ];
    let holds = vec![switch(6, 0, TWO, 0), waking(1_000_050, TWO, ONE)];
    let analysis = analyse(vec![working, holds, [request(10, A), request(400_000, B)].concat()]);
    decides(&analysis, Rule::Held);
    let receive = path(&analysis, 1_000_110, Leg::Receive);
    assert!(receive.contains(&(400_001, 1_000_050, HELD.into())), "{receive:?}");
    assert_eq!(time(&receive, "ahead"), 1_000_100 - 1_000_060, "{receive:?}");
}

/// A thread of a pool that answered all it had rests in a futex until another one hands it a message: no lock.
#[test]
fn a_thread_that_rests_between_messages_needs_no_lock() {
    let rests = vec![
        switch(5, 0, ONE, 0),
        recv(20, B, ONE),
        send(40, B, ONE),
        switch(60, ONE, 0, FUTEX),
        switch(1_000_060, 0, ONE, 0),
        recv(1_000_070, A, ONE),
        send(1_000_200, A, ONE),
    ];
    let hands = vec![switch(6, 0, TWO, 0), waking(1_000_050, TWO, ONE), switch(1_000_055, TWO, 0, EPOLL)];
    let analysis = analyse(vec![rests, hands, [request(10, B), request(400_000, A)].concat()]);
    let receive = path(&analysis, 1_000_070, Leg::Receive);
    assert!(receive.iter().all(|s| !s.2.contains("futex")), "{receive:?}");
}

/// MariaDB: a transaction had locked a row, and its client waited 40 ms before it committed. Its thread polled for that meanwhile, and
/// the wait of others for the row was called `waits in poll`. `call`: what TWO waits in; `before`: the connections that it received
/// from before, in this order.
fn transaction(call: u64, before: &[u64]) -> Vec<(u64, u64, String)> {
    let arriving = [request(40_000_000, B), vec![waking(40_000_002, 0, TWO)]].concat();
    let mut core = vec![switch(2, 0, TWO, 0)];
    core.extend((3..).zip(before).map(|(ts, &ports)| recv(ts, ports, TWO)));
    core.extend([
        switch(10, TWO, ONE, call),
        recv(20, A, ONE),
        switch(30, ONE, 0, FUTEX),
        switch(40_000_010, 0, TWO, 0),
        recv(40_000_020, B, TWO),
        waking(40_000_050, TWO, ONE),
        send(40_000_080, B, TWO),
        switch(40_000_090, TWO, ONE, call),
        send(40_000_120, A, ONE),
    ]);
    let analysis = analyse(vec![core, [request(15, A), arriving].concat()]);
    path(&analysis, 20, Leg::Service)
}

#[test]
fn a_connection_that_waits_for_its_client_may_hold_a_lock() {
    const POLL: u64 = 7;
    let held = transaction(POLL, &[]);
    assert!(held.contains(&(30, 40_000_002, "sibling:two/sleep:futex/sleep:poll".into())), "{held:?}");
    // An event loop waits for whatever comes next, and wakes others because of that. Known by its call, or by the connections to which
    // it comes back.
    let passed_on = transaction(EPOLL, &[]);
    assert!(passed_on.iter().any(|s| s.2.starts_with("blocked/sleep:epoll")), "{passed_on:?}");
    let passed_on = transaction(POLL, &[B, B + 1]);
    assert!(passed_on.iter().any(|s| s.2.starts_with("blocked/sleep:poll")), "{passed_on:?}");
}

/// Java: a thread forced its log to the disk with a monitor held, others took the monitor and gave it back for one request after the other
/// meanwhile, and one of these ended the wait: the lock was "held by http-conn, which slept in read".
#[test]
fn who_served_several_clients_meanwhile_is_not_said_to_have_held_the_lock() {
    const RECVFROM: u64 = 45;
    const READV: u64 = 19;
    let wait = |turns: u64, call: u64| {
        let mut core =
            vec![switch(2, 0, TWO, 0), switch(10, TWO, ONE, call), recv(20, A, ONE), switch(30, ONE, 0, FUTEX)];
        let mut network = request(15, A);
        for turn in 1..=turns {
            let at = turn * 1_000_000;
            let ports = B + turn;
            network.extend([request(at, ports), vec![waking(at + 2, 0, TWO)]].concat());
            core.extend([switch(at + 10, 0, TWO, 0), recv(at + 20, ports, TWO), send(at + 100_000, ports, TWO)]);
            // With the last one it gives the lock away.
            core.extend((turn == turns).then(|| waking(at + 100_010, TWO, ONE)));
            core.push(switch(at + 100_020, TWO, if turn == turns { ONE } else { 0 }, call));
        }
        core.push(send(turns * 1_000_000 + 100_050, A, ONE));
        let path = path(&analyse(vec![core, network]), 20, Leg::Service);
        path.into_iter().filter(|(from, to, _)| to - from > 500_000).map(|(.., owner)| owner).collect::<Vec<_>>()
    };
    assert_eq!(wait(1, RECVFROM), ["sibling:two/sleep:futex/sleep:recvfrom"], "it may have kept it for its client");
    assert_eq!(wait(3, RECVFROM), ["blocked/sleep:futex"; 3]);
    assert_eq!(wait(3, READV), ["blocked/sleep:futex"; 3]);
}

/// No call: it slept already.
const BEFORE_THE_RECORDING: u64 = u64::MAX;

/// Jetty: a thread held a monitor while it slept, and threads that had waited for work in epoll stood in line for it, one after the other. Of
/// the wait of the first in line 35 % were `waits in epoll_wait`, for that was what the one before it had done before it stood in line.
/// The first try ends with a time limit, as the JVM has it. `idle`: what TWO waits for work in (or it did when the recording began: Tomcat's
/// 30.5 ms of `waits in epoll_wait`); `works`: how long it then works before it
/// stands in line, ns, after a wait in a futex that a timer ended.
fn in_line(idle: u64, works: Option<u64>) -> Vec<(u64, u64, String)> {
    let timer = |ts, kind| event(ts, kind, LOCAL_TIMER, 0, [0; 3]);
    let first = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        switch(30, ONE, 0, FUTEX),
        timer(1_000_000, Kind::VectorEntry),
        waking(1_000_001, 0, ONE),
        timer(1_000_002, Kind::VectorExit),
        switch(1_000_010, 0, ONE, 0),
        switch(1_000_020, ONE, 0, FUTEX),
        switch(4_000_110, 0, ONE, 0),
        send(4_000_200, A, ONE),
    ];
    let before = works.map_or_else(Vec::new, |works| {
        let began = 2_000_020 - works;
        vec![
            waking(1_000_002, 0, TWO),
            switch(1_000_010, 0, TWO, 0),
            switch(1_000_020, TWO, 0, FUTEX),
            timer(began - 11, Kind::VectorEntry),
            waking(began - 10, 0, TWO),
            timer(began - 9, Kind::VectorExit),
            switch(began, 0, TWO, 0),
        ]
    });
    let comes = vec![waking(2_000_002, 0, TWO), switch(2_000_010, 0, TWO, 0)];
    let second = [
        if idle == BEFORE_THE_RECORDING { vec![] } else { vec![switch(6, 0, TWO, 0), switch(8, TWO, 0, idle)] },
        if works.is_some() { before } else { comes },
        vec![recv(2_000_020, B, TWO)],
    ];
    let waits = vec![
        switch(2_000_030, TWO, 0, FUTEX),
        switch(4_000_010, 0, TWO, 0),
        waking(4_000_100, TWO, ONE),
        send(4_000_150, B, TWO),
    ];
    let holds = vec![
        switch(7, 0, THREE, 0),
        switch(9, THREE, 0, NANOSLEEP),
        waking(3_999_990, 0, THREE),
        switch(3_999_995, 0, THREE, 0),
        waking(4_000_000, THREE, TWO),
    ];
    let second = [second.concat(), waits].concat();
    let analysis = analyse(vec![first, second, holds, [request(10, A), request(2_000_000, B)].concat()]);
    path(&analysis, 20, Leg::Service)
}

#[test]
fn who_waited_for_work_did_not_have_the_lock_before_its_turn() {
    const SLEPT: &str = "sibling:three/sleep:futex/sleep:nanosleep";
    for idle in [EPOLL, FUTEX, BEFORE_THE_RECORDING] {
        let service = in_line(idle, None);
        for tried in [(30, 1_000_001), (1_000_020, 3_999_990)] {
            assert!(service.contains(&(tried.0, tried.1, SLEPT.into())), "{idle}: {service:?}");
        }
        assert!(service.iter().all(|s| !s.2.contains("epoll")), "{idle}: {service:?}");
    }
}

/// Between two waits for the same lock a thread only tries once more. One that works longer came for something else, and had no part in this wait.
#[test]
fn who_worked_after_a_wait_stands_in_line_since_the_next_one() {
    let works = |ns| {
        let service = in_line(EPOLL, Some(ns));
        service.iter().any(|s| s.2.starts_with("sibling:two") && s.2.len() < 24 && s.0 < 2_000_000)
    };
    assert!(works(50_000), "a try");
    assert!(!works(400_000), "the holder is followed until it stands in line");
}

/// A's packet wakes ONE, which then sleeps in an interpreter's lock before it receives: TWO has that, and gives it to THREE, woken for B
/// before, and that one to ONE. What TWO ran was called ONE's own work, for both were taken for threads to which a message is passed on.
#[test]
fn a_thread_that_its_packet_woke_waits_for_a_lock_before_it_receives() {
    let softirq = |ts, kind| event(ts, kind, 0, 0, [3, 0, 0]);
    let arrives = |ts, ports, tid| {
        let entry = vec![softirq(ts - 1, Kind::SoftirqEntry)];
        let woken = vec![waking(ts + 2, 0, tid), softirq(ts + 3, Kind::SoftirqExit)];
        [entry, request(ts, ports).to_vec(), woken].concat()
    };
    let waits = vec![
        switch(5, ONE, 0, EPOLL),
        switch(40, 0, ONE, 0),
        switch(50, ONE, 0, FUTEX),
        switch(1_000_210, 0, ONE, 0),
        recv(1_000_250, A, ONE),
        send(1_000_300, A, ONE),
    ];
    let others = vec![
        switch(4, THREE, TWO, EPOLL),
        switch(30, TWO, THREE, 0),
        switch(35, THREE, TWO, FUTEX),
        waking(1_000_000, TWO, THREE),
        switch(1_000_010, TWO, THREE, 0),
        waking(1_000_200, THREE, ONE),
        recv(1_000_220, B, THREE),
        send(1_000_230, B, THREE),
    ];
    let network = [arrives(10, A, ONE), arrives(20, B, THREE)].concat();
    let analysis = analyse(vec![waits, others, network]);
    decides(&analysis, Rule::Held);
    let receive = path(&analysis, 1_000_250, Leg::Receive);
    assert_eq!(time(&receive, HELD), 1_000_000 - 50, "{receive:?}");
    assert!(receive.iter().all(|s| s.2 != "own" || s.1 - s.0 < 1_000), "{receive:?}");
}

/// gunicorn with threads: the poller that a packet wakes needs CPython's lock before it gives the connection to a worker. What the thread that had the
/// lock computed was "its thread was at something else", of a thread that receives nothing.
#[test]
fn a_poller_that_its_packet_woke_waits_for_a_lock_before_it_passes_the_message_on() {
    let softirq = |ts, kind| event(ts, kind, 0, 0, [3, 0, 0]);
    let polls = vec![
        switch(5, ONE, 0, EPOLL),
        softirq(9, Kind::SoftirqEntry),
        request(10, A)[0],
        request(10, A)[1],
        waking(12, 0, ONE),
        softirq(13, Kind::SoftirqExit),
        switch(40, 0, ONE, 0),
        switch(50, ONE, 0, FUTEX),
        switch(1_000_010, 0, ONE, 0),
        waking(1_000_100, ONE, THREE),
        switch(1_000_110, ONE, THREE, EPOLL),
        recv(1_000_200, A, THREE),
        send(1_000_300, A, THREE),
    ];
    let computes = vec![switch(2, THREE, TWO, FUTEX), waking(1_000_000, TWO, ONE)];
    let analysis = analyse(vec![polls, computes]);
    decides(&analysis, Rule::Held);
    let receive = path(&analysis, 1_000_200, Leg::Receive);
    assert_eq!(time(&receive, HELD), 1_000_000 - 50, "{receive:?}");
    assert!(receive.iter().all(|s| s.2 != "own" || s.1 - s.0 < 1_000), "{receive:?}");
}

/// Java: a request had one of two connections of a pool while it waited for another server, by a client with threads of its own. "Another server"
/// was said of those that waited for the pool, and asked nobody.
#[test]
fn who_waits_for_a_pool_waits_for_who_has_it_and_not_for_the_server_that_this_one_asked() {
    let waits_for_the_pool = vec![
        switch(5, 0, ONE, 0),
        recv(100_000, A, ONE),
        switch(110_000, ONE, 0, FUTEX),
        switch(6_000_050, 0, ONE, 0),
        send(6_000_100, A, ONE),
    ];
    let has_it = vec![
        switch(5, 0, TWO, 0),
        recv(20_000, B, TWO),
        switch(40_000, TWO, 0, FUTEX),
        switch(6_000_020, 0, TWO, 0),
        waking(6_000_040, TWO, ONE),
        send(6_000_200, B, TWO),
    ];
    let client = vec![
        switch(5, 0, THREE, 0),
        ask(30_000, THREE),
        switch(35_000, THREE, 0, EPOLL),
        switch(6_000_004, 0, THREE, 0),
        answer(6_000_005, THREE),
        waking(6_000_010, THREE, TWO),
        switch(6_000_060, THREE, 0, EPOLL),
    ];
    let network = merged([request(10, B), request(90_000, A), ready(6_000_000, Some(THREE))].concat());
    let analysis = analyse(vec![waits_for_the_pool, has_it, client, network]);
    decides(&analysis, Rule::WaitedFor);
    let longest = path(&analysis, 100_000, Leg::Service).into_iter().max_by_key(|span| span.1 - span.0);
    let (from, _, owner) = longest.expect("a wait");
    assert_eq!((from, owner), (110_000, format!("sibling:two/sleep:futex/serving/sleep:epoll_pwait/{PEER}")));
}

/// gunicorn: the kernel's mutexes spin first, and begin anew when they sleep. All that its thread did after the first of these was "a lock: kernel
/// lock", 33 % of the tail, for two begins have one end.
#[test]
fn a_mutex_that_spins_before_it_sleeps_is_one_wait() {
    const MUTEX: u64 = 32;
    const SPINS: u64 = 1;
    let contends = |ts, kind, flags| event(ts, kind, 0, ONE, [flags, 0, 0]);
    let serving = vec![
        switch(5, 0, ONE, 0),
        recv(1_000, A, ONE),
        contends(2_000, Kind::ContentionBegin, MUTEX | SPINS),
        contends(2_500, Kind::ContentionBegin, MUTEX),
        contends(4_000, Kind::ContentionEnd, 0),
        send(90_000, A, ONE),
    ];
    let analysis = analyse(vec![serving, request(10, A)]);
    let service = path(&analysis, 1_000, Leg::Service);
    assert_eq!(service, is(&[(1_000, 2_000, "own"), (2_000, 4_000, "own/kernel-lock"), (4_000, 90_000, "own")]));
}
