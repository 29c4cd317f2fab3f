//! The loop between the method, which decides, and the load, which sends (Lancet §4.3, Figure 4).
//!
//! In: a load, a question, a flag that stops, somewhere to tell how it goes. Out: a [`Measurement`]: the report and every sample.
//! While the method thinks, nothing is recorded and it runs at low priority, so that neither client nor server is disturbed;
//! the load goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tailsight_load::{Interval, Progress, Sample};
use tailsight_stats::method::{
    Accepted, Batch, Check, Config, Method, Slice, Step, Stop, is_punctuality, percentile_name,
};

use crate::Error;
use crate::batch::{Window, batch, latency_ns, slices};
use crate::conclude::conclude;
use crate::load::{Load, Records};
use crate::machine::Before;
use crate::question::Question;
use crate::report::{Report, StepTaken};

/// How often the load is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// A batch lasts at least this long: its load is judged by rows of 100 ms.
const SHORTEST_BATCH_NS: u64 = 1_000_000_000;
/// Without any reply for so long, with requests under way, the server has stalled.
pub(crate) const STALLED_NS: u64 = 3_000_000_000;
/// Replies to recorded requests are waited for after a batch, at least and at most; and at most when the time allowed is over.
const STRAGGLERS_NS: (u64, u64) = (150_000_000, 1_000_000_000);
const LAST_STRAGGLERS_NS: u64 = 500_000_000;

/// What happens, for a live display.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The load runs.
    Started,
    /// How it stands; about 20 times a second.
    Tick(Tick),
    /// The method has looked at the data.
    Judged {
        /// Number of the batch; 0 for the load before the first.
        batch: usize,
        /// The checks of this look.
        checks: Vec<Check>,
        /// In words.
        what: String,
    },
}

/// How a measurement stands.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tick {
    /// The load's counters.
    pub progress: Progress,
    /// Requests sent a second since the last tick.
    pub rate: f64,
    /// Samples of the batch at hand, and how many are wanted; 0 while only loading.
    pub samples: (u64, u64),
    /// Number of the batch at hand.
    pub batch: usize,
    /// Share of the time allowed that is over.
    pub time_used: f64,
}

/// Why it ended before the method had its answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Halt {
    /// The time allowed is over.
    OutOfTime,
    /// The user interrupted.
    Interrupted,
    /// No reply came for so long, ns, of so many under way.
    Stalled { ns: u64, waiting: u64 },
    /// The load ended by itself: a replay or a duration is over, the server is gone, a thread failed.
    Ended,
    /// An agent failed.
    Agent(String),
}

/// A recorded request with what it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Its times and fate.
    pub sample: Sample,
    /// Which agent, an index into [`Report::client`]'s agents.
    pub agent: u16,
    /// Number of the batch, from 1.
    pub batch: u16,
    /// Whether it is of the part that the verdict is about: after the last restart, after the warm-up, with a good reply.
    pub in_result: bool,
}

/// A measurement.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// What it came to.
    pub report: Report,
    /// Every sample by due time, those of batches that were dropped too.
    pub rows: Vec<Row>,
    /// (agent, what it did), in order.
    pub intervals: Vec<(u16, Interval)>,
    /// The samples that the verdict stands on, thinned to independence where that was found; `None` where they are not
    /// stationary or the verdict is N/A for another reason than their number.
    pub accepted: Option<Accepted>,
    /// When the load began, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
}

/// Measures.
///
/// # Errors
/// When the question contradicts itself or the load cannot be started. Whatever goes wrong afterwards is a verdict, N/A, with
/// the samples that there are.
pub fn measure(
    load: &mut dyn Load,
    question: &Question,
    stop: &AtomicBool,
    event: &mut dyn FnMut(&Event),
) -> Result<Measurement, Error> {
    let method = Method::new(Config { client_sleeps: load.sleeps_when_idle(), ..question.config()? })?;
    let began_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    // Preparing counts: who asks for a minute has an answer, or the reason why there is none, after a minute.
    let deadline_ns = load.now_ns().saturating_add(question.max_time.as_nanos() as u64);
    load.start_within(deadline_ns, stop)?;
    let start_ns = load.now_ns();
    let mut run = Run {
        method,
        question,
        start_ns,
        deadline_ns,
        began_s,
        rows: Vec::new(),
        intervals: Vec::new(),
        agents: Vec::new(),
        batches: 0,
        epoch_batch: 1,
        steps: Vec::new(),
        last: (start_ns, 0),
        replied: (start_ns, 0),
        before: Before::now(),
    };
    event(&Event::Started);
    let halt = match run.drive(load, stop, event) {
        Ok(halt) => halt,
        Err(error) => {
            // What the agents had recorded until then is a result for nobody, and evidence for whoever looks for the reason.
            if let Ok(records) = load.take() {
                run.keep(&records, run.batches);
            }
            Some(Halt::Agent(tailsight_units::chain(&error)))
        }
    };
    match &halt {
        None => {}
        Some(Halt::OutOfTime) => run.method.stop(Stop::OutOfTime),
        Some(Halt::Ended) => run.method.stop(Stop::LoadEnded),
        Some(_) => run.method.stop(Stop::Interrupted),
    }
    if halt.is_some() {
        load.wind_up();
    }
    // An agent that is gone has said so already.
    let endings = load.stop().unwrap_or_default();
    Ok(conclude(run, halt.as_ref(), &endings, load.agents()))
}

/// A measurement under way.
pub(crate) struct Run<'a> {
    pub(crate) method: Method,
    pub(crate) question: &'a Question,
    pub(crate) start_ns: u64,
    /// When the time allowed is over.
    deadline_ns: u64,
    pub(crate) began_s: u64,
    pub(crate) rows: Vec<Row>,
    pub(crate) intervals: Vec<(u16, Interval)>,
    pub(crate) agents: Vec<String>,
    pub(crate) batches: u16,
    /// The first batch since the last restart.
    pub(crate) epoch_batch: u16,
    pub(crate) steps: Vec<StepTaken>,
    /// (when, requests sent then): the last look.
    last: (u64, u64),
    /// (when, replies then): the last look that found a new reply.
    replied: (u64, u64),
    /// The machine's clocks when the load began.
    pub(crate) before: Before,
}

impl Run<'_> {
    fn drive(
        &mut self,
        load: &mut dyn Load,
        stop: &AtomicBool,
        event: &mut dyn FnMut(&Event),
    ) -> Result<Option<Halt>, Error> {
        loop {
            let halt = match self.method.step() {
                Step::Load { seconds } => self.load(seconds, load, stop, event)?,
                Step::Measure { samples, sampling_rate } => self.batch(samples, sampling_rate, load, stop, event)?,
                Step::Done(_) => return Ok(None),
            };
            if halt.is_some() {
                // A batch that came to its end just in time may have brought the answer.
                return Ok(halt.filter(|_| !matches!(self.method.step(), Step::Done(_))));
            }
        }
    }

    /// Loads without recording.
    fn load(
        &mut self,
        seconds: f64,
        load: &mut dyn Load,
        stop: &AtomicBool,
        event: &mut dyn FnMut(&Event),
    ) -> Result<Option<Halt>, Error> {
        let from_ns = load.now_ns();
        let until = from_ns + (seconds * 1e9) as u64;
        let halt = self.wait(load, stop, event, (0, 0), |now, _| now >= until)?;
        let records = load.take()?;
        let window = Window { from_ns: self.start_ns.max(from_ns.saturating_sub(1)), to_ns: load.now_ns() };
        self.keep(&records, 0);
        if halt.is_none() {
            let slices: Vec<Vec<Slice>> = records.iter().map(|r| slices(&r.intervals, window)).collect();
            let rows = records.iter().flat_map(|r| &r.intervals);
            let (sent, ns) = rows.fold((0, 0), |(sent, ns), row| (sent + row.sent, ns + row.duration_ns));
            let rate = sent as f64 / (ns.max(1) as f64 / records.len().max(1) as f64 / 1e9);
            self.method.on_load(&slices);
            let reached = if matches!(self.method.step(), Step::Measure { .. }) {
                "the load is there"
            } else {
                "not the load asked for"
            };
            self.judged(
                format!("loaded for {seconds:.0} s: {rate:.0} requests/s sent, {reached}"),
                load.now_ns(),
                event,
            );
        }
        Ok(halt)
    }

    /// Records a batch and has it judged.
    fn batch(
        &mut self,
        samples: usize,
        sampling_rate: f64,
        load: &mut dyn Load,
        stop: &AtomicBool,
        event: &mut dyn FnMut(&Event),
    ) -> Result<Option<Halt>, Error> {
        self.batches += 1;
        let before = load.progress()?.samples;
        let from_ns = load.now_ns();
        load.record(sampling_rate, samples)?;
        let wanted = samples as u64;
        let shortest = from_ns + SHORTEST_BATCH_NS;
        let halt = self.wait(load, stop, event, (before, wanted), |now, p| {
            p.samples.saturating_sub(before) >= wanted && now >= shortest
        })?;
        load.record(0.0, 0)?;
        let to_ns = load.now_ns();
        // Late replies are the tail: leaving them out would cut it.
        let patience = match halt {
            None => STRAGGLERS_NS.1,
            Some(Halt::Interrupted) => STRAGGLERS_NS.0,
            Some(_) => LAST_STRAGGLERS_NS,
        };
        if halt.is_some() {
            load.wind_up();
        }
        let records = self.collect(load, patience, stop)?;
        let window = Window { from_ns, to_ns };
        self.keep(&records, self.batches);
        if matches!(halt, None | Some(Halt::OutOfTime | Halt::Ended)) {
            let batch = batch(&records, window, self.question.latency, sampling_rate, load.one_clock());
            self.judge(batch, to_ns - from_ns, load, event);
        }
        Ok(halt)
    }

    fn judge(&mut self, batch: Batch, ns: u64, load: &mut dyn Load, event: &mut dyn FnMut(&Event)) {
        let n: usize = batch.agents.iter().map(|a| a.samples.len()).sum();
        let sampled = batch.sampling_rate;
        let began = load.now_ns();
        let method = &mut self.method;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                lower_priority();
                method.on_batch(batch);
            });
        });
        // The server was not watched meanwhile.
        self.replied.0 += load.now_ns() - began;
        let what = match self.method.step() {
            Step::Load { .. } => {
                self.epoch_batch = self.batches + 1;
                let late = self.method.checks().into_iter().any(|c| !c.passed && is_punctuality(c.id));
                let polls = if late && load.be_punctual() { "; the client now polls instead of sleeping" } else { "" };
                format!("discarded: the measurement restarts{polls}")
            }
            Step::Measure { samples, sampling_rate } => {
                let decides = |c: &Check| !c.passed && !c.id.is_allowed_for();
                let failed = self.method.checks().into_iter().find(decides);
                let why =
                    failed.map_or_else(|| "for independent samples".to_owned(), |c| format!("{} not yet", words(&c)));
                format!("{why}, {samples} more samples at 1 in {:.0}", 1.0 / sampling_rate)
            }
            Step::Done(_) => "that is enough".to_owned(),
        };
        let seconds = ns as f64 / 1e9;
        let what = format!("measured {n} samples (1 in {:.0}) in {seconds:.1} s: {what}", 1.0 / sampled);
        self.judged(what, load.now_ns(), event);
    }

    fn judged(&mut self, what: String, now_ns: u64, event: &mut dyn FnMut(&Event)) {
        let at_s = now_ns.saturating_sub(self.start_ns) as f64 / 1e9;
        self.steps.push(StepTaken { at_s, what: what.clone() });
        event(&Event::Judged { batch: usize::from(self.batches), checks: self.method.checks(), what });
    }

    /// Looks at the load until `done`, or something ends it before.
    fn wait(
        &mut self,
        load: &mut dyn Load,
        stop: &AtomicBool,
        event: &mut dyn FnMut(&Event),
        (before, wanted): (u64, u64),
        done: impl Fn(u64, &Progress) -> bool,
    ) -> Result<Option<Halt>, Error> {
        let from_ns = self.deadline_ns.saturating_sub(self.question.max_time.as_nanos() as u64);
        loop {
            std::thread::sleep(LOOK);
            let (progress, now) = (load.progress()?, load.now_ns());
            let rate = progress.sent.saturating_sub(self.last.1) as f64
                / (now.saturating_sub(self.last.0).max(1) as f64 / 1e9);
            self.last = (now, progress.sent);
            event(&Event::Tick(Tick {
                progress,
                rate,
                samples: (progress.samples.saturating_sub(before), wanted),
                batch: usize::from(self.batches),
                time_used: now.saturating_sub(from_ns) as f64 / self.question.max_time.as_nanos() as f64,
            }));
            let waiting = progress.sent.saturating_sub(progress.answered + progress.failed.min(progress.sent));
            if progress.answered != self.replied.1 || waiting == 0 {
                self.replied = (now, progress.answered);
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(Some(Halt::Interrupted));
            }
            if progress.ended {
                return Ok(Some(Halt::Ended));
            }
            let silent = now.saturating_sub(self.replied.0);
            if silent > STALLED_NS {
                return Ok(Some(Halt::Stalled { ns: silent, waiting }));
            }
            if done(now, &progress) {
                return Ok(None);
            }
            if now > self.deadline_ns {
                return Ok(Some(Halt::OutOfTime));
            }
        }
    }

    /// Takes records until the replies to what was recorded are there: three times the slowest so far are waited for.
    fn collect(&self, load: &mut dyn Load, patience_ns: u64, stop: &AtomicBool) -> Result<Vec<Records>, Error> {
        let began = load.now_ns();
        let mut records: Vec<Records> = load.take()?;
        loop {
            let slowest = records.iter().flat_map(|r| &r.samples).filter_map(Sample::response_ns).max().unwrap_or(0);
            let most = if stop.load(Ordering::Relaxed) { STRAGGLERS_NS.0 } else { patience_ns.max(STRAGGLERS_NS.0) };
            let enough = (3 * slowest).clamp(STRAGGLERS_NS.0, most);
            if load.now_ns().saturating_sub(began) >= enough {
                return Ok(records);
            }
            std::thread::sleep(LOOK);
            for (have, new) in records.iter_mut().zip(load.take()?) {
                have.samples.extend(new.samples);
                have.sends.extend(new.sends);
                have.intervals.extend(new.intervals);
            }
        }
    }

    fn keep(&mut self, records: &[Records], batch: u16) {
        self.agents = records.iter().map(|r| r.agent.clone()).collect();
        for (agent, records) in records.iter().enumerate() {
            let agent = agent as u16;
            let row = |sample: &Sample| Row { sample: *sample, agent, batch, in_result: false };
            self.rows.extend(records.samples.iter().map(row));
            self.intervals.extend(records.intervals.iter().map(|row| (agent, *row)));
        }
    }

    /// Marks the rows that the verdict is about: after `from_ns`, of the batches since the last restart.
    pub(crate) fn mark(&mut self, from_ns: u64) {
        for row in &mut self.rows {
            let good = latency_ns(&row.sample, self.question.latency).is_some();
            row.in_result = good && row.batch >= self.epoch_batch && row.sample.intended_ns >= from_ns;
        }
        self.rows.sort_by_key(|row| row.sample.intended_ns);
    }
}

/// A check in words that fit behind "measured …:".
fn words(check: &Check) -> String {
    let about = check.subject.as_deref().map_or(String::new(), |s| format!(" of {s}"));
    use tailsight_stats::method::CheckId;
    match check.id {
        CheckId::IntervalWidth => format!("interval{about} narrow enough:"),
        id => format!("{}{about}:", id.name().replace('-', " ")),
    }
}

/// The calling thread yields to everybody else from now on.
fn lower_priority() {
    // SAFETY: changes the niceness of the calling thread only; it cannot fail when the value rises.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}

/// `p99` and the like for a map's key.
pub(crate) fn name(q: f64) -> String {
    percentile_name(q)
}
