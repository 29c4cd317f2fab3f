//! Opening a run: whole ones, partial ones, and a clear word for everything else.
//!
//! A stream that was cut (SIGKILL, a full disk, a copy that stopped) is read up to its last whole batch, and the run
//! says so in [`Run::partial`].

use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom, Take};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{RecordBatch, StringArray};
use arrow_ipc::reader::StreamReader;

use crate::FORMAT_VERSION;
use crate::clock_log::ClockChangeRow;
use crate::error::Error;
use crate::event::Event;
use crate::event_stream::EventStream;
use crate::meta::{RunMeta, State};
use crate::routines::{RoutineRow, State as RoutineState};
use crate::samples::{FrameRow, SampleRow, Samples, kind};
use crate::seal::{CHANGED, Seals};
use crate::stream;
use crate::tables::{ClockRow, NicClockRow, SocketRow, TaskRow};
use crate::write::event_schema;

/// An opened run.
#[derive(Debug)]
pub struct Run {
    /// Its directory.
    pub dir: PathBuf,
    /// run.json.
    pub meta: RunMeta,
    /// tasks.arrow.
    pub tasks: Vec<TaskRow>,
    /// sockets.arrow.
    pub sockets: Vec<SocketRow>,
    /// clocks.arrow.
    pub clocks: Vec<ClockRow>,
    /// nic_clocks.arrow; empty when no NIC stamps.
    pub nic_clocks: Vec<NicClockRow>,
    /// clock_log.arrow; empty in older runs and where it was not asked for.
    pub clock_log: Vec<ClockChangeRow>,
    /// samples.arrow with its stacks and frames; empty in older runs and without samples.
    pub samples: Samples,
    /// routines.arrow, in the order of time; empty in older runs and where the target is no Go program.
    pub routines: Vec<RoutineRow>,
    /// Why the run is not whole; empty when it is.
    pub partial: Vec<String>,
    /// What else a reader should know: the run is older than checksums.
    pub notes: Vec<String>,
    seals: Seals,
}

/// The events of one core, in time order.
#[derive(Clone, Debug, Default)]
pub struct CpuEvents {
    /// The core.
    pub cpu: u32,
    /// Its events, sorted by time (ties keep the order of recording).
    pub events: Vec<Event>,
}

impl Run {
    /// Opens a run directory: its description and small tables. Events are read by [`Run::events`].
    ///
    /// # Errors
    /// [`Error::NotARun`], [`Error::NewerVersion`], [`Error::Read`].
    pub fn open(dir: &Path) -> Result<Run, Error> {
        let not = |why: String| Error::NotARun { path: dir.into(), why };
        if !dir.is_dir() {
            return Err(not(if dir.exists() { "it is a file".into() } else { "there is no such directory".into() }));
        }
        let path = dir.join("run.json");
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(not("it has no run.json".into()));
            }
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(Error::read(
                    &path,
                    format!("{e}\n  a run is readable by the user who recorded it: try sudo"),
                ));
            }
            Err(e) => return Err(Error::read(&path, e)),
        };
        // The version comes first: a newer run.json may hold what this version cannot parse.
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|e| not(format!("its run.json is not JSON: {e}")))?;
        if value.get("format").and_then(|f| f.as_str()) != Some("tailsight-run") {
            return Err(not("its run.json does not say \"format\": \"tailsight-run\"".into()));
        }
        let version = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if version > u64::from(FORMAT_VERSION) {
            return Err(Error::NewerVersion {
                path: dir.into(),
                found: u32::try_from(version).unwrap_or(u32::MAX),
                supported: FORMAT_VERSION,
            });
        }
        let mut meta: RunMeta =
            serde_json::from_value(value).map_err(|e| not(format!("its run.json cannot be decoded: {e}")))?;
        let mut partial = Vec::new();
        match meta.state {
            State::Complete => {}
            State::Recording => partial.push("the recording was killed before it ended".into()),
            State::Partial => partial.push(meta.partial.clone().unwrap_or_else(|| "the recording ended early".into())),
        }
        limit(&mut meta, &mut partial);
        let seals = Seals::of(dir, &text, &meta, &mut partial);
        let notes = match seals.is_old() {
            true => {
                vec![format!(
                    "this run has format version {} and no checksums: damage cannot be detected",
                    meta.version
                )]
            }
            false => vec![],
        };
        let tables = Tables { dir, seals: &seals };
        let tasks = tables.read("tasks.arrow", &mut partial, task_rows);
        let sockets = tables.read("sockets.arrow", &mut partial, socket_rows);
        let clocks = tables.read("clocks.arrow", &mut partial, clock_rows);
        // Only where a NIC stamps is there such a table.
        let has_nic_clocks = !meta.nic.devices.is_empty() || dir.join("nic_clocks.arrow").exists();
        let nic_clocks =
            if has_nic_clocks { tables.read("nic_clocks.arrow", &mut partial, nic_clock_rows) } else { Vec::new() };
        let clock_log = match dir.join("clock_log.arrow").exists() {
            true => tables.read("clock_log.arrow", &mut partial, clock_change_rows),
            false => Vec::new(),
        };
        for core in unknown_cores(dir, &seals, &meta)? {
            partial.push(format!("{core} does not belong to this run and is not read"));
        }
        let samples = read_samples(&tables, &meta, &mut partial);
        let routines = read_routines(&tables, &meta, &mut partial);
        Ok(Run {
            dir: dir.into(),
            meta,
            tasks,
            sockets,
            clocks,
            nic_clocks,
            clock_log,
            samples,
            routines,
            partial,
            notes,
            seals,
        })
    }

    /// Whether what [`Run::partial`] lacks was there when the recording ended: files were changed, cut or lost since. Known when the
    /// events were read. A run that ended early is not damaged by that.
    pub fn is_damaged(&self) -> bool {
        let whole_once = self.meta.state == State::Complete && !self.partial.is_empty();
        whole_once || self.partial.iter().any(|why| why.contains(CHANGED))
    }

    /// Opens every core's events, to be read a batch at a time. When all were read, [`Run::conclude`] says what was cut.
    ///
    /// # Errors
    /// [`Error::Read`] when the events folder cannot be listed or a stream cannot be opened.
    pub fn streams(&self) -> Result<Vec<EventStream>, Error> {
        let files = core_files(&self.dir)?.into_iter();
        let of_cores = files.filter(|(cpu, _)| is_core_of(*cpu, &self.seals, &self.meta));
        of_cores.map(|(cpu, path)| EventStream::open(cpu, path, &self.seals)).collect()
    }

    /// Notes in `partial` what streams that were read to their ends lacked.
    pub fn conclude(&mut self, streams: &[EventStream]) {
        for stream in streams {
            let cpu = stream.cpu;
            let expected = self.meta.cpus.iter().find(|c| c.cpu == cpu).map(|c| c.events);
            // A run that was killed says so already.
            let killed = |why: &&str| *why == stream::NO_END_MARK && self.meta.state == State::Recording;
            if let Some(why) = stream.cut().filter(|why| !killed(why)) {
                self.partial.push(format!("events of core {cpu} are cut: {why}"));
            } else if let Some(n) = expected.filter(|n| self.meta.state == State::Complete && *n != stream.taken()) {
                self.partial.push(format!("events of core {cpu}: {} on disk, run.json says {n}", stream.taken()));
            }
        }
        for cpu in self.meta.cpus.iter().filter(|c| c.events > 0) {
            if !streams.iter().any(|s| s.cpu == cpu.cpu) {
                self.partial.push(format!("events of core {} are missing", cpu.cpu));
            }
        }
    }

    /// Reads every core's events, sorted by time. What a cut file still holds is read and noted in `partial`.
    ///
    /// # Errors
    /// [`Error::Read`] when the events folder cannot be listed or a stream is not one of ours.
    pub fn events(&mut self) -> Result<Vec<CpuEvents>, Error> {
        let mut streams = self.streams()?;
        let mut cores = Vec::with_capacity(streams.len());
        for stream in &mut streams {
            cores.push(CpuEvents { cpu: stream.cpu, events: stream.read_all()? });
        }
        self.conclude(&streams);
        Ok(cores)
    }
}

/// Cores that a kernel can have, as far as the recorder goes.
const MAX_CPUS: u32 = 1024;

/// Counts of run.json that others make tables by: no larger than anything that was ever recorded.
fn limit(meta: &mut RunMeta, partial: &mut Vec<String>) {
    if meta.host.cpus > MAX_CPUS {
        partial
            .push(format!("run.json says {} cores, more than a recorder writes; {MAX_CPUS} is used", meta.host.cpus));
        meta.host.cpus = MAX_CPUS;
    }
    let cores = meta.cpus.len();
    meta.cpus.retain(|c| c.cpu < MAX_CPUS);
    meta.cpus.truncate(MAX_CPUS as usize);
    if meta.cpus.len() < cores {
        partial.push(format!("run.json lists {cores} cores, some with impossible numbers"));
    }
}

/// Files of events by the cores that they are named for.
fn core_files(dir: &Path) -> Result<Vec<(u32, PathBuf)>, Error> {
    let folder = dir.join("events");
    let mut files: Vec<(u32, PathBuf)> = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|e| Error::read(&folder, e))? {
        let path = entry.map_err(|e| Error::read(&folder, e))?.path();
        let cpu = path
            .file_stem()
            .and_then(|s| s.to_str())
            .and_then(|s| s.strip_prefix("cpu-"))
            .and_then(|s| s.parse().ok().filter(|n: &u16| n.to_string() == s))
            .map(u32::from);
        if let (Some(cpu), Some("arrow")) = (cpu, path.extension().and_then(|e| e.to_str())) {
            files.push((cpu, path));
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a core's file belongs to the run: it is known by its checksums; of a run without them, by the cores that it lists and,
/// when it was killed before it listed any, by those that the host had.
fn is_core_of(cpu: u32, seals: &Seals, meta: &RunMeta) -> bool {
    if !seals.is_old() {
        return seals.knows(&format!("events/cpu-{cpu}.arrow"));
    }
    let had = if meta.host.cpus == 0 { MAX_CPUS } else { meta.host.cpus };
    match meta.state {
        State::Complete if !meta.cpus.is_empty() => meta.cpus.iter().any(|c| c.cpu == cpu),
        _ => cpu < had,
    }
}

/// Files of cores that are not the run's; a few are enough to say.
fn unknown_cores(dir: &Path, seals: &Seals, meta: &RunMeta) -> Result<Vec<String>, Error> {
    // A folder that is not there is said where its events are read.
    let files = core_files(dir).unwrap_or_default().into_iter();
    let unknown = files.filter(|(cpu, _)| !is_core_of(*cpu, seals, meta));
    Ok(unknown.take(8).map(|(cpu, _)| format!("events/cpu-{cpu}.arrow")).collect())
}

/// run.json takes some KiB; a file beyond this is something else.
const MAX_JSON: u64 = 64 << 20;

/// run.json as text.
fn read_text(path: &Path) -> std::io::Result<String> {
    let about = fs::metadata(path)?;
    if !about.is_file() || about.len() > MAX_JSON {
        return Err(std::io::Error::other("it is not a text file"));
    }
    fs::read_to_string(path)
}

/// A file to read; anything else under its name (a folder, a pipe that nobody writes to) is an error, not a wait.
fn open_file(path: &Path) -> Result<File, Error> {
    let is_file = fs::metadata(path).map_err(|e| Error::read(path, e))?.is_file();
    if !is_file {
        return Err(Error::read(path, "it is not a file"));
    }
    File::open(path).map_err(|e| Error::read(path, e))
}

/// A stream's whole batches, one after the other.
#[derive(Debug)]
pub(crate) struct Batches {
    path: PathBuf,
    reader: Option<StreamReader<BufReader<Take<File>>>>,
    /// Rows in all of them.
    pub rows: u64,
    /// Once the last was taken: why the stream is cut after it, if it is.
    pub cut: Option<String>,
}

/// What a decoder says that panicked. Lengths and types are checked before; should it panic on what is inside the buffers
/// all the same, outside data must not take the process down: the stream is cut there.
const DAMAGED: &str = "damaged data";

impl Batches {
    /// Opens a stream and checks how far it is as it was written, and can be read. `name`: in the run.
    pub fn open(path: PathBuf, name: &str, seals: &Seals) -> Result<Batches, Error> {
        let mut file = open_file(&path)?;
        let (whole, damage) = seals.check(name, &file).map_err(|e| Error::read(&path, e))?;
        file.seek(SeekFrom::Start(0)).map_err(|e| Error::read(&path, e))?;
        let readable = stream::readable(&file, whole).map_err(|e| Error::read(&path, e))?;
        file.seek(SeekFrom::Start(0)).map_err(|e| Error::read(&path, e))?;
        let mut out = Batches { path, reader: None, rows: readable.rows, cut: damage.or(readable.cut) };
        if readable.bytes == 0 {
            out.cut.get_or_insert_with(|| "it is empty".into());
            return Ok(out);
        }
        let front = BufReader::with_capacity(1 << 16, file.take(readable.bytes));
        match catch_unwind(AssertUnwindSafe(|| StreamReader::try_new(front, None))) {
            Ok(Ok(reader)) => out.reader = Some(reader),
            Ok(Err(e)) => out.cut = Some(format!("no readable schema ({e})")),
            Err(_) => out.cut = Some(DAMAGED.into()),
        }
        Ok(out)
    }

    /// Feeds the next batch to `each`; `false`: there is none.
    pub fn next(&mut self, each: impl FnOnce(&RecordBatch) -> Result<(), String>) -> Result<bool, Error> {
        let Some(reader) = &mut self.reader else { return Ok(false) };
        let path = &self.path;
        let guarded = catch_unwind(AssertUnwindSafe(|| match reader.next() {
            None => Ok(Err(None)),
            Some(Err(e)) => Ok(Err(Some(e.to_string()))),
            Some(Ok(batch)) => each(&batch).map(Ok).map_err(|why| Error::read(path, why)),
        }));
        match guarded.unwrap_or_else(|_| Ok(Err(Some(DAMAGED.into()))))? {
            Ok(()) => Ok(true),
            Err(why) => {
                self.reader = None;
                self.cut = why.or(self.cut.take());
                Ok(false)
            }
        }
    }
}

/// The tables of a run.
struct Tables<'a> {
    dir: &'a Path,
    seals: &'a Seals,
}

impl Tables<'_> {
    fn read<T>(
        &self,
        name: &str,
        partial: &mut Vec<String>,
        rows: impl Fn(&RecordBatch) -> Result<Vec<T>, String>,
    ) -> Vec<T> {
        let mut values = Vec::new();
        let taken = Batches::open(self.dir.join(name), name, self.seals).and_then(|mut batches| {
            while batches.next(|batch| rows(batch).map(|rows| values.extend(rows)))? {}
            Ok(batches.cut)
        });
        match taken {
            Ok(None) => {}
            Ok(Some(why)) => partial.push(format!("{name} is cut: {why}")),
            Err(e) => partial.push(tailsight_units::chain(&e)),
        }
        values
    }
}

macro_rules! primitive {
    ($batch:expr, $name:literal, $ty:ty) => {
        $batch
            .column_by_name($name)
            .and_then(|c| c.as_primitive_opt::<$ty>())
            .ok_or_else(|| format!("column {} is missing or of another type", $name))?
            .values()
    };
}

/// Appends a batch of events.
pub(crate) fn event_rows(batch: &RecordBatch, out: &mut Vec<Event>) -> Result<(), String> {
    let ts = primitive!(batch, "ts", UInt64Type);
    let kind = primitive!(batch, "kind", UInt8Type);
    let aux = primitive!(batch, "aux", UInt16Type);
    let tid = primitive!(batch, "tid", UInt32Type);
    let a = primitive!(batch, "a", UInt64Type);
    let b = primitive!(batch, "b", UInt64Type);
    let c = primitive!(batch, "c", UInt64Type);
    debug_assert!(event_schema().fields().len() == 7, "a new column must be read here");
    let who = kind.iter().zip(aux).zip(tid);
    let payload = a.iter().zip(b).zip(c);
    out.extend(ts.iter().zip(who).zip(payload).map(|((&ts, ((&kind, &aux), &tid)), ((&a, &b), &c))| Event {
        ts,
        kind,
        generation: 0,
        aux,
        tid,
        a,
        b,
        c,
    }));
    Ok(())
}

fn strings<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a StringArray, String> {
    batch
        .column_by_name(name)
        .and_then(|c| c.as_string_opt::<i32>())
        .ok_or_else(|| format!("column {name} is missing or not text"))
}

fn flag(batch: &RecordBatch, name: &str, row: usize) -> bool {
    batch.column_by_name(name).and_then(|c| c.as_boolean_opt()).is_some_and(|c| c.value(row))
}

fn task_rows(batch: &RecordBatch) -> Result<Vec<TaskRow>, String> {
    let from = primitive!(batch, "from_ns", UInt64Type);
    let tid = primitive!(batch, "tid", UInt32Type);
    let tgid = primitive!(batch, "tgid", UInt32Type);
    let comm = strings(batch, "comm")?;
    // Older runs have none.
    let cgroup = strings(batch, "cgroup").ok();
    Ok((0..batch.num_rows())
        .map(|i| TaskRow {
            from_ns: from[i],
            tid: tid[i],
            tgid: tgid[i],
            comm: comm.value(i).to_owned(),
            target: flag(batch, "target", i),
            kernel: flag(batch, "kernel", i),
            cgroup: cgroup.map_or_else(String::new, |c| c.value(i).to_owned()),
        })
        .collect())
}

fn socket_rows(batch: &RecordBatch) -> Result<Vec<SocketRow>, String> {
    let (proto, comm) = (strings(batch, "proto")?, strings(batch, "comm")?);
    let (local, remote) = (strings(batch, "local_addr")?, strings(batch, "remote_addr")?);
    let local_port = primitive!(batch, "local_port", UInt16Type);
    let remote_port = primitive!(batch, "remote_port", UInt16Type);
    let tgid = primitive!(batch, "tgid", UInt32Type);
    let addrs = primitive!(batch, "addrs", UInt64Type);
    Ok((0..batch.num_rows())
        .map(|i| SocketRow {
            proto: proto.value(i).to_owned(),
            local_addr: local.value(i).to_owned(),
            local_port: local_port[i],
            remote_addr: remote.value(i).to_owned(),
            remote_port: remote_port[i],
            listening: flag(batch, "listening", i),
            tgid: tgid[i],
            comm: comm.value(i).to_owned(),
            addrs: addrs[i],
        })
        .collect())
}

/// The three tables of samples, where the run has them. A run that was killed has none.
fn read_samples(tables: &Tables<'_>, meta: &RunMeta, partial: &mut Vec<String>) -> Samples {
    if meta.sampling.as_ref().is_none_or(|s| s.samples == 0 && s.skipped == 0) {
        return Samples::default();
    }
    let frames: Vec<FrameRow> = tables.read("sample_frames.arrow", partial, frame_rows);
    let mut stacks: Vec<Vec<u32>> = Vec::new();
    for (stack, frame) in tables.read("sample_stacks.arrow", partial, stack_rows) {
        // Numbers go up one by one: whatever a damaged file says, there are no more stacks than rows.
        if stack as usize >= stacks.len() {
            stacks.push(Vec::new());
        }
        if let Some(frames) = stacks.get_mut(stack as usize) {
            frames.push(frame);
        }
    }
    let mut rows: Vec<SampleRow> = tables.read("samples.arrow", partial, sample_rows);
    rows.retain(|row| row.kind == kind::SKIPPED || (row.stack as usize) < stacks.len());
    rows.sort_by_key(|row| row.ts_ns);
    Samples { rows, stacks, frames }
}

/// Looks at goroutines, where the run has some.
fn read_routines(tables: &Tables<'_>, meta: &RunMeta, partial: &mut Vec<String>) -> Vec<RoutineRow> {
    if meta.routines.as_ref().is_none_or(|said| said.looks == 0) {
        return vec![];
    }
    let mut rows: Vec<RoutineRow> = tables.read("routines.arrow", partial, routine_rows);
    rows.sort_by_key(|row| row.ts_ns);
    rows
}

fn routine_rows(batch: &RecordBatch) -> Result<Vec<RoutineRow>, String> {
    let (ts, since) = (primitive!(batch, "ts_ns", UInt64Type), primitive!(batch, "since_ns", UInt64Type));
    let (pid, stack) = (primitive!(batch, "pid", UInt32Type), primitive!(batch, "stack", UInt32Type));
    let routine = primitive!(batch, "routine", UInt64Type);
    let state = primitive!(batch, "state", UInt8Type);
    let row = |i: usize| {
        // A state that a later version has says nothing here.
        let state = RoutineState::from_u8(state[i])?;
        Some(RoutineRow { ts_ns: ts[i], pid: pid[i], routine: routine[i], since_ns: since[i], state, stack: stack[i] })
    };
    Ok((0..batch.num_rows()).filter_map(row).collect())
}

fn frame_rows(batch: &RecordBatch) -> Result<Vec<FrameRow>, String> {
    let (function, module) = (strings(batch, "function")?, strings(batch, "module")?);
    let (build_id, source) = (strings(batch, "build_id")?, strings(batch, "source")?);
    let offset = primitive!(batch, "offset", UInt64Type);
    // Older runs do not have these.
    let neighbours = ["exported_before", "exported_after"].map(|name| strings(batch, name).ok());
    let neighbour = |which: usize, i| neighbours[which].map_or_else(String::new, |names| names.value(i).to_owned());
    Ok((0..batch.num_rows())
        .map(|i| FrameRow {
            function: function.value(i).to_owned(),
            module: module.value(i).to_owned(),
            build_id: build_id.value(i).to_owned(),
            offset: offset[i],
            source: source.value(i).to_owned(),
            exported_before: neighbour(0, i),
            exported_after: neighbour(1, i),
            kernel: flag(batch, "kernel", i),
            inlined: flag(batch, "inlined", i),
            own: flag(batch, "own", i),
        })
        .collect())
}

fn stack_rows(batch: &RecordBatch) -> Result<Vec<(u32, u32)>, String> {
    let stack = primitive!(batch, "stack", UInt32Type);
    let frame = primitive!(batch, "frame", UInt32Type);
    Ok((0..batch.num_rows()).map(|i| (stack[i], frame[i])).collect())
}

fn sample_rows(batch: &RecordBatch) -> Result<Vec<SampleRow>, String> {
    let ts = primitive!(batch, "ts_ns", UInt64Type);
    let cpu = primitive!(batch, "cpu", UInt16Type);
    let tid = primitive!(batch, "tid", UInt32Type);
    let tgid = primitive!(batch, "tgid", UInt32Type);
    let kind = primitive!(batch, "kind", UInt8Type);
    let stack = primitive!(batch, "stack", UInt32Type);
    // In older runs each tick took a sample.
    let weight = batch.column_by_name("weight").and_then(|c| c.as_primitive_opt::<UInt16Type>());
    Ok((0..batch.num_rows())
        .map(|i| SampleRow {
            ts_ns: ts[i],
            cpu: cpu[i],
            tid: tid[i],
            tgid: tgid[i],
            kind: kind[i],
            weight: weight.map_or(1, |w| w.value(i)),
            stack: stack[i],
        })
        .collect())
}

fn nic_clock_rows(batch: &RecordBatch) -> Result<Vec<NicClockRow>, String> {
    let phc = primitive!(batch, "phc", UInt32Type);
    let monotonic = primitive!(batch, "monotonic_ns", UInt64Type);
    let phc_ns = primitive!(batch, "phc_ns", UInt64Type);
    let error = primitive!(batch, "error_ns", UInt64Type);
    Ok((0..batch.num_rows())
        .map(|i| NicClockRow { phc: phc[i], monotonic_ns: monotonic[i], phc_ns: phc_ns[i], error_ns: error[i] })
        .collect())
}

fn clock_change_rows(batch: &RecordBatch) -> Result<Vec<ClockChangeRow>, String> {
    let (seq, mult, shift) = (
        primitive!(batch, "seq", UInt32Type),
        primitive!(batch, "mult", UInt32Type),
        primitive!(batch, "shift", UInt32Type),
    );
    let cycle_last = primitive!(batch, "cycle_last", UInt64Type);
    let (monotonic_s, monotonic) =
        (primitive!(batch, "monotonic_s", UInt64Type), primitive!(batch, "monotonic_shifted_ns", UInt64Type));
    let (realtime_s, realtime) =
        (primitive!(batch, "realtime_s", UInt64Type), primitive!(batch, "realtime_shifted_ns", UInt64Type));
    let (tai_s, tai) = (primitive!(batch, "tai_s", UInt64Type), primitive!(batch, "tai_shifted_ns", UInt64Type));
    let row = |i: usize| ClockChangeRow {
        seq: seq[i],
        cycle_last: cycle_last[i],
        mult: mult[i],
        shift: shift[i],
        monotonic_s: monotonic_s[i],
        monotonic_shifted_ns: monotonic[i],
        realtime_s: realtime_s[i],
        realtime_shifted_ns: realtime[i],
        tai_s: tai_s[i],
        tai_shifted_ns: tai[i],
    };
    Ok((0..batch.num_rows()).map(row).collect())
}

fn clock_rows(batch: &RecordBatch) -> Result<Vec<ClockRow>, String> {
    let monotonic = primitive!(batch, "monotonic_ns", UInt64Type);
    let realtime = primitive!(batch, "realtime_ns", UInt64Type);
    let boottime = primitive!(batch, "boottime_ns", UInt64Type);
    let tsc = primitive!(batch, "tsc", UInt64Type);
    let bracket = primitive!(batch, "bracket_ns", UInt64Type);
    Ok((0..batch.num_rows())
        .map(|i| ClockRow {
            monotonic_ns: monotonic[i],
            realtime_ns: realtime[i],
            boottime_ns: boottime[i],
            tsc: tsc[i],
            bracket_ns: bracket[i],
        })
        .collect())
}
