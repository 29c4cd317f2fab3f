//! What is asked of a measurement, and what the method's settings become by it.
//!
//! In: a plan of the load, percentiles with their widths, a time. Out: [`Config`] of the method. Times are ns.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_load::{ArrivalProcess, Arrivals, Plan, Rate};
use tailsight_stats::method::{self, Config, PercentileGoal, Width};

use crate::Error;

/// Which latency the percentiles are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Latency {
    /// From when the request was due: what a user of an open system suffers, the client's own lateness included.
    Response,
    /// From when the request was sent.
    Service,
}

/// What to know, and how long it may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The load: its arrivals and rate are what the method holds the sent stream against.
    pub plan: Plan,
    /// The percentiles to know, each with the width of its interval.
    pub targets: Vec<PercentileGoal>,
    /// Of which latency.
    pub latency: Latency,
    /// From the first request to the end of the last batch.
    pub max_time: Duration,
    /// Percentiles to report besides, as far as the sample supports them, inside 0..1.
    pub percentiles: Vec<f64>,
    /// Whether arrivals are held to the times sent as they are, with no lateness passed over.
    pub strict: bool,
}

/// Gaps of a fixed schedule may be off by this share of the gap, and by [`FIXED_NS`] anyway: below that no timer is exact.
const FIXED_SHARE: f64 = 0.1;
const FIXED_NS: f64 = 10_000.0;
/// The first batch may take this share of the time.
const FIRST_BATCH: f64 = 1.0 / 6.0;
/// Memory: a request takes 16 bytes, a sample 40.
pub(crate) const MOST_REQUESTS: f64 = 6e6;

impl Question {
    /// What is measured where nobody asks for a percentile.
    #[must_use]
    pub fn usual_targets() -> Vec<PercentileGoal> {
        vec![PercentileGoal::new(0.99, Width::Relative(0.05))]
    }

    /// p99 within 5 % at 95 %, of the response time, in at most a minute; the usual percentiles besides.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            targets: Self::usual_targets(),
            latency: Latency::Response,
            max_time: Duration::from_secs(60),
            percentiles: vec![0.5, 0.9, 0.99, 0.999],
            strict: false,
        }
    }

    /// Requests that the load is expected to send in the time, at least; `None` for a closed loop and a replay.
    #[must_use]
    pub fn expected_requests(&self) -> Option<f64> {
        let open = !self.plan.arrivals.is_closed() && !matches!(self.plan.arrivals, Arrivals::Replay(_));
        open.then(|| self.plan.rate.expected(self.max_time.as_nanos() as u64))
    }

    /// The plan as the loading threads need it for this question: room for what will be recorded, and the lateness goal.
    #[must_use]
    pub fn prepared_plan(&self) -> Plan {
        let mut plan = self.plan.clone();
        let requests = (self.expected_requests().unwrap_or(MOST_REQUESTS / 3.0) * 1.1 + 200_000.0).min(MOST_REQUESTS);
        plan.max_sends = requests as usize;
        // Which requests are recorded is chance; where the question contradicts itself there will be no load.
        let share = self.config().map_or(1.0, |config| config.recording_rate);
        plan.max_samples = (requests * share * 1.1 + 100_000.0).min(requests) as usize;
        if let Some(width) = self.narrowest_ns() {
            plan.limits.lateness_p99_ns = plan.limits.lateness_p99_ns.min(width as u64).max(1_000);
        }
        plan
    }

    /// The narrowest width asked for in ns, where one is.
    fn narrowest_ns(&self) -> Option<f64> {
        let widths = self.targets.iter().filter_map(|t| match t.width {
            Width::Ns(ns) => Some(ns),
            _ => None,
        });
        widths.reduce(f64::min)
    }

    /// The method's settings.
    ///
    /// # Errors
    /// What contradicts itself.
    pub fn config(&self) -> Result<Config, Error> {
        let seconds = self.max_time.as_secs_f64();
        if seconds < 2.0 {
            let reason =
                format!("--max-time is {seconds} s; it must be 2 s or more (the load is checked for 1 s first)");
            return Err(Error::Contradiction(reason));
        }
        if let Some(q) = self.percentiles.iter().find(|q| !(**q > 0.0 && **q < 1.0)) {
            return Err(Error::Contradiction(format!("a percentile must be between 0 and 100, got {}", q * 100.0)));
        }
        let mut config = Config::new(self.targets.clone(), self.specified());
        config.seed = self.plan.seed;
        config.burst = self.plan.burst;
        config.strict_arrivals = self.strict;
        config.since = match self.latency {
            Latency::Response => method::Since::Due,
            Latency::Service => method::Since::Sent,
        };
        let requests = self.expected_requests().unwrap_or(config.max_requests as f64).min(MOST_REQUESTS);
        config.max_requests = (requests as u64).max(1);
        // A slow load must record more of its requests, or the first batch alone would take all the time.
        let first = requests * FIRST_BATCH;
        config.recording_rate = (config.batch_samples as f64 / first).clamp(config.recording_rate, 1.0);
        config.batch_samples = config.batch_samples.min((first * config.recording_rate) as usize).max(1_000);
        config.validate()?;
        Ok(config)
    }

    /// The arrival process as the method names it.
    fn specified(&self) -> method::Arrivals {
        let changing = !matches!(self.plan.rate, Rate::Constant(_));
        match (&self.plan.arrivals, &self.plan.rate) {
            (Arrivals::Closed(_) | Arrivals::Batch(_), _) => method::Arrivals::ClosedLoop,
            (Arrivals::Drawn(ArrivalProcess::Fixed), Rate::Constant(rate)) => {
                method::Arrivals::Fixed { tolerance: (FIXED_NS * rate / 1e9).max(FIXED_SHARE) }
            }
            (Arrivals::Drawn(ArrivalProcess::Exponential), _) if !changing => method::Arrivals::Exponential,
            (Arrivals::Drawn(ArrivalProcess::Lognormal(_)), _) if !changing => method::Arrivals::Lognormal,
            (Arrivals::Drawn(ArrivalProcess::Pareto(_)), _) if !changing => method::Arrivals::Pareto,
            _ => method::Arrivals::Scheduled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(rate: &str, arrivals: &str, seconds: u64) -> Question {
        let mut plan = Plan::new("localhost:1".parse().unwrap(), tailsight_load::Protocol::Echo);
        plan.rate = rate.parse().unwrap();
        plan.arrivals = arrivals.parse().unwrap();
        Question { max_time: Duration::from_secs(seconds), ..Question::new(plan) }
    }

    #[test]
    fn a_fast_load_is_sampled_as_in_the_paper_and_a_slow_one_whole() {
        let fast = question("20k", "exponential", 60).config().unwrap();
        assert_eq!((fast.batch_samples, fast.recording_rate, fast.max_requests), (10_000, 0.2, 1_200_000));
        let slow = question("200", "exponential", 60).config().unwrap();
        assert_eq!((slow.batch_samples, slow.recording_rate), (2_000, 1.0));
        assert!(question("20k", "exponential", 1).config().is_err());
    }

    #[test]
    fn the_stream_is_held_against_what_was_asked() {
        let arrivals_of = |rate, arrivals| question(rate, arrivals, 60).config().unwrap().arrivals;
        assert_eq!(arrivals_of("1k", "exponential"), method::Arrivals::Exponential);
        assert_eq!(arrivals_of("ramp:1k..2k/5s", "exponential"), method::Arrivals::Scheduled);
        assert_eq!(arrivals_of("1k", "mmpp:8,0.1,10ms"), method::Arrivals::Scheduled);
        assert_eq!(arrivals_of("1k", "closed:1"), method::Arrivals::ClosedLoop);
        assert_eq!(arrivals_of("1k", "fixed"), method::Arrivals::Fixed { tolerance: 0.1 });
        assert_eq!(arrivals_of("50k", "fixed"), method::Arrivals::Fixed { tolerance: 0.5 });
    }

    #[test]
    fn a_narrow_interval_asks_for_a_punctual_client() {
        let mut question = question("1k", "exponential", 60);
        question.targets = vec!["p99:10us".parse().unwrap(), "p50".parse().unwrap()];
        assert_eq!(question.prepared_plan().limits.lateness_p99_ns, 10_000);
    }

    #[test]
    fn there_is_room_for_all_sends_and_for_the_samples_recorded() {
        let plan = question("20k", "exponential", 60).prepared_plan();
        assert!(plan.max_sends >= 1_200_000 && (240_000..plan.max_sends / 2).contains(&plan.max_samples), "{plan:?}");
        let slow = question("200", "exponential", 60).prepared_plan();
        assert!(slow.max_samples >= 12_000 && slow.max_sends >= 12_000);
    }
}
