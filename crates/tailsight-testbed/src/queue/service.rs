//! Service times as in Lancet §6. In: a distribution and a source of chance. Out: ns.

use rand::{Rng, RngExt};

use crate::{Error, Result};
use tailsight_units::parse;

/// A distribution of service times; `mean_ns` is its mean but for `Bimodal`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Service {
    /// Always the same, ns.
    Fixed(f64),
    /// Exponential with this mean, ns.
    Exponential(f64),
    /// 90 % take this, ns, and 10 % ten times as much.
    Bimodal(f64),
    /// Lognormal with this mean, ns, and σ = 1.
    Lognormal(f64),
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, ns) = match *self {
            Self::Fixed(ns) => ("fixed", ns),
            Self::Exponential(ns) => ("exponential", ns),
            Self::Bimodal(ns) => ("bimodal", ns),
            Self::Lognormal(ns) => ("lognormal", ns),
        };
        write!(f, "{name}:{}us", ns / 1e3)
    }
}

impl std::str::FromStr for Service {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::Parse {
            what: "service time",
            text: text.into(),
            expected: "fixed:10us, exponential:10us, bimodal:5us (90 % take it, 10 % ten times it) or lognormal:10us",
        };
        let (name, time) = text.split_once(':').ok_or_else(bad)?;
        let ns = parse::duration(time).map_err(|_| bad())?.as_nanos() as f64;
        match name {
            "fixed" => Ok(Self::Fixed(ns)),
            "exponential" => Ok(Self::Exponential(ns)),
            "bimodal" => Ok(Self::Bimodal(ns)),
            "lognormal" => Ok(Self::Lognormal(ns)),
            _ => Err(bad()),
        }
    }
}

impl Service {
    /// Draws a service time, ns; at least 1, so that a request that carries it is not asked to draw again.
    pub fn draw(self, rng: &mut impl Rng) -> u32 {
        // Both are in (0, 1]: their logarithms are finite.
        let mut uniform = || 1.0 - rng.random::<f64>();
        let ns = match self {
            Self::Fixed(ns) => ns,
            Self::Exponential(mean) => -mean * uniform().ln(),
            Self::Bimodal(ns) => {
                if uniform() <= 0.1 {
                    10.0 * ns
                } else {
                    ns
                }
            }
            Self::Lognormal(mean) => {
                let normal = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
                // The mean of exp(µ + σN) is exp(µ + σ²/2).
                mean * (normal - 0.5).exp()
            }
        };
        (ns as u32).max(1)
    }

    /// The mean, ns.
    #[must_use]
    pub fn mean_ns(self) -> f64 {
        match self {
            Self::Fixed(ns) | Self::Exponential(ns) | Self::Lognormal(ns) => ns,
            Self::Bimodal(ns) => 1.9 * ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    /// Mean and coefficient of variation of 200,000 draws.
    fn moments(service: Service) -> (f64, f64) {
        let mut rng = StdRng::seed_from_u64(3);
        let draws: Vec<f64> = (0..200_000).map(|_| f64::from(service.draw(&mut rng))).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        (mean, variance.sqrt() / mean)
    }

    #[test]
    fn draws_have_the_moments_of_their_distribution() {
        for (text, cv) in [
            ("fixed:10us", 0.0),
            ("exponential:10us", 1.0),
            // (0.9 + 0.1·100 − 1.9²)^½ / 1.9
            ("bimodal:10us", 2.7 / 1.9),
            // (e − 1)^½
            ("lognormal:10us", 1.3108),
        ] {
            let service: Service = text.parse().unwrap();
            let (mean, measured_cv) = moments(service);
            assert!((mean / service.mean_ns() - 1.0).abs() < 0.02, "{text}: mean {mean}");
            assert!((measured_cv - cv).abs() < 0.06, "{text}: cv {measured_cv}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in ["", "10us", "fixed", "fixed:10", "pareto:10us", "fixed:0us"] {
            assert!(bad.parse::<Service>().is_err(), "{bad:?}");
        }
    }
}
