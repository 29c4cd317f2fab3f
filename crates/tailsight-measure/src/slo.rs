//! An objective (`p99<500us`): is it met at a rate, and which is the highest rate that meets it?
//!
//! In: an objective and a load whose rate can be set. Out: the rate, how surely it meets the objective, and every try.
//!
//! Each try is noisy, so a plain bisection is led astray for good by one wrong answer. This one is probabilistic (Horstein 1963;
//! Waeber, Frazier and Henderson 2013): a belief over the logarithm of the threshold rate is updated by Bayes' rule with each
//! try's *confidence* that the percentile is below the limit ([`decide()`]), and the next try is at the belief's median.
//! A try counts for at most 19 to 1 ([`TRY_UNCERTAINTY`]), for two runs differ by more than their samples show. A rate at which nothing can
//! be known counts against it. The answer is not the luckiest try: the belief's lower end is measured once more, on its own, and
//! the confidence of that run is the one that is reported. Rates are requests/s, latencies ns.

use std::sync::atomic::{AtomicBool, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_load::Rate;
use tailsight_stats::method::{PercentileGoal, Width, percentile_name};

use crate::Error;
use crate::decide::decide;
use crate::load::Load;
use crate::measure::{Event, Measurement, measure};
use crate::objective::{Decision, Objective};
use crate::question::Question;
use crate::report::Verdict;
use crate::sweep::{Fate, fate};

/// The least probability that a single try is wrong: it counts for at most 19 to 1.
pub const TRY_UNCERTAINTY: f64 = 0.05;
/// What a try without an answer counts for its rate.
const UNKNOWN: f64 = 0.25;
const GRID: usize = 400;
/// Below this rate an objective is not looked for.
const LOWEST: f64 = 10.0;
/// Tries in a row in which the client, not the server, is what fails, before any rate was met: a lower rate will not mend it.
const CLIENT_TRIES: usize = 2;
/// Runs on their own for the answer.
const CONFIRMATIONS: usize = 4;

/// What is looked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    /// The objective.
    pub objective: Objective,
    /// The first rate tried.
    pub from: f64,
    /// The highest rate that may be tried.
    pub to: Option<f64>,
    /// The search ends when the belief's 90 % interval is narrower than this share.
    pub tolerance: f64,
    /// Tries at most, the last runs of the answer included.
    pub tries: usize,
}

/// A measurement at a rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Try {
    /// The rate.
    pub rate: f64,
    /// Confidence that it meets the objective; absent where nothing can be known.
    pub confidence: Option<f64>,
    /// Whether it is met at this rate; `open` in older files, whose confidence says more.
    #[serde(default)]
    pub decision: Decision,
    /// The percentile, ns; absent where it is N/A.
    pub value_ns: Option<f64>,
    /// Why it is open.
    pub reason: Option<String>,
    /// Whose fault that is.
    #[serde(default = "unclear")]
    pub fate: Fate,
    /// Whether it is a separate run that confirms the answer.
    pub confirms: bool,
}

fn unclear() -> Fate {
    Fate::Unclear
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Highest {
    /// The objective.
    pub objective: Objective,
    /// `met`, `not-met` (at no rate that was tried) or `not-available`.
    pub verdict: String,
    /// The highest rate that meets it.
    pub rate: Option<f64>,
    /// How surely, by a run on its own.
    pub confidence: Option<f64>,
    /// Where the threshold is believed to be: 90 % interval.
    pub threshold: Option<(f64, f64)>,
    /// What bounds the rate: `server`, `client` (it could not send more), `limit` (the highest rate allowed).
    pub bound: String,
    /// One sentence where there is no rate.
    pub reason: Option<String>,
    /// Every try, in order.
    pub tries: Vec<Try>,
}

/// A belief over the threshold: the highest rate that meets the objective.
#[derive(Debug, Clone)]
pub struct Belief {
    low: f64,
    step: f64,
    weights: Vec<f64>,
}

impl Belief {
    /// Anywhere between two rates, evenly over their logarithm.
    #[must_use]
    pub fn between(low: f64, high: f64) -> Self {
        let step = (high / low).ln() / GRID as f64;
        Self { low, step, weights: vec![1.0 / GRID as f64; GRID] }
    }

    /// A try at `rate` that is met with this confidence.
    pub fn update(&mut self, rate: f64, confidence: f64) {
        let above = confidence.clamp(TRY_UNCERTAINTY, 1.0 - TRY_UNCERTAINTY);
        let at = (rate / self.low).ln() / self.step;
        for (i, weight) in self.weights.iter_mut().enumerate() {
            *weight *= if i as f64 + 0.5 > at { above } else { 1.0 - above };
        }
        let sum: f64 = self.weights.iter().sum();
        self.weights.iter_mut().for_each(|w| *w /= sum);
    }

    /// The rate below which the threshold is with this probability.
    #[must_use]
    pub fn quantile(&self, p: f64) -> f64 {
        let mut below = 0.0;
        for (i, weight) in self.weights.iter().enumerate() {
            if below + weight >= p {
                return self.low * (self.step * (i as f64 + (p - below) / weight)).exp();
            }
            below += weight;
        }
        self.low * (self.step * GRID as f64).exp()
    }
}

/// Finds the highest rate that meets the objective. `each` is told every measurement.
///
/// # Errors
/// When no load can be started, or its rate cannot be set.
pub fn highest(
    load: &mut dyn Load,
    question: &Question,
    search: &Search,
    stop: &AtomicBool,
    event: &mut dyn FnMut(&Event),
    each: &mut dyn FnMut(&Try, &Measurement),
) -> Result<Highest, Error> {
    let mut hunt = Hunt { load, question, search, stop, event, each, tries: Vec::new(), hint: String::new() };
    let top = search.to.unwrap_or(f64::INFINITY);
    // Gallop until the threshold is between two tries.
    let (mut met, mut missed, mut rate) = (None, None, search.from.min(top));
    while (met.is_none() || missed.is_none()) && hunt.goes_on() && rate >= LOWEST {
        if hunt.at(rate, false)? > 0.5 {
            met = Some(rate);
            if rate >= top {
                break;
            }
            rate = missed.map_or(rate * 2.0, |_| rate).min(top);
        } else {
            missed = Some(rate);
            if met.is_none() && hunt.client_tries() >= CLIENT_TRIES {
                break;
            }
            rate = met.map_or(rate / 4.0, |_| rate);
        }
    }
    let Some(met) = met else {
        // A try in which the client failed says nothing about the server or the objective.
        if let Some(reason) = hunt.client_reason() {
            return Ok(hunt.end("not-available", None, None, Some(reason)));
        }
        // What is open at the lowest rate may be met there.
        let lowest = hunt.tries.iter().min_by(|a, b| a.rate.total_cmp(&b.rate));
        let (verdict, reason) = match lowest {
            Some(Try { decision: Decision::Missed, .. }) if !stop.load(Ordering::Relaxed) => {
                ("not-met", "no rate that was tried meets the objective".to_owned())
            }
            Some(Try { rate, reason: Some(why), .. }) => {
                ("not-available", format!("at {rate:.0} requests/s, the lowest rate tried, it is open: {why}"))
            }
            _ => ("not-available", "no rate that was tried is shown to meet it".to_owned()),
        };
        return Ok(hunt.end(verdict, None, None, Some(reason)));
    };
    let mut belief = Belief::between((met / 2.0).max(1.0), missed.map_or(met * 1.02, |m| m * 2.0).min(top * 1.02));
    hunt.tries.iter().for_each(|t| belief.update(t.rate, t.confidence.unwrap_or(UNKNOWN)));
    while missed.is_some() && belief.quantile(0.95) / belief.quantile(0.05) > 1.0 + search.tolerance && hunt.searches()
    {
        let rate = belief.quantile(0.5).min(top);
        let confidence = hunt.at(rate, false)?;
        belief.update(rate, confidence);
    }
    // A run on its own for the answer; where it fails, the belief learns from it and the next is lower by the tolerance.
    let mut most = top;
    for _ in 0..CONFIRMATIONS {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let rate = if missed.is_none() { met.min(most) } else { belief.quantile(0.05).min(most) };
        most = rate * (1.0 - search.tolerance);
        let confidence = hunt.at(rate, true)?;
        if hunt.tries.last().is_some_and(|last| last.decision == Decision::Met) {
            let threshold = Some((belief.quantile(0.05), belief.quantile(0.95))).filter(|_| missed.is_some());
            let bound = missed.is_some();
            let mut highest = hunt.end("met", Some((rate, confidence)), threshold, None);
            if !bound {
                highest.bound = "limit".into();
            }
            return Ok(highest);
        }
        belief.update(rate, confidence);
    }
    let threshold = Some((belief.quantile(0.05), belief.quantile(0.95)));
    let reason = hunt.client_reason().unwrap_or_else(|| {
        "the threshold was bracketed, but no separate run below it confirmed a rate; allow longer runs (--max-time) \
         or more tries"
            .into()
    });
    Ok(hunt.end("not-available", None, threshold, Some(reason)))
}

struct Hunt<'a> {
    load: &'a mut dyn Load,
    question: &'a Question,
    search: &'a Search,
    stop: &'a AtomicBool,
    event: &'a mut dyn FnMut(&Event),
    each: &'a mut dyn FnMut(&Try, &Measurement),
    tries: Vec<Try>,
    /// What would help the last try that was N/A.
    hint: String,
}

impl Hunt<'_> {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && self.tries.len() < self.search.tries
    }

    /// Whether there are tries left besides those of the answer.
    fn searches(&self) -> bool {
        self.goes_on() && self.tries.len() + CONFIRMATIONS < self.search.tries
    }

    /// How many of the last tries in a row failed by the client.
    fn client_tries(&self) -> usize {
        self.tries.iter().rev().take_while(|t| t.fate == Fate::Client).count()
    }

    /// What to say when the last try failed by the client.
    fn client_reason(&self) -> Option<String> {
        let last = self.tries.last().filter(|t| t.fate == Fate::Client)?;
        let why = last.reason.as_deref().unwrap_or("it sent too late");
        Some(format!(
            "at {:.0} requests/s the client, not the server, is the limit: {why}. Nothing is known about the server \
             at that rate; try: \
             {}",
            last.rate, self.hint
        ))
    }

    /// Whose limit the found rate is: that of the lowest rate above it that was not met.
    fn bound(&self, found: Option<f64>) -> &'static str {
        let above = self.tries.iter().filter(|t| t.rate > found.unwrap_or(0.0) && t.confidence.unwrap_or(0.0) <= 0.5);
        match above.min_by(|a, b| a.rate.total_cmp(&b.rate)) {
            Some(one) if one.fate == Fate::Client => "client",
            _ => "server",
        }
    }

    /// Measures at a rate; how surely it meets the objective, as evidence.
    fn at(&mut self, rate: f64, confirms: bool) -> Result<f64, Error> {
        let rate = round(rate);
        self.load.set_rate(rate)?;
        let mut question = self.question.clone();
        question.plan.rate = Rate::Constant(rate);
        question.targets = vec![PercentileGoal::new(self.search.objective.quantile, Width::Any)];
        let measurement = measure(self.load, &question, self.stop, self.event)?;
        let decided = decide(self.search.objective, &measurement);
        let kind = match decided.decision {
            Decision::Open => fate(&measurement.report),
            Decision::Met | Decision::Missed => Fate::Number,
        };
        // What a client that was late measured says nothing of the server, and a load that was not reached is no evidence for it.
        let confidence = decided.confidence.filter(|_| matches!(kind, Fate::Number | Fate::Unclear));
        let evidence = confidence.unwrap_or(if kind == Fate::Unclear { UNKNOWN } else { 0.0 });
        let mut reason = decided.reason;
        if kind != Fate::Number
            && let Verdict::NotAvailable { reason: why, hint, .. } = &measurement.report.verdict
        {
            (reason, self.hint) = (Some(why.clone()), hint.clone());
        }
        let key = percentile_name(self.search.objective.quantile);
        let summary = match question.latency {
            crate::Latency::Response => &measurement.report.response_ns,
            crate::Latency::Service => &measurement.report.service_ns,
        };
        let value_ns = summary.percentiles.get(&key).copied().flatten().map(|e| e.value);
        let attempt = Try { rate, confidence, decision: decided.decision, value_ns, reason, fate: kind, confirms };
        (self.each)(&attempt, &measurement);
        self.tries.push(attempt);
        Ok(evidence)
    }

    fn end(
        self,
        verdict: &str,
        found: Option<(f64, f64)>,
        threshold: Option<(f64, f64)>,
        reason: Option<String>,
    ) -> Highest {
        let bound = self.bound(found.map(|f| f.0)).into();
        Highest {
            objective: self.search.objective,
            verdict: verdict.into(),
            rate: found.map(|f| round(f.0)),
            confidence: found.map(|f| f.1),
            threshold,
            bound,
            reason,
            tries: self.tries,
        }
    }
}

/// Three significant digits: nobody needs 17,283.4 requests/s.
pub(crate) fn round(rate: f64) -> f64 {
    let scale = 10f64.powf(rate.max(1.0).log10().floor() - 2.0);
    (rate / scale).round() * scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_stats::random::Random;

    #[test]
    fn objectives_are_read_as_people_write_them() {
        let objective: Objective = "p99<500us".parse().unwrap();
        assert_eq!(objective, Objective { quantile: 0.99, limit_ns: 500_000.0 });
        assert_eq!(objective.to_string().parse::<Objective>().unwrap(), objective);
        assert!("p99.9 < 2ms".parse::<Objective>().is_ok());
        for bad in ["p99", "p99<", "<1ms", "p99<5%", "p99>1ms", "p101<1ms", "p99<1ms@95", ""] {
            assert!(bad.parse::<Objective>().is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_have_three_digits() {
        assert_eq!((round(17_283.4), round(99.96), round(1_234_567.0)), (17_300.0, 100.0, 1_230_000.0));
    }

    /// One try in eight answers wrongly and surely: the belief still ends at the threshold, most of the time.
    #[test]
    fn the_belief_finds_a_threshold_through_wrong_answers() {
        let mut hits = 0;
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let truth = 20_000.0 * (random.uniform() - 0.5).exp();
            let mut belief = Belief::between(5_000.0, 80_000.0);
            for _ in 0..25 {
                let rate = belief.quantile(0.5);
                let right = random.uniform() > 0.125;
                belief.update(rate, if (rate < truth) == right { 0.999 } else { 0.001 });
            }
            let (low, high) = (belief.quantile(0.05), belief.quantile(0.95));
            assert!(low <= high);
            hits += usize::from((belief.quantile(0.5) / truth - 1.0).abs() < 0.05);
        }
        assert!(hits >= 180, "{hits} of 200 within 5 %");
    }
}
