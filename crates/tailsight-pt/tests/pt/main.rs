//! Decoding compared with what ran, and with what other decoders say about the same file.

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
