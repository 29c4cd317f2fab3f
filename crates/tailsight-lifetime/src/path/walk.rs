//! Walks the pieces of a message's path and returns their steps.
//!
//! In: [`Piece`]s, and the timelines of cores and threads. Out: [`Step`]s in order, without gap or overlap, each with its owner.

use tailsight_kernel::syscalls;

use super::holder;
use super::owners::{Owners, Seen, sleep_frame};
use super::pieces::{Focus, Piece};
use crate::messages::backend_calls::NOBODY;
use crate::model::{Frame, OwnerId, PathSpan, Role};
use crate::scan::Scan;
use crate::timelines::busy_periods;
use crate::timelines::threads::{Sleep, State, ThreadInterval, Waker};

/// The largest number of wakers that are followed from one sleep.
const WAKER_DEPTH: u32 = 8;
/// The same where each waits for a lock: as many as a pool has threads may stand in line for it.
const LOCK_DEPTH: u32 = 64;

/// A part of a thread's sleep.
#[derive(Clone, Copy, Debug)]
struct SleepPart {
    /// When the whole sleep began.
    since: u64,
    from: u64,
    to: u64,
    /// When it ended, at least `to`; if it was a try for a lock, when the last one ended.
    ended: u64,
    how: Sleep,
    waker: Option<Waker>,
    /// A time limit ended it, and the thread tried again.
    tried_again: bool,
}

/// A step of a path: an owner's time, and what the recorder's own hooks took right before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The owner's time; empty if the hooks took all of it.
    pub span: PathSpan,
    /// The hooks' time before `span`, ns, on the same core and in the same role.
    pub hooks_ns: u16,
}

impl Step {
    /// When it begins, the hooks' time included, ns.
    pub fn from_ns(&self) -> u64 {
        self.span.from_ns - u64::from(self.hooks_ns)
    }

    /// Adds both to a path, if they are not empty.
    pub fn add_to(self, path: &mut Vec<PathSpan>, owners: &mut Owners) {
        let (from_ns, to_ns) = (self.from_ns(), self.span.from_ns);
        if from_ns < to_ns {
            path.push(PathSpan { from_ns, to_ns, owner: owners.profiler(), begins: true, ..self.span });
        }
        if self.span.from_ns < self.span.to_ns {
            path.push(self.span);
        }
    }
}

/// Walks pieces and returns their steps in order, without gap or overlap.
pub struct Walk<'a, F: FnMut(Step)> {
    /// The scanned run.
    pub scan: &'a Scan,
    /// Owners.
    pub owners: &'a mut Owners,
    /// Takes the steps.
    pub each: F,
}

impl<F: FnMut(Step)> Walk<'_, F> {
    /// Walks a piece.
    pub fn piece(&mut self, piece: &Piece) {
        match *piece {
            Piece::Core { cpu, from, to } => self.core(cpu, from, to, Role::R, None),
            Piece::Thread { from, to, focus } => self.thread(focus.tid, from, to, focus, 0),
            Piece::Others { tid, from, to } => {
                self.thread(tid, from, to, Focus::new(tid, u64::MAX), 0);
            }
            Piece::Waits { frame, role, from, to } => self.waits(frame, role, from, to),
        }
    }

    /// A wait that is no task's.
    fn waits(&mut self, frame: Frame, role: Role, from: u64, to: u64) {
        if from < to {
            let owner = self.owners.single(frame);
            self.emit(from, to, None, role, owner, true);
        }
    }

    fn emit(&mut self, from_ns: u64, to_ns: u64, cpu: Option<u16>, role: Role, owner: OwnerId, begins: bool) {
        if from_ns < to_ns {
            (self.each)(Step { span: PathSpan { from_ns, to_ns, cpu, role, owner, begins }, hooks_ns: 0 });
        }
    }

    /// What ran on a core from `from` to `to`. `focus`: the thread that is on this core, or waits for it.
    fn core(&mut self, cpu: u16, from: u64, to: u64, role: Role, focus: Option<(&Focus, bool)>) {
        if from >= to {
            return;
        }
        let scan = self.scan;
        let Some(core) = scan.cores.get(usize::from(cpu)) else {
            let owner = self.owners.unknown();
            return self.emit(from, to, Some(cpu), role, owner, true);
        };
        let mut at = from;
        let first = match core.at(from) {
            Some(i) => i,
            None => {
                let begin = core.segments.first().map_or(to, |s| s.from.min(to));
                let owner = self.owners.unknown();
                self.emit(from, begin, Some(cpu), role, owner, true);
                at = begin;
                0
            }
        };
        for i in first..core.segments.len() {
            if at >= to {
                break;
            }
            let segment = core.segments[i];
            let end = core.segments.get(i + 1).map_or(to, |s| s.from).min(to);
            // The recorder's hooks have the beginning of each segment, so any part of a timeline gives the same owners.
            let hooks = (segment.from + u64::from(segment.hooks)).min(end);
            let mut hooks_ns = hooks.saturating_sub(at) as u16;
            at = at.max(hooks);
            let begins = segment.begins || at == from;
            let seen = match focus {
                None if segment.serving => Seen::Serving,
                None => Seen::Other,
                Some((f, waiting)) => {
                    if scan.tree.task_of(segment.node) == f.tid {
                        // The work for other messages may end inside a segment.
                        // A thread that passes the message on serves others before that.
                        let others = f.followed && f.handoff.is_none() && f.because.is_none();
                        // The messages of a batch share a busy period, but until the previous reply the thread works for others.
                        let border = f.own_from.max(f.answered);
                        let late = at < f.own_from || (at < border || others) && self.serves(f, f.tid, at);
                        let ahead = segment.serving && late;
                        if ahead && !others && border < end {
                            let owner = self.owners.of_node(scan, segment.node, Seen::Ahead);
                            let span = PathSpan { from_ns: at, to_ns: border, cpu: Some(cpu), role, owner, begins };
                            (self.each)(Step { span, hooks_ns: std::mem::take(&mut hooks_ns) });
                            at = border;
                        }
                        if ahead && (others || at < border) { Seen::Ahead } else { Seen::Own }
                    } else if segment.serving {
                        let tid = scan.tree.task_of(segment.node);
                        if self.serves(f, tid, at) { Seen::Serving } else { Seen::Own }
                    } else if waiting {
                        Seen::WakePending
                    } else {
                        Seen::Other
                    }
                }
            };
            let owner = match focus {
                Some((f @ Focus { because: Some(because), tid, .. }, _))
                    if seen == Seen::Own && scan.tree.task_of(segment.node) == *tid =>
                {
                    let serves = segment.serving && self.serves(f, *tid, at);
                    if segment.serving && !serves {
                        self.owners.of_node(scan, segment.node, Seen::Own)
                    } else {
                        self.owners.waited(scan, segment.node, (*because, serves))
                    }
                }
                Some((Focus { held: Some(held), .. }, true))
                    if seen == Seen::WakePending && held.since <= at && scan.tree.task_of(segment.node) == held.tid =>
                {
                    self.owners.waited(scan, segment.node, (held.because, false))
                }
                _ => self.owners.of_node(scan, segment.node, seen),
            };
            let span = PathSpan { from_ns: at, to_ns: end, cpu: Some(cpu), role, owner, begins };
            (self.each)(Step { span, hooks_ns });
            at = end;
        }
        if at < to {
            let owner = self.owners.unknown();
            self.emit(at, to, Some(cpu), role, owner, true);
        }
    }

    /// What a thread did from `from` to `to`.
    fn thread(&mut self, tid: u32, from: u64, to: u64, focus: Focus, depth: u32) {
        if from >= to {
            return;
        }
        let scan = self.scan;
        let role = Role::A;
        let Some(thread) = scan.threads.get(tid) else {
            let owner = self.owners.unknown();
            return self.emit(from, to, None, role, owner, true);
        };
        let intervals: &[ThreadInterval] = &thread.intervals;
        let mut at = from;
        let mut i = match thread.at(from) {
            Some(i) => i,
            None => {
                let begin = intervals.first().map_or(to, |s| s.from.min(to));
                // The time before a thread was created belongs to the thread that created it.
                match intervals.first().and_then(|s| s.waker).filter(|w| w.tid != tid && depth < WAKER_DEPTH) {
                    Some(maker) if self.scan.threads.get(maker.tid).is_some() => {
                        let setup = focus.setup.then_some(Frame::ConnectionSetup);
                        let focus = Focus { because: focus.because.or(setup), ..focus };
                        self.thread(maker.tid, from, begin, focus, depth + 1);
                    }
                    _ => {
                        let owner = self.owners.unknown();
                        self.emit(from, begin, None, role, owner, true);
                    }
                }
                at = begin;
                0
            }
        };
        // On the path of another thread, that thread's own work is what the message waits for.
        let focus = Focus { tid, ..focus };
        while at < to && i < intervals.len() {
            let end = intervals.get(i + 1).map_or(to, |s| s.from).min(to);
            match intervals[i].state {
                State::Running { cpu } => self.core(cpu, at, end, role, Some((&focus, false))),
                State::Runnable { throttled: true, .. } => {
                    let owner = self.owners.single(Frame::Throttled);
                    self.emit(at, end, None, role, owner, true);
                }
                State::Runnable { cpu, .. } => {
                    let asks = depth == 0 && focus.because.is_none() && end <= focus.needs_until;
                    let held = if asks { holder::of_next_sleep(scan, tid, i, focus.needs_until) } else { None };
                    self.core(cpu, at, end, role, Some((&Focus { held, ..focus }, true)));
                }
                State::Sleeping { how } => {
                    let next = intervals.get(i + 1).filter(|s| s.from <= to.max(focus.until));
                    let ended = next.map_or(end, |s| s.from.max(end));
                    let waker = next.and_then(|s| s.waker);
                    let tries = waker.is_some_and(|w| w.timer) && holder::is_lock(how);
                    let last = if tries { holder::last_waker(intervals, i) } else { None };
                    let (waker, ended) = last.map_or((waker, ended), |(waker, at)| (Some(waker), at.max(ended)));
                    let tried_again = last.is_some_and(|(_, at)| at > next.map_or(end, |s| s.from));
                    let since = intervals[i].from;
                    let part = SleepPart { since, from: at, to: end, ended, how, waker, tried_again };
                    self.asleep(part, focus, depth);
                }
                State::Unknown => {
                    let owner = self.owners.unknown();
                    self.emit(at, end, None, role, owner, true);
                }
            }
            at = at.max(end);
            i += 1;
        }
        if at < to {
            let owner = self.owners.unknown();
            self.emit(at, to, None, role, owner, true);
        }
    }

    /// A sleep: the end of receive processing, another thread's work, or a wait for something outside.
    fn asleep(&mut self, part: SleepPart, focus: Focus, depth: u32) {
        let SleepPart { since, from, to, ended, how, waker, tried_again } = part;
        let names = self.scan.threads.names();
        let mut by = self.ended_by(focus, waker);
        if let Some(waker) = waker {
            let hands_off = focus
                .handoff
                .is_some_and(|(cpu, ts)| waker.interrupt && waker.cpu == cpu && self.same_softirq(cpu, ts, ended));
            if hands_off {
                return self.core(waker.cpu, from, to, Role::R, None);
            }
            let deepest = if focus.in_line(how) { LOCK_DEPTH } else { WAKER_DEPTH };
            if !waker.interrupt && depth < deepest && names.is_target(waker.tid) {
                // A thread that slept when the message arrived waited for work, and the other one passes it on. A thread
                // that fell asleep later, or in a write, waits for something that the other one holds.
                let fell_asleep_since = focus.handoff.is_none_or(|(_, ts)| since >= ts);
                let writes = syscalls::waits_for_room(how.nr) && !how.uninterruptible && !how.io;
                let needs_a_lock = || {
                    self.needs_a_lock(focus, since, ended, how) || self.cannot_pass_on(waker.tid, (from, ended), how)
                };
                let waits = (fell_asleep_since || writes || depth == 0 && needs_a_lock())
                    && since >= focus.since
                    && !focus.handed;
                // In the receive leg the thread fell asleep after the message arrived, so it waits for something else.
                let looks = waits && focus.message != NOBODY && focus.handoff.is_none() && focus.because.is_none();
                // Where the message's own thread was in the program, if that is known of a call in which servers wait for work.
                let place = if syscalls::waits_for_work(how.nr) { how.place } else { 0 };
                let origin = if looks { self.origin(waker.tid, (from, ended), place, focus, depth) } else { None };
                if let Some((at, owner)) = origin {
                    self.emit(from, at.min(to), None, Role::A, owner, true);
                    let focus = Focus { handed: true, followed: true, until: ended, ..focus };
                    return self.thread(waker.tid, at, to, focus, depth + 1);
                }
                let why = if focus.setup { Some(Frame::ConnectionSetup) } else { waits.then_some(sleep_frame(how)) };
                let place = if focus.because.is_none() && waits { place } else { focus.place };
                let tried_again = if focus.because.is_none() { tried_again } else { focus.tried_again };
                let because = focus.because.or(why);
                let focus = Focus { because, place, tried_again, followed: true, until: ended, ..focus };
                return self.follow_waker(waker.tid, (from, to), focus, (how, depth + 1));
            }
            // A thread that waited for this message would have been woken by the hand-off.
            if by.is_none() && waker.timer && focus.handoff.is_some() && syscalls::polls(how.nr) && !how.stopped {
                by = Some(Frame::Timer);
            }
            if !waker.interrupt && !how.stopped {
                by = Some(names.symbol(waker.tid)).filter(|&s| s != 0).map(|symbol| Frame::WokenBy { symbol });
            }
        }
        // The rest of the request came, or something for others while it did.
        if depth == 0 && by.is_none() && ended <= focus.arrives_until && waits_for_what_comes(how) {
            let owner = self.owners.single(Frame::RequestArriving);
            return self.emit(from, to, None, Role::A, owner, true);
        }
        // What woke an event loop was not this message's answer, if another thread hands that over later.
        if let Some(answerer) = focus.answerer.filter(|_| depth == 0 && by.is_none() && waits_for_what_comes(how)) {
            let focus = Focus { because: Some(sleep_frame(how)), followed: true, until: ended, ..focus };
            return self.worked_at(answerer, (from, to), focus, how);
        }
        // It waits for another server's answer, or for a time (Java sleeps in a futex until that), for an earlier message.
        let for_a_time = syscalls::wait(how.nr) == Some(syscalls::Wait::Time)
            || holder::is_lock(how) && waker.is_some_and(|waker| waker.timer);
        let holds_up = syscalls::waits_for_data(how.nr) || from < focus.own_from && for_a_time;
        let ahead = depth == 0
            && focus.because.is_none()
            && (from < focus.own_from || from < focus.answered && self.serves(&focus, focus.tid, since))
            && !how.uninterruptible
            && !how.io
            && holds_up
            && busy_periods::serving(&self.scan.busy_periods, focus.tid, since);
        let owner = match focus.because {
            None if ahead => self.owners.ahead_asleep(how, by),
            // It waited for its client, and had the lock only after that; who had it meanwhile is not known.
            Some(because)
                if focus.tried_again && syscalls::polls(how.nr) && !matches!(by, Some(Frame::Peer { .. })) =>
            {
                self.owners.single(because)
            }
            // The thread for which the message waits sleeps, too.
            Some(because) => {
                let serves = busy_periods::serving(&self.scan.busy_periods, focus.tid, since)
                    && self.serves(&focus, focus.tid, since);
                // Waiters of a file lock form a queue: each waits for the one before it, which waits for the same lock.
                let queued = syscalls::locks_a_file(how.nr)
                    && matches!(by, Some(Frame::WokenBy { .. }))
                    && matches!(because, Frame::SleepIn { nr, .. } if nr == how.nr);
                let polls = syscalls::polls(how.nr) && !self.holds_for_its_client(&focus, focus.tid, how, focus.until);
                if queued || !serves && polls && matches!(because, Frame::SleepIn { .. }) {
                    // A thread that polls holds no lock, unless the message's own thread is known to have waited for one where it slept.
                    let place = if focus.place == 0 { how.place } else { focus.place };
                    self.owners.blocked(Sleep { place, ..how }, by)
                } else {
                    self.owners.waited_asleep(focus.tid, (because, serves), how, by, names)
                }
            }
            None => self.owners.blocked(how, by),
        };
        self.emit(from, to, None, Role::A, owner, true);
    }

    /// What a thread did that ended the sleep `how` at `focus.until`. If that was a wait for a lock, the thread may have waited for its turn
    /// itself, and before that for work: what the one before it did then is what everybody waited for.
    fn follow_waker(&mut self, tid: u32, (from, to): (u64, u64), focus: Focus, (how, depth): (Sleep, u32)) {
        let turn = if depth < LOCK_DEPTH && focus.in_line(how) {
            holder::turn(self.scan, tid, (from, focus.until))
        } else {
            None
        };
        let Some(turn) = turn else { return self.thread(tid, from, to, focus, depth) };
        let asked = turn.asked.clamp(from, to);
        let before = Focus { until: turn.got, ..focus };
        self.follow_waker(turn.before, (from, asked), before, (how, depth + 1));
        self.thread(tid, asked, to, focus, depth);
    }

    /// An event loop slept so, and the thread `tid` handed the answer to it later. While that one was busy, the message waited for it;
    /// while it waited for work itself, nobody is known to have had the message.
    fn worked_at(&mut self, tid: u32, (from, to): (u64, u64), focus: Focus, how: Sleep) {
        let scan = self.scan;
        let idle = |state: State| match state {
            State::Sleeping { how } => waits_for_what_comes(how) || holder::is_lock(how),
            State::Unknown => true,
            State::Running { .. } | State::Runnable { .. } => false,
        };
        let intervals = scan.threads.get(tid).map_or(&[][..], |thread| &thread.intervals);
        let first = intervals.partition_point(|s| s.from <= from).saturating_sub(1);
        let (mut at, mut next) = (from, first);
        while at < to {
            let is_idle = intervals.get(next).is_none_or(|s| s.from > at || idle(s.state));
            // Up to where it changes between both.
            while next < intervals.len()
                && intervals[next].from < to
                && (intervals[next].from <= at || idle(intervals[next].state) == is_idle)
            {
                next += 1;
            }
            let end = intervals.get(next).map_or(to, |s| s.from.clamp(at, to));
            if is_idle {
                let owner = self.owners.blocked(how, None);
                self.emit(at, end, None, Role::A, owner, true);
            } else {
                self.thread(tid, at, end, focus, 1);
            }
            at = end;
        }
    }

    /// Whether a thread that is in a busy period at `ts` serves messages other than this one.
    fn serves(&self, focus: &Focus, tid: u32, ts: u64) -> bool {
        if focus.mine == [(0, 0); 2] {
            return true;
        }
        let Some(period) = busy_periods::period(&self.scan.busy_periods, tid, ts) else { return false };
        let mine = |&(by, at): &(u32, u64)| by == tid && by != 0 && period.from <= at && at < period.to;
        !focus.mine.iter().any(mine)
    }

    /// Whether a thread that slept before the message came waited for a lock that it needed for the messages before. It may also have
    /// had nothing to do, as the threads of a pool: of them a busy period ends with their last reply when they rest for long.
    fn needs_a_lock(&self, focus: Focus, since: u64, ended: u64, how: Sleep) -> bool {
        ended - since >= busy_periods::CALL_NS
            && holder::is_lock(how)
            && busy_periods::serving(&self.scan.busy_periods, focus.tid, since)
            && self.serves(&focus, focus.tid, since)
    }

    /// Whether the thread that ended a sleep cannot have passed a message on: it was busy all the time, and never in the recording waited for
    /// data of anybody (a virtual machine's own thread that stops the others).
    fn cannot_pass_on(&self, tid: u32, (from, ended): (u64, u64), how: Sleep) -> bool {
        let busy = |intervals: &[ThreadInterval]| {
            let within = intervals.iter().skip(intervals.partition_point(|s| s.from <= from).saturating_sub(1));
            let mut within = within.take_while(|s| s.from < ended).peekable();
            within.peek().is_some() && within.all(|s| matches!(s.state, State::Running { .. } | State::Runnable { .. }))
        };
        holder::is_lock(how)
            && ended - from >= busy_periods::CALL_NS
            && !self.scan.polled.contains(&tid)
            && !self.scan.loops.contains(&tid)
            && self.scan.threads.get(tid).is_some_and(|thread| busy(&thread.intervals))
    }

    /// Whether a thread that slept so waited for the next command of its connection, and at `released` ended another thread's wait while it
    /// served that: the connection had the lock all the while (a transaction between its statements). An event loop waits for many
    /// connections and is no such thread, whatever it waits in (FreeRADIUS takes datagrams in select and wakes its workers).
    fn holds_for_its_client(&self, focus: &Focus, tid: u32, how: Sleep, released: u64) -> bool {
        syscalls::polls(how.nr)
            && !syscalls::waits_for_work(how.nr)
            && !self.scan.loops.contains(&tid)
            && busy_periods::serving(&self.scan.busy_periods, tid, released)
            && self.serves(focus, tid, released)
    }

    /// The server whose packet ended a sleep, if the packet may have been for this message, or it is not known for which it was.
    fn ended_by(&self, focus: Focus, waker: Option<Waker>) -> Option<Frame> {
        let ready = self.scan.peers.readies.get(waker?.ready.checked_sub(1)? as usize)?;
        let known_of_another = ready.of != NOBODY && focus.message != NOBODY && ready.of != focus.message;
        let message = self.scan.messages.get(focus.message as usize);
        let for_others = message.is_some_and(|m| ready.sent != 0 && !self.scan.peers.may_be_for(m, ready.sent));
        (!known_of_another).then_some(Frame::Peer { symbol: if for_others { ready.for_others } else { ready.peer } })
    }

    /// A thread slept from `from` to `to` and `tid` woke it. If `tid` itself slept meanwhile, or waited for a thread that did,
    /// until a packet of another server or a timer ended that sleep, it held no lock. Returns the time of that wake-up and the
    /// owner of the time before it; `None` if `tid` served other messages or was busy all the time. `place`: where in the
    /// program the first sleeper was, 0: not known.
    fn origin(
        &mut self,
        tid: u32,
        (from, to): (u64, u64),
        place: u32,
        focus: Focus,
        depth: u32,
    ) -> Option<(u64, OwnerId)> {
        let thread = self.scan.threads.get(tid)?;
        let upto = thread.at(to)?;
        // Its last sleep that had ended by then.
        let after = (1..=upto).rev().take_while(|&i| thread.intervals[i].from > from);
        let mut sleeps = after.filter_map(|i| match thread.intervals[i - 1].state {
            State::Sleeping { how } => Some((i, how)),
            _ => None,
        });
        let (end, how) = sleeps.next()?;
        let (since, until) = (thread.intervals[end - 1].from, thread.intervals[end].from);
        let waker = thread.intervals[end].waker;
        if busy_periods::serving(&self.scan.busy_periods, tid, since) && self.serves(&focus, tid, since) {
            return None;
        }
        if self.holds_for_its_client(&focus, tid, how, to) {
            return None;
        }
        let how = if place == 0 { how } else { Sleep { place, ..how } };
        if let Some(peer @ Frame::Peer { .. }) = self.ended_by(focus, waker) {
            return Some((until, self.owners.blocked(how, Some(peer))));
        }
        match waker {
            Some(w) if !w.interrupt && depth < WAKER_DEPTH && self.scan.threads.names().is_target(w.tid) => {
                self.origin(w.tid, (from, until), place, focus, depth + 1)
            }
            _ if syscalls::polls(how.nr) && !how.stopped => Some((until, self.owners.blocked(how, None))),
            _ => None,
        }
    }

    /// Whether a core stayed in interrupt context from the hand-off to the wake-up.
    fn same_softirq(&self, cpu: u16, handoff: u64, wake: u64) -> bool {
        let Some(core) = self.scan.cores.get(usize::from(cpu)) else {
            return false;
        };
        let Some(first) = core.at(handoff) else {
            return false;
        };
        core.segments[first..]
            .iter()
            .take_while(|s| s.from < wake.max(handoff + 1))
            .all(|s| self.scan.tree.within(s.node).interrupt)
    }
}

/// Whether a sleep is a wait for whatever comes next.
fn waits_for_what_comes(how: Sleep) -> bool {
    syscalls::polls(how.nr) && !how.stopped && !how.uninterruptible && !how.io
}
