//! What several commands share on the command line: the question of a diagnosis, and values that more than one of them takes. In: words.
//! Out: data, or why a word is none.

use std::path::PathBuf;

use clap::Args;
use tailsight_lifetime::Leg;
use tailsight_load::Protocol;
use tailsight_stats::method::PercentileGoal;
use tailsight_units::parse;

/// What `diagnose` and `report` share.
#[derive(Clone, Debug, Args)]
pub struct Question {
    /// The messages under study, by percentile of latency [default: p99..p100, wider where that holds too few]
    #[arg(long, value_name = "SLICE", value_parser = slice, allow_hyphen_values = true)]
    pub focus: Option<String>,
    /// The messages to compare them with [default: p45..p55, wider where that holds too few]
    #[arg(long, value_name = "SLICE", value_parser = slice, allow_hyphen_values = true)]
    pub reference: Option<String>,
    /// receive, service, transmit or total [default: total; where most messages have no reply, the longest leg they have]
    #[arg(long, value_name = "LEG")]
    pub leg: Option<Leg>,
    /// Replace a frame by its nested frames when they explain at least this part of its deviation (above 0, at most 1)
    #[arg(long, value_name = "PART", default_value_t = 0.8, value_parser = part, help_heading = "Analysis")]
    pub nest: f64,
    /// Ignore differences of a message up to this, e.g. 300ns or 1us
    #[arg(long, value_name = "TIME", default_value = "300ns", value_parser = nanoseconds, help_heading = "Analysis")]
    pub granularity: u64,
    /// A category table of your own (docs/categories.md)
    #[arg(long, value_name = "FILE", help_heading = "Analysis")]
    pub categories: Option<PathBuf>,
    /// A table of runtime functions of your own, used before the built-in one (docs/functions.md)
    #[arg(long, value_name = "FILE", help_heading = "Analysis")]
    pub runtimes: Option<PathBuf>,
}

/// A text that is a slice. One that holds too few messages is found with the messages: it is N/A, not wrong usage.
fn slice(text: &str) -> Result<String, String> {
    tailsight_diagnose::parse_focus(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// A process id.
pub fn process(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a process id: write a number; `pgrep -a NAME` finds it"))
}

fn part(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|p| *p > 0.0 && *p <= 1.0)
        .ok_or_else(|| format!("`{text}` is not a share; write a number above 0 and at most 1, such as 0.8"))
}

pub fn nanoseconds(text: &str) -> Result<u64, String> {
    parse::duration_ns(text).ok_or_else(|| format!("{text:?} is not a time: write for example 300ns or 1us"))
}

/// An application protocol by its name.
pub fn protocol(text: &str) -> Result<Protocol, String> {
    let names = || Protocol::ALL.map(Protocol::name).join(", ");
    text.parse().map_err(|_| format!("`{text}` is not a protocol; allowed: {}", names()))
}

/// A percentile such as p99.9, as a quantile.
pub fn percentile(text: &str) -> Result<f64, String> {
    let target: PercentileGoal =
        text.trim().parse().map_err(|_| format!("`{text}` is not a percentile such as p99.9"))?;
    Ok(target.quantile)
}
