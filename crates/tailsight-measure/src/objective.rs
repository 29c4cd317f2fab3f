//! An objective, as `p99<500us`: a percentile and its limit.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_stats::method::percentile_name;

use crate::Error;

/// A percentile and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Objective {
    /// Inside 0..1.
    pub quantile: f64,
    /// The percentile must be below this, ns.
    pub limit_ns: f64,
}

/// Confidence that a decision must have.
pub const LEVEL: f64 = 0.95;

/// On which side of its limit an objective is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The percentile is below the limit, with 95 % confidence.
    Met,
    /// It is not, with 95 % confidence.
    Missed,
    /// Neither is shown.
    #[default]
    Open,
}

impl Objective {
    /// For a sentence: `p99 < 10.0 s`.
    #[must_use]
    pub fn words(&self) -> String {
        let limit = tailsight_units::format::duration(self.limit_ns.round() as u64);
        format!("{} < {limit}", percentile_name(self.quantile))
    }
}

impl FromStr for Objective {
    type Err = Error;

    /// Reads `p99<500us`, and `p99:500us`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (quantile, limit_ns) =
            tailsight_units::parse::objective(text).map_err(|wrong| Error::Contradiction(wrong.to_string()))?;
        Ok(Self { quantile, limit_ns: limit_ns as f64 })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}<{}us", percentile_name(self.quantile), self.limit_ns / 1e3)
    }
}

impl TryFrom<String> for Objective {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Objective> for String {
    fn from(objective: Objective) -> Self {
        objective.to_string()
    }
}
