//! The load generators, each with its best flags. In: a [`Job`]. Out: its command line; of what it printed, figures.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use tailsight_lab::servers::TextProtocol;
use tailsight_testbed::netns::Namespace;

use super::line::Line;
use super::parse::{self, Figures};
use crate::rig::LOAD_CPU;

/// Connections of an open loop, the same for all.
pub const CONNECTIONS: u32 = 16;

/// k6 leaves out a request when every user waits for a reply; with as many users as others have connections it leaves out many.
const K6_USERS: u32 = 64;
/// Where vegeta puts its results.
const VEGETA_FILE: &str = "vegeta.gob";

/// Load generators that are not run, and why.
pub const LEFT_OUT: [(&str, &str); 2] = [
    (
        "fortio",
        "not installed: `go install fortio.org/fortio@latest` (1.75.3) needs the module grol.io/grol, which the module proxy refuses (403)",
    ),
    (
        "memcaslap at a rate",
        "its `--tps` does nothing below a million requests a second a connection: it divides the requests of a connection by the \
         microseconds since it started, as whole numbers, and compares that with the rate (libmemcached 1.1.4, `ms_need_yield`)",
    ),
];

/// How tailsight's requests are spaced at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spacing {
    /// The default.
    Poisson,
    /// `--arrivals fixed`.
    Fixed,
}

/// How tailsight waits between requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// The default.
    Auto,
    /// `--wait sleep`: little CPU time, and as late as the host's timers.
    Sleep,
    /// `--wait spin`: takes a whole core.
    Spin,
    /// `--wait batch:1ms`: what came due in a millisecond is sent together, as programs do whose timers have milliseconds.
    Batch1,
    /// `--wait batch:10ms`: the same with h2load's 10 ms.
    Batch10,
}

impl Spacing {
    fn flag(self) -> &'static str {
        if self == Self::Fixed { " --arrivals fixed" } else { "" }
    }
}

impl Wait {
    fn flag(self) -> &'static str {
        match self {
            Self::Auto => "",
            Self::Sleep => " --wait sleep",
            Self::Spin => " --wait spin",
            Self::Batch1 => " --wait batch:1ms",
            Self::Batch10 => " --wait batch:10ms",
        }
    }
}

/// A load generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// `tailsight load`.
    Tailsight(Spacing, Wait),
    /// libmemcached's.
    Memcaslap,
    /// nghttp2's.
    H2load,
    /// Grafana's.
    K6,
    /// vegeta.
    Vegeta,
    /// oha.
    Oha,
    /// wrk.
    Wrk,
    /// redis-tools'.
    RedisBenchmark,
}

/// `tailsight load` with its defaults.
pub const OURS: Tool = Tool::Tailsight(Spacing::Poisson, Wait::Auto);

/// The load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// This many requests a second over [`CONNECTIONS`].
    Rate(f64),
    /// As many as are answered: connections, and requests outstanding on each.
    Closed(u32, u32),
}

/// A run of a tool.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// The release binary of tailsight.
    pub tailsight: PathBuf,
    /// A folder of this run alone.
    pub folder: PathBuf,
    /// The server.
    pub addr: SocketAddr,
    /// What it speaks.
    pub protocol: TextProtocol,
    /// The load.
    pub shape: Shape,
    /// For how long, s.
    pub seconds: u32,
    /// Requests a second to expect, for a tool that has to be given a number of requests.
    pub guess_per_s: f64,
    /// Whether percentiles are wanted, also where they cost the tool something (a log).
    pub samples: bool,
    /// The servers' namespace, when it is to be seen there when the requests arrive.
    pub watch: Option<&'a Namespace>,
}

impl Job<'_> {
    /// 3 s on an HTTP server, without percentiles.
    pub fn new(tailsight: &Path, folder: &Path, addr: SocketAddr, shape: Shape) -> Self {
        let (tailsight, folder) = (tailsight.to_owned(), folder.to_owned());
        let (protocol, seconds, guess_per_s) = (TextProtocol::Http1, 3, 0.0);
        Self { tailsight, folder, addr, protocol, shape, seconds, guess_per_s, samples: false, watch: None }
    }
}

impl Tool {
    /// All but tailsight.
    pub const PEERS: [Self; 7] =
        [Self::Memcaslap, Self::H2load, Self::Oha, Self::Vegeta, Self::K6, Self::Wrk, Self::RedisBenchmark];

    /// Its name in tables: ours with its flags.
    pub fn name(self) -> String {
        let peer = match self {
            Self::Tailsight(spacing, wait) => return format!("tailsight{}{}", spacing.flag(), wait.flag()),
            Self::Memcaslap => "memcaslap",
            Self::H2load => "h2load",
            Self::K6 => "k6",
            Self::Vegeta => "vegeta",
            Self::Oha => "oha",
            Self::Wrk => "wrk",
            Self::RedisBenchmark => "redis-benchmark",
        };
        peer.to_owned()
    }

    /// Whether it is ours.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Tailsight(..))
    }

    /// Where it comes from, when it is missing.
    pub fn source(self) -> &'static str {
        match self {
            Self::Memcaslap => "apt-get install libmemcached-tools",
            Self::H2load => "apt-get install nghttp2-client",
            Self::Wrk => "apt-get install wrk",
            Self::RedisBenchmark => "apt-get install redis-tools",
            Self::K6 => "go install go.k6.io/k6@v1.8.1",
            Self::Vegeta => "go install github.com/tsenart/vegeta/v12@v12.13.0",
            Self::Oha => "cargo install oha --version 1.16.0 --locked",
            Self::Tailsight(..) => "cargo build --release -p tailsight",
        }
    }

    /// How it says its version.
    pub fn version_flag(self) -> &'static str {
        match self {
            Self::Memcaslap => "-V",
            Self::Wrk => "-v",
            Self::Vegeta => "-version",
            _ => "--version",
        }
    }

    /// How its requests are spaced at a rate, as they are seen on the wire.
    pub fn arrivals(self) -> &'static str {
        match self {
            Self::Tailsight(Spacing::Poisson, _) => "Poisson",
            Self::H2load | Self::Tailsight(Spacing::Fixed, Wait::Batch10) => "fixed, sent every 10 ms",
            Self::K6 | Self::Vegeta | Self::Oha | Self::Tailsight(Spacing::Fixed, Wait::Batch1) => {
                "fixed, sent every 1 ms"
            }
            Self::Tailsight(Spacing::Fixed, _) => "fixed",
            Self::Memcaslap | Self::Wrk | Self::RedisBenchmark => "closed loop",
        }
    }

    /// Ours with the arrivals of this peer at a rate; `None` for those who have no rate.
    ///
    /// h2load looks every 10 ms at how many requests are due (`rps_watcher`). oha, vegeta and k6 mean to send each when it is due,
    /// but their runtimes' timers (tokio, Go) have milliseconds, and what came due meanwhile goes out together.
    pub fn ours_like(self) -> Option<Self> {
        match self {
            Self::H2load => Some(Self::Tailsight(Spacing::Fixed, Wait::Batch10)),
            Self::K6 | Self::Vegeta | Self::Oha => Some(Self::Tailsight(Spacing::Fixed, Wait::Batch1)),
            Self::Memcaslap | Self::Wrk | Self::RedisBenchmark => None,
            Self::Tailsight(..) => Some(self),
        }
    }

    /// When its requests are due at a rate; `None` for those who have no schedule. By their sources: h2load counts for each
    /// connection, from when it was made; the others have one line for all.
    pub fn line(self, per_s: f64) -> Option<Line> {
        match self {
            Self::Tailsight(Spacing::Poisson, _) => None,
            Self::Tailsight(Spacing::Fixed, _) | Self::K6 | Self::Vegeta | Self::Oha => Some(Line::All(1e9 / per_s)),
            Self::H2load => Some(Line::Each(1e9 * f64::from(CONNECTIONS) / per_s)),
            Self::Memcaslap | Self::Wrk | Self::RedisBenchmark => None,
        }
    }

    /// Its command line, the program first. Writes the files that it needs into the folder.
    pub fn command(self, job: &Job<'_>) -> anyhow::Result<Vec<String>> {
        let Job { addr, seconds, folder, .. } = job;
        let (connections, outstanding) = match job.shape {
            Shape::Rate(_) => (CONNECTIONS, 1),
            Shape::Closed(connections, outstanding) => (connections, outstanding),
        };
        let rate = if let Shape::Rate(rate) = job.shape { Some(rate) } else { None };
        if outstanding != 1 && matches!(self, Self::Memcaslap | Self::K6 | Self::Vegeta | Self::Oha) {
            bail!("it does not pipeline");
        }
        if rate.is_some() && matches!(self, Self::Memcaslap | Self::Wrk | Self::RedisBenchmark) {
            bail!("it has no rate that does anything");
        }
        let file = |name: &str, text: &str| -> anyhow::Result<String> {
            let path = folder.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(path.display().to_string())
        };
        let line = match self {
            Self::Tailsight(spacing, wait) => {
                let scheme = match job.protocol {
                    TextProtocol::Memcached => "memcached",
                    TextProtocol::Resp => "redis",
                    TextProtocol::Http1 => "http",
                };
                let shape = match rate {
                    Some(rate) => format!("--rate {rate:.0}{}", spacing.flag()),
                    // HTTP/1.1 is not pipelined unless told.
                    None => format!("--closed {outstanding} --outstanding {outstanding}"),
                };
                let keep = if job.samples { format!(" -o {}", self.samples_path(job)) } else { String::new() };
                format!(
                    "{} load {scheme}://{addr} {shape} --connections {connections} --cpus {LOAD_CPU}{} --ci p99:10%@95 --max-time {seconds}s --json{keep}",
                    job.tailsight.display(),
                    wait.flag(),
                )
            }
            Self::Memcaslap => {
                let config = file("memcaslap.conf", "key\n16 16 1\nvalue\n32 32 1\ncmd\n0 0.0\n1 1.0\n")?;
                format!("memcaslap -s {addr} -T 1 -c {connections} -F {config} -w 1k -t {seconds}s -S {seconds}s")
            }
            Self::H2load => {
                let rps = rate.map_or(String::new(), |rate| format!(" --rps={:.0}", rate / f64::from(connections)));
                let log = if job.samples { format!(" --log-file={}", self.samples_path(job)) } else { String::new() };
                format!(
                    "h2load -p http/1.1 -t 1 -c {connections} -m {outstanding} -D {seconds}{rps}{log} http://{addr}/"
                )
            }
            Self::K6 => {
                let script = file("k6.js", &k6_script(*addr, rate, connections, *seconds))?;
                let summary = folder.join("k6.json");
                format!("k6 run -q --no-color --no-usage-report --summary-export={} {script}", summary.display())
            }
            Self::Vegeta => {
                let targets = file("targets", &format!("GET http://{addr}/\n"))?;
                let rate = rate.map_or("0".to_owned(), |rate| format!("{rate:.0}/1s"));
                let n = connections;
                format!(
                    "vegeta attack -targets {targets} -rate {rate} -duration {seconds}s -workers {n} -max-workers {n} -connections {n} -max-connections {n} -max-body 0 -http2=false -output {}",
                    folder.join(VEGETA_FILE).display()
                )
            }
            Self::Oha => {
                let rate = rate.map_or(String::new(), |rate| format!(" -q {rate:.0} --latency-correction"));
                format!(
                    "oha -z {seconds}s -c {connections}{rate} --no-tui --output-format json --disable-compression http://{addr}/"
                )
            }
            Self::Wrk => {
                let script = file("wrk.lua", &wrk_script(outstanding))?;
                format!("wrk -t 1 -c {connections} -d {seconds} -s {script} http://{addr}/")
            }
            Self::RedisBenchmark => {
                let (host, port, n) = (addr.ip(), addr.port(), (job.guess_per_s * f64::from(*seconds)) as u64);
                format!(
                    "redis-benchmark -h {host} -p {port} -c {connections} -P {outstanding} -n {n} -r 10000 -t get --precision 3"
                )
            }
        };
        Ok(line.split(' ').map(str::to_owned).collect())
    }

    /// Where the samples of a run are.
    fn samples_path(self, job: &Job<'_>) -> String {
        let name = if self == Self::H2load { "h2load.log" } else { "samples.parquet" };
        job.folder.join(name).display().to_string()
    }

    /// Exit codes that are a result: tailsight's N/A is one.
    pub fn accepts(self, code: i32) -> bool {
        code == 0 || self.is_ours() && code == 3
    }

    /// What it printed, as numbers.
    pub fn figures(self, job: &Job<'_>, stdout: &str) -> anyhow::Result<Figures> {
        let mut figures = match self {
            Self::Tailsight(..) => parse::tailsight(stdout)?,
            Self::Memcaslap => parse::memcaslap(stdout)?,
            Self::H2load => parse::h2load(stdout)?,
            Self::K6 => {
                let path = job.folder.join("k6.json");
                parse::k6(&std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?)?
            }
            Self::Vegeta => parse::vegeta(&vegeta_says(job, &["report", "-type", "json"])?)?,
            Self::Oha => parse::oha(stdout)?,
            Self::Wrk => parse::wrk(stdout)?,
            Self::RedisBenchmark => parse::redis_benchmark(stdout)?,
        };
        if job.samples {
            let path = self.samples_path(job);
            let samples = if self.is_ours() {
                Some(responses_us(Path::new(&path), matches!(figures.verdict, Some(Ok(_))))?)
            } else if self == Self::H2load {
                let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
                Some(parse::h2load_log(&text))
            } else if self == Self::Vegeta {
                Some(parse::vegeta_csv(&vegeta_says(job, &["encode", "-to", "csv"])?))
            } else {
                None
            };
            if let Some(samples) = samples {
                (figures.quantiles, figures.mean_us) = parse::of_sample(samples);
            }
        }
        Ok(figures)
    }
}

/// What vegeta makes of the results that an attack left behind. Not part of its price.
fn vegeta_says(job: &Job<'_>, words: &[&str]) -> anyhow::Result<String> {
    let mut command = std::process::Command::new("vegeta");
    let output = command.args(words).arg(job.folder.join(VEGETA_FILE)).output().context("cannot run vegeta")?;
    if !output.status.success() {
        bail!("vegeta {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// wrk's script: pipelining, and a line of JSON at the end with percentiles that wrk itself does not print.
fn wrk_script(pipeline: u32) -> String {
    let mut text = String::new();
    if pipeline > 1 {
        text += &format!(
            "init = function(args)\n  local all = {{}}\n  for i = 1, {pipeline} do all[i] = wrk.format() end\n  requests = table.concat(all)\nend\n\
             request = function() return requests end\n"
        );
    }
    text + "done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('tailsight {\"requests\":%d,\"duration_us\":%d,\"errors\":%d,\"mean_us\":%.3f', summary.requests,
    summary.duration, e.connect + e.read + e.write + e.status + e.timeout, latency.mean))
  for _, p in pairs({50, 90, 99, 99.9}) do io.write(string.format(',\"p%g\":%d', p, latency:percentile(p))) end
  io.write('}\\n')
end
"
}

/// k6's script: a rate that does not wait for replies, or as many users as connections who never rest.
fn k6_script(addr: SocketAddr, rate: Option<f64>, connections: u32, seconds: u32) -> String {
    let executor = match rate {
        Some(rate) => format!(
            "executor: 'constant-arrival-rate', rate: {rate:.0}, timeUnit: '1s', preAllocatedVUs: {K6_USERS}, maxVUs: {K6_USERS}"
        ),
        None => format!("executor: 'constant-vus', vus: {connections}"),
    };
    format!(
        "import http from 'k6/http';
export const options = {{ discardResponseBodies: true, summaryTrendStats: ['avg', 'p(50)', 'p(90)', 'p(99)', 'p(99.9)'],
  scenarios: {{ load: {{ {executor}, duration: '{seconds}s' }} }} }};
export default function () {{ http.get('http://{addr}/'); }}
"
    )
}

/// Response times of the samples that `tailsight load -o` kept, us: those of the result, or all good ones when it has none.
fn responses_us(path: &Path, result_only: bool) -> anyhow::Result<Vec<f64>> {
    let open = || format!("cannot read {}", path.display());
    let file = std::fs::File::open(path).with_context(open)?;
    let reader = SerializedFileReader::new(file).with_context(open)?;
    let schema = reader.metadata().file_metadata().schema();
    let wanted = ["response_ns", "status", "in_result"];
    let fields: Vec<_> = schema.get_fields().iter().filter(|field| wanted.contains(&field.name())).cloned().collect();
    if fields.len() != wanted.len() {
        bail!("{} lacks one of the columns {}", path.display(), wanted.join(", "));
    }
    // Projected columns keep the file's order, which is that of `wanted`.
    let projection = parquet::schema::types::Type::group_type_builder(schema.name()).with_fields(fields).build()?;
    let mut latencies = Vec::new();
    for row in reader.get_row_iter(Some(projection)).with_context(open)? {
        let row = row.with_context(open)?;
        // Null: the request was never answered.
        let Ok(ns) = row.get_ulong(0) else { continue };
        let keep = if result_only { row.get_bool(2)? } else { row.get_string(1)? == "ok" };
        if keep {
            latencies.push(ns as f64 / 1e3);
        }
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(shape: Shape, folder: &Path) -> Job<'_> {
        let job = Job::new(Path::new("tailsight"), folder, "10.77.0.1:80".parse().unwrap(), shape);
        Job { seconds: 4, guess_per_s: 1000.0, ..job }
    }

    #[test]
    fn rates_are_spread_over_the_clients_of_h2load() {
        let folder = tempfile::tempdir().unwrap();
        let line = Tool::H2load.command(&job(Shape::Rate(20_000.0), folder.path())).unwrap().join(" ");
        assert!(line.contains("-c 16 -m 1 -D 4 --rps=1250 http://10.77.0.1:80/"), "{line}");
    }

    #[test]
    fn what_a_tool_cannot_is_said() {
        let folder = tempfile::tempdir().unwrap();
        for tool in [Tool::Memcaslap, Tool::Wrk, Tool::RedisBenchmark] {
            assert!(tool.line(1000.0).is_none() && tool.ours_like().is_none());
            assert!(tool.command(&job(Shape::Rate(1000.0), folder.path())).is_err());
            assert!(tool.command(&job(Shape::Closed(16, 1), folder.path())).is_ok());
        }
        for tool in [Tool::Memcaslap, Tool::K6, Tool::Vegeta, Tool::Oha] {
            assert!(tool.command(&job(Shape::Closed(16, 16), folder.path())).is_err());
        }
        assert!(OURS.accepts(3) && !Tool::Wrk.accepts(3) && !OURS.accepts(1));
    }

    #[test]
    fn a_peer_and_ours_like_it_have_the_same_arrivals() {
        let folder = tempfile::tempdir().unwrap();
        for tool in [Tool::H2load, Tool::K6, Tool::Vegeta, Tool::Oha] {
            let ours = tool.ours_like().unwrap();
            assert!(ours.is_ours() && ours.arrivals() == tool.arrivals() && tool.line(1e3).is_some());
            let line = ours.command(&job(Shape::Rate(2000.0), folder.path())).unwrap().join(" ");
            assert!(line.contains("--rate 2000 --arrivals fixed --connections 16"), "{line}");
            assert!(
                line.contains(if tool == Tool::H2load { " --wait batch:10ms " } else { " --wait batch:1ms " }),
                "{line}"
            );
        }
        let line = Tool::Vegeta.command(&job(Shape::Closed(16, 1), folder.path())).unwrap().join(" ");
        assert!(line.contains("-rate 0 ") && line.contains("-max-workers 16 "), "{line}");
        let line = Tool::Oha.command(&job(Shape::Rate(2000.0), folder.path())).unwrap().join(" ");
        assert!(line.starts_with("oha -z 4s -c 16 -q 2000 --latency-correction "), "{line}");
    }

    #[test]
    fn wrk_pipelines_only_when_asked() {
        assert!(!wrk_script(1).contains("concat") && wrk_script(16).contains("1, 16 do"));
    }
}
