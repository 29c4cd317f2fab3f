//! Lancet's Figure 4: from load to a number with its interval, or to N/A with the reason. A state machine without I/O: it
//! says what to do next ([`Step`]), the driver does it and reports, and the end is a [`MethodResult`].
//!
//! ```text
//!            ┌── load, arrivals, errors wrong, lateness gross: all samples dropped, at most max_restarts times ───┐
//!            ▼                                                                                                     │
//!   Load ──► load reached? ──► Measure ──► load kept? client on time? arrivals as specified? ─────────────────────┘
//!              │ no, 5 times      ▲           │ yes
//!              ▼                  │           ▼
//!             N/A                 ├─ no ── warm-up over? unit root rejected? no drift, of body and tail?
//!                                 │           │ yes
//!                                 │           ▼
//!                                 │        thin at random, 1 in 1, 2, 4 …, until independent
//!                                 │           │ found                       │ none, or too many
//!                                 │           ▼                             ▼
//!                                 ├─ no ── order-statistic interval    interval for dependent samples (labelled)
//!                                 │        as narrow as asked?         as narrow as asked?
//!                                 │           │ yes                         │ yes
//!     rounds or requests spent: N/A           └──────────► a number ◄───────┘
//! ```
//!
//! Every interval includes the client's lateness ([`system::propagate_lateness`], [`samples::Ends`]). The samples are pooled over agents
//! and batches; nothing is averaged. After a batch with the wrong load or arrivals everything is dropped, because leaving out only the
//! bad minutes would make the result too good. The restart is part of the verdict, and the last one is final. Times are ns.

mod arrivals;
pub mod model;
pub mod number_or_refusal;
mod samples;
mod system;
mod words;

pub use model::{
    AgentBatch, Arrivals, Batch, Config, PercentileGoal, Sample, Send, Since, Slice, Width, percentile_name,
};
pub use number_or_refusal::{
    Advice, Check, CheckId, IntervalMethod, MethodOutcome, MethodResult, Missing, NoBounds, Number, PercentileResult,
    Refusal, WarmUp,
};

pub use words::hint;

use crate::Error;
use crate::effective::{batches, dependent_interval};
use crate::quantile::{interval, quantile, samples_to_support, sorted};
use crate::random::mix;
use samples::{Conclusion, Ends, Look, look, spent, thin};

/// How often the load may be looked at before it counts as not reached.
const LOAD_TRIES: usize = 5;
/// Seconds of load between these looks.
const LOAD_SECONDS: f64 = 1.0;
/// A round may at most multiply the samples by so much: projections from few samples are poor.
const GROWTH: usize = 4;
/// … and must at least: to look again and again until the interval happens to be narrow makes it too narrow.
const LEAST_GROWTH: f64 = 1.5;
/// When the projection is so many times what is allowed, going on is of no use.
const HOPELESS: f64 = 4.0;
/// … once the requests sent are at least one in so many of those allowed: from fewer, projections of a width are poor, and what is
/// known by then is little.
const PROJECTABLE: f64 = 3.0;

/// When more than this share of the samples has a stamp that it shares, that is what the hint is about.
const SHARED: f64 = 0.05;

/// Failures of stationarity that more samples hardly cure.
const DRIFTS: [CheckId; 3] = [CheckId::UnitRoot, CheckId::Drift, CheckId::TailDrift];

/// Whether a client that never sleeps might pass this check.
pub fn is_punctuality(id: CheckId) -> bool {
    use CheckId::{ArrivalIndependence, Arrivals, ArrivalsSuperposed, ClientLateness};
    matches!(id, ClientLateness | Arrivals | ArrivalsSuperposed | ArrivalIndependence)
}

/// What the driver has to do now.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Load the server for about this long without recording, then call [`Method::on_load`].
    Load {
        /// Seconds.
        seconds: f64,
    },
    /// Go on loading and record until there are so many samples, then call [`Method::on_batch`].
    Measure {
        /// New samples to record, all agents together.
        samples: usize,
        /// Record each request with this probability, at random.
        sampling_rate: f64,
    },
    /// The end: stop the load.
    Done(Box<MethodResult>),
}

/// Why a driver ends an experiment before the method does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The time allowed is over.
    OutOfTime,
    /// The load ended by itself.
    LoadEnded,
    /// The user interrupted.
    Interrupted,
}

/// The samples behind a verdict, for other percentiles and for comparisons.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// Latencies in time order, warm-up cut, thinned to independence where that was found.
    pub latencies_ns: Vec<f64>,
    /// 1 for independent samples; else the length of blocks that are as good as independent.
    pub block: usize,
}

/// The state machine.
#[derive(Debug)]
pub struct Method {
    config: Config,
    step: Step,
    samples: Vec<Sample>,
    /// Recording rate in force; halved when the samples would not fit.
    rate: f64,
    requests: u64,
    rounds: usize,
    load_tries: usize,
    /// Looks in a row that found a drift.
    drifts: usize,
    restarts: Vec<String>,
    /// Whether the client sleeps between requests and could poll instead.
    spare: bool,
    /// System checks of the last batch.
    system: Vec<Check>,
    last: Option<Look>,
}

impl Method {
    /// Begins an experiment. Refuses settings that contradict themselves.
    pub fn new(config: Config) -> Result<Self, Error> {
        config.validate()?;
        let (rate, spare) = (config.recording_rate, config.client_sleeps);
        Ok(Self {
            config,
            spare,
            step: Step::Load { seconds: LOAD_SECONDS },
            samples: Vec::new(),
            rate,
            requests: 0,
            rounds: 0,
            load_tries: 0,
            drifts: 0,
            restarts: Vec::new(),
            system: Vec::new(),
            last: None,
        })
    }

    /// What to do now.
    pub fn step(&self) -> Step {
        self.step.clone()
    }

    /// What is asked.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Samples so far, pooled over agents and batches, by intended time.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Checks of the last batch and of the last look at the samples: what a live display shows.
    pub fn checks(&self) -> Vec<Check> {
        let look = self.last.iter().flat_map(|look| look.checks.iter());
        self.system.iter().chain(look).cloned().collect()
    }

    /// The load over time since the experiment or the last call began, one list of slices for each agent.
    pub fn on_load(&mut self, slices: &[Vec<Slice>]) {
        if !matches!(self.step, Step::Load { .. }) {
            return;
        }
        let names: Vec<String> = (0..slices.len()).map(|i| format!("agent {i}")).collect();
        let agents = names.iter().map(String::as_str).zip(slices.iter().map(Vec::as_slice));
        self.system = system::load(agents, &self.config);
        match self.system.iter().find(|c| !c.passed).cloned() {
            None => self.measure(self.config.batch_samples),
            Some(failed) => {
                self.load_tries += 1;
                if self.load_tries >= LOAD_TRIES {
                    self.refuse(failed, None);
                }
            }
        }
    }

    /// What the agents measured since the last call.
    pub fn on_batch(&mut self, mut batch: Batch) {
        if !matches!(self.step, Step::Measure { .. }) {
            return;
        }
        self.rounds += 1;
        // The time was over before a whole slice was: what was known before stands.
        let cut = batch.agents.iter().any(|a| a.slices.is_empty()) && self.rounds < self.config.max_rounds;
        if cut && self.last.is_some() {
            return;
        }
        let requests: u64 = batch.agents.iter().map(|a| a.requests).sum();
        self.requests += requests;
        system::propagate_lateness(&mut batch, &self.config);
        // To start again takes time: where a third of the requests is sent, it comes too late.
        self.spare &= self.requests as f64 * PROJECTABLE <= self.config.max_requests as f64;
        self.system = self.check_system(&batch);
        // A client that cannot be made to be on time is endured: the interval says how much that matters.
        let spare = self.spare;
        let fatal = |c: &&Check| !c.passed && (c.id != CheckId::ClientLateness || spare);
        let failed = self.system.iter().find(fatal).cloned();
        // Due as specified, and only sent late: that is between the ends of every latency, and bounds can be told.
        let only_late = failed.as_ref().is_some_and(|c| is_punctuality(c.id))
            && self.config.since == Since::Due
            && self.system.iter().all(|c| c.passed || is_punctuality(c.id))
            && arrivals::due_as_specified(&batch, &self.config, self.rounds as u64);
        if failed.is_none() || only_late {
            for (i, agent) in batch.agents.iter_mut().enumerate() {
                agent.samples.iter_mut().for_each(|s| s.agent = i as u16);
            }
            self.samples.extend(batch.agents.into_iter().flat_map(|a| a.samples));
            self.samples.sort_by_key(|s| s.intended_ns);
        }
        if let Some(failed) = failed {
            return self.restart(failed, only_late);
        }
        let look = look(&self.samples, &self.config, self.rate, self.rounds as u64);
        let conclusion = look.result.clone();
        self.judge_lateness(&look);
        self.last = Some(look);
        let drifts = matches!(&conclusion, Conclusion::More(failed, _) if DRIFTS.contains(&failed.id));
        self.drifts = if drifts { self.drifts + 1 } else { 0 };
        match conclusion {
            Conclusion::Independent(number) => self.believe(number),
            Conclusion::Dependent(number, by_thinning) => match by_thinning.filter(|total| self.worth_it(*total)) {
                Some(total) => self.go_on(total),
                None => self.believe(number),
            },
            Conclusion::More(failed, total) => {
                let needed = self.requests_for(total);
                let seen_enough = self.requests as f64 * PROJECTABLE >= self.config.max_requests as f64;
                let hopeless = seen_enough && needed as f64 > HOPELESS * self.config.max_requests as f64;
                let spent = self.rounds >= self.config.max_rounds || self.left() < self.config.batch_samples;
                if total == 0 {
                    // Chance is small enough; what is left is the client's lateness.
                    self.refuse(self.too_late().unwrap_or(*failed), None);
                } else if spent
                    || self.drifts >= self.config.max_drifts
                    || (hopeless && failed.id == CheckId::IntervalWidth)
                {
                    self.refuse(*failed, Some(needed));
                } else {
                    self.go_on(total);
                }
            }
        }
    }

    /// Ends the experiment now: the number of the last look where there was one, else N/A.
    pub fn stop(&mut self, why: Stop) {
        if matches!(self.step, Step::Done(_)) {
            return;
        }
        let text = match why {
            Stop::OutOfTime => "the time limit was reached",
            Stop::LoadEnded => "the load ended (the schedule was over)",
            Stop::Interrupted => "the measurement was interrupted",
        };
        match self.last.as_ref().map(|look| look.result.clone()) {
            Some(Conclusion::Independent(number) | Conclusion::Dependent(number, _)) => self.believe(number),
            Some(Conclusion::More(failed, total)) => {
                let needed = self.requests_for(total);
                self.refuse_because(*failed, Some(needed), Some(text));
            }
            None => {
                let failed = self.system.iter().find(|c| !c.passed).cloned().unwrap_or(Check {
                    id: CheckId::RunLength,
                    test: "samples of a whole batch".into(),
                    subject: None,
                    passed: false,
                    statistic: self.samples.len() as f64,
                    threshold: self.config.batch_samples as f64,
                    threshold_is_p: false,
                    p_value: None,
                    n: self.samples.len(),
                });
                self.refuse_because(failed, None, Some(text));
            }
        }
    }

    /// The samples that the last look accepted. `None` before one passed the checks of stationarity.
    pub fn accepted(&self) -> Option<Accepted> {
        let look = self.last.as_ref()?;
        let stationary =
            look.checks.iter().all(|c| c.passed || c.id.is_allowed_for() || c.id == CheckId::IntervalWidth);
        if !stationary {
            return None;
        }
        let kept = &self.samples[look.warm_up.map_or(0, |w| w.cut_samples)..];
        if let Some(factor) = look.thinning.filter(|_| !matches!(look.result, Conclusion::Dependent(..))) {
            let latencies_ns = thin(kept, factor, mix(self.config.seed, self.rounds as u64));
            return Some(Accepted { latencies_ns, block: 1 });
        }
        let latencies_ns: Vec<f64> = kept.iter().map(|s| s.latency_ns).collect();
        let block = batches(&latencies_ns)?.length;
        Some(Accepted { latencies_ns, block })
    }

    /// Other percentiles of the accepted samples with their intervals, by the same way as the targets'. `None`: the samples
    /// cannot support one; N/A, never 0.
    pub fn percentiles(&self, quantiles: &[f64], level: f64) -> Vec<Option<PercentileResult>> {
        let Some(accepted) = self.accepted() else { return vec![None; quantiles.len()] };
        let series = &accepted.latencies_ns;
        let ordered = sorted(series.clone());
        let kept = &self.samples[self.last.as_ref().and_then(|l| l.warm_up).map_or(0, |w| w.cut_samples)..];
        let ends = Ends::new(kept, sorted(kept.iter().map(|s| s.latency_ns).collect()), &self.config);
        let estimate = |q: f64| {
            let (bounds, how) = if accepted.block == 1 {
                (interval(&ordered, q, spent(level))?, IntervalMethod::OrderStatistic)
            } else {
                let (dependent, e) = dependent_interval(series, q, spent(level))?;
                (dependent, IntervalMethod::EffectiveSampleSize { effective_n: e.effective_n, batches: e.batches })
            };
            let target = PercentileGoal { quantile: q, width: Width::Any, level };
            let value_ns = quantile(&ordered, q)?;
            let (lower_ns, upper_ns) = ends.widened((bounds.lower, bounds.upper));
            Some(PercentileResult { target, value_ns, lower_ns, upper_ns, how, n: series.len() })
        };
        quantiles.iter().map(|q| estimate(*q)).collect()
    }

    /// Bounds of percentiles, where the last look refused its samples because their level moves, or because they are few beside their memory.
    pub fn wandering(&self, quantiles: &[f64], level: f64) -> Vec<PercentileResult> {
        let Some(look) = &self.last else { return Vec::new() };
        let kept = &self.samples[look.warm_up.map_or(0, |w| w.cut_samples)..];
        let goal = |quantile: &f64| PercentileGoal { quantile: *quantile, width: Width::Any, level };
        samples::wandering(&quantiles.iter().map(goal).collect::<Vec<_>>(), &look.checks, kept, &self.config)
    }

    /// Why the accepted samples cannot support a percentile, where [`Method::percentiles`] has none.
    pub fn unsupported(&self, quantile: f64, level: f64) -> NoBounds {
        let n = self.accepted().map_or(0, |accepted| accepted.latencies_ns.len());
        match samples_to_support(quantile, spent(level)) {
            needed if n < needed => NoBounds::TooFew { n, needed },
            _ => NoBounds::TooShort { parts: 0, lowest_ns: 0.0, highest_ns: 0.0 },
        }
    }

    fn check_system(&self, batch: &Batch) -> Vec<Check> {
        let agents = batch.agents.iter().map(|a| (a.agent.as_str(), a.slices.as_slice()));
        let mut checks = system::load(agents, &self.config);
        checks.push(system::errors(batch, &self.config));
        checks.extend(system::lateness(batch, &self.config, self.spare));
        checks.extend(arrivals::arrivals(batch, &self.config, self.rounds as u64));
        checks
    }

    /// Of all that was pooled, percentile by percentile, in place of the batches'.
    fn judge_lateness(&mut self, look: &Look) {
        self.system.retain(|c| c.id != CheckId::ClientLateness);
        let kept = &self.samples[look.warm_up.map_or(0, |w| w.cut_samples)..];
        self.system.extend(system::lateness_of_all(kept, &self.config));
    }

    fn restart(&mut self, failed: Check, only_late: bool) {
        self.spare &= !is_punctuality(failed.id);
        if self.restarts.len() >= self.config.max_restarts || self.rounds >= self.config.max_rounds {
            self.last = only_late.then(|| look(&self.samples, &self.config, self.rate, self.rounds as u64));
            return self.refuse(failed, None);
        }
        self.restarts.push(words::reason(&failed));
        self.samples.clear();
        self.last = None;
        self.load_tries = 0;
        self.drifts = 0;
        self.step = Step::Load { seconds: LOAD_SECONDS };
    }

    /// Goes on until there are so many samples in total, as far as growth and budget allow.
    fn go_on(&mut self, total: usize) {
        let now = self.samples.len();
        let most = GROWTH * now.max(self.config.batch_samples);
        let least = ((now as f64 * LEAST_GROWTH) as usize).max(now + self.config.batch_samples / 2);
        let wanted = total.clamp(least.min(most), most);
        let more = (wanted - now).min(self.left().max(self.config.batch_samples / 2));
        let more = self.make_room(more);
        self.measure(more);
    }

    /// Halves the recording rate, and the samples at random with it, until as many more will fit. Returns how many
    /// more that is at the rate in force then.
    fn make_room(&mut self, more: usize) -> usize {
        let mut more = more;
        while self.samples.len() + more > self.config.max_samples && self.samples.len() > 2 * self.config.batch_samples
        {
            let seed = mix(self.config.seed, self.rate.to_bits());
            self.samples.retain(|s| samples::stays(s, 2, seed));
            self.rate /= 2.0;
            more /= 2;
        }
        more
    }

    fn measure(&mut self, samples: usize) {
        self.step = Step::Measure { samples: samples.max(1), sampling_rate: self.rate };
    }

    /// Recorded samples that the remaining requests would give.
    fn left(&self) -> usize {
        (self.config.max_requests.saturating_sub(self.requests) as f64 * self.rate) as usize
    }

    fn requests_for(&self, samples: usize) -> u64 {
        (samples as f64 / self.rate) as u64
    }

    /// Whether to go on for independent samples although the interval for dependent ones would do.
    fn worth_it(&self, total: usize) -> bool {
        let more = total.saturating_sub(self.samples.len());
        self.rounds < self.config.max_rounds
            && more <= self.left()
            && total as f64 <= self.config.patience * self.samples.len() as f64
    }

    fn refuse(&mut self, failed: Check, needed: Option<u64>) {
        self.refuse_because(failed, needed, None);
    }

    fn refuse_because(&mut self, failed: Check, needed: Option<u64>, why: Option<&str>) {
        let mut reason = words::reason(&failed);
        if let Some(why) = why {
            reason = format!("{why} before the number was reliable; so far, {reason}");
        }
        let late = self.system.iter().any(|c| c.id == CheckId::ClientLateness && c.statistic > c.threshold / 2.0);
        let shared = self.samples.iter().filter(|s| s.shared_ns > 0).count() as f64 / self.samples.len().max(1) as f64;
        let advice = words::advice(&failed, &self.config, needed, late, shared > SHARED);
        let (passed, bounds, missing) = self.answers(&failed);
        let hint = words::hint(advice);
        self.finish(MethodOutcome::NotAvailable(Box::new(Refusal {
            failed,
            reason,
            hint,
            advice,
            passed,
            bounds,
            missing,
        })));
    }

    /// What is known of each target where `failed` refuses the whole: as narrowly as asked, less narrowly, or nothing and why.
    fn answers(&self, failed: &Check) -> (Vec<PercentileResult>, Vec<PercentileResult>, Vec<Missing>) {
        let (mut passed, mut bounds, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        // What was sent late has bounds, and is no number.
        let bounds_only = is_punctuality(failed.id) && failed.id != CheckId::ClientLateness;
        // The load of a later batch was another: what stood before it may not be chosen.
        let whole = matches!(failed.id, CheckId::Load | CheckId::Errors);
        let looked_at = self.last.iter().filter(|_| !whole).flat_map(|look| &look.known);
        let at_last_look: Vec<&(PercentileResult, bool)> = looked_at.collect();
        for target in &self.config.targets {
            match at_last_look.iter().find(|(p, _)| p.target == *target) {
                Some((p, narrow)) if *narrow && !bounds_only && !self.is_too_late(target) => passed.push(p.clone()),
                Some((p, _)) => bounds.push(p.clone()),
                None => missing.push(Missing { target: *target, because: self.why_missing(failed, target) }),
            }
        }
        (passed, bounds, missing)
    }

    /// Why there is not even an interval.
    fn why_missing(&self, failed: &Check, target: &PercentileGoal) -> NoBounds {
        match failed.id {
            CheckId::Load if self.samples.is_empty() && self.rounds == 0 => return NoBounds::NothingRecorded,
            CheckId::Load => return NoBounds::OtherLoad,
            CheckId::Errors => return NoBounds::Failures,
            _ => {}
        }
        let Some(look) = &self.last else {
            return if is_punctuality(failed.id) { NoBounds::OtherArrivals } else { NoBounds::NothingRecorded };
        };
        let name = percentile_name(target.quantile);
        let about = |c: &&Check| !c.passed && c.subject.as_ref().is_none_or(|s| *s == name);
        let blamed = look.checks.iter().filter(about).map(|c| c.id);
        let (n, level) = (self.samples.len(), spent(target.level));
        let (parts, lowest_ns, highest_ns) = self.over_time(target);
        for id in blamed {
            match id {
                CheckId::WarmUp | CheckId::UnitRoot | CheckId::Drift | CheckId::TailDrift => {
                    return NoBounds::Changing { parts, lowest_ns, highest_ns };
                }
                CheckId::RunLength => return NoBounds::TooShort { parts, lowest_ns, highest_ns },
                _ => {}
            }
        }
        NoBounds::TooFew { n, needed: samples_to_support(target.quantile, level) }
    }

    /// (parts, smallest, largest): a percentile in as many equal parts of the samples as hold it, at most 8.
    fn over_time(&self, target: &PercentileGoal) -> (usize, f64, f64) {
        let deep = 10.0 / (1.0 - target.quantile).min(target.quantile);
        let parts = ((self.samples.len() as f64 / deep) as usize).min(8);
        if parts < 2 {
            return (0, 0.0, 0.0);
        }
        let quantile_of =
            |part: &[Sample]| quantile(&sorted(part.iter().map(|s| s.latency_ns).collect()), target.quantile);
        let values = self.samples.chunks_exact(self.samples.len() / parts).take(parts).filter_map(quantile_of);
        let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), x| (l.min(x), m.max(x)));
        (parts, least, most)
    }

    /// The check of the client's lateness, if it failed.
    fn too_late(&self) -> Option<Check> {
        self.system.iter().find(|c| c.id == CheckId::ClientLateness && !c.passed).cloned()
    }

    fn is_too_late(&self, target: &PercentileGoal) -> bool {
        let name = percentile_name(target.quantile);
        let about = |c: &&Check| c.id == CheckId::ClientLateness && c.subject.as_ref() == Some(&name);
        self.system.iter().find(about).is_some_and(|c| !c.passed)
    }

    /// A number, unless too much of it may be the client's lateness: where any width will do, that is half of it.
    fn believe(&mut self, number: Number) {
        match self.too_late() {
            Some(late) => self.refuse(late, None),
            None => self.finish(MethodOutcome::Number(number)),
        }
    }

    fn finish(&mut self, outcome: MethodOutcome) {
        self.step = Step::Done(Box::new(MethodResult {
            outcome,
            checks: self.checks(),
            warm_up: self.last.as_ref().and_then(|look| look.warm_up),
            samples: self.samples.len(),
            requests: self.requests,
            rounds: self.rounds,
            restarts: self.restarts.clone(),
        }));
    }
}
