//! Fuzzes what an agent and its coordinator read from each other: requests for a load, records, summaries; no panic, no hang.
//! Run with `scripts/fuzz.sh 60 agent_messages`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| tailsight_agent::read_any(data));
