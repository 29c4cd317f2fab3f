//! `load`: measures a server's latency under a load. In: words. Out: a number with its interval or N/A, files, an exit code.

use std::path::{Path, PathBuf};

use tailsight_load::{Arrivals, Endpoint, Plan, Rate, Trust};
use tailsight_measure::capacity::Calibration;
use tailsight_measure::{
    Address, Error, Latency, Measurement, Question, against, latencies, measure, report, samples, slo,
};
use tailsight_report::load::{self as shown, Drawn};

use crate::cli_load::{Load, Traffic};
use crate::commands::ideal::calibrate;
use crate::commands::live::Live;
use crate::commands::source::Source;
use crate::commands::usage::or_usage;
use crate::stop::on_interrupt;
use crate::{Exit, pipeline, terminal};

/// Measures and prints.
pub fn run(args: &Load) -> anyhow::Result<Exit> {
    let peak = args.calibration.as_deref().map(calibrate::read).transpose()?;
    let question = or_usage(question(args, peak.as_ref()))?;
    // What would fail at the end is found before the load begins.
    let baseline = match &args.against {
        Some(path) => {
            let stored = samples::read(path)?;
            or_usage(against::comparable(&question, &stored.report, &path.display().to_string()))?;
            Some((path, stored))
        }
        None => None,
    };
    let out = args.out.as_deref().map(|path| parquet_path(path, "load.parquet")).transpose()?;
    if let Some(path) = &args.html {
        pipeline::writable(path)?;
    }
    let stop = on_interrupt();
    let mut live = Live::new(question.max_time);
    let mut source = Source::open(&args.traffic.agents, question.prepared_plan(), &stop)?;
    let measured = measure(source.load(), &question, &stop, &mut |event| live.show(event));
    live.end();
    let mut measurement = or_usage(measured)?;
    if let Some((path, stored)) = &baseline
        && measurement.report.is_number()
    {
        let ours = latencies::latencies(&measurement.rows, question.latency);
        let (q, seed) = (question.targets[0].quantile, question.plan.seed);
        let file = path.display().to_string();
        measurement.report.against = Some(against::compare(&ours, &stored.latencies(), q, args.worse_by, &file, seed)?);
    }
    if let Some(objective) = args.slo {
        let confidence = slo::confidence(objective, &measurement).filter(|_| measurement.report.is_number());
        let met = confidence.is_some_and(|c| c >= slo::LEVEL);
        measurement.report.objective = Some(report::ObjectiveResult { objective, confidence, met });
    }
    if let Some(path) = &out {
        samples::write(&measurement, path)?;
        say!("{} samples: {}", measurement.rows.len(), path.display());
    }
    if let Some(path) = &args.html {
        let mut drawn = vec![Drawn::of("this run", &measurement)];
        let other = |(path, stored): &(&PathBuf, samples::Stored)| {
            Drawn::of_samples(&path.display().to_string(), &stored.report, &stored.rows)
        };
        drawn.extend(baseline.as_ref().map(other));
        pipeline::write_whole(path, shown::page(&drawn))?;
        say!("page: {}", path.display());
    }
    if args.traffic.json {
        terminal::print_json(&measurement.report)?;
    } else {
        terminal::print(&shown::terminal::measurement(&measurement.report, &terminal::style()))?;
    }
    Ok(outcome(&measurement))
}

fn outcome(measurement: &Measurement) -> Exit {
    let report = &measurement.report;
    let worse = report.against.as_ref().is_some_and(|a| a.worse);
    let unmet = report.objective.is_some_and(|o| o.confidence.is_some() && !o.met);
    match report.is_number() {
        false => Exit::NotAvailable,
        true if worse || unmet => Exit::GateNotMet,
        // The percentile is known, the objective's is not.
        true if report.objective.is_some_and(|o| o.confidence.is_none()) => Exit::NotAvailable,
        true => Exit::Done,
    }
}

fn question(args: &Load, peak: Option<&Calibration>) -> Result<Question, Error> {
    let mut plan = plan(&args.traffic)?;
    if let Some(rate) = args.rate {
        plan.rate = Rate::Constant(rate);
    }
    if let Some((share, peak)) = args.utilisation.zip(peak) {
        if peak.protocol != plan.protocol.to_string() {
            let why = format!("the calibration is of {} at {}", peak.protocol, peak.target);
            return Err(Error::Contradiction(format!("{why}, and the target is {} at {}", plan.protocol, plan.target)));
        }
        plan.rate = Rate::Constant(share * peak.peak_per_s);
    }
    if let Some(profile) = &args.rate_profile {
        plan.rate = profile.clone();
    }
    if let Some(outstanding) = args.closed {
        plan.arrivals = Arrivals::Closed(outstanding);
        if args.traffic.outstanding.is_none() {
            plan.outstanding = plan.outstanding.max(outstanding);
        }
    }
    if let Some(path) = &args.replay {
        plan.arrivals = Arrivals::Replay(path.clone());
    }
    let mut question = asked(&args.traffic, plan, args.max_time);
    if let Some(objective) = args.slo
        && !question.percentiles.contains(&objective.quantile)
    {
        question.percentiles.push(objective.quantile);
    }
    question.plan.validate()?;
    question.config()?;
    Ok(question)
}

/// The question about a plan.
pub fn asked(traffic: &Traffic, plan: Plan, max_time: std::time::Duration) -> Question {
    Question {
        targets: traffic.ci.clone(),
        percentiles: traffic.percentile.clone(),
        latency: if traffic.latency == "service" { Latency::Service } else { Latency::Response },
        max_time,
        strict: traffic.strict,
        ..Question::new(plan)
    }
}

/// The plan that the words describe, without its rate.
pub fn plan(traffic: &Traffic) -> Result<Plan, Error> {
    let address = Address::parse(&traffic.target, traffic.protocol)?;
    let mut plan = Plan::new(address.target, address.protocol);
    plan.workload = traffic.workload.clone().unwrap_or_default();
    if let Some(path) = address.path {
        plan.workload.path = path;
    }
    if let Some(keys) = traffic.keys {
        plan.workload.keys = keys;
    }
    if let Some(size) = traffic.value_size {
        plan.workload.value_size = size;
    }
    if let Some(gets) = traffic.get_ratio {
        plan.workload.sets = 1.0 - gets;
    }
    if let Some(popularity) = traffic.popularity {
        plan.workload.popularity = popularity;
    }
    if traffic.no_preload {
        plan.workload.preload = false;
    }
    plan.arrivals = traffic.arrivals.clone();
    plan.duration_ns = None;
    plan.connections = traffic.connections;
    plan.outstanding = traffic.outstanding.unwrap_or(plan.outstanding);
    plan.threads = traffic.threads;
    plan.wait = traffic.pace.unwrap_or(traffic.wait);
    plan.burst = traffic.burst;
    plan.burst_over = traffic.burst_over;
    plan.receive = traffic.receive;
    plan.busy_poll_us = traffic.busy_poll;
    plan.cpus = traffic.cpus.clone();
    plan.stamps = !traffic.no_stamps;
    plan.seed = traffic.seed;
    if let Some(name) = &traffic.server_name {
        if !matches!(plan.target, Endpoint::Tls(_)) {
            let why = format!("--server-name {name} is for TLS, and {} does not use TLS", plan.target);
            return Err(Error::Contradiction(why));
        }
        plan.server_name = Some(name.clone());
    }
    plan.trust = match &traffic.ca {
        Some(path) => Trust::File(path.clone()),
        None if traffic.insecure => Trust::Anyone,
        None => Trust::System,
    };
    Ok(plan)
}

/// FILE.parquet itself, or `name` in a folder, which is made.
pub fn parquet_path(path: &Path, name: &str) -> anyhow::Result<PathBuf> {
    if path.extension().is_some_and(|e| e == "parquet") {
        pipeline::writable(path)?;
        return Ok(path.to_owned());
    }
    std::fs::create_dir_all(path).map_err(|e| anyhow::anyhow!("cannot make the folder {}: {e}", path.display()))?;
    let path = path.join(name);
    pipeline::writable(&path)?;
    Ok(path)
}
