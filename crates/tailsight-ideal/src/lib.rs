//! The ideal of a real server (Tales of the Tail §3.2): the latency that a perfect FIFO server would have had on the same
//! arrivals.
//!
//! In: the messages of a run and what serving them cost ([`Work`]), or a service time that was measured apart. Out: the queue
//! that fits the server ([`Fit`]), the latency that it gives each message, ns, and percentiles of both ([`Ideal`]).
//!
//! The service time is one number, as in the paper: what a message costs on average, on a core that does nothing else. Arrivals
//! are the messages as the driver (or the NIC's stamp, where legs begin there) saw them, answered or not.
//!
//! The simulator of queues, which knows no recordings, is [`queue`].

mod around;
pub mod capacity;
mod error;
mod fit;
mod hooks;
mod of_diagnosis;
pub mod peel;
pub mod prediction;
pub mod queue;
pub mod replay;
pub mod what_if;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_lifetime::timelines::work::Work;
use tailsight_lifetime::{Leg, Lifetimes, Message};
use tailsight_stats::quantile::name;

use crate::queue::{Discipline, Percentile, Request, Server, Sorted, rng, simulate};
pub use capacity::capacity;
pub use error::Error;
pub use fit::{GivenParameters, fit};
pub use of_diagnosis::{OfRun, fill, of_run, without, without_sets};
pub use peel::Named;
pub use tailsight_diagnose::model::ideal::{Capacity, Fit, Inherent, Objective, OfDiagnosis, Queues, WhatIf};

/// Measured against ideal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ideal {
    /// Always 1.
    pub schema: u32,
    /// The run's directory as the user gave it.
    pub run: String,
    /// The application's name.
    pub app: String,
    /// Messages that arrived.
    pub arrivals: u64,
    /// Of them, those whose total latency is known: the percentiles are over these, measured and ideal.
    pub complete: u64,
    /// The queue.
    pub model: Fit,
    /// The total leg as measured; keys `mean`, `p50`, `p99.9`, …
    pub measured_ns: BTreeMap<String, u64>,
    /// The same messages in the ideal server.
    pub ideal_ns: BTreeMap<String, u64>,
    /// Measured over ideal.
    pub ratio: BTreeMap<String, f64>,
    /// Where the server has a queue for each worker: the ideal of one queue for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_queue_ns: Option<BTreeMap<String, u64>>,
    /// Percentiles that so few messages do not carry, and why.
    pub not_available: BTreeMap<String, String>,
    /// Points (latency ns, share of the messages above it), for log axes.
    pub ccdf: Curves,
    /// The loads that an objective allows, and the cores that the load needs, when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// What limits this.
    pub notes: Vec<String>,
}

/// Two curves for one plot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Curves {
    /// As measured.
    pub measured: Vec<(u64, f64)>,
    /// Ideal.
    pub ideal: Vec<(u64, f64)>,
}

/// Points of a curve to a factor of ten.
const POINTS: usize = 40;

/// The ideal latency, ns, of every message, by its id; `None` of those that never arrived at the driver.
///
/// # Errors
/// [`Error::Queue`] when more work arrives than the workers can do, or nothing arrives.
pub fn latencies(messages: &[Message], fit: &Fit) -> Result<Vec<Option<u64>>, Error> {
    latencies_at(messages, fit, 1.0)
}

/// As [`latencies`], had the messages come so many times as fast.
fn latencies_at(messages: &[Message], fit: &Fit, factor: f64) -> Result<Vec<Option<u64>>, Error> {
    let utilisation = fit.utilisation * factor;
    if utilisation >= 1.0 {
        return Err(queue::QueueError::Unstable { utilisation }.into());
    }
    let discipline = match fit.queues {
        Queues::One => Discipline::Fifo,
        Queues::OneAWorker => Discipline::Connection(fit.workers as u32),
    };
    served(messages, fit, discipline, factor)
}

/// `factor`: messages come so many times as fast.
fn served(messages: &[Message], fit: &Fit, discipline: Discipline, factor: f64) -> Result<Vec<Option<u64>>, Error> {
    // Nearly all of them: a list that grows is copied.
    let mut arrived: Vec<(u64, u32, u32)> = Vec::with_capacity(messages.len());
    arrived.extend(messages.iter().filter_map(|m| Some((arrival(m)?, m.id, m.tid))));
    // In order already, unless a NIC stamps.
    if !arrived.is_sorted() {
        arrived.sort_unstable();
    }
    let first = arrived.first().map_or(0, |(at, ..)| *at);
    let requests = arrived.iter().map(|&(at, _, tid)| Request {
        arrival_ns: first + ((at - first) as f64 / factor).round() as u64,
        service_ns: fit.service_ns,
        connection: fit.worker_of(tid),
    });
    let latencies = simulate(requests, Server { workers: fit.workers, discipline }, &mut rng(1, 4))?;
    let mut by_id = vec![None; messages.len()];
    for (&(_, id, _), ns) in arrived.iter().zip(latencies.ns) {
        by_id[id as usize] = Some(ns + fit.apart_ns);
    }
    Ok(by_id)
}

/// When messages arrived, ns, in order.
#[must_use]
pub fn arrivals(messages: &[Message]) -> Vec<u64> {
    let mut arrivals_ns: Vec<u64> = messages.iter().filter_map(arrival).collect();
    arrivals_ns.sort_unstable();
    arrivals_ns
}

/// When it arrived, as its legs have it.
pub(crate) fn arrival(m: &Message) -> Option<u64> {
    let at = if m.flags & tailsight_lifetime::model::flags::FROM_NIC != 0 { m.nic_ns } else { m.driver_ns };
    (at != 0).then_some(at)
}

/// Compares a run with the ideal of its server.
///
/// # Errors
/// [`Error::NoIdeal`] and [`Error::Queue`].
pub fn ideal(
    run: &str,
    lifetimes: &Lifetimes,
    work: &Work,
    given: &GivenParameters,
    percentiles: &[f64],
) -> Result<Ideal, Error> {
    let model = fit(lifetimes, work, given)?;
    let by_id = latencies(&lifetimes.messages, &model)?;
    // The same messages on both sides.
    let pairs: Vec<(u64, u64)> = (lifetimes.messages.iter().zip(&by_id))
        .filter_map(|(m, ideal)| Some((m.latency(Leg::Total)?, (*ideal)?)))
        .collect();
    let measured = Sorted::new(pairs.iter().map(|(measured, _)| *measured).collect());
    let ideal = Sorted::new(pairs.iter().map(|(_, ideal)| *ideal).collect());
    let mut not_available = BTreeMap::new();
    for q in percentiles {
        if let Percentile::TooFew { have, need } = measured.percentile(*q) {
            not_available.insert(name(*q), format!("needs {need} messages with a reply, there are {have}"));
        }
    }
    let (measured_ns, ideal_ns) = (keyed(&measured, percentiles), keyed(&ideal, percentiles));
    let over =
        |(key, ns): (&String, &u64)| Some((key.clone(), *ns as f64 / *ideal_ns.get(key).filter(|i| **i > 0)? as f64));
    let ratio = measured_ns.iter().filter_map(over).collect();
    let one_queue_ns = match model.queues {
        Queues::One => None,
        Queues::OneAWorker => {
            let served_ns = served(&lifetimes.messages, &model, Discipline::Fifo, 1.0)?;
            let complete = lifetimes.messages.iter().zip(served_ns).filter(|(m, _)| m.latency(Leg::Total).is_some());
            Some(keyed(&Sorted::new(complete.filter_map(|(_, ns)| ns).collect()), percentiles))
        }
    };
    Ok(Ideal {
        schema: 1,
        run: run.to_owned(),
        app: lifetimes.app.clone(),
        arrivals: by_id.iter().flatten().count() as u64,
        complete: pairs.len() as u64,
        notes: notes(lifetimes, &model, &ratio),
        ccdf: Curves { measured: measured.ccdf(POINTS).0, ideal: ideal.ccdf(POINTS).0 },
        measured_ns,
        ideal_ns,
        ratio,
        one_queue_ns,
        not_available,
        model,
        capacity: None,
    })
}

fn keyed(sorted: &Sorted, percentiles: &[f64]) -> BTreeMap<String, u64> {
    let values = percentiles.iter().filter_map(|q| Some((name(*q), sorted.percentile(*q).value()?)));
    values.chain([("mean".to_owned(), sorted.mean().round() as u64)]).collect()
}

/// Below this many times its ideal a percentile is at its ideal.
pub const AT_IDEAL: f64 = 1.25;

fn notes(lifetimes: &Lifetimes, model: &Fit, ratio: &BTreeMap<String, f64>) -> Vec<String> {
    let mut notes = model.notes.clone();
    let lost: u64 = lifetimes.incomplete.values().sum();
    if lost > 0 {
        let [messages, are] = if lost == 1 { ["message", "is"] } else { ["messages", "are"] };
        notes.push(format!(
            "{} {messages} could not be followed and {are} left out, so the ideal server has less load",
            tailsight_units::format::count(lost)
        ));
    }
    if !model.tells_service_time() {
        notes.push(format!(
            "at a utilisation of {:.1} % what a message cost holds wake-ups and work after the reply, which a busy server \
             shares among many messages: its service time is shorter, by how much this run does not tell, and so is the ideal. \
             Record under more load, or give the service time (`--service`, or `--calibrate` and `--calibration`)",
            model.utilisation * 100.0
        ));
        return notes;
    }
    match ratio.get("p99") {
        Some(r) if *r < 1.0 => notes.push(
            "the measured p99 is below its ideal: messages in batches cost less than the mean, or messages differ in \
             cost"
                .into(),
        ),
        Some(r) if *r < AT_IDEAL => {
            notes.push(
                "the p99 is at its ideal: only less load, more cores or cheaper requests make it \
             shorter"
                    .into(),
            );
        }
        _ => {}
    }
    notes
}

/// The inherent part of the total latency of messages, (latency in ns, id); `None` of no messages.
pub fn inherent(messages: impl Iterator<Item = (u64, u32)>, ideal: &[Option<u64>]) -> Option<Inherent> {
    let (mut n, mut sum, mut inherent) = (0_u128, 0_u128, 0_u128);
    for (latency, id) in messages {
        let Some(ideal) = ideal.get(id as usize).copied().flatten() else { continue };
        n += 1;
        sum += u128::from(latency);
        inherent += u128::from(latency.min(ideal));
    }
    // Rounded, as the means of a diagnosis are.
    let mean = |sum: u128| (sum + n / 2).checked_div(n).map(|ns| ns as u64);
    let (mean_ns, inherent_ns) = (mean(sum)?, mean(inherent)?);
    Some(Inherent { mean_ns, inherent_ns, excess_ns: mean_ns - inherent_ns })
}
