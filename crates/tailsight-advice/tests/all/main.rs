//! Words of diagnoses from end to end, on built lifetimes.

#[allow(dead_code, reason = "the tests of tailsight-diagnose build more")]
#[path = "../../../tailsight-diagnose/tests/all/common.rs"]
mod common;
mod functions;
mod rows;
#[allow(dead_code, reason = "the tests of tailsight-diagnose build more")]
#[path = "../../../tailsight-diagnose/tests/all/sampled.rs"]
mod sampled;
mod texts;

use tailsight_diagnose::{Diagnosis, Options, RecordingFacts, diagnose};
use tailsight_lifetime::Lifetimes;

/// A diagnosis with its words.
fn worded(lifetimes: &Lifetimes, options: &Options, facts: &RecordingFacts) -> Diagnosis {
    with_words(diagnose(lifetimes, options, facts).unwrap(), options, facts)
}

/// The diagnosis with its words.
fn with_words(mut diagnosis: Diagnosis, options: &Options, facts: &RecordingFacts) -> Diagnosis {
    tailsight_advice::fill(&mut diagnosis, options, facts);
    diagnosis
}
