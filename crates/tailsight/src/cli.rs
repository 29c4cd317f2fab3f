//! The command line as data: options, their values, defaults and help texts. `reference` makes the parser, `--help`, the man
//! pages, the completions and docs/commands.md of it, with the examples and exit codes of each command.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tailsight_lifetime::{Rule, Threshold, ThresholdUnit};
use tailsight_protocol::{Protocol, ProtocolChoice};
use tailsight_record::{Asked, HookChoice, SampleRate, loader};
use tailsight_units::parse;

#[cfg(not(feature = "export"))]
use crate::cli_absent::Absent as Export;
#[cfg(not(feature = "intel-pt"))]
use crate::cli_absent::Absent as Import;
#[cfg(not(feature = "load"))]
use crate::cli_absent::{Absent as Agent, Absent as Load, Absent as Sweep, Absent as Tune};
#[cfg(feature = "load")]
use crate::cli_agent::Agent;
use crate::cli_common::{Question, Target, nanoseconds, process};
#[cfg(feature = "intel-pt")]
use crate::cli_import::Import;
#[cfg(feature = "load")]
use crate::cli_load::{Load, Sweep};
#[cfg(feature = "load")]
use crate::cli_tune::Tune;

/// Tells you why your tail latency is high.
#[derive(Debug, Parser)]
#[command(name = "tailsight", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Write results and messages in ASCII: bars of #, names with other characters as ?
    #[arg(long, global = true)]
    pub ascii: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what this host can record, and which of its settings hurt tail latency
    Doctor(Doctor),
    /// Record and diagnose memcached with a noisy neighbour, in namespaces of its own
    Demo(Demo),
    /// Record a running server
    Record(Record),
    /// Watch a running server, and record and diagnose what made a message slow when one is
    Watch(Box<crate::cli_watch::Watch>),
    /// Name the causes of a run's slow messages
    Diagnose(Diagnose),
    /// Write a run's report as one HTML file
    Report(Report),
    /// Show a run in the browser: the report's page with every message, from a server on this host only
    View(crate::cli_view::View),
    /// Show one message: its timeline, and where it took longer than usual
    Show(Show),
    /// List a run's fixes, apply one, undo what was applied
    Fix(Box<crate::cli_fix::Fix>),
    /// Try the fixes of a diagnosis one after the other, and keep those that are measured to help
    Tune(Box<Tune>),
    /// Write a run's messages and lifetimes for other tools
    Export(Export),
    /// Import an Intel PT recording of perf as a run, or add its functions to a run
    Import(Box<Import>),
    /// Name the functions of a run's samples by debug files that the recording did not have
    Symbolise(crate::cli_symbolise::Symbolise),
    /// Compute the latency of an ideal server, for a run or for a queueing model
    Ideal(Box<crate::cli_ideal::Ideal>),
    /// Measure a server's latency under a load: a number with its interval, or N/A with the reason
    Load(Box<Load>),
    /// Measure latency at rising load, or find the highest rate that meets an objective
    Sweep(Box<Sweep>),
    /// Serve a queue whose latency has a closed form, to check a load generator against
    Serve(crate::cli_serve::Serve),
    /// Generate load for a coordinator on another machine
    Agent(Agent),
    /// Print a man page, or write all of them
    Man(Man),
    /// Print the JSON schema of what a command prints with --json
    Schema(Schema),
    /// Print the completions of a shell
    Completions(Completions),
    /// The load of `demo`, in a process of its own so that it shares no memory map with the recorder
    #[command(hide = true)]
    DemoLoad,
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Also look at this process: pinning, priority, quota
    #[arg(short, long, value_name = "PID", value_parser = process)]
    pub pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Where the run and the report go
    #[arg(short, long, value_name = "DIR", default_value = "tailsight-demo")]
    pub out: PathBuf,
    /// How long to record
    #[arg(short, long, value_parser = duration, default_value = "2s", value_name = "TIME")]
    pub duration: Duration,
}

/// `record`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("target").required(true)
)]
pub struct Record {
    /// Who is recorded.
    #[command(flatten)]
    pub target: Target,
    /// How long to record [default: until about 2,500 messages were answered and, if functions can explain the slow ones,
    /// these hold 200 samples: 2s at least and 30s at most, of these 20s at most for the samples; with a command: until
    /// it ends]
    #[arg(short, long, value_parser = duration, value_name = "TIME")]
    pub duration: Option<Duration>,
    /// The run directory; an earlier run in it is replaced
    #[arg(short, long, value_name = "RUN", default_value = "tailsight-run")]
    pub out: PathBuf,
    /// Keep the first bytes of each segment of the target, so that messages are requests with their classes, not segments;
    /// auto: each TCP connection's protocol is told by its first bytes
    #[arg(long, value_name = "PROTOCOL", value_parser = framed())]
    pub protocol: Option<ProtocolChoice>,
    /// With --protocol: bytes of each segment to keep [default: 192, http1: 480, resp: 960, http2 and auto: 3072]
    #[arg(long, value_name = "BYTES", value_parser = payload_bytes, requires = "protocol", help_heading = "What is \
     recorded")]
    pub payload: Option<u32>,
    /// With --protocol: do not read the plain text of TLS (OpenSSL, GnuTLS, Go): no breakpoints in the library
    #[arg(long, requires = "protocol", help_heading = "What is recorded")]
    pub no_tls: bool,
    /// Also record when the NIC sent replies, where it stamps them (TCP, Linux 6.15 or newer); sets a flag on the target's
    /// sockets for the time of the recording
    #[arg(long, help_heading = "What is recorded")]
    pub nic_tx_stamps: bool,
    /// How often per second a clock on each core takes a sample of what the server's threads run, for the functions under the causes, or
    /// `off`; from 1000 on, every second time only in messages that are not slower than usual [default: as often as takes 0.45 % of a core
    /// on this machine, at most 1997, less where there are more than 8 cores]
    #[arg(long, value_name = "RATE|off", value_parser = sample_rate, default_value = "usual", hide_default_value = true, help_heading = "What is recorded")]
    pub sample: SampleRate,
    /// Do not follow the tasks of runtimes (goroutines, asyncio, tokio): no looks at them, no breakpoints
    #[arg(long, help_heading = "What is recorded")]
    pub no_tasks: bool,
    /// Trace each call of a function of the server: BIN is a program or library (its path, or the name of one that the server has
    /// mapped), FUNC a name as it is in the source or in the symbol table (wildcards: * and ?), or 0xOFFSET in the file; repeatable
    #[arg(long, value_name = "BIN:FUNC", value_parser = Asked::uprobe, help_heading = "What is recorded")]
    pub uprobe: Vec<Asked>,
    /// Trace the time between two USDT probes of the server: PROBE is the common prefix of their names (query for query__start
    /// and query__done), or BEGIN,END; repeatable
    #[arg(long, value_name = "BIN:PROVIDER:PROBE", value_parser = Asked::usdt, help_heading = "What is recorded")]
    pub usdt: Vec<Asked>,
    /// Trace each call of a function of the kernel by the server's threads (wildcards: * and ?; needs a kernel with fentry); repeatable
    #[arg(long = "function", value_name = "NAME", help_heading = "What is recorded")]
    pub kernel_function: Vec<String>,
    /// Stop tracing a function that is called more often than this per second [default: as many calls as cost a tenth of a core on
    /// this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=10_000_000), help_heading = "What is recorded")]
    pub function_limit: Option<u32>,
    /// Where events come from: `ebpf`, or `intel-pt`: also every function call, traced by the processor, where it has Intel PT
    #[arg(long, value_name = "SOURCE", value_parser = ["ebpf", "intel-pt"], default_value = "ebpf", help_heading = "What is recorded")]
    pub source: String,
    /// Turn on hooks that are off by default, separated by commas (`all`: every one); repeatable
    #[arg(long, value_name = "HOOK", value_parser = hook_to_add, value_delimiter = ',', help_heading = "What is \
     recorded")]
    pub with_hook: Vec<String>,
    /// Also say at the end which hooks were off, and why (run.json has it anyway)
    #[arg(short, long, help_heading = "What is recorded")]
    pub verbose: bool,
    /// Turn off hooks, separated by commas; repeatable
    #[arg(long, value_name = "HOOK", value_parser = hook_to_leave, value_delimiter = ',', help_heading = "What is \
     recorded")]
    pub without_hook: Vec<String>,
    /// Memory for all event buffers [default: 1/16 of the memory, at most 512M]
    #[arg(long, value_parser = size, value_name = "SIZE", help_heading = "Memory and files")]
    pub buffer: Option<u64>,
    /// Allow an output directory that another user can write to
    #[arg(long, help_heading = "Memory and files")]
    pub into_shared: bool,
    /// Attach an empty program to every hook and record nothing, to measure what hooks cost by themselves
    #[arg(long, hide = true)]
    pub empty_hooks: bool,
    /// Print run.json
    #[arg(long)]
    pub json: bool,
}

/// `diagnose`.
#[derive(Debug, Args)]
pub struct Diagnose {
    /// The run directory
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// What is asked.
    #[command(flatten)]
    pub question: Question,
    /// Compare with the same slice of this other run
    #[arg(long, value_name = "RUN2", conflicts_with = "reference")]
    pub against: Option<PathBuf>,
    /// Subtract this cause of the total leg before messages are compared, to find what it hides; WHO as in the diagnosis, wildcards
    /// allowed; repeatable (docs/ideal.md)
    #[arg(long, value_name = "CAUSE[:WHO]", value_parser = |t: &str| t.parse::<tailsight_ideal::Named>(), conflicts_with_all = ["against", "class"], help_heading = "Analysis")]
    pub without: Vec<tailsight_ideal::Named>,
    /// Also print the most frequent causes by percentile, what was queued ahead, and what ran on each core
    #[arg(long)]
    pub more: bool,
    /// Do not ask this rule what sleeps were for, to see what it is worth; repeatable (docs/rules.md)
    #[arg(long, value_name = "RULE", value_parser = rule, conflicts_with_all = ["against", "without", "more"], help_heading = "Analysis")]
    pub without_rule: Vec<Rule>,
    /// Put another value in the place of a threshold of what is inferred, to see what it is worth; repeatable (docs/thresholds.md)
    #[arg(long, value_name = "NAME=VALUE", value_parser = threshold, help_heading = "Analysis")]
    pub threshold: Vec<(Threshold, f64)>,
    /// Also print which rules say what the sleeps of the slow messages were for
    #[arg(long, help_heading = "Analysis")]
    pub why: bool,
    /// Also the load at which the ideal server passes this for the total leg, and the recorded one, such as 'p99<1ms'; and the cores
    /// that packets and requests need
    #[arg(long, value_name = "pQ<TIME", value_parser = |t: &str| t.parse::<tailsight_ideal::Objective>(), conflicts_with_all = ["against", "without", "class"], help_heading = "Analysis")]
    pub slo: Option<tailsight_ideal::Objective>,
    /// Also print the notes that every run has: what hooks would tell that are off unless they are asked for
    #[arg(short, long, help_heading = "Analysis")]
    pub verbose: bool,
    /// Print JSON (schema 1)
    #[arg(long)]
    pub json: bool,
    /// Exit 4 if a cause takes more than this, by its whole 95 % interval, e.g. 500us
    #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
    pub fail_above: Option<u64>,
}

/// `report`.
#[derive(Debug, Args)]
pub struct Report {
    /// The run directory; or files of `load -o FILE.parquet`, which are drawn on one page
    #[arg(value_name = "RUN|FILE", required = true)]
    pub runs: Vec<PathBuf>,
    /// The HTML file [default: RUN/report.html, or the first FILE with the ending .html]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// What is asked.
    #[command(flatten)]
    pub question: Question,
    /// Compare with the same slice of this other run
    #[arg(long, value_name = "RUN2", conflicts_with = "reference")]
    pub against: Option<PathBuf>,
}

/// `show`.
#[derive(Debug, Args)]
pub struct Show {
    /// The run directory
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The message's id
    #[arg(value_name = "ID", value_parser = message)]
    pub id: u32,
    /// What it is compared with and how owners are named.
    #[command(flatten)]
    pub question: Question,
    /// Also print which rule says what each sleep was for
    #[arg(long)]
    pub why: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A format of `export`.
#[cfg(feature = "export")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportFormat {
    Parquet,
    Collapsed,
    Pprof,
    FirefoxProfiler,
    Perfetto,
    Otlp,
    Csv,
}

/// `export`.
#[cfg(feature = "export")]
#[derive(Debug, Args)]
pub struct Export {
    /// The run directory
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The format
    #[arg(long, value_enum, default_value_t = ExportFormat::Parquet)]
    pub format: ExportFormat,
    /// The directory to write to [default: RUN]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Of otlp: send the spans to this collector (OTLP over HTTP, such as http://127.0.0.1:4318) and write no file
    #[arg(long, value_name = "URL", value_parser = crate::commands::collector::parse, conflicts_with = "out")]
    pub to: Option<crate::commands::collector::Collector>,
    /// What is asked.
    #[command(flatten)]
    pub question: Question,
}

/// `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// The command whose page is printed [default: the page of tailsight itself]
    #[arg(value_name = "COMMAND", value_parser = command_name)]
    pub command: Option<String>,
    /// Write every page to this folder, which is created
    #[arg(short, long, value_name = "DIR", conflicts_with = "command")]
    pub out: Option<PathBuf>,
}

/// What `schema` prints: the outputs of these commands, and the views of events.
pub const SCHEMAS: [&str; 12] =
    ["doctor", "record", "watch", "diagnose", "show", "fix", "tune", "import", "ideal", "load", "sweep", EVENTS];
/// What `schema` calls the views of events.
pub const EVENTS: &str = "events";

/// `schema`.
#[derive(Debug, Args)]
pub struct Schema {
    /// The command; `events`: views of the events of a run for DuckDB, one a kind, as SQL
    #[arg(value_name = "COMMAND", value_parser = SCHEMAS)]
    pub command: String,
}

/// `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

fn command_name(text: &str) -> Result<String, String> {
    let names = crate::reference::pages::names();
    names.contains(&text).then(|| text.to_owned()).ok_or_else(|| format!("the commands are {}", names.join(", ")))
}

/// What can be framed. Redis is what most who speak RESP have in mind, and gRPC is HTTP/2.
fn framed() -> impl clap::builder::TypedValueParser<Value = ProtocolChoice> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
    let auto = PossibleValue::new(ProtocolChoice::AUTO);
    let names = Protocol::ALL.map(|protocol| match protocol {
        Protocol::Resp => PossibleValue::new(protocol.name()).alias("redis"),
        Protocol::Http2 => PossibleValue::new(protocol.name()).alias("grpc"),
        _ => PossibleValue::new(protocol.name()),
    });
    let names: Vec<PossibleValue> = std::iter::once(auto).chain(names).collect();
    PossibleValuesParser::new(names).try_map(|name| match &name[..] {
        "redis" => Ok(Protocol::Resp.into()),
        "grpc" => Ok(Protocol::Http2.into()),
        name => name.parse::<ProtocolChoice>(),
    })
}

fn message(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a message id; `diagnose` prints them"))
}

fn payload_bytes(text: &str) -> Result<u32, String> {
    let most = tailsight_record::Payload::MOST_BYTES;
    let bytes = parse::size(text).ok().and_then(|n| u32::try_from(n).ok());
    bytes
        .filter(|n| (1..=most).contains(n))
        .ok_or_else(|| format!("`{text}` is not a number of bytes to keep; write 1 to {most}"))
}

pub(crate) fn sample_rate(text: &str) -> Result<SampleRate, String> {
    let most = SampleRate::MOST_HZ;
    match text {
        "off" => Ok(SampleRate::Off),
        "usual" => Ok(SampleRate::Usual),
        _ => {
            let hz = parse::count(text).ok().and_then(|hz| u32::try_from(hz).ok()).filter(|hz| (1..=most).contains(hz));
            hz.map(SampleRate::Hz)
                .ok_or_else(|| format!("`{text}` is not a sample rate; write 1 to {most} per second, or off"))
        }
    }
}

fn hook_to_add(text: &str) -> Result<String, String> {
    check_hooks(HookChoice { add: vec![text.into()], ..HookChoice::default() }, text)
}

fn hook_to_leave(text: &str) -> Result<String, String> {
    check_hooks(HookChoice { remove: vec![text.into()], ..HookChoice::default() }, text)
}

/// Whether the choice can be met at all, on whatever kernel.
fn check_hooks(choice: HookChoice, text: &str) -> Result<String, String> {
    loader::choose(&choice, |_| Ok(())).map(|_| text.to_owned()).map_err(|e| e.to_string())
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let d = parse::duration(text).map_err(|e| e.to_string())?;
    if d < Duration::from_millis(10) {
        return Err("the duration must be at least 10ms; 2s is usual".into());
    }
    Ok(d)
}

pub(crate) fn size(text: &str) -> Result<u64, String> {
    let bytes = parse::size(text).map_err(|e| e.to_string())?;
    if bytes < 1 << 20 { Err("--buffer must be at least 1M".into()) } else { Ok(bytes) }
}

/// A rule for sleeps by its id.
fn rule(text: &str) -> Result<Rule, String> {
    let ids = || Rule::ALL.iter().filter(|rule| !rule.is_last_resort()).map(|rule| rule.id()).collect::<Vec<_>>();
    match Rule::of_id(text) {
        Some(rule) if rule.is_last_resort() => Err("it is the last resort, and always asked".into()),
        Some(rule) => Ok(rule),
        None => Err(format!("rules are {}", ids().join(", "))),
    }
}

fn threshold(text: &str) -> Result<(Threshold, f64), String> {
    let (name, value) = text.split_once('=').ok_or("it is NAME=VALUE, e.g. late-sleep=500000")?;
    let ids = || Threshold::ALL.iter().map(|threshold| threshold.id()).collect::<Vec<_>>().join(", ");
    let threshold = Threshold::of_id(name).ok_or_else(|| format!("thresholds are {}", ids()))?;
    let value: f64 = value.parse().map_err(|_| format!("{value} is no number"))?;
    match threshold.unit() {
        _ if !value.is_finite() || value <= 0.0 => Err("it must be above 0".into()),
        ThresholdUnit::Share if value >= 1.0 => Err("it is a part of one: below 1".into()),
        ThresholdUnit::Ns | ThresholdUnit::Count if value.fract() != 0.0 => Err("it is a whole number".into()),
        _ => Ok((threshold, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn redis_is_resp_and_grpc_is_http2() {
        let parsed = Cli::try_parse_from(["tailsight", "record", "-p", "1", "--protocol", "redis"]).unwrap();
        assert!(matches!(parsed.command, Command::Record(record) if record.protocol == Some(Protocol::Resp.into())));
        let parsed = Cli::try_parse_from(["tailsight", "record", "-p", "1", "--protocol", "grpc"]).unwrap();
        assert!(matches!(parsed.command, Command::Record(record) if record.protocol == Some(Protocol::Http2.into())));
        let parsed = Cli::try_parse_from(["tailsight", "record", "-p", "1", "--protocol", "auto"]).unwrap();
        assert!(matches!(parsed.command, Command::Record(record) if record.protocol == Some(ProtocolChoice::Auto)));
        assert!(Cli::try_parse_from(["tailsight", "record", "-p", "1", "--protocol", "mysql"]).is_err());
    }

    #[test]
    fn exactly_one_target_is_wanted() {
        assert!(Cli::try_parse_from(["tailsight", "record"]).is_err());
        assert!(Cli::try_parse_from(["tailsight", "record", "-p", "1", "--port", "80"]).is_err());
        assert!(Cli::try_parse_from(["tailsight", "record", "--port", "80", "-d", "500ms"]).is_ok());
        assert!(Cli::try_parse_from(["tailsight", "record", "--", "sleep", "-x"]).is_ok());
        assert!(Cli::try_parse_from(["tailsight", "record", "--port", "80", "-d", "2"]).is_err());
    }

    #[test]
    fn hooks_are_checked_before_anything_is_done() {
        let parse = |flag, name| Cli::try_parse_from(["tailsight", "record", "-p", "1", flag, name]);
        assert!(parse("--with-hook", "all").is_ok() && parse("--without-hook", "cpu_idle").is_ok());
        for (flag, name) in
            [("--with-hook", "nope"), ("--without-hook", "nope"), ("--without-hook", "sock_recv_length")]
        {
            assert!(parse(flag, name).unwrap_err().to_string().contains(name), "{flag} {name}");
        }
    }

    #[test]
    fn questions_that_cannot_be_meant_are_wrong_usage() {
        let parse = |args: &[&str]| Cli::try_parse_from([&["tailsight", "diagnose", "run"], args].concat());
        for bad in ["abc", "p99", "", "p..p100", "nan..p99", "p99..p101", "p50..p40", "-1..50", "p50..p50"] {
            assert!(parse(&[&format!("--focus={bad}")]).unwrap_err().to_string().contains("is not a slice"), "{bad}");
        }
        assert!(parse(&["--against", "run2", "--more", "--focus", "p20..p30", "--nest", "0.9"]).is_ok());
        assert!(parse(&["--against", "run2", "--reference", "p45..p55"]).is_err());
        assert!(parse(&["--nest", "0.4"]).is_ok() && parse(&["--nest", "1"]).is_ok());
        assert!(parse(&["--nest", "0"]).is_err() && parse(&["--nest", "1.1"]).is_err());
        assert!(parse(&["--granularity", "1"]).is_err());
        assert_eq!(nanoseconds("2us"), Ok(2_000));
    }

    #[test]
    fn sizes() {
        assert_eq!(size("64M"), Ok(64 << 20));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert!(size("12").is_err() && size("xM").is_err());
    }
}
