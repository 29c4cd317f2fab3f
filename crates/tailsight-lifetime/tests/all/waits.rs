//! What a message waits for when its thread sleeps or lacks a core: another server, a lock that somebody holds, other messages
//! that other threads of the application serve; and messages served out of order. One hand-built stream for each decision.

use tailsight_lifetime::input::Names;
use tailsight_lifetime::model::Owner;
use tailsight_lifetime::model::flags;
use tailsight_lifetime::{Analysis, Frame, Leg, Rule, RunContext};
use tailsight_trace::Event;
use tailsight_trace::event::{Kind, flow_flags, switch_flags};
use tailsight_trace::tables::{SocketRow, TaskRow};

use crate::by_hand::{self, analysed, decides, event, is, path, recv, send, switch};

pub(super) const ONE: u32 = 100;
pub(super) const TWO: u32 = 101;
pub(super) const THREE: u32 = 102;
/// Of another application.
const HOLDER: u32 = 103;
/// Connections of clients, and one to a server behind.
pub(super) const A: u64 = 11211 << 16 | 4000;
pub(super) const B: u64 = 11211 << 16 | 4001;
const C: u64 = 11211 << 16 | 4002;
const BEHIND: u64 = 5000 << 16 | 9101;
const LOOPBACK: u64 = 0x7f00_0001_7f00_0001;
pub(super) const PEER: &str = "peer:python3 (127.0.0.1:9101)";
const POLL: u64 = 7;
const RECVFROM: u64 = 45;
const FLOCK: u64 = 73;
pub(super) const FUTEX: u64 = 202;
pub(super) const EPOLL: u64 = 281;
pub(super) const NANOSLEEP: u64 = 35;
const CLOCK_NANOSLEEP: u64 = 230;
pub(super) const LOCAL_TIMER: u16 = 0;

pub(super) fn request(ts: u64, ports: u64) -> Vec<Event> {
    by_hand::request(ts, ports).to_vec()
}
pub(super) fn ask(ts: u64, tid: u32) -> Event {
    Event { aux: flow_flags::CLIENT, ..event(ts, Kind::Send, 0, tid, [LOOPBACK, BEHIND | 10 << 32, 10 | 8 << 32]) }
}
pub(super) fn answer(ts: u64, tid: u32) -> Event {
    event(ts, Kind::PeerRecv, 0, tid, [LOOPBACK, BEHIND | 20 << 32, 10 | 8 << 32])
}
/// The answer arrives in a softirq and wakes a thread 2 ns later, when one is given.
pub(super) fn ready(ts: u64, wakes: Option<u32>) -> Vec<Event> {
    let mut out = vec![
        event(ts - 1, Kind::SoftirqEntry, 0, 0, [3, 0, 0]),
        event(ts, Kind::PeerReady, 0, 0, [LOOPBACK, BEHIND | 20 << 32, 8]),
    ];
    out.extend(wakes.map(|tid| waking(ts + 2, 0, tid)));
    out.push(event(ts + 4, Kind::SoftirqExit, 0, 0, [3, 0, 0]));
    out
}
pub(super) fn waking(ts: u64, by: u32, tid: u32) -> Event {
    event(ts, Kind::SchedWaking, 0, by, [u64::from(tid), u64::from(tid), 0])
}

pub(super) fn analyse(cpus: Vec<Vec<Event>>) -> Analysis {
    analysed(facts(), cpus)
}

/// The same, where the first place in the program is known.
fn analyse_with_places(cpus: Vec<Vec<Event>>) -> Analysis {
    let mut facts = facts();
    facts.names.add_places(vec![11]);
    analysed(facts, cpus)
}

fn facts() -> RunContext {
    let row = |tid, comm: &str| TaskRow { tid, tgid: tid, comm: comm.into(), target: true, ..TaskRow::default() };
    let other = TaskRow { target: false, ..row(HOLDER, "holder") };
    let mut names = Names::new(&[row(ONE, "one"), row(TWO, "two"), row(THREE, "three"), other]);
    let mut symbols = vec![String::new()];
    names.add_tasks_and_stacks(&[], &mut symbols);
    let listens = SocketRow {
        local_addr: "127.0.0.1".into(),
        local_port: 9101,
        listening: true,
        comm: "python3".into(),
        ..SocketRow::default()
    };
    RunContext { names, sockets: vec![listens], symbols, ..RunContext::default() }
}

pub(super) fn merged(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by_key(|e| e.ts);
    events
}

/// A thread asks a server behind it and sleeps until the answer is there: it waits for that server, by name.
#[test]
fn a_call_to_another_server_is_a_wait_for_it() {
    let working = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        ask(25, ONE),
        switch(30, ONE, 0, RECVFROM),
        switch(3_000_010, 0, ONE, 0),
        answer(3_000_020, ONE),
        send(3_000_100, A, ONE),
    ];
    let analysis = analyse(vec![working, [request(10, A), ready(3_000_000, Some(ONE))].concat()]);
    decides(&analysis, Rule::Outside);
    let call = format!("blocked/{PEER}");
    let woken = format!("blocked/sleep:recvfrom/{PEER}");
    assert_eq!(
        path(&analysis, 20, Leg::Service),
        is(&[
            (20, 30, "own"),
            (30, 3_000_000, &call),
            (3_000_000, 3_000_002, &woken),
            (3_000_002, 3_000_010, "idle/wake-pending"),
            (3_000_010, 3_000_100, "own"),
        ])
    );
}

/// A runtime's threads share the work: one received the message and asked, another one polled when the answer came, a third
/// was woken through its futex and answered. Half of the wait was called a lock that the second one held.
#[test]
fn whichever_thread_polled_the_wait_is_for_the_server_and_no_lock() {
    let first = vec![switch(5, 0, ONE, 0), recv(20, A, ONE), ask(25, ONE), switch(60, ONE, 0, FUTEX)];
    let polls = vec![
        switch(6, 0, TWO, 0),
        switch(8, TWO, 0, EPOLL),
        switch(30_000_010, 0, TWO, 0),
        answer(30_000_020, TWO),
        waking(30_000_050, TWO, THREE),
        switch(30_000_060, TWO, 0, EPOLL),
    ];
    let third = vec![
        switch(1, 0, THREE, 0),
        switch(2, THREE, 0, FUTEX),
        switch(30_000_055, 0, THREE, 0),
        send(30_000_100, A, THREE),
    ];
    let network = [request(10, A), ready(30_000_000, Some(TWO))].concat();
    let analysis = analyse(vec![first, polls, third, network]);
    let path = path(&analysis, 20, Leg::Service);
    let waited: u64 = path.iter().filter(|s| s.2.contains(PEER)).map(|s| s.1 - s.0).sum();
    assert!((29_999_930..=29_999_990).contains(&waited), "{path:?}");
    assert!(path.iter().all(|s| !s.2.contains("futex")), "no lock: {path:?}");
    assert_eq!(path.last(), Some(&(30_000_055, 30_000_100, "own".to_owned())));
}

/// The same without knowing whose the call was: requests of two messages share a connection. The packet still tells.
#[test]
fn a_packet_of_a_server_that_ends_a_sleep_of_the_poller_is_the_root_of_a_futex_wait() {
    let first = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        ask(25, ONE),
        recv(30, B, ONE),
        ask(35, ONE),
        switch(60, ONE, 0, FUTEX),
        switch(30_000_060, 0, ONE, 0),
        send(30_000_100, A, ONE),
        send(30_000_200, B, ONE),
    ];
    let polls = vec![
        switch(6, 0, TWO, 0),
        switch(8, TWO, 0, EPOLL),
        switch(30_000_010, 0, TWO, 0),
        answer(30_000_020, TWO),
        waking(30_000_050, TWO, ONE),
        switch(30_000_070, TWO, 0, EPOLL),
    ];
    let network = [request(10, A), request(15, B), ready(30_000_000, Some(TWO))].concat();
    let analysis = analyse(vec![first, polls, network]);
    let path = path(&analysis, 20, Leg::Service);
    let woken = format!("blocked/sleep:epoll_pwait/{PEER}");
    assert!(path.contains(&(60, 30_000_002, woken)), "{path:?}");
    assert!(path.iter().all(|s| !s.2.contains("futex")), "{path:?}");
}

/// Requests of two messages went out on a connection before an answer came: answers before that had been matched all the same, perhaps with the
/// wrong requests ("max 153 us" of a server that stood still for 5 ms). Which answer is whose is not known there, and said.
#[test]
fn calls_on_a_connection_that_requests_share_later_are_not_known_either() {
    let serving = |shares: bool| {
        let mut serving = vec![
            switch(5, 0, ONE, 0),
            recv(20, A, ONE),
            ask(25, ONE),
            switch(60, ONE, 0, EPOLL),
            switch(1_000_010, 0, ONE, 0),
            answer(1_000_020, ONE),
            send(1_000_030, A, ONE),
            recv(1_000_040, B, ONE),
            ask(1_000_050, ONE),
        ];
        if shares {
            serving.extend([recv(1_000_060, C, ONE), ask(1_000_070, ONE)]);
        }
        serving.extend([
            switch(1_000_080, ONE, 0, EPOLL),
            switch(6_000_010, 0, ONE, 0),
            answer(6_000_020, ONE),
            send(6_000_030, B, ONE),
        ]);
        serving
    };
    let network = || {
        let mut network = [
            request(10, A),
            ready(1_000_000, Some(ONE)),
            request(1_000_001, B),
            request(1_000_003, C),
            ready(6_000_000, Some(ONE)),
        ]
        .concat();
        network.sort_by_key(|event| event.ts);
        network
    };
    let alone = analyse(vec![serving(false), network()]);
    assert_eq!(alone.lifetimes.unknown_backend_calls, 0);
    let shared = analyse(vec![serving(true), network()]);
    assert_eq!(shared.lifetimes.unknown_backend_calls, 2);
    let answered = |analysis: &Analysis| analysis.lifetimes.sent.iter().filter(|s| s.answered_ns != 0).count();
    assert_eq!((answered(&alone), answered(&shared)), (2, 0));
}

/// haproxy's log goes to a socket on which nothing ever comes: "the wait for another server's answer is not known for 2,166 requests".
#[test]
fn what_is_sent_where_nothing_ever_comes_asks_nothing() {
    let serving = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        ask(25, ONE),
        send(30, A, ONE),
        recv(40, B, ONE),
        ask(45, ONE),
        send(50, B, ONE),
        recv(60, C, ONE),
        ask(65, ONE),
        send(70, C, ONE),
    ];
    let analysis = analyse(vec![serving, [request(10, A), request(12, B), request(14, C)].concat()]);
    assert_eq!(analysis.lifetimes.unknown_backend_calls, 0);
}

/// A proxy that does not read what it passes on sends two requests of a client to the server behind in one call: whose the answer is that
/// comes first is not known.
#[test]
fn the_call_that_passes_two_requests_on_at_once_is_nobody_s() {
    let passing_on = |bytes: u64| {
        let second = [
            event(12, Kind::RxStack, 0, 0, [1, A | 150 << 32, 50 | 2 << 32]),
            event(13, Kind::Handoff, 0, 0, [1, A | 200 << 32, 9]),
        ];
        let serving = vec![
            switch(5, 0, ONE, 0),
            event(20, Kind::Recv, 0, ONE, [1, A | 200 << 32, 100 | 9 << 32]),
            Event { c: bytes | 8 << 32, ..ask(25, ONE) },
            switch(60, ONE, 0, EPOLL),
            switch(1_000_010, 0, ONE, 0),
            answer(1_000_020, ONE),
            send(1_000_030, A, ONE),
        ];
        analyse(vec![serving, [request(10, A), second.to_vec(), ready(1_000_000, Some(ONE))].concat()])
    };
    // As many bytes as both requests have, and the bytes of a question of the server's own.
    let unknown = |bytes| passing_on(bytes).lifetimes.unknown_backend_calls;
    assert_eq!((unknown(100), unknown(10)), (1, 0));
}

/// A thread sleeps for a time while it serves a message, and another one of its waits to be received: "took longer itself" was said of both.
#[test]
fn a_message_behind_one_that_sleeps_for_a_time_waits_for_that_one() {
    let sleeping_in = |call, name: &str| {
        let serving = vec![
            switch(5, 0, ONE, 0),
            recv(20, A, ONE),
            switch(60, ONE, 0, call),
            event(4_999_999, Kind::VectorEntry, LOCAL_TIMER, 0, [0, 0, 0]),
            waking(5_000_000, 0, ONE),
            event(5_000_001, Kind::VectorExit, LOCAL_TIMER, 0, [0, 0, 0]),
            switch(5_000_010, 0, ONE, 0),
            send(5_000_100, A, ONE),
            recv(5_000_200, B, ONE),
            send(5_000_300, B, ONE),
        ];
        let mut network = [request(10, A), request(1_000_000, B)].concat();
        network.sort_by_key(|event| event.ts);
        let analysis = analyse(vec![serving, network]);
        decides(&analysis, Rule::OtherMessages);
        [(20, Leg::Service), (5_000_200, Leg::Receive)].map(|(recv_ns, leg)| {
            let path = path(&analysis, recv_ns, leg);
            path.into_iter().find(|s| s.2.contains(name)).expect("a sleep").2
        })
    };
    let [own, behind] = sleeping_in(CLOCK_NANOSLEEP, "clock_nanosleep");
    assert_eq!((own.as_str(), behind.as_str()), ("blocked/sleep:clock_nanosleep", "ahead/sleep:clock_nanosleep"));
    // Java sleeps in a futex with a time-out.
    let [own, behind] = sleeping_in(FUTEX, "futex");
    assert!(own.starts_with("blocked/sleep:futex") && behind.starts_with("ahead/sleep:futex"), "{own} {behind}");
}

/// Mojolicious asked another server in the middle of a handler, with a call that blocks its loop. "Waits for another server" was said of all
/// requests that it had received by then.
#[test]
fn a_blocking_call_of_an_event_loop_holds_up_those_that_it_has_received() {
    const ROUND: u64 = 1_000_000;
    // Rounds in which the loop takes two requests, works on each at once, and writes the replies at their end.
    let (mut serving, mut network) = (vec![switch(5, 0, ONE, 0)], vec![]);
    let connection = |number: u64| 11211 << 16 | (5_000 + number);
    for round in 1..=30 {
        let (begin, [first, second]) = (round * ROUND, [2 * round, 2 * round + 1].map(connection));
        network.extend([request(begin, first), request(begin + 1, second)].concat());
        serving.extend([recv(begin + 100_000, first, ONE), recv(begin + 200_000, second, ONE)]);
        serving.extend([send(begin + 300_000, first, ONE), send(begin + 300_100, second, ONE)]);
    }
    let begin = 31 * ROUND;
    network.extend([request(begin, A), request(begin + 1, B), ready(begin + 5_000_000, Some(ONE))].concat());
    serving.extend([
        recv(begin + 100_000, A, ONE),
        recv(begin + 200_000, B, ONE),
        ask(begin + 250_000, ONE),
        switch(begin + 250_100, ONE, 0, RECVFROM),
        switch(begin + 5_000_100, 0, ONE, 0),
        answer(begin + 5_000_200, ONE),
        send(begin + 5_100_000, A, ONE),
        send(begin + 5_100_100, B, ONE),
    ]);
    let analysis = analyse(vec![serving, network]);
    decides(&analysis, Rule::OtherMessages);
    let longest = |recv_ns| path(&analysis, recv_ns, Leg::Service).into_iter().max_by_key(|span| span.1 - span.0);
    let slept = (begin + 250_100, begin + 5_000_000);
    let longest_wait = |recv_ns| longest(recv_ns).map(|(from, to, owner)| ((from, to), owner)).expect("a wait");
    assert_eq!(longest_wait(begin + 200_000), (slept, format!("blocked/{PEER}")));
    let (behind, owner) = longest_wait(begin + 100_000);
    assert_eq!((behind.0, owner), (slept.0, format!("ahead/sleep:recvfrom/{PEER}")));
    let guessed = analysis.lifetimes.owners.iter().filter(|owner| owner.is_guessed());
    let paths: Vec<String> = guessed.map(|owner| owner.path(&analysis.lifetimes.symbols)).collect();
    assert!(paths.contains(&format!("blocked/{PEER}")), "{paths:?}");
}

/// dnsmasq's loop polls for the answer of its server and for whatever else comes: "100 % of it in dnsmasq+0x9e00", which is its loop, was no place. A
/// thread with one connection stands still for the answer, as one does that reads from one descriptor.
#[test]
fn where_an_event_loop_polls_is_no_place_of_a_wait_for_another_server() {
    let placed = |call, is_loop| {
        // A loop comes back to a connection after it had received from another.
        let elsewhere = if is_loop { vec![recv(30, B, ONE), send(35, B, ONE)] } else { vec![] };
        let sleeps = Event { aux: 1 << 4, ..switch(1_020, ONE, 0, call) };
        let first = vec![switch(5, 0, ONE, 0), recv(20, A, ONE), send(25, A, ONE)];
        let second = vec![
            event(1_000, Kind::Recv, 0, ONE, [1, A | 200 << 32, 50 | 9 << 32]),
            ask(1_010, ONE),
            sleeps,
            switch(5_000_100, 0, ONE, 0),
            answer(5_000_200, ONE),
            event(5_100_000, Kind::Send, 0, ONE, [1, A | 600 << 32, 50 | 9 << 32]),
        ];
        let again = vec![
            event(990, Kind::RxStack, 0, 0, [1, A | 150 << 32, 50 | 2 << 32]),
            event(991, Kind::Handoff, 0, 0, [1, A | 200 << 32, 9]),
        ];
        let network = [request(10, A), request(12, B), again, ready(5_000_000, Some(ONE))].concat();
        let analysis = analyse_with_places(vec![[first, elsewhere, second].concat(), network]);
        let id = analysis.lifetimes.messages.iter().find(|m| m.recv_ns == 1_000).expect("the message").id;
        let path = analysis.path(id, Leg::Service);
        let longest = path.iter().max_by_key(|span| span.to_ns - span.from_ns).expect("a wait");
        let frames = &analysis.lifetimes.owners[longest.owner as usize].frames;
        assert!(matches!(frames[0], Frame::Peer { .. }), "{frames:?}");
        matches!(frames.last(), Some(Frame::Place { .. }))
    };
    assert!(placed(RECVFROM, true), "a blocking call");
    assert!(!placed(POLL, true), "its loop");
    assert!(placed(POLL, false), "a client");
    assert!(!placed(EPOLL, false), "nobody polls so for one answer");
}

/// A client sends a request in two parts, 30 ms apart: "the server itself waits in epoll_wait".
#[test]
fn a_server_that_has_a_part_of_a_request_waits_for_its_client() {
    let sent_at = |reply_ns| {
        let serving = vec![
            switch(5, 0, ONE, 0),
            recv(20, A, ONE),
            switch(60, ONE, 0, EPOLL),
            switch(30_000_100, 0, ONE, 0),
            event(30_000_200, Kind::Recv, 0, ONE, [1, A | 200 << 32, 50 | 9 << 32]),
            event(reply_ns, Kind::Send, 0, ONE, [1, A | 550 << 32, 50 | 9 << 32]),
        ];
        let second = vec![
            event(30_000_000, Kind::SoftirqEntry, 0, 0, [3, 0, 0]),
            event(30_000_001, Kind::RxStack, 0, 0, [1, A | 150 << 32, 50 | 2 << 32]),
            event(30_000_002, Kind::Handoff, 0, 0, [1, A | 200 << 32, 9]),
            waking(30_000_003, 0, ONE),
            event(30_000_004, Kind::SoftirqExit, 0, 0, [3, 0, 0]),
        ];
        analyse(vec![serving, [request(10, A), second].concat()])
    };
    let arriving_ns = |analysis: &Analysis| {
        let path = path(analysis, 20, Leg::Service);
        path.into_iter().filter(|s| s.2.contains("request-arriving")).map(|s| s.1 - s.0).sum::<u64>()
    };
    let analysis = sent_at(30_000_300);
    decides(&analysis, Rule::RequestArriving);
    assert_eq!(arriving_ns(&analysis), 29_999_943, "from the wait for work to the wake-up");
    // The reply came much later: it was not the request that it waited for.
    assert_eq!(arriving_ns(&sent_at(90_000_300)), 0);
}

/// A timer of the runtime ended the wait: somebody polled, nobody held anything, no server was asked.
#[test]
fn a_futex_wait_that_a_timer_ends_through_the_poller_is_no_lock() {
    let first = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        switch(60, ONE, 0, FUTEX),
        switch(30_000_060, 0, ONE, 0),
        send(30_000_100, A, ONE),
    ];
    let polls = vec![
        switch(6, 0, TWO, 0),
        switch(8, TWO, 0, EPOLL),
        waking(30_000_000, 0, TWO),
        switch(30_000_010, 0, TWO, 0),
        waking(30_000_050, TWO, ONE),
        switch(30_000_070, TWO, 0, EPOLL),
    ];
    let analysis = analyse(vec![first, polls, request(10, A)]);
    decides(&analysis, Rule::WakerWaited);
    let path = path(&analysis, 20, Leg::Service);
    assert!(path.contains(&(60, 30_000_000, "blocked/sleep:epoll_pwait".into())), "{path:?}");
    assert!(path.iter().all(|s| !s.2.contains("futex")), "{path:?}");
}

/// A job of the program's own asks a server while it has what the message needs (a semaphore, the only thread of a pool), or the message's own
/// thread had woken it for that: in the first case the answer was called the message's own wait for the server.
#[test]
fn a_thread_in_the_middle_of_a_job_is_waited_for_and_not_the_server_that_it_asked() {
    let woken = |woken_by: u32, at: u64| {
        let first = vec![
            switch(5, 0, ONE, 0),
            recv(20, A, ONE),
            waking(at, woken_by, TWO),
            switch(60, ONE, 0, FUTEX),
            switch(1_000_060, 0, ONE, 0),
            send(1_000_100, A, ONE),
        ];
        let job = vec![
            switch(1, 0, TWO, 0),
            switch(2, TWO, 0, FUTEX),
            switch(at + 5, 0, TWO, 0),
            ask(at + 8, TWO),
            switch(at + 10, TWO, 0, RECVFROM),
            switch(900_010, 0, TWO, 0),
            answer(900_020, TWO),
            waking(1_000_050, TWO, ONE),
            switch(1_000_070, TWO, 0, FUTEX),
        ];
        let analysis = analyse(vec![merged(first), job, [request(10, A), ready(900_000, Some(TWO))].concat()]);
        path(&analysis, 20, Leg::Service)
    };
    let slept = |path: &[(u64, u64, String)]| path.iter().find(|s| s.1 - s.0 > 800_000).unwrap().2.clone();
    assert_eq!(slept(&woken(HOLDER, 12)), format!("sibling:two/sleep:futex/sleep:recvfrom/{PEER}"));
    assert!(slept(&woken(ONE, 30)).starts_with("blocked/"), "its own");
}

/// squid reads the rest of an answer when its own rules let it: the wait for the answer was of that time, 0.98 s.
#[test]
fn an_answer_that_is_read_in_parts_was_there_when_it_came() {
    let part = |ts, upto: u64| event(ts, Kind::PeerRecv, 0, ONE, [LOOPBACK, BEHIND | upto << 32, 4 | 4 << 32]);
    let with_second = |second: u64| {
        let working = vec![
            switch(5, 0, ONE, 0),
            recv(20, A, ONE),
            ask(25, ONE),
            switch(30, ONE, 0, EPOLL),
            switch(9_010, 0, ONE, 0),
            part(9_020, 16),
            switch(9_100, ONE, 0, EPOLL),
            switch(800_000, 0, ONE, 0),
            part(800_020, second),
            send(800_100, A, ONE),
        ];
        let network = [request(10, A), ready(9_000, Some(ONE)), vec![waking(799_900, 0, ONE)]].concat();
        let path = path(&analyse(vec![working, network]), 20, Leg::Service);
        path.into_iter().filter(|s| s.2.starts_with("blocked/peer:")).map(|s| s.1).max()
    };
    assert_eq!(with_second(20), Some(9_000), "all of it had come");
    assert_eq!(with_second(24), Some(800_020), "no event says when the rest came");
}

/// squid leaves an answer in its socket until its own rules let it read, and the server goes on sending when it has: it does not wait for the
/// server meanwhile.
#[test]
fn while_a_part_of_an_answer_lies_unread_the_server_is_not_waited_for() {
    let part = |ts, upto: u64| event(ts, Kind::PeerRecv, 0, ONE, [LOOPBACK, BEHIND | upto << 32, 4 | 4 << 32]);
    let working = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        ask(25, ONE),
        switch(30, ONE, 0, EPOLL),
        switch(5_000_010, 0, ONE, 0),
        part(5_000_020, 16),
        switch(5_000_100, ONE, 0, EPOLL),
        switch(6_000_010, 0, ONE, 0),
        part(6_000_020, 24),
        send(6_000_100, A, ONE),
    ];
    let network =
        [request(10, A), ready(9_000, None), vec![waking(5_000_000, 0, ONE)], ready(6_000_000, Some(ONE))].concat();
    let path = path(&analyse(vec![working, network]), 20, Leg::Service);
    let waits: Vec<(u64, u64)> = path.iter().filter(|s| s.2.starts_with("blocked/peer:")).map(|s| (s.0, s.1)).collect();
    assert_eq!(waits, [(30, 9_000), (5_000_020, 6_000_000)]);
}

/// A holder that ran, then slept by a timer of its own, serves nobody: a lock, with what it did.
#[test]
fn a_thread_that_serves_nobody_and_ends_a_futex_wait_held_a_lock() {
    let first = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        switch(60, ONE, 0, FUTEX),
        switch(1_000_060, 0, ONE, 0),
        send(1_000_100, A, ONE),
    ];
    let holds = vec![
        switch(6, 0, TWO, 0),
        switch(500_000, TWO, 0, NANOSLEEP),
        waking(900_000, 0, TWO),
        switch(900_010, 0, TWO, 0),
        waking(1_000_050, TWO, ONE),
    ];
    let analysis = analyse(vec![first, holds, request(10, A)]);
    let path = path(&analysis, 20, Leg::Service);
    assert!(path.contains(&(60, 500_000, "sibling:two/sleep:futex".into())), "{path:?}");
    assert!(path.contains(&(500_000, 900_000, "sibling:two/sleep:futex/sleep:nanosleep".into())), "{path:?}");
}

/// The same, but that thread served another message all the while: this one waits behind that one.
#[test]
fn a_thread_that_serves_another_message_and_ends_a_futex_wait_is_in_front() {
    let first = vec![
        switch(5, 0, ONE, 0),
        recv(40, A, ONE),
        switch(60, ONE, 0, FUTEX),
        switch(1_000_060, 0, ONE, 0),
        send(1_000_100, A, ONE),
    ];
    let holds = vec![switch(6, 0, TWO, 0), recv(30, B, TWO), waking(1_000_050, TWO, ONE), send(1_000_080, B, TWO)];
    let analysis = analyse(vec![first, holds, [request(10, A), request(15, B)].concat()]);
    let path = path(&analysis, 40, Leg::Service);
    assert!(path.contains(&(60, 1_000_050, "sibling:two/sleep:futex/serving".into())), "{path:?}");
}

/// Two threads wait for a file lock that another process holds. The kernel queues the second one behind the first, which wakes it: most
/// of its wait was called a queue behind the first one's message, though the first one had nothing but the same wait.
#[test]
fn who_waits_for_a_file_lock_behind_a_sibling_waits_for_the_one_who_holds_it() {
    let first = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        switch(60, ONE, 0, FLOCK),
        switch(20_000_010, 0, ONE, 0),
        waking(20_000_050, ONE, TWO),
        send(20_000_100, A, ONE),
        switch(20_000_110, ONE, 0, RECVFROM),
    ];
    let second = vec![
        switch(6, 0, TWO, 0),
        recv(30, B, TWO),
        switch(70, TWO, 0, FLOCK),
        switch(20_000_060, 0, TWO, 0),
        send(20_000_100, B, TWO),
    ];
    let holder = vec![switch(7, 0, HOLDER, 0), waking(20_000_000, HOLDER, ONE)];
    let analysis = analyse(vec![first, second, holder, [request(10, A), request(15, B)].concat()]);
    decides(&analysis, Rule::FileLockLine);
    let held = "blocked/sleep:flock/woken-by:holder";
    let before = path(&analysis, 20, Leg::Service);
    assert!(before.contains(&(60, 20_000_000, held.into())), "{before:?}");
    let path = path(&analysis, 30, Leg::Service);
    assert!(path.contains(&(70, 20_000_000, held.into())), "{path:?}");
    // Until the first one gave the lock on, it had it.
    let given = path.iter().find(|s| s.0 <= 20_000_020 && 20_000_020 < s.1).unwrap();
    assert_eq!(given.2, "sibling:one/sleep:flock/serving", "{path:?}");
}

/// The thread that received the message works on until it hands it over: that is work for this message, not a lock.
#[test]
fn the_thread_that_hands_the_message_over_works_for_it() {
    let reads = vec![switch(5, 0, ONE, 0), recv(20, A, ONE), waking(500_000, ONE, TWO), switch(500_100, ONE, 0, EPOLL)];
    let answers =
        vec![switch(1, 0, TWO, 0), switch(2, TWO, 0, FUTEX), switch(500_010, 0, TWO, 0), send(600_000, A, TWO)];
    let analysis = analyse(vec![reads, answers, request(10, A)]);
    decides(&analysis, Rule::PassedOn);
    assert_eq!(analysis.lifetimes.handed_on, [true]);
    assert_eq!(
        path(&analysis, 20, Leg::Service),
        // The one that was woken waited for the core of the one that woke it, which was still at it.
        is(&[(20, 600_000, "own")])
    );
}

/// The same, but it takes and serves another message before it hands this one over: this one is behind that one.
#[test]
fn a_thread_that_serves_another_message_before_it_hands_this_one_over_makes_it_wait() {
    let reads = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        recv(100_000, B, ONE),
        send(400_000, B, ONE),
        waking(400_010, ONE, TWO),
        switch(400_100, ONE, 0, EPOLL),
    ];
    let answers =
        vec![switch(1, 0, TWO, 0), switch(2, TWO, 0, FUTEX), switch(400_200, 0, TWO, 0), send(600_000, A, TWO)];
    let analysis = analyse(vec![reads, answers, [request(10, A), request(15, B)].concat()]);
    let path = path(&analysis, 20, Leg::Service);
    let time = |owner: &str| path.iter().filter(|s| s.2.starts_with(owner)).map(|s| s.1 - s.0).sum::<u64>();
    assert_eq!(time("ahead"), 400_010 - 100_000, "{path:?}");
    assert_eq!(time("sibling:one/sleep"), 0, "no lock: {path:?}");
}

/// Threads of one server on one core: while one serves other messages, this one waits behind those; a thread that serves
/// nobody (a collector) stays a thread of the application.
#[test]
fn a_sibling_on_the_core_is_in_front_only_when_it_serves() {
    let one_core = merged(
        [
            vec![switch(5, 0, TWO, 0)],
            request(10, B),
            vec![recv(20, B, TWO)],
            vec![event(30, Kind::SoftirqEntry, 0, TWO, [3, 0, 0])],
            request(31, A).into_iter().map(|e| Event { tid: TWO, ..e }).collect(),
            vec![
                waking(33, TWO, ONE),
                event(34, Kind::SoftirqExit, 0, TWO, [3, 0, 0]),
                send(400_000, B, TWO),
                switch(400_010, TWO, THREE, EPOLL),
                switch(700_000, THREE, ONE, 0),
                recv(700_010, A, ONE),
            ],
        ]
        .concat(),
    );
    let analysis = analyse(vec![one_core]);
    let path = path(&analysis, 700_010, Leg::Receive);
    let time = |owner: &str| path.iter().filter(|s| s.2 == owner).map(|s| s.1 - s.0).sum::<u64>();
    assert_eq!(time("sibling:two/serving"), 400_010 - 34, "{path:?}");
    assert_eq!(time("sibling:three"), 700_000 - 400_010, "{path:?}");
}

/// One thread, an event loop: it asks for one message, serves another one while the answer comes, and turns back when it is
/// done. Until the answer was there the message waited for the server, from then on behind the other message.
#[test]
fn an_event_loop_that_serves_another_message_meanwhile_makes_wait_after_the_answer_only() {
    let working = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        ask(25, ONE),
        switch(30, ONE, 0, EPOLL),
        waking(100_000, 0, ONE),
        switch(100_010, 0, ONE, 0),
        recv(100_020, B, ONE),
        send(900_000, B, ONE),
        answer(900_020, ONE),
        send(900_100, A, ONE),
    ];
    let network = [request(10, A), request(99_000, B), ready(500_000, None)].concat();
    let analysis = analyse(vec![working, network]);
    assert_eq!(
        path(&analysis, 20, Leg::Service),
        is(&[
            (20, 30, "own"),
            (30, 500_000, &format!("blocked/{PEER}")),
            (500_000, 900_020, "ahead"),
            (900_020, 900_100, "own"),
        ])
    );
    assert_eq!(path(&analysis, 100_020, Leg::Service), is(&[(100_020, 900_000, "own")]), "B asked nobody");
}

/// A loop receives two messages before it asks for the first of them: the question counted to the second. What it does with the
/// answer tells: it replies to the first.
#[test]
fn a_loop_that_received_another_message_before_it_asked_waits_for_the_one_that_it_replies_to() {
    let working = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        recv(30, B, ONE),
        ask(40, ONE),
        switch(50, ONE, 0, EPOLL),
        switch(3_000_010, 0, ONE, 0),
        answer(3_000_020, ONE),
        send(3_000_100, A, ONE),
        switch(3_000_110, ONE, 0, EPOLL),
        waking(5_000_000, 0, ONE),
        switch(5_000_010, 0, ONE, 0),
        send(5_000_100, B, ONE),
    ];
    let network = [request(10, A), request(15, B), ready(3_000_000, Some(ONE))].concat();
    let analysis = analyse(vec![working, network]);
    let waited = |recv_ns| {
        let path = path(&analysis, recv_ns, Leg::Service);
        path.iter().filter(|s| s.2.contains(PEER)).map(|s| s.1 - s.0).sum::<u64>()
    };
    assert_eq!(waited(20), 3_000_002 - 50);
    assert_eq!(waited(30), 0, "{:?}", path(&analysis, 30, Leg::Service));
}

/// The same, but both are replied to right after the answer: whose it was is not known, and neither is given it. The packet that
/// ended the sleep is.
#[test]
fn a_loop_that_replies_to_two_messages_after_an_answer_does_not_tell_whose_it_was() {
    let working = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        recv(30, B, ONE),
        ask(40, ONE),
        switch(50, ONE, 0, EPOLL),
        switch(3_000_010, 0, ONE, 0),
        answer(3_000_020, ONE),
        send(3_000_100, A, ONE),
        send(3_000_200, B, ONE),
        switch(3_000_210, ONE, 0, EPOLL),
    ];
    let network = [request(10, A), request(15, B), ready(3_000_000, Some(ONE))].concat();
    let analysis = analyse(vec![working, network]);
    for recv_ns in [20, 30] {
        let path = path(&analysis, recv_ns, Leg::Service);
        let is_named = |s: &&(u64, u64, String)| s.2.contains(PEER) && s.1 - s.0 > 1_000_000;
        assert!(path.iter().filter(is_named).all(|s| s.2.contains("sleep:epoll")), "{path:?}");
        assert_eq!(path.iter().filter(is_named).count(), 1, "{path:?}");
    }
}

/// A loop with one connection to the server behind receives a second message while it is in use, and goes to sleep with it. It sends that
/// message's request when the first one is answered: until then the message waited for the connection, and then for the server.
#[test]
fn a_message_for_which_no_connection_was_free_waited_for_one() {
    let working = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        ask(25, ONE),
        switch(30, ONE, 0, EPOLL),
        waking(99_990, 0, ONE),
        switch(100_000, 0, ONE, 0),
        recv(100_020, B, ONE),
        switch(100_050, ONE, 0, EPOLL),
        switch(500_010, 0, ONE, 0),
        answer(500_020, ONE),
        send(500_100, A, ONE),
        ask(500_120, ONE),
        switch(500_150, ONE, 0, EPOLL),
        switch(900_010, 0, ONE, 0),
        answer(900_020, ONE),
        send(900_100, B, ONE),
        switch(900_150, ONE, 0, EPOLL),
    ];
    let network = [request(10, A), request(99_980, B), ready(500_000, Some(ONE)), ready(900_000, Some(ONE))].concat();
    let analysis = analyse(vec![working, network]);
    let waits = |recv_ns| {
        let path = path(&analysis, recv_ns, Leg::Service);
        let peer_wait =
            |s: &(u64, u64, String)| s.2.strip_prefix("blocked/peer:").map(|name| (s.0, s.1, name.to_owned()));
        path.iter().filter_map(peer_wait).collect::<Vec<_>>()
    };
    let server = "python3 (127.0.0.1:9101)".to_owned();
    assert_eq!(waits(20), [(30, 500_000, server.clone())]);
    let path = path(&analysis, 100_020, Leg::Service);
    assert_eq!(waits(100_020), [(500_150, 900_000, server.clone())], "{path:?}");
    assert!(path.contains(&(100_050, 500_000, format!("blocked/turn:{server}"))), "{path:?}");
}

/// A request was sent and nobody waited: the reply came before the answer.
#[test]
fn a_request_that_nobody_waits_for_is_no_wait() {
    let working = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        ask(25, ONE),
        send(400, A, ONE),
        switch(430, ONE, 0, EPOLL),
        switch(9_010, 0, ONE, 0),
        answer(9_020, ONE),
    ];
    let analysis = analyse(vec![working, [request(10, A), ready(9_000, Some(ONE))].concat()]);
    assert_eq!(path(&analysis, 20, Leg::Service), is(&[(20, 400, "own")]));
}

/// Two requests arrive, the later one is received first: the earlier one was overtaken, for as long as that one was served.
#[test]
fn a_later_arrival_that_is_served_first_is_counted() {
    let working = vec![
        switch(5, 0, ONE, 0),
        recv(40, B, ONE),
        send(50_000, B, ONE),
        recv(50_010, A, ONE),
        send(60_000, A, ONE),
        recv(60_010, C, ONE),
        send(70_000, C, ONE),
    ];
    let network = [request(10, A), request(20, B), request(30, C)].concat();
    let lifetimes = analyse(vec![working, network]).lifetimes;
    let overtaken: Vec<bool> = lifetimes.messages.iter().map(|m| m.flags & flags::OVERTAKEN != 0).collect();
    // A was overtaken by B; C waited behind both, in order.
    assert_eq!(overtaken, [true, false, false]);
    assert_eq!(lifetimes.overtaken, [50_000 - 40, 0, 0]);
}

/// An event loop hands a request to another thread, which computes, and takes other requests meanwhile: those ended its sleeps, and what
/// it waited for was not named.
#[test]
fn an_event_loop_whose_answer_another_thread_hands_back_waits_for_that_one() {
    let wakes = |ts| waking(ts, 0, ONE);
    let polling = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        switch(60, ONE, 0, EPOLL),
        switch(300_010, 0, ONE, 0),
        recv(300_020, B, ONE),
        switch(300_060, ONE, 0, EPOLL),
        switch(900_010, 0, ONE, 0),
        send(900_100, A, ONE),
    ];
    let computing = vec![
        switch(6, 0, TWO, 0),
        switch(200_000, TWO, 0, EPOLL),
        waking(250_000, 0, TWO),
        switch(250_010, 0, TWO, 0),
        waking(900_000, TWO, ONE),
    ];
    let arriving = [request(10, A), request(300_000, B), vec![wakes(300_005)]].concat();
    let analysis = analyse(vec![polling, computing, merged(arriving)]);
    decides(&analysis, Rule::AnsweredLater);
    let path = path(&analysis, 20, Leg::Service);
    let (works, idle) = ("sibling:two/sleep:epoll_pwait", "blocked/sleep:epoll_pwait");
    assert!(path.contains(&(60, 200_000, works.into())), "{path:?}");
    assert!(path.contains(&(200_000, 250_000, idle.into())), "while that one waits for work, too: {path:?}");
    assert!(path.contains(&(250_010, 300_005, works.into())), "{path:?}");
    assert!(path.contains(&(300_060, 900_000, works.into())), "{path:?}");
}

/// ONE waits for a lock from 60 on, with a time limit that is over at 5 ms; `gap` later it tries again, and is woken at 8 ms.
fn tries_again(gap: u64) -> Vec<Event> {
    vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        switch(60, ONE, 0, FUTEX),
        switch(5_000_010, 0, ONE, 0),
        switch(5_000_010 + gap, ONE, 0, FUTEX),
        switch(8_000_010, 0, ONE, 0),
        send(8_000_100, A, ONE),
    ]
}

/// The end of that time limit.
fn expires() -> Vec<Event> {
    let timer = |ts, kind| event(ts, kind, LOCAL_TIMER, 0, [0, 0, 0]);
    vec![timer(4_999_998, Kind::VectorEntry), waking(5_000_000, 0, ONE), timer(5_000_002, Kind::VectorExit)]
}

/// CPython waits for its interpreter's lock 5 ms at a time. Only the last of these waits is ended by the thread that had it all along.
#[test]
fn tries_for_a_lock_with_a_time_limit_wait_for_who_ends_the_last_one() {
    let holds = vec![switch(6, 0, TWO, 0), waking(8_000_000, TWO, ONE)];
    let path_with = |gap| {
        let analysis = analyse(vec![tries_again(gap), holds.clone(), [request(10, A), expires()].concat()]);
        path(&analysis, 20, Leg::Service)
    };
    let held = "sibling:two/sleep:futex";
    let path = path_with(30_000);
    assert!(path.contains(&(60, 5_000_000, held.into())), "{path:?}");
    assert!(path.contains(&(5_030_010, 8_000_000, held.into())), "{path:?}");
    // What it did meanwhile was more than a try.
    let path = path_with(400_000);
    assert!(!path.contains(&(60, 5_000_000, held.into())), "{path:?}");
}

/// "held by python3, which slept in recvfrom" was said of CPython's lock, which a thread gives back before it waits for its client: the one
/// that ended the last try had got the lock since.
#[test]
fn nobody_waits_for_a_client_with_an_interpreter_s_lock() {
    // It serves a connection of its own from before until after, and waits for that one's next part meanwhile.
    let serves = vec![
        switch(6, 0, TWO, 0),
        recv(15, B, TWO),
        switch(1_000_000, TWO, 0, RECVFROM),
        waking(7_000_000, 0, TWO),
        switch(7_000_010, 0, TWO, 0),
        waking(8_000_000, TWO, ONE),
        send(8_000_050, B, TWO),
    ];
    let requests = [request(10, A), request(12, B), expires()].concat();
    let analysis = analyse(vec![tries_again(30_000), serves, requests]);
    decides(&analysis, Rule::GivenBack);
    let path = path(&analysis, 20, Leg::Service);
    let held =
        |at: u64| path.iter().find(|(from, to, _)| (*from..*to).contains(&at)).map(|(_, _, owner)| owner.as_str());
    assert_eq!(held(500_000), Some("sibling:two/sleep:futex/serving"), "it may have had it: {path:?}");
    assert_eq!(held(4_000_000), Some("blocked/sleep:futex"), "{path:?}");
    assert_eq!(held(7_500_000), Some("sibling:two/sleep:futex/serving"), "{path:?}");
}

/// A virtual machine's own thread stopped all others for a while. A message that came meanwhile was said to be worked at by that thread, as if
/// it were the one that takes messages and passes them on.
#[test]
fn a_thread_that_never_waits_for_data_passes_nothing_on() {
    let stopped = vec![
        switch(5, 0, ONE, 0),
        switch(8, ONE, 0, FUTEX),
        switch(2_000_010, 0, ONE, 0),
        recv(2_000_100, A, ONE),
        send(2_000_200, A, ONE),
    ];
    let path_with = |stops: Vec<Event>| {
        let analysis = analyse(vec![stopped.clone(), stops, request(1_000, A)]);
        path(&analysis, 2_000_100, Leg::Receive)
    };
    let path = path_with(vec![switch(6, 0, TWO, 0), waking(2_000_000, TWO, ONE)]);
    assert!(path.contains(&(1_001, 2_000_000, "sibling:two/sleep:futex".into())), "{path:?}");
    // One that takes messages may pass this one on.
    let polls = vec![switch(6, 0, TWO, 0), switch(7, TWO, 0, EPOLL), waking(500, 0, TWO), switch(510, 0, TWO, 0)];
    let path = path_with([polls, vec![waking(2_000_000, TWO, ONE)]].concat());
    assert!(path.iter().any(|s| s.1 == 2_000_000 && s.2 == "own"), "{path:?}");
}

/// Traffic Server's control group was frozen for 25 ms at a time: the row was `wakeup-delay not woken yet, asleep in epoll_wait, until
/// python3 woke it`, for the one that thawed it.
#[test]
fn a_frozen_thread_is_stopped() {
    let mut freezes = switch(8, ONE, 0, EPOLL);
    freezes.b = freezes.b & !0xffff_ffff | 0x8000;
    let frozen = vec![
        switch(5, 0, ONE, 0),
        freezes,
        switch(2_000_010, 0, ONE, 0),
        recv(2_000_100, A, ONE),
        send(2_000_200, A, ONE),
    ];
    let thaws = vec![switch(6, 0, HOLDER, 0), waking(2_000_000, HOLDER, ONE)];
    let analysis = analyse(vec![frozen, thaws, request(1_000, A)]);
    let path = path(&analysis, 2_000_100, Leg::Receive);
    assert!(path.contains(&(1_001, 2_000_000, "blocked/stopped".into())), "{path:?}");
}

/// A quota kept the thread from its core since before the recording began: no event tells, but an idle core runs whoever is ready. Of a run whose
/// recording began so, 97 % of the slowest messages' excess had no owner.
#[test]
fn a_thread_that_was_not_woken_and_whose_core_was_idle_was_throttled_if_it_is_later() {
    let recorded = |aux: u16, before: Vec<Event>| {
        let out = event(8_000_000, Kind::SchedSwitch, aux, ONE, [u64::from(ONE), 120 << 32, 0]);
        let serves = vec![recv(5_000_100, A, ONE), send(5_000_200, A, ONE), out, switch(9_000_000, 0, ONE, 0)];
        path(&analyse(vec![[before, serves].concat(), request(1_000_000, A)]), 5_000_100, Leg::Receive)
    };
    let waited = |to, owner: &str| (1_000_001, to, owner.to_owned());
    let at_once = recorded(switch_flags::THROTTLED, vec![switch(5_000_000, 0, ONE, 0)]);
    assert!(at_once.contains(&waited(5_000_000, "blocked/throttled")), "{at_once:?}");
    let behind = vec![switch(4_000_000, 0, TWO, 0), switch(5_000_000, TWO, ONE, 0)];
    let behind = recorded(switch_flags::THROTTLED, behind);
    assert!(behind.contains(&waited(4_000_000, "blocked/throttled")), "{behind:?}");
    assert!(behind.iter().any(|s| (s.0, s.1) == (4_000_000, 5_000_000) && s.2 != "unknown"), "{behind:?}");
    // Without a quota in the run, on a core that was never idle, and after a move it is not known.
    let moved = event(2_000_000, Kind::SchedMigrate, 0, 0, [u64::from(ONE), 1, 0]);
    for (aux, before) in [
        (0, vec![switch(5_000_000, 0, ONE, 0)]),
        (switch_flags::THROTTLED, vec![switch(5_000_000, TWO, ONE, 0)]),
        (switch_flags::THROTTLED, vec![moved, switch(5_000_000, 0, ONE, 0)]),
    ] {
        let other = recorded(aux, before);
        assert!(other.contains(&waited(5_000_000, "unknown")), "{other:?}");
    }
}

/// A rate limit of nginx holds a request back for 5 ms, and its loop serves another one meanwhile: "waits for what the kernel does not show",
/// and for that other one.
#[test]
fn a_message_that_goes_on_when_a_timer_of_its_loop_goes_off_waits_for_that() {
    const TIMER: u64 = 5_000_000;
    /// What the loop waits for; `after`: what it does after the timer went off.
    fn analysis(meanwhile: &[Event], after: &[Event]) -> Analysis {
        let mut serving = vec![switch(5, 0, ONE, 0), recv(20, A, ONE), switch(60, ONE, 0, EPOLL)];
        serving.extend(meanwhile);
        serving.extend([
            event(TIMER - 1, Kind::VectorEntry, LOCAL_TIMER, 0, [0, 0, 0]),
            waking(TIMER, 0, ONE),
            event(TIMER + 1, Kind::VectorExit, LOCAL_TIMER, 0, [0, 0, 0]),
            switch(TIMER + 10, 0, ONE, 0),
        ]);
        serving.extend(after);
        let mut network = [request(10, A), request(1_000_000, B), request(TIMER + 5, C)].concat();
        network.sort_by_key(|event| event.ts);
        analyse(vec![serving, network])
    }
    let waits = |analysis: &Analysis| -> Vec<(u64, u64, String)> {
        let path = path(analysis, 20, Leg::Service);
        path.into_iter().filter(|span| span.2.contains("sleep:") && span.1 - span.0 > 1_000).collect()
    };
    let is_guessed = |analysis: &Analysis| analysis.lifetimes.owners.iter().any(Owner::is_guessed);
    let until_timer = [(60, TIMER, "blocked/sleep:epoll_pwait/timer".to_owned())];
    let woken = 1_000_100;
    let meanwhile = [
        waking(woken - 80, 0, ONE),
        switch(woken, 0, ONE, 0),
        recv(woken + 10, B, ONE),
        send(woken + 100, B, ONE),
        switch(woken + 200, ONE, 0, EPOLL),
    ];
    let (replies, sleeps) = (send(TIMER + 300, A, ONE), switch(TIMER + 900, ONE, 0, EPOLL));
    let alone = analysis(&[], &[replies, sleeps]);
    assert!(!alone.lifetimes.handed_on.contains(&true), "the loop answers itself");
    assert_eq!((waits(&alone).as_slice(), is_guessed(&alone)), (&until_timer[..], false));
    let beside_another = analysis(&meanwhile, &[replies, sleeps]);
    assert_eq!((waits(&beside_another).as_slice(), is_guessed(&beside_another)), (&until_timer[..], true));
    // Others that came since and are done with by then are not why.
    let other = [recv(TIMER + 20, C, ONE), send(TIMER + 100, C, ONE), replies, sleeps];
    assert_eq!(waits(&analysis(&meanwhile, &other)), until_timer);
    // One that is not answered yet may be.
    let still_open = [recv(TIMER + 20, C, ONE), replies, send(TIMER + 500, C, ONE), sleeps];
    assert!(waits(&analysis(&meanwhile, &still_open)).iter().all(|wait| !wait.2.contains("timer")));
}

/// Tomcat with two threads, whose handlers ask a server through a client that has threads of its own: a request that nobody had read waited
/// "for another server", which answered others' requests, each as fast as ever.
#[test]
fn who_waits_behind_another_whose_thread_waits_for_a_client_s_does_not_wait_for_the_server() {
    const ANSWERED: u64 = 5_000_000;
    let serving = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        waking(40, ONE, TWO),
        switch(60, ONE, TWO, FUTEX),
        ask(100, TWO),
        switch(120, TWO, 0, EPOLL),
        switch(ANSWERED + 10, 0, TWO, 0),
        answer(ANSWERED + 20, TWO),
        waking(ANSWERED + 40, TWO, ONE),
        switch(ANSWERED + 60, TWO, ONE, EPOLL),
        send(ANSWERED + 100, A, ONE),
        recv(ANSWERED + 200, B, ONE),
        send(ANSWERED + 300, B, ONE),
    ];
    let mut network = [request(10, A), request(2_000, B), ready(ANSWERED, Some(TWO))].concat();
    network.sort_by_key(|event| event.ts);
    let analysis = analyse(vec![serving, network]);
    decides(&analysis, Rule::HoldsNothing);
    let longest = |recv_ns, leg| path(&analysis, recv_ns, leg).into_iter().max_by_key(|s| s.1 - s.0).expect("a step").2;
    assert_eq!(longest(ANSWERED + 200, Leg::Receive), format!("ahead/sleep:epoll_pwait/{PEER}"));
    // The one whose handler asked does.
    assert!(longest(20, Leg::Service).ends_with(PEER), "{}", longest(20, Leg::Service));
}

/// A thread of a pool fetches for a message whose thread woke it and then waits for it, as varnish does. The packet with the answer came while
/// the poller that passes it on was awake for others, and no wait was known to be for the server: "waits for what the kernel does not show".
#[test]
fn a_job_that_a_message_s_thread_handed_over_asks_for_that_message() {
    let port = |round: u64| 11211 << 16 | (4100 + round);
    // `contends`: in these rounds the thread wakes by itself, as one with work of its own does.
    let waits_for_the_server = |rounds: u64, contends: &dyn Fn(u64) -> bool| {
        let mut serving = vec![switch(5, 0, ONE, 0)];
        let mut fetching = vec![switch(1, 0, TWO, 0), switch(2, TWO, 0, FUTEX)];
        let mut polling = vec![switch(3, 0, THREE, 0), switch(4, THREE, 0, EPOLL)];
        let mut network = vec![];
        for round in 0..rounds {
            let at = |ns: u64| 10_000 + round * 10_000_000 + ns;
            network.extend(request(at(0), port(round)));
            network.extend(ready(at(3_000_000), None));
            serving.push(recv(at(20), port(round), ONE));
            let wakes = if contends(round) { 0 } else { ONE };
            serving.push(waking(at(25), wakes, TWO));
            serving.extend([
                switch(at(30), ONE, 0, FUTEX),
                switch(at(3_000_100), 0, ONE, 0),
                send(at(3_000_110), port(round), ONE),
                switch(at(3_000_120), ONE, 0, RECVFROM),
                switch(at(9_000_000), 0, ONE, 0),
            ]);
            fetching.extend([
                switch(at(35), 0, TWO, 0),
                ask(at(40), TWO),
                switch(at(50), TWO, 0, FUTEX),
                switch(at(3_000_040), 0, TWO, 0),
                answer(at(3_000_050), TWO),
                waking(at(3_000_060), TWO, ONE),
                switch(at(3_000_070), TWO, 0, FUTEX),
            ]);
            polling.extend([
                switch(at(2_999_000), 0, THREE, 0),
                waking(at(3_000_020), THREE, TWO),
                switch(at(3_000_030), THREE, 0, EPOLL),
            ]);
        }
        let analysis = analyse(vec![serving, fetching, polling, network]);
        let of_round = |round: u64| -> u64 {
            let path = path(&analysis, 10_000 + round * 10_000_000 + 20, Leg::Service);
            path.iter().filter(|span| span.2 == format!("blocked/{PEER}")).map(|span| span.1 - span.0).sum()
        };
        (0..rounds).map(of_round).collect::<Vec<u64>>()
    };
    assert_eq!(waits_for_the_server(8, &|_| false), [2_999_960; 8]);
    // Seven calls do not show that all are such jobs, and neither do ten of which some are a thread's own.
    assert_eq!(waits_for_the_server(7, &|_| false), [0; 7]);
    assert_eq!(waits_for_the_server(10, &|round| round % 4 == 3), [0; 10]);
}
