//! When requests are due, as text. In: a text such as `lognormal:1.5` or `closed:4`. Out: an arrival process of
//! `tailsight-stats`, recorded times, or a closed loop.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_stats::arrivals::ArrivalProcess;
use tailsight_units::parse;

use crate::LoadError;

/// When requests are due.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum Arrivals {
    /// Gaps that are drawn, whatever the server does: `exponential`, `lognormal:1.5` and the others of [`ArrivalProcess`].
    Drawn(ArrivalProcess),
    /// The times in a file: `replay:FILE`.
    Replay(PathBuf),
    /// Not an open loop: each connection keeps this many requests outstanding, and the next is due when one is answered:
    /// `closed:4`. Such a load slows down with the server and underestimates the latency that open-loop traffic would see.
    Closed(u32),
    /// Not an open loop either: each connection sends this many requests in one call, waits for all their replies, and
    /// repeats: `batch:64`. What other tools call pipelining; it finds how much a server can do, not how fast it answers.
    Batch(u32),
}

const FORMS: &str = "fixed, exponential, lognormal:SIGMA, pareto:SHAPE (above 1), gpareto:SHAPE (below 1), \
                     mmpp:RATIO,SHARE,BURST (such as mmpp:8,0.1,10ms), replay:FILE, closed:OUTSTANDING or batch:REQUESTS";

impl Arrivals {
    /// Equal gaps.
    pub const FIXED: Self = Self::Drawn(ArrivalProcess::Fixed);
    /// The Poisson process.
    pub const EXPONENTIAL: Self = Self::Drawn(ArrivalProcess::Exponential);

    /// How many requests a closed loop keeps outstanding on a connection; `None` for open loops.
    #[must_use]
    pub fn outstanding(&self) -> Option<u32> {
        match *self {
            Self::Closed(requests) | Self::Batch(requests) => Some(requests),
            Self::Drawn(_) | Self::Replay(_) => None,
        }
    }

    /// Whether it is a closed loop.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.outstanding().is_some()
    }
}

impl FromStr for Arrivals {
    type Err = LoadError;

    fn from_str(input: &str) -> Result<Self, LoadError> {
        let (name, rest) = input.split_once(':').unwrap_or((input, ""));
        let requests = || parse::whole(rest).and_then(|n| u32::try_from(n).ok()).filter(|n| (1..=65_536).contains(n));
        let arrivals = match name {
            "replay" => (!rest.is_empty()).then(|| Self::Replay(rest.into())),
            "closed" => requests().map(Self::Closed),
            "batch" => requests().map(Self::Batch),
            _ => input.parse().ok().map(Self::Drawn),
        };
        arrivals.ok_or_else(|| LoadError::parse("an arrival process", input, FORMS))
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drawn(process) => process.fmt(f),
            Self::Replay(path) => write!(f, "replay:{}", path.display()),
            Self::Closed(requests) => write!(f, "closed:{requests}"),
            Self::Batch(requests) => write!(f, "batch:{requests}"),
        }
    }
}

impl TryFrom<String> for Arrivals {
    type Error = LoadError;
    fn try_from(text: String) -> Result<Self, LoadError> {
        text.parse()
    }
}

impl From<Arrivals> for String {
    fn from(arrivals: Arrivals) -> Self {
        arrivals.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for text in
            ["fixed", "exponential", "lognormal:1.5", "mmpp:8,0.1,10ms", "replay:a:b/c", "closed:4", "batch:65536"]
        {
            assert_eq!(text.parse::<Arrivals>().unwrap().to_string(), text);
        }
        assert_eq!("poisson".parse::<Arrivals>().unwrap(), Arrivals::EXPONENTIAL);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in
            ["", "poisson:2", "pareto:1", "lognormal", "mmpp:1,0.1,1ms", "mmpp:8,0.1", "replay:", "closed:0", "closed"]
        {
            let error = bad.parse::<Arrivals>().unwrap_err().to_string();
            assert!(error.contains("closed:OUTSTANDING"), "{bad}: {error}");
        }
    }
}
