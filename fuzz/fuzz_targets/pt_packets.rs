//! Fuzzes the packets of an Intel PT trace: whatever they are, the decoders of ours give the same events as libipt's.
//! Run with `scripts/fuzz.sh 60 pt_packets`.

#![no_main]

#[path = "../pt.rs"]
#[allow(dead_code, reason = "the other targets use the rest")]
mod pt;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    pt::quiet();
    pt::packets(data);
});
