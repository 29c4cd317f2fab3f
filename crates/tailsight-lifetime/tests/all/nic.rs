//! Messages with time stamps of NICs: synthetic streams beside a clock that drifts, whole runs on disk, and the simulated machine.

use proptest::prelude::*;
use tailsight_lifetime::input::Names;
use tailsight_lifetime::messages::nic::NicClocks;
use tailsight_lifetime::model::{Incomplete, flags};
use tailsight_lifetime::{Analysis, Context, Frame, Leg, Role, RunContext};
use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::fields::{Packet, SentStamp, Stamp};
use tailsight_trace::meta::{NicStamps, StampingDevice, State};
use tailsight_trace::read::CpuEvents;
use tailsight_trace::tables::{NicClockRow, TaskRow};
use tailsight_trace::{Event, Run, RunMeta, RunWriter};

use crate::properties::check_partition;
use crate::simulator;

const SERVER: u32 = 100;
const PORTS: u64 = 11211 << 16 | 4000;
/// The device that the packets come in on, and its clock.
const ETH0: u64 = 2;
const PHC: u32 = 5;
/// Events are this much after the simulated machine's, so that its clock shows something before them.
const BEGIN_NS: u64 = 10_000_000_000;

/// A NIC's clock that showed `showed` at the beginning and gains `ppm`.
#[derive(Clone, Copy, Debug)]
struct Clock {
    showed: u64,
    ppm: f64,
}

impl Clock {
    fn at(self, mono: u64) -> u64 {
        let passed = mono.cast_signed() - BEGIN_NS.cast_signed();
        self.showed.wrapping_add_signed(passed + (passed as f64 * self.ppm / 1e6).round() as i64)
    }

    /// Comparisons each `every` ns, from half a second before the beginning until a second after it.
    fn rows(self, every: u64, error_ns: u64) -> Vec<NicClockRow> {
        let times = (0..1_500_000_000 / every).map(|i| BEGIN_NS - 500_000_000 + i * every);
        times
            .map(|monotonic_ns| NicClockRow { phc: PHC, monotonic_ns, phc_ns: self.at(monotonic_ns), error_ns })
            .collect()
    }
}

const CLOCK: Clock = Clock { showed: 1_700_000_000_000_000_000, ppm: 100.0 };

fn stamps() -> NicStamps {
    let device = StampingDevice {
        name: "eth0".into(),
        ifindex: ETH0 as u32,
        phc: PHC,
        here: true,
        rx_filter: "all".into(),
        tx: true,
    };
    NicStamps { devices: vec![device], ..NicStamps::default() }
}

fn server() -> TaskRow {
    TaskRow { tid: SERVER, tgid: SERVER, comm: "server".into(), target: true, ..TaskRow::default() }
}

fn facts(rows: &[NicClockRow]) -> RunContext {
    RunContext {
        names: Names::new(&[server()]),
        cpus: 1,
        nic: NicClocks::new(&stamps(), rows),
        ..RunContext::default()
    }
}

fn event(ts: u64, kind: Kind, aux: u16, tid: u32, [a, b, c]: [u64; 3]) -> Event {
    Event { ts: BEGIN_NS + ts, kind: kind as u8, generation: 0, aux, tid, a, b, c }
}

fn stamp(ts: u64, nic: u64) -> Event {
    event(ts, Kind::RxHardware, 0, 0, [nic, ETH0, 0])
}

/// A request of 10 bytes and its reply of 20 over TCP, `i` messages after the first: seen by the driver at `ts`, protocol
/// processing 10 ns later, hand-off 20, receive call 100, send 200 to 230, hand-over to the driver at 220. `nic`: the NIC's
/// stamps, as it shows them.
fn request(i: u64, ts: u64, nic: [Option<u64>; 2]) -> Vec<Event> {
    answered(i * 10, i * 20, ts, nic)
}

/// The same, with the sequence numbers of the request and of its reply.
fn answered(seq: u64, reply: u64, ts: u64, nic: [Option<u64>; 2]) -> Vec<Event> {
    let packet = |at, kind| event(at, kind, 0, 0, [1, PORTS | seq << 32, 10 | ETH0 << 32]);
    let mut events = vec![packet(ts, Kind::RxNapi)];
    events.extend(nic[0].map(|n| stamp(ts + 1, n)));
    events.push(packet(ts + 10, Kind::RxStack));
    events.extend(nic[0].map(|n| stamp(ts + 11, n)));
    events.push(event(ts + 20, Kind::Handoff, 0, 0, [1, PORTS | (seq + 10) << 32, 9]));
    events.push(event(ts + 100, Kind::Recv, 0, SERVER, [1, PORTS | (seq + 10) << 32, 10 | 9 << 32]));
    events.extend(sends(reply, ts + 200, nic[1]));
    events
}

/// A send call of 20 bytes at `ts`, which lasts 30 ns, with their hand-over to the driver after 20 and the NIC's stamp.
fn sends(seq: u64, ts: u64, nic: Option<u64>) -> Vec<Event> {
    let mut events = vec![
        event(ts, Kind::SendBegin, 0, SERVER, [1, PORTS | seq << 32, 0]),
        event(ts + 20, Kind::TxDriver, 0, SERVER, [1, PORTS | seq << 32, 20 | ETH0 << 32]),
        event(ts + 30, Kind::Send, 0, SERVER, [1, PORTS | (seq + 20) << 32, 20 | 9 << 32]),
    ];
    events.extend(nic.map(|n| event(ts + 700, Kind::NicTx, 0, 0, [1, PORTS | (seq + 20) << 32, n])));
    events
}

fn analyse(rows: &[NicClockRow], events: Vec<Event>) -> Analysis {
    let analysis = Analysis::build(&facts(rows), &[CpuEvents { cpu: 0, events }]);
    check_partition(&analysis).expect("an exact partition");
    analysis
}

/// Time of the parts of a message's leg that belong to a frame.
fn time_of(analysis: &Analysis, message: u32, leg: Leg, frame: Frame, role: Role) -> u64 {
    let lifetimes = &analysis.lifetimes;
    let is = |owner: u32| lifetimes.owners[owner as usize].frames == [frame];
    lifetimes.part_slice(message, leg).iter().filter(|p| p.role == role && is(p.owner)).map(|p| p.ns).sum()
}

#[test]
fn legs_begin_and_end_at_the_nic_and_the_time_between_it_and_the_driver_has_an_owner() {
    // 100 ppm over the half second before are 50,000 ns: a clock taken to run evenly from its first comparison on would be
    // off by that.
    let events = (0..50u64).flat_map(|i| {
        let ts = 1_000_000 + i * 2_000_000;
        let nic = [CLOCK.at(BEGIN_NS + ts - 3_000), CLOCK.at(BEGIN_NS + ts + 220 + 700)];
        request(i, ts, nic.map(Some))
    });
    let analysis = analyse(&CLOCK.rows(100_000_000, 40), events.collect());
    let lifetimes = &analysis.lifetimes;
    assert_eq!(lifetimes.messages.len(), 50);
    for m in &lifetimes.messages {
        // 40 ns of the comparisons, 1 ppm of at most 50 ms, and rounding.
        assert!((41..=95).contains(&m.nic_error_ns) && (41..=95).contains(&m.nic_tx_error_ns), "{m:?}");
        assert!(m.nic_ns.abs_diff(m.driver_ns - 3_000) <= 2 && m.nic_tx_ns.abs_diff(m.xmit_ns + 700) <= 2, "{m:?}");
        assert_eq!(m.flags & (flags::FROM_NIC | flags::TO_NIC), flags::FROM_NIC | flags::TO_NIC);
        assert_eq!(m.ends(Leg::Total), Some((m.nic_ns, m.nic_tx_ns)));
        let before = time_of(&analysis, m.id, Leg::Receive, Frame::NicToDriver, Role::R);
        let after = time_of(&analysis, m.id, Leg::Transmit, Frame::DriverToNic, Role::A);
        assert_eq!((before, after), (m.driver_ns - m.nic_ns, m.nic_tx_ns - m.xmit_ns));
        assert_eq!(m.latency(Leg::Receive), Some(m.recv_ns - m.nic_ns));
    }
    let path = |i: u32| lifetimes.owners[i as usize].path(&lifetimes.symbols);
    assert_eq!(path(lifetimes.part_slice(0, Leg::Receive)[0].owner), "blocked/nic-to-driver");
    assert_eq!(lifetimes.owners[lifetimes.part_slice(0, Leg::Receive)[0].owner as usize].context, Context::Blocked);
    let notes = lifetimes.nic.notes();
    assert!(notes[0].contains("receive legs begin at the NIC: 50 of 50"), "{notes:?}");
    assert!(notes[1].contains("transmit legs end at the NIC: 50 of 50") && notes.len() == 2, "{notes:?}");
    assert!((41..=95).contains(&lifetimes.nic.error_ns()));
}

/// The stamp was that of the first part, before the last one was sent.
#[test]
fn a_reply_that_goes_on_after_other_work_has_the_stamp_of_its_last_byte() {
    let sched = |ts, prev: u32, next: u32, call| {
        event(ts, Kind::SchedSwitch, 0, prev, [u64::from(prev) | u64::from(next) << 32, u64::from(prev != 0), call])
    };
    let events = (0..30u64).flat_map(|i| {
        let ts = 1_000_000 + i * 2_000_000;
        let stamped = |at: u64| Some(CLOCK.at(BEGIN_NS + at + 20 + 700));
        let mut events = answered(i * 10, i * 40, ts, [Some(CLOCK.at(BEGIN_NS + ts - 3_000)), stamped(ts + 200)]);
        // Asleep in epoll_wait until the rest is there.
        events.push(sched(ts + 1_000, SERVER, 0, 233));
        events.push(event(ts + 1_400_000, Kind::SchedWaking, 0, 0, [u64::from(SERVER), 0, 0]));
        events.push(sched(ts + 1_400_010, 0, SERVER, 0));
        events.extend(sends(i * 40 + 20, ts + 1_500_000, stamped(ts + 1_500_000)));
        events
    });
    let lifetimes = analyse(&CLOCK.rows(100_000_000, 40), events.collect()).lifetimes;
    assert_eq!(lifetimes.messages.len(), 30);
    // Of the last one the recording does not tell where it ends.
    for m in &lifetimes.messages[..29] {
        assert!(m.flags & flags::CONTINUED != 0 && m.xmit_ns == m.driver_ns + 1_500_020, "{m:?}");
        assert!(m.nic_tx_ns.abs_diff(m.xmit_ns + 700) <= 2, "{m:?}");
    }
}

#[test]
fn a_run_without_stamps_begins_at_the_driver_and_has_no_clock_error() {
    let analysis = analyse(&[], request(0, 1000, [None, None]));
    let m = analysis.lifetimes.messages[0];
    assert_eq!((m.nic_ns, m.nic_tx_ns, m.flags), (0, 0, 0));
    assert_eq!(m.ends(Leg::Total), Some((BEGIN_NS + 1000, BEGIN_NS + 1220)));
    assert_eq!((analysis.lifetimes.nic.error_ns(), analysis.lifetimes.nic.notes().len()), (0, 0));
}

/// Of 200 messages one has a stamp that is no time of the clock, one a stamp later than its driver by more than it can be
/// wrong, one by less.
#[test]
fn absurd_stamps_are_refused_with_a_reason_and_legs_are_not_mixed() {
    let events = (0..200u64).flat_map(|i| {
        let ts = 1_000_000 + i * 100_000;
        let stamp = match i {
            7 => 0xffff_8881_0123_4567,
            8 => CLOCK.at(BEGIN_NS + ts + 5_000),
            9 => CLOCK.at(BEGIN_NS + ts + 30),
            _ => CLOCK.at(BEGIN_NS + ts - 800),
        };
        request(i, ts, [Some(stamp), None])
    });
    let events: Vec<Event> = events.collect();
    let analysis = analyse(&CLOCK.rows(100_000_000, 40), events.clone());
    let used = &analysis.lifetimes.nic.received;
    assert_eq!((used.messages, used.stamped, used.clamped, used.used), (200, 198, 1, true));
    // Its stamp is met twice, at both places that saw the packet.
    assert_eq!(used.refused["not close to the time of its packet"], 2);
    assert_eq!(used.refused["later than the driver by more than its error"], 1);
    assert_eq!(analysis.lifetimes.messages.len(), 198);
    assert_eq!(analysis.lifetimes.incomplete[&Incomplete::NotStamped], 2);
    let moved = analysis.lifetimes.messages.iter().find(|m| m.nic_ns == m.driver_ns).expect("the one that was moved");
    assert_eq!(moved.driver_ns, BEGIN_NS + 1_000_000 + 900_000);
    // Every tenth without one: then the legs of all begin at the driver, and every message stays.
    let mut count = 0;
    let few = events.into_iter().filter(|e| {
        count += usize::from(e.kind == Kind::RxNapi as u8);
        e.kind != Kind::RxHardware as u8 || count % 10 != 0
    });
    let analysis = analyse(&CLOCK.rows(100_000_000, 40), few.collect());
    assert_eq!((analysis.lifetimes.messages.len(), analysis.lifetimes.nic.received.used), (200, false));
    assert!(analysis.lifetimes.messages.iter().all(|m| m.ends(Leg::Receive).unwrap().0 == m.driver_ns));
    assert!(analysis.lifetimes.messages.iter().filter(|m| m.nic_ns != 0).count() > 170, "the stamps themselves stay");
    assert!(analysis.lifetimes.nic.notes()[0].contains("for all messages"));
}

/// A datagram's stamp, with the payload of the packet behind it, over a device of software after the NIC.
#[test]
fn a_datagram_has_the_stamp_of_its_first_sight() {
    let udp = flow_flags::UDP;
    let packet = |ts, kind, ifindex: u64| event(ts, kind, udp, 0, [1, PORTS, 50 | ifindex << 32]);
    let events = vec![
        packet(5_000, Kind::RxNapi, ETH0),
        stamp(5_001, CLOCK.at(BEGIN_NS + 4_000)),
        packet(5_010, Kind::RxStack, ETH0),
        stamp(5_011, CLOCK.at(BEGIN_NS + 4_000)),
        packet(5_020, Kind::RxStack, 9),
        event(5_021, Kind::RxHardware, 0, 0, [CLOCK.at(BEGIN_NS + 4_000), 9, 0]),
        event(5_030, Kind::Handoff, udp, 0, [1, PORTS, 9]),
        event(5_100, Kind::Recv, udp, SERVER, [1, PORTS, 50 | 9 << 32]),
    ];
    let analysis = analyse(&CLOCK.rows(100_000_000, 40), events);
    let m = analysis.lifetimes.messages[0];
    assert_eq!((m.driver_ns, analysis.lifetimes.messages.len()), (BEGIN_NS + 5_000, 1));
    assert!(m.nic_ns.abs_diff(BEGIN_NS + 4_000) <= u64::from(m.nic_error_ns), "{m:?}");
    assert!(analysis.lifetimes.nic.received.refused.is_empty(), "{:?}", analysis.lifetimes.nic);
}

/// From the files: run.json says which device has which clock, nic_clocks.arrow what it showed; the table has the columns.
#[test]
fn a_run_on_disk_has_its_clocks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut meta = RunMeta { format: "tailsight-run".into(), version: 1, nic: stamps(), ..RunMeta::default() };
    meta.target.pids = vec![SERVER];
    meta.host.cpus = 1;
    let mut writer = RunWriter::create(&path, &meta).unwrap();
    let nic = |ts: u64| [Some(CLOCK.at(BEGIN_NS + ts - 1_500)), None];
    let events: Vec<Event> = (0..20).flat_map(|i| request(i, 1_000_000 * (i + 1), nic(1_000_000 * (i + 1)))).collect();
    writer.events(0, &events).unwrap();
    writer.tasks(&[server()]).unwrap();
    writer.sockets(&[]).unwrap();
    writer.clocks(&[]).unwrap();
    let rows = CLOCK.rows(100_000_000, 60);
    writer.nic_clocks(&rows).unwrap();
    meta.state = State::Complete;
    meta.cpus = vec![tailsight_trace::meta::Cpu { cpu: 0, events: events.len() as u64, lost: 0 }];
    writer.finish(&mut meta).unwrap();

    let mut run = Run::open(&path).unwrap();
    assert_eq!((run.partial.len(), &run.nic_clocks), (0, &rows), "{:?}", run.partial);
    let analysis = Analysis::of(&mut run).unwrap();
    assert_eq!(analysis.lifetimes.messages.len(), 20);
    assert!(analysis.lifetimes.messages.iter().all(|m| m.nic_ns.abs_diff(m.driver_ns - 1_500) <= 2));
    tailsight_lifetime::tables::write(&path, &analysis.lifetimes, &[]).unwrap();
    // Without its clocks the stamps have no place, and the run says what it lacks.
    std::fs::remove_file(path.join("nic_clocks.arrow")).unwrap();
    let mut run = Run::open(&path).unwrap();
    assert!(run.partial.iter().any(|p| p.contains("nic_clocks.arrow")), "{:?}", run.partial);
    let analysis = Analysis::of(&mut run).unwrap();
    assert_eq!(analysis.lifetimes.nic.received.refused["its clock was not compared"], 40);
    assert!(analysis.lifetimes.messages.iter().all(|m| m.nic_ns == 0 && m.flags == 0));
}

/// How long the NIC had a packet before the driver saw it at `ts`.
fn before(ts: u64) -> u64 {
    300 + ts.wrapping_mul(7919) % 5_000
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// The simulated machine with a NIC that stamps every packet: each message has the stamp of the packet that it was first
    /// seen in, within its error, and the partition sums with the stage.
    #[test]
    fn with_a_nic_that_stamps_every_nanosecond_still_has_an_owner(
        script in simulator::script(1200),
        ppm in -100.0..100.0_f64,
        error_ns in 1u64..200,
    ) {
        let clock = Clock { ppm, ..CLOCK };
        let (facts, cores, _) = simulator::run(&script);
        let mut stamped = Vec::new();
        for CpuEvents { cpu, events } in cores {
            let mut with_stamps = Vec::new();
            for mut e in events {
                e.ts += BEGIN_NS;
                with_stamps.push(e);
                match e.kind() {
                    Some(Kind::RxNapi | Kind::RxBacklog | Kind::RxStack) => {
                        let stamp = Stamp { nic_ns: clock.at(e.ts - before(e.ts)), ifindex: ETH0 as u32 };
                        with_stamps.push(stamp.event(Kind::RxHardware, e.ts, e.tid));
                    }
                    Some(Kind::TxDriver) if e.aux & flow_flags::UDP == 0 => {
                        let Packet { flow, sequence, bytes, .. } = Packet::of(&e);
                        let end = sequence.wrapping_add(bytes);
                        let stamp = SentStamp { flow, end, nic_ns: clock.at(e.ts + 900) };
                        with_stamps.push(stamp.event(Kind::NicTx, e.ts, e.tid));
                    }
                    _ => {}
                }
            }
            stamped.push(CpuEvents { cpu, events: with_stamps });
        }
        let nic = NicClocks::new(&stamps(), &clock.rows(1_000_000, error_ns));
        let analysis = Analysis::build(&RunContext { nic, ..facts }, &stamped);
        check_partition(&analysis)?;
        let lifetimes = &analysis.lifetimes;
        prop_assert!(lifetimes.nic.received.used || lifetimes.messages.is_empty());
        for m in &lifetimes.messages {
            let expected = m.driver_ns - before(m.driver_ns);
            prop_assert!(m.nic_ns.abs_diff(expected) <= u64::from(m.nic_error_ns), "{m:?}, NIC {expected}");
            prop_assert!(u64::from(m.nic_error_ns) <= 4 * error_ns + 10, "{m:?}");
            prop_assert_eq!(m.ends(Leg::Receive).map(|e| e.0), Some(m.nic_ns));
            let waited = time_of(&analysis, m.id, Leg::Receive, Frame::NicToDriver, Role::R);
            prop_assert_eq!(waited, m.driver_ns - m.nic_ns);
            prop_assert!(m.nic_tx_ns == 0 || m.nic_tx_ns >= m.xmit_ns, "{m:?}");
        }
    }
}
