//! Fuzzes the run reader and what builds lifetimes from what it read: no panic, no hang, no memory without bound.
//! Run with `cargo +nightly fuzz run run_reader -- -max_len=65536 -rss_limit_mb=1024 -timeout=10`.

#![no_main]

#[path = "../harness.rs"]
#[allow(dead_code, reason = "packing is for the seeds")]
mod harness;

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

/// One directory a process, in memory where the machine has such a place.
static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = PathBuf::from("/dev/shm");
    let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let dir = tempfile::Builder::new().prefix("tailsight-fuzz-").tempdir_in(base);
    dir.expect("a temporary directory").keep()
});

fuzz_target!(|data: &[u8]| harness::read_run(&DIR, data));
