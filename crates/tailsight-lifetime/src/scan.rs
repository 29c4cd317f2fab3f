//! One pass over all events in time order: core timelines, thread timelines, messages.

use rustc_hash::FxHashMap;
use tailsight_protocol::frame::memcached_datagram;
use tailsight_protocol::{Class, Protocol};
use tailsight_trace::event::{Kind, flow_flags, switch_flags};
use tailsight_trace::{Error, Event, FlowKey};

use crate::cores::Core;
use crate::gather::gathered;
use crate::input::{self, Facts};
use crate::matching::replies::{Replies, SendCall};
use crate::matching::tcp::Receiver;
use crate::matching::udp::Datagrams;
use crate::matching::udp_replies::UdpReplies;
use crate::matching::{Extra, Found, RecvCall};
use crate::merge::{Source, in_time_order};
use crate::model::{Flow, Incomplete, Message, Sent, SentKind, flags, syscall_name};
use crate::nic::{NicUse, Stamp};
use crate::outgoing::{self, Outgoing};
use crate::overtaken;
use crate::peers::{self, Peers};
use crate::points::Points;
use crate::requests::Framing;
use crate::requests::capture::{Captures, Open, may_interrupt};
use crate::requests::classes::RequestClass;
use crate::requests::flow::Framed;
use crate::threads::Threads;
use crate::tree::{NodeId, Tree};
use crate::windows::{CALL_NS, Window, Windows, waits_for_work};

/// Everything the pass found.
#[derive(Debug)]
pub struct Scan {
    /// Nodes of the core timelines.
    pub tree: Tree,
    /// Core timelines, by core.
    pub cores: Vec<Core>,
    /// Thread timelines.
    pub threads: Threads,
    /// Serving windows, by thread, in order.
    pub windows: FxHashMap<u32, Vec<Window>>,
    /// Messages in order of arrival, with what the walk needs.
    pub messages: Vec<Message>,
    /// Beside `messages`.
    pub extras: Vec<Extra>,
    /// Flows.
    pub flows: Vec<Flow>,
    /// Messages lost, by reason.
    pub incomplete: std::collections::BTreeMap<Incomplete, u64>,
    /// Page faults of each message's thread while it worked for it; empty when there were none.
    pub faults: Vec<u32>,
    /// What the application sent unasked or asked of others, in the order of the send calls, with what the walk needs.
    pub sent: Vec<(Sent, Extra)>,
    /// Retransmissions and drops on the way out.
    pub outgoing: outgoing::Counts,
    /// How often NUMA balancing moved a thread of the target.
    pub numa_moves: u64,
    /// Where the names of drop reasons begin in the symbols, and how many there are.
    drop_reasons: (u32, u32),
    /// Time behind later arrivals, by message; see [`crate::overtaken`].
    pub overtaken: Vec<u64>,
    /// Servers behind the target.
    pub peers: peers::Found,
    /// Classes of requests.
    pub classes: Vec<RequestClass>,
    /// How far requests were framed, with a protocol.
    pub framing: Option<Framing>,
    /// What the NICs' time stamps were good for.
    pub nic: NicUse,
    /// Time of the first event.
    pub start_ns: u64,
    /// Time of the last event.
    pub end_ns: u64,
}

impl Scan {
    /// The symbol of a drop reason, 0 when its name is not known.
    pub fn drop_reason(&self, reason: u32) -> u32 {
        let (from, names) = self.drop_reasons;
        if reason < names { from + reason } else { 0 }
    }
}

#[derive(Default)]
struct TcpFlow {
    index: Option<u32>,
    /// The sequence number of the last SYN.
    opened: Option<u32>,
    /// Opened, and nothing received yet.
    new: bool,
    receiver: Receiver,
    replies: Replies,
    /// With a protocol, instead of `replies`.
    framed: Option<Box<Framed>>,
    /// The device that its last packet went out by.
    ifindex: u32,
    /// The end of the last send call.
    sent_ns: u64,
    /// At that, the send buffer was full: more of the same is to come.
    full: bool,
    /// That call answered nobody.
    pushing: bool,
}

impl TcpFlow {
    /// A SYN: the same ports carry a new connection with sequence numbers of its own, unless it is the same SYN again.
    fn opened(&mut self, seq: u32, found: &mut Found) {
        if self.opened.replace(seq) != Some(seq) {
            self.end(Incomplete::ConnectionEnded, found);
            self.framed = None;
            self.receiver = Receiver::default();
            self.replies = Replies::default();
            (self.sent_ns, self.full, self.pushing) = (0, false, false);
            self.new = true;
        }
    }

    fn end(&mut self, why: Incomplete, found: &mut Found) {
        if let Some(framed) = &mut self.framed {
            framed.end(found);
        }
        self.receiver.end(why, found);
        self.replies.end(found);
    }
}

struct Scanner<'a> {
    facts: &'a Facts,
    tree: Tree,
    cores: Vec<Core>,
    threads: Threads,
    windows: Windows,
    tcp: FxHashMap<FlowKey, TcpFlow>,
    datagrams: Datagrams,
    udp_replies: UdpReplies,
    /// By thread: the last datagram given to the driver, where, and what was kept of it.
    udp_xmit: FxHashMap<u32, (u64, u16, Open)>,
    /// With a protocol.
    captures: Option<(Protocol, Box<Captures>)>,
    flow_index: FxHashMap<FlowKey, u32>,
    flows: Vec<Flow>,
    found: Found,
    /// When a thread ended its last send, if it has received nothing since: then it turned to other work.
    last_send: FxHashMap<u32, u64>,
    /// Since when a thread is in a send call on TCP, where the kernel tells.
    sending: FxHashMap<u32, u64>,
    /// Connections that the target opened to others, and what it asks there.
    clients: FxHashMap<FlowKey, Replies>,
    outgoing: Outgoing,
    /// When each thread last received a message or waited for work: it had turned to something else.
    turned: FxHashMap<u32, u64>,
    numa_moves: u64,
    losses: Losses,
    points: Points,
    /// By core: the last packet that came in, until its stamp is met.
    arrived: Vec<Option<Event>>,
    /// Stamps of replies: the message's flow and the sequence number after its last byte.
    sent_stamps: FxHashMap<(u32, u32), Vec<Stamp>>,
    nic: NicUse,
    peers: Peers,
    /// By core: what was made readable last, until the softirq goes on to another packet or ends.
    ready: Vec<u32>,
    /// The target asks other servers: before the first answer is readable, `ready` is 0 everywhere.
    asks: bool,
    /// Whether a thread that sleeps in a system call waits for work.
    for_work: FxHashMap<u32, bool>,
}

/// Stretches in which events of a core were lost.
#[derive(Default)]
struct Losses {
    /// By core: since when, until its next event.
    open: FxHashMap<u16, u64>,
    /// (start, end), ns.
    closed: Vec<(u64, u64)>,
}

impl Losses {
    fn take(&mut self, cpu: u16, kind: Kind, ts: u64) {
        if kind == Kind::Lost {
            self.open.entry(cpu).or_insert(ts);
        } else if !self.open.is_empty()
            && let Some(from) = self.open.remove(&cpu)
        {
            self.closed.push((from, ts));
        }
    }

    /// The stretches in order, none inside another. The recording ended at `end_ns`.
    fn finish(mut self, end_ns: u64) -> Vec<(u64, u64)> {
        self.closed.extend(self.open.values().map(|&from| (from, end_ns.max(from))));
        self.closed.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from, to) in self.closed {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        merged
    }
}

/// Whether a message was on its way while events were lost.
fn overlaps(losses: &[(u64, u64)], m: &Message) -> bool {
    let to = m.xmit_ns.max(m.send_ns).max(m.recv_ns);
    let next = losses.partition_point(|l| l.1 < m.driver_ns);
    losses.get(next).is_some_and(|l| l.0 <= to)
}

/// Runs the pass. A source numbered beyond 16 bits is no core's.
///
/// # Errors
/// Those of the sources.
pub fn scan<'a, S: Source + 'a>(facts: &Facts, sources: impl Iterator<Item = &'a mut S>) -> Result<Scan, Error> {
    let mut sources: Vec<&mut S> = sources.filter(|s| s.cpu() < u32::from(u16::MAX)).collect();
    let highest = sources.iter().map(|s| s.cpu() as usize + 1).max();
    let cores = usize::from(facts.cpus).max(highest.unwrap_or(0));
    let mut scanner = Scanner {
        facts,
        tree: Tree::default(),
        cores: (0..cores)
            .map(|cpu| Core::new(sources.iter().find(|s| s.cpu() as usize == cpu).map_or(0, |s| s.events())))
            .collect(),
        threads: Threads::new(facts.names.clone()),
        windows: Windows::default(),
        tcp: FxHashMap::default(),
        datagrams: Datagrams::default(),
        udp_replies: UdpReplies::default(),
        udp_xmit: FxHashMap::default(),
        captures: facts.protocol.map(|(protocol, bytes)| (protocol, Box::new(Captures::new(cores, bytes)))),
        flow_index: FxHashMap::default(),
        flows: Vec::new(),
        found: Found::default(),
        last_send: FxHashMap::default(),
        sending: FxHashMap::default(),
        clients: FxHashMap::default(),
        outgoing: Outgoing::default(),
        turned: FxHashMap::default(),
        numa_moves: 0,
        losses: Losses::default(),
        points: Points::default(),
        arrived: vec![None; cores],
        sent_stamps: FxHashMap::default(),
        nic: NicUse::default(),
        peers: Peers::new(facts.symbols.len()),
        ready: vec![0; cores],
        asks: false,
        for_work: FxHashMap::default(),
    };
    let (mut start_ns, mut end_ns) = (None, 0);
    in_time_order(&mut sources, |cpu, event| {
        start_ns.get_or_insert(event.ts);
        end_ns = event.ts;
        scanner.take(cpu, event);
    })?;
    Ok(scanner.finish(start_ns.unwrap_or(0), end_ns))
}

impl Scanner<'_> {
    fn take(&mut self, cpu: u16, event: &Event) {
        let Some(kind) = event.kind() else { return };
        self.losses.take(cpu, kind, event.ts);
        if self.captures.is_some() {
            self.payload(cpu, kind, event);
        }
        match kind {
            Kind::RxNapi | Kind::RxBacklog => self.early(cpu, event),
            Kind::RxStack => self.stack(cpu, event),
            Kind::RxHardware => self.stamped(cpu, event),
            Kind::NicTx => {
                self.outgoing.left(event);
                self.stamped_out(event);
            }
            Kind::Handoff => self.handoff(cpu, event),
            Kind::SkbDrop if event.aux & flow_flags::OUT != 0 => self.outgoing.dropped(event),
            Kind::SkbDrop if event.aux & flow_flags::UDP != 0 => self.datagrams.dropped(event, cpu, &mut self.found),
            Kind::SkbDrop => {
                if let Some(flow) = self.tcp.get_mut(&FlowKey::of(event)) {
                    flow.receiver.dropped(event);
                }
            }
            Kind::TxQueue => self.outgoing.queued(event),
            Kind::TxDriver => self.xmit(cpu, event),
            Kind::TcpRetransmit => self.outgoing.retransmitted(event),
            Kind::NumaMove => self.numa_moves += u64::from(self.facts.names.is_target(event.a_lo())),
            Kind::Recv => self.recv(cpu, event),
            // Inside the copy loop: the first of a call is its begin.
            Kind::SendBegin => {
                self.sending.entry(event.tid).or_insert(event.ts);
            }
            Kind::Send => self.sent(event),
            Kind::PeerRecv => self.peer_recv(event),
            Kind::FaultUser | Kind::FaultKernel => self.points.fault(event),
            Kind::SyscallEnter => self.windows.enters(event.tid, event.a as u32, event.ts),
            Kind::SchedSwitch if event.c_lo() != 0 => self.slept(event),
            _ => {}
        }
        if self.asks || kind == Kind::PeerReady {
            self.asks = true;
            let ready = &mut self.ready[usize::from(cpu)];
            match kind {
                Kind::PeerReady => *ready = self.peers.ready(event, &self.facts.sockets),
                Kind::RxStack | Kind::Handoff | Kind::SoftirqExit | Kind::SchedSwitch => *ready = 0,
                _ => {}
            }
            self.threads.ready = *ready;
        }
        let core = &mut self.cores[usize::from(cpu)];
        let node = if core.segments.is_empty() { self.tree.task(event.tid) } else { core.node() };
        self.threads.take(&self.tree, cpu, node, kind, event);
        core.take(&mut self.tree, &mut self.threads, kind, event);
        core.charge(self.facts.costs.of_event(kind, event));
    }

    /// Puts payload together; a packet to the driver is framed when all that was kept of it is there.
    fn payload(&mut self, cpu: u16, kind: Kind, event: &Event) {
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

    fn framed_xmit(&mut self, packet: &Open, cpu: u16) {
        let Some((_, captures)) = &mut self.captures else { return };
        if let Some(framed) = self.tcp.get_mut(&packet.key).and_then(|f| f.framed.as_mut()) {
            while let Some((older, cpu)) = captures.close_older(packet) {
                framed.xmit(&older, cpu, captures.from(older.id, older.seq), &mut self.found);
            }
            framed.xmit(packet, cpu, captures.from(packet.id, packet.seq), &mut self.found);
        }
    }

    /// The NIC's stamp of the packet that came in last on this core.
    fn stamped(&mut self, cpu: u16, event: &Event) {
        let Some(packet) = self.arrived.get_mut(usize::from(cpu)).and_then(Option::take) else { return };
        match self.facts.nic.place(packet.c_hi(), event.a, packet.ts) {
            Err(why) => self.nic.refuse(false, why),
            Ok(stamp) if packet.aux & flow_flags::UDP != 0 => self.datagrams.stamped(&packet, cpu, stamp),
            Ok(stamp) => {
                if let Some(flow) = self.tcp.get_mut(&FlowKey::of(&packet)) {
                    flow.receiver.stamped(&packet, cpu, stamp);
                }
            }
        }
    }

    /// The NIC's stamp of a reply's last byte.
    fn stamped_out(&mut self, event: &Event) {
        let Some((index, ifindex)) = self.tcp.get(&FlowKey::of(event)).and_then(|f| Some((f.index?, f.ifindex))) else {
            return;
        };
        match self.facts.nic.place(ifindex, event.c, event.ts) {
            Ok(stamp) => self.sent_stamps.entry((index, event.b_hi())).or_default().push(stamp),
            Err(why) => self.nic.refuse(true, why),
        }
    }

    /// Gives replies their stamps: of the same bytes the first at or after the send call (sequence numbers come again).
    fn stamp_replies(&mut self) {
        if self.sent_stamps.is_empty() {
            return;
        }
        for (message, extra) in self.found.messages.iter_mut().zip(&self.found.extras) {
            let stamps = self.sent_stamps.get(&(message.flow, extra.reply_end));
            let after = |s: &&Stamp| s.ns + u64::from(s.error_ns) >= message.send_ns;
            if message.xmit_ns != 0
                && let Some(stamp) = stamps.and_then(|s| s.iter().find(after))
            {
                (message.nic_tx_ns, message.nic_tx_error_ns) = (stamp.ns, stamp.error_ns);
            }
        }
    }

    fn arrived(&mut self, cpu: u16, packet: Option<&Event>) {
        if let Some(place) = self.arrived.get_mut(usize::from(cpu)) {
            *place = packet.copied();
        }
    }

    fn early(&mut self, cpu: u16, event: &Event) {
        self.arrived(cpu, Some(event));
        if event.aux & flow_flags::UDP != 0 {
            self.datagrams.early(event, cpu);
        } else {
            self.tcp.entry(FlowKey::of(event)).or_default().receiver.early(event, cpu);
        }
    }

    fn stack(&mut self, cpu: u16, event: &Event) {
        if event.aux & flow_flags::FOREIGN != 0 {
            self.arrived(cpu, None);
            return;
        }
        self.arrived(cpu, Some(event));
        let capture = match &mut self.captures {
            Some((_, captures)) if event.c_lo() > 0 => captures.begin(cpu, event, false),
            _ => 0,
        };
        if event.aux & flow_flags::UDP != 0 {
            self.datagrams.stack(event, cpu, &mut self.found);
            if capture != 0 {
                self.datagrams.captured(event, cpu, capture);
            }
        } else {
            let flow = self.tcp.entry(FlowKey::of(event)).or_default();
            if event.aux & flow_flags::SYN != 0 {
                flow.opened(event.b_hi(), &mut self.found);
            }
            flow.receiver.captured(event, cpu, capture);
        }
    }

    fn handoff(&mut self, cpu: u16, event: &Event) {
        if event.aux & flow_flags::UDP != 0 {
            self.datagrams.handoff(event, cpu, &mut self.found);
        } else if let Some(flow) = self.tcp.get_mut(&FlowKey::of(event)) {
            flow.receiver.handoff(event, cpu);
        }
    }

    fn recv(&mut self, cpu: u16, event: &Event) {
        let tid = event.tid;
        // Without the system call's own event: since the thread's last send, when it is the last that it is known to have
        // done for others and as long ago as such a call takes; else the call's end.
        let turned = self.last_send.remove(&tid).filter(|sent| event.ts - sent < CALL_NS);
        let entered = self.threads.syscall_since(tid).or(turned).unwrap_or(event.ts);
        let call = RecvCall { ts: event.ts, entered, cpu, tid };
        // A thread that received is in no send call: what began there came to nothing.
        self.sending.remove(&tid);
        self.outgoing.received(tid);
        let key = FlowKey::of(event);
        let range = if key.is_udp() {
            let (flow_index, flows) = (&mut self.flow_index, &mut self.flows);
            let mut index = |key| index_of(flow_index, flows, key);
            let range = self.datagrams.recv(event, call, &mut index, &mut self.found);
            for message in range.clone() {
                let id = self.datagram_class(message);
                let key = self.flows[self.found.messages[message as usize].flow as usize].key;
                self.udp_replies.received(key, event.c_hi(), message, id, &mut self.found);
            }
            range
        } else {
            let flow = self.tcp.entry(key).or_default();
            let index = *flow.index.get_or_insert_with(|| index_of(&mut self.flow_index, &mut self.flows, key));
            let range = match &self.captures {
                None => flow.receiver.recv(event, call, index, &mut self.found),
                Some((protocol, captures)) => {
                    let from_start = flow.new && flow.opened.map(|seq| seq.wrapping_add(1)) == flow.receiver.next();
                    let framed = flow
                        .framed
                        .get_or_insert_with(|| Box::new(Framed::new(*protocol, index, flow.new, from_start)));
                    framed.recv(event, call, &mut flow.receiver, captures, &mut self.found)
                }
            };
            // Half a message is none yet.
            let taken = flow.framed.is_some() || !range.is_empty();
            if (taken && std::mem::take(&mut flow.new))
                && flow.framed.is_none()
                && let Some(first) = self.found.messages.get_mut(range.start as usize)
            {
                first.flags |= flags::FIRST;
            }
            if flow.framed.is_none() {
                flow.replies.received(range.clone(), &mut self.found);
            }
            range
        };
        if let Some(last) = range.clone().last() {
            self.peers.took(tid, last, event.ts);
        }
        // A part of a request is work, too.
        if !range.is_empty() || (self.captures.is_some() && !key.is_udp()) {
            self.turned.insert(tid, event.ts);
            self.windows.received(tid, entered);
        }
    }

    /// An answer of another server: from here on the thread works for the message that needs it.
    fn peer_recv(&mut self, event: &Event) {
        // A thread that received is in no send call.
        self.sending.remove(&event.tid);
        self.outgoing.received(event.tid);
        if let Some(same) = self.peers.received(event, &self.facts.sockets) {
            let entered = self.threads.syscall_since(event.tid).unwrap_or(event.ts);
            self.windows.answered(event.tid, entered, same);
        }
    }

    fn sent(&mut self, event: &Event) {
        let (tid, key) = (event.tid, FlowKey::of(event));
        // The kernel's own send function, else the system call around it, else the first packet in a queueing discipline.
        let begun = self.sending.remove(&tid).or_else(|| self.threads.syscall_since(tid));
        let xmit = if key.is_udp() { self.udp_xmit.remove(&tid) } else { None };
        let queued_key = xmit.map_or(key, |x| x.2.key);
        let queued = self.outgoing.first_of_call(tid, queued_key);
        let call = SendCall {
            entered: begun.or(queued).unwrap_or(event.ts),
            ts: event.ts,
            tid,
            end: event.b_hi(),
            inline_xmit: None,
        };
        self.outgoing.sent(key, event);
        // A port that became the target's while recording is one that it serves.
        if event.aux & flow_flags::CLIENT != 0 && !self.facts.ports.contains(&key.local_port()) {
            self.peers.sent(event, queued_key, &self.facts.sockets);
            return self.asked(call, event, key, xmit.map(|(ts, cpu, _)| (ts, cpu)));
        }
        self.last_send.insert(tid, event.ts);
        self.windows.sent(tid, event.ts);
        if key.is_udp() {
            // Without a begin there is no telling since when; what was sent before is gone from here.
            let xmit = xmit.filter(|(ts, ..)| *ts >= begun.unwrap_or(0));
            let call = SendCall { inline_xmit: xmit.map(|(ts, cpu, _)| (ts, cpu)), ..call };
            // A connected socket says to whom it sends.
            let to = xmit.map(|x| x.2.key).or_else(|| (key.remote_port() != 0).then_some(key));
            let reply = match (&self.captures, xmit) {
                (Some((Protocol::Memcached, captures)), Some((.., packet))) => {
                    memcached_datagram(captures.from(packet.id, packet.seq), u64::from(packet.len), false)
                }
                _ => None,
            };
            let sent = (event.c_hi(), event.c_lo());
            if !self.udp_replies.sent(call, sent, to, reply, &mut self.found) {
                self.unasked(SentKind::Push, call, event, to.unwrap_or(key));
            }
            return;
        }
        let turned = self.turned.get(&tid).copied().unwrap_or(0);
        let flow = self.tcp.entry(key).or_default();
        if let Some(framed) = &mut flow.framed {
            return framed.sent(call, event.c_lo(), &mut self.found);
        }
        // Unasked: nobody waits, and it is no more of the last reply, for its thread had turned to other work since that
        // was taken whole. The first send of a connection that was open before may answer what came before the recording.
        let (nobody, first) = (flow.replies.is_idle(), flow.sent_ns == 0);
        let unasked = flow.replies.owes_nothing()
            && (flow.pushing || if nobody { !first || flow.new } else { !flow.full && turned > flow.sent_ns });
        (flow.sent_ns, flow.full, flow.pushing) = (event.ts, event.aux & flow_flags::FULL != 0, unasked);
        if unasked {
            self.unasked(SentKind::Push, call, event, key);
        } else {
            flow.replies.sent(call, &mut self.found);
        }
    }

    /// The target asked somebody else.
    fn asked(&mut self, call: SendCall, event: &Event, key: FlowKey, xmit: Option<(u64, u16)>) {
        let call = SendCall { inline_xmit: xmit.filter(|x| key.is_udp() && x.0 >= call.entered), ..call };
        self.unasked(SentKind::Request, call, event, key);
    }

    /// A send call that answers no message.
    fn unasked(&mut self, kind: SentKind, call: SendCall, event: &Event, key: FlowKey) {
        let flow = index_of(&mut self.flow_index, &mut self.flows, key);
        let message = Message { flow, bytes: event.c_lo(), tid: event.tid, ..Message::default() };
        let index = self.found.send(kind, message);
        let mut datagrams = Replies::default();
        let replies = match kind {
            _ if key.is_udp() => &mut datagrams,
            SentKind::Push => &mut self.tcp.entry(key).or_default().replies,
            SentKind::Request => self.clients.entry(key).or_default(),
        };
        replies.unasked(call, index, &mut self.found);
    }

    fn xmit(&mut self, cpu: u16, event: &Event) {
        self.outgoing.driver(event);
        let key = FlowKey::of(event);
        let end = event.b_hi().wrapping_add(event.c_lo());
        let asks = event.aux & flow_flags::CLIENT != 0 && !self.facts.ports.contains(&key.local_port());
        if asks && !key.is_udp() {
            // The first packet comes before the event of the call that it is in.
            return self.clients.entry(key).or_default().xmit(end, event.ts, cpu, &mut self.found);
        }
        let id = match &mut self.captures {
            Some((_, captures)) if !asks => captures.begin(cpu, event, true),
            _ => 0,
        };
        if key.is_udp() {
            self.udp_xmit.insert(event.tid, (event.ts, cpu, Open::of(event, id, true)));
        } else if let Some(flow) = self.tcp.get_mut(&key) {
            flow.ifindex = event.c_hi();
            if id != 0 {
                return; // framed when its payload is there
            }
            flow.replies.xmit(end, event.ts, cpu, &mut self.found);
        }
    }

    /// The class of a datagram that was received just now, and the id that its reply will carry.
    fn datagram_class(&mut self, message: u32) -> Option<u16> {
        let (protocol, captures) = self.captures.as_ref()?;
        let found = &mut self.found;
        let m = &mut found.messages[message as usize];
        let frame = match protocol {
            Protocol::Memcached => {
                memcached_datagram(captures.from(self.datagrams.received, 0), u64::from(m.bytes), true)
            }
            _ => None,
        };
        let class: Option<Class> = frame.and_then(|f| f.class);
        match class {
            Some(class) => m.class = found.classes.of(*protocol, &class),
            None => {
                m.class = found.classes.unframed();
                m.flags |= flags::UNFRAMED;
            }
        }
        frame.map(|f| f.id)
    }

    /// A thread of the target falls asleep.
    fn slept(&mut self, event: &Event) {
        let (tid, nr, ts) = (event.a_lo(), event.c_lo(), event.ts);
        self.last_send.remove(&tid);
        let for_work =
            nr != u32::MAX && *self.for_work.entry(nr - 1).or_insert_with(|| waits_for_work(&syscall_name(nr - 1)));
        // Waiting for a disk or for the kernel, the thread is still at what it does.
        if event.b_lo() & 2 == 0 && event.aux & switch_flags::IO_WAIT == 0 {
            self.peers.slept(tid, ts, for_work);
        }
        if nr != u32::MAX {
            let facts = self.facts;
            let stack = || facts.symbols.get(facts.names.stack(event.c_hi()) as usize).map(String::as_str);
            if self.windows.slept(tid, nr - 1, ts, (event.c_hi(), stack)) {
                self.turned.insert(tid, ts);
            }
        }
    }

    fn finish(mut self, start_ns: u64, end_ns: u64) -> Scan {
        for cpu in 0..self.cores.len() as u16 {
            let open = self.captures.as_mut().and_then(|(_, captures)| captures.close(cpu));
            if let Some(packet) = open.filter(|p| p.out) {
                self.framed_xmit(&packet, cpu);
            }
        }
        let others = input::others_flows(self.facts);
        for (key, flow) in &mut self.tcp {
            // Another server on the same port (in another network namespace, or a worker that was not chosen) holds it.
            if !flow.receiver.was_read() && others.contains(&(key.addrs, key.ports)) {
                continue;
            }
            flow.end(Incomplete::RecordingEnded, &mut self.found);
        }
        self.udp_replies.end(&mut self.found);
        self.datagrams.end(&mut self.found);
        self.stamp_replies();
        let unstamped = self.nic.judge(&mut self.found.messages);
        let windows = self.windows.finish(end_ns, &self.found.messages, &mut self.found.extras);
        let (all, extras) = (&mut self.found.messages, &mut self.found.extras);
        let sent = self.found.sent.iter_mut().map(|(_, m, extra)| (m, extra));
        let outgoing = self.outgoing.finish(&self.flows, all.iter_mut().zip(extras).chain(sent));
        mark_serving(&self.tree, &mut self.cores, &windows);
        self.cores.iter_mut().for_each(Core::complete);
        self.threads.complete();
        input::name_flows(&mut self.flows, self.facts);
        let Found { messages, extras, mut incomplete, classes, mut framing, sent } = self.found;

        let losses = self.losses.finish(end_ns);
        // Messages that arrived at the same time stay in the order of their receive calls.
        let mut order: Vec<(u64, u32)> = messages.iter().map(|m| m.driver_ns).zip(0..).collect();
        if !losses.is_empty() {
            order.retain(|&(_, i)| !overlaps(&losses, &messages[i as usize]));
            let lost = (messages.len() - order.len()) as u64;
            if lost > 0 {
                incomplete.insert(Incomplete::EventsLost, lost);
            }
        }
        let before = order.len();
        order.retain(|&(_, i)| !unstamped[i as usize]);
        if order.len() < before {
            let without = (before - order.len()) as u64;
            incomplete.insert(Incomplete::NotStamped, without);
        }
        // Nearly in order already, which this sort makes use of.
        order.sort();
        let in_order: Vec<u32> = order.iter().map(|&(_, i)| i).collect();
        let sleeps = |tid| self.threads.slept_in(tid, |nr| waits_for_work(&syscall_name(nr)));
        let peers = self.peers.finish(&messages, &extras, &in_order, sleeps);
        drop(order);
        let mut sorted = gathered(messages, &in_order);
        for (id, message) in (0..).zip(&mut sorted) {
            message.id = id;
            self.flows[message.flow as usize].messages += 1;
        }
        let framing = self.captures.map(|(protocol, _)| {
            framing.protocol = protocol.to_string();
            framing.lost = sorted.iter().filter(|m| m.flags & flags::UNFRAMED != 0).count() as u64;
            framing.framed = sorted.len() as u64 - framing.lost;
            framing
        });
        let extras: Vec<Extra> = gathered(extras, &in_order);
        let mut sent: Vec<(Sent, Extra)> = sent
            .into_iter()
            .map(|(kind, m, extra)| {
                let Message { flow, bytes, tid, send_ns, xmit_ns, .. } = m;
                (Sent { kind, flow, bytes, tid, send_ns, sent_ns: extra.sent_ns, xmit_ns }, extra)
            })
            .collect();
        sent.sort_by_key(|(s, _)| s.send_ns);
        let overtaken = overtaken::mark(&mut sorted, &windows, &self.threads);
        let faults = self.points.by_message(sorted.iter().zip(&extras));
        Scan {
            tree: self.tree,
            cores: self.cores,
            threads: self.threads,
            windows,
            messages: sorted,
            extras,
            flows: self.flows,
            incomplete,
            faults,
            sent,
            outgoing,
            numa_moves: self.numa_moves,
            drop_reasons: self.facts.drop_reasons,
            overtaken,
            peers,
            classes: classes.into_list(),
            framing,
            nic: self.nic,
            start_ns,
            end_ns,
        }
    }
}

/// Marks the segments in which a thread of the target ran inside one of its serving windows. Windows begin and end
/// at events of the thread itself, which are segment borders wherever the thread ran.
fn mark_serving(tree: &Tree, cores: &mut [Core], windows: &FxHashMap<u32, Vec<Window>>) {
    let mut threads: Vec<(&[Window], usize)> = Vec::with_capacity(windows.len());
    let mut by_tid: FxHashMap<u32, usize> = FxHashMap::default();
    for (&tid, windows) in windows {
        by_tid.insert(tid, threads.len());
        threads.push((windows, 0));
    }
    let serves: Vec<Option<usize>> =
        (0..tree.len()).map(|node| by_tid.get(&tree.task_of(node as NodeId)).copied()).collect();
    for core in cores {
        threads.iter_mut().for_each(|(_, at)| *at = 0);
        for segment in &mut core.segments {
            let Some(thread) = serves[segment.node as usize] else { continue };
            let (windows, at) = &mut threads[thread];
            while windows.get(*at).is_some_and(|w| w.to <= segment.from) {
                *at += 1;
            }
            segment.serving = windows.get(*at).is_some_and(|w| w.from <= segment.from);
        }
    }
}

fn index_of(index: &mut FxHashMap<FlowKey, u32>, flows: &mut Vec<Flow>, key: FlowKey) -> u32 {
    *index.entry(key).or_insert_with(|| {
        flows.push(Flow { key, name: key.to_string(), messages: 0 });
        flows.len() as u32 - 1
    })
}
