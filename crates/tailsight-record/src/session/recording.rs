//! A running recording: until it ends, it empties the buffers, compares the clocks and follows the target's processes.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use tailsight_trace::RunWriter;
use tailsight_trace::tables::ClockRow;
use tailsight_trace::write::BATCH_EVENTS;

use super::drain::{Counts, Drain, counts, fill};
use super::options::{Contents, Progress, SampleRate, SlowTime};
use super::prepare::{Prepared, cores_of};
use super::sampling::Sampling;
use crate::clocks;
use crate::command::Command;
use crate::confine::{self, Needs, Stage};
use crate::error::Error;
use crate::nic_clocks::NicClocks;
use crate::probes::nic_tx::{NicTx, TxStamps};
use crate::probes::samples::tell_waits;
use crate::procfs;
use crate::stop::Stop;
use crate::tables::EarlyTables;

/// A recording of at most this length is drained after its end.
const SHORT: Duration = Duration::from_secs(4);
/// The shortest time between two looks at the buffers.
const TICK: Duration = Duration::from_millis(20);
/// The longest time between them; long while the buffers are far from full, because each look takes a core from the task
/// that runs there.
const LONG_TICK: Duration = Duration::from_millis(100);
/// How often it checks that the target still runs, and looks for its ports until they are known.
const LOOK: Duration = Duration::from_millis(200);
/// How often it looks for new processes and ports: reading /proc takes milliseconds of CPU time.
const SCAN: Duration = Duration::from_secs(1);
/// The most events of a core that are moved at once while recording: a few milliseconds of CPU time.
pub(super) const DRAIN_EVENTS: u64 = BATCH_EVENTS as u64;

/// How long moving events may wait for a core before it goes on with the usual priority: samples have room for a tenth of a second.
const HURRY: Duration = Duration::from_millis(100);

/// Comparisons of the clocks, and the CPU time that recording takes.
pub(super) struct Clock {
    pub(super) rows: Vec<ClockRow>,
    cpu_before_ns: u64,
}

impl Clock {
    pub(super) fn start() -> Clock {
        Clock { cpu_before_ns: own_cpu_ns(), rows: vec![clocks::compare()] }
    }

    /// The wall clock at a time soon after the start, ns since the epoch.
    fn wall_ns(&self, monotonic_ns: u64) -> u64 {
        let start = self.rows.first().copied().unwrap_or_default();
        start.realtime_ns + monotonic_ns.saturating_sub(start.monotonic_ns)
    }

    /// CPU time of the recorder since the start, ns.
    pub(super) fn cpu_ns(&self) -> u64 {
        own_cpu_ns().saturating_sub(self.cpu_before_ns)
    }
}

/// When each periodic task was last done.
struct Last {
    /// The check that the target runs.
    look: Instant,
    /// When it last ran.
    alive: Instant,
    /// The search for new processes.
    scan: Instant,
    /// The comparison of the clocks.
    clock: Instant,
    /// The emptying of the buffers.
    drain: Instant,
    /// The look at how full they are: when, and how full the fullest was.
    fill: (Instant, u64),
}

/// A recording that runs.
pub(super) struct Recording<'a> {
    pub(super) ready: Prepared<'a>,
    pub(super) writer: RunWriter,
    pub(super) early: EarlyTables,
    pub(super) drain: Drain,
    pub(super) tx: Option<NicTx>,
    pub(super) nic_clocks: NicClocks,
    pub(super) clock: Clock,
    pub(super) sampling: Option<Sampling>,
    started: Instant,
    last: Last,
    /// How long the recorder may sleep now.
    pause: Duration,
    /// How often a buffer was nearly full.
    pub(super) nearly_full: u64,
    /// Why it ended early.
    pub(super) ended_early: Option<String>,
    /// Whether the user stopped it.
    pub(super) interrupted: Option<String>,
    /// How many messages there were when the longest time ended it, where that was too few.
    pub(super) few: Option<u64>,
}

impl<'a> Recording<'a> {
    /// Switches the probes on.
    pub(super) fn start(mut ready: Prepared<'a>, writer: RunWriter) -> Recording<'a> {
        ready.settle();
        // Births of tasks are recorded while this reads the tasks that exist.
        ready.loaded.set_naming();
        let work = ready.background.work(HURRY);
        let snapshot = procfs::tasks(|_| false);
        ready.describe_start();
        // What is needed to read the events of a recording that is killed or that fills the disk.
        let mut early = EarlyTables::new(snapshot);
        let failed = early.sockets(&writer).err().map(Error::from);
        drop(work);
        let tx = start_tx_stamps(&mut ready);
        let nic_clocks = NicClocks::find(ready.target.pids.first().copied());
        ready.loaded.set_nic_stamps(nic_clocks.stamps_in());
        tell_waits(&mut ready.loaded);
        let mut sampling = Sampling::start(&mut ready);
        if let (Some(recorder), Some(sampling)) = (&mut ready.meta.recorder, &mut sampling) {
            // They are the recorder, too.
            recorder.threads.extend(sampling.readers());
        }
        let clock = Clock::start();
        ready.meta.start_ns = clocks::monotonic_ns();
        ready.meta.started_unix_ns = clock.wall_ns(ready.meta.start_ns);
        ready.loaded.set_recording(true);
        ready.loaded.tell_current(ready.cpus);
        let mut drain = Drain::new(ready.meta.start_ns);
        let Prepared { target, meta, .. } = &mut ready;
        let written = early.write(&writer, meta, &target.pids, &target.ports, &drain.collector.tasks);
        drain.failed = failed.or(written.err().map(Error::from));
        let now = Instant::now();
        let last = Last { look: now, alive: now, scan: now, clock: now, drain: now, fill: (now, 0) };
        Recording {
            ready,
            writer,
            early,
            drain,
            tx,
            nic_clocks,
            clock,
            sampling,
            started: now,
            last,
            pause: TICK,
            nearly_full: 0,
            ended_early: None,
            interrupted: None,
            few: None,
        }
    }

    /// Drops the rights that the rest of the recording does not need, if that was asked for.
    pub(super) fn confine(&mut self, stage: Stage) {
        let Prepared { options, target, meta, tx_stamps, .. } = &mut self.ready;
        let Some(recorder) = meta.recorder.as_mut().filter(|_| options.confine) else { return };
        let needs = Needs {
            command: target.child.is_some(),
            stamps: *tx_stamps != TxStamps::Off,
            shared: options.shared,
            jvm: options.samples != SampleRate::Off && target.runs_jvm(&options.selector),
        };
        confine::confine(stage, needs, recorder.confinement.get_or_insert_default());
    }

    /// Records until the time is over, there is enough, the target is gone, `stop` is set, or writing fails.
    pub(super) fn run(&mut self, stop: &Stop, progress: &mut dyn FnMut(Progress)) {
        loop {
            let counts = counts(&self.ready.loaded, self.ready.cpus);
            let samples = self.sampling.as_ref().is_some_and(Sampling::runs);
            let slow = SlowTime {
                excess_ns: counts.excess_ns,
                period_ns: self.ready.sample_clock.map_or(0, |clock| clock.period_ns),
                ticks: counts.ticks,
                apart_ticks: counts.apart_ticks,
            };
            let slow_samples = samples.then_some(counts.slow_samples);
            let contents = Contents { messages: estimated(counts), slow_samples, slow };
            let left = self.left();
            if left == Some(Duration::ZERO) || self.has_enough(contents) {
                let (duration, until) = (self.ready.options.duration, self.ready.options.until);
                let until = until.filter(|_| duration.is_none());
                // These are the last counts: what was shown before is older by up to a second.
                self.few = until.and_then(|until| until.few(contents.messages, self.started.elapsed()));
                return;
            }
            if stop.is_asked() {
                let after = self.started.elapsed().as_secs_f64();
                self.interrupted = Some(format!("interrupted after {after:.1} s"));
                return;
            }
            self.rest(left.map_or(self.pause, |l| l.min(self.pause)));
            let now = Instant::now();
            self.compare_clocks(now);
            if let Some(sampling) = &mut self.sampling {
                let Prepared { loaded, target, background, .. } = &mut self.ready;
                sampling.take(loaded, &target.pids, background);
            }
            if let Some(tracing) = &mut self.ready.tracing {
                tracing.look(&self.ready.loaded);
            }
            if let Some(tasks) = &mut self.ready.tasks {
                tasks.look(&self.ready.loaded);
            }
            if let Some(tls) = &mut self.ready.tls {
                tls.look(&self.ready.loaded);
            }
            self.empty_buffers(now, contents, progress);
            if self.drain.failed.is_some() {
                return;
            }
            self.ended_early = self.is_gone(now);
            if self.ended_early.is_some() {
                return;
            }
            self.follow(now);
        }
    }

    /// Sleeps for so long, but for looks at goroutines that have a message.
    fn rest(&mut self, pause: Duration) {
        let until = Instant::now() + pause;
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            let due = self.sampling.as_ref().and_then(Sampling::routines_due);
            std::thread::sleep(due.map_or(left, |due| due.min(left)));
            if let Some(sampling) = &mut self.sampling
                && sampling.routines_due().is_some_and(|due| due.is_zero())
            {
                sampling.look_at_routines(&self.ready.loaded);
            }
        }
    }

    /// When a recording of a given length ends, CLOCK_MONOTONIC ns: what comes later is not kept, however late the recorder gets a core.
    pub(super) fn ends_ns(&self) -> u64 {
        let length = self.ready.options.duration;
        length.map_or(u64::MAX, |length| self.ready.meta.start_ns.saturating_add(length.as_nanos() as u64))
    }

    /// Time until the end, where one is given.
    fn left(&self) -> Option<Duration> {
        let options = self.ready.options;
        let longest = options.duration.or(options.until.map(|until| until.most));
        longest.map(|d| d.saturating_sub(self.started.elapsed()))
    }

    fn has_enough(&self, contents: Contents) -> bool {
        let options = self.ready.options;
        options.duration.is_none() && options.until.is_some_and(|u| u.over(contents, self.started.elapsed()))
    }

    /// Whether the buffers are emptied during the recording.
    fn is_long(&self) -> bool {
        let options = self.ready.options;
        match options.until {
            Some(_) if options.duration.is_none() => self.started.elapsed() > SHORT,
            _ => options.duration.is_none_or(|d| d > SHORT),
        }
    }

    fn compare_clocks(&mut self, now: Instant) {
        if now - self.last.clock >= LONG_TICK {
            self.clock.rows.push(clocks::compare());
            self.nic_clocks.compare();
            self.last.clock = now;
        }
    }

    /// Moves events into the run when there are many, and sets the time of the next look.
    fn empty_buffers(&mut self, now: Instant, contents: Contents, progress: &mut dyn FnMut(Progress)) {
        let Prepared { loaded, buffers, .. } = &mut self.ready;
        let (events, lost, fullest) = fill(loaded, buffers);
        progress(Progress::Recording { elapsed: self.started.elapsed(), events, lost, contents });
        // A short recording is drained after its end, unless the buffers would not hold it.
        let slots = buffers.slots;
        let long = self.is_long();
        let limit = if long { slots / 2 } else { slots / 8 * 7 };
        let urgent = fullest > limit;
        let (filled, before) = self.last.fill;
        self.pause = until_full(fullest.checked_sub(before), now - filled, limit.saturating_sub(fullest));
        self.last.fill = (now, fullest);
        if urgent || (long && (fullest >= DRAIN_EVENTS || now - self.last.drain > Duration::from_secs(1))) {
            let most = if urgent { u64::MAX } else { DRAIN_EVENTS };
            let ends_ns = self.ends_ns();
            let Prepared { loaded, buffers, background, .. } = &mut self.ready;
            let work = (!urgent).then(|| background.work(HURRY));
            if urgent {
                background.as_usual();
            }
            self.drain.drain(loaded, buffers, &mut self.writer, ends_ns, most);
            drop(work);
            self.nearly_full += u64::from(urgent);
            self.drain.drains += 1;
            self.last.drain = now;
        }
    }

    /// Why no process of the target is left, if so.
    fn is_gone(&mut self, now: Instant) -> Option<String> {
        if now - self.last.look <= LOOK {
            return None;
        }
        self.last.look = now;
        let target = &mut self.ready.target;
        if let Some(status) = target.child.as_mut().and_then(Command::ended) {
            return Some(format!("the command ended ({status})"));
        }
        if target.pids.iter().any(|&p| procfs::alive(p)) {
            self.last.alive = now;
        } else if now - self.last.alive >= self.ready.options.selector.may_be_away() {
            let exited = (self.last.alive - self.started).as_secs_f64();
            return Some(format!("the target exited after {exited:.1} s"));
        }
        None
    }

    /// Looks for new processes and ports from time to time.
    fn follow(&mut self, now: Instant) {
        let away = self.last.alive < self.last.look;
        let has_served_ports = !self.ready.target.ports.is_empty() && !away;
        if now - self.last.scan <= if has_served_ports { SCAN } else { LOOK } {
            return;
        }
        self.last.scan = now;
        let long = self.is_long();
        let Prepared { options, target, loaded, meta, background, .. } = &mut self.ready;
        let _work = background.work(HURRY);
        target.look_again(options, away);
        background.avoid(&target.pids, &cores_of(&target.pids));
        target.tell(loaded);
        if long
            && let Err(e) =
                self.early.write(&self.writer, meta, &target.pids, &target.ports, &self.drain.collector.tasks)
        {
            self.drain.failed = Some(e.into());
        }
    }
}

/// Makes the NIC stamp sent packets, if that was asked for.
fn start_tx_stamps(ready: &mut Prepared<'_>) -> Option<NicTx> {
    let pid = *ready.target.pids.first().filter(|_| ready.tx_stamps != TxStamps::Off)?;
    match NicTx::start(&mut ready.loaded, pid) {
        Ok(started) => Some(started),
        Err(why) => {
            ready.without_tx_stamps = Some(why);
            None
        }
    }
}

/// The number of complete messages, estimated from the target's calls: an answered message has receive calls, often two (the head of a
/// request, then the rest), and a send call. If the target sends much less than it receives ([`CALLS`]), it does not answer, and receive
/// calls are counted. Other calls that take several messages, and messages that take several sends, make the estimate wrong; the
/// analysis counts exactly.
fn estimated(Counts { received, sent, .. }: Counts) -> u64 {
    /// The most receive calls that a message takes.
    const CALLS: u64 = 8;
    if sent.saturating_mul(CALLS) >= received { received.min(sent) } else { received }
}

/// How long the recorder may sleep: half the time until the fullest buffer reaches its limit at its present rate. `growth`:
/// events since the last look, `over` ago; none if it was emptied meanwhile.
fn until_full(growth: Option<u64>, over: Duration, room: u64) -> Duration {
    let Some(growth) = growth else { return TICK };
    let full_s = over.as_secs_f64() * room as f64 / growth.max(1) as f64;
    Duration::from_secs_f64(full_s / 2.0).clamp(TICK, LONG_TICK)
}

/// CPU time of this thread, which does all the work of the recording.
fn own_cpu_ns() -> u64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |u| {
        let ns = |t: nix::sys::time::TimeVal| t.tv_sec() as u64 * 1_000_000_000 + t.tv_usec() as u64 * 1000;
        ns(u.user_time()) + ns(u.system_time())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_estimated_from_both_calls() {
        let messages_of = |received, sent| estimated(Counts { received, sent, ..Counts::default() });
        assert_eq!(messages_of(100, 98), 98, "two are still being served");
        assert_eq!(messages_of(100, 300), 100, "replies in several pieces");
        assert_eq!(messages_of(100, 0), 100, "nothing is answered");
        assert_eq!(messages_of(100, 3), 100, "few are answered");
        assert_eq!(messages_of(0, 0), 0);
    }

    /// MariaDB reads the head of each command and then the rest: a recording until 2500 messages ended after 1325.
    #[test]
    fn a_message_that_takes_two_receive_calls_is_one() {
        let messages_of = |received, sent| estimated(Counts { received, sent, ..Counts::default() });
        assert_eq!(messages_of(2650, 1325), 1325);
        assert_eq!(messages_of(2651, 1325), 1325, "the head of one more was read");
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
