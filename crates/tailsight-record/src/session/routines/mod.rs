//! Tasks of runtimes, looked at from outside of the target while the recording runs: goroutines that have a message, tasks of asyncio while
//! a message waits.
//!
//! In: what received and did not answer yet, and who ended waits of that, as the probes know it. Out: [`Look`]s: what each task was at, and where. The target is neither
//! stopped nor changed: its memory is read (`process_vm_readv`), the task's own words before and after what it waits in, and a look at one
//! that went on meanwhile is dropped and counted. Where things are depends on the version of the runtime ([`tailsight_tasks`]); of another
//! version nothing is read.

mod allowance;
pub(super) mod breakpoints;
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use rustc_hash::FxHashMap;
use tailsight_symbolise::unwind::Registers;
use tailsight_symbolise::{Interpreted, Raw, Stacks};
use tailsight_tasks::asyncio::{Asyncio, Place};
use tailsight_tasks::cpython::{Functions, Layout};
use tailsight_tasks::{Memory, go};
use tailsight_trace::meta;
use tailsight_trace::routines::{NO_MESSAGE, RoutineRow, State};
use tailsight_trace::samples::SampleRow;

use self::allowance::Allowance;
use self::breakpoints::{ProgramFile, TaskPlan};
use self::memory::OfProcess;
use crate::clocks;
use crate::loaded::Loaded;
use crate::probes::python::{self, Called};
use crate::probes::routines::{self, Open, Running};

/// Goroutines that are looked at in one turn, the oldest messages first.
const MOST_AT_ONCE: usize = 64;
/// Goroutines without a message that are looked at besides: those that ended waits last.
const MOST_WAKERS: usize = 16;
/// Who has a younger message is let be.
const YOUNGEST_NS: u64 = 1_000_000;
/// A message of a Python program that is older than this is slow: most are answered sooner, and what looks may take is for those that are not.
const SLOW_NS: u64 = 5_000_000;
/// While none is, tasks are looked at in one turn of so many.
const TURNS_WITHOUT_SLOW: u64 = 4;
/// A goroutine that has not answered for so long is none that answers: its messages go to others. So is a socket.
const OLDEST_NS: u64 = 10_000_000_000;
/// Goroutines that are over whose addresses are kept.
const MOST_OVER: usize = 8192;
/// Looks that are kept: those of a minute in which one goroutine after the other waits.
const MOST_LOOKS: usize = 2_000_000;
/// Bytes of a goroutine's stack that are read: those of some twenty functions.
const STACK_BYTES: usize = 8192;
/// Bytes of all stacks that are kept until they are unwound.
const MOST_STACK_BYTES: usize = 64 << 20;
/// Call stacks of tasks whose numbers are kept.
const MOST_STACKS: usize = 100_000;
/// How long a Python program that has no asyncio is let be before it is asked again.
const ASKED_AGAIN: Duration = Duration::from_secs(1);

/// What a task was at when it was looked at.
#[derive(Clone, Copy, Debug)]
struct Look {
    row: RoutineRow,
    /// Of a goroutine that waited, which of the unwound stacks is its own. The stack of a task of asyncio is in the row.
    unwound: Option<usize>,
}

/// The tasks of a process.
enum Tasks {
    /// It has none that can be read.
    None,
    Goroutines(&'static go::Layout),
    Asyncio(Box<Asyncio>),
    /// A Python program that had no asyncio at this time: it may load it.
    NoAsyncio {
        runtime: u64,
        layout: &'static Layout,
        asked: Instant,
    },
}

/// A time in which all looks at a task of asyncio said the same.
#[derive(Clone, Copy, Debug)]
struct Steady {
    last: RoutineRow,
    /// Whether the last look is kept already: it is the first, too.
    is_kept: bool,
}

/// Looks at the tasks of a target.
#[derive(Default)]
pub(super) struct Routines {
    is_off: bool,
    /// None are set, in no program.
    has_no_breakpoints: bool,
    /// The programs that were looked into for breakpoints.
    programs: BTreeSet<ProgramFile>,
    /// Processes that were asked for.
    processes: BTreeMap<u32, Tasks>,
    looks: Vec<Look>,
    /// The numbers of the stacks that were unwound.
    unwound: Vec<u32>,
    /// Those that come after them and are to be unwound.
    waiting: Vec<Raw>,
    waiting_bytes: usize,
    /// Goroutines that were seen to be over, by process and address: when they were made.
    over: FxHashMap<(u32, u64), u64>,
    /// Of each goroutine its message when it was last looked at, and where it waited.
    last_of: FxHashMap<(u32, u64), (u64, Registers, usize)>,
    /// By process and places in code: the number of the call stack of names.
    stack_of: FxHashMap<(u32, Vec<Place>), u32>,
    /// Functions of Python, by process.
    functions: FxHashMap<u32, Functions>,
    /// Of each task of asyncio since it was last seen to change.
    steady: FxHashMap<(u32, u64), Steady>,
    said: meta::Routines,
    next: Option<Instant>,
    allowance: Allowance,
    /// The time from the last look to the next one.
    apart: Duration,
}

impl Routines {
    /// `programs`: those that were looked into for breakpoints.
    pub(super) fn new(programs: BTreeSet<ProgramFile>) -> Routines {
        Routines { programs, ..Routines::default() }
    }

    /// While a server is watched: without breakpoints, so that tasks that only these tell are not followed, and with fewer looks.
    pub(super) fn watched() -> Routines {
        Routines { has_no_breakpoints: true, allowance: Allowance::watched(), ..Routines::default() }
    }

    /// That looks at nothing.
    pub(super) fn off() -> Routines {
        Routines { is_off: true, ..Routines::default() }
    }

    /// Takes in processes of the target that were not known yet.
    pub(super) fn meet(&mut self, loaded: &mut Loaded, pids: &[u32], stacks: &mut Stacks) {
        if self.is_off {
            return;
        }
        for &pid in pids {
            let tasks = match self.processes.get(&pid) {
                None => {
                    self.tokio(pid, stacks);
                    match self.go(pid, stacks) {
                        Some(tasks) => tasks,
                        None => self.python(pid, loaded, stacks),
                    }
                }
                Some(&Tasks::NoAsyncio { runtime, layout, asked }) if asked.elapsed() >= ASKED_AGAIN => {
                    asyncio_of(pid, runtime, layout)
                }
                Some(_) => continue,
            };
            let running = match &tasks {
                Tasks::Goroutines(_) => Some(Running::Register),
                Tasks::Asyncio(asyncio) => Some(Running::Dictionary(asyncio.running())),
                Tasks::None | Tasks::NoAsyncio { .. } => None,
            };
            self.processes.insert(pid, tasks);
            if let Some(Err(error)) = running.map(|running| routines::tell(loaded, pid, running)) {
                self.note(format!("tasks are not read: {}", tailsight_units::chain(&error)));
            }
        }
    }

    /// Says why the tasks of a program that runs since are not followed, if it has such.
    fn tokio(&mut self, pid: u32, stacks: &mut Stacks) {
        if let Some(program) = stacks.program_of(pid)
            && self.programs.insert(program)
        {
            let plan = TaskPlan::new(&[pid], None, stacks.reader());
            let not_followed = if self.has_no_breakpoints { plan.needs_breakpoints() } else { plan.too_late() };
            not_followed.into_iter().for_each(|why| self.note(why));
        }
    }

    /// The goroutines of a Go program; none of another one.
    fn go(&mut self, pid: u32, stacks: &mut Stacks) -> Option<Tasks> {
        let version = stacks.go_version(pid)?;
        let layout = go::layout(&version);
        let version = if version.is_empty() { "before go1.18".to_owned() } else { version };
        if layout.is_none() {
            self.note(format!(
                "goroutines are not read: where {version} keeps them is not known here (1.18 to 1.26 are)"
            ));
        }
        self.runs(version);
        Some(layout.map_or(Tasks::None, Tasks::Goroutines))
    }

    /// The tasks of a Python program, whose functions are known by name from here on.
    fn python(&mut self, pid: u32, loaded: &mut Loaded, stacks: &mut Stacks) -> Tasks {
        let Some((runtime, cpython)) = stacks.cpython(pid) else { return Tasks::None };
        let version = format!("CPython {}", cpython.version_text());
        let tasks = match Layout::of(cpython.version) {
            Some(layout) => {
                self.functions.insert(pid, Functions::new(layout));
                let told = layout.threads(&OfProcess(pid), runtime).map(|threads| python::tell(loaded, pid, threads));
                if let Some(Err(error)) = told {
                    self.note(format!("functions of Python are not read: {}", tailsight_units::chain(&error)));
                }
                asyncio_of(pid, runtime, layout)
            }
            None => {
                // Of a program that has none nothing is missing.
                if !stacks.has_mapped(pid, "_asyncio.") {
                    return Tasks::None;
                }
                self.note(format!(
                    "tasks of asyncio are not read: where {version} keeps them is not known here (3.11 to 3.13 are)"
                ));
                Tasks::None
            }
        };
        self.runs(version);
        tasks
    }

    /// The names of functions of Python that a thread of a process was in.
    pub(super) fn interpreted(&mut self, pid: u32, called: &[Called]) -> Vec<Interpreted> {
        let Some(functions) = self.functions.get_mut(&pid) else { return vec![] };
        let memory = OfProcess(pid);
        let mut named = |called: &Called| Interpreted {
            frame: called.place().and_then(|place| functions.frame(&memory, place)),
            entered: called.entered,
        };
        called.iter().map(&mut named).collect()
    }

    fn runs(&mut self, version: String) {
        if !self.said.versions.contains(&version) {
            self.said.versions.push(version);
        }
    }

    fn note(&mut self, text: String) {
        if !self.said.notes.contains(&text) {
            self.said.notes.push(text);
        }
    }

    /// How long until the next look; none where there is nothing to look at.
    pub(super) fn due(&self) -> Option<Duration> {
        let is_read = |tasks: &Tasks| matches!(tasks, Tasks::Goroutines(_) | Tasks::Asyncio(_));
        let due = || self.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(Instant::now()));
        self.processes.values().any(is_read).then(due)
    }

    /// Looks at the goroutines that have a message, those first that have had it for longest, and at the tasks of asyncio where a socket has one.
    pub(super) fn look(&mut self, loaded: &Loaded, stacks: &mut Stacks) {
        let began = own_cpu();
        let now_ns = clocks::monotonic_ns();
        let age = |open: &Open| now_ns.saturating_sub(open.since_ns);
        let is_due = |open: &Open| (YOUNGEST_NS..OLDEST_NS).contains(&age(open));
        let is_over = |open: &Open| self.over.get(&(open.pid, open.address)) == Some(&open.since_ns);
        let of_loops = |open: &Open| matches!(self.processes.get(&open.pid), Some(Tasks::Asyncio(_)));
        let (sockets, mut goroutines): (Vec<Open>, Vec<Open>) =
            routines::open(loaded).filter(|open| is_due(open) && !is_over(open)).partition(of_loops);
        goroutines.sort_unstable_by_key(|open| open.since_ns);
        self.said.left_out += goroutines.len().saturating_sub(MOST_AT_ONCE) as u64;
        goroutines.truncate(MOST_AT_ONCE);
        for open in &goroutines {
            self.look_at(open);
        }
        // While somebody waits: what those do that ended waits before.
        if !goroutines.is_empty() {
            let lately = |waker: &Open| age(waker) < OLDEST_NS;
            let mut wakers: Vec<Open> = routines::wakers(loaded).filter(lately).collect();
            wakers.sort_unstable_by_key(|waker| std::cmp::Reverse(waker.since_ns));
            wakers.retain(|waker| goroutines.iter().all(|open| (open.pid, open.address) != (waker.pid, waker.address)));
            for waker in wakers.into_iter().take(MOST_WAKERS) {
                self.look_at(&Open { since_ns: NO_MESSAGE, ..waker });
            }
        }
        if sockets.iter().any(|open| age(open) >= SLOW_NS) || self.said.turns.is_multiple_of(TURNS_WITHOUT_SLOW) {
            for pid in sockets.iter().map(|open| open.pid).collect::<BTreeSet<u32>>() {
                self.look_at_tasks(pid, |address| routines::number_of(loaded, address), stacks);
            }
        }
        let took = own_cpu().saturating_sub(began);
        self.said.cpu_ns += took.as_nanos() as u64;
        self.said.turns += 1;
        let now = Instant::now();
        self.apart = self.allowance.take(took, now);
        self.next = Some(now + self.apart);
    }

    /// Looks at a goroutine.
    fn look_at(&mut self, open: &Open) {
        let Some(&Tasks::Goroutines(layout)) = self.processes.get(&open.pid) else { return };
        if self.looks.len() >= MOST_LOOKS {
            self.said.left_out += 1;
            return;
        }
        let memory = OfProcess(open.pid);
        let before = go::saved(&memory, open.address, layout);
        let Some((before, state)) = before.and_then(|saved| Some((saved, go::state_of(saved.status)?))) else {
            // One that was made for a message, and has returned, has no stack any more.
            match open.was_made {
                true => self.is_over(open),
                false => self.said.unreadable += u64::from(before.is_none()),
            }
            return;
        };
        let row = RoutineRow {
            ts_ns: clocks::monotonic_ns(),
            pid: open.pid,
            routine: open.routine,
            since_ns: open.since_ns,
            state,
            stack: 0,
        };
        if state != State::Waiting {
            self.looks.push(Look { row, unwound: None });
            return;
        }
        let key = (open.pid, open.routine);
        if let Some(&(since_ns, registers, stack)) = self.last_of.get(&key)
            && (since_ns, registers) == (open.since_ns, before.registers)
        {
            self.looks.push(Look { row, unwound: Some(stack) });
            return;
        }
        let bytes = (before.stack_high - before.registers.sp).min(STACK_BYTES as u64) as usize;
        if self.waiting_bytes + bytes > MOST_STACK_BYTES {
            self.said.left_out += 1;
            return;
        }
        let stack = memory.read(before.registers.sp, bytes);
        // It went on meanwhile: the bytes may be of another call.
        let Some(stack) = stack.filter(|_| go::saved(&memory, open.address, layout) == Some(before)) else {
            self.said.torn += 1;
            return;
        };
        self.waiting_bytes += bytes;
        self.waiting.push(Raw {
            row: SampleRow { tgid: open.pid, ..SampleRow::default() },
            like: 0,
            kernel: vec![],
            registers: before.registers,
            bytes: stack,
            interpreted: vec![],
        });
        let stack = self.unwound.len() + self.waiting.len() - 1;
        self.last_of.insert(key, (open.since_ns, before.registers, stack));
        self.looks.push(Look { row, unwound: Some(stack) });
    }

    /// A goroutine that was made for a message has returned.
    fn is_over(&mut self, open: &Open) {
        if self.over.len() >= MOST_OVER {
            self.over.clear();
        }
        self.over.insert((open.pid, open.address), open.since_ns);
    }

    /// Looks at all tasks of a process: which of them has the message is known when it answers. Of looks that say the same the first and the
    /// last are kept.
    fn look_at_tasks(&mut self, pid: u32, number_of: impl Fn(u64) -> u64, stacks: &mut Stacks) {
        let Some(Tasks::Asyncio(asyncio)) = self.processes.get_mut(&pid) else { return };
        let memory = OfProcess(pid);
        let Some(snapshot) = asyncio.look(&memory) else {
            self.said.unreadable += 1;
            return;
        };
        self.said.left_out += snapshot.left_out as u64;
        self.said.torn += snapshot.torn as u64;
        let ts_ns = clocks::monotonic_ns();
        let latest_ns = (2 * self.apart.max(self.allowance.every)).as_nanos() as u64;
        let mut over: Vec<Steady> = vec![];
        for task in snapshot.tasks {
            let stack = match self.stack_of.get(&(pid, task.places.clone())) {
                _ if task.places.is_empty() => 0,
                Some(&number) => number + 1,
                None => {
                    let number = stacks.stack_of_names(asyncio.frames(&memory, &task.places));
                    if self.stack_of.len() < MOST_STACKS {
                        self.stack_of.insert((pid, task.places), number);
                    }
                    number + 1
                }
            };
            let routine = number_of(task.address);
            let row = RoutineRow { ts_ns, pid, routine, since_ns: 0, state: task.state, stack };
            let before = self.steady.get(&(pid, routine)).copied();
            let is_same = |before: &Steady| (before.last.state, before.last.stack) == (row.state, row.stack);
            // Where nobody looked for a while, it may have been at something else, and at the same again.
            let goes_on = before.is_some_and(|before| is_same(&before) && ts_ns - before.last.ts_ns <= latest_ns);
            if !goes_on {
                over.extend(before);
                over.push(Steady { last: row, is_kept: false });
            }
            self.steady.insert((pid, routine), Steady { last: row, is_kept: !goes_on });
        }
        // Tasks that are gone.
        let gone = |(owner, _): &(u32, u64), steady: &mut Steady| *owner == pid && steady.last.ts_ns != ts_ns;
        over.extend(self.steady.extract_if(gone).map(|(_, steady)| steady));
        over.into_iter().for_each(|steady| self.keep(steady));
    }

    /// Keeps the last look of a time.
    fn keep(&mut self, steady: Steady) {
        if steady.is_kept {
            return;
        }
        if self.looks.len() >= MOST_LOOKS {
            self.said.left_out += 1;
            return;
        }
        self.looks.push(Look { row: steady.last, unwound: None });
    }

    /// Unwinds the stacks that wait for it, where they are many.
    pub(super) fn unwind(&mut self, stacks: &mut Stacks) {
        if self.waiting_bytes > MOST_STACK_BYTES / 4 {
            self.unwind_all(stacks);
        }
    }

    fn unwind_all(&mut self, stacks: &mut Stacks) {
        self.unwound.extend(stacks.stacks_of(std::mem::take(&mut self.waiting)));
        self.waiting_bytes = 0;
    }

    /// The looks between two times, with the numbers of their stacks, and what run.json says of them; none where no runtime is known.
    pub(super) fn rows(
        &mut self,
        stacks: &mut Stacks,
        (start_ns, end_ns): (u64, u64),
    ) -> Option<(meta::Routines, Vec<RoutineRow>)> {
        if self.said.versions.is_empty() && self.said.notes.is_empty() {
            return None;
        }
        self.unwind_all(stacks);
        let last = self.steady.values().filter(|steady| !steady.is_kept);
        let last: Vec<Look> = last.map(|steady| Look { row: steady.last, unwound: None }).collect();
        let row = |look: &Look| {
            let unwound = look.unwound.and_then(|at| self.unwound.get(at));
            RoutineRow { stack: unwound.map_or(look.row.stack, |number| number + 1), ..look.row }
        };
        let within = |look: &&Look| (start_ns..=end_ns).contains(&look.row.ts_ns);
        let mut rows: Vec<RoutineRow> = self.looks.iter().chain(&last).filter(within).map(row).collect();
        rows.sort_by_key(|row| row.ts_ns);
        Some((meta::Routines { looks: rows.len() as u64, ..self.said.clone() }, rows))
    }

    /// Forgets what was seen before a time, with the stacks that nothing later refers to.
    pub(super) fn forget(&mut self, until_ns: u64) {
        self.looks.retain(|look| look.row.ts_ns >= until_ns);
        let used: BTreeSet<usize> = self.looks.iter().filter_map(|look| look.unwound).collect();
        let place_of: FxHashMap<usize, usize> = used.iter().enumerate().map(|(to, &from)| (from, to)).collect();
        self.last_of.retain(|_, (_, _, stack)| match place_of.get(stack) {
            Some(&to) => {
                *stack = to;
                true
            }
            None => false,
        });
        self.looks
            .iter_mut()
            .for_each(|look| look.unwound = look.unwound.and_then(|from| place_of.get(&from).copied()));
        // Those that wait come behind the others, before and after.
        let is_used = |at: &usize| used.contains(at);
        let unwound = self.unwound.len();
        let mut at = 0..;
        self.unwound.retain(|_| at.next().as_ref().is_some_and(is_used));
        let mut at = unwound..;
        self.waiting.retain(|_| at.next().as_ref().is_some_and(is_used));
        self.waiting_bytes = self.waiting.iter().map(|raw| raw.bytes.len()).sum();
    }
}

/// The tasks of asyncio in a process whose CPython is known.
fn asyncio_of(pid: u32, runtime: u64, layout: &'static Layout) -> Tasks {
    match Asyncio::find(&OfProcess(pid), runtime, layout) {
        Some(asyncio) => Tasks::Asyncio(Box::new(asyncio)),
        None => Tasks::NoAsyncio { runtime, layout, asked: Instant::now() },
    }
}

/// CPU time of this thread: while others have the core, a look takes nothing.
fn own_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
