//! The stages of messages (Tales of the Tail §3.3.1, T1 to T6): how long each took, in focus and reference.
//!
//! In: messages, two cohorts. Out: a distribution for each stage, ns. The stages of a message sum to its total latency; messages
//! without one are left out.

use tailsight_lifetime::Lifetimes;
use tailsight_lifetime::model::STAGES;

use crate::cohorts::focus::percentiles;
use crate::cohorts::{Cohort, Cohorts};
use crate::model::Stage;

/// The five stages; none when no message of the focus has all of them.
pub fn stages(lifetimes: &Lifetimes, cohorts: &Cohorts) -> Vec<Stage> {
    let (mut focus, mut reference) = (of(lifetimes, &cohorts.focus), of(lifetimes, &cohorts.reference));
    if focus[0].is_empty() {
        return vec![];
    }
    let both_cohorts = focus.iter_mut().zip(&mut reference);
    let stages = STAGES.into_iter().zip(1..).zip(both_cohorts).map(|((name, i), (focus, reference))| Stage {
        name: name.to_owned(),
        from: format!("T{i}"),
        to: format!("T{}", i + 1),
        focus_ns: percentiles(focus),
        reference_ns: percentiles(reference),
    });
    stages.collect()
}

/// The lengths of each stage in a cohort.
fn of(lifetimes: &Lifetimes, cohort: &Cohort) -> [Vec<u64>; 5] {
    let mut out: [Vec<u64>; 5] = Default::default();
    for times in cohort.ids.iter().filter_map(|id| lifetimes.messages[*id as usize].stages()) {
        out.iter_mut().zip(times).for_each(|(stage, ns)| stage.push(ns));
    }
    out
}
