//! `lab what-if`: is the what-if of a diagnosis right? Scenarios with and without their fault, interleaved.
//!
//! In: scenarios whose fault can be switched off. Out: a row each: the p99 of the total leg that the diagnosis of the run with the
//! fault predicts without its cause, beside the p99 that the same load had without the fault. Rounds of which other work of the
//! machine had much are measured again, and said. Times in us.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use tailsight_trace::Run;
use tailsight_units::parse;

use super::scenario::{Scenario, Step};
use super::stage::{self, Stop, Take};
use super::state::State;
use super::{Lab, begin, cgroup, choose, disturbed};

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
    /// The binary of tailsight [default: beside this one].
    #[arg(long, value_name = "FILE")]
    tailsight: Option<PathBuf>,
}

/// One round, p99 of the total leg, ns.
#[derive(Debug, Clone, PartialEq)]
struct Round {
    cause: String,
    with_fault: u64,
    predicted: u64,
    interval: [u64; 2],
    without: u64,
    disturbed: bool,
}

/// Runs and prints.
pub fn run(args: &WhatIfArgs) -> anyhow::Result<ExitCode> {
    let asked_all = args.scenarios.iter().any(|name| name == "all");
    let mut scenarios = Vec::new();
    for scenario in choose(&args.scenarios)? {
        match without_fault(&scenario) {
            Some(off) => scenarios.push((scenario, off)),
            None if asked_all => {}
            None => bail!("the fault of {} cannot be switched off", scenario.name),
        }
    }
    let (lab, mut state) = begin(args.tailsight.as_deref(), args.duration)?;
    let lab = Lab { what_if: true, ..lab };
    let apart = cgroup::Apart::begin(&mut state);
    let mut rounds: Vec<Vec<Result<Round, String>>> = vec![Vec::new(); scenarios.len()];
    for seed in 1..=args.repeat {
        for ((on, off), rounds) in scenarios.iter().zip(&mut rounds) {
            let found = round(&lab, &mut state, (on, off), seed, args.again);
            if lab.check().is_err() {
                eprintln!("lab: interrupted; everything that was made is undone");
                return Ok(ExitCode::from(130));
            }
            eprintln!("{} {seed}: {found:?}", on.name);
            rounds.push(found);
        }
    }
    drop((apart, state));
    let names: Vec<&str> = scenarios.iter().map(|(on, _)| on.name).collect();
    print!("{}", page(&names, &rounds));
    Ok(ExitCode::SUCCESS)
}

/// The scenario with nothing wrong, under the same load and settings; of the total leg, as is the one with its fault. `None` where
/// nothing can be switched off.
fn without_fault(scenario: &Scenario) -> Option<Scenario> {
    let off = |step: &Step| matches!(step, Step::Fault { .. } | Step::Nginx(_) | Step::Quota { .. });
    let steps: Vec<Step> = scenario.steps.iter().filter(|step| !off(step)).cloned().collect();
    (steps.len() < scenario.steps.len() && !scenario.expect.is_empty()).then(|| Scenario {
        steps,
        leg: "total",
        ..scenario.clone()
    })
}

/// A round; again when it was disturbed, at most `again` times.
fn round(
    lab: &Lab,
    state: &mut State,
    (on, off): (&Scenario, &Scenario),
    seed: u32,
    again: u32,
) -> Result<Round, String> {
    let on = Scenario { leg: "total", ..on.clone() };
    let mut last = Err("not run".to_owned());
    for _ in 0..=again {
        let mut taken = |scenario: &Scenario, which: &str| -> Result<Taken, String> {
            let folder = std::env::temp_dir().join(format!("tailsight-lab-what-if-{which}-{}", std::process::id()));
            state.folder(&folder).map_err(|e| format!("{e:#}"))?;
            let found = take(lab, state, scenario, seed, &folder);
            state.undo(false).map_err(|e| format!("{e:#}"))?;
            found
        };
        last = taken(&on, "on").and_then(|with| compare(&on, &with, &taken(off, "off")?));
        match &last {
            Ok(round) if round.disturbed => {}
            _ => break,
        }
    }
    last
}

/// What is kept of a run.
struct Taken {
    diagnosis: serde_json::Value,
    disturbed: bool,
}

fn take(lab: &Lab, state: &mut State, scenario: &Scenario, seed: u32, folder: &Path) -> Result<Taken, String> {
    let take = match stage::run(lab, state, scenario, u64::from(seed), folder) {
        Ok(take) => take,
        Err(Stop::NotRun(why)) => return Err(why),
        Err(Stop::Failed(error)) => return Err(format!("{error:#}")),
    };
    let disturbed = is_disturbed(scenario, &take).map_err(|e| format!("{e:#}"))?;
    let diagnosis = take.diagnosis.ok_or_else(|| format!("not enough evidence: {}", take.said))?;
    Ok(Taken { diagnosis, disturbed })
}

/// By the raw events alone, as for the accuracy.
fn is_disturbed(scenario: &Scenario, take: &Take) -> anyhow::Result<bool> {
    let mut run = Run::open(&take.run)?;
    let events = run.events()?;
    let stolen = !scenario.expect.iter().any(|cause| cause.category == "steal");
    let found = disturbed::disturbance(&run.tasks, &events, &take.ours, scenario.leg, stolen);
    Ok(found.is_some_and(|disturbance| disturbance.is_disturbed()))
}

/// The prediction for the first cause that is one of the expected ones, beside what was measured.
fn compare(scenario: &Scenario, with: &Taken, without: &Taken) -> Result<Round, String> {
    let p99 = |of: &Taken| of.diagnosis["latency_ns"]["p99"].as_u64().ok_or("a run has no p99".to_owned());
    let rows = with.diagnosis["ideal"]["what_if"].as_array().ok_or("the diagnosis has no what-if")?;
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let row = rows
        .iter()
        .find(|row| scenario.expect.iter().any(|cause| cause.is(&text(row, "category"), &text(row, "name"))))
        .ok_or("the expected cause has no what-if")?;
    let predicted = row["latency_ns"]["p99"].as_u64().ok_or("the what-if has no p99")?;
    let end = |i: usize| row["ci95_ns"]["p99"][i].as_u64().unwrap_or(predicted);
    Ok(Round {
        cause: format!("{} {}", text(row, "category"), text(row, "name")),
        with_fault: p99(with)?,
        predicted,
        interval: [end(0), end(1)],
        without: p99(without)?,
        disturbed: with.disturbed || without.disturbed,
    })
}

/// The table, and what it comes to.
fn page(names: &[&str], rounds: &[Vec<Result<Round, String>>]) -> String {
    let mut out = String::from(
        "| Scenario | Cause taken out | p99 with the fault, us | predicted without | measured without | error | interval holds it | disturbed |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let us = |ns: u64| format!("{:.0}", ns as f64 / 1e3);
    let (mut errors, mut held, mut of) = (Vec::new(), 0, 0);
    for (name, rounds) in names.iter().zip(rounds) {
        let good: Vec<&Round> = rounds.iter().flatten().collect();
        let Some(first) = good.first() else {
            let why = rounds.iter().find_map(|r| r.as_ref().err()).map_or("no rounds", String::as_str);
            out += &format!("| {name} | N/A: {} | | | | | | |\n", why.replace(['\n', '|'], " "));
            continue;
        };
        let all = |value: fn(&Round) -> u64| good.iter().map(|r| value(r)).collect::<Vec<u64>>();
        let (with, predicted, without) = (all(|r| r.with_fault), all(|r| r.predicted), all(|r| r.without));
        let error = median(&predicted) as f64 / median(&without).max(1) as f64 - 1.0;
        // What would be measured is the median of the rounds; a round's own p99 varies as the prediction's does.
        let middle = median(&without);
        let holds = good.iter().filter(|r| (r.interval[0]..=r.interval[1]).contains(&middle)).count();
        errors.push(error.abs());
        (held, of) = (held + holds, of + good.len());
        out += &format!(
            "| {name} | {} | {} | {} | {} | {:+.0} % | {holds} of {} | {} of {} |\n",
            first.cause,
            us(median(&with)),
            range(&predicted),
            range(&without),
            error * 100.0,
            good.len(),
            good.iter().filter(|r| r.disturbed).count(),
            rounds.len()
        );
    }
    errors.sort_unstable_by(f64::total_cmp);
    if let Some(middle) = errors.get(errors.len() / 2) {
        out += &format!(
            "\n{} scenarios: median error {:.0} %; the interval holds the measured median in {held} of {of} rounds.\n",
            errors.len(),
            middle * 100.0
        );
    }
    out
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
    use crate::run::catalogue;

    #[test]
    fn enough_scenarios_have_a_fault_that_can_be_switched_off() {
        let all = catalogue::all();
        let can: Vec<&str> = all.iter().filter(|s| without_fault(s).is_some()).map(|s| s.name).collect();
        assert!(can.len() >= 10 && can.contains(&"cpu-hog"), "{can:?}");
        let clean = all.iter().find(|s| s.name == "clean-rpc").expect("a clean scenario");
        assert!(without_fault(clean).is_none());
    }

    fn taken(text: &str) -> Taken {
        Taken { diagnosis: serde_json::from_str(text).expect("JSON"), disturbed: false }
    }

    #[test]
    fn the_expected_cause_is_compared_and_the_table_says_how_far_off_it_was() {
        let hog = catalogue::all().into_iter().find(|s| s.name == "cpu-hog").expect("cpu-hog");
        let with = taken(
            r#"{"latency_ns":{"p99":900000},"ideal":{"what_if":[
                {"category":"steal","name":"hypervisor","latency_ns":{"p99":1},"ci95_ns":{"p99":[1,1]}},
                {"category":"interference","name":"lab-hog","latency_ns":{"p99":110000},"ci95_ns":{"p99":[90000,130000]}}]}}"#,
        );
        let round = compare(&hog, &with, &taken(r#"{"latency_ns":{"p99":100000}}"#)).expect("a round");
        assert_eq!((round.with_fault, round.predicted, round.without), (900_000, 110_000, 100_000));
        let text = page(&["cpu-hog"], &[vec![Ok(round), Err("failed".into())]]);
        assert!(
            text.contains(
                "| cpu-hog | interference lab-hog | 900 | 110 (110 to 110) | 100 (100 to 100) | +10 % | 1 of 1 |"
            ),
            "{text}"
        );
        assert!(text.contains("median error 10 %; the interval holds the measured median in 1 of 1"), "{text}");
        let none = taken(r#"{"latency_ns":{"p99":900000}}"#);
        assert!(compare(&hog, &none, &none).is_err());
        assert!(page(&["x"], &[vec![Err("why".into())]]).contains("N/A: why"));
    }
}
