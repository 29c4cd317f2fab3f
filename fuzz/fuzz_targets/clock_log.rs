//! Fuzzes the clock log and what goes between the counter and a run's timeline; no panic that gets out, no hang.
//! Run with `scripts/fuzz.sh 60 clock_log`.

#![no_main]

#[path = "../pt.rs"]
#[allow(dead_code, reason = "the other targets use the rest")]
mod pt;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    pt::quiet();
    pt::clock_log(data);
});
