//! One pass over all events in time order: core timelines, thread timelines, messages.

use rustc_hash::{FxHashMap, FxHashSet};
use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::tables::SocketRow;
use tailsight_trace::{Error, Event, FlowKey};

use crate::cores::Core;
use crate::input::Facts;
use crate::matching::replies::{Replies, SendCall};
use crate::matching::tcp::Receiver;
use crate::matching::udp::Datagrams;
use crate::matching::{Extra, Found, RecvCall};
use crate::merge::{Source, in_time_order};
use crate::model::{Flow, Message, flags, syscall_name};
use crate::threads::Threads;
use crate::tree::{NodeId, Tree};

/// A stretch of a thread's time in which it served the messages of one receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The receive call's entry.
    pub from: u64,
    /// The next receive call's entry, or the wait for more work.
    pub to: u64,
    /// Messages that the receive call returned.
    pub messages: u32,
}

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
    pub incomplete: std::collections::BTreeMap<String, u64>,
    /// Time of the first event.
    pub start_ns: u64,
    /// Time of the last event.
    pub end_ns: u64,
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
}

impl TcpFlow {
    /// A SYN: the same ports carry a new connection with sequence numbers of its own, unless it is the same SYN again.
    fn opened(&mut self, seq: u32, found: &mut Found) {
        if self.opened.replace(seq) != Some(seq) {
            self.receiver.end("not read before the connection ended", found);
            self.replies.end(found);
            self.receiver = Receiver::default();
            self.replies = Replies::default();
            self.new = true;
        }
    }
}

struct Scanner<'a> {
    facts: &'a Facts,
    tree: Tree,
    cores: Vec<Core>,
    threads: Threads,
    open_windows: FxHashMap<u32, Window>,
    windows: FxHashMap<u32, Vec<Window>>,
    tcp: FxHashMap<FlowKey, TcpFlow>,
    datagrams: Datagrams,
    udp_replies: FxHashMap<(u32, u32), Replies>,
    udp_xmit: FxHashMap<u32, (u64, u16)>,
    flow_index: FxHashMap<FlowKey, u32>,
    flows: Vec<Flow>,
    found: Found,
    waits: FxHashMap<u32, bool>,
    /// Whether a sleep, by system call and stack, is a wait for work.
    sleeps: FxHashMap<(u32, u32), bool>,
    /// When a thread ended its last send, if it has received nothing since: then it turned to other work.
    last_send: FxHashMap<u32, u64>,
    losses: Losses,
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
        open_windows: FxHashMap::default(),
        windows: FxHashMap::default(),
        tcp: FxHashMap::default(),
        datagrams: Datagrams::default(),
        udp_replies: FxHashMap::default(),
        udp_xmit: FxHashMap::default(),
        flow_index: FxHashMap::default(),
        flows: Vec::new(),
        found: Found::default(),
        waits: FxHashMap::default(),
        sleeps: FxHashMap::default(),
        last_send: FxHashMap::default(),
        losses: Losses::default(),
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
        match kind {
            Kind::RxNapi | Kind::RxBacklog => self.early(cpu, event),
            Kind::RxStack => self.stack(cpu, event),
            Kind::Handoff => self.handoff(cpu, event),
            Kind::SkbDrop if event.aux & flow_flags::UDP != 0 => self.datagrams.dropped(event, cpu, &mut self.found),
            Kind::SkbDrop => {
                if let Some(flow) = self.tcp.get_mut(&FlowKey::of(event)) {
                    flow.receiver.dropped(event);
                }
            }
            Kind::TxDriver => self.xmit(cpu, event),
            Kind::Recv => self.recv(cpu, event),
            Kind::Send => self.sent(event),
            Kind::SyscallEnter => self.maybe_close_window(event.tid, event.a as u32, event.ts),
            Kind::SchedSwitch if event.c_lo() != 0 => self.slept(event),
            _ => {}
        }
        let core = &mut self.cores[usize::from(cpu)];
        let node = if core.segments.is_empty() { self.tree.task(event.tid) } else { core.node() };
        self.threads.take(&self.tree, cpu, node, kind, event);
        core.take(&mut self.tree, &mut self.threads, kind, event);
    }

    fn early(&mut self, cpu: u16, event: &Event) {
        if event.aux & flow_flags::UDP != 0 {
            self.datagrams.early(event, cpu);
        } else {
            self.tcp.entry(FlowKey::of(event)).or_default().receiver.early(event, cpu);
        }
    }

    fn stack(&mut self, cpu: u16, event: &Event) {
        if event.aux & flow_flags::FOREIGN != 0 {
            return;
        }
        if event.aux & flow_flags::UDP != 0 {
            self.datagrams.stack(event, cpu, &mut self.found);
        } else {
            let flow = self.tcp.entry(FlowKey::of(event)).or_default();
            if event.aux & flow_flags::SYN != 0 {
                flow.opened(event.b_hi(), &mut self.found);
            }
            flow.receiver.stack(event, cpu);
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
        // done for others; else the call's end.
        let turned = self.last_send.remove(&tid);
        let entered = self.threads.syscall_since(tid).or(turned).unwrap_or(event.ts);
        let call = RecvCall { ts: event.ts, entered, cpu, tid };
        let key = FlowKey::of(event);
        let range = if key.is_udp() {
            let (flow_index, flows) = (&mut self.flow_index, &mut self.flows);
            let mut index = |key| index_of(flow_index, flows, key);
            let range = self.datagrams.recv(event, call, &mut index, &mut self.found);
            self.udp_replies.entry((event.c_hi(), tid)).or_default().received(range.clone(), &mut self.found);
            range
        } else {
            let flow = self.tcp.entry(key).or_default();
            let index = *flow.index.get_or_insert_with(|| index_of(&mut self.flow_index, &mut self.flows, key));
            let range = flow.receiver.recv(event, call, index, &mut self.found);
            if std::mem::take(&mut flow.new)
                && let Some(first) = self.found.messages.get_mut(range.start as usize)
            {
                first.flags |= flags::FIRST;
            }
            flow.replies.received(range.clone(), &mut self.found);
            range
        };
        if !range.is_empty() {
            self.close_window(tid, entered);
            self.open_windows.insert(tid, Window { from: entered, to: u64::MAX, messages: range.end - range.start });
        }
    }

    fn sent(&mut self, event: &Event) {
        let tid = event.tid;
        self.last_send.insert(tid, event.ts);
        let call = SendCall {
            entered: self.threads.syscall_since(tid).unwrap_or(event.ts),
            ts: event.ts,
            tid,
            end: event.b_hi(),
            inline_xmit: None,
        };
        let key = FlowKey::of(event);
        if key.is_udp() {
            // Without a system call there is no telling since when; what was sent before is gone from here.
            let since = self.threads.syscall_since(tid).unwrap_or(0);
            let inline_xmit = self.udp_xmit.remove(&tid).filter(|(ts, _)| *ts >= since);
            if let Some(replies) = self.udp_replies.get_mut(&(event.c_hi(), tid)) {
                replies.sent(SendCall { inline_xmit, ..call }, &mut self.found);
            }
        } else if let Some(flow) = self.tcp.get_mut(&key) {
            flow.replies.sent(call, &mut self.found);
        }
    }

    fn xmit(&mut self, cpu: u16, event: &Event) {
        if event.aux & flow_flags::UDP != 0 {
            self.udp_xmit.insert(event.tid, (event.ts, cpu));
        } else if let Some(flow) = self.tcp.get_mut(&FlowKey::of(event)) {
            let end = event.b_hi().wrapping_add(event.c_lo());
            flow.replies.xmit(end, event.ts, cpu, &mut self.found);
        }
    }

    /// A thread that asks for more work has finished what it had.
    fn maybe_close_window(&mut self, tid: u32, nr: u32, ts: u64) {
        if self.open_windows.contains_key(&tid) && *self.waits.entry(nr).or_insert_with(|| waits_for_work(nr)) {
            self.close_window(tid, ts);
        }
    }

    /// A thread of the target falls asleep: in a wait for more work, or in a receive call that found none.
    fn slept(&mut self, event: &Event) {
        let (tid, nr, ts) = (event.a_lo(), event.c_lo(), event.ts);
        self.last_send.remove(&tid);
        if nr == u32::MAX || !self.open_windows.contains_key(&tid) {
            return;
        }
        let key = (nr - 1, event.c_hi());
        let facts = self.facts;
        let waits = *self.sleeps.entry(key).or_insert_with(|| {
            let stack = facts.symbols.get(facts.names.stack(key.1) as usize);
            let in_socket = stack.is_some_and(|s| RECEIVE_WAITS.iter().any(|f| s.contains(f)));
            in_socket || waits_for_work(key.0) || RECEIVE_CALLS.contains(&syscall_name(key.0).as_str())
        });
        if waits {
            self.close_window(tid, ts);
        }
    }

    fn close_window(&mut self, tid: u32, at: u64) {
        if let Some(mut window) = self.open_windows.remove(&tid) {
            window.to = at.max(window.from);
            self.windows.entry(tid).or_default().push(window);
        }
    }

    fn finish(mut self, start_ns: u64, end_ns: u64) -> Scan {
        let open: Vec<u32> = self.open_windows.keys().copied().collect();
        for tid in open {
            self.close_window(tid, end_ns);
        }
        let others = others_flows(self.facts);
        for (key, flow) in &mut self.tcp {
            // Another server on the same port (in another network namespace, or a worker that was not chosen) holds it.
            if !flow.receiver.was_read() && others.contains(&(key.addrs, key.ports)) {
                continue;
            }
            flow.receiver.end("not received before the recording ended", &mut self.found);
            flow.replies.end(&mut self.found);
        }
        for replies in self.udp_replies.values_mut() {
            replies.end(&mut self.found);
        }
        self.datagrams.end(&mut self.found);
        self.mark_serving();
        self.cores.iter_mut().for_each(Core::complete);
        self.threads.complete();
        name_flows(&mut self.flows, self.facts);
        let Found { messages, extras, mut incomplete } = self.found;
        let losses = self.losses.finish(end_ns);
        // Messages that arrived at the same time stay in the order of their receive calls.
        let mut order: Vec<(u64, u32)> = messages.iter().map(|m| m.driver_ns).zip(0..).collect();
        if !losses.is_empty() {
            order.retain(|&(_, i)| !overlaps(&losses, &messages[i as usize]));
            let lost = (messages.len() - order.len()) as u64;
            if lost > 0 {
                incomplete.insert("on its way while events were lost".into(), lost);
            }
        }
        order.sort_unstable();
        let mut sorted = Vec::with_capacity(messages.len());
        for (id, &(_, i)) in (0..).zip(&order) {
            let message = Message { id, ..messages[i as usize] };
            self.flows[message.flow as usize].messages += 1;
            sorted.push(message);
        }
        let extras = order.iter().map(|&(_, i)| extras[i as usize]).collect();
        Scan {
            tree: self.tree,
            cores: self.cores,
            threads: self.threads,
            windows: self.windows,
            messages: sorted,
            extras,
            flows: self.flows,
            incomplete,
            start_ns,
            end_ns,
        }
    }

    /// Marks the segments in which a thread of the target ran inside one of its serving windows. Windows begin and end
    /// at events of the thread itself, which are segment borders wherever the thread ran.
    fn mark_serving(&mut self) {
        let mut threads: Vec<(&[Window], usize)> = Vec::with_capacity(self.windows.len());
        let mut by_tid: FxHashMap<u32, usize> = FxHashMap::default();
        for (&tid, windows) in &self.windows {
            by_tid.insert(tid, threads.len());
            threads.push((windows, 0));
        }
        let serves: Vec<Option<usize>> =
            (0..self.tree.len()).map(|node| by_tid.get(&self.tree.task_of(node as NodeId)).copied()).collect();
        for core in &mut self.cores {
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
}

fn index_of(index: &mut FxHashMap<FlowKey, u32>, flows: &mut Vec<Flow>, key: FlowKey) -> u32 {
    *index.entry(key).or_insert_with(|| {
        flows.push(Flow { key, name: key.to_string(), messages: 0 });
        flows.len() as u32 - 1
    })
}

/// System calls in which a server waits for its next work. Receive calls are no such: a thread-a-connection server
/// waits in them, but each that returns data opens a window of its own.
fn waits_for_work(nr: u32) -> bool {
    let name = syscall_name(nr);
    ["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6", "io_uring_enter"]
        .contains(&name.as_str())
}

/// Calls that sleep only when there is nothing to receive.
const RECEIVE_CALLS: [&str; 5] = ["recvfrom", "recvmsg", "recvmmsg", "accept", "accept4"];

/// Functions in which read(2) and the like wait for data of a socket.
const RECEIVE_WAITS: [&str; 2] = ["sk_wait_data", "__skb_wait_for_more_packets"];

/// Connections that a process outside the target holds: (address key, ports).
fn others_flows(facts: &Facts) -> FxHashSet<(u64, u32)> {
    let not_ours = |s: &&SocketRow| s.tgid != 0 && s.remote_port != 0 && !facts.names.is_target(s.tgid);
    let ports = |s: &SocketRow| u32::from(s.local_port) << 16 | u32::from(s.remote_port);
    facts.sockets.iter().filter(not_ours).map(|s| (s.addrs, ports(s))).collect()
}

/// IPv6 flows get their addresses from the recorder's socket table.
fn name_flows(flows: &mut [Flow], facts: &Facts) {
    let by_key: FxHashMap<(u64, u16, u16), &SocketRow> = facts
        .sockets
        .iter()
        .filter(|s| !s.local_addr.is_empty())
        .map(|s| ((s.addrs, s.local_port, s.remote_port), s))
        .collect();
    for flow in flows.iter_mut().filter(|f| f.key.is_v6()) {
        if let Some(s) = by_key.get(&(flow.key.addrs, flow.key.local_port(), flow.key.remote_port())) {
            let proto = if flow.key.is_udp() { "udp" } else { "tcp" };
            flow.name = format!("{proto} [{}]:{} <- [{}]:{}", s.local_addr, s.local_port, s.remote_addr, s.remote_port);
        }
    }
}
