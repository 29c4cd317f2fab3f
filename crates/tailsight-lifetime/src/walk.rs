//! The path of a message through the host, step by step, without gap or overlap.
//!
//! Before the hand-off a message is bound to its receive core; after it, to the thread that took it (or answered it):
//! where that thread ran, what ran on the core that it waited for, and, while it slept, whom it waited for.

use rustc_hash::FxHashMap;

use crate::input::Names;
use crate::matching::Extra;
use crate::model::{Context, Frame, Leg, Message, Owner, OwnerId, PathSpan, Role, Who, flags};
use crate::peers::NOBODY;
use crate::scan::Scan;
use crate::threads::{Sleep, State, Stretch, Waker, is_interrupt_level};
use crate::tree::NodeId;
use crate::windows;

/// How many wakers are followed from one sleep.
const WAKER_DEPTH: u32 = 8;

/// Owners, made once each.
#[derive(Debug, Default)]
pub struct Owners {
    list: Vec<Owner>,
    who: Vec<Who>,
    ids: FxHashMap<(Owner, Who), OwnerId>,
    /// By node and [`Seen`]; `NO_OWNER` where there is none yet.
    by_node: Vec<[OwnerId; 5]>,
    /// By sleep and who ended it.
    blocked: FxHashMap<(Sleep, Option<Frame>), OwnerId>,
    /// Another thread's node, why it was waited for, and whether it served other messages.
    waited: FxHashMap<(NodeId, Frame, bool), OwnerId>,
    /// Waits that are no task's.
    singles: FxHashMap<Frame, OwnerId>,
    /// Sleeps of a thread while it served others, by what they are as a message's own.
    ahead_asleep: FxHashMap<OwnerId, OwnerId>,
    unknown: Option<OwnerId>,
    profiler: Option<OwnerId>,
}

const NO_OWNER: OwnerId = OwnerId::MAX;

/// How a message sees a node of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Seen {
    /// The message's thread, working for it.
    Own,
    /// The message's thread, working for others.
    Ahead,
    /// Somebody else on the core that the message's thread waits for.
    Other,
    /// The same, another thread of the application that serves other messages.
    Serving,
    /// The same, the core being idle although the thread is runnable.
    WakePending,
}

impl Owners {
    /// An owner that is no task.
    fn intern(&mut self, owner: Owner) -> OwnerId {
        self.intern_task(owner, Who::default())
    }

    fn intern_task(&mut self, owner: Owner, who: Who) -> OwnerId {
        let key = (owner, who);
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        let id = self.list.len() as OwnerId;
        self.list.push(key.0.clone());
        self.who.push(key.1.clone());
        self.ids.insert(key, id);
        id
    }

    fn of_node(&mut self, scan: &Scan, node: NodeId, seen: Seen) -> OwnerId {
        match self.by_node.get(node as usize) {
            Some(ids) if ids[seen as usize] != NO_OWNER => return ids[seen as usize],
            Some(_) => {}
            None => self.by_node.resize(scan.tree.len(), [NO_OWNER; 5]),
        }
        let names: &Names = scan.threads.names();
        let tid = scan.tree.task_of(node);
        let mut frames = scan.tree.frames(node);
        // The scheduler does not idle a core that has a runnable task: it was idle for as long as that one waited, however it
        // became so.
        if seen == Seen::WakePending {
            frames.retain(|f| *f != Frame::Unseen);
        }
        let context = match seen {
            _ if frames.contains(&Frame::Unseen) => Context::Unknown,
            Seen::Own => Context::Own,
            Seen::Ahead => Context::Ahead,
            _ if tid == 0 => Context::Idle,
            _ if names.is_target(tid) => Context::Sibling { comm: names.comm(tid) },
            _ => Context::Foreign { comm: names.comm(tid), kernel: names.is_kernel(tid) },
        };
        if seen == Seen::Serving && matches!(context, Context::Sibling { .. }) {
            frames.insert(0, Frame::Serving);
        }
        let told = |f: &Frame| is_interrupt_level(*f) || *f == Frame::Stolen;
        if seen == Seen::WakePending && tid == 0 && !frames.iter().any(told) {
            frames.push(Frame::WakePending);
        }
        let is_task = matches!(context, Context::Sibling { .. } | Context::Foreign { .. });
        let who = if is_task { names.who(tid) } else { Who::default() };
        let id = self.intern_task(Owner { context, frames }, who);
        self.by_node[node as usize][seen as usize] = id;
        id
    }

    /// A sleep that ended by itself, by an interrupt, by a task outside the application or by a packet of another server
    /// (`by`).
    fn blocked(&mut self, how: Sleep, by: Option<Frame>) -> OwnerId {
        if let Some(&id) = self.blocked.get(&(how, by)) {
            return id;
        }
        let mut frames = vec![if how.stopped { Frame::Stopped } else { sleep_frame(how) }];
        if !how.stopped {
            frames.extend(how.doing);
            frames.extend((how.stack != 0).then_some(Frame::Stack { symbol: how.stack }));
            frames.extend(by);
        }
        let id = self.intern(Owner { context: Context::Blocked, frames });
        self.blocked.insert((how, by), id);
        id
    }

    /// A sleep of the message's thread while it served others.
    fn ahead_asleep(&mut self, how: Sleep, by: Option<Frame>) -> OwnerId {
        let asleep = self.blocked(how, by);
        if let Some(&id) = self.ahead_asleep.get(&asleep) {
            return id;
        }
        let frames = self.list[asleep as usize].frames.clone();
        let id = self.intern(Owner { context: Context::Ahead, frames });
        self.ahead_asleep.insert(asleep, id);
        id
    }

    /// A sleep of another thread of the application while it was waited for.
    fn waited_asleep(
        &mut self,
        tid: u32,
        because: (Frame, bool),
        how: Sleep,
        by: Option<Frame>,
        names: &Names,
    ) -> OwnerId {
        let asleep = self.blocked(how, by);
        let frames = why(because).chain(self.list[asleep as usize].frames.iter().copied()).collect();
        self.intern_task(Owner { context: Context::Sibling { comm: names.comm(tid) }, frames }, names.who(tid))
    }

    /// What another thread of the application did while it was waited for.
    fn waited(&mut self, scan: &Scan, node: NodeId, because: (Frame, bool)) -> OwnerId {
        let key = (node, because.0, because.1);
        if let Some(&id) = self.waited.get(&key) {
            return id;
        }
        let (names, tid) = (scan.threads.names(), scan.tree.task_of(node));
        let frames = why(because).chain(scan.tree.frames(node)).collect();
        let id =
            self.intern_task(Owner { context: Context::Sibling { comm: names.comm(tid) }, frames }, names.who(tid));
        self.waited.insert(key, id);
        id
    }

    fn single(&mut self, frame: Frame) -> OwnerId {
        if let Some(&id) = self.singles.get(&frame) {
            return id;
        }
        let id = self.intern(Owner { context: Context::Blocked, frames: vec![frame] });
        self.singles.insert(frame, id);
        id
    }

    fn unknown(&mut self) -> OwnerId {
        self.unknown.unwrap_or_else(|| {
            let id = self.intern(Owner { context: Context::Unknown, frames: vec![] });
            *self.unknown.insert(id)
        })
    }

    /// The recorder's hooks.
    pub fn profiler(&mut self) -> OwnerId {
        self.profiler.unwrap_or_else(|| {
            let id = self.intern(Owner { context: Context::Profiler, frames: vec![] });
            *self.profiler.insert(id)
        })
    }

    /// Every owner, and which task it was, by id.
    pub fn into_lists(self) -> (Vec<Owner>, Vec<Who>) {
        (self.list, self.who)
    }

    /// Continues with the owners of an earlier walk, so that ids stay the same.
    pub fn resume(list: Vec<Owner>, who: Vec<Who>) -> Owners {
        let ids = list.iter().cloned().zip(who.iter().cloned()).zip(0..).collect();
        Owners { list, who, ids, ..Owners::default() }
    }
}

/// Why another thread was waited for, and whether it served other messages meanwhile.
fn why((because, serving): (Frame, bool)) -> impl Iterator<Item = Frame> {
    std::iter::once(because).chain(serving.then_some(Frame::Serving))
}

fn sleep_frame(how: Sleep) -> Frame {
    Frame::SleepIn { nr: how.nr, uninterruptible: how.uninterruptible, io: how.io }
}

/// A stretch of a message's path that is walked in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bound to a core: everything that ran there.
    Core {
        /// The core.
        cpu: u16,
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
    /// Bound to a thread.
    Thread {
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
        /// Whose work is the message's.
        focus: Focus,
    },
    /// Bound to a thread that only works for others meanwhile: the same for every message, so it can be summed ahead.
    Others {
        /// The thread.
        tid: u32,
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
    /// In the socket, behind bytes that are missing.
    Held {
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
    /// The rest of the request is on its way to this host.
    Arriving {
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
    /// Between the NIC's receive stamp and the driver.
    NicToDriver {
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
    /// Another server had the message's request, and its thread did not work for it.
    Peer {
        /// Who: index into the symbols.
        symbol: u32,
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
    /// Between the driver and the NIC's transmit stamp.
    DriverToNic {
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
    /// Waiting with the reply, bound to nothing.
    Waits {
        /// For what.
        frame: Frame,
        /// Start, ns.
        from: u64,
        /// End, ns.
        to: u64,
    },
}

/// Whose work on a thread's path counts as the message's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Focus {
    /// The thread whose own work counts as the message's.
    tid: u32,
    /// From here on the thread works for this message (until then, inside serving windows, for others).
    own_from: u64,
    /// The core and time of the hand-off: a sleep that its softirq ends is the end of receive processing.
    handoff: Option<(u16, u64)>,
    /// The message is a new connection's first: until its thread has it, others set the connection up.
    setup: bool,
    /// Why another thread is followed: the sleep of the message's own thread that it ended.
    because: Option<Frame>,
    /// The threads that are known to have worked for this message besides, each with a time at which it did.
    mine: [(u32, u64); 2],
    /// A sleep of the thread that began before this was a wait for work.
    since: u64,
    /// Sleeps are known to end up to here, beyond the piece itself.
    until: u64,
    /// The message; [`NOBODY`]: whichever.
    message: u32,
    /// The answer of another server was received then, by this thread: until then it may serve others.
    answered: u64,
    /// Not the message's own thread, but one that ended a sleep of it.
    followed: bool,
    /// The threads followed hand on what a packet or a timer brought; none of them holds a lock.
    handed: bool,
}

impl Focus {
    fn new(tid: u32, own_from: u64) -> Focus {
        Focus {
            tid,
            own_from,
            handoff: None,
            setup: false,
            because: None,
            mine: [(0, 0); 2],
            since: 0,
            until: 0,
            message: NOBODY,
            answered: 0,
            followed: false,
            handed: false,
        }
    }
}

/// A wait for a busy thread shorter than this is walked; summing ahead pays for long ones.
pub const LONG_NS: u64 = 200_000;

/// The pieces of one measured leg, in order; nothing when the leg was not seen.
pub fn pieces(scan: &Scan, m: &Message, extra: &Extra, leg: Leg, out: &mut Vec<Piece>) {
    let Some((from, to)) = m.ends(leg) else { return };
    match leg {
        Leg::Receive => {
            let nic = from;
            let from = m.driver_ns.clamp(from, to);
            if nic < from {
                out.push(Piece::NicToDriver { from: nic, to: from });
            }
            let handoff = m.handoff_ns.clamp(from, to);
            let held = m.flags & flags::HELD != 0;
            if !held && extra.arrived_ns == 0 {
                out.push(Piece::Core { cpu: extra.stack_cpu, from, to: handoff });
            } else {
                let begun = m.stack_ns.clamp(from, handoff);
                let arrived = extra.arrived_ns.clamp(begun, handoff);
                let whole = if held { extra.held_until_ns.clamp(arrived, handoff) } else { arrived };
                out.push(Piece::Core { cpu: extra.stack_cpu, from, to: begun });
                out.push(Piece::Arriving { from: begun, to: arrived });
                out.push(Piece::Held { from: arrived, to: whole });
                out.push(Piece::Core { cpu: m.handoff_cpu, from: whole, to: handoff });
            }
            let setup = m.flags & flags::FIRST != 0;
            let handed = Some((m.handoff_cpu, handoff));
            let own_from = if extra.began_ns == 0 { m.recv_enter_ns } else { extra.began_ns };
            let focus = Focus { handoff: handed, setup, message: m.id, ..Focus::new(m.tid, own_from) };
            let given = if setup { given(scan, m.tid, handoff, own_from.min(to)) } else { None };
            if let Some((from, giver)) = given {
                // Until then the connection was the accepting thread's, whatever the receiving one did.
                let because = Some(Frame::ConnectionSetup);
                out.push(Piece::Thread { from: handoff, to: from, focus: Focus { because, ..Focus::new(giver, 0) } });
                out.push(Piece::Thread { from, to, focus });
            } else {
                thread_pieces(scan, handoff, to, focus, out);
            }
        }
        Leg::Service => {
            // A thread that answers what another one received, and slept since before, waited for work.
            let since = if extra.send_tid == m.tid { 0 } else { from };
            let mut focus = Focus {
                mine: [(m.tid, m.recv_enter_ns), (0, 0)],
                since,
                until: to,
                message: m.id,
                ..Focus::new(extra.send_tid, extra.own_from_ns.max(from))
            };
            let mut at = from;
            for call in scan.peers.calls(m.id) {
                let (begin, end) = (call.from.clamp(at, to), call.to.clamp(at, to));
                thread_pieces(scan, at, begin, focus, out);
                out.push(Piece::Peer { from: begin, to: end, symbol: call.peer });
                at = end;
                // The answer is there; what the thread that takes it still does for others is ahead.
                focus.mine[1] = (call.tid, call.received);
                if call.tid == focus.tid {
                    focus.answered = call.received.min(to);
                }
            }
            thread_pieces(scan, at, to, focus, out);
        }
        Leg::Transmit => {
            let nic = to;
            let to = m.xmit_ns.clamp(from, to);
            let called = extra.sent_ns.clamp(from, to);
            let focus = Focus::new(extra.send_tid, from);
            thread_pieces(scan, from, called, focus, out);
            waits(extra, scan.drop_reason(extra.drop_reason), called, to, out);
            if to < nic {
                out.push(Piece::DriverToNic { from: to, to: nic });
            }
        }
        Leg::Total => {}
    }
}

/// What a reply waited for from the end of its send call until its last byte was given to the driver: a repair of the
/// connection or its turn in the socket, then the queueing discipline. What was dropped waits to be sent again.
fn waits(extra: &Extra, reason: u32, from: u64, to: u64, out: &mut Vec<Piece>) {
    let known = extra.queued_ns != 0;
    let queued = if known { extra.queued_ns.clamp(from, to) } else { to };
    let dropped = if extra.dropped_ns != 0 { extra.dropped_ns.clamp(from, queued) } else { queued };
    let socket = match (extra.repairing, known) {
        (true, _) => Frame::TxRecovery,
        (false, true) => Frame::TxSocket,
        (false, false) => Frame::TxQueued,
    };
    let mut wait = |frame, from, to| out.push(Piece::Waits { frame, from, to });
    wait(socket, from, dropped);
    wait(Frame::TxDropped { symbol: reason }, dropped, queued);
    wait(Frame::TxQdisc, queued, to);
}

/// When and by whom a thread was given something by another thread of the application, at last between `from` and `to`.
fn given(scan: &Scan, tid: u32, from: u64, to: u64) -> Option<(u64, u32)> {
    let thread = scan.threads.get(tid)?;
    let upto = thread.at(to)?;
    let stretches = thread.stretches[..=upto].iter().rev().take_while(|s| s.from > from);
    let names = scan.threads.names();
    let mut given = stretches.filter_map(|s| Some((s.from, s.waker?)));
    given.find(|(_, w)| !w.interrupt && w.tid != tid && names.is_target(w.tid)).map(|(at, w)| (at, w.tid))
}

/// A thread's part of a leg: up to the end of the sleep that the message found it in, then until it turns to this
/// message, then the rest.
fn thread_pieces(scan: &Scan, from: u64, to: u64, focus: Focus, out: &mut Vec<Piece>) {
    let mine = focus.own_from.min(to);
    if mine.saturating_sub(from) > LONG_NS
        && let Some(thread) = scan.threads.get(focus.tid)
        && thread.at(from).is_some()
    {
        // The sleep at a time, if the thread sleeps then: a sleep is walked whole, for who ends it says what it was.
        let sleep = |ts| thread.at(ts).filter(|&i| matches!(thread.stretches[i].state, State::Sleeping { .. }));
        // A sleep that the hand-off's softirq ends is receive processing, so that softirq must be over.
        let handed = focus.handoff.map_or(from, |(cpu, ts)| interrupt_end(scan, cpu, ts, to).max(from));
        let busy = sleep(handed).map_or(handed, |i| thread.stretches.get(i + 1).map_or(to, |s| s.from));
        let turns = sleep(mine).map_or(mine, |i| thread.stretches[i].from);
        if busy < turns {
            out.push(Piece::Thread { from, to: busy, focus });
            out.push(Piece::Others { tid: focus.tid, from: busy, to: turns });
            out.push(Piece::Thread { from: turns, to, focus });
            return;
        }
    }
    out.push(Piece::Thread { from, to, focus });
}

/// When a core that is in interrupt context at `from` leaves it, at most `to`; `from` when it is in none.
fn interrupt_end(scan: &Scan, cpu: u16, from: u64, to: u64) -> u64 {
    let Some((core, first)) = scan.cores.get(usize::from(cpu)).and_then(|c| Some((c, c.at(from)?))) else {
        return from;
    };
    let out = core.segments[first..].iter().find(|s| s.from >= to || !scan.tree.within(s.node).interrupt);
    out.map_or(to, |s| s.from.clamp(from, to))
}

/// A part of a thread's sleep.
#[derive(Clone, Copy, Debug)]
struct Nap {
    /// When the whole sleep began.
    since: u64,
    from: u64,
    to: u64,
    /// When it ended, at least `to`.
    ended: u64,
    how: Sleep,
    waker: Option<Waker>,
}

/// A step of a path: an owner's time, and what the recorder's own hooks took right before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What the owner had: nothing when the hooks took it all.
    pub span: PathSpan,
    /// The time before `span` that was the hooks', ns, on the same core and in the same role.
    pub hooks_ns: u16,
}

impl Step {
    /// When it begins, the hooks' time included, ns.
    pub fn from_ns(&self) -> u64 {
        self.span.from_ns - u64::from(self.hooks_ns)
    }

    /// Both as spans of a path, those that are not empty.
    pub fn spans(self, owners: &mut Owners) -> impl Iterator<Item = PathSpan> + use<> {
        let (from_ns, to_ns) = (self.from_ns(), self.span.from_ns);
        let hooks =
            (from_ns < to_ns).then(|| PathSpan { from_ns, to_ns, owner: owners.profiler(), begins: true, ..self.span });
        hooks.into_iter().chain((self.span.from_ns < self.span.to_ns).then_some(self.span))
    }
}

/// Walks pieces and hands out their steps in order, without gap or overlap.
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
    pub fn piece(&mut self, piece: Piece) {
        match piece {
            Piece::Core { cpu, from, to } => self.core(cpu, from, to, Role::R, None),
            Piece::Thread { from, to, focus } => self.thread(focus.tid, from, to, focus, 0),
            Piece::Others { tid, from, to } => {
                self.thread(tid, from, to, Focus::new(tid, u64::MAX), 0);
            }
            Piece::Held { from, to } => self.waits(Frame::TcpHole, Role::R, from, to),
            Piece::Arriving { from, to } => self.waits(Frame::RequestArriving, Role::R, from, to),
            Piece::NicToDriver { from, to } => self.waits(Frame::NicToDriver, Role::R, from, to),
            Piece::DriverToNic { from, to } => self.waits(Frame::DriverToNic, Role::A, from, to),
            Piece::Peer { symbol, from, to } => self.waits(Frame::Peer { symbol }, Role::A, from, to),
            Piece::Waits { frame, from, to } => self.waits(frame, Role::A, from, to),
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

    /// What ran on a core from `from` to `to`. `focus`: the thread that is on, or waits for, this core.
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
            // The recorder's hooks ran here, too. By place, so that any part of a timeline has the same owners.
            let hooks = (segment.from + u64::from(segment.hooks)).min(end);
            let mut hooks_ns = hooks.saturating_sub(at) as u16;
            at = at.max(hooks);
            let begins = segment.begins || at == from;
            let seen = match focus {
                None if segment.serving => Seen::Serving,
                None => Seen::Other,
                Some((f, waiting)) => {
                    if scan.tree.task_of(segment.node) == f.tid {
                        // The border between others' work and one's own may lie inside a segment.
                        // A thread that was to hand the message on served others first.
                        let others = f.followed && f.handoff.is_none() && f.because.is_none();
                        // In a batch its window is this message's, too, and until the reply before it is others' all the same.
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
        let stretches: &[Stretch] = &thread.stretches;
        let mut at = from;
        let mut i = match thread.at(from) {
            Some(i) => i,
            None => {
                let begin = stretches.first().map_or(to, |s| s.from.min(to));
                // Before a thread was made, its work was its maker's.
                match stretches.first().and_then(|s| s.waker).filter(|w| w.tid != tid && depth < WAKER_DEPTH) {
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
        // Inside another thread's path its own work is what is being waited for.
        let focus = Focus { tid, ..focus };
        while at < to && i < stretches.len() {
            let end = stretches.get(i + 1).map_or(to, |s| s.from).min(to);
            match stretches[i].state {
                State::Running { cpu } => self.core(cpu, at, end, role, Some((&focus, false))),
                State::Runnable { throttled: true, .. } => {
                    let owner = self.owners.single(Frame::Throttled);
                    self.emit(at, end, None, role, owner, true);
                }
                State::Runnable { cpu, .. } => self.core(cpu, at, end, role, Some((&focus, true))),
                State::Sleeping { how } => {
                    let next = stretches.get(i + 1).filter(|s| s.from <= to.max(focus.until));
                    let ended = next.map_or(end, |s| s.from.max(end));
                    let nap = Nap {
                        since: stretches[i].from,
                        from: at,
                        to: end,
                        ended,
                        how,
                        waker: next.and_then(|s| s.waker),
                    };
                    self.asleep(nap, focus, depth);
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
    fn asleep(&mut self, nap: Nap, focus: Focus, depth: u32) {
        let Nap { since, from, to, ended, how, waker } = nap;
        let names = self.scan.threads.names();
        let mut by = self.ended_by(focus, waker);
        if let Some(waker) = waker {
            let hands_off = focus
                .handoff
                .is_some_and(|(cpu, ts)| waker.interrupt && waker.cpu == cpu && self.same_softirq(cpu, ts, ended));
            if hands_off {
                return self.core(waker.cpu, from, to, Role::R, None);
            }
            if !waker.interrupt && depth < WAKER_DEPTH && names.is_target(waker.tid) {
                // A thread that slept when the message came waited for work, which the other one hands it; one that
                // fell asleep since waits for what the other one holds.
                let waits = focus.handoff.is_none_or(|(_, ts)| since >= ts) && since >= focus.since && !focus.handed;
                // In the receive leg the thread fell asleep with the message there: what it waits for is not this message's.
                let looks = waits && focus.message != NOBODY && focus.handoff.is_none() && focus.because.is_none();
                let origin = if looks { self.origin(waker.tid, from, ended, focus, depth) } else { None };
                if let Some((at, owner)) = origin {
                    self.emit(from, at.min(to), None, Role::A, owner, true);
                    let focus = Focus { handed: true, followed: true, until: ended, ..focus };
                    return self.thread(waker.tid, at, to, focus, depth + 1);
                }
                let why = if focus.setup { Some(Frame::ConnectionSetup) } else { waits.then_some(sleep_frame(how)) };
                let focus = Focus { because: focus.because.or(why), followed: true, until: ended, ..focus };
                return self.thread(waker.tid, from, to, focus, depth + 1);
            }
            if !waker.interrupt && !how.stopped {
                by = Some(names.symbol(waker.tid)).filter(|&s| s != 0).map(|symbol| Frame::WokenBy { symbol });
            }
        }
        // It waits for an answer that it needs for the messages before this one.
        let ahead = depth == 0
            && focus.because.is_none()
            && (from < focus.own_from || from < focus.answered && self.serves(&focus, focus.tid, since))
            && !how.uninterruptible
            && !how.io
            && windows::waits_for_data(how.nr)
            && windows::serving(&self.scan.windows, focus.tid, since);
        let owner = match focus.because {
            None if ahead => self.owners.ahead_asleep(how, by),
            // A thread that others wait for sleeps itself.
            Some(because) => {
                let serves =
                    windows::serving(&self.scan.windows, focus.tid, since) && self.serves(&focus, focus.tid, since);
                // File locks queue up: who comes later waits for the one before it in the queue, which waits for the same lock.
                let queued = windows::locks_a_file(how.nr)
                    && matches!(by, Some(Frame::WokenBy { .. }))
                    && matches!(because, Frame::SleepIn { nr, .. } if nr == how.nr);
                if queued || !serves && windows::polls(how.nr) && matches!(because, Frame::SleepIn { .. }) {
                    // Nobody holds a lock while it waits for whatever comes.
                    self.owners.blocked(how, by)
                } else {
                    self.owners.waited_asleep(focus.tid, (because, serves), how, by, names)
                }
            }
            None => self.owners.blocked(how, by),
        };
        self.emit(from, to, None, Role::A, owner, true);
    }

    /// Whether a thread that is in a serving window at `ts` serves messages other than this one.
    fn serves(&self, focus: &Focus, tid: u32, ts: u64) -> bool {
        if focus.mine == [(0, 0); 2] {
            return true;
        }
        let Some(window) = windows::window(&self.scan.windows, tid, ts) else { return false };
        let mine = |&(by, at): &(u32, u64)| by == tid && by != 0 && window.from <= at && at < window.to;
        !focus.mine.iter().any(mine)
    }

    /// The server whose packet ended a sleep, when it may have been for this message.
    fn ended_by(&self, focus: Focus, waker: Option<Waker>) -> Option<Frame> {
        let ready = self.scan.peers.readies.get(waker?.ready.checked_sub(1)? as usize)?;
        let mine = ready.of == NOBODY || focus.message == NOBODY || ready.of == focus.message;
        mine.then_some(Frame::Peer { symbol: ready.peer })
    }

    /// A thread slept from `from` to `to` and `tid` woke it. Unless that one served others or was busy all the while, it
    /// slept itself, or waited for one that did, until a packet of another server or a timer came: then no lock was held.
    /// Returns when that was and who has the time until then.
    fn origin(&mut self, tid: u32, from: u64, to: u64, focus: Focus, depth: u32) -> Option<(u64, OwnerId)> {
        let thread = self.scan.threads.get(tid)?;
        let upto = thread.at(to)?;
        // Its last sleep that was over by then.
        let after = (1..=upto).rev().take_while(|&i| thread.stretches[i].from > from);
        let mut sleeps = after.filter_map(|i| match thread.stretches[i - 1].state {
            State::Sleeping { how } => Some((i, how)),
            _ => None,
        });
        let (end, how) = sleeps.next()?;
        let (since, until) = (thread.stretches[end - 1].from, thread.stretches[end].from);
        let waker = thread.stretches[end].waker;
        if windows::serving(&self.scan.windows, tid, since) && self.serves(&focus, tid, since) {
            return None;
        }
        if let Some(peer @ Frame::Peer { .. }) = self.ended_by(focus, waker) {
            return Some((until, self.owners.blocked(how, Some(peer))));
        }
        match waker {
            Some(w) if !w.interrupt && depth < WAKER_DEPTH && self.scan.threads.names().is_target(w.tid) => {
                self.origin(w.tid, from, until, focus, depth + 1)
            }
            _ if windows::polls(how.nr) && !how.stopped => Some((until, self.owners.blocked(how, None))),
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
