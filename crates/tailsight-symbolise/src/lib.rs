//! From what a sample took of a thread to the functions it was in.
//!
//! In: samples ([`Raw`]: kernel addresses, user registers, the bytes of the user stack) and the processes that they are of. Out:
//! [`tailsight_trace::tables::Samples`]: call stacks of named frames, each with its module, build id and offset. The folders are the
//! way of a sample: [`maps`] says what a process had mapped where, [`unwind`] finds the return addresses in the stack's bytes, and
//! [`resolve`] names them. Stack bytes hold the program's data: nothing of them leaves [`Stacks::add`] but addresses, and
//! addresses of the kernel leave [`Stacks::finish`] as names only.
//!
//! Files of a process are opened through `/proc/PID`, so that those in containers are found, and those that were deleted. What
//! they hold is not trusted: sizes are bounded, and what the libraries below do not stand is a frame without a name.

pub mod debug_files;
pub mod error;
pub mod functions;
pub mod maps;
pub mod resolve;
pub mod stacks;
pub mod unwind;

pub use error::Error;
pub use stacks::{Raw, Stacks};
