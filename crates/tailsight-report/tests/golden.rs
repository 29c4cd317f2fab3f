//! The terminal and the page on recordings of real servers (the golden runs of `tailsight-lifetime`).
//!
//! What must hold whatever is changed in between: rows add up, lines fit, names are words, and no time of the send path is
//! blamed on the application.

use std::path::{Path, PathBuf};

use tailsight_diagnose::categories::Task;
use tailsight_diagnose::model::Diagnosis;
use tailsight_diagnose::{Category, CategoryTable, CauseOf, Inputs, Options, RecordingFacts, diagnose_with};
use tailsight_lifetime::{Analysis, Context, Frame, Leg, PathPart, Role};
use tailsight_report::html;
use tailsight_report::terminal::{Style, diagnosis_of, more};
use tailsight_trace::Run;

const RUNS: [&str; 6] =
    ["memcached-requests", "memcached-tcp", "memcached-udp", "nginx-2-workers", "redis-ipv6", "redis-requests"];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tailsight-lifetime/tests/golden").join(name)
}

fn open(name: &str) -> (Run, Analysis) {
    let mut run = Run::open(&folder(name)).expect("a golden run");
    let analysis = Analysis::of(&mut run).expect("its events");
    (run, analysis)
}

/// The runs are short: the slower half is compared with the faster one.
fn diagnosed(analysis: &Analysis, leg: Leg) -> (Diagnosis, CauseOf) {
    let options = Options { focus: (0.6, 1.0), reference: (0.1, 0.5), leg, more: true, ..Options::default() };
    let path = |id, leg, _: PathPart<'_>| analysis.path(id, leg);
    let beside = Inputs { path: Some(&path), ..Inputs::default() };
    let facts = RecordingFacts { run: "run".into(), cpus: Some(2), ..RecordingFacts::default() };
    let (mut diagnosis, causes) =
        diagnose_with(&analysis.lifetimes, &options, &facts, &beside).expect("enough messages");
    tailsight_advice::fill(&mut diagnosis, &options, &facts);
    (diagnosis, causes)
}

/// Without system-call hooks the call around a send is not seen, and its time was the application's own.
#[test]
fn the_send_path_is_not_the_applications_own_time() {
    let table = CategoryTable::default();
    for name in RUNS {
        let (_, analysis) = open(name);
        let lifetimes = &analysis.lifetimes;
        let (mut sending, mut own) = (0, 0);
        for message in &lifetimes.messages {
            for part in lifetimes.part_slice(message.id, Leg::Transmit) {
                let owner = &lifetimes.owners[part.owner as usize];
                let verdict = table.classify(
                    owner,
                    &Task::default(),
                    Leg::Transmit,
                    part.role,
                    &lifetimes.app,
                    &lifetimes.symbols,
                );
                match verdict.category {
                    Category::TransmitProcessing => sending += part.ns,
                    // Between two send calls of a reply the thread is at its work.
                    _ if owner.frames.contains(&Frame::BetweenSends) => {}
                    // Another thread of the application may have its core meanwhile.
                    Category::AppProcessing if owner.context == Context::Own => own += part.ns,
                    _ => {}
                }
            }
        }
        assert!(sending > 0 && own == 0, "{name}: {sending} ns of sending, {own} ns of the application's own");
    }
    // In a run without these hooks the row has the name of what is done, not of a call that nothing saw.
    let (_, analysis) = open("memcached-requests");
    let (diagnosis, _) = diagnosed(&analysis, Leg::Transmit);
    let rows = diagnosis.causes.iter().chain(&diagnosis.not_significant);
    assert!(rows.into_iter().any(|c| (c.category.as_str(), c.name.as_str()) == ("transmit-processing", "send")));
}

#[test]
fn every_line_fits_and_says_words() {
    for name in RUNS {
        let (run, analysis) = open(name);
        let (diagnosis, _) = diagnosed(&analysis, Leg::Total);
        for width in [60, 80, 100, 120, 140] {
            let style = Style { color: false, width };
            let text = diagnosis_of(&diagnosis, Some(&run.meta), &style) + &more(&diagnosis, &style);
            let copied = |l: &str| l.contains("; do ") || l.contains("undo: ") || l.contains("tailsight ");
            for line in text.lines().filter(|l| !copied(l)) {
                assert!(line.chars().count() <= width, "{name}, {width} columns: {line:?}");
            }
            for raw in ["sibling:", " holds it", "/sleep:", "/sys:", "/softirq:"] {
                assert!(!text.contains(raw), "{name}: {raw} in\n{text}");
            }
        }
    }
}

/// The diagnosis of a run, and its page without timelines and samples.
fn page_of(run: &Run, analysis: &Analysis) -> (Diagnosis, String) {
    let (diagnosis, causes) = diagnosed(analysis, Leg::Total);
    let cause_of = |leg, role: Role, owner| causes.get(&(leg, role, owner)).copied();
    let page = html::report(&html::Input {
        meta: &run.meta,
        lifetimes: &analysis.lifetimes,
        diagnosis: &diagnosis,
        paths: &[],
        cause_of: &cause_of,
        categories: &CategoryTable::default(),
        samples: None,
        stacks: &[],
        against: None,
    });
    (diagnosis, page)
}

#[test]
fn the_page_has_what_the_json_has() {
    let (run, analysis) = open("memcached-requests");
    let (diagnosis, page) = page_of(&run, &analysis);
    let data = super::page::data(&page);
    let whole = serde_json::to_string(&diagnosis).expect("serialises");
    assert!(super::page::text(&page).contains(&whole), "the diagnosis is in the page to the letter");
    assert_eq!(data["titles"].as_array().map(Vec::len), Some(diagnosis.causes.len()));
    assert_eq!(data["chance_titles"].as_array().map(Vec::len), Some(diagnosis.not_significant.len()));
    let typical = diagnosis.typical.as_ref().expect("where a median message spends its time");
    assert_eq!(data["typical_titles"].as_array().map(Vec::len), Some(typical.rows.len()));
    assert!(data["diagnosis"]["legs"]["service"]["p50"].is_u64());
    // Every context of the cores has its words.
    let more = diagnosis.more.as_ref().expect("it was asked for");
    let contexts = more.cores.iter().flatten().flat_map(|c| &c.contexts);
    assert!(contexts.map(|(name, _)| &data["contexts"][name]).all(|words| words.is_string()));
    // One class, and all messages of the focus are of it.
    let classes = data["requests"]["classes"].as_array().expect("recorded with a protocol");
    let number = |key: &str| classes.iter().map(|c| c[key].as_u64().expect("a number")).sum::<u64>();
    assert_eq!((classes[0]["name"].as_str(), number("messages")), (Some("get k16..32"), diagnosis.messages.complete));
    assert_eq!(number("focus"), diagnosis.focus.messages);
    assert!(
        data["requests"]["pairing"].as_str().is_some_and(|p| p.contains("240 by an id or the key")),
        "{}",
        data["requests"]
    );
    // A run without a protocol has none.
    let (run, analysis) = open("memcached-tcp");
    let (_, page) = page_of(&run, &analysis);
    assert!(super::page::data(&page)["requests"].is_null());
}
