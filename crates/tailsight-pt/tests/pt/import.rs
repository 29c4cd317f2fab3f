//! A recording as a run: alone, and between the events of a run whose clock is another.

use std::path::Path;

use tailsight_pt::import::{self, Output};
use tailsight_pt::{Error, Places, Recording};
use tailsight_trace::clock_log::ClockChangeRow;
use tailsight_trace::event::Kind;
use tailsight_trace::fields::Function;
use tailsight_trace::meta::{RunMeta, State};
use tailsight_trace::write::RunWriter;
use tailsight_trace::{Event, FORMAT_VERSION, Run};

fn recording() -> Recording {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let places = Places { roots: vec![fixtures.clone()], ..Places::default() };
    Recording::open(&fixtures.join("cycles/perf.data"), &places).unwrap()
}

fn output(dir: &Path) -> Output<'_> {
    Output { dir, shared: true, version: "test" }
}

/// Every begin has its end on its thread, in order, at the same position of the stack.
fn nests(events: &[Event]) -> usize {
    let mut open: std::collections::BTreeMap<u32, Vec<Function>> = std::collections::BTreeMap::new();
    let mut begins = 0;
    for event in events {
        match event.kind() {
            Some(Kind::FunctionBegin) => {
                begins += 1;
                open.entry(event.tid).or_default().push(Function::of(event));
            }
            Some(Kind::FunctionEnd) => {
                assert_eq!(open.get_mut(&event.tid).and_then(Vec::pop), Some(Function::of(event)));
            }
            _ => {}
        }
    }
    // A thread that was switched out when the recording ended is still in its last function.
    assert!(open.values().all(|functions| functions.len() < 5), "{open:?}");
    begins
}

#[test]
fn alone_it_is_a_run_with_the_names_of_its_functions_and_no_messages() {
    let dir = tempfile::tempdir().unwrap();
    let imported = import::alone(&recording(), output(dir.path())).unwrap();
    let mut run = Run::open(dir.path()).unwrap();
    assert_eq!((run.meta.state, run.meta.source.as_str()), (State::Complete, "intel-pt"));
    assert_eq!(run.meta.target.app, "two-threads");
    let names: Vec<&str> = run.meta.traced.as_ref().unwrap().functions.iter().map(|f| f.name.as_str()).collect();
    assert!(names.contains(&"fibonacci") && names.contains(&"slow_path"), "{names:?}");
    assert!(run.meta.warnings.iter().any(|w| w.contains("times are known in steps of")), "{:?}", run.meta.warnings);
    let mut events: Vec<Event> = run.events().unwrap().into_iter().flat_map(|cpu| cpu.events).collect();
    events.sort_by_key(|event| event.ts);
    assert!(run.partial.is_empty(), "{:?}", run.partial);
    assert_eq!(nests(&events) as u64, imported.summary.counts.spans);
    // Own times do not overlap: their sum is less than the recording, since one thread ran at a time.
    let own: u64 = imported.functions.iter().map(|f| f.own_ns).sum();
    let (first, last) = imported.summary.span_ns.unwrap();
    assert!(own > 0 && own < last - first, "{own} of {}", last - first);
    assert!(imported.functions.iter().all(|f| f.own_ns <= f.total_ns || f.function == "fibonacci"));
}

/// A run whose CLOCK_MONOTONIC runs from 5 s at counter 0, two ticks a nanosecond as the recording's.
fn run(dir: &Path, seconds: u64, log: bool) {
    let (start_ns, end_ns) = (seconds * 1_000_000_000, (seconds + 10) * 1_000_000_000);
    let mut meta =
        RunMeta { format: "tailsight-run".into(), version: FORMAT_VERSION, start_ns, end_ns, ..RunMeta::default() };
    let mut writer = RunWriter::create_in(dir, &meta, true).unwrap();
    let switch = Event { ts: 7_200_000_000, kind: Kind::SchedSwitch as u8, tid: 9, a: 9, ..Event::default() };
    writer.events(0, &[switch]).unwrap();
    writer.tasks(&[]).unwrap();
    writer.sockets(&[]).unwrap();
    writer.clocks(&[]).unwrap();
    let row = |seq, s: u64| ClockChangeRow {
        seq,
        cycle_last: s * 2_000_000_000,
        mult: 512,
        shift: 10,
        monotonic_s: 5 + s,
        ..ClockChangeRow::default()
    };
    if log {
        writer.clock_log(&[row(2, 1), row(4, 2), row(6, 3)]).unwrap();
    }
    meta.state = State::Complete;
    writer.finish(&mut meta).unwrap();
}

#[test]
fn with_a_run_the_functions_lie_on_its_timeline_between_its_events() {
    let (source, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(source.path(), 5, true);
    let recording = recording();
    let imported = import::with(&recording, &mut Run::open(source.path()).unwrap(), None, output(to.path())).unwrap();
    assert_eq!((imported.outside, imported.clock_error_ns), (0, 1));
    let mut run = Run::open(to.path()).unwrap();
    assert_eq!(run.clock_log.len(), 3);
    let cores = run.events().unwrap();
    assert!(cores.iter().any(|c| c.events.iter().any(|e| e.kind() == Some(Kind::SchedSwitch))), "the run's own event");
    let mut events: Vec<Event> = cores.into_iter().flat_map(|cpu| cpu.events).collect();
    events.sort_by_key(|event| event.ts);
    assert_eq!(nests(&events) as u64, imported.summary.counts.spans);
    // The recording's first tick is 2^32: perf says 1 s + 2^31 ns, the run says 5 s + 2^31 ns.
    let begins = events.iter().find(|e| e.kind() == Some(Kind::FunctionBegin)).unwrap();
    assert!(begins.ts.abs_diff(5_000_000_000 + (1 << 31)) < 10_000, "{}", begins.ts);
}

#[test]
fn a_run_of_another_time_or_without_the_counter_is_refused_with_its_reason() {
    let (source, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(source.path(), 500, true);
    let refused = |dir: &Path| {
        let error = import::with(&recording(), &mut Run::open(dir).unwrap(), None, output(to.path())).unwrap_err();
        assert!(matches!(error, Error::With { .. }));
        error.to_string()
    };
    assert!(refused(source.path()).contains("recorded at the same time"));
    let source = tempfile::tempdir().unwrap();
    run(source.path(), 5, false);
    assert!(refused(source.path()).contains("time-stamp counter"));
}
