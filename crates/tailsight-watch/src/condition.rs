//! What makes a message slow, as a user writes it: `total > 20ms`, `p99.9`, `receive > 5ms, service > p99`.
//!
//! In: a text. Out: a [`Condition`]; and, with the latencies of the last minutes, the [`Limits`] that it means now. A message that is beyond one of
//! the limits is slow.

use std::fmt;
use std::str::FromStr;

use tailsight_units::{format, parse};

use crate::latencies::{LatencyCounts, Leg, Limits};

/// What a leg is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A time, ns.
    Time(u64),
    /// This quantile (0 to 1) of the last minutes.
    Quantile(f64),
}

/// What makes a message slow: a limit for each leg that has one, in the order of [`Leg::ALL`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    limits: [Option<Limit>; Leg::ALL.len()],
}

/// Why a text is no condition.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a condition: {why}; write for example 'total > 20ms', 'p99.9', or 'receive > 5ms, service > 50ms'"
)]
pub struct Wrong {
    text: String,
    why: String,
}

/// Messages beyond a quantile that it needs before it is a limit.
const BEYOND: f64 = 10.0;
/// The quantiles that can be asked for.
const QUANTILES: std::ops::RangeInclusive<f64> = 0.5..=0.9999;

impl FromStr for Condition {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Condition, Wrong> {
        let wrong = |why: String| Wrong { text: text.to_owned(), why };
        let mut limits = [None; Leg::ALL.len()];
        for part in text.split(',').map(str::trim) {
            let (leg, limit) = match part.split_once('>') {
                Some((leg, limit)) => (leg.trim(), limit.trim()),
                None if percentile(part).is_some() => ("total", part),
                None => return Err(wrong(format!("`{part}` has no >"))),
            };
            let of_name = Leg::ALL.into_iter().find(|known| known.name() == leg);
            let leg = of_name.ok_or_else(|| wrong(format!("`{leg}` is not total, receive or service")))?;
            let time = || parse::duration_ns(limit).filter(|ns| *ns > 0).map(Limit::Time);
            let limit = match percentile(limit) {
                Some(quantile) if QUANTILES.contains(&quantile) => Limit::Quantile(quantile),
                Some(_) => return Err(wrong(format!("{limit} is not between p50 and p99.99"))),
                None => time().ok_or_else(|| wrong(format!("`{limit}` is not a time above 0")))?,
            };
            if limits[leg as usize].replace(limit).is_some() {
                return Err(wrong(format!("{} has two limits", leg.name())));
            }
        }
        Ok(Condition { limits })
    }
}

/// The quantile that a percentile such as p99.9 stands for.
fn percentile(text: &str) -> Option<f64> {
    let digits = text.strip_prefix(['p', 'P'])?;
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    // Shifting the decimal in the text gives the closest quantile: 99.9 / 100.0 is not 0.999.
    plain.then(|| format!("{digits}e-2").parse().ok()).flatten()
}

impl Condition {
    /// What it means now. A quantile is no limit while too few messages lie beyond it.
    pub fn limits(&self, recent: &LatencyCounts) -> Limits {
        let beyond = |quantile: f64| (1.0 - quantile) * recent.messages() as f64;
        Leg::ALL.map(|leg| match self.limits[leg as usize]? {
            Limit::Time(ns) => Some(ns),
            // 1 - 0.999 is a little less than a thousandth, which must not ask for a message more.
            Limit::Quantile(quantile) if beyond(quantile) < BEYOND - 1e-6 => None,
            Limit::Quantile(quantile) => recent.quantile(leg, quantile),
        })
    }

    /// Whether its limits change with what is measured.
    pub fn follows_latencies(&self) -> bool {
        self.limits.iter().flatten().any(|limit| matches!(limit, Limit::Quantile(_)))
    }

    /// The leg and the limit that a message of these latencies is beyond, ns; the largest excess where there are several.
    pub fn exceeded(limits: &Limits, legs_ns: &[u64; Leg::ALL.len()]) -> Option<(Leg, u64)> {
        let beyond = |leg: Leg| {
            let limit = limits[leg as usize]?;
            (legs_ns[leg as usize] > limit).then_some((leg, limit))
        };
        let excess = |&(leg, limit): &(Leg, u64)| legs_ns[leg as usize] - limit;
        // Of equal ones the first: the total holds the others.
        Leg::ALL.into_iter().rev().filter_map(beyond).max_by_key(excess)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Time(ns) => write!(f, "{}", format::duration(*ns)),
            Limit::Quantile(quantile) => write!(f, "p{}", (quantile * 1e8).round() / 1e6),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for leg in Leg::ALL {
            if let Some(limit) = self.limits[leg as usize] {
                write!(f, "{separator}{} > {limit}", leg.name())?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn condition(text: &str) -> Condition {
        text.parse().unwrap()
    }

    #[test]
    fn conditions_are_read_as_they_are_written() {
        assert_eq!(condition("total > 20ms").to_string(), "total > 20.0 ms");
        assert_eq!(condition("p99.9"), condition("total>p99.9"));
        assert_eq!(condition(" receive > 5ms ,service>50ms").to_string(), "receive > 5.00 ms, service > 50.0 ms");
        assert!(condition("service > p99").follows_latencies() && !condition("total > 1s").follows_latencies());
    }

    #[test]
    fn what_is_no_condition_says_why_and_how_one_is_written() {
        for (text, why) in [
            ("", "has no >"),
            ("20ms", "has no >"),
            ("total", "has no >"),
            ("latency > 20ms", "`latency` is not total, receive or service"),
            ("total > 20", "is not a time above 0"),
            ("total > 0ms", "is not a time above 0"),
            ("total > ", "is not a time above 0"),
            ("p100", "between p50 and p99.99"),
            ("p10", "between p50 and p99.99"),
            ("total > 1ms, total > 2ms", "total has two limits"),
            ("total > 1ms,", "has no >"),
        ] {
            let said = text.parse::<Condition>().expect_err(text).to_string();
            assert!(said.contains(why) && said.contains("'total > 20ms'"), "{text}: {said}");
        }
    }

    #[test]
    fn a_percentile_is_a_limit_when_enough_lies_beyond_it() {
        let mut recent = LatencyCounts::default();
        let follows = condition("p99.9, receive > 5ms");
        (0..9_999).for_each(|_| recent.add(Leg::Total, 100_000));
        assert_eq!(follows.limits(&recent), [None, Some(5_000_000), None]);
        recent.add(Leg::Total, 100_000);
        let [total, ..] = follows.limits(&recent);
        assert!(total.is_some_and(|ns| (90_000..=112_500).contains(&ns)), "{total:?}");
    }

    #[test]
    fn what_was_exceeded_most_is_said() {
        let limits = [Some(20), Some(5), None];
        assert_eq!(Condition::exceeded(&limits, &[20, 5, 15]), None, "a limit is not beyond itself");
        assert_eq!(Condition::exceeded(&limits, &[21, 5, 16]), Some((Leg::Total, 20)));
        assert_eq!(Condition::exceeded(&limits, &[22, 15, 7]), Some((Leg::Receive, 5)));
        assert_eq!(Condition::exceeded(&limits, &[30, 15, 15]), Some((Leg::Total, 20)));
    }

    proptest! {
        #[test]
        fn any_text_is_a_condition_or_says_why_not(text in ".{0,40}") {
            match text.parse::<Condition>() {
                Ok(condition) => prop_assert!(condition.limits.iter().any(Option::is_some)),
                Err(wrong) => prop_assert!(wrong.to_string().contains("is not a condition")),
            }
        }
    }
}
