//! A diagnosis for which a part of the messages was divided is the one for which all were.

use std::path::{Path, PathBuf};

use tailsight_diagnose::{Inputs, Options, RecordingFacts, Selection, diagnose_with};
use tailsight_lifetime::{Analysis, Leg, PathPart, Without};
use tailsight_trace::Run;

/// Recordings of real servers (scripts/record-golden.sh of the crate that has them).
fn golden() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tailsight-lifetime/tests/golden");
    let runs = std::fs::read_dir(folder).expect("the golden runs").map(|run| run.expect("a run").path());
    let mut runs: Vec<PathBuf> = runs.filter(|run| run.join("run.json").exists()).collect();
    runs.sort();
    runs
}

/// The diagnosis as JSON, of what was divided.
fn json(run: &Run, analysis: &Analysis, options: &Options, selection: Option<&Selection>) -> String {
    let paths = analysis.to_paths();
    let path = |id, leg, part: PathPart<'_>| paths.part(id, leg, part);
    let inputs = Inputs { path: Some(&path), samples: Some(&run.samples), selection, ..Inputs::default() };
    match diagnose_with(&analysis.lifetimes, options, &RecordingFacts::default(), &inputs) {
        Ok((diagnosis, _)) => serde_json::to_string_pretty(&diagnosis).expect("JSON"),
        Err(why) => why.to_string(),
    }
}

#[test]
fn what_is_not_looked_into_changes_nothing() {
    let runs = golden();
    assert!(runs.len() >= 6, "{runs:?}");
    let (mut diagnosed, mut spared) = (0, 0);
    for dir in runs {
        let whole = Analysis::of(&mut Run::open(&dir).expect("a run")).expect("its events");
        let n = whole.lifetimes.messages.len() as f64;
        // The least that makes a cohort, where the run is small.
        let least = (21.0 / n).max(0.05);
        for (leg, focus, estimated) in [
            (Leg::Total, (1.0 - least, 1.0), 10_000),
            (Leg::Total, (1.0 - least, 1.0), 20),
            (Leg::Receive, (0.8 - least, 0.8), 5),
            (Leg::Service, (1.0 - least, 1.0), 0),
            // Too few messages: no causes.
            (Leg::Total, (0.9999, 1.0), 100),
        ] {
            // Fewer are compared than the references of the larger runs hold.
            let (reference, compared) = ((0.4, 0.4 + least), 20);
            let options = Options { leg, focus, estimated, compared, reference, ..Options::default() };
            let mut run = Run::open(&dir).expect("a run");
            let mut selected = None;
            let some = Analysis::of_some(&mut run, Without::default(), |messages, _, _| {
                let selection = Selection::of(messages, &options);
                let read = selection.read(messages, &options);
                selected = Some(selection);
                read
            });
            let some = some.expect("its events");
            let divided = some.lifetimes.messages.iter().filter(|m| some.lifetimes.is_divided(m.id)).count();
            let question = (dir.display(), leg, focus, estimated);
            let (answer, expected) =
                (json(&run, &some, &options, selected.as_ref()), json(&run, &whole, &options, None));
            assert_eq!(answer, expected, "{question:?}");
            diagnosed += usize::from(answer.starts_with('{'));
            spared += usize::from(divided * 4 < 3 * some.lifetimes.messages.len());
        }
    }
    assert!(diagnosed >= 20 && spared >= 8, "{diagnosed} diagnoses, {spared} of them of a part of the messages");
}

#[test]
#[should_panic(expected = "was not divided into parts")]
fn parts_that_were_not_asked_for_are_not_none() {
    let mut run = Run::open(&golden()[0]).expect("a run");
    let analysis = Analysis::of_some(&mut run, Without::default(), |messages, _, _| vec![false; messages.len()])
        .expect("its events");
    analysis.lifetimes.part_slice(0, Leg::Receive);
}
