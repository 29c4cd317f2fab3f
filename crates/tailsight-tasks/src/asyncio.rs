//! Tasks of `asyncio`: which ones a process has, and where those that wait do so.
//!
//! In: the memory of a process that runs CPython. Out: [`Task`]s, with the places in code that wait for each other, and their functions. A
//! task that waits for another one waits where that one does.

use rustc_hash::FxHashMap;
use tailsight_trace::routines::State;
use tailsight_trace::samples::FrameRow;

use crate::cpython::{Functions, Layout, members, type_name, type_of};
use crate::memory::{Memory, half, word};

/// Tasks of a process that are looked at.
const MOST_TASKS: usize = 1_000;
/// Functions of a task that wait for each other.
const MOST_FRAMES: usize = 32;
/// Functions whose names are kept.
const MOST_TYPES: usize = 10_000;
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
pub struct Asyncio {
    layout: &'static Layout,
    /// The dictionary of which task each loop runs.
    running: u64,
    /// The set of weak references to all tasks.
    tasks: u64,
    kinds: FxHashMap<u64, Kind>,
    functions: Functions,
    /// The words of each task that waited when it was last looked at. One that waits for the same since is worth a walk: most waits are over
    /// before the next look, and a handler may be fifteen functions deep, each a call of the kernel away.
    waited: FxHashMap<u64, Head>,
    /// Of those that were walked: their words, and the way. Whether it is what it was is one call for all of them.
    walks: FxHashMap<u64, (Head, Walk)>,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its address.
    pub address: u64,
    /// Waiting for something, or in line for the loop.
    pub state: State,
    /// Of one that waits: the places in code that wait for each other, outermost first.
    pub places: Vec<Place>,
}

/// Where a coroutine waits: its code, and the instruction.
pub type Place = (u64, u64);

/// The tasks as they were in one turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Tasks that are not done.
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
#[derive(Debug)]
struct Walk {
    /// The task that it is in.
    head: Head,
    /// Outermost first.
    places: Vec<Place>,
    /// What was read on it, and where: as long as that is the same, so is the way.
    read: Vec<(u64, Vec<u8>)>,
}

impl Asyncio {
    /// Where a process has its tasks; none while it has not loaded `asyncio`, or where its memory is not as the layout says.
    pub fn find(memory: &impl Memory, runtime: u64, layout: &'static Layout) -> Option<Asyncio> {
        let names = layout.module(memory, runtime, "_asyncio")?;
        let running = layout.value(memory, names, "_current_tasks")?;
        // 3.12 has those apart that run at once when they are made.
        let set_of_tasks =
            ["_scheduled_tasks", "_all_tasks"].iter().find_map(|name| layout.value(memory, names, name))?;
        let tasks = layout.first_attribute(memory, set_of_tasks, "data")?;
        let is = |address: u64, name: &str| {
            let kind = memory.read(address, 16).as_deref().and_then(type_of)?;
            (type_name(memory, kind)? == name).then_some(())
        };
        is(tasks, "set")?;
        is(running, "dict")?;
        let functions = Functions::new(layout);
        let (kinds, waited, walks) = (FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
        Some(Asyncio { layout, running, tasks, kinds, functions, waited, walks })
    }

    /// Where the programs find which task runs.
    pub fn running(&self) -> u64 {
        self.running
    }

    /// What all tasks are at, but for those that did not wait for the same at the last look. None where they cannot be read.
    pub fn look(&mut self, memory: &impl Memory) -> Option<Snapshot> {
        let mut snapshot = Snapshot::default();
        let mut references = members(memory, self.tasks)?;
        snapshot.left_out = references.len().saturating_sub(MOST_TASKS);
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
                snapshot.tasks.push(Task { address, state: State::Runnable, places: vec![] });
            } else {
                waiting.push((address, head));
            }
        }
        let waited = std::mem::replace(&mut self.waited, waiting.iter().copied().collect());
        waiting.retain(|(address, head)| waited.get(address) == Some(head));
        let places = self.places(memory, &waiting);
        let addresses: Vec<u64> = waiting.iter().map(|&(address, _)| address).collect();
        let afterwards = self.heads(memory, &addresses);
        for (((address, head), places), after) in waiting.into_iter().zip(places).zip(afterwards) {
            // It went on meanwhile: what was read may be of two waits.
            if after != Some(head) || places.is_empty() {
                snapshot.torn += 1;
            } else {
                snapshot.tasks.push(Task { address, state: State::Waiting, places });
            }
        }
        Some(snapshot)
    }

    /// The words of tasks; none of what is no task.
    fn heads(&mut self, memory: &impl Memory, addresses: &[u64]) -> Vec<Option<Head>> {
        let places: Vec<(u64, usize)> = addresses.iter().map(|&at| (at, self.layout.task_bytes())).collect();
        let read = memory.read_each(&places);
        read.into_iter().map(|bytes| self.head(memory, &bytes?)).collect()
    }

    /// A task's own words in its bytes; none of what is no task.
    fn head(&mut self, memory: &impl Memory, bytes: &[u8]) -> Option<Head> {
        let layout = self.layout;
        let is_task = self.kind(memory, type_of(bytes)?) == Kind::Task;
        let state = half(bytes, layout.task_state)?;
        let (waits_for, coroutine) = (word(bytes, layout.waits_for)?, word(bytes, layout.coroutine)?);
        is_task.then_some(Head { state, waits_for, coroutine })
    }

    /// What tasks wait for: what kind it is, and its state where it is a future.
    fn futures(&mut self, memory: &impl Memory, addresses: &[u64]) -> Vec<Option<(Kind, u32)>> {
        let bytes = self.layout.task_state + 4;
        let read = memory.read_each(&addresses.iter().map(|&at| (at, bytes)).collect::<Vec<_>>());
        let kind_and_state = |bytes: Option<Vec<u8>>| {
            let bytes = bytes?;
            Some((self.kind(memory, type_of(&bytes)?), half(&bytes, self.layout.task_state)?))
        };
        read.into_iter().map(kind_and_state).collect()
    }

    /// Of tasks that wait, the places that wait for each other, outermost first.
    fn places(&mut self, memory: &impl Memory, tasks: &[(u64, Head)]) -> Vec<Vec<Place>> {
        let mut remembered = self.unchanged(memory, tasks);
        let new: Vec<(u64, Head)> =
            tasks.iter().filter(|(address, _)| !remembered.contains_key(address)).copied().collect();
        let walked = self.walk(memory, &new);
        remembered.extend(new.iter().zip(walked).map(|(&(address, head), walk)| (address, (head, walk))));
        self.walks = remembered;
        let places = |address: &u64| self.walks.get(address).map_or(vec![], |(_, walk)| walk.places.clone());
        tasks.iter().map(|(address, _)| places(address)).collect()
    }

    /// The ways from tasks that are as they were at the last look. All of them are read in one call.
    fn unchanged(&mut self, memory: &impl Memory, tasks: &[(u64, Head)]) -> FxHashMap<u64, (Head, Walk)> {
        let mut last = std::mem::take(&mut self.walks);
        let of_same_head =
            |&(address, head): &(u64, Head)| last.remove_entry(&address).filter(|(_, (was, _))| *was == head);
        let candidates: Vec<(u64, (Head, Walk))> = tasks.iter().filter_map(of_same_head).collect();
        let objects = candidates.iter().flat_map(|(_, (_, walk))| &walk.read);
        let mut read = memory.read_each(&objects.map(|(at, bytes)| (*at, bytes.len())).collect::<Vec<_>>()).into_iter();
        let mut is_same = |(_, (_, walk)): &(u64, (Head, Walk))| {
            let now: Vec<Option<Vec<u8>>> = read.by_ref().take(walk.read.len()).collect();
            walk.read.iter().zip(&now).all(|((_, before), now)| now.as_ref() == Some(before))
        };
        candidates.into_iter().filter(|candidate| is_same(candidate)).collect()
    }

    /// The ways from tasks to what they wait for. All tasks go a step at a time: reading takes a call a step.
    fn walk(&mut self, memory: &impl Memory, tasks: &[(u64, Head)]) -> Vec<Walk> {
        let begin = |&(_, head): &(u64, Head)| Walk { head, places: vec![], read: vec![] };
        let mut walks: Vec<Walk> = tasks.iter().map(begin).collect();
        let mut next: Vec<(usize, u64)> = tasks.iter().enumerate().map(|(i, (_, head))| (i, head.coroutine)).collect();
        for _ in 0..MOST_FRAMES {
            let bytes = self.layout.coroutine_bytes();
            let read = memory.read_each(&next.iter().map(|&(_, at)| (at, bytes)).collect::<Vec<_>>());
            let step = |((i, at), bytes): ((usize, u64), Option<Vec<u8>>)| {
                Some((i, self.step(memory, &mut walks[i], at, bytes?)?))
            };
            next = next.into_iter().zip(read).filter_map(step).collect();
            if next.is_empty() {
                break;
            }
        }
        walks
    }

    /// What an object on the way waits for: its address; none at the end.
    fn step(&mut self, memory: &impl Memory, walk: &mut Walk, at: u64, bytes: Vec<u8>) -> Option<u64> {
        let kind = self.kind(memory, type_of(&bytes)?);
        let next = match kind {
            Kind::Coroutine => self.layout.suspended(&bytes, at).and_then(|suspended| {
                walk.places.push((suspended.code, suspended.instruction));
                match suspended.awaits {
                    Some(awaits) => Some(awaits),
                    None => {
                        let awaits = memory.read(suspended.awaits_at, 8)?;
                        let address = word(&awaits, 0);
                        walk.read.push((suspended.awaits_at, awaits));
                        address
                    }
                }
            }),
            Kind::Wrapper => word(&bytes, WRAPPED),
            // The end: what the task waits for. Where that is another task, it waits where that one does.
            Kind::Task | Kind::Future | Kind::Other => {
                let waits_for = walk.head.waits_for;
                let words = memory.read(waits_for, self.layout.task_bytes());
                let waited = words.as_deref().and_then(|words| self.head(memory, words));
                walk.read.extend(words.map(|words| (waits_for, words)));
                waited.and_then(|waited| {
                    walk.head = waited;
                    (waited.state == 0).then_some(waited.coroutine)
                })
            }
        };
        walk.read.push((at, bytes));
        next
    }

    /// The functions of places, innermost first.
    pub fn frames(&mut self, memory: &impl Memory, places: &[Place]) -> Vec<FrameRow> {
        places.iter().rev().filter_map(|&place| self.functions.frame(memory, place)).collect()
    }

    /// What a type is. Types of the interpreter stay where they are; those of the program are none that matter.
    fn kind(&mut self, memory: &impl Memory, kind: u64) -> Kind {
        if self.kinds.len() >= MOST_TYPES {
            self.kinds.clear();
        }
        let named_kind = || match type_name(memory, kind).as_deref() {
            Some("_asyncio.Task") => Kind::Task,
            Some("_asyncio.Future") => Kind::Future,
            Some("coroutine" | "generator" | "async_generator") => Kind::Coroutine,
            Some("coroutine_wrapper" | "async_generator_asend" | "async_generator_athrow") => Kind::Wrapper,
            _ => Kind::Other,
        };
        *self.kinds.entry(kind).or_insert_with(named_kind)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::cpython::LAYOUTS;

    /// Memory of a CPython 3.11 that is made by hand.
    #[derive(Default)]
    struct Heap {
        objects: BTreeMap<u64, Vec<u8>>,
    }

    impl Memory for Heap {
        fn read_each(&self, places: &[(u64, usize)]) -> Vec<Option<Vec<u8>>> {
            let read = |&(address, bytes): &(u64, usize)| {
                let (&begin, object) = self.objects.range(..=address).next_back()?;
                let from = usize::try_from(address - begin).ok()?;
                // What is behind an object is another one.
                let mut out = object.get(from..)?.to_vec();
                out.resize(bytes.max(out.len()), 0);
                out.truncate(bytes);
                (from < object.len()).then_some(out)
            };
            places.iter().map(read).collect()
        }
    }

    impl Heap {
        /// An object with these numbers at these places; where it is.
        fn object(&mut self, bytes: usize, words: &[(usize, u64)]) -> u64 {
            let address = self.objects.last_key_value().map_or(0x10_0000, |(at, object)| at + object.len() as u64 + 64);
            let address = address.next_multiple_of(64);
            self.objects.insert(address, vec![0; bytes]);
            words.iter().for_each(|&(at, word)| self.set(address, at, word));
            address
        }

        fn set(&mut self, address: u64, at: usize, word: u64) {
            self.objects.get_mut(&address).unwrap()[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }

        fn bytes(&mut self, contents: &[u8]) -> u64 {
            let address = self.object(contents.len() + 1, &[]);
            self.objects.get_mut(&address).unwrap()[..contents.len()].copy_from_slice(contents);
            address
        }

        fn kind(&mut self, name: &str) -> u64 {
            let name = self.bytes(format!("{name}\0").as_bytes());
            self.object(40, &[(24, name)])
        }

        /// A text of ASCII: kind 1, compact, ascii.
        fn text(&mut self, text: &str) -> u64 {
            let address = self.object(48 + text.len(), &[(16, text.len() as u64), (32, 1 << 2 | 1 << 5 | 1 << 6)]);
            self.objects.get_mut(&address).unwrap()[48..].copy_from_slice(text.as_bytes());
            address
        }

        fn dictionary(&mut self, kind: u64, entries: &[(u64, u64)]) -> u64 {
            let mut words: Vec<(usize, u64)> = vec![(8, 3 << 8 | 1 << 16), (24, entries.len() as u64)];
            for (i, &(key, value)) in entries.iter().enumerate() {
                words.extend([(40 + 16 * i, key), (48 + 16 * i, value)]);
            }
            let keys = self.object(40 + 16 * entries.len(), &words);
            self.object(48, &[(8, kind), (16, entries.len() as u64), (32, keys)])
        }

        /// A function's code with one entry in its table of lines: all instructions are of the line after the first.
        fn code(&mut self, name: &str, file: &str, first_line: u32) -> u64 {
            let (name, file) = (self.text(name), self.text(file));
            let table =
                self.object(40, &[(16, 3), (32, u64::from_le_bytes([0x80 | 11 << 3 | 7, 0, 0, 0, 0, 0, 0, 0]))]);
            self.object(248, &[(72, u64::from(first_line)), (112, file), (128, name), (136, table)])
        }

        fn coroutine(&mut self, kind: u64, code: u64, awaits: u64) -> u64 {
            // The frame's state is one byte: suspended.
            let frame = 80;
            self.object(
                frame + 80,
                &[
                    (8, kind),
                    (72, 0xff << 24),
                    (frame + 32, code),
                    (frame + 56, code + 184 + 4),
                    (frame + 64, 1),
                    (frame + 72, awaits),
                ],
            )
        }
    }

    struct Program {
        heap: Heap,
        runtime: u64,
        tasks: Vec<u64>,
        set: u64,
        future: u64,
    }

    /// A program with three tasks: one that waits for a lock, one that waits for that task, one whose turn it is.
    fn program() -> Program {
        let mut heap = Heap::default();
        let [task, future, iterator, coroutine, set, dict] =
            ["_asyncio.Task", "_asyncio.Future", "_asyncio.FutureIter", "coroutine", "set", "dict"]
                .map(|n| heap.kind(n));
        let lock = heap.object(96, &[(8, future)]);
        let waits = heap.object(24, &[(8, iterator)]);
        let acquire = heap.code("Lock.acquire", "/usr/lib/python3.11/asyncio/locks.py", 90);
        let lookup = heap.code("lookup", "/srv/shop/server.py", 40);
        let outer = heap.code("outer", "/srv/shop/server.py", 60);
        let inner = heap.coroutine(coroutine, acquire, waits);
        let lookup = heap.coroutine(coroutine, lookup, inner);
        let outer = heap.coroutine(coroutine, outer, waits);
        let first = heap.object(176, &[(8, task), (128, lock), (136, lookup)]);
        let second = heap.object(176, &[(8, task), (128, first), (136, outer)]);
        let third = heap.object(176, &[(8, task), (136, outer)]);
        let done = heap.object(176, &[(8, task), (88, 1), (136, outer)]);
        let tasks = vec![first, second, third];
        let references: Vec<u64> =
            [first, second, third, done].into_iter().map(|task| heap.object(64, &[(16, task)])).collect();
        let mut table: Vec<(usize, u64)> = vec![];
        for (i, &reference) in references.iter().enumerate() {
            table.extend([(16 * i, reference), (16 * i + 8, 77)]);
        }
        let table = heap.object(16 * 8, &table);
        let members = heap.object(72, &[(8, set), (32, 7), (40, table)]);
        let values = heap.object(8, &[(0, members)]);
        // Its values are four words before it.
        let weak = heap.object(64, &[(0, values)]) + 32;
        let running = heap.dictionary(dict, &[]);
        let names = [("_all_tasks", weak), ("_current_tasks", running)].map(|(name, value)| (heap.text(name), value));
        let names = heap.dictionary(dict, &names);
        let module = heap.object(24, &[(16, names)]);
        let modules = [(heap.text("sys"), module), (heap.text("_asyncio"), module)];
        let modules = heap.dictionary(dict, &modules);
        let interpreter = heap.object(1000, &[(888, modules)]);
        let runtime = heap.object(100, &[(48, interpreter)]);
        Program { heap, runtime, tasks, set: table, future: lock }
    }

    fn named(frames: &[FrameRow]) -> Vec<(&str, &str, bool)> {
        frames.iter().map(|f| (f.function.as_str(), f.source.as_str(), f.own)).collect()
    }

    #[test]
    fn a_task_waits_where_the_functions_are_that_wait_for_each_other() {
        let Program { mut heap, runtime, tasks, future, .. } = program();
        let mut asyncio = Asyncio::find(&heap, runtime, &LAYOUTS[0]).unwrap();
        let first = asyncio.look(&heap).unwrap();
        assert_eq!(first.tasks.len(), 1, "the others may go on before the next look");
        let snapshot = asyncio.look(&heap).unwrap();
        assert_eq!((snapshot.torn, snapshot.left_out), (0, 0));
        let states: Vec<(u64, State)> = snapshot.tasks.iter().map(|task| (task.address, task.state)).collect();
        let waiting = [tasks[0], tasks[1]].map(|task| (task, State::Waiting));
        assert_eq!(states, [&[(tasks[2], State::Runnable)][..], &waiting].concat());
        let lock = asyncio.frames(&heap, &snapshot.tasks[1].places);
        let expected = [("asyncio.locks.Lock.acquire", "locks.py:91", false), ("server.lookup", "server.py:41", true)];
        assert_eq!(named(&lock), expected);
        // The second one waits for the first.
        let other = asyncio.frames(&heap, &snapshot.tasks[2].places);
        assert_eq!(named(&other), [&expected[..], &[("server.outer", "server.py:61", true)]].concat());
        // The lock was given: it is the loop that it waits for.
        heap.set(future, 88, 1);
        let snapshot = asyncio.look(&heap).unwrap();
        let first = snapshot.tasks.iter().find(|task| task.address == tasks[0]).unwrap();
        assert_eq!(first.state, State::Runnable);
    }

    /// Counts the calls.
    struct Counted<'a> {
        heap: &'a Heap,
        calls: std::cell::Cell<usize>,
    }

    impl Memory for Counted<'_> {
        fn read_each(&self, places: &[(u64, usize)]) -> Vec<Option<Vec<u8>>> {
            self.calls.set(self.calls.get() + 1);
            self.heap.read_each(places)
        }
    }

    /// A look at FastAPI's tasks, each fifteen functions deep, came every 30 ms: what is allowed was used up by walking the same ways again.
    #[test]
    fn what_is_as_it_was_is_not_walked_again_and_what_is_not_is() {
        let Program { mut heap, runtime, tasks, .. } = program();
        let mut asyncio = Asyncio::find(&heap, runtime, &LAYOUTS[0]).unwrap();
        let look = |asyncio: &mut Asyncio, heap: &Heap| {
            let memory = Counted { heap, calls: 0.into() };
            (asyncio.look(&memory).unwrap(), memory.calls.get())
        };
        asyncio.look(&heap).unwrap();
        let (first, calls) = look(&mut asyncio, &heap);
        let (second, fewer) = look(&mut asyncio, &heap);
        assert_eq!(second, first);
        assert!(fewer + 4 <= calls, "{calls} calls of the kernel at first, {fewer} then");
        // The innermost function of both that wait goes on to another line, at the same address and for the same future.
        let place_of = |snapshot: &Snapshot, task: u64| {
            snapshot.tasks.iter().find(|of_snapshot| of_snapshot.address == task).unwrap().places.clone()
        };
        let innermost = *heap
            .objects
            .iter()
            .find(|(_, object)| word(object, 80 + 56) == Some(place_of(&first, tasks[0])[1].1))
            .unwrap()
            .0;
        let elsewhere = place_of(&first, tasks[0])[1].1 + 8;
        heap.set(innermost, 80 + 56, elsewhere);
        let (third, _) = look(&mut asyncio, &heap);
        assert_eq!(place_of(&third, tasks[0])[1].1, elsewhere);
        assert_eq!(place_of(&third, tasks[1]).last().unwrap().1, elsewhere, "it waits for the first");
        let mut other = Asyncio::find(&heap, runtime, &LAYOUTS[0]).unwrap();
        other.look(&heap).unwrap();
        assert_eq!(third, other.look(&heap).unwrap(), "as who looks for the first time sees it");
        // What is gone is forgotten.
        assert_eq!(asyncio.walks.len(), 2);
    }

    #[test]
    fn what_does_not_look_like_a_task_is_none() {
        let Program { mut heap, runtime, set, .. } = program();
        assert!(Asyncio::find(&heap, runtime, &LAYOUTS[1]).is_none(), "3.12 has its fields elsewhere");
        let mut asyncio = Asyncio::find(&heap, runtime, &LAYOUTS[0]).unwrap();
        // Weak references to nothing, and to what is no task.
        heap.set(set, 0, 0x30);
        heap.set(set, 16, runtime);
        asyncio.look(&heap).unwrap();
        assert_eq!(asyncio.look(&heap).unwrap().tasks.len(), 1);
    }

    #[test]
    fn tasks_that_wait_for_each_other_in_a_circle_have_an_end() {
        let Program { mut heap, runtime, tasks, .. } = program();
        let mut asyncio = Asyncio::find(&heap, runtime, &LAYOUTS[0]).unwrap();
        heap.set(tasks[0], 128, tasks[1]);
        asyncio.look(&heap).unwrap();
        let snapshot = asyncio.look(&heap).unwrap();
        assert!(snapshot.tasks.iter().all(|task| task.places.len() <= MOST_FRAMES));
    }

    proptest! {
        /// Whatever the memory is, it is read to an end, and nothing panics.
        #[test]
        fn any_memory_is_read_to_an_end(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u64>(), 0..3u8), 1..40)) {
            let Program { mut heap, runtime, .. } = program();
            let addresses: Vec<u64> = heap.objects.keys().copied().collect();
            for (object, at, value, how) in changes {
                let address = addresses[object.index(addresses.len())];
                let bytes = heap.objects[&address].len();
                if bytes >= 8 {
                    // Anything, another object, a small number.
                    let value = match how {
                        0 => value,
                        1 => addresses[value as usize % addresses.len()],
                        _ => value % 64,
                    };
                    heap.set(address, at.index(bytes - 7), value);
                }
            }
            for layout in &LAYOUTS {
                if let Some(mut asyncio) = Asyncio::find(&heap, runtime, layout) {
                    asyncio.look(&heap);
                    for task in asyncio.look(&heap).map_or(vec![], |snapshot| snapshot.tasks) {
                        prop_assert!(asyncio.frames(&heap, &task.places).len() <= MOST_FRAMES);
                    }
                }
            }
        }
    }
}
