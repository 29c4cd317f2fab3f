//! Fuzzes run.json beside the events of a real recording: no panic, no hang, no memory without bound, and what is read adds up.
//! Run with `scripts/fuzz.sh 60 run_json`.

#![no_main]

#[path = "../harness.rs"]
#[allow(dead_code, reason = "the other targets use the rest")]
mod harness;

use libfuzzer_sys::fuzz_target;

const EVENTS: &[u8] = include_bytes!("../../crates/tailsight-lifetime/tests/golden/memcached-udp/events/cpu-0.arrow");
const TASKS: &[u8] = include_bytes!("../../crates/tailsight-lifetime/tests/golden/memcached-udp/tasks.arrow");

fuzz_target!(|data: &[u8]| {
    let run = [(0, data.to_vec()), (1, EVENTS.to_vec()), (3, TASKS.to_vec())];
    harness::read_run(&harness::DIR, &harness::pack(&run));
});
