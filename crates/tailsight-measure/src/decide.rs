//! Is an objective met, missed or open? In: an objective and a measurement, with a number or without. Out: the decision, how sure it
//! is, and why it is open.
//!
//! An objective is one-sided: `p99<20ms` asks on which side of 20 ms the percentile is, and not how large it is. So it can be decided
//! where the percentile itself is N/A: an interval that is too wide, a drift and a long queue take away the number, not the side, as
//! far as the samples' dependence lets them tell. What biases the samples takes away the side that it favours, and no more:
//!
//! | what was wrong | the samples are | met | missed |
//! |---|---|---|---|
//! | nothing; the interval's width, drift, errors | as they should be | can be | can be |
//! | the client was late, starved, or held back | too slow | can be | is open |
//! | a closed loop, a load that was not reached, a queue that grows for ever | too fast | is open | can be |
//! | bytes that are not the protocol's, a client that failed | not known | is open | is open |
//!
//! The second row holds for the response time, which counts from when a request was due: a server that serves in order and does the same
//! work for each request finishes none earlier for having received some of them later. A request that failed took longer than any limit,
//! and a server that stopped answering misses each limit that is shorter than the time for which it was waited for. Times are ns.

use tailsight_stats::compare::{Sides, sides, sides_dependent};
use tailsight_stats::method::CheckId;
use tailsight_stats::quantile::needed;

use crate::assumption::{AssumptionId, Na};
use crate::batch::latency_ns;
use crate::measure::{Measurement, Row, STALLED_NS};
use crate::objective::{Decision, LEVEL, Objective};
use crate::question::Latency;
use crate::report::{ObjectiveResult, Verdict};

/// Where no sample reaches this share of the limit, their dependence does not matter to which side the percentile is on.
const FAR_BELOW: f64 = 0.5;

/// What a measurement's samples can be trusted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bias {
    Fair,
    TooSlow,
    TooFast,
    Unknown,
}

/// Decides an objective.
#[must_use]
pub fn decide(objective: Objective, measurement: &Measurement) -> ObjectiveResult {
    let report = &measurement.report;
    let accepted = measurement.accepted.as_ref();
    Evidence {
        rows: &measurement.rows,
        verdict: &report.verdict,
        latency: report.latency,
        leaves_out: report.leaves_out.as_deref(),
        independent: accepted.filter(|a| a.block == 1).map(|a| a.latencies_ns.len()),
    }
    .decide(objective)
}

/// What a decision rests on.
struct Evidence<'a> {
    rows: &'a [Row],
    verdict: &'a Verdict,
    latency: Latency,
    /// What a closed loop leaves out; `None` in an open one.
    leaves_out: Option<&'a str>,
    /// How many samples were found to be independent.
    independent: Option<usize>,
}

impl Evidence<'_> {
    fn decide(&self, objective: Objective) -> ObjectiveResult {
        let stood_still = self.failed() == Some(&AssumptionId::Account(Na::Stalled));
        let asked = self.series(self.latency);
        let above = asked.iter().filter(|ns| **ns >= objective.limit_ns).count();
        let sides = self.sides(objective, &asked);
        let (below_limit, above_limit) =
            sides.map_or((false, false), |sides| (sides.below >= LEVEL, sides.above >= LEVEL));
        let missed_by_the_server = || {
            // What the client was late is in the response time, and not the server's.
            let service = || self.sides(objective, &self.series(Latency::Service));
            self.latency == Latency::Service || service().is_some_and(|s| s.above >= LEVEL)
        };
        let (decision, reason) = match self.bias() {
            Bias::Unknown => (Decision::Open, Some(self.reason().to_owned())),
            // Every later request takes at least as long as the load waited.
            _ if stood_still && objective.limit_ns <= STALLED_NS as f64 => {
                (Decision::Missed, Some(self.reason().to_owned()))
            }
            _ if stood_still => (Decision::Open, Some(self.reason().to_owned())),
            _ if asked.len() < needed(objective.quantile) => {
                let (n, needed) = (asked.len(), needed(objective.quantile));
                (Decision::Open, Some(format!("{n} samples are too few; {needed} independent ones are needed")))
            }
            _ if sides.is_none() => (Decision::Open, Some("the run is too short for such long queues".into())),
            Bias::TooFast if below_limit => {
                let later = || format!("later requests would take longer: {}", self.reason());
                (Decision::Open, Some(self.leaves_out.map_or_else(later, str::to_owned)))
            }
            _ if below_limit => (Decision::Met, None),
            Bias::TooSlow if above_limit => (Decision::Open, Some(LATE.into())),
            _ if above_limit && missed_by_the_server() => (Decision::Missed, None),
            _ if above_limit => (Decision::Open, Some(WITH_LATENESS.into())),
            _ => (Decision::Open, Some("the percentile is too near to the limit for this many samples".into())),
        };
        ObjectiveResult {
            objective,
            confidence: sides.map(|s| s.below),
            met: decision == Decision::Met,
            decision,
            reason,
            n: asked.len(),
            above,
        }
    }

    /// Latencies in the order in which requests were due, ns; infinite for those that failed.
    fn series(&self, latency: Latency) -> Vec<f64> {
        let latency_of = |row: &&Row| latency_ns(&row.sample, latency).map_or(f64::INFINITY, |ns| ns as f64);
        self.rows_of_the_result().iter().map(latency_of).collect()
    }

    /// The samples since the last restart, after the warm-up, with those that failed; where none is good, the last batch.
    fn rows_of_the_result(&self) -> Vec<&Row> {
        let first = self.rows.iter().filter(|r| r.in_result).map(|r| (r.batch, r.sample.intended_ns)).min();
        let last_batch = self.rows.iter().map(|r| r.batch).max().unwrap_or(0);
        let (batch, from_ns) = first.unwrap_or((last_batch, 0));
        self.rows.iter().filter(|r| r.batch >= batch && r.batch > 0 && r.sample.intended_ns >= from_ns).collect()
    }

    /// How sure it is on which side the percentile is; `None`: the samples cannot tell.
    fn sides(&self, objective: Objective, series: &[f64]) -> Option<Sides> {
        let Objective { quantile, limit_ns } = objective;
        let slowest_ns = series.iter().copied().fold(0.0, f64::max);
        if self.independent == Some(series.len()) || slowest_ns < FAR_BELOW * limit_ns {
            return Some(sides(series, quantile, limit_ns));
        }
        sides_dependent(series, quantile, limit_ns)
    }

    fn failed(&self) -> Option<&AssumptionId> {
        match self.verdict {
            Verdict::Number { .. } => None,
            Verdict::NotAvailable { failed, .. } => Some(&failed.id),
        }
    }

    /// The verdict's, where it holds no number.
    fn reason(&self) -> &str {
        match self.verdict {
            Verdict::Number { .. } => "",
            Verdict::NotAvailable { reason, .. } => reason,
        }
    }

    fn bias(&self) -> Bias {
        use CheckId::{ArrivalIndependence, Arrivals, ArrivalsSuperposed, ClientLateness};
        let late = match self.failed() {
            Some(AssumptionId::Account(Na::OutOfStep | Na::Client)) => return Bias::Unknown,
            Some(AssumptionId::Account(Na::ClientCpu | Na::ClientStarved | Na::OpenLoop)) => true,
            Some(AssumptionId::Method(check)) => {
                matches!(check, ClientLateness | Arrivals | ArrivalsSuperposed | ArrivalIndependence)
            }
            _ => false,
        };
        let unbounded = matches!(self.failed(), Some(AssumptionId::Method(CheckId::Load | CheckId::UnitRoot)));
        match (late, self.leaves_out.is_some() || unbounded, self.latency) {
            (false, false, _) => Bias::Fair,
            (false, true, _) => Bias::TooFast,
            (true, false, Latency::Response) => Bias::TooSlow,
            // The server saw other arrivals than those asked for, and the time from sent says nothing of what they waited before.
            (true, ..) => Bias::Unknown,
        }
    }
}

const LATE: &str = "the client itself was late: it took longer than this, and which part of that is the server's is not \
                    known";
const WITH_LATENESS: &str = "it is missed only with the client's own lateness in it: the time from sent to answered is \
                             not shown to be above";

#[cfg(test)]
mod tests {
    use tailsight_load::{Sample, Status};

    use super::*;
    use crate::report::Checked;

    const MS: f64 = 1e6;

    struct Measured {
        rows: Vec<Row>,
        verdict: Verdict,
        is_closed: bool,
    }

    /// Replies that took so long, ns; 0: it failed. `failed`: what the verdict is N/A for.
    fn measured(latencies_ns: impl IntoIterator<Item = u64>, failed: Option<&str>) -> Measured {
        let row = |(i, latency_ns): (usize, u64)| {
            let sent_ns = 1 + i as u64 * 100_000;
            let status = if latency_ns > 0 { Status::Ok } else { Status::Error };
            let sample = Sample {
                intended_ns: sent_ns,
                called_ns: sent_ns,
                sent_ns,
                received_ns: sent_ns + latency_ns.max(1),
                flags: status as u32,
                ..Sample::default()
            };
            Row { sample, agent: 0, batch: 1, in_result: latency_ns > 0 }
        };
        let rows: Vec<Row> = latencies_ns.into_iter().enumerate().map(row).collect();
        let verdict = match failed {
            None => Verdict::Number { percentiles: Vec::new() },
            Some(id) => Verdict::refused_for(Checked::of(id, false)),
        };
        Measured { rows, verdict, is_closed: false }
    }

    /// 1 to 2 ms, without any order; `slow` of a thousand take 50 ms.
    fn latencies(n: u64, slow: u64) -> impl Iterator<Item = u64> {
        (0..n).map(move |i| {
            let drawn = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            if drawn % 1_000 < slow { 50_000_000 } else { 1_000_000 + drawn % 1_000_000 }
        })
    }

    fn decided(limit_ms: f64, measured: &Measured) -> (Decision, Option<String>) {
        let Measured { rows, verdict, is_closed } = measured;
        let (latency, leaves_out) = (Latency::Response, is_closed.then_some("a closed loop leaves something out"));
        let result = Evidence { rows, verdict, latency, leaves_out, independent: None }
            .decide(Objective { quantile: 0.99, limit_ns: limit_ms * MS });
        assert_eq!(result.met, result.decision == Decision::Met);
        (result.decision, result.reason)
    }

    /// `p99<10s` was N/A where the slowest of all took 6 ms.
    #[test]
    fn a_number_that_is_not_available_has_a_side_all_the_same() {
        for failed in [None, Some("interval-width"), Some("drift"), Some("run-length")] {
            let measurement = measured(latencies(5_000, 0), failed);
            assert_eq!(decided(10_000.0, &measurement), (Decision::Met, None), "{failed:?}");
            assert_eq!(decided(0.5, &measurement), (Decision::Missed, None), "{failed:?}");
        }
        assert_eq!(decided(10_000.0, &measured(latencies(100, 0), None)).0, Decision::Open, "100 samples have no p99");
    }

    /// A level that wanders knows little of how many requests are slow; that none comes near the limit it shows all the same.
    #[test]
    fn where_nothing_comes_near_the_limit_dependence_does_not_matter() {
        let wandering = || (0..5_000_u64).map(|i| if i / 1_000 % 2 == 0 { 1_000_000 } else { 4_000_000 } + i % 1_000);
        let (series, limit_ns) = (wandering().map(|ns| ns as f64).collect::<Vec<_>>(), 10.0 * MS);
        assert!(sides_dependent(&series, 0.99, limit_ns).is_none_or(|sides| sides.below < LEVEL), "it knows little");
        assert_eq!(decided(10.0, &measured(wandering(), Some("drift"))).0, Decision::Met);
        assert_eq!(decided(6.0, &measured(wandering(), Some("drift"))).0, Decision::Open, "nearer than half");
    }

    #[test]
    fn a_share_of_slow_requests_decides() {
        assert_eq!(decided(10.0, &measured(latencies(20_000, 3), None)).0, Decision::Met);
        assert_eq!(decided(10.0, &measured(latencies(20_000, 30), None)).0, Decision::Missed);
        let (decision, reason) = decided(10.0, &measured(latencies(20_000, 10), None));
        assert_eq!(decision, Decision::Open);
        assert!(reason.unwrap().contains("too near"));
    }

    /// Slow requests in a row know less than as many that are spread.
    #[test]
    fn a_burst_of_slow_requests_counts_for_what_it_knows() {
        let burst = (0..20_000).map(|i| if (8_000..8_300).contains(&i) { 50_000_000 } else { 1_000_000 + i % 1_000 });
        assert_eq!(decided(10.0, &measured(burst, None)).0, Decision::Open, "1.5 %, in one burst");
    }

    #[test]
    fn a_request_that_failed_took_longer_than_any_limit() {
        let failing = latencies(20_000, 30).map(|ns| if ns > 10_000_000 { 0 } else { ns });
        assert_eq!(decided(10_000.0, &measured(failing, Some("errors"))).0, Decision::Missed);
    }

    #[test]
    fn a_bias_takes_away_the_side_that_it_favours() {
        for failed in ["client-lateness", "arrivals", "client-starved", "open-loop"] {
            let measurement = measured(latencies(20_000, 0), Some(failed));
            assert_eq!(decided(10.0, &measurement).0, Decision::Met, "{failed}");
            let (decision, reason) = decided(0.5, &measurement);
            assert_eq!(decision, Decision::Open, "{failed}");
            assert!(reason.unwrap().contains("the client itself was late"));
        }
        for failed in ["load", "unit-root"] {
            let measurement = measured(latencies(20_000, 0), Some(failed));
            assert_eq!(decided(0.5, &measurement).0, Decision::Missed, "{failed}");
            assert_eq!(decided(10.0, &measurement).0, Decision::Open, "{failed}: a queue that grows is longer later");
        }
        let mut closed = measured(latencies(20_000, 0), None);
        closed.is_closed = true;
        assert_eq!(decided(0.5, &closed).0, Decision::Missed);
        let (decision, reason) = decided(10.0, &closed);
        assert_eq!(decision, Decision::Open);
        assert!(reason.unwrap().contains("closed loop"));
        assert_eq!(decided(10.0, &measured(latencies(20_000, 0), Some("out-of-step"))).0, Decision::Open);
    }

    #[test]
    fn lateness_of_the_client_is_no_miss_of_the_server() {
        let mut late = measured(latencies(20_000, 0), Some("load"));
        for row in &mut late.rows {
            row.sample.intended_ns = row.sample.intended_ns.saturating_sub(40_000_000);
        }
        let (decision, reason) = decided(10.0, &late);
        assert_eq!(decision, Decision::Open);
        assert!(reason.is_some_and(|why| why.contains("client's own lateness")));
    }

    #[test]
    fn a_server_that_stopped_missed_what_is_shorter_than_the_wait() {
        let stopped = measured(latencies(20_000, 0), Some("stalled"));
        assert_eq!(decided(10.0, &stopped).0, Decision::Missed);
        assert_eq!(decided(10_000.0, &stopped).0, Decision::Open);
    }
}
