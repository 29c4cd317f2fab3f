//! Is this server slower than that one? Both are measured in turn, many times. In: two loads and a question. Out: a [`Comparison`].
//!
//! Two runs of one server differ by more than their samples show: other programs come and go, caches and clocks wander. One run each cannot
//! tell that from a slower server, however many samples it has. Here the two are measured in turn, in an order that a seed draws for each
//! round, so that what changes slowly meets both; the unit of the test is the round, not the sample. Of each round the ratio of the two
//! percentiles counts. That the two are alike is tested by turning rounds round (every one of 2^n ways, or that many drawn), and the ratio's
//! interval is Student's over the rounds' logarithms. A client that was late, and a level that drifts, meet both alike and spoil no round.
//! Latencies are ns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_load::Plan;
use tailsight_stats::method::{PercentileGoal, Width, percentile_name};
use tailsight_stats::quantile::{needed, quantile, sorted};
use tailsight_stats::random::{Random, mix};
use tailsight_stats::rounds::{self, FEWEST as FEWEST_ROUNDS};

use crate::Error;
use crate::against::ALPHA;
use crate::assumption::{AssumptionId, Na};
use crate::batch::latency_ns;
use crate::load::Load;
use crate::measure::{Event, Measurement, measure};
use crate::question::Question;
use crate::report::{SCHEMA, Verdict};

/// Most rounds that are made.
const MOST_ROUNDS: usize = 40;
/// A server is measured for at least this long in a round: connecting, a second of load, a second of samples.
const SHORTEST: Duration = Duration::from_millis(2_500);
const LEVEL: f64 = 0.95;

/// A comparison of two servers that were measured in turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `comparison`.
    pub kind: String,
    /// The server under study.
    pub target: String,
    /// The one that it is compared with.
    pub other: String,
    /// `p99`.
    pub percentile: String,
    /// What was done, in order.
    pub rounds: Vec<Round>,
    /// `worse`, `better`, `alike` (neither is shown) or `not-available`.
    pub verdict: ComparisonVerdict,
    /// By how much slower it may be, as a share.
    pub allowed: f64,
    /// The target's percentile over the other's, the geometric mean of the rounds.
    pub ratio: Option<f64>,
    /// Its 95 % interval.
    pub ratio_ci95: Option<[f64; 2]>,
    /// One-sided p-value of "it is not slower".
    pub p_slower: Option<f64>,
    /// One-sided p-value of "it is not faster".
    pub p_faster: Option<f64>,
    /// Why there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The load, whole.
    pub plan: Plan,
}

/// What a comparison came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ComparisonVerdict {
    /// Slower, and by more than allowed.
    Worse,
    /// Faster.
    Better,
    /// Neither is shown.
    Alike,
    /// Too few rounds say anything.
    NotAvailable,
}

/// Both servers, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// The target was measured first.
    pub target_first: bool,
    /// The percentile of the target; absent where the samples bear none.
    pub target_ns: Option<f64>,
    /// That of the other.
    pub other_ns: Option<f64>,
    /// Why one of them is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Round {
    /// The logarithm of the target's percentile over the other's; `None` where one is absent.
    #[must_use]
    pub fn log_ratio(&self) -> Option<f64> {
        Some((self.target_ns?.max(1.0) / self.other_ns?.max(1.0)).ln())
    }
}

/// Compares, for as long as the question allows. `each` is told every round.
///
/// # Errors
/// When a load cannot be started at first. Where one cannot be started later, the comparison ends with the rounds that there are.
pub fn compare(
    [target, other]: [&mut dyn Load; 2],
    question: &Question,
    names: [&str; 2],
    allowed: f64,
    stop: &AtomicBool,
    event: &mut dyn FnMut(&Event),
    each: &mut dyn FnMut(usize, usize, &Round),
) -> Result<Comparison, Error> {
    let q = question.targets[0].quantile;
    let count = rounds_in(question.max_time)?;
    let of_each = question.max_time / (2 * count as u32);
    let part = Question {
        targets: vec![PercentileGoal::new(q, Width::Any)],
        percentiles: Vec::new(),
        max_time: of_each,
        ..question.clone()
    };
    let mut loads = [target, other];
    // Storing the keys may take longer than a round.
    for load in &mut loads {
        load.start_within(load.now_ns().saturating_add(question.max_time.as_nanos() as u64), stop)?;
        load.stop()?;
    }
    let mut window = |side: usize| Ok(percentile(&measure(&mut *loads[side], &part, stop, event)?, q));
    let rounds = alternate(count, question.plan.seed, names, stop, &mut window, each);
    Ok(conclude(rounds, question, names, allowed))
}

/// What a window shows: a percentile in ns, or why it shows none.
pub type Shown = Result<f64, String>;

/// Measures two sides in turn until `count` rounds have both percentiles, or twice as many were made. `window` measures a side (0: the target, 1:
/// the other); where it fails, the rounds end. `each` is told how many rounds have both, of how many, and each round.
pub fn alternate(
    count: usize,
    seed: u64,
    names: [&str; 2],
    stop: &AtomicBool,
    window: &mut dyn FnMut(usize) -> Result<Shown, Error>,
    each: &mut dyn FnMut(usize, usize, &Round),
) -> Vec<Round> {
    let mut random = Random::new(mix(seed, 3));
    let mut rounds: Vec<Round> = Vec::new();
    let said = |rounds: &[Round]| rounds.iter().filter(|round| round.log_ratio().is_some()).count();
    let mut is_there = true;
    // A round that says nothing is made again.
    while said(&rounds) < count && rounds.len() < 2 * count && is_there && !stop.load(Ordering::Relaxed) {
        let target_first = random.uniform() < 0.5;
        let mut measured = [None, None];
        let mut reason = None;
        for side in if target_first { [0, 1] } else { [1, 0] } {
            match window(side) {
                Ok(Ok(ns)) => measured[side] = Some(ns),
                Ok(Err(why)) => reason = Some(format!("{}: {why}", names[side])),
                Err(error) => {
                    is_there = false;
                    reason = Some(format!("{}: {}", names[side], tailsight_units::chain(&error)));
                }
            }
        }
        let [target_ns, other_ns] = measured;
        let round = Round { target_first, target_ns, other_ns, reason };
        rounds.push(round);
        each(said(&rounds), count, &rounds[rounds.len() - 1]);
    }
    rounds
}

/// How many rounds fit.
fn rounds_in(time: Duration) -> Result<usize, Error> {
    let rounds = (time.as_secs_f64() / SHORTEST.as_secs_f64() / 2.0) as usize;
    if rounds < FEWEST_ROUNDS {
        let least = 2 * SHORTEST * FEWEST_ROUNDS as u32;
        return Err(Error::Contradiction(format!(
            "two servers in turn need {FEWEST_ROUNDS} rounds, which take {} s; give --max-time {}s or more",
            least.as_secs(),
            least.as_secs()
        )));
    }
    Ok(rounds.min(MOST_ROUNDS))
}

/// The percentile of what was measured, drifting or not, by a client that was late or not: the other is measured just beside it. None where
/// the replies were not the server's, or the samples are too few.
pub fn percentile(measurement: &Measurement, q: f64) -> Shown {
    let report = &measurement.report;
    if let Verdict::NotAvailable { failed, reason, .. } = &report.verdict
        && let AssumptionId::Account(Na::Stalled | Na::ServerGone | Na::OutOfStep | Na::Client | Na::Interrupted) =
            failed.id
    {
        return Err(reason.clone());
    }
    let recorded = measurement.rows.iter().filter(|row| row.batch > 0);
    let ordered = sorted(recorded.filter_map(|r| latency_ns(&r.sample, report.latency)).map(|ns| ns as f64).collect());
    if ordered.len() < needed(q) {
        return Err(format!("{} samples are too few for {}", ordered.len(), percentile_name(q)));
    }
    quantile(&ordered, q).ok_or_else(|| "no samples".into())
}

fn conclude(rounds: Vec<Round>, question: &Question, [target, other]: [&str; 2], allowed: f64) -> Comparison {
    let logs: Vec<f64> = rounds.iter().filter_map(Round::log_ratio).collect();
    let tested = rounds::test(&logs, LEVEL, question.plan.seed);
    use ComparisonVerdict::{Alike, Better, NotAvailable, Worse};
    let verdict = match &tested {
        Some(t) if t.p_larger < ALPHA && t.interval[0] > 1.0 + allowed => Worse,
        Some(t) if t.p_smaller < ALPHA && t.interval[1] < 1.0 => Better,
        Some(_) => Alike,
        None => NotAvailable,
    };
    let without = rounds.iter().rev().find_map(|round| round.reason.clone());
    let reason = tested.is_none().then(|| {
        let why = without.map_or("it was ended before".to_owned(), |why| format!("the last that says nothing: {why}"));
        format!(
            "{} of {} rounds have both percentiles, and {FEWEST_ROUNDS} are needed; {why}",
            logs.len(),
            rounds.len()
        )
    });
    Comparison {
        schema: SCHEMA,
        kind: "comparison".into(),
        target: target.into(),
        other: other.into(),
        percentile: percentile_name(question.targets[0].quantile),
        rounds,
        verdict,
        allowed,
        ratio: tested.map(|t| t.ratio),
        ratio_ci95: tested.map(|t| t.interval),
        p_slower: tested.map(|t| t.p_larger),
        p_faster: tested.map(|t| t.p_smaller),
        reason,
        plan: question.plan.clone().without_secrets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(logs: &[f64], allowed: f64) -> Comparison {
        let plan = Plan::new("127.0.0.1:9".parse().unwrap(), tailsight_load::Protocol::Echo);
        let round = |log: &f64| Round {
            target_first: true,
            target_ns: Some(1e6 * log.exp()),
            other_ns: Some(1e6),
            reason: None,
        };
        conclude(logs.iter().map(round).collect(), &Question::new(plan), ["a", "b"], allowed)
    }

    #[test]
    fn rounds_that_agree_decide_and_those_that_do_not_do_not() {
        let slower: Vec<f64> = (0..10).map(|i| 0.10 + 0.01 * f64::from(i % 3)).collect();
        let comparison = compared(&slower, 0.0);
        assert_eq!(comparison.verdict, ComparisonVerdict::Worse);
        assert!((comparison.ratio.unwrap() - 1.115).abs() < 0.01, "{comparison:?}");
        assert!(comparison.ratio_ci95.unwrap()[0] > 1.1 && comparison.p_slower.unwrap() < 0.002);
        assert_eq!(compared(&slower, 0.2).verdict, ComparisonVerdict::Alike, "20 % is allowed");
        let faster: Vec<f64> = slower.iter().map(|l| -l).collect();
        assert_eq!(compared(&faster, 0.0).verdict, ComparisonVerdict::Better);
        let mixed: Vec<f64> = (0..10).map(|i| if i % 2 == 0 { 0.3 } else { -0.25 }).collect();
        assert_eq!(compared(&mixed, 0.0).verdict, ComparisonVerdict::Alike);
        let few = compared(&slower[..7], 0.0);
        assert!(few.verdict == ComparisonVerdict::NotAvailable && few.reason.unwrap().contains("7 of 7 rounds"));
        // One round of a machine that was busy elsewhere does not decide.
        let mut spoiled = vec![0.0; 9];
        spoiled.push(3.0);
        assert_eq!(compared(&spoiled, 0.0).verdict, ComparisonVerdict::Alike);
    }

    /// Two servers that are alike, on a machine that wanders: other than by the unit of the round this was "worse" in 1 of 3.
    #[test]
    fn alike_servers_on_a_machine_that_wanders_are_seldom_worse() {
        let mut random = Random::new(7);
        let mut alarms = 0;
        for _ in 0..1_000 {
            let mut level = 0.0;
            let logs: Vec<f64> = (0..12)
                .map(|_| {
                    level += 0.3 * random.normal();
                    let first = level + 0.1 * random.normal();
                    level += 0.3 * random.normal();
                    let second = level + 0.1 * random.normal();
                    if random.uniform() < 0.5 { first - second } else { second - first }
                })
                .collect();
            alarms += usize::from(compared(&logs, 0.0).verdict == ComparisonVerdict::Worse);
        }
        assert!(alarms <= 20, "{alarms} of 1,000");
    }

    #[test]
    fn as_many_rounds_are_made_as_fit() {
        let rounds = [40, 60, 600].map(|s| rounds_in(Duration::from_secs(s)).unwrap());
        assert_eq!(rounds, [FEWEST_ROUNDS, 12, MOST_ROUNDS]);
        assert!(rounds_in(Duration::from_secs(39)).unwrap_err().to_string().contains("--max-time 40s"));
    }
}
