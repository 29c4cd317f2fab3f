//! The queue that fits a server. In: who received which messages where, and what that cost. Out: workers, queues, service time.

use std::collections::{BTreeMap, BTreeSet};

use tailsight_diagnose::model::ideal::{Fit, Queues};
use tailsight_lifetime::timelines::work::{ThreadWork, Work};
use tailsight_lifetime::{Leg, Lifetimes};

use crate::Error;

/// What is known beside the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GivenParameters {
    /// The service time of a message on one core, ns.
    pub service_ns: Option<u64>,
    /// It comes from a calibration, else it was given.
    pub calibrated: bool,
    /// Workers.
    pub workers: Option<usize>,
}

/// A thread with less than this part of the busiest one's messages is no worker; a core with less than this of the threads'
/// time is none of theirs.
const LEAST_SHARE: f64 = 0.01;
/// So many of the messages must be on connections that one thread serves, or they have one queue.
const BOUND_SHARE: f64 = 0.99;
/// Connections with at least two messages tell who serves them; so many of the messages must be on such.
const TELLING_SHARE: f64 = 0.5;

/// Finds the queue that fits.
///
/// # Errors
/// [`Error::NoIdeal`] when no message has a reply, or nothing is known of what they cost.
pub fn fit(lifetimes: &Lifetimes, work: &Work, given: &GivenParameters) -> Result<Fit, Error> {
    let no = |why: String| Error::NoIdeal { app: lifetimes.app.clone(), why };
    let messages = &lifetimes.messages;
    if !messages.iter().any(|m| m.latency(Leg::Total).is_some()) {
        let reasons: Vec<String> = lifetimes.incomplete.iter().map(|(why, n)| format!("{n} {}", why.text())).collect();
        let because = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
        return Err(no(format!(
            "none of its {} messages has a reply that was seen{because}, so there is no service leg; record on a host \
             that sees \
             send calls (tailsight doctor shows it), or a server that sends replies",
            messages.len()
        )));
    }
    let most = work.threads.iter().map(|t| t.messages).max().unwrap_or(0);
    let mut threads: Vec<&ThreadWork> =
        work.threads.iter().filter(|t| t.messages as f64 >= LEAST_SHARE * most as f64).collect();
    threads.sort_by_key(|t| (std::cmp::Reverse(t.messages), t.tid));
    let received: u64 = threads.iter().map(|t| t.messages).sum();
    let mut on_core: BTreeMap<u16, u64> = BTreeMap::new();
    threads.iter().flat_map(|t| &t.cpus).for_each(|(cpu, ns)| *on_core.entry(*cpu).or_default() += ns);
    let busy: u64 = on_core.values().sum();
    on_core.retain(|_, ns| *ns as f64 >= LEAST_SHARE * busy as f64);
    if received == 0 || busy == 0 {
        return Err(no("sched_switch was off, so the work of its threads is unknown; record again with it".into()));
    }
    let each = |ns: u64| ns / received;
    let user_ns = each(threads.iter().map(|t| t.user_ns).sum());
    let kernel_ns = each(threads.iter().map(|t| t.kernel_ns).sum());
    let received_here: u64 = work.receive.iter().filter(|(cpu, _)| on_core.contains_key(cpu)).map(|(_, ns)| ns).sum();
    let all_receive: u64 = work.receive.values().sum();
    let receive_ns = each(all_receive);
    let mut notes = Vec::new();
    let apart = all_receive > 2 * received_here;
    if apart {
        notes.push(
            "packets are received on other cores than the application's: receiving is a constant, not part of the \
             service time"
                .into(),
        );
    }
    let (service_ns, service_from, apart_ns) = match given.service_ns {
        Some(ns) => (ns, if given.calibrated { "calibrated" } else { "given" }, 0),
        None if apart => (user_ns + kernel_ns, "run", receive_ns),
        None => (user_ns + kernel_ns + receive_ns, "run", 0),
    };
    if service_ns == 0 {
        return Err(no("the cost of a message in this recording is below a nanosecond".into()));
    }
    let workers = given.workers.unwrap_or_else(|| threads.len().min(on_core.len()).max(1));
    let queues = queues(lifetimes, &threads, workers, &mut notes);
    let worker = threads.iter().zip(0_u32..).map(|(t, i)| (t.tid, i % workers as u32)).collect();
    let span = arrivals_span(lifetimes);
    let arrived = messages.iter().filter(|m| super::arrival(m).is_some()).count();
    let utilisation = match span {
        0 => return Err(no("all its messages arrived at one instant".into())),
        span => (arrived - 1) as f64 * service_ns as f64 / (span as f64 * workers as f64),
    };
    Ok(Fit {
        service_ns,
        service_from: service_from.into(),
        user_ns,
        kernel_ns,
        receive_ns,
        others_ns: each(work.others_ns),
        apart_ns,
        workers,
        queues,
        utilisation,
        threads: threads.len(),
        cores: on_core.len(),
        notes,
        worker,
    })
}

pub(super) fn arrivals_span(lifetimes: &Lifetimes) -> u64 {
    let times = lifetimes.messages.iter().filter_map(super::arrival);
    let ends = times.fold(None, |ends, at| {
        let (first, last) = ends.unwrap_or((at, at));
        Some((at.min(first), at.max(last)))
    });
    ends.map_or(0, |(first, last)| last - first)
}

/// One queue, or one for each worker: told from whether connections change threads.
fn queues(lifetimes: &Lifetimes, threads: &[&ThreadWork], workers: usize, notes: &mut Vec<String>) -> Queues {
    if workers == 1 {
        return Queues::One;
    }
    let mut by_flow: BTreeMap<u32, (u64, BTreeSet<u32>)> = BTreeMap::new();
    for m in lifetimes.messages.iter().filter(|m| m.recv_ns != 0) {
        let (n, tids) = by_flow.entry(m.flow).or_default();
        *n += 1;
        tids.insert(m.tid);
    }
    let messages_in_flows: u64 = by_flow.values().map(|(n, _)| n).sum();
    let telling: u64 = by_flow.values().filter(|(n, _)| *n > 1).map(|(n, _)| n).sum();
    let bound: u64 = by_flow.values().filter(|(n, tids)| *n > 1 && tids.len() == 1).map(|(n, _)| n).sum();
    if (telling as f64) < TELLING_SHARE * messages_in_flows as f64 {
        notes.push(
            "most connections carried one message, so the queue of each worker is unknown: one queue is assumed".into(),
        );
        return Queues::One;
    }
    if (bound as f64) < BOUND_SHARE * telling as f64 {
        return Queues::One;
    }
    if threads.len() > workers {
        notes.push(format!(
            "each connection belongs to one of {} threads on {workers} cores: the scheduler makes them one queue",
            threads.len()
        ));
        return Queues::One;
    }
    Queues::OneAWorker
}
