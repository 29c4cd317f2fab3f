//! Thread timelines: for each thread of the target, when it ran and where, waited for a core, or slept, and who woke it.

use rustc_hash::FxHashMap;
use tailsight_trace::Event;
use tailsight_trace::event::Kind;

use crate::input::Names;
use crate::model::Frame;
use crate::tree::{NodeId, Tree};

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
    },
    /// Asleep.
    Sleeping {
        /// In what: system call (`u32::MAX` unknown), uninterruptible, stopped.
        how: Sleep,
    },
}

/// How a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// The system call it is in, `u32::MAX` when not known.
    pub nr: u32,
    /// Uninterruptible.
    pub uninterruptible: bool,
    /// Stopped or traced.
    pub stopped: bool,
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
}

/// One stretch of a thread's timeline: until the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Start, ns.
    pub from: u64,
    /// What it did.
    pub state: State,
    /// For a stretch that follows a sleep: who ended it.
    pub waker: Option<Waker>,
}

/// A thread of the target.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Its timeline.
    pub stretches: Vec<Stretch>,
    /// The system call it is in now, and since when.
    pub syscall_since: u64,
    early_wake: Option<(u64, Waker)>,
}

impl Thread {
    fn last(&self) -> State {
        self.stretches.last().map_or(State::Unknown, |s| s.state)
    }

    fn enter(&mut self, from: u64, state: State, waker: Option<Waker>) {
        self.stretches.push(Stretch { from, state, waker });
    }

    /// Only a thread that sleeps is woken. When it looks runnable because of a wake-up before it left its core, that one
    /// was for an earlier sleep that it gave up: it did sleep, until now.
    fn wake_again(&mut self, ts: u64, queue: u16, waker: Waker) {
        if let [.., sleep, early] = self.stretches[..]
            && matches!(sleep.state, State::Sleeping { .. })
            && sleep.from == early.from
        {
            self.stretches.pop();
            self.enter(ts, State::Runnable { cpu: queue }, Some(waker));
        }
    }

    /// The index of the stretch that holds `ts`.
    pub fn at(&self, ts: u64) -> Option<usize> {
        self.stretches.partition_point(|s| s.from <= ts).checked_sub(1)
    }
}

/// Every thread: timelines of the target's, and the system call or work item each thread is in.
#[derive(Clone, Debug)]
pub struct Threads {
    names: Names,
    frames: FxHashMap<u32, Frame>,
    since: FxHashMap<u32, u64>,
    threads: FxHashMap<u32, Thread>,
}

/// `prev_state` bits (include/linux/sched.h).
const TASK_UNINTERRUPTIBLE: u32 = 2;
const TASK_STOPPED_OR_TRACED: u32 = 4 | 8;
/// A wake-up seen this long before a thread leaves its core belongs to that sleep: the waker waits for the core to be
/// left (`on_cpu`), and its event comes first.
const EARLY_WAKE_NS: u64 = 20_000;

impl Threads {
    /// No events yet.
    pub fn new(names: Names) -> Threads {
        Threads { names, frames: FxHashMap::default(), since: FxHashMap::default(), threads: FxHashMap::default() }
    }

    /// The names.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// A target thread's timeline.
    pub fn get(&self, tid: u32) -> Option<&Thread> {
        self.threads.get(&tid)
    }

    /// The application that listens on a port: index into the run's symbols, 0 when not known.
    pub fn service(&self, port: u16) -> u32 {
        self.names.service(port)
    }

    /// Whether the thread is a softirq daemon.
    pub fn is_ksoftirqd(&self, tid: u32) -> bool {
        self.names.is_ksoftirqd(tid)
    }

    /// The node of a thread as it stands: in its system call or work item, with no interrupt on top.
    pub fn base(&self, tree: &mut Tree, tid: u32) -> NodeId {
        let task = tree.task(tid);
        match self.frames.get(&tid) {
            Some(&frame) => tree.push(task, frame),
            None => task,
        }
    }

    /// The thread enters or leaves a system call or work item.
    pub fn set_frame(&mut self, tid: u32, frame: Option<Frame>, ts: u64) {
        match frame {
            Some(frame) => {
                self.frames.insert(tid, frame);
                self.since.insert(tid, ts);
            }
            None => {
                self.frames.remove(&tid);
                self.since.remove(&tid);
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.early_wake = None;
                }
            }
        }
    }

    /// Since when the thread is in its system call, when it is in one.
    pub fn syscall_since(&self, tid: u32) -> Option<u64> {
        self.since.get(&tid).copied()
    }

    /// The system call the thread is in.
    pub fn syscall(&self, tid: u32) -> Option<u32> {
        match self.frames.get(&tid) {
            Some(&Frame::Syscall { nr }) => Some(nr),
            _ => None,
        }
    }

    /// Takes a scheduling event of core `cpu`. `node`: what that core was in before the event.
    pub fn take(&mut self, tree: &Tree, cpu: u16, node: NodeId, event: &Event) {
        let ts = event.ts;
        match event.kind() {
            Some(Kind::SchedSwitch) => {
                let (prev, next) = (event.a_lo(), event.a_hi());
                if self.names.is_target(prev) {
                    self.switch_out(prev, cpu, event);
                }
                if self.names.is_target(next) {
                    let thread = self.threads.entry(next).or_default();
                    thread.early_wake = None;
                    thread.enter(ts, State::Running { cpu }, None);
                }
            }
            Some(Kind::SchedWaking) => {
                let tid = event.a_lo();
                if self.names.is_target(tid) {
                    let interrupt = event.tid == 0 || tree.any(node, is_interrupt_level);
                    let waker = Waker { tid: event.tid, cpu, interrupt };
                    let queue = event.a_hi() as u16;
                    let thread = self.threads.entry(tid).or_default();
                    match thread.last() {
                        State::Sleeping { .. } | State::Unknown => {
                            // Woken, and never seen before: it has slept since before the recording.
                            if thread.stretches.is_empty() {
                                let how = Sleep { nr: u32::MAX, uninterruptible: false, stopped: false };
                                thread.enter(0, State::Sleeping { how }, None);
                            }
                            thread.enter(ts, State::Runnable { cpu: queue }, Some(waker));
                        }
                        State::Running { .. } => thread.early_wake = Some((ts, waker)),
                        State::Runnable { .. } => thread.wake_again(ts, queue, waker),
                    }
                }
            }
            Some(Kind::SchedMigrate | Kind::SchedWakeup) => {
                let tid = event.a_lo();
                let to = if event.kind() == Some(Kind::SchedMigrate) { event.b_hi() } else { event.a_hi() } as u16;
                if let Some(thread) = self.threads.get_mut(&tid)
                    && let State::Runnable { cpu } = thread.last()
                    && cpu != to
                {
                    thread.enter(ts, State::Runnable { cpu: to }, None);
                }
            }
            Some(Kind::TaskFork) if self.names.is_target(event.a_lo()) => {
                self.threads.entry(event.a_lo()).or_default().enter(ts, State::Runnable { cpu }, None);
            }
            // Any event of a thread that we never saw being switched in: it runs here.
            _ => {
                if event.tid != 0
                    && self.names.is_target(event.tid)
                    && self.threads.get(&event.tid).is_none_or(|t| t.stretches.is_empty())
                {
                    self.threads.entry(event.tid).or_default().enter(ts, State::Running { cpu }, None);
                }
            }
        }
    }

    fn switch_out(&mut self, tid: u32, cpu: u16, event: &Event) {
        let nr = self.syscall(tid).unwrap_or(u32::MAX);
        let thread = self.threads.entry(tid).or_default();
        let ts = event.ts;
        let state = event.b_lo();
        if thread.stretches.is_empty() {
            thread.enter(0, State::Running { cpu }, None);
        }
        if state == 0 || event.aux & 1 == 1 {
            thread.enter(ts, State::Runnable { cpu }, None);
            return;
        }
        let how = Sleep {
            nr,
            uninterruptible: state & TASK_UNINTERRUPTIBLE != 0,
            stopped: state & TASK_STOPPED_OR_TRACED != 0,
        };
        thread.enter(ts, State::Sleeping { how }, None);
        if let Some((woken, waker)) = thread.early_wake.take()
            && ts - woken < EARLY_WAKE_NS
        {
            thread.enter(ts, State::Runnable { cpu }, Some(waker));
        }
    }
}

/// A frame that interrupts the current thread.
pub fn is_interrupt_level(frame: Frame) -> bool {
    matches!(
        frame,
        Frame::Softirq { .. } | Frame::Irq { .. } | Frame::Vector { .. } | Frame::Packet { .. } | Frame::Csd
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_trace::tables::TaskRow;

    /// A server of one thread a connection: each thread's first message used to have an unknown stretch before its wake-up.
    #[test]
    fn a_thread_that_is_first_seen_when_it_is_woken_has_slept() {
        let row = TaskRow { tid: 7, tgid: 7, target: true, ..TaskRow::default() };
        let mut threads = Threads::new(Names::new(&[row]));
        let (mut tree, waking) = (Tree::default(), Event { ts: 50, kind: 2, a: 7 | 1 << 32, ..Event::default() });
        let idle = tree.task(0);
        threads.take(&tree, 0, idle, &waking);
        let thread = threads.get(7).unwrap();
        assert!(matches!(thread.stretches[thread.at(49).unwrap()].state, State::Sleeping { .. }));
        let woken = thread.stretches[thread.at(50).unwrap()];
        assert_eq!((woken.state, woken.waker.map(|w| w.interrupt)), (State::Runnable { cpu: 1 }, Some(true)));
    }
}
