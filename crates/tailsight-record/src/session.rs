//! One recording, from the target to the run directory.
//!
//! Probes are loaded and attached first and switched on by one store, so that the recording starts at once. Short
//! recordings are drained after they end; longer ones while they run, when the buffers fill. Whatever happens (Ctrl-C,
//! the target exits, the disk fills), what was recorded is kept.

use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libbpf_rs::MapCore;
use nix::sys::resource::{UsageWho, getrusage};
use tailsight_host::kernel::Kernel;
use tailsight_host::rights::Rights;
use tailsight_host::{Fact, Root};
use tailsight_trace::event::Kind;
use tailsight_trace::meta::{self, RunMeta, State};
use tailsight_trace::tables::TaskRow;
use tailsight_trace::write::BATCH_EVENTS;
use tailsight_trace::{Event, RunWriter};

use crate::buffer::{self, Buffers};
use crate::clocks;
use crate::collect::Collector;
use crate::command::{self, Command};
use crate::cost;
use crate::describe;
use crate::devices;
use crate::error::Error;
use crate::gentle::Gentle;
use crate::loader::{self, HookChoice, HookState, Loaded};
use crate::nic_clocks::NicClocks;
use crate::probes::Need;
use crate::probes::nic_tx::{self, NicTx, TxStamps};
use crate::procfs;
use crate::silence;
use crate::tables::{EarlyTables, socket_rows, task_rows};
use crate::target::{self, Selector};

/// How long the cost of the hooks is measured after the recording.
const COST_WINDOW: Duration = Duration::from_millis(50);
/// How long the host may recover from the loading of the probes before the recording starts: making the buffers and
/// attaching takes the better part of a second of system time, and a queue that built up meanwhile would be recorded.
const SETTLE: Duration = Duration::from_millis(200);
/// A recording of at most this length is drained after its end.
const SHORT: Duration = Duration::from_secs(4);
/// How often the recorder looks at the buffers at most.
const TICK: Duration = Duration::from_millis(20);
/// And at least; so seldom while the buffers are far from full, for each look takes a core from whoever runs there.
const LONG_TICK: Duration = Duration::from_millis(100);
/// How often it looks whether the target is still there, and for its ports until they are known.
const LOOK: Duration = Duration::from_millis(200);
/// How often it looks for processes and ports that are new: reading /proc takes milliseconds of a core.
const SCAN: Duration = Duration::from_secs(1);
/// Events of a core that are moved in one go while recording: a few milliseconds of a core, between which it is free.
const DRAIN_EVENTS: u64 = BATCH_EVENTS as u64;

/// What to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// The target.
    pub selector: Selector,
    /// How long; `None`: until stopped (or until the command ends).
    pub duration: Option<Duration>,
    /// Without a duration: when there is enough.
    pub until: Option<Until>,
    /// The run directory.
    pub out: PathBuf,
    /// Bytes for all buffers; `None`: 1/16 of the memory, at most 512 MiB.
    pub buffer_bytes: Option<u64>,
    /// Hooks to add or leave out.
    pub hooks: HookChoice,
    /// First bytes of each segment to keep; `None`: none.
    pub payload: Option<Payload>,
    /// Whether to record when the NIC sent replies, which sets a flag on the target's sockets.
    pub tx_stamps: TxStamps,
    /// The version to write into run.json.
    pub version: String,
}

/// When a recording of no given length has enough. Messages are estimated while recording: see [`Progress::Recording`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    /// So many messages.
    pub messages: u64,
    /// Not before this.
    pub least: Duration,
    /// At the latest then.
    pub most: Duration,
}

impl Until {
    /// Whether it is over: pure.
    pub fn over(&self, messages: u64, elapsed: Duration) -> bool {
        elapsed >= self.most || (elapsed >= self.least && messages >= self.messages)
    }
}

/// Complete messages, estimated from the target's calls: each answered message is a receive call and a send call; where it
/// sends much less than it receives, it does not answer, and receive calls count. A call that takes several messages, or a
/// message that takes several calls, makes the estimate too low or too high; the run's messages are known after the analysis.
fn estimated(received: u64, sent: u64) -> u64 {
    if sent.saturating_mul(2) > received { received.min(sent) } else { received }
}

/// What is kept of the payload of the target's flows, so that requests can be framed after the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The protocol, as `--protocol` names it.
    pub protocol: String,
    /// Bytes of each segment to keep at most.
    pub bytes: u32,
}

impl Payload {
    /// The most that can be kept of a segment.
    pub const MOST_BYTES: u32 = 24 * 64;

    pub(crate) fn pieces(&self) -> u32 {
        self.bytes.min(Payload::MOST_BYTES).div_ceil(24)
    }
}

/// Where a recording stands.
#[derive(Clone, Debug)]
pub enum Progress {
    /// The target is known; probes are being loaded.
    Loading {
        /// The application.
        app: String,
        /// Its processes.
        pids: Vec<u32>,
        /// Its ports.
        ports: Vec<u16>,
    },
    /// Recording.
    Recording {
        /// Time so far.
        elapsed: Duration,
        /// Events so far.
        events: u64,
        /// Events lost so far.
        lost: u64,
        /// Complete messages so far, estimated from receive and send calls.
        messages: u64,
    },
    /// Measuring the cost of the hooks.
    Measuring,
    /// Writing.
    Writing {
        /// Events to write.
        events: u64,
    },
}

/// A recording that left a run behind.
#[derive(Debug)]
pub struct Outcome {
    /// The run's description as written.
    pub meta: RunMeta,
    /// What cut it short, when something did; the run is kept.
    pub error: Option<Error>,
}

/// Records.
///
/// # Errors
/// Everything that happens before the first event; later trouble is in [`Outcome::error`].
pub fn record(options: &Options, stop: &AtomicBool, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, Error> {
    let mut hooks = preflight(&options.hooks)?;
    if let Selector::Command(words) = &options.selector {
        command::check(words)?;
    }
    let (mut app, mut pids) = target::processes(&options.selector)?;
    let fixed_ports = match options.selector {
        Selector::Port(port) => Some(vec![port]),
        _ => None,
    };
    let mut ports = fixed_ports.clone().unwrap_or_else(|| target::server_ports(&pids));
    if let Selector::Command(words) = &options.selector {
        app = words.first().map(|w| w.rsplit('/').next().unwrap_or(w).to_owned()).unwrap_or_default();
    }
    progress(Progress::Loading { app: app.clone(), pids: pids.clone(), ports: ports.clone() });

    let cpus = possible_cpus();
    let slots = buffer::slots_for(options.buffer_bytes.unwrap_or_else(default_buffer_bytes), cpus);
    let mut meta = describe::first(options, &app, cpus, slots);

    let mut storage = MaybeUninit::uninit();
    let pieces = options.payload.as_ref().map_or(0, Payload::pieces);
    let mut tx_why = (options.tx_stamps != TxStamps::Off).then(nic_tx::missing).flatten();
    let mut tx_stamps = if tx_why.is_some() { TxStamps::Off } else { options.tx_stamps };
    let mut without = MaybeUninit::uninit();
    let mut loaded = match Loaded::load(&mut storage, &options.hooks, &mut hooks, cpus, slots, pieces, tx_stamps) {
        // They are an extra: what else there is to record is recorded.
        Err(e) if tx_stamps != TxStamps::Off => {
            tx_why = Some(e.to_string());
            tx_stamps = TxStamps::Off;
            Loaded::load(&mut without, &options.hooks, &mut hooks, cpus, slots, pieces, tx_stamps)?
        }
        loaded => loaded?,
    };
    let buffers = Buffers::create(slots, cpus)?;
    loaded.set_chunks(&buffers.fds())?;
    // An earlier run in the directory goes only now, when nothing but the command itself can still fail.
    let mut writer = RunWriter::create(&options.out, &meta)?;

    let mut child = match &options.selector {
        Selector::Command(words) => Some(Command::start(words)?),
        _ => None,
    };
    if let Some(child) = &child {
        pids = vec![child.pid()];
    }
    set_targets(&mut loaded, &pids, &ports);

    if child.is_none() {
        std::thread::sleep(SETTLE);
    }
    // Tasks that are born while this looks at those there are have their births written down.
    loaded.set_naming();
    let snapshot = procfs::tasks(|_| false);
    // Known by its process and threads: another one may have its name, and it may have been started by another.
    let own_pid = std::process::id();
    meta.recorder = Some(meta::Recorder { pid: own_pid, threads: procfs::threads(own_pid) });
    // What a recording that is killed, or that fills the disk, leaves to read its events with.
    let mut early = EarlyTables::new(snapshot);
    let mut early_error = early.sockets(&writer).err();
    meta.started_unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let mut tx = None;
    if tx_stamps != TxStamps::Off
        && let Some(&pid) = pids.first()
    {
        match NicTx::start(&mut loaded, pid) {
            Ok(started) => tx = Some(started),
            Err(why) => tx_why = Some(why),
        }
    }
    let mut nic_clocks = NicClocks::find(pids.first().copied());
    loaded.set_nic_stamps(nic_clocks.stamps_in());
    let usage_before = own_cpu_ns();
    let mut clock_rows = vec![clocks::compare()];
    meta.start_ns = clocks::monotonic_ns();
    loaded.set_recording(true);
    loaded.tell_current(cpus);

    let mut session =
        Drain { collector: Collector::new(), pending: Vec::new(), drains: 0, failed: None, start_ns: meta.start_ns };
    early_error = early_error.or(early.write(&writer, &mut meta, &pids, &ports, &session.collector.tasks).err());
    session.failed = early_error.map(Error::from);
    let started = std::time::Instant::now();
    let mut last_look = started;
    let mut seen_alive = started;
    let mut last_scan = started;
    let mut last_clock = started;
    let mut last_drain = started;
    let (mut pause, mut fullest_before, mut last_fill) = (TICK, 0, started);
    let mut ended_early = None;
    loop {
        let longest = options.duration.or(options.until.map(|until| until.most));
        let left = longest.map(|d| d.saturating_sub(started.elapsed()));
        let (received, sent) = calls(&loaded, cpus);
        let messages = estimated(received, sent);
        let enough = options.duration.is_none() && options.until.is_some_and(|u| u.over(messages, started.elapsed()));
        if left == Some(Duration::ZERO) || enough {
            break;
        }
        if stop.load(Ordering::Relaxed) {
            ended_early = Some("interrupted".to_owned());
            break;
        }
        std::thread::sleep(left.map_or(pause, |l| l.min(pause)));
        let now = std::time::Instant::now();
        if now - last_clock >= LONG_TICK {
            clock_rows.push(clocks::compare());
            nic_clocks.compare();
            last_clock = now;
        }
        let (events, lost, fullest) = fill(&loaded, &buffers);
        progress(Progress::Recording { elapsed: started.elapsed(), events, lost, messages });
        let long = match options.until {
            Some(_) if options.duration.is_none() => started.elapsed() > SHORT,
            _ => options.duration.is_none_or(|d| d > SHORT),
        };
        // A short recording is drained after its end, unless the buffers would not hold it.
        let limit = if long { slots / 2 } else { slots / 8 * 7 };
        let urgent = fullest > limit;
        pause = until_full(fullest.checked_sub(fullest_before), now - last_fill, limit.saturating_sub(fullest));
        (fullest_before, last_fill) = (fullest, now);
        if urgent || (long && (fullest >= DRAIN_EVENTS || now - last_drain > Duration::from_secs(1))) {
            let most = if urgent { u64::MAX } else { DRAIN_EVENTS };
            let gentle = (!urgent).then(Gentle::begin);
            session.drain(&mut loaded, &buffers, &mut writer, u64::MAX, most);
            drop(gentle);
            session.drains += 1;
            last_drain = now;
        }
        if session.failed.is_some() {
            break;
        }
        if now - last_look > LOOK {
            last_look = now;
            if let Some(status) = child.as_mut().and_then(Command::ended) {
                ended_early = Some(format!("the command ended ({status})"));
                break;
            }
            if pids.iter().any(|&p| procfs::alive(p)) {
                seen_alive = now;
            } else if now - seen_alive >= options.selector.may_be_away() {
                let exited = (seen_alive - started).as_secs_f64();
                ended_early = Some(format!("the target exited after {exited:.1} s"));
                break;
            }
        }
        let known = !ports.is_empty() && seen_alive >= last_look;
        // The probes follow children by themselves; this finds processes that came from elsewhere, and new ports.
        if now - last_scan > if known { SCAN } else { LOOK } {
            last_scan = now;
            let before = pids.len();
            rescan(options, child.as_ref(), seen_alive < last_look, &mut pids);
            if fixed_ports.is_none() && (ports.is_empty() || child.is_some() || pids.len() > before) {
                ports.extend(target::server_ports(&pids));
                ports.sort_unstable();
                ports.dedup();
            }
            set_targets(&mut loaded, &pids, &ports);
            if long && let Err(e) = early.write(&writer, &mut meta, &pids, &ports, &session.collector.tasks) {
                session.failed = Some(e.into());
            }
        }
    }
    meta.end_ns = clocks::monotonic_ns();
    clock_rows.push(clocks::compare());
    let missed = cost::missed(&loaded);
    let lost: Vec<u64> = heads(&loaded).iter().take(cpus as usize).map(|h| h.lost).collect();
    meta.overhead.recorder_cpu_ns = own_cpu_ns().saturating_sub(usage_before);

    progress(Progress::Measuring);
    let before = fill(&loaded, &buffers).0;
    let costs = cost::measure(&mut loaded, COST_WINDOW);
    let measured_events = fill(&loaded, &buffers).0 - before;
    loaded.set_recording(false);
    if let Some(Err(why)) = tx.map(|tx| tx.stop(&mut loaded)) {
        meta.warnings.push(why);
    }
    loaded.detach();
    progress(Progress::Writing { events: fill(&loaded, &buffers).0 });
    session.drains += 1;
    // The cores in turn, so that a disk that fills up cuts all of them at about the same time.
    while session.drain(&mut loaded, &buffers, &mut writer, meta.end_ns, DRAIN_EVENTS) {}

    session.tell_gaps(&loaded, cpus, &mut writer);

    // Descriptions. All processes that were targets at any time: the filter also followed forks.
    let targets = target_tgids(&loaded, &pids, &session.collector.tasks);
    let tasks =
        task_rows(early.snapshot, procfs::tasks(|_| false), std::mem::take(&mut session.collector.tasks), &targets);
    let sockets = socket_rows(&session.collector);
    let alive = targets.iter().copied().find(|&p| procfs::alive(p));
    meta.devices = devices::of_target(alive, &session.collector.by_device);
    if child.is_some_and(Command::stop) {
        meta.warnings.push("the command did not end on SIGTERM within 5 s and was killed".into());
    }
    if app.is_empty() {
        app = tasks.iter().find(|t| t.target && t.tid == t.tgid).map(|t| t.comm.clone()).unwrap_or_default();
    }
    let processes = procfs::identities(&targets);
    meta.target = meta::Target { selector: options.selector.to_string(), app, pids: targets, processes, ports };
    meta.cpus = (0..cpus)
        .map(|cpu| meta::Cpu { cpu, events: writer.written(cpu), lost: lost[cpu as usize] })
        .filter(|c| c.events > 0 || c.lost > 0)
        .collect();
    meta.buffer.drains = session.drains;
    meta.symbols = std::mem::take(&mut session.collector.symbols);
    meta.stacks = std::mem::take(&mut session.collector.stacks);
    describe::cost(&mut meta, &hooks, costs, measured_events);
    for hook in &mut meta.hooks {
        let program = hooks.iter().find(|h| h.name == hook.name).and_then(|h| h.program);
        hook.missed = missed.iter().find(|(name, _)| Some(name.as_str()) == program).map_or(0, |(_, n)| *n);
    }
    meta.drop_reasons = describe::drop_reasons();
    describe::clocks(&mut meta, &clock_rows);
    nic_clocks.conclude(&mut meta, session.collector.stamps, (options.tx_stamps, tx_why));
    if session.collector.received == 0 {
        meta.warnings.push(silence::no_traffic(&meta, session.collector.arrived));
    }
    if let Some(asked) = &meta.payload
        && session.collector.arrived > 0
        && session.collector.pieces == 0
    {
        let warning = silence::no_payload(&asked.protocol, &meta.host.kernel);
        meta.warnings.push(warning);
    }
    let mut error = session.failed.take();
    let nic_rows = &nic_clocks.rows;
    let nic_clocks = if nic_rows.is_empty() { Ok(()) } else { writer.nic_clocks(nic_rows) };
    for step in [writer.tasks(&tasks), writer.sockets(&sockets), writer.clocks(&clock_rows), nic_clocks] {
        if let Err(e) = step {
            error.get_or_insert(e.into());
        }
    }
    meta.state = State::Complete;
    if let Some(why) = ended_early {
        let note = if why == "interrupted" {
            format!("interrupted after {:.1} s", (meta.end_ns - meta.start_ns) as f64 / 1e9)
        } else {
            why
        };
        meta.warnings.push(format!("{note}; the run is kept"));
    }
    if let Some(e) = &error {
        meta.state = State::Partial;
        meta.partial = Some(e.to_string());
    }
    if let Err(e) = writer.finish(&mut meta) {
        error.get_or_insert(e.into());
    }
    Ok(Outcome { meta, error })
}

/// Checks rights and hooks before anything is touched, so that the error is about the cause.
fn preflight(choice: &HookChoice) -> Result<Vec<HookState>, Error> {
    let root = Root::host();
    let kernel = Kernel::collect(&root);
    let rights = Rights::collect(&root, &kernel);
    for attempt in [&rights.bpf_map, &rights.bpf_program, &rights.bpf_kernel_read] {
        if let Fact::Known(a) = attempt
            && !a.allowed
        {
            let errno = a.errno.as_deref().unwrap_or("refused");
            return Err(Error::NotAllowed { why: format!("bpf() says {errno}: {}", a.meaning) });
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

struct Drain {
    collector: Collector,
    pending: Vec<Event>,
    drains: u64,
    failed: Option<Error>,
    start_ns: u64,
}

impl Drain {
    /// Moves at most `most` events of each core into the run; those after `until` are dropped (the cost window's).
    /// `false`: there were none.
    fn drain(
        &mut self,
        loaded: &mut Loaded<'_>,
        buffers: &Buffers,
        writer: &mut RunWriter,
        until: u64,
        most: u64,
    ) -> bool {
        let mut moved = false;
        for cpu in 0..buffers.cpus {
            self.pending.clear();
            let bss = loaded.skel.maps.bss_data.as_deref_mut().expect("the object has variables");
            buffers.drain(cpu, &mut bss.heads[cpu as usize], &mut self.pending, most);
            moved |= !self.pending.is_empty();
            let start = self.start_ns;
            let stacks = &loaded.skel.maps.stacks;
            let stack = |id: u32| addresses(stacks.lookup(&id.to_ne_bytes(), libbpf_rs::MapFlags::ANY).ok().flatten());
            for event in &mut self.pending {
                self.collector.see(event, &stack);
            }
            self.pending.retain(|e| e.ts >= start && e.ts <= until);
            self.pending.iter().for_each(|event| self.collector.count(event));
            if self.failed.is_none()
                && !self.pending.is_empty()
                && let Err(e) = writer.events(cpu, &self.pending)
            {
                self.failed = Some(e.into());
            }
        }
        moved
    }
}

impl Drain {
    /// Losses after which no event found room again: nobody has said since when they were.
    fn tell_gaps(&mut self, loaded: &Loaded<'_>, cpus: u32, writer: &mut RunWriter) {
        for (cpu, head) in heads(loaded).iter().enumerate().take(cpus as usize).filter(|(_, h)| h.gap_from != 0) {
            let gap = Event { ts: head.gap_from, kind: Kind::Lost as u8, b: head.gap_count, ..Event::default() };
            if self.failed.is_none()
                && let Err(e) = writer.events(cpu as u32, &[gap])
            {
                self.failed = Some(e.into());
            }
        }
    }
}

/// The return addresses of a stack as the map holds them: 64-bit words, ended by a zero.
fn addresses(value: Option<Vec<u8>>) -> Vec<u64> {
    let value = value.unwrap_or_default();
    let words = value.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().unwrap_or_default()));
    words.take_while(|a| *a != 0).collect()
}

fn heads<'a>(loaded: &'a Loaded<'_>) -> &'a [crate::skel::types::head] {
    &loaded.skel.maps.bss_data.as_deref().expect("the object has variables").heads
}

/// Receive calls and send calls of the target so far.
fn calls(loaded: &Loaded<'_>, cpus: u32) -> (u64, u64) {
    heads(loaded).iter().take(cpus as usize).fold((0, 0), |(r, s), h| (r + h.received, s + h.sent))
}

/// Events so far, lost so far, and how full the fullest buffer is.
fn fill(loaded: &Loaded<'_>, buffers: &Buffers) -> (u64, u64, u64) {
    heads(loaded)
        .iter()
        .take(buffers.cpus as usize)
        .fold((0, 0, 0), |(n, lost, most), h| (n + h.n, lost + h.lost, most.max(buffer::waiting(h))))
}

/// How long the recorder may sleep: half the time until the fullest buffer reaches its limit, when it goes on filling as it
/// did. `growth`: events since the last look, which was `over` ago; none when it was emptied meanwhile.
fn until_full(growth: Option<u64>, over: Duration, room: u64) -> Duration {
    let Some(growth) = growth else { return TICK };
    let full_s = over.as_secs_f64() * room as f64 / growth.max(1) as f64;
    Duration::from_secs_f64(full_s / 2.0).clamp(TICK, LONG_TICK)
}

fn set_targets(loaded: &mut Loaded<'_>, pids: &[u32], ports: &[u16]) {
    let bss = loaded.skel.maps.bss_data.as_deref_mut().expect("the object has variables");
    bss.follow_children = 1;
    for nr in tailsight_kernel::syscalls::told_by_name() {
        bss.plain_sleeps[(nr >> 6) as usize & 15] |= 1 << (nr & 63);
    }
    for &pid in pids {
        // The probes set bits of children at the same time, atomically; so must we.
        let word = &raw mut bss.target_tgids[(pid >> 6) as usize & 0xffff];
        // SAFETY: an aligned word of the shared mapping.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(word) }.fetch_or(1 << (pid & 63), Ordering::Relaxed);
    }
    for &port in ports {
        bss.target_ports[usize::from(port >> 6)] |= 1 << (port & 63);
    }
}

/// Adds processes that belong to the target by now. `away`: none of those known lives any more.
fn rescan(options: &Options, child: Option<&Command>, away: bool, pids: &mut Vec<u32>) {
    let selector = match (child, &options.selector) {
        (Some(child), _) => Selector::Pid(child.pid()),
        (None, s @ (Selector::Comm(_) | Selector::Cgroup(_))) => s.clone(),
        // Reads every process' descriptors, so only when it must.
        (None, s @ Selector::Port(_)) if away => s.clone(),
        _ => return,
    };
    if let Ok((_, now)) = target::processes(&selector) {
        for pid in now {
            if !pids.contains(&pid) {
                pids.push(pid);
            }
        }
    }
}

/// Every process whose bit is set: those we set and the children that the probe followed.
fn target_tgids(loaded: &Loaded<'_>, pids: &[u32], born: &[TaskRow]) -> Vec<u32> {
    let bss = loaded.skel.maps.bss_data.as_deref().expect("the object has variables");
    let mut all: Vec<u32> = pids.to_vec();
    all.extend(
        born.iter().map(|t| t.tgid).filter(|t| bss.target_tgids[(t >> 6) as usize & 0xffff] >> (t & 63) & 1 == 1),
    );
    all.sort_unstable();
    all.dedup();
    all
}

/// CPU time of this thread, which does all of the recording.
fn own_cpu_ns() -> u64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |u| {
        let ns = |t: nix::sys::time::TimeVal| t.tv_sec() as u64 * 1_000_000_000 + t.tv_usec() as u64 * 1000;
        ns(u.user_time()) + ns(u.system_time())
    })
}

/// Cores the kernel may number, from /sys/devices/system/cpu/possible (`0-3`): event buffers are indexed by core.
fn possible_cpus() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit(['-', ',']).next().and_then(|n| n.parse::<u32>().ok());
    last.map_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u32), |n| n + 1).min(1024)
}

fn default_buffer_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        text.lines().find_map(|l| l.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    (kib.unwrap_or(4 << 20) * 1024 / 16).min(512 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 500 requests/s: 2 s hold 1,000, and the focus held too few.
    #[test]
    fn a_recording_of_no_given_length_ends_with_enough() {
        let (least, most) = (Duration::from_secs(2), Duration::from_secs(30));
        let until = Until { messages: 2_500, least, most };
        assert!(!until.over(100_000, Duration::from_millis(1_999)), "the least time first");
        assert!(until.over(2_500, least) && !until.over(2_499, Duration::from_secs(29)));
        assert!(until.over(0, most), "30 s without a message are enough");
    }

    #[test]
    fn messages_are_estimated_from_both_calls() {
        assert_eq!(estimated(100, 98), 98, "two are still being served");
        assert_eq!(estimated(100, 300), 100, "replies in several pieces");
        assert_eq!(estimated(100, 0), 100, "nothing is answered");
        assert_eq!(estimated(0, 0), 0);
    }

    #[test]
    fn the_recorder_looks_more_often_as_a_buffer_fills() {
        let over = Duration::from_millis(20);
        assert_eq!(until_full(Some(0), over, 1 << 20), LONG_TICK);
        // A million a second with room for two million; with room for a hundred thousand; with none.
        assert_eq!(until_full(Some(20_000), over, 2_000_000), LONG_TICK);
        assert_eq!(until_full(Some(20_000), over, 100_000), Duration::from_millis(50));
        assert_eq!(until_full(Some(20_000), over, 0), TICK);
        assert_eq!(until_full(None, over, 2_000_000), TICK);
    }
}
