//! For whom an event loop works, on streams of a loop whose handlers await something. In: receive calls, replies and sleeps of one thread
//! with several requests open. Out: of each message, its own time and its wait for the others.

use proptest::prelude::*;
use tailsight_lifetime::input::Names;
use tailsight_lifetime::{Analysis, Context, Leg, RunContext};
use tailsight_trace::Event;
use tailsight_trace::event::Kind;
use tailsight_trace::tables::TaskRow;

use crate::by_hand::{analysed, event, is, path, recv, request, send, switch};

const LOOP: u32 = 100;
/// Connections of clients.
const A: u64 = 11211 << 16 | 4000;
const B: u64 = 11211 << 16 | 4001;
const C: u64 = 11211 << 16 | 4002;
const EPOLL: u64 = 232;

fn analyse(cpus: Vec<Vec<Event>>) -> Analysis {
    let row = TaskRow { tid: LOOP, tgid: LOOP, comm: "loop".into(), target: true, ..TaskRow::default() };
    analysed(RunContext { names: Names::new(&[row]), ..RunContext::default() }, cpus)
}

fn waking(ts: u64) -> Event {
    event(ts, Kind::SchedWaking, 0, 0, [u64::from(LOOP), u64::from(LOOP), 0])
}

/// Of a message, ns by context: its own, others', asleep or woken and not yet running.
fn service(analysis: &Analysis, recv_ns: u64) -> [u64; 3] {
    let lifetimes = &analysis.lifetimes;
    let id = lifetimes.messages.iter().find(|m| m.recv_ns == recv_ns).expect("the message").id;
    let mut times = [0; 3];
    for span in analysis.path(id, Leg::Service) {
        let place = match &lifetimes.owners[span.owner as usize].context {
            Context::Own => 0,
            Context::Ahead => 1,
            Context::Blocked | Context::Idle => 2,
            other => panic!("{other:?}"),
        };
        times[place] += span.to_ns - span.from_ns;
    }
    times
}

/// A handler worked for 3 ms, awaited a timer and worked for 3 ms. Meanwhile the loop worked for others, and all of that was said to be
/// the message's own work.
#[test]
fn what_a_loop_did_for_others_during_an_await_is_not_the_messages_own() {
    let arriving = [request(10, A), request(11, B), request(12, C)].concat();
    let serving = vec![
        switch(5, 0, LOOP, 0),
        recv(1_000_000, A, LOOP),
        // A's handler, until it awaits.
        recv(4_000_000, B, LOOP),
        recv(7_000_000, C, LOOP),
        switch(10_000_000, LOOP, 0, EPOLL),
        switch(11_000_000, 0, LOOP, 0),
        // Somebody's handler goes on and awaits again: nobody knows whose.
        switch(13_000_000, LOOP, 0, EPOLL),
        switch(14_000_000, 0, LOOP, 0),
        send(17_000_000, A, LOOP),
        send(20_000_000, B, LOOP),
        send(23_000_000, C, LOOP),
        switch(23_000_100, LOOP, 0, EPOLL),
    ];
    let analysis = analyse(vec![serving, [arriving, vec![waking(10_999_000), waking(13_999_000)]].concat()]);
    assert_eq!(service(&analysis, 1_000_000), [6_000_000, 8_000_000, 2_000_000]);
    assert_eq!(service(&analysis, 4_000_000), [6_000_000, 8_000_000, 2_000_000]);
    assert_eq!(service(&analysis, 7_000_000), [6_000_000, 8_000_000, 2_000_000]);
}

/// With a single request open, what the loop does after an await is for that one.
#[test]
fn a_turn_with_one_request_open_is_that_ones() {
    let arriving = [request(10, A), request(11, B), request(12, C)].concat();
    let serving = vec![
        switch(5, 0, LOOP, 0),
        recv(1_000_000, A, LOOP),
        recv(2_000_000, B, LOOP),
        send(3_000_000, B, LOOP),
        switch(4_000_000, LOOP, 0, EPOLL),
        switch(5_000_000, 0, LOOP, 0),
        // A's handler goes on, and awaits again.
        switch(7_000_000, LOOP, 0, EPOLL),
        switch(8_000_000, 0, LOOP, 0),
        send(9_000_000, A, LOOP),
        recv(9_500_000, C, LOOP),
        send(9_600_000, C, LOOP),
    ];
    let analysis = analyse(vec![serving, [arriving, vec![waking(4_999_000), waking(7_999_000)]].concat()]);
    // B's turn is not A's; the one after its reply is.
    assert_eq!(service(&analysis, 1_000_000), [5_000_000, 1_000_000, 2_000_000]);
}

/// A server that reads all that is ready and works on each at once (Redis) wrote the replies at the end of the round. The work for the second
/// command was said to be the first one's own, too.
#[test]
fn a_command_of_the_same_round_is_not_the_work_of_the_one_before() {
    let arriving = [request(10, A), request(11, B)].concat();
    let serving = vec![
        switch(5, 0, LOOP, 0),
        recv(1_000, A, LOOP),
        recv(2_000, B, LOOP),
        send(10_002_000, A, LOOP),
        send(10_003_000, B, LOOP),
        switch(10_004_000, LOOP, 0, EPOLL),
    ];
    let analysis = analyse(vec![serving, arriving]);
    let spans_of = |recv_ns| path(&analysis, recv_ns, Leg::Service);
    assert_eq!(spans_of(1_000), is(&[(1_000, 2_000, "own"), (2_000, 10_002_000, "ahead")]));
    assert_eq!(spans_of(2_000), is(&[(2_000, 10_003_000, "own")]));
}

/// A request that came while the loop went on with a handler after an await waited for that one.
#[test]
fn a_request_waits_for_a_handler_that_goes_on_after_an_await() {
    let arriving = [request(10, A), request(11, B), request(5_100_000, C)].concat();
    let mut events = [arriving, vec![waking(4_999_000)]].concat();
    events.sort_by_key(|event| event.ts);
    let serving = vec![
        switch(5, 0, LOOP, 0),
        recv(1_000_000, A, LOOP),
        recv(2_000_000, B, LOOP),
        switch(4_000_000, LOOP, 0, EPOLL),
        switch(5_000_000, 0, LOOP, 0),
        recv(8_000_000, C, LOOP),
        send(9_000_000, A, LOOP),
        send(9_100_000, B, LOOP),
        send(9_200_000, C, LOOP),
    ];
    let analysis = analyse(vec![serving, events]);
    let waited = path(&analysis, 8_000_000, Leg::Receive);
    assert_eq!(waited.last(), Some(&(5_100_001, 8_000_000, "ahead".to_owned())), "{waited:?}");
}

/// What a loop does next.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// Receives a request of a connection that has none open.
    Receives,
    /// Answers one that is open.
    Answers,
    /// Waits for work.
    Sleeps,
}

fn does() -> impl Strategy<Value = (Does, u64)> {
    let which = prop_oneof![3 => Just(Does::Receives), 3 => Just(Does::Answers), 2 => Just(Does::Sleeps)];
    (which, 1_u64..400_000)
}

proptest! {
    /// A nanosecond of a loop is at most one message's own, and the own time of all messages is at most what the loop ran.
    #[test]
    fn a_nanosecond_is_at_most_one_messages_own(steps in prop::collection::vec(does(), 1..80), pick in 0_usize..97) {
        let ports = |connection: u64| (11211 << 16) | (4000 + connection);
        let (mut serving, mut arriving) = (vec![switch(5, 0, LOOP, 0)], vec![]);
        let (mut open, mut at, mut connections): (Vec<u64>, u64, u64) = (vec![], 10_000, 0);
        for (step, dt) in steps {
            at += dt + 10;
            match step {
                Does::Receives => {
                    let ports = ports(connections);
                    connections += 1;
                    arriving.extend(request(at - 5, ports));
                    serving.push(recv(at, ports, LOOP));
                    open.push(ports);
                }
                Does::Answers if !open.is_empty() => {
                    let ports = open.remove(pick % open.len());
                    serving.push(send(at, ports, LOOP));
                }
                Does::Answers => {}
                Does::Sleeps => {
                    serving.push(switch(at, LOOP, 0, EPOLL));
                    at += dt;
                    arriving.push(waking(at));
                    serving.push(switch(at + 5, 0, LOOP, 0));
                    at += 5;
                }
            }
        }
        let analysis = analyse(vec![serving, arriving]);
        let lifetimes = &analysis.lifetimes;
        let mut own: Vec<(u64, u64)> = vec![];
        for m in lifetimes.messages.iter().filter(|m| m.send_ns != 0) {
            let spans = analysis.path(m.id, Leg::Service);
            own.extend(spans.iter().filter(|s| lifetimes.owners[s.owner as usize].context == Context::Own).map(|s| (s.from_ns, s.to_ns)));
        }
        own.sort_unstable();
        for pair in own.windows(2) {
            prop_assert!(pair[0].1 <= pair[1].0, "{pair:?}");
        }
    }
}
