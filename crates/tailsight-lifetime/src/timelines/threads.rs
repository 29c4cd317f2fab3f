//! Thread timelines: for each thread of the target, when it ran and where, waited for a core, or slept, and who woke it.

use rustc_hash::FxHashMap;
use tailsight_trace::event::{Kind, SOFTIRQS, VECTORS, switch_flags};
use tailsight_trace::{Event, fields};

use crate::input::Names;
use crate::model::{Frame, NO_SYSCALL, Threshold};
use crate::timelines::sleep::Sleep;
use crate::timelines::time_index::TimeIndex;
use crate::timelines::tree::{NodeId, Tree};

/// What a thread did from some time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not known (before its first event).
    Unknown,
    /// On a core.
    Running {
        /// The core.
        cpu: u16,
    },
    /// Waiting for a core.
    Runnable {
        /// The core's queue it is on.
        cpu: u16,
        /// Its cgroup has no CPU quota left: no core would help.
        throttled: bool,
    },
    /// Asleep.
    Sleeping {
        /// In what.
        how: Sleep,
    },
}

/// Who woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waker {
    /// The thread that was current on the waker's core.
    pub tid: u32,
    /// The waker's core.
    pub cpu: u16,
    /// The wake-up came from an interrupt or softirq, not from the current thread itself.
    pub interrupt: bool,
    /// A packet of another server made it: number of its [`crate::messages::backend_calls::Ready`], 0: no such packet.
    pub ready: u32,
    /// The interrupt was a timer's: the sleep had a time limit, and that was over.
    pub timer: bool,
}

/// One interval of a thread's timeline: until the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadInterval {
    /// Start, ns.
    pub from: u64,
    /// What it did.
    pub state: State,
    /// For an interval that follows a sleep: who ended it.
    pub waker: Option<Waker>,
}

/// A thread of the target.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Its timeline.
    pub intervals: Vec<ThreadInterval>,
    early_wake: Option<(u64, Waker)>,
    /// Of a thread whose first event is that a core turned to it: that core, and until when it had last been idle. The thread was not
    /// woken since the recording began, so it was ready to run.
    kept_from: Option<(u16, u64)>,
    /// It was moved to another core before its first event.
    moved: bool,
    by_time: TimeIndex,
}

impl Thread {
    /// An idle core runs a thread that is ready, unless a quota of its control group forbids it: what else no event tells of the time before
    /// a thread's first one, a quota that it meets later does.
    fn throttled_at_first(&mut self) {
        let is_throttled = |s: &ThreadInterval| matches!(s.state, State::Runnable { throttled: true, .. });
        let Some((cpu, idle)) = self.kept_from.filter(|_| self.intervals.iter().any(is_throttled)) else { return };
        let state = |throttled| State::Runnable { cpu, throttled };
        let ready = |from, throttled| ThreadInterval { from, state: state(throttled), waker: None };
        let waits = self.intervals.first().is_some_and(|s| s.from > idle);
        self.intervals.splice(0..0, [Some(ready(0, true)), waits.then(|| ready(idle, false))].into_iter().flatten());
    }

    fn last(&self) -> State {
        self.intervals.last().map_or(State::Unknown, |s| s.state)
    }

    fn enter(&mut self, from: u64, state: State, waker: Option<Waker>) {
        self.intervals.push(ThreadInterval { from, state, waker });
    }

    /// Only a thread that sleeps is woken. When it looks runnable because of a wake-up before it left its core, that one
    /// was for an earlier sleep that it gave up: it did sleep, until now.
    fn wake_again(&mut self, ts: u64, queue: u16, waker: Waker) {
        if let [.., sleep, early] = self.intervals[..]
            && matches!(sleep.state, State::Sleeping { .. })
            && sleep.from == early.from
        {
            self.intervals.pop();
            self.enter(ts, State::Runnable { cpu: queue, throttled: false }, Some(waker));
        }
    }

    /// The index of the interval that holds `ts`.
    pub fn at(&self, ts: u64) -> Option<usize> {
        self.by_time.at(&self.intervals, ts, |s| s.from)
    }
}

/// Every thread: timelines of the target's, and the system call or work item each thread is in.
#[derive(Clone, Debug)]
pub struct Threads {
    names: Names,
    places: Places,
    records: Vec<ThreadRecord>,
    /// By core: until when it was last idle, 0: not since the recording began.
    idle: Vec<u64>,
    /// By core: the thread of its last event that was no scheduling event; that one is known to run. 0 is the idle task.
    last_tids: Vec<u32>,
    /// For the next wake-up: what was made readable just before it on its core.
    pub(crate) ready: u32,
    /// Traced functions that goroutines are in that no thread runs now.
    parked: FxHashMap<u64, Vec<Open>>,
    /// Ends of traced functions that were not seen, and others that were.
    pub(crate) open_ends: (u64, u64),
}

/// A traced function that a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    /// Its name.
    symbol: u32,
    /// Where the stack was as it began; stacks grow down.
    position: u32,
    /// The goroutine, 0: none.
    routine: u64,
}

impl Open {
    /// Whether the stack has been given back beyond it: it ended, by whatever way. What is deeper has a lower position.
    fn is_over(&self, at: &Open) -> bool {
        self.routine == at.routine && at.position.wrapping_sub(self.position).cast_signed() > 0
    }
}

/// What the pass has of a thread.
#[derive(Clone, Debug, Default)]
struct ThreadRecord {
    target: bool,
    ksoftirqd: bool,
    /// What it is in, outermost first: a system call or work item, reclaim, a wait for a kernel lock.
    frames: Vec<Frame>,
    /// Since when it is in the first of them.
    since: u64,
    /// Traced functions of the program that it is in, outermost first; `frames` are inside of them.
    functions: Vec<Open>,
    /// The goroutine that it runs, 0: none, or no Go program.
    routine: u64,
    /// Its node as it stands, when that was asked for since `frames` last changed.
    base: Option<NodeId>,
    /// Its timeline; without intervals: it was not seen, or does not belong to the target.
    timeline: Thread,
}

/// Where each thread is in [`Threads::records`], plus 1: a table, and a map for numbers that no kernel gives.
#[derive(Clone, Debug, Default)]
struct Places {
    table: Vec<u32>,
    others: FxHashMap<u32, u32>,
}

/// PID_MAX_LIMIT (include/linux/threads.h): thread ids are smaller.
const PID_MAX_LIMIT: u32 = 4 << 20;

impl Places {
    fn get(&self, tid: u32) -> Option<usize> {
        let place = match self.table.get(tid as usize) {
            Some(&place) => place,
            None if self.others.is_empty() => 0,
            None => self.others.get(&tid).copied().unwrap_or(0),
        };
        (place as usize).checked_sub(1)
    }

    fn set(&mut self, tid: u32, place: usize) {
        let place = place as u32 + 1;
        if tid >= PID_MAX_LIMIT {
            self.others.insert(tid, place);
            return;
        }
        let tid = tid as usize;
        if tid >= self.table.len() {
            self.table.resize((tid + 1).next_power_of_two(), 0);
        }
        self.table[tid] = place;
    }
}

/// System call or work item, reclaim, a kernel lock, and functions of the kernel inside of each other: those of a page fault that
/// changes protections are nine, of a receive down to the copy twelve.
const MAX_FRAMES: usize = 6 + MAX_FUNCTIONS;
/// Traced functions inside of each other; deeper ones of a recursion count to the last.
pub const MAX_FUNCTIONS: usize = 16;

/// `prev_state` bits (include/linux/sched.h).
const TASK_UNINTERRUPTIBLE: u32 = 2;
const TASK_STOPPED_OR_TRACED: u32 = 4 | 8;
/// Its control group is frozen, or the host is (Linux 6.1 and newer).
const TASK_FROZEN: u32 = 0x8000;

impl Threads {
    /// No events yet.
    pub fn new(names: Names) -> Threads {
        Threads {
            names,
            places: Places::default(),
            records: Vec::new(),
            ready: 0,
            parked: FxHashMap::default(),
            open_ends: (0, 0),
            idle: Vec::new(),
            last_tids: Vec::new(),
        }
    }

    /// The names.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// A target thread's timeline.
    pub fn get(&self, tid: u32) -> Option<&Thread> {
        let thread = &self.records[self.places.get(tid)?].timeline;
        (!thread.intervals.is_empty()).then_some(thread)
    }

    /// The threads of the target that have a timeline, by id.
    pub fn all(&self) -> impl Iterator<Item = (u32, &Thread)> {
        let mut others: Vec<u32> = self.places.others.keys().copied().collect();
        others.sort_unstable();
        let met = (0u32..).zip(&self.places.table).filter(|(_, place)| **place != 0).map(|(tid, _)| tid);
        met.chain(others).filter_map(|tid| Some((tid, self.get(tid)?)))
    }

    /// When a thread of the target fell asleep in such a system call, in order.
    pub fn slept_in(&self, tid: u32, call: impl Fn(u32) -> bool) -> Vec<u64> {
        let intervals = self.get(tid).map_or(&[][..], |t| &t.intervals);
        let sleeps = intervals.iter().filter_map(|s| match s.state {
            State::Sleeping { how } if how.nr < NO_SYSCALL && !how.uninterruptible && call(how.nr) => Some(s.from),
            _ => None,
        });
        sleeps.collect()
    }

    /// The application that listens on a port: index into the run's symbols, 0 when not known.
    pub fn service(&self, port: u16) -> u32 {
        self.names.service(port)
    }

    #[inline]
    fn record(&mut self, tid: u32) -> &mut ThreadRecord {
        let place = self.places.get(tid).unwrap_or_else(|| self.meet(tid));
        &mut self.records[place]
    }

    /// The place of a thread that no event was about before.
    #[cold]
    fn meet(&mut self, tid: u32) -> usize {
        let (target, ksoftirqd) = (self.names.is_target(tid), self.names.is_ksoftirqd(tid));
        self.records.push(ThreadRecord { target, ksoftirqd, ..ThreadRecord::default() });
        self.places.set(tid, self.records.len() - 1);
        self.records.len() - 1
    }

    /// The timeline of a thread that belongs to the target.
    fn of_target(&mut self, tid: u32) -> Option<&mut Thread> {
        let record = self.record(tid);
        record.target.then_some(&mut record.timeline)
    }

    /// Whether the thread is a softirq daemon.
    pub fn is_ksoftirqd(&mut self, tid: u32) -> bool {
        self.record(tid).ksoftirqd
    }

    /// The node of a thread as it stands: in its system call or work item, with no interrupt on top.
    pub fn base(&mut self, tree: &mut Tree, tid: u32) -> NodeId {
        let record = self.record(tid);
        *record.base.get_or_insert_with(|| {
            let task = tree.task(tid);
            // A file that is written to its disk by one function inside of another is written once.
            let mut syncs = 0;
            let once = |frame: &&Frame| {
                syncs += u32::from(**frame == Frame::FileSync);
                **frame != Frame::FileSync || syncs == 1
            };
            let functions = record.functions.iter().take(MAX_FUNCTIONS);
            let function = |open: &Open| Frame::Function { symbol: open.symbol, kernel: false };
            let inside = functions.map(function).fold(task, |node, frame| tree.push(node, frame));
            record.frames.iter().filter(once).fold(inside, |node, &frame| tree.push(node, frame))
        })
    }

    /// The thread enters a traced function of the program. What was open at its place of the stack or below it has ended unseen, by
    /// an exception or because its end was lost.
    pub fn enter_function(&mut self, tid: u32, symbol: u32, position: u32, routine: u64) {
        let open = Open { symbol, position, routine };
        let record = self.record(tid);
        let before = record.functions.len();
        // At the same position: it called itself in place of its end.
        record.functions.retain(|f| !f.is_over(&open) && (f.routine != routine || f.position != position));
        let lost = before - record.functions.len();
        record.functions.push(open);
        record.base = None;
        self.open_ends.0 += lost as u64;
    }

    /// The thread leaves a traced function, and what is inside of it.
    pub fn leave_function(&mut self, tid: u32, symbol: u32, position: u32, routine: u64) {
        let record = self.record(tid);
        let at = Open { symbol, position, routine };
        let is_at = |f: &Open| f.symbol == symbol && f.routine == routine && f.position == position;
        // Go moves a stack when it grows: then the innermost of that name it is.
        let moved = |f: &Open| routine != 0 && f.symbol == symbol && f.routine == routine;
        let innermost = record.functions.iter().rposition(is_at).or_else(|| record.functions.iter().rposition(moved));
        let (mut ended, mut lost) = (0, 0);
        match innermost {
            Some(first) => {
                (ended, lost) = (1, record.functions.len() - first - 1);
                record.functions.truncate(first);
            }
            // It began before the recording; what is deeper is over all the same.
            None => record.functions.retain(|f| !f.is_over(&at)),
        }
        record.base = None;
        self.open_ends.0 += lost as u64;
        self.open_ends.1 += ended;
    }

    /// The thread turns to another goroutine, 0: to none. What the one before is in goes with it.
    pub fn turn_to_routine(&mut self, tid: u32, routine: u64) {
        let record = self.record(tid);
        let before = std::mem::replace(&mut record.routine, routine);
        let left = std::mem::take(&mut record.functions);
        record.base = None;
        let left_by = left.first().map_or(before, |f| f.routine);
        if !left.is_empty() && left_by != routine {
            self.parked.insert(left_by, left);
        }
        if routine != 0
            && let Some(functions) = self.parked.remove(&routine)
        {
            self.record(tid).functions = functions;
        }
    }

    /// The thread enters or leaves a system call or work item.
    pub fn set_frame(&mut self, tid: u32, frame: Option<Frame>, ts: u64) {
        let record = self.record(tid);
        record.frames.clear();
        record.frames.extend(frame);
        record.since = ts;
        record.base = None;
        if frame.is_none() {
            record.timeline.early_wake = None;
        }
    }

    /// The thread begins something inside of what it does.
    pub fn push_frame(&mut self, tid: u32, frame: Frame, ts: u64) {
        let record = self.record(tid);
        if record.frames.is_empty() {
            record.since = ts;
        }
        // Ends may be lost.
        if record.frames.len() < MAX_FRAMES {
            record.frames.push(frame);
        }
        record.base = None;
    }

    /// The thread ends something, and what is inside of it.
    pub fn pop_frame(&mut self, tid: u32, frame: Frame) {
        let record = self.record(tid);
        if let Some(at) = record.frames.iter().rposition(|f| *f == frame) {
            record.frames.truncate(at);
            record.base = None;
        }
    }

    /// The innermost of what the thread is in that matches.
    pub fn innermost(&mut self, tid: u32, matches: impl Fn(&Frame) -> bool) -> Option<Frame> {
        self.record(tid).frames.iter().rfind(|f| matches(f)).copied()
    }

    /// Since when the thread is in its system call, when it is in one.
    pub fn syscall_since(&self, tid: u32) -> Option<u64> {
        let record = &self.records[self.places.get(tid)?];
        matches!(record.frames.first(), Some(Frame::Syscall { .. } | Frame::Work { .. })).then_some(record.since)
    }

    /// Takes an event of core `cpu`. `node`: what that core was in before the event.
    #[inline]
    pub fn take(&mut self, tree: &Tree, cpu: u16, node: NodeId, kind: Kind, event: &Event) {
        let scheduling = matches!(
            kind,
            Kind::SchedSwitch | Kind::SchedWaking | Kind::SchedMigrate | Kind::SchedWakeup | Kind::TaskFork
        );
        if scheduling {
            self.schedule(tree, cpu, node, kind, event);
        } else if self.last_tids.get(usize::from(cpu)) != Some(&event.tid) {
            self.see(cpu, event);
        }
    }

    /// A thread that no event told of runs here.
    fn see(&mut self, cpu: u16, event: &Event) {
        let core = usize::from(cpu);
        if core >= self.last_tids.len() {
            self.last_tids.resize(core + 1, 0);
        }
        if std::mem::replace(&mut self.last_tids[core], event.tid) != event.tid
            && let Some(thread) = self.of_target(event.tid)
            && thread.intervals.is_empty()
        {
            thread.enter(event.ts, State::Running { cpu }, None);
        }
    }

    fn schedule(&mut self, tree: &Tree, cpu: u16, node: NodeId, kind: Kind, event: &Event) {
        let ts = event.ts;
        match kind {
            Kind::SchedSwitch => {
                let switch = fields::Switch::of(event);
                self.switch_out(switch, cpu, ts);
                let idle = self.idle_until(switch, cpu, ts);
                if let Some(thread) = self.of_target(switch.next_tid) {
                    thread.early_wake = None;
                    if thread.intervals.is_empty() && idle > 0 && !thread.moved {
                        thread.kept_from = Some((cpu, idle));
                    }
                    thread.enter(ts, State::Running { cpu }, None);
                }
            }
            Kind::SchedWaking => {
                let interrupt = event.tid == 0 || tree.within(node).interrupt;
                let ready = if interrupt { self.ready } else { 0 };
                let waking = fields::Waking::of(event);
                if let Some(thread) = self.of_target(waking.woken_tid) {
                    let timer = tree.top(node).is_some_and(is_timer);
                    let waker = Waker { tid: event.tid, cpu, interrupt, ready, timer };
                    let queue = waking.last_cpu as u16;
                    match thread.last() {
                        State::Sleeping { .. } | State::Unknown => {
                            // Woken, and never seen before: it has slept since before the recording.
                            if thread.intervals.is_empty() {
                                thread.enter(0, State::Sleeping { how: Sleep::UNKNOWN }, None);
                            }
                            thread.enter(ts, State::Runnable { cpu: queue, throttled: false }, Some(waker));
                        }
                        State::Running { .. } => thread.early_wake = Some((ts, waker)),
                        State::Runnable { .. } => thread.wake_again(ts, queue, waker),
                    }
                }
            }
            Kind::SchedMigrate | Kind::SchedWakeup => {
                let (tid, to) = match kind {
                    Kind::SchedMigrate => {
                        let moves = fields::Move::of(event);
                        (moves.moved_tid, moves.to_cpu as u16)
                    }
                    _ => {
                        let wakeup = fields::Wakeup::of(event);
                        (wakeup.woken_tid, wakeup.target_cpu as u16)
                    }
                };
                if let Some(thread) = self.of_target(tid) {
                    match thread.last() {
                        State::Runnable { cpu, throttled } if cpu != to => {
                            thread.enter(ts, State::Runnable { cpu: to, throttled }, None);
                        }
                        State::Unknown => thread.moved = true,
                        _ => {}
                    }
                }
            }
            Kind::TaskFork if self.names.is_target(fields::Task::of(event).task_tid) => {
                // Its maker made it runnable; before that, what was to become its work was its maker's.
                let maker = Waker { tid: event.tid, cpu, interrupt: false, ready: 0, timer: false };
                if let Some(thread) = self.of_target(fields::Task::of(event).task_tid) {
                    thread.enter(ts, State::Runnable { cpu, throttled: false }, Some(maker));
                }
            }
            _ => self.see(cpu, event),
        }
    }

    /// The timelines are complete: from here on, [`Thread::at`] is fast.
    pub fn complete(&mut self) {
        for thread in self.records.iter_mut().map(|k| &mut k.timeline) {
            thread.throttled_at_first();
            thread.by_time = TimeIndex::new(&thread.intervals, |s| s.from);
        }
    }

    /// Until when a core was last idle, at a switch of it: now, if it was until now; 0: not since the recording began.
    fn idle_until(&mut self, switch: fields::Switch, cpu: u16, ts: u64) -> u64 {
        let cpu = usize::from(cpu);
        if cpu >= self.idle.len() {
            self.idle.resize(cpu + 1, 0);
        }
        if switch.previous_tid == 0 {
            self.idle[cpu] = ts;
        }
        self.idle[cpu]
    }

    fn switch_out(&mut self, switch: fields::Switch, cpu: u16, ts: u64) {
        let fields::Switch { flags, previous_tid: tid, state, .. } = switch;
        let stack = self.names.stack(switch.stack);
        let record = self.record(tid);
        if !record.target {
            return;
        }
        // Registers at the switch say it; runs of older recorders have the system calls' own events.
        let nr = match (switch.call, record.frames.first()) {
            (u32::MAX, _) => NO_SYSCALL,
            (0, Some(&Frame::Syscall { nr })) => nr,
            (0, _) => u32::MAX,
            (nr, _) => nr - 1,
        };
        let function = record.functions.last().map_or(0, |f| f.symbol);
        let place = self.names.place(switch.place);
        let record = self.record(tid);
        let doing = record.frames.last().copied().filter(Frame::may_sleep);
        let thread = &mut record.timeline;
        if thread.intervals.is_empty() {
            thread.enter(0, State::Running { cpu }, None);
        }
        if state == 0 || flags & switch_flags::PREEMPTED != 0 {
            let throttled = flags & switch_flags::THROTTLED != 0;
            thread.enter(ts, State::Runnable { cpu, throttled }, None);
            return;
        }
        let how = Sleep {
            nr,
            uninterruptible: state & TASK_UNINTERRUPTIBLE != 0,
            stopped: state & (TASK_STOPPED_OR_TRACED | TASK_FROZEN) != 0,
            io: flags & switch_flags::IO_WAIT != 0,
            stack,
            doing,
            function,
            place,
        };
        thread.enter(ts, State::Sleeping { how }, None);
        if let Some((woken, waker)) = thread.early_wake.take()
            && ts - woken < Threshold::EarlyWake.ns()
        {
            thread.enter(ts, State::Runnable { cpu, throttled: false }, Some(waker));
        }
    }
}

/// A timer's interrupt, or the softirq that runs timers.
fn is_timer(frame: Frame) -> bool {
    let named = |names: &[&str], at: usize, wanted: &[&str]| names.get(at).is_some_and(|name| wanted.contains(name));
    match frame {
        Frame::Vector { which } => named(VECTORS, usize::from(which), &["local_timer"]),
        Frame::Softirq { vec, .. } => named(SOFTIRQS, usize::from(vec), &["timer", "hrtimer"]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_trace::tables::TaskRow;

    /// The names of the traced functions that a thread is in.
    fn functions(threads: &mut Threads, tid: u32) -> Vec<u32> {
        let mut tree = Tree::default();
        let node = threads.base(&mut tree, tid);
        let symbol = |f: Frame| match f {
            Frame::Function { symbol, .. } => symbol,
            _ => 0,
        };
        let symbols = tree.frames(node).into_iter().map(symbol).collect();
        threads.record(tid).base = None;
        symbols
    }

    #[test]
    fn traced_functions_nest_and_recover_from_ends_that_were_not_seen() {
        let mut threads = Threads::new(Names::default());
        threads.enter_function(7, 1, 0x9000, 0);
        threads.enter_function(7, 2, 0x8000, 0);
        threads.set_frame(7, Some(Frame::Syscall { nr: 0 }), 5);
        assert_eq!(functions(&mut threads, 7), [1, 2, 0]);
        threads.set_frame(7, None, 6);
        threads.leave_function(7, 2, 0x8000, 0);
        assert_eq!(functions(&mut threads, 7), [1]);
        // An exception goes through 3 and 2: the next call, from further out, shows that they are over.
        threads.enter_function(7, 2, 0x8000, 0);
        threads.enter_function(7, 3, 0x7000, 0);
        threads.enter_function(7, 4, 0x8800, 0);
        assert_eq!((functions(&mut threads, 7), threads.open_ends), (vec![1, 4], (2, 1)));
        // The outermost ends and what is in it with it.
        threads.leave_function(7, 1, 0x9000, 0);
        assert_eq!(functions(&mut threads, 7), [0u32; 0]);
        // A call of itself in place of its end is no recursion; one deeper is.
        threads.enter_function(7, 5, 0x9000, 0);
        threads.enter_function(7, 5, 0x9000, 0);
        threads.enter_function(7, 5, 0x8ff0, 0);
        assert_eq!(functions(&mut threads, 7), [5, 5]);
        threads.leave_function(7, 5, 0x8ff0, 0);
        assert_eq!(functions(&mut threads, 7), [5]);
        // One that began before the recording.
        threads.leave_function(7, 6, 0xa000, 0);
        assert_eq!(functions(&mut threads, 7), [0u32; 0]);
        // Positions may wrap.
        threads.enter_function(7, 1, 0x10, 0);
        threads.enter_function(7, 2, 0xffff_fff0, 0);
        assert_eq!(functions(&mut threads, 7), [1, 2]);
    }

    #[test]
    fn a_goroutine_takes_its_functions_to_another_thread() {
        let mut threads = Threads::new(Names::default());
        threads.turn_to_routine(7, 1000);
        threads.enter_function(7, 1, 0x9000, 1000);
        // It waits: the thread turns to nobody, then to another, which is in a function at the same height of its own stack.
        threads.turn_to_routine(7, 0);
        assert_eq!(functions(&mut threads, 7), [0u32; 0]);
        threads.turn_to_routine(7, 2000);
        threads.enter_function(7, 2, 0x9000, 2000);
        threads.turn_to_routine(8, 1000);
        assert_eq!((functions(&mut threads, 7), functions(&mut threads, 8)), (vec![2], vec![1]));
        // Its stack grew and is elsewhere now.
        threads.leave_function(8, 1, 0x5000, 1000);
        assert_eq!((functions(&mut threads, 8), threads.open_ends), (vec![], (0, 1)));
    }

    /// A server of one thread a connection: each thread's first message used to have an unknown interval before its wake-up.
    #[test]
    fn a_thread_that_is_first_seen_when_it_is_woken_has_slept() {
        let row = TaskRow { tid: 7, tgid: 7, target: true, ..TaskRow::default() };
        let mut threads = Threads::new(Names::new(&[row]));
        let (mut tree, waking) = (Tree::default(), Event { ts: 50, kind: 2, a: 7 | 1 << 32, ..Event::default() });
        let idle = tree.task(0);
        threads.take(&tree, 0, idle, Kind::SchedWaking, &waking);
        let thread = threads.get(7).unwrap();
        assert!(matches!(thread.intervals[thread.at(49).unwrap()].state, State::Sleeping { .. }));
        let woken = thread.intervals[thread.at(50).unwrap()];
        assert_eq!(
            (woken.state, woken.waker.map(|w| w.interrupt)),
            (State::Runnable { cpu: 1, throttled: false }, Some(true))
        );
    }
}
