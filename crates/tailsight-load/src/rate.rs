//! Rates that change over time. In: a text such as `ramp:1k..50k/10s`. Out: the time at which a gap ends, ns.
//!
//! A gap of `g` mean gaps that begins at `t` ends at the `t'` for which the integral of the rate from `t` to `t'` is `g`
//! (time rescaling): a Poisson process stays one, with the rate of every instant exact.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::LoadError;
use tailsight_units::parse::{duration_ns, number, write_duration};

/// Requests per second over time, for the whole load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum Rate {
    /// Constant: `20k`.
    Constant(f64),
    /// Levels in order, (ns, requests/s), the last without an end: `steps:10k/5s,20k/5s`. A level may be 0.
    Steps(Vec<(u64, f64)>),
    /// Linear from one rate to another, which then stays: `ramp:1k..50k/10s`.
    Ramp {
        /// Requests/s at the start.
        from: f64,
        /// Requests/s at the end.
        to: f64,
        /// How long it takes, ns.
        over_ns: u64,
    },
    /// A day: a sine from the low rate up to the high one and back in each period: `diurnal:5k..50k/60s`.
    Diurnal {
        /// Requests/s at the start of a period.
        low: f64,
        /// Requests/s in the middle of a period.
        high: f64,
        /// The period, ns.
        period_ns: u64,
    },
}

const FORMS: &str = "requests/s (20k), steps:RATE/TIME,…, ramp:FROM..TO/TIME or diurnal:LOW..HIGH/PERIOD";
/// Above this no single host can send, and gaps are below the resolution of a nanosecond.
const MAX: f64 = 1e8;

impl Rate {
    /// The rate at a time since the start of the load, requests/s.
    #[must_use]
    pub fn at(&self, ns: u64) -> f64 {
        match self {
            Self::Constant(rate) => *rate,
            Self::Steps(steps) => {
                let mut end = 0;
                let step = steps.iter().find(|(length, _)| {
                    end += length;
                    ns < end
                });
                step.or(steps.last()).map_or(0.0, |(_, rate)| *rate)
            }
            Self::Ramp { from, to, over_ns } => from + (to - from) * (ns as f64 / *over_ns as f64).min(1.0),
            Self::Diurnal { low, high, period_ns } => {
                let turn = std::f64::consts::TAU * (ns as f64 / *period_ns as f64);
                low + (high - low) * (1.0 - turn.cos()) / 2.0
            }
        }
    }

    /// Requests that are due on average from the start until `ns`.
    #[must_use]
    pub fn expected(&self, ns: u64) -> f64 {
        let t = ns as f64 / 1e9;
        match self {
            Self::Constant(rate) => rate * t,
            Self::Steps(steps) => {
                let (mut sum, mut left) = (0.0, ns);
                for (i, (length, rate)) in steps.iter().enumerate() {
                    let here = if i + 1 == steps.len() { left } else { left.min(*length) };
                    sum += rate * here as f64 / 1e9;
                    left -= here;
                }
                sum
            }
            Self::Ramp { from, to, over_ns } => {
                let over = *over_ns as f64 / 1e9;
                let within = t.min(over);
                from * within + (to - from) * within * within / (2.0 * over) + to * (t - within)
            }
            Self::Diurnal { low, high, period_ns } => {
                let turn = std::f64::consts::TAU / (*period_ns as f64 / 1e9);
                low * t + (high - low) / 2.0 * (t - (turn * t).sin() / turn)
            }
        }
    }

    /// The highest rate it ever has, requests/s.
    #[must_use]
    pub fn peak(&self) -> f64 {
        match self {
            Self::Constant(rate) => *rate,
            Self::Steps(steps) => steps.iter().map(|s| s.1).fold(0.0, f64::max),
            Self::Ramp { from, to, .. } => from.max(*to),
            Self::Diurnal { low, high, .. } => low.max(*high),
        }
    }

    /// Where a gap of `gap` mean gaps that begins at `t` ends, both ns from the start; infinite when the rate stays 0.
    pub(crate) fn advance(&self, t: f64, gap: f64) -> f64 {
        match self {
            Self::Constant(rate) => t + gap / rate * 1e9,
            Self::Steps(steps) => {
                let (mut t, mut gap, mut end) = (t, gap, 0.0);
                for (i, (length, rate)) in steps.iter().enumerate() {
                    end += *length as f64;
                    if t >= end && i + 1 < steps.len() {
                        continue;
                    }
                    let room = if i + 1 == steps.len() { f64::INFINITY } else { rate * (end - t) / 1e9 };
                    if gap <= room && *rate > 0.0 {
                        return t + gap / rate * 1e9;
                    }
                    gap -= room;
                    t = end;
                }
                f64::INFINITY
            }
            Self::Ramp { from, to, over_ns } => {
                let over = *over_ns as f64 / 1e9;
                let start = t / 1e9;
                let area = |t: f64| from * t + (to - from) * t * t / (2.0 * over);
                if start >= over {
                    return if *to > 0.0 { t + gap / to * 1e9 } else { f64::INFINITY };
                }
                let goal = area(start) + gap;
                if goal > area(over) {
                    let rest = goal - area(over);
                    return if *to > 0.0 { (over + rest / to) * 1e9 } else { f64::INFINITY };
                }
                // from t + a t² / 2 = goal, in the form that does not cancel.
                let slope = (to - from) / over;
                let root = (from * from + 2.0 * slope * goal).max(0.0).sqrt();
                (2.0 * goal / (from + root)).max(start) * 1e9
            }
            Self::Diurnal { low, high, period_ns } => {
                let turn = std::f64::consts::TAU / (*period_ns as f64 / 1e9);
                let area = |t: f64| low * t + (high - low) / 2.0 * (t - (turn * t).sin() / turn);
                let start = t / 1e9;
                let goal = area(start) + gap;
                // The mean rate over whole periods brackets the end; the area only rises, so halving cannot go wrong.
                let (mut from, mut to) = (start, start + gap / ((low + high) / 2.0) + std::f64::consts::TAU / turn);
                let mut guess = start + gap / self.at(t as u64).max(1e-9);
                for _ in 0..200 {
                    if !(guess > from && guess < to) {
                        guess = f64::midpoint(from, to);
                    }
                    let off = area(guess) - goal;
                    if off > 0.0 {
                        to = guess
                    } else {
                        from = guess
                    }
                    if to - from < 1e-10 || off == 0.0 {
                        break;
                    }
                    let rate = low + (high - low) * (1.0 - (turn * guess).cos()) / 2.0;
                    let next = guess - off / rate;
                    if (next - guess).abs() < 1e-10 && next >= start {
                        guess = next;
                        break;
                    }
                    guess = next;
                }
                guess.max(start) * 1e9
            }
        }
    }
}

fn rate(text: &str) -> Option<f64> {
    number(text).filter(|rate| *rate <= MAX)
}

/// `FROM..TO/TIME`.
fn span(text: &str) -> Option<(f64, f64, u64)> {
    let (rates, time) = text.rsplit_once('/')?;
    let (from, to) = rates.split_once("..")?;
    Some((rate(from)?, rate(to)?, duration_ns(time).filter(|ns| *ns > 0)?))
}

impl FromStr for Rate {
    type Err = LoadError;

    fn from_str(input: &str) -> Result<Self, LoadError> {
        let parsed = match input.split_once(':') {
            None => rate(input).map(Self::Constant),
            Some(("steps", rest)) => rest
                .split(',')
                .map(|step| {
                    let (level, time) = step.split_once('/')?;
                    Some((duration_ns(time).filter(|ns| *ns > 0)?, rate(level)?))
                })
                .collect::<Option<Vec<_>>>()
                .map(Self::Steps),
            Some(("ramp", rest)) => span(rest).map(|(from, to, over_ns)| Self::Ramp { from, to, over_ns }),
            Some(("diurnal", rest)) => span(rest)
                .filter(|(low, high, _)| low <= high)
                .map(|(low, high, period_ns)| Self::Diurnal { low, high, period_ns }),
            Some(_) => None,
        };
        // A rate that is never above zero is no load.
        parsed.filter(|rate| rate.peak() > 0.0).ok_or_else(|| LoadError::parse("a rate", input, FORMS))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(rate) => write!(f, "{rate}"),
            Self::Steps(steps) => {
                for (i, (length, rate)) in steps.iter().enumerate() {
                    write!(f, "{}{rate}/{}", if i == 0 { "steps:" } else { "," }, write_duration(*length))?;
                }
                Ok(())
            }
            Self::Ramp { from, to, over_ns } => write!(f, "ramp:{from}..{to}/{}", write_duration(*over_ns)),
            Self::Diurnal { low, high, period_ns } => write!(f, "diurnal:{low}..{high}/{}", write_duration(*period_ns)),
        }
    }
}

impl TryFrom<String> for Rate {
    type Error = LoadError;
    fn try_from(text: String) -> Result<Self, LoadError> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_read_and_written() {
        for text in ["20000", "steps:10000/5s,0/1s,20000/500ms", "ramp:1000..50000/10s", "diurnal:5000..50000/1m"] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate, "{text}");
        }
        for bad in
            ["", "0", "-1", "1e9", "steps:", "steps:1k", "steps:0/1s", "ramp:1k/2s", "ramp:1..2/0s", "diurnal:9..1/1s"]
        {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_level_of_zero_is_a_pause() {
        let rate: Rate = "steps:1000/1s,0/2s,1000/1s".parse().unwrap();
        // At 0.9995 s half a gap is left of the first second.
        assert!((rate.advance(999_500_000.0, 1.0) - 3_000_500_000.0).abs() < 1.0);
        let stops: Rate = "steps:1000/1s,0/1s".parse().unwrap();
        assert_eq!(stops.advance(999_500_000.0, 1.0), f64::INFINITY);
    }

    proptest! {
        /// Time rescaling: the area under the rate between both ends of a gap is the gap.
        #[test]
        fn gaps_are_areas(
            which in 0..4usize,
            start in 0.0..30e9_f64,
            gap in 0.001..5000.0_f64,
        ) {
            let text = ["1000", "steps:100/5s,0/1s,5000/7s,300/1s", "ramp:10..5000/20s", "diurnal:0..2000/8s"][which];
            let rate: Rate = text.parse().unwrap();
            let end = rate.advance(start, gap);
            prop_assert!(end >= start);
            let area = rate.expected(end as u64) - rate.expected(start as u64);
            // Both ends are cut to whole nanoseconds.
            prop_assert!((area - gap).abs() < 1e-4 * (1.0 + gap), "{text}: {start} + {gap} -> {end}, area {area}");
        }
    }
}
