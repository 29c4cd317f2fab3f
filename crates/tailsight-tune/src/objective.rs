//! What a session is for: a percentile that is to be as low as possible, or below a limit. In: text, and percentiles of windows, ns. Out: whether
//! the limit is met.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_stats::quantile::name;
use tailsight_stats::special::student_quantile;
use tailsight_units::{format, parse};

/// A percentile, and its limit where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Objective {
    /// The quantile, from [`Objective::LOWEST`] up, below 1.
    pub quantile: f64,
    /// The percentile is to be below this, ns; without it, as low as the fixes make it.
    pub limit_ns: Option<u64>,
}

/// The percentile of some windows, and on which side of the limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// Windows that show the percentile.
    pub windows: usize,
    /// Geometric mean of the windows' percentiles, ns.
    pub mean_ns: f64,
    /// Its 95 % interval, ns.
    pub ci95_ns: [f64; 2],
}

impl Objective {
    /// The lowest quantile: a diagnosis explains slow messages by median ones, so that it knows no fixes of lower percentiles.
    pub const LOWEST: f64 = 0.9;

    /// The percentile's name, as `p99.9`.
    #[must_use]
    pub fn percentile(&self) -> String {
        name(self.quantile)
    }

    /// In words: `p99.9 as low as possible`, `p99 below 5.00 ms`.
    #[must_use]
    pub fn words(&self) -> String {
        match self.limit_ns {
            None => format!("{} as low as possible", self.percentile()),
            Some(limit) => format!("{} below {}", self.percentile(), format::duration(limit)),
        }
    }

    /// Whether the level's whole interval is below the limit; never without a limit.
    #[must_use]
    pub fn is_met(&self, level: &Level) -> bool {
        self.limit_ns.is_some_and(|limit| level.ci95_ns[1] < limit as f64)
    }
}

impl Level {
    /// Of the percentiles of windows, ns. `None` for fewer than three.
    #[must_use]
    pub fn of(windows_ns: &[f64]) -> Option<Level> {
        if windows_ns.len() < 3 {
            return None;
        }
        let n = windows_ns.len() as f64;
        let logs: Vec<f64> = windows_ns.iter().map(|ns| ns.max(1.0).ln()).collect();
        let mean = logs.iter().sum::<f64>() / n;
        let deviation = (logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        let half = student_quantile(0.975, n - 1.0) * deviation / n.sqrt();
        Some(Level {
            windows: windows_ns.len(),
            mean_ns: mean.exp(),
            ci95_ns: [(mean - half).exp(), (mean + half).exp()],
        })
    }
}

impl FromStr for Objective {
    type Err = String;

    /// Reads `p99.9 min` and `p99 < 5ms`.
    fn from_str(text: &str) -> Result<Objective, String> {
        let refused = || format!("`{text}` is not an objective; write 'p99.9 min' or 'p99 < 5ms'");
        let objective = match text.trim().strip_suffix("min") {
            // Any limit: only the percentile is read.
            Some(percentile) => {
                let (quantile, _) = parse::objective(&format!("{percentile}<1s")).map_err(|_| refused())?;
                Objective { quantile, limit_ns: None }
            }
            None => {
                let (quantile, limit_ns) = parse::objective(text).map_err(|_| refused())?;
                Objective { quantile, limit_ns: Some(limit_ns) }
            }
        };
        if objective.quantile < Objective::LOWEST {
            return Err(format!(
                "`{text}`: a diagnosis explains slow messages by median ones, so an objective is about p90 or above"
            ));
        }
        Ok(objective)
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit_ns {
            None => write!(f, "{} min", self.percentile()),
            Some(limit) => write!(f, "{} < {}", self.percentile(), parse::write_duration(limit)),
        }
    }
}

impl TryFrom<String> for Objective {
    type Error = String;
    fn try_from(text: String) -> Result<Objective, String> {
        text.parse()
    }
}

impl From<Objective> for String {
    fn from(objective: Objective) -> String {
        objective.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_reads_back() {
        let objective: Objective = "p99.9 min".parse().unwrap();
        assert_eq!(objective, Objective { quantile: 0.999, limit_ns: None });
        assert_eq!(objective.to_string().parse(), Ok(objective));
        let objective: Objective = "p99 < 5ms".parse().unwrap();
        assert_eq!(objective, Objective { quantile: 0.99, limit_ns: Some(5_000_000) });
        assert_eq!((objective.to_string().parse(), objective.to_string().as_str()), (Ok(objective), "p99 < 5ms"));
        for (wrong, why) in [("p99", "p99.9 min"), ("p50 min", "p90 or above"), ("min", "write"), ("p99<0ms", "write")]
        {
            assert!(wrong.parse::<Objective>().unwrap_err().contains(why), "{wrong}");
        }
    }

    #[test]
    fn a_limit_is_met_by_the_whole_interval() {
        let objective: Objective = "p99 < 5ms".parse().unwrap();
        let level = Level::of(&[4e6, 4.1e6, 4.2e6, 4.05e6]).unwrap();
        assert!(objective.is_met(&level) && level.mean_ns < 4.2e6 && level.ci95_ns[0] < level.mean_ns, "{level:?}");
        let wide = Level::of(&[3e6, 4.9e6, 6e6, 3.1e6]).unwrap();
        assert!(!objective.is_met(&wide) && wide.mean_ns < 5e6, "{wide:?}");
        assert!(!"p99 min".parse::<Objective>().unwrap().is_met(&level));
        assert_eq!(Level::of(&[1.0, 2.0]), None);
    }
}
