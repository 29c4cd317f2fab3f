//! Busy periods: when each thread worked for messages, so that others' wait for it is head-of-line blocking.
//!
//! In: receive calls, send calls and sleeps of the target's threads, in time order. Out: [`BusyPeriod`]s by thread. A period begins with
//! a receive call that returned messages and ends with the next such call or when the thread waits for more work. If the thread did
//! other things for long before that (garbage collection, timers, its log), the period ends with the last send, because then it was not
//! busy with a message.

use rustc_hash::FxHashMap;
use tailsight_kernel::RECEIVE_WAITS;
use tailsight_kernel::syscalls::{self, waits_for_work};

use crate::messages::Extra;
use crate::model::{Message, Threshold};

/// An interval of a thread's time in which it served messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPeriod {
    /// The receive call's entry. For a thread that got the message from another one: the earliest time at which it had it.
    pub from: u64,
    /// The next receive call's entry or the wait for more work, or the last reply's send if that was long before.
    pub to: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    from: u64,
    /// The end of its last send call.
    sent: Option<u64>,
    /// When it fell asleep in a call that may be the wait for more work or for another server's answer; what the thread does
    /// next decides.
    uncertain_from: Option<u64>,
}

/// The periods of a thread.
#[derive(Debug, Default)]
struct OfThread {
    open: Option<Open>,
    closed: Vec<BusyPeriod>,
}

impl OfThread {
    fn close(&mut self, at: u64) {
        if let Some(open) = self.open.take() {
            let end = open.uncertain_from.unwrap_or(at).min(at).max(open.from);
            let to = open.sent.filter(|sent| end.saturating_sub(*sent) >= Threshold::ReceiveCall.ns()).unwrap_or(end);
            self.closed.push(BusyPeriod { from: open.from, to });
        }
    }
}

/// The periods of all threads.
#[derive(Debug, Default)]
pub struct BusyPeriods {
    threads: FxHashMap<u32, OfThread>,
    /// What a sleep waits for, by system call and stack.
    sleeps: FxHashMap<(u32, u32), Wait>,
}

/// What a sleep in a system call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The next work.
    Work,
    /// Data of one socket or of a few: the next work, or the answer of another server.
    Data,
    /// Something else.
    Other,
}

impl BusyPeriods {
    /// A receive call that was entered at `entered` returned messages, or a part of one.
    pub fn received(&mut self, tid: u32, entered: u64) {
        let thread = self.threads.entry(tid).or_default();
        thread.close(entered);
        thread.open = Some(Open { from: entered, sent: None, uncertain_from: None });
    }

    /// Another server's answer for a message was received in a call entered at `entered`: the thread goes on with that message.
    /// `same`: it is the one that it worked for.
    pub fn answered(&mut self, tid: u32, entered: u64, same: bool) {
        match self.open(tid).filter(|_| same) {
            // The sleep was the wait for that answer.
            Some(open) => open.uncertain_from = None,
            None => self.received(tid, entered),
        }
    }

    /// A send call ended.
    pub fn sent(&mut self, tid: u32, at: u64) {
        if let Some(open) = self.open(tid) {
            open.sent = Some(at);
            // The sleep was a wait for something that the thread needed to continue.
            open.uncertain_from = None;
        }
    }

    /// A thread entered a system call. If the call waits for more work, the thread has finished what it had.
    pub fn enters(&mut self, tid: u32, nr: u32, at: u64) {
        if waits_for_work(nr)
            && let Some(thread) = self.threads.get_mut(&tid)
        {
            thread.close(at);
        }
    }

    fn open(&mut self, tid: u32) -> Option<&mut Open> {
        self.threads.get_mut(&tid)?.open.as_mut()
    }

    /// A thread fell asleep in a system call, with the index of its kernel stack and its text. Returns what it waits for.
    pub fn slept<'a>(
        &mut self,
        tid: u32,
        nr: u32,
        at: u64,
        (index, stack): (u32, impl FnOnce() -> Option<&'a str>),
    ) -> Wait {
        let wait = *self.sleeps.entry((nr, index)).or_insert_with(|| match syscalls::wait(nr) {
            Some(syscalls::Wait::Work) => Wait::Work,
            Some(syscalls::Wait::Data) => Wait::Data,
            _ if stack().is_some_and(|s| RECEIVE_WAITS.iter().any(|f| s.contains(f))) => Wait::Data,
            _ => Wait::Other,
        });
        let thread = self.threads.get_mut(&tid).filter(|thread| thread.open.is_some());
        match (wait, thread) {
            (Wait::Work, Some(thread)) => thread.close(at),
            (Wait::Data, Some(OfThread { open: Some(open), .. })) => {
                open.uncertain_from = open.uncertain_from.or(Some(at));
            }
            _ => {}
        }
        wait
    }

    /// The recording ended at `end`. Threads that answered what another had received served it too: since it was received,
    /// or since their reply before. That reply's time becomes `own_from_ns` of the message, where `in_turn` says that replies come in the
    /// order of requests: else the message was waiting for something of its own while its thread sent others. Returns the periods, by
    /// thread, in order, none inside another.
    pub fn finish(
        self,
        end: u64,
        messages: &[Message],
        extras: &mut [Extra],
        in_turn: impl Fn(&Message) -> bool,
    ) -> FxHashMap<u32, Vec<BusyPeriod>> {
        let closed = self.threads.into_iter().map(|(tid, mut thread)| {
            thread.close(end);
            (tid, thread.closed)
        });
        let mut closed: FxHashMap<u32, Vec<BusyPeriod>> = closed.filter(|(_, periods)| !periods.is_empty()).collect();
        let handed = |m: &Message, e: &Extra| e.send_tid != 0 && e.send_tid != m.tid && m.send_ns != 0;
        let mut by_sender: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        for (m, e) in messages.iter().zip(&*extras).filter(|(m, e)| handed(m, e)) {
            if m.send_ns >= m.recv_ns {
                by_sender.entry(e.send_tid).or_default();
            }
        }
        if by_sender.is_empty() {
            return closed;
        }
        for (i, e) in extras.iter().enumerate() {
            if let Some(answered) = by_sender.get_mut(&e.send_tid) {
                answered.push(i);
            }
        }
        for (tid, mut answered) in by_sender {
            answered.sort_unstable_by_key(|&i| extras[i].sent_ns);
            let periods = closed.entry(tid).or_default();
            let (mut before, mut last) = (0, 0);
            for i in answered {
                let (m, sent) = (&messages[i], extras[i].sent_ns);
                if sent > last {
                    (before, last) = (last, sent);
                }
                if handed(m, &extras[i]) {
                    periods.push(BusyPeriod { from: m.recv_ns.max(before).min(sent), to: sent });
                    if in_turn(m) {
                        extras[i].own_from_ns = extras[i].own_from_ns.max(before);
                    }
                }
            }
            periods.sort_unstable_by_key(|w| (w.from, w.to));
            periods.dedup_by(|next, kept| {
                let overlap = next.from < kept.to;
                if overlap {
                    kept.to = kept.to.max(next.to);
                }
                overlap
            });
        }
        closed
    }
}
