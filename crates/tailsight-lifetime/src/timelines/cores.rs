//! Core timelines: what ran on each core at each nanosecond, as nested spans.
//!
//! In: the events of a core, in order. Out: segments; each lasts until the next one begins. Every event also carries the current thread,
//! so that a timeline is right again after lost events.

use std::cmp::Reverse;

use tailsight_trace::event::{Kind, flow_flags, function_flags};
use tailsight_trace::{Event, fields};

use crate::model::{Frame, Threshold};
use crate::timelines::threads::{MAX_FUNCTIONS, Threads};
use crate::timelines::time_index::TimeIndex;
use crate::timelines::tree::{NodeId, Tree};

/// A segment of a core's timeline: from `from` until the next segment's `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Start, ns.
    pub from: u64,
    /// What ran.
    pub node: NodeId,
    /// The innermost span begins here (else it goes on after an interruption).
    pub begins: bool,
    /// The running thread was serving a message (set later, by busy period).
    pub serving: bool,
    /// What the recorder's hooks took of it, ns: counted from its beginning, and never more than there is.
    pub hooks: u16,
}

const _: () = assert!(size_of::<Segment>() == 16);

/// One core's timeline.
#[derive(Clone, Debug)]
pub struct Core {
    /// Its segments, in order, of different nodes or spans.
    pub segments: Vec<Segment>,
    by_time: TimeIndex,
    node: NodeId,
    is_task_known: bool,
    after_interrupt: bool,
    last_ns: u64,
    /// The longest intervals without events since the steal clock was last looked at; in order once there are as many as are kept.
    quiet: Vec<(u64, u64)>,
}

/// How many such intervals are kept.
const QUIET_KEPT: usize = 8;

/// [`tailsight_trace::event::VECTORS`].
const LOCAL_TIMER: u16 = 0;

/// System call, softirq, packet, interrupt, function of another core, and some to spare; between them traced functions.
const MAX_NESTING: usize = 16 + 4 * MAX_FUNCTIONS;

impl Core {
    /// A core of which nothing is known yet.
    pub fn new(events: usize) -> Core {
        Core {
            segments: Vec::with_capacity(events),
            by_time: TimeIndex::default(),
            node: 0,
            is_task_known: false,
            after_interrupt: false,
            last_ns: 0,
            quiet: Vec::new(),
        }
    }

    /// What runs now.
    pub fn node(&self) -> NodeId {
        self.node
    }

    fn enter(&mut self, ts: u64, node: NodeId, begins: bool) {
        self.node = node;
        match self.segments.last_mut() {
            Some(last) if last.from == ts => {
                // Nothing lasted zero time: the later state replaces it.
                last.node = node;
                last.begins |= begins;
            }
            _ => self.segments.push(Segment { from: ts, node, begins, serving: false, hooks: 0 }),
        }
    }

    /// The hook that wrote the last event ran here for so long.
    pub fn charge(&mut self, ns: u16) {
        if let Some(last) = self.segments.last_mut() {
            last.hooks = last.hooks.saturating_add(ns);
        }
    }

    /// The recorder's clock took a sample at `at`, not after the next event. The timer's interrupt in which that was is the
    /// recorder's doing, from its beginning to its end; where interrupts are not recorded, what the sample itself took is.
    pub fn sampled(&mut self, tree: &Tree, at: u64, ns: u16) {
        let Some(last) = self.segments.last() else { return };
        let interrupt = last.from <= at && tree.top(last.node) == Some(Frame::Vector { which: LOCAL_TIMER });
        self.charge(if interrupt { u16::MAX } else { ns });
    }

    fn push(&mut self, tree: &mut Tree, ts: u64, frame: Frame) {
        // A tower that no kernel builds: ends of spans were lost, so what is below is not known to be there any more.
        if tree.depth(self.node) >= MAX_NESTING {
            let tid = tree.task_of(self.node);
            self.node = tree.task(tid);
        }
        let node = tree.push(self.node, frame);
        self.enter(ts, node, true);
    }

    fn pop(&mut self, tree: &Tree, ts: u64, matches: impl Fn(Frame) -> bool) {
        let node = tree.pop_through(self.node, matches);
        if node != self.node {
            self.enter(ts, node, false);
        }
    }

    /// Takes one event of this core. `threads` knows in which system call (or work item) a thread is.
    pub fn take(&mut self, tree: &mut Tree, threads: &mut Threads, kind: Kind, event: &Event) {
        if !self.is_task_known || tree.task_of(self.node) != event.tid {
            self.trust(tree, threads, event);
        }
        self.note_quiet(event.ts);
        let mut interrupt_ends = false;
        match kind {
            Kind::SchedSwitch | Kind::SyscallEnter | Kind::SyscallExit | Kind::WorkStart | Kind::WorkEnd => {
                self.turn(tree, threads, kind, event);
            }
            Kind::ReclaimBegin => self.begin(tree, threads, event, reclaim(event)),
            Kind::ReclaimEnd => self.end(tree, threads, event, reclaim(event)),
            Kind::MigrateBegin => {
                let why = fields::Migrating::of(event).reason;
                self.begin(tree, threads, event, Frame::Migrate { why });
            }
            Kind::MigratePages => {
                if let Some(frame) = threads.innermost(event.tid, |f| matches!(f, Frame::Migrate { .. })) {
                    self.end(tree, threads, event, frame);
                }
            }
            Kind::SyncBegin => self.begin(tree, threads, event, Frame::FileSync),
            Kind::SyncEnd => self.end(tree, threads, event, Frame::FileSync),
            Kind::ContentionBegin => self.begin(tree, threads, event, Frame::KernelLock),
            Kind::ContentionEnd => self.end(tree, threads, event, Frame::KernelLock),
            Kind::FunctionBegin | Kind::FunctionEnd | Kind::RoutineSwitch => self.function(tree, threads, kind, event),
            Kind::Steal => self.stolen(tree, fields::Stolen::of(event).since_last_ns),
            Kind::RxStack if tree.within(self.node).net_rx => self.packet(tree, threads, event),
            Kind::CpuIdle => match fields::Idle::of(event).state {
                u32::MAX => self.pop(tree, event.ts, |f| matches!(f, Frame::IdleState { .. })),
                state if event.tid == 0 => self.push(tree, event.ts, Frame::IdleState { state: state as u8 }),
                _ => {}
            },
            // A boundary that busy periods may need when system calls are not recorded; a leg's, for what the hooks took.
            Kind::Recv | Kind::Send | Kind::SendBegin => self.enter(event.ts, self.node, false),
            _ => interrupt_ends = self.interrupt(tree, threads, kind, event),
        }
        self.after_interrupt = interrupt_ends || (self.after_interrupt && keeps_interrupt_tail(kind));
    }

    /// The first event of a core, or one after a loss, or after a switch without an event: the event says who runs. Some tasks
    /// leave a core without one (on a kernel that hides its host's agent); a task that comes after one tells itself within
    /// microseconds, but for the idle task: since when the core was idle is not known.
    fn trust(&mut self, tree: &mut Tree, threads: &mut Threads, event: &Event) {
        if self.is_task_known && event.tid == 0 && self.last_ns >= self.segments.last().map_or(u64::MAX, |s| s.from) {
            let unseen = tree.task(0);
            let unseen = tree.push(unseen, Frame::Unseen);
            self.enter(self.last_ns, unseen, true);
        }
        self.is_task_known = true;
        let node = threads.base(tree, event.tid);
        self.enter(event.ts, node, true);
    }

    /// Another task runs, or the task is in another system call or work item.
    fn turn(&mut self, tree: &mut Tree, threads: &mut Threads, kind: Kind, event: &Event) {
        let frame = match kind {
            Kind::SyscallEnter => Some(Frame::Syscall { nr: fields::Call::of(event).nr }),
            Kind::WorkStart => Some(Frame::Work { symbol: fields::Work::of(event).function as u32 }),
            _ => None,
        };
        let node = if kind == Kind::SchedSwitch {
            // The probe looked at the steal clock just before.
            self.quiet.clear();
            threads.base(tree, fields::Switch::of(event).next_tid)
        } else {
            threads.set_frame(event.tid, frame, event.ts);
            if frame.is_some() { threads.base(tree, event.tid) } else { tree.task(event.tid) }
        };
        // A traced function goes on where it was: its calls are counted.
        let goes_on =
            kind == Kind::SchedSwitch && matches!(tree.top(node), Some(Frame::Function { kernel: false, .. }));
        self.enter(event.ts, node, !goes_on);
    }

    /// An interrupt, a softirq or a function for another core begins or ends. Whether it is the end of one that followed an
    /// interrupt.
    fn interrupt(&mut self, tree: &mut Tree, threads: &mut Threads, kind: Kind, event: &Event) -> bool {
        let ts = event.ts;
        match kind {
            Kind::SoftirqEntry => {
                // A softirq that follows an interrupt is nobody's doing; one that starts in process context was
                // caused by the task itself. Idle and ksoftirqd only ever run what interrupts left.
                let caused = event.tid != 0 && !self.after_interrupt && !threads.is_ksoftirqd(event.tid);
                let vec = fields::Softirq::of(event).vector;
                self.push(tree, ts, Frame::Softirq { vec, inline: caused });
            }
            Kind::SoftirqExit => {
                let vec = fields::Softirq::of(event).vector;
                let was_inline = tree.within(self.node).inline_softirq;
                self.pop(tree, ts, |f| matches!(f, Frame::Softirq { vec: v, .. } if v == vec));
                return !was_inline;
            }
            Kind::IrqEntry => self.push(tree, ts, Frame::Irq { irq: fields::Handler::of(event).irq }),
            Kind::IrqExit => {
                let irq = fields::Irq::of(event).irq;
                self.pop(tree, ts, |f| f == Frame::Irq { irq });
                return true;
            }
            Kind::VectorEntry => self.push(tree, ts, Frame::Vector { which: fields::Vector::of(event).vector }),
            Kind::VectorExit => {
                let which = fields::Vector::of(event).vector;
                if which == LOCAL_TIMER {
                    self.quiet.clear();
                }
                self.pop(tree, ts, |f| f == Frame::Vector { which });
                return true;
            }
            Kind::CsdEntry => self.push(tree, ts, Frame::Csd),
            Kind::CsdExit => self.pop(tree, ts, |f| f == Frame::Csd),
            _ => {}
        }
        false
    }

    /// A NET_RX softirq goes on to another packet.
    fn packet(&mut self, tree: &mut Tree, threads: &Threads, event: &Event) {
        let flow = fields::Packet::of(event).flow;
        let own = flow.flags & flow_flags::FOREIGN == 0;
        let port = if own { flow.local_port } else { flow.local_port.min(flow.remote_port) };
        self.node = self.without_packet(tree);
        let app = threads.service(port);
        self.push(tree, event.ts, Frame::Packet { own, port, app });
    }

    /// Something that a thread does, whatever interrupts it and wherever it goes on.
    fn begin(&mut self, tree: &mut Tree, threads: &mut Threads, event: &Event, frame: Frame) {
        if tree.within(self.node).interrupt {
            return;
        }
        let is_inside = |threads: &mut Threads| threads.innermost(event.tid, |f| *f == frame).is_some();
        // A mutex that spins first and then sleeps begins twice, and ends once. A thread waits for one lock at a time.
        if frame == Frame::KernelLock && is_inside(threads) {
            return;
        }
        let inside = frame == Frame::FileSync && is_inside(threads);
        threads.push_frame(event.tid, frame, event.ts);
        let node = threads.base(tree, event.tid);
        self.enter(event.ts, node, !inside);
    }

    fn end(&mut self, tree: &mut Tree, threads: &mut Threads, event: &Event, frame: Frame) {
        if tree.within(self.node).interrupt {
            return;
        }
        threads.pop_frame(event.tid, frame);
        let node = threads.base(tree, event.tid);
        self.enter(event.ts, node, false);
    }

    /// A traced function begins or ends. Those that were switched off are left out: they have no symbol.
    fn function(&mut self, tree: &mut Tree, threads: &mut Threads, kind: Kind, event: &Event) {
        if kind == Kind::RoutineSwitch {
            threads.turn_to_routine(event.tid, fields::Goroutine::of(event).goroutine);
            return self.runs(tree, threads, kind, event);
        }
        let fields::Function { flags, function, position, goroutine } = fields::Function::of(event);
        let symbol = threads.names().function(function);
        if symbol == 0 {
            return;
        } else if flags & function_flags::KERNEL != 0 {
            let frame = Frame::Function { symbol, kernel: true };
            // What an interrupt runs is no thread's, and the idle task is one on each core.
            let of_core = event.tid == 0 || tree.within(self.node).interrupt;
            return match kind {
                Kind::FunctionBegin if of_core && self.is_deep(tree) => {}
                Kind::FunctionBegin if of_core => self.push(tree, event.ts, frame),
                Kind::FunctionEnd if of_core => self.leave_function(tree, event.ts, frame),
                Kind::FunctionBegin => self.begin(tree, threads, event, frame),
                _ => self.end(tree, threads, event, frame),
            };
        } else if kind == Kind::FunctionBegin {
            threads.enter_function(event.tid, symbol, position, goroutine);
        } else {
            threads.leave_function(event.tid, symbol, position, goroutine);
        }
        self.runs(tree, threads, kind, event);
    }

    /// Whatever the core was in: the program runs now.
    fn runs(&mut self, tree: &mut Tree, threads: &mut Threads, kind: Kind, event: &Event) {
        let node = threads.base(tree, event.tid);
        self.enter(event.ts, node, kind == Kind::FunctionBegin);
    }

    /// As many functions are on top as are kept: deeper ones count to the last.
    fn is_deep(&self, tree: &Tree) -> bool {
        let mut node = self.node;
        for _ in 0..MAX_FUNCTIONS {
            if !matches!(tree.top(node), Some(Frame::Function { kernel: true, .. })) {
                return false;
            }
            node = tree.parent(node);
        }
        true
    }

    /// A function of an interrupt ends, with those inside of it. What the interrupt itself lies in is not touched: that function began
    /// before it. A packet that was seen in the function goes on: the hook that saw it was in functions of its own.
    fn leave_function(&mut self, tree: &mut Tree, ts: u64, frame: Frame) {
        let (mut node, mut packet) = (self.node, None);
        while let Some(top @ (Frame::Function { kernel: true, .. } | Frame::Packet { .. })) = tree.top(node) {
            node = tree.parent(node);
            if top == frame {
                let node = packet.map_or(node, |packet| tree.push(node, packet));
                return self.enter(ts, node, false);
            }
            if matches!(top, Frame::Packet { .. }) {
                packet = Some(top);
            }
        }
    }

    /// Without the packet that the softirq has been at; functions that began since go on.
    fn without_packet(&self, tree: &mut Tree) -> NodeId {
        let (mut node, mut above) = (self.node, Vec::new());
        loop {
            match tree.top(node) {
                Some(top @ Frame::Function { kernel: true, .. }) => above.push(top),
                Some(Frame::Packet { .. }) => break,
                _ => return self.node,
            }
            node = tree.parent(node);
        }
        let below = tree.parent(node);
        above.into_iter().rev().fold(below, |node, frame| tree.push(node, frame))
    }

    fn note_quiet(&mut self, ts: u64) {
        let from = std::mem::replace(&mut self.last_ns, ts);
        if from == 0 || ts.saturating_sub(from) < Threshold::QuietInterval.ns() {
            return;
        }
        if self.quiet.len() < QUIET_KEPT {
            self.quiet.push((from, ts));
            if self.quiet.len() == QUIET_KEPT {
                self.quiet.sort_unstable_by_key(longest_first);
            }
            return;
        }
        // As most are: no longer than any of those that are kept.
        if self.quiet.last().is_some_and(|(a, b)| b - a >= ts - from) {
            return;
        }
        let longer = self.quiet.partition_point(|(a, b)| b - a >= ts - from);
        self.quiet.truncate(QUIET_KEPT - 1);
        self.quiet.insert(longer, (from, ts));
    }

    /// `ns` of this core were stolen since the steal clock was last looked at. While somebody else runs on a core nothing
    /// happens there, so the time lies in intervals without events: the longest first, and at their ends, where the core
    /// came back.
    fn stolen(&mut self, tree: &mut Tree, mut ns: u64) {
        let mut quiet = std::mem::take(&mut self.quiet);
        quiet.sort_unstable_by_key(longest_first);
        for (from, to) in quiet {
            let taken = ns.min(to - from);
            if taken == 0 {
                break;
            }
            self.steal(tree, to - taken, to);
            ns -= taken;
        }
    }

    /// Marks `from..to`, in which no event was, as stolen.
    fn steal(&mut self, tree: &mut Tree, from: u64, to: u64) {
        let Some(at) = self.segments.iter().rposition(|s| s.from <= from) else { return };
        let below = self.segments[at];
        // What the hooks took stays with what ran.
        let node = tree.push(below.node, Frame::Stolen);
        let stolen = Segment { from, node, begins: true, serving: false, hooks: 0 };
        let left = if below.from == from { below.hooks } else { 0 };
        let next = self.segments.get(at + 1).map(|s| s.from);
        if below.from == from {
            self.segments[at] = stolen;
        } else {
            self.segments.insert(at + 1, stolen);
        }
        if next != Some(to) {
            let place = self.segments.partition_point(|s| s.from < to);
            self.segments.insert(place, Segment { from: to, begins: false, hooks: left, ..below });
        }
    }

    /// The index of the segment that holds `ts`, if the timeline had begun by then.
    pub fn at(&self, ts: u64) -> Option<usize> {
        self.by_time.at(&self.segments, ts, |s| s.from)
    }

    /// The timeline is complete, but for what `last` does to each segment: from here on, [`Core::at`] is fast.
    pub fn complete(&mut self, mut last: impl FnMut(&mut Segment)) {
        let ends = self.segments.get(1).zip(self.segments.last()).map(|(second, last)| (second.from, last.from));
        let Some(ends) = ends else { return self.segments.iter_mut().for_each(last) };
        let steps = self.segments.len();
        let begins = self.segments.iter_mut().map(|segment| {
            last(segment);
            segment.from
        });
        self.by_time = TimeIndex::of(begins, steps, ends);
    }
}

/// The order of intervals: of equally long ones the earlier first.
fn longest_first(&(from, to): &(u64, u64)) -> (Reverse<u64>, u64) {
    (Reverse(to - from), from)
}

fn reclaim(event: &Event) -> Frame {
    Frame::Reclaim { which: fields::Reclaim::of(event).which }
}

/// Events that may stand between an interrupt's end and the softirq it raised.
fn keeps_interrupt_tail(kind: Kind) -> bool {
    matches!(kind, Kind::SchedWaking | Kind::SchedWakeup | Kind::SchedMigrate | Kind::IpiSend | Kind::CsdQueue)
}
