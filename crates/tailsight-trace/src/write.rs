//! Writing a run directory so that it opens whatever happens: whole batches only, `run.json` first and last.
//!
//! Events go out in Arrow IPC streams, one a core, each batch flushed when it is written. `run.json` says `recording`
//! until [`RunWriter::finish`]; a reader that finds it so knows that the run is partial.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, RecordBatch, StringArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field, Schema};

use crate::error::Error;
use crate::event::Event;
use crate::meta::{RunMeta, State};
use crate::samples::{FrameRow, SampleRow, Samples};
use crate::tables::{ClockRow, NicClockRow, SocketRow, TaskRow};

/// Events in one Arrow batch: what a kill can cost at most of what was drained.
pub const BATCH_EVENTS: usize = 65_536;

/// Space held back from the events, so that on a full disk the small tables and the last `run.json` still fit.
const RESERVE_BYTES: usize = 256 << 10;
const RESERVE: &str = ".reserve";

/// Writes one run.
pub struct RunWriter {
    dir: PathBuf,
    streams: BTreeMap<u32, EventStream>,
    /// Events of cores whose stream could not be written any more.
    broken: BTreeMap<u32, u64>,
}

struct EventStream {
    path: PathBuf,
    writer: StreamWriter<BufWriter<File>>,
    events: u64,
    /// Bytes of the file up to the last whole batch.
    whole: u64,
}

impl EventStream {
    fn append(&mut self, events: &[Event]) -> Result<(), Error> {
        for chunk in events.chunks(BATCH_EVENTS) {
            let batch = event_batch(chunk).map_err(|e| Error::write(&self.path, e))?;
            self.writer.write(&batch).map_err(|e| Error::write(&self.path, e))?;
            self.flush()?;
            self.events += chunk.len() as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.writer.flush().map_err(|e| Error::write(&self.path, e))?;
        let file = self.writer.get_ref().get_ref();
        self.whole = file.metadata().map_err(|e| Error::write(&self.path, e))?.len();
        Ok(())
    }
}

impl RunWriter {
    /// Makes the directory (or empties one that holds an earlier run) and writes the first `run.json`.
    ///
    /// # Errors
    /// [`Error::OutputExists`] when the directory holds something else than a run; [`Error::Write`].
    pub fn create(dir: &Path, meta: &RunMeta) -> Result<RunWriter, Error> {
        if dir.exists() {
            let mut entries = fs::read_dir(dir).map_err(|e| Error::write(dir, e))?;
            let is_run = dir.join("run.json").is_file();
            if entries.next().is_some() {
                if !is_run {
                    return Err(Error::OutputExists { path: dir.into() });
                }
                clear(dir)?;
            }
        }
        let events = dir.join("events");
        fs::create_dir_all(&events).map_err(|e| Error::write(&events, e))?;
        let writer = RunWriter { dir: dir.into(), streams: BTreeMap::new(), broken: BTreeMap::new() };
        writer.write_meta(meta)?;
        let reserve = dir.join(RESERVE);
        fs::write(&reserve, vec![0; RESERVE_BYTES]).map_err(|e| {
            release(dir);
            Error::write(&reserve, e)
        })?;
        Ok(writer)
    }

    /// The run's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Appends events of one core, in time order as far as the caller knows it. Returns when they are flushed to the file.
    /// After a failure the file ends with its last whole batch, and the core takes no more events.
    ///
    /// # Errors
    /// [`Error::Write`]; what was written before stays readable.
    pub fn events(&mut self, cpu: u32, events: &[Event]) -> Result<(), Error> {
        let path = self.dir.join("events").join(format!("cpu-{cpu}.arrow"));
        if self.broken.contains_key(&cpu) {
            return Err(Error::write(path, "an earlier write to it failed"));
        }
        let stream = match self.streams.entry(cpu) {
            std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::btree_map::Entry::Vacant(e) => {
                let writer = open_stream(&path, &event_schema()).inspect_err(|_| release(&self.dir))?;
                e.insert(EventStream { path: path.clone(), writer, events: 0, whole: 0 })
            }
        };
        let written = stream.append(events);
        if written.is_err() {
            self.give_up(cpu);
        }
        written
    }

    /// Ends a stream that cannot be written any more at its last whole batch.
    fn give_up(&mut self, cpu: u32) {
        release(&self.dir);
        if let Some(stream) = self.streams.remove(&cpu) {
            self.broken.insert(cpu, stream.events);
            let (path, whole) = (stream.path.clone(), stream.whole);
            // Its buffer tries once more to get out when it goes; the cut comes after.
            drop(stream);
            let _ = File::options().write(true).open(&path).and_then(|f| f.set_len(whole));
        }
    }

    /// Events written so far for a core.
    pub fn written(&self, cpu: u32) -> u64 {
        let broken = self.broken.get(&cpu).copied();
        self.streams.get(&cpu).map(|s| s.events).or(broken).unwrap_or(0)
    }

    /// Writes tasks.arrow.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn tasks(&self, rows: &[TaskRow]) -> Result<(), Error> {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("from_ns", Arc::new(UInt64Array::from_iter_values(rows.iter().map(|r| r.from_ns)))),
            ("tid", Arc::new(UInt32Array::from_iter_values(rows.iter().map(|r| r.tid)))),
            ("tgid", Arc::new(UInt32Array::from_iter_values(rows.iter().map(|r| r.tgid)))),
            ("comm", Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.comm.as_str())))),
            ("target", Arc::new(rows.iter().map(|r| Some(r.target)).collect::<BooleanArray>())),
            ("kernel", Arc::new(rows.iter().map(|r| Some(r.kernel)).collect::<BooleanArray>())),
            ("cgroup", Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.cgroup.as_str())))),
        ];
        self.table("tasks.arrow", columns)
    }

    /// Writes sockets.arrow.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn sockets(&self, rows: &[SocketRow]) -> Result<(), Error> {
        let text =
            |f: fn(&SocketRow) -> &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(rows.iter().map(f))) };
        let port =
            |f: fn(&SocketRow) -> u16| -> ArrayRef { Arc::new(UInt16Array::from_iter_values(rows.iter().map(f))) };
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("proto", text(|r| &r.proto)),
            ("local_addr", text(|r| &r.local_addr)),
            ("local_port", port(|r| r.local_port)),
            ("remote_addr", text(|r| &r.remote_addr)),
            ("remote_port", port(|r| r.remote_port)),
            ("listening", Arc::new(rows.iter().map(|r| Some(r.listening)).collect::<BooleanArray>())),
            ("tgid", Arc::new(UInt32Array::from_iter_values(rows.iter().map(|r| r.tgid)))),
            ("comm", text(|r| &r.comm)),
            ("addrs", Arc::new(UInt64Array::from_iter_values(rows.iter().map(|r| r.addrs)))),
        ];
        self.table("sockets.arrow", columns)
    }

    /// Writes nic_clocks.arrow.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn nic_clocks(&self, rows: &[NicClockRow]) -> Result<(), Error> {
        let column =
            |f: fn(&NicClockRow) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(rows.iter().map(f))) };
        self.table(
            "nic_clocks.arrow",
            vec![
                ("phc", Arc::new(UInt32Array::from_iter_values(rows.iter().map(|r| r.phc)))),
                ("monotonic_ns", column(|r| r.monotonic_ns)),
                ("phc_ns", column(|r| r.phc_ns)),
                ("error_ns", column(|r| r.error_ns)),
            ],
        )
    }

    /// Writes clocks.arrow.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn clocks(&self, rows: &[ClockRow]) -> Result<(), Error> {
        let column =
            |f: fn(&ClockRow) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(rows.iter().map(f))) };
        self.table(
            "clocks.arrow",
            vec![
                ("monotonic_ns", column(|r| r.monotonic_ns)),
                ("realtime_ns", column(|r| r.realtime_ns)),
                ("boottime_ns", column(|r| r.boottime_ns)),
                ("tsc", column(|r| r.tsc)),
                ("bracket_ns", column(|r| r.bracket_ns)),
            ],
        )
    }

    /// Writes samples.arrow, sample_stacks.arrow and sample_frames.arrow.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn samples(&self, samples: &Samples) -> Result<(), Error> {
        let frames = &samples.frames;
        let text =
            |f: fn(&FrameRow) -> &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(frames.iter().map(f))) };
        let flag = |f: fn(&FrameRow) -> bool| -> ArrayRef {
            Arc::new(frames.iter().map(|frame| Some(f(frame))).collect::<BooleanArray>())
        };
        self.table(
            "sample_frames.arrow",
            vec![
                ("function", text(|f| &f.function)),
                ("module", text(|f| &f.module)),
                ("build_id", text(|f| &f.build_id)),
                ("offset", Arc::new(UInt64Array::from_iter_values(frames.iter().map(|f| f.offset)))),
                ("source", text(|f| &f.source)),
                ("kernel", flag(|f| f.kernel)),
                ("inlined", flag(|f| f.inlined)),
            ],
        )?;
        let of_stack =
            |(stack, frames): (usize, &Vec<u32>)| frames.iter().map(|&f| (stack as u32, f)).collect::<Vec<_>>();
        let stacks: Vec<(u32, u32)> = samples.stacks.iter().enumerate().flat_map(of_stack).collect();
        self.table(
            "sample_stacks.arrow",
            vec![
                ("stack", Arc::new(UInt32Array::from_iter_values(stacks.iter().map(|s| s.0)))),
                ("frame", Arc::new(UInt32Array::from_iter_values(stacks.iter().map(|s| s.1)))),
            ],
        )?;
        let number = |f: fn(&SampleRow) -> u32| -> ArrayRef {
            Arc::new(UInt32Array::from_iter_values(samples.rows.iter().map(f)))
        };
        self.table(
            "samples.arrow",
            vec![
                ("ts_ns", Arc::new(UInt64Array::from_iter_values(samples.rows.iter().map(|r| r.ts_ns)))),
                ("cpu", Arc::new(UInt16Array::from_iter_values(samples.rows.iter().map(|r| r.cpu)))),
                ("tid", number(|r| r.tid)),
                ("tgid", number(|r| r.tgid)),
                ("kind", Arc::new(UInt8Array::from_iter_values(samples.rows.iter().map(|r| r.kind)))),
                ("stack", number(|r| r.stack)),
            ],
        )
    }

    fn table(&self, name: &str, columns: Vec<(&str, ArrayRef)>) -> Result<(), Error> {
        let path = self.dir.join(name);
        let fields: Vec<Field> = columns.iter().map(|(n, c)| Field::new(*n, c.data_type().clone(), false)).collect();
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(schema.clone(), columns.into_iter().map(|(_, c)| c).collect())
            .map_err(|e| Error::write(&path, e))?;
        // An earlier one is replaced as a whole or stays.
        let temporary = self.dir.join(format!("{name}.tmp"));
        let written = open_stream(&temporary, &schema).and_then(|mut writer| {
            writer.write(&batch).and_then(|()| writer.finish()).map_err(|e| Error::write(&path, e))?;
            let mut file = writer.into_inner().map_err(|e| Error::write(&path, e))?;
            file.flush().map_err(|e| Error::write(&path, e))
        });
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
            return written;
        }
        fs::rename(&temporary, &path).map_err(|e| Error::write(&path, e))
    }

    /// Rewrites run.json as a whole: never half of one.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn write_meta(&self, meta: &RunMeta) -> Result<(), Error> {
        let path = self.dir.join("run.json");
        let temporary = self.dir.join("run.json.tmp");
        let text = serde_json::to_string_pretty(meta).map_err(|e| Error::write(&path, e))?;
        if let Err(e) = fs::write(&temporary, text + "\n") {
            let _ = fs::remove_file(&temporary);
            return Err(Error::write(&path, e));
        }
        fs::rename(&temporary, &path).map_err(|e| Error::write(&path, e))
    }

    /// Ends every stream and writes the final run.json. When a stream cannot be ended (the disk is full), the run
    /// becomes partial, and the first error is returned after everything else was tried.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn finish(mut self, meta: &mut RunMeta) -> Result<(), Error> {
        release(&self.dir);
        let mut first = None;
        for stream in self.streams.values_mut() {
            let ended = stream.writer.finish().map_err(|e| Error::write(&stream.path, e));
            let flushed =
                ended.and_then(|()| stream.writer.get_mut().flush().map_err(|e| Error::write(&stream.path, e)));
            if let Err(e) = flushed {
                first.get_or_insert(e);
            }
        }
        if let Some(e) = &first {
            meta.state = State::Partial;
            meta.partial.get_or_insert(e.to_string());
        }
        let last = self.write_meta(meta);
        match first {
            Some(e) => Err(e),
            None => last,
        }
    }
}

/// Gives the space that was held back to what is written from now on.
fn release(dir: &Path) {
    let _ = fs::remove_file(dir.join(RESERVE));
}

/// Removes what an earlier run left in the directory, and nothing else.
fn clear(dir: &Path) -> Result<(), Error> {
    for name in [
        RESERVE,
        "tasks.arrow",
        "sockets.arrow",
        "clocks.arrow",
        "nic_clocks.arrow",
        "samples.arrow",
        "sample_stacks.arrow",
        "sample_frames.arrow",
        "messages.parquet",
        "lifetimes.parquet",
        "causes.parquet",
        "focus.collapsed",
        "reference.collapsed",
        "run.json",
    ] {
        let path = dir.join(name);
        if path.exists() {
            fs::remove_file(&path).map_err(|e| Error::write(&path, e))?;
        }
    }
    let events = dir.join("events");
    if events.is_dir() {
        for entry in fs::read_dir(&events).map_err(|e| Error::write(&events, e))?.flatten() {
            let path = entry.path();
            let ours = path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("cpu-"));
            if ours && path.extension().is_some_and(|e| e == "arrow") {
                fs::remove_file(&path).map_err(|e| Error::write(&path, e))?;
            }
        }
    }
    Ok(())
}

/// The columns of events/cpu-N.arrow.
pub fn event_schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![
        Field::new("ts", DataType::UInt64, false),
        Field::new("kind", DataType::UInt8, false),
        Field::new("aux", DataType::UInt16, false),
        Field::new("tid", DataType::UInt32, false),
        Field::new("a", DataType::UInt64, false),
        Field::new("b", DataType::UInt64, false),
        Field::new("c", DataType::UInt64, false),
    ]))
}

fn event_batch(events: &[Event]) -> Result<RecordBatch, arrow_schema::ArrowError> {
    RecordBatch::try_new(
        event_schema(),
        vec![
            Arc::new(UInt64Array::from_iter_values(events.iter().map(|e| e.ts))) as ArrayRef,
            Arc::new(UInt8Array::from_iter_values(events.iter().map(|e| e.kind))),
            Arc::new(UInt16Array::from_iter_values(events.iter().map(|e| e.aux))),
            Arc::new(UInt32Array::from_iter_values(events.iter().map(|e| e.tid))),
            Arc::new(UInt64Array::from_iter_values(events.iter().map(|e| e.a))),
            Arc::new(UInt64Array::from_iter_values(events.iter().map(|e| e.b))),
            Arc::new(UInt64Array::from_iter_values(events.iter().map(|e| e.c))),
        ],
    )
}

fn open_stream(path: &Path, schema: &Schema) -> Result<StreamWriter<BufWriter<File>>, Error> {
    let file = File::create(path).map_err(|e| Error::write(path, e))?;
    let options = IpcWriteOptions::default()
        .try_with_compression(Some(CompressionType::ZSTD))
        .map_err(|e| Error::write(path, e))?;
    StreamWriter::try_new_with_options(BufWriter::new(file), schema, options).map_err(|e| Error::write(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Run;

    fn events(n: u64) -> Vec<Event> {
        (0..n).map(|i| Event { ts: 1000 + i, kind: 1, ..Event::default() }).collect()
    }
    fn meta() -> RunMeta {
        RunMeta { format: "tailsight-run".into(), version: crate::FORMAT_VERSION, ..RunMeta::default() }
    }
    fn task(tid: u32) -> TaskRow {
        TaskRow { tid, tgid: tid, comm: "server".into(), target: true, ..TaskRow::default() }
    }

    #[test]
    fn a_killed_recording_has_its_batches_and_its_early_tables() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let mut writer = RunWriter::create(&path, &meta()).unwrap();
        writer.tasks(&[task(5)]).unwrap();
        writer.events(0, &events(10)).unwrap();
        writer.tasks(&[task(5), task(6)]).unwrap();
        std::mem::forget(writer); // what SIGKILL leaves
        let mut run = Run::open(&path).unwrap();
        assert_eq!(run.tasks.iter().map(|t| t.tid).collect::<Vec<_>>(), vec![5, 6]);
        assert_eq!(run.events().unwrap()[0].events.len(), 10);
        assert!(run.partial.iter().any(|p| p.contains("killed")), "{:?}", run.partial);
    }

    #[test]
    fn on_a_full_disk_the_tables_and_run_json_are_still_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let mut writer = RunWriter::create(&path, &meta()).unwrap();
        assert!(path.join(RESERVE).exists());
        writer.events(0, &events(10)).unwrap();
        // Every write to /dev/full fails with ENOSPC.
        std::os::unix::fs::symlink("/dev/full", path.join("events/cpu-1.arrow")).unwrap();
        let error = writer.events(1, &events(200_000)).unwrap_err();
        assert!(matches!(error, Error::Write { full: true, .. }), "{error}");
        assert!(!path.join(RESERVE).exists(), "the space held back is given free");
        assert!(writer.events(1, &events(1)).is_err(), "a cut stream is not begun anew");
        assert_eq!(writer.written(0), 10);
        writer.tasks(&[task(5)]).unwrap();
        let mut meta = RunMeta { state: State::Partial, partial: Some(error.to_string()), ..meta() };
        writer.finish(&mut meta).unwrap();
        let run = Run::open(&path).unwrap();
        assert_eq!((run.meta.state, run.tasks.len()), (State::Partial, 1));
    }

    #[test]
    fn a_stream_that_breaks_keeps_its_whole_batches_and_nothing_after() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let mut writer = RunWriter::create(&path, &meta()).unwrap();
        writer.events(0, &events(10)).unwrap();
        let file = path.join("events/cpu-0.arrow");
        let whole = fs::metadata(&file).unwrap().len();
        // Half a batch that did not fit any more.
        let stream = writer.streams.get_mut(&0).unwrap();
        stream.writer.get_mut().write_all(&[1; 100]).unwrap();
        writer.give_up(0);
        assert_eq!(fs::metadata(&file).unwrap().len(), whole);
        assert_eq!(writer.written(0), 10);
        writer.finish(&mut meta()).unwrap();
        assert_eq!(Run::open(&path).unwrap().events().unwrap()[0].events.len(), 10);
    }

    #[test]
    fn a_finished_run_holds_nothing_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let writer = RunWriter::create(&path, &meta()).unwrap();
        writer.finish(&mut RunMeta { state: State::Complete, ..meta() }).unwrap();
        let mut names: Vec<_> = fs::read_dir(&path).unwrap().flatten().map(|e| e.file_name()).collect();
        names.sort();
        assert_eq!(names, ["events", "run.json"]);
    }
}
