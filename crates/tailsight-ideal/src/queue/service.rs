//! Service times. In: a text such as `bimodal:10,0.1`, a mean. Out: how long each request is served, ns.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rand::RngExt;
use rand_distr::{Distribution, Exp1, StandardNormal};
use tailsight_units::parse;

use crate::queue::{QueueError, Rng};

/// How long requests are served, up to the mean.
#[derive(Debug, Clone, PartialEq)]
pub enum ServiceTimes {
    /// All alike: `D` (or `fixed`).
    Deterministic,
    /// Exponential: `M` (or `exponential`).
    Exponential,
    /// Lognormal with this standard deviation of the logarithm: `lognormal:1.5`.
    Lognormal(f64),
    /// This many times as long with this probability: `bimodal:10,0.1`.
    Bimodal {
        /// The long service time over the short one, above 1.
        ratio: f64,
        /// The probability of a long one, between 0 and 1.
        share: f64,
    },
    /// Drawn from these, ns, each as likely as any other: `empirical`, which has none yet; they come with
    /// [`ServiceTimes::empirical`].
    Empirical(Arc<[u64]>),
}

const FORMS: &str = "D (all alike), M (exponential), lognormal:SIGMA, bimodal:RATIO,SHARE (such as bimodal:10,0.1: one in ten takes \
                     ten times as long) or empirical";

impl ServiceTimes {
    /// Drawn from measured ones, ns.
    ///
    /// # Errors
    /// [`QueueError::NoService`] when there are none, or all are zero.
    pub fn empirical(measured: &[u64]) -> Result<Self, QueueError> {
        if measured.iter().all(|ns| *ns == 0) {
            return Err(QueueError::NoService);
        }
        Ok(Self::Empirical(measured.into()))
    }

    /// The second moment over the squared mean: 1 plus the squared coefficient of variation.
    #[must_use]
    pub fn second_moment(&self) -> f64 {
        match self {
            Self::Deterministic => 1.0,
            Self::Exponential => 2.0,
            Self::Lognormal(sigma) => (sigma * sigma).exp(),
            Self::Bimodal { ratio, share } => {
                (1.0 - share + share * ratio * ratio) / (1.0 - share + share * ratio).powi(2)
            }
            Self::Empirical(times) => {
                let n = times.len() as f64;
                let mean = times.iter().map(|t| *t as f64).sum::<f64>() / n;
                times.iter().map(|t| (*t as f64).powi(2)).sum::<f64>() / n / (mean * mean)
            }
        }
    }

    /// What draws from them with this mean, ns.
    #[must_use]
    pub fn with_mean(&self, mean_ns: f64) -> ServiceDraw {
        ServiceDraw(match self {
            Self::Deterministic => Kind::Deterministic(mean_ns.round() as u64),
            Self::Exponential => Kind::Exponential(mean_ns),
            Self::Lognormal(sigma) => Kind::Lognormal { mu: mean_ns.ln() - sigma * sigma / 2.0, sigma: *sigma },
            Self::Bimodal { ratio, share } => {
                let short = mean_ns / (1.0 - share + share * ratio);
                Kind::Bimodal { short: short.round() as u64, long: (short * ratio).round() as u64, share: *share }
            }
            Self::Empirical(times) => {
                let mean = times.iter().map(|t| *t as f64).sum::<f64>() / times.len() as f64;
                Kind::Empirical(times.iter().map(|t| (*t as f64 * mean_ns / mean).round() as u64).collect())
            }
        })
    }
}

/// Draws service times.
#[derive(Debug, Clone)]
pub struct ServiceDraw(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Deterministic(u64),
    Exponential(f64),
    Lognormal { mu: f64, sigma: f64 },
    Bimodal { short: u64, long: u64, share: f64 },
    Empirical(Box<[u64]>),
}

impl ServiceDraw {
    /// The next one, ns.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match &self.0 {
            Kind::Deterministic(ns) => *ns,
            Kind::Exponential(mean) => {
                let unit: f64 = Exp1.sample(rng);
                (unit * mean).round() as u64
            }
            Kind::Lognormal { mu, sigma } => {
                let z: f64 = StandardNormal.sample(rng);
                (mu + sigma * z).exp().round() as u64
            }
            Kind::Bimodal { short, long, share } => {
                if rng.random::<f64>() < *share {
                    *long
                } else {
                    *short
                }
            }
            Kind::Empirical(times) => times[rng.random_range(0..times.len())],
        }
    }
}

impl FromStr for ServiceTimes {
    type Err = QueueError;

    fn from_str(text: &str) -> Result<Self, QueueError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let parsed = match name {
            "D" | "fixed" if rest.is_empty() => Some(Self::Deterministic),
            "M" | "exponential" if rest.is_empty() => Some(Self::Exponential),
            "lognormal" => parse::list(rest).map(|[sigma]| Self::Lognormal(sigma)),
            "bimodal" => parse::list(rest).map(|[ratio, share]| Self::Bimodal { ratio, share }),
            "empirical" if rest.is_empty() => Some(Self::Empirical(Arc::from([]))),
            _ => None,
        };
        let valid = |service: &Self| match *service {
            Self::Lognormal(sigma) => sigma > 0.0 && sigma <= 5.0,
            Self::Bimodal { ratio, share } => ratio > 1.0 && ratio <= 1e6 && share > 0.0 && share < 1.0,
            _ => true,
        };
        let error = || QueueError::Parse { what: "a service time distribution", text: text.into(), expected: FORMS };
        parsed.filter(valid).ok_or_else(error)
    }
}

impl fmt::Display for ServiceTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deterministic => f.write_str("D"),
            Self::Exponential => f.write_str("M"),
            Self::Lognormal(sigma) => write!(f, "lognormal:{sigma}"),
            Self::Bimodal { ratio, share } => write!(f, "bimodal:{ratio},{share}"),
            Self::Empirical(_) => f.write_str("empirical"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_mean_and_the_second_moment_of_their_formula() {
        let measured = ServiceTimes::empirical(&[100, 200, 600]).unwrap();
        for (service, second) in [
            ("D".parse().unwrap(), 1.0),
            ("M".parse().unwrap(), 2.0),
            ("lognormal:0.5".parse().unwrap(), 0.25_f64.exp()),
            ("bimodal:10,0.1".parse().unwrap(), (0.9 + 0.1 * 100.0) / 3.61),
            (measured, (1.0 + 4.0 + 36.0) / 27.0),
        ] {
            let service: ServiceTimes = service;
            assert!((service.second_moment() / second - 1.0).abs() < 1e-9, "{service}");
            let (draw, mut rng) = (service.with_mean(50_000.0), crate::queue::rng(3, 1));
            let times: Vec<f64> = (0..400_000).map(|_| draw.draw(&mut rng) as f64).collect();
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            let second_moment = times.iter().map(|t| t * t).sum::<f64>() / times.len() as f64 / (mean * mean);
            assert!((mean / 50_000.0 - 1.0).abs() < 0.01, "{service}: mean {mean}");
            assert!(
                (second_moment / second - 1.0).abs() < 0.02,
                "{service}: second moment {second_moment}, expected {second}"
            );
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["", "G", "d", "D:1", "lognormal", "lognormal:0", "bimodal:10", "bimodal:1,0.1", "bimodal:2,1"] {
            assert!(bad.parse::<ServiceTimes>().is_err(), "{bad}");
        }
        assert_eq!(ServiceTimes::empirical(&[]), Err(QueueError::NoService));
        assert_eq!(ServiceTimes::empirical(&[0, 0]), Err(QueueError::NoService));
    }
}
