//! Fuzzes what an agent and its coordinator read from each other: requests for a load, records, summaries; no panic, no hang.
//! Run with `cargo +nightly fuzz run agent_messages -- -max_len=16384 -rss_limit_mb=512 -timeout=5`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| tailsight_agent::read_any(data));
