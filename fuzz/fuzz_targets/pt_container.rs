//! Fuzzes a perf.data file of Intel PT, and decodes what is left of it; no panic that gets out, no hang.
//! Run with `scripts/fuzz.sh 60 pt_container`.

#![no_main]

#[path = "../pt.rs"]
#[allow(dead_code, reason = "the other targets use the rest")]
mod pt;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    pt::quiet();
    pt::container(data);
});
