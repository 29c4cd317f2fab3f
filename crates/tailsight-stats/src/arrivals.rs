//! Inter-arrival processes. In: a text such as `lognormal:1.5` and a seed. Out: gaps in units of the mean gap.
//!
//! Gaps have mean one; a rate turns them into time, so every process goes with every rate, of a model and of the load
//! generator.

use std::fmt;
use std::str::FromStr;

use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

use tailsight_units::parse;

use crate::Error;
use crate::random::Generator;

/// How the gaps between arrivals are drawn, up to their mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ArrivalProcess {
    /// Equal gaps, which Tales of the Tail calls uniform arrivals: `fixed`.
    Fixed,
    /// Exponential gaps, the Poisson process: `exponential` (or `poisson`).
    Exponential,
    /// Lognormal gaps with this standard deviation of the logarithm: `lognormal:1.5`.
    Lognormal(f64),
    /// Pareto gaps (type I) with this shape, above 1: `pareto:1.5`.
    Pareto(f64),
    /// Generalised Pareto gaps with this shape, below 1: `gpareto:0.154971` (Facebook's, Atikoglu et al. 2012).
    GeneralisedPareto(f64),
    /// Bursts: a Poisson process whose rate switches between two levels (MMPP): `mmpp:8,0.1,10ms`.
    Mmpp {
        /// Rate in a burst over the rate between bursts, above 1.
        ratio: f64,
        /// Share of the time that is in bursts, between 0 and 1.
        share: f64,
        /// Mean length of a burst, ns (exponential, as that of the pauses).
        burst_ns: u64,
    },
}

/// The texts that are read, for an error message.
pub const FORMS: &str = "fixed, exponential, lognormal:SIGMA, pareto:SHAPE (above 1), gpareto:SHAPE (below 1) or \
                         mmpp:RATIO,SHARE,BURST (such as mmpp:8,0.1,10ms)";

impl ArrivalProcess {
    fn valid(&self) -> bool {
        match *self {
            Self::Fixed | Self::Exponential => true,
            Self::Lognormal(sigma) => sigma > 0.0 && sigma <= 5.0,
            Self::Pareto(shape) => shape > 1.0,
            Self::GeneralisedPareto(shape) => shape > -10.0 && shape < 1.0,
            Self::Mmpp { ratio, share, burst_ns } => ratio > 1.0 && share > 0.0 && share < 1.0 && burst_ns > 0,
        }
    }
}

impl FromStr for ArrivalProcess {
    type Err = Error;

    fn from_str(input: &str) -> Result<Self, Error> {
        let (name, rest) = input.split_once(':').unwrap_or((input, ""));
        let number = || parse::list(rest).map(|[x]| x);
        let arrivals = match name {
            "fixed" if rest.is_empty() => Some(Self::Fixed),
            "exponential" | "poisson" if rest.is_empty() => Some(Self::Exponential),
            "lognormal" => number().map(Self::Lognormal),
            "pareto" => number().map(Self::Pareto),
            "gpareto" => number().map(Self::GeneralisedPareto),
            "mmpp" => rest.rsplit_once(',').and_then(|(numbers, burst)| {
                let [ratio, share] = parse::list(numbers)?;
                Some(Self::Mmpp { ratio, share, burst_ns: parse::duration_ns(burst)? })
            }),
            _ => None,
        };
        let error = || Error::NoProcess { text: input.into(), expected: FORMS };
        arrivals.filter(Self::valid).ok_or_else(error)
    }
}

impl fmt::Display for ArrivalProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed => f.write_str("fixed"),
            Self::Exponential => f.write_str("exponential"),
            Self::Lognormal(sigma) => write!(f, "lognormal:{sigma}"),
            Self::Pareto(shape) => write!(f, "pareto:{shape}"),
            Self::GeneralisedPareto(shape) => write!(f, "gpareto:{shape}"),
            Self::Mmpp { ratio, share, burst_ns } => {
                write!(f, "mmpp:{ratio},{share},{}", parse::write_duration(*burst_ns))
            }
        }
    }
}

impl TryFrom<String> for ArrivalProcess {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<ArrivalProcess> for String {
    fn from(arrivals: ArrivalProcess) -> Self {
        arrivals.to_string()
    }
}

/// Draws gaps of mean one.
#[derive(Debug, Clone)]
pub struct Gaps {
    kind: Kind,
    rng: Generator,
}

#[derive(Debug, Clone)]
enum Kind {
    Fixed {
        first: bool,
    },
    Exponential,
    Lognormal {
        sigma: f64,
    },
    Pareto {
        shape: f64,
    },
    GeneralisedPareto {
        shape: f64,
    },
    /// Rates relative to the mean, mean stays in mean gaps, and what is left of the present stay.
    Mmpp {
        rates: [f64; 2],
        stays: [f64; 2],
        state: usize,
        left: f64,
    },
}

impl Gaps {
    /// The gaps of a process; `mean_rate` in requests/s places MMPP's times on the scale of the gaps.
    #[must_use]
    pub fn new(process: &ArrivalProcess, mean_rate: f64, rng: Generator) -> Self {
        let kind = match *process {
            ArrivalProcess::Fixed => Kind::Fixed { first: true },
            ArrivalProcess::Exponential => Kind::Exponential,
            ArrivalProcess::Lognormal(sigma) => Kind::Lognormal { sigma },
            ArrivalProcess::Pareto(shape) => Kind::Pareto { shape },
            ArrivalProcess::GeneralisedPareto(shape) => Kind::GeneralisedPareto { shape },
            ArrivalProcess::Mmpp { ratio, share, burst_ns } => {
                let quiet = 1.0 / (1.0 + share * (ratio - 1.0));
                let burst = burst_ns as f64 * mean_rate / 1e9;
                let stays = [burst * (1.0 - share) / share, burst];
                Kind::Mmpp { rates: [quiet, quiet * ratio], stays, state: 0, left: -1.0 }
            }
        };
        Self { kind, rng }
    }

    /// The next gap, in mean gaps.
    pub fn next_gap(&mut self) -> f64 {
        let rng = &mut self.rng;
        match &mut self.kind {
            // A phase of its own, or several fixed loads would all be due at the same instants.
            Kind::Fixed { first: first @ true } => {
                *first = false;
                rng.random()
            }
            Kind::Fixed { .. } => 1.0,
            Kind::Exponential => exponential(rng),
            Kind::Lognormal { sigma } => {
                let z: f64 = StandardNormal.sample(rng);
                (*sigma * z - *sigma * *sigma / 2.0).exp()
            }
            Kind::Pareto { shape } => (*shape - 1.0) / *shape * (1.0 - rng.random::<f64>()).powf(-1.0 / *shape),
            Kind::GeneralisedPareto { shape } => (1.0 - *shape) * generalised_pareto(*shape, 1.0 - rng.random::<f64>()),
            Kind::Mmpp { rates, stays, state, left } => {
                if *left < 0.0 {
                    // Start as one that has run for ever: in a burst with the share of bursts.
                    *state = usize::from(rng.random::<f64>() < stays[1] / (stays[0] + stays[1]));
                    *left = exponential(rng) * stays[*state];
                }
                let mut gap = 0.0;
                loop {
                    let draw = exponential(rng) / rates[*state];
                    if draw <= *left {
                        *left -= draw;
                        return gap + draw;
                    }
                    // No arrival before the rate switches; what was drawn is forgotten, as an exponential may be.
                    gap += *left;
                    *state ^= 1;
                    *left = exponential(rng) * stays[*state];
                }
            }
        }
    }
}

/// The standard generalised Pareto quantile of the upper tail probability `u`, above 0 and at most 1.
#[must_use]
pub fn generalised_pareto(shape: f64, u: f64) -> f64 {
    if shape == 0.0 { -u.ln() } else { (u.powf(-shape) - 1.0) / shape }
}

/// An exponential with mean one.
fn exponential(rng: &mut Generator) -> f64 {
    rand_distr::Exp1.sample(rng)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(text: &str, n: usize) -> Vec<f64> {
        let process: ArrivalProcess = text.parse().unwrap();
        assert_eq!(process.to_string().parse::<ArrivalProcess>().unwrap(), process);
        let mut gaps = Gaps::new(&process, 10_000.0, crate::random::generator(5, 0));
        (0..n).map(|_| gaps.next_gap()).collect()
    }

    fn moments(gaps: &[f64]) -> (f64, f64) {
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        (mean, variance.sqrt() / mean)
    }

    #[test]
    fn gaps_have_mean_one_and_the_spread_of_their_formula() {
        // Coefficients of variation in closed form.
        for (text, cv, tolerance) in [
            ("fixed", 0.0, 0.01),
            ("exponential", 1.0, 0.02),
            ("lognormal:0.5", (0.25_f64.exp() - 1.0).sqrt(), 0.02),
            ("pareto:4", (1.0_f64 / (4.0 * 2.0)).sqrt(), 0.05),
            ("gpareto:0.154971", (1.0_f64 / (1.0 - 2.0 * 0.154_971)).sqrt(), 0.05),
        ] {
            let (mean, spread) = moments(&draw(text, 300_000));
            assert!((mean - 1.0).abs() < 0.02, "{text}: mean {mean}");
            assert!((spread - cv).abs() < tolerance, "{text}: cv {spread}, expected {cv}");
        }
    }

    #[test]
    fn bursts_keep_the_mean_rate_and_are_bursty() {
        let (mean, spread) = moments(&draw("mmpp:8,0.1,10ms", 2_000_000));
        assert!((mean - 1.0).abs() < 0.03, "mean {mean}");
        assert!(spread > 1.2, "cv {spread}");
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["", "poisson:2", "pareto:1", "lognormal", "mmpp:1,0.1,1ms", "mmpp:8,0.1", "replay:f", "closed:1"] {
            assert!(bad.parse::<ArrivalProcess>().is_err(), "{bad}");
        }
    }
}
