//! A sleep, with what a rule may ask of it.
//!
//! In: the sleep, what the walk knows of the message there, the timelines. Out: answers to questions that more than one rule has.

use std::cell::OnceCell;

use crate::messages::backend_calls::NOBODY;
use crate::model::{Frame, Threshold};
use crate::path::pieces::{Focus, Followed};
use crate::scan::activity::Activity;
use crate::timelines::sleep::Sleep;
use crate::timelines::threads::{State, ThreadInterval, Waker};
use crate::timelines::waits::Wait;

/// The largest number of wakers that are followed from one sleep.
pub(in crate::path) const WAKER_DEPTH: u32 = 8;
/// The same where each waits for a lock: as many as a pool has threads may stand in line for it.
pub(in crate::path) const LOCK_DEPTH: u32 = 64;
/// The most intervals of a thread between its poll and a receive call that are looked at: it may try for a lock again and again.
const MOST_BETWEEN: usize = 1_000;

/// A sleep on a message's path.
pub(in crate::path) struct Case<'a> {
    pub activity: &'a Activity,
    /// What is known of the sleep whoever asks.
    pub wait: Wait,
    /// When the part of it that is on the path begins, ns.
    pub from: u64,
    /// When the wait ended, ns; of one that did not, until when it is looked at.
    pub ended: u64,
    /// Whose work on this path is the message's; `focus.tid` is the thread that sleeps.
    pub focus: Focus,
    /// How many wakers were followed to get here; 0: the message's own thread.
    pub depth: u32,
    needs_what_another_has: OnceCell<bool>,
}

impl<'a> Case<'a> {
    /// A wait of the thread `focus.tid`, of which `from` to `to` is on the path.
    pub fn new(activity: &'a Activity, wait: Wait, (from, to): (u64, u64), focus: Focus, depth: u32) -> Case<'a> {
        let ended = wait.to.unwrap_or(to);
        Case { activity, wait, from, ended, focus, depth, needs_what_another_has: OnceCell::new() }
    }

    /// The thread of the application that ended the sleep, where it may be followed.
    pub fn sibling(&self) -> Option<Waker> {
        let deepest = if self.focus.in_line(self.wait.how) { LOCK_DEPTH } else { WAKER_DEPTH };
        let is_sibling = |w: &Waker| !w.interrupt && self.activity.threads.names().is_target(w.tid);
        self.wait.waker.filter(is_sibling).filter(|_| self.depth < deepest)
    }

    /// Whether the sleep was no wait for work, which a sibling passes on: the thread was in the middle of this message, or of others, when it
    /// fell asleep, or wrote, or was on its way from its poll to receiving. Who ended the sleep then had what it waited for.
    pub fn needs_what_another_has(&self) -> bool {
        *self.needs_what_another_has.get_or_init(|| {
            let Wait { from: since, how, waker, .. } = self.wait;
            let in_turn = since >= self.focus.own_from || self.activity.service.is_serving(self.focus.tid, since);
            let holds_up = || self.depth == 0 && waker.is_some_and(|w| self.cannot_pass_on(w.tid));
            (in_turn || how.is_for_room() || self.was_on_its_way() || holds_up()) && !self.focus.followed.handed
        })
    }

    /// Whether a packet had woken the thread from its poll, which then fell asleep in a lock before it received what came, or passed it on to the
    /// thread that did: it knows of the message, so nobody passes that on to it, and needs the lock to go on (an interpreter's, on the way out of
    /// the poll).
    fn was_on_its_way(&self) -> bool {
        let (activity, tid) = (self.activity, self.focus.tid);
        let Wait { from: since, how, .. } = self.wait;
        if !how.is_for_a_lock() {
            return false;
        }
        let intervals = activity.threads.get(tid).map_or(&[][..], |thread| &thread.intervals);
        let before = intervals[..intervals.partition_point(|s| s.from < since)].windows(2).rev().take(MOST_BETWEEN);
        let woken = before.filter_map(|two| Some((waits(&two[0])?, two[1]))).next();
        let Some((poll, ThreadInterval { from: woken, waker: Some(waker), .. })) = woken else { return false };
        let passes_on = || self.depth > 0 && self.focus.of_message.unread;
        poll.is_for_what_comes()
            && is_by_a_clients_packet(waker)
            && activity.service.received_between(tid, (woken, since)) == 0
            && (self.receives_after() || passes_on())
    }

    /// Whether the thread received a message after the sleep, before it slept for anything but a lock.
    fn receives_after(&self) -> bool {
        let (activity, tid, ended) = (self.activity, self.focus.tid, self.ended);
        let intervals = activity.threads.get(tid).map_or(&[][..], |thread| &thread.intervals);
        let after = &intervals[intervals.partition_point(|s| s.from < ended)..];
        let next = after.iter().take(MOST_BETWEEN).find(|s| waits(s).is_some()).map_or(u64::MAX, |s| s.from);
        activity.service.received_between(tid, (ended, next)) > 0
    }

    /// Whether a client's packet ended the sleep, and the thread then received a message.
    pub fn was_woken_for_a_request(&self) -> bool {
        self.wait.waker.is_some_and(is_by_a_clients_packet) && self.receives_after()
    }

    /// Whether the thread that ended the sleep cannot have passed a message on: it was busy all the time, and never in the recording waited
    /// for data of anybody (a virtual machine's own thread that stops the others).
    fn cannot_pass_on(&self, tid: u32) -> bool {
        let (from, ended) = (self.from, self.ended);
        self.wait.how.is_for_a_lock()
            && ended - from >= Threshold::ReceiveCall.ns()
            && !self.activity.service.has_polled(tid)
            && !self.activity.service.is_loop(tid)
            && self.activity.threads.get(tid).is_some_and(|thread| thread.is_awake(from, ended))
    }

    /// Whether the thread that sleeps was in the middle of other messages when it fell asleep.
    pub fn sleeper_serves(&self) -> bool {
        serves_others(self.activity, &self.focus, self.focus.tid, self.wait.from)
    }

    /// Whether the message's own thread was in the middle of others when it fell asleep, and had not received this one.
    fn is_for_others(&self) -> bool {
        let is_unread = self.focus.of_message.unread && self.from < self.focus.own_from;
        self.depth == 0 && is_unread && self.sleeper_serves()
    }

    /// Where the sleep is in the program, of a call in which servers wait for work; 0: not known.
    pub fn place_of_work(&self) -> u32 {
        if self.wait.how.is_for_work() { self.wait.how.place } else { 0 }
    }

    /// What followed threads are asked about, from here on: the reason of the first sleep counts, and its place.
    pub fn followed(&self, reason: Option<Frame>) -> Focus {
        let Focus { followed: before, .. } = self.focus;
        let first = before.because.is_none();
        let holds = || before.is_other && self.sleeper_serves();
        let followed = Followed {
            is_other: true,
            holder: if holds() { self.focus.tid } else { before.holder },
            because: before.because.or(reason),
            place: if first && self.needs_what_another_has() { self.place_of_work() } else { before.place },
            asked: if first { self.wait.from } else { before.asked },
            tried_again: if first { self.wait.tried_again } else { before.tried_again },
            for_others: if first { self.is_for_others() } else { before.for_others },
            ..before
        };
        Focus { followed, until: self.ended, ..self.focus }
    }

    /// Whether an event loop slept until the answer of a server came, `by`, for a thread that waited for that in the middle of other messages.
    pub fn passes_on_to_a_holder(&self, by: Option<Frame>) -> bool {
        self.focus.followed.holder != 0 && self.wait.how.is_for_work() && matches!(by, Some(Frame::Peer { .. }))
    }

    /// The server whose packet ended the sleep, if it answered another message's call.
    pub fn answer_to_another(&self) -> Option<Frame> {
        let message = self.focus.of_message.message;
        let number = self.wait.waker?.ready.checked_sub(1)?;
        let ready = self.activity.peers.readies.get(number as usize)?;
        let is_another = ready.of != NOBODY && message != NOBODY && ready.of != message;
        is_another.then_some(Frame::Peer { symbol: ready.peer, guessed: ready.guessed })
    }

    /// Who ended the sleep, if that says what it was: a server's packet, a poll's time limit, a task outside of the application.
    pub fn ended_by(&self) -> Option<Frame> {
        let Wait { how, waker, .. } = self.wait;
        // Before the thread works for this message it waits for answers to other messages' calls, and who holds a lock for the answer to its own.
        let own = self.from >= self.focus.own_from && self.focus.followed.because.is_none();
        let message = if own { self.focus.of_message.message } else { NOBODY };
        let peer = peer(self.activity, (self.focus.tid, message), waker);
        let Some(waker) = waker.filter(|_| !how.stopped) else { return peer };
        if !waker.interrupt {
            let symbol = Some(self.activity.threads.names().symbol(waker.tid)).filter(|&symbol| symbol != 0);
            return symbol.map(|symbol| Frame::WokenBy { symbol });
        }
        // A thread that waited for this message would have been woken by the hand-off.
        let timer = waker.timer && self.focus.of_message.handoff.is_some() && how.polls();
        peer.or(timer.then_some(Frame::Timer { guessed: false }))
    }
}

/// How a thread sleeps in an interval, if not for a lock.
fn waits(interval: &ThreadInterval) -> Option<Sleep> {
    match interval.state {
        State::Sleeping { how } => (!how.is_for_a_lock()).then_some(how),
        _ => None,
    }
}

/// Whether a packet ended a sleep that is no answer of another server.
fn is_by_a_clients_packet(waker: Waker) -> bool {
    waker.interrupt && !waker.timer && waker.ready == 0
}

/// Whether a thread was in the middle of messages other than the focus's own at `ts`.
pub(super) fn serves_others(activity: &Activity, focus: &Focus, tid: u32, ts: u64) -> bool {
    activity.service.is_serving(tid, ts) && serves(activity, focus, tid, ts)
}

/// Whether a thread that is in a busy period at `ts` serves messages other than this one.
pub(in crate::path) fn serves(activity: &Activity, focus: &Focus, tid: u32, ts: u64) -> bool {
    if focus.of_message.mine == [(0, 0); 2] {
        return true;
    }
    let Some(period) = activity.service.period(tid, ts) else { return false };
    let mine = |&(by, at): &(u32, u64)| by == tid && by != 0 && period.from <= at && at < period.to;
    !focus.of_message.mine.iter().any(mine)
}

/// Whether a thread that slept so waited for the next command of its connection, and at `released` ended another thread's wait while it
/// served that: the connection had the lock all the while (a transaction between its statements). An event loop waits for many
/// connections and is no such thread, whatever it waits in (FreeRADIUS takes datagrams in select and wakes its workers).
pub(super) fn holds_for_its_client(activity: &Activity, focus: &Focus, tid: u32, how: Sleep, released: u64) -> bool {
    how.polls() && !activity.service.is_loop_in(tid, how) && serves_others(activity, focus, tid, released)
}

/// Whether a thread was in the middle of something else at `ts`: it waited for one certain answer, or had, and what had woken it for that was
/// not the message's thread, `by`, which works for the message from `own_from` on.
pub(super) fn was_at_something_else(activity: &Activity, tid: u32, ts: u64, (by, own_from): (u32, u64)) -> bool {
    let Some(thread) = activity.threads.get(tid) else { return false };
    let Some(at) = thread.at(ts) else { return false };
    // Asleep until whatever comes, or until somebody has work for it.
    let is_idle = |interval: &ThreadInterval| match interval.state {
        State::Sleeping { how } => how.is_for_work() || how.is_for_a_lock(),
        State::Unknown => true,
        State::Running { .. } | State::Runnable { .. } => false,
    };
    let idle = thread.intervals[..=at].iter().rev().take(MOST_BETWEEN).position(is_idle);
    match idle {
        Some(0) => false,
        Some(back) => {
            let began = &thread.intervals[at + 1 - back];
            // A loop has others, too: it hands on what it received before it sleeps, or nothing tells whose it is.
            let in_its_turn = !activity.service.is_loop(by) || !slept(activity, by, (own_from, began.from));
            let woken = began.waker.is_some_and(|waker| waker.tid == by);
            let by_the_message = woken && began.from >= own_from && in_its_turn;
            let asked = |interval: &ThreadInterval| match interval.state {
                State::Sleeping { how } => how.is_for_data(),
                _ => false,
            };
            // One that only ran since may have been on its way to what it passes on.
            !by_the_message && thread.intervals[at + 1 - back..=at].iter().any(asked)
        }
        None => false,
    }
}

/// Whether a thread slept between two times.
fn slept(activity: &Activity, tid: u32, (from, to): (u64, u64)) -> bool {
    let intervals = activity.threads.get(tid).map_or(&[][..], |thread| &thread.intervals);
    let within = intervals.iter().skip(intervals.partition_point(|s| s.from < from)).take_while(|s| s.from < to);
    within.take(MOST_BETWEEN).any(|s| matches!(s.state, State::Sleeping { .. }))
}

/// The server whose packet ended a sleep, if the packet may have been for this message, or it is not known for which it was.
pub(super) fn peer(activity: &Activity, (tid, message): (u32, u32), waker: Option<Waker>) -> Option<Frame> {
    let ready = activity.peers.readies.get(waker?.ready.checked_sub(1)? as usize)?;
    let known_of_another = ready.of != NOBODY && message != NOBODY && ready.of != message;
    let for_others = ready.sent != 0 && !activity.peers.may_be_for(message, ready.sent);
    let symbol = if for_others { ready.for_others } else { ready.peer };
    // Whose call it answers is not known. A thread that has one connection at a time waits for the answer to that one's.
    let guessed = ready.guessed || ready.sent != 0 && activity.service.is_loop(tid);
    (!known_of_another).then_some(Frame::Peer { symbol, guessed })
}
