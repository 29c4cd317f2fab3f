//! Fuzzes the run reader and what builds lifetimes from what it read: no panic, no hang, no memory without bound.
//! Run with `scripts/fuzz.sh 60 run_reader`.

#![no_main]

#[path = "../harness.rs"]
#[allow(dead_code, reason = "packing is for the seeds")]
mod harness;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| harness::read_run(&harness::DIR, data));
