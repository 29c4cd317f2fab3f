//! The way out: where a reply waited after its send call, what the application sends by itself, and what the recorder's own
//! hooks took. Streams are written by hand, with the answer beside them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tailsight_lifetime::input::Names;
use tailsight_lifetime::input::hook_costs::HookCosts;
use tailsight_lifetime::input::sample_clock::SampleClock;
use tailsight_lifetime::model::flags;
use tailsight_lifetime::{Analysis, Leg, RunContext, SentKind};
use tailsight_trace::Event;
use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::meta::{Hook, Sampling};
use tailsight_trace::read::CpuEvents;
use tailsight_trace::samples::{SampleRow, kind};
use tailsight_trace::tables::TaskRow;

use crate::by_hand::event;
use crate::properties::check_partition;
use crate::simulator;

const SERVER: u32 = 100;
/// Local port 11211, remote port 4000; a second client has 4001; the server itself asks from 5000 at 9101.
const PORTS: u64 = 11211 << 16 | 4000;
const OTHER: u64 = 11211 << 16 | 4001;
const ASKS: u64 = 5000 << 16 | 9101;

/// A packet of a flow, while `tid` is on the core.
fn packet(ts: u64, kind: Kind, aux: u16, tid: u32, ports: u64, seq: u64, bytes: u64) -> Event {
    event(ts, kind, aux, tid, [1, ports | seq << 32, bytes | 2 << 32])
}
fn sched(ts: u64, prev: u64, next: u64) -> Event {
    event(ts, Kind::SchedSwitch, 0, prev as u32, [prev | next << 32, u64::from(prev == u64::from(SERVER)), 0])
}
/// A request of 50 bytes that arrives at 100 and is received at 200 by the server's thread, which runs.
fn request(ports: u64, at: u64, seq: u64) -> Vec<Event> {
    vec![
        packet(at, Kind::RxStack, 0, SERVER, ports, seq, 50),
        event(at + 1, Kind::Handoff, 0, SERVER, [1, ports | (seq + 50) << 32, 9]),
        event(at + 100, Kind::Recv, 0, SERVER, [1, ports | (seq + 50) << 32, 50 | 9 << 32]),
    ]
}
/// The send call of 100 bytes from `begin` to `end`, whose last byte has sequence number `upto`.
fn sends(ports: u64, aux: u16, begin: u64, end: u64, upto: u64) -> [Event; 2] {
    [
        event(begin, Kind::SendBegin, aux, SERVER, [1, ports | (upto - 100) << 32, 0]),
        event(end, Kind::Send, aux, SERVER, [1, ports | upto << 32, 100 | 9 << 32]),
    ]
}

fn facts() -> RunContext {
    let server = TaskRow { tid: SERVER, tgid: SERVER, comm: "server".into(), target: true, ..TaskRow::default() };
    RunContext { names: Names::new(&[server]), cpus: 1, ports: [11211].into_iter().collect(), ..RunContext::default() }
}

fn analyse(facts: &RunContext, mut events: Vec<Event>) -> Analysis {
    events.insert(0, sched(1, 0, u64::from(SERVER)));
    events.sort_by_key(|e| e.ts);
    let analysis = Analysis::build(facts, &[CpuEvents { cpu: 0, events }]);
    check_partition(&analysis).expect("an exact partition");
    analysis
}

/// The parts of a message's leg by owner, ns.
fn parts(analysis: &Analysis, message: u32, leg: Leg) -> BTreeMap<String, u64> {
    let lifetimes = &analysis.lifetimes;
    let mut out = BTreeMap::new();
    for part in lifetimes.part_slice(message, leg) {
        *out.entry(lifetimes.owners[part.owner as usize].path(&lifetimes.symbols)).or_default() += part.ns;
    }
    out
}
fn named(list: &[(&str, u64)]) -> BTreeMap<String, u64> {
    list.iter().map(|(name, ns)| ((*name).to_owned(), *ns)).collect()
}

/// A reply that is sent from 300 to 340 and whose only packet is given to the driver at 1000.
fn queued_reply(aux: u16, between: Vec<Event>) -> Vec<Event> {
    let mut events = request(PORTS, 100, 1000);
    events.extend(sends(PORTS, 0, 300, 340, 5100));
    if let Some(send) = events.last_mut() {
        send.aux |= aux;
    }
    events.extend(between);
    events.push(packet(1000, Kind::TxDriver, 0, SERVER, PORTS, 5000, 100));
    events
}

#[test]
fn a_queued_reply_is_divided_between_socket_and_queueing_discipline() {
    let without = analyse(&facts(), queued_reply(0, vec![]));
    assert_eq!(parts(&without, 0, Leg::Transmit), named(&[("own", 40), ("blocked/tx-queued", 660)]));
    let queue = packet(900, Kind::TxQueue, 0, SERVER, PORTS, 5000, 100);
    let with = analyse(&facts(), queued_reply(0, vec![queue]));
    let expected = named(&[("own", 40), ("blocked/tx-socket", 560), ("blocked/tx-qdisc", 100)]);
    assert_eq!(parts(&with, 0, Leg::Transmit), expected);
}

#[test]
fn a_reply_that_waits_while_the_connection_repairs_a_loss_waits_for_a_retransmission() {
    let again = packet(700, Kind::TcpRetransmit, flow_flags::RECOVERY, 0, PORTS, 4000, 1000);
    let analysis = analyse(&facts(), queued_reply(0, vec![again]));
    assert_eq!(parts(&analysis, 0, Leg::Transmit), named(&[("own", 40), ("blocked/tx-recovery", 660)]));
    assert_eq!(analysis.lifetimes.outgoing.retransmitted, 1);
    // The repair had begun before the send call ended.
    let analysis = analyse(&facts(), queued_reply(flow_flags::RECOVERY, vec![]));
    assert_eq!(parts(&analysis, 0, Leg::Transmit), named(&[("own", 40), ("blocked/tx-recovery", 660)]));
    // Another connection's loss is none of its own.
    let other = packet(700, Kind::TcpRetransmit, 0, 0, OTHER, 4000, 1000);
    let analysis = analyse(&facts(), queued_reply(0, vec![other]));
    assert_eq!(parts(&analysis, 0, Leg::Transmit), named(&[("own", 40), ("blocked/tx-queued", 660)]));
}

#[test]
fn a_reply_that_the_queueing_discipline_dropped_waits_to_be_sent_again_with_the_reason() {
    let mut facts = facts();
    facts.symbols = vec![String::new(), "NOT_SPECIFIED".into(), "QDISC_DROP".into()];
    facts.drop_reasons = (1, 2);
    let drop =
        |reason: u64| event(330, Kind::SkbDrop, flow_flags::OUT, SERVER, [1, PORTS | 5000 << 32, 100 | reason << 32]);
    let with_reason = analyse(&facts, queued_reply(0, vec![drop(1)]));
    let expected = named(&[("own", 40), ("blocked/tx-dropped:QDISC_DROP", 660)]);
    assert_eq!(parts(&with_reason, 0, Leg::Transmit), expected);
    let unknown = analyse(&facts, queued_reply(0, vec![drop(70)]));
    assert_eq!(parts(&unknown, 0, Leg::Transmit), named(&[("own", 40), ("blocked/tx-dropped:?", 660)]));
}

#[test]
fn a_datagram_that_was_dropped_on_its_way_out_is_known_as_that() {
    let udp = flow_flags::UDP;
    let mut events = request(PORTS, 100, 0);
    events.iter_mut().for_each(|e| e.aux |= udp);
    events.push(event(300, Kind::SendBegin, udp, SERVER, [0, PORTS, 0]));
    events.push(event(310, Kind::SkbDrop, udp | flow_flags::OUT, SERVER, [1, PORTS, 100 | 1 << 32]));
    events.push(event(340, Kind::Send, udp, SERVER, [1, PORTS, 100 | 9 << 32]));
    let analysis = analyse(&facts(), events);
    let m = analysis.lifetimes.messages[0];
    assert_eq!((m.send_ns, m.xmit_ns, m.flags & flags::REPLY_DROPPED), (300, 0, flags::REPLY_DROPPED));
}

/// Without the begin of the call its entry was the hand-over to the driver, and the way there was service.
#[test]
fn a_udp_reply_begins_with_its_send_call_where_the_kernel_tells() {
    let udp = flow_flags::UDP;
    let with = |begin: Option<Event>| {
        let mut events = request(PORTS, 100, 0);
        events.iter_mut().for_each(|e| e.aux |= udp);
        events.extend(begin);
        events.push(packet(330, Kind::TxDriver, udp, SERVER, PORTS, 0, 100));
        events.push(event(340, Kind::Send, udp, SERVER, [1, PORTS, 100 | 9 << 32]));
        let m = analyse(&facts(), events).lifetimes.messages[0];
        (m.send_ns, m.xmit_ns)
    };
    assert_eq!(with(Some(event(300, Kind::SendBegin, udp, SERVER, [0, PORTS, 0]))), (300, 330));
    // The queueing discipline is earlier than the driver.
    assert_eq!(with(Some(packet(320, Kind::TxQueue, udp, SERVER, PORTS, 0, 100))), (320, 330));
    assert_eq!(with(None), (330, 330));
}

/// A client subscribes; what another one publishes later is pushed to it. Each push used to be taken for more of the reply
/// to the subscription, which so lasted until the last of them.
#[test]
fn what_is_pushed_to_a_client_is_no_more_of_its_last_reply() {
    let mut events = request(PORTS, 100, 1000);
    events.extend(sends(PORTS, 0, 300, 320, 5100));
    events.push(packet(310, Kind::TxDriver, 0, SERVER, PORTS, 5000, 100));
    events.extend(request(OTHER, 1000, 2000));
    events.extend(sends(PORTS, 0, 1200, 1220, 5200));
    events.push(packet(1210, Kind::TxDriver, 0, SERVER, PORTS, 5100, 100));
    // A push of two calls, the second of which waits in the socket.
    events.extend(sends(PORTS, 0, 1230, 1240, 5300));
    events.push(packet(1500, Kind::TxDriver, 0, SERVER, PORTS, 5200, 100));
    events.extend(sends(OTHER, 0, 1300, 1320, 7100));
    events.push(packet(1310, Kind::TxDriver, 0, SERVER, OTHER, 7000, 100));
    let analysis = analyse(&facts(), events);
    let lifetimes = &analysis.lifetimes;
    let answered: Vec<_> = lifetimes.messages.iter().map(|m| (m.send_ns, m.xmit_ns)).collect();
    assert_eq!(answered, [(300, 310), (1300, 1310)]);
    let pushed: Vec<_> = lifetimes.sent.iter().map(|s| (s.kind, s.send_ns, s.sent_ns, s.xmit_ns, s.bytes)).collect();
    assert_eq!(pushed, [(SentKind::Push, 1200, 1220, 1210, 100), (SentKind::Push, 1230, 1240, 1500, 100)]);
    let sum = |i: usize| lifetimes.sent_parts(i).iter().map(|p| p.ns).sum::<u64>();
    assert_eq!((sum(0), sum(1)), (10, 270));
    assert_eq!(lifetimes.sent[1].transmit_ns(), Some(270));
}

/// The head of each reply is sent at once, and the body when a disk has answered, while the thread waits for work. Such a message used to
/// end with the head: a client waited 20 ms, and the slowest message took 1 ms.
#[test]
fn a_reply_that_goes_on_after_other_work_is_served_until_its_last_part_is_sent() {
    const CYCLE: u64 = 10_000;
    let with = |requests: u64| {
        let mut events = vec![];
        for (i, at) in (0..requests).map(|i| (i, 1000 + i * CYCLE)) {
            events.extend(request(PORTS, at, 1000 + 50 * i));
            events.extend(sends(PORTS, 0, at + 200, at + 220, 5100 + 200 * i));
            events.push(packet(at + 210, Kind::TxDriver, 0, SERVER, PORTS, 5000 + 200 * i, 100));
            // Asleep in epoll_wait until the disk has answered.
            let sleep = |ts| event(ts, Kind::SchedSwitch, 0, SERVER, [u64::from(SERVER), 1, 233]);
            events.push(sleep(at + 300));
            events.push(event(at + 8_000, Kind::SchedWaking, 0, 0, [u64::from(SERVER), 0, 0]));
            events.push(sched(at + 8_010, 0, u64::from(SERVER)));
            events.extend(sends(PORTS, 0, at + 8_100, at + 8_120, 5200 + 200 * i));
            events.push(packet(at + 8_110, Kind::TxDriver, 0, SERVER, PORTS, 5100 + 200 * i, 100));
            events.push(sleep(at + 8_300));
            events.push(event(at + 9_990, Kind::SchedWaking, 0, 0, [u64::from(SERVER), 0, 0]));
            events.push(sched(at + 9_995, 0, u64::from(SERVER)));
        }
        analyse(&facts(), events)
    };
    let analysis = with(30);
    let m = analysis.lifetimes.messages[0];
    assert_eq!((m.send_ns, m.xmit_ns, m.flags & flags::CONTINUED), (9_100, 9_110, flags::CONTINUED));
    let continued = |a: &Analysis| a.lifetimes.messages.iter().filter(|m| m.flags & flags::CONTINUED != 0).count();
    // Of the last one the recording does not tell where it ends.
    assert_eq!(
        (continued(&analysis), analysis.lifetimes.messages[29].send_ns, analysis.lifetimes.sent.len()),
        (29, 0, 0)
    );
    let asleep: u64 =
        parts(&analysis, 0, Leg::Service).iter().filter(|(o, _)| o.starts_with("blocked")).map(|(_, ns)| ns).sum();
    assert_eq!((m.latency(Leg::Service), asleep), (Some(8_000), 7_700));
    let few = with(19);
    assert_eq!((few.lifetimes.messages[0].xmit_ns, continued(&few), few.lifetimes.sent.len()), (1_210, 0, 19));
}

/// A reply that did not fit into the send buffer goes on after the thread has done other work.
#[test]
fn a_reply_that_filled_the_send_buffer_goes_on_later() {
    let mut events = request(PORTS, 100, 1000);
    let mut first = sends(PORTS, 0, 300, 320, 5100);
    first[1].aux |= flow_flags::FULL;
    events.extend(first);
    events.push(packet(310, Kind::TxDriver, 0, SERVER, PORTS, 5000, 100));
    events.extend(request(OTHER, 1000, 2000));
    events.extend(sends(PORTS, 0, 1200, 1220, 5200));
    events.push(packet(1210, Kind::TxDriver, 0, SERVER, PORTS, 5100, 100));
    let analysis = analyse(&facts(), events);
    assert_eq!((analysis.lifetimes.messages[0].xmit_ns, analysis.lifetimes.sent.len()), (1210, 0));
}

#[test]
fn what_the_server_asks_of_others_is_no_reply() {
    let client = flow_flags::CLIENT;
    let mut events = request(PORTS, 100, 1000);
    events.extend(sends(ASKS, client, 250, 280, 9100));
    events.push(packet(270, Kind::TxDriver, client, SERVER, ASKS, 9000, 100));
    events.extend(sends(PORTS, 0, 600, 620, 5100));
    events.push(packet(610, Kind::TxDriver, 0, SERVER, PORTS, 5000, 100));
    let analysis = analyse(&facts(), events);
    let lifetimes = &analysis.lifetimes;
    let m = lifetimes.messages[0];
    assert_eq!((lifetimes.messages.len(), m.send_ns, m.xmit_ns), (1, 600, 610));
    let asked = lifetimes.sent[0];
    assert_eq!((asked.kind, asked.send_ns, asked.xmit_ns), (SentKind::Request, 250, 270));
    assert_eq!(lifetimes.flows[asked.flow as usize].key.ports, ASKS as u32);
    assert_eq!(lifetimes.sent_parts(0).iter().map(|p| p.ns).sum::<u64>(), 20);
    // What a port served all along is told by run.json, whenever the probes learned it.
    let mut facts = facts();
    facts.ports.insert(5000);
    let mut events = request(ASKS, 100, 1000);
    events.extend(sends(ASKS, client, 300, 320, 9100));
    events.push(packet(310, Kind::TxDriver, client, SERVER, ASKS, 9000, 100));
    let m = analyse(&facts, events).lifetimes.messages[0];
    assert_eq!((m.send_ns, m.xmit_ns), (300, 310));
}

/// The fault that finds its page on another node moves it: the time of the move has a name.
#[test]
fn pages_that_numa_balancing_moves_have_their_time() {
    let mut events = request(PORTS, 100, 1000);
    events.push(event(400, Kind::FaultUser, 0, SERVER, [0, 0, 0]));
    events.push(event(410, Kind::MigrateBegin, 0, SERVER, [5, 0, 0]));
    events.push(event(460, Kind::MigratePages, 0, SERVER, [1, 0, 0]));
    events.push(event(470, Kind::NumaMove, 0, SERVER, [u64::from(SERVER), 0, 0]));
    events.extend(sends(PORTS, 0, 500, 520, 5100));
    events.push(packet(510, Kind::TxDriver, 0, SERVER, PORTS, 5000, 100));
    let analysis = analyse(&facts(), events);
    assert_eq!(parts(&analysis, 0, Leg::Service), named(&[("own", 250), ("own/migrate:numa", 50)]));
    assert_eq!(analysis.lifetimes.numa_moves, 1);
}

/// Where the compiler left vfs_fsync_range a function of its own, both it and do_fsync tell of one fsync.
#[test]
fn a_file_that_is_written_by_one_function_inside_of_another_is_written_once() {
    let mut events = request(PORTS, 100, 1000);
    for (ts, kind) in [(400, Kind::SyncBegin), (405, Kind::SyncBegin), (455, Kind::SyncEnd), (460, Kind::SyncEnd)] {
        events.push(event(ts, kind, 0, SERVER, [0, 0, 0]));
    }
    events.extend(sends(PORTS, 0, 500, 520, 5100));
    events.push(packet(510, Kind::TxDriver, 0, SERVER, PORTS, 5000, 100));
    let analysis = analyse(&facts(), events);
    assert_eq!(parts(&analysis, 0, Leg::Service), named(&[("own", 240), ("own/file-sync", 60)]));
    let lifetimes = &analysis.lifetimes;
    let sync = lifetimes.part_slice(0, Leg::Service).iter().find(|p| p.ns == 60).expect("the fsync");
    assert_eq!(sync.count, 1);
}

fn costs() -> HookCosts {
    let hook = |name: &str, ns: f64| Hook {
        name: name.into(),
        on: true,
        ns_per_run: Some(ns),
        measured_runs: 10,
        ..Hook::default()
    };
    HookCosts::of(&[
        hook("sched_switch", 700.0),
        hook("sched_waking", 90.0),
        hook("netif_receive_skb", 120.0),
        hook("sk_data_ready", 60.0),
        hook("sock_recv_length", 7.0),
        hook("tcp_sendmsg_locked", 11.0),
        hook("sock_send_length", 9.0),
        hook("net_dev_start_xmit", 13.0),
        hook("softirq_entry", 5000.0),
        hook("page_fault_user", 3.0),
    ])
}

#[test]
fn what_the_hooks_took_is_taken_out_of_who_had_the_time() {
    let facts = RunContext { costs: costs(), ..facts() };
    let mut events = request(PORTS, 100, 1000);
    events.push(event(400, Kind::FaultUser, 0, SERVER, [0, 0, 0]));
    events.extend(sends(PORTS, 0, 500, 540, 5100));
    events.push(packet(530, Kind::TxDriver, 0, SERVER, PORTS, 5000, 100));
    let analysis = analyse(&facts, events);
    // From 200 to 500: 7 for the receive call's hook, 3 for the fault's. From 500 to 530: 11 for the begin of the send, 13
    // for the hand-over.
    assert_eq!(parts(&analysis, 0, Leg::Service), named(&[("profiler", 10), ("own", 290)]));
    assert_eq!(parts(&analysis, 0, Leg::Transmit), named(&[("profiler", 24), ("own", 6)]));
}

fn sampled(at: &[u64]) -> SampleClock {
    let row = |ts_ns: &u64| SampleRow { ts_ns: *ts_ns, ..SampleRow::default() };
    let sampling = Sampling { ns_per_sample: Some(20.0), ..Sampling::default() };
    let slept = SampleRow { ts_ns: 210, kind: kind::SLEEP, ..SampleRow::default() };
    let rows: Vec<SampleRow> = at.iter().map(row).chain([slept]).collect();
    SampleClock::new(&rows, Some(&sampling), 1)
}

/// The clock's own interrupts were blamed on the host: `interrupts vector:local_timer` had 3.2 % of the deviation with samples
/// and 1.2 % without.
#[test]
fn an_interrupt_that_took_a_sample_is_the_recorders() {
    let mut events = request(PORTS, 100, 1000);
    // The clock's timer from 300 to 350, another one from 400 to 430.
    for (ts, kind) in
        [(300, Kind::VectorEntry), (350, Kind::VectorExit), (400, Kind::VectorEntry), (430, Kind::VectorExit)]
    {
        events.push(event(ts, kind, 0, SERVER, [0, 0, 0]));
    }
    events.extend(sends(PORTS, 0, 500, 540, 5100));
    events.push(packet(530, Kind::TxDriver, 0, SERVER, PORTS, 5000, 100));
    let timer = |at: &[u64]| {
        let facts = RunContext { samples: sampled(at), ..facts() };
        parts(&analyse(&facts, events.clone()), 0, Leg::Service)
    };
    assert_eq!(timer(&[]), named(&[("own", 220), ("own/vector:local_timer", 80)]));
    assert_eq!(timer(&[310]), named(&[("profiler", 50), ("own", 220), ("own/vector:local_timer", 30)]));
    // A clock whose interrupts are not recorded, as one that cannot be masked: what a sample takes is taken where it came.
    assert_eq!(timer(&[310, 460]), named(&[("profiler", 70), ("own", 200), ("own/vector:local_timer", 30)]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever the hooks took, the parts of every leg sum to it, the path and the parts are the same, and without the
    /// hooks' row nobody has more time than he would have if the hooks had taken none.
    #[test]
    fn the_partition_stays_exact_with_what_the_hooks_took(
        script in simulator::script(400),
        at in proptest::collection::vec(0u64..2_000_000, 0..60),
    ) {
        let (_, cpus, _) = simulator::run(&script);
        let free = simulator::facts(&script);
        let paid = RunContext { costs: costs(), samples: sampled(&at), ..simulator::facts(&script) };
        let (without, with) = (Analysis::build(&free, &cpus), Analysis::build(&paid, &cpus));
        check_partition(&with)?;
        prop_assert_eq!(&with.lifetimes.messages, &without.lifetimes.messages);
        for m in &with.lifetimes.messages {
            for leg in tailsight_lifetime::LEGS {
                let (paid, free) = (parts(&with, m.id, leg), parts(&without, m.id, leg));
                for (owner, ns) in paid.iter().filter(|(owner, _)| *owner != "profiler") {
                    prop_assert!(*ns <= free.get(owner).copied().unwrap_or(0), "{} has {} of {:?}", owner, ns, free);
                }
            }
        }
    }
}

/// nginx compresses a page and sends it in parts: the compression was "sending".
#[test]
fn work_between_two_sends_of_a_reply_is_no_sending() {
    let sent = |work_ns: u64| {
        let again = 340 + work_ns;
        let mut events = request(PORTS, 100, 1000);
        events.extend(sends(PORTS, 0, 300, 340, 5100));
        events.extend(sends(PORTS, 0, again, again + 40, 5200));
        events.push(packet(again + 30, Kind::TxDriver, 0, SERVER, PORTS, 5000, 200));
        parts(&analyse(&facts(), events), 0, Leg::Transmit)
    };
    assert_eq!(sent(1_000_000), named(&[("own", 40 + 30), ("own/between-sends", 1_000_000)]));
    // As much as a few system calls take is not told apart.
    assert_eq!(sent(5_000), named(&[("own", 40 + 5_000 + 30)]));
}

/// A thread that sends two replies in parts, in turns: the time between its sends was counted once for each of them.
#[test]
fn two_replies_that_are_sent_in_turns_have_each_nanosecond_once() {
    let mut events = [request(PORTS, 100, 1000), request(OTHER, 110, 1000)].concat();
    for (part, upto) in [(0, 5100), (1, 5200), (2, 5300)] {
        let at = 300 + part * 2_000_000;
        events.extend(sends(PORTS, 0, at, at + 40, upto));
        events.extend(sends(OTHER, 0, at + 1_000_000, at + 1_000_040, upto));
    }
    for (ports, at) in [(PORTS, 4_000_330), (OTHER, 5_000_330)] {
        events.push(packet(at, Kind::TxDriver, 0, SERVER, ports, 5000, 300));
    }
    let analysis = analyse(&facts(), events);
    let ends = |message: u32| {
        let message = &analysis.lifetimes.messages[message as usize];
        message.xmit_ns - message.send_ns
    };
    for message in 0..2 {
        let parts = parts(&analysis, message, Leg::Transmit);
        assert_eq!(parts.values().sum::<u64>(), ends(message), "{parts:?}");
        // Two gaps, which the other reply's calls of 40 ns lie in.
        assert_eq!(parts["own/between-sends"], 2 * (2_000_000 - 40), "{parts:?}");
    }
}
