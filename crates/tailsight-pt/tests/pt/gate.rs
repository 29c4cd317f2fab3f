//! The gate: calls and returns of each thread are the same in the execution's own log, in what perf prints, and here.
//!
//! The files in `tests/fixtures` are made by the lab (`lab pt`): real control flow of a stepped program, **time assigned and not
//! measured**. `perf-script.txt` is what Debian's perf 6.1 printed of each (`scripts/pt-fixtures.sh` makes all of them again).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tailsight_pt::index::PIECE;
use tailsight_pt::{By, Entry, Event, Places, Recording, What, Window};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn open(name: &str) -> Recording {
    let folder = fixture(name);
    let places = Places { roots: vec![folder.parent().unwrap().to_owned()], ..Places::default() };
    Recording::open(&folder.join("perf.data"), &places).unwrap()
}

/// By thread: call or return, from, to.
type Transfers = BTreeMap<u32, Vec<(bool, u64, u64)>>;

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap()
}

/// The execution's own log: transfers, and instructions by thread.
fn log(name: &str) -> (Transfers, BTreeMap<u32, u64>) {
    let text = std::fs::read_to_string(fixture(name).join("log.txt")).unwrap();
    let (mut transfers, mut instructions) = (Transfers::new(), BTreeMap::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let tid: u32 = words[0].parse().unwrap();
        match words[1] {
            "instructions" => drop(instructions.insert(tid, words[2].parse().unwrap())),
            kind => transfers.entry(tid).or_default().push((kind == "call", hex(words[2]), hex(words[3]))),
        }
    }
    (transfers, instructions)
}

/// What perf printed: `tid flags from to`.
fn of_perf(name: &str) -> Transfers {
    let text = std::fs::read_to_string(fixture(name).join("perf-script.txt")).unwrap();
    let mut out = Transfers::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().filter(|w| *w != "=>").collect();
        if let [tid, kind @ ("call" | "return"), from, to] = words[..] {
            out.entry(tid.parse().unwrap()).or_default().push((kind == "call", hex(from), hex(to)));
        }
    }
    out
}

fn ours(recording: &Recording, piece: u64) -> (Transfers, BTreeMap<u32, u64>) {
    let mut out = Transfers::new();
    let summary = recording.transfers(piece, |t| out.entry(t.tid).or_default().push((t.call, t.from, t.to))).unwrap();
    assert!(summary.errors.is_empty(), "{:?}", summary.errors);
    (out, summary.instructions)
}

const ALL: [&str; 3] = ["tsc", "cycles", "compressed"];

#[test]
fn calls_returns_and_instructions_are_those_of_the_execution() {
    for name in ALL {
        let (log, instructions) = log(name);
        assert!(log.len() == 3 && log.values().all(|t| t.len() > 100), "{name}");
        let recording = open(name);
        assert_eq!(ours(&recording, PIECE), (log, instructions), "{name}");
    }
}

#[test]
fn perf_prints_the_same_calls_and_returns() {
    for name in ALL {
        assert_eq!(of_perf(name), log(name).0, "{name}");
    }
}

/// Into however small pieces the trace is cut, nothing between two cuts is lost or counted twice.
#[test]
fn pieces_of_any_size_give_the_same() {
    for name in ALL {
        let recording = open(name);
        let whole = ours(&recording, u64::MAX);
        for piece in [1, 3000] {
            let part = ours(&recording, piece);
            for (tid, whole) in &whole.0 {
                let at = whole.iter().zip(&part.0[tid]).position(|(a, b)| a != b);
                let at = at.map(|i| (i, &whole[i.saturating_sub(1)..i + 2], &part.0[tid][i.saturating_sub(1)..i + 2]));
                assert_eq!(at, None, "{name}: pieces of {piece} bytes, thread {tid}");
            }
            assert_eq!(part, whole, "{name}: pieces of {piece} bytes");
        }
    }
}

/// Ours and libipt's decoders of packets and of blocks give the same events at the same times, whatever is in the trace: also an overflow,
/// damage, a missing program.
#[test]
fn the_decoders_of_libipt_give_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let good = std::fs::read(fixture("compressed").join("perf.data")).unwrap();
    let psb = [0x02u8, 0x82].repeat(8);
    let psbs: Vec<usize> = good.windows(16).enumerate().filter(|(_, w)| *w == psb).map(|(i, _)| i).collect();
    let damaged = |at: usize, by: u8| {
        let mut bad = good.clone();
        bad[at..at + 12].fill(by);
        std::fs::write(&path, &bad).unwrap();
        Recording::open(&path, &Places { roots: vec![fixture("")], ..Places::default() }).unwrap()
    };
    let same = |mut recording: Recording, name: &str| {
        let mut decoded = |by: By| {
            recording.by = by;
            events(&recording, None)
        };
        let (ours, summary) = decoded(By::Ours);
        for by in [By::LibiptPackets, By::Libipt] {
            let (theirs, of_libipt) = decoded(by);
            let at = ours.iter().zip(&theirs).position(|(a, b)| a != b);
            assert_eq!(at.map(|at| (at, ours[at], theirs[at])), None, "{name}, {by:?}");
            assert_eq!(ours.len(), theirs.len(), "{name}, {by:?}");
            assert_eq!(summary.counts, of_libipt.counts, "{name}, {by:?}");
            let (instructions, errors) = (&of_libipt.instructions, &of_libipt.errors);
            assert_eq!((&summary.instructions, &summary.errors), (instructions, errors), "{name}, {by:?}");
        }
        (summary.packets_left_to_libipt, summary.left_to_libipt)
    };
    for name in ALL {
        assert_eq!(same(open(name), name), (0, 0), "{name}: bytes whose packets or blocks only libipt could decode");
    }
    same(open("overflow"), "overflow");
    let nowhere = Recording::open(&fixture("tsc").join("perf.data"), &Places::default()).unwrap();
    same(nowhere, "without its program");
    for psb in &psbs[1..6] {
        for at in [*psb, psb + 50, psb + 200, psb + 333] {
            for by in [0, 0x01, 0x55, 0xd9, 0xff] {
                same(damaged(at, by), &format!("{by:#x} from {at} on"));
            }
        }
    }
}

fn events(recording: &Recording, windows: Option<&[Window]>) -> (Vec<Event>, tailsight_pt::Summary) {
    let mut out = Vec::new();
    let summary = recording.decode(windows, |event| out.push(*event)).unwrap();
    (out, summary)
}

#[test]
fn spans_nest_by_thread_and_have_the_names_of_their_functions() {
    for name in ALL {
        let (events, summary) = events(&open(name), None);
        let name_of = |f: u32| summary.functions[f as usize].function.as_str();
        let mut stacks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut deepest: Vec<&str> = Vec::new();
        let mut last = 0;
        for event in &events {
            assert!(event.ns >= last, "{name}: all cores in order of time");
            last = event.ns;
            let stack = stacks.entry(event.tid).or_default();
            match event.what {
                What::Enter(f, entry) => {
                    assert_ne!(entry, Entry::Interrupt, "the kernel was not traced");
                    stack.push(f);
                    if stack.len() > deepest.len() {
                        deepest = stack.iter().map(|&f| name_of(f)).collect();
                    }
                }
                What::Leave(f) => assert_eq!(stack.pop(), Some(f), "{name}"),
                _ => {}
            }
        }
        // The functions of tail calls took the place of their callers: `handle` goes on in `fibonacci`.
        let fibonacci = deepest.iter().filter(|f| **f == "fibonacci").count();
        assert!(fibonacci >= 3 && ["worker", "begin"].iter().any(|f| deepest.contains(f)), "{name}: {deepest:?}");
        let names: Vec<&str> = summary.functions.iter().map(|f| f.function.as_str()).collect();
        for wanted in ["begin", "worker", "handle", "sort", "up", "down", "slow_path", "even", "odd", "spawn"] {
            assert!(names.contains(&wanted), "{name}: {wanted} of {names:?}");
        }
        assert_eq!((summary.counts.strays, summary.counts.unnamed), (0, 0), "{name}");
        assert!(summary.counts.gaps.is_empty() && summary.decoded_bytes > 0);
    }
}

/// The spans in the middle of a window are those of the whole recording; the time around the window is a gap and not a guess.
#[test]
fn a_window_has_the_spans_of_the_whole() {
    let recording = open("tsc");
    let (whole, whole_summary) = events(&recording, None);
    let (first, last) = whole_summary.span_ns.unwrap();
    let between = |from: u64, to: u64| Window {
        from_ns: first + (last - first) * from / 1000,
        to_ns: first + (last - first) * to / 1000,
    };
    // A long one, and short ones that end in the middle of a piece.
    let windows = [between(500, 560), between(640, 645), between(700, 702), between(703, 704), between(800, 801)];
    let (_, of_one) = events(&recording, Some(&windows[..1]));
    assert!(
        of_one.decoded_bytes * 2 < whole_summary.decoded_bytes,
        "{} of {}",
        of_one.decoded_bytes,
        whole_summary.decoded_bytes
    );
    let (part, summary) = events(&recording, Some(&windows));
    let names = |events: &[Event], summary: &tailsight_pt::Summary| -> Vec<(u64, u32, String)> {
        let inside = events.iter().filter(|e| windows.iter().any(|w| (w.from_ns..w.to_ns).contains(&e.ns)));
        let name = |e: &Event| match e.what {
            What::Enter(f, Entry::Call) => Some((e.ns, e.tid, summary.functions[f as usize].function.clone())),
            _ => None,
        };
        inside.filter_map(name).collect()
    };
    let (part, whole) = (names(&part, &summary), names(&whole, &whole_summary));
    assert!(whole.len() > 20 && part == whole, "{} and {}", part.len(), whole.len());
}

/// Tier 3: a destroyed synchronisation point loses the trace up to the next one and no more, and the loss is counted.
#[test]
fn damaged_trace_is_a_counted_gap_and_decoding_goes_on_behind_it() {
    let good = std::fs::read(fixture("tsc").join("perf.data")).unwrap();
    let psb = [0x02u8, 0x82].repeat(8);
    let places: Vec<usize> = good.windows(16).enumerate().filter(|(_, w)| *w == psb).map(|(i, _)| i).collect();
    assert!(places.len() > 6);
    let (log, _) = log("tsc");
    let count = |t: &Transfers| t.values().map(Vec::len).sum::<usize>();
    let dir = tempfile::tempdir().unwrap();
    for at in [places[2], places[2] + 200, places[3] + 90] {
        let mut bad = good.clone();
        bad[at..at + 12].fill(0xff);
        let path = dir.path().join("perf.data");
        std::fs::write(&path, &bad).unwrap();
        let roots = vec![fixture("")];
        let recording = Recording::open(&path, &Places { roots, ..Places::default() }).unwrap();
        let mut decoded = Transfers::new();
        let summary =
            recording.transfers(PIECE, |t| decoded.entry(t.tid).or_default().push((t.call, t.from, t.to))).unwrap();
        assert!(!summary.errors.is_empty() && summary.counts.gaps.values().any(|(n, _)| *n > 0), "{at}");
        assert!(
            count(&decoded) * 10 > count(&log) * 7 && count(&decoded) < count(&log),
            "{} of {}",
            count(&decoded),
            count(&log)
        );
    }
}

/// Without the program's file nothing of it is decoded, and a message names the file.
#[test]
fn a_missing_program_is_counted_and_named() {
    let path = fixture("tsc").join("perf.data");
    let recording = Recording::open(&path, &Places::default()).unwrap();
    let missing: Vec<_> = recording.memory.missing().collect();
    assert_eq!(missing, [("/two-threads", "not found")]);
    let (_, summary) = events(&recording, None);
    let (gaps, ns) = summary.counts.gaps[&tailsight_pt::Gap::NoCode];
    assert!(gaps > 0 && ns > 0 && summary.counts.spans < 200, "{:?}", summary.counts);
}

/// An overflow: the lost instructions are a gap, the spans around it are right, and no span crosses it.
#[test]
fn an_overflow_is_a_gap_and_never_bridged() {
    let (log, _) = log("overflow");
    let (decoded, _) = ours(&open("overflow"), PIECE);
    let mut different = 0;
    for (tid, truth) in &log {
        let of_thread = &decoded[tid];
        let before = truth.iter().zip(of_thread).take_while(|(a, b)| a == b).count();
        let behind = truth.iter().rev().zip(of_thread.iter().rev()).take_while(|(a, b)| a == b).count();
        if before < truth.len() {
            different += 1;
            // At the edge of the gap a decoder knows a few instructions more or fewer than ran.
            assert!(
                before + behind + 6 >= truth.len().max(of_thread.len()),
                "{before} and {behind} of {}",
                truth.len()
            );
            assert!(before > 0 && behind > 20);
        }
    }
    assert!(different <= 1, "one thread lost instructions");
    let (events, summary) = events(&open("overflow"), None);
    assert_eq!(summary.counts.gaps[&tailsight_pt::Gap::Overflow].0, 1);
    let gap = events.iter().position(|e| e.what == What::Gap(tailsight_pt::Gap::Overflow)).unwrap();
    let tid = events[gap].tid;
    let open = events[..gap].iter().filter(|e| e.tid == tid).fold(0i64, |n, e| match e.what {
        What::Enter(..) => n + 1,
        What::Leave(_) => n - 1,
        _ => n,
    });
    assert_eq!(open, 0, "every span of the thread ended where the gap begins");
}
