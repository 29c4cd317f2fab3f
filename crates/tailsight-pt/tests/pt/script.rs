//! What perf printed of the lab's recordings, against our own decoding of them: the same functions are entered and left by each thread,
//! in the same order.
//!
//! The text is made here and now by the machine's perf; without one these tests skip. perf estimates times between timing packets by
//! counting instructions, ours do not: times agree to within the packets that the fixture has, and not to the nanosecond.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tailsight_pt::import::{self, Output};
use tailsight_pt::{Error, Event, Gap, Places, Recording, Script, Summary, What};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Fields with which every function and thread is known.
const ALL_FIELDS: &str = "comm,pid,tid,cpu,time,event,flags,ip,sym,symoff,addr,dso";
/// Those that magic-trace asks perf for.
const MAGIC_TRACE: &str = "pid,tid,time,flags,ip,addr,sym,symoff";

/// What perf prints, in a file. `None`: there is no perf.
fn text(name: &str, itrace: &str, fields: &str, more: &[&str]) -> Option<tempfile::NamedTempFile> {
    if let Some(why) = tailsight_testing::lacks_program("perf") {
        tailsight_testing::skip(why);
        return None;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let status = Command::new("perf")
        .args(["script", "-i"])
        .arg(fixtures().join(name).join("perf.data"))
        .arg("--symfs")
        .arg(fixtures())
        .args([itrace, "--ns", "-F", fields])
        .args(more)
        .stdout(file.reopen().unwrap())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    Some(file)
}

/// By thread: when, entered or left, the function's name.
type Spans = BTreeMap<u32, Vec<(u64, bool, String)>>;

fn spans(events: &[Event], summary: &Summary) -> Spans {
    let mut out = Spans::new();
    for event in events {
        let (enter, f) = match event.what {
            What::Enter(f, _) => (true, f),
            What::Leave(f) => (false, f),
            _ => continue,
        };
        let name = summary.functions[f as usize].function.clone();
        out.entry(event.tid).or_default().push((event.ns, enter, name));
    }
    out
}

fn of_text(file: &Path) -> (Spans, Summary) {
    let script = Script::open(file).unwrap();
    let mut events = Vec::new();
    let summary = script.decode(|event| events.push(*event)).unwrap();
    (spans(&events, &summary), summary)
}

fn ours(name: &str) -> (Spans, Summary) {
    let places = Places { roots: vec![fixtures()], ..Places::default() };
    let recording = Recording::open(&fixtures().join(name).join("perf.data"), &places).unwrap();
    let mut events = Vec::new();
    let summary = recording.decode(None, |event| events.push(*event)).unwrap();
    (spans(&events, &summary), summary)
}

/// The same spans in the same order; gives how far apart two times of the same event are at most, ns.
fn same(a: &Spans, b: &Spans, what: &str) -> u64 {
    let mut apart = 0;
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>(), "{what}");
    for (tid, a) in a {
        let b = &b[tid];
        assert!(a.len() > 200);
        for (i, (x, y)) in a.iter().zip(b).enumerate() {
            assert_eq!((x.1, &x.2), (y.1, &y.2), "{what}: thread {tid}, event {i} of {}", a.len());
            apart = apart.max(x.0.abs_diff(y.0));
        }
        // The thread that has the core at the end leaves its functions; without switches that is the thread of the last branch.
        assert!(b.len() >= a.len() && b[a.len()..].iter().all(|(_, enter, _)| !enter), "{what}: thread {tid}");
    }
    apart
}

#[test]
fn all_branches_that_perf_prints_give_our_spans() {
    for name in ["tsc", "cycles", "compressed"] {
        let (ours, _) = ours(name);
        for (fields, more) in [(ALL_FIELDS, &["--show-switch-events"][..]), (ALL_FIELDS, &[]), (MAGIC_TRACE, &[])] {
            let Some(file) = text(name, "--itrace=be", fields, more) else { return };
            assert!(Script::is_one(file.path()));
            let (theirs, summary) = of_text(file.path());
            let apart = same(&ours, &theirs, &format!("{name} {fields}"));
            println!("{name} {fields}: times differ by up to {apart} ns");
            assert!(apart < 5_000, "{name}: {apart} ns");
            assert!(summary.errors.is_empty() && summary.counts.gaps.is_empty(), "{:?}", summary.errors);
            assert_eq!(summary.counts.unnamed, 0);
        }
    }
}

/// Calls and returns alone do not show jumps: of the two functions that jump into each other only those that then return are seen; each
/// other one is entered as often by each thread as in ours.
#[test]
fn calls_and_returns_alone_give_the_same_functions() {
    let count = |spans: &Spans| {
        let mut out: BTreeMap<(u32, String), u64> = BTreeMap::new();
        for (tid, of_thread) in spans {
            let entered = of_thread.iter().filter(|(_, enter, _)| *enter);
            entered.for_each(|(.., name)| *out.entry((*tid, name.clone())).or_default() += 1);
        }
        out
    };
    for name in ["tsc", "cycles", "compressed"] {
        let Some(file) = text(name, "--itrace=cre", ALL_FIELDS, &[]) else { return };
        let (theirs, _) = of_text(file.path());
        let (ours, _) = ours(name);
        let (theirs, ours) = (count(&theirs), count(&ours));
        let jumped_into = |key: &&(u32, String)| ["even", "odd"].contains(&key.1.as_str());
        let different: Vec<_> =
            ours.iter().filter(|(key, n)| !jumped_into(key) && theirs.get(*key) != Some(n)).collect();
        assert!(different.is_empty(), "{name}: {different:?}");
        assert!(theirs.keys().all(|key| ours.contains_key(key)) && theirs.keys().any(|key| jumped_into(&key)));
    }
}

#[test]
fn an_overflow_that_perf_reports_is_a_gap() {
    let Some(file) = text("overflow", "--itrace=be", ALL_FIELDS, &["--show-switch-events"]) else { return };
    let (_, summary) = of_text(file.path());
    assert_eq!(summary.counts.gaps[&Gap::Overflow].0, 1, "{:?}", summary.counts.gaps);
}

#[test]
fn a_text_becomes_a_run_and_one_without_flags_is_refused_with_the_command() {
    let Some(file) = text("cycles", "--itrace=be", ALL_FIELDS, &["--show-switch-events"]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let output = Output { dir: dir.path(), shared: true, version: "test" };
    let imported = import::alone(&Script::open(file.path()).unwrap(), output).unwrap();
    let run = tailsight_trace::Run::open(dir.path()).unwrap();
    assert_eq!((run.meta.source.as_str(), run.meta.target.app.as_str()), ("intel-pt", "two-threads"));
    assert!(imported.functions.iter().any(|f| f.function == "fibonacci" && f.calls > 10 && f.own_ns > 0));
    let Some(file) = text("cycles", "--itrace=be", "comm,pid,tid,cpu,time,event,ip,sym,symoff,addr,dso", &[]) else {
        return;
    };
    assert!(Script::is_one(file.path()));
    let error = Script::open(file.path()).unwrap_err();
    assert!(
        matches!(error, Error::Text { .. }) && error.to_string().contains("perf script --itrace=be --ns -F"),
        "{error}"
    );
    assert!(!Script::is_one(&fixtures().join("cycles/perf.data")) && !Script::is_one(&fixtures().join("two-threads")));
}
