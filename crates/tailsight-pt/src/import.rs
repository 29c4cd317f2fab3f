//! From a recording to a run: each function that was entered and left is an event of its core.
//!
//! In: an opened [`Recording`], and a run of the ebpf source that was recorded at the same time, if there is one. Out: a run. Alone, it
//! holds the functions and the context switches on perf's own timeline: no messages. With a run, the functions are put between that
//! run's events, on its timeline (CLOCK_MONOTONIC), by the time-stamp counter that both know.

use std::collections::BTreeMap;
use std::path::Path;

use rustc_hash::FxHashMap;
use tailsight_trace::clock_log::{Clock, ClockLog};
use tailsight_trace::event::{Kind, function_flags, switch_flags};
use tailsight_trace::meta::{Cpu, Host, RunMeta, State, Target, Traced, TracedFunction};
use tailsight_trace::tables::{ClockRow, TaskRow};
use tailsight_trace::write::{BATCH_EVENTS, RunWriter};
use tailsight_trace::{Event as RunEvent, FORMAT_VERSION, Run};

use crate::Error;
use crate::memory::Memory;
use crate::recording::{Recording, Summary, Window};
use crate::script::Script;
use crate::sideband::{Sideband, TscClock};
use crate::stacks::{Event, What};

/// `TASK_INTERRUPTIBLE`: perf does not say how a task sleeps.
const ASLEEP: u64 = 1;
/// The position of a stack's first function; each nested one is 16 lower, as stacks grow down.
const FIRST_POSITION: u32 = 0xffff_fff0;
/// A time that is farther than this from every comparison of clocks is not converted, ns.
const MOST_APART_NS: u64 = 1_000_000_000;

/// The source of a run.
pub trait Source {
    /// The file.
    fn path(&self) -> &Path;
    /// Which thread ran on each core.
    fn sideband(&self) -> &Sideband;
    /// The code that ran.
    fn memory(&self) -> &Memory;
    /// perf's clock.
    fn clock(&self) -> TscClock;
    /// Decodes windows of it, or all, and gives what happened to `each`, in order of time on each core.
    ///
    /// # Errors
    /// Every [`Error`].
    fn decode(&self, windows: Option<&[Window]>, each: &mut dyn FnMut(&Event)) -> Result<Summary, Error>;
}

impl Source for Recording {
    fn path(&self) -> &Path {
        &self.container.path
    }

    fn sideband(&self) -> &Sideband {
        &self.sideband
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn clock(&self) -> TscClock {
        self.clock
    }

    fn decode(&self, windows: Option<&[Window]>, each: &mut dyn FnMut(&Event)) -> Result<Summary, Error> {
        Recording::decode(self, windows, each)
    }
}

/// Text has perf's time and nothing to convert it.
impl Source for Script {
    fn path(&self) -> &Path {
        &self.path
    }

    fn sideband(&self) -> &Sideband {
        &self.sideband
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn clock(&self) -> TscClock {
        TscClock { shift: 0, mult: 1, zero: 0 }
    }

    fn decode(&self, _: Option<&[Window]>, each: &mut dyn FnMut(&Event)) -> Result<Summary, Error> {
        Script::decode(self, each)
    }
}

/// How perf's time is converted to a run's.
#[derive(Clone, Debug)]
pub enum Timeline {
    /// Both are the same.
    Perf,
    /// By the kernel's own conversions, recorded change by change.
    Log(Box<ClockLog>),
    /// By comparisons of the counter with CLOCK_MONOTONIC, one every 100 ms.
    Compared(Vec<ClockRow>),
}

impl Timeline {
    /// The best conversion that a run has.
    ///
    /// # Errors
    /// [`Error::With`] when the run knows nothing of the time-stamp counter.
    pub fn of(run: &Run) -> Result<Timeline, Error> {
        let log = ClockLog::new(run.clock_log.iter().copied());
        if !log.is_empty() {
            return Ok(Timeline::Log(Box::new(log)));
        }
        let rows: Vec<ClockRow> = run.clocks.iter().filter(|row| row.tsc != 0).copied().collect();
        if rows.len() < 2 {
            let why = "it knows nothing of the time-stamp counter (clocks.arrow, clock_log.arrow)".into();
            return Err(Error::With { run: run.dir.clone(), why });
        }
        Ok(Timeline::Compared(rows))
    }

    /// Converts perf's time to a time of the run, with its largest error, ns.
    pub fn place(&self, clock: TscClock, ns: u64) -> Option<(u64, u64)> {
        match self {
            Timeline::Perf => Some((ns, 0)),
            Timeline::Log(log) => log.convert(Clock::Monotonic, clock.tsc(ns)).map(|t| (t.ns, t.error_ns)),
            Timeline::Compared(rows) => between(rows, clock.tsc(ns)),
        }
    }

    /// Converts a time of the run to perf's time.
    pub fn back(&self, clock: TscClock, ns: u64) -> Option<u64> {
        match self {
            Timeline::Perf => Some(ns),
            Timeline::Log(log) => log.tsc_at(ns).map(|tsc| clock.ns(tsc)),
            Timeline::Compared(rows) => {
                let i = rows.partition_point(|row| row.monotonic_ns <= ns).clamp(1, rows.len() - 1);
                let (a, b) = (&rows[i - 1], &rows[i]);
                let tsc = line((a.monotonic_ns, a.tsc), (b.monotonic_ns, b.tsc), ns)?;
                Some(clock.ns(tsc))
            }
        }
    }
}

/// The line through two points, at x.
fn line(a: (u64, u64), b: (u64, u64), x: u64) -> Option<u64> {
    let (dx, dy) = (i128::from(b.0) - i128::from(a.0), i128::from(b.1) - i128::from(a.1));
    let rise = (i128::from(x) - i128::from(a.0)).checked_mul(dy)? / Some(dx).filter(|dx| *dx != 0)?;
    u64::try_from(i128::from(a.1).checked_add(rise)?).ok()
}

fn between(rows: &[ClockRow], tsc: u64) -> Option<(u64, u64)> {
    let i = rows.partition_point(|row| row.tsc <= tsc).clamp(1, rows.len() - 1);
    let (a, b) = (&rows[i - 1], &rows[i]);
    let ns = line((a.tsc, a.monotonic_ns), (b.tsc, b.monotonic_ns), tsc)?;
    // Between two rows the counter's rate may have been steered; beyond the rows it is unknown.
    let near = ns.abs_diff(a.monotonic_ns).min(ns.abs_diff(b.monotonic_ns));
    let error = a.bracket_ns.max(b.bracket_ns) / 2 + near / 10_000 + 1;
    (near <= MOST_APART_NS).then_some((ns, error))
}

/// The time of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionTime {
    /// Its name.
    pub function: String,
    /// The file that it is in.
    pub module: String,
    /// Whether it is the kernel's.
    pub kernel: bool,
    /// How often it was entered.
    pub calls: u64,
    /// Time on a core in it and in what it called, ns.
    pub total_ns: u64,
    /// Time on a core in it alone, ns.
    pub own_ns: u64,
}

/// The result of importing a recording.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// What was decoded.
    pub summary: Summary,
    /// Functions by their own time, most first.
    pub functions: Vec<FunctionTime>,
    /// Events that were written for functions.
    pub events: u64,
    /// Events that were left out, because they lie before or after the run's recording.
    pub outside: u64,
    /// The largest error of a time, ns.
    pub clock_error_ns: u64,
    /// Files with code that were not found: name and why.
    pub missing: Vec<(String, String)>,
    /// Records that perf lost: context switches, mappings.
    pub lost_records: u64,
}

/// The output run.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Its directory.
    pub dir: &'a Path,
    /// Whether another user may be able to write to it.
    pub shared: bool,
    /// The version of tailsight.
    pub version: &'a str,
}

/// Collects a recording's events as those of a run.
struct Sink<'a> {
    timeline: &'a Timeline,
    clock: TscClock,
    /// Whether switches are written, too.
    switches: bool,
    range: (u64, u64),
    by_cpu: BTreeMap<u32, Vec<RunEvent>>,
    depths: FxHashMap<(u32, u32), u32>,
    current: FxHashMap<u32, u32>,
    times: Times,
    out: Imported,
}

impl Sink<'_> {
    fn take(&mut self, event: &Event) {
        self.times.take(event);
        let cpu = if event.cpu == u32::MAX { 0 } else { event.cpu };
        let key = (event.tid, if event.tid == 0 { cpu } else { 0 });
        let depth = self.depths.entry(key).or_default();
        let flags = if event.kernel { function_flags::KERNEL } else { 0 };
        let position = |depth: u32| u64::from(FIRST_POSITION - 16 * depth.min(4096)) << 32;
        let (kind, aux, a, b) = match event.what {
            What::Enter(f, _) => {
                *depth += 1;
                (Kind::FunctionBegin, flags, u64::from(f) | position(*depth - 1), 0)
            }
            What::Leave(f) => {
                *depth = depth.saturating_sub(1);
                (Kind::FunctionEnd, flags, u64::from(f) | position(*depth), 0)
            }
            What::Switch { preempted, .. } => {
                let before = self.current.insert(cpu, event.tid).unwrap_or(0);
                if !self.switches || before == event.tid {
                    return;
                }
                let (aux, state) = if preempted { (switch_flags::PREEMPTED, 0) } else { (0, ASLEEP) };
                (Kind::SchedSwitch, aux, u64::from(before) | u64::from(event.tid) << 32, state)
            }
            What::Gap(_) if self.switches => (Kind::Lost, 0, 0, 1),
            _ => return,
        };
        let Some((ts, error)) = self.timeline.place(self.clock, event.ns) else {
            self.out.outside += 1;
            return;
        };
        if ts < self.range.0 || ts > self.range.1 {
            self.out.outside += 1;
            return;
        }
        self.out.clock_error_ns = self.out.clock_error_ns.max(error);
        self.out.events += 1;
        // The thread that ran when the event was written: for a switch, the one that leaves.
        let tid = if kind == Kind::SchedSwitch { a as u32 } else { event.tid };
        let written = RunEvent { ts, kind: kind as u8, aux, tid, a, b, ..RunEvent::default() };
        self.by_cpu.entry(cpu).or_default().push(written);
    }
}

/// Time on a core by function.
#[derive(Default)]
struct Times {
    threads: FxHashMap<(u32, u32), ThreadTime>,
    /// By core: the thread on it, and since when it runs.
    cores: FxHashMap<u32, (u32, Option<u64>)>,
    functions: Vec<(u64, u64, u64)>,
}

#[derive(Default)]
struct ThreadTime {
    /// Time on a core so far, ns.
    on_core: u64,
    /// Open functions: number, time on a core when it began, and the time of its callees.
    open: Vec<(u32, u64, u64)>,
}

impl Times {
    fn take(&mut self, event: &Event) {
        let key = |tid: u32| (tid, if tid == 0 { event.cpu } else { 0 });
        let (tid, since) = *self.cores.entry(event.cpu).or_insert((event.tid, None));
        // The thread that used the core until now.
        if let Some(since) = since {
            self.threads.entry(key(tid)).or_default().on_core += event.ns.saturating_sub(since);
        }
        let runs = match event.what {
            What::Gap(_) | What::Off => None,
            What::Switch { .. } => since.map(|_| event.ns),
            _ => Some(event.ns),
        };
        self.cores.insert(event.cpu, (event.tid, runs));
        let thread = self.threads.entry(key(event.tid)).or_default();
        match event.what {
            What::Enter(f, _) => thread.open.push((f, thread.on_core, 0)),
            What::Leave(f) => {
                if let Some((opened, begin, callees)) = thread.open.pop() {
                    debug_assert_eq!(opened, f, "spans nest");
                    let total = thread.on_core - begin;
                    if let Some(caller) = thread.open.last_mut() {
                        caller.2 += total;
                    }
                    if self.functions.len() <= opened as usize {
                        self.functions.resize(opened as usize + 1, (0, 0, 0));
                    }
                    let again = thread.open.iter().any(|(f, ..)| *f == opened);
                    let of = &mut self.functions[opened as usize];
                    of.0 += 1;
                    // A recursive call counts once.
                    of.1 += if again { 0 } else { total };
                    of.2 += total.saturating_sub(callees);
                }
            }
            _ => {}
        }
    }
}

/// Decodes a recording into a run of its own.
///
/// # Errors
/// Every [`Error`].
pub fn alone(recording: &impl Source, output: Output<'_>) -> Result<Imported, Error> {
    let (imported, events) = decode(recording, &Timeline::Perf, None, (0, u64::MAX), true)?;
    let (first, last) = imported.summary.span_ns.unwrap_or((0, 0));
    let mut meta = RunMeta {
        source: "intel-pt".into(),
        host: Host {
            kernel: recording.sideband().kernel_release.clone(),
            arch: "x86_64".into(),
            cpus: events.keys().max().map_or(0, |cpu| cpu + 1),
            cpu_model: recording.sideband().cpu_model.clone(),
            ..Host::default()
        },
        target: Target { selector: recording.path().display().to_string(), ..Target::default() },
        start_ns: first,
        end_ns: last,
        ..RunMeta::default()
    };
    let tasks = tasks(recording);
    meta.target.app = tasks.iter().find(|t| t.tid == t.tgid && t.tid != 0).map_or_else(String::new, |t| t.comm.clone());
    let write = |writer: &RunWriter| -> Result<(), Error> {
        writer.tasks(&tasks)?;
        writer.sockets(&[])?;
        Ok(writer.clocks(&[])?)
    };
    finish(meta, imported, &events, output, write)
}

/// Decodes the windows of a recording (of the run's timeline; none: all of it) and puts its functions between the events of a run, into
/// a new run. Its memory is bounded by the windows: it holds their functions and the run's events.
///
/// # Errors
/// Every [`Error`].
pub fn with(
    recording: &Recording,
    run: &mut Run,
    windows: Option<&[(u64, u64)]>,
    output: Output<'_>,
) -> Result<Imported, Error> {
    let timeline = Timeline::of(run)?;
    let back = |ns: u64| timeline.back(recording.clock, ns);
    let windows: Option<Vec<Window>> = windows.map(|all| {
        let window = |&(from, to): &(u64, u64)| Some(Window { from_ns: back(from)?, to_ns: back(to)? });
        all.iter().filter_map(window).collect()
    });
    let range = (run.meta.start_ns, run.meta.end_ns);
    let (imported, functions) = decode(recording, &timeline, windows.as_deref(), range, false)?;
    if imported.events == 0 {
        let why = format!(
            "none of the recording's functions lies within it ({} events were outside): were they recorded at the same time, \
             on the same boot of the same machine?",
            imported.outside
        );
        return Err(Error::With { run: run.dir.clone(), why });
    }
    let mut events: BTreeMap<u32, Vec<RunEvent>> = run.events()?.into_iter().map(|c| (c.cpu, c.events)).collect();
    for (cpu, more) in functions {
        let all = events.entry(cpu).or_default();
        all.extend(more);
        // Stable: at the same nanosecond the run's own events come first.
        all.sort_by_key(|event| event.ts);
    }
    let meta = RunMeta { source: format!("{}+intel-pt", run.meta.source), ..run.meta.clone() };
    let write = |writer: &RunWriter| -> Result<(), Error> {
        writer.tasks(&run.tasks)?;
        writer.sockets(&run.sockets)?;
        writer.clocks(&run.clocks)?;
        if !run.nic_clocks.is_empty() {
            writer.nic_clocks(&run.nic_clocks)?;
        }
        if !run.clock_log.is_empty() {
            writer.clock_log(&run.clock_log)?;
        }
        if run.meta.sampling.is_some() {
            writer.samples(&run.samples)?;
        }
        Ok(())
    };
    finish(meta, imported, &events, output, write)
}

type ByCpu = BTreeMap<u32, Vec<RunEvent>>;

fn decode(
    recording: &impl Source,
    timeline: &Timeline,
    windows: Option<&[Window]>,
    range: (u64, u64),
    switches: bool,
) -> Result<(Imported, ByCpu), Error> {
    let mut sink = Sink {
        timeline,
        clock: recording.clock(),
        switches,
        range,
        by_cpu: BTreeMap::new(),
        depths: FxHashMap::default(),
        current: FxHashMap::default(),
        times: Times::default(),
        out: Imported::default(),
    };
    let summary = recording.decode(windows, &mut |event| sink.take(event))?;
    let mut out = sink.out;
    let totals = sink.times.functions;
    let of = |(i, named): (usize, &crate::recording::Named)| {
        let (calls, total_ns, own_ns) = totals.get(i).copied().unwrap_or_default();
        let (function, module, kernel) = (named.function.clone(), named.module.clone(), named.kernel);
        FunctionTime { function, module, kernel, calls, total_ns, own_ns }
    };
    out.functions = summary.functions.iter().enumerate().map(of).collect();
    out.missing = recording.memory().missing().map(|(name, why)| (name.to_owned(), why.to_owned())).collect();
    out.lost_records = recording.sideband().lost;
    out.summary = summary;
    Ok((out, sink.by_cpu))
}

fn tasks(recording: &impl Source) -> Vec<TaskRow> {
    let row = |n: &crate::sideband::Name| TaskRow {
        from_ns: n.time_ns,
        tid: n.tid,
        tgid: n.pid,
        comm: n.comm.clone(),
        target: true,
        kernel: n.pid == 2,
        cgroup: String::new(),
    };
    recording.sideband().names.iter().map(row).collect()
}

fn finish(
    mut meta: RunMeta,
    mut imported: Imported,
    events: &ByCpu,
    output: Output<'_>,
    tables: impl FnOnce(&RunWriter) -> Result<(), Error>,
) -> Result<Imported, Error> {
    meta.format = "tailsight-run".into();
    (meta.version, meta.tailsight, meta.state) = (FORMAT_VERSION, output.version.into(), State::Recording);
    let already = meta.traced.take().unwrap_or_default();
    if !already.functions.is_empty() {
        let why = "functions are traced in it already".into();
        return Err(Error::With { run: output.dir.into(), why });
    }
    let function = |f: &FunctionTime| TracedFunction {
        name: f.function.clone(),
        asked: "intel-pt".into(),
        kind: if f.kernel { "kernel" } else { "user" }.into(),
        module: f.module.rsplit('/').next().unwrap_or_default().into(),
        ends_by: "intel-pt".into(),
        calls: f.calls,
        ..TracedFunction::default()
    };
    meta.traced = Some(Traced { functions: imported.functions.iter().map(function).collect(), ..Traced::default() });
    meta.warnings.extend(warnings(&imported));
    meta.clock_error_ns = meta.clock_error_ns.max(imported.clock_error_ns);
    let mut writer = RunWriter::create_in(output.dir, &meta, output.shared)?;
    for (cpu, events) in events {
        for batch in events.chunks(BATCH_EVENTS) {
            writer.events(*cpu, batch)?;
        }
    }
    tables(&writer)?;
    let lost: BTreeMap<u32, u64> = meta.cpus.iter().map(|c| (c.cpu, c.lost)).collect();
    let core = |cpu: u32| Cpu { cpu, events: writer.written(cpu), lost: lost.get(&cpu).copied().unwrap_or(0) };
    meta.cpus = events.keys().map(|&cpu| core(cpu)).collect();
    meta.state = State::Complete;
    writer.finish(&mut meta)?;
    imported.functions.retain(|f| f.calls > 0);
    imported.functions.sort_by(|a, b| b.own_ns.cmp(&a.own_ns).then_with(|| a.function.cmp(&b.function)));
    Ok(imported)
}

/// Notes for the reader of the run.
fn warnings(imported: &Imported) -> Vec<String> {
    let mut out = Vec::new();
    let counts = &imported.summary.counts;
    for gap in crate::Gap::ALL {
        if let Some((n, ns)) = counts.gaps.get(&gap).filter(|_| gap != crate::Gap::NotDecoded) {
            out.push(format!("intel-pt: {n} gaps, {ns} ns in all: {}", gap.text()));
        }
    }
    if imported.lost_records > 0 {
        out.push(format!(
            "intel-pt: perf lost {} records of context switches and mappings: functions may be assigned to a wrong thread",
            imported.lost_records
        ));
    }
    out.extend(imported.missing.iter().map(|(name, why)| format!("intel-pt: no code of {name}: {why}")));
    for (why, n) in &imported.summary.errors {
        out.push(format!("intel-pt: {n} times: {why}"));
    }
    if counts.unnamed > 0 {
        out.push(format!("intel-pt: {} of {} spans are in code without symbols", counts.unnamed, counts.spans));
    }
    if let (Some(half), Some(most)) = (counts.granularity.quantile(0.5), counts.granularity.quantile(0.99)) {
        out.push(format!(
            "intel-pt: times are known in steps of {half} ns (median) to {most} ns (p99); ignore shorter differences"
        ));
    }
    out
}
