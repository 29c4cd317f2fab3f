//! A recording that is ready: the target found, probes loaded and attached, the run directory made, the command started.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tailsight_confine::priority::SessionGroup;
use tailsight_host::kernel::Kernel;
use tailsight_host::rights::Rights;
use tailsight_host::{Fact, Root};
use tailsight_symbolise::reader::Reader;
use tailsight_trace::RunWriter;
use tailsight_trace::meta::{self, RunMeta};
use tailsight_units::chain;

use super::options::{Options, Payload, Progress, SampleClock, SampleRate};
use super::routines::breakpoints::{ProgramFile, TaskBreakpoints, TaskPlan};
use super::sampling::usable_cpus;
use super::target::Target;
use super::tls::{TlsBreakpoints, TlsPlan};
use super::traced::{Plan, Tracing};
use crate::background::Background;
use crate::buffer::{self, Buffers};
use crate::describe;
use crate::error::Error;
use crate::file_systems;
use crate::loaded::Loaded;
use crate::loader::{self, HookChoice, HookState};
use crate::probes::nic_tx::{self, TxStamps};
use crate::probes::samples::tick_cost;
use crate::probes::{Extras, Need, disk};
use crate::procfs;
use crate::stop::Stop;
use crate::target::Selector;

/// Everything that a recording needs.
pub(super) struct Prepared<'a> {
    pub(super) options: &'a Options,
    pub(super) target: Target,
    pub(super) cpus: u32,
    pub(super) hooks: Vec<HookState>,
    pub(super) loaded: Loaded,
    pub(super) buffers: Buffers,
    /// Absent: no samples.
    pub(super) sample_clock: Option<SampleClock>,
    /// Reads what the target wrote.
    pub(super) reader: Reader,
    pub(super) meta: RunMeta,
    /// Stamps of what the NICs send, and why there are none although they were asked for.
    pub(super) tx_stamps: TxStamps,
    pub(super) without_tx_stamps: Option<String>,
    /// Functions that are traced from their begin to their end.
    pub(super) tracing: Option<Tracing>,
    /// Breakpoints at tasks of tokio.
    pub(super) tasks: Option<TaskBreakpoints>,
    /// Breakpoints at functions through which plain text goes into TLS and comes out.
    pub(super) tls: Option<TlsBreakpoints>,
    /// The programs that were looked into for these tasks.
    pub(super) task_programs: BTreeSet<ProgramFile>,
    /// Where the recorder runs.
    pub(super) background: Background,
}

/// How long the host may recover after the probes are loaded, before the recording starts: making the buffers and attaching
/// take most of a second of system time, and a queue that built up meanwhile would be recorded.
const SETTLE: Duration = Duration::from_millis(200);

/// While messages are watched, samples wait in memory for a capture: each has up to 9 kB of stack. Outside of slow messages one tick in so many
/// takes one.
const WATCHED_ONE_IN: u16 = 8;

/// How long preparing may wait for a core that it has to itself.
const PREPARE: Duration = Duration::from_secs(1);

impl<'a> Prepared<'a> {
    /// Nothing on the host is changed before the rights, the hooks and the target are known to be there.
    pub(super) fn new(
        options: &'a Options,
        stop: &Stop,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Prepared<'a>, Error> {
        let group = options.own_session.then(SessionGroup::own).flatten().map(Arc::new);
        let mut background = Background::begin(stop, group.clone());
        let work = background.work_in_calls(PREPARE);
        let mut hooks = preflight(&options.hooks)?;
        let target = Target::resolve(&options.selector)?;
        background.avoid(&target.pids, &cores_of(&target.pids));
        go_on(stop)?;
        progress(Progress::Loading { app: target.app.clone(), pids: target.pids.clone(), ports: target.ports.clone() });

        // Beside the loading, because it takes a quarter of a second.
        // A thread has the priority of the one that starts it; this one is waited for at the end.
        drop(work);
        let (its, pids) = (stop.clone(), target.pids.clone());
        let settings = std::thread::spawn(move || {
            let background = Background::begin(&its, group);
            let _work = background.work_in_calls(PREPARE);
            describe::settings(&pids)
        });
        // Before the hooks, so that no recording sees its start; later this process may start nothing.
        let reads = options.samples != SampleRate::Off || !options.traces.asked.is_empty() || options.payload.is_some();
        let mut reader = if reads { Reader::start() } else { Reader::default() };
        let plan = Plan::new(&options.traces, &target.pids, started(&options.selector), &mut reader)?;
        let tasks = match options.samples {
            SampleRate::Off => TaskPlan::default(),
            // Breakpoints cost too much where nobody knows how long they stay.
            _ if !options.tasks || options.watches => TaskPlan::default(),
            _ => TaskPlan::new(&target.pids, started(&options.selector), &mut reader),
        };
        let tls = match &options.payload {
            Some(payload) if payload.reads_tls => TlsPlan::new(&target.pids, started(&options.selector), &mut reader),
            _ => TlsPlan::default(),
        };
        let cpus = possible_cpus();
        let slots = buffer::slots_for(options.buffer_bytes.unwrap_or_else(default_buffer_bytes), cpus);
        let mut meta = describe::first(options, &target.app, cpus, slots);
        let payload_pieces = options.payload.as_ref().map_or(0, Payload::pieces);
        go_on(stop)?;
        // Hooks that are empty are measured alone.
        // Beside a busy server it is measured with the usual priority: as SCHED_IDLE it would get too little of a core to count ticks.
        background.as_usual();
        let mut sample_clock = if options.hooks.empty { None } else { sample_clock(options.samples, &target.pids) };
        if let Some(clock) = sample_clock.as_mut().filter(|_| options.watches) {
            clock.others_one_in = WATCHED_ONE_IN;
        }
        let work = background.work_in_calls(PREPARE);
        let samples = sample_clock.map(|clock| clock.others_one_in);
        let mut without_tx_stamps = (options.tx_stamps != TxStamps::Off).then(nic_tx::missing).flatten();
        let mut tx_stamps = if without_tx_stamps.is_some() { TxStamps::Off } else { options.tx_stamps };
        let extras = Extras {
            payload_pieces,
            tx_stamps,
            samples,
            functions: plan.of_files(),
            task_breakpoints: samples.is_some() && !tasks.is_empty(),
            plain_text: !tls.is_empty(),
            kernel_functions: plan.kernel().to_vec(),
            watches: options.watches,
        };
        go_on(stop)?;
        let mut loaded = match Loaded::load(&options.hooks, &hooks, cpus, slots, extras.clone()) {
            // They are optional: without them, the rest is recorded.
            Err(e) if tx_stamps != TxStamps::Off => {
                without_tx_stamps = Some(chain(&e));
                tx_stamps = TxStamps::Off;
                Loaded::load(&options.hooks, &hooks, cpus, slots, Extras { tx_stamps, ..extras })?
            }
            loaded => loaded?,
        };
        let buffers = Buffers::create(slots, cpus)?;
        loaded.set_chunks(&buffers.fds())?;
        go_on(stop)?;
        loaded.attach(&mut hooks)?;
        let tracing = Tracing::start(&mut loaded, plan, options.traces.most_per_second);
        let task_programs = tasks.programs().clone();
        let tasks = samples.and_then(|_| TaskBreakpoints::set(&mut loaded, tasks));
        let tls = TlsBreakpoints::set(&mut loaded, tls, &mut meta.warnings);
        drop(work);
        meta.settings = settings.join().unwrap_or_default();
        go_on(stop)?;
        let without = without_tx_stamps;
        Ok(Prepared {
            options,
            target,
            cpus,
            hooks,
            loaded,
            buffers,
            meta,
            tx_stamps,
            without_tx_stamps: without,
            tracing,
            tasks,
            tls,
            task_programs,
            background,
            sample_clock,
            reader,
        })
    }

    /// The run of the recording. An earlier one in the directory is deleted only now, when nothing but the command itself can still fail.
    pub(super) fn writer(&self) -> Result<RunWriter, Error> {
        Ok(RunWriter::create_in(&self.options.out, &self.meta, self.options.shared)?)
    }

    /// Lets the host recover, and takes in the processes that were born meanwhile. A command has yet to start what it does.
    pub(super) fn settle(&mut self) {
        if self.target.child.is_none() {
            std::thread::sleep(SETTLE);
            self.target.add_born(&mut self.loaded);
        }
    }

    /// Who records, by process and threads: another process may have the same name, and other programs may have started it. And which waits for
    /// a disk are not seen.
    pub(super) fn describe_start(&mut self) {
        let own_pid = std::process::id();
        let threads = procfs::threads(own_pid);
        self.meta.recorder = Some(meta::Recorder { pid: own_pid, threads, ..Default::default() });
        let sees_all = self.hooks.iter().any(|hook| hook.program == Some(disk::ANY_FILE_SYSTEM));
        self.meta.unseen_syncs = if sees_all { vec![] } else { file_systems::unseen(&self.target.pids) };
    }

    /// Starts the command, if the target is one, and tells the programs whom to look at.
    pub(super) fn start_target(&mut self) -> Result<(), Error> {
        self.target.start(&self.options.selector)?;
        self.target.tell(&mut self.loaded);
        Ok(())
    }
}

/// Nothing is kept of a recording that did not begin.
fn go_on(stop: &Stop) -> Result<(), Error> {
    if stop.is_asked() { Err(Error::Stopped) } else { Ok(()) }
}

/// The cores that the target may use; none while there is no process of it.
pub(super) fn cores_of(pids: &[u32]) -> Vec<u32> {
    if pids.is_empty() { vec![] } else { usable_cpus(pids) }
}

/// How often samples are taken. What a tick costs is measured where the rate depends on it. A command that the recording will start may use
/// the cores of this process.
fn sample_clock(rate: SampleRate, pids: &[u32]) -> Option<SampleClock> {
    let own = [std::process::id()];
    let cores = usable_cpus(if pids.is_empty() { &own } else { pids }).len();
    rate.clock(if rate == SampleRate::Usual { tick_cost::measure() } else { None }, cores as u32)
}

/// The program that the recording will start.
fn started(selector: &Selector) -> Option<&str> {
    match selector {
        Selector::Command(words) => words.first().map(String::as_str),
        _ => None,
    }
}

/// Checks rights and hooks before anything is changed, so that the error names the cause.
fn preflight(choice: &HookChoice) -> Result<Vec<HookState>, Error> {
    let root = Root::host();
    let kernel = Kernel::collect(&root);
    let rights = Rights::collect(&root, &kernel);
    for attempt in [&rights.bpf_map, &rights.bpf_program, &rights.bpf_kernel_read] {
        if let Fact::Known(a) = attempt
            && !a.allowed
        {
            let errno = a.errno.as_deref().unwrap_or("refused");
            let why = format!("bpf() says {errno}: {}", a.meaning);
            return Err(Error::NotAllowed { why, source: None });
        }
    }
    let hooks = loader::survey(choice)?;
    let missing: Vec<&str> =
        hooks.iter().filter(|h| h.need == Need::Required && h.program.is_none()).map(|h| h.name).collect();
    if !missing.is_empty() {
        let release = kernel.release.known().cloned().unwrap_or_else(|| "(unknown)".into());
        return Err(Error::KernelTooOld { release, missing: missing.join(", ") });
    }
    Ok(hooks)
}

/// Cores the kernel may number, from /sys/devices/system/cpu/possible (`0-3`): event buffers are indexed by core.
fn possible_cpus() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit(['-', ',']).next().and_then(|n| n.parse::<u32>().ok());
    last.map_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u32), |n| n + 1).min(1024)
}

fn default_buffer_bytes() -> u64 {
    let memory = tailsight_host::proc::memory(&Root::host(), "MemTotal").unwrap_or(4 << 30);
    (memory / 16).min(512 << 20)
}
