//! The ideal in a diagnosis: which part of the focus's latency was inherent, and what the latency would be without each cause.
//!
//! In: a diagnosis of the total leg, and its run. Out: its fields `ideal_ns` and `ideal`, `of_excess` of its causes and, of those that can be
//! taken out, `what_if`. Times in ns.
//! How exact the predictions are is measured by `lab what-if` (docs/ideal.md).

use std::collections::BTreeMap;
use std::ops::Range;

use crate::queue::Sorted;
use rayon::prelude::*;
use tailsight_lifetime::timelines::work::Work;
use tailsight_lifetime::{Analysis, Leg, Lifetimes};

use super::peel::Named;
use super::what_if::WhatIf;
use super::{Fit, GivenParameters, fit, inherent, keyed, latencies};
use crate::Error;
use tailsight_diagnose::CauseOf;
use tailsight_diagnose::cohorts::focus::{percentiles, ranks};
use tailsight_diagnose::model::ideal::{OfDiagnosis, WhatIf as Said};
use tailsight_diagnose::model::{Cause, Diagnosis, TakenOut, Without};

/// Percentiles of `ideal_ns` and `what_if`.
pub(super) const PERCENTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];
/// The least share of a cause whose absence is replayed.
const LEAST_SHARE: f64 = 0.01;

/// The ideal latency of each message of a run.
pub struct OfRun {
    model: Fit,
    /// By message.
    by_id: Vec<Option<u64>>,
    /// Complete messages, (latency, id), in order of arrival.
    complete: Vec<(u64, u32)>,
    /// Percentiles over those.
    ideal_ns: BTreeMap<String, u64>,
}

impl OfRun {
    /// What it would have taken for each message, ns, by the message's id; `None` of one whose arrival was not seen.
    pub fn by_id(&self) -> &[Option<u64>] {
        &self.by_id
    }
}

/// Asks the ideal server of a run, whose work is `work`; it takes no diagnosis. `None` where no queue fits.
pub fn of_run(analysis: &Analysis, work: &Work) -> Option<OfRun> {
    let messages = &analysis.lifetimes.messages;
    let model = fit(&analysis.lifetimes, work, &GivenParameters::default()).ok()?;
    let by_id = latencies(messages, &model).ok()?;
    // Nearly all of them: a list that grows is copied.
    let mut complete: Vec<(u64, u32)> = Vec::with_capacity(messages.len());
    complete.extend(messages.iter().filter_map(|m| Some((m.latency(Leg::Total)?, m.id))));
    let mut ideal: Vec<u64> = complete.iter().filter_map(|(_, id)| by_id[*id as usize]).collect();
    let mut ideal_ns = percentiles(&mut ideal);
    ideal_ns.remove("max");
    Some(OfRun { model, by_id, complete, ideal_ns })
}

/// Fills in what the ideal says. Leaves a diagnosis of another leg as it is. What the absence of each cause would buy is replayed
/// for a diagnosis with [`Diagnosis::more`]: it takes half as long as everything else.
pub fn fill(diagnosis: &mut Diagnosis, analysis: &Analysis, causes: &CauseOf, of_run: OfRun) {
    if diagnosis.leg != Leg::Total {
        return;
    }
    let OfRun { model, by_id, mut complete, ideal_ns } = of_run;
    let inherent = |of: &[(u64, u32)]| inherent(of.iter().copied(), &by_id);
    let overall = inherent(&complete);
    let of_focus = ranks(complete.len(), (diagnosis.focus.from, diagnosis.focus.to));
    let focus = inherent(between_ranks(&mut complete, of_focus));
    let (Some(focus), Some(overall)) = (focus, overall) else { return };
    diagnosis.ideal_ns = Some(ideal_ns);
    let excess = Some(focus.excess_ns).filter(|ns| *ns > 0);
    for cause in &mut diagnosis.causes {
        cause.of_excess = excess.map(|ns| cause.deviation_ns as f64 / ns as f64);
    }
    let mut said =
        OfDiagnosis { model, focus, all: overall, replayed_ns: BTreeMap::new(), what_if: Vec::new(), capacity: None };
    if diagnosis.more.is_some() {
        what_ifs(diagnosis, analysis, causes, &mut said);
    }
    diagnosis.ideal = Some(said);
}

/// The messages, (latency, id), of these ranks by both, in any order.
fn between_ranks(all: &mut [(u64, u32)], ranks: Range<usize>) -> &[(u64, u32)] {
    if ranks.end < all.len() {
        all.select_nth_unstable(ranks.end);
    }
    let below = &mut all[..ranks.end];
    if ranks.start < below.len() {
        below.select_nth_unstable(ranks.start);
    }
    &below[ranks.start..]
}

/// The lifetimes without some causes of a diagnosis of the total leg, and what that does to the percentiles.
///
/// # Errors
/// [`Error::NoSuchCause`]; [`Error::NoIdeal`] where no queue fits.
pub fn without(
    diagnosis: &Diagnosis,
    analysis: &Analysis,
    causes: &CauseOf,
    names: &[Named],
) -> Result<(Lifetimes, Without), Error> {
    let wanted = WhatIf::named(&diagnosis.causes, names)?;
    let model = fit(&analysis.lifetimes, &analysis.work(), &GivenParameters::default())?;
    let replay = WhatIf::new(&diagnosis.causes, &wanted, causes, analysis, &model, &PERCENTILES);
    let prediction = replay.without(&wanted);
    let out = |i: &usize| {
        let Cause { category, name, role, share, .. } = &diagnosis.causes[*i];
        TakenOut { category: *category, name: name.clone(), role: *role, share: *share }
    };
    let said = Without {
        causes: wanted.iter().map(out).collect(),
        measured_ns: diagnosis.latency_ns.clone(),
        latency_ns: prediction.latency_ns,
        ci95_ns: prediction.ci95_ns,
    };
    Ok((replay.peeled(&analysis.lifetimes, &wanted), said))
}

/// The percentiles without several causes at once, by their ranks, for each of these sets: what a fix against all of them would buy. `None` for a set
/// of which no cause can be taken out.
///
/// # Errors
/// [`Error::NoIdeal`] where no queue fits.
pub fn without_sets(
    diagnosis: &Diagnosis,
    analysis: &Analysis,
    causes: &CauseOf,
    sets: &[Vec<u32>],
) -> Result<Vec<Option<BTreeMap<String, u64>>>, Error> {
    let of_set = |ranks: &Vec<u32>| -> Vec<usize> {
        let numbered = diagnosis.causes.iter().enumerate();
        numbered.filter(|(_, cause)| ranks.contains(&cause.rank) && WhatIf::can(cause)).map(|(i, _)| i).collect()
    };
    let sets: Vec<Vec<usize>> = sets.iter().map(of_set).collect();
    let mut wanted = sets.concat();
    wanted.sort_unstable();
    wanted.dedup();
    let model = fit(&analysis.lifetimes, &analysis.work(), &GivenParameters::default())?;
    let replay = WhatIf::new(&diagnosis.causes, &wanted, causes, analysis, &model, &PERCENTILES);
    let predict = |set: &Vec<usize>| (!set.is_empty()).then(|| replay.without(set).latency_ns);
    Ok(sets.par_iter().map(predict).collect())
}

/// Serves the messages again without each cause.
fn what_ifs(diagnosis: &mut Diagnosis, analysis: &Analysis, causes: &CauseOf, said: &mut OfDiagnosis) {
    let can = |cause: &Cause| WhatIf::can(cause) && cause.share >= LEAST_SHARE;
    let numbered = diagnosis.causes.iter().enumerate();
    let wanted: Vec<usize> = numbered.filter(|(_, cause)| can(cause)).map(|(i, _)| i).collect();
    let replay = WhatIf::new(&diagnosis.causes, &wanted, causes, analysis, &said.model, &PERCENTILES);
    said.replayed_ns = keyed(&Sorted::new(replay.replayed().to_vec()), &PERCENTILES);
    let predictions: Vec<_> = wanted.par_iter().map(|i| (*i, replay.without(&[*i]))).collect();
    drop(replay);
    for (i, without) in predictions {
        let cause = &mut diagnosis.causes[i];
        cause.what_if = Some(without.latency_ns.clone());
        said.what_if.push(Said {
            rank: cause.rank,
            category: cause.category,
            name: cause.name.clone(),
            of_excess: cause.of_excess,
            latency_ns: without.latency_ns,
            ci95_ns: without.ci95_ns,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_between_two_ranks_are_those_of_the_sorted_list() {
        // Latencies that come twice, in an order that is none.
        let latencies: Vec<(u64, u32)> = (0..60).map(|id| (u64::from(id * 37 % 30), id)).collect();
        let mut sorted = latencies.clone();
        sorted.sort_unstable();
        for ranks in [0..0, 0..60, 13..13, 13..40, 0..7, 59..60, 60..60] {
            let mut mixed = latencies.clone();
            let mut chosen = between_ranks(&mut mixed, ranks.clone()).to_vec();
            chosen.sort_unstable();
            assert_eq!(chosen, sorted[ranks]);
        }
    }
}
