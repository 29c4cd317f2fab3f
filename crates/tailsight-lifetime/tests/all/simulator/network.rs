//! Packets on their way in: a client that sends, reorders, retransmits; GRO; devices; sockets; drops; and packets out.

use std::collections::VecDeque;

use tailsight_trace::event::{Kind, flow_flags};

use super::machine::Machine;
use super::truth::{Message, Recv};
use super::{FlowPlan, Script};

/// The server's port.
pub const PORT: u16 = 11211;
/// The UDP socket's cookie.
pub const UDP_COOKIE: u64 = 77;

/// A packet in a core's receive queue: bytes `from..to` of its flow's stream.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub flow: usize,
    pub from: u64,
    pub to: u64,
    /// Its first sight before protocol processing.
    pub early: Option<(u64, u16)>,
}

#[derive(Debug)]
pub struct Flow {
    pub udp: bool,
    pub owner: usize,
    addrs: u64,
    ports: u64,
    flags: u16,
    isn: u32,
    /// Bytes the client has sent.
    sent: u64,
    wire: VecDeque<(u64, u64)>,
    /// For each byte, the message that it came in first, and whether the socket has it.
    bytes: Vec<(Option<usize>, bool)>,
    pub next: u64,
    pub copied: u64,
    /// What the events of receive calls have said of `copied`.
    reported: u64,
    pub locked: bool,
    /// Packets that came while a receive call held the socket.
    held: VecDeque<(u64, u64)>,
    /// Reply bytes written, and given to the driver.
    pub written: u64,
    pub transmitted: u64,
    /// Replies whose last byte the driver has not got: (end, messages).
    pub expected: Vec<(u64, Vec<usize>)>,
}

/// Where replies begin in the sequence space: they wrap, too.
const REPLY_ISN: u32 = u32::MAX - 500;

impl Flow {
    pub fn new(i: usize, plan: &FlowPlan, script: &Script) -> Flow {
        let remote = if plan.udp { 5000 } else { 4000 } + i as u64;
        let flags = if plan.v6 { flow_flags::V6 } else { 0 } | if plan.udp { flow_flags::UDP } else { 0 };
        Flow {
            udp: plan.udp,
            owner: i % script.threads as usize,
            addrs: if plan.v6 { 0x9e37_79b9_0000_0001 } else { 0x0a4d_0001_0a4d_0002 },
            ports: u64::from(PORT) << 16 | remote,
            flags,
            isn: plan.isn,
            sent: 0,
            wire: VecDeque::new(),
            bytes: Vec::new(),
            next: 0,
            copied: 0,
            reported: 0,
            locked: false,
            held: VecDeque::new(),
            written: 0,
            transmitted: 0,
            expected: Vec::new(),
        }
    }

    fn seq(&self, offset: u64) -> u64 {
        if self.udp { 0 } else { u64::from(self.isn.wrapping_add(offset as u32)) << 32 }
    }

    /// More segments from the client.
    fn fill(&mut self, arg: usize) {
        for k in 0..1 + arg % 3 {
            let bytes = [1, 20, 20, 90][(arg / 4 + k) % 4];
            self.wire.push_back((self.sent, self.sent + bytes));
            self.sent += bytes;
        }
        if !self.udp && arg / 16 % 6 == 1 {
            // A retransmission with other borders than the first time.
            let low = self.copied.saturating_sub(30);
            let from = low + (arg as u64 / 7) % (self.sent - low);
            let to = (from + 1 + arg as u64 / 3 % 120).min(self.sent);
            self.wire.push_back((from, to));
        }
        self.bytes.resize(self.sent as usize, (None, false));
    }
}

impl Machine {
    fn packet(&mut self, c: usize, kind: Kind, flow: usize, range: (u64, u64), high: u64) -> u64 {
        let f = &self.flows[flow];
        let words = [f.addrs, f.ports | f.seq(range.0), (range.1 - range.0) | high << 32];
        let flags = f.flags;
        self.emit(c, kind, flags, words)
    }

    fn on_socket(&mut self, c: usize, kind: Kind, flow: usize, position: u64, word: u64) -> u64 {
        let f = &self.flows[flow];
        let words = [f.addrs, f.ports | position, word];
        let flags = f.flags;
        self.emit(c, kind, flags, words)
    }

    /// A core takes packets of one flow from the wire: a NAPI driver's poll with GRO, or a local sender's transmit.
    pub fn poll(&mut self, c: usize, arg: usize, napi: bool) {
        let flow = arg % self.flows.len();
        // The packets of a flow stay on one core while any is queued, as with RSS.
        let elsewhere = (0..self.cores.len()).any(|o| o != c && self.cores[o].packets.iter().any(|p| p.flow == flow));
        if elsewhere {
            return;
        }
        let f = &mut self.flows[flow];
        if f.wire.is_empty() {
            f.fill(arg / 8);
        }
        let at = arg / 32 % f.wire.len().min(3);
        let at = if f.udp { 0 } else { at };
        let Some(first) = f.wire.remove(at) else { return };
        let mut parts = vec![first];
        if napi && !f.udp && (arg / 128).is_multiple_of(3) && f.wire.get(at).is_some_and(|n| n.0 == first.1) {
            parts.extend(f.wire.remove(at));
        }
        if !f.udp && (arg / 512).is_multiple_of(8) {
            f.wire.push_back(first);
        }
        let kind = if napi { Kind::RxNapi } else { Kind::RxBacklog };
        let mut early = None;
        let early_parts = if self.early_hooks { parts.as_slice() } else { &[] };
        for &part in early_parts {
            let ts = self.packet(c, kind, flow, part, 2);
            early.get_or_insert((ts, c as u16));
        }
        let (from, to) = (first.0, parts[parts.len() - 1].1);
        // The backlog is full.
        if self.flows[flow].udp && self.early_hooks && (arg / 64).is_multiple_of(9) {
            self.packet(c, Kind::SkbDrop, flow, (from, to), 6);
            return;
        }
        self.cores[c].packets.push_back(Packet { flow, from, to, early });
    }

    /// Protocol processing of the next packet.
    pub fn receive(&mut self, c: usize, arg: usize) {
        let Some(packet) = self.cores[c].packets.pop_front() else { return };
        // Two cores that put datagrams on one queue at the same moment cannot be told apart.
        if self.flows[packet.flow].udp && self.cores.iter().any(|core| core.announce.is_some()) {
            return self.cores[c].packets.push_front(packet);
        }
        let (flow, range) = (packet.flow, (packet.from, packet.to));
        let mut stack = self.packet(c, Kind::RxStack, flow, range, 2);
        let driver = packet.early.unwrap_or((stack, c as u16));
        // Through a bridge or a second veth: the same packet once more.
        let twice = self.bridge && arg.is_multiple_of(5);
        if twice {
            let again = self.packet(c, Kind::RxStack, flow, range, 3);
            if self.flows[flow].udp {
                stack = again;
            }
        }
        let dropped = (arg / 8).is_multiple_of(9);
        let message = Message {
            flow,
            end: 0,
            bytes: range.1 - range.0,
            driver,
            stack: (stack, c as u16),
            handoff: None,
            recv: None,
            send: None,
            xmit: None,
            batch: None,
            again: false,
        };
        if self.flows[flow].udp {
            if dropped {
                if self.bridge || (arg / 128).is_multiple_of(2) {
                    self.packet(c, Kind::SkbDrop, flow, range, 6);
                }
                return;
            }
            self.truth.messages.push(message);
            self.datagrams.push_back(self.truth.messages.len() - 1);
            self.cores[c].announce = Some(self.truth.messages.len() - 1);
            return;
        }
        self.register(message, range, twice, c);
        if dropped {
            self.packet(c, Kind::SkbDrop, flow, range, 6);
        } else if self.flows[flow].locked {
            self.flows[flow].held.push_back(range);
        } else {
            self.accept(c, flow, range, arg / 128);
        }
    }

    /// The bytes that are new make messages.
    fn register(&mut self, like: Message, (from, to): (u64, u64), twice: bool, c: usize) {
        let messages = &mut self.truth.messages;
        let mut before = None;
        for offset in from..to {
            let reported = self.flows[like.flow].reported;
            let byte = &mut self.flows[like.flow].bytes[offset as usize];
            if let Some(message) = byte.0 {
                // The last device's protocol processing is the one that counts, for every message in the packet.
                let message = &mut messages[message];
                if message.recv.is_none() && offset >= reported {
                    message.again = true;
                    if twice {
                        message.stack.1 = c as u16;
                    }
                }
                before = None;
                continue;
            }
            let index = *before.get_or_insert_with(|| {
                messages.push(Message { bytes: 0, ..like.clone() });
                messages.len() - 1
            });
            messages[index].bytes += 1;
            messages[index].end = offset + 1;
            byte.0 = Some(index);
        }
    }

    /// The socket takes bytes; what became readable is handed to the application.
    fn accept(&mut self, c: usize, flow: usize, (from, to): (u64, u64), arg: usize) {
        let f = &mut self.flows[flow];
        for offset in from..to {
            f.bytes[offset as usize].1 = true;
        }
        let before = f.next;
        while f.bytes.get(f.next as usize).is_some_and(|b| b.1) {
            f.next += 1;
        }
        if f.next == before {
            return;
        }
        let (next, position, owner) = (f.next, f.seq(f.next), f.owner);
        let at = self.on_socket(c, Kind::Handoff, flow, position, 1000 + flow as u64);
        for message in self.truth.messages.iter_mut().filter(|m| m.flow == flow && m.end <= next) {
            message.handoff.get_or_insert((at, c as u16));
        }
        self.wake(c, owner, arg);
    }

    /// The socket's lock is released: packets that came meanwhile are processed by the one who held it.
    pub fn release(&mut self, c: usize, flow: usize) {
        self.flows[flow].locked = false;
        while let Some(range) = self.flows[flow].held.pop_front() {
            self.accept(c, flow, range, 0);
        }
    }

    /// A queued datagram is announced.
    pub fn announce(&mut self, c: usize, arg: usize) {
        let Some(index) = self.cores[c].announce.take() else { return };
        let at = self.on_socket(c, Kind::Handoff, self.truth.messages[index].flow, 0, UDP_COOKIE);
        self.truth.messages[index].handoff = Some((at, c as u16));
        let waits = (0..self.threads).find(|&t| self.tasks[t].waits_for_datagrams());
        if let Some(t) = waits {
            self.wake(c, t, arg);
        }
    }

    /// A receive call's event; returns the messages that are complete with it.
    pub fn received(&mut self, c: usize, flow: usize, bytes: u64, datagram: Option<usize>, entered: u64) -> Vec<usize> {
        let position = if datagram.is_some() { 0 } else { self.flows[flow].seq(self.flows[flow].copied) };
        let cookie = if datagram.is_some() { UDP_COOKIE } else { 1000 + flow as u64 };
        let tid = self.cores[c].task;
        let at = self.on_socket(c, Kind::Recv, flow, position, bytes | cookie << 32);
        let recv = Recv { entered, at, cpu: c as u16, tid };
        let copied = self.flows[flow].copied;
        self.flows[flow].reported = copied;
        let whole: Vec<usize> = match datagram {
            Some(index) => vec![index],
            None => {
                let mut list: Vec<usize> = (0..self.truth.messages.len()).collect();
                let messages = &self.truth.messages;
                list.retain(|&i| messages[i].flow == flow && messages[i].end <= copied && messages[i].recv.is_none());
                list.sort_by_key(|&i| messages[i].end);
                list
            }
        };
        for &index in &whole {
            self.truth.messages[index].recv = Some(recv);
        }
        whole
    }

    /// Bytes of the flow's replies go to the driver.
    pub fn transmit(&mut self, c: usize, flow: usize, from: u64, to: u64) {
        let f = &self.flows[flow];
        let seq = if f.udp { 0 } else { u64::from(REPLY_ISN.wrapping_add(from as u32)) << 32 };
        let words = [f.addrs, f.ports | seq, to - from];
        let flags = f.flags;
        let at = self.emit(c, Kind::TxDriver, flags, words);
        let f = &mut self.flows[flow];
        f.transmitted = f.transmitted.max(to);
        let messages = &mut self.truth.messages;
        f.expected.retain(|(end, list)| {
            if *end <= to {
                list.iter().for_each(|&m| messages[m].xmit = Some(at));
            }
            *end > to
        });
    }

    /// Replies that the send call left behind, or bytes sent before once more.
    pub fn transmit_deferred(&mut self, c: usize, arg: usize) {
        let flow = arg % self.flows.len();
        let f = &self.flows[flow];
        let (from, to) = (f.transmitted, f.written);
        if f.udp {
            return;
        }
        if from < to {
            self.transmit(c, flow, from, to);
        } else if from > 0 {
            self.transmit(c, flow, from - 1, from);
        }
    }

    /// The send call's event. `more`: the call could not take all, the socket's buffer is full.
    pub fn sent(&mut self, c: usize, flow: usize, bytes: u64, more: bool) {
        let f = &self.flows[flow];
        let (position, cookie) = if f.udp {
            (0, UDP_COOKIE)
        } else {
            (u64::from(REPLY_ISN.wrapping_add(f.written as u32)) << 32, 1000 + flow as u64)
        };
        self.on_socket(c, Kind::Send, flow, position, bytes | cookie << 32);
        if more && let Some(event) = self.events[c].last_mut() {
            event.aux |= tailsight_trace::event::flow_flags::FULL;
        }
        let (at, tid) = (self.truth.times.last().copied().unwrap_or(0), self.cores[c].task);
        self.truth.sends.entry(tid).or_default().push(at);
    }
}
