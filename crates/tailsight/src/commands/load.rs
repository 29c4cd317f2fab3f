//! `load`: measures a server's latency under a load. In: words. Out: a number with its interval or N/A, files, an exit code.

use std::path::{Path, PathBuf};

use tailsight_load::http::{self, Body, HttpRequest};
use tailsight_load::{Arrivals, Endpoint, Plan, Rate, Trust};
use tailsight_measure::capacity::Calibration;
use tailsight_measure::decide::decide;
use tailsight_measure::in_turn::{self, ComparisonVerdict};
use tailsight_measure::objective::Decision;
use tailsight_measure::{Address, Error, Latency, Local, Measurement, Question, against, latencies, measure, samples};
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
    if let Some(other) = args.against.as_deref().filter(|against| is_target(against, &args.traffic)) {
        return in_turn_with(args, other);
    }
    let peak = args.calibration.as_deref().map(calibrate::read).transpose()?;
    let question = or_usage(question(args, peak.as_ref()))?;
    // What would fail at the end is found before the load begins.
    let baseline = match args.against.as_deref().map(Path::new) {
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
        measurement.report.objective = Some(decide(objective, &measurement));
    }
    if let Some(path) = &out {
        samples::write(&measurement, path)?;
        say!("{} samples: {}", measurement.rows.len(), path.display());
    }
    if let Some(path) = &args.html {
        let mut drawn = vec![Drawn::of("this run", &measurement)];
        let other = |(path, stored): &(&Path, samples::Stored)| {
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
    Ok(outcome(&measurement, !args.traffic.ci.is_empty() || args.against.is_some()))
}

/// Whether `--against` names a server and not a file.
fn is_target(against: &str, traffic: &Traffic) -> bool {
    against.contains("://") || Address::parse(against, traffic.protocol).is_ok() && !Path::new(against).exists()
}

/// Measures two servers in turn and says whether the first is slower.
fn in_turn_with(args: &Load, other: &str) -> anyhow::Result<Exit> {
    let peak = args.calibration.as_deref().map(calibrate::read).transpose()?;
    let question = or_usage(question(args, peak.as_ref()))?;
    let refused = [
        (!args.traffic.agents.agent.is_empty(), "--agent"),
        (args.out.is_some(), "--out"),
        (args.html.is_some(), "--html"),
        (args.slo.is_some(), "--slo"),
    ];
    if let Some((_, option)) = refused.into_iter().find(|(given, _)| *given) {
        let why = format!("{option} cannot be used with two servers in turn; compare with a file of samples");
        return or_usage(Err(Error::Contradiction(why)));
    }
    let target = args.traffic.target.as_str();
    let other_plan = or_usage(plan_of(&args.traffic, other).and_then(|plan| {
        let plan = Plan { rate: question.plan.rate.clone(), arrivals: question.plan.arrivals.clone(), ..plan };
        if plan.protocol != question.plan.protocol {
            let why = format!("{target} speaks {}, and {other} {}", question.plan.protocol, plan.protocol);
            return Err(Error::Contradiction(why));
        }
        plan.validate()?;
        Ok(plan)
    }))?;
    let stop = on_interrupt();
    let live = std::cell::RefCell::new(Live::new(question.max_time));
    let mut ours = Local::new(question.prepared_plan());
    let mut theirs = Local::new(Question { plan: other_plan, ..question.clone() }.prepared_plan());
    let loads: [&mut dyn tailsight_measure::Load; 2] = [&mut ours, &mut theirs];
    let compared = in_turn::compare(
        loads,
        &question,
        [target, other],
        args.worse_by,
        &stop,
        &mut |event| live.borrow_mut().show(event),
        &mut |round, of, _| live.borrow_mut().prefix(format!("after round {round} of {of}: ")),
    );
    live.borrow().end();
    let comparison = or_usage(compared)?;
    if args.traffic.json {
        terminal::print_json(&comparison)?;
    } else {
        terminal::print(&shown::terminal::comparison(&comparison, &terminal::style()))?;
    }
    Ok(match comparison.verdict {
        ComparisonVerdict::Worse => Exit::GateNotMet,
        ComparisonVerdict::NotAvailable => Exit::NotAvailable,
        ComparisonVerdict::Better | ComparisonVerdict::Alike => Exit::Done,
    })
}

/// The exit code answers what was asked: the objective where there is one, and the percentiles where they were asked for.
fn outcome(measurement: &Measurement, asked_for_percentiles: bool) -> Exit {
    let report = &measurement.report;
    let decision = report.objective.as_ref().map(|o| o.decision);
    let worse = report.against.as_ref().is_some_and(|a| a.worse);
    match decision {
        _ if worse => Exit::GateNotMet,
        Some(Decision::Missed) => Exit::GateNotMet,
        Some(Decision::Open) => Exit::NotAvailable,
        Some(Decision::Met) if !asked_for_percentiles => Exit::Done,
        Some(Decision::Met) | None if report.is_number() => Exit::Done,
        Some(Decision::Met) | None => Exit::NotAvailable,
    }
}

/// The question that the words of `load` ask.
pub fn question(args: &Load, peak: Option<&Calibration>) -> Result<Question, Error> {
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
        targets: if traffic.ci.is_empty() { Question::usual_targets() } else { traffic.ci.clone() },
        percentiles: traffic.percentile.clone(),
        latency: if traffic.latency == "service" { Latency::Service } else { Latency::Response },
        max_time,
        strict: traffic.strict,
        ..Question::new(plan)
    }
}

/// The plan that the words describe, without its rate.
pub fn plan(traffic: &Traffic) -> Result<Plan, Error> {
    plan_of(traffic, &traffic.target)
}

/// The same for another server.
fn plan_of(traffic: &Traffic, target: &str) -> Result<Plan, Error> {
    let address = Address::parse(target, traffic.protocol)?;
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
    plan.real_time = traffic.realtime;
    plan.stamps = !traffic.no_stamps;
    plan.seed = traffic.seed;
    if let Some(name) = &traffic.server_name {
        if !matches!(plan.target, Endpoint::Tls(_)) {
            let why = format!("--server-name {name} is for TLS, and {} does not use TLS", plan.target);
            return Err(Error::Contradiction(why));
        }
        plan.server_name = Some(name.clone());
    }
    plan.workload.requests = http_requests(traffic, &plan.workload.path)?;
    if let Some(statuses) = &traffic.good_statuses {
        if !plan.protocol.is_http() {
            let why = format!("--good-statuses is for HTTP, and {} is asked for", plan.protocol);
            return Err(Error::Contradiction(why));
        }
        plan.workload.good_statuses = statuses.clone();
    }
    plan.trust = match &traffic.ca {
        Some(path) => Trust::File(path.clone()),
        None if traffic.insecure => Trust::Anyone,
        None => Trust::System,
    };
    Ok(plan)
}

/// The requests that the words describe; none where a plain GET of the path is asked for.
fn http_requests(traffic: &Traffic, path: &str) -> Result<Vec<HttpRequest>, Error> {
    let read = |file: &Path| {
        std::fs::read(file).map_err(|e| Error::Contradiction(format!("cannot read {}: {e}", file.display())))
    };
    let body = match traffic.data.as_deref().map(|data| (data, data.strip_prefix('@'))) {
        None => None,
        Some((_, Some(file))) => Some(Body(read(Path::new(file))?)),
        Some((text, None)) => Some(Body(text.as_bytes().to_vec())),
    };
    let plain = traffic.method.is_none() && traffic.headers.is_empty() && body.is_none() && traffic.requests.is_none();
    if plain {
        return Ok(Vec::new());
    }
    let method = traffic.method.as_deref().unwrap_or(if body.is_some() { "POST" } else { "GET" });
    let mut fields = traffic.headers.clone();
    if body.is_some() && !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        // As curl does.
        fields.push(("Content-Type".into(), "application/x-www-form-urlencoded".into()));
    }
    let usual = HttpRequest { method: method.into(), fields, body, ..HttpRequest::get(path) };
    match &traffic.requests {
        None => Ok(vec![usual]),
        Some(file) => Ok(http::requests(&String::from_utf8_lossy(&read(file)?), &usual)?),
    }
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
