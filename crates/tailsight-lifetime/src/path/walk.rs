//! Walks the pieces of a message's path and returns their steps.
//!
//! In: [`Piece`]s, and the timelines of cores and threads. Out: [`Step`]s in order, without gap or overlap, each with its owner.

use super::holder::{self, Held};
use super::owners::{Owners, View};
use super::pieces::{Focus, Followed, Piece};
use super::rules::{self, Case, LOCK_DEPTH, Verdict, WAKER_DEPTH, serves};
use crate::model::{Frame, OwnerId, PathSpan, Role, Rule};
use crate::scan::activity::Activity;
use crate::timelines::sleep::Sleep;
use crate::timelines::threads::{State, ThreadInterval};
use crate::timelines::waits::Wait;

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

/// Whether a thread that is followed waits for a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// It is on that core.
    No,
    /// It does; and who has the lock that it needs next, where that is known.
    ForCore(Option<Held>),
}

/// Walks pieces and returns their steps in order, without gap or overlap.
pub struct Walk<'a, F: FnMut(Step)> {
    /// What cores and threads did.
    pub activity: &'a Activity,
    /// Owners.
    pub owners: &'a mut Owners,
    /// Takes the steps.
    pub each: F,
}

impl<F: FnMut(Step)> Walk<'_, F> {
    /// Walks a piece.
    pub fn piece(&mut self, piece: &Piece) {
        match *piece {
            Piece::Core { cpu, from, to } => self.core(cpu, (from, to), Role::R, None, None),
            Piece::Thread { from, to, focus } => self.thread(focus.tid, from, to, focus, 0),
            Piece::Others { tid, unread, from, to } => {
                self.thread(tid, from, to, Focus::of_others(tid, unread), 0);
            }
            Piece::Waits { frame, role, from, to } => self.waits(frame, role, from, to),
            Piece::UntilTimer { how, guessed, from, to } => {
                let owner = self.owners.blocked(how, Some(Frame::Timer { guessed }));
                self.emit((from, to), None, Role::A, owner, None);
            }
            Piece::Answer { frame, place, from, to } => {
                let owner = self.owners.answer(frame, place);
                self.emit((from, to), None, Role::A, owner, None);
            }
            Piece::Parked { stack, for_others, turn, ended, meanwhile, from, to } => {
                let owner = self.owners.parked((stack, ended), (for_others, turn), meanwhile);
                self.emit((from, to), None, Role::A, owner, None);
            }
        }
    }

    /// A wait that is no task's.
    fn waits(&mut self, frame: Frame, role: Role, from: u64, to: u64) {
        if from < to {
            let owner = self.owners.single(frame);
            self.emit((from, to), None, role, owner, None);
        }
    }

    /// A step that begins here, and which no hook delayed.
    fn emit(&mut self, (from_ns, to_ns): (u64, u64), cpu: Option<u16>, role: Role, owner: OwnerId, rule: Option<Rule>) {
        if from_ns < to_ns {
            let span = PathSpan { from_ns, to_ns, cpu, role, owner, begins: true, rule };
            (self.each)(Step { span, hooks_ns: 0 });
        }
    }

    /// What ran on a core from `from` to `to`. `focus`: the thread that is on this core, or waits for it. `rule`: the one that led here.
    fn core(
        &mut self,
        cpu: u16,
        (from, to): (u64, u64),
        role: Role,
        focus: Option<(&Focus, Waits)>,
        rule: Option<Rule>,
    ) {
        if from >= to {
            return;
        }
        let activity = self.activity;
        let Some(core) = activity.cores.get(usize::from(cpu)) else {
            let owner = self.owners.unknown();
            return self.emit((from, to), Some(cpu), role, owner, rule);
        };
        let mut at = from;
        let first = match core.at(from) {
            Some(i) => i,
            None => {
                let begin = core.segments.first().map_or(to, |s| s.from.min(to));
                let owner = self.owners.unknown();
                self.emit((from, begin), Some(cpu), role, owner, rule);
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
            let view = match focus {
                None if segment.serving => View::Serving,
                None => View::Other,
                Some((f, waits)) => {
                    if activity.tree.task_of(segment.node) == f.tid {
                        // The work for other messages may end inside a segment.
                        // A thread that passes the message on serves others before that.
                        let others =
                            f.followed.is_other && f.of_message.handoff.is_none() && f.followed.because.is_none();
                        // The messages of a batch share a busy period, but until the previous reply the thread works for others.
                        let border = f.own_from.max(f.of_message.answered);
                        let late = at < f.own_from || (at < border || others) && serves(activity, f, f.tid, at);
                        let ahead = segment.serving && late;
                        if ahead && !others && border < end {
                            let owner = self.owners.of_node(activity, segment.node, View::Ahead);
                            let span =
                                PathSpan { from_ns: at, to_ns: border, cpu: Some(cpu), role, owner, begins, rule };
                            (self.each)(Step { span, hooks_ns: std::mem::take(&mut hooks_ns) });
                            at = border;
                        }
                        match ahead && (others || at < border) {
                            true => View::Ahead,
                            false if f.of_message.between_sends => View::BetweenSends,
                            false => View::Own,
                        }
                    } else if segment.serving {
                        let tid = activity.tree.task_of(segment.node);
                        if serves(activity, f, tid, at) { View::Serving } else { View::Own }
                    } else if waits != Waits::No {
                        View::WakePending
                    } else {
                        View::Other
                    }
                }
            };
            let owner = match focus {
                Some((f @ Focus { followed: Followed { because: Some(because), .. }, tid, .. }, _))
                    if view == View::Own && activity.tree.task_of(segment.node) == *tid =>
                {
                    let serves = segment.serving && serves(activity, f, *tid, at);
                    if segment.serving && !serves {
                        self.owners.of_node(activity, segment.node, View::Own)
                    } else {
                        self.owners.waited(activity, segment.node, (*because, serves))
                    }
                }
                Some((_, Waits::ForCore(Some(held))))
                    if view == View::WakePending
                        && held.since <= at
                        && activity.tree.task_of(segment.node) == held.tid =>
                {
                    self.owners.waited(activity, segment.node, (held.because, false))
                }
                _ => self.owners.of_node(activity, segment.node, view),
            };
            let span = PathSpan { from_ns: at, to_ns: end, cpu: Some(cpu), role, owner, begins, rule };
            (self.each)(Step { span, hooks_ns });
            at = end;
        }
        if at < to {
            let owner = self.owners.unknown();
            self.emit((at, to), Some(cpu), role, owner, rule);
        }
    }

    /// What a thread did from `from` to `to`.
    fn thread(&mut self, tid: u32, from: u64, to: u64, focus: Focus, depth: u32) {
        if from >= to {
            return;
        }
        let activity = self.activity;
        let role = Role::A;
        let Some(thread) = activity.threads.get(tid) else {
            let owner = self.owners.unknown();
            return self.emit((from, to), None, role, owner, focus.followed.rule);
        };
        let intervals: &[ThreadInterval] = &thread.intervals;
        let mut at = from;
        let mut i = match thread.at(from) {
            Some(i) => i,
            None => {
                let begin = intervals.first().map_or(to, |s| s.from.min(to));
                // The time before a thread was created belongs to the thread that created it.
                match intervals.first().and_then(|s| s.waker).filter(|w| w.tid != tid && depth < WAKER_DEPTH) {
                    Some(maker) if self.activity.threads.get(maker.tid).is_some() => {
                        let setup = focus.of_message.setup.then_some(Frame::ConnectionSetup);
                        let because = focus.followed.because.or(setup);
                        let focus = Focus { followed: Followed { because, ..focus.followed }, ..focus };
                        self.thread(maker.tid, from, begin, focus, depth + 1);
                    }
                    _ => {
                        let owner = self.owners.unknown();
                        self.emit((from, begin), None, role, owner, focus.followed.rule);
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
                State::Running { cpu } => {
                    self.core(cpu, (at, end), role, Some((&focus, Waits::No)), focus.followed.rule)
                }
                State::Runnable { throttled: true, .. } => {
                    let owner = self.owners.single(Frame::Throttled);
                    self.emit((at, end), None, role, owner, focus.followed.rule);
                }
                State::Runnable { cpu, .. } => {
                    let asks = depth == 0 && focus.followed.because.is_none() && end <= focus.of_message.needs_until;
                    let held =
                        if asks { holder::of_next_sleep(activity, tid, i, focus.of_message.needs_until) } else { None };
                    self.core(cpu, (at, end), role, Some((&focus, Waits::ForCore(held))), focus.followed.rule);
                }
                State::Sleeping { .. } => {
                    if let Some(wait) = thread.wait(i) {
                        self.asleep(wait, (at, end), focus, depth);
                    }
                }
                State::Unknown => {
                    let owner = self.owners.unknown();
                    self.emit((at, end), None, role, owner, focus.followed.rule);
                }
            }
            at = at.max(end);
            i += 1;
        }
        if at < to {
            let owner = self.owners.unknown();
            self.emit((at, to), None, role, owner, focus.followed.rule);
        }
    }

    /// A sleep: what it was for says a rule ([`rules`]).
    fn asleep(&mut self, wait: Wait, (from, to): (u64, u64), focus: Focus, depth: u32) {
        let how = wait.how;
        let case = Case::new(self.activity, wait, (from, to), focus, depth);
        let (rule, verdict) = rules::decide(&case, self.activity.without_rules);
        let because_of = |focus: Focus| Focus { followed: Followed { rule: Some(rule), ..focus.followed }, ..focus };
        let owner = match verdict {
            Verdict::ReceiveCore(cpu) => {
                return self.core(cpu, (from, to), Role::R, None, Some(rule));
            }
            Verdict::Follow { tid, focus, how } => {
                return self.follow_waker(tid, (from, to), because_of(focus), (how, depth + 1));
            }
            Verdict::WaitThenFollow { until, how, by, tid, focus } => {
                let owner = self.owners.blocked(how, by);
                self.emit((from, until.min(to)), None, Role::A, owner, Some(rule));
                return self.thread(tid, until, to, because_of(focus), depth + 1);
            }
            Verdict::FollowWhileBusy { tid, focus } => return self.worked_at(tid, (from, to), because_of(focus), how),
            Verdict::Wait(frame) => self.owners.single(frame),
            Verdict::Ahead { how, by } => self.owners.ahead_asleep(how, by),
            Verdict::Blocked { how, by } => self.owners.blocked(how, by),
            Verdict::WaitedFor { tid, because, serves, by } => {
                self.owners.waited_asleep(tid, (because, serves), how, by, self.activity.threads.names())
            }
        };
        self.emit((from, to), None, Role::A, owner, Some(rule));
    }

    /// What a thread did that ended the sleep `how` at `focus.until`. If that was a wait for a lock, the thread may have waited for its turn
    /// itself, and before that for work: what the one before it did then is what everybody waited for.
    fn follow_waker(&mut self, tid: u32, (from, to): (u64, u64), focus: Focus, (how, depth): (Sleep, u32)) {
        let turn = if depth < LOCK_DEPTH && focus.in_line(how) {
            holder::turn(self.activity, tid, (from, focus.until))
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
        let activity = self.activity;
        let idle = |state: State| match state {
            State::Sleeping { how } => how.is_for_what_comes() || how.is_for_a_lock(),
            State::Unknown => true,
            State::Running { .. } | State::Runnable { .. } => false,
        };
        let intervals = activity.threads.get(tid).map_or(&[][..], |thread| &thread.intervals);
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
                let is_for_clients = how.may_be_for_any_of_several() && !how.is_for_work();
                let by = is_for_clients.then_some(Frame::PutAside);
                let owner = self.owners.blocked(how, by);
                self.emit((at, end), None, Role::A, owner, focus.followed.rule);
            } else {
                self.thread(tid, at, end, focus, 1);
            }
            at = end;
        }
    }
}
