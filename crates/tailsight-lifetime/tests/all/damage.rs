//! The fuzz target's harness without the fuzzer: damaged runs, from the files to the lifetimes.

#[path = "../../../../fuzz/harness.rs"]
#[allow(dead_code, reason = "the fuzz target and its seeds use the rest")]
mod harness;

use proptest::prelude::*;
use tailsight_trace::RunWriter;
use tailsight_trace::meta::{RunMeta, State, Target};

use crate::simulator;

/// A run of the simulated machine as a fuzzer's bytes.
fn packed(script: &simulator::Script) -> Vec<u8> {
    let (facts, events, _) = simulator::run(script);
    let dir = tempfile::tempdir().expect("a directory");
    let mut meta = RunMeta {
        format: "tailsight-run".into(),
        // Without checksums: damage is to reach what builds lifetimes.
        version: 1,
        target: Target { app: facts.app, ports: vec![simulator::network::PORT], ..Target::default() },
        ..RunMeta::default()
    };
    let mut writer = RunWriter::create(dir.path(), &meta).expect("a writer");
    for cpu in &events {
        writer.events(cpu.cpu, &cpu.events).expect("events");
    }
    writer.tasks(&simulator::tasks(script)).expect("tasks");
    writer.sockets(&[]).expect("sockets");
    writer.clocks(&[]).expect("clocks");
    meta.state = State::Complete;
    writer.finish(&mut meta).expect("the end");
    let read = |(n, name)| Some((n, std::fs::read(dir.path().join(name)).ok()?));
    harness::pack(&harness::FILES.iter().enumerate().filter_map(read).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_runs_never_panic_and_still_add_up(
        script in simulator::script(60),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let mut bytes = packed(&script);
        for (at, value) in &changes {
            let at = at.index(bytes.len());
            bytes[at] ^= value;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        let dir = tempfile::tempdir().expect("a directory");
        harness::read_run(dir.path(), &bytes);
    }
}

/// Inputs that the fuzzer found, each named by what was wrong in it.
#[test]
fn what_the_fuzzer_found_stays_fixed() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions");
    let dir = tempfile::tempdir().expect("a directory");
    let mut inputs = 0;
    for entry in std::fs::read_dir(folder).expect("the inputs").flatten() {
        harness::read_run(dir.path(), &std::fs::read(entry.path()).expect("an input"));
        inputs += 1;
    }
    assert!(inputs > 0);
}
