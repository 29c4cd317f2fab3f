//! What happened to the target's bytes between its send calls and the driver: queueing disciplines, retransmissions, drops.
//!
//! In: the events of outgoing packets, and the send calls, in time order. Out, for each answered message: when its reply's last byte
//! came to the queueing discipline, whether the connection was repairing a loss while the reply waited in its socket, and whether the
//! reply was dropped. All times in ns, CLOCK_MONOTONIC.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;
use tailsight_trace::event::flow_flags;
use tailsight_trace::{Event, FlowKey, fields};

use crate::messages::{Extra, UncommonList};
use crate::model::{Flow, Message, flags};

/// Packets that one flow has in queueing disciplines at most, before the oldest are forgotten.
const LIMIT: usize = 4096;

/// Every flow's way out.
#[derive(Clone, Debug, Default)]
pub struct Outgoing {
    flows: FxHashMap<FlowKey, Out>,
    /// By thread: the first packet since its last call that it gave to a queueing discipline, and of which flow.
    first_queued: FxHashMap<u32, (FlowKey, u64)>,
    counts: Counts,
}

/// What happened to packets of the flows that the target serves, over the whole recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments that were sent again and that the other end had not received before: it waited for them. (The last of a connection, where
    /// no later one tells what the other end reported, counts if the connection was repairing a loss.)
    pub retransmitted: u64,
    /// Packets that were dropped on their way out, by the kernel's number of the reason.
    pub dropped: BTreeMap<u32, u64>,
}

#[derive(Clone, Debug, Default)]
struct Out {
    /// Packets in a queueing discipline: (sequence number after the last byte, since when).
    waiting: VecDeque<(u32, u64)>,
    /// (when it was given to the driver, when it had come to the queueing discipline), in the order of the first.
    passed: Vec<(u64, u64)>,
    /// Retransmissions.
    retransmitted: Vec<Retransmission>,
    /// The application opened the connection.
    client: bool,
    /// Drops, with the reason.
    dropped: Vec<(u64, u32)>,
    /// Send calls at whose end the connection was repairing a loss.
    repairing: Vec<u64>,
    /// Where the last packet ends that the NIC stamped, until the driver has let go of it.
    stamped: Option<u32>,
}

/// A segment that was sent again.
#[derive(Clone, Copy, Debug)]
struct Retransmission {
    at: u64,
    /// The connection was repairing a loss; else it is a tail-loss probe, sent when an acknowledgement does not come.
    repairs: bool,
    /// Segments that the other end had reported as received twice by then.
    duplicates: u32,
}

/// The sequence number after the last byte of what was given to a device.
fn end_of(event: &Event) -> u32 {
    let fields::Packet { flow, sequence, bytes, .. } = fields::Packet::of(event);
    end(flow, sequence, bytes)
}

/// The same, of its parts. Datagrams have no sequence.
fn end(flow: fields::Flow, sequence: u32, bytes: u32) -> u32 {
    sequence.wrapping_add(if flow.flags & flow_flags::UDP == 0 { bytes } else { 0 })
}

impl Outgoing {
    /// A packet came to a queueing discipline.
    pub fn queued(&mut self, event: &Event) {
        let key = FlowKey::of(event);
        let waiting = &mut self.flows.entry(key).or_default().waiting;
        if waiting.len() == LIMIT {
            waiting.pop_front();
        }
        waiting.push_back((end_of(event), event.ts));
        let first = self.first_queued.entry(event.tid).or_insert((key, event.ts));
        if first.0 != key {
            *first = (key, event.ts);
        }
    }

    /// A packet was given to the driver. One that passes several devices was queued at each.
    pub fn driver(&mut self, event: &Event) {
        if self.flows.is_empty() {
            return;
        }
        let Some(out) = self.flows.get_mut(&FlowKey::of(event)) else { return };
        let end = end_of(event);
        // What was dropped or cut into segments stays behind.
        let Some(at) = out.waiting.iter().position(|(queued, _)| *queued == end) else { return };
        if let Some((_, since)) = out.waiting.drain(..=at).next_back() {
            out.passed.push((event.ts, since));
        }
    }

    /// A segment was retransmitted.
    pub fn retransmitted(&mut self, event: &Event) {
        let out = self.flows.entry(FlowKey::of(event)).or_default();
        let fields::Retransmit { flow, duplicates, .. } = fields::Retransmit::of(event);
        out.client = flow.flags & flow_flags::CLIENT != 0;
        let repairs = flow.flags & flow_flags::RECOVERY != 0;
        out.retransmitted.push(Retransmission { at: event.ts, repairs, duplicates });
    }

    /// The NIC stamped the packet that ends there: it left this host.
    pub fn left(&mut self, event: &Event) {
        self.flows.entry(FlowKey::of(event)).or_default().stamped = Some(fields::SentStamp::of(event).end);
    }

    /// A packet was dropped on its way out. A driver that has given the kernel the NIC's stamp of a packet may let go of it in
    /// the way in which the kernel drops packets (igb, and others); that is none.
    pub fn dropped(&mut self, event: &Event) {
        let out = self.flows.entry(FlowKey::of(event)).or_default();
        let fields::Drop { flow, sequence, bytes, reason } = fields::Drop::of(event);
        if out.stamped == Some(end(flow, sequence, bytes)) {
            out.stamped = None;
            return;
        }
        out.dropped.push((event.ts, reason));
        if flow.flags & flow_flags::CLIENT == 0 {
            *self.counts.dropped.entry(reason).or_default() += 1;
        }
    }

    /// A send call ended.
    pub fn sent(&mut self, key: FlowKey, event: &Event) {
        if event.aux & flow_flags::RECOVERY != 0 {
            self.flows.entry(key).or_default().repairing.push(event.ts);
        }
    }

    /// When a thread's send call on this flow gave its first packet to a queueing discipline, as far as that is known.
    pub fn first_of_call(&mut self, tid: u32, key: FlowKey) -> Option<u64> {
        self.first_queued.remove(&tid).filter(|(flow, _)| *flow == key).map(|x| x.1)
    }

    /// A receive call ended: the thread is in no send call.
    pub fn received(&mut self, tid: u32) {
        self.first_queued.remove(&tid);
    }

    /// Tells each message what its reply met. Returns what happened in all.
    pub fn finish<'a>(
        mut self,
        flows: &[Flow],
        messages: impl Iterator<Item = (&'a mut Message, &'a mut Extra)>,
        uncommon: &mut UncommonList,
    ) -> Counts {
        let serving = self.flows.values().filter(|out| !out.client);
        self.counts.retransmitted = serving.map(Out::waited_for).sum();
        if !self.flows.is_empty() {
            for (m, extra) in messages {
                let key = &flows[m.flow as usize].key;
                if let Some(out) = self.flows.get(key) {
                    out.tell((m, extra), uncommon, key.is_udp());
                }
            }
        }
        self.counts
    }
}

impl Out {
    /// How many segments were sent again that the other end had not received before.
    fn waited_for(&self) -> u64 {
        let [first, .., last] = self.retransmitted[..] else {
            return self.retransmitted.iter().filter(|again| again.repairs).count() as u64;
        };
        // Each count tells of those before it.
        let duplicates = u64::from(last.duplicates.wrapping_sub(first.duplicates));
        (self.retransmitted.len() as u64 - 1).saturating_sub(duplicates) + u64::from(last.repairs)
    }

    fn tell(&self, (m, extra): (&mut Message, &mut Extra), uncommon: &mut UncommonList, udp: bool) {
        if m.send_ns == 0 {
            return;
        }
        if udp && m.flags & flags::REPLY_DROPPED != 0 {
            m.xmit_ns = 0; // Other datagrams of the reply may have left: nobody has all of it.
            return;
        }
        let dropped = self.dropped[self.dropped.partition_point(|d| d.0 < m.send_ns)..].first();
        if m.xmit_ns == 0 {
            // A datagram that is dropped is dropped inside its call; a segment waits to be sent again.
            if dropped.is_some_and(|d| d.0 <= extra.sent_ns) {
                m.flags |= flags::REPLY_DROPPED;
            }
            return;
        }
        if let Ok(at) = self.passed.binary_search_by_key(&m.xmit_ns, |p| p.0) {
            extra.queued_ns = self.passed[at].1;
        }
        let until = if extra.queued_ns == 0 { m.xmit_ns } else { extra.queued_ns };
        // A datagram is not sent again: if one left, another one was dropped.
        if let Some(&(ts, reason)) = dropped.filter(|d| d.0 <= until && !udp) {
            let uncommon = uncommon.entry(extra);
            (uncommon.dropped_ns, uncommon.drop_reason) = (ts, reason);
        }
        let again = self.retransmitted[self.retransmitted.partition_point(|again| again.at < extra.sent_ns)..].first();
        if again.is_some_and(|again| again.at <= until) || self.repairing.binary_search(&extra.sent_ns).is_ok() {
            uncommon.entry(extra).repairing = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Uncommon;
    use tailsight_trace::event::Kind;

    const KEY: FlowKey = FlowKey { addrs: 1, ports: 11211 << 16 | 4000, proto: 0 };

    fn event(ts: u64, kind: Kind, aux: u16, seq: u64, c: u64) -> Event {
        let (a, b) = (KEY.addrs, u64::from(KEY.ports) | seq << 32);
        Event { ts, kind: kind as u8, aux, tid: 7, a, b, c, ..Event::default() }
    }

    /// A reply sent from 100 to 110 whose last byte was given to the driver at `xmit`.
    fn told(out: Outgoing, xmit: u64) -> (Message, Extra, Uncommon) {
        let mut m = Message { send_ns: 100, xmit_ns: xmit, ..Message::default() };
        let mut extra = Extra { sent_ns: 110, send_tid: 7, ..Extra::default() };
        let flow = Flow { key: KEY, name: String::new(), messages: 1 };
        let mut uncommon = UncommonList::default();
        out.finish(&[flow], std::iter::once((&mut m, &mut extra)), &mut uncommon);
        (m, extra, *uncommon.of(&extra))
    }

    #[test]
    fn the_last_packet_s_time_in_the_queueing_discipline_is_found_by_its_last_byte() {
        let mut out = Outgoing::default();
        out.queued(&event(105, Kind::TxQueue, 0, 1000, 100));
        out.queued(&event(150, Kind::TxQueue, 0, 1100, 50));
        // Cut into two segments: the second ends where the queued packet does.
        out.driver(&event(160, Kind::TxDriver, 0, 1000, 60));
        out.driver(&event(161, Kind::TxDriver, 0, 1060, 40));
        out.driver(&event(190, Kind::TxDriver, 0, 1100, 50));
        assert_eq!(out.first_of_call(7, KEY), Some(105));
        assert_eq!(told(out.clone(), 190).1.queued_ns, 150);
        assert_eq!(told(out.clone(), 161).1.queued_ns, 105);
        assert_eq!(told(out, 160).1.queued_ns, 0, "a segment of its own was not seen in the queue");
    }

    #[test]
    fn a_retransmission_counts_while_the_reply_waits_in_its_socket() {
        let with = |ts, xmit| {
            let mut out = Outgoing::default();
            out.retransmitted(&event(ts, Kind::TcpRetransmit, 0, 900, 100));
            told(out, xmit).2.repairing
        };
        assert!(!with(109, 200), "before the call had ended: its own thread's time");
        assert!(with(110, 200) && with(200, 200));
        assert!(!with(201, 200), "after the reply was handed over");
        let mut out = Outgoing::default();
        out.sent(KEY, &event(110, Kind::Send, flow_flags::RECOVERY, 1000, 100));
        assert!(told(out, 200).2.repairing, "the repair had begun before");
    }

    /// Of 3,578 tail-loss probes after delayed acknowledgements, each reported as received twice, it was said that the client had waited.
    #[test]
    fn a_segment_that_had_arrived_before_it_was_sent_again_is_no_wait() {
        let counted = |segments: &[(u16, u32)]| {
            let mut out = Outgoing::default();
            for (at, &(flags, duplicates)) in (100..).zip(segments) {
                out.retransmitted(&event(at, Kind::TcpRetransmit, flags, 900, 100 | u64::from(duplicates) << 32));
            }
            out.finish(&[], std::iter::empty(), &mut UncommonList::default()).retransmitted
        };
        let (probe, repair) = (0, flow_flags::RECOVERY);
        assert_eq!(counted(&[(probe, 7), (probe, 8), (probe, 9)]), 0, "each of those that are known");
        assert_eq!(counted(&[(probe, 7), (probe, 7), (probe, 8)]), 1, "one of them was lost");
        assert_eq!(counted(&[(repair, 0), (repair, 0), (repair, 0)]), 3);
        assert_eq!(
            counted(&[(repair, 0), (repair, 1), (repair, 2)]),
            1,
            "a time-out in vain; the last one may have been needed"
        );
        assert_eq!((counted(&[(probe, 0)]), counted(&[(repair, 0)]), counted(&[])), (0, 1, 0));
        assert_eq!(counted(&[(repair | flow_flags::CLIENT, 0)]), 0, "on a connection to another server");
    }

    #[test]
    fn a_datagram_that_left_is_not_the_one_that_was_dropped() {
        let mut out = Outgoing::default();
        let key = FlowKey { proto: flow_flags::UDP as u8, ..KEY };
        out.dropped(&Event {
            aux: flow_flags::OUT | flow_flags::UDP,
            ..event(150, Kind::SkbDrop, 0, 0, 100 | 65 << 32)
        });
        let mut m = Message { send_ns: 100, xmit_ns: 900, ..Message::default() };
        let mut extra = Extra { sent_ns: 110, ..Extra::default() };
        let (flow, mut uncommon) = (Flow { key, name: String::new(), messages: 1 }, UncommonList::default());
        out.finish(&[flow], std::iter::once((&mut m, &mut extra)), &mut uncommon);
        assert_eq!(
            (uncommon.of(&extra).dropped_ns, m.flags),
            (0, 0),
            "that one was sent after it, and nobody sends it again"
        );
    }

    /// A recording of an emulated igb said that 154 of 261 replies had been dropped, all of which the NIC had sent.
    #[test]
    fn a_packet_that_the_nic_has_stamped_is_not_dropped_by_the_driver_that_lets_go_of_it() {
        let mut out = Outgoing::default();
        let drop_of = |ts| event(ts, Kind::SkbDrop, flow_flags::OUT, 1000, 100 | 2 << 32);
        out.left(&event(150, Kind::NicTx, 0, 1100, 0));
        out.dropped(&drop_of(151));
        assert_eq!(out.counts, Counts::default());
        out.dropped(&drop_of(300));
        assert_eq!(out.counts.dropped, BTreeMap::from([(2, 1)]), "it is sent again, and dropped");
        out.left(&event(350, Kind::NicTx, 0, 1100, 0));
        out.dropped(&event(351, Kind::SkbDrop, flow_flags::OUT, 1100, 100 | 2 << 32));
        assert_eq!(out.counts.dropped, BTreeMap::from([(2, 2)]), "another packet");
    }

    #[test]
    fn a_drop_on_the_way_out_is_the_reply_s_when_it_comes_between_its_call_and_its_hand_over() {
        let with = |ts, xmit| {
            let mut out = Outgoing::default();
            out.dropped(&event(ts, Kind::SkbDrop, flow_flags::OUT, 1000, 100 | 65 << 32));
            let (m, _, uncommon) = told(out, xmit);
            (uncommon.dropped_ns, uncommon.drop_reason, m.flags & flags::REPLY_DROPPED != 0)
        };
        assert_eq!(with(99, 200), (0, 0, false));
        assert_eq!(with(105, 200), (105, 65, false));
        assert_eq!(with(201, 200), (0, 0, false));
        assert_eq!(with(105, 0), (0, 0, true), "a datagram that never came to the driver");
    }
}
