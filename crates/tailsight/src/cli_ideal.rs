//! `ideal` as data: its words on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tailsight_ideal::Objective;
use tailsight_ideal::queue::{Discipline, Model};
use tailsight_load::Protocol;
use tailsight_units::parse;

use crate::cli_common::{percentile, process, protocol};

/// `ideal`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("of").required(true).multiple(true)
)]
pub struct Ideal {
    /// The run directory: a recorded server beside the ideal on its own arrivals
    #[arg(value_name = "RUN", group = "of")]
    pub run: Option<PathBuf>,
    /// A queue instead, such as 'M/D/4 80%'
    #[arg(long, value_name = "MODEL", value_parser = |t: &str| t.parse::<Model>(), group = "of", conflicts_with_all = ["run", "calibrate", "calibration", "workers"])]
    pub model: Option<Model>,
    /// Saturate this server, such as memcached://localhost:11211, to measure its service time
    #[arg(long, value_name = "TARGET", group = "of")]
    pub calibrate: Option<String>,
    /// The service time of an earlier --calibrate
    #[arg(long, value_name = "FILE", conflicts_with_all = ["calibrate", "service"], requires = "run")]
    pub calibration: Option<PathBuf>,
    /// How many requests the server serves at once [default: told from the run; with --calibrate alone 1]
    #[arg(long, value_name = "N", value_parser = workers)]
    pub workers: Option<usize>,
    /// With --calibrate: what is spoken, where the target does not say
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol, requires = "calibrate", help_heading = "Calibration")]
    pub protocol: Option<Protocol>,
    /// With --calibrate: connections, over all threads
    #[arg(long, value_name = "N", default_value_t = 16, requires = "calibrate", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Calibration")]
    pub connections: u32,
    /// With --calibrate: loading threads
    #[arg(long, value_name = "N", default_value_t = 1, requires = "calibrate", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Calibration")]
    pub threads: u32,
    /// With --calibrate: the length of each window
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "calibrate", value_parser = parse::duration, help_heading = "Calibration")]
    pub window: Duration,
    /// With --calibrate: the server's process on this host, to see whether it is saturated
    #[arg(long, value_name = "PID", value_parser = process, requires = "calibrate", help_heading = "Calibration")]
    pub pid: Option<u32>,
    /// With --calibrate: keep the calibration
    #[arg(short, long, value_name = "FILE", requires = "calibrate", help_heading = "Calibration")]
    pub out: Option<PathBuf>,
    /// With --model: who is served next: fifo, lifo, random-request, random-worker, connection:N (each of N connections belongs to one
    /// worker) or sharing:QUANTUM
    #[arg(long, value_name = "ORDER", value_parser = |t: &str| t.parse::<Discipline>(), default_value = "fifo", conflicts_with_all = ["run", "calibrate"], help_heading = "Models")]
    pub discipline: Discipline,
    /// The mean service time, such as 8us [default for a run: what its messages cost on cores]
    #[arg(long, value_name = "TIME", value_parser = service)]
    pub service: Option<u64>,
    /// With a model of recorded arrivals: a file of times, seconds, one a line, or a run, whose messages arrived then
    #[arg(long, value_name = "FILE|RUN", conflicts_with_all = ["run", "calibrate"], help_heading = "Models")]
    pub arrivals: Option<PathBuf>,
    /// With --model: how many requests to simulate
    #[arg(long, conflicts_with_all = ["run", "calibrate"], value_name = "N", value_parser = requests, default_value = "10M", help_heading = "Models")]
    pub requests: usize,
    /// With --model: seed of everything that is drawn
    #[arg(long, conflicts_with_all = ["run", "calibrate"], value_name = "N", default_value_t = 1, help_heading = "Models")]
    pub seed: u64,
    /// These percentiles [default: p50,p90,p99,p99.9,p99.99]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = percentile)]
    pub percentile: Vec<f64>,
    /// The load at which the ideal server passes this, and the recorded one, such as 'p99<1ms'; and the cores that packets and requests need
    #[arg(long, value_name = "pQ<TIME", value_parser = |t: &str| t.parse::<Objective>(), requires = "run", conflicts_with = "model")]
    pub slo: Option<Objective>,
    /// Draw measured against ideal into this file, SVG, on log axes
    #[arg(long, value_name = "FILE", requires = "run", conflicts_with = "model")]
    pub plot: Option<PathBuf>,
    /// With --model: draw service times from this file, seconds, one a line, as they come; S of the model is then `empirical`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run", "calibrate"], help_heading = "Models")]
    pub service_times: Option<PathBuf>,
    /// Print JSON (schema 1)
    #[arg(long)]
    pub json: bool,
}

impl Ideal {
    /// The percentiles that are asked for, above 0 and below 1.
    pub fn percentiles(&self) -> Vec<f64> {
        if self.percentile.is_empty() { vec![0.5, 0.9, 0.99, 0.999, 0.9999] } else { self.percentile.clone() }
    }
}

/// At most so many requests: their latencies are kept, 8 bytes each.
const MOST_REQUESTS: u64 = 200_000_000;

fn requests(text: &str) -> Result<usize, String> {
    let n = parse::count(text).map_err(|e| e.to_string())?;
    if (1..=MOST_REQUESTS).contains(&n) {
        Ok(n as usize)
    } else {
        Err(format!("`{text}` is not a number of requests; write 1 to {MOST_REQUESTS}"))
    }
}

fn workers(text: &str) -> Result<usize, String> {
    parse::count(text)
        .ok()
        .filter(|n| (1..=100_000).contains(n))
        .map(|n| n as usize)
        .ok_or_else(|| format!("`{text}` is not a number of workers; write 1 to 100000"))
}

fn service(text: &str) -> Result<u64, String> {
    parse::duration(text).map(|d| d.as_nanos() as u64).map_err(|e| e.to_string())
}
