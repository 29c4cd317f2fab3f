//! Whether slow messages are what chance and any host make of usual ones.
//!
//! In: a [`Diagnosis`] with its causes. Out: yes or no.

use tailsight_lifetime::Threshold;

use crate::Diagnosis;
use crate::model::Cause;

/// Whether slow messages are what chance and any host make of usual ones. Of a comparison with another run, and of a part of the messages that
/// was asked for, nothing is said.
pub fn nothing_stands_out(diagnosis: &Diagnosis) -> bool {
    let of = |key: &str| diagnosis.latency_ns.get(key).copied();
    let is_tail = diagnosis.against.is_none() && diagnosis.focus.to == 1.0 && diagnosis.focus.from >= 0.9;
    let usual = of("p50").zip(of("p99")).is_some_and(|(p50, p99)| p99 < Threshold::UsualTail.count() as u64 * p50);
    let small = |cause: &Cause| cause.deviation_ns < Threshold::UsualCause.ns() as i64;
    is_tail && diagnosis.not_available.is_none() && usual && diagnosis.causes.iter().all(small)
}
