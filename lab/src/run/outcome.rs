//! The result of one run of a scenario.

use serde::Serialize;
use tailsight_testbed::disturbed::Disturbance;

use super::judge::{Coverage, Named, Score, Share};
use super::modern::Taken;
use super::peel::Peeled;
use super::scenario::{Cause, Scenario};

/// The result of one run.
#[derive(Debug, Clone, Serialize)]
pub struct ScenarioResult {
    pub scenario: &'static str,
    pub repeat: u32,
    pub leg: &'static str,
    pub verdict: Score,
    /// Why it did not run, failed, or has no diagnosis.
    pub reason: Option<String>,
    pub expected: Vec<Cause>,
    /// Where nothing is wrong: all permitted causes.
    pub may: Option<Vec<Cause>>,
    /// The named causes by rank, without `unexplained`.
    pub causes: Vec<Named>,
    /// Shares beside their truth.
    pub shares: Vec<Share>,
    /// Named causes that the raw events show in none of their evidence.
    pub false_causes: Vec<String>,
    /// Those that they show in a part of it.
    pub partly: Vec<String>,
    /// Named causes that were looked for in the raw events.
    pub checked_causes: usize,
    /// The part of each focus message's deviation that belongs to reported causes (NSight's coverage).
    pub coverage: Option<Coverage>,
    /// The part that has an owner, reported or not.
    pub owned: Option<Coverage>,
    /// Where nothing is wrong: what was named and is not permitted, including causes too small to make the run wrong.
    pub forbidden: Vec<String>,
    /// Messages of the leg.
    pub messages: u64,
    /// The part of the machine's other work in the slowest messages, by the raw events alone; `None` with too few messages.
    pub disturbance: Option<Disturbance>,
    /// Whether that is too much for the run to count.
    pub disturbed: bool,
    /// The part of the focus's deviation in requests that the fault, by its truth log, never hit.
    pub untouched_share: Option<f64>,
    /// Places in the raw events where a switch of tasks was not recorded.
    pub breaks: usize,
    /// Events that the recorder lost.
    pub lost_events: u64,
    /// The client's latency, ns: p50, p99, max.
    pub client_ns: Option<[u64; 3]>,
    /// How a user would take the answer, where that is judged.
    pub taken: Option<Taken>,
    /// Where there is a fault: whether the first cause of the total leg is right, with and without other work.
    pub peeled: Option<Peeled>,
}

impl ScenarioResult {
    /// Whether it ran, so that it is counted.
    pub fn counts(&self) -> bool {
        self.verdict != Score::NotRun
    }

    /// Whether the first cause is an expected one or, where none is expected, a permitted one. To be right, a clean run must
    /// also have no other cause with 5 % or more.
    pub fn first_is_right(&self) -> bool {
        let Some(may) = &self.may else { return self.verdict == Score::Right };
        if !matches!(self.verdict, Score::Right | Score::Wrong) {
            return false;
        }
        let right = if self.expected.is_empty() { may } else { &self.expected };
        let is_right = |first: &Named| right.iter().any(|cause| cause.is(&first.category, &first.name));
        self.causes.first().map_or(self.expected.is_empty(), is_right)
    }

    /// A run without a result.
    pub fn without(scenario: &Scenario, repeat: u32, verdict: Score, reason: String) -> Self {
        Self {
            scenario: scenario.name,
            repeat,
            leg: scenario.leg,
            verdict,
            reason: Some(reason),
            expected: scenario.expect.clone(),
            may: scenario.may.clone(),
            causes: Vec::new(),
            shares: Vec::new(),
            false_causes: Vec::new(),
            partly: Vec::new(),
            checked_causes: 0,
            coverage: None,
            owned: None,
            forbidden: Vec::new(),
            messages: 0,
            disturbance: None,
            disturbed: false,
            untouched_share: None,
            breaks: 0,
            lost_events: 0,
            client_ns: None,
            taken: None,
            peeled: None,
        }
    }
}
