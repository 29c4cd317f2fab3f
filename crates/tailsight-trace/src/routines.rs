//! Looks at tasks of runtimes while messages waited (goroutines, tasks of asyncio): routines.arrow, of runs that were recorded with samples.

use serde::{Deserialize, Serialize};

/// [`RoutineRow::since_ns`] of a task that had no message, and ended waits of those that have.
pub const NO_MESSAGE: u64 = u64::MAX;

/// One look (routines.arrow).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutineRow {
    /// When, CLOCK_MONOTONIC ns.
    pub ts_ns: u64,
    /// Its process.
    pub pid: u32,
    /// The goroutine or task, as in the event RoutineSeen.
    pub routine: u64,
    /// When a goroutine received what it had not answered yet, CLOCK_MONOTONIC ns; 0: which message a task has the look does not tell;
    /// [`NO_MESSAGE`]: none.
    pub since_ns: u64,
    /// What it was at.
    pub state: State,
    /// Where it waited: the number of its call stack in sample_stacks.arrow, plus 1. 0: it did not wait.
    pub stack: u32,
}

/// What a task is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum State {
    /// It could run, and no thread of its runtime runs it.
    Runnable = 1,
    /// A thread runs it.
    #[default]
    Running = 2,
    /// It is in a system call.
    InSyscall = 3,
    /// It waits for a lock, a channel, a connection, a time: until another task or the runtime makes it runnable.
    Waiting = 4,
}

impl State {
    /// The state with this number.
    pub fn from_u8(number: u8) -> Option<State> {
        [State::Runnable, State::Running, State::InSyscall, State::Waiting].into_iter().find(|s| *s as u8 == number)
    }
}
