//! What a workload measured. In: what the load generator measured. Out: counts, percentiles in ns, a summary for JSON.

use serde::Serialize;
use tailsight_load::Status;

use super::Workload;

/// What one workload measured. `intended = received + errors + unanswered`.
#[derive(Debug, Clone)]
pub struct LoadSummary {
    /// The workload's name.
    pub name: String,
    /// Requests that were due.
    pub intended: u64,
    /// Requests that the kernel took whole; fewer than `intended` when the server stopped reading or connections broke.
    pub sent: u64,
    /// Good replies.
    pub received: u64,
    /// Requests that were answered by an error or a miss, or whose connection broke.
    pub errors: u64,
    /// Requests without an answer 1 s after the last one was sent, or never sent; their latency is unknown and not among the
    /// samples.
    pub unanswered: u64,
    /// How long requests were sent, ns.
    pub duration_ns: u64,
    /// Latency of each good reply from the time its request was due, ns, in rising order; of a random part of them when
    /// there were more than two million.
    pub samples_ns: Vec<u64>,
    /// The same replies in the order of their requests: when each was due (CLOCK_MONOTONIC) and its latency, ns.
    pub timed_ns: Vec<(u64, u64)>,
    /// The 99th percentile of how long after they were due requests were sent, ns, at most 1.6 % above the truth: the
    /// client's own delay.
    pub late_p99_ns: Option<u64>,
}

impl LoadSummary {
    /// Every key was set before, so a miss is an error.
    pub(super) fn new(workload: &Workload, measured: &tailsight_load::Outcome) -> Self {
        let counts = measured.counts;
        let good = measured.samples.iter().filter(|sample| sample.status() == Status::Ok);
        let mut timed_ns: Vec<(u64, u64)> =
            good.filter_map(|sample| Some((sample.intended_ns, sample.response_ns()?))).collect();
        timed_ns.sort_unstable();
        let mut samples_ns: Vec<u64> = timed_ns.iter().map(|(_, latency)| *latency).collect();
        samples_ns.sort_unstable();
        Self {
            name: workload.name.clone(),
            intended: counts.intended,
            sent: counts.sent,
            received: counts.ok,
            errors: counts.miss + counts.error + counts.wrong + counts.closed + counts.garbage,
            unanswered: counts.unsent + counts.lost + counts.unanswered,
            duration_ns: measured.duration_ns(),
            samples_ns,
            timed_ns,
            late_p99_ns: measured.lateness.quantile(0.99),
        }
    }

    /// The exact percentile (nearest rank, 0 to 100) of the latency, ns; `None` without samples.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        nearest_rank(&self.samples_ns, percent)
    }

    /// Good replies a second of sending.
    #[must_use]
    pub fn received_per_s(&self) -> f64 {
        self.received as f64 * 1e9 / self.duration_ns.max(1) as f64
    }

    /// The numbers of the usual summary.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            name: self.name.clone(),
            intended: self.intended,
            sent: self.sent,
            received: self.received,
            errors: self.errors,
            unanswered: self.unanswered,
            duration_ns: self.duration_ns,
            received_per_s: self.received_per_s(),
            latency_ns: Latency {
                p50: self.percentile(50.0),
                p90: self.percentile(90.0),
                p99: self.percentile(99.0),
                p99_9: self.percentile(99.9),
                max: self.samples_ns.last().copied(),
            },
            late_p99_ns: self.late_p99_ns,
        }
    }
}

/// An [`LoadSummary`] without its samples, for JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The workload's name.
    pub name: String,
    /// As [`LoadSummary::intended`].
    pub intended: u64,
    /// As [`LoadSummary::sent`].
    pub sent: u64,
    /// As [`LoadSummary::received`].
    pub received: u64,
    /// As [`LoadSummary::errors`].
    pub errors: u64,
    /// As [`LoadSummary::unanswered`].
    pub unanswered: u64,
    /// As [`LoadSummary::duration_ns`].
    pub duration_ns: u64,
    /// As [`LoadSummary::received_per_s`].
    pub received_per_s: f64,
    /// Latency from the time a request was due, ns.
    pub latency_ns: Latency,
    /// As [`LoadSummary::late_p99_ns`].
    pub late_p99_ns: Option<u64>,
}

/// Percentiles of the latency, ns; `None` (null) without samples.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    /// The median.
    pub p50: Option<u64>,
    /// The 90th percentile.
    pub p90: Option<u64>,
    /// The 99th percentile.
    pub p99: Option<u64>,
    /// The 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p99_9: Option<u64>,
    /// The slowest.
    pub max: Option<u64>,
}

/// The smallest sample that at least `percent` % of all do not exceed.
fn nearest_rank(sorted: &[u64], percent: f64) -> Option<u64> {
    let n = sorted.len();
    // Without the small step back, 99.9 % of 1000 would be the 1000th, because 0.999 is no binary fraction.
    let rank = (percent.clamp(0.0, 100.0) * n as f64 / 100.0 - 1e-6).ceil() as usize;
    sorted.get(rank.clamp(1, n.max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank_is_exact() {
        let hundred: Vec<u64> = (1..=100).collect();
        let thousand: Vec<u64> = (1..=1000).collect();
        assert_eq!(nearest_rank(&hundred, 50.0), Some(50));
        assert_eq!(nearest_rank(&hundred, 99.0), Some(99));
        assert_eq!(nearest_rank(&hundred, 99.1), Some(100));
        assert_eq!(nearest_rank(&thousand, 99.9), Some(999));
        assert_eq!(nearest_rank(&thousand, 99.0), Some(990));
        assert_eq!(nearest_rank(&thousand, 0.0), Some(1));
        assert_eq!(nearest_rank(&thousand, 100.0), Some(1000));
        assert_eq!(nearest_rank(&[7], 50.0), Some(7));
        assert_eq!(nearest_rank(&[], 50.0), None);
    }
}
