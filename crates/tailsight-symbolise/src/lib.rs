//! From a sample of a thread to the functions that it was in.
//!
//! In: samples ([`Raw`]: kernel addresses, user registers, the bytes of the user stack) and the processes that they belong to. Out:
//! [`tailsight_trace::tables::Samples`]: call stacks of named frames, each with its module, build id and offset. [`maps`] has what a
//! process had mapped where, [`unwind`] finds the return addresses in the bytes of the stack, and [`resolve`] names them. Stack bytes
//! contain the program's data: only addresses leave [`Stacks::add`], and kernel addresses leave [`Stacks::finish`] as names only.
//!
//! Files of a process are opened through `/proc/PID`, which works for files in containers and for deleted files. Their content is not
//! trusted: it is read in a process that has no rights ([`reader`]), and what that process does not answer has no name.

pub mod cpython;
pub mod debug_files;
pub mod error;
pub mod functions;
pub mod maps;
pub mod own;
mod patience;
pub mod reader;
pub mod resolve;
pub mod stacks;
#[cfg(test)]
mod test_programs;
pub mod unwind;

pub use error::Error;
pub use stacks::{Interpreted, Raw, Stacks};
