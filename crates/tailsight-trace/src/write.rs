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
use crate::tables::{ClockRow, SocketRow, TaskRow};

/// Events in one Arrow batch: what a kill can cost at most of what was drained.
pub const BATCH_EVENTS: usize = 65_536;

/// Writes one run.
pub struct RunWriter {
    dir: PathBuf,
    streams: BTreeMap<u32, EventStream>,
}

struct EventStream {
    path: PathBuf,
    writer: StreamWriter<BufWriter<File>>,
    events: u64,
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
        let writer = RunWriter { dir: dir.into(), streams: BTreeMap::new() };
        writer.write_meta(meta)?;
        Ok(writer)
    }

    /// The run's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Appends events of one core, in time order as far as the caller knows it. Returns when they are flushed to the file.
    ///
    /// # Errors
    /// [`Error::Write`]; what was written before stays readable.
    pub fn events(&mut self, cpu: u32, events: &[Event]) -> Result<(), Error> {
        let stream = match self.streams.entry(cpu) {
            std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::btree_map::Entry::Vacant(e) => {
                let path = self.dir.join("events").join(format!("cpu-{cpu}.arrow"));
                let writer = open_stream(&path, &event_schema())?;
                e.insert(EventStream { path, writer, events: 0 })
            }
        };
        for chunk in events.chunks(BATCH_EVENTS) {
            let batch = event_batch(chunk).map_err(|e| Error::write(&stream.path, e))?;
            stream.writer.write(&batch).map_err(|e| Error::write(&stream.path, e))?;
            stream.writer.flush().map_err(|e| Error::write(&stream.path, e))?;
            stream.events += chunk.len() as u64;
        }
        Ok(())
    }

    /// Events written so far for a core.
    pub fn written(&self, cpu: u32) -> u64 {
        self.streams.get(&cpu).map_or(0, |s| s.events)
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

    fn table(&self, name: &str, columns: Vec<(&str, ArrayRef)>) -> Result<(), Error> {
        let path = self.dir.join(name);
        let fields: Vec<Field> = columns.iter().map(|(n, c)| Field::new(*n, c.data_type().clone(), false)).collect();
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(schema.clone(), columns.into_iter().map(|(_, c)| c).collect())
            .map_err(|e| Error::write(&path, e))?;
        let mut writer = open_stream(&path, &schema)?;
        writer.write(&batch).and_then(|()| writer.finish()).map_err(|e| Error::write(&path, e))?;
        let mut file = writer.into_inner().map_err(|e| Error::write(&path, e))?;
        file.flush().map_err(|e| Error::write(&path, e))
    }

    /// Rewrites run.json as a whole: never half of one.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn write_meta(&self, meta: &RunMeta) -> Result<(), Error> {
        let path = self.dir.join("run.json");
        let temporary = self.dir.join("run.json.tmp");
        let text = serde_json::to_string_pretty(meta).map_err(|e| Error::write(&path, e))?;
        fs::write(&temporary, text + "\n").map_err(|e| Error::write(&temporary, e))?;
        fs::rename(&temporary, &path).map_err(|e| Error::write(&path, e))
    }

    /// Ends every stream and writes the final run.json. When a stream cannot be ended (the disk is full), the run
    /// becomes partial, and the first error is returned after everything else was tried.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn finish(mut self, meta: &mut RunMeta) -> Result<(), Error> {
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

/// Removes what an earlier run left in the directory, and nothing else.
fn clear(dir: &Path) -> Result<(), Error> {
    for name in [
        "tasks.arrow",
        "sockets.arrow",
        "clocks.arrow",
        "messages.parquet",
        "lifetimes.parquet",
        "causes.parquet",
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
