//! The target's threads: an event loop or blocking calls, replies one by one, together, in parts, or after more reads.

use tailsight_trace::event::Kind;

use super::machine::{Machine, Task};
use super::truth::Place;

/// Where a thread is in its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    User,
    /// In a receive call: entered; holding the socket; data taken (bytes, datagram); about to return.
    Recv {
        flow: usize,
        locked: bool,
    },
    Taken {
        flow: usize,
        bytes: u64,
        datagram: Option<usize>,
    },
    /// In a send call with the reply to these messages; `first`/`last` part of it.
    Send {
        reply: Reply,
        written: bool,
    },
    Wait,
    Other,
    Return,
}

/// One send call that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    flow: usize,
    messages: Vec<usize>,
    first: bool,
    last: bool,
    batch: usize,
    /// UDP: another thread than the one that received sends it.
    pool: bool,
}

/// System calls by name, so that the numbers are right on every architecture.
fn number(call: syscalls::Sysno) -> u64 {
    call.id() as u64
}

impl Task {
    pub fn waits_for_datagrams(&self) -> bool {
        (self.place == Place::Asleep || self.falling) && matches!(self.call, Call::Wait | Call::Recv { .. })
    }
}

impl Machine {
    fn enter(&mut self, c: usize, t: usize, call: Call, nr: syscalls::Sysno) {
        let at = self.emit(c, Kind::SyscallEnter, 0, [number(nr), 0, 0]);
        self.tasks[t].entered = at;
        self.tasks[t].call = call;
        if nr == syscalls::Sysno::epoll_pwait {
            self.close_window(t, at);
        }
    }

    fn close_window(&mut self, t: usize, at: u64) {
        let windows = self.truth.windows.entry(self.tasks[t].tid).or_default();
        if let Some(last) = windows.last_mut().filter(|w| w.1 == u64::MAX) {
            last.1 = at;
        }
    }

    /// The next step of the thread that runs on the core.
    pub fn program(&mut self, c: usize, arg: usize) {
        let Some(t) = self.index(self.cores[c].task) else { return };
        if self.tasks[t].falling {
            return self.fall(c, t, arg);
        }
        match self.tasks[t].call.clone() {
            Call::User => self.in_user(c, t, arg),
            Call::Recv { flow, locked } => self.in_recv(c, t, flow, locked, arg),
            Call::Taken { flow, bytes, datagram } => {
                if datagram.is_none() {
                    self.release(c, flow);
                }
                let entered = self.tasks[t].entered;
                let messages = self.received(c, flow, bytes, datagram, entered);
                self.tasks[t].call = Call::Return;
                if !messages.is_empty() {
                    self.close_window(t, entered);
                    self.truth.windows.entry(self.tasks[t].tid).or_default().push((entered, u64::MAX));
                    self.plan(t, flow, messages, arg);
                }
            }
            Call::Send { reply, written: false } => self.write(c, t, reply, arg),
            Call::Send { reply, written: true } => {
                self.sent(c, reply.flow, 10, !reply.last);
                self.truth.batches[reply.batch] -= 1;
                self.tasks[t].call = Call::Return;
            }
            Call::Wait => match arg % 3 {
                0 => self.tasks[t].call = Call::Return,
                _ => self.tasks[t].falling = true,
            },
            Call::Other => {
                if arg.is_multiple_of(2) {
                    self.wake(c, arg / 2 % self.threads, arg / 16);
                }
                self.tasks[t].call = Call::Return;
            }
            Call::Return => {
                self.emit(c, Kind::SyscallExit, 0, [0, 0, 0]);
                self.tasks[t].call = Call::User;
            }
        }
    }

    /// A thread that put itself to sleep leaves the core, unless it was woken first and notices.
    fn fall(&mut self, c: usize, t: usize, arg: usize) {
        let woken = self.tasks[t].woken;
        // A waker spins until the core is left, so the two are close together.
        let late = woken.is_some_and(|(at, _)| self.now - at > 15_000);
        if late || (woken.is_some() && arg.is_multiple_of(2)) {
            self.tasks[t].falling = false;
            self.tasks[t].woken = None;
            return;
        }
        self.switch(c, true, arg / 2);
    }

    fn in_user(&mut self, c: usize, t: usize, arg: usize) {
        use syscalls::Sysno;
        let due = self.due.iter().position(|(task, _)| *task == t);
        match arg % 8 {
            0..=3 if due.is_some() => {
                if let Some((_, reply)) = due.and_then(|i| self.due.remove(i)) {
                    self.enter(c, t, Call::Send { reply, written: false }, Sysno::sendmsg);
                }
            }
            0..=4 => {
                let mine: Vec<usize> = (0..self.flows.len())
                    .filter(|&f| self.flows[f].udp || self.flows[f].owner == t)
                    // One batch of replies at a time on each flow.
                    .filter(|&f| !self.due.iter().any(|(task, r)| *task == t && self.same_socket(r.flow, f)))
                    .collect();
                if let Some(&flow) = mine.get(arg / 8 % mine.len().max(1)) {
                    self.enter(c, t, Call::Recv { flow, locked: false }, Sysno::recvfrom);
                }
            }
            5 | 6 => self.enter(c, t, Call::Wait, Sysno::epoll_pwait),
            _ => self.enter(c, t, Call::Other, Sysno::futex),
        }
    }

    fn same_socket(&self, a: usize, b: usize) -> bool {
        a == b || (self.flows[a].udp && self.flows[b].udp)
    }

    fn in_recv(&mut self, c: usize, t: usize, flow: usize, locked: bool, arg: usize) {
        let blocks = arg % 4 == 3;
        if self.flows[flow].udp {
            // Two threads that took datagrams of one size and are both still on their way cannot be told apart.
            let next = self.datagrams.front().map(|&index| self.truth.messages[index].bytes);
            let ambiguous = |task: &Task| match task.call {
                Call::Taken { bytes, datagram: Some(_), .. } => Some(bytes) == next,
                _ => false,
            };
            if self.tasks.iter().any(ambiguous) {
                return;
            }
            match self.datagrams.pop_front() {
                Some(index) => {
                    // An unconnected socket: what was received tells the sender.
                    let flow = self.truth.messages[index].flow;
                    let bytes = self.truth.messages[index].bytes;
                    self.tasks[t].call = Call::Taken { flow, bytes, datagram: Some(index) };
                }
                None if blocks => self.tasks[t].falling = true,
                None => self.tasks[t].call = Call::Return,
            }
            return;
        }
        let f = &mut self.flows[flow];
        if !locked {
            f.locked = true;
            self.tasks[t].call = Call::Recv { flow, locked: true };
            return;
        }
        let available = f.next - f.copied;
        if available > 0 {
            // The buffer may be smaller than what there is, and end inside a message.
            let bytes = if arg.is_multiple_of(3) { 1 + (arg as u64 / 4) % available } else { available };
            f.copied += bytes;
            self.tasks[t].call = Call::Taken { flow, bytes, datagram: None };
            return;
        }
        self.release(c, flow);
        if blocks {
            self.tasks[t].call = Call::Recv { flow, locked: false };
            self.tasks[t].falling = true;
        } else {
            self.tasks[t].call = Call::Return;
        }
    }

    /// Decides how the messages of a receive call are answered.
    fn plan(&mut self, t: usize, flow: usize, messages: Vec<usize>, arg: usize) {
        let udp = self.flows[flow].udp;
        let alone = !udp || self.alone(flow);
        let waiting = self.waiting.entry((flow, t)).or_default();
        waiting.extend(messages);
        let policy = arg / 8 % 8;
        if policy == 0 {
            return; // half a request: more must be read first
        }
        let messages = std::mem::take(waiting);
        let batch = self.truth.batches.len();
        // A thread pool: known by the remote address while that has one request outstanding.
        let pool = udp && policy == 4 && alone && messages.len() == 1;
        let sender = if pool { (t + 1) % self.threads } else { t };
        let reply = |messages: Vec<usize>, first, last| (sender, Reply { flow, messages, first, last, batch, pool });
        let replies = match policy {
            1 | 2 if !udp => vec![reply(messages.clone(), true, true)],
            3 if messages.len() == 1 && !udp => {
                vec![reply(messages.clone(), true, false), reply(messages.clone(), false, true)]
            }
            _ => messages.iter().map(|&m| reply(vec![m], true, true)).collect(),
        };
        for &message in &messages {
            self.truth.messages[message].batch = Some(batch);
        }
        // Out of step with other replies to the same address, which one is whose cannot be told.
        let unclear = if self.tainted.contains(&flow) { 1 << 20 } else { 0 };
        self.truth.batches.push(replies.len() + unclear);
        self.due.extend(replies);
    }

    /// Whether nothing is owed to a remote address. A request beside one whose reply comes from a pool makes both unclear.
    fn alone(&mut self, flow: usize) -> bool {
        let sending = self.tasks.iter().filter_map(|task| match &task.call {
            Call::Send { reply, .. } => Some(reply),
            _ => None,
        });
        let owed: Vec<(usize, bool)> = (self.due.iter().map(|(_, r)| r).chain(sending))
            .filter(|r| r.flow == flow)
            .map(|r| (r.batch, r.pool))
            .collect();
        let waits = self.waiting.iter().any(|((f, _), list)| *f == flow && !list.is_empty());
        if owed.iter().any(|o| o.1) && self.tainted.insert(flow) {
            // From then on the pairing by order may be out of step, and a reply may be taken for more of an earlier one.
            let of_flow = self.truth.messages.iter().filter(|m| m.flow == flow);
            let batches: std::collections::BTreeSet<usize> = of_flow.filter_map(|m| m.batch).collect();
            batches.into_iter().for_each(|b| self.truth.batches[b] += 1 << 20);
        }
        owed.is_empty() && !waits
    }

    fn write(&mut self, c: usize, t: usize, reply: Reply, arg: usize) {
        let entered = self.tasks[t].entered;
        let tid = self.tasks[t].tid;
        let flow = reply.flow;
        let f = &mut self.flows[flow];
        let from = f.written;
        f.written += 10;
        let end = f.written;
        for &m in &reply.messages {
            if reply.first {
                self.truth.messages[m].send = Some((entered, tid));
            }
            // Complete with its last byte.
            self.truth.messages[m].xmit = None;
        }
        let f = &mut self.flows[flow];
        for (_, list) in &mut f.expected {
            list.retain(|m| !reply.messages.contains(m));
        }
        f.expected.push((end, reply.messages.clone()));
        let inline = f.udp || arg.is_multiple_of(3);
        if inline && f.udp {
            self.transmit(c, flow, from, end);
        } else if inline {
            // In one packet with what waited, or in two.
            let from = f.transmitted;
            if arg.is_multiple_of(2) && end - from > 5 {
                self.transmit(c, flow, from, end - 5);
                self.transmit(c, flow, end - 5, end);
            } else {
                self.transmit(c, flow, from, end);
            }
        }
        self.tasks[t].call = Call::Send { reply, written: true };
    }
}
