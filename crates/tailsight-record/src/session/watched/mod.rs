//! A server that is watched: the programs write into buffers that hold the last events, and tell the first message that takes longer than a
//! limit. A capture makes an ordinary run of what the buffers hold then.
//!
//! In: [`Options`] with `watches`, limits. Out: counts of latencies and slow messages as they come, and a run for each capture. Nothing is written
//! between captures, and the thread that watches wakes some times a second.

mod capture;
mod recent_samples;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tailsight_trace::meta;
use tailsight_trace::tables::ClockRow;
use tailsight_watch::{LatencyCounts, Leg, Limits};

use self::recent_samples::RecentSamples;
use super::drain::{fill, heads};
use super::options::{Options, Progress};
use super::prepare::{Prepared, cores_of};
use crate::clocks;
use crate::command::{self, Command};
use crate::cost::{self, ProgramCost};
use crate::error::Error;
use crate::probes::samples::tell_waits;
use crate::procfs;
use crate::stop::Stop;
use crate::watch;

/// How long the cost of the hooks is measured, once.
const COST_WINDOW: Duration = Duration::from_millis(50);
/// How often it is checked that the target still runs.
const ALIVE: Duration = Duration::from_millis(200);
/// How often it looks for new processes and ports: reading /proc takes milliseconds of CPU time.
const SCAN: Duration = Duration::from_secs(5);
/// And while no process of the target is there.
const SCAN_FOR_IT: Duration = Duration::from_secs(1);
/// How often clocks are compared.
const COMPARE: Duration = Duration::from_millis(200);
/// A capture is made so much later than it is due at most.
const LATE: Duration = Duration::from_secs(1);
/// How long reading /proc may wait for a core that nothing else wants.
const HURRY: Duration = Duration::from_millis(100);

/// The first message that took longer than a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowMessage {
    /// When its reply began, CLOCK_MONOTONIC ns.
    pub at_ns: u64,
    /// How long it took by leg, ns, in the order of [`Leg::ALL`].
    pub legs_ns: [u64; Leg::ALL.len()],
    /// The ports of its connection: the server's, the client's.
    pub ports: [u16; 2],
    /// The thread that replied.
    pub tid: u32,
}

impl SlowMessage {
    /// When it came, CLOCK_MONOTONIC ns.
    pub fn came_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.ns(Leg::Total))
    }

    /// How long a leg took, ns.
    pub fn ns(&self, leg: Leg) -> u64 {
        self.legs_ns[leg as usize]
    }
}

/// A run that was made of what the buffers held.
#[derive(Debug)]
pub struct Captured {
    /// Its description.
    pub meta: meta::RunMeta,
    /// What could not be written; the run is kept.
    pub error: Option<Error>,
    /// For how long nothing was recorded, because the buffers were copied.
    pub blind: Duration,
}

/// A server that is watched.
pub struct Watch<'a> {
    ready: Prepared<'a>,
    /// How far back from a slow message's arrival a capture goes.
    keep: Duration,
    /// How long samples and comparisons of clocks wait for a capture.
    samples_wait: Duration,
    /// Since when all is recorded, CLOCK_MONOTONIC ns: since the start, or since the last capture.
    since_ns: u64,
    samples: Option<RecentSamples>,
    clock_rows: VecDeque<ClockRow>,
    /// Processes of the target that have ended, with when that was seen, CLOCK_MONOTONIC ns.
    ended: Vec<(u64, u32)>,
    costs: Vec<ProgramCost>,
    without_costs: Option<String>,
    /// Events written while these were measured.
    measured_events: u64,
    is_away: bool,
    started: Instant,
    last: Last,
}

/// When each periodic task was last done.
struct Last {
    alive: Instant,
    scan: Instant,
    clock: Instant,
}

impl<'a> Watch<'a> {
    /// Loads the probes and begins. `keep`: how far back from a slow message's arrival a capture goes, as far as the buffers hold; `after`: how
    /// long after its reply it is made.
    ///
    /// # Errors
    /// Everything that [`super::record`] ends with before its first event.
    pub fn start(
        options: &'a Options,
        keep: Duration,
        after: Duration,
        stop: &Stop,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Watch<'a>, Error> {
        let mut ready = Prepared::new(options, stop, progress)?;
        ready.start_target()?;
        ready.settle();
        ready.describe_start();
        tell_waits(&mut ready.loaded);
        let mut samples = RecentSamples::start(&mut ready);
        if let (Some(recorder), Some(samples)) = (&mut ready.meta.recorder, &mut samples) {
            // They are the recorder, too.
            recorder.threads.extend(samples.readers());
        }
        ready.loaded.set_recording(true);
        let since_ns = clocks::monotonic_ns();
        ready.loaded.tell_current(ready.cpus);
        let events_before = fill(&ready.loaded, &ready.buffers).0;
        let measured = cost::measure(&mut ready.loaded, COST_WINDOW);
        let measured_events = fill(&ready.loaded, &ready.buffers).0 - events_before;
        let without_costs = measured.as_ref().err().map(|e| tailsight_units::chain(e));
        let now = Instant::now();
        Ok(Watch {
            ready,
            keep,
            samples_wait: keep + after + LATE,
            since_ns,
            samples,
            clock_rows: VecDeque::from([clocks::compare()]),
            ended: vec![],
            costs: measured.unwrap_or_default(),
            without_costs,
            measured_events,
            is_away: false,
            started: now,
            last: Last { alive: now, scan: now, clock: now },
        })
    }

    /// What is watched: the application, its processes, its ports.
    pub fn target(&self) -> (&str, &[u32], &[u16]) {
        let target = &self.ready.target;
        (&target.app, &target.pids, &target.ports)
    }

    /// Bytes of the buffers of events.
    pub fn buffer_bytes(&self) -> u64 {
        self.ready.meta.buffer.bytes
    }

    /// From now on a message beyond one of these is slow.
    pub fn set_limits(&mut self, limits: Limits) {
        let bss = self.ready.loaded.probes.variables_mut();
        for (told, limit) in bss.watch_limits_ns.iter_mut().zip(limits) {
            // SAFETY: an aligned word of the shared mapping, which programs read at any time.
            unsafe { std::ptr::write_volatile(told, limit.unwrap_or(0)) };
        }
    }

    /// The first slow message since the last [`Watch::take_next`].
    pub fn slow_message(&self) -> Option<SlowMessage> {
        let told = &self.ready.loaded.probes.variables().slow_message;
        // SAFETY: an aligned word of the shared mapping; it is written when the rest is.
        let at_ns = unsafe { std::ptr::read_volatile(&raw const told.at_ns) };
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        let ports = [(told.ports >> 16) as u16, told.ports as u16];
        (at_ns > 0).then_some(SlowMessage { at_ns, legs_ns: told.legs_ns, ports, tid: told.tid })
    }

    /// Slow messages besides those that [`Watch::slow_message`] gave, since the start.
    pub fn further_slow(&self) -> u64 {
        self.ready.loaded.probes.variables().further_slow
    }

    /// The next slow message may come.
    pub fn take_next(&mut self) {
        let told = &mut self.ready.loaded.probes.variables_mut().slow_message;
        // SAFETY: aligned words of the shared mapping. While `taken` is set no program writes the others.
        unsafe {
            std::ptr::write_volatile(&raw mut told.at_ns, 0);
            std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
            std::ptr::write_volatile(&raw mut told.taken, 0);
        }
    }

    /// Latencies since the start.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn latencies(&self) -> Result<LatencyCounts, Error> {
        watch::latencies(&self.ready.loaded)
    }

    /// Events since the start.
    pub fn events(&self) -> u64 {
        fill(&self.ready.loaded, &self.ready.buffers).0
    }

    /// Sleeps for so long, but for looks at tasks of the target that have a message, where its runtime has such.
    pub fn rest(&mut self, pause: Duration) {
        let until = Instant::now() + pause;
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            let due = self.samples.as_ref().and_then(RecentSamples::routines_due);
            std::thread::sleep(due.map_or(left, |due| due.min(left)));
            if let Some(samples) = &mut self.samples
                && samples.routines_due().is_some_and(|due| due.is_zero())
            {
                samples.look_at_routines(&self.ready.loaded);
            }
        }
    }

    /// What is to be done some times a second: samples are taken out of their ring, clocks are compared, and new processes of the target are
    /// looked for. Why the target is gone, if it is.
    pub fn look(&mut self) -> Option<String> {
        let now = Instant::now();
        let until_ns = clocks::monotonic_ns().saturating_sub(self.samples_wait.as_nanos() as u64);
        if let Some(samples) = &mut self.samples {
            samples.take(&mut self.ready.loaded, &self.ready.target.pids);
        }
        if now - self.last.clock >= COMPARE {
            self.last.clock = now;
            if let Some(samples) = &mut self.samples {
                samples.forget(until_ns);
            }
            self.clock_rows.push_back(clocks::compare());
            while self.clock_rows.len() > 1 && self.clock_rows[1].monotonic_ns < until_ns {
                self.clock_rows.pop_front();
            }
        }
        let target = &mut self.ready.target;
        if let Some(status) = target.child.as_mut().and_then(Command::ended) {
            return Some(format!("the command ended ({status})"));
        }
        if now - self.last.alive >= ALIVE {
            self.last.alive = now;
            self.is_away = !target.pids.iter().any(|&pid| procfs::alive(pid));
            // A process has one life; a name, a port and a control group may have another process soon.
            if self.is_away && self.ready.options.selector.may_be_away().is_zero() {
                return Some("the target exited".into());
            }
        }
        if now - self.last.scan >= if self.is_away { SCAN_FOR_IT } else { SCAN } {
            self.last.scan = now;
            let _work = self.ready.background.work(HURRY);
            self.follow_the_living();
            self.ended.retain(|(seen_ns, _)| *seen_ns >= until_ns);
            let Prepared { options, target, loaded, background, .. } = &mut self.ready;
            target.look_again(options, self.is_away);
            background.avoid(&target.pids, &cores_of(&target.pids));
            target.tell(loaded);
        }
        None
    }

    fn follow_the_living(&mut self) {
        let now_ns = clocks::monotonic_ns();
        let ended = self.ready.target.follow_the_living(&mut self.ready.loaded);
        self.ended.extend(ended.into_iter().map(|pid| (now_ns, pid)));
    }

    /// No process of the target is there, and one may come.
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// How far back the buffer reaches that was filled fastest so far; none where no core has filled its own yet.
    pub fn reach(&self) -> Option<Duration> {
        let slots = self.ready.buffers.slots;
        let written = heads(&self.ready.loaded).iter().take(self.ready.cpus as usize).map(|head| head.n).max()?;
        (written >= slots).then(|| self.started.elapsed().mul_f64(slots as f64 / written as f64))
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(child) = self.ready.target.child.take() {
            child.stop(command::PATIENCE);
        }
        self.ready.loaded.set_recording(false);
        self.samples = None;
        self.ready.loaded.detach();
    }
}
