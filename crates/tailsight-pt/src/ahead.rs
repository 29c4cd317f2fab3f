//! Decodes pieces of trace ahead of where they are needed, on all cores.
//!
//! In: pieces in the order in which they will be needed, approximately. Out: [`Ahead::take`]: a decoded piece. Threads of
//! [`Ahead::work`] decode the next ones meanwhile; a caller that takes a piece which no thread has begun decodes it itself.
//! A bounded number of decoded pieces is in memory.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::Error;
use crate::container::Queue;
use crate::decode::{self, Decoded, Setting, Spaces, Step};
use crate::index::Piece;
use crate::memory::Memory;

/// A piece to decode. A long recording has many.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// It begins at this time, ns, or later.
    pub ns: u64,
    /// Where.
    pub piece: Piece,
    /// Which of the traces it is of, and which of that one's parts.
    pub trace: u32,
    /// See [`Job::trace`].
    pub part: u32,
}

/// The trace of a core, and how it is decoded.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    /// Where it lies.
    pub queue: &'a Queue,
    /// How.
    pub setting: Setting<'a>,
}

/// What a thread that decodes keeps from piece to piece.
pub struct Worker<'a> {
    spaces: Spaces<'a>,
    bytes: Vec<u8>,
}

impl<'a> Worker<'a> {
    /// Of the recording whose memory this is.
    pub fn new(memory: &'a Memory) -> Worker<'a> {
        Worker { spaces: Spaces::new(memory), bytes: Vec::new() }
    }
}

enum Slot {
    Waiting,
    Running,
    Done(Box<Result<Decoded, Error>>),
    Taken,
}

struct State {
    slots: Vec<Slot>,
    /// Before this one, in order, none waits.
    next: usize,
    /// Being decoded ahead, or decoded and not taken.
    held: usize,
    over: bool,
    /// Empty, to be filled again.
    used: Vec<Vec<Step>>,
}

impl State {
    /// The first piece that waits; their number when none does.
    fn next_waiting(&mut self) -> usize {
        while matches!(self.slots.get(self.next), Some(slot) if !matches!(slot, Slot::Waiting)) {
            self.next += 1;
        }
        self.next
    }
}

/// Pieces on their way.
pub struct Ahead<'a> {
    /// The pieces; [`Ahead::take`] takes their numbers in here.
    pub jobs: Vec<Job>,
    traces: Vec<Trace<'a>>,
    file: &'a File,
    path: &'a Path,
    state: Mutex<State>,
    changed: Condvar,
    most: usize,
}

impl<'a> Ahead<'a> {
    /// At most `most` pieces are decoded ahead.
    pub fn new(jobs: Vec<Job>, traces: Vec<Trace<'a>>, file: &'a File, path: &'a Path, most: usize) -> Ahead<'a> {
        let slots = jobs.iter().map(|_| Slot::Waiting).collect();
        let state = Mutex::new(State { slots, next: 0, held: 0, over: false, used: Vec::new() });
        Ahead { jobs, traces, file, path, state, changed: Condvar::new(), most }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Decodes what is next, until nothing is or [`Ahead::stop`] was called.
    pub fn work(&self, worker: &mut Worker<'_>) {
        let mut state = self.state();
        loop {
            if state.over || state.next_waiting() >= state.slots.len() {
                return;
            }
            state = match state.held < self.most {
                true => self.decode_next(state, worker),
                false => self.wait(state),
            };
        }
    }

    /// Decodes the next piece that waits.
    fn decode_next<'s>(&'s self, mut state: MutexGuard<'s, State>, worker: &mut Worker<'_>) -> MutexGuard<'s, State> {
        let number = state.next_waiting();
        state.slots[number] = Slot::Running;
        state.held += 1;
        let used = state.used.pop().unwrap_or_default();
        drop(state);
        let decoded = self.decode(number, worker, used);
        let mut state = self.state();
        state.slots[number] = Slot::Done(Box::new(decoded));
        self.changed.notify_all();
        state
    }

    /// A decoded piece; each can be taken once.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Decoder`].
    pub fn take(&self, number: usize, worker: &mut Worker<'_>) -> Result<Decoded, Error> {
        let mut state = self.state();
        while matches!(state.slots[number], Slot::Running) {
            let helps = state.held < self.most && state.next_waiting() < state.slots.len();
            state = if helps { self.decode_next(state, worker) } else { self.wait(state) };
        }
        match std::mem::replace(&mut state.slots[number], Slot::Taken) {
            Slot::Done(decoded) => {
                state.held -= 1;
                self.changed.notify_all();
                *decoded
            }
            Slot::Waiting => {
                let used = state.used.pop().unwrap_or_default();
                drop(state);
                self.decode(number, worker, used)
            }
            Slot::Running | Slot::Taken => Err(Error::Decoder { why: "a piece of trace was asked for twice".into() }),
        }
    }

    /// Steps that were used: what they take of memory is used again.
    pub fn give_back(&self, mut used: Vec<Step>) {
        used.clear();
        let mut state = self.state();
        if used.capacity() > 0 && state.used.len() < self.most {
            state.used.push(used);
        }
    }

    /// Nothing more is needed.
    pub fn stop(&self) {
        self.state().over = true;
        self.changed.notify_all();
    }

    fn decode(&self, number: usize, worker: &mut Worker<'_>, used: Vec<Step>) -> Result<Decoded, Error> {
        let Job { piece, trace, .. } = self.jobs[number];
        let Trace { queue, setting } = self.traces[trace as usize];
        let Worker { spaces, bytes } = worker;
        let decode = || {
            let len = usize::try_from(piece.to - piece.from).unwrap_or(usize::MAX);
            let read = |source| Error::Read { path: self.path.to_owned(), source };
            queue.read(self.file, piece.from, len, bytes).map_err(read)?;
            decode::piece(setting, spaces, bytes, &piece, used)
        };
        // Otherwise the caller would wait for a thread that panicked.
        let panicked = |_| Err(Error::Decoder { why: "it failed on a piece of trace".into() });
        catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(panicked)
    }
}

/// Stops the threads, whichever way the caller ends.
pub struct Stop<'s, 'a>(pub &'s Ahead<'a>);

impl Drop for Stop<'_, '_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
