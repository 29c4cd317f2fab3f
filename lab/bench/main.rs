//! `bench`: the figures of docs/results/benchmarks.md in one run, beside the peers, on this machine; `bench case-study`: those of
//! docs/results/case-study.md ([`case_study`]).
//!
//! In: the release binary of tailsight, root, a machine that does nothing else. Out: on stdout the tables as Markdown;
//! in the output folder `bench.json` (every raw number) and `benchmarks.md`; with `--write` also docs/results/benchmarks.md.
//! Exit 0 done (also with goals missed), 1 failed, 130 interrupted; with `--gate` 4 when a goal is missed and 3 when none
//! is but one could not be judged, because something else used the machine. Servers, namespaces,
//! recorders and scratch files are gone at the end, also on Ctrl-C; every load and every wait is bounded in time.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool of this repository, run from its scripts")]

mod analysis;
mod case_study;
mod client;
mod docs;
mod intel_pt;
mod machine;
mod matched;
mod peak;
mod peers;
mod recorder;
mod rig;
mod roundtrip;
mod table;
mod tales;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use tailsight_lab::faults::{self, FaultArgs};
use tailsight_lab::servers::{self, ServeArgs};
use tailsight_units::parse;

use table::{GoalResult, Section};

/// Measure tailsight beside its peers on this machine and print the tables of docs/results/benchmarks.md (root).
#[derive(Debug, Parser)]
#[command(name = "bench", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    figures: BenchArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Diagnose memcached beside nginx, change what the diagnosis says, measure what it gave (root).
    CaseStudy(case_study::CaseStudyArgs),
    /// Repeat an experiment of Tales of the Tail: background processes, order of service, workers, receive cores (root).
    Tales(tales::TalesArgs),
    /// Be a test server until killed: the client's figures start this program as their ideal server.
    #[command(hide = true)]
    Serve(ServeArgs),
    /// Decode an Intel PT recording and say what was counted: the figures measure this program's process.
    #[command(hide = true)]
    DecodePt(intel_pt::DecodeArgs),
    /// Run a program and print its peak memory: the figures measure it from a small process.
    #[command(hide = true)]
    PeakOf(peak::PeakArgs),
    /// Be a fault until killed: the experiments start this program as their background process.
    #[command(hide = true)]
    Fault(FaultArgs),
}

#[derive(Debug, Args)]
struct BenchArgs {
    /// The release binary of tailsight.
    #[arg(long, value_name = "FILE", default_value = "target/release/tailsight")]
    tailsight: PathBuf,
    /// Where raw results go (bench.json, benchmarks.md); scratch files live there while it runs.
    #[arg(long, value_name = "DIR", default_value = "bench-out")]
    out: PathBuf,
    /// Fewer rounds and shorter windows: shows that everything works, says little about the figures, and is not published.
    #[arg(long, conflicts_with = "write")]
    quick: bool,
    /// Interleaved rounds of the round trip, of the client's figures [default: 7, client 4, with --quick 2].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Measured window of each variant in a round [default: 2s, with --quick 1s; at most 2.5s].
    #[arg(long, value_parser = parse::duration)]
    window: Option<Duration>,
    /// Only these figures. `client` takes the best part of an hour and is measured only when it is named, alone.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Figure>,
    /// With `--only client`: only these parts of its figures.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    part: Vec<client::Part>,
    /// Leave this hook out of tailsight's recordings of the round trip, to see what it costs. Can be given several times.
    #[arg(long, value_name = "HOOK")]
    without_hook: Vec<String>,
    /// Only these variants of the round trip beside `off`.
    #[arg(long, value_delimiter = ',')]
    variants: Vec<recorder::Tool>,
    /// With `--only intel-pt`: the size of the long recording, which also needs as much space in the output folder.
    #[arg(long, value_name = "SIZE", value_parser = parse::size, default_value_t = intel_pt::LONG)]
    long_file: u64,
    /// Put the tables between the markers of docs/results/benchmarks.md (client, intel-pt alone: of the page of that name).
    #[arg(long)]
    write: bool,
    /// The file that --write changes.
    #[arg(long, value_name = "FILE", default_value = "docs/results/benchmarks.md")]
    docs: PathBuf,
    /// Exit 4 when a goal is missed, 3 when one cannot be judged.
    #[arg(long)]
    gate: bool,
}

/// A group of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Matched messages, lost events, parts that sum; what a hook costs.
    Matched,
    /// The server's round trip with a recorder on against off.
    Roundtrip,
    /// Speed and memory of the analysis.
    Analysis,
    /// Decoding Intel PT beside perf script, and a few messages of it instead of all: only when it is named.
    IntelPt,
    /// The load generator beside its peers: bias against known service times, CPU time a request.
    Client,
}

/// What every figure needs.
struct Bench {
    tailsight: PathBuf,
    /// Scratch files: runs and recordings.
    scratch: tempfile::TempDir,
    quick: bool,
    rounds: u32,
    window: Duration,
    without_hook: Vec<String>,
    variants: Vec<recorder::Tool>,
    /// Bytes of the long Intel PT recording.
    long_file: u64,
    stop: Arc<AtomicBool>,
}

impl Bench {
    /// Fails when Ctrl-C was pressed; called between all steps.
    fn check(&self) -> anyhow::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("interrupted: servers, recorders and namespaces are gone, nothing was written");
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Some(Command::CaseStudy(args)) => case_study::run(args),
        Some(Command::Tales(args)) => tales::run(args),
        Some(Command::DecodePt(args)) => intel_pt::decode(args),
        Some(Command::PeakOf(args)) => peak::run(args),
        Some(Command::Fault(args)) => faults::run(args).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Some(Command::Serve(args)) => servers::serve(args).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        None => run(&cli.figures),
    };
    result.unwrap_or_else(|error| {
        eprintln!("bench: {error:#}");
        ExitCode::from(1)
    })
}

/// Runs the figures and prints them.
fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    if !tailsight_testbed::netns::permitted() {
        bail!("the benchmarks load BPF programs and make network namespaces, which needs root: sudo make bench");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        bail!("the benchmarks need two cores, one for the servers and one for the load; this machine gives us {cores}");
    }
    let tailsight = std::path::absolute(&args.tailsight)
        .ok()
        .filter(|path| path.is_file())
        .with_context(|| format!("{} is not there; cargo build --release -p tailsight", args.tailsight.display()))?;
    let client = args.only.contains(&Figure::Client);
    if client && args.only.len() > 1 {
        bail!("--only client stands alone: its figures go into another page and want the machine for themselves");
    }
    if !args.part.is_empty() && !client {
        bail!("--part is for --only client");
    }
    if !args.part.is_empty() && args.write {
        bail!("--write puts all tables into the page, and --part measures only some of them");
    }
    let (marked, file) = match &args.only[..] {
        [Figure::Client] => (client::GENERATED, Path::new(client::DOCS)),
        [Figure::IntelPt] => (intel_pt::GENERATED, Path::new(intel_pt::DOCS)),
        _ => (docs::GENERATED, args.docs.as_path()),
    };
    if args.write {
        marked.check(file)?;
    }
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = Arc::clone(&stop);
    ctrlc::set_handler(move || stopper.store(true, Ordering::Relaxed)).context("cannot catch Ctrl-C")?;
    let bench = Bench {
        tailsight,
        scratch: tempfile::Builder::new()
            .prefix("scratch-")
            .tempdir_in(std::path::absolute(&args.out)?)
            .with_context(|| format!("cannot make a scratch folder in {}", args.out.display()))?,
        quick: args.quick,
        rounds: args.rounds.unwrap_or(match (args.quick, client) {
            (true, _) => 2,
            (false, true) => 4,
            (false, false) => 7,
        }),
        window: args
            .window
            .unwrap_or(Duration::from_secs(if args.quick { 1 } else { 2 }))
            .min(Duration::from_millis(2500)),
        without_hook: args.without_hook.clone(),
        variants: if args.variants.is_empty() { recorder::Tool::ALL.to_vec() } else { args.variants.clone() },
        long_file: args.long_file,
        stop,
    };
    let wanted = |figure| args.only.is_empty() || args.only.contains(&figure);
    let facts = machine::MachineFacts::collect(&bench);
    let mut sections: Vec<Section> = Vec::new();
    let outcome = (|| {
        if client {
            sections.extend(client::measure(&bench, &args.part)?);
        }
        if wanted(Figure::Matched) {
            sections.extend(matched::measure(&bench)?);
        }
        if wanted(Figure::Roundtrip) {
            sections.extend(roundtrip::measure(&bench)?);
        }
        if wanted(Figure::Analysis) {
            sections.extend(analysis::measure(&bench)?);
        }
        if args.only.contains(&Figure::IntelPt) {
            sections.extend(intel_pt::measure(&bench)?);
        }
        anyhow::Ok(())
    })();
    if let Err(error) = outcome {
        if bench.stop.load(Ordering::Relaxed) {
            eprintln!("bench: interrupted; servers, recorders and namespaces are gone, no figure was written");
            return Ok(ExitCode::from(130));
        }
        return Err(error);
    }
    let page = if client { client::page } else { docs::page }(&bench, &facts, &sections);
    print!("{page}");
    docs::save(&args.out, &page, &facts, &sections)?;
    if args.write {
        marked.write(file, &page)?;
        eprintln!("wrote {}", file.display());
    }
    let count = |verdict| sections.iter().flat_map(|s| &s.rows).filter(|row| row.verdict == verdict).count();
    let (missed, unknown) = (count(GoalResult::Miss), count(GoalResult::NotQuiet));
    if missed + unknown > 0 {
        eprintln!("{missed} goals missed, {unknown} not judged because the machine was not quiet");
    }
    Ok(match (args.gate, missed, unknown) {
        (true, 1.., _) => ExitCode::from(4),
        (true, 0, 1..) => ExitCode::from(3),
        _ => ExitCode::SUCCESS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Tables of `--quick` runs, whose windows are too short for verdicts, used to stand in the manual.
    #[test]
    fn a_quick_run_is_not_published() {
        let parse = |line: &[&str]| Cli::try_parse_from(line);
        assert!(parse(&["bench", "--quick"]).is_ok() && parse(&["bench", "--write"]).is_ok());
        let error = parse(&["bench", "--quick", "--write"]).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict);
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        let parse = |line: &[&str]| Cli::try_parse_from(line).unwrap();
        assert!(parse(&["bench", "--only", "client"]).command.is_none());
        assert!(matches!(parse(&["bench", "case-study", "--json"]).command, Some(Command::CaseStudy(_))));
    }

    #[test]
    fn every_page_has_its_marks() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        for (marked, page) in [
            (docs::GENERATED, "results/benchmarks.md"),
            (client::GENERATED, "results/client.md"),
            (intel_pt::GENERATED, "results/intel-pt.md"),
            (case_study::page::GENERATED, "results/case-study.md"),
        ] {
            marked.check(&docs.join(page)).unwrap();
        }
    }
}
