//! `bench tales FIGURE`: the experiments of Tales of the Tail (Li et al. 2014, §4) on this machine, as far as two cores go.
//!
//! In: an experiment, root, the tailsight binary, a machine that does nothing else. Out: on stdout the page as Markdown; in the
//! output folder `tales-FIGURE.json` (every round, with its curves, for `--redraw`) and the page with its pictures; with `--write` the same in docs/. Each set-up of
//! each server runs once a round, in an order that turns; a round in which other programs or the hypervisor had more than 1 % of
//! a core is measured again, five times at most, and does not count when it stays so. Mitigations are made in turn on one server (in_turn.rs). Exit 0 done, 1 failed, 3 when a set-up has no
//! round or no peak that counts, 130 interrupted. Servers, namespaces and scratch files are gone at the end.
//!
//! Latencies are those inside the server's host (the total leg of `tailsight record`), for the client is no other machine here.
//! The recorder costs time too, so the peak that loads and ideals come from is the peak of the recorded server.

mod figure;
mod in_turn;
mod page;
mod plot;
mod rig;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tailsight_units::parse;

use figure::{App, Experiment, Figure, Place, Setup};
use rig::{Rig, Served};

/// `bench tales`.
#[derive(Debug, Args)]
pub struct TalesArgs {
    /// Which experiment.
    #[arg(value_enum)]
    experiment: Experiment,
    /// Rounds; each has every set-up of every server once.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each recording is.
    #[arg(long, value_parser = parse::duration, default_value = "2s")]
    window: Duration,
    /// Only these servers.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<App>,
    /// Where results go.
    #[arg(long, value_name = "DIR", default_value = "tales-out")]
    out: PathBuf,
    /// Measures nothing: writes the page and the pictures again, from the results that are in the output folder.
    #[arg(long)]
    redraw: bool,
    /// Also put the page into docs/results and its pictures into docs/images.
    #[arg(long)]
    write: bool,
    /// The binary of tailsight [default: beside this one].
    #[arg(long, value_name = "FILE")]
    tailsight: Option<PathBuf>,
}

/// What every step needs.
pub struct Tales {
    tailsight: PathBuf,
    /// This program, which is also the null-RPC server and the background process.
    program: PathBuf,
    scratch: tempfile::TempDir,
    window: Duration,
    /// The client sleeps between requests and goes before all else on its core: something else runs there, too.
    client_first: bool,
    stop: Arc<AtomicBool>,
}

/// Of one core: if other programs and the hypervisor use more of it, a round does not count.
const OTHERS: f64 = 0.01;
/// How often a round is measured again for that.
const AGAIN: u32 = 5;
/// Loads whose median is a peak.
const PEAKS: usize = 3;

/// A set-up of a server, measured.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    app: App,
    setup: Setup,
    /// The most that it serves, recorded and without the background process, requests/s.
    peak_per_s: f64,
    /// How busy the server's core was then, 0 to 1: at less than all of it, the peak may be the client's.
    peak_busy: f64,
    /// No load that this peak is the median of was undisturbed: it, the load and the ideal are too low or too slow by an unknown part.
    peak_disturbed: bool,
    /// The load, requests/s.
    rate_per_s: f64,
    /// What `tailsight fix` said that it did, once a round.
    made: Vec<String>,
    rounds: Vec<Round>,
}

/// One round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Round {
    served_per_s: f64,
    /// What other programs and the hypervisor used of one core meanwhile.
    others: f64,
    /// Messages with a reply.
    messages: u64,
    /// Total leg, by `p50`, `p99`, …
    measured_ns: BTreeMap<String, u64>,
    /// The ideal on the same arrivals.
    ideal_ns: BTreeMap<String, u64>,
    /// Messages before which a later arrival was served, where that is counted.
    out_of_order: Option<u64>,
    /// Points (latency ns, share of messages above it).
    ccdf: Vec<(u64, f64)>,
    ideal_ccdf: Vec<(u64, f64)>,
}

impl Round {
    /// Whether other programs left it undisturbed.
    pub fn counts(&self) -> bool {
        self.others <= OTHERS
    }
}

impl Tales {
    /// Fails when Ctrl-C was pressed; called between all steps.
    fn check(&self) -> anyhow::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// A command of tailsight, which keeps what its fixes change in the scratch folder.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.tailsight);
        command.arg(name).env("TAILSIGHT_STATE", self.scratch.path());
        command
    }

    /// What a command of tailsight prints with `--json`.
    fn json(&self, command: &mut Command) -> anyhow::Result<Value> {
        command.arg("--json").stdin(Stdio::null());
        let output = command.output().context("cannot run tailsight")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
            bail!("tailsight {} ended with {}: {said}", arguments.join(" "), output.status);
        }
        serde_json::from_slice(&output.stdout).context("what tailsight printed is not JSON")
    }
}

/// What is kept of an experiment.
#[derive(Debug, Clone, Serialize)]
struct Results {
    /// The command that measured, the day and the machine.
    measured_by: String,
    measured: Vec<Measured>,
}

impl Results {
    fn new(command: &str, measured: Vec<Measured>) -> Self {
        let facts: Vec<String> = crate::machine::host().into_iter().map(|(what, is)| format!("{what} {is}")).collect();
        let day = crate::machine::said("date", &["-u", "+%F"]);
        Self { measured_by: format!("Measured on {day} by `{command}`; {}.", facts.join(", ")), measured }
    }

    /// Those that an earlier run of the experiment wrote.
    fn read(figure: &Figure, file: &Path) -> anyhow::Result<Results> {
        /// [`Setup`] is told by its name.
        #[derive(Deserialize)]
        struct Name {
            name: String,
        }
        #[derive(Deserialize)]
        struct One {
            app: App,
            setup: Name,
            peak_per_s: f64,
            peak_busy: f64,
            peak_disturbed: bool,
            rate_per_s: f64,
            #[serde(default)]
            made: Vec<String>,
            rounds: Vec<Round>,
        }
        #[derive(Deserialize)]
        struct Written {
            measured_by: String,
            measured: Vec<One>,
        }
        let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let written: Written = serde_json::from_slice(&bytes).with_context(|| {
            format!("{} is no result of this experiment: measure it again, without --redraw", file.display())
        })?;
        let parsed = |one: One| {
            let One { app, setup: Name { name }, peak_per_s, peak_busy, peak_disturbed, rate_per_s, made, rounds } =
                one;
            let setup = figure.setups(app).find(|setup| setup.name == name);
            let setup = *setup.with_context(|| format!("this experiment has no set-up `{name}`: measure it again"))?;
            Ok(Measured { app, setup, peak_per_s, peak_busy, peak_disturbed, rate_per_s, made, rounds })
        };
        let measured = written.measured.into_iter().map(parsed).collect::<anyhow::Result<Vec<Measured>>>()?;
        Ok(Results { measured_by: written.measured_by, measured })
    }

    /// The page and its pictures, in the output folder and, with `--write`, in docs/.
    fn show(&self, figure: &Figure, args: &TalesArgs) -> anyhow::Result<ExitCode> {
        let Results { measured_by, measured } = self;
        page::write(&args.out, &args.out, figure, measured, measured_by)?;
        if args.write {
            page::write(Path::new("docs/results"), Path::new("docs/images"), figure, measured, measured_by)?;
        }
        print!("{}", page::page(figure, measured, measured_by, ""));
        let whole = measured.iter().all(|one| !one.peak_disturbed && one.rounds.iter().any(Round::counts));
        Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(3) })
    }
}

/// Runs an experiment.
pub fn run(args: &TalesArgs) -> anyhow::Result<ExitCode> {
    let figure = args.experiment.figure();
    let raw = args.out.join(format!("tales-{}.json", figure.file()));
    if args.redraw {
        return Results::read(&figure, &raw)?.show(&figure, args);
    }
    if !tailsight_testbed::netns::permitted() {
        bail!("the experiments record and make network namespaces, which needs root: run this with sudo");
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        bail!("the experiments need two cores: one for the server, one for the client");
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let tailsight = args.tailsight.clone().unwrap_or_else(|| program.with_file_name("tailsight"));
    let tailsight = std::path::absolute(tailsight)?;
    if !tailsight.is_file() {
        bail!("{} is not there; cargo build -p tailsight, or name it with --tailsight", tailsight.display());
    }
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = Arc::clone(&stop);
    ctrlc::set_handler(move || stopper.store(true, Ordering::Relaxed)).context("cannot catch Ctrl-C")?;
    let scratch = tempfile::Builder::new().prefix("tailsight-tales-").tempdir()?;
    let client_first = figure.setups.iter().any(|setup| setup.background != Place::Absent);
    let tales = Tales { tailsight, program, scratch, window: args.window, client_first, stop };
    let measured = match if figure.in_turn() { in_turn::measure } else { measure }(&tales, &figure, args) {
        Err(_) if tales.check().is_err() => {
            eprintln!("bench: interrupted; servers and namespaces are gone, nothing was written");
            return Ok(ExitCode::from(130));
        }
        other => other?,
    };
    let results = Results::new(&command(args), measured);
    std::fs::write(&raw, serde_json::to_string(&results)?)?;
    results.show(&figure, args)
}

fn command(args: &TalesArgs) -> String {
    let name = clap::ValueEnum::to_possible_value(&args.experiment);
    let name = name.as_ref().map_or("", |name| name.get_name());
    format!("bench tales {name} --rounds {} --window {}ms", args.rounds, args.window.as_millis())
}

/// The servers that are asked for.
fn apps(figure: &Figure, args: &TalesArgs) -> impl Iterator<Item = App> {
    figure.apps.iter().copied().filter(|app| args.only.is_empty() || args.only.contains(app))
}

/// The peaks, then the rounds.
fn measure(tales: &Tales, figure: &Figure, args: &TalesArgs) -> anyhow::Result<Vec<Measured>> {
    let mut measured = Vec::new();
    for app in apps(figure, args) {
        let mut peaks: Vec<(Setup, Peak)> = Vec::new();
        for setup in figure.setups(app) {
            let undisturbed = setup.undisturbed();
            let peak = match peaks.iter().find(|(known, _)| *known == undisturbed) {
                Some((_, known)) => *known,
                None => peak_of(tales, app, &undisturbed)?,
            };
            peaks.push((undisturbed, peak));
            let its_peak = if figure.own_peak { peak } else { peaks[0].1 };
            measured.push(Measured::new(app, *setup, peak, its_peak.per_s * figure.utilisation));
        }
    }
    let n = measured.len();
    for number in 0..args.rounds as usize {
        for turn in 0..n {
            let experiment = &mut measured[(turn + number) % n];
            let (app, setup) = (experiment.app, experiment.setup);
            // The same arrivals for all set-ups of a round.
            let seed = 100 + number as u64;
            let run = tales.scratch.path().join("run");
            experiment.add(
                number,
                undisturbed(Round::counts, || {
                    once(tales, figure, experiment, &Rig::new(tales, app, &setup)?, seed, &run)
                })?,
            );
        }
    }
    Ok(measured)
}

/// Measures, and measures again when other programs had a part in it.
fn undisturbed<T>(counts: impl Fn(&T) -> bool, mut measure: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut run = measure()?;
    for _ in 0..AGAIN {
        if !counts(&run) {
            run = measure()?;
        }
    }
    Ok(run)
}

impl Measured {
    fn new(app: App, setup: Setup, peak: Peak, rate_per_s: f64) -> Self {
        let Peak { per_s: peak_per_s, busy: peak_busy, disturbed: peak_disturbed } = peak;
        let (app_name, busy) = (app.words(), peak_busy * 100.0);
        eprintln!("{app_name}, {}: peak {peak_per_s:.0}/s ({busy:.0} % busy), load {rate_per_s:.0}/s", setup.name);
        Self { app, setup, peak_per_s, peak_busy, peak_disturbed, rate_per_s, made: vec![], rounds: vec![] }
    }

    /// Adds a round, and says so.
    fn add(&mut self, number: usize, round: Round) {
        let us = |key: &str| round.measured_ns.get(key).map_or("N/A".to_owned(), |ns| page::us(*ns));
        eprintln!(
            "round {}: {}, {}: p50 {}, p99 {}, p99.9 {} us{}",
            number + 1,
            self.app.words(),
            self.setup.name,
            us("p50"),
            us("p99"),
            us("p99.9"),
            if round.counts() { "" } else { " (disturbed)" },
        );
        self.rounds.push(round);
    }
}

/// The most that a server serves.
#[derive(Debug, Clone, Copy)]
struct Peak {
    /// Requests/s.
    per_s: f64,
    /// How busy the server's core was, 0 to 1.
    busy: f64,
    /// No load was undisturbed.
    disturbed: bool,
}

impl Peak {
    /// The median of some loads that kept the server busy: of those that other programs left undisturbed, if there are any.
    fn of(mut served: Vec<Served>) -> Self {
        let disturbed = !served.iter().any(Served::counts);
        served.retain(|one| disturbed || one.counts());
        served.sort_by(|a, b| a.per_s.total_cmp(&b.per_s));
        let middle = &served[served.len() / 2];
        Self { per_s: middle.per_s, busy: middle.busy, disturbed }
    }
}

impl Served {
    /// Whether other programs left it undisturbed.
    fn counts(&self) -> bool {
        self.others <= OTHERS
    }
}

/// The peak of a set-up, each time of a new server.
fn peak_of(tales: &Tales, app: App, setup: &Setup) -> anyhow::Result<Peak> {
    let run = tales.scratch.path().join("peak");
    let saturated = || undisturbed(Served::counts, || Rig::new(tales, app, setup)?.saturate(tales.window / 2, &run));
    Ok(Peak::of((0..PEAKS).map(|_| saturated()).collect::<anyhow::Result<_>>()?))
}

/// One recording under load, into `run`, and its analysis.
fn once(tales: &Tales, figure: &Figure, of: &Measured, rig: &Rig<'_>, seed: u64, run: &Path) -> anyhow::Result<Round> {
    let served = rig.load(of.rate_per_s, seed, tales.window, run)?;
    let workers = of.setup.cores();
    let service = format!("{:.0}ns", workers as f64 * 1e9 / of.peak_per_s);
    let workers = workers.to_string();
    let ideal = tales.json(tales.command("ideal").args(["--service", &service, "--workers", &workers]).arg(run))?;
    let out_of_order = match figure.order {
        true => tales.json(tales.command("diagnose").arg(run))?["messages"]["out_of_order"].as_u64(),
        false => None,
    };
    let by_percentile = |key: &str| serde_json::from_value(ideal[key].clone()).context("percentiles");
    let curve = |key: &str| serde_json::from_value(ideal["ccdf"][key].clone()).context("a curve");
    Ok(Round {
        served_per_s: served.per_s,
        others: served.others,
        messages: ideal["complete"].as_u64().unwrap_or(0),
        measured_ns: by_percentile("measured_ns")?,
        ideal_ns: by_percentile("ideal_ns")?,
        out_of_order,
        ccdf: curve("measured")?,
        ideal_ccdf: curve("ideal")?,
    })
}
