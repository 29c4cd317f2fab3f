//! Turns of event loops: for which message each stretch of a loop's time was.
//!
//! In: messages in order of arrival with the threads that received and answered them, answers of other servers, and the loops' sleeps. Out:
//! the [`Turn`]s of each thread that had several requests open at a time. The other threads have none: such a thread's time between a
//! receive call and the reply is all for that message. All times in ns.
//!
//! A handler that awaits something (a timer, another server, a lock of its runtime) gives the thread back, and the loop works for others
//! until the handler goes on. The kernel shows the loop's calls only: each receive call, reply and wait for work ends a turn. A turn is for
//! the message that was received at its beginning, or for the one that is answered at its end; between others' calls it is for one that
//! goes on, and which one that is no event tells unless a single one is open. So a nanosecond is at most one message's own.

use rustc_hash::FxHashMap;

use super::Extra;
use super::backend_calls::{self, NOBODY};
use super::receive_order;
use crate::model::Message;
use crate::timelines::busy_periods::BusyPeriod;
use crate::timelines::threads::{State, Threads};

/// A stretch of a loop's time, until the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When it began.
    pub from: u64,
    /// For whom.
    pub whose: Whose,
}

/// For whom a turn was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The messages' that share this reply.
    Reply {
        /// Index into [`crate::Lifetimes::flows`].
        flow: u32,
        /// When its send call was entered; 0: the message has none.
        send_ns: u64,
    },
    /// One of those that were open, and no event tells which.
    OneOfSeveral,
    /// The thread waited for work, or none of its messages was open.
    Nobody,
}

impl Whose {
    /// Whether it is known to be for another message than this one, or may well be.
    pub fn is_others(self, m: &Message) -> bool {
        match self {
            Whose::Reply { flow, send_ns } => m.flow != flow || m.send_ns != send_ns,
            Whose::OneOfSeveral => true,
            Whose::Nobody => false,
        }
    }
}

/// The turns of loops, by thread, in order.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    threads: FxHashMap<u32, Vec<Turn>>,
}

/// What ends one turn and begins the next. In this order, if at the same time: a reply ends its turn before another call begins one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Border {
    Replied(u32),
    /// It waits for whatever comes next.
    Slept,
    Woke,
    /// It waits for something else: a lock, a disk. Then it goes on with what it did.
    Blocked,
    Resumed,
    /// A message, or the answer of another server for it; [`NOBODY`]: an answer for one that is not known.
    Received(u32),
}

impl Turns {
    /// `messages` and `extras` in order of arrival, each message's id its index.
    pub fn of(messages: &[Message], extras: &[Extra], answers: &backend_calls::Found, threads: &Threads) -> Turns {
        let mut borders = borders_of_loops(messages, extras);
        if borders.is_empty() {
            return Turns::default();
        }
        for m in messages {
            for call in answers.calls(m.id) {
                if let Some(borders) = borders.get_mut(&call.tid) {
                    borders.push((call.received, Border::Received(m.id)));
                }
            }
        }
        let threads = borders.into_iter().map(|(tid, mut borders)| {
            borders.extend(sleeps(threads, tid));
            borders.sort_unstable();
            (tid, turns(&borders, messages, |m| extras[m as usize].send_tid == tid && messages[m as usize].tid == tid))
        });
        Turns { threads: threads.collect() }
    }

    /// The turns of a thread between two times: of each where it begins (not before `from`), where it ends (not after `to`) and whose it is.
    /// None of a thread that had one request at a time.
    pub fn between(&self, tid: u32, from: u64, to: u64) -> impl Iterator<Item = (u64, u64, Whose)> + '_ {
        let turns = self.threads.get(&tid).map_or(&[][..], Vec::as_slice);
        let first = turns.partition_point(|turn| turn.from <= from).saturating_sub(1);
        let ends = turns.iter().skip(first + 1).map(|turn| turn.from).chain([u64::MAX]);
        let within = turns[first.min(turns.len())..].iter().zip(ends).take_while(move |(turn, _)| turn.from < to);
        within.map(move |(turn, end)| (turn.from.max(from), end.min(to), turn.whose)).filter(|(from, to, _)| from < to)
    }

    /// Whether a thread had several requests open at a time, so that its time has turns.
    pub fn has(&self, tid: u32) -> bool {
        self.threads.contains_key(&tid)
    }

    /// Adds to the busy periods the turns in which a loop goes on with some message that it received before it last waited for work.
    pub fn add_to(&self, periods: &mut FxHashMap<u32, Vec<BusyPeriod>>) {
        for (tid, turns) in &self.threads {
            let Some(periods) = periods.get_mut(tid) else { continue };
            let mut between: Vec<BusyPeriod> = Vec::new();
            let mut next = 0;
            for (turn, after) in turns.iter().zip(&turns[1..]).filter(|(turn, _)| turn.whose != Whose::Nobody) {
                // What no period has of it yet.
                let mut at = turn.from;
                while at < after.from {
                    next += periods[next..].partition_point(|period| period.to <= at);
                    let end = periods.get(next).map_or(after.from, |period| period.from.clamp(at, after.from));
                    if at < end {
                        between.push(BusyPeriod { from: at, to: end });
                    }
                    at = periods.get(next).map_or(after.from, |period| period.to.max(end));
                }
            }
            periods.extend(between);
            periods.sort_unstable_by_key(|period| (period.from, period.to));
        }
    }
}

/// Receive calls and replies of the threads that had several requests open at a time, by thread.
fn borders_of_loops(messages: &[Message], extras: &[Extra]) -> FxHashMap<u32, Vec<(u64, Border)>> {
    // By thread: of what it received so far, the message that was answered last: its reply, its receive call, its flow.
    let mut last_answered: FxHashMap<u32, (u64, u64, u32)> = FxHashMap::default();
    let mut borders: FxHashMap<u32, Vec<(u64, Border)>> = FxHashMap::default();
    // Messages that arrive in order are mostly received in order; where they are not, the loop is seen by its other messages.
    let served = messages.iter().zip(extras).filter(|(m, extra)| m.send_ns > m.recv_ns && extra.send_tid == m.tid);
    for (m, _) in served {
        let last = last_answered.entry(m.tid).or_default();
        let (send_ns, recv_ns, flow) = *last;
        if m.recv_ns < send_ns && recv_ns < m.send_ns && m.flow != flow && m.recv_ns != 0 {
            borders.entry(m.tid).or_default();
        }
        *last = (*last).max((m.send_ns, m.recv_ns, m.flow));
    }
    if borders.is_empty() {
        return borders;
    }
    for (m, extra) in messages.iter().zip(extras) {
        if m.recv_ns != 0
            && let Some(borders) = borders.get_mut(&m.tid)
        {
            borders.push((m.recv_enter_ns, Border::Received(m.id)));
        }
        if m.send_ns != 0
            && let Some(borders) = borders.get_mut(&extra.send_tid)
        {
            borders.push((extra.sent_ns.max(m.send_ns), Border::Replied(m.id)));
        }
    }
    borders
}

/// When a thread slept.
fn sleeps(threads: &Threads, tid: u32) -> impl Iterator<Item = (u64, Border)> {
    let intervals = threads.get(tid).map_or(&[][..], |thread| &thread.intervals);
    let ends = intervals.iter().skip(1).map(|next| next.from).chain([u64::MAX]);
    let sleeps = intervals.iter().zip(ends).filter_map(|(interval, to)| match interval.state {
        State::Sleeping { how } => Some((how, interval.from, to)),
        _ => None,
    });
    sleeps.flat_map(|(how, from, to)| {
        let [begins, ends] =
            if how.is_for_what_comes() { [Border::Slept, Border::Woke] } else { [Border::Blocked, Border::Resumed] };
        [(from, begins), (to, ends)]
    })
}

/// The turns between borders, which are in order. `serves`: whether the thread itself answers what it received.
fn turns(borders: &[(u64, Border)], messages: &[Message], serves: impl Fn(u32) -> bool) -> Vec<Turn> {
    let is_received = |&(at, border): &(u64, Border)| (at, matches!(border, Border::Received(_)));
    let deferred = receive_order::works_after_it_received(borders.iter().map(is_received)) == Some(true);
    let mut turns: Vec<Turn> = Vec::with_capacity(borders.len());
    // How many messages are open, and the exclusive or of their ids: with one open, its id.
    let (mut open, mut ids) = (0_u32, 0_u32);
    let mut asleep = false;
    // For whom it was before it was blocked.
    let mut before = Whose::Nobody;
    for (i, &(from, border)) in borders.iter().enumerate() {
        match border {
            Border::Received(m)
                if m != NOBODY && messages[m as usize].recv_enter_ns == from && awaits_reply(messages, m, &serves) =>
            {
                (open, ids) = (open + 1, ids ^ m);
            }
            Border::Replied(m) if awaits_reply(messages, m, &serves) => (open, ids) = (open.saturating_sub(1), ids ^ m),
            Border::Slept | Border::Blocked => asleep = true,
            Border::Woke | Border::Resumed => asleep = false,
            Border::Received(_) | Border::Replied(_) => {}
        }
        let answered = match borders.get(i + 1) {
            Some((_, Border::Replied(m))) => Some(*m),
            _ => None,
        };
        let received = match border {
            Border::Received(m) if m != NOBODY => Some(m),
            _ => None,
        };
        let one_open = (open == 1).then_some(ids);
        let served = match (received, answered) {
            // What is received is worked on at once: the reply that follows may be a batch's first, or of a handler that goes on.
            (Some(received), Some(_)) if !deferred => Some(received),
            (_, Some(answered)) => Some(answered),
            (Some(received), None) if !deferred => Some(received),
            // It was the last of those that were received together, and the work for any of them follows.
            (Some(received), None) => one_open.or((open == 0).then_some(received)),
            (None, None) => one_open,
        };
        if border == Border::Blocked {
            before = turns.last().map_or(Whose::Nobody, |turn| turn.whose);
        }
        let whose = match served {
            _ if asleep => Whose::Nobody,
            _ if border == Border::Resumed && answered.is_none() => before,
            Some(m) => {
                let Message { flow, send_ns, .. } = messages[m as usize];
                Whose::Reply { flow, send_ns }
            }
            None if open > 1 => Whose::OneOfSeveral,
            None => Whose::Nobody,
        };
        // Messages of one call have the same time: the first of them has the turn.
        match turns.last_mut() {
            Some(last)
                if last.from == from
                    && matches!(border, Border::Received(_))
                    && matches!(last.whose, Whose::Reply { .. }) => {}
            Some(last) if last.from == from => last.whose = whose,
            _ => turns.push(Turn { from, whose }),
        }
    }
    turns
}

/// Whether a message is open from its receive call to its reply on this thread.
fn awaits_reply(messages: &[Message], m: u32, serves: &impl Fn(u32) -> bool) -> bool {
    let message = &messages[m as usize];
    serves(m) && message.send_ns > message.recv_ns
}
