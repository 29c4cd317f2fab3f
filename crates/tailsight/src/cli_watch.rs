//! The command line of `watch`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tailsight_record::SampleRate;
use tailsight_watch::Condition;

use crate::cli::{duration, sample_rate, size};
use crate::cli_common::Target;

/// `watch`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("target").required(true)
)]
pub struct Watch {
    /// Who is watched.
    #[command(flatten)]
    pub target: Target,
    /// Print what was captured into the folder of --out, and watch nothing
    #[arg(long, group = "target")]
    pub status: bool,
    /// What makes a message slow: a time or a percentile of the last five minutes for total, receive or service, such as
    /// 'total > 20ms', 'p99.9' (of total) or 'receive > 5ms, service > p99'
    #[arg(long, value_name = "CONDITION", default_value = "p99.9", value_parser = |t: &str| t.parse::<Condition>())]
    pub when: Condition,
    /// The folder of the captures, a run each
    #[arg(short, long, value_name = "DIR", default_value = "tailsight-watch")]
    pub out: PathBuf,
    /// How far back a capture goes before the slow message came, as far as the buffers hold
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub keep: Duration,
    /// How long recording goes on behind a slow message before it is captured
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "200ms")]
    pub after: Duration,
    /// Capture no more often than this
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1m", help_heading = "Limits")]
    pub every: Duration,
    /// Captures in an hour at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=3_600), help_heading = "Limits")]
    pub per_hour: usize,
    /// Room for all captures: beyond it the oldest are deleted; what they showed stays in captures.jsonl
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "2G", help_heading = "Limits")]
    pub disk: u64,
    /// End after so many captures
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Limits")]
    pub captures: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = duration, help_heading = "Limits")]
    pub length: Option<Duration>,
    /// Memory for all event buffers, which hold the last events [default: 1/32 of the memory, at most 128M]
    #[arg(long, value_parser = size, value_name = "SIZE", help_heading = "Memory and files")]
    pub buffer: Option<u64>,
    /// Allow an output directory that another user can write to
    #[arg(long, help_heading = "Memory and files")]
    pub into_shared: bool,
    /// How often per second a clock on each core takes a sample of what the server's threads run, or `off`: as of record, but outside of
    /// slow messages one tick of eight takes one
    #[arg(long, value_name = "RATE|off", value_parser = sample_rate, default_value = "usual", hide_default_value = true, help_heading = "What is recorded")]
    pub sample: SampleRate,
    /// Do not look at the tasks of runtimes (goroutines, asyncio)
    #[arg(long, help_heading = "What is recorded")]
    pub no_tasks: bool,
    /// Serve metrics (OpenMetrics, at /metrics) at this address, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS", value_parser = |t: &str| t.parse::<SocketAddr>().map_err(|_| format!("`{t}` is not an address with a port, such as 127.0.0.1:9464")), help_heading = "Metrics")]
    pub listen: Option<SocketAddr>,
    /// Print a line of JSON for each capture, and at the begin and the end
    #[arg(long)]
    pub json: bool,
}
