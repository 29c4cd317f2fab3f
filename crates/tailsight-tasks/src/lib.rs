//! Tasks of runtimes in the memory of a process: what each waits for, and where. Goroutines of Go, tasks of Python's asyncio.
//!
//! In: a [`Memory`], which reads the process from outside, and the version of the runtime. Out: [`go::Saved`] goroutines, [`asyncio::Task`]s.
//! Nothing of the process is changed, and nothing of it is trusted: whatever the bytes are, what is read of them is bounded, and what does
//! not look like a task is none. Where things are depends on the version ([`go::LAYOUTS`], [`cpython::LAYOUTS`]); of another version nothing
//! is read.

pub mod asyncio;
pub mod cpython;
pub mod go;
mod memory;

pub use memory::Memory;
