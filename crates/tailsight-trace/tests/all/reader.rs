//! What opens, what does not, and what is said about it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_ipc::writer::StreamWriter;
use tailsight_trace::meta::State;
use tailsight_trace::{Error, Event, Run, RunWriter};

use crate::sample;

fn message(error: Error) -> String {
    tailsight_units::chain(&error)
}

#[test]
fn a_whole_run_comes_back_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path());
    let mut run = Run::open(dir.path()).unwrap();
    let cpus = run.events().unwrap();
    assert_eq!(run.partial, Vec::<String>::new());
    assert_eq!(cpus.len(), 2);
    for cpu in cpus {
        assert_eq!(cpu.events, sample::events(cpu.cpu, 120));
    }
    assert_eq!(run.tasks[1].comm, "worker");
    assert_eq!((run.sockets[0].local_port, run.clocks[0].realtime_ns), (11211, 2000));
}

#[test]
fn what_is_not_a_run_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| message(Run::open(path).unwrap_err());
    assert!(open(&dir.path().join("none")).contains("there is no such directory"));
    assert!(open(dir.path()).contains("it has no run.json"));
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let text = open(&file);
    assert!(text.contains("it is a file") && text.contains("tailsight record -o DIR"), "{text}");
    for (json, why) in [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "does not say"),
        ("{\"format\":\"other\"}", "does not say"),
        ("{\"format\":\"tailsight-run\",\"version\":1,\"cpus\":7}", "cannot be decoded"),
        ("{\"format\":\"tailsight-run\",\"version\":1,\"state\":\"no such\"}", "cannot be decoded"),
    ] {
        fs::write(dir.path().join("run.json"), json).unwrap();
        let text = open(dir.path());
        assert!(text.contains("is not a run directory") && text.contains(why), "{json}: {text}");
    }
}

#[test]
fn a_newer_version_is_refused_before_its_contents_are_understood() {
    let dir = tempfile::tempdir().unwrap();
    for version in ["3", "4294967295", "18446744073709551615"] {
        let json = format!("{{\"format\":\"tailsight-run\",\"version\":{version},\"cpus\":\"of another kind\"}}");
        fs::write(dir.path().join("run.json"), json).unwrap();
        let error = Run::open(dir.path()).unwrap_err();
        assert!(matches!(error, Error::NewerVersion { supported: 2, .. }), "{error}");
        assert!(message(error).contains("open it with a newer tailsight"));
    }
}

#[test]
fn a_killed_and_an_ended_recording_say_so_and_open() {
    for (state, why) in [(State::Recording, "killed"), (State::Partial, "the disk was full")] {
        let dir = tempfile::tempdir().unwrap();
        let mut meta = sample::meta(state);
        meta.partial = (state == State::Partial).then(|| "the disk was full".into());
        let mut writer = RunWriter::create(dir.path(), &meta).unwrap();
        for cpu in 0..2 {
            writer.events(cpu, &sample::events(cpu, 120)).unwrap();
        }
        drop(writer);
        let mut run = Run::open(dir.path()).unwrap();
        let events = run.events().unwrap();
        assert_eq!(events.iter().map(|c| c.events.len()).sum::<usize>(), 240);
        assert!(run.partial[0].contains(why), "{:?}", run.partial);
    }
}

#[test]
fn a_missing_core_is_said() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path());
    fs::remove_file(dir.path().join("events/cpu-1.arrow")).unwrap();
    let mut run = Run::open(dir.path()).unwrap();
    assert_eq!(run.events().unwrap().len(), 1);
    assert_eq!(run.partial, vec!["events of core 1 are missing"]);
}

#[test]
fn missing_tables_and_a_missing_events_folder_are_said() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path());
    for name in ["tasks.arrow", "sockets.arrow", "clocks.arrow"] {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    let mut run = Run::open(dir.path()).unwrap();
    assert_eq!(run.partial.len(), 3, "{:?}", run.partial);
    assert!(run.partial[0].contains("tasks.arrow"));
    fs::remove_dir_all(dir.path().join("events")).unwrap();
    assert!(message(run.events().unwrap_err()).contains("events"));
}

fn stream(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = StreamWriter::try_new(fs::File::create(path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

#[test]
fn columns_of_another_type_are_an_error_that_names_the_column() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path());
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let number: ArrayRef = Arc::new(UInt32Array::from(vec![1, 2]));
    let path = dir.path().join("events/cpu-0.arrow");
    stream(&path, vec![("ts", text.clone()), ("kind", number.clone())]);
    let mut run = Run::open(dir.path()).unwrap();
    assert!(message(run.events().unwrap_err()).contains("column ts is missing or of another type"));
    stream(&dir.path().join("tasks.arrow"), vec![("tid", text)]);
    let run = Run::open(dir.path()).unwrap();
    assert!(run.partial[0].contains("tasks.arrow") && run.partial[0].contains("column"), "{:?}", run.partial);
}

#[test]
fn a_column_more_is_read_over() {
    let dir = tempfile::tempdir().unwrap();
    let meta = sample::write(dir.path());
    let path = dir.path().join("clocks.arrow");
    let names = ["monotonic_ns", "realtime_ns", "boottime_ns", "tsc", "bracket_ns"];
    let mut columns: Vec<(&str, ArrayRef)> =
        names.iter().map(|n| (*n, Arc::new(UInt64Array::from(vec![5])) as ArrayRef)).collect();
    columns.push(("a later idea", Arc::new(StringArray::from(vec!["x"]))));
    stream(&path, columns);
    let run = Run::open(dir.path()).unwrap();
    assert_eq!((run.clocks.len(), run.partial.len(), run.meta.version), (1, 0, meta.version));
}

#[test]
fn no_events_is_a_run_without_events() {
    let dir = tempfile::tempdir().unwrap();
    let mut meta = sample::meta(State::Recording);
    meta.cpus.clear();
    let mut writer = RunWriter::create(dir.path(), &meta).unwrap();
    writer.events(0, &[]).unwrap();
    writer.tasks(&[]).unwrap();
    writer.sockets(&[]).unwrap();
    writer.clocks(&[]).unwrap();
    meta.state = State::Complete;
    writer.finish(&mut meta).unwrap();
    let mut run = Run::open(dir.path()).unwrap();
    assert!(run.events().unwrap().iter().all(|c| c.events.is_empty()));
    assert_eq!(run.partial, Vec::<String>::new());
}

#[test]
fn kinds_of_a_later_recorder_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let meta = sample::meta(State::Recording);
    let mut writer = RunWriter::create(dir.path(), &meta).unwrap();
    let event = Event { ts: 5, kind: 250, a: 1, ..Event::default() };
    writer.events(0, &[event]).unwrap();
    drop(writer);
    let cpus = Run::open(dir.path()).unwrap().events().unwrap();
    assert_eq!(cpus[0].events, vec![event]);
    assert_eq!(event.kind(), None);
}

#[test]
fn events_out_of_order_are_put_in_order_and_ties_stay() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = RunWriter::create(dir.path(), &sample::meta(State::Recording)).unwrap();
    let at = |ts, a| Event { ts, a, ..Event::default() };
    writer.events(0, &[at(5, 0), at(3, 1), at(3, 2), at(9, 3)]).unwrap();
    drop(writer);
    let cpus = Run::open(dir.path()).unwrap().events().unwrap();
    assert_eq!(cpus[0].events.iter().map(|e| e.a).collect::<Vec<_>>(), vec![1, 2, 0, 3]);
}

#[test]
fn only_files_named_as_cores_are_streams() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path());
    let folder = dir.path().join("events");
    // A number no core has would make a reader reserve space for all the cores below it; others repeat a core.
    for name in ["cpu-4294967295.arrow", "cpu-+1.arrow", "cpu-01.arrow", "cpu-.arrow", "notes.txt"] {
        fs::copy(folder.join("cpu-0.arrow"), folder.join(name)).unwrap();
    }
    let cpus = Run::open(dir.path()).unwrap().events().unwrap();
    assert_eq!(cpus.iter().map(|c| c.cpu).collect::<Vec<_>>(), vec![0, 1]);
}

#[test]
fn a_folder_or_a_pipe_in_the_place_of_a_file_is_an_error_not_a_wait() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path());
    let path = dir.path().join("events/cpu-0.arrow");
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let error = Run::open(dir.path()).unwrap().events().unwrap_err();
    assert!(message(error).contains("it is not a file"));
    let json = dir.path().join("run.json");
    fs::remove_file(&json).unwrap();
    fs::create_dir(&json).unwrap();
    assert!(message(Run::open(dir.path()).unwrap_err()).contains("run.json"));
}
