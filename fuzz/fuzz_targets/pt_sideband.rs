//! Fuzzes the records beside an Intel PT trace: tasks, switches, mappings, sections of trace. None may cause a panic that is not caught, or a hang.
//! Run with `scripts/fuzz.sh 60 pt_sideband`.

#![no_main]

#[path = "../pt.rs"]
#[allow(dead_code, reason = "the other targets use the rest")]
mod pt;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    pt::quiet();
    pt::sideband(data);
});
