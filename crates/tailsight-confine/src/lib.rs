//! Rights that a process gives up, none of which can be taken back: capabilities, its user, system calls, memory and time.
//!
//! In: what it still needs. Out: nothing, or why the kernel refused.

pub mod capabilities;
pub mod filter;
pub mod limits;
pub mod user;
