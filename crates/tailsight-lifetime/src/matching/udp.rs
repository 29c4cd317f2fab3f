//! UDP: a message is a datagram. A datagram that is queued on a socket fires that socket's hand-off on the same core,
//! right after its protocol processing; a socket's receive calls take datagrams in that order. A datagram without a
//! hand-off was dropped (a full socket buffer, no socket).

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use tailsight_trace::{Event, FlowKey};

use super::{Extra, Found, RecvCall};
use crate::model::{Message, flags};

#[derive(Clone, Copy, Debug)]
struct Datagram {
    key: FlowKey,
    bytes: u32,
    driver_ns: u64,
    driver_cpu: u16,
    stack_ns: u64,
    stack_cpu: u16,
}

/// All UDP sockets of the target.
#[derive(Clone, Debug, Default)]
pub struct Datagrams {
    /// Before protocol processing, by flow.
    early: FxHashMap<FlowKey, VecDeque<(u64, u16, u32)>>,
    /// In protocol processing, no hand-off yet, by local port.
    arriving: FxHashMap<u16, VecDeque<Datagram>>,
    /// On a socket's queue, by the socket's cookie.
    queued: FxHashMap<u32, VecDeque<(Datagram, u64, u16)>>,
}

/// A datagram that has no hand-off after this long has none.
const HANDOFF_WITHIN_NS: u64 = 10_000_000;

impl Datagrams {
    /// A packet before protocol processing.
    pub fn early(&mut self, event: &Event, cpu: u16) {
        let queue = self.early.entry(FlowKey::of(event)).or_default();
        if queue.len() == 4096 {
            queue.pop_front();
        }
        queue.push_back((event.ts, cpu, event.c_lo()));
    }

    /// A packet in protocol processing.
    pub fn stack(&mut self, event: &Event, cpu: u16, found: &mut Found) {
        let key = FlowKey::of(event);
        let bytes = event.c_lo();
        let mut sight = (event.ts, cpu);
        if let Some(queue) = self.early.get_mut(&key) {
            while let Some((ts, early_cpu, early_bytes)) = queue.pop_front() {
                if early_bytes == bytes {
                    sight = (ts, early_cpu);
                    break;
                }
            }
        }
        let arriving = self.arriving.entry(key.local_port()).or_default();
        while arriving.front().is_some_and(|d| event.ts - d.stack_ns > HANDOFF_WITHIN_NS) {
            arriving.pop_front();
            found.lose("dropped", 1);
        }
        // The same datagram seen on a second device (veth, bridge) a moment ago on this core: one message.
        if let Some(last) = arriving.back_mut()
            && last.key == key
            && last.bytes == bytes
            && last.stack_cpu == cpu
            && sight == (event.ts, cpu)
        {
            last.stack_ns = event.ts;
            return;
        }
        arriving.push_back(Datagram {
            key,
            bytes,
            driver_ns: sight.0,
            driver_cpu: sight.1,
            stack_ns: event.ts,
            stack_cpu: cpu,
        });
    }

    /// A socket was made readable: the last datagram for its port on this core is on its queue.
    pub fn handoff(&mut self, event: &Event, cpu: u16, found: &mut Found) {
        let key = FlowKey::of(event);
        let Some(arriving) = self.arriving.get_mut(&key.local_port()) else {
            return;
        };
        let at = match arriving.iter().rposition(|d| d.stack_cpu == cpu) {
            Some(at) => at,
            // Another core's datagram, queued by this one on its behalf.
            None if !arriving.is_empty() => 0,
            None => return,
        };
        // Earlier ones of the same core came and went without a hand-off.
        let before = arriving.len();
        let datagram = arriving.remove(at).expect("the position is inside");
        let stale = |d: &Datagram| d.stack_cpu == datagram.stack_cpu && d.stack_ns < datagram.stack_ns;
        arriving.retain(|d| !stale(d));
        found.lose("dropped", (before - 1 - arriving.len()) as u64);
        self.queued.entry(event.c_lo()).or_default().push_back((datagram, event.ts, cpu));
    }

    /// A receive call took a datagram.
    pub fn recv(
        &mut self,
        event: &Event,
        call: RecvCall,
        flow_of: &mut dyn FnMut(FlowKey) -> u32,
        found: &mut Found,
    ) -> std::ops::Range<u32> {
        let first = found.messages.len() as u32;
        if let Some((d, handoff_ns, handoff_cpu)) = self.queued.get_mut(&event.c_hi()).and_then(VecDeque::pop_front) {
            let mut message = Message {
                flow: flow_of(d.key),
                bytes: d.bytes,
                tid: call.tid,
                driver_ns: d.driver_ns,
                stack_ns: d.stack_ns,
                handoff_ns,
                recv_enter_ns: call.entered,
                recv_ns: call.ts,
                driver_cpu: d.driver_cpu,
                handoff_cpu,
                recv_cpu: call.cpu,
                batch: 1,
                ..Message::default()
            };
            // A reader that was already looking may take the datagram before the hand-off is announced.
            if message.handoff_ns > message.recv_ns {
                message.flags |= flags::NO_HANDOFF;
                message.handoff_ns = d.stack_ns;
                message.handoff_cpu = d.stack_cpu;
            }
            found.add(message, Extra { stack_cpu: d.stack_cpu, ..Extra::default() });
        }
        first..found.messages.len() as u32
    }

    /// The recording ended.
    pub fn end(&self, found: &mut Found) {
        found.lose("not received before the recording ended", self.queued.values().map(|q| q.len() as u64).sum());
        found.lose("dropped", self.arriving.values().map(|q| q.len() as u64).sum());
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
        let (mut d, mut f) = (Datagrams::default(), Found::default());
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
        assert_eq!(f.incomplete["dropped"], 1);
    }
}
