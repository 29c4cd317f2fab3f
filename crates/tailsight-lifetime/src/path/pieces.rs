//! The pieces of a leg: when a message was on a core, when it followed a thread, and when it waited without either.
//!
//! In: a message's stages. Out: [`Piece`]s in order, without gap or overlap. All times in ns, CLOCK_MONOTONIC.

use super::beside_calls::beside_calls;
use super::holder;
use super::until_timer::until_timer;
use crate::messages::backend_calls::{Call, NOBODY};
use crate::messages::routines::{Parked, WaitPart};
use crate::messages::task_runs::{Meanwhile, Spell, What};
use crate::messages::{Extra, Uncommon};
use crate::model::{Frame, Leg, Message, Role, Rule, Threshold, flags};
use crate::scan::activity::{Activity, Sources};
use crate::timelines::sleep::Sleep;
use crate::timelines::threads::{State, Thread, Waker};

/// An interval of a message's path that is walked in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// On a core: everything that ran there.
    Core {
        /// The core.
        cpu: u16,
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
    /// Following a thread.
    Thread {
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
        /// Whose work is the message's.
        focus: Focus,
    },
    /// Following a thread that works only for other messages meanwhile: the same for every message, so prefix sums apply.
    Others {
        /// The thread.
        tid: u32,
        /// No thread has received the message.
        unread: bool,
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
    /// The task of the message waited, whatever threads did.
    Parked {
        /// Where in the program: a call stack of the run's samples, by number.
        stack: Option<u32>,
        /// For another message, which the task had first.
        for_others: bool,
        /// For its turn to ask this server: index into the run's symbols; 0: not known to be for that.
        turn: u32,
        /// Where in the program the wait was ended, likewise.
        ended: Option<u32>,
        /// What the task did meanwhile that ended it.
        meanwhile: Option<Meanwhile>,
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
    /// A wait without a task: for the NIC, for missing bytes, for its turn to ask another server, for the turn of a reply.
    Waits {
        /// For what.
        frame: Frame,
        /// On which side of the hand-off.
        role: Role,
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
    /// A wait until a timer of the server went off, whatever its thread did meanwhile.
    UntilTimer {
        /// The sleep of its thread that the timer ended.
        how: Sleep,
        /// The thread did other things meanwhile, so the message may have waited for something else at first.
        guessed: bool,
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
    /// A wait for the answer of another server that the message asked.
    Answer {
        /// Whose.
        frame: Frame,
        /// Where in the program its thread stood still for it: a call stack's number plus 1; 0: it did something else, or not known.
        place: u32,
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
}

impl Piece {
    /// The parts of a piece that lie in these windows, if a part of it is walked as in the whole; else all of it.
    pub fn within(self, activity: &Activity, windows: &[(u64, u64)], mut each: impl FnMut(Piece)) {
        let (from, to) = match self {
            Piece::Core { from, to, .. } | Piece::Others { from, to, .. } => (from, to),
            Piece::Thread { .. }
            | Piece::Waits { .. }
            | Piece::UntilTimer { .. }
            | Piece::Answer { .. }
            | Piece::Parked { .. } => return each(self),
        };
        let first = windows.partition_point(|&(_, end)| end <= from);
        let inside = windows[first..].iter().take_while(|&&(begin, _)| begin < to);
        let mut parts = inside.map(|&(begin, end)| {
            let begin = begin.max(from);
            (self.sleep_at(activity, begin).map_or(begin, |since| since.max(from)), end.min(to))
        });
        let Some(mut open) = parts.next() else { return };
        for (begin, end) in parts {
            if begin <= open.1 {
                open.1 = end;
            } else {
                each(self.part(open));
                open = (begin, end);
            }
        }
        each(self.part(open));
    }

    /// When it begins and ends, ns.
    pub fn ends(&self) -> (u64, u64) {
        match *self {
            Piece::Core { from, to, .. }
            | Piece::Thread { from, to, .. }
            | Piece::Others { from, to, .. }
            | Piece::Parked { from, to, .. }
            | Piece::UntilTimer { from, to, .. }
            | Piece::Answer { from, to, .. }
            | Piece::Waits { from, to, .. } => (from, to),
        }
    }

    /// The begin of the sleep that a piece's thread is in at a time: that and the time of its end say what the sleep is.
    fn sleep_at(self, activity: &Activity, time: u64) -> Option<u64> {
        let Piece::Others { tid, .. } = self else { return None };
        let thread = activity.threads.get(tid)?;
        let at = thread.intervals[thread.at(time)?];
        matches!(at.state, State::Sleeping { .. }).then_some(at.from)
    }

    fn part(self, (from, to): (u64, u64)) -> Piece {
        match self {
            Piece::Core { cpu, .. } => Piece::Core { cpu, from, to },
            Piece::Others { tid, unread, to: until, .. } => {
                Piece::Thread { from, to, focus: Focus { until, ..Focus::of_others(tid, unread) } }
            }
            whole => whole,
        }
    }
}

/// Whose work on a thread's path counts as the message's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Focus {
    /// The thread whose own work counts as the message's.
    pub(super) tid: u32,
    /// From this time on the thread works for this message; before it, inside busy periods, for others.
    pub(super) own_from: u64,
    /// Ends of sleeps are looked up to this time, beyond the piece itself.
    pub(super) until: u64,
    /// What is known of the message there, whichever thread is followed.
    pub(super) of_message: OfMessage,
    /// Why another thread than the message's own is followed.
    pub(super) followed: Followed,
}

/// What is known of a message in a piece of its path. All times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfMessage {
    /// The message; [`NOBODY`]: any.
    pub(super) message: u32,
    /// No thread has received it.
    pub(super) unread: bool,
    /// The core and time of the hand-off. A sleep that its softirq ends is the end of receive processing.
    pub(super) handoff: Option<(u16, u64)>,
    /// The message is the first of a new connection: until its thread has it, other threads set the connection up.
    pub(super) setup: bool,
    /// Other threads that are known to have worked for this message, each with a time at which it did.
    pub(super) mine: [(u32, u64); 2],
    /// When its thread received the answer of another server; until then it may serve other messages.
    pub(super) answered: u64,
    /// Until then the thread worked for this message: the lock that it next sleeps in up to here is one that this message
    /// needed. 0: not known.
    pub(super) needs_until: u64,
    /// Until then parts of the request came: a wait for work before that is one for the client.
    pub(super) arrives_until: u64,
    /// The thread that hands the answer back to its own, an event loop: what else wakes the loop does not end the wait.
    pub(super) answerer: Option<u32>,
    /// The thread is between two send calls of its reply.
    pub(super) between_sends: bool,
}

impl OfMessage {
    /// Any message.
    const ANY: OfMessage = OfMessage {
        message: NOBODY,
        unread: false,
        handoff: None,
        setup: false,
        mine: [(0, 0); 2],
        answered: 0,
        needs_until: 0,
        arrives_until: 0,
        answerer: None,
        between_sends: false,
    };
}

/// Why another thread is followed. By default none is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// This is not the message's own thread, but one that ended a sleep of it.
    pub(super) is_other: bool,
    /// The sleep of the message's own thread that it ended.
    pub(super) because: Option<Frame>,
    /// Where in the program that sleep was, if it was in a call in which servers wait for work; 0: not known.
    pub(super) place: u32,
    /// When that sleep began, ns.
    pub(super) asked: u64,
    /// That sleep was a wait for a lock that is tried for again when a time limit is over: CPython's, or a monitor of a JVM. Whoever has one
    /// of those gives it back before it waits for its client; a monitor may be held in a sleep, or while another server is asked.
    pub(super) tried_again: bool,
    /// The last thread that was followed and slept in the middle of other messages: it had what the message needs, and waited for the threads that
    /// are followed after it. 0: none.
    pub(super) holder: u32,
    /// The threads that are followed pass on what a packet or a timer brought; none of them holds a lock.
    pub(super) handed: bool,
    /// The message's own thread slept in the middle of others, before it turned to this one: what is waited for is theirs.
    pub(super) for_others: bool,
    /// The rule by which it is followed.
    pub(super) rule: Option<Rule>,
}

impl Focus {
    pub(super) fn new(tid: u32, own_from: u64) -> Focus {
        Focus { tid, own_from, until: 0, of_message: OfMessage::ANY, followed: Followed::default() }
    }

    /// A thread that works only for others than the message. `unread`: no thread has received that.
    pub(super) fn of_others(tid: u32, unread: bool) -> Focus {
        Focus { of_message: OfMessage { unread, ..OfMessage::ANY }, ..Focus::new(tid, u64::MAX) }
    }

    /// Whether a thread that slept so stood in line for the lock because of which it is followed.
    pub(super) fn in_line(&self, how: Sleep) -> bool {
        how.is_for_a_lock() && matches!(self.followed.because, Some(Frame::SleepIn { nr, .. }) if nr == how.nr)
    }
}

/// A wait for a busy thread shorter than this is walked; prefix sums are faster only for longer ones.
pub const LONG_NS: u64 = 200_000;

/// The pieces of one measured leg, in order; none if the leg was not seen.
pub fn pieces(sources: Sources<'_>, m: &Message, extra: &Extra, leg: Leg, out: &mut Vec<Piece>) {
    let Some((from, to)) = m.ends(leg) else { return };
    let uncommon = sources.handling.uncommon.of(extra);
    match leg {
        Leg::Receive => {
            let nic = from;
            let from = m.driver_ns.clamp(from, to);
            if nic < from {
                out.push(Piece::Waits { frame: Frame::NicToDriver, role: Role::R, from: nic, to: from });
            }
            let handoff = m.handoff_ns.clamp(from, to);
            let held = m.flags & flags::HELD != 0;
            if !held && uncommon.arrived_ns == 0 {
                out.push(Piece::Core { cpu: extra.stack_cpu, from, to: handoff });
            } else {
                let begun = m.stack_ns.clamp(from, handoff);
                let arrived = uncommon.arrived_ns.clamp(begun, handoff);
                let whole = if held { uncommon.held_until_ns.clamp(arrived, handoff) } else { arrived };
                out.push(Piece::Core { cpu: extra.stack_cpu, from, to: begun });
                out.push(Piece::Waits { frame: Frame::RequestArriving, role: Role::R, from: begun, to: arrived });
                out.push(Piece::Waits { frame: Frame::TcpHole, role: Role::R, from: arrived, to: whole });
                out.push(Piece::Core { cpu: m.handoff_cpu, from: whole, to: handoff });
            }
            let setup = m.flags & flags::FIRST != 0;
            let handed = Some((m.handoff_cpu, handoff));
            let own_from = if uncommon.began_ns == 0 { m.recv_enter_ns } else { uncommon.began_ns };
            let needs_until = if extra.send_tid == m.tid { m.send_ns } else { 0 };
            let of_message =
                OfMessage { message: m.id, unread: true, handoff: handed, setup, needs_until, ..OfMessage::ANY };
            let focus = Focus { of_message, ..Focus::new(m.tid, own_from) };
            let given = if setup { given(sources.activity, m.tid, handoff, own_from.min(to)) } else { None };
            if let Some((from, giver)) = given {
                // Until then the accepting thread had the connection, whatever the receiving one did.
                let because = Some(Frame::ConnectionSetup);
                let followed = Followed { because, ..Followed::default() };
                let of_giver = Focus { followed, ..Focus::new(giver, 0) };
                out.push(Piece::Thread { from: handoff, to: from, focus: of_giver });
                out.push(Piece::Thread { from, to, focus });
            } else {
                thread_pieces(sources.activity, handoff, to, focus, out);
            }
        }
        Leg::Service => {
            let of_message = OfMessage {
                message: m.id,
                mine: [(m.tid, m.recv_enter_ns), (0, 0)],
                needs_until: to,
                answerer: answerer(sources.activity, extra.send_tid, from, to),
                arrives_until: arrives_until(uncommon, from, to),
                ..OfMessage::ANY
            };
            let own_from = extra.own_from_ns.max(from);
            let mut focus = Focus { until: to, of_message, ..Focus::new(extra.send_tid, own_from) };
            let mut at = from;
            let mut task = Task::of(sources, m, extra);
            // For what a task waited its runtime tells, and not the order of calls.
            let is_told = matches!(task, Task::Spells(_));
            for call in sources.activity.peers.calls(m.id).iter().filter(|call| !call.turn || !is_told) {
                let (begin, end) = (call.from.clamp(at, to), call.to.clamp(at, to));
                task.pieces(sources, m, (at, begin), focus, out);
                let (symbol, guessed) = (call.peer, call.guessed);
                let frame = if call.turn { Frame::Turn { symbol, guessed } } else { Frame::Peer { symbol, guessed } };
                let place = match call.turn {
                    true => task.place_in(sources, call.peer, (begin, end)),
                    false => place_of_read(sources.activity, call.tid, (begin, end)),
                };
                out.push(Piece::Answer { frame, place, from: begin, to: end });
                at = end;
                // The answer has arrived; what the thread that receives it does for others until then is `ahead`.
                focus.of_message.mine[1] = (call.tid, call.received);
                if call.tid == focus.tid {
                    focus.of_message.answered = call.received.min(to);
                }
            }
            task.pieces(sources, m, (at, to), focus, out);
        }
        Leg::Transmit => {
            let nic = to;
            let to = m.xmit_ns.clamp(from, to);
            let called = extra.sent_ns.clamp(from, to);
            let focus = Focus::new(extra.send_tid, from);
            let between = Focus { of_message: OfMessage { between_sends: true, ..focus.of_message }, ..focus };
            let gaps = sources.handling.between_sends.get(&m.flow).map_or(&[][..], Vec::as_slice);
            let mut at = from;
            for &(ended, entered) in &gaps[gaps.partition_point(|gap| gap.0 < from)..] {
                if entered > called {
                    break;
                }
                if ended < at {
                    continue; // Of another reply of the flow, to which another thread sent its parts.
                }
                thread_pieces(sources.activity, at, ended, focus, out);
                out.push(Piece::Thread { from: ended, to: entered, focus: between });
                at = entered;
            }
            thread_pieces(sources.activity, at, called, focus, out);
            waits((extra, uncommon), sources.handling.drop_reason(uncommon.drop_reason), (called, to), out);
            if to < nic {
                out.push(Piece::Waits { frame: Frame::DriverToNic, role: Role::A, from: to, to: nic });
            }
        }
        Leg::Total => {}
    }
}

/// What is known of the task of a message.
enum Task {
    /// Its waits, as looks saw them; none where nobody looked, or no task is known.
    Waits(Waits),
    /// All that it did.
    Spells(Vec<Spell>),
}

impl Task {
    fn of(sources: Sources<'_>, m: &Message, extra: &Extra) -> Task {
        let server = |task, time| sources.activity.peers.asked_by(task, time);
        if let Some(spells) = sources.handling.routines.spells(m, extra, &sources.activity.threads, server) {
            return Task::Spells(spells);
        }
        let of_loop = sources.handling.routines.is_of_loop(m);
        let waits = sources.handling.routines.parked(m, extra, &sources.activity.threads);
        // Tasks of a loop ask themselves, or have others ask that have waits of their own.
        let waits = if of_loop { waits } else { beside_calls(waits, sources.activity.peers.calls(m.id)) };
        let handler = sources.handling.routines.handed_to(m, extra);
        Task::Waits(Waits { waits, next: 0, of_loop, handler })
    }

    /// Where in the program the task waited for its turn at a server: where it was seen to meanwhile, else where most were. A call stack's number
    /// plus 1; 0: not known.
    fn place_in(&self, sources: Sources<'_>, server: u32, (from, to): (u64, u64)) -> u32 {
        let waits = match self {
            Task::Waits(waits) => &waits.waits[..],
            Task::Spells(_) => &[],
        };
        let seen = waits.iter().find(|wait| from < wait.looks_ns.1 && wait.looks_ns.0 < to);
        let place = seen.and_then(|wait| wait.stack).or_else(|| sources.handling.routines.line(server));
        place.map_or(0, |stack| stack + 1)
    }

    /// A part of the service that is no wait for another server.
    fn pieces(
        &mut self,
        sources: Sources<'_>,
        m: &Message,
        (from, to): (u64, u64),
        focus: Focus,
        out: &mut Vec<Piece>,
    ) {
        let spells = match self {
            Task::Waits(waits) => return waits.pieces(sources, m, (from, to), focus, out),
            Task::Spells(spells) => spells,
        };
        for spell in spells.iter().filter(|spell| spell.from < to && from < spell.to) {
            let (from, to) = (spell.from.max(from), spell.to.min(to));
            match spell.what {
                What::Waits { stack, ended, meanwhile } => {
                    out.push(Piece::Parked { stack, for_others: false, turn: 0, ended, meanwhile, from, to });
                }
                What::Sleeps { stack, ended } => {
                    out.push(Piece::Parked { stack, for_others: false, turn: 0, ended, meanwhile: None, from, to });
                }
                What::IsReady => ready_piece(sources.activity, focus.tid, (from, to), out),
                What::JobIsQueued { tid } => out.push(others_first(Frame::JobQueued, tid, (from, to))),
                What::Runs { tid, own_from } => {
                    let answerer = focus.of_message.answerer.filter(|_| tid == focus.tid);
                    let of_message = OfMessage { answerer, ..focus.of_message };
                    thread_pieces(sources.activity, from, to, Focus { tid, own_from, of_message, ..focus }, out);
                }
            }
        }
    }
}

/// The waits of a message's task.
struct Waits {
    waits: Vec<Parked>,
    /// The first that was not passed.
    next: usize,
    /// The task is of a loop, whose thread runs others when this one does not wait.
    of_loop: bool,
    /// The goroutine, if another one received and another one answered.
    handler: Option<u64>,
}

impl Waits {
    /// A part of the service that is no wait for another server: the waits of the task, and what the threads did that ran it. Before it
    /// first waited that was the one that received.
    fn pieces(
        &mut self,
        sources: Sources<'_>,
        m: &Message,
        (from, to): (u64, u64),
        focus: Focus,
        out: &mut Vec<Piece>,
    ) {
        let mut at = from;
        while let Some(wait) = self.waits.get(self.next).filter(|wait| wait.from < to) {
            let (begin, end) = (wait.from.max(at), wait.to.min(to));
            if begin < end {
                let first = if self.next == 0 { m.tid } else { focus.tid };
                let tid = self.last_ran(sources, (at, begin)).map_or(first, |(_, tid)| tid);
                self.at_work(sources, m, (at, begin), Focus { tid, ..focus }, out);
                let Parked { stack, for_others, turn, .. } = *wait;
                if wait.is_ready {
                    ready_piece(sources.activity, focus.tid, (begin, end), out);
                } else if turn != 0 {
                    let frame = Frame::Turn { symbol: turn, guessed: false };
                    let place = sources.handling.routines.line(turn).map_or(0, |stack| stack + 1);
                    out.push(Piece::Answer { frame, place, from: begin, to: end });
                } else {
                    let routines = &sources.handling.routines;
                    for WaitPart { from, to, ended, meanwhile } in routines.parts(wait) {
                        let (from, to) = (from.max(begin), to.min(end));
                        if from < to {
                            out.push(Piece::Parked {
                                stack,
                                for_others,
                                turn: routines.turn_at(stack),
                                ended,
                                meanwhile,
                                from,
                                to,
                            });
                        }
                    }
                }
                at = end;
            }
            if wait.to > to {
                break;
            }
            self.next += 1;
        }
        // Where its answer was handed on to who sends it.
        if let Some((handed, tid)) = self.last_ran(sources, (at, to)).filter(|_| !self.waits.is_empty()) {
            self.at_work(sources, m, (at, handed), Focus { tid, ..focus }, out);
            at = handed;
        }
        self.at_work(sources, m, (at, to), focus, out);
    }

    /// When a goroutine that neither received the message nor answers it was last seen to run in a time, and on which thread.
    fn last_ran(&self, sources: Sources<'_>, time: (u64, u64)) -> Option<(u64, u32)> {
        sources.handling.routines.last_ran(self.handler?, time)
    }

    /// A part in which the task did not wait. Which goroutine a thread ran is known from its waits; of a loop the turns tell.
    fn at_work(&self, sources: Sources<'_>, m: &Message, (from, to): (u64, u64), focus: Focus, out: &mut Vec<Piece>) {
        match self.waits.is_empty() || self.of_loop {
            true if self.waits.is_empty() => timer_pieces(sources, m, (from, to), focus, out),
            true => turn_pieces(sources, m, (from, to), focus, out),
            false => thread_pieces(sources.activity, from, to, Focus { own_from: from, ..focus }, out),
        }
    }
}

/// A time in which the message's task was ready and a runtime ran others: what its busiest thread did.
fn ready_piece(activity: &Activity, tid: u32, (from, to): (u64, u64), out: &mut Vec<Piece>) {
    out.push(others_first(Frame::TaskReady, busiest_thread(activity, tid, (from, to)), (from, to)));
}

/// A time in which a thread did other things than the message's.
fn others_first(because: Frame, tid: u32, (from, to): (u64, u64)) -> Piece {
    let followed = Followed { because: Some(because), ..Followed::default() };
    Piece::Thread { from, to, focus: Focus { followed, ..Focus::new(tid, 0) } }
}

/// The thread of a thread's process that ran for most of a time.
fn busiest_thread(activity: &Activity, tid: u32, (from, to): (u64, u64)) -> u32 {
    let process = |tid: u32| activity.threads.names().who(tid).pid;
    let of = process(tid);
    let ran_ns = |thread: &Thread| -> u64 {
        let intervals = &thread.intervals[thread.at(from).unwrap_or(0)..];
        let ends = intervals.iter().skip(1).map(|next| next.from).chain([u64::MAX]);
        let within = intervals.iter().zip(ends).take_while(|(interval, _)| interval.from < to);
        let running = within.filter(|(interval, _)| matches!(interval.state, State::Running { .. }));
        running.map(|(interval, end)| end.min(to).saturating_sub(interval.from.max(from))).sum()
    };
    let of_process = activity.threads.all().filter(|&(other, _)| process(other) == of);
    // Of equal ones the message's own.
    let busiest = of_process.max_by_key(|&(other, thread)| (ran_ns(thread), other == tid, std::cmp::Reverse(other)));
    busiest.map_or(tid, |(other, _)| other)
}

/// Where in the program a thread stood still in a read between two times: a call stack's number plus 1; 0: it did not, or not known. Where an event
/// loop waits for whatever comes is no place of the program that tells anything.
fn place_of_read(activity: &Activity, tid: u32, (from, to): (u64, u64)) -> u32 {
    let intervals = activity.threads.get(tid).map_or(&[][..], |thread| &thread.intervals);
    let first = intervals.partition_point(|interval| interval.from <= from).saturating_sub(1);
    let within = intervals[first..].iter().take_while(|interval| interval.from < to);
    let may_be_a_loops = |how: Sleep| how.may_be_for_any_of_several() && activity.service.is_loop(tid);
    let mut places = within.filter_map(|interval| match interval.state {
        State::Sleeping { how } if how.is_for_data() && how.place != 0 && !may_be_a_loops(how) => Some(how.place),
        _ => None,
    });
    places.next().unwrap_or(0)
}

/// Until when a message's request was still arriving: when the last segment that its reply answers was received, if the reply followed at once.
/// Of requests that were merely sent without waiting (pipelining) it does not.
fn arrives_until(uncommon: &Uncommon, from: u64, to: u64) -> u64 {
    let last = uncommon.last_part_ns;
    if last > from && last <= to && (to - last) * Threshold::RestOfService.count() as u64 <= last - from {
        last
    } else {
        0
    }
}

/// What a reply waited for from the end of its send call until its last byte was given to the driver: the repair of a loss or
/// its turn in the socket, then the queueing discipline. A dropped packet waits to be sent again.
fn waits((extra, uncommon): (&Extra, &Uncommon), reason: u32, (from, to): (u64, u64), out: &mut Vec<Piece>) {
    let was_queued = extra.queued_ns != 0;
    let queued = if was_queued { extra.queued_ns.clamp(from, to) } else { to };
    let dropped = if uncommon.dropped_ns != 0 { uncommon.dropped_ns.clamp(from, queued) } else { queued };
    let socket = match (uncommon.repairing, was_queued) {
        (true, _) => Frame::TxRecovery,
        (false, true) => Frame::TxSocket,
        (false, false) => Frame::TxQueued,
    };
    let mut wait = |frame, from, to| out.push(Piece::Waits { frame, role: Role::A, from, to });
    wait(socket, from, dropped);
    wait(Frame::TxDropped { symbol: reason }, dropped, queued);
    wait(Frame::TxQdisc, queued, to);
}

/// The last wake-up of a thread by another thread of the application between `from` and `to`: when, and by which thread.
fn given(activity: &Activity, tid: u32, from: u64, to: u64) -> Option<(u64, u32)> {
    let thread = activity.threads.get(tid)?;
    let upto = thread.at(to)?;
    let intervals = thread.intervals[..=upto].iter().rev().take_while(|s| s.from > from);
    let names = activity.threads.names();
    let mut given = intervals.filter_map(|s| Some((s.from, s.waker?)));
    given.find(|(_, w)| !w.interrupt && w.tid != tid && names.is_target(w.tid)).map(|(at, w)| (at, w.tid))
}

/// Which thread of the application hands the answer to the one that sends it: who ended its last sleep before that; if something else
/// did, the one that ended sleeps of it while it had the message, if that was always the same.
fn answerer(activity: &Activity, tid: u32, from: u64, to: u64) -> Option<u32> {
    let thread = activity.threads.get(tid)?;
    let upto = thread.at(to)?;
    let names = activity.threads.names();
    let sibling = |w: Waker| (!w.interrupt && w.tid != tid && names.is_target(w.tid)).then_some(w.tid);
    let woken = thread.intervals[..=upto].iter().rev().take_while(|s| s.from > from);
    let mut wakers = woken.filter_map(|s| s.waker).map(sibling);
    if let Some(last) = wakers.next()? {
        return Some(last);
    }
    let mut others = wakers.flatten();
    let first = others.next()?;
    others.all(|w| w == first).then_some(first)
}

/// A part of a message's service that ends with its reply, or with a request to another server, if before that it waited until a timer of its
/// server went off, and who has the rest of it.
fn timer_pieces(sources: Sources<'_>, m: &Message, (from, to): (u64, u64), focus: Focus, out: &mut Vec<Piece>) {
    let asks = |call: &Call| call.from == to && call.tid == focus.tid && !call.guessed;
    let goes_on = to == m.send_ns || sources.activity.peers.calls(m.id).iter().any(asks);
    let is_its_own = goes_on && focus.of_message.answerer.is_none() && focus.tid == m.tid;
    let wait = if is_its_own { until_timer(sources, m, focus.tid, (from, to)) } else { None };
    let Some(wait) = wait else { return turn_pieces(sources, m, (from, to), focus, out) };
    turn_pieces(sources, m, (from, wait.from), focus, out);
    out.push(Piece::UntilTimer { how: wait.how, guessed: wait.others_between, from: wait.from, to: wait.to });
    turn_pieces(sources, m, (wait.to, to), focus, out);
}

/// The service of a message by a thread: the turns in which the thread worked for this one or waited, and between them those for others.
fn turn_pieces(sources: Sources<'_>, m: &Message, (from, to): (u64, u64), focus: Focus, out: &mut Vec<Piece>) {
    if !sources.handling.turns.has(focus.tid) {
        return thread_pieces(sources.activity, from, to, focus, out);
    }
    // What follows the last turn that was added, and whether that is others'.
    let (mut at, mut others) = (from, false);
    let mut add = |at: u64, end: u64, others: bool| match others {
        true if at < end => out.push(Piece::Others { tid: focus.tid, unread: false, from: at, to: end }),
        true => {}
        false => thread_pieces(sources.activity, at, end, focus, out),
    };
    for (begin, _, whose) in sources.handling.turns.between(focus.tid, from, to) {
        if whose.is_others(m) != others {
            add(at, begin, others);
            (at, others) = (begin, !others);
        }
    }
    add(at, to, others);
}

/// A thread's part of a leg, in three pieces: the sleep in which the message found it, its work for others, and the time
/// from when it works for this message on.
fn thread_pieces(activity: &Activity, from: u64, to: u64, focus: Focus, out: &mut Vec<Piece>) {
    let mine = focus.own_from.min(to);
    if mine.saturating_sub(from) > LONG_NS
        && let Some(thread) = activity.threads.get(focus.tid)
        && thread.at(from).is_some()
    {
        // The sleep at a time, if the thread sleeps then. A sleep is walked whole, because its end determines what it was.
        let sleep = |ts| thread.at(ts).filter(|&i| matches!(thread.intervals[i].state, State::Sleeping { .. }));
        // A sleep that the hand-off's softirq ends is receive processing, so that softirq must be over.
        let handed = focus.of_message.handoff.map_or(from, |(cpu, ts)| interrupt_end(activity, cpu, ts, to).max(from));
        let busy = sleep(handed).map_or(handed, |i| thread.intervals.get(i + 1).map_or(to, |s| s.from));
        let turns = sleep(mine).map_or(mine, |i| thread.intervals[i].from);
        if busy < turns {
            out.push(Piece::Thread { from, to: busy, focus });
            // A wait for the core of a lock's holder is the message's own, for it may not need that lock.
            let (begin, end) = core_of_holder(activity, thread, &focus, (busy, turns)).unwrap_or((turns, turns));
            let (tid, unread) = (focus.tid, focus.of_message.unread);
            out.push(Piece::Others { tid, unread, from: busy, to: begin });
            if begin < end {
                out.push(Piece::Thread { from: begin, to: end, focus });
            }
            if end < turns {
                out.push(Piece::Others { tid, unread, from: end, to: turns });
            }
            out.push(Piece::Thread { from: turns, to, focus });
            return;
        }
    }
    out.push(Piece::Thread { from, to, focus });
}

/// The last wait for a core before a thread turns to a message, between two times, where it is for the core of the holder of a lock that it
/// then sleeps in.
fn core_of_holder(
    activity: &Activity,
    thread: &Thread,
    focus: &Focus,
    (from, turns): (u64, u64),
) -> Option<(u64, u64)> {
    let is_runnable = |i: &usize| matches!(thread.intervals[*i].state, State::Runnable { throttled: false, .. });
    let runs = thread.at(turns)?;
    let first = (0..runs).rev().take_while(is_runnable).last()?;
    let begin = thread.intervals[first].from.max(from);
    let end = thread.intervals[runs].from.min(turns);
    (begin < end && holder::of_next_sleep(activity, focus.tid, first, focus.of_message.needs_until).is_some())
        .then_some((begin, end))
}

/// When a core that is in interrupt context at `from` leaves it, at most `to`; `from` when it is in none.
fn interrupt_end(activity: &Activity, cpu: u16, from: u64, to: u64) -> u64 {
    let Some((core, first)) = activity.cores.get(usize::from(cpu)).and_then(|c| Some((c, c.at(from)?))) else {
        return from;
    };
    let out = core.segments[first..].iter().find(|s| s.from >= to || !activity.tree.within(s.node).interrupt);
    out.map_or(to, |s| s.from.clamp(from, to))
}
