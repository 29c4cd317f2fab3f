//! `lab run` and `lab list`: scenarios with known causes, recorded, diagnosed and judged.
//!
//! In: scenarios, repeats, the tailsight binary beside this one. Out: a line a run on stderr, the confusion table or, with
//! `--json`, every result on stdout. Exit 0 all right, 1 a run failed, 4 a cause was wrong, 130 interrupted. Everything
//! that was made is undone, also on Ctrl-C; what a killed run left is undone by the next start ([`state`]).

mod catalogue;
mod cgroup;
mod check;
mod judge;
mod modern;
pub mod objectives;
mod outcome;
mod peel;
mod programs;
mod scenario;
mod stage;
mod state;
mod stop;
pub(crate) mod table;
pub mod watch;
pub mod what_if;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use tailsight_lab::truth::Interval;
use tailsight_testbed::disturbed;
use tailsight_trace::Run;
use tailsight_units::parse;

use crate::replay::Key;
use judge::Score;
pub(crate) use judge::{Named, causes, first_is_right};
use outcome::ScenarioResult;
use scenario::{DEFAULT_LEG, Scenario};
use stage::Lab;
use state::State;
use stop::Stop;

/// `lab run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Scenarios by name (`lab list`), `all` (but those of modern servers), or `modern`.
    #[arg(required = true)]
    scenarios: Vec<String>,
    /// How often each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// How long each recording is.
    #[arg(long, value_parser = parse::duration, default_value = "2s")]
    duration: Duration,
    /// Print every result as JSON instead of the table.
    #[arg(long)]
    json: bool,
    /// Where runs are made; a folder of this name is made when it is not there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Keep every run, diagnosis and truth log.
    #[arg(long)]
    keep: bool,
    /// Put the sums of all scenarios between the markers of this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// The binary of tailsight [default: beside this one].
    #[arg(long, value_name = "FILE")]
    tailsight: Option<PathBuf>,
}

/// `lab list`.
pub fn list() {
    let held_out = catalogue::held_out().into_iter().map(|scenario| (scenario, " (lab what-if only)"));
    let modern = modern::all().into_iter().map(|scenario| (scenario, ""));
    for (scenario, only) in catalogue::all().into_iter().map(|scenario| (scenario, "")).chain(modern).chain(held_out) {
        let expected = scenario.expected();
        println!("{:<18} {:<9} {}{only}\n{:<28} expected: {expected}", scenario.name, scenario.leg, scenario.about, "");
        if let Some(may) = &scenario.may {
            let may: Vec<&str> = may.iter().map(|cause| cause.category).collect();
            println!("{:<28} may be named: {}", "", may.join(", "));
        }
    }
}

/// `lab run`.
pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let scenarios = choose(&args.scenarios, catalogue::all(), modern::all())?;
    let (lab, mut state) = begin(args.tailsight.as_deref(), args.duration)?;
    if let Some(file) = &args.write {
        table::GENERATED.check(file)?;
    }
    let apart = cgroup::Apart::begin(&mut state);
    let out = args.out.clone().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let out = std::path::absolute(&out)?;
    let mut outcomes: Vec<ScenarioResult> = Vec::new();
    for repeat in 1..=args.repeat {
        for scenario in &scenarios {
            let tries = scenario.reading.as_ref().map_or(1, |_| modern::TRIES);
            for attempt in 1..=tries {
                let again = if attempt > 1 { format!("-again-{attempt}") } else { String::new() };
                let name = format!("tailsight-lab-{}-{repeat}{again}-{}", scenario.name, std::process::id());
                let folder = out.join(name);
                if !args.keep {
                    state.folder(&folder)?;
                }
                let outcome = once(&lab, &mut state, scenario, repeat, &folder);
                if args.keep && folder.is_dir() {
                    let leg = Some(scenario.leg.to_owned()).filter(|leg| leg != DEFAULT_LEG);
                    let key = Key { scenario: Some(scenario.name.to_owned()), leg, ..Key::default() };
                    std::fs::write(folder.join("key.json"), serde_json::to_vec_pretty(&key)?)?;
                }
                state.undo(args.keep)?;
                if lab.check().is_err() {
                    eprintln!("lab: interrupted; everything that was made is undone");
                    return Ok(ExitCode::from(130));
                }
                eprintln!("{}", table::line(&outcome));
                // Decided from the raw events, without a look at the answer.
                let again = outcome.disturbed && attempt < tries;
                outcomes.push(outcome);
                if !again {
                    break;
                }
            }
        }
    }
    drop(apart);
    drop(state);
    let (page, sums) = if scenarios.iter().all(|scenario| scenario.reading.is_some()) {
        let page = modern::page(&outcomes, &scenarios);
        (page.clone(), page)
    } else {
        (table::page(&outcomes, &scenarios, args.repeat), table::sums(&outcomes, args.repeat))
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&outcomes)?);
    } else {
        print!("{page}");
    }
    if args.keep || args.out.is_some() {
        std::fs::write(out.join("accuracy.json"), serde_json::to_vec_pretty(&outcomes)?)?;
        std::fs::write(out.join("accuracy.md"), &page)?;
    }
    if let Some(file) = &args.write {
        table::GENERATED.write(file, &sums)?;
        eprintln!("wrote {}", file.display());
    }
    let is = |outcome: &ScenarioResult, verdicts: &[Score]| verdicts.contains(&outcome.verdict);
    let failed = outcomes.iter().any(|outcome| is(outcome, &[Score::Failed]));
    let wrong = outcomes.iter().any(|o| !o.disturbed && is(o, &[Score::Wrong, Score::NoDiagnosis]));
    Ok(match (failed, wrong) {
        (true, _) => ExitCode::from(1),
        (false, true) => ExitCode::from(4),
        _ => ExitCode::SUCCESS,
    })
}

/// What every run needs, on a machine on which scenarios can run; Ctrl-C ends them between two steps.
fn begin(tailsight: Option<&Path>, duration: Duration) -> anyhow::Result<(Lab, State)> {
    if !tailsight_testbed::netns::permitted() {
        bail!("scenarios make network namespaces and record, which needs root: run this with sudo");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        bail!(
            "scenarios need two cores, one for the application and one for the client; this machine gives us {cores}"
        );
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let beside = || program.with_file_name("tailsight");
    let tailsight = std::path::absolute(tailsight.map_or_else(beside, Path::to_owned))?;
    if !tailsight.is_file() {
        bail!("{} is not there; cargo build -p tailsight, or name it with --tailsight", tailsight.display());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = Arc::clone(&stop);
    ctrlc::set_handler(move || stopper.store(true, Ordering::Relaxed)).context("cannot catch Ctrl-C")?;
    let lab = Lab { tailsight, program, duration, stop };
    let state = State::begin(&state::folder())?;
    Ok((lab, state))
}

/// The scenario of that name.
pub(crate) fn scenario_of(name: &str) -> Option<Scenario> {
    let mut scenarios = catalogue::all().into_iter().chain(modern::all()).chain(catalogue::held_out());
    scenarios.find(|scenario| scenario.name == name)
}

/// The scenarios of these names.
fn choose(names: &[String], all: Vec<Scenario>, modern: Vec<Scenario>) -> anyhow::Result<Vec<Scenario>> {
    if names.iter().any(|name| name == "all") {
        return Ok(all);
    }
    if names.iter().any(|name| name == "modern") {
        return Ok(modern);
    }
    names
        .iter()
        .map(|name| {
            let scenario = all.iter().chain(&modern).find(|scenario| scenario.name == name).cloned();
            scenario.with_context(|| format!("there is no scenario {name}; `lab list` shows them"))
        })
        .collect()
}

/// Runs a scenario once and judges it.
fn once(lab: &Lab, state: &mut State, scenario: &Scenario, repeat: u32, folder: &Path) -> ScenarioResult {
    let take = match stage::run(lab, state, scenario, u64::from(repeat), folder) {
        Ok(take) => take,
        Err(Stop::NotRun(why)) => return ScenarioResult::without(scenario, repeat, Score::NotRun, why),
        Err(Stop::Failed(error)) => {
            return ScenarioResult::without(scenario, repeat, Score::Failed, format!("{error:#}"));
        }
    };
    let judged = || {
        let outcome = judge(scenario, repeat, &take)?;
        let peeled = if take.diagnosis.is_some() && scenario.reading.is_none() {
            peel::peeled(lab, scenario, &take, folder)?
        } else {
            None
        };
        anyhow::Ok(ScenarioResult { peeled, ..outcome })
    };
    judged().unwrap_or_else(|error| ScenarioResult::without(scenario, repeat, Score::Failed, format!("{error:#}")))
}

/// Judges what a run gave.
fn judge(scenario: &Scenario, repeat: u32, take: &stage::Take) -> anyhow::Result<ScenarioResult> {
    let mut run = Run::open(&take.run)?;
    let events = run.events()?;
    // Before the diagnosis is looked at, and without it.
    let stolen = !scenario.expect.iter().any(|cause| cause.category == "steal");
    let disturbance = disturbed::disturbance(&run.tasks, &events, &take.ours, scenario.leg, disturbed::SLOWEST, stolen);
    let outcome = ScenarioResult {
        disturbed: disturbance.is_some_and(|disturbance| disturbance.is_disturbed()),
        disturbance,
        lost_events: run.meta.lost(),
        client_ns: client(take),
        ..ScenarioResult::without(scenario, repeat, Score::NoDiagnosis, format!("not enough evidence: {}", take.said))
    };
    let Some(diagnosis) = &take.diagnosis else {
        let taken = scenario.reading.as_ref().map(scenario::Reading::of_no_answer);
        let verdict = taken.map_or(outcome.verdict, modern::Taken::score);
        return Ok(ScenarioResult { taken, verdict, ..outcome });
    };
    let recorded = (run.meta.start_ns, run.meta.end_ns);
    let causes = judge::causes(diagnosis);
    let shares = judge::shares(scenario, &causes, &take.samples, &take.truth, recorded);
    let leg = if scenario.leg == DEFAULT_LEG { diagnosis["leg"].as_str().unwrap_or("total") } else { scenario.leg };
    let checked = check::check(&run, &events, &causes, leg)?;
    let as_seen_by_server = judge::as_seen(&take.samples, &take.truth);
    let untouched_share = judge::untouched(scenario, &as_seen_by_server, &take.truth, recorded);
    let forbidden = judge::forbidden(scenario, &causes);
    let right = judge::first_is_right(scenario, &causes) != Some(false)
        && !forbidden.iter().any(|cause| cause.share >= judge::TOO_MUCH)
        && (scenario.may.is_none() || checked.absent.is_empty());
    let (coverage, owned) = judge::coverage(diagnosis);
    let inside = |entry: &&Interval| recorded.0 <= entry.begin_ns && entry.end_ns <= recorded.1;
    let logged = take.truth.get(programs::TASK).into_iter().flatten().filter(inside);
    let longest_ns = logged.map(|entry| entry.end_ns - entry.begin_ns).max();
    let taken =
        scenario.reading.as_ref().map(|reading| reading.of(scenario, diagnosis, &causes, &checked.absent, longest_ns));
    Ok(ScenarioResult {
        verdict: taken.map_or(if right { Score::Right } else { Score::Wrong }, modern::Taken::score),
        reason: None,
        shares,
        taken,
        false_causes: checked.absent,
        partly: checked.partly,
        checked_causes: checked.checked,
        coverage,
        owned,
        forbidden: forbidden
            .iter()
            .map(|c| format!("{} {} ({}): {:.1} %", c.category, c.name, c.role, c.share * 100.0))
            .collect(),
        untouched_share,
        breaks: checked.breaks,
        messages: diagnosis["messages"]["total"].as_u64().unwrap_or(0),
        causes,
        ..outcome
    })
}

/// The client's latency from when requests were due, ns: p50, p99, max.
fn client(take: &stage::Take) -> Option<[u64; 3]> {
    if let Some(outcome) = take.outcomes.first() {
        return Some([outcome.percentile(50.0)?, outcome.percentile(99.0)?, outcome.percentile(100.0)?]);
    }
    let mut latencies_ns: Vec<u64> =
        take.samples.iter().filter(|s| s.answered_ns > 0).map(|s| s.answered_ns.saturating_sub(s.due_ns)).collect();
    latencies_ns.sort_unstable();
    let rank = |part: f64| {
        latencies_ns.get(((latencies_ns.len() as f64 * part) as usize).min(latencies_ns.len().checked_sub(1)?)).copied()
    };
    Some([rank(0.5)?, rank(0.99)?, rank(1.0)?])
}
