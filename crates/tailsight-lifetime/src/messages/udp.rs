//! UDP: a message is a datagram. A datagram that is queued on a socket fires that socket's hand-off on the same core, right after its
//! protocol processing; a socket's receive calls take datagrams in that order. A datagram without a hand-off was dropped (a full socket
//! buffer, no socket). A thread that is already in its receive call may take a datagram before the hand-off event.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use tailsight_trace::{Event, FlowKey, fields};

use super::{Extra, RecvCall, Traffic};
use crate::messages::nic::Stamp;
use crate::model::{Incomplete, Message, Threshold, flags};

/// A datagram before protocol processing.
#[derive(Clone, Copy, Debug)]
struct Early {
    ts: u64,
    cpu: u16,
    bytes: u32,
    ifindex: u32,
    nic: Stamp,
}

#[derive(Clone, Copy, Debug)]
struct Datagram {
    key: FlowKey,
    bytes: u32,
    /// The devices it was seen on: the first and the last.
    entry: u32,
    ifindex: u32,
    driver_ns: u64,
    driver_cpu: u16,
    stack_ns: u64,
    stack_cpu: u16,
    /// What was kept of it, 0: nothing.
    capture: u32,
    /// The NIC's stamp.
    nic: Stamp,
    /// A receive call had it before its hand-off was announced.
    taken: bool,
    /// How often a receive call took a later one.
    passed: u8,
}

/// All UDP sockets of the target.
#[derive(Clone, Debug, Default)]
pub struct Datagrams {
    /// Before protocol processing, by flow.
    early: FxHashMap<FlowKey, VecDeque<Early>>,
    /// In protocol processing, no hand-off yet, by local port.
    arriving: FxHashMap<u16, VecDeque<Datagram>>,
    /// On a socket's queue, by the socket's cookie.
    queued: FxHashMap<u32, VecDeque<(Datagram, u64, u16)>>,
    /// What was kept of the datagram that was received last.
    pub received: u32,
}

/// A datagram that was passed over by more receive calls than this was itself received unseen.
const PASSED_LIMIT: u8 = 64;
/// More datagrams without a hand-off than this are not remembered, a flow or a port.
const LIMIT: usize = 4096;

impl Datagrams {
    /// A packet before protocol processing.
    pub fn early(&mut self, event: &Event, cpu: u16) {
        let queue = self.early.entry(FlowKey::of(event)).or_default();
        if queue.len() == LIMIT {
            queue.pop_front();
        }
        let fields::Packet { bytes, ifindex, .. } = fields::Packet::of(event);
        queue.push_back(Early { ts: event.ts, cpu, bytes, ifindex, nic: Stamp::default() });
    }

    /// The NIC's stamp of the packet of that event on that core.
    pub fn stamped(&mut self, event: &Event, cpu: u16, stamp: Stamp) {
        let key = FlowKey::of(event);
        let early = self.early.get_mut(&key).and_then(|queue| queue.back_mut());
        if let Some(early) = early.filter(|e| e.ts == event.ts && e.cpu == cpu) {
            early.nic = stamp;
        }
        let arriving = self.arriving.get_mut(&key.local_port());
        let is_stamped =
            |d: &&mut Datagram| d.key == key && d.stack_ns == event.ts && d.stack_cpu == cpu && d.nic.ns == 0;
        if let Some(datagram) = arriving.and_then(|datagrams| datagrams.iter_mut().rev().find(is_stamped)) {
            datagram.nic = stamp;
        }
    }

    /// The first sight of a packet that enters protocol processing: the oldest of its size on its device. Older ones of
    /// that device never got here.
    fn first_sight(&mut self, key: FlowKey, bytes: u32, ifindex: u32) -> Option<Early> {
        let queue = self.early.get_mut(&key)?;
        let at = queue.iter().position(|e| e.ifindex == ifindex && e.bytes == bytes)?;
        let first = queue[at];
        if at == 0 {
            queue.pop_front();
        } else {
            let mut place = 0..;
            queue.retain(|e| place.next().is_some_and(|i: usize| i > at || e.ifindex != ifindex));
        }
        Some(first)
    }

    /// A packet in protocol processing.
    pub fn stack(&mut self, event: &Event, cpu: u16, traffic: &mut Traffic) {
        let key = FlowKey::of(event);
        let fields::Packet { bytes, ifindex, .. } = fields::Packet::of(event);
        let first = self.first_sight(key, bytes, ifindex);
        let arriving = self.arriving.entry(key.local_port()).or_default();
        while arriving.len() >= LIMIT
            || arriving.front().is_some_and(|d| event.ts.saturating_sub(d.stack_ns) > Threshold::DatagramHandoff.ns())
        {
            if arriving.pop_front().is_some_and(|d| !d.taken) {
                traffic.lose(Incomplete::Dropped, 1);
            }
        }
        // The same datagram on a further device (veth, bridge): one message, and the last device is the one that counts.
        // A packet does not come back to the device it entered by: that is the next one.
        let same =
            |d: &Datagram| d.key == key && d.bytes == bytes && d.ifindex != ifindex && d.entry != ifindex && !d.taken;
        if let Some(datagram) = arriving.iter_mut().find(|d| same(d)) {
            (datagram.ifindex, datagram.stack_ns, datagram.stack_cpu) = (ifindex, event.ts, cpu);
            return;
        }
        arriving.push_back(Datagram {
            key,
            bytes,
            entry: ifindex,
            ifindex,
            driver_ns: first.map_or(event.ts, |e| e.ts),
            driver_cpu: first.map_or(cpu, |e| e.cpu),
            stack_ns: event.ts,
            stack_cpu: cpu,
            capture: 0,
            nic: first.map_or_else(Stamp::default, |e| e.nic),
            taken: false,
            passed: 0,
        });
    }

    /// First bytes of the packet that entered protocol processing with this event are kept.
    pub fn captured(&mut self, event: &Event, cpu: u16, capture: u32) {
        let key = FlowKey::of(event);
        let arriving = self.arriving.entry(key.local_port()).or_default();
        let is_captured = |d: &&mut Datagram| d.key == key && d.stack_cpu == cpu && d.stack_ns == event.ts;
        if let Some(datagram) = arriving.iter_mut().rev().find(is_captured) {
            datagram.capture = capture;
        }
    }

    /// A packet was dropped: the one that this core saw last, before or in protocol processing.
    pub fn dropped(&mut self, event: &Event, cpu: u16, traffic: &mut Traffic) {
        let (key, bytes) = (FlowKey::of(event), fields::Drop::of(event).bytes);
        let arriving = self.arriving.entry(key.local_port()).or_default();
        let last = arriving.iter().rposition(|d| d.key == key && d.bytes == bytes && d.stack_cpu == cpu && !d.taken);
        let queue = self.early.entry(key).or_default();
        let early = queue.iter().rposition(|e| e.bytes == bytes && e.cpu == cpu);
        let in_stack = last.map_or(0, |i| arriving[i].stack_ns);
        let before_stack = early.map_or(0, |i| queue[i].ts);
        let gone = if in_stack >= before_stack {
            last.and_then(|i| arriving.remove(i)).is_some()
        } else {
            early.and_then(|i| queue.remove(i)).is_some()
        };
        traffic.lose(Incomplete::Dropped, u64::from(gone));
    }

    /// A socket was made readable: the last datagram for its port on this core is on its queue.
    pub fn handoff(&mut self, event: &Event, cpu: u16, traffic: &mut Traffic) {
        let key = FlowKey::of(event);
        let Some(arriving) = self.arriving.get_mut(&key.local_port()) else {
            return;
        };
        let on_core = (0..arriving.len()).filter(|&i| arriving[i].stack_cpu == cpu);
        // Else another core's datagram, queued by this one on its behalf.
        let at = on_core.max_by_key(|&i| arriving[i].stack_ns).unwrap_or(0);
        let Some(datagram) = arriving.remove(at) else { return };
        // Earlier ones of the same core and device came and went without a hand-off.
        arriving.retain(|d| {
            let stale =
                d.stack_cpu == datagram.stack_cpu && d.ifindex == datagram.ifindex && d.stack_ns < datagram.stack_ns;
            traffic.lose(Incomplete::Dropped, u64::from(stale && !d.taken));
            !stale
        });
        if !datagram.taken {
            self.queued.entry(fields::Handoff::of(event).cookie).or_default().push_back((datagram, event.ts, cpu));
        }
    }

    /// The datagram that a receive call took, with its hand-off. It is the first of the size that the call returned: when
    /// several threads read one socket, their events may come in another order than their reads. Without one of that
    /// size it is the first (the caller's buffer was smaller).
    fn take(&mut self, event: &Event, traffic: &mut Traffic) -> Option<(Datagram, Option<(u64, u16)>)> {
        let fields::Recv { bytes, cookie, .. } = fields::Recv::of(event);
        let queue = self.queued.entry(cookie).or_default();
        let same_size = queue.iter().position(|(d, ..)| d.bytes == bytes);
        if same_size.is_none() {
            // One that is not announced yet: the newest, older ones without a hand-off were dropped.
            let arriving = self.arriving.entry(FlowKey::of(event).local_port()).or_default();
            let on_the_way = arriving.iter_mut().filter(|d| !d.taken && d.bytes == bytes);
            if let Some(datagram) = on_the_way.max_by_key(|d| d.stack_ns) {
                datagram.taken = true;
                return Some((*datagram, None));
            }
        }
        let at = same_size.unwrap_or(0);
        let (datagram, ts, cpu) = queue.remove(at)?;
        queue.iter_mut().take(at).for_each(|(d, ..)| d.passed += 1);
        // Nobody is that late: its receive call was not recorded.
        if at > 0 && queue[0].0.passed > PASSED_LIMIT {
            queue.pop_front();
            traffic.lose(Incomplete::ReceiveNotSeen, 1);
        }
        Some((datagram, Some((ts, cpu))))
    }

    /// A receive call took a datagram.
    pub fn recv(
        &mut self,
        event: &Event,
        call: RecvCall,
        flow_of: &mut dyn FnMut(FlowKey) -> u32,
        traffic: &mut Traffic,
    ) -> std::ops::Range<u32> {
        let first = traffic.messages.len() as u32;
        if let Some((d, handoff)) = self.take(event, traffic) {
            self.received = d.capture;
            let (handoff_ns, handoff_cpu) = handoff.unwrap_or((d.stack_ns, d.stack_cpu));
            let message = Message {
                flow: flow_of(d.key),
                bytes: d.bytes,
                tid: call.tid,
                nic_ns: d.nic.ns,
                nic_error_ns: d.nic.error_ns,
                driver_ns: d.driver_ns,
                stack_ns: d.stack_ns,
                handoff_ns,
                recv_enter_ns: call.entered,
                recv_ns: call.ts,
                driver_cpu: d.driver_cpu,
                handoff_cpu,
                recv_cpu: call.cpu,
                batch: 1,
                flags: if handoff.is_none() { flags::NO_HANDOFF } else { 0 },
                ..Message::default()
            };
            traffic.add(message, Extra { stack_cpu: d.stack_cpu, ..Extra::default() });
        }
        first..traffic.messages.len() as u32
    }

    /// The recording ended.
    pub fn end(&self, traffic: &mut Traffic) {
        traffic.lose(Incomplete::RecordingEnded, self.queued.values().map(|q| q.len() as u64).sum());
        let lost = self.arriving.values().flatten().filter(|d| !d.taken).count();
        traffic.lose(Incomplete::Dropped, lost as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_trace::event::{Kind, flow_flags};

    fn event(kind: Kind, ts: u64, bytes: u32) -> Event {
        let ports = 11211u32 << 16 | 4000;
        Event {
            ts,
            kind: kind as u8,
            aux: flow_flags::UDP,
            a: 1,
            b: u64::from(ports),
            c: u64::from(bytes),
            ..Event::default()
        }
    }
    fn handoff(ts: u64, cookie: u32) -> Event {
        event(Kind::Handoff, ts, cookie)
    }
    fn recv(ts: u64, cookie: u32) -> Event {
        Event { c: 10 | u64::from(cookie) << 32, ..event(Kind::Recv, ts, 0) }
    }
    fn call(ts: u64) -> RecvCall {
        RecvCall { ts, entered: ts, cpu: 0, tid: 1 }
    }

    #[test]
    fn fifo_with_a_drop_in_the_middle() {
        let (mut d, mut f) = (Datagrams::default(), Traffic::default());
        d.early(&event(Kind::RxBacklog, 1, 10), 0);
        d.stack(&event(Kind::RxStack, 2, 10), 0, &mut f);
        d.handoff(&handoff(3, 9), 0, &mut f);
        d.stack(&event(Kind::RxStack, 4, 20), 0, &mut f); // no hand-off: dropped
        d.stack(&event(Kind::RxStack, 6, 30), 0, &mut f);
        d.handoff(&handoff(7, 9), 0, &mut f);
        let mut flow = |_| 0;
        d.recv(&recv(10, 9), call(10), &mut flow, &mut f);
        d.recv(&recv(11, 9), call(11), &mut flow, &mut f);
        assert_eq!(d.recv(&recv(12, 9), call(12), &mut flow, &mut f), 2..2);
        let got: Vec<_> = f.messages.iter().map(|m| (m.driver_ns, m.handoff_ns, m.recv_ns, m.bytes)).collect();
        assert_eq!(got, vec![(1, 3, 10, 10), (6, 7, 11, 30)]);
        assert_eq!(f.incomplete[&Incomplete::Dropped], 1);
    }
}
