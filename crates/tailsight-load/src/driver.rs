//! A running load. In: a plan; then windows to measure. Out: progress at any time, records as they come, an outcome.
//!
//! [`run`] does it in one call. [`Driver`] does it step by step, for a method that decides while the load goes on: start,
//! measure with a sampling rate, look, measure more, stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cancel::Over;
use crate::clock::{now_ns, process_cpu_ns};
use crate::codec::Encoder;
use crate::dialer::Dialer;
use crate::engine::{Ended, Engine};
use crate::host::{self, Treatment};
use crate::keys::Keys;
use crate::outcome::{Outcome, ThreadReport, firsts_of_bursts, merge};
use crate::rng::{Purpose, stream};
use crate::shared_core::SharedCore;
use crate::thread_log::{Control, Published, ThreadLog};
use crate::{Cancel, Interval, LoadError, Plan, Sample, Schedule, Send, Wait};

/// A load that runs on threads of its own. Dropping it ends the load at once.
#[derive(Debug)]
pub struct Driver {
    plan: Arc<Plan>,
    control: Arc<Control>,
    published: Vec<Arc<Published>>,
    threads: Vec<JoinHandle<ThreadReport>>,
    start_ns: u64,
    cpu_before_ns: u64,
}

/// A load that is ready and has not begun: connections are open, keys are stored, threads wait. Dropping it ends the threads
/// and closes the connections.
#[derive(Debug)]
pub struct Prepared {
    // Dropped first: a thread whose sender is gone ends, and dropping the driver waits for that.
    go: Vec<mpsc::Sender<u64>>,
    driver: Driver,
}

impl Prepared {
    /// The plan that will run.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.driver.plan
    }

    /// Begins: the schedules of all threads count from this one instant, CLOCK_MONOTONIC ns, or from [`LEAD_NS`] from now when
    /// that is later.
    #[must_use]
    pub fn go(self, start_ns: u64) -> Driver {
        let Self { go, mut driver } = self;
        driver.cpu_before_ns = process_cpu_ns();
        driver.start_ns = start_ns.max(now_ns() + LEAD_NS);
        for sender in go {
            // A thread that has ended need not be started.
            let _ = sender.send(driver.start_ns);
        }
        driver
    }
}

/// How often code that waits for the threads checks them.
const LOOK: Duration = Duration::from_millis(20);

/// Time for all threads to wake before the first request is due, ns.
pub const LEAD_NS: u64 = 2_000_000;

/// The state of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Since the first request was due, ns.
    pub elapsed_ns: u64,
    /// Requests sent.
    pub sent: u64,
    /// Replies that came, of whatever kind.
    pub answered: u64,
    /// Requests that ended without a good reply.
    pub failed: u64,
    /// Requests that were due while every connection had its limit outstanding.
    pub blocked: u64,
    /// Samples kept.
    pub samples: u64,
    /// Whether all threads have ended.
    pub ended: bool,
}

/// How far records were read; starts at the first.
#[derive(Debug, Clone, Default)]
pub struct Cursor {
    samples: Vec<usize>,
    sends: Vec<usize>,
    intervals: Vec<usize>,
}

impl Driver {
    /// [Prepares](Driver::prepare) and starts the load. The first measurement window begins with it, at the plan's sampling
    /// rate.
    ///
    /// # Errors
    /// As [`Driver::prepare`].
    pub fn start(plan: Plan) -> Result<Self, LoadError> {
        Ok(Self::prepare(plan)?.go(0))
    }

    /// Checks the plan, connects, stores the keys, tries one request on each connection.
    ///
    /// # Errors
    /// What is wrong with the plan, the target or the server; no request of the load was sent then.
    pub fn prepare(plan: Plan) -> Result<Prepared, LoadError> {
        Self::prepare_within(plan, &Cancel::default())
    }

    /// The same, until `cancel` ends it.
    ///
    /// # Errors
    /// As [`Driver::prepare`], and [`LoadError::Ended`].
    pub fn prepare_within(plan: Plan, cancel: &Cancel<'_>) -> Result<Prepared, LoadError> {
        Self::prepare_one(plan, None, cancel)
    }

    /// Prepares several loads of one thread each that poll without a pause ([`Wait::Spin`]) and share a core: one thread
    /// runs them in turn. All of them must then [go](Prepared::go), or be dropped; none runs before.
    ///
    /// # Errors
    /// As [`Driver::prepare`], and when a plan has more threads or does not spin; with the plan's place in the list.
    pub fn prepare_together(plans: Vec<Plan>) -> Result<Vec<Prepared>, (usize, LoadError)> {
        let unfit = |plan: &Plan| plan.wait != Wait::Spin || plan.threads != 1;
        if let Some(i) = plans.iter().position(unfit) {
            let reason = "loads that share a thread must poll (wait=spin), on one thread each";
            return Err((i, LoadError::Plan(reason.into())));
        }
        let shared_core = Arc::new(SharedCore::new(plans.len()));
        let cancel = Cancel::default();
        let prepare = |(i, plan)| Self::prepare_one(plan, Some(&shared_core), &cancel).map_err(|error| (i, error));
        plans.into_iter().enumerate().map(prepare).collect()
    }

    fn prepare_one(
        plan: Plan,
        shared_core: Option<&Arc<SharedCore>>,
        cancel: &Cancel<'_>,
    ) -> Result<Prepared, LoadError> {
        plan.validate()?;
        let allowed = host::allowed_cpus();
        if let Some(cpu) = plan.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            let reason = format!("this process may not use core {cpu}; it may use {}", allowed.join(", "));
            return Err(LoadError::Plan(reason));
        }
        let plan = Arc::new(plan);
        host::raise_file_limit(u64::from(plan.connections) + u64::from(plan.threads));
        let schedule = Schedule::in_bursts(&plan.arrivals, &plan.rate, plan.burst, plan.seed)?;
        let dialer = Dialer::new(&plan, cancel)?;
        let keys = Arc::new(Keys::new(&plan.workload));
        let control = Arc::new(Control {
            released: cancel.abandon.clone(),
            prepared_by_ns: if cancel.until_ns == u64::MAX { 0 } else { cancel.until_ns },
            ..Control::default()
        });
        control.threshold.store(Control::threshold(plan.sampling), Ordering::Relaxed);
        let cpus = choose_cpus(&plan);
        let mut driver = Self {
            control: control.clone(),
            published: Vec::new(),
            threads: Vec::new(),
            start_ns: 0,
            cpu_before_ns: 0,
            plan: plan.clone(),
        };
        let (mut ready, mut go) = (Vec::new(), Vec::new());
        for thread in 0..plan.threads {
            let published = Arc::new(Published::new(&plan));
            driver.published.push(published.clone());
            let (ready_sender, ready_receiver) = mpsc::channel();
            let (go_sender, go_receiver) = mpsc::channel();
            let schedule = schedule.as_ref().map(|s| s.part(thread as usize, plan.threads as usize));
            let (plan, control, keys, dialer) = (plan.clone(), control.clone(), keys.clone(), dialer.clone());
            let placed = (cpus.get(thread as usize).copied(), plan.real_time);
            let shared_core = shared_core.cloned();
            let handle = std::thread::Builder::new()
                .name(format!("{}-{thread}", plan.task))
                .spawn(move || {
                    let log = ThreadLog::new(&plan, control, published);
                    let encoder = Encoder::new(&plan, keys);
                    let rngs = (
                        stream(plan.seed, Purpose::Requests, u64::from(thread)),
                        stream(plan.seed, Purpose::Sampling, u64::from(thread)),
                    );
                    let shared_core = shared_core.as_deref();
                    serve(thread, placed, &ready_sender, &go_receiver, shared_core, || {
                        let mut engine = Engine::new(plan, log, encoder, dialer, schedule, rngs)?;
                        crate::setup::prepare(&mut engine, thread)?;
                        Ok(engine)
                    })
                })
                .map_err(LoadError::io("start a thread"))?;
            driver.threads.push(handle);
            ready.push(ready_receiver);
            go.push(go_sender);
        }
        for receiver in ready {
            loop {
                match receiver.recv_timeout(LOOK) {
                    Ok(prepared) => break prepared?,
                    Err(mpsc::RecvTimeoutError::Disconnected) => {
                        // A thread that ended without a message has panicked; joining it shows that.
                        return Err(LoadError::Plan("a loading thread panicked".into()));
                    }
                    // The threads see their own time and flag, but not the caller's; dropping the driver tells them.
                    Err(mpsc::RecvTimeoutError::Timeout) if cancel.over() == Some(Over::Stopped) => {
                        return Err(Over::Stopped.during(&plan.target, "getting ready", 0));
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                }
            }
        }
        Ok(Prepared { go, driver })
    }

    /// The plan that runs.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// When the first interval of the schedule began, CLOCK_MONOTONIC ns.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// Begins a new measurement window at a sampling rate (0 to 1; 0 pauses) while the load goes on; gives its number, which
    /// its samples carry ([`Sample::window`]).
    pub fn measure(&self, sampling: f64) -> u16 {
        let window = self.control.window.fetch_add(1, Ordering::Relaxed) + 1;
        self.control.threshold.store(Control::threshold(sampling), Ordering::Relaxed);
        window as u16
    }

    /// Whether threads of such a plan sleep where they could poll. Only [`Wait::Auto`] can change, and only if polling
    /// leaves a core for other work; a server on this host needs another core besides.
    #[must_use]
    pub fn could_be_punctual(plan: &Plan) -> bool {
        let others = if plan.target.is_here() { 2 } else { 1 };
        // At real-time priority a thread that polls leaves its core to nobody.
        plan.wait == Wait::Auto && !plan.real_time && host::allowed_cpus().len() >= plan.threads as usize + others
    }

    /// From now on, threads with [`Wait::Auto`] poll without a pause, which takes whole cores. Returns whether that changes
    /// anything.
    pub fn be_punctual(&self) -> bool {
        Self::could_be_punctual(&self.plan) && !self.control.punctual.swap(true, Ordering::Relaxed)
    }

    /// Its state.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let mut progress = Progress {
            elapsed_ns: now_ns().saturating_sub(self.start_ns),
            ended: self.threads.iter().all(JoinHandle::is_finished),
            ..Progress::default()
        };
        for published in &self.published {
            progress.sent += published.sent.load(Ordering::Relaxed);
            progress.answered += published.answered();
            progress.failed += published.failed();
            progress.blocked += published.blocked.load(Ordering::Relaxed);
            progress.samples += published.samples.len() as u64;
        }
        progress
    }

    /// Samples that were completed since the cursor, thread after thread, each in the order of completion.
    pub fn samples_since(&self, cursor: &mut Cursor) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (published, at) in self.published.iter().zip(sized(&mut cursor.samples, self.published.len())) {
            let new = published.samples.since(*at);
            samples.extend_from_slice(new);
            *at += new.len();
        }
        samples
    }

    /// Consecutive sends of the whole load since the cursor, in the order in which they were due, as far as every thread has
    /// recorded them. Times outside measurement windows have none, and none are recorded once their room is full.
    pub fn sends_since(&self, cursor: &mut Cursor) -> Vec<Send> {
        let ats = sized(&mut cursor.sends, self.published.len());
        let parts: Vec<&[Send]> = self.published.iter().zip(ats.iter()).map(|(p, at)| p.sends.since(*at)).collect();
        let (mut sends, taken) = merge(&parts, self.threads.iter().all(JoinHandle::is_finished));
        firsts_of_bursts(&mut sends, self.plan.burst);
        for (at, taken) in ats.iter_mut().zip(taken) {
            *at += taken;
        }
        sends
    }

    /// Interval rows that were completed since the cursor, one list a thread.
    pub fn intervals_since(&self, cursor: &mut Cursor) -> Vec<Vec<Interval>> {
        let ats = sized(&mut cursor.intervals, self.published.len());
        let rows = self.published.iter().zip(ats).map(|(published, at)| {
            let rows = published.intervals.since(*at).to_vec();
            *at += rows.len();
            rows
        });
        rows.collect()
    }

    /// Requests the end of sending, and returns without waiting, as [`Driver::stop`] and [`Driver::wait`] do.
    pub fn end(&self) {
        self.control.stop.store(true, Ordering::Relaxed);
    }

    /// The same; late requests are then sent, and replies waited for, at most this long each, ns.
    pub fn end_within(&self, ns: u64) {
        self.control.drain_ns.store(ns.max(1), Ordering::Relaxed);
        self.end();
    }

    /// Ends the load at once and returns without waiting: after the current turn no request is sent.
    pub fn abandon(&self) {
        self.control.abandon.store(true, Ordering::Relaxed);
    }

    /// Stops sending, waits for the last replies (at most [`Plan::drain_ns`]), and returns what was measured.
    #[must_use]
    pub fn stop(mut self) -> Outcome {
        self.end();
        self.finish()
    }

    /// Waits until the plan's duration is over, and returns what was measured.
    #[must_use]
    pub fn wait(mut self) -> Outcome {
        self.finish()
    }

    fn finish(&mut self) -> Outcome {
        let reports: Vec<ThreadReport> = std::mem::take(&mut self.threads)
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| ThreadReport::panicked()))
            .collect();
        let cpu_ns = process_cpu_ns().saturating_sub(self.cpu_before_ns);
        let mut plan = self.plan.clone();
        if self.control.punctual.load(Ordering::Relaxed) {
            // For a thread that polls, using a whole core does not mean that it lacks CPU time.
            Arc::make_mut(&mut plan).wait = Wait::Spin;
        }
        Outcome::new(plan, self.start_ns, cpu_ns, reports, &self.published)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.control.abandon.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The body of a thread: prepares, reports that, waits for the start, runs, reports.
fn serve(
    thread: u32,
    (cpu, real_time): (Option<usize>, bool),
    ready: &mpsc::Sender<Result<(), LoadError>>,
    go: &mpsc::Receiver<u64>,
    shared_core: Option<&SharedCore>,
    prepare: impl FnOnce() -> Result<Engine, LoadError>,
) -> ThreadReport {
    host::exact_timers();
    let give_up = || shared_core.inspect(|shared_core| shared_core.give_up());
    let mut report = ThreadReport { thread, ..ThreadReport::default() };
    report.cpu = cpu.filter(|cpu| host::pin(*cpu).is_ok());
    if real_time {
        // If it is refused, the report says so.
        let _ = host::real_time();
    }
    let mut engine = match prepare() {
        Ok(engine) => engine,
        Err(error) => {
            give_up();
            let _ = ready.send(Err(error));
            return report;
        }
    };
    let start_ns = ready.send(Ok(())).ok().and_then(|()| go.recv().ok());
    let Some(start_ns) = start_ns else {
        // The driver ended the load: another thread could not be prepared.
        give_up();
        return report;
    };
    let before = Treatment::now();
    let ended = match shared_core {
        None => engine.run(start_ns),
        Some(shared_core) => {
            let Some((back, ended)) = shared_core.run(engine, start_ns) else { return ThreadReport::panicked() };
            engine = back;
            ended
        }
    };
    report.treatment = Treatment::now().since(before);
    report.finish(&engine, ended);
    report
}

/// A core for each thread, the highest first (the lowest ones serve most interrupts); none when there are too few.
fn choose_cpus(plan: &Plan) -> Vec<usize> {
    if !plan.cpus.is_empty() {
        return plan.cpus.clone();
    }
    let mut allowed = host::allowed_cpus();
    // Pinned on the only core, or on all of them while polling, the server would have none.
    if !plan.pin || allowed.len() < plan.threads as usize + usize::from(plan.wait == Wait::Spin) {
        return Vec::new();
    }
    allowed.reverse();
    allowed.truncate(plan.threads as usize);
    allowed
}

fn sized(cursor: &mut Vec<usize>, threads: usize) -> &mut [usize] {
    cursor.resize(threads, 0);
    cursor
}

/// Runs a plan: starts, calls `progress` ten times a second, and returns what was measured when the plan's duration is over
/// or `stop` becomes true.
///
/// # Errors
/// As [`Driver::start`]; a plan without a duration and an endless schedule ends only by `stop`.
pub fn run(plan: Plan, stop: &AtomicBool, mut progress: impl FnMut(&Progress)) -> Result<Outcome, LoadError> {
    let driver = Driver::prepare_within(plan, &Cancel { stop, ..Cancel::default() })?.go(0);
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let now = driver.progress();
        if now.ended {
            return Ok(driver.wait());
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(driver.stop());
        }
        progress(&now);
    }
}

impl ThreadReport {
    fn finish(&mut self, engine: &Engine, ended: Ended) {
        self.end_ns = engine.end_ns();
        self.lazy = engine.is_lazy();
        self.margin_ns = engine.margin_ns();
        self.lateness = engine.log.lateness.clone();
        self.overslept = engine.log.overslept.clone();
        self.blocked_max_ns = engine.log.blocked_max_ns;
        self.clock_steps = engine.log.wall.steps;
        self.clock_step_max_ns = engine.log.wall.largest_step_ns;
        self.clock_error_ns = engine.log.wall.offset.error_ns.max(engine.log.nics.error_ns());
        (self.nic_clock_steps, self.nic_clock_step_max_ns) = engine.log.nics.steps();
        self.stamps = engine.log.stamp_source();
        self.given_up = engine.given_up;
        self.troubles = engine.troubles.clone();
        self.ended = ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_are_merged_up_to_where_all_threads_have_come() {
        let send = |intended_ns| Send { intended_ns, called_ns: intended_ns };
        let (a, b) = ([1, 4, 9].map(send), [2, 3].map(send));
        let (sends, taken) = merge(&[&a, &b], false);
        assert_eq!((sends.iter().map(|s| s.intended_ns).collect::<Vec<_>>(), taken), (vec![1, 2, 3], vec![1, 2]));
        // Regression: one turn over two connections left out of order, and a search that took it for sorted lost sends.
        let (turn, taken) = merge(&[&[1, 3, 2].map(send)], false);
        assert_eq!((turn.len(), turn.is_sorted_by_key(|s| s.intended_ns), taken), (3, true, vec![3]));
        assert_eq!(merge(&[&a, &b], true).0.len(), 5);
        assert_eq!(merge(&[&a, &[]], false).0.len(), 0);
    }
}
