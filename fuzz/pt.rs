// What a fuzzer's bytes mean for the readers of Intel PT recordings, shared by the fuzz targets and by the ordinary tests of
// tailsight-pt (which include this file, so that it also runs where no fuzzer is).
//
// In: bytes. Out: nothing; whatever they are, no panic gets out, spans nest, and time does not go back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tailsight_pt::{By, Event, Places, Recording, What};
use tailsight_trace::clock_log::{Clock, ClockChangeRow, ClockLog};

/// A recording of the lab: sideband, then trace of two cores.
const GOOD: &[u8] = include_bytes!("../crates/tailsight-pt/tests/fixtures/tsc/perf.data");
/// Where the first trace begins in it.
const TRACE: usize = 15288;
/// Where the trace, and with it the records, end.
const END: usize = 22744;
/// Header and attributes.
const FRONT: usize = 392;

/// The panics of the libraries behind the reader are caught by it: the fuzzer is not to end at them. A panic that gets out ends it all
/// the same.
pub fn quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

thread_local! {
    /// One file a thread, in memory where the machine has such a place: tests run beside one another in one process, and a recording reads
    /// its file again for each decoder.
    static FILE: PathBuf = {
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let dir = tempfile::Builder::new().prefix("tailsight-fuzz-").tempdir_in(base);
        dir.expect("a temporary directory").keep().join("perf.data")
    };
}

/// A whole perf.data file.
pub fn container(data: &[u8]) {
    let Ok(container) = tailsight_pt::container::Container::of_bytes(data) else { return };
    let _ = container.records(|_| {});
    decode(data);
}

/// Records in front of good trace: each is type (1 byte), how its header's `misc` is (1), 8-byte words of payload (1), and the payload.
/// Without any, the good recording's own.
pub fn sideband(data: &[u8]) {
    decode(&with_records(data));
}

/// A recording with these records; the good one's `AUXTRACE_INFO` comes first, unless one of them is another.
pub fn with_records(mut data: &[u8]) -> Vec<u8> {
    const MISC: [u16; 8] = [0, 1, 2, 1 << 13, 1 << 14, 1 << 14 | 2, 3 << 13, 0xffff];
    let mut file = GOOD[..FRONT].to_vec();
    file.extend(&GOOD[FRONT..FRONT + 152]);
    while let [kind, misc, words, rest @ ..] = data {
        let n = (8 * usize::from(*words)).min(rest.len() / 8 * 8);
        file.extend(u32::from(*kind).to_le_bytes());
        file.extend(MISC[usize::from(*misc) % MISC.len()].to_le_bytes());
        file.extend((8 + n as u16).to_le_bytes());
        file.extend(&rest[..n]);
        data = &rest[n..];
    }
    file.extend(&GOOD[TRACE..END]);
    let size = (file.len() - FRONT) as u64;
    file[48..56].copy_from_slice(&size.to_le_bytes());
    // The header's features would be elsewhere now.
    file[72..104].fill(0);
    file
}

/// The good recording's own records as [`sideband`] takes them: a first input.
#[allow(dead_code, reason = "for the seeds and a test")]
pub fn good_records() -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), FRONT + 152);
    while at < TRACE {
        let misc = match u16::from_le_bytes([GOOD[at + 4], GOOD[at + 5]]) {
            0x2000 => 3,
            0x6000 => 6,
            2 => 2,
            _ => 0,
        };
        let size = usize::from(u16::from_le_bytes([GOOD[at + 6], GOOD[at + 7]]));
        out.extend([GOOD[at], misc, (size / 8 - 1) as u8]);
        out.extend(&GOOD[at + 8..at + size]);
        at += size;
    }
    out
}

/// The good recording with other bytes in its trace: each change is a place (2 bytes), a length (1, below 16), and what is there now.
/// Whatever that makes, three decoders give the same events, counts, instructions and errors: ours, our blocks with libipt's packets, and
/// libipt's blocks.
/// One difference is allowed: where packets cannot be followed up to a synchronisation point, ours goes on from that point; libipt, which
/// has read it already, from the next one. So what differs behind the first gap is left out.
pub fn packets(data: &[u8]) {
    let file = with_packets(data);
    decode(&file);
    let Some(mut recording) = open(&file) else { return };
    let mut decoded = |by: By| {
        recording.by = by;
        let mut events = Vec::new();
        let summary = recording.decode(None, |event| events.push(*event)).ok();
        (events, summary.map(|s| (s.counts, s.instructions, s.errors)))
    };
    let ours = decoded(By::Ours);
    for by in [By::LibiptPackets, By::Libipt] {
        let theirs = decoded(by);
        let (Some(of_ours), Some(of_theirs)) = (&ours.1, &theirs.1) else {
            panic!("{by:?}: a decoder did not get to the end");
        };
        if ours != theirs && !of_ours.2.is_empty() && !of_theirs.2.is_empty() {
            assert_eq!(before_a_gap(&ours.0), before_a_gap(&theirs.0), "{by:?}");
            continue;
        }
        let at = ours.0.iter().zip(&theirs.0).position(|(a, b)| a != b);
        assert_eq!(at.map(|at| (at, ours.0[at], theirs.0[at])), None, "{by:?}");
        assert_eq!(ours.0.len(), theirs.0.len(), "{by:?}");
        assert_eq!(of_ours, of_theirs, "{by:?}");
    }
}

/// The events before the first gap.
fn before_a_gap(events: &[Event]) -> &[Event] {
    let gap = events.iter().position(|event| matches!(event.what, What::Gap(_)));
    &events[..gap.unwrap_or(events.len())]
}

/// A recording with these changes.
pub fn with_packets(mut data: &[u8]) -> Vec<u8> {
    let mut file = GOOD.to_vec();
    while let [low, high, n, rest @ ..] = data {
        let n = usize::from(*n % 16).min(rest.len());
        let at = TRACE + usize::from(u16::from_le_bytes([*low, *high])) % (END - TRACE - 16);
        file[at..at + n].copy_from_slice(&rest[..n]);
        data = &rest[n..];
    }
    file
}

fn open(data: &[u8]) -> Option<Recording> {
    let file = FILE.with(PathBuf::clone);
    std::fs::write(&file, data).expect("the file can be written");
    let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/tailsight-pt/tests/fixtures"));
    let fixtures = if fixtures.is_dir() {
        fixtures.to_owned()
    } else {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
    };
    let places = Places { roots: vec![fixtures], ..Places::default() };
    Recording::open(&file, &places).ok()
}

/// Decodes a recording: spans nest, and time does not go back.
pub fn decode(data: &[u8]) {
    let Some(recording) = open(data) else { return };
    let (mut open, mut last) = (BTreeMap::<(u32, u32), Vec<u32>>::new(), 0);
    let summary = recording.decode(None, |event| {
        assert!(event.ns >= last || event.ns == 0, "time goes back: {} after {last}", event.ns);
        last = last.max(event.ns);
        let stack = open.entry((event.tid, if event.tid == 0 { event.cpu } else { 0 })).or_default();
        match event.what {
            What::Enter(f, _) => stack.push(f),
            What::Leave(f) => assert_eq!(stack.pop(), Some(f), "spans nest"),
            _ => {}
        }
    });
    if let Ok(summary) = summary {
        assert!(open.values().flatten().all(|f| (*f as usize) < summary.functions.len()));
    }
}

/// A clock log: rows of 60 bytes, then counters of 8 bytes that are asked for, the number of rows first (1 byte). Also the rows of
/// `clocks.arrow`, as a run without a log has them.
pub fn clock_log(data: &[u8]) {
    let [n, rest @ ..] = data else { return };
    let mut words = rest.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
    let mut rows = Vec::new();
    for _ in 0..*n % 32 {
        let Some(first) = words.next() else { break };
        let mut word = || words.next().unwrap_or(0);
        let both = word();
        rows.push(ClockChangeRow {
            seq: first as u32,
            shift: (first >> 32) as u32,
            mult: both as u32,
            cycle_last: word(),
            monotonic_s: word(),
            monotonic_shifted_ns: word(),
            realtime_s: word(),
            realtime_shifted_ns: word(),
            tai_s: both >> 32,
            tai_shifted_ns: word(),
        });
    }
    let log = ClockLog::new(rows.iter().copied());
    assert!(log.rows().len() <= rows.len() && log.is_empty() == log.rows().is_empty());
    let _ = log.judge();
    let clock = tailsight_pt::sideband::TscClock { shift: 10, mult: 512, zero: 7 };
    let compared = |r: &ClockChangeRow| tailsight_trace::tables::ClockRow {
        monotonic_ns: r.monotonic_s,
        tsc: r.cycle_last,
        bracket_ns: r.realtime_s,
        ..Default::default()
    };
    let mut compared: Vec<_> = rows.iter().map(compared).collect();
    compared.sort_by_key(|r| r.tsc);
    let log = Box::new(log);
    let mut lines = vec![tailsight_pt::Timeline::Log(log.clone())];
    if compared.len() > 1 {
        lines.push(tailsight_pt::Timeline::Compared(compared));
    }
    for tsc in words.chain(rows.iter().map(|r| r.cycle_last)) {
        for of in [Clock::Monotonic, Clock::Realtime, Clock::Tai] {
            assert!(log.convert(of, tsc).is_none() || !log.is_empty());
        }
        let _ = log.tsc_at(tsc);
        for line in &lines {
            let _ = line.place(clock, tsc);
            let _ = line.back(clock, tsc);
        }
    }
}
