//! The ideal inside a diagnosis: which part of the focus's latency was inherent, and what the absence of each cause would buy.
//!
//! In: a diagnosis of the total leg, and the run it is of. Out: its fields `ideal_ns` and `ideal`. Times in ns.
//!
//! Causes have no `what_if` from here, and no output but the JSON shows one: `lab what-if` finds the predictions too high
//! (docs/ideal.md).

use std::collections::{BTreeMap, BTreeSet};

use tailsight_lifetime::{Analysis, LEGS, Leg, Message, OwnerId, PathSpan, Role};
use tailsight_queue::Sorted;

use super::answer::{OfDiagnosis, WhatIf};
use super::replay::{Recorded, Replay};
use super::{Fit, Known, arrival, fit, inherent, keyed, latencies};
use crate::categories::CategoryTable;
use crate::cause::Category;
use crate::cohorts::focus::ranks;
use crate::diagnose::CauseOf;
use crate::model::{Cause, Diagnosis};
use crate::rows::classification::Classification;

/// Percentiles of `ideal_ns` and `what_if`.
const PERCENTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];
/// Most causes whose absence is replayed, the largest.
const MOST_CAUSES: usize = 12;
/// Most messages of a run that is replayed: their paths are walked again.
const MOST_MESSAGES: usize = 200_000;
const SEED: u64 = 1;
/// No server is without these: they are brought down to what the reference has of them, all others are taken out whole.
const KEPT: [Category; 4] =
    [Category::AppProcessing, Category::ReceiveProcessing, Category::TransmitProcessing, Category::WakeupDelay];

/// Fills in what the ideal says. Leaves a diagnosis of another leg, or of a run that no queue fits, as it is. `what_if`: also
/// replays the messages without each cause, which takes many times as long as the diagnosis.
pub fn fill(diagnosis: &mut Diagnosis, analysis: &Analysis, causes: &CauseOf, what_if: bool) {
    if diagnosis.leg != Leg::Total {
        return;
    }
    let lifetimes = &analysis.lifetimes;
    let messages = &lifetimes.messages;
    let Ok(model) = fit(lifetimes, &analysis.work(), &Known::default()) else { return };
    let Ok(by_id) = latencies(messages, &model) else { return };
    let mut ranked: Vec<(u64, u32)> = messages.iter().filter_map(|m| Some((m.latency(Leg::Total)?, m.id))).collect();
    ranked.sort_unstable();
    let all = ranked.iter().map(|(_, id)| *id);
    let of_focus = ranks(ranked.len(), (diagnosis.focus.from, diagnosis.focus.to));
    let focus = ranked.get(of_focus).unwrap_or_default().iter().map(|(_, id)| *id);
    let (Some(focus), Some(all)) = (inherent(messages, focus, &by_id), inherent(messages, all, &by_id)) else { return };
    let complete = ranked.iter().filter_map(|(_, id)| by_id[*id as usize]);
    diagnosis.ideal_ns = Some(keyed(&Sorted::new(complete.collect()), &PERCENTILES));
    let mut said = OfDiagnosis { model, focus, all, replayed_ns: BTreeMap::new(), what_if: Vec::new() };
    if what_if && ranked.len() <= MOST_MESSAGES {
        replay(diagnosis, analysis, causes, &mut said);
    }
    diagnosis.ideal = Some(said);
}

/// Serves the messages again without each cause.
fn replay(diagnosis: &Diagnosis, analysis: &Analysis, causes: &CauseOf, said: &mut OfDiagnosis) {
    let messages = &analysis.lifetimes.messages;
    let recorded: Vec<Recorded> = messages.iter().filter_map(|m| recorded(m, &said.model)).collect();
    let mut replay = Replay::new(recorded, diagnosis.causes.len());
    let table = CategoryTable::default();
    let mut whose = Whose {
        classification: Classification::new(&analysis.lifetimes, &table),
        known: causes.clone(),
        others: BTreeSet::new(),
    };
    analysis.paths(Leg::Total, |m, path| {
        for span in &path {
            if let Some(cause) = whose.cause(&diagnosis.causes, (leg_of(m, span), span.role, span.owner)) {
                replay.held(cause, m.id, (span.from_ns, span.to_ns));
            }
        }
    });
    let sorted = Sorted::new(replay.latencies(None).into_iter().filter(|ns| *ns > 0).collect());
    said.replayed_ns = keyed(&sorted, &PERCENTILES);
    let can = diagnosis.causes.iter().enumerate().filter(|(_, cause)| replaceable(cause));
    for (i, cause) in can.take(MOST_CAUSES) {
        let usual_ns = if KEPT.contains(&cause.category) { cause.mean_ns[1].max(0) as u64 } else { 0 };
        let without = replay.without(i, usual_ns, &PERCENTILES, SEED);
        let excess = Some(said.focus.excess_ns).filter(|ns| *ns > 0);
        said.what_if.push(WhatIf {
            rank: cause.rank,
            category: cause.category,
            name: cause.name.clone(),
            of_excess: excess.map(|ns| cause.deviation_ns as f64 / ns as f64),
            latency_ns: without.latency_ns,
            ci95_ns: without.ci95_ns,
        });
    }
}

/// Which cause an owner's time counts to, also of owners that neither cohort met: another thread of the same intruder.
struct Whose<'a> {
    classification: Classification<'a>,
    known: CauseOf,
    /// Owners that are no cause's.
    others: BTreeSet<(Leg, Role, OwnerId)>,
}

impl Whose<'_> {
    fn cause(&mut self, causes: &[Cause], owner: (Leg, Role, OwnerId)) -> Option<usize> {
        if let Some(cause) = self.known.get(&owner) {
            return Some(*cause);
        }
        if self.others.contains(&owner) {
            return None;
        }
        let (leg, role, id) = owner;
        let segment = LEGS.iter().position(|l| *l == leg)?;
        let verdict = self.classification.at(segment, role, id);
        let is_it = |c: &Cause| c.category == verdict.category && c.role == role && c.name == verdict.name;
        let found = causes.iter().position(is_it);
        match found {
            Some(cause) => drop(self.known.insert(owner, cause)),
            None => drop(self.others.insert(owner)),
        }
        found
    }
}

/// Whether the replay can take a cause out: waiting for messages ahead is what the replay makes itself; what was inferred from
/// counts has no place in time; and what is no cause has nothing to be taken out.
fn replaceable(cause: &Cause) -> bool {
    let no_cause = matches!(cause.category, Category::HolBlocking | Category::Unexplained | Category::NotSignificant);
    !no_cause && !cause.inferred && cause.deviation_ns > 0
}

/// Threads that outnumber their cores wait for each other: their messages have the core's queue.
fn recorded(m: &Message, model: &Fit) -> Option<Recorded> {
    let chain = match model.threads > model.workers {
        true if model.workers == 1 => 0,
        true => u32::from(m.recv_cpu),
        false => m.tid,
    };
    let latency = m.latency(Leg::Total)?;
    let arrival = arrival(m)?;
    let end = arrival + latency;
    Some(Recorded { id: m.id, chain, arrival, answered: m.send_ns.clamp(arrival, end), end })
}

/// The leg that a span of the total leg is part of.
fn leg_of(m: &Message, span: &PathSpan) -> Leg {
    if span.from_ns < m.recv_ns {
        Leg::Receive
    } else if span.from_ns < m.send_ns {
        Leg::Service
    } else {
        Leg::Transmit
    }
}
