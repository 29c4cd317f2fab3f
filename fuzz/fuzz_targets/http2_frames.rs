//! Fuzzes the HTTP/2 client with requests under way: no panic, no hang, bounded memory, the same replies whatever the cut.
//! Run with `scripts/fuzz.sh 60 http2_frames`.

#![no_main]

#[path = "../http2.rs"]
mod http2;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| http2::read(data));
