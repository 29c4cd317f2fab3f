//! Send-side events: send calls, packets to the driver, time stamps of replies, and the payload in which they are parsed.

use tailsight_protocol::frame::{UdpFrame, memcached_datagram};
use tailsight_protocol::{Protocol, ProtocolChoice};
use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::{Event, FlowKey, fields};

use super::{Scanner, index_of};
use crate::messages::nic::Stamp;
use crate::messages::replies::{Packet, Replies, SendCall};
use crate::messages::requests::capture::{Open, may_interrupt};
use crate::messages::udp_queued::Left;
use crate::model::{Message, SentKind};

impl Scanner<'_> {
    /// Puts payload together; a packet to the driver is framed when all that was kept of it is there.
    #[inline(never)]
    pub(super) fn payload(&mut self, cpu: u16, kind: Kind, event: &Event) {
        let Some((_, captures)) = &mut self.captures else { return };
        let whole = match kind {
            Kind::Payload => captures.piece(cpu, event),
            kind if may_interrupt(kind) => None,
            _ => captures.close(cpu),
        };
        if let Some(packet) = whole.filter(|p| p.out) {
            self.framed_xmit(&packet, cpu);
        }
    }

    pub(super) fn framed_xmit(&mut self, packet: &Open, cpu: u16) {
        if packet.key.is_udp() {
            return self.datagram_outside(packet, cpu);
        }
        let Some((_, captures)) = &mut self.captures else { return };
        if let Some(framed) = self.tcp.get_mut(&packet.key).and_then(|f| f.framed.as_mut()) {
            while let Some((older, cpu)) = captures.close_older(packet) {
                framed.xmit(&older, cpu, captures.from(older.id, older.seq), &mut self.traffic);
            }
            framed.xmit(packet, cpu, captures.from(packet.id, packet.seq), &mut self.traffic);
        }
    }

    #[inline(never)]
    pub(super) fn sent(&mut self, event: &Event) {
        let (tid, key) = (event.tid, FlowKey::of(event));
        self.close_plain_text(tid);
        let fields::Send { write_seq, bytes, cookie, .. } = fields::Send::of(event);
        // The kernel's own send function, else the system call around it, else the first packet in a queueing discipline.
        // A port that became the target's while recording is one that it serves.
        let asks = event.aux & flow_flags::CLIENT != 0 && !self.facts.ports.contains(&key.local_port());
        let doing = self.doing.entry(tid).or_default();
        let turn = doing.turned;
        let begun = doing.sending.take().or_else(|| self.threads.syscall_since(tid));
        if !asks {
            doing.last_send = Some(event.ts);
        }
        let xmit = if key.is_udp() { self.own_datagram(event, begun) } else { None };
        let queued_key = xmit.map_or(key, |x| x.1.key);
        let queued = self.outgoing.first_of_call(tid, queued_key);
        let call = SendCall {
            entered: begun.or(queued).unwrap_or(event.ts),
            ts: event.ts,
            tid,
            end: write_seq,
            ..SendCall::default()
        };
        self.outgoing.sent(key, event);
        if asks && self.is_helper_end(key) {
            return;
        }
        if asks {
            let routine =
                self.routines.sends_for(tid, event.ts, |task| self.peers.has_open(task, &self.traffic.messages));
            self.peers.sent(event, (queued_key, routine), &self.facts.sockets, &self.traffic.messages);
            self.connections.sent(tid, None, event.ts);
            self.asked(call, event, key, xmit.map(|(cpu, packet)| (packet.ts, cpu)));
            return;
        }
        self.busy_periods.sent(tid, event.ts);
        if key.is_udp() {
            let call = SendCall { inline_xmit: xmit.map(|(cpu, packet)| (packet.ts, cpu)), ..call };
            let dropped = self.udp_dropped.remove(&tid).filter(|(ts, _)| xmit.is_none() && *ts >= begun.unwrap_or(0));
            // A connected socket says to whom it sends.
            let connected = (key.remote_port() != 0).then_some(key);
            let to = xmit.map(|x| x.1.key).or(dropped.map(|x| x.1)).or(connected);
            let reply = xmit.and_then(|(_, packet)| self.datagram_frame(&packet));
            let sent = (cookie, bytes);
            if !self.udp_replies.sent((call, turn.at), sent, (to, dropped.is_some()), reply, &mut self.traffic) {
                self.unasked(SentKind::Push, call, event, to.unwrap_or(key));
            }
            return;
        }
        self.connections.sent(tid, Some(key), event.ts);
        let flow = self.tcp.entry(key).or_default();
        // To read on from the same connection is no other work: there is room again, or the client sends ahead.
        let resumes = !flow.full && turn.at > flow.sent_ns && turn.flow != Some(key);
        let full = event.aux & flow_flags::FULL != 0;
        let call = SendCall { full, resumes, ..call };
        if let Some(framed) = &mut flow.framed {
            (flow.sent_ns, flow.full) = (event.ts, full);
            if let Some(texts) = self.plain_texts.as_mut().filter(|_| framed.is_tls()) {
                texts.called(tid, true, event.ts, key);
            }
            return framed.sent(call, bytes, &mut self.traffic);
        }
        // Unasked: nobody waits, and it is no more of the last reply, for its thread had turned to other work since that
        // was taken whole. The first send of a connection that was open before may answer what came before the recording.
        let (nobody, first) = (flow.replies.is_idle(), flow.sent_ns == 0);
        let unasked = flow.replies.owes_nothing()
            && (flow.pushing || if nobody { !first || flow.new } else { !flow.full && turn.at > flow.sent_ns });
        (flow.sent_ns, flow.full, flow.pushing) = (event.ts, full, unasked);
        if unasked {
            let index = self.unasked(SentKind::Push, call, event, key);
            self.later.pushed(index, turn.flow.is_some_and(|received_from| received_from != key));
        } else {
            flow.replies.sent(call, &mut self.traffic);
        }
    }

    /// Whether this is a helper's end of a connection to another process of the target, which asks it.
    pub(super) fn is_helper_end(&self, key: FlowKey) -> bool {
        self.facts.helper_ends.contains(&(key.addrs, key.ports))
    }

    /// The target asked somebody else.
    fn asked(&mut self, call: SendCall, event: &Event, key: FlowKey, xmit: Option<(u64, u16)>) {
        let call = SendCall { inline_xmit: xmit.filter(|x| key.is_udp() && x.0 >= call.entered), ..call };
        self.unasked(SentKind::Request, call, event, key);
    }

    /// A send call that answers no message. Returns its index, as [`crate::messages::Traffic::send`] does.
    fn unasked(&mut self, kind: SentKind, call: SendCall, event: &Event, key: FlowKey) -> u32 {
        let flow = index_of(&mut self.flow_index, &mut self.flows, key);
        let message = Message { flow, bytes: fields::Send::of(event).bytes, tid: event.tid, ..Message::default() };
        let index = self.traffic.send(kind, message);
        match kind {
            _ if key.is_udp() => Replies::default().unasked(call, index, &mut self.traffic),
            SentKind::Push => self.tcp.entry(key).or_default().unasked(call, index, &mut self.traffic),
            SentKind::Request => self.clients.entry(key).or_default().unasked(call, index, &mut self.traffic),
        }
        index
    }

    #[inline(never)]
    pub(super) fn xmit(&mut self, cpu: u16, event: &Event) {
        self.outgoing.driver(event);
        let key = FlowKey::of(event);
        let fields::Packet { sequence: begin, bytes, ifindex, .. } = fields::Packet::of(event);
        let packet = Packet { begin, end: begin.wrapping_add(bytes), ts: event.ts, cpu };
        let asks = event.aux & flow_flags::CLIENT != 0 && !self.facts.ports.contains(&key.local_port());
        if asks && !key.is_udp() {
            // The first packet comes before the event of the call that it is in.
            return self.clients.entry(key).or_default().xmit(packet, &mut self.traffic);
        }
        let id = match &mut self.captures {
            Some((_, captures)) if !asks => captures.begin(cpu, event, true),
            _ => 0,
        };
        if key.is_udp() {
            let datagram = (cpu, Open::of(event, id, true));
            let outside = self.is_interrupted(cpu);
            if outside && id != 0 {
                self.udp_outside[usize::from(cpu)] = Some((event.tid, datagram.1)); // its id comes behind it
            } else if !outside || !self.left_later(datagram, true) {
                self.in_call(event.tid, datagram);
            }
        } else if let Some(flow) = self.tcp.get_mut(&key) {
            flow.ifindex = ifindex;
            if id != 0 {
                return; // framed when its payload is there
            }
            flow.replies.xmit(packet, &mut self.traffic);
        }
    }

    /// Whether the thread of this core is interrupted: what is sent then is not in a call of its.
    pub(super) fn is_interrupted(&self, cpu: u16) -> bool {
        let core = &self.cores[usize::from(cpu)];
        !core.segments.is_empty() && self.tree.within(core.node()).interrupt
    }

    /// A datagram was given to the driver in a send call of this thread.
    fn in_call(&mut self, tid: u32, datagram: (u16, Open)) {
        if let Some(before) = self.udp_xmit.insert(tid, datagram) {
            self.left_later(before, false);
        }
    }

    /// What was kept is there of a datagram that was given to the driver; the core's thread was interrupted then.
    fn datagram_outside(&mut self, packet: &Open, cpu: u16) {
        let waits = self.udp_outside[usize::from(cpu)].take_if(|(_, datagram)| datagram.id == packet.id);
        if let Some((tid, datagram)) = waits
            && !self.left_later((cpu, datagram), true)
        {
            self.in_call(tid, (cpu, datagram));
        }
    }

    /// What a datagram on its way out says about itself.
    fn datagram_frame(&self, packet: &Open) -> Option<UdpFrame> {
        match &self.captures {
            Some((ProtocolChoice::Named(Protocol::Memcached), captures)) => {
                memcached_datagram(captures.from(packet.id, packet.seq), u64::from(packet.len), false)
            }
            _ => None,
        }
    }

    /// A datagram was given to the driver: whether it is one that waits since a call that has ended.
    fn left_later(&mut self, datagram: (u16, Open), outside: bool) -> bool {
        let frame = self.datagram_frame(&datagram.1);
        self.udp_replies.left(left(datagram, outside), frame, &mut self.traffic)
    }

    /// The datagram that a send call on UDP gave to the driver, if that is its own.
    fn own_datagram(&mut self, call: &Event, begun: Option<u64>) -> Option<(u16, Open)> {
        let datagram = self.udp_xmit.remove(&call.tid)?;
        let (_, packet) = datagram;
        let older = self.udp_replies.is_older(left(datagram, false), self.datagram_frame(&packet));
        // Without a begin there is no telling since when.
        if packet.ts < begun.unwrap_or(0) || older {
            self.left_later(datagram, false);
            return None;
        }
        Some(datagram)
    }

    /// A packet was dropped on its way out: in the call that sent it, or later.
    #[inline(never)]
    pub(super) fn dropped_out(&mut self, cpu: u16, event: &Event) {
        self.outgoing.dropped(event);
        let key = FlowKey::of(event);
        if key.is_udp() && self.is_interrupted(cpu) {
            self.udp_replies.dropped(key, event.ts, fields::Drop::of(event).bytes, &mut self.traffic);
        } else if key.is_udp() {
            self.udp_dropped.insert(event.tid, (event.ts, key));
        }
    }

    /// The NIC's stamp of a reply's last byte.
    #[inline(never)]
    pub(super) fn stamped_out(&mut self, event: &Event) {
        let Some((index, ifindex)) = self.tcp.get(&FlowKey::of(event)).and_then(|f| Some((f.index?, f.ifindex))) else {
            return;
        };
        let fields::SentStamp { end, nic_ns, .. } = fields::SentStamp::of(event);
        match self.facts.nic.place(ifindex, nic_ns, event.ts) {
            Ok(stamp) => self.sent_stamps.entry((index, end)).or_default().push(stamp),
            Err(why) => self.nic.refuse(true, why),
        }
    }

    /// Gives replies their stamps: of the same bytes the first at or after the send call (sequence numbers come again).
    pub(super) fn stamp_replies(&mut self) {
        if self.sent_stamps.is_empty() {
            return;
        }
        for (message, extra) in self.traffic.messages.iter_mut().zip(&self.traffic.extras) {
            let stamps = self.sent_stamps.get(&(message.flow, extra.reply_end));
            let after = |s: &&Stamp| s.ns + u64::from(s.error_ns) >= message.send_ns;
            if message.xmit_ns != 0
                && let Some(stamp) = stamps.and_then(|s| s.iter().find(after))
            {
                (message.nic_tx_ns, message.nic_tx_error_ns) = (stamp.ns, stamp.error_ns);
            }
        }
    }
}

fn left((cpu, packet): (u16, Open), outside: bool) -> Left {
    Left { key: packet.key, ts: packet.ts, cpu, bytes: packet.len, outside }
}
