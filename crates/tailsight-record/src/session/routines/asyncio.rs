//! Tasks of `asyncio`: which ones a process has, and where those that wait do so.
//!
//! In: the memory of a process that runs CPython. Out: [`Task`]s, with the places in code that wait for each other, and their functions. A
//! task that waits for another one waits where that one does.

use rustc_hash::FxHashMap;
use tailsight_trace::routines::State;
use tailsight_trace::samples::FrameRow;

use super::cpython::{Function, Layout, members, type_name, type_of};
use super::memory::{Memory, half, word};

/// Tasks of a process that are looked at.
const MOST_TASKS: usize = 1_000;
/// Functions of a task that wait for each other.
const MOST_FRAMES: usize = 32;
/// Functions whose names are kept.
const MOST_FUNCTIONS: usize = 10_000;
/// Where a wrapper has what it wraps, and a weak reference what it refers to.
const WRAPPED: usize = 16;

/// What a type is, as far as it matters to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `asyncio.Task`.
    Task,
    /// `asyncio.Future`.
    Future,
    /// What waits for another one: a coroutine, a generator.
    Coroutine,
    /// What is put around one.
    Wrapper,
    Other,
}

/// The tasks of a process.
#[derive(Debug)]
pub(super) struct Asyncio {
    layout: &'static Layout,
    /// The dictionary of which task each loop runs.
    running: u64,
    /// The set of weak references to all tasks.
    tasks: u64,
    kinds: FxHashMap<u64, Kind>,
    functions: FxHashMap<u64, Option<Function>>,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    /// Its address.
    pub address: u64,
    pub state: State,
    /// Of one that waits: the places in code that wait for each other, outermost first.
    pub places: Vec<Place>,
}

/// Where a coroutine waits: its code, and the instruction.
pub(super) type Place = (u64, u64);

/// What a turn saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub tasks: Vec<Task>,
    /// Tasks that were too many.
    pub left_out: usize,
    /// Tasks that went on while they were looked at.
    pub torn: usize,
}

/// A task's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    state: u32,
    waits_for: u64,
    coroutine: u64,
}

/// A way from a task to what it waits for.
struct Walk {
    /// The task that it is in.
    of: Head,
    /// Outermost first.
    places: Vec<Place>,
}

impl Asyncio {
    /// Where a process has its tasks; none while it has not loaded `asyncio`, or where its memory is not as the layout says.
    pub(super) fn find(memory: &impl Memory, runtime: u64, layout: &'static Layout) -> Option<Asyncio> {
        let names = layout.module(memory, runtime, "_asyncio")?;
        let running = layout.value(memory, names, "_current_tasks")?;
        // 3.12 has those apart that run at once when they are made.
        let all = ["_scheduled_tasks", "_all_tasks"].iter().find_map(|name| layout.value(memory, names, name))?;
        let tasks = layout.first_attribute(memory, all, "data")?;
        let is = |address: u64, name: &str| {
            let kind = memory.read(address, 16).as_deref().and_then(type_of)?;
            (type_name(memory, kind)? == name).then_some(())
        };
        is(tasks, "set")?;
        is(running, "dict")?;
        Some(Asyncio { layout, running, tasks, kinds: FxHashMap::default(), functions: FxHashMap::default() })
    }

    /// Where the programs find which task runs.
    pub(super) fn running(&self) -> u64 {
        self.running
    }

    /// What all tasks are at. None where they cannot be read.
    pub(super) fn look(&mut self, memory: &impl Memory) -> Option<Seen> {
        let mut seen = Seen::default();
        let mut references = members(memory, self.tasks)?;
        seen.left_out = references.len().saturating_sub(MOST_TASKS);
        references.truncate(MOST_TASKS);
        let referred: Vec<(u64, usize)> = references.iter().map(|at| (at.wrapping_add(WRAPPED as u64), 8)).collect();
        let addresses: Vec<u64> =
            memory.read_each(&referred).iter().flatten().filter_map(|bytes| word(bytes, 0)).collect();
        let heads = self.heads(memory, &addresses);
        let waited: Vec<Option<(Kind, u32)>> = {
            let futures: Vec<u64> = heads.iter().map(|head| head.map_or(0, |head| head.waits_for)).collect();
            self.futures(memory, &futures)
        };
        let mut waiting: Vec<(u64, Head)> = vec![];
        for ((&address, head), waited) in addresses.iter().zip(&heads).zip(waited) {
            let Some(head) = head.filter(|head| head.state == 0) else { continue };
            let is_done = matches!(waited, Some((Kind::Task | Kind::Future, state)) if state != 0);
            // What it waited for is done: its turn comes. Of what is no future nothing tells whether it is done.
            if head.waits_for == 0 || is_done {
                seen.tasks.push(Task { address, state: State::Runnable, places: vec![] });
            } else {
                waiting.push((address, head));
            }
        }
        let places = self.places(memory, &waiting);
        let addresses: Vec<u64> = waiting.iter().map(|&(address, _)| address).collect();
        let afterwards = self.heads(memory, &addresses);
        for (((address, head), places), after) in waiting.into_iter().zip(places).zip(afterwards) {
            // It went on meanwhile: what was read may be of two waits.
            if after != Some(head) || places.is_empty() {
                seen.torn += 1;
            } else {
                seen.tasks.push(Task { address, state: State::Waiting, places });
            }
        }
        Some(seen)
    }

    /// The words of tasks; none of what is no task.
    fn heads(&mut self, memory: &impl Memory, addresses: &[u64]) -> Vec<Option<Head>> {
        let layout = self.layout;
        let places: Vec<(u64, usize)> = addresses.iter().map(|&at| (at, layout.task_bytes())).collect();
        let read = memory.read_each(&places);
        let mut head = |bytes: &[u8]| {
            let is_task = self.kind(memory, type_of(bytes)?) == Kind::Task;
            let state = half(bytes, layout.task_state)?;
            let (waits_for, coroutine) = (word(bytes, layout.waits_for)?, word(bytes, layout.coroutine)?);
            is_task.then_some(Head { state, waits_for, coroutine })
        };
        read.into_iter().map(|bytes| bytes.as_deref().and_then(&mut head)).collect()
    }

    /// What tasks wait for: what kind it is, and its state where it is a future.
    fn futures(&mut self, memory: &impl Memory, addresses: &[u64]) -> Vec<Option<(Kind, u32)>> {
        let bytes = self.layout.task_state + 4;
        let read = memory.read_each(&addresses.iter().map(|&at| (at, bytes)).collect::<Vec<_>>());
        let of = |bytes: Option<Vec<u8>>| {
            let bytes = bytes?;
            Some((self.kind(memory, type_of(&bytes)?), half(&bytes, self.layout.task_state)?))
        };
        read.into_iter().map(of).collect()
    }

    /// Of tasks that wait, the places that wait for each other, outermost first. All tasks go a step at a time: reading takes a call a step.
    fn places(&mut self, memory: &impl Memory, tasks: &[(u64, Head)]) -> Vec<Vec<Place>> {
        let mut walks: Vec<Walk> = tasks.iter().map(|&(_, head)| Walk { of: head, places: vec![] }).collect();
        let mut next: Vec<(usize, u64)> = tasks.iter().enumerate().map(|(i, (_, head))| (i, head.coroutine)).collect();
        for _ in 0..MOST_FRAMES {
            let bytes = self.layout.coroutine_bytes();
            let read = memory.read_each(&next.iter().map(|&(_, at)| (at, bytes)).collect::<Vec<_>>());
            let step = |((i, at), bytes): ((usize, u64), Option<Vec<u8>>)| {
                Some((i, self.step(memory, &mut walks[i], at, &bytes?)?))
            };
            next = next.into_iter().zip(read).filter_map(step).collect();
            if next.is_empty() {
                break;
            }
        }
        walks.into_iter().map(|walk| walk.places).collect()
    }

    /// What an object on the way waits for: its address; none at the end.
    fn step(&mut self, memory: &impl Memory, walk: &mut Walk, at: u64, bytes: &[u8]) -> Option<u64> {
        match self.kind(memory, type_of(bytes)?) {
            Kind::Coroutine => {
                let suspended = self.layout.suspended(bytes, at)?;
                walk.places.push((suspended.code, suspended.instruction));
                match suspended.awaits {
                    Some(awaits) => Some(awaits),
                    None => memory.word(suspended.awaits_at),
                }
            }
            Kind::Wrapper => word(bytes, WRAPPED),
            // The end: what the task waits for. Where that is another task, it waits where that one does.
            Kind::Task | Kind::Future | Kind::Other => {
                let waited = self.heads(memory, &[walk.of.waits_for]).pop().flatten()?;
                walk.of = waited;
                (waited.state == 0).then_some(waited.coroutine)
            }
        }
    }

    /// The functions of places, innermost first.
    pub(super) fn frames(&mut self, memory: &impl Memory, places: &[Place]) -> Vec<FrameRow> {
        if self.functions.len() >= MOST_FUNCTIONS {
            self.functions.clear();
        }
        let layout = self.layout;
        let frame = |&(code, instruction): &Place| {
            let function = self.functions.entry(code).or_insert_with(|| layout.function(memory, code));
            function.as_ref().map(|function| function.frame(instruction))
        };
        places.iter().rev().filter_map(frame).collect()
    }

    /// What a type is. Types of the interpreter stay where they are; those of the program are none that matter.
    fn kind(&mut self, memory: &impl Memory, kind: u64) -> Kind {
        if self.kinds.len() >= MOST_FUNCTIONS {
            self.kinds.clear();
        }
        let of = || match type_name(memory, kind).as_deref() {
            Some("_asyncio.Task") => Kind::Task,
            Some("_asyncio.Future") => Kind::Future,
            Some("coroutine" | "generator" | "async_generator") => Kind::Coroutine,
            Some("coroutine_wrapper" | "async_generator_asend" | "async_generator_athrow") => Kind::Wrapper,
            _ => Kind::Other,
        };
        *self.kinds.entry(kind).or_insert_with(of)
    }
}
