//! From a measurement under way to its report. In: the method's verdict, the endings of the agents' loads. Out: [`Measurement`].
//!
//! The method judges what was measured; the client's own accounts may still say that the number is not the server's. Which of
//! them turn a number into N/A is decided here ([`invalidated`]).

use std::collections::BTreeMap;

use tailsight_load::{Complaint, Counts, Histogram, Rate, Sample, StampSource};
use tailsight_stats::effective::dependent_interval_sorted;
use tailsight_stats::method::{CheckId, IntervalMethod, MethodOutcome, NoBounds, Step};
use tailsight_stats::quantile::{interval_ranks, needed, quantile, sorted};

use crate::account::{all_unknown, assumptions, because, sentence, unknown};
use crate::assumption::{AssumptionId, Na};
use crate::batch::latency_ns;
use crate::hint;
use crate::load::Ending;
use crate::machine::Machine;
use crate::measure::{Halt, Measurement, Row, Run, name};
use crate::question::{Latency, Question};
use crate::report::{
    Achieved, AgentFacts, ByAgent, Checked, Client, Estimate, Kept, KnownPercentile, Lateness, Remark, Report, SCHEMA,
    Summary, Verdict,
};

/// What a closed loop leaves out.
const CLOSED: &str = "a closed loop sends no request before the reply to the one before it: what requests wait that come \
                      while the server is busy is left out, and a slow server is asked less often";

/// Level of the intervals of percentiles that were not asked for.
const LEVEL: f64 = 0.95;
/// With so many receive times from the kernel, a client that was kept from its core cannot have been late in receiving.
const STAMPED: f64 = 0.99;
/// Both times of a sample are the NIC's.
const HARDWARE: u32 = Sample::SENT_HARDWARE | Sample::RECEIVED_HARDWARE;

pub(crate) fn conclude(mut run: Run, halt: Option<&Halt>, endings: &[Ending], agents: Vec<AgentFacts>) -> Measurement {
    let method_verdict = match run.method.step() {
        Step::Done(verdict) => Some(*verdict),
        _ => None,
    };
    let warm_up = method_verdict.as_ref().and_then(|v| v.warm_up);
    run.mark(warm_up.map_or(0, |w| w.ends_at_ns.max(0) as u64));
    let good: Vec<&Row> = run.rows.iter().filter(|r| r.in_result).collect();
    // Where none is good enough for a result, it is said of those that there are.
    let answered: Vec<&Row> = run.rows.iter().filter(|r| r.sample.received_ns > 0).collect();
    let shown = if good.is_empty() { &answered } else { &good };
    let stamped = share(shown, |r| r.sample.flags & Sample::RECEIVED_STAMPED != 0);
    let hardware = share(shown, |r| r.sample.flags & HARDWARE == HARDWARE);
    let shared = shown.iter().filter(|r| r.sample.flags & Sample::SHARED_STAMP != 0).count() as u64;
    let counts = sum_counts(endings);
    let machine = match agents.iter().map(|a| a.cores as usize).min() {
        Some(cores) => Machine { cores, ..Machine::default() },
        None => run.before.until_now(&run.question.plan.target),
    };
    let mut judged = by_method(method_verdict.as_ref().map(|v| &v.outcome), run.question, &machine);
    bound_the_others(&mut judged, &run);
    let context = Context { question: run.question, verdict: &judged, machine: &machine, counts: &counts };
    let verdict = by_accounts(&context, halt, endings, stamped);
    let accepted = run.method.accepted().filter(|_| is_usable(&verdict));
    let bearing: &[&Row] = if accepted.is_some() { &good } else { &[] };
    let [response_ns, service_ns] = summaries(&run, bearing, accepted.is_some(), &verdict);
    let checks: Vec<Checked> =
        method_verdict.as_ref().map_or_else(Vec::new, |v| v.checks.iter().map(Checked::from).collect());
    let closed = run.question.plan.arrivals.is_closed();
    let assumptions = assumptions(&checks, &verdict, closed, run.agents.len());
    let by_agent = if accepted.is_some() { by_agent(&good, &run) } else { Vec::new() };
    let report = Report {
        schema: SCHEMA,
        kind: "measurement".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        began_s: run.began_s,
        target: run.question.plan.target.to_string(),
        protocol: run.question.plan.protocol.to_string(),
        latency: run.question.latency,
        response_ns,
        service_ns,
        lateness_ns: lateness(endings, run.question),
        rate: achieved(&run, endings),
        leaves_out: closed.then(|| CLOSED.into()),
        counts,
        client: Client {
            shared: shared as f64 / shown.len().max(1) as f64,
            shared_samples: shared,
            ..client(&run, endings, stamped, hardware)
        },
        agents,
        checks,
        assumptions,
        by_agent,
        machine,
        warm_up_ns: warm_up.map(|w| (w.ends_at_ns as u64).saturating_sub(run.start_ns)),
        steps: std::mem::take(&mut run.steps),
        restarts: method_verdict.map_or_else(Vec::new, |v| v.restarts),
        complaints: endings.iter().flat_map(|e| &e.complaints).map(remark).collect(),
        kept: kept(&run.rows, run.question.latency),
        plan: run.question.plan.clone().without_secrets(),
        against: None,
        objective: None,
        verdict,
    };
    Measurement { report, rows: run.rows, intervals: run.intervals, accepted, start_ns: run.start_ns }
}

/// The verdict of the method: a number, or why there is none and what is known all the same.
fn by_method(outcome: Option<&MethodOutcome>, question: &Question, machine: &Machine) -> Verdict {
    match outcome {
        Some(MethodOutcome::Number(number)) => {
            Verdict::Number { percentiles: number.percentiles.iter().map(KnownPercentile::from).collect() }
        }
        Some(MethodOutcome::NotAvailable(refusal)) => {
            let missing: Vec<_> = refusal.missing.iter().map(unknown).collect();
            Verdict::NotAvailable {
                failed: (&refusal.failed).into(),
                reason: refusal.reason.clone(),
                hint: hint::words(refusal.advice, &question.plan, machine),
                passed: refusal.passed.iter().map(KnownPercentile::from).collect(),
                bounds: refusal.bounds.iter().map(KnownPercentile::from).collect(),
                no_bounds_because: sentence(&missing),
                missing,
            }
        }
        None => refused(
            Na::Client,
            question,
            None,
            ("the method ended", None, None, 0),
            "the measurement ended without a verdict",
            "please report it",
        ),
    }
}

/// Adds to what is known of percentiles whose level moves those that were only asked to be shown.
fn bound_the_others(verdict: &mut Verdict, run: &Run) {
    let Verdict::NotAvailable { failed, bounds, .. } = verdict else { return };
    // What was recorded under another load, or without what failed, is of no percentile.
    if matches!(failed.id, AssumptionId::Method(CheckId::Load | CheckId::Errors)) {
        return;
    }
    let is_target = |q: &f64| run.question.targets.iter().any(|target| target.quantile == *q);
    let others: Vec<f64> = run.question.percentiles.iter().copied().filter(|q| !is_target(q)).collect();
    bounds.extend(run.method.wandering(&others, LEVEL).iter().map(KnownPercentile::from));
    bounds.sort_by(|a, b| a.quantile.total_cmp(&b.quantile));
}

/// The method's verdict, or what the client's accounts and an early end make of it.
fn by_accounts(context: &Context<'_>, halt: Option<&Halt>, endings: &[Ending], stamped: f64) -> Verdict {
    let deepest = context.question.targets.iter().map(|t| t.quantile).fold(0.0, f64::max);
    let invalidated = invalidated(context, endings, stamped, deepest).filter(|worse| overrides(worse, context.verdict));
    // A load that ended by itself has its reason in the client's accounts; one that we ended has not.
    let worse = match halt {
        Some(Halt::Stalled { .. } | Halt::Agent(_) | Halt::Interrupted) => halted(context, halt).or(invalidated),
        _ => invalidated.or_else(|| halted(context, halt)),
    };
    let mut verdict = worse.unwrap_or_else(|| context.verdict.clone());
    if let Verdict::NotAvailable { reason, .. } = &mut verdict {
        // What the server did is the reason for what the method found.
        let complaints = endings.iter().flat_map(|e| &e.complaints);
        let mut given_up = complaints.filter(|c| matches!(c, Complaint::GivenUp { .. }) && !c.spoils());
        if let Some(complaint) = given_up.next() {
            *reason = format!("{reason}; meanwhile {complaint}");
        }
    }
    verdict
}

/// The response and the service latency of the samples that bear the result. The latency under study has its intervals from the
/// method, as the verdict has.
fn summaries(run: &Run, bearing: &[&Row], accepted: bool, verdict: &Verdict) -> [Summary; 2] {
    let question = run.question;
    let mut response_ns = summary(bearing, Latency::Response, question);
    let mut service_ns = summary(bearing, Latency::Service, question);
    let asked = match question.latency {
        Latency::Response => &mut response_ns,
        Latency::Service => &mut service_ns,
    };
    if accepted {
        let results = run.method.percentiles(&question.percentiles, LEVEL);
        for (q, result) in question.percentiles.iter().zip(results) {
            let estimate = result.map(|p| Estimate { value: p.value_ns, lower: p.lower_ns, upper: p.upper_ns });
            asked.percentiles.insert(name(*q), estimate);
        }
    }
    // Samples whose level moves bear no result, and percentiles of them with bounds of their own all the same.
    let bounded = |p: &&KnownPercentile| accepted || matches!(p.how, IntervalMethod::SelfNormalised { .. });
    for p in known_of(verdict).into_iter().filter(bounded) {
        let estimate = Estimate { value: p.value_ns, lower: p.lower_ns, upper: p.upper_ns };
        asked.percentiles.insert(p.percentile.clone(), Some(estimate));
    }
    let asked_for = [question.latency == Latency::Response, question.latency == Latency::Service];
    for (summary, asked) in [&mut response_ns, &mut service_ns].into_iter().zip(asked_for) {
        let quantiles = question.percentiles.iter().copied().chain(question.targets.iter().map(|t| t.quantile));
        for q in quantiles.filter(|q| summary.percentiles.get(&name(*q)).is_some_and(Option::is_none)) {
            let why = match (accepted, asked) {
                (false, _) => NO_RESULT.into(),
                (true, true) => because(&run.method.unsupported(q, LEVEL)),
                (true, false) => because(&unsupported(summary.n, q)),
            };
            summary.because.insert(name(q), why);
        }
    }
    [response_ns, service_ns]
}

/// Why no cell has a value where the samples bear no result; the verdict says more.
const NO_RESULT: &str = "the samples bear no result";

/// Why so many samples have no interval of a percentile.
fn unsupported(n: usize, q: f64) -> NoBounds {
    match needed(q) {
        needed if n < needed => NoBounds::TooFew { n, needed },
        _ => NoBounds::TooShort { parts: 0, lowest_ns: 0.0, highest_ns: 0.0 },
    }
}

/// What the verdict knows of percentiles, as narrowly as asked or less.
fn known_of(verdict: &Verdict) -> Vec<&KnownPercentile> {
    match verdict {
        Verdict::Number { percentiles } => percentiles.iter().collect(),
        Verdict::NotAvailable { passed, bounds, .. } => passed.iter().chain(bounds).collect(),
    }
}

/// Whether the percentiles of the samples mean something although there may be no verdict: a number, or an interval that is
/// only wider than asked. What was sent otherwise than specified has bounds at most.
fn is_usable(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Number { .. } => true,
        Verdict::NotAvailable { failed, .. } => match failed.id {
            AssumptionId::Method(CheckId::IntervalWidth | CheckId::Independence) => true,
            AssumptionId::Method(CheckId::Arrivals | CheckId::ArrivalsSuperposed | CheckId::ArrivalIndependence) => {
                false
            }
            _ => !known_of(verdict).is_empty(),
        },
    }
}

/// What a verdict depends on besides the samples.
struct Context<'a> {
    question: &'a Question,
    /// The method's.
    verdict: &'a Verdict,
    machine: &'a Machine,
    counts: &'a Counts,
}

/// N/A by the measurement's own accounts, with what the method knew where that stands.
fn refused(
    na: Na,
    question: &Question,
    method: Option<&Verdict>,
    (test, statistic, threshold, n): (&str, Option<f64>, Option<f64>, u64),
    reason: impl Into<String>,
    hint: impl Into<String>,
) -> Verdict {
    let failed = Checked {
        id: AssumptionId::Account(na),
        test: test.into(),
        subject: None,
        passed: false,
        statistic,
        threshold,
        threshold_is_p: false,
        p_value: None,
        n,
    };
    let nothing = "no samples were recorded";
    let (passed, bounds, missing) = match (na.voids(), method) {
        // What was held back left late, which the method's bounds hold.
        (Some(_), Some(Verdict::NotAvailable { bounds, missing, .. })) if na == Na::OpenLoop && !bounds.is_empty() => {
            (Vec::new(), bounds.clone(), missing.clone())
        }
        (None, Some(Verdict::NotAvailable { passed, bounds, missing, .. })) => {
            (passed.clone(), bounds.clone(), missing.clone())
        }
        // It was known just before the end.
        (None, Some(Verdict::Number { percentiles })) => (percentiles.clone(), Vec::new(), Vec::new()),
        (why, _) => (Vec::new(), Vec::new(), all_unknown(question, why.unwrap_or(nothing))),
    };
    let no_bounds_because = sentence(&missing);
    Verdict::NotAvailable {
        failed,
        reason: reason.into(),
        hint: hint.into(),
        passed,
        bounds,
        missing,
        no_bounds_because,
    }
}

/// What an early end makes of the verdict.
fn halted(context: &Context<'_>, halt: Option<&Halt>) -> Option<Verdict> {
    let (n, question, verdict) = (context.counts.sent, context.question, context.verdict);
    match halt? {
        Halt::Stalled { ns, waiting } => {
            let seconds = *ns as f64 / 1e9;
            Some(refused(
                Na::Stalled,
                question,
                None,
                ("time without any reply, s", Some(seconds), Some(3.0), n),
                format!("the server stopped answering: no reply for {seconds:.1} s while {waiting} requests waited"),
                "look at the server: is it stopped, deadlocked, out of memory or of workers?",
            ))
        }
        Halt::Agent(reason) => Some(refused(
            Na::Agent,
            question,
            Some(verdict),
            ("every agent answers", None, None, n),
            format!("an agent failed: {reason}"),
            "look at the agent's log; the samples up to then are kept",
        )),
        Halt::Interrupted => match verdict {
            Verdict::Number { .. } => None,
            Verdict::NotAvailable { reason, .. } => Some(refused(
                Na::Interrupted,
                question,
                Some(verdict),
                ("the measurement ends", None, None, n),
                reason.clone(),
                "let it run to its end; the samples so far are kept",
            )),
        },
        Halt::Ended => None,
        Halt::OutOfTime => {
            let mut changed = verdict.clone();
            let Verdict::NotAvailable { hint, .. } = &mut changed else { return None };
            if !hint.contains("--max-time") {
                *hint = format!("raise --max-time, or: {hint}");
            }
            Some(changed)
        }
    }
}

/// Whether the client's accounts say more than the method's verdict: anything does beside a number; beside an N/A, that there was
/// no server or no client any more, or no CPU for what the load was short of, unless bounds are known all the same.
fn overrides(invalidated: &Verdict, verdict: &Verdict) -> bool {
    let account = match invalidated {
        Verdict::NotAvailable { failed: Checked { id: AssumptionId::Account(na), .. }, .. } => Some(*na),
        _ => None,
    };
    match (account, verdict) {
        // What is known in spite of the client is known.
        (Some(Na::ClientCpu), Verdict::NotAvailable { bounds, .. }) if !bounds.is_empty() => false,
        (_, Verdict::Number { .. }) | (Some(Na::ServerGone | Na::OutOfStep | Na::Client), _) => true,
        // Requests that wait for a connection are sent late, and fewer than asked: that is the reason, and not the client's.
        (Some(Na::OpenLoop), Verdict::NotAvailable { failed, .. }) => matches!(
            failed.id,
            AssumptionId::Method(
                CheckId::Load
                    | CheckId::ClientLateness
                    | CheckId::Arrivals
                    | CheckId::ArrivalsSuperposed
                    | CheckId::ArrivalIndependence
            )
        ),
        (Some(Na::ClientCpu), Verdict::NotAvailable { failed, .. }) => matches!(
            failed.id,
            AssumptionId::Method(
                CheckId::Load | CheckId::ClientLateness | CheckId::Arrivals | CheckId::ArrivalIndependence
            )
        ),
        _ => false,
    }
}

/// What the client's accounts make of the verdict. Lateness and the rate were judged by the method where it measured, so the
/// accounts of the whole load, with its start and its pauses, do not matter there. A client that was kept from its core was late
/// in sending, which the method sees up to p99, and in receiving, which matters only without kernel stamps.
fn invalidated(context: &Context<'_>, endings: &[Ending], stamped: f64, deepest: f64) -> Option<Verdict> {
    let (n, plan) = (context.counts.sent, &context.question.plan);
    endings.iter().flat_map(|e| &e.complaints).find_map(|complaint| {
        let reason = complaint.reason();
        let shares_cores = context.machine.shares_cores(plan.threads as usize);
        let (na, test, statistic, threshold) = match complaint {
            Complaint::ServerGone { garbage, .. } => {
                let hint = if *garbage {
                    "does the server speak this protocol?"
                } else {
                    "did the server exit, or refuse this many connections?"
                };
                let evidence = ("usable connections", Some(0.0), Some(1.0), n);
                return Some(refused(Na::ServerGone, context.question, None, evidence, reason, hint));
            }
            Complaint::GivenUp { times, unasked, .. } if complaint.spoils() => {
                let evidence = match *unasked {
                    0 => (
                        "connections closed by the client, at most one in 1,000 requests",
                        *times as f64,
                        n as f64 / 1e3,
                    ),
                    unasked => ("replies without a request", unasked as f64, 0.0),
                };
                let evidence = (evidence.0, Some(evidence.1), Some(evidence.2), n);
                let hint = "does the server speak this protocol, and does no other program write to its connections?";
                return Some(refused(Na::OutOfStep, context.question, None, evidence, reason, hint));
            }
            Complaint::ClientFailed { .. } => (Na::Client, "the client's threads run", None, None),
            Complaint::OutOfCpu { share, limit, .. } => {
                (Na::ClientCpu, "CPU time of a loading thread over wall time", Some(*share), Some(*limit))
            }
            Complaint::Blocked { share, limit, .. } if share > limit => {
                (Na::OpenLoop, "share of requests that found every connection full", Some(*share), Some(*limit))
            }
            // A server that stood still for a moment is in the interval, and no reason against a number.
            Complaint::Blocked { .. } if matches!(context.verdict, Verdict::Number { .. }) => return None,
            Complaint::Blocked { held_share, held_limit, .. } => {
                let test = "share of requests that waited until a connection had room";
                (Na::OpenLoop, test, Some(*held_share), Some(*held_limit))
            }
            Complaint::Starved { share, limit, .. }
                if stamped < STAMPED || deepest > 0.99 && *share > 1.0 - deepest =>
            {
                let test = "share of its time that a loading thread waited for a core";
                (Na::ClientStarved, test, Some(*share), Some(*limit))
            }
            _ => return None,
        };
        let hint = match na {
            Na::ClientStarved => hint::be_on_time(plan, context.machine),
            // More threads would take from the server what they lack.
            Na::ClientCpu if shares_cores => hint::be_on_time(plan, context.machine),
            _ if let Complaint::Blocked { longest_ns, .. } = complaint => hint::have_room(plan, *longest_ns),
            _ => complaint.advice().unwrap_or_default().to_owned(),
        };
        let method = (na == Na::OpenLoop).then_some(context.verdict);
        Some(refused(na, context.question, method, (test, statistic, threshold, n), reason, hint))
    })
}

/// The percentiles asked for, agent by agent, where several have samples.
fn by_agent(good: &[&Row], run: &Run) -> Vec<ByAgent> {
    let of_agent = |(index, agent): (usize, &String)| {
        let own: Vec<&Row> = good.iter().filter(|r| usize::from(r.agent) == index).copied().collect();
        let targets_only = Question { percentiles: Vec::new(), ..run.question.clone() };
        let summary = summary(&own, run.question.latency, &targets_only);
        (!own.is_empty()).then(|| ByAgent { agent: agent.clone(), n: summary.n, percentiles: summary.percentiles })
    };
    let by_agent: Vec<ByAgent> = run.agents.iter().enumerate().filter_map(of_agent).collect();
    if by_agent.len() > 1 { by_agent } else { Vec::new() }
}

fn summary(rows: &[&Row], latency: Latency, question: &Question) -> Summary {
    let series: Vec<f64> = rows.iter().filter_map(|r| latency_ns(&r.sample, latency)).map(|ns| ns as f64).collect();
    let ordered = sorted(series.clone());
    // As early as each reply can have come that shares its stamp with a later one.
    let earliest: Vec<f64> = rows
        .iter()
        .filter_map(|r| Some((latency_ns(&r.sample, latency)? as f64, f64::from(r.sample.shared_ns))))
        .map(|(ns, shared)| (ns - shared).max(0.0).min(ns))
        .collect();
    let early = (earliest != series).then(|| sorted(earliest.clone()));
    let estimate = |q: f64| {
        interval_ranks(ordered.len(), q, LEVEL)?;
        let (interval, _) = dependent_interval_sorted(&series, &ordered, q, LEVEL)?;
        let lower = match &early {
            Some(early) => dependent_interval_sorted(&earliest, early, q, LEVEL)?.0.lower.min(interval.lower),
            None => interval.lower,
        };
        Some(Estimate { value: quantile(&ordered, q)?, lower, upper: interval.upper })
    };
    let asked = question.targets.iter().map(|t| t.quantile);
    let percentiles = question.percentiles.iter().copied().chain(asked).map(|q| (name(q), estimate(q))).collect();
    let n = series.len();
    let mean = (n > 0).then(|| series.iter().sum::<f64>() / n as f64);
    Summary { n, mean, max: ordered.last().copied(), percentiles, because: BTreeMap::new() }
}

fn kept(rows: &[Row], latency: Latency) -> Kept {
    let values: Vec<f64> = rows.iter().filter_map(|r| latency_ns(&r.sample, latency)).map(|ns| ns as f64).collect();
    let ordered = sorted(values);
    let at = |q: f64| quantile(&ordered, q).filter(|_| interval_ranks(ordered.len(), q, LEVEL).is_some());
    Kept { n: rows.len(), p50: at(0.5), p99: at(0.99), max: ordered.last().copied() }
}

fn lateness(endings: &[Ending], question: &Question) -> Lateness {
    let mut lateness = Histogram::default();
    endings.iter().for_each(|e| lateness.merge(&e.lateness));
    let mut overslept = Histogram::default();
    endings.iter().for_each(|e| overslept.merge(&e.overslept));
    let max = (lateness.count() > 0).then(|| lateness.max());
    let (p50, p99, p99_9) = (lateness.quantile(0.5), lateness.quantile(0.99), lateness.quantile(0.999));
    let asked = question.percentiles.iter().copied().chain(question.targets.iter().map(|t| t.quantile));
    let percentiles = asked.map(|q| (name(q), lateness.quantile(q))).collect();
    Lateness { n: lateness.count(), p50, p99, p99_9, max, percentiles, overslept_p99: overslept.quantile(0.99) }
}

/// Rates over the rows of all agents after the first 100 ms.
fn achieved(run: &Run, endings: &[Ending]) -> Achieved {
    let mut sums = Achieved::default();
    let mut asked = 0.0;
    for agent in 0..run.agents.len() as u16 {
        let rows = || run.intervals.iter().filter(|(a, _)| *a == agent).map(|(_, row)| row);
        let seconds = rows().map(|r| r.duration_ns).sum::<u64>().max(1) as f64 / 1e9;
        asked += rows().map(|r| r.target).sum::<f64>() / seconds;
        sums.sent += rows().map(|r| r.sent).sum::<u64>() as f64 / seconds;
        sums.answered += rows().map(|r| r.answered).sum::<u64>() as f64 / seconds;
    }
    let constant = match run.question.plan.rate {
        Rate::Constant(rate) if !matches!(run.question.plan.arrivals, tailsight_load::Arrivals::Replay(_)) => {
            Some(rate)
        }
        _ => None,
    };
    let closed = run.question.plan.arrivals.is_closed() || endings.is_empty();
    sums.asked = if closed { None } else { constant.or(Some(asked)) };
    sums
}

fn client(run: &Run, endings: &[Ending], stamped: f64, hardware: f64) -> Client {
    let cpu_ns: u64 = endings.iter().map(|e| e.cpu_ns).sum();
    let sent: u64 = endings.iter().map(|e| e.counts.sent).sum();
    let shares = |of: fn(&tailsight_load::Treatment) -> u64| {
        endings
            .iter()
            .flat_map(|e| e.threads.iter().map(move |t| of(t) as f64 / (e.end_ns - e.start_ns).max(1) as f64))
            .fold(0.0, f64::max)
    };
    let source = StampSource::merged(endings.iter().filter_map(|e| e.stamps.as_ref()));
    let (stamps, stamps_why, stamps_hint) =
        source.map_or((None, None, None), |source| (Some(source.source), source.why, source.hint));
    Client {
        agents: run.agents.clone(),
        threads: endings.iter().map(|e| e.threads.len()).sum(),
        cpu_ns,
        cpu_ns_per_request: (sent > 0).then(|| cpu_ns as f64 / sent as f64),
        busiest_thread: shares(|t| t.cpu_ns),
        starved_thread: shares(|t| t.waited_ns),
        real_time: endings.iter().flat_map(|e| &e.threads).all(|thread| thread.real_time),
        stamped,
        shared: 0.0,
        shared_samples: 0,
        stamps,
        stamps_why,
        stamps_hint,
        hardware,
        clock_error_ns: endings.iter().map(|e| e.clock_error_ns).max().unwrap_or(0),
    }
}

fn remark(complaint: &Complaint) -> Remark {
    Remark { text: complaint.to_string(), complaint: complaint.clone() }
}

fn share(rows: &[&Row], is: impl Fn(&Row) -> bool) -> f64 {
    rows.iter().filter(|r| is(r)).count() as f64 / rows.len().max(1) as f64
}

fn sum_counts(endings: &[Ending]) -> Counts {
    endings.iter().map(|e| e.counts).fold(Counts::default(), |a, b| Counts {
        intended: a.intended + b.intended,
        sent: a.sent + b.sent,
        unsent: a.unsent + b.unsent,
        ok: a.ok + b.ok,
        miss: a.miss + b.miss,
        error: a.error + b.error,
        wrong: a.wrong + b.wrong,
        closed: a.closed + b.closed,
        garbage: a.garbage + b.garbage,
        lost: a.lost + b.lost,
        unanswered: a.unanswered + b.unanswered,
        blocked: a.blocked + b.blocked,
        held: a.held + b.held,
        unasked: a.unasked + b.unasked,
        reconnects: a.reconnects + b.reconnects,
        redirects: a.redirects + b.redirects,
    })
}

#[cfg(test)]
mod tests {
    use tailsight_load::{Plan, Protocol};

    use super::*;

    /// The latency that is not under study has its interval from here: it reaches down to when replies may have come that share a
    /// stamp, and not up.
    #[test]
    fn an_interval_reaches_to_where_shared_stamps_may_have_been() {
        let question = Question::new(Plan::new("127.0.0.1:9".parse().unwrap(), Protocol::Echo));
        let p50_with = |shared_ns: u32| {
            let row = |i: u64| {
                let sent_ns = 1 + i * 10_000;
                let sample = Sample {
                    intended_ns: sent_ns,
                    called_ns: sent_ns,
                    sent_ns,
                    received_ns: sent_ns + 1_000 + i * 7_919 % 100,
                    shared_ns,
                    ..Sample::default()
                };
                Row { sample, agent: 0, batch: 1, in_result: true }
            };
            let rows: Vec<Row> = (0..20_000).map(row).collect();
            summary(&rows.iter().collect::<Vec<_>>(), Latency::Service, &question).percentiles["p50"].unwrap()
        };
        let (alone, shared) = (p50_with(0), p50_with(400));
        assert!((1_040.0..=1_060.0).contains(&alone.lower), "{alone:?}");
        assert_eq!(shared, Estimate { lower: alone.lower - 400.0, ..alone });
    }
}
