//! What really happened: the machine's own books, and the account of who owned each nanosecond of a receive leg.

use std::collections::HashMap;

use super::{FOREIGN, KSOFTIRQD, TARGET};

/// Wakers of wakers are followed this deep (as documented in the walk).
const WAKER_DEPTH: u32 = 8;

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Running(u16),
    Ready(u16),
    Asleep,
}

/// Who ended a sleep.
#[derive(Clone, Copy, Debug)]
pub struct Wake {
    pub tid: u32,
    pub cpu: u16,
    pub interrupt: bool,
}

/// A thread is elsewhere from `at` on.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    pub at: u64,
    pub place: Place,
    pub wake: Option<Wake>,
}

/// A receive call that returned data.
#[derive(Clone, Copy, Debug)]
pub struct Recv {
    pub entered: u64,
    pub at: u64,
    pub cpu: u16,
    pub tid: u32,
}

/// One message, as the machine delivered it. For TCP: the new bytes of one packet that lie together.
#[derive(Clone, Debug)]
pub struct Message {
    pub flow: usize,
    /// TCP: where it ends in the stream, counted from the first byte.
    pub end: u64,
    pub bytes: u64,
    pub driver: (u64, u16),
    pub stack: (u64, u16),
    pub handoff: Option<(u64, u16)>,
    pub recv: Option<Recv>,
    /// The send call's entry and its thread.
    pub send: Option<(u64, u32)>,
    pub xmit: Option<u64>,
    /// The messages that were answered together; replies of an unfinished batch are not defined.
    pub batch: Option<usize>,
    /// TCP: some of its bytes came again before it was received.
    pub again: bool,
}

/// The books.
#[derive(Debug, Default)]
pub struct Truth {
    /// For each core: from when on which task.
    pub tasks: Vec<Vec<(u64, u32)>>,
    /// For each core: from when on it is in an interrupt or softirq, or not.
    pub interrupted: Vec<Vec<(u64, bool)>>,
    pub places: HashMap<u32, Vec<Change>>,
    /// For each thread: from a receive call that returned messages to the next, or to the wait for more.
    pub windows: HashMap<u32, Vec<(u64, u64)>>,
    /// For each thread: when its send calls had taken their data.
    pub sends: HashMap<u32, Vec<u64>>,
    pub messages: Vec<Message>,
    /// For each batch of replies: sends that are still to come.
    pub batches: Vec<usize>,
    /// The time of every event.
    pub times: Vec<u64>,
}

fn at<T: Copy>(list: &[(u64, T)], t: u64) -> Option<T> {
    list.partition_point(|x| x.0 <= t).checked_sub(1).map(|i| list[i].1)
}

impl Truth {
    /// The messages of the same connection whose bytes come before.
    fn before<'a>(&'a self, message: &'a Message) -> impl Iterator<Item = &'a Message> {
        let tcp = message.end > 0;
        self.messages.iter().filter(move |m| tcp && m.flow == message.flow && m.end < message.end)
    }

    /// Whether bytes up to the message's own came more than once and it had to wait for that: when they were whole is
    /// not in these books.
    pub fn came_again(&self, message: &Message) -> bool {
        let until = message.recv.map_or(0, |r| r.at);
        message.again
            || self
                .before(message)
                .any(|m| m.again && m.recv.is_none_or(|r| r.at >= message.stack.0) && m.stack.0 <= until)
    }

    /// Who owned each stretch of a message's receive leg: (from, to, context), neighbours of the same context joined.
    pub fn receive_account(&self, message: &Message) -> Vec<(u64, u64, String)> {
        let recv = message.recv.expect("a received message");
        let (from, to) = (message.driver.0, recv.at);
        // Without a hand-off event before the receive call, protocol processing stands in.
        let handoff = message.handoff.filter(|h| h.0 <= recv.at).unwrap_or(message.stack);
        // TCP: bytes before its own may have come later.
        let missing = self.before(message).map(|m| m.stack.0).filter(|&s| s > message.stack.0 && s <= handoff.0);
        let whole = missing.max().unwrap_or(0);
        let arrived = if whole > 0 { handoff } else { message.stack };
        let mut account: Vec<(u64, u64, String)> = Vec::new();
        let first = self.times.partition_point(|&t| t <= from);
        let borders = std::iter::once(from).chain(self.times[first..].iter().copied().take_while(|&t| t < to));
        for t in borders {
            let context = if (message.stack.0..whole).contains(&t) {
                "blocked".to_owned()
            } else if t < handoff.0 {
                self.on_core(if t < whole { message.stack.1 } else { arrived.1 }, t)
            } else {
                self.follow(recv.tid, t, to, (recv.entered, handoff), 0)
            };
            if let Some(last) = account.last_mut() {
                last.1 = t;
                if last.2 == context {
                    continue;
                }
            }
            account.push((t, t, context));
        }
        if let Some(last) = account.last_mut() {
            last.1 = to;
        }
        account
    }

    fn on_core(&self, cpu: u16, t: u64) -> String {
        match at(&self.tasks[usize::from(cpu)], t) {
            None | Some(0) => "idle".into(),
            Some(tid) if (TARGET..FOREIGN).contains(&tid) => format!("sibling:server-{}", tid - TARGET),
            Some(tid) if tid >= FOREIGN => format!("other-{}", tid - FOREIGN),
            Some(tid) => format!("ksoftirqd/{}", tid - KSOFTIRQD),
        }
    }

    fn follow(&self, tid: u32, t: u64, to: u64, leg: (u64, (u64, u16)), depth: u32) -> String {
        let (entered, handoff) = leg;
        let changes = &self.places[&tid];
        let i = changes.partition_point(|c| c.at <= t) - 1;
        match changes[i].place {
            Place::Running(_) => {
                let serving = self.serving(tid, t);
                if serving && t < entered { "ahead".into() } else { "own".into() }
            }
            Place::Ready(cpu) => self.on_core(cpu, t),
            Place::Asleep => {
                let woken = changes.get(i + 1).filter(|c| c.at <= to);
                let Some((until, wake)) = woken.and_then(|c| Some((c.at, c.wake?))) else {
                    return "blocked".into();
                };
                if wake.interrupt && wake.cpu == handoff.1 && self.stays_interrupted(wake.cpu, handoff.0, until) {
                    return self.on_core(wake.cpu, t);
                }
                if !wake.interrupt && (TARGET..FOREIGN).contains(&wake.tid) && depth < WAKER_DEPTH {
                    return self.follow(wake.tid, t, until, leg, depth + 1);
                }
                "blocked".into()
            }
        }
    }

    /// Whether a thread works for messages at `t`: until it takes or waits for the next ones; until its last send when that
    /// is long before.
    fn serving(&self, tid: u32, t: u64) -> bool {
        let Some(window) = self.windows.get(&tid).and_then(|w| w.iter().find(|w| w.0 <= t && t < w.1)) else {
            return false;
        };
        let sends = self.sends.get(&tid).map_or(&[][..], Vec::as_slice);
        let last = sends.iter().rfind(|s| (window.0..=window.1).contains(*s));
        last.is_none_or(|last| t < *last || window.1 - last < 50_000)
    }

    fn stays_interrupted(&self, cpu: u16, from: u64, until: u64) -> bool {
        let log = &self.interrupted[usize::from(cpu)];
        at(log, from) == Some(true) && !log.iter().any(|&(t, on)| from < t && t < until && !on)
    }

    /// Whether the replies of the message's batch were all sent.
    pub fn answered(&self, message: &Message) -> bool {
        message.batch.is_some_and(|b| self.batches[b] == 0)
    }
}
