//! What was decoded against what ran, and against what others say of the same file.

mod bad_input;
mod fuzzed;
mod gate;
mod import;
mod lldb;
mod real;
mod script;
mod sideband;
mod vm;

#[path = "../fixtures/unpack.rs"]
mod unpack;
