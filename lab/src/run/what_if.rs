//! `lab what-if`: is the what-if of a diagnosis right? Scenarios with and without their fault, interleaved.
//!
//! In: scenarios whose fault can be switched off. Out: a row each: the p99 of the total leg that the run with the fault predicts
//! without the causes that the fault has (`diagnose --without`), beside the p99 that the same load had without the fault. A round
//! in which other work had more than a hundredth of the application's core is measured again while there is time, and the quietest is kept. Times in us.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;
use tailsight_lab::generated::GeneratedSection;
use tailsight_testbed::disturbed;
use tailsight_trace::Run;
use tailsight_units::parse;

use super::scenario::{App, Cause, Load, Scenario, Step, named};
use super::stage::{self, Take};
use super::state::State;
use super::stop::Stop;
use super::{Lab, begin, catalogue, cgroup, choose};

/// `lab what-if`.
#[derive(Debug, Args)]
pub struct WhatIfArgs {
    /// Scenarios by name (`lab list`), or `all`: those whose fault can be switched off.
    #[arg(required = true)]
    scenarios: Vec<String>,
    /// Rounds, each with the fault and without.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// How often a round is measured again when other work had much of it.
    #[arg(long, default_value_t = 2)]
    again: u32,
    /// How long each recording is.
    #[arg(long, value_parser = parse::duration, default_value = "3s")]
    duration: Duration,
    /// How long all may take: rounds are measured again, and further ones begun, only as long as all scenarios still have the same.
    #[arg(long, value_parser = parse::duration, default_value = "24min", value_name = "TIME")]
    at_most: Duration,
    /// Keep the runs and diagnoses of every round here.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Put the table between the markers of this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// The binary of tailsight [default: beside this one].
    #[arg(long, value_name = "FILE")]
    tailsight: Option<PathBuf>,
}

/// The part of docs/results/what-if.md that is written here.
const GENERATED: GeneratedSection = GeneratedSection { begin: "<!-- what-if:begin -->", end: "<!-- what-if:end -->" };
/// A round with more of other work than this part of the recording is measured again.
const FOREIGN: f64 = 0.01;
/// Part of what their faults do is estimated from counts or happens on the hypervisor's side, which no replay can remove;
/// and without its limit memory-reclaim's requests cost more than with it.
const NOT_SWITCHED: [&str; 6] =
    ["memory-reclaim", "migration", "page-faults", "write-barrier", "tlb-shootdown", "ipi-storm"];

/// One round, p99 of the total leg, ns.
#[derive(Debug, Clone, PartialEq)]
struct Round {
    causes: Vec<String>,
    with_fault: u64,
    predicted: u64,
    interval: [u64; 2],
    without: u64,
    /// The part of other work in the two recordings, the larger.
    foreign: f64,
}

/// Runs and prints.
pub fn run(args: &WhatIfArgs) -> anyhow::Result<ExitCode> {
    let asked_all = args.scenarios.iter().any(|name| name == "all");
    let mut scenarios = Vec::new();
    for scenario in choose(&args.scenarios, measurable(), Vec::new())? {
        match without_fault(&scenario) {
            Some(off) => scenarios.push((scenario, off)),
            None if asked_all => {}
            None => bail!("the fault of {} cannot be switched off", scenario.name),
        }
    }
    let (lab, mut state) = begin(args.tailsight.as_deref(), args.duration)?;
    if let Some(file) = &args.write {
        GENERATED.check(file)?;
    }
    let apart = cgroup::Apart::begin(&mut state);
    let mut rounds: Vec<Vec<Result<Round, String>>> = vec![Vec::new(); scenarios.len()];
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    for seed in 1..=args.repeat {
        let at = begun.elapsed();
        // A further round of all only when there is time for it as for the slowest before.
        if seed > 1 && at + longest > args.at_most {
            eprintln!("lab: {} rounds in {} s; there is no time for another one", seed - 1, at.as_secs());
            break;
        }
        for (i, ((on, off), rounds)) in scenarios.iter().zip(&mut rounds).enumerate() {
            // Again as long as the rounds that are due have their time.
            let due = longest.mul_f64(f64::from(args.repeat - seed) + 1.0 - i as f64 / scenarios.len() as f64);
            let again = if begun.elapsed() + due < args.at_most { args.again } else { 0 };
            let folder = args.keep.as_ref().map(|dir| dir.join(format!("{}-{seed}", on.name)));
            let compared = round(&lab, &mut state, (on, off), seed, again, folder.as_deref());
            if lab.check().is_err() {
                eprintln!("lab: interrupted; everything that was made is undone");
                return Ok(ExitCode::from(130));
            }
            eprintln!("{:>4} s  {} {seed}: {}", begun.elapsed().as_secs(), on.name, said(&compared));
            rounds.push(compared);
        }
        longest = longest.max(begun.elapsed() - at);
    }
    drop((apart, state));
    let names: Vec<&str> = scenarios.iter().map(|(on, _)| on.name).collect();
    let page = page(&names, &rounds);
    print!("{page}");
    if let Some(file) = &args.write {
        GENERATED.write(file, &page)?;
        eprintln!("wrote {}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn said(found: &Result<Round, String>) -> String {
    match found {
        Err(why) => format!("N/A: {why}"),
        Ok(r) => {
            let us = |ns: u64| ns as f64 / 1e3;
            format!(
                "p99 {:.0} us, predicted {:.0} [{:.0}, {:.0}], measured {:.0}, other work {:.1} %; without {}",
                us(r.with_fault),
                us(r.predicted),
                us(r.interval[0]),
                us(r.interval[1]),
                us(r.without),
                r.foreign * 100.0,
                r.causes.join(", ")
            )
        }
    }
}

/// The catalogue's scenarios, and those that are kept apart: the model was not adjusted to their results.
fn measurable() -> Vec<Scenario> {
    catalogue::all().into_iter().chain(catalogue::held_out()).collect()
}

/// The scenario with nothing wrong, under the same load and settings; of the total leg, as is the one with its fault. `None` where
/// nothing can be switched off.
fn without_fault(scenario: &Scenario) -> Option<Scenario> {
    if scenario.expect.is_empty() || NOT_SWITCHED.contains(&scenario.name) {
        return None;
    }
    let mut off = Scenario { leg: "total", ..scenario.clone() };
    off.steps.retain(|step| !matches!(step, Step::Fault { .. } | Step::Nginx(_) | Step::Quota { .. }));
    let mut changed = off.steps.len() < scenario.steps.len();
    for step in &mut off.steps {
        match step {
            // The relay stays, and does nothing to packets.
            Step::Relay { part, .. } if *part > 0.0 => (*part, changed) = (0.0, true),
            // So rarely that no recording contains it.
            Step::Behind(stall) => (*stall, changed) = ("1us/1000s", true),
            _ => {}
        }
    }
    if let App::Own(words) = &mut off.app {
        for option in ["--hold", "--handoff"] {
            if let Some(at) = words.iter().position(|word| word == option) {
                words.drain(at..at + 2);
                changed = true;
            }
        }
    }
    if let Load::Probe(plan) = &mut off.load
        && plan.special.is_some_and(|special| special.flags == tailsight_lab::wire::flags::FSYNC)
    {
        (plan.special, changed) = (None, true);
    }
    changed.then_some(off)
}

/// A round; repeated when there was much other work, at most `again` times. The quietest is kept.
fn round(
    lab: &Lab,
    state: &mut State,
    (on, off): (&Scenario, &Scenario),
    seed: u32,
    again: u32,
    keep: Option<&Path>,
) -> Result<Round, String> {
    let on = Scenario { leg: "total", ..on.clone() };
    let mut best: Result<Round, String> = Err("not run".to_owned());
    for _ in 0..=again {
        let mut taken = |scenario: &Scenario, which: &str| -> Result<Taken, String> {
            let folder = match keep {
                Some(dir) => dir.join(which),
                None => std::env::temp_dir().join(format!("tailsight-lab-what-if-{which}-{}", std::process::id())),
            };
            if keep.is_none() {
                state.folder(&folder).map_err(|e| format!("{e:#}"))?;
            }
            let outcome = take(lab, state, (scenario, &on), seed, &folder);
            state.undo(keep.is_some()).map_err(|e| format!("{e:#}"))?;
            outcome
        };
        let compared = taken(&on, "on").and_then(|with| compare(&with, &taken(off, "off")?));
        if lab.check().is_err() {
            break;
        }
        let quieter = |new: &Round| best.as_ref().map_or(true, |old| new.foreign < old.foreign);
        match compared {
            Ok(new) if quieter(&new) => best = Ok(new),
            Err(why) if best.is_err() => best = Err(why),
            _ => {}
        }
        if best.as_ref().is_ok_and(|round| round.foreign <= FOREIGN) {
            break;
        }
    }
    best
}

/// What is kept of a run.
struct Taken {
    diagnosis: Value,
    /// Without the causes of the fault, where there are such.
    peeled: Option<Value>,
    foreign: f64,
}

/// Runs `scenario`; the causes of `of`'s fault are taken out of what was recorded.
fn take(
    lab: &Lab,
    state: &mut State,
    (scenario, of): (&Scenario, &Scenario),
    seed: u32,
    folder: &Path,
) -> Result<Taken, String> {
    let take = match stage::run(lab, state, scenario, u64::from(seed), folder) {
        Ok(take) => take,
        Err(Stop::NotRun(why)) => return Err(why),
        Err(Stop::Failed(error)) => return Err(format!("{error:#}")),
    };
    let foreign = foreign(lab, &take).map_err(|e| format!("{e:#}"))?;
    let diagnosis = take.diagnosis.ok_or_else(|| format!("not enough evidence: {}", take.said))?;
    let names = of_fault(of, &diagnosis);
    let peeled = match names.as_slice() {
        [] => None,
        names => Some(without(lab, &take.run, names, folder).map_err(|e| format!("{e:#}"))?),
    };
    Ok(Taken { diagnosis, peeled, foreign })
}

/// The causes of a diagnosis that come from the scenario's fault and make messages slower, as `--without` names them.
fn of_fault(scenario: &Scenario, diagnosis: &Value) -> Vec<String> {
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    let truths = scenario.truth.iter().flat_map(|truth| truth.causes);
    let mut expected: Vec<Cause> = scenario.expect.iter().chain(truths).copied().collect();
    if scenario.steps.iter().any(|step| matches!(step, Step::Nginx(_))) {
        expected.push(named("receive-processing", "packet:nginx"));
    }
    let is = |cause: &&Value| {
        let (category, name) = (text(cause, "category"), text(cause, "name"));
        let expected = expected.iter().any(|expected| expected.is(&category, &name));
        // Its own packets, and what has no place in time, cannot be removed.
        let can = !(category == "receive-processing" && !name.starts_with("packet:") || cause["inferred"] == true);
        expected && can && cause["deviation_ns"].as_i64() > Some(0)
    };
    let causes = diagnosis["causes"].as_array().map_or(&[][..], Vec::as_slice);
    let mut names: Vec<String> =
        causes.iter().filter(is).map(|c| format!("{}:{}", text(c, "category"), text(c, "name"))).collect();
    names.sort();
    names.dedup();
    names
}

/// `tailsight diagnose --without …`.
fn without(lab: &Lab, run: &Path, names: &[String], folder: &Path) -> anyhow::Result<Value> {
    let mut command = Command::new(&lab.tailsight);
    command.args(["diagnose", "--json", "--leg", "total"]).arg(run);
    for name in names {
        command.args(["--without", name]);
    }
    let output = command.output().context("cannot run tailsight")?;
    std::fs::write(folder.join("peeled.json"), &output.stdout)?;
    if !output.status.success() {
        bail!("diagnose --without: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("what diagnose printed is not JSON")
}

/// The part of the recording in which other work used the application's core while the application waited for it, by the raw
/// events alone.
fn foreign(lab: &Lab, take: &Take) -> anyhow::Result<f64> {
    let mut run = Run::open(&take.run)?;
    let events = run.events()?;
    let other_work = disturbed::disturbance(&run.tasks, &events, &take.ours, "total", disturbed::SLOWEST, true);
    Ok(other_work.map_or(0.0, |of| (of.tasks_ns + of.stolen_ns) as f64 / lab.duration.as_nanos() as f64))
}

/// The prediction without the causes of the fault, beside what was measured.
fn compare(with: &Taken, without: &Taken) -> Result<Round, String> {
    let p99 = |of: &Value| of["p99"].as_u64().ok_or("a run has no p99".to_owned());
    let peeled = with.peeled.as_ref().ok_or("no cause of the fault was named")?;
    let said = &peeled["without"];
    let end = |i: usize| said["ci95_ns"]["p99"][i].as_u64().ok_or("the what-if has no interval".to_owned());
    let causes = said["causes"].as_array().ok_or("nothing was taken out")?;
    let name = |cause: &Value| {
        let text = |key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("category"), text("name"))
    };
    let mut causes: Vec<String> = causes.iter().map(name).collect();
    causes.dedup();
    Ok(Round {
        causes,
        with_fault: p99(&with.diagnosis["latency_ns"])?,
        predicted: p99(&said["latency_ns"])?,
        interval: [end(0)?, end(1)?],
        without: p99(&without.diagnosis["latency_ns"])?,
        foreign: with.foreign.max(without.foreign),
    })
}

/// The summary of a table.
#[derive(Default)]
struct Tally {
    errors: Vec<f64>,
    held: usize,
    /// Scenarios of which the interval of the median round holds the measured median.
    scenarios: usize,
}

impl Tally {
    fn line(mut self, what: &str) -> String {
        self.errors.sort_unstable_by(f64::total_cmp);
        match self.errors.get(self.errors.len() / 2) {
            None => String::new(),
            Some(middle) => format!(
                "\n{what}: {} scenarios, median error {:.0} %; the interval holds the measured median in {} of them.\n",
                self.scenarios,
                middle * 100.0,
                self.held,
            ),
        }
    }
}

/// The two tables with their summaries.
fn page(names: &[&str], rounds: &[Vec<Result<Round, String>>]) -> String {
    const HEAD: &str = "| Scenario | Taken out | p99 with the fault, us | predicted without | interval | measured without | error | holds it | rounds | other work |\n\
         |---|---|---|---|---|---|---|---|---|---|\n";
    let mut out = String::new();
    let held_out: Vec<&str> = catalogue::held_out().iter().map(|scenario| scenario.name).collect();
    for (apart, what) in [(true, "Kept apart"), (false, "Worked with")] {
        let (mut rows, mut tally) = (String::new(), Tally::default());
        for (name, rounds) in names.iter().zip(rounds).filter(|(name, _)| held_out.contains(name) == apart) {
            rows += &row(name, rounds, &mut tally);
        }
        if !rows.is_empty() {
            out += &format!("{}{HEAD}{rows}{}", if out.is_empty() { "" } else { "\n" }, tally.line(what));
        }
    }
    out
}

fn row(name: &str, rounds: &[Result<Round, String>], tally: &mut Tally) -> String {
    let us = |ns: u64| format!("{:.0}", ns as f64 / 1e3);
    let good: Vec<&Round> = rounds.iter().flatten().collect();
    let Some(first) = good.first() else {
        let why = rounds.iter().find_map(|r| r.as_ref().err()).map_or("no rounds", String::as_str);
        return format!("| {name} | N/A: {} | | | | | | | | |\n", why.replace(['\n', '|'], " "));
    };
    let values = |value: &dyn Fn(&Round) -> u64| good.iter().map(|r| value(r)).collect::<Vec<u64>>();
    let (with, predicted) = (values(&|r| r.with_fault), values(&|r| r.predicted));
    let (without, ends) = (values(&|r| r.without), [0, 1].map(|i| median(&values(&|r| r.interval[i]))));
    let error = median(&predicted) as f64 / median(&without).max(1) as f64 - 1.0;
    let holds = (ends[0]..=ends[1]).contains(&median(&without));
    tally.errors.push(error.abs());
    tally.held += usize::from(holds);
    tally.scenarios += 1;
    let foreign = good.iter().map(|r| r.foreign).fold(0.0, f64::max);
    format!(
        "| {name} | {} | {} | {} | {} to {} | {} | {:+.0} % | {} | {} | {:.1} % |\n",
        first.causes.join(", "),
        us(median(&with)),
        range(&predicted),
        us(ends[0]),
        us(ends[1]),
        range(&without),
        error * 100.0,
        if holds { "yes" } else { "no" },
        good.len(),
        foreign * 100.0,
    )
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// Median and range, us.
fn range(values: &[u64]) -> String {
    let us = |ns: u64| ns as f64 / 1e3;
    let ends = [values.iter().min(), values.iter().max()].map(|ns| us(ns.copied().unwrap_or(0)));
    format!("{:.0} ({:.0} to {:.0})", us(median(values)), ends[0], ends[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_scenarios_have_a_fault_that_can_be_switched_off() {
        let scenarios = measurable();
        let can: Vec<&str> = scenarios.iter().filter(|s| without_fault(s).is_some()).map(|s| s.name).collect();
        assert!(can.len() >= 13 && can.contains(&"cpu-hog"), "{can:?}");
        assert!(catalogue::held_out().iter().all(|held_out| can.contains(&held_out.name)), "{can:?}");
        let by_name = |name: &str| scenarios.iter().find(|s| s.name == name).expect(name);
        assert!(without_fault(by_name("clean-rpc")).is_none());
        let lock = without_fault(by_name("lock-wait")).expect("a fault");
        assert!(
            !format!("{:?}", lock.app).contains("4ms/60ms") && format!("{:?}", lock.load).contains("special: Some")
        );
        assert!(matches!(
            without_fault(by_name("packet-loss")).expect("a relay").steps[..],
            [Step::Relay { part: 0.0, .. }]
        ));
    }

    fn taken(diagnosis: &str, peeled: Option<&str>) -> Taken {
        let json = |text: &str| serde_json::from_str(text).expect("JSON");
        Taken { diagnosis: json(diagnosis), peeled: peeled.map(json), foreign: 0.002 }
    }

    #[test]
    fn causes_of_the_fault_are_taken_out_and_no_others() {
        let hog = catalogue::all().into_iter().find(|s| s.name == "cpu-hog").expect("cpu-hog");
        let cause = |category: &str, name: &str, ns: i64| serde_json::json!({"category": category, "name": name, "deviation_ns": ns});
        let diagnosis = serde_json::json!({"causes": [
            cause("interference", "lab-hog", 5), cause("interference", "other", 5), cause("steal", "hypervisor", 5),
            cause("interference", "lab-hog", -2),
        ]});
        assert_eq!(of_fault(&hog, &diagnosis), ["interference:lab-hog"]);
    }

    #[test]
    fn the_table_says_how_far_off_the_prediction_was_and_keeps_some_apart() {
        let with = taken(
            r#"{"latency_ns":{"p99":900000}}"#,
            Some(
                r#"{"without":{"causes":[{"category":"interference","name":"lab-hog"}],
                "latency_ns":{"p99":110000},"ci95_ns":{"p99":[90000,130000]}}}"#,
            ),
        );
        let round = compare(&with, &taken(r#"{"latency_ns":{"p99":100000}}"#, None)).expect("a round");
        assert_eq!((round.with_fault, round.predicted, round.without), (900_000, 110_000, 100_000));
        let far = Round { predicted: 300_000, interval: [250_000, 350_000], ..round.clone() };
        let rounds = [vec![Ok(round.clone()), Err("failed".into())], vec![Ok(far)], vec![Err("why".into())]];
        let text = page(&["cpu-hog", "lock-two-workers", "stopped"], &rounds);
        let row = "| cpu-hog | interference lab-hog | 900 | 110 (110 to 110) | 90 to 130 | 100 (100 to 100) | +10 % | yes | 1 | 0.2 % |";
        assert!(text.contains(row) && text.contains("| stopped | N/A: why"), "{text}");
        assert!(
            text.contains(
                "Worked with: 1 scenarios, median error 10 %; the interval holds the measured median in 1 of them"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "Kept apart: 1 scenarios, median error 200 %; the interval holds the measured median in 0 of them"
            ),
            "{text}"
        );
        assert!(compare(&taken(r#"{"latency_ns":{"p99":1}}"#, None), &with).is_err());
    }

    #[test]
    fn the_page_has_its_marks() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/what-if.md");
        GENERATED.check(&page).expect("marks");
    }
}
