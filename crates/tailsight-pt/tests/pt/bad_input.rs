//! Recordings that lack something, made from the lab's: each gives a clear error or a counted loss.

use std::path::Path;

use tailsight_pt::{Error, Gap, Places, Recording, Summary};

/// `PERF_RECORD_AUXTRACE_INFO`, and words of its body: perf's numbers of them.
const TRACE_INFO: u32 = 70;
const INFO_WORDS: usize = 17;
const USER_TIME_ZERO: usize = 4;

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn good() -> Vec<u8> {
    std::fs::read(fixtures().join("tsc/perf.data")).unwrap()
}

/// Where the record with the trace's description begins: type, misc, size.
fn info(of: &[u8]) -> usize {
    let size = (8 + 8 + 8 * INFO_WORDS) as u16;
    let head = [&TRACE_INFO.to_le_bytes()[..], &0u16.to_le_bytes(), &size.to_le_bytes()].concat();
    of.windows(8).position(|w| w == head).unwrap()
}

/// The recording, and the folder of its file: the trace is read from it later.
fn open(bytes: &[u8]) -> Result<(Recording, tempfile::TempDir), Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    std::fs::write(&path, bytes).unwrap();
    let recording = Recording::open(&path, &Places { roots: vec![fixtures()], ..Places::default() })?;
    Ok((recording, dir))
}

fn transfers(of: &Recording) -> (Vec<(u32, bool, u64, u64)>, Summary) {
    let mut out = Vec::new();
    let summary = of.transfers(tailsight_pt::index::PIECE, |t| out.push((t.tid, t.call, t.from, t.to))).unwrap();
    (out, summary)
}

#[test]
fn trace_without_its_description_is_refused() {
    let mut bytes = good();
    let at = info(&bytes);
    // A record of the clock (TIME_CONV), which does not describe a trace.
    bytes[at..at + 4].copy_from_slice(&79u32.to_le_bytes());
    let error = open(&bytes).map(drop).unwrap_err();
    assert!(matches!(error, Error::NoTrace { .. }) && error.to_string().contains("AUXTRACE_INFO"), "{error}");
}

#[test]
fn a_trace_whose_counter_says_no_time_is_refused_with_what_to_do() {
    let mut bytes = good();
    let at = info(&bytes) + 16 + 8 * USER_TIME_ZERO;
    assert_eq!(bytes[at], 1);
    bytes[at] = 0;
    let error = open(&bytes).map(drop).unwrap_err();
    assert!(matches!(error, Error::NoClock { .. }) && error.to_string().contains("clocksource"), "{error}");
}

/// Intel's decoder has work-arounds for models that it knows; it decodes others by the manual.
#[test]
fn the_trace_of_an_unknown_model_is_decoded() {
    let (mut recording, _dir) = open(&good()).unwrap();
    let (decoded, _) = transfers(&recording);
    recording.sideband.info.cpu = (6, 250, 15);
    let (unknown, summary) = transfers(&recording);
    assert!(summary.errors.is_empty() && !decoded.is_empty());
    assert_eq!(decoded, unknown);
}

/// One overflow after the other, as when a buffer is never emptied in time: each lost interval is counted, and the rest is decoded.
#[test]
fn a_storm_of_overflows_is_counted_and_what_is_between_is_decoded() {
    let bytes = good();
    let (recording, _dir) = open(&bytes).unwrap();
    let (whole, _) = transfers(&recording);
    let psb = [0x02u8, 0x82].repeat(8);
    let places: Vec<usize> = bytes.windows(16).enumerate().filter(|(_, w)| *w == psb).map(|(i, _)| i).collect();
    let mut stormy = bytes;
    let mut storms = 0;
    for pair in places.windows(2).skip(1).step_by(2).filter(|pair| pair[1] - pair[0] > 600) {
        // OVF packets, and no packet that says where tracing goes on.
        for at in (pair[0] + 200..pair[1] - 200).step_by(2) {
            stormy[at..at + 2].copy_from_slice(&[0x02, 0xf3]);
        }
        storms += 1;
    }
    assert!(storms > 2, "{storms} of {} intervals", places.len());
    let (recording, _dir) = open(&stormy).unwrap();
    let (decoded, summary) = transfers(&recording);
    let gaps: u64 = summary.counts.gaps.values().map(|(n, _)| *n).sum();
    assert!(summary.counts.gaps.contains_key(&Gap::Overflow) && gaps >= storms, "{:?}", summary.counts.gaps);
    assert!(
        decoded.len() * 10 > whole.len() * 3 && decoded.len() < whole.len(),
        "{} of {}",
        decoded.len(),
        whole.len()
    );
    // Nothing is invented: each call that is found is in the log, and not more often than there.
    let mut left = std::collections::HashMap::<_, i64>::new();
    whole.iter().for_each(|t| *left.entry(t).or_default() += 1);
    decoded.iter().for_each(|t| *left.entry(t).or_default() -= 1);
    let invented = left.values().filter(|n| **n < 0).count();
    assert_eq!(invented, 0, "{invented} of {}", decoded.len());
}

/// Time does not go back, so a damaged one that is far too late would take the rest of the core's trace with it.
#[test]
fn a_damaged_time_that_is_far_too_late_loses_nothing_else() {
    let counts = |bytes: &[u8]| {
        let (recording, _dir) = open(bytes).unwrap();
        let mut last_ns = 0;
        let summary = recording.decode(None, |event| last_ns = event.ns).unwrap();
        (summary.counts.spans, summary.instructions, summary.errors, last_ns)
    };
    let mut bytes = good();
    let whole = counts(&bytes);
    let packet = [0x19, 0x4c, 0x0f, 0x01, 0x00, 0x01, 0x00, 0x00];
    let at = bytes.windows(packet.len()).position(|w| w == packet).unwrap();
    bytes[at + 7] = 0xc8;
    assert_eq!(counts(&bytes), whole);
}
