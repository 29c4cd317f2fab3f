//! From a recording to a run: each function that was entered and left is an event of its core.
//!
//! In: an opened [`Recording`], and a run of the ebpf source that was recorded at the same time, if there is one. Out: a run. Alone, it
//! holds the functions and the context switches on perf's own timeline: no messages. With a run, the functions are put between that
//! run's events, on its timeline (CLOCK_MONOTONIC), by the time-stamp counter that both know.

mod timeline;
mod times;

use std::collections::BTreeMap;
use std::path::Path;

use rustc_hash::FxHashMap;
use tailsight_trace::event::{Kind, function_flags, switch_flags};
use tailsight_trace::meta::{Cpu, Host, RunMeta, State, Target, Traced, TracedFunction};
use tailsight_trace::tables::TaskRow;
use tailsight_trace::write::RunWriter;
use tailsight_trace::{Event as RunEvent, FORMAT_VERSION, Run, fields};

pub use timeline::Timeline;
use times::Times;

use crate::Error;
use crate::memory::Memory;
use crate::recording::{Recording, Summary, Window};
use crate::script::Script;
use crate::sideband::{Sideband, TscClock};
use crate::stacks::{Event, What};

/// Events of a core that are written together.
const BATCH: usize = 1 << 14;
/// `TASK_INTERRUPTIBLE`: perf does not say how a task sleeps.
const ASLEEP: u32 = 1;
/// The position of a stack's first function; each nested one is 16 lower, as stacks grow down.
const FIRST_POSITION: u32 = 0xffff_fff0;

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

/// Makes a recording's events those of a run, and gives each, with its core, to `put`.
struct Sink<'a> {
    put: &'a mut dyn FnMut(u32, RunEvent),
    timeline: &'a Timeline,
    clock: TscClock,
    /// Whether switches are written, too.
    switches: bool,
    range: (u64, u64),
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
        let position = |depth: u32| FIRST_POSITION - 16 * depth.min(4096);
        let call = |function, depth| fields::Function { flags, function, position: position(depth), goroutine: 0 };
        // The thread that ran when the event was written: for a switch, the one that leaves.
        let written = match event.what {
            What::Enter(f, _) => {
                *depth += 1;
                call(f, *depth - 1).event(Kind::FunctionBegin, 0, event.tid)
            }
            What::Leave(f) => {
                *depth = depth.saturating_sub(1);
                call(f, *depth).event(Kind::FunctionEnd, 0, event.tid)
            }
            What::Switch { preempted, .. } => {
                let before = self.current.insert(cpu, event.tid).unwrap_or(0);
                if !self.switches || before == event.tid {
                    return;
                }
                let (flags, state) = if preempted { (switch_flags::PREEMPTED, 0) } else { (0, ASLEEP) };
                let (previous_tid, next_tid) = (before, event.tid);
                let switch = fields::Switch { flags, previous_tid, next_tid, state, ..fields::Switch::default() };
                switch.event(Kind::SchedSwitch, 0, before)
            }
            What::Gap(_) if self.switches => fields::Loss { events: 1 }.event(Kind::Lost, 0, event.tid),
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
        (self.put)(cpu, RunEvent { ts, ..written });
    }
}

/// Writes events as they come, those of each core in batches.
struct Batches {
    writer: RunWriter,
    /// By core, those that are not written yet.
    waiting: BTreeMap<u32, Vec<RunEvent>>,
    /// The first write that failed: nothing is written after it.
    failed: Option<Error>,
}

impl Batches {
    fn put(&mut self, cpu: u32, event: RunEvent) {
        let waiting = self.waiting.entry(cpu).or_default();
        waiting.push(event);
        if waiting.len() >= BATCH && self.failed.is_none() {
            self.failed = self.writer.events(cpu, waiting).err().map(Error::from);
            waiting.clear();
        }
    }

    /// Writes what waits. Returns the cores.
    fn finish(mut self) -> Result<(RunWriter, Vec<u32>), Error> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        for (cpu, events) in &self.waiting {
            self.writer.events(*cpu, events)?;
        }
        Ok((self.writer, self.waiting.into_keys().collect()))
    }
}

/// Decodes a recording into a run of its own. Events are written as they come: it takes no more memory for a longer recording.
///
/// # Errors
/// Every [`Error`].
pub fn alone(recording: &impl Source, output: Output<'_>) -> Result<Imported, Error> {
    let tasks = tasks(recording);
    let app = tasks.iter().find(|t| t.tid == t.tgid && t.tid != 0).map_or_else(String::new, |t| t.comm.clone());
    let mut meta = RunMeta {
        source: "intel-pt".into(),
        host: Host {
            kernel: recording.sideband().kernel_release.clone(),
            arch: "x86_64".into(),
            cpu_model: recording.sideband().cpu_model.clone(),
            ..Host::default()
        },
        target: Target { selector: recording.path().display().to_string(), app, ..Target::default() },
        ..RunMeta::default()
    };
    let writer = begin(&mut meta, output)?;
    let mut batches = Batches { writer, waiting: BTreeMap::new(), failed: None };
    let put = &mut |cpu, event| batches.put(cpu, event);
    let imported = decode(recording, &Timeline::Perf, None, (0, u64::MAX), true, put)?;
    let (writer, cpus) = batches.finish()?;
    (meta.start_ns, meta.end_ns) = imported.summary.span_ns.unwrap_or((0, 0));
    meta.host.cpus = cpus.last().map_or(0, |cpu| cpu + 1);
    writer.tasks(&tasks)?;
    writer.sockets(&[])?;
    writer.clocks(&[])?;
    finish(writer, meta, imported, &cpus)
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
    let mut functions: BTreeMap<u32, Vec<RunEvent>> = BTreeMap::new();
    let put = &mut |cpu, event| functions.entry(cpu).or_default().push(event);
    let imported = decode(recording, &timeline, windows.as_deref(), range, false, put)?;
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
        let of_core = events.entry(cpu).or_default();
        of_core.extend(more);
        // Stable: at the same nanosecond the run's own events come first.
        of_core.sort_by_key(|event| event.ts);
    }
    let mut meta = RunMeta { source: format!("{}+intel-pt", run.meta.source), ..run.meta.clone() };
    if meta.traced.take().is_some_and(|already| !already.functions.is_empty()) {
        let why = "functions are traced in it already".into();
        return Err(Error::With { run: output.dir.into(), why });
    }
    let mut writer = begin(&mut meta, output)?;
    for (cpu, events) in &events {
        writer.events(*cpu, events)?;
    }
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
    finish(writer, meta, imported, &events.into_keys().collect::<Vec<_>>())
}

fn decode(
    recording: &impl Source,
    timeline: &Timeline,
    windows: Option<&[Window]>,
    range: (u64, u64),
    switches: bool,
    put: &mut dyn FnMut(u32, RunEvent),
) -> Result<Imported, Error> {
    let mut sink = Sink {
        put,
        timeline,
        clock: recording.clock(),
        switches,
        range,
        depths: FxHashMap::default(),
        current: FxHashMap::default(),
        times: Times::default(),
        out: Imported::default(),
    };
    let summary = recording.decode(windows, &mut |event| sink.take(event))?;
    let mut out = sink.out;
    let totals = sink.times.functions;
    let totals_of = |(i, named): (usize, &crate::recording::Named)| {
        let (calls, total_ns, own_ns) = totals.get(i).copied().unwrap_or_default();
        let (function, module, kernel) = (named.function.clone(), named.module.clone(), named.kernel);
        FunctionTime { function, module, kernel, calls, total_ns, own_ns }
    };
    out.functions = summary.functions.iter().enumerate().map(totals_of).collect();
    out.missing = recording.memory().missing().map(|(name, why)| (name.to_owned(), why.to_owned())).collect();
    out.lost_records = recording.sideband().lost;
    out.summary = summary;
    Ok(out)
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

/// Begins a run.
fn begin(meta: &mut RunMeta, output: Output<'_>) -> Result<RunWriter, Error> {
    meta.format = "tailsight-run".into();
    (meta.version, meta.tailsight, meta.state) = (FORMAT_VERSION, output.version.into(), State::Recording);
    Ok(RunWriter::create_in(output.dir, meta, output.shared)?)
}

/// Ends a run, of whose cores `cpus` have events.
fn finish(writer: RunWriter, mut meta: RunMeta, mut imported: Imported, cpus: &[u32]) -> Result<Imported, Error> {
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
    let lost: BTreeMap<u32, u64> = meta.cpus.iter().map(|c| (c.cpu, c.lost)).collect();
    let core = |cpu: u32| Cpu { cpu, events: writer.written(cpu), lost: lost.get(&cpu).copied().unwrap_or(0) };
    meta.cpus = cpus.iter().map(|&cpu| core(cpu)).collect();
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
