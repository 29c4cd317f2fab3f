//! Fuzzes the HTTP/2 client with requests under way: no panic, no hang, bounded memory, the same replies whatever the cut.
//! Run with `cargo +nightly fuzz run http2_frames -- -max_len=8192 -rss_limit_mb=512 -timeout=5`.

#![no_main]

#[path = "../http2.rs"]
mod http2;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| http2::read(data));
