//! Rights that a process gives up, none of which can be taken back: capabilities, its user, system calls, memory and time; and, to be taken
//! back, its turn on a core.
//!
//! In: what it still needs. Out: nothing, or why the kernel refused.

pub mod capabilities;
pub mod filter;
pub mod limits;
pub mod priority;
pub mod user;
