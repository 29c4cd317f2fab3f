//! The inputs of the fuzz targets without a fuzzer: those that once broke something, and a few of each kind.

#[path = "../../../../fuzz/pt.rs"]
#[allow(dead_code, reason = "quieting panics is for the fuzz targets")]
mod pt;

use std::path::Path;

use proptest::prelude::*;
use tailsight_pt::{Places, Recording};

fn found(of: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions-pt").join(of);
    let files = std::fs::read_dir(folder).into_iter().flatten();
    files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn inputs_that_the_fuzzer_found_are_read() {
    found("container").iter().for_each(|data| pt::container(data));
    found("sideband").iter().for_each(|data| pt::sideband(data));
    found("packets").iter().for_each(|data| pt::packets(data));
    found("clock-log").iter().for_each(|data| pt::clock_log(data));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Whatever is in the trace: no panic, spans nest, time does not go back.
    #[test]
    fn a_trace_with_any_packets_is_read(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        pt::decode(&pt::with_packets(&data));
    }
}

/// The unchanged recording of the fuzz target can be decoded, so its changes reach the decoder.
#[test]
fn the_fuzz_target_of_records_begins_with_a_recording_that_decodes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pt::with_records(&pt::good_records())).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let places = Places { roots: vec![fixtures.clone()], ..Places::default() };
    let spans = |path: &Path| {
        let recording = Recording::open(path, &places).unwrap();
        recording.decode(None, |_| {}).unwrap().counts.spans
    };
    assert_eq!(spans(file.path()), spans(&fixtures.join("tsc/perf.data")));
}
