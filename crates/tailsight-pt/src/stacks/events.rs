//! What happened on a core, as it is given out.

use crate::gap::Gap;

/// Why a function was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A call was seen.
    Call,
    /// It was running when this began to be known.
    Known,
    /// An interrupt or an exception.
    Interrupt,
    /// A system call.
    SystemCall,
}

/// What happened on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A function was entered: its number in [`Names`].
    Enter(u32, Entry),
    /// The innermost function that is open ended: its number.
    Leave(u32),
    /// Another task runs; `preempted`: the one before would have run on.
    Switch {
        /// Process.
        pid: u32,
        /// Whether the task before was preempted.
        preempted: bool,
    },
    /// Nothing is known from here on.
    Gap(Gap),
    /// Something is known again.
    Resumed,
    /// What runs is not traced (the kernel, when user space only is).
    Off,
    /// It is again.
    On,
}

/// An event of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// perf's time, ns.
    pub ns: u64,
    /// The core; `u32::MAX`: not known.
    pub cpu: u32,
    /// The thread that has it.
    pub tid: u32,
    /// Of a function that is entered or left: whether it is the kernel's.
    pub kernel: bool,
    /// What happened.
    pub what: What,
}

/// A near call or return, as the processor made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The core.
    pub cpu: u32,
    /// The thread.
    pub tid: u32,
    /// A call, else a return.
    pub call: bool,
    /// The instruction.
    pub from: u64,
    /// Where it went.
    pub to: u64,
}
