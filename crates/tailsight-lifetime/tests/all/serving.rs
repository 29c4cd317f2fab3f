//! Who is being served while a message waits: defects that trials on other shapes of servers found (thread pools, a
//! process a connection, servers that ask another server, servers with work of their own).

use tailsight_lifetime::input::Names;
use tailsight_lifetime::{Analysis, Context, Frame, Leg, RunContext};
use tailsight_trace::Event;
use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::tables::TaskRow;

use crate::by_hand::{analysed, event, is, path, recv, request, send, switch};

const READER: u32 = 100;
const WORKER: u32 = 101;
const CHILD: u32 = 102;
/// Two connections of the server, and one to a server behind it.
const A: u64 = 11211 << 16 | 4000;
const B: u64 = 11211 << 16 | 4001;
const C: u64 = 11211 << 16 | 4002;
const BEHIND: u64 = 5000 << 16 | 53;
const RECVFROM: u64 = 45;
const ACCEPT: u64 = 43;

fn analyse(cpus: Vec<Vec<Event>>) -> Analysis {
    let row = |tid, comm: &str| TaskRow { tid, tgid: tid, comm: comm.into(), target: true, ..TaskRow::default() };
    let names = Names::new(&[row(READER, "reader"), row(WORKER, "worker"), row(CHILD, "child")]);
    let facts = RunContext { names, ..RunContext::default() };
    analysed(facts, cpus)
}

/// A thread takes requests off the sockets, another one works at them one by one. The second request's wait for the first
/// was called the application's own work for it.
#[test]
fn a_request_in_a_pools_queue_waits_behind_the_one_that_is_worked_at() {
    let [a1, a2] = request(10, A);
    let [b1, b2] = request(30, B);
    let reading = vec![switch(5, 0, READER, 0), a1, a2, recv(20, A, READER), b1, b2, recv(40, B, READER)];
    let working = vec![switch(25, 0, WORKER, 0), send(2_000_000, A, WORKER), send(2_300_000, B, WORKER)];
    let analysis = analyse(vec![reading, working]);
    assert_eq!(path(&analysis, 20, Leg::Service).last(), Some(&(25, 2_000_000, "own".to_owned())));
    assert_eq!(path(&analysis, 40, Leg::Service), is(&[(40, 2_000_000, "ahead"), (2_000_000, 2_300_000, "own")]));
}

/// A thread that had answered everything collected its garbage. Requests that came meanwhile were said to wait for
/// messages before them, of which there were none.
#[test]
fn work_after_the_last_reply_is_no_head_of_line_blocking() {
    let [a1, a2] = request(10, A);
    let serving = vec![
        switch(5, 0, READER, 0),
        recv(20, A, READER),
        send(30, A, READER),
        recv(500_030, B, READER),
        send(500_060, B, READER),
        recv(500_080, C, READER),
    ];
    let arriving = [vec![a1, a2], request(1_000, B).to_vec(), request(2_000, C).to_vec()].concat();
    let analysis = analyse(vec![serving, arriving]);
    let contexts = |recv_ns| {
        let spans = path(&analysis, recv_ns, Leg::Receive);
        spans.into_iter().filter(|s| s.0 >= 2_001).map(|s| (s.0.max(2_001), s.1, s.2)).collect::<Vec<_>>()
    };
    assert_eq!(path(&analysis, 500_030, Leg::Receive).last().map(|s| s.2.as_str()), Some("own"));
    // The one behind: for B's service it does wait, up to the call that takes it.
    assert_eq!(
        contexts(500_080),
        is(&[(2_001, 500_030, "own"), (500_030, 500_060, "ahead"), (500_060, 500_080, "own")])
    );
}

/// A server of one thread asked another server for each request. The others' wait for its answer was called a wake-up
/// that did not come (`not woken yet`), and the fix beside it was a real-time priority.
#[test]
fn a_wait_for_an_answer_that_a_request_before_needs_is_head_of_line_blocking() {
    let [a1, a2] = request(10, A);
    let [b1, b2] = request(1_000, B);
    let serving = vec![
        switch(5, 0, READER, 0),
        recv(20, A, READER),
        send(25, BEHIND, READER),
        switch(30, READER, 0, RECVFROM),
        switch(3_000_010, 0, READER, 0),
        send(3_000_100, A, READER),
        recv(3_000_200, B, READER),
        // With nothing to do, the same call is the wait for work.
        switch(3_000_300, READER, 0, RECVFROM),
        switch(9_000_010, 0, READER, 0),
        recv(9_000_020, C, READER),
    ];
    let waking = |ts| event(ts, Kind::SchedWaking, 0, 0, [u64::from(READER), u64::from(READER), 0]);
    let [c1, c2] = request(8_000_000, C);
    let analysis = analyse(vec![serving, vec![a1, a2, b1, b2, waking(3_000_000), c1, c2, waking(9_000_000)]]);
    let waited = path(&analysis, 3_000_200, Leg::Receive);
    assert!(waited.contains(&(1_001, 3_000_000, "ahead/sleep:recvfrom".into())), "{waited:?}");
    assert!(
        waited.contains(&(3_000_010, 3_000_100, "ahead".into())) || waited.iter().any(|s| s.2 == "ahead"),
        "{waited:?}"
    );
    let idle = path(&analysis, 9_000_020, Leg::Receive);
    assert!(idle.contains(&(8_000_001, 9_000_000, "blocked/sleep:recvfrom".into())), "{idle:?}");
}

/// A server that makes a process for each connection: until the process was there, nobody was known to have the request,
/// and that time was without explanation.
#[test]
fn until_a_connections_process_is_made_its_maker_has_the_request() {
    let syn = event(8, Kind::RxStack, flow_flags::SYN, 0, [1, A | 99 << 32, 2 << 32]);
    let [a1, a2] = request(10, A);
    let fork = event(300, Kind::TaskFork, 0, READER, [u64::from(CHILD) | u64::from(CHILD) << 32, 0, 0]);
    let serving = vec![switch(5, 0, READER, 0), fork, switch(400, READER, CHILD, ACCEPT), recv(450, A, CHILD)];
    let analysis = analyse(vec![serving, vec![syn, a1, a2]]);
    let path = path(&analysis, 450, Leg::Receive);
    assert!(path.contains(&(11, 300, "sibling:reader/connection-setup".into())), "{path:?}");
    let unknown =
        |o: &&tailsight_lifetime::Owner| matches!(o.context, Context::Unknown) || o.frames.contains(&Frame::Unseen);
    assert_eq!(analysis.lifetimes.owners.iter().filter(unknown).count(), 0, "{path:?}");
}
