//! The command lines of `load` and `sweep` as data. In: words. Out: what is asked; what contradicts itself is refused.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tailsight_agent::AgentAddress;
use tailsight_agent::coordinator::Role;
use tailsight_load::http::{self, GoodStatuses};
use tailsight_load::{Arrivals, BurstOver, Popularity, Protocol, Rate, Receive, Size, Wait, Workload};
use tailsight_measure::objective::Objective;
use tailsight_stats::method::PercentileGoal;
use tailsight_units::parse;

use crate::cli_common::{percentile, protocol};

/// What `load` and `sweep` share: the server and what is asked of it.
#[derive(Debug, Args)]
pub struct Traffic {
    /// The server: memcached://HOST:PORT, redis://HOST, http://HOST/PATH, https://…, memcached+udp://…, redis+unix:/PATH, …
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// What is spoken, where the target does not say
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    pub protocol: Option<Protocol>,
    /// Inter-arrival times: fixed, exponential, lognormal:SIGMA, pareto:SHAPE, gpareto:SHAPE, mmpp:RATIO,SHARE,BURST
    #[arg(long, value_name = "PROCESS", value_parser = arrivals, default_value = "exponential", help_heading = "Rate \
     and arrivals")]
    pub arrivals: Arrivals,
    /// Connections, over all threads
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub connections: u32,
    /// Requests that may be outstanding on a connection [default: 64, http: 1]
    #[arg(long, value_name = "N", help_heading = "Threads and sockets")]
    pub outstanding: Option<u32>,
    /// Loading threads
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Threads and sockets")]
    pub threads: u32,
    /// Requests: etc, usr, and NAME=VALUE parts separated by `;` (docs/load.md)
    #[arg(long, value_name = "TEXT", value_parser = |t: &str| t.parse::<Workload>(), help_heading = "Requests")]
    pub workload: Option<Workload>,
    /// How many keys
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = "Requests")]
    pub keys: Option<u64>,
    /// Sizes of values, bytes: 32, uniform:10,100, exponential:100, etc-value, …
    #[arg(long, value_name = "SIZES", value_parser = |t: &str| t.parse::<Size>(), help_heading = "Requests")]
    pub value_size: Option<Size>,
    /// Share of requests that read, 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = "Requests")]
    pub get_ratio: Option<f64>,
    /// Which keys how often: uniform or zipf:SKEW
    #[arg(long, value_name = "LAW", value_parser = |t: &str| t.parse::<Popularity>(), help_heading = "Requests")]
    pub popularity: Option<Popularity>,
    /// Do not store the keys first
    #[arg(long, help_heading = "Requests")]
    pub no_preload: bool,
    /// A percentile to know, with the width and level of its interval, such as p99:10us@95 or p99.9:5%; repeatable [default:
    /// p99:5%@95]
    #[arg(long, value_name = "pQ[:WIDTH][@LEVEL]", value_parser = |t: &str| t.parse::<PercentileGoal>())]
    pub ci: Vec<PercentileGoal>,
    /// Percentiles to report besides
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = percentile, default_value = "p50,p90,p99,p99.9", help_heading = "Statistics")]
    pub percentile: Vec<f64>,
    /// Which latency is judged: response (from when a request was due) or service (from when it was sent)
    #[arg(long, value_name = "WHICH", value_parser = ["response", "service"], default_value = "response", help_heading = "Statistics")]
    pub latency: String,
    /// Test arrivals on the times sent as they are, with no lateness passed over (Lancet to the letter)
    #[arg(long, help_heading = "Statistics")]
    pub strict: bool,
    /// How a thread waits: auto, sleep, poll:TIME, spin (takes its core whole, is punctual) or batch:TIME (in bursts, is cheap)
    #[arg(long, value_name = "HOW", value_parser = |t: &str| t.parse::<Wait>(), default_value = "auto", help_heading = "Threads and sockets")]
    pub wait: Wait,
    /// The same in one word: precise (--wait spin), cheap (--wait batch:1ms: load in bursts, not for measuring) or auto
    #[arg(long, value_name = "PACE", value_parser = pace, conflicts_with = "wait", help_heading = "Threads and \
     sockets")]
    pub pace: Option<Wait>,
    /// Requests due at once at each arrival; the rate of requests stays the same
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Rate and arrivals")]
    pub burst: u32,
    /// Where they go: connection (one, in one call: pipelined) or connections (one after the other, as h2load's clients do)
    #[arg(long, value_name = "WHERE", value_parser = burst_over, default_value = "connection", help_heading = "Rate \
     and arrivals")]
    pub burst_over: BurstOver,
    /// When replies are read: auto, eager (a reply wakes the thread), lazy (kernel stamps, read when sending)
    #[arg(long, value_name = "WHEN", value_parser = receive, default_value = "auto", help_heading = "Threads and \
     sockets")]
    pub receive: Receive,
    /// Microseconds of SO_BUSY_POLL on each socket
    #[arg(long, value_name = "US", default_value_t = 0, help_heading = "Threads and sockets")]
    pub busy_poll: u32,
    /// The threads' cores, one a thread, such as 2,3
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Threads and sockets")]
    pub cpus: Vec<usize>,
    /// Run the loading threads before all of ordinary priority (SCHED_RR), so that other programs of this host do not make the client late; where
    /// that is refused the result says so
    #[arg(long, help_heading = "Threads and sockets")]
    pub realtime: bool,
    /// Do not ask the kernel for time stamps
    #[arg(long, help_heading = "Threads and sockets")]
    pub no_stamps: bool,
    /// Seed of everything that is drawn
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Rate and arrivals")]
    pub seed: u64,
    /// HTTP: the method [default: GET, with --data POST]
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = "HTTP")]
    pub method: Option<String>,
    /// HTTP: a header field, such as 'Accept: text/html'; repeatable
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = |t: &str| http::field(t), help_heading = "HTTP")]
    pub headers: Vec<(String, String)>,
    /// HTTP: the body, as text or @FILE
    #[arg(short = 'd', long, value_name = "TEXT|@FILE", help_heading = "HTTP")]
    pub data: Option<String>,
    /// HTTP: send the requests in this file, one a line: [WEIGHT] [METHOD] PATH
    #[arg(long, value_name = "FILE", help_heading = "HTTP")]
    pub requests: Option<PathBuf>,
    /// HTTP: status codes that are good replies, such as 2xx,304,404; all others are errors [default: 200-399]
    #[arg(long, value_name = "CODES", value_parser = |t: &str| t.parse::<GoodStatuses>(), help_heading = "HTTP")]
    pub good_statuses: Option<GoodStatuses>,
    /// TLS: trust the certificates in this PEM file
    #[arg(long, value_name = "FILE", conflicts_with = "insecure", help_heading = "TLS")]
    pub ca: Option<PathBuf>,
    /// TLS: trust anybody (test servers)
    #[arg(long, help_heading = "TLS")]
    pub insecure: bool,
    /// TLS: the name that is asked for and checked against the certificate [default: the target's host]
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    pub server_name: Option<String>,
    /// Print JSON (schema 1)
    #[arg(long)]
    pub json: bool,
    /// Who sends.
    #[command(flatten)]
    pub agents: Agents,
}

/// Load from other machines instead of this one.
#[derive(Debug, Args)]
#[command(next_help_heading = "Agents")]
pub struct Agents {
    /// Let this agent send instead of this host, as `tailsight agent` printed it; repeatable: they share the load
    #[arg(long, value_name = "HOST:PORT#FINGERPRINT", value_parser = |t: &str| t.parse::<AgentAddress>())]
    pub agent: Vec<AgentAddress>,
    /// The agents' token, in a file of mode 600 [default: the environment's TAILSIGHT_AGENT_TOKEN]
    #[arg(long, value_name = "FILE", requires = "agent")]
    pub agent_token_file: Option<PathBuf>,
    /// What each agent does, in their order: symmetric, throughput or latency [default: all symmetric]
    #[arg(long, value_name = "ROLE", value_delimiter = ',', value_parser = role, requires = "agent")]
    pub agent_role: Vec<Role>,
    /// Who signed the certificates of agents that are named without a fingerprint (PEM)
    #[arg(long, value_name = "FILE", requires = "agent")]
    pub agent_ca: Option<PathBuf>,
    /// Our certificate (PEM), for agents that ask for one
    #[arg(long, value_name = "FILE", requires_all = ["agent", "agent_key"])]
    pub agent_certificate: Option<PathBuf>,
    /// Our certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["agent", "agent_certificate"])]
    pub agent_key: Option<PathBuf>,
}

/// `load`.
#[derive(Debug, Args)]
// A group, so that the error names every way to say how much.
#[command(group = clap::ArgGroup::new("how_much").required(true).multiple(true).args(["rate", "utilisation", "rate_profile", "closed", "replay"]))]
#[command(about = "Measure a server's latency under a load: a number with its interval, or N/A with the reason")]
pub struct Load {
    /// Requests/s, such as 20k
    #[arg(long, value_name = "RATE", value_parser = parse::rate)]
    pub rate: Option<f64>,
    /// The rate that keeps the server busy for this part of the time, such as 80%, by its calibration
    #[arg(long, value_name = "PART", value_parser = utilisation, requires = "calibration", conflicts_with_all = ["rate", "rate_profile", "closed", "replay"], help_heading = "Rate and arrivals")]
    pub utilisation: Option<f64>,
    /// With --utilisation: what `tailsight ideal --calibrate TARGET -o FILE` found
    #[arg(long, value_name = "FILE", requires = "utilisation", help_heading = "Rate and arrivals")]
    pub calibration: Option<PathBuf>,
    /// A rate that changes: steps:10k/5s,20k/5s, ramp:1k..50k/10s or diurnal:5k..50k/60s
    #[arg(long, value_name = "PROFILE", value_parser = |t: &str| t.parse::<Rate>(), conflicts_with = "rate", help_heading = "Rate and arrivals")]
    pub rate_profile: Option<Rate>,
    /// Closed loop: each connection keeps so many requests outstanding. Underestimates the latency that open-loop traffic would see
    #[arg(long, value_name = "N", conflicts_with_all = ["rate", "rate_profile", "replay", "arrivals"], value_parser = clap::value_parser!(u32).range(1..), help_heading = "Rate and arrivals")]
    pub closed: Option<u32>,
    /// Send at the times in this file, seconds, one a line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "rate_profile", "arrivals"], help_heading = "Rate \
     and arrivals")]
    pub replay: Option<PathBuf>,
    /// End after this long, getting ready included; N/A if the answer is not there
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "60s")]
    pub max_time: Duration,
    /// Keep every sample: a file, or a folder for load.parquet
    #[arg(short, long, value_name = "FILE.parquet|DIR")]
    pub out: Option<PathBuf>,
    /// Write the page; with --against it has the curves of both
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Compare with an earlier run's samples, or with a server that is measured in turn with this one; exit 4 when this one is worse
    #[arg(long, value_name = "FILE.parquet|TARGET")]
    pub against: Option<String>,
    /// With --against: how much slower it may be, such as 5%
    #[arg(long, value_name = "PERCENT", value_parser = allowance, requires = "against", default_value = "0%")]
    pub worse_by: f64,
    /// An objective such as 'p99<500us': met, missed (exit 4) or open (exit 3), with 95 % confidence, whatever the interval's width
    #[arg(long, value_name = "pQ<TIME", value_parser = |t: &str| t.parse::<Objective>())]
    pub slo: Option<Objective>,
    /// The server and what is asked.
    #[command(flatten)]
    pub traffic: Traffic,
}

/// `sweep`.
#[derive(Debug, Args)]
#[command(about = "Measure latency at rising load, or find the highest rate that meets an objective")]
pub struct Sweep {
    /// These rates, in this order
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse::rate, conflicts_with_all = ["from", "to", "slo", "factor"])]
    pub rates: Vec<f64>,
    /// The first rate
    #[arg(long, value_name = "RATE", value_parser = parse::rate, default_value = "1k")]
    pub from: f64,
    /// The highest rate
    #[arg(long, value_name = "RATE", value_parser = parse::rate)]
    pub to: Option<f64>,
    /// Each rate is so many times the last
    #[arg(long, value_name = "X", value_parser = factor, default_value = "1.5", help_heading = "Search")]
    pub factor: f64,
    /// Look for the highest rate that meets this objective, such as 'p99<500us'
    #[arg(long, value_name = "pQ<TIME", value_parser = |t: &str| t.parse::<Objective>())]
    pub slo: Option<Objective>,
    /// With --slo: end when the threshold is known within this
    #[arg(long, value_name = "PERCENT", value_parser = allowance, requires = "slo", default_value = "5%", help_heading = "Search")]
    pub tolerance: f64,
    /// With --slo: measurements at most
    #[arg(long, value_name = "N", requires = "slo", default_value_t = 24, value_parser = clap::value_parser!(u16).range(6..=200), help_heading = "Search")]
    pub tries: u16,
    /// The most time at each rate
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "10s")]
    pub max_time: Duration,
    /// Keep every sample: a folder, a file a rate
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the page: latency against rate, and the curves of every rate
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The server and what is asked.
    #[command(flatten)]
    pub traffic: Traffic,
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    match text.parse().map_err(|e: tailsight_load::LoadError| e.to_string())? {
        Arrivals::Replay(_) => Err("use --replay FILE for a replay".into()),
        Arrivals::Closed(_) => Err("use --closed N for a closed loop".into()),
        arrivals => Ok(arrivals),
    }
}

fn burst_over(text: &str) -> Result<BurstOver, String> {
    match text {
        "connection" => Ok(BurstOver::Connection),
        "connections" => Ok(BurstOver::Connections),
        _ => Err("connection or connections".into()),
    }
}

fn receive(text: &str) -> Result<Receive, String> {
    match text {
        "auto" => Ok(Receive::Auto),
        "eager" => Ok(Receive::Eager),
        "lazy" => Ok(Receive::Lazy),
        _ => Err("expected auto, eager or lazy".into()),
    }
}

fn pace(text: &str) -> Result<Wait, String> {
    match text {
        "auto" => Ok(Wait::Auto),
        "precise" => Ok(Wait::Spin),
        "cheap" => Ok(Wait::Batch(1_000_000)),
        _ => Err("expected auto, precise or cheap".into()),
    }
}

fn role(text: &str) -> Result<Role, String> {
    match text {
        "symmetric" => Ok(Role::Symmetric),
        "throughput" => Ok(Role::Throughput),
        "latency" => Ok(Role::Latency),
        _ => Err("expected symmetric, throughput or latency".into()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|s| (0.0..=1.0).contains(s))
        .ok_or_else(|| format!("`{text}` is not a share; write 0.9 for nine reads in ten"))
}

fn allowance(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.strip_suffix('%').and_then(|n| n.trim().parse().ok());
    number
        .filter(|n| (0.0..=1000.0).contains(n))
        .map(|n| n / 100.0)
        .ok_or_else(|| format!("`{text}` is not a percentage such as 5%"))
}

/// A share of a peak. 100 % and more is what a sweep is for: here the answer would be the length of the run.
fn utilisation(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.strip_suffix('%').and_then(|n| n.trim().parse().ok());
    let share = number.filter(|n| *n > 0.0).map(|n| n / 100.0);
    match share.ok_or_else(|| format!("`{text}` is not a percentage such as 80%"))? {
        share if share >= 1.0 => Err(format!("unstable: at {text} the queue grows without end; give less than 100%")),
        share => Ok(share),
    }
}

fn factor(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|f| *f >= 1.05 && *f <= 100.0)
        .ok_or_else(|| format!("`{text}` is not a factor; write a number from 1.05 to 100"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        load: Load,
    }

    fn parse(args: &[&str]) -> Result<Load, clap::Error> {
        Only::try_parse_from([&["x"], args].concat()).map(|only| only.load)
    }

    #[test]
    fn a_load_is_one_line() {
        let load = parse(&["redis://h", "--rate", "20k", "--ci", "p99:10us@95", "--ci", "p50"]).unwrap();
        assert_eq!((load.rate, load.traffic.ci.len(), load.traffic.percentile.len()), (Some(20_000.0), 2, 4));
    }

    #[test]
    fn agents_are_named_one_by_one_with_their_roles() {
        let print = "a".repeat(64);
        let (with_print, without_print) = (format!("10.0.0.7:7411#{print}"), "h:7411");
        let line = [
            "redis://h",
            "--rate",
            "1k",
            "--agent",
            &with_print,
            "--agent",
            without_print,
            "--agent-role",
            "throughput,latency",
        ];
        let agents = parse(&line).unwrap().traffic.agents;
        assert_eq!((agents.agent.len(), agents.agent_role), (2, vec![Role::Throughput, Role::Latency]));
        assert!(agents.agent[0].fingerprint.is_some() && agents.agent[1].fingerprint.is_none());
    }

    #[test]
    fn contradictions_are_refused() {
        for bad in [
            &["redis://h"][..],
            &["redis://h", "--rate", "1k", "--closed", "1"],
            &["redis://h", "--rate", "1k", "--replay", "f"],
            &["redis://h", "--rate", "1k", "--rate-profile", "ramp:1k..2k/1s"],
            &["redis://h", "--closed", "0"],
            &["redis://h", "--utilisation", "80%"],
            &["redis://h", "--rate", "1k", "--utilisation", "80%", "--calibration", "f"],
            &["redis://h", "--utilisation", "100%", "--calibration", "f"],
            &["redis://h", "--rate", "-5"],
            &["redis://h", "--rate", "1k", "--ci", "99"],
            &["redis://h", "--rate", "1k", "--get-ratio", "30:1"],
            &["redis://h", "--rate", "1k", "--arrivals", "closed:1"],
            &["redis://h", "--rate", "1k", "--pace", "fast"],
            &["redis://h", "--rate", "1k", "--pace", "precise", "--wait", "sleep"],
            &["redis://h", "--rate", "1k", "--burst", "0"],
            &["redis://h", "--rate", "1k", "--worse-by", "5%"],
            &["redis://h", "--rate", "1k", "--slo", "p99"],
            &["redis://h", "--rate", "1k", "--agent", "h"],
            &["redis://h", "--rate", "1k", "--agent-token-file", "f"],
            &["redis://h", "--rate", "1k", "--agent", "h:1", "--agent-role", "boss"],
            &["redis://h", "--rate", "1k", "--agent", "h:1", "--agent-key", "f"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
