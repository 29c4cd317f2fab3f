//! Calls to servers behind the target: whose answer a message waited for, and which sleeps a packet of such a server ended.
//!
//! In: sends, data-ready and receive events of connections that the target opened (Send with the flag client, PeerReady, PeerRecv), and
//! what its threads did in between. Out: the [`Call`]s of each message, and a [`Ready`] for each wake-up by such a packet. A *call*
//! begins with a send on a connection without another open call, by a thread that works for a message, and ends with the last
//! data-ready event before the answer is received. [`crate::messages::call_owner`] finds the message of a call if an event loop had
//! several candidates, and if it waited for a connection of a full pool: that wait is a [`Call`], too. A connection on which a request of
//! another message is sent before the answer came (pipelining) gives no calls, also not those before, which may be matched wrongly by one:
//! which answer is whose no event tells. Likewise a connection on which the bytes of several messages of a client went out in one send, as a
//! proxy passes on what it does not read. Its packets still end sleeps. All times in ns.

use rustc_hash::{FxHashMap, FxHashSet};
use tailsight_trace::tables::SocketRow;
use tailsight_trace::{Event, FlowKey, fields};

use crate::messages::by_thread::by_thread;
use crate::messages::call_owner::{self, Question, Told, Whose};
use crate::messages::handed_jobs::{self, CallOfJob};
use crate::messages::relayed::{self, Relayed};
use crate::messages::routines::{ByLoops, Routines, SendsFor};
use crate::messages::{Extra, sequence_diff, slots};
use crate::model::{Message, Threshold};
use crate::timelines::threads::Threads;

/// No message.
pub const NOBODY: u32 = u32::MAX;

/// A server of which only the socket is known with which it was asked.
pub const UNKNOWN_ADDRESS: &str = "a server whose address is not known";

/// A message's wait for another server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// When the thread that had sent the request turned to something else: asleep, or another message.
    pub from: u64,
    /// When the (last part of the) answer could be read.
    pub to: u64,
    /// When the application had the first part of it.
    pub received: u64,
    /// The thread that received it.
    pub tid: u32,
    /// The server: index into the run's symbols.
    pub peer: u32,
    /// When the message's goroutine had its request sent; 0: not known to be of one.
    pub sent: u64,
    /// Of that, when the answer to another message's call on this connection was received, if that came after this message: the connection was
    /// not free before; else 0.
    pub freed: u64,
    /// It is a wait for its turn there: the answer is to another message's request.
    pub turn: bool,
    /// Whose it is rests on the order of calls: the thread that sent it had several messages, and nothing else tells which asked.
    pub guessed: bool,
}

/// A connection to another server was made readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The server: index into the run's symbols.
    pub peer: u32,
    /// The message whose call is open on it; [`NOBODY`]: not known.
    pub of: u32,
    /// When a call was sent of which it is not known whose it is; 0: no such call is open on it.
    pub sent: u64,
    /// The server, for other requests than the one that waits: index into the run's symbols.
    pub for_others: u32,
    /// As [`Call::guessed`], of the call that it answers.
    pub guessed: bool,
}

/// What was found, by message in order of arrival.
#[derive(Debug, Default)]
pub struct Found {
    calls: Vec<Call>,
    /// Where each message's calls begin; empty when there are none at all.
    offsets: Vec<u32>,
    /// By number less one.
    pub readies: Vec<Ready>,
    /// Names of servers: symbols behind those of the run.
    pub names: Vec<String>,
    /// The servers that most of the messages that asked them asked beside others: indices into the run's symbols.
    pub in_parallel: FxHashSet<u32>,
    /// By message: when the first of the calls was sent that may be its own, of those of which it is not known whose they are.
    /// Empty where none are unknown.
    own_from: Vec<u64>,
    /// Calls whose waits are not known, because several requests were under way on their connection at a time.
    pub unknown: u64,
    /// By task of tokio: when it sent a request, or had one sent, when the answer could be read, and the server: index into the run's symbols.
    by_task: FxHashMap<u64, Vec<(u64, u64, u32)>>,
}

impl Found {
    /// Whether an answer to a call of which it is not known whose it is, sent at that time, may be for this message. It cannot, if the call was
    /// sent before the message was received, or if as many as a message of this run has were sent later.
    pub fn may_be_for(&self, message: u32, sent: u64) -> bool {
        self.own_from.get(message as usize).is_none_or(|&from| sent >= from)
    }

    /// The server that a task waited for most of a time, by number among the run's symbols; 0: for none.
    pub fn asked_by(&self, task: u64, (from, to): (u64, u64)) -> u32 {
        let calls = self.by_task.get(&task).map_or(&[][..], Vec::as_slice);
        let upto = calls.partition_point(|&(sent, ..)| sent < to);
        let waited = |&(sent, ready, _): &(u64, u64, u32)| ready.min(to).saturating_sub(sent.max(from));
        let longest = calls[..upto].iter().rev().take(MOST_AT_ONCE).max_by_key(|&call| waited(call));
        longest.filter(|&call| waited(call) * 2 > to.saturating_sub(from)).map_or(0, |&(.., peer)| peer)
    }

    /// The calls of a message, in order, none inside another.
    pub fn calls(&self, message: u32) -> &[Call] {
        match self.offsets.get(message as usize..message as usize + 2) {
            Some(range) => &self.calls[range[0] as usize..range[1] as usize],
            None => &[],
        }
    }
}

/// So many of these of an answer are kept.
const MOST_UNREAD: usize = 1_024;

/// Calls of a task that are under way at a time.
const MOST_AT_ONCE: usize = 16;

#[derive(Clone, Debug)]
struct Open {
    /// Index of the message as found; [`NOBODY`]: which one is not known.
    of: u32,
    by_routine: ByRoutine,
    /// The tasks of tokio that wait for its answer: that which sent it, and that for which it did.
    tasks: [u64; 2],
    key: FlowKey,
    sent: u64,
    sender: u32,
    /// It was sent in several pieces.
    pieces: bool,
    /// Its message waited until the connection was free.
    in_line: bool,
    /// As [`Call::guessed`].
    guessed: bool,
    left: u64,
    ready: u64,
    /// Of the answer's part that was not received yet.
    ready_next: u64,
    /// The sequence number after the last byte that could be read.
    ready_upto: u32,
    received: u64,
    receiver: u32,
    /// When the last part of the answer was received.
    last: u64,
    /// When parts of the answer could be read and were not: from when to when.
    unread: Vec<(u64, u64)>,
    peer: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    peer: u32,
    /// Index of the call plus one.
    open: u32,
    /// Requests of several messages were under way on it at once.
    shared: bool,
    /// Sends when that was known.
    sends_on_shared: u64,
    /// Something came on it. What is sent where nothing ever comes asks nothing (logs, metrics).
    answers: bool,
}

/// What the goroutine that sent a request says of whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByRoutine {
    /// It is no Go program.
    NotKnown,
    /// This task has received no message: a goroutine works for itself, or sends for another (`net/http`'s writer of a connection); a task
    /// of asyncio never receives.
    HasNone(u64),
    /// The message that it received last, as found.
    Of(u32),
}

/// What a thread works for.
#[derive(Clone, Copy, Debug)]
struct Working {
    /// The message, as found.
    message: u32,
    /// The first of those that it received in the same call, unless it sent something to another server since: then the same message.
    first: u32,
}

impl Working {
    fn for_one(message: u32) -> Working {
        Working { message, first: message }
    }
}

/// Takes the events.
#[derive(Debug, Default)]
pub struct Peers {
    connections: FxHashMap<FlowKey, Connection>,
    /// The message that each thread works for, as far as is known.
    working: FxHashMap<u32, Working>,
    /// The message that each goroutine received last, as found.
    of_routine: FxHashMap<u64, u32>,
    /// Calls whose sender still runs on, by thread.
    leaving: FxHashMap<u32, Vec<u32>>,
    calls: Vec<Open>,
    /// The call that was open when a connection was made readable, by number of the [`Ready`] less one.
    ready_of: Vec<Option<u32>>,
    readies: Vec<Ready>,
    names: Vec<String>,
    by_name: FxHashMap<String, u32>,
    /// Number of the first name among the run's symbols.
    first: u32,
}

impl Peers {
    /// `symbols`: how many the run has.
    pub fn new(symbols: usize) -> Peers {
        Peers { first: symbols.max(1) as u32, ..Peers::default() }
    }

    /// A thread received messages (as found) in one call.
    pub fn took(&mut self, tid: u32, messages: std::ops::RangeInclusive<u32>, at: u64) {
        self.leaves(tid, at, None);
        let (first, message) = messages.into_inner();
        self.working.insert(tid, Working { message, first });
    }

    /// Whether a task has received a message that is not answered yet. `messages`: as found.
    pub fn has_open(&self, routine: u64, messages: &[Message]) -> bool {
        let message = self.of_routine.get(&routine).and_then(|&message| messages.get(message as usize));
        message.is_some_and(|m| m.send_ns == 0)
    }

    /// It did so in this goroutine.
    pub fn took_in(&mut self, routine: u64, message: u32) {
        self.of_routine.insert(routine, message);
    }

    /// A goroutine is made, for a message (as found) if it is known to be for one. Another one may have been at its address.
    pub fn is_made(&mut self, routine: u64, message: Option<u32>) {
        match message {
            Some(message) => self.of_routine.insert(routine, message),
            None => self.of_routine.remove(&routine),
        };
    }

    /// A thread falls asleep. `for_work`: in the call in which it waits for more work.
    pub fn slept(&mut self, tid: u32, at: u64, for_work: bool) {
        if self.calls.is_empty() {
            if for_work && !self.working.is_empty() {
                self.working.remove(&tid);
            }
            return;
        }
        self.leaves(tid, at, None);
        if for_work {
            self.working.remove(&tid);
        }
    }

    fn leaves(&mut self, tid: u32, at: u64, but: Option<u32>) {
        if let Some(calls) = self.leaving.get_mut(&tid) {
            calls.retain(|&c| {
                let stays = Some(c + 1) == but;
                if !stays {
                    self.calls[c as usize].left = at;
                }
                stays
            });
        }
    }

    fn connection(&mut self, key: FlowKey, sockets: &[SocketRow]) -> &mut Connection {
        let (names, by_name, first) = (&mut self.names, &mut self.by_name, self.first);
        self.connections.entry(key).or_insert_with(|| {
            let name = name_of(key, sockets);
            let peer = *by_name.entry(name).or_insert_with_key(|name| {
                names.push(name.clone());
                first + names.len() as u32 - 1
            });
            Connection { peer, ..Connection::default() }
        })
    }

    /// The application sent something to another server. `messages`: as found. `to`: the flow of the packet, where that is known: a UDP socket that is not
    /// connected does not know to whom it sends. `sends_for`: the task that sent it.
    pub fn sent(
        &mut self,
        event: &Event,
        (to, sends_for): (FlowKey, Option<SendsFor>),
        sockets: &[SocketRow],
        messages: &[Message],
    ) {
        let (tid, ts) = (event.tid, event.ts);
        let by_routine = sends_for.map_or(ByRoutine::NotKnown, |SendsFor { task, .. }| {
            self.of_routine.get(&task).map_or(ByRoutine::HasNone(task), |&message| ByRoutine::Of(message))
        });
        let working = self.working.get_mut(&tid).map(|of| std::mem::replace(of, Working::for_one(of.message)));
        let of = match by_routine {
            ByRoutine::Of(message) => message,
            _ => working.map_or(NOBODY, |working| working.message),
        };
        let key = FlowKey::of(event);
        let mut connection = *self.connection(key, sockets);
        if key.remote_port() == 0 && to.remote_port() != 0 {
            connection.peer = self.connection(to, sockets).peer;
            self.connections.insert(key, connection);
        }
        if connection.shared {
            connection.sends_on_shared += 1;
            self.connections.insert(key, connection);
            return;
        }
        if working.is_some_and(|working| passes_several_on(working, messages, fields::Send::of(event).bytes)) {
            connection.shared = true;
            self.connections.insert(key, connection);
        }
        if let Some(open) = connection.open.checked_sub(1).map(|c| &mut self.calls[c as usize])
            && open.received == 0
        {
            open.pieces = true;
            // A request in several pieces, or one that does not wait for the answer to the one before.
            if open.of != of || open.ready_next != 0 {
                self.calls[connection.open as usize - 1].of = NOBODY;
                self.calls[connection.open as usize - 1].received = 0;
                self.connections.insert(key, Connection { open: 0, shared: true, ..connection });
            }
            return;
        }
        let peer = connection.peer;
        self.calls.push(Open {
            of,
            by_routine,
            tasks: sends_for.map_or([0; 2], |of| [of.sender, of.asked_by]),
            key,
            sent: ts,
            sender: tid,
            pieces: false,
            in_line: false,
            guessed: false,
            left: 0,
            ready: 0,
            ready_next: 0,
            ready_upto: 0,
            received: 0,
            receiver: 0,
            last: 0,
            unread: Vec::new(),
            peer,
        });
        let call = self.calls.len() as u32;
        self.connections.insert(key, Connection { open: call, ..connection });
        self.leaving.entry(tid).or_default().push(call - 1);
    }

    /// A connection was made readable. Returns the number of its [`Ready`].
    pub fn ready(&mut self, event: &Event, sockets: &[SocketRow]) -> u32 {
        let connection = self.connection(FlowKey::of(event), sockets);
        connection.answers = true;
        let connection = *connection;
        let call = connection.open.checked_sub(1);
        if let Some(open) = call.and_then(|c| self.calls.get_mut(c as usize)) {
            open.ready_next = event.ts;
            open.ready_upto = fields::Handoff::of(event).rcv_nxt;
        }
        self.readies.push(Ready {
            peer: connection.peer,
            of: NOBODY,
            sent: 0,
            for_others: connection.peer,
            guessed: false,
        });
        self.ready_of.push(call);
        self.readies.len() as u32
    }

    /// The application received an answer, or a part of one. For a message that is known: whether its thread worked for it before.
    pub fn received(&mut self, event: &Event, sockets: &[SocketRow]) -> Option<bool> {
        let tid = event.tid;
        let event_key = FlowKey::of(event);
        let connection = *self.connection(event_key, sockets);
        self.leaves(tid, event.ts, Some(connection.open));
        let open = connection.open.checked_sub(1).and_then(|c| self.calls.get_mut(c as usize))?;
        // What was there all the while can be read when the program likes.
        let was_there = open.ready != 0
            && !event_key.is_udp()
            && sequence_diff(fields::Recv::of(event).copied_seq, open.ready_upto) <= 0;
        open.ready = match open.ready_next {
            0 if was_there => open.ready,
            0 => event.ts,
            ready => ready,
        };
        open.ready_next = 0;
        open.last = event.ts;
        if event.ts - open.ready >= Threshold::UnreadPart.ns() && open.unread.len() < MOST_UNREAD {
            open.unread.push((open.ready, event.ts));
        }
        if open.received == 0 {
            (open.received, open.receiver) = (event.ts, tid);
        }
        let of = open.of;
        (of != NOBODY)
            .then(|| self.working.insert(tid, Working::for_one(of)).is_some_and(|before| before.message == of))
    }

    /// All events were taken. `messages` and `extras` as found; `order`: the found index of each message that is kept, in order
    /// of arrival; `sleeps`: when a thread began to wait for work, in order; `routines`: the tasks of messages; `threads`: what each did.
    pub fn finish(
        mut self,
        messages: &[Message],
        extras: &[Extra],
        order: &[u32],
        sleeps: impl Fn(u32) -> Vec<u64>,
        routines: &Routines,
        threads: &Threads,
    ) -> Found {
        self.tell_the_several(messages, extras, &sleeps);
        self.ask_who_was_made_ready(routines, messages, extras);
        self.ask_the_routines(routines.by_loops());
        if routines.by_loops().is_empty() {
            self.ask_the_relayed(routines, messages, extras, &sleeps);
        }
        self.ask_who_handed_a_job(messages, extras, threads);
        let mut place = vec![NOBODY; messages.len()];
        order.iter().zip(0..).for_each(|(&i, id)| place[i as usize] = id);
        let kept = |of: u32| place.get(of as usize).copied().unwrap_or(NOBODY);
        let mut waits: Vec<(u32, Call)> = vec![];
        let unknown = self.on_shared_connections();
        let by_task = self.by_task();
        let freed = self.freed();
        for c in self.calls.iter().filter(|c| c.received != 0 && kept(c.of) != NOBODY && !self.is_shared(&c.key)) {
            let m = &messages[c.of as usize];
            // Answered before the other server was: nobody waited for it.
            let from = if c.left == 0 { c.received } else { c.left };
            if c.sent >= m.recv_ns && c.ready > from && m.send_ns >= c.ready {
                let sent = if c.by_routine == ByRoutine::NotKnown { 0 } else { c.sent };
                let freed = freed.get(&(c.key, c.sent)).copied().filter(|freed| *freed > m.recv_ns).unwrap_or(0);
                let call = Call {
                    from,
                    to: c.ready,
                    received: c.received,
                    tid: c.receiver,
                    peer: c.peer,
                    sent,
                    freed,
                    turn: false,
                    guessed: c.guessed,
                };
                // While a part lies unread, the program does not wait for the server, whatever is to come.
                let mut from = call.from;
                for &(ready, received) in c.unread.iter().filter(|&&(ready, _)| ready < c.ready) {
                    if from < ready {
                        waits.push((kept(c.of), Call { from, to: ready, received, ..call }));
                    }
                    from = received.max(from);
                }
                if from < c.ready {
                    let received = if from == call.from { c.received } else { c.last };
                    waits.push((kept(c.of), Call { from, received, ..call }));
                }
            }
        }
        let for_slots = self.waits_for_a_slot(messages, &sleeps);
        for (of, wait) in self.waits_for_a_connection(messages, &sleeps).into_iter().chain(for_slots) {
            if kept(of) != NOBODY {
                waits.push((kept(of), wait));
            }
        }
        waits.sort_unstable_by_key(|&(id, c)| (id, c.from, c.to));
        let mut out = Found { unknown, by_task, in_parallel: in_parallel(&waits), ..Found::default() };
        if !waits.is_empty() {
            out.offsets.reserve(order.len() + 1);
            let mut next = waits.into_iter().peekable();
            for id in 0..order.len() as u32 {
                out.offsets.push(out.calls.len() as u32);
                let first = out.calls.len();
                while let Some((_, call)) = next.next_if(|w| w.0 == id) {
                    // Of calls at the same time the one that ends last counts: when the others were answered, the message went on waiting.
                    match out.calls[first..].last_mut().filter(|before| call.from < before.to) {
                        Some(before) if call.to <= before.to => continue,
                        Some(before) if before.from < call.from => before.to = call.from,
                        Some(_) => drop(out.calls.pop()),
                        None => {}
                    }
                    out.calls.push(call);
                }
            }
            out.offsets.push(out.calls.len() as u32);
        }
        let mut readies = std::mem::take(&mut self.readies);
        for (ready, call) in readies.iter_mut().zip(std::mem::take(&mut self.ready_of)) {
            let Some(call) = call.map(|c| &self.calls[c as usize]) else { continue };
            ready.of = if self.is_shared(&call.key) { NOBODY } else { kept(call.of) };
            ready.guessed = call.guessed;
            if ready.of == NOBODY {
                (ready.sent, ready.for_others) = (call.sent, self.for_other_requests(ready.peer));
            }
        }
        let own_from = self.own_from(messages, order, |id| out.calls(id).len());
        Found { readies, own_from, names: self.names, ..out }
    }

    /// Whether requests of several messages were under way on a connection at once, at any time.
    fn is_shared(&self, key: &FlowKey) -> bool {
        self.connections.get(key).is_some_and(|connection| connection.shared)
    }

    /// Sends on connections that requests share.
    fn on_shared_connections(&self) -> u64 {
        let shared = || self.connections.iter().filter(|(_, connection)| connection.shared && connection.answers);
        let keys: FxHashSet<&FlowKey> = shared().map(|(key, _)| key).collect();
        let first = self.calls.iter().filter(|c| keys.contains(&c.key)).count() as u64;
        first + shared().map(|(_, connection)| connection.sends_on_shared).sum::<u64>()
    }

    /// The messages that waited until a connection was free, each with that wait: from when the loop that had received it waited for work
    /// until the connection's answer to another message's call could be read.
    fn waits_for_a_connection(&self, messages: &[Message], sleeps: &impl Fn(u32) -> Vec<u64>) -> Vec<(u32, Call)> {
        let mut before: FxHashMap<FlowKey, &Open> = FxHashMap::default();
        let mut sleeps_of: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
        let mut out = Vec::new();
        for c in self.calls.iter().filter(|c| c.received != 0) {
            let before = before.insert(c.key, c);
            let (Some(d), Some(m)) = (before.filter(|_| c.in_line), messages.get(c.of as usize)) else { continue };
            // Behind a message of its own connection it waited for its turn.
            if messages.get(d.of as usize).is_some_and(|d| d.flow == m.flow) {
                continue;
            }
            let sleeps = sleeps_of.entry(c.sender).or_insert_with(|| sleeps(c.sender));
            if let Some(&from) = sleeps.get(sleeps.partition_point(|at| *at <= m.recv_ns)).filter(|at| **at < d.ready) {
                let (to, received, tid, peer) = (d.ready, d.received, d.receiver, c.peer);
                let guessed = c.guessed;
                out.push((c.of, Call { from, to, received, tid, peer, sent: 0, freed: 0, turn: true, guessed }));
            }
        }
        out
    }

    /// The messages that waited until one of the few requests was answered that go to a server at a time, each with that wait: see
    /// [`crate::messages::slots`].
    fn waits_for_a_slot(&self, messages: &[Message], sleeps: &impl Fn(u32) -> Vec<u64>) -> Vec<(u32, Call)> {
        let answered: Vec<&Open> = self.calls.iter().filter(|c| c.received != 0 && !self.is_shared(&c.key)).collect();
        // Of each message, when it had the answer to its request before.
        let mut answered_before: FxHashMap<u32, u64> = FxHashMap::default();
        let mut request = |c: &&Open| {
            let message = messages.get(c.of as usize);
            let before = answered_before.insert(c.of, c.last).unwrap_or(0);
            let since_ns = message.filter(|m| m.tid == c.sender && before <= c.sent).map(|m| m.recv_ns.max(before));
            slots::Request { server: c.peer, sent: (c.sender, c.sent), answered_ns: c.last, since_ns }
        };
        let requests: Vec<slots::Request> = answered.iter().map(&mut request).collect();
        let waits = answered.iter().zip(slots::waits(&requests, sleeps)).filter(|(c, _)| !c.in_line);
        let call = |(c, wait): (&&Open, Option<slots::Wait>)| {
            let slots::Wait { from_ns: from, freed_by } = wait?;
            let Open { ready: to, received, receiver: tid, .. } = *answered[freed_by];
            let (peer, guessed) = (c.peer, c.guessed);
            Some((c.of, Call { from, to, received, tid, peer, sent: 0, freed: 0, turn: true, guessed }))
                .filter(|_| from < to)
        };
        waits.filter_map(call).collect()
    }

    /// The calls of each task of tokio, in order of time.
    fn by_task(&self) -> FxHashMap<u64, Vec<(u64, u64, u32)>> {
        let mut by_task: FxHashMap<u64, Vec<(u64, u64, u32)>> = FxHashMap::default();
        for call in self.calls.iter().filter(|call| call.received != 0 && !self.is_shared(&call.key)) {
            let [task, asked_by] = call.tasks;
            let other = Some(asked_by).filter(|&other| other != task);
            for task in [Some(task), other].into_iter().flatten().filter(|&task| task != 0) {
                by_task.entry(task).or_default().push((call.sent, call.ready, call.peer));
            }
        }
        by_task
    }

    /// By connection and time of a goroutine's call: when the answer to the call before it on that connection was received, if that was
    /// another message's, or nobody's.
    fn freed(&self) -> FxHashMap<(FlowKey, u64), u64> {
        let mut before: FxHashMap<FlowKey, &Open> = FxHashMap::default();
        let mut out = FxHashMap::default();
        for c in self.calls.iter().filter(|c| c.received != 0 && c.by_routine != ByRoutine::NotKnown) {
            if let Some(d) = before.insert(c.key, c).filter(|d| d.of != c.of && d.last <= c.sent) {
                out.insert((c.key, c.sent), d.last);
            }
        }
        out
    }

    /// A goroutine hands its request to another one, which sends it: see [`crate::messages::relayed`].
    fn ask_the_relayed(
        &mut self,
        routines: &Routines,
        messages: &[Message],
        extras: &[Extra],
        sleeps: &impl Fn(u32) -> Vec<u64>,
    ) {
        let asks = |c: &Open| matches!(c.by_routine, ByRoutine::Of(_));
        let asked_directly: FxHashSet<u32> = self.calls.iter().filter(|c| asks(c)).map(|c| c.peer).collect();
        let is_relayed = |c: &Open| {
            matches!(c.by_routine, ByRoutine::HasNone(_))
                && c.received != 0
                && !asked_directly.contains(&c.peer)
                && !self.is_shared(&c.key)
        };
        let at: Vec<usize> = (0..self.calls.len()).filter(|&at| is_relayed(&self.calls[at])).collect();
        let relayed = |&at: &usize| {
            let Open { of, sent, ready, last, receiver, .. } = self.calls[at];
            Relayed { of: Some(of).filter(|&of| of != NOBODY), sent, ready, last: (last, receiver) }
        };
        let calls: Vec<Relayed> = at.iter().map(relayed).collect();
        for (at, whose) in at.into_iter().zip(relayed::tell(&calls, routines, messages, extras, sleeps)) {
            // It waits from then on, whatever the thread does.
            let call = &mut self.calls[at];
            (call.of, call.guessed) = whose.unwrap_or((NOBODY, false));
            call.left = call.sent;
            // Nor does the thread tell what its goroutine waited for before: the connection's answers do.
            call.in_line = false;
        }
    }

    /// A thread that had received nothing asks for the message whose thread gave it the job: see [`crate::messages::handed_jobs`].
    fn ask_who_handed_a_job(&mut self, messages: &[Message], extras: &[Extra], threads: &Threads) {
        // What its thread received before is answered.
        let has_one = |c: &Open| messages.get(c.of as usize).is_some_and(|m| m.send_ns == 0 || m.send_ns > c.sent);
        let is_of_job =
            |c: &Open| !has_one(c) && c.by_routine == ByRoutine::NotKnown && c.received != 0 && !self.is_shared(&c.key);
        let at: Vec<usize> = (0..self.calls.len()).filter(|&at| is_of_job(&self.calls[at])).collect();
        let call = |&at: &usize| {
            let Open { peer: server, sender, sent, ready, receiver, received, .. } = self.calls[at];
            CallOfJob { server, sent: (sender, sent), ready, received: (receiver, received) }
        };
        let calls: Vec<CallOfJob> = at.iter().map(call).collect();
        for (at, whose) in at.into_iter().zip(handed_jobs::tell(&calls, messages, extras, threads)) {
            if let Some(message) = whose {
                let call = &mut self.calls[at];
                // The message's own thread waits from then on, whatever the one with the job does.
                (call.of, call.left) = (message, call.sent);
                (call.guessed, call.in_line) = (false, false);
            }
        }
    }

    /// The symbol of an answer of a server that is for other messages than the one that waits.
    fn for_other_requests(&mut self, peer: u32) -> u32 {
        let Some(server) = peer.checked_sub(self.first).and_then(|i| self.names.get(i as usize)) else { return peer };
        let name = format!("{server}, perhaps for others");
        let (names, first) = (&mut self.names, self.first);
        *self.by_name.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            first + names.len() as u32 - 1
        })
    }

    /// As [`Found::own_from`]. A message makes as many calls as messages of this run do on average, rounded up; a message for which no
    /// connection of a pool is free waits while others' calls are answered, and its own come last. `known`: how many of a message's are known.
    fn own_from(&self, messages: &[Message], order: &[u32], known: impl Fn(u32) -> usize) -> Vec<u64> {
        let mut unknown = self.calls.iter().filter(|c| c.of == NOBODY || self.is_shared(&c.key)).peekable();
        if unknown.peek().is_none() {
            return Vec::new();
        }
        let mut unknown: Vec<(u64, u64)> = unknown.filter(|c| c.received != 0).map(|c| (c.received, c.sent)).collect();
        // Where no answer was seen to be received, nothing says how many calls a message makes.
        if unknown.is_empty() {
            return order.iter().map(|&i| messages[i as usize].recv_ns).collect();
        }
        unknown.sort_unstable();
        let answered = self.calls.iter().filter(|c| c.received != 0).count();
        let served = messages.iter().filter(|m| m.send_ns > m.recv_ns).count();
        let usual = answered.div_ceil(served.max(1));
        let of = |(id, &i): (u32, &u32)| {
            let m = &messages[i as usize];
            let Some(left) = usual.checked_sub(known(id)).filter(|left| *left > 0) else { return u64::MAX };
            let until = unknown.partition_point(|(received, _)| *received <= m.send_ns);
            let within = unknown[..until].iter().rev().take_while(|(received, _)| *received >= m.recv_ns);
            within.filter(|(_, sent)| *sent >= m.recv_ns).take(left).map(|(_, sent)| *sent).min().unwrap_or(m.recv_ns)
        };
        (0..).zip(order).map(of).collect()
    }

    /// By connection: when each call on it was sent, and when the last part of its answer could be read (0: never), in order.
    pub fn answers(&self) -> FxHashMap<FlowKey, Vec<(u64, u64)>> {
        let mut out: FxHashMap<FlowKey, Vec<(u64, u64)>> = FxHashMap::default();
        // Where requests share a connection, no answer is known to be one's.
        for c in self.calls.iter().filter(|c| !self.is_shared(&c.key)) {
            out.entry(c.key).or_default().push((c.sent, if c.received == 0 { 0 } else { c.ready }));
        }
        out
    }

    /// The calls that were answered, in the order in which they were sent.
    pub fn answered(&self) -> Vec<Question> {
        let question = |c: &Open| Question {
            key: c.key,
            sent: (c.sender, c.sent),
            received: (c.receiver, c.received),
            last: c.last,
            pieces: c.pieces,
        };
        self.calls.iter().filter(|c| c.received != 0).map(question).collect()
    }

    /// Event loops ask for messages other than the one that they received last: see [`crate::messages::call_owner`].
    fn tell_the_several(&mut self, messages: &[Message], extras: &[Extra], sleeps: &impl Fn(u32) -> Vec<u64>) {
        let answered: Vec<usize> = (0..self.calls.len()).filter(|&c| self.calls[c].received != 0).collect();
        let questions = self.answered();
        let Told { whose, in_line, guessed } = call_owner::tell(&questions, messages, extras, sleeps);
        let mut received_by = by_thread(messages, |m| (m.recv_ns, m.send_ns));
        received_by.values_mut().for_each(|received| received.sort_unstable());
        let mut unowned = Vec::new();
        for (at, c) in answered.into_iter().enumerate() {
            let call = &mut self.calls[c];
            (call.in_line, call.guessed) = (in_line[at], guessed[at]);
            match whose[at] {
                Whose::Of(m) => call.of = m,
                Whose::Unknown => call.of = NOBODY,
                Whose::NotTold if call.of == NOBODY => unowned.push(c),
                // It received that one last.
                Whose::NotTold => call.guessed = has_several(received_by.get(&call.sender), call.sent),
            }
        }
        self.own_the_unowned(unowned, messages, sleeps);
    }

    /// A client's connection of tokio is a task of its own, which hands each answer to the task that waits for it: it makes that one ready in the
    /// run in which it received the answer.
    fn ask_who_was_made_ready(&mut self, routines: &Routines, messages: &[Message], extras: &[Extra]) {
        let mut by_task: FxHashMap<u64, Vec<u32>> = FxHashMap::default();
        for ((m, extra), message) in messages.iter().zip(extras).zip(0..) {
            if let Some(task) = routines.of(m, extra) {
                by_task.entry(task).or_default().push(message);
            }
        }
        for call in self.calls.iter_mut().filter(|call| call.received != 0) {
            let waits = |message: &&u32| {
                let m = &messages[**message as usize];
                m.recv_ns <= call.sent && call.ready <= m.send_ns
            };
            let mut made_ready = routines.makes_ready(call.receiver, call.received);
            let whose = made_ready.find_map(|task| by_task.get(&task)?.iter().find(waits).copied());
            if let (ByRoutine::HasNone(_), Some(message)) = (call.by_routine, whose) {
                call.by_routine = ByRoutine::Of(message);
                // The task waits from then on, whatever the thread does.
                (call.left, call.guessed, call.in_line) = (call.sent, false, false);
            }
        }
    }

    /// A goroutine that received a message asks for that one, and a task of asyncio for the one that it answers later. Where those of a program
    /// ask a server themselves, a request that another task sends there is for none of them (a job of the program's own).
    fn ask_the_routines(&mut self, by_loops: &ByLoops) {
        let of_task = |task: u64, ts: u64| {
            let had = by_loops.get(&task)?;
            let latest = had[..had.partition_point(|&(recv_ns, ..)| recv_ns <= ts)].last();
            latest.filter(|&&(_, send_ns, _)| ts <= send_ns).map(|&(.., message)| message)
        };
        for call in &mut self.calls {
            if let ByRoutine::HasNone(task) = call.by_routine
                && let Some(message) = of_task(task, call.sent)
            {
                call.by_routine = ByRoutine::Of(message);
                // The task waits from then on, whatever the loop's thread does.
                call.left = call.sent;
            }
            call.guessed &= !matches!(call.by_routine, ByRoutine::Of(_));
        }
        let has_loops = !by_loops.is_empty();
        let asks = |c: &Open| matches!(c.by_routine, ByRoutine::Of(_));
        let asked_directly: FxHashSet<u32> = self.calls.iter().filter(|c| asks(c)).map(|c| c.peer).collect();
        for call in &mut self.calls {
            match call.by_routine {
                ByRoutine::Of(message) => call.of = message,
                // A task of asyncio that answers nobody asks for itself.
                ByRoutine::HasNone(_) if has_loops || asked_directly.contains(&call.peer) => call.of = NOBODY,
                ByRoutine::HasNone(_) | ByRoutine::NotKnown => {}
            }
        }
    }

    /// A call that was sent by a thread that had received nothing itself (a runtime moves work between its threads) belongs
    /// to the only message that was being served from before it until after its answer, when there is only one. Threads of a runtime wait
    /// for work as that does: one that never waits so is of a pool, and has jobs of others than messages.
    fn own_the_unowned(&mut self, mut unowned: Vec<usize>, messages: &[Message], sleeps: &impl Fn(u32) -> Vec<u64>) {
        /// With more messages in service, looking for the one takes too long, and there are several anyway.
        const MOST: usize = 64;
        let mut waits_for_work: FxHashMap<u32, bool> = FxHashMap::default();
        let mut of_runtime = |tid: u32| *waits_for_work.entry(tid).or_insert_with(|| !sleeps(tid).is_empty());
        unowned.retain(|&c| of_runtime(self.calls[c].sender));
        if unowned.is_empty() {
            return;
        }
        unowned.sort_unstable_by_key(|&c| self.calls[c].sent);
        let served = |m: &Message| m.recv_ns != 0 && m.send_ns != 0;
        let mut by_recv: Vec<u32> = messages.iter().zip(0..).filter(|(m, _)| served(m)).map(|(_, i)| i).collect();
        by_recv.sort_unstable_by_key(|&i| messages[i as usize].recv_ns);
        let (mut next, mut active) = (0, Vec::new());
        for c in unowned {
            let call = &mut self.calls[c];
            while next < by_recv.len() && messages[by_recv[next] as usize].recv_ns <= call.sent {
                active.push(by_recv[next]);
                next += 1;
            }
            active.retain(|&i| messages[i as usize].send_ns >= call.sent);
            let mut around = active.iter().filter(|&&i| messages[i as usize].send_ns >= call.received);
            if active.len() <= MOST
                && let (Some(&only), None) = (around.next(), around.next())
            {
                call.of = only;
                // Whether its sender went on working for it is not known: the wait begins with the request.
                call.left = call.sent;
            }
        }
    }
}

/// Whether a thread that received these messages had several at a time. Of each when it was received, ns, in order, and when answered (0: never).
fn has_several(received: Option<&Vec<(u64, u64)>>, at: u64) -> bool {
    /// One that is still open after so many others is open for long.
    const LOOKED_BACK: usize = 64;
    let received = received.map_or(&[][..], Vec::as_slice);
    let upto = received.partition_point(|&(recv_ns, _)| recv_ns <= at);
    // One that is never answered is waited for by nobody.
    received[..upto].iter().rev().take(LOOKED_BACK).filter(|&&(_, send_ns)| send_ns > at).count() > 1
}

/// The servers that most of their messages asked while they waited for another one's answer, too. `waits`: by message, then by begin.
fn in_parallel(waits: &[(u32, Call)]) -> FxHashSet<u32> {
    // By server: messages, and those that asked another one at the same time.
    let mut by_peer: FxHashMap<u32, (u64, u64)> = FxHashMap::default();
    for of_message in waits.chunk_by(|one, other| one.0 == other.0) {
        for (i, (_, call)) in of_message.iter().enumerate().filter(|(_, (_, call))| !call.turn) {
            let overlaps = |(j, (_, other)): (usize, &(u32, Call))| {
                i != j && call.peer != other.peer && call.from < other.to && other.from < call.to
            };
            let (calls, overlapping) = by_peer.entry(call.peer).or_default();
            *calls += 1;
            *overlapping += u64::from(of_message.iter().enumerate().any(overlaps));
        }
    }
    by_peer.into_iter().filter(|(_, (calls, overlapping))| overlapping * 2 > *calls).map(|(peer, _)| peer).collect()
}

/// Whether a send has the bytes of all of several messages that were received in one call.
fn passes_several_on(Working { message, first }: Working, messages: &[Message], bytes: u32) -> bool {
    let received = messages.get(first as usize..=message as usize).unwrap_or_default();
    received.len() > 1 && received.iter().map(|m| u64::from(m.bytes)).sum::<u64>() == u64::from(bytes)
}

/// The server at the other end of a connection: `python3 (127.0.0.1:9101)` when it is a process of this host, else its address.
fn name_of(key: FlowKey, sockets: &[SocketRow]) -> String {
    let (lport, rport) = (key.local_port(), key.remote_port());
    // A UDP socket that is not connected, and none of whose packets was seen.
    if rport == 0 {
        return UNKNOWN_ADDRESS.into();
    }
    let same = |s: &&SocketRow| s.addrs == key.addrs && s.local_port == lport && s.remote_port == rport;
    let (local, remote) = match key.addresses() {
        Some((local, remote)) => (local.to_string(), remote.to_string()),
        None => sockets.iter().find(same).map(|s| (s.local_addr.clone(), s.remote_addr.clone())).unwrap_or_default(),
    };
    let address = match remote.as_str() {
        "" => return format!("port {rport}"),
        v6 if v6.contains(':') => format!("[{v6}]:{rport}"),
        v4 => format!("{v4}:{rport}"),
    };
    let other_end = |s: &&SocketRow| {
        s.local_port == rport && s.remote_port == lport && s.local_addr == remote && s.remote_addr == local
    };
    // Who listens on all addresses listens on this one if it is an address of this host.
    let loopback = remote.starts_with("127.") || remote == "::1";
    let here = loopback || sockets.iter().any(|s| s.local_addr == remote);
    let wild = |a: &str| a.is_empty() || a == "0.0.0.0" || a == "::";
    let listens = |s: &&SocketRow| {
        s.listening && s.local_port == rport && (s.local_addr == remote || here && wild(&s.local_addr))
    };
    let only = |rows: Vec<&SocketRow>| {
        let mut names: Vec<&str> = rows.iter().map(|s| s.comm.as_str()).filter(|c| !c.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        (names.len() == 1).then(|| names[0].to_owned())
    };
    // Connections that were not there when the table was made, of a server whose others were.
    let accepted = |s: &&SocketRow| s.local_port == rport && s.local_addr == remote;
    let process = |rows: &dyn Fn(&&SocketRow) -> bool| only(sockets.iter().filter(rows).collect());
    match process(&other_end).or_else(|| process(&listens)).or_else(|| process(&accepted)) {
        Some(process) => format!("{process} ({address})"),
        None => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop with one connection to the server behind serves three messages, of whose calls it is not known whose they are. Six answers of
    /// 3 ms to others were "19 ms of waiting for the server", whose longest answer took 4.5 ms.
    #[test]
    fn as_many_unknown_answers_are_a_message_s_as_messages_have_on_average() {
        let message = |id, recv_ns, send_ns| Message { id, recv_ns, send_ns, ..Message::default() };
        let messages = [message(0, 10, 100), message(1, 11, 200), message(2, 12, 300)];
        let key = FlowKey { addrs: 1, ports: 2, proto: 0 };
        let call = |sent, received| Open {
            of: NOBODY,
            by_routine: ByRoutine::NotKnown,
            tasks: [0; 2],
            key,
            sent,
            sender: 7,
            pieces: false,
            in_line: false,
            guessed: false,
            left: sent,
            ready: received,
            ready_next: 0,
            ready_upto: 0,
            received,
            receiver: 7,
            last: received,
            unread: Vec::new(),
            peer: 0,
        };
        let peers = Peers { calls: vec![call(15, 90), call(95, 190), call(195, 290)], ..Peers::default() };
        let found =
            |known: usize| Found { own_from: peers.own_from(&messages, &[0, 1, 2], |_| known), ..Found::default() };
        let may = |found: &Found, sent: u64| [0, 1, 2].map(|message| found.may_be_for(message, sent));
        assert_eq!(may(&found(0), 15), [true, false, false]);
        assert_eq!(may(&found(0), 95), [true, true, false]);
        assert_eq!(may(&found(0), 195), [true; 3]);
        // Sent before any of them was received; and where the one call of each is known.
        assert_eq!(may(&found(0), 9), [false; 3]);
        assert_eq!(may(&found(1), 195), [false; 3]);
    }

    #[test]
    fn a_server_behind_is_named_by_its_process_where_that_is_of_this_host() {
        let key = FlowKey::between(("127.0.0.1".parse().unwrap(), 4000), ("127.0.0.1".parse().unwrap(), 9101), false);
        let row = |addr: &str, port, comm: &str| SocketRow {
            local_addr: addr.into(),
            local_port: port,
            listening: true,
            comm: comm.into(),
            ..SocketRow::default()
        };
        assert_eq!(name_of(key, &[]), "127.0.0.1:9101");
        let nobody = FlowKey::between(("0.0.0.0".parse().unwrap(), 4000), ("0.0.0.0".parse().unwrap(), 0), true);
        assert_eq!(name_of(nobody, &[]), UNKNOWN_ADDRESS);
        assert_eq!(name_of(key, &[row("0.0.0.0", 9101, "python3")]), "python3 (127.0.0.1:9101)");
        assert_eq!(name_of(key, &[row("127.0.0.1", 9102, "python3")]), "127.0.0.1:9101");
        // Two programs listen there, in two network namespaces: which one it is, only the connection's other end tells.
        let mut rows = vec![row("127.0.0.1", 9101, "python3"), row("127.0.0.1", 9101, "node")];
        assert_eq!(name_of(key, &rows), "127.0.0.1:9101");
        rows.push(SocketRow {
            remote_addr: "127.0.0.1".into(),
            remote_port: 4000,
            listening: false,
            ..row("127.0.0.1", 9101, "node")
        });
        assert_eq!(name_of(key, &rows), "node (127.0.0.1:9101)");
        // The listening socket is not in the table, another connection's end is.
        let accepted = |comm| SocketRow { remote_port: 4001, listening: false, ..row("127.0.0.1", 9101, comm) };
        assert_eq!(name_of(key, &[accepted("python3")]), "python3 (127.0.0.1:9101)");
        assert_eq!(name_of(key, &[accepted("python3"), accepted("node")]), "127.0.0.1:9101");
        // Another host: whoever listens on that port here is not it.
        let far = FlowKey::between(("10.0.0.1".parse().unwrap(), 4000), ("10.0.0.9".parse().unwrap(), 9101), false);
        assert_eq!(name_of(far, &[row("0.0.0.0", 9101, "python3")]), "10.0.0.9:9101");
    }
}
