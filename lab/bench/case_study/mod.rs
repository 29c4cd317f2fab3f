//! `bench case-study`: NSight §7 on this machine. memcached beside nginx in the default set-up; record, diagnose, change what
//! the largest cause asks for, again; then the latency of every configuration without a recorder.
//!
//! In: rates, rounds, repeats, the tailsight binary. Out: on stdout the page of docs/results/case-study.md as Markdown or, with
//! `--json`, everything as one object (times in ns); progress on stderr. Exit 0 done, 1 failed, 3 when no round had enough
//! evidence, 130 interrupted. Every configuration is made on servers of its own in namespaces of their own, so it ends
//! with them: nothing of the machine is changed.

mod decide;
mod figures;
pub mod page;
mod rig;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use tailsight_units::parse;

use decide::{Cause, Config, Passed, Step};
use figures::Repeat;
use rig::Rig;
pub use rig::become_client;

/// `bench case-study`.
#[derive(Debug, Args)]
pub struct CaseStudyArgs {
    /// Rounds of diagnosing and changing.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10))]
    rounds: u32,
    /// How often the latency of each configuration is measured.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// How long each of these measurements is.
    #[arg(long, value_parser = parse::duration, default_value = "2s")]
    window: Duration,
    /// How long each recording is.
    #[arg(long, value_parser = parse::duration, default_value = "2s")]
    duration: Duration,
    /// Requests a second to memcached.
    #[arg(long, value_parser = parse::rate, default_value = "10k")]
    rate: f64,
    /// Requests a second to nginx, in bursts.
    #[arg(long, value_parser = parse::rate, default_value = "20k")]
    nginx_rate: f64,
    /// Print everything as JSON instead of the page.
    #[arg(long)]
    json: bool,
    /// Put the page between the markers of this file; names of tasks that are not the lab's are replaced.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "docs/results/case-study.md")]
    write: Option<PathBuf>,
    /// The binary of tailsight [default: beside this one].
    #[arg(long, value_name = "FILE")]
    tailsight: Option<PathBuf>,
}

/// What every step needs.
pub struct Study {
    tailsight: PathBuf,
    rate: f64,
    nginx_rate: f64,
    cores: usize,
    stop: Arc<AtomicBool>,
}

impl Study {
    /// Fails when Ctrl-C was pressed; called between all steps.
    fn check(&self) -> anyhow::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }
}

/// The result of recording a configuration, and the change that followed.
#[derive(Debug, Clone, Serialize)]
pub struct Round {
    /// What was recorded.
    config: Config,
    /// Messages of the recording, and events that it lost.
    messages: u64,
    lost_events: u64,
    /// The receive leg of the recording by `p50`, `p99`, …, ns.
    latency_ns: BTreeMap<String, u64>,
    /// The causes by size, without `unexplained`.
    causes: Vec<Cause>,
    /// The part of the deviation that they explain.
    coverage: Option<f64>,
    /// Whether a change was looked for: not after the last recording, which says what is left.
    looked: bool,
    /// The change; `None`: there is nothing to change, or none was looked for.
    step: Option<Step>,
    /// Causes for which nothing was changed.
    passed_over: Vec<Passed>,
    /// What diagnose said when there was not enough evidence.
    said: String,
}

/// The latency of a configuration without a recorder.
#[derive(Debug, Clone, Serialize)]
pub struct Configuration {
    /// `default`, `+ step 1`, …
    name: String,
    config: Config,
    /// How it was made; `MEMCACHED` and `NGINX` stand for process ids.
    commands: Vec<String>,
    repeats: Vec<Repeat>,
    /// Medians over the repeats, ns: p50, p99, p99.9, p99.99, max.
    median_ns: [Option<u64>; 5],
}

/// Everything.
#[derive(Debug, Clone, Serialize)]
pub struct Findings {
    schema: u32,
    command: String,
    machine: BTreeMap<&'static str, String>,
    /// The last one is a recording of the last configuration.
    rounds: Vec<Round>,
    configurations: Vec<Configuration>,
    /// How many times lower each median of the last configuration is than the first's.
    ratios: [Option<f64>; 5],
}

/// Runs the study.
pub fn run(args: &CaseStudyArgs) -> anyhow::Result<ExitCode> {
    if !tailsight_testbed::netns::permitted() {
        bail!("the case study records and makes network namespaces, which needs root: run this with sudo");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        bail!("the case study needs two cores, one to give to memcached and one for the rest; we have {cores}");
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let tailsight = args.tailsight.clone().unwrap_or_else(|| program.with_file_name("tailsight"));
    let tailsight = std::path::absolute(tailsight)?;
    if !tailsight.is_file() {
        bail!("{} is not there; cargo build -p tailsight, or name it with --tailsight", tailsight.display());
    }
    if let Some(file) = &args.write {
        page::GENERATED.check(file)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = Arc::clone(&stop);
    ctrlc::set_handler(move || stopper.store(true, Ordering::Relaxed)).context("cannot catch Ctrl-C")?;
    let study = Study { tailsight, rate: args.rate, nginx_rate: args.nginx_rate, cores, stop };
    let findings = match findings(&study, args) {
        Err(_) if study.check().is_err() => {
            eprintln!("bench: interrupted; servers and namespaces are gone, nothing was written");
            return Ok(ExitCode::from(130));
        }
        other => other?,
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&findings)?);
    } else {
        print!("{}", page::page(&findings, &mut page::Names::default()));
    }
    if let Some(file) = &args.write {
        page::GENERATED.write(file, &page::page(&findings, &mut page::Names::published()))?;
        eprintln!("wrote {}", file.display());
    }
    let answered = findings.rounds.iter().any(|round| round.said.is_empty());
    Ok(if answered { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

/// The rounds, then the latencies.
fn findings(study: &Study, args: &CaseStudyArgs) -> anyhow::Result<Findings> {
    let machine = page::machine(&study.tailsight);
    let scratch = tempfile::Builder::new().prefix("tailsight-case-study-").tempdir()?;
    let mut rounds: Vec<Round> = Vec::new();
    let mut configs = vec![Config::default()];
    for number in 1..=args.rounds as usize + 1 {
        let config = configs[configs.len() - 1].clone();
        let run = scratch.path().join(format!("round-{number}"));
        let mut round = diagnosed(study, &config, number as u64, args.duration, &run)?;
        round.looked = number <= args.rounds as usize;
        if round.looked {
            (round.step, round.passed_over) = decide::decide(&config, &round.causes, study.cores);
        }
        eprint!("{}", page::round(number, &round, &mut page::Names::default()));
        let step = round.step.clone();
        rounds.push(round);
        match step {
            Some(step) => configs.push(step.config),
            None => break,
        }
    }
    let configurations = latencies(study, args, &configs)?;
    let ratios = match (configurations.first(), configurations.last()) {
        (Some(first), Some(last)) if configurations.len() > 1 => figures::ratios(&first.median_ns, &last.median_ns),
        _ => [None; 5],
    };
    let command = format!(
        "bench case-study --rounds {} --repeats {} --window {}ms --duration {}ms --rate {} --nginx-rate {}",
        args.rounds,
        args.repeats,
        args.window.as_millis(),
        args.duration.as_millis(),
        args.rate,
        args.nginx_rate,
    );
    Ok(Findings { schema: 1, command, machine, rounds, configurations, ratios })
}

/// Records a configuration and asks why.
fn diagnosed(study: &Study, config: &Config, seed: u64, time: Duration, run: &Path) -> anyhow::Result<Round> {
    let rig = Rig::new(study, config)?;
    rig.record(seed, time, run)?;
    drop(rig);
    let mut command = Command::new(&study.tailsight);
    command.args(["diagnose", "--json", "--leg", "receive"]).arg(run).stdin(Stdio::null());
    let output = command.output().context("cannot run tailsight diagnose")?;
    study.check()?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let mut round = Round {
        config: config.clone(),
        messages: 0,
        lost_events: 0,
        latency_ns: BTreeMap::new(),
        causes: Vec::new(),
        coverage: None,
        looked: false,
        step: None,
        passed_over: Vec::new(),
        said: String::new(),
    };
    match output.status.code() {
        Some(0) => {}
        Some(3) => {
            round.said = format!("N/A: {said}");
            return Ok(round);
        }
        _ => bail!("tailsight diagnose ended with {}: {said}", output.status),
    }
    let diagnosis: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("what diagnose printed is not JSON")?;
    let causes: Vec<Cause> = serde_json::from_value(diagnosis["causes"].clone()).context("its causes are not known")?;
    round.causes =
        causes.into_iter().filter(|c| c.category != "unexplained" && c.category != "not-significant").collect();
    round.messages = diagnosis["messages"]["total"].as_u64().unwrap_or(0);
    round.lost_events = diagnosis["loss"]["events"].as_u64().unwrap_or(0);
    round.latency_ns = serde_json::from_value(diagnosis["latency_ns"].clone()).unwrap_or_default();
    round.coverage = diagnosis["coverage"]["overall"].as_f64();
    Ok(round)
}

/// Measures every configuration, interleaved: each repeat has all of them, in an order that turns.
fn latencies(study: &Study, args: &CaseStudyArgs, configs: &[Config]) -> anyhow::Result<Vec<Configuration>> {
    let name = |i: usize| if i == 0 { "default".to_owned() } else { format!("+ step {i}") };
    let mut configurations: Vec<Configuration> = configs
        .iter()
        .enumerate()
        .map(|(i, config)| Configuration {
            name: name(i),
            config: config.clone(),
            commands: Vec::new(),
            repeats: Vec::new(),
            median_ns: [None; 5],
        })
        .collect();
    for repeat in 0..args.repeats as usize {
        for turn in 0..configurations.len() {
            let i = (turn + repeat) % configs.len();
            let configuration = &mut configurations[i];
            let rig = Rig::new(study, &configuration.config)?;
            // The same arrivals for all configurations of a repeat.
            let outcomes = rig.measure(100 + repeat as u64, args.window)?;
            let [memcached, nginx] = &outcomes[..] else { bail!("the load gave no two outcomes") };
            let measured = Repeat::of(memcached, nginx);
            let us = |ns: Option<u64>| ns.map_or_else(|| "N/A".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3));
            eprintln!(
                "repeat {}: {:<8} p50 {} us, p99 {} us, max {} us",
                repeat + 1,
                configuration.name,
                us(measured.memcached_ns[0]),
                us(measured.memcached_ns[1]),
                us(measured.memcached_ns[4]),
            );
            configuration.repeats.push(measured);
            configuration.commands.clone_from(&rig.commands);
        }
    }
    for configuration in &mut configurations {
        configuration.median_ns = figures::medians(&configuration.repeats);
    }
    Ok(configurations)
}
