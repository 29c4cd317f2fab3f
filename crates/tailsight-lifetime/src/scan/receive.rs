//! Receive-side events: packets, time stamps, receive calls, and threads that fall asleep.

use tailsight_kernel::syscalls::{polls, waits_for_work};
use tailsight_protocol::frame::memcached_datagram;
use tailsight_protocol::{Class, Protocol, ProtocolChoice};
use tailsight_trace::event::{Kind, flow_flags, switch_flags};
use tailsight_trace::{Event, FlowKey, fields};

use super::{Scanner, Turn, index_of};
use crate::messages::RecvCall;
use crate::messages::requests::flow::Framed;
use crate::messages::requests::plain_text::PlainText;
use crate::model::{Threshold, flags};
use crate::timelines::busy_periods::Wait;

impl Scanner<'_> {
    /// The NIC's stamp of the packet that came in last on this core.
    #[inline(never)]
    pub(super) fn stamped(&mut self, cpu: u16, event: &Event) {
        let Some(packet) = self.arrived.get_mut(usize::from(cpu)).and_then(Option::take) else { return };
        match self.facts.nic.place(fields::Packet::of(&packet).ifindex, fields::Stamp::of(event).nic_ns, packet.ts) {
            Err(why) => self.nic.refuse(false, why),
            Ok(stamp) if packet.aux & flow_flags::UDP != 0 => self.datagrams.stamped(&packet, cpu, stamp),
            Ok(stamp) => {
                if let Some(flow) = self.tcp.get_mut(&FlowKey::of(&packet)) {
                    flow.receiver.stamped(&packet, cpu, stamp);
                }
            }
        }
    }

    fn arrived(&mut self, cpu: u16, packet: Option<&Event>) {
        if let Some(place) = self.arrived.get_mut(usize::from(cpu)) {
            *place = packet.copied();
        }
    }

    #[inline(never)]
    pub(super) fn early(&mut self, cpu: u16, event: &Event) {
        self.arrived(cpu, Some(event));
        if event.aux & flow_flags::UDP != 0 {
            self.datagrams.early(event, cpu);
        } else {
            self.tcp.entry(FlowKey::of(event)).or_default().receiver.early(event, cpu);
        }
    }

    #[inline(never)]
    pub(super) fn stack(&mut self, cpu: u16, event: &Event) {
        if event.aux & flow_flags::FOREIGN != 0 {
            self.arrived(cpu, None);
            return;
        }
        self.arrived(cpu, Some(event));
        let packet = fields::Packet::of(event);
        let capture = match &mut self.captures {
            Some((_, captures)) if packet.bytes > 0 => captures.begin(cpu, event, false),
            _ => 0,
        };
        if event.aux & flow_flags::UDP != 0 {
            self.datagrams.stack(event, cpu, &mut self.traffic);
            if capture != 0 {
                self.datagrams.captured(event, cpu, capture);
            }
        } else {
            let flow = self.tcp.entry(FlowKey::of(event)).or_default();
            if event.aux & flow_flags::SYN != 0 {
                self.connections.opened(FlowKey::of(event));
                flow.opened(packet.sequence, event.ts, &mut self.traffic);
            }
            if packet.bytes > 0 {
                flow.segments.take(event);
            }
            flow.receiver.captured(event, cpu, capture);
        }
    }

    #[inline(never)]
    pub(super) fn handoff(&mut self, cpu: u16, event: &Event) {
        if event.aux & flow_flags::UDP != 0 {
            self.datagrams.handoff(event, cpu, &mut self.traffic);
        } else if let Some(flow) = self.tcp.get_mut(&FlowKey::of(event)) {
            flow.receiver.handoff(event, cpu);
        }
    }

    #[inline(never)]
    pub(super) fn recv(&mut self, cpu: u16, event: &Event) {
        let tid = event.tid;
        self.close_plain_text(tid);
        self.routines.received(tid, event.ts);
        // Without the system call's own event: since the thread's last send, when it is the last that it is known to have
        // done for others and as long ago as such a call takes; else the call's end.
        let doing = self.doing.entry(tid).or_default();
        let turned = doing.last_send.take().filter(|sent| event.ts - sent < Threshold::ReceiveCall.ns());
        // A thread that received is in no send call: what began there came to nothing.
        doing.sending = None;
        let entered = self.threads.syscall_since(tid).or(turned).unwrap_or(event.ts);
        let call = RecvCall { ts: event.ts, entered, cpu, tid };
        self.outgoing.received(tid);
        let key = FlowKey::of(event);
        let range = if key.is_udp() {
            let (flow_index, flows) = (&mut self.flow_index, &mut self.flows);
            let mut index = |key| index_of(flow_index, flows, key);
            self.connections.received_datagram(tid);
            let cookie = fields::Recv::of(event).cookie;
            let range = self.datagrams.recv(event, call, &mut index, &mut self.traffic);
            for message in range.clone() {
                let id = self.datagram_class(message);
                let key = self.flows[self.traffic.messages[message as usize].flow as usize].key;
                self.udp_replies.received(key, cookie, message, id, &mut self.traffic);
            }
            range
        } else {
            let flow = self.tcp.entry(key).or_default();
            let index = *flow.index.get_or_insert_with(|| index_of(&mut self.flow_index, &mut self.flows, key));
            let range = match &self.captures {
                None => flow.receiver.recv(event, call, index, &mut self.traffic),
                Some((choice, captures)) => {
                    let from_start =
                        flow.new && flow.opened.map(|(seq, _)| seq.wrapping_add(1)) == flow.receiver.next();
                    let framed = flow.framed.get_or_insert_with(|| {
                        Box::new(Framed::new(*choice, index, flow.new, from_start, self.plain_texts.is_some()))
                    });
                    let range = framed.recv(event, call, &mut flow.receiver, captures, &mut self.traffic);
                    if let Some(texts) = self.plain_texts.as_mut().filter(|_| framed.is_tls()) {
                        if !framed.is_decrypted() {
                            texts.is_unread(key);
                        }
                        texts.called(tid, false, event.ts, key);
                    }
                    range
                }
            };
            // Half a message is none yet.
            let taken = flow.framed.is_some() || !range.is_empty();
            if (taken && std::mem::take(&mut flow.new))
                && flow.framed.is_none()
                && let Some(first) = self.traffic.messages.get_mut(range.start as usize)
            {
                first.flags |= flags::FIRST;
            }
            if flow.framed.is_none() && !range.is_empty() {
                flow.settle(&mut self.traffic);
                if let Some(before) = flow.replies.unanswered_by(tid, &self.traffic)
                    && self.connections.owes_nothing(tid, key, before)
                {
                    flow.replies.owes_none();
                }
                flow.received(range.clone(), &mut self.traffic);
            }
            self.connections.received(tid, key, event.ts);
            range
        };
        self.took(tid, range.clone(), event.ts);
        // A part of a request is work, too.
        if !range.is_empty() || (self.captures.is_some() && !key.is_udp()) {
            self.doing.entry(tid).or_default().turned = Turn { at: event.ts, flow: Some(key) };
            self.busy_periods.received(tid, entered);
        }
    }

    /// A thread has new messages.
    fn took(&mut self, tid: u32, messages: std::ops::Range<u32>, ts: u64) {
        self.routines.took(tid, messages.clone(), ts);
        let Some(last) = messages.clone().last() else { return };
        self.peers.took(tid, messages.start..=last, ts);
        if let Some(routine) = self.routines.now(tid, ts) {
            self.peers.took_in(routine, last);
        }
    }

    /// Plain text of TLS is put together, and read when what was kept of it is there.
    #[inline(never)]
    pub(super) fn plain_text(&mut self, kind: Kind, event: &Event) {
        let Some(texts) = &mut self.plain_texts else { return };
        if kind == Kind::PlainPiece {
            let whole = texts.piece(event);
            return self.read(whole);
        }
        let cut = texts.close(event.tid);
        self.read(cut);
        let whole = self.plain_texts.as_mut().and_then(|texts| texts.begin(event));
        self.read(whole);
    }

    /// Reads what a TLS library gave to a thread or took from it.
    pub(super) fn read(&mut self, text: Option<PlainText>) {
        let (Some(text), Some(texts)) = (text, &mut self.plain_texts) else { return };
        let key = texts.carrier(&text);
        let Some(framed) = key.and_then(|key| self.tcp.get_mut(&key)).and_then(|flow| flow.framed.as_mut()) else {
            return;
        };
        if text.out {
            return framed.taken(text, &mut self.traffic);
        }
        let messages = framed.given(&text, &mut self.traffic);
        self.took(text.tid, messages, text.ts);
    }

    /// The thread does something else: what it was given is all there.
    pub(super) fn close_plain_text(&mut self, tid: u32) {
        let cut = self.plain_texts.as_mut().and_then(|texts| texts.close(tid));
        self.read(cut);
    }

    /// An answer of another server: from here on the thread works for the message that needs it.
    #[inline(never)]
    pub(super) fn peer_recv(&mut self, event: &Event) {
        self.routines.received(event.tid, event.ts);
        // A thread that received is in no send call.
        self.doing.entry(event.tid).or_default().sending = None;
        self.outgoing.received(event.tid);
        if self.is_helper_end(FlowKey::of(event)) {
            return;
        }
        if let Some(same) = self.peers.received(event, &self.facts.sockets) {
            let entered = self.threads.syscall_since(event.tid).unwrap_or(event.ts);
            self.busy_periods.answered(event.tid, entered, same);
        }
    }

    /// The class of a datagram that was received just now, and the id that its reply will carry.
    fn datagram_class(&mut self, message: u32) -> Option<u16> {
        let (choice, captures) = self.captures.as_ref()?;
        let traffic = &mut self.traffic;
        let m = &mut traffic.messages[message as usize];
        let frame = match choice {
            ProtocolChoice::Named(Protocol::Memcached) => {
                memcached_datagram(captures.from(self.datagrams.received, 0), u64::from(m.bytes), true)
            }
            _ => None,
        };
        let class: Option<Class> = frame.and_then(|f| f.class);
        match class {
            Some(class) => m.class = traffic.classes.of(Protocol::Memcached, &class),
            None => {
                m.class = traffic.classes.unframed();
                m.flags |= flags::UNFRAMED;
            }
        }
        frame.map(|f| f.id)
    }

    /// A thread of the target falls asleep.
    #[inline(never)]
    pub(super) fn slept(&mut self, event: &Event) {
        let fields::Switch { flags, previous_tid: tid, state, call: nr, stack, .. } = fields::Switch::of(event);
        let ts = event.ts;
        self.doing.entry(tid).or_default().last_send = None;
        let for_work = nr != u32::MAX && waits_for_work(nr - 1);
        // Waiting for a disk or for the kernel, the thread is still at what it does.
        if state & 2 == 0 && flags & switch_flags::IO_WAIT == 0 {
            self.peers.slept(tid, ts, for_work);
        }
        if nr != u32::MAX {
            if polls(nr - 1) {
                self.polled.insert(tid);
            }
            let facts = self.facts;
            let functions = || facts.symbols.get(facts.names.stack(stack) as usize).map(String::as_str);
            match self.busy_periods.slept(tid, nr - 1, ts, (stack, functions)) {
                Wait::Work => self.doing.entry(tid).or_default().turned = Turn { at: ts, flow: None },
                Wait::Data => self.connections.waits(tid, ts),
                Wait::Other => {}
            }
        }
    }
}
