//! Writing a run directory so that it opens whatever happens: whole batches only, `run.json` first and last.
//!
//! Events go out in Arrow IPC streams, one a core, each batch flushed when it is written. `run.json` says `recording`
//! until [`RunWriter::finish`]; a reader that finds it so knows that the run is partial.

mod rewrite;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{
    ArrayRef, BooleanArray, RecordBatch, StringArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field, Schema};

use crate::clock_log::ClockChangeRow;
use crate::error::Error;
use crate::event::Event;
use crate::folder::Folder;
use crate::meta::{RunMeta, State};
use crate::routines::RoutineRow;
use crate::samples::{FrameRow, SampleRow, Samples};
use crate::seal::{self, SealedFile, Sealer};
use crate::tables::{ClockRow, NicClockRow, SocketRow, TaskRow};

/// Events in one Arrow batch: what a kill can cost at most of what was drained.
pub const BATCH_EVENTS: usize = 65_536;

/// Space held back from the events, so that on a full disk the small tables and the last `run.json` still fit.
const RESERVE_BYTES: usize = 256 << 10;
const RESERVE: &str = ".reserve";
/// The folder of the events.
const EVENTS: &str = "events";
/// What a file's name ends with until it is whole.
const TEMPORARY: &str = ".tmp";

/// Writes one run.
pub struct RunWriter {
    folder: Folder,
    /// The folder of the events.
    events: Folder,
    sealer: Arc<Mutex<Sealer>>,
    streams: BTreeMap<u32, EventStream>,
    /// Events of cores whose stream could not be written any more.
    broken: BTreeMap<u32, u64>,
}

struct EventStream {
    path: PathBuf,
    writer: StreamWriter<SealedFile>,
    events: u64,
}

impl EventStream {
    fn append(&mut self, events: &[Event]) -> Result<(), Error> {
        for chunk in events.chunks(BATCH_EVENTS) {
            let batch = event_batch(chunk).map_err(|e| Error::write(&self.path, e))?;
            self.writer.write(&batch).map_err(|e| Error::write(&self.path, e))?;
            self.writer.flush().map_err(|e| Error::write(&self.path, e))?;
            self.events += chunk.len() as u64;
        }
        Ok(())
    }
}

impl RunWriter {
    /// Makes the directory (or empties one that holds an earlier run) and writes the first `run.json`. Directory and files are
    /// for their owner only.
    ///
    /// # Errors
    /// [`Error::OutputExists`] when the directory holds something else than a run, [`Error::SharedOutput`] when another user
    /// can write to it; [`Error::Write`].
    pub fn create(dir: &Path, meta: &RunMeta) -> Result<RunWriter, Error> {
        RunWriter::create_in(dir, meta, false)
    }

    /// As [`RunWriter::create`]; with `shared` also in a directory that another user can write to.
    ///
    /// # Errors
    /// As of [`RunWriter::create`].
    pub fn create_in(dir: &Path, meta: &RunMeta, shared: bool) -> Result<RunWriter, Error> {
        let failed = |e| Error::write(dir, e);
        let folder = Folder::open_or_make(dir).map_err(failed)?;
        if let Some(why) = folder.why_shared().map_err(failed)?.filter(|_| !shared) {
            return Err(Error::SharedOutput { path: dir.into(), why });
        }
        if !folder.names().map_err(failed)?.is_empty() {
            if !folder.has_file("run.json") {
                return Err(Error::OutputExists { path: dir.into() });
            }
            clear(&folder)?;
        }
        folder.close_to_others().map_err(failed)?;
        let events = folder.folder(Path::new(EVENTS)).map_err(|e| Error::write(dir.join(EVENTS), e))?;
        events.close_to_others().map_err(failed)?;
        let sealer = Sealer::begin(&folder).map_err(|e| Error::write(dir.join(seal::LOG), e))?;
        let sealer = Arc::new(Mutex::new(sealer));
        let writer = RunWriter { folder, events, sealer, streams: BTreeMap::new(), broken: BTreeMap::new() };
        writer.write_meta(meta)?;
        let reserved = writer.folder.create(RESERVE).and_then(|mut file| file.write_all(&vec![0; RESERVE_BYTES]));
        reserved.map_err(|e| {
            writer.release();
            Error::write(dir.join(RESERVE), e)
        })?;
        Ok(writer)
    }

    /// The run's directory.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Gives the space that was held back to what is written from now on.
    fn release(&self) {
        let _ = self.folder.remove(RESERVE);
    }

    /// Begins a stream in a new file. `name`: in `folder`, which is `below` (`events/`, or nothing) of the run's.
    fn stream(
        &self,
        folder: &Folder,
        below: &str,
        name: &str,
        schema: &Schema,
    ) -> Result<StreamWriter<SealedFile>, Error> {
        let path = || self.dir().join(below).join(name);
        // A table is written beside itself and renamed.
        let name_in_run = format!("{below}{}", name.strip_suffix(TEMPORARY).unwrap_or(name));
        let file = folder.create(name).map_err(|e| Error::write(path(), e))?;
        let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD));
        let options = options.map_err(|e| Error::write(path(), e))?;
        let file = SealedFile::new(&name_in_run, file, &self.sealer);
        StreamWriter::try_new_with_options(file, schema, options).map_err(|e| Error::write(path(), e))
    }

    /// Appends events of one core, in time order as far as the caller knows it. Returns when they are flushed to the file.
    /// After a failure the file ends with its last whole batch, and the core takes no more events.
    ///
    /// # Errors
    /// [`Error::Write`]; what was written before stays readable.
    pub fn events(&mut self, cpu: u32, events: &[Event]) -> Result<(), Error> {
        let name = format!("cpu-{cpu}.arrow");
        let path = self.dir().join(EVENTS).join(&name);
        if self.broken.contains_key(&cpu) {
            return Err(Error::write(path, "an earlier write to it failed"));
        }
        if !self.streams.contains_key(&cpu) {
            let begun = self.stream(&self.events, "events/", &name, &event_schema());
            let writer = begun.inspect_err(|_| self.release())?;
            self.streams.insert(cpu, EventStream { path, writer, events: 0 });
        }
        let Some(stream) = self.streams.get_mut(&cpu) else { return Ok(()) };
        let written = stream.append(events);
        if written.is_err() {
            self.give_up(cpu);
        }
        written
    }

    /// Ends a stream that cannot be written any more at its last whole batch.
    fn give_up(&mut self, cpu: u32) {
        self.release();
        if let Some(mut stream) = self.streams.remove(&cpu) {
            self.broken.insert(cpu, stream.events);
            stream.writer.get_mut().cut();
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

    /// Writes clock_log.arrow.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn clock_log(&self, rows: &[ClockChangeRow]) -> Result<(), Error> {
        let column =
            |f: fn(&ClockChangeRow) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(rows.iter().map(f))) };
        let half =
            |f: fn(&ClockChangeRow) -> u32| -> ArrayRef { Arc::new(UInt32Array::from_iter_values(rows.iter().map(f))) };
        self.table(
            "clock_log.arrow",
            vec![
                ("seq", half(|r| r.seq)),
                ("cycle_last", column(|r| r.cycle_last)),
                ("mult", half(|r| r.mult)),
                ("shift", half(|r| r.shift)),
                ("monotonic_s", column(|r| r.monotonic_s)),
                ("monotonic_shifted_ns", column(|r| r.monotonic_shifted_ns)),
                ("realtime_s", column(|r| r.realtime_s)),
                ("realtime_shifted_ns", column(|r| r.realtime_shifted_ns)),
                ("tai_s", column(|r| r.tai_s)),
                ("tai_shifted_ns", column(|r| r.tai_shifted_ns)),
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
                ("exported_before", text(|f| &f.exported_before)),
                ("exported_after", text(|f| &f.exported_after)),
                ("kernel", flag(|f| f.kernel)),
                ("inlined", flag(|f| f.inlined)),
                ("own", flag(|f| f.own)),
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
                ("weight", Arc::new(UInt16Array::from_iter_values(samples.rows.iter().map(|r| r.weight)))),
                ("stack", number(|r| r.stack)),
            ],
        )
    }

    /// Writes routines.arrow.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn routines(&self, rows: &[RoutineRow]) -> Result<(), Error> {
        let long =
            |f: fn(&RoutineRow) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(rows.iter().map(f))) };
        let number =
            |f: fn(&RoutineRow) -> u32| -> ArrayRef { Arc::new(UInt32Array::from_iter_values(rows.iter().map(f))) };
        self.table(
            "routines.arrow",
            vec![
                ("ts_ns", long(|r| r.ts_ns)),
                ("pid", number(|r| r.pid)),
                ("routine", long(|r| r.routine)),
                ("since_ns", long(|r| r.since_ns)),
                ("state", Arc::new(UInt8Array::from_iter_values(rows.iter().map(|r| r.state as u8)))),
                ("stack", number(|r| r.stack)),
            ],
        )
    }

    fn table(&self, name: &str, columns: Vec<(&str, ArrayRef)>) -> Result<(), Error> {
        let path = self.dir().join(name);
        let fields: Vec<Field> = columns.iter().map(|(n, c)| Field::new(*n, c.data_type().clone(), false)).collect();
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(schema.clone(), columns.into_iter().map(|(_, c)| c).collect())
            .map_err(|e| Error::write(&path, e))?;
        // An earlier one is replaced as a whole or stays.
        let temporary = format!("{name}{TEMPORARY}");
        let written = self.stream(&self.folder, "", &temporary, &schema).and_then(|mut writer| {
            // One part: StreamWriter's own finish does not flush before its end.
            writer.write(&batch).and_then(|()| writer.finish()).map_err(|e| Error::write(&path, e))?;
            writer.get_mut().flush().map_err(|e| Error::write(&path, e))
        });
        if written.is_err() {
            let _ = self.folder.remove(&temporary);
            return written;
        }
        self.folder.rename(&temporary, name).map_err(|e| Error::write(&path, e))
    }

    /// Rewrites run.json as a whole: never half of one.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn write_meta(&self, meta: &RunMeta) -> Result<(), Error> {
        let path = self.dir().join("run.json");
        let temporary = format!("run.json{TEMPORARY}");
        let text = seal::sealed_json(meta).map_err(|e| Error::write(&path, e))?;
        let written = self.folder.create(&temporary).and_then(|mut file| file.write_all(text.as_bytes()));
        if let Err(e) = written {
            let _ = self.folder.remove(&temporary);
            return Err(Error::write(&path, e));
        }
        self.folder.rename(&temporary, "run.json").map_err(|e| Error::write(&path, e))
    }

    /// Ends every stream and writes the final run.json. When a stream cannot be ended (the disk is full), the run
    /// becomes partial, and the first error is returned after everything else was tried.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn finish(mut self, meta: &mut RunMeta) -> Result<(), Error> {
        self.complete(meta)
    }

    /// As [`RunWriter::finish`]; tables may be written again afterwards, and this be called again. No events may follow.
    ///
    /// # Errors
    /// As of [`RunWriter::finish`].
    pub fn complete(&mut self, meta: &mut RunMeta) -> Result<(), Error> {
        self.release();
        let mut first = None;
        for mut stream in std::mem::take(&mut self.streams).into_values() {
            let ended = stream.writer.finish().map_err(|e| Error::write(&stream.path, e));
            let flushed =
                ended.and_then(|()| stream.writer.get_mut().flush().map_err(|e| Error::write(&stream.path, e)));
            if let Err(e) = flushed {
                first.get_or_insert(e);
            }
        }
        if let Some(e) = &first {
            meta.state = State::Partial;
            meta.partial.get_or_insert(tailsight_units::chain(e));
        }
        meta.files = self.sealer.lock().unwrap_or_else(PoisonError::into_inner).files();
        let last = self.write_meta(meta);
        match first {
            Some(e) => Err(e),
            None => last,
        }
    }
}

/// Removes what an earlier run left in the directory, and nothing else.
fn clear(folder: &Folder) -> Result<(), Error> {
    let failed = |name: &str, e| Error::write(folder.path().join(name), e);
    for name in [
        RESERVE,
        seal::LOG,
        "tasks.arrow",
        "sockets.arrow",
        "clocks.arrow",
        "nic_clocks.arrow",
        "clock_log.arrow",
        "samples.arrow",
        "sample_stacks.arrow",
        "sample_frames.arrow",
        "routines.arrow",
        "messages.parquet",
        "lifetimes.parquet",
        "sent.parquet",
        "turns.parquet",
        "waits.parquet",
        "causes.parquet",
        "focus.collapsed",
        "reference.collapsed",
        "run.json",
    ] {
        folder.remove(name).map_err(|e| failed(name, e))?;
    }
    // Of a recording that was killed while it wrote them.
    for name in folder.names().map_err(|e| failed("", e))? {
        if name == "run.json.tmp" || name.ends_with(".arrow.tmp") {
            folder.remove(&name).map_err(|e| failed(&name, e))?;
        }
    }
    let events = folder.folder(Path::new(EVENTS)).map_err(|e| failed(EVENTS, e))?;
    for name in events.names().map_err(|e| failed(EVENTS, e))? {
        if name.starts_with("cpu-") && name.ends_with(".arrow") {
            events.remove(&name).map_err(|e| failed(&name, e))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Run;
    use std::fs::{self, File};
    use std::os::unix::fs::{PermissionsExt, symlink};

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
        let full = SealedFile::new(
            "events/cpu-1.arrow",
            File::options().write(true).open("/dev/full").unwrap(),
            &writer.sealer,
        );
        let full = StreamWriter::try_new(full, &event_schema()).unwrap();
        writer.streams.insert(1, EventStream { path: path.join("events/cpu-1.arrow"), writer: full, events: 0 });
        let error = writer.events(1, &events(200_000)).unwrap_err();
        let is_full = error.to_string().contains("the disk is full");
        assert!(matches!(error, Error::Write { .. }) && is_full, "{error}");
        assert!(!path.join(RESERVE).exists(), "the space held back is given free");
        assert!(writer.events(1, &events(1)).is_err(), "a stream that was cut off is not begun again");
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
        assert_eq!(names, ["checksums", "events", "run.json"]);
    }

    /// `run.json.tmp`, `*.arrow.tmp` and `.reserve` were followed through links that somebody had put there.
    #[test]
    fn links_in_the_folder_of_a_run_are_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        RunWriter::create(&path, &meta()).unwrap().finish(&mut meta()).unwrap();
        let precious = dir.path().join("precious");
        fs::write(&precious, "mine").unwrap();
        let names = ["run.json.tmp", "tasks.arrow.tmp", "tasks.arrow", "checksums", RESERVE, "events/cpu-0.arrow"];
        for name in names {
            let _ = fs::remove_file(path.join(name));
            symlink(&precious, path.join(name)).unwrap();
        }
        let mut writer = RunWriter::create(&path, &meta()).unwrap();
        // Again, while it is written.
        symlink(&precious, path.join("tasks.arrow.tmp")).unwrap();
        symlink(&precious, path.join("events/cpu-1.arrow")).unwrap();
        writer.events(0, &events(10)).unwrap();
        writer.events(1, &events(10)).unwrap();
        writer.tasks(&[task(5)]).unwrap();
        writer.finish(&mut RunMeta { state: State::Complete, ..meta() }).unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
        let mut run = Run::open(&path).unwrap();
        assert_eq!(run.events().unwrap().len(), 2);
        assert_eq!(run.tasks.len(), 1);
    }

    #[test]
    fn a_link_in_the_place_of_the_run_is_not_followed_and_a_moved_run_is_written_where_it_went() {
        let dir = tempfile::tempdir().unwrap();
        let (link, other) = (dir.path().join("link"), dir.path().join("other"));
        fs::create_dir(&other).unwrap();
        symlink(&other, &link).unwrap();
        let error = tailsight_units::chain(&RunWriter::create(&link, &meta()).err().expect("a link is refused"));
        assert!(error.contains("symbolic link"), "{error}");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
        // Somebody renames the run and puts a link in its place.
        let (path, moved) = (dir.path().join("run"), dir.path().join("moved"));
        let mut writer = RunWriter::create(&path, &meta()).unwrap();
        fs::rename(&path, &moved).unwrap();
        symlink(&other, &path).unwrap();
        writer.events(0, &events(10)).unwrap();
        writer.tasks(&[task(5)]).unwrap();
        writer.finish(&mut meta()).unwrap();
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
        assert_eq!(Run::open(&moved).unwrap().events().unwrap()[0].events.len(), 10);
    }

    #[test]
    fn runs_are_for_their_owner_only_and_folders_of_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        fs::create_dir(&path).unwrap();
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let error = RunWriter::create(&path, &meta()).err().expect("a shared folder is refused");
        assert!(matches!(error, Error::SharedOutput { .. }), "{error}");
        let mut writer = RunWriter::create_in(&path, &meta(), true).unwrap();
        writer.events(0, &events(10)).unwrap();
        writer.tasks(&[task(5)]).unwrap();
        writer.finish(&mut meta()).unwrap();
        assert_eq!((mode(&path), mode(&path.join("events"))), (0o700, 0o700));
        for name in ["run.json", "tasks.arrow", "checksums", "events/cpu-0.arrow"] {
            assert_eq!(mode(&path.join(name)), 0o600, "{name}");
        }
    }
}
