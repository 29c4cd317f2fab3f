//! Runs with checksums: whatever is changed in one is seen, and what is read is what was written.

use std::fs;
use std::path::Path;

use proptest::prelude::Rng;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tailsight_trace::meta::{RunMeta, State};
use tailsight_trace::{Event, FORMAT_VERSION, Run, RunWriter};

use crate::sample;

const FILES: [&str; 7] = [
    "run.json",
    "checksums",
    "events/cpu-0.arrow",
    "events/cpu-1.arrow",
    "tasks.arrow",
    "sockets.arrow",
    "clocks.arrow",
];

fn sealed(state: State) -> RunMeta {
    RunMeta { version: FORMAT_VERSION, ..sample::meta(state) }
}

/// What a reader gets from a run.
#[derive(Debug, PartialEq)]
struct Answer {
    meta: String,
    events: Vec<(u32, Vec<Event>)>,
    tasks: Vec<tailsight_trace::tables::TaskRow>,
    sockets: Vec<tailsight_trace::tables::SocketRow>,
    clocks: Vec<tailsight_trace::tables::ClockRow>,
}

/// The answer and what is said of its worth; `None`: the run does not open.
fn read(dir: &Path) -> Option<(Answer, Vec<String>)> {
    let mut run = Run::open(dir).ok()?;
    let events = run.events().ok()?.into_iter().map(|c| (c.cpu, c.events)).collect();
    let meta = serde_json::to_string(&run.meta).unwrap();
    let said = [run.partial, run.notes].concat();
    Some((Answer { meta, events, tasks: run.tasks, sockets: run.sockets, clocks: run.clocks }, said))
}

/// 30 of 500 gave another answer without a word.
#[test]
fn of_500_flipped_bytes_none_gives_another_answer_silently() {
    let dir = tempfile::tempdir().unwrap();
    sample::write_as(dir.path(), sealed(State::Recording));
    let (whole, said) = read(dir.path()).unwrap();
    assert_eq!(said, Vec::<String>::new());
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]));
    let (mut refused, mut reported, mut same) = (0, 0, 0);
    for round in 0..500 {
        let path = dir.path().join(FILES[round % FILES.len()]);
        let bytes = fs::read(&path).unwrap();
        let (at, value) = (runner.rng().next_u64() as usize % bytes.len(), runner.rng().next_u32() as u8 | 1);
        let mut damaged = bytes.clone();
        damaged[at] ^= value;
        fs::write(&path, damaged).unwrap();
        match read(dir.path()) {
            None => refused += 1,
            Some((_, said)) if !said.is_empty() => reported += 1,
            Some((answer, _)) => {
                assert_eq!(answer, whole, "{} at {at}: another answer without a word", path.display());
                same += 1;
            }
        }
        fs::write(&path, bytes).unwrap();
    }
    assert_eq!(refused + reported, 500, "every flip is seen: {refused} refused, {reported} told, {same} the same");
    assert_eq!(read(dir.path()), Some((whole, vec![])));
}

/// One flipped byte read as a recording that ended too early.
#[test]
fn a_changed_file_is_damage_and_an_early_end_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let looks = |dir: &Path| {
        let mut run = Run::open(dir).unwrap();
        run.events().unwrap();
        (run.is_damaged(), !run.partial.is_empty())
    };
    // One that ended, and one whose recorder was killed.
    sample::write_as(&dir.path().join("whole"), sealed(State::Recording));
    let mut killed = RunWriter::create(&dir.path().join("killed"), &sealed(State::Recording)).unwrap();
    for half in sample::events(0, 120).chunks(60) {
        killed.events(0, half).unwrap();
    }
    drop(killed);
    for (name, partial) in [("whole", false), ("killed", true)] {
        let dir = dir.path().join(name);
        assert_eq!(looks(&dir), (false, partial), "{name}");
        let path = dir.join("events/cpu-0.arrow");
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(looks(&dir), (true, true), "{name}");
    }
    let gone = dir.path().join("whole");
    fs::remove_file(gone.join("events/cpu-1.arrow")).unwrap();
    assert_eq!(looks(&gone), (true, true));
}

/// A table of another run, a core of another run, a core that the run does not know, and a core that is cut or gone.
#[test]
fn swapped_added_and_cut_files_are_seen_and_not_used() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    sample::write_as(dir.path(), sealed(State::Recording));
    let mut writer = RunWriter::create(other.path(), &sealed(State::Recording)).unwrap();
    writer.tasks(&[tailsight_trace::tables::TaskRow { tid: 7, tgid: 7, ..Default::default() }]).unwrap();
    writer.events(0, &sample::events(0, 60)).unwrap();
    drop(writer);
    let swap = |name: &str, as_name: &str| {
        let (path, before) = (dir.path().join(as_name), fs::read(dir.path().join(as_name)).ok());
        fs::copy(other.path().join(name), &path).unwrap();
        let run = read(dir.path()).unwrap();
        match before {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        run
    };
    let (answer, said) = swap("tasks.arrow", "tasks.arrow");
    assert!(answer.tasks.is_empty() && said.iter().any(|s| s.starts_with("tasks.arrow is cut")), "{said:?}");
    let (answer, said) = swap("events/cpu-0.arrow", "events/cpu-0.arrow");
    assert!(said.iter().any(|s| s.contains("events of core 0 are cut")), "{said:?}");
    assert!(answer.events.iter().all(|(cpu, events)| *cpu == 1 || events.len() <= 60));
    let (answer, said) = swap("events/cpu-0.arrow", "events/cpu-5.arrow");
    assert_eq!(answer.events.len(), 2);
    assert_eq!(said, ["events/cpu-5.arrow does not belong to this run and is not read"]);
    let path = dir.path().join("events/cpu-1.arrow");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 8]).unwrap();
    let (_, said) = read(dir.path()).unwrap();
    assert!(said.iter().any(|s| s.contains("were written")), "the end mark is gone: {said:?}");
}

/// A recording that was killed has no list of files; its parts have checksums all the same.
#[test]
fn a_killed_run_is_read_as_far_as_its_checksums_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = RunWriter::create(dir.path(), &sealed(State::Recording)).unwrap();
    writer.tasks(&[]).unwrap();
    for batch in sample::events(0, 120).chunks(60) {
        writer.tasks(&[tailsight_trace::tables::TaskRow::default()]).unwrap();
        writer.events(0, batch).unwrap();
    }
    std::mem::forget(writer);
    let (answer, said) = read(dir.path()).unwrap();
    assert_eq!((answer.events[0].1.len(), answer.tasks.len()), (120, 1), "{said:?}");
    let path = dir.path().join("events/cpu-0.arrow");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 20;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (answer, said) = read(dir.path()).unwrap();
    assert_eq!(answer.events[0].1, sample::events(0, 60), "{said:?}");
    assert!(said.iter().any(|s| s.contains("checksum")), "{said:?}");
}

/// `host.cpus` of 4,294,967,295 took 8 GiB, and a thousand files of cores half a minute.
#[test]
fn counts_and_files_that_no_recorder_writes_are_limited() {
    for version in [1, FORMAT_VERSION] {
        let dir = tempfile::tempdir().unwrap();
        let mut meta = sealed(State::Recording);
        (meta.version, meta.host.cpus) = (version, u32::MAX);
        meta.cpus.push(tailsight_trace::meta::Cpu { cpu: u32::MAX, events: 5, lost: 0 });
        sample::write_as(dir.path(), meta);
        for cpu in 2..1000 {
            let to = dir.path().join(format!("events/cpu-{cpu}.arrow"));
            fs::copy(dir.path().join("events/cpu-0.arrow"), to).unwrap();
        }
        let mut run = Run::open(dir.path()).unwrap();
        assert!(run.meta.host.cpus <= 1024 && run.meta.cpus.iter().all(|c| c.cpu < 1024));
        assert_eq!(run.events().unwrap().len(), 2, "version {version}");
        for words in ["4294967295 cores", "some with impossible numbers", "cpu-2.arrow does not belong to this run"] {
            assert!(run.partial.iter().any(|p| p.contains(words)), "{words}: {:?}", run.partial);
        }
    }
}

#[test]
fn an_old_run_opens_with_a_note() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path());
    fs::remove_file(dir.path().join("checksums")).unwrap();
    let (answer, said) = read(dir.path()).unwrap();
    assert_eq!(answer.events.len(), 2);
    assert_eq!(said, ["this run has format version 1 and no checksums: damage cannot be detected"]);
}
