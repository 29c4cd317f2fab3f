//! Defects that were found once, each by the name of what went wrong.

use tailsight_lifetime::input::Names;
use tailsight_lifetime::model::flags;
use tailsight_lifetime::{Analysis, Context, Flow, Frame, Incomplete, Leg, Lifetimes, Message, RunContext};
use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::read::CpuEvents;
use tailsight_trace::tables::TaskRow;
use tailsight_trace::{Event, FlowKey};

use crate::by_hand::event;

const UDP: u16 = flow_flags::UDP;
const PORTS: u64 = 11211 << 16 | 4000;
const SERVER: u32 = 100;

/// A packet of the flow: sequence number, bytes, device.
fn packet(ts: u64, kind: Kind, aux: u16, seq: u64, bytes: u64, ifindex: u64) -> Event {
    event(ts, kind, aux, 0, [1, PORTS | seq << 32, bytes | ifindex << 32])
}
/// A socket's hand-off (`position`: rcv_nxt) or a receive call (copied_seq), of socket 9.
fn handoff(ts: u64, aux: u16, position: u64) -> Event {
    event(ts, Kind::Handoff, aux, 0, [1, PORTS | position << 32, 9])
}
fn recv(ts: u64, aux: u16, position: u64, bytes: u64) -> Event {
    event(ts, Kind::Recv, aux, SERVER, [1, PORTS | position << 32, bytes | 9 << 32])
}

fn analyse(cpus: Vec<Vec<Event>>) -> Analysis {
    let server = TaskRow { tid: SERVER, tgid: SERVER, comm: "server".into(), target: true, ..TaskRow::default() };
    let facts = RunContext { names: Names::new(&[server]), ..RunContext::default() };
    crate::by_hand::analysed(facts, cpus)
}

/// (driver, hand-off, receive) of each message, in the order of the receive calls.
fn stages(analysis: &Analysis) -> Vec<(u64, u64, u64)> {
    let mut list: Vec<&Message> = analysis.lifetimes.messages.iter().collect();
    list.sort_by_key(|m| m.recv_ns);
    list.iter().map(|m| (m.driver_ns, m.handoff_ns, m.recv_ns)).collect()
}

/// A thread that was already looking took a datagram before its hand-off was announced. Its receive call matched nothing,
/// and every later one on that socket got the datagram before its own.
#[test]
fn a_datagram_read_before_its_hand_off_shifted_all_later_ones() {
    let arriving = vec![
        packet(10, Kind::RxStack, UDP, 0, 50, 2),
        handoff(30, UDP, 0),
        packet(40, Kind::RxStack, UDP, 0, 50, 2),
        handoff(41, UDP, 0),
    ];
    let reading = vec![recv(20, UDP, 0, 50), recv(60, UDP, 0, 50)];
    let analysis = analyse(vec![arriving, reading]);
    assert_eq!(stages(&analysis), vec![(10, 10, 20), (40, 41, 60)]);
    assert_eq!(analysis.lifetimes.messages[0].flags, flags::NO_HANDOFF);
}

/// A datagram dropped between its first sight and protocol processing (a full backlog) left its time to the next one, and
/// that one's to the next: every later latency was too long by one arrival.
#[test]
fn a_datagram_dropped_in_the_backlog_left_its_arrival_to_the_next() {
    let analysis = analyse(vec![vec![
        packet(10, Kind::RxBacklog, UDP, 0, 50, 2),
        packet(11, Kind::SkbDrop, UDP, 0, 50, 6),
        packet(100, Kind::RxBacklog, UDP, 0, 50, 2),
        packet(105, Kind::RxStack, UDP, 0, 50, 2),
        handoff(106, UDP, 0),
        recv(120, UDP, 0, 50),
    ]]);
    assert_eq!(stages(&analysis), vec![(100, 106, 120)]);
    assert_eq!(analysis.lifetimes.incomplete[&Incomplete::Dropped], 1);
}

/// A datagram on its second device (bridge) took the first sight of the one behind it.
#[test]
fn a_datagram_on_a_second_device_took_the_arrival_of_the_next() {
    let analysis = analyse(vec![vec![
        packet(10, Kind::RxBacklog, UDP, 0, 50, 2),
        packet(20, Kind::RxBacklog, UDP, 0, 50, 2),
        packet(30, Kind::RxStack, UDP, 0, 50, 2),
        packet(31, Kind::RxStack, UDP, 0, 50, 3),
        handoff(32, UDP, 0),
        packet(40, Kind::RxStack, UDP, 0, 50, 2),
        packet(41, Kind::RxStack, UDP, 0, 50, 3),
        handoff(42, UDP, 0),
        recv(50, UDP, 0, 50),
        recv(60, UDP, 0, 50),
    ]]);
    assert_eq!(stages(&analysis), vec![(10, 32, 50), (20, 42, 60)]);
    assert!(analysis.lifetimes.incomplete.is_empty(), "{:?}", analysis.lifetimes.incomplete);
}

/// Two threads read one socket, and the events of their receive calls come in the other order than their reads.
#[test]
fn datagrams_of_two_readers_were_exchanged() {
    let arriving = vec![
        packet(10, Kind::RxStack, UDP, 0, 50, 2),
        handoff(11, UDP, 0),
        packet(20, Kind::RxStack, UDP, 0, 70, 2),
        handoff(21, UDP, 0),
    ];
    let analysis = analyse(vec![arriving, vec![recv(40, UDP, 0, 70)], vec![recv(45, UDP, 0, 50)]]);
    assert_eq!(stages(&analysis), vec![(20, 21, 40), (10, 11, 45)]);
}

/// The same ports carried a new connection whose sequence numbers lie before the old one's: its data was taken for a
/// retransmission, and no message of it was seen.
#[test]
fn a_connection_on_used_ports_was_taken_for_a_retransmission() {
    let connection = |at: u64, isn: u64| {
        vec![
            packet(at, Kind::RxStack, flow_flags::SYN, isn, 0, 2),
            packet(at + 10, Kind::RxStack, 0, isn + 1, 50, 2),
            handoff(at + 11, 0, isn + 51),
            recv(at + 20, 0, isn + 51, 50),
        ]
    };
    let connections = [connection(100, 900_000), connection(200, 1_000)].concat();
    assert_eq!(stages(&analyse(vec![connections])), vec![(110, 111, 120), (210, 211, 220)]);
}

/// A SYN that comes again is no new connection.
#[test]
fn a_repeated_syn_forgets_nothing() {
    let analysis = analyse(vec![vec![
        packet(5, Kind::RxStack, flow_flags::SYN, 99, 0, 2),
        packet(10, Kind::RxStack, 0, 100, 50, 2),
        packet(12, Kind::RxStack, flow_flags::SYN, 99, 0, 2),
        handoff(13, 0, 150),
        recv(20, 0, 150, 50),
    ]]);
    assert_eq!(stages(&analysis), vec![(10, 13, 20)]);
}

/// A client's 1.02 s, for which its SYN was dropped because the queue of connections to be accepted was full, were nowhere.
#[test]
fn a_client_whose_syn_was_dropped_waited_before_its_first_message() {
    let syn = |ts| packet(ts, Kind::RxStack, flow_flags::SYN, 99, 0, 2);
    let second = 1_000_000_000;
    let connects = |syns: Vec<Event>| analyse(vec![syns]).lifetimes.repeated_connects;
    // Seen at two places of the stack, then again, and again.
    let late = connects(vec![syn(5), syn(2_000), syn(second + 5), syn(3 * second + 5)]);
    assert_eq!((late.connections, late.longest_ns), (1, 3 * second));
    assert_eq!(connects(vec![syn(5), syn(2_000)]).connections, 0);
}

/// A packet whose range lies around that of a packet still in the queue used up the other's first sight.
#[test]
fn a_packet_took_the_arrival_of_another_inside_its_range() {
    let analysis = analyse(vec![vec![
        packet(10, Kind::RxNapi, 0, 100, 45, 2),
        packet(20, Kind::RxNapi, 0, 140, 5, 2),
        packet(21, Kind::RxNapi, 0, 145, 5, 2),
        packet(30, Kind::RxStack, 0, 100, 45, 2),
        packet(40, Kind::RxStack, 0, 140, 10, 2),
        handoff(41, 0, 150),
        recv(50, 0, 150, 50),
    ]]);
    assert_eq!(stages(&analysis), vec![(10, 41, 50), (20, 41, 50)]);
}

/// A wake-up that met a thread falling asleep, which then did not sleep, was kept for its next sleep: the thread looked
/// ready to run while it slept, and its real wake-up was ignored.
#[test]
fn a_wake_up_of_a_given_up_sleep_was_taken_for_the_next() {
    let switch = |ts, from: u64, to: u64, state: u64| {
        let tid = from as u32;
        event(ts, Kind::SchedSwitch, 0, tid, [from | to << 32, state | 120 << 32, 0])
    };
    let analysis = analyse(vec![
        vec![switch(10, 0, 100, 0), switch(1_000, 100, 0, 1), switch(9_010, 0, 100, 0), recv(9_500, 0, 150, 50)],
        vec![
            event(900, Kind::SchedWaking, 0, 0, [100, 100, 0]),
            packet(2_000, Kind::RxStack, 0, 100, 50, 2),
            handoff(2_001, 0, 150),
            event(9_000, Kind::SchedWaking, 0, 0, [100, 100, 0]),
        ],
    ]);
    let id = analysis.lifetimes.messages[0].id;
    let blocked: u64 = analysis
        .path(id, Leg::Receive)
        .iter()
        .filter(|s| matches!(analysis.lifetimes.owners[s.owner as usize].context, Context::Blocked))
        .map(|s| s.to_ns - s.from_ns)
        .sum();
    assert_eq!(blocked, 9_000 - 2_001);
    assert_eq!(analysis.lifetimes.messages[0].wake_ns, 9_000);
}

/// Streams out of order made differences of times that panicked, and a core with a number beyond 16 bits a table for all
/// the cores below it.
#[test]
fn streams_out_of_order_and_cores_without_end() {
    let in_order = vec![
        packet(10, Kind::RxStack, UDP, 0, 50, 2),
        handoff(11, UDP, 0),
        packet(20, Kind::RxStack, UDP, 0, 50, 2),
        handoff(21, UDP, 0),
        recv(30, UDP, 0, 50),
        recv(31, UDP, 0, 50),
    ];
    let expected = stages(&analyse(vec![in_order.clone()]));
    let reversed: Vec<Event> = in_order.iter().rev().copied().collect();
    assert_eq!(stages(&analyse(vec![reversed])), expected);
    let far = CpuEvents { cpu: u32::MAX, events: in_order };
    assert!(Analysis::build(&RunContext::default(), &[far]).lifetimes.messages.is_empty());
}

/// Softirqs whose ends were lost stood on each other without limit, and each event went down the whole tower.
#[test]
fn lost_ends_of_spans_built_a_tower() {
    let entry = |i: u64| event(10 + i, Kind::SoftirqEntry, 0, 0, [i % 10, 0, 0]);
    let mut events: Vec<Event> = (0..200_000).map(entry).collect();
    events.push(packet(300_000, Kind::RxStack, 0, 100, 50, 2));
    events.push(handoff(300_001, 0, 150));
    events.push(recv(300_010, 0, 150, 50));
    let begun = std::time::Instant::now();
    let analysis = analyse(vec![events]);
    assert!(analysis.lifetimes.owners.iter().all(|o| o.frames.len() <= 20));
    assert!(begun.elapsed().as_secs() < 20, "took {:?}", begun.elapsed());
}

/// The columns were declared after the first 100,000 messages: when those were all answered, a later one without a reply
/// ended the export with "declared as non-nullable but contains null values".
#[test]
fn a_stage_that_is_first_missing_after_many_messages_is_exported() {
    let whole = Message { driver_ns: 1, recv_ns: 2, send_ns: 3, xmit_ns: 4, ..Message::default() };
    let mut messages = vec![whole; 100_001];
    messages[100_000] = Message { send_ns: 0, xmit_ns: 0, ..whole };
    (0..).zip(&mut messages).for_each(|(id, m)| m.id = id);
    let parts = vec![Default::default(); messages.len()];
    let flow = Flow { key: FlowKey::of(&Event::default()), name: "flow".into(), messages: 0 };
    let lifetimes = Lifetimes::from_parts("server", messages, vec![flow], vec![], parts);
    let dir = tempfile::tempdir().unwrap();
    tailsight_lifetime::tables::write(dir.path(), &lifetimes, &[]).unwrap();
}

/// The time of an owner in the receive leg of the only message, ns.
fn received_in(analysis: &Analysis, is: impl Fn(&Context, &[Frame]) -> bool) -> u64 {
    let path = analysis.path(0, Leg::Receive);
    let owner = |id: u32| &analysis.lifetimes.owners[id as usize];
    path.iter().filter(|s| is(&owner(s.owner).context, &owner(s.owner).frames)).map(|s| s.to_ns - s.from_ns).sum()
}

/// A message arrives for a server that sleeps: its thread is woken at 500.
fn arriving() -> Vec<Event> {
    vec![
        event(2, Kind::Current, 0, 0, [0, 0, 0]),
        packet(10, Kind::RxStack, 0, 100, 50, 2),
        handoff(11, 0, 150),
        event(500, Kind::SchedWaking, 0, 0, [u64::from(SERVER), u64::from(SERVER), 0]),
    ]
}

/// A neighbour had the server's core since before the recording, and left it without an event: the first messages had a
/// millisecond without an owner, and a coverage of 0.
#[test]
fn who_had_a_core_before_its_first_event_was_not_known() {
    let reading = |from: &[Event]| [from, &[recv(1000, 0, 150, 50)]].concat();
    let current = event(1, Kind::Current, 0, 7, [0, 0, 0]);
    let neighbour =
        |analysis: &Analysis| received_in(analysis, |context, _| matches!(context, Context::Foreign { .. }));
    let unknown = |analysis: &Analysis| received_in(analysis, |context, _| *context == Context::Unknown);
    let with = analyse(vec![reading(&[current]), arriving()]);
    assert_eq!((neighbour(&with), unknown(&with)), (500, 0));
    // A run of an older recorder: nobody said so, and nobody is blamed.
    let without = analyse(vec![reading(&[]), arriving()]);
    assert_eq!((neighbour(&without), unknown(&without)), (0, 500));
}

/// A task left the server's core without an event and the core became idle. Since when is not known, but that it was while
/// the server's thread waited for it is: up to nine tenths of a message had no owner.
#[test]
fn a_core_that_became_idle_unseen_was_unknown_to_the_thread_that_waited_for_it() {
    let reading = vec![
        event(1, Kind::SchedSwitch, 0, 0, [7 << 32, 0, 0]),
        event(900, Kind::VectorEntry, 3, 0, [0, 0, 0]),
        event(910, Kind::VectorExit, 3, 0, [0, 0, 0]),
        event(920, Kind::SchedSwitch, 0, 0, [u64::from(SERVER) << 32, 0, 0]),
        recv(950, 0, 150, 50),
    ];
    let analysis = analyse(vec![reading, arriving()]);
    let pending = received_in(&analysis, |context, frames| {
        *context == Context::Idle && frames.last() == Some(&Frame::WakePending)
    });
    assert_eq!(pending, 400 + 10, "from the wake-up to the interrupt, and from its end to the switch");
    assert_eq!(received_in(&analysis, |context, _| *context == Context::Unknown), 0);
}

/// The copy of a sample's stack faulted in the clock's interrupt and gave up, and 29 % of a slow message became page faults that the server
/// had never taken.
#[test]
fn what_faults_in_an_interrupt_is_no_page_fault_of_the_server() {
    let fault = |ts, kind| event(ts, kind, 0, SERVER, [0, 0, 0]);
    let serving = |faults: &[Event]| {
        let ends = [
            event(1, Kind::SchedSwitch, 0, 0, [u64::from(SERVER) << 32, 0, 0]),
            recv(700, 0, 150, 50),
            event(900, Kind::Send, 0, SERVER, [1, PORTS | 550 << 32, 50 | 9 << 32]),
        ];
        let mut events = [&ends[..], faults].concat();
        events.sort_by_key(|event| event.ts);
        analyse(vec![events, arriving()]).lifetimes.faults
    };
    let clock =
        [event(800, Kind::VectorEntry, 0, SERVER, [0, 0, 0]), event(810, Kind::VectorExit, 0, SERVER, [0, 0, 0])];
    assert_eq!(serving(&[clock[0], fault(805, Kind::FaultKernel), clock[1]]).iter().sum::<u32>(), 0);
    // In a system call it is one, and in user space.
    assert_eq!(serving(&[fault(805, Kind::FaultKernel), fault(806, Kind::FaultUser)]), [2]);
}
