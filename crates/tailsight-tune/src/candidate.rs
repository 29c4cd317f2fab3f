//! What can be tried: the fixes of a diagnosis, each with what the replay predicts of it. In: a diagnosis with what-if predictions
//! (`--more`). Out: candidates, the one with the largest predicted gain first.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_diagnose::model::{Change, Diagnosis};
use tailsight_diagnose::{Category, Titled};
use tailsight_stats::quantile::name;

use crate::Family;

/// A cause with less of the deviation than this has no fix that is tried: its effect is too small to be measured.
const LEAST_SHARE: f64 = 0.01;
/// The percentiles of which there can be predictions, from the highest down.
const PREDICTED: [f64; 4] = [0.999, 0.99, 0.9, 0.5];

/// A fix that can be tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// What it is for, in a line.
    pub title: String,
    /// Its number in `tailsight fix RUN`, of the run that was diagnosed.
    pub n: u32,
    /// The category of the cause that it is against: of several, the largest.
    pub category: Category,
    /// That cause in words.
    pub against: String,
    /// The ranks of all causes that it is against and that have 1 % of the deviation.
    pub ranks: Vec<u32>,
    /// Their part of the deviation of the slow messages.
    pub share: f64,
    /// The families of what it changes.
    pub families: Vec<Family>,
    /// What it changes.
    pub changes: Vec<Change>,
    /// What the replay predicts; absent where the cause cannot be taken out of a replay, or the messages were too few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Prediction>,
}

/// What the replay of a recording predicts of a percentile without the causes that a fix is against.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// The percentile: the objective's, or the next lower one that the messages were enough for.
    pub percentile: String,
    /// As recorded, ns.
    pub recorded_ns: u64,
    /// Without the causes, ns.
    pub without_ns: u64,
    /// `without_ns` over `recorded_ns`.
    pub ratio: f64,
}

impl Candidate {
    /// What tells it from other candidates: what it changes, whichever processes of a name were seen.
    pub(crate) fn key(&self) -> Vec<Change> {
        let plain = |change: &Change| match change.clone() {
            Change::PinNamed { comm, cpus, .. } => Change::PinNamed { comm, seen: vec![], cpus },
            other => other,
        };
        self.changes.iter().map(plain).collect()
    }

    /// The larger, the earlier it is tried: the predicted gain, and among those without a prediction the share.
    fn order(&self) -> (f64, f64) {
        (self.predicted.as_ref().map_or(0.0, |p| 1.0 - p.ratio), self.share)
    }
}

/// The fixes of a diagnosis that can be applied and undone, for a percentile.
#[must_use]
pub fn candidates(diagnosis: &Diagnosis, quantile: f64) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = vec![];
    for cause in diagnosis.causes.iter().filter(|cause| cause.share >= LEAST_SHARE) {
        for action in &cause.actions {
            match candidates.iter_mut().find(|candidate| candidate.n == action.n) {
                Some(candidate) => {
                    candidate.ranks.push(cause.rank);
                    candidate.share += cause.share;
                }
                None => {
                    let mut families: Vec<Family> = action.changes.iter().map(Family::of).collect();
                    families.dedup();
                    candidates.push(Candidate {
                        title: action.title.clone(),
                        n: action.n,
                        category: cause.category,
                        against: cause.with_category(),
                        ranks: vec![cause.rank],
                        share: cause.share,
                        families,
                        changes: action.changes.clone(),
                        predicted: None,
                    });
                }
            }
        }
    }
    for candidate in &mut candidates {
        let what_ifs = diagnosis.ideal.iter().flat_map(|ideal| &ideal.what_if);
        let alone = what_ifs.filter(|what_if| candidate.ranks.contains(&what_if.rank));
        let predictions = alone.filter_map(|what_if| Prediction::of(diagnosis, quantile, &what_if.latency_ns));
        // Of several causes the largest gain of one, which is the least that all of them bring.
        candidate.predicted = predictions.min_by(|a, b| a.ratio.total_cmp(&b.ratio));
    }
    in_order(&mut candidates);
    candidates
}

/// The largest predicted gain first.
pub fn in_order(candidates: &mut [Candidate]) {
    candidates.sort_by(|a, b| {
        let (a, b) = (a.order(), b.order());
        b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
}

impl Prediction {
    /// Of the percentiles that a replay gives, keyed as those of the diagnosis. `None` where it has none that the messages were enough for.
    #[must_use]
    pub fn of(diagnosis: &Diagnosis, quantile: f64, without_ns: &BTreeMap<String, u64>) -> Option<Prediction> {
        let lower = PREDICTED.into_iter().filter(|q| *q < quantile);
        std::iter::once(quantile).chain(lower).map(name).find_map(|percentile| {
            let (recorded_ns, without_ns) = (*diagnosis.latency_ns.get(&percentile)?, *without_ns.get(&percentile)?);
            let ratio = without_ns as f64 / recorded_ns.max(1) as f64;
            Some(Prediction { percentile, recorded_ns, without_ns, ratio })
        })
    }
}
