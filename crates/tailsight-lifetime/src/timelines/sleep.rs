//! How a thread sleeps, and what it may wait for in that: the one answer, which all later steps ask.
//!
//! In: the system call (what sleeps in it wait for is a fact of the kernel, `tailsight_kernel::syscalls`) and the task's state. Out: [`Sleep`]
//! and its questions. For which message a sleep was, and who held a lock, it does not say.

use tailsight_kernel::syscalls;

use crate::model::Frame;

/// How a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sleep {
    /// The system call it is in, [`crate::model::NO_SYSCALL`] in an exception, `u32::MAX` when not known.
    pub nr: u32,
    /// Uninterruptible.
    pub uninterruptible: bool,
    /// Stopped, traced or frozen.
    pub stopped: bool,
    /// Waits for block I/O.
    pub io: bool,
    /// Its kernel stack: index into the symbols, 0 when it was not taken.
    pub stack: u32,
    /// The innermost of what it was doing besides the system call: reclaim, waiting for a kernel lock.
    pub doing: Option<Frame>,
    /// The innermost traced function that it is in: index into the symbols, 0: in none.
    pub function: u32,
    /// Where in the program: call stack of the run's samples + 1, 0: not known.
    pub place: u32,
}

impl Sleep {
    /// A sleep of which nothing is known.
    pub const UNKNOWN: Sleep = Sleep {
        nr: u32::MAX,
        uninterruptible: false,
        stopped: false,
        io: false,
        stack: 0,
        doing: None,
        function: 0,
        place: 0,
    };

    /// Neither for a disk nor for the kernel itself.
    pub fn is_interruptible(self) -> bool {
        !self.uninterruptible && !self.io
    }

    /// May be for a lock that another thread of the application holds.
    pub fn is_for_a_lock(self) -> bool {
        !self.stopped && !self.io && syscalls::may_wait_for_a_lock(self.nr)
    }

    /// For a lock of a file, by the call's name.
    pub fn is_for_a_file_lock(self) -> bool {
        syscalls::locks_a_file(self.nr)
    }

    /// For whatever comes next, be it work or an answer: nobody has what the thread needs.
    pub fn is_for_what_comes(self) -> bool {
        self.polls() && !self.stopped && self.is_interruptible()
    }

    /// In a call that waits for whatever comes next, if also for a page or in a stop.
    pub fn polls(self) -> bool {
        syscalls::polls(self.nr)
    }

    /// In a call in which only event loops wait, for the next work of any of many descriptors.
    pub fn is_for_work(self) -> bool {
        syscalls::waits_for_work(self.nr)
    }

    /// It slept so when the recording began: in which call is not known.
    pub fn is_in_unknown_call(self) -> bool {
        self.nr == u32::MAX
    }

    /// In a call that waits for data of somebody.
    pub fn is_for_data(self) -> bool {
        syscalls::waits_for_data(self.nr)
    }

    /// In a call that may wait for any of several descriptors: an event loop's for its next work, or a client's for one answer.
    pub fn may_be_for_any_of_several(self) -> bool {
        syscalls::may_wait_for_any_of_several(self.nr)
    }

    /// For whoever takes what was written before.
    pub fn is_for_room(self) -> bool {
        syscalls::waits_for_room(self.nr) && self.is_interruptible()
    }

    /// For a point in time, by the call's name.
    pub fn is_for_a_time(self) -> bool {
        syscalls::wait(self.nr) == Some(syscalls::Wait::Time)
    }

    /// In the same call at the same place of the program.
    pub fn is_as(self, other: Sleep) -> bool {
        self.nr == other.nr && self.place == other.place
    }
}
