//! What became of one trial, as data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_stats::rounds;

use crate::Candidate;

/// A fix that was tried or skipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// From 1, in the order of the session.
    pub step: usize,
    /// The fix, with what was predicted.
    pub fix: Candidate,
    /// What was measured; absent where it was skipped or too few rounds show the percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Of each round that shows both, in order: the percentile with the fix and without it, ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds_ns: Vec<[f64; 2]>,
    /// What it costs in peak rate, of a kept fix and where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// What became of it.
    pub decision: Decision,
    /// Why.
    pub why: Why,
    /// That in words, where there is more to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What rounds with and without a fix show.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Rounds that show the percentile of both.
    pub rounds: usize,
    /// The percentile with the fix over that without it: geometric mean of the rounds.
    pub ratio: f64,
    /// Its interval at `level`.
    pub interval: [f64; 2],
    /// The level of the interval: 1 less twice the error that this step may make.
    pub level: f64,
    /// One-sided p-value of "the fix does not lower it", by exchanging rounds.
    pub p: f64,
    /// The error that this step may make: the probability that a fix without effect is kept.
    pub alpha: f64,
    /// Geometric mean of the percentile without the fix, ns.
    pub without_ns: f64,
    /// With it, ns.
    pub with_ns: f64,
}

/// The peak rate with a fix and without it, in rounds of a closed loop. It decides nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// Rounds that show both.
    pub rounds: usize,
    /// Requests answered a second with the fix over those without it: geometric mean of the rounds. Absent where they do not show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// Requests answered a second without the fix: geometric mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_per_s: Option<f64>,
    /// With it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_per_s: Option<f64>,
    /// Why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_available: Option<String>,
}

impl Price {
    /// Rounds of a price.
    pub const ROUNDS: usize = rounds::FEWEST;

    /// Of rounds: (with the fix, without it), requests/s. `why`: that the rounds do not show the server's peak.
    #[must_use]
    pub fn of(rounds_per_s: &[(f64, f64)], seed: u64, why: Option<String>) -> Price {
        let log = |per_s: f64| per_s.max(1e-9).ln();
        let logs: Vec<f64> = rounds_per_s.iter().map(|(with, without)| log(*with) - log(*without)).collect();
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| {
            (rounds_per_s.iter().map(|round| log(of(round))).sum::<f64>() / rounds_per_s.len() as f64).exp()
        };
        let rounds = rounds_per_s.len();
        match (rounds::test(&logs, 0.95, seed), why) {
            (Some(tested), None) => Price {
                rounds,
                ratio: Some(tested.ratio),
                ci95: Some(tested.interval),
                without_per_s: Some(mean(&|round| round.1)),
                with_per_s: Some(mean(&|round| round.0)),
                not_available: None,
            },
            (_, why) => Price {
                rounds,
                ratio: None,
                ci95: None,
                without_per_s: None,
                with_per_s: None,
                not_available: Some(
                    why.unwrap_or_else(|| format!("{rounds} rounds show it, {} are needed", rounds::FEWEST)),
                ),
            },
        }
    }
}

/// What becomes of a fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It stays.
    Kept,
    /// It was applied, measured, and undone.
    Undone,
    /// It was never applied.
    Skipped,
}

/// Why that becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The whole interval is below 1, and so few exchanges of rounds have as large a difference that chance does not explain it.
    Proven,
    /// The interval holds 1, or chance explains the difference.
    NotProven,
    /// The whole interval is above 1: it makes the percentile higher.
    Worse,
    /// Too few rounds show the percentile of both.
    NotMeasured,
    /// It cannot be applied here and now.
    NotApplicable,
    /// Whoever was asked said no.
    Declined,
}

impl Why {
    /// For a table.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Why::Proven => "proven",
            Why::NotProven => "not proven",
            Why::Worse => "makes it slower",
            Why::NotMeasured => "not measured",
            Why::NotApplicable => "cannot be applied",
            Why::Declined => "declined",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_of_rounds_that_show_the_servers_peak() {
        let rounds: Vec<(f64, f64)> = (0..8).map(|i| (900.0 + f64::from(i), 1_000.0 + f64::from(i % 3))).collect();
        let price = Price::of(&rounds, 1, None);
        let [lower, upper] = price.ci95.unwrap();
        assert!((price.ratio.unwrap() - 0.9).abs() < 0.01 && lower < 0.9 + 0.01 && upper < 0.92, "{price:?}");
        assert!((price.without_per_s.unwrap() - 1_001.0).abs() < 1.0, "{price:?}");
        let few = Price::of(&rounds[..7], 1, None);
        assert_eq!((few.ratio, few.not_available.as_deref()), (None, Some("7 rounds show it, 8 are needed")));
        let clients = Price::of(&rounds, 1, Some("the client's".into()));
        assert_eq!((clients.ratio, clients.not_available.as_deref()), (None, Some("the client's")));
    }
}
