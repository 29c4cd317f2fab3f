//! Tasks that wait while their threads do other things, on streams that are written by hand. In: in which task a thread received
//! and sent, looks from outside. Out: paths of messages, and whose call to another server it was.

use proptest::prelude::*;
use tailsight_lifetime::input::Names;
use tailsight_lifetime::input::wakes::Waker;
use tailsight_lifetime::{Analysis, Doing, Frame, Leg, RunContext};
use tailsight_trace::Event;
use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::routines::{NO_MESSAGE, RoutineRow, State};
use tailsight_trace::tables::TaskRow;

use crate::by_hand::{analysed, event, is, path, recv, request, send, switch};

const FIRST: u32 = 100;
const SECOND: u32 = 101;
const A: u64 = 11211 << 16 | 4000;
const B: u64 = 11211 << 16 | 4001;
/// The connection to a database.
const BEHIND: u64 = 40000 << 16 | 3306;
/// The goroutine of the client on A.
const OF_A: u64 = 0x5000;
const OF_B: u64 = 0x6000;
/// One that no client sends to.
const JOB: u64 = 0x7000;
const EPOLL: u64 = 232;
const FUTEX: u64 = 202;

fn seen(ts: u64, tid: u32, routine: u64) -> Event {
    event(ts, Kind::RoutineSeen, 0, tid, [0, routine, 0])
}

fn look(ts_ns: u64, state: State, stack: u32) -> RoutineRow {
    RoutineRow { ts_ns, pid: FIRST, routine: OF_A, since_ns: 999_990, state, stack }
}

fn facts(looks: &[RoutineRow]) -> RunContext {
    let row = |tid| TaskRow { tid, tgid: FIRST, comm: "shop".into(), target: true, ..TaskRow::default() };
    RunContext { names: Names::new(&[row(FIRST), row(SECOND)]), routines: looks.to_vec(), ..RunContext::default() }
}

fn waking(ts: u64, tid: u32) -> Event {
    event(ts, Kind::SchedWaking, 0, 0, [u64::from(tid), u64::from(FIRST), 0])
}

/// The goroutine receives on one thread, waits for a lock from 1.2 ms on, and answers on the other thread, which slept until 8 ms.
fn moved() -> Vec<Vec<Event>> {
    let first = vec![
        switch(5, 0, FIRST, 0),
        seen(999_990, FIRST, OF_A),
        recv(1_000_000, A, FIRST),
        switch(1_200_000, FIRST, 0, EPOLL),
        switch(4_000_000, 0, FIRST, 0),
        // It serves another client meanwhile.
        seen(4_000_090, FIRST, OF_B),
        recv(4_000_100, B, FIRST),
        seen(4_100_000, FIRST, OF_B),
        send(4_100_010, B, FIRST),
        switch(4_200_000, FIRST, 0, EPOLL),
    ];
    let second = vec![
        switch(5, 0, SECOND, 0),
        switch(10, SECOND, 0, FUTEX),
        switch(8_000_000, 0, SECOND, 0),
        seen(8_299_990, SECOND, OF_A),
        send(8_300_000, A, SECOND),
        switch(8_400_000, SECOND, 0, FUTEX),
    ];
    let arriving = [request(20, A), request(3_999_000, B)].concat();
    let woken = vec![waking(3_999_500, FIRST), waking(7_999_000, SECOND)];
    vec![first, second, [arriving, woken].concat()]
}

fn parked(analysis: &Analysis) -> Vec<(u64, u64)> {
    let owners = &analysis.lifetimes.owners;
    let id = analysis.lifetimes.messages.iter().find(|m| m.recv_ns == 1_000_000).expect("the message").id;
    let is_parked = |owner: u32| owners.get(owner as usize).is_some_and(|owner| owner.frames.contains(&Frame::Parked));
    let spans = analysis.path(id, Leg::Service);
    spans.iter().filter(|span| is_parked(span.owner)).map(|span| (span.from_ns, span.to_ns)).collect()
}

/// A goroutine that waited for a lock was its thread's sleep in epoll_pwait, or whatever another thread did.
#[test]
fn a_goroutine_that_waits_is_not_where_its_thread_sleeps() {
    let looks = [look(3_000_000, State::Waiting, 7), look(5_000_000, State::Waiting, 7)];
    let analysis = analysed(facts(&looks), moved());
    let service = [
        (1_000_000, 1_200_000, "own"),
        (1_200_000, 7_999_000, "blocked/parked"),
        (7_999_000, 8_000_000, "idle/wake-pending"),
        (8_000_000, 8_300_000, "own"),
    ];
    assert_eq!(path(&analysis, 1_000_000, Leg::Service), is(&service));
    let places = analysis.lifetimes.owners.iter().filter(|owner| owner.frames.contains(&Frame::Parked));
    let places: Vec<_> = places.map(|owner| owner.frames.clone()).collect();
    assert_eq!(places, [[Frame::Parked, Frame::Place { stack: 6 }]]);
}

/// A goroutine that could run while its process's only processor computed for a job: "the server itself took longer (running)".
#[test]
fn a_goroutine_that_is_ready_waits_for_what_its_runtime_runs() {
    const RUNS_A_JOB: u32 = 102;
    let mut streams = moved();
    streams.push(vec![
        switch(5, 0, RUNS_A_JOB, 0),
        switch(10, RUNS_A_JOB, 0, FUTEX),
        switch(2_500_000, 0, RUNS_A_JOB, 0),
        switch(7_000_000, RUNS_A_JOB, 0, FUTEX),
    ]);
    let looks = [
        look(2_000_000, State::Waiting, 7),
        look(3_000_000, State::Runnable, 0),
        look(6_500_000, State::Runnable, 0),
        look(7_500_000, State::Running, 0),
    ];
    let row = |tid| TaskRow { tid, tgid: FIRST, comm: "shop".into(), target: true, ..TaskRow::default() };
    let names = Names::new(&[row(FIRST), row(SECOND), row(RUNS_A_JOB)]);
    let analysis = analysed(RunContext { names, ..facts(&looks) }, streams);
    let spans = path(&analysis, 1_000_000, Leg::Service);
    let begin = [(1_000_000, 1_200_000, "own"), (1_200_000, 2_000_000, "blocked/parked")];
    assert_eq!(spans[..2], is(&begin), "{spans:?}");
    let ready = |(_, _, owner): &&(u64, u64, String)| owner.starts_with("sibling:shop/task-ready");
    let ready_ns: u64 = spans.iter().filter(ready).map(|(from, to, _)| to - from).sum();
    assert_eq!(ready_ns, 4_500_000, "as long as the job ran while looks saw that it was ready: {spans:?}");
}

/// Tokio: both workers computed for a job, and "tokio sleeping until a time" was the first cause: of a sleep of 3 ms, whose time had long come.
#[test]
fn a_sleep_that_nobody_had_a_processor_to_end_is_late() {
    const ASKS_TIME: u64 = 1;
    const TIME_CAME: u64 = 2;
    let mut facts = tokio_facts();
    facts.wakes = [(10, Waker::Timer), (11, Waker::Timer)].into_iter().collect();
    let ms = 1_000_000;
    // Ten requests that sleep for 3 ms; before the time of the last one has come, a job has the only thread until 8 ms after that.
    let request_at = |n: u64| (n + 1) * 40 * ms;
    let (mut thread, mut arriving) = (vec![switch(5, 0, FIRST, 0)], vec![]);
    for n in 0..10 {
        let (at, client) = (request_at(n), A + n);
        arriving.extend(request(at - 10_000, client));
        thread.extend([
            runs(at - 100, FIRST, OF_A),
            recv(at, client, FIRST),
            asks(at + 1_000, FIRST, OF_A, ASKS_TIME),
            switch(at + 2_000, FIRST, 0, EPOLL),
        ]);
        let came = match n {
            9 => at + 11 * ms,
            _ => at + 3 * ms,
        };
        let begun = if n == 9 { at + 2 * ms } else { came - 1_000 };
        thread.extend([switch(begun, 0, FIRST, 0), runs(begun + 10, FIRST, JOB)]);
        arriving.push(waking(begun - 10, FIRST));
        thread.extend([
            woken(came, FIRST, OF_A, TIME_CAME),
            runs(came + 10, FIRST, OF_A),
            send(came + 20_000, client, FIRST),
            switch(came + 30_000, FIRST, 0, EPOLL),
        ]);
    }
    arriving.sort_by_key(|event| event.ts);
    let analysis = analysed(facts, vec![thread, arriving]);
    let parts = |at: u64, begin: &str| -> u64 {
        let spans = path(&analysis, at, Leg::Service);
        spans.iter().filter(|(_, _, owner)| owner.starts_with(begin)).map(|(from, to, _)| to - from).sum()
    };
    let last = request_at(9);
    assert!(parts(last, "blocked/parked").abs_diff(3 * ms) < 5_000, "{:?}", path(&analysis, last, Leg::Service));
    assert!(parts(last, "sibling:shop/task-ready").abs_diff(8 * ms) < 5_000);
    assert_eq!(parts(request_at(3), "sibling:shop/task-ready"), 0);
}

/// Looks at the goroutine with another message say nothing of this one; a look that saw it run ends a wait.
#[test]
fn only_what_was_seen_of_a_message_s_own_goroutine_counts() {
    let of_another = RoutineRow { since_ns: 500_000, ..look(3_000_000, State::Waiting, 7) };
    let elsewhere = RoutineRow { routine: OF_B, ..look(3_000_000, State::Waiting, 7) };
    assert_eq!(parked(&analysed(facts(&[of_another, elsewhere]), moved())), []);
    let looks =
        [look(2_000_000, State::Waiting, 7), look(3_000_000, State::Running, 0), look(4_000_000, State::Waiting, 8)];
    assert_eq!(parked(&analysed(facts(&looks), moved())), [(1_200_000, 2_000_000), (4_000_000, 7_999_000)]);
}

/// A job of the program's own asked the database on the thread that had received a message before: the answer was "the message's wait".
#[test]
fn a_request_of_another_goroutine_is_none_of_the_message_s() {
    let client = |ts, kind, tid| event(ts, kind, flow_flags::CLIENT, tid, [1, BEHIND | 30 << 32, 10 | 8 << 32]);
    let stream = |routine| {
        let first = vec![
            switch(5, 0, FIRST, 0),
            // That goroutines of clients ask the database themselves.
            seen(100, FIRST, OF_B),
            recv(200, B, FIRST),
            client(300, Kind::Send, FIRST),
            switch(400, FIRST, 0, EPOLL),
            switch(600, 0, FIRST, 0),
            client(700, Kind::PeerRecv, FIRST),
            send(800, B, FIRST),
            seen(999_990, FIRST, OF_A),
            recv(1_000_000, A, FIRST),
            seen(1_100_000, FIRST, routine),
            client(1_100_010, Kind::Send, FIRST),
            switch(1_200_000, FIRST, 0, EPOLL),
            switch(4_000_000, 0, FIRST, 0),
            client(4_000_100, Kind::PeerRecv, FIRST),
            seen(4_100_000, FIRST, OF_A),
            send(4_100_010, A, FIRST),
            switch(4_200_000, FIRST, 0, EPOLL),
        ];
        let ready = |ts| event(ts, Kind::PeerReady, flow_flags::CLIENT, 0, [1, BEHIND | 30 << 32, 8]);
        let mut arriving = [request(20, A), request(30, B)].concat();
        arriving.extend([ready(500), waking(510, FIRST), ready(3_999_000), waking(3_999_010, FIRST)]);
        arriving.sort_by_key(|event| event.ts);
        analysed(facts(&[]), vec![first, arriving])
    };
    let waits = |analysis: &Analysis| {
        let spans = path(analysis, 1_000_000, Leg::Service);
        spans.iter().any(|(_, _, owner)| owner.starts_with("blocked/peer:"))
    };
    assert!(waits(&stream(OF_A)), "its own request");
    assert!(!waits(&stream(JOB)));
}

/// The connection to the server behind has a reader and a writer, as those of `net/http`, and both clients' goroutines use it. A is asked for
/// first; B waits until the answer to A is there. Both are answered on the thread that reads.
fn in_line(looks: &[RoutineRow]) -> Analysis {
    const READER: u64 = 0x9000;
    const WRITER: u64 = 0x9100;
    let client = |ts, kind, tid| event(ts, kind, flow_flags::CLIENT, tid, [1, BEHIND | 30 << 32, 10 | 8 << 32]);
    let first = vec![
        switch(5, 0, FIRST, 0),
        seen(999_990, FIRST, OF_B),
        recv(1_000_000, B, FIRST),
        seen(1_099_990, FIRST, WRITER),
        client(1_100_000, Kind::Send, FIRST),
        seen(1_499_990, FIRST, OF_A),
        recv(1_500_000, A, FIRST),
        switch(1_600_000, FIRST, 0, EPOLL),
        switch(4_050_000, 0, FIRST, 0),
        seen(4_099_990, FIRST, READER),
        client(4_100_000, Kind::PeerRecv, FIRST),
        seen(4_199_990, FIRST, OF_B),
        send(4_200_000, B, FIRST),
        // The thread worked for B last.
        seen(4_299_990, FIRST, WRITER),
        client(4_300_000, Kind::Send, FIRST),
        switch(4_400_000, FIRST, 0, EPOLL),
        switch(8_050_000, 0, FIRST, 0),
        seen(8_099_990, FIRST, READER),
        client(8_100_000, Kind::PeerRecv, FIRST),
        seen(8_199_990, FIRST, OF_A),
        send(8_200_000, A, FIRST),
        switch(8_300_000, FIRST, 0, EPOLL),
    ];
    let ready = |ts| event(ts, Kind::PeerReady, flow_flags::CLIENT, 0, [1, BEHIND | 30 << 32, 8]);
    let mut arriving = [request(20, B), request(1_200_000, A)].concat();
    arriving.extend([ready(4_000_000), waking(4_000_010, FIRST), ready(8_000_000), waking(8_000_010, FIRST)]);
    analysed(facts(looks), vec![first, arriving])
}

/// A call's answer took 13.5 ms "of a server" that never took more than 6.93: the calls of others were a message's that waited in line, for
/// what its thread had done before was taken for what it asked.
#[test]
fn who_waits_for_a_connection_asks_when_it_is_free() {
    let row = |ts_ns, stack| RoutineRow { since_ns: 1_499_990, ..look(ts_ns, State::Waiting, stack) };
    let service = |looks: &[RoutineRow], recv_ns| -> Vec<_> {
        let waits = |(_, _, owner): &(u64, u64, String)| {
            ["blocked/p", "blocked/turn"].iter().any(|begin| owner.starts_with(begin))
        };
        path(&in_line(looks), recv_ns, Leg::Service).into_iter().filter(waits).collect()
    };
    let peer = "blocked/peer:0.0.0.1:3306";
    let turn = "blocked/turn:0.0.0.1:3306";
    // Seen to wait for the answer only: until the connection was free it waited for that.
    let late = [row(6_000_000, 7)];
    assert_eq!(service(&late, 1_000_000), is(&[(1_100_000, 4_000_000, peer)]));
    assert_eq!(service(&late, 1_500_000), is(&[(1_600_000, 4_100_000, turn), (4_300_000, 8_000_000, peer)]));
    // Seen in line, too.
    let looks = [row(2_000_000, 5), row(6_000_000, 7)];
    let waits = [(1_600_000, 4_100_000, "blocked/parked"), (4_300_000, 8_000_000, peer)];
    assert_eq!(service(&looks, 1_500_000), is(&waits));
    // At one place before and after: the thread of the answer went on with it, which says more than a place that may be one for both.
    let stayed = [row(3_000_000, 5), row(6_000_000, 5)];
    assert!(service(&stayed, 1_500_000).contains(&(4_300_000, 8_000_000, peer.to_owned())));
}

/// Three servers are asked at once: the first that was asked had all of the time, though the last answer was waited for.
#[test]
fn of_calls_at_the_same_time_the_last_answer_is_waited_for() {
    const OTHER: u64 = 40001 << 16 | 3307;
    let client = |ts, kind, ports| event(ts, kind, flow_flags::CLIENT, FIRST, [1, ports | 30 << 32, 10 | 8 << 32]);
    let first = vec![
        switch(5, 0, FIRST, 0),
        recv(1_000_000, A, FIRST),
        client(1_100_000, Kind::Send, BEHIND),
        client(1_200_000, Kind::Send, OTHER),
        switch(1_300_000, FIRST, 0, EPOLL),
        switch(3_000_000, 0, FIRST, 0),
        client(3_100_000, Kind::PeerRecv, BEHIND),
        switch(3_200_000, FIRST, 0, EPOLL),
        switch(6_000_000, 0, FIRST, 0),
        client(6_100_000, Kind::PeerRecv, OTHER),
        send(6_200_000, A, FIRST),
        switch(6_300_000, FIRST, 0, EPOLL),
    ];
    let ready = |ts, ports| event(ts, Kind::PeerReady, flow_flags::CLIENT, 0, [1, ports | 30 << 32, 8]);
    let mut arriving = request(20, A).to_vec();
    arriving.extend([ready(2_999_000, BEHIND), waking(2_999_010, FIRST)]);
    arriving.extend([ready(5_999_000, OTHER), waking(5_999_010, FIRST)]);
    let analysis = analysed(facts(&[]), vec![first, arriving]);
    let spans = path(&analysis, 1_000_000, Leg::Service);
    let waits: Vec<_> = spans.into_iter().filter(|(_, _, owner)| owner.starts_with("blocked/peer:")).collect();
    assert_eq!(waits, is(&[(1_300_000, 5_999_000, "blocked/peer:0.0.0.1:3307")]));
    assert_eq!(analysis.lifetimes.asked_in_parallel.len(), 2);
}

/// A task awaited what it had given to an executor: "parked", with advice to profile it. The thread that brought the result is followed.
#[test]
fn a_future_that_a_thread_brings_is_that_thread_s_work() {
    let row = RoutineRow { routine: TASK, since_ns: 0, ..look(2_000_000, State::Waiting, 7) };
    let mut cpus = looped();
    // The thread ends the loop's sleep.
    let end = cpus.pop().expect("arrivals").into_iter().filter(|e| e.ts != 7_999_000).collect();
    let second = vec![
        switch(5, 0, SECOND, 0),
        event(7_999_000, Kind::SchedWaking, 0, SECOND, [u64::from(FIRST), u64::from(FIRST), 0]),
        switch(8_500_000, SECOND, 0, FUTEX),
    ];
    cpus.extend([second, end]);
    let parked_with = |futures: &[u32]| {
        let facts = RunContext { futures: futures.iter().copied().collect(), ..facts(&[row]) };
        parked(&analysed(facts, cpus.clone()))
    };
    assert_eq!(parked_with(&[6]), []);
    assert_eq!(parked_with(&[]), [(1_200_000, 7_999_000)], "a lock, say, which a library's function waits for");
}

/// The task of asyncio that answers the client on A.
const TASK: u64 = 0x8000;

/// A loop receives between its tasks, a task waits for a lock from 1.2 ms on, the loop serves another client at 4 ms, and the task answers at 8.3.
fn looped() -> Vec<Vec<Event>> {
    let first = vec![
        switch(5, 0, FIRST, 0),
        seen(999_990, FIRST, 0),
        recv(1_000_000, A, FIRST),
        switch(1_200_000, FIRST, 0, EPOLL),
        switch(4_000_000, 0, FIRST, 0),
        recv(4_000_100, B, FIRST),
        seen(4_100_000, FIRST, JOB),
        send(4_100_010, B, FIRST),
        switch(4_200_000, FIRST, 0, EPOLL),
        switch(8_000_000, 0, FIRST, 0),
        seen(8_299_990, FIRST, TASK),
        send(8_300_000, A, FIRST),
        switch(8_400_000, FIRST, 0, EPOLL),
    ];
    let arriving = [request(20, A), request(3_999_000, B)].concat();
    vec![first, [arriving, vec![waking(3_999_500, FIRST), waking(7_999_000, FIRST)]].concat()]
}

/// A task that waited for a lock was its loop's sleep in epoll_wait.
#[test]
fn the_task_that_answers_what_a_loop_received_had_the_message() {
    let of_task = |ts, routine, state, stack| RoutineRow { routine, since_ns: 0, ..look(ts, state, stack) };
    let (waiting, runnable) = (State::Waiting, State::Runnable);
    // It went on when the loop ran, and is next seen to wait for something else; of other tasks nothing counts.
    let looks = [
        of_task(900_000, TASK, waiting, 5),
        of_task(2_000_000, TASK, waiting, 7),
        of_task(2_000_000, JOB, waiting, 9),
        of_task(6_000_000, TASK, waiting, 8),
    ];
    let parked_by = |looks: &[RoutineRow]| parked(&analysed(facts(looks), looped()));
    // Until the loop was woken.
    assert_eq!(parked_by(&looks), [(1_200_000, 3_999_500), (4_200_000, 7_999_000)]);
    assert_eq!(parked_by(&[of_task(2_000_000, TASK, runnable, 0)]), [], "its turn had come");
    assert_eq!(parked_by(&[of_task(2_000_000, JOB, waiting, 9)]), [], "another task");
}

/// A worker of the program took one request after the other from a queue: that of the other one was "itself waited", too.
#[test]
fn what_a_task_waited_for_before_it_turned_to_the_message_is_another_s() {
    let first = vec![
        switch(5, 0, FIRST, 0),
        seen(999_990, FIRST, 0),
        recv(1_000_000, B, FIRST),
        recv(1_000_100, A, FIRST),
        switch(1_200_000, FIRST, 0, EPOLL),
        switch(4_000_000, 0, FIRST, 0),
        seen(4_100_000, FIRST, TASK),
        send(4_100_010, B, FIRST),
        switch(4_200_000, FIRST, 0, EPOLL),
        switch(8_000_000, 0, FIRST, 0),
        send(8_300_000, A, FIRST),
        switch(8_400_000, FIRST, 0, EPOLL),
    ];
    let arriving = [request(20, B), request(30, A)].concat();
    let arriving = [arriving, vec![waking(3_999_500, FIRST), waking(7_999_000, FIRST)]].concat();
    let waits = |ts| RoutineRow { routine: TASK, since_ns: 0, ..look(ts, State::Waiting, 7) };
    let analysis = analysed(facts(&[waits(2_000_000), waits(6_000_000)]), vec![first, arriving]);
    let spans = path(&analysis, 1_000_100, Leg::Service);
    let parked: Vec<_> = spans.iter().filter(|(_, _, owner)| owner.contains("parked")).cloned().collect();
    assert_eq!(
        parked,
        is(&[(1_200_000, 4_100_010, "ahead/parked"), (4_100_010, 7_999_000, "blocked/parked")]),
        "{spans:?}"
    );
}

/// The loop asked the database for two clients at once: which answer was whose, no order of calls told.
#[test]
fn a_request_is_for_the_message_that_its_task_answers() {
    let client = |ts, kind, tid, ports| event(ts, kind, flow_flags::CLIENT, tid, [1, ports | 30 << 32, 10 | 8 << 32]);
    const SECOND_BEHIND: u64 = 40001 << 16 | 3306;
    let first = vec![
        switch(5, 0, FIRST, 0),
        seen(999_990, FIRST, 0),
        recv(1_000_000, A, FIRST),
        recv(1_000_100, B, FIRST),
        seen(1_100_000, FIRST, TASK),
        client(1_100_010, Kind::Send, FIRST, BEHIND),
        seen(1_100_100, FIRST, JOB),
        client(1_100_110, Kind::Send, FIRST, SECOND_BEHIND),
        switch(1_200_000, FIRST, 0, EPOLL),
        switch(2_000_000, 0, FIRST, 0),
        seen(2_000_050, FIRST, 0),
        client(2_000_100, Kind::PeerRecv, FIRST, SECOND_BEHIND),
        seen(2_100_000, FIRST, JOB),
        send(2_100_010, B, FIRST),
        switch(2_200_000, FIRST, 0, EPOLL),
        switch(6_000_000, 0, FIRST, 0),
        seen(6_000_050, FIRST, 0),
        client(6_000_100, Kind::PeerRecv, FIRST, BEHIND),
        seen(6_100_000, FIRST, TASK),
        send(6_100_010, A, FIRST),
        switch(6_200_000, FIRST, 0, EPOLL),
    ];
    let ready = |ts, ports| event(ts, Kind::PeerReady, flow_flags::CLIENT, 0, [1, ports | 30 << 32, 8]);
    let mut arriving = [request(20, A), request(30, B)].concat();
    arriving.extend([ready(1_999_000, SECOND_BEHIND), waking(1_999_010, FIRST)]);
    arriving.extend([ready(5_999_000, BEHIND), waking(5_999_010, FIRST)]);
    let analysis = analysed(facts(&[]), vec![first, arriving]);
    let waits = |recv_ns| -> Vec<(u64, u64)> {
        let spans = path(&analysis, recv_ns, Leg::Service);
        spans
            .iter()
            .filter(|(_, _, owner)| owner.starts_with("blocked/peer:"))
            .map(|&(from, to, _)| (from, to))
            .collect()
    };
    assert_eq!((waits(1_000_000), waits(1_000_100)), (vec![(1_100_010, 5_999_000)], vec![(1_100_110, 1_999_000)]));
}

/// Places of the program: where a task asks for a lock, where another one gives it back, where a socket is ready.
const ASKS: u64 = 1;
const GIVES_BACK: u64 = 2;
const READY: u64 = 3;

/// What breakpoints told of tasks of tokio, beside [`facts`].
fn tokio_facts() -> RunContext {
    let mut facts = facts(&[]);
    facts.names.add_places(vec![11, 12, 13]);
    facts.wakes = [(10, Waker::Task), (11, Waker::Task), (12, Waker::Outside)].into_iter().collect();
    facts
}

fn runs(ts: u64, tid: u32, task: u64) -> Event {
    event(ts, Kind::RoutineRun, 0, tid, [0, task, 0])
}

fn woken(ts: u64, tid: u32, task: u64, place: u64) -> Event {
    event(ts, Kind::RoutineWoken, 0, tid, [0, task, place])
}

fn asks(ts: u64, tid: u32, task: u64, place: u64) -> Event {
    event(ts, Kind::RoutineAsks, 0, tid, [0, task, place])
}

/// A job of the program's own has a lock and computes on the second thread; the client's task waits for it on the first one.
fn behind_a_job() -> Vec<Vec<Event>> {
    let first = vec![
        switch(5, 0, FIRST, 0),
        runs(999_900, FIRST, OF_A),
        recv(1_000_000, A, FIRST),
        asks(1_100_000, FIRST, OF_A, ASKS),
        switch(1_200_000, FIRST, 0, EPOLL),
        switch(6_010_000, 0, FIRST, 0),
        runs(6_020_000, FIRST, OF_A),
        send(6_100_000, A, FIRST),
        switch(6_200_000, FIRST, 0, EPOLL),
    ];
    let wakes_first = event(6_000_100, Kind::SchedWaking, 0, SECOND, [u64::from(FIRST), u64::from(FIRST), 0]);
    let second = vec![
        switch(5, 0, SECOND, 0),
        runs(900_000, SECOND, JOB),
        woken(6_000_000, SECOND, OF_A, GIVES_BACK),
        wakes_first,
        switch(6_300_000, SECOND, 0, FUTEX),
    ];
    vec![first, second, request(20, A).to_vec()]
}

/// Half of the waits for a server were "on a channel": the task of the connection to it had been made ready by two others before it sent the
/// request, by one of them that had had the connection before.
#[test]
fn an_answer_is_for_the_task_that_the_connection_s_task_makes_ready_with_it() {
    const CONNECTION: u64 = 0x9000;
    let client = |ts, kind| event(ts, kind, flow_flags::CLIENT, FIRST, [1, BEHIND | 30 << 32, 10 | 8 << 32]);
    let first = vec![
        switch(5, 0, FIRST, 0),
        runs(999_000, FIRST, JOB),
        woken(999_100, FIRST, CONNECTION, GIVES_BACK),
        runs(999_900, FIRST, OF_A),
        recv(1_000_000, A, FIRST),
        woken(1_050_000, FIRST, CONNECTION, GIVES_BACK),
        asks(1_060_000, FIRST, OF_A, ASKS),
        runs(1_090_000, FIRST, CONNECTION),
        client(1_100_000, Kind::Send),
        switch(1_200_000, FIRST, 0, EPOLL),
        switch(6_000_000, 0, FIRST, 0),
        woken(6_000_010, FIRST, CONNECTION, READY),
        runs(6_000_020, FIRST, CONNECTION),
        client(6_000_100, Kind::PeerRecv),
        woken(6_000_200, FIRST, OF_A, GIVES_BACK),
        runs(6_010_000, FIRST, OF_A),
        send(6_100_000, A, FIRST),
        switch(6_200_000, FIRST, 0, EPOLL),
    ];
    let ready = event(5_999_000, Kind::PeerReady, flow_flags::CLIENT, 0, [1, BEHIND | 30 << 32, 8]);
    let arriving = [request(20, A).to_vec(), vec![ready, waking(5_999_010, FIRST)]].concat();
    let analysis = analysed(tokio_facts(), vec![first, arriving]);
    let spans = path(&analysis, 1_000_000, Leg::Service);
    // The connection's task is to run first, and last.
    let waits = [
        (1_000_000, 1_090_000, "own"),
        (1_090_000, 1_100_000, "blocked/parked"),
        (1_100_000, 5_999_000, "blocked/peer:0.0.0.1:3306"),
        (5_999_000, 6_000_200, "blocked/parked"),
        (6_000_200, 6_100_000, "own"),
    ];
    assert_eq!(spans, is(&waits));
}

/// A helper of Squid answered its server, over a connection that it had opened: its answers were "own requests", and its pauses their answers.
#[test]
fn what_a_helper_answers_its_server_is_no_request() {
    const HELPER: u64 = 3306 << 16 | 40000;
    let client = |ts, kind, tid, ports| event(ts, kind, flow_flags::CLIENT, tid, [1, ports | 30 << 32, 10 | 8 << 32]);
    let first = vec![
        switch(5, 0, FIRST, 0),
        recv(1_000_000, A, FIRST),
        client(1_100_000, Kind::Send, FIRST, BEHIND),
        switch(1_200_000, FIRST, 0, EPOLL),
        switch(6_000_000, 0, FIRST, 0),
        client(6_000_100, Kind::PeerRecv, FIRST, BEHIND),
        send(6_100_000, A, FIRST),
    ];
    let ready = |ts, ports| event(ts, Kind::PeerReady, flow_flags::CLIENT, 0, [1, ports | 30 << 32, 8]);
    let helper = vec![
        client(500_000, Kind::Send, SECOND, HELPER),
        ready(1_100_100, HELPER),
        client(1_200_000, Kind::PeerRecv, SECOND, HELPER),
        client(5_900_000, Kind::Send, SECOND, HELPER),
    ];
    let arriving = [request(20, A).to_vec(), vec![ready(5_999_000, BEHIND), waking(5_999_010, FIRST)]].concat();
    let requests = |helper_ends: &[u64]| {
        let helper_ends = helper_ends.iter().map(|&ports| (1, ports as u32)).collect();
        let facts = RunContext { helper_ends, ..facts(&[]) };
        let analysis = analysed(facts, vec![first.clone(), helper.clone(), arriving.clone()]);
        let waits_ns = analysis.lifetimes.sent.iter().map(|sent| sent.wait_ns());
        waits_ns.collect::<Vec<_>>()
    };
    assert_eq!(requests(&[]).len(), 3, "without knowing it");
    assert_eq!(requests(&[HELPER]), [Some(4_899_000)]);
}

/// A task that waited for a lock was its thread's sleep in epoll_wait; who had the lock was not asked.
#[test]
fn a_task_that_waits_for_a_lock_waits_for_what_its_holder_does() {
    let analysis = analysed(tokio_facts(), behind_a_job());
    let service = [
        (1_000_000, 1_200_000, "own"),
        (1_200_000, 6_000_000, "blocked/parked"),
        // It is ready; its thread is woken a moment later.
        (6_000_000, 6_000_100, "own"),
        (6_000_100, 6_010_000, "idle/wake-pending"),
        (6_010_000, 6_100_000, "own"),
    ];
    assert_eq!(path(&analysis, 1_000_000, Leg::Service), is(&service));
    let parked =
        analysis.lifetimes.owners.iter().find(|owner| owner.frames.contains(&Frame::Parked)).expect("its wait");
    let meanwhile = Frame::Meanwhile { doing: Doing::Runs, stack: 12, server: 0 };
    let ended = Frame::MadeReady { stack: 11 };
    assert_eq!(parked.frames, [Frame::Parked, meanwhile, ended, Frame::Place { stack: 10 }]);
}

/// The rest of a request came at 4 ms: a wait for it was a part of the one for the lock that followed.
#[test]
fn a_goroutine_does_not_wait_for_a_lock_before_it_has_the_rest_of_its_request() {
    let mut streams = goroutine_behind_a_job();
    let at = streams[0].iter().position(|event| event.ts == 6_010_000).expect("the thread wakes");
    let rest = [switch(4_000_000, 0, FIRST, 0), recv(4_010_000, A, FIRST), switch(4_100_000, FIRST, 0, EPOLL)];
    streams[0].splice(at..at, rest);
    let mut facts = facts(&[]);
    facts.names.add_places(vec![11, 12, 13]);
    let analysis = analysed(facts, streams);
    let waits = |(_, _, owner): &(u64, u64, String)| owner == "blocked/parked";
    let parked: Vec<_> = path(&analysis, 1_000_000, Leg::Service).into_iter().filter(waits).collect();
    assert_eq!(parked, is(&[(4_100_000, 6_000_000, "blocked/parked")]));
}

/// A limit on the rate was a channel to which somebody is to send: no goroutine ended its waits.
#[test]
fn a_wait_that_no_goroutine_ends_lasts_until_a_time() {
    let mut streams = goroutine_behind_a_job();
    let at = streams[1].iter().position(|event| event.ts == 5_999_980).expect("the job is seen");
    streams[1][at] = seen(5_999_980, SECOND, 0);
    let mut facts = facts(&[]);
    facts.names.add_places(vec![11, 12, 13]);
    let analysis = analysed(facts, streams);
    let parked =
        analysis.lifetimes.owners.iter().find(|owner| owner.frames.contains(&Frame::Parked)).expect("its wait");
    let meanwhile = Frame::Meanwhile { doing: Doing::TimeCame, stack: 0, server: 0 };
    assert_eq!(parked.frames, [Frame::Parked, meanwhile, Frame::Place { stack: 10 }]);
}

/// Goroutines: A waits for a lock that a job of the program's own gives back on the second thread at 6 ms. Nobody looked at it meanwhile.
fn goroutine_behind_a_job() -> Vec<Vec<Event>> {
    let waited = |ts, tid, task, place| event(ts, Kind::RoutineWaited, 0, tid, [0, task, place]);
    let first = vec![
        switch(5, 0, FIRST, 0),
        seen(999_990, FIRST, OF_A),
        recv(1_000_000, A, FIRST),
        switch(1_200_000, FIRST, 0, EPOLL),
        switch(6_010_000, 0, FIRST, 0),
        send(6_100_000, A, FIRST),
        switch(6_200_000, FIRST, 0, EPOLL),
    ];
    let second = vec![
        switch(5, 0, SECOND, 0),
        // The one that had the lock before gave it to the job.
        seen(2_999_980, SECOND, OF_B),
        waited(2_999_990, SECOND, JOB, ASKS),
        woken(3_000_000, SECOND, JOB, ASKS),
        seen(5_999_980, SECOND, JOB),
        waited(5_999_990, SECOND, OF_A, ASKS),
        woken(6_000_000, SECOND, OF_A, GIVES_BACK),
        event(6_000_100, Kind::SchedWaking, 0, SECOND, [u64::from(FIRST), u64::from(FIRST), 0]),
        switch(6_300_000, SECOND, 0, FUTEX),
    ];
    vec![first, second, request(20, A).to_vec()]
}

/// Waits that no look at a goroutine met were its thread's sleep in epoll_wait, and who ended them was not known.
#[test]
fn who_makes_a_goroutine_ready_tells_its_wait_and_whoever_was_in_line_before() {
    let waits = |looks: &[RoutineRow]| {
        let mut facts = facts(looks);
        facts.names.add_places(vec![11, 12, 13]);
        let analysis = analysed(facts, goroutine_behind_a_job());
        let waits = |(_, _, owner): &(u64, u64, String)| owner == "blocked/parked";
        let spans: Vec<_> = path(&analysis, 1_000_000, Leg::Service).into_iter().filter(waits).collect();
        let parked = analysis.lifetimes.owners.iter().filter(|owner| owner.frames.contains(&Frame::Parked));
        (spans, parked.map(|owner| owner.frames.clone()).collect::<Vec<_>>())
    };
    let (asks, gives_back) = (10, 11);
    let ended = |stack: u32, doing, at: u32| {
        let meanwhile = Frame::Meanwhile { doing, stack: at + 1, server: 0 };
        vec![Frame::Parked, meanwhile, Frame::MadeReady { stack }, Frame::Place { stack: asks }]
    };
    // By whom, up to 3 ms and from then on.
    let by_both = vec![ended(asks, Doing::NotKnown, asks), ended(gives_back, Doing::NotKnown, gives_back)];
    assert_eq!(waits(&[]), (is(&[(1_200_000, 6_000_000, "blocked/parked")]), by_both));
    // Looks at the job, which has a message then: it was at one place from 4 to 5 ms.
    let of_job = |ts_ns| RoutineRow { routine: JOB, ..look(ts_ns, State::Waiting, 13) };
    let (spans, owners) = waits(&[of_job(4_000_000), of_job(5_000_000)]);
    assert_eq!(spans, is(&[(1_200_000, 6_000_000, "blocked/parked")]));
    assert!(owners.contains(&ended(gives_back, Doing::Waits, 12)), "{owners:?}");
    // One look is enough where it was made ready later: until then it was there.
    let mut streams = goroutine_behind_a_job();
    let at = streams[1].iter().position(|event| event.ts == 5_999_980).expect("the job is seen");
    let by_timer = [seen(5_500_000, SECOND, 0), woken(5_500_010, SECOND, JOB, READY)];
    streams[1].splice(at..at, by_timer);
    let mut one_look = facts(&[of_job(4_000_000)]);
    one_look.names.add_places(vec![11, 12, 13]);
    let analysis = analysed(one_look, streams);
    let (owners, ns) = (&analysis.lifetimes.owners, analysis.path(0, Leg::Service));
    let waited = ns.iter().filter(|span| owners[span.owner as usize].frames == ended(gives_back, Doing::Waits, 12));
    assert_eq!(waited.map(|span| (span.from_ns, span.to_ns)).collect::<Vec<_>>(), [(4_000_000, 5_500_010)]);
    // It has none, and a thread ran it: where it then ended the wait.
    let of_job = |ts_ns| RoutineRow { since_ns: NO_MESSAGE, state: State::Running, stack: 0, ..of_job(ts_ns) };
    let (_, owners) = waits(&[of_job(4_000_000), of_job(5_000_000)]);
    assert!(owners.contains(&ended(gives_back, Doing::Runs, gives_back)), "{owners:?}");
}

/// A goroutine receives for a connection that requests share, and makes one for each request; a third one writes the replies. The last request, on
/// A, is that of a goroutine that waits for a lock as above. `made_at`: the place of the program where that of each request is made.
fn made_for_each(made_at: impl Fn(u64) -> u64) -> Vec<Vec<Event>> {
    const CONNECTION: u64 = 0x8000;
    const WRITER: u64 = 0x9000;
    let made = |ts, task, request| event(ts, Kind::RoutineMade, 0, FIRST, [0, task, made_at(request)]);
    let mut first = vec![switch(5, 0, FIRST, 0), seen(10, FIRST, CONNECTION), woken(11, FIRST, WRITER, READY)];
    let mut arriving = vec![];
    for number in 0..9 {
        let (ts, ports) = (100_000 * (number + 1), 11211 << 16 | (4100 + number));
        arriving.extend(request(ts - 50_000, ports));
        first.extend([
            seen(ts - 10, FIRST, CONNECTION),
            recv(ts, ports, FIRST),
            made(ts + 1_000, 0xa000 + number, number),
        ]);
        first.extend([seen(ts + 5_000, FIRST, WRITER), send(ts + 6_000, ports, FIRST)]);
    }
    arriving.extend(request(950_000, A));
    arriving.extend(request(6_110_000, B));
    first.extend([
        seen(999_990, FIRST, CONNECTION),
        recv(1_000_000, A, FIRST),
        made(1_010_000, OF_A, 9),
        switch(1_200_000, FIRST, 0, EPOLL),
        switch(6_010_000, 0, FIRST, 0),
        seen(6_040_000, FIRST, OF_A),
        woken(6_050_000, FIRST, WRITER, READY),
        seen(6_090_000, FIRST, WRITER),
        send(6_100_000, A, FIRST),
        seen(6_140_000, FIRST, CONNECTION),
        recv(6_150_000, B, FIRST),
        switch(6_200_000, FIRST, 0, EPOLL),
    ]);
    let second = goroutine_behind_a_job().swap_remove(1);
    vec![first, second, arriving]
}

/// gRPC: the readers of a lock were "other messages in its other workers" (the twenty-first trial).
#[test]
fn a_goroutine_that_was_made_for_a_message_has_it_until_another_one_answers() {
    let parked_of = |streams| {
        let mut facts = facts(&[]);
        facts.names.add_places(vec![11, 12, 13]);
        let analysis = analysed(facts, streams);
        let parked = analysis.lifetimes.owners.iter().filter(|owner| owner.frames.contains(&Frame::Parked));
        let frames: Vec<_> = parked.map(|owner| owner.frames.clone()).collect();
        (path(&analysis, 1_000_000, Leg::Service), frames)
    };
    let service = [
        (1_000_000, 1_200_000, "own"),
        (1_200_000, 6_000_000, "blocked/parked"),
        (6_000_000, 6_000_100, "own"),
        (6_000_100, 6_010_000, "idle/wake-pending"),
        (6_010_000, 6_100_000, "own"),
    ];
    let (path, frames) = parked_of(made_for_each(|_| 1));
    assert_eq!(path, is(&service));
    let ended = |stack: u32| {
        let meanwhile = Frame::Meanwhile { doing: Doing::NotKnown, stack: stack + 1, server: 0 };
        vec![Frame::Parked, meanwhile, Frame::MadeReady { stack }, Frame::Place { stack: 10 }]
    };
    assert_eq!(frames, [ended(10), ended(11)]);
    // Made at a place each, they are not known to be for requests.
    let (path, frames) = parked_of(made_for_each(|request| request % 3));
    assert!(frames.is_empty() && path.iter().all(|(.., owner)| owner != "blocked/parked"), "{path:?}");
}

/// Regression: a look that saw a goroutine ready to run, before its first wait ended, turned the time around; looks of what it was at before
/// that wait say when it began at the earliest.
#[test]
fn a_look_before_the_first_wait_ended_says_when_that_began_at_the_earliest() {
    let parked_with = |state: State| {
        let mut facts = facts(&[look(3_000_000, state, 0), look(7_000_000, State::Running, 0)]);
        facts.names.add_places(vec![11, 12, 13]);
        parked(&analysed(facts, goroutine_behind_a_job()))
    };
    assert_eq!(parked_with(State::Runnable), [(3_000_000, 6_000_000)]);
    assert_eq!(parked_with(State::Running), [(3_000_000, 6_000_000)]);
}

/// A look at a goroutine that had no message then says nothing of one that it has otherwise.
#[test]
fn a_look_at_who_has_no_message_is_of_no_message() {
    let looks =
        [2_000_000, 7_000_000].map(|ts_ns| RoutineRow { since_ns: NO_MESSAGE, ..look(ts_ns, State::Waiting, 13) });
    assert_eq!(parked(&analysed(facts(&looks), moved())), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever was looked at, and when: every nanosecond has one owner, which `analysed` checks.
    #[test]
    fn any_looks_leave_an_exact_partition(
        looks in prop::collection::vec((0u64..10_000_000, 0u64..2_000_000, 1u8..=4, 0u32..3), 0..12),
    ) {
        let row = |&(ts_ns, since_ns, state, stack): &(u64, u64, u8, u32)| RoutineRow {
            since_ns: if since_ns % 3 == 0 { since_ns } else { 999_990 },
            ..look(ts_ns, State::from_u8(state).expect("a state"), stack)
        };
        let looks: Vec<RoutineRow> = looks.iter().map(row).collect();
        let analysis = analysed(facts(&looks), moved());
        for (from, to) in parked(&analysis) {
            prop_assert!(1_000_000 <= from && from < to && to <= 8_300_000);
        }
    }

    /// Whoever made which goroutines where, and made them ready: every nanosecond has one owner, which `analysed` checks.
    #[test]
    fn any_goroutines_made_leave_an_exact_partition(
        breakpoint_events in prop::collection::vec((0u64..7_000_000, 0u8..3, 0usize..4, 0u64..4, any::<bool>()), 0..24),
        looks in prop::collection::vec((1_000_000u64..7_000_000, 0usize..3, 1u8..=4, 0u32..3), 0..8),
    ) {
        let mut streams = made_for_each(|request| 1 + request / 9);
        for (ts, kind, task, place, on_second) in breakpoint_events {
            let (task, tid) = ([OF_A, OF_B, JOB, 0xa000][task], if on_second { SECOND } else { FIRST });
            let event = match kind {
                0 => event(ts, Kind::RoutineMade, 0, tid, [0, task, place.min(READY)]),
                1 => seen(ts, tid, task),
                _ => woken(ts, tid, task, place.min(READY)),
            };
            streams[usize::from(on_second)].push(event);
        }
        streams.iter_mut().for_each(|stream| stream.sort_by_key(|event| event.ts));
        let row = |&(ts_ns, since, state, stack): &(u64, usize, u8, u32)| RoutineRow {
            since_ns: [1_009_990, 999_990, NO_MESSAGE][since],
            ..look(ts_ns, State::from_u8(state).expect("a state"), stack)
        };
        let looks: Vec<RoutineRow> = looks.iter().map(row).collect();
        let mut facts = facts(&looks);
        facts.names.add_places(vec![11, 12, 13]);
        let analysis = analysed(facts, streams);
        for (from, to) in parked(&analysis) {
            prop_assert!(from < to && to <= 6_100_000);
        }
    }

    /// Whatever breakpoints told of tasks: every nanosecond has one owner, which `analysed` checks, and no wait is outside of the service.
    #[test]
    fn any_runs_of_tasks_leave_an_exact_partition(
        breakpoint_events in prop::collection::vec((0u64..7_000_000, 0u8..3, 0usize..3, 0u64..4, any::<bool>()), 0..24),
    ) {
        let mut streams = behind_a_job();
        for (ts, kind, task, place, on_second) in breakpoint_events {
            let (task, tid) = ([OF_A, OF_B, JOB][task], if on_second { SECOND } else { FIRST });
            let event = match kind {
                0 => runs(ts, tid, task),
                1 => asks(ts, tid, task, place),
                _ => woken(ts, tid, task, place.min(READY)),
            };
            streams[usize::from(on_second)].push(event);
        }
        streams.iter_mut().for_each(|stream| stream.sort_by_key(|event| event.ts));
        let analysis = analysed(tokio_facts(), streams);
        for (from, to) in parked(&analysis) {
            prop_assert!(1_000_000 <= from && from < to && to <= 6_100_000);
        }
    }
}
