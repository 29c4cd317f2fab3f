//! Were the requests sent as the workload specifies? (Lancet §4.3: every agent tests its inter-transmission intervals.)
//!
//! What a send was late by is taken off as far as it is below a [`GRACE`] of the width asked. A server that takes requests in
//! order answers none later than the latest of them was sent late (Lindley's recursion is monotone and does not expand), so
//! such deviations move no percentile by more than the grace; and all of the lateness is in the interval besides.
//!
//! In: windows of consecutive sends. Out: [`Check`]s for each agent and for the superposed stream, whose p-values are held
//! against `alpha_arrivals` divided by their number. Gaps are ns.

use super::model::{AgentBatch, Arrivals, Batch, Config, Send, Target};
use super::verdict::{Check, CheckId};
use crate::Error;
use crate::anderson::{self, Anderson};
use crate::quantile::{quantile, sorted};
use crate::random::{Random, mix};
use crate::spearman::autocorrelation;

/// Share of the gaps of a fixed schedule that may be off by more than the tolerance.
const FIXED_OUTSIDE: f64 = 0.01;

/// Lateness is passed over up to this part of the narrowest interval asked.
const GRACE: f64 = 0.25;

/// How much lateness is passed over, ns: nothing where the batch has no samples to take the percentile from.
fn grace_ns(batch: &Batch, config: &Config) -> i64 {
    let all = sorted(batch.agents.iter().flat_map(|a| &a.samples).map(|s| s.latency_ns).collect());
    let width = |target: &Target| {
        let estimate = quantile(&all, target.quantile)?;
        Some(target.max_width_ns(estimate).min(estimate / 10.0))
    };
    let narrowest = config.targets.iter().filter_map(width).reduce(f64::min).unwrap_or(0.0);
    (GRACE * narrowest.max(0.0)) as i64
}

/// When a request was sent, for the tests: at its due time if it was late by the grace at most, else that much earlier.
fn taken(send: &Send, grace: i64) -> i64 {
    send.sent_ns - (send.sent_ns - send.intended_ns).clamp(0, grace)
}

/// All checks of the arrivals of a batch; `round` varies the random choice of gaps.
pub fn arrivals(batch: &Batch, config: &Config, round: u64) -> Vec<Check> {
    if config.arrivals == Arrivals::ClosedLoop {
        return Vec::new();
    }
    let mut random = Random::new(mix(config.seed, 0x6761_7073 ^ round));
    let grace = grace_ns(batch, config);
    let mut checks: Vec<Check> = Vec::new();
    for agent in &batch.agents {
        checks.extend(agent_checks(agent, grace, config, &mut random));
    }
    if batch.one_clock && batch.agents.len() > 1 {
        checks.push(superposed(batch, grace, config, &mut random));
    }
    let tests = checks.iter().filter(|c| c.threshold_is_p).count().max(1);
    for check in checks.iter_mut().filter(|c| c.threshold_is_p) {
        check.threshold = config.alpha_arrivals / tests as f64;
        check.passed = check.p_value.is_some_and(|p| p >= check.threshold);
    }
    checks
}

fn agent_checks(agent: &AgentBatch, grace: i64, config: &Config, random: &mut Random) -> Vec<Check> {
    let subject = Some(agent.agent.clone());
    let sent = gaps(&agent.windows, |s| taken(s, grace));
    let intended = gaps(&agent.windows, |s| s.intended_ns);
    let chosen = choose(sent.len(), config.max_gaps, random);
    let pick = |from: &[f64]| -> Vec<f64> { chosen.iter().map(|i| from[*i]).collect() };
    if let Arrivals::Fixed { tolerance } = config.arrivals {
        return vec![fixed(subject, &gaps(&agent.windows, |s| s.sent_ns), &intended, tolerance)];
    }
    let (test, result) = match config.arrivals {
        Arrivals::Exponential => ("Anderson-Darling, exponential, estimated mean", anderson::exponential(&pick(&sent))),
        Arrivals::Lognormal => ("Anderson-Darling, lognormal, estimated parameters", anderson::lognormal(&pick(&sent))),
        Arrivals::Pareto => ("Anderson-Darling, Pareto, estimated parameters", anderson::pareto(&pick(&sent))),
        _ => ("Anderson-Darling, sent against intended gaps", anderson::two_sample(&pick(&sent), &pick(&intended))),
    };
    let mut checks = vec![tested(CheckId::Arrivals, test, subject.clone(), &result, sent.len())];
    if matches!(config.arrivals, Arrivals::Exponential | Arrivals::Lognormal | Arrivals::Pareto) {
        checks.push(independent_gaps(agent, grace, subject, config.max_gaps, random));
    }
    checks
}

/// A renewal process has gaps that know nothing of each other; a client that catches up in bursts has not.
fn independent_gaps(agent: &AgentBatch, grace: i64, subject: Option<String>, max: usize, random: &mut Random) -> Check {
    let longest = agent.windows.iter().max_by_key(|w| w.len()).map(Vec::as_slice).unwrap_or_default();
    let length = longest.len().min(max + 1);
    let start = if longest.len() > length { random.below(longest.len() - length) } else { 0 };
    let gaps = gaps(&[longest[start..start + length].to_vec()], |s| taken(s, grace));
    let result = autocorrelation(&gaps);
    Check {
        id: CheckId::ArrivalIndependence,
        test: "Spearman rank autocorrelation of the gaps, Holm over lags and Ljung-Box".into(),
        subject,
        passed: false,
        statistic: result.as_ref().map_or(f64::NAN, |a| a.worst_rho),
        threshold: 0.0,
        threshold_is_p: true,
        p_value: result.ok().map(|a| a.p_value),
        n: gaps.len(),
    }
}

fn superposed(batch: &Batch, grace: i64, config: &Config, random: &mut Random) -> Check {
    // Only times at which every agent was sending belong to the superposed stream: its windows' common extent.
    let streams = |of: &dyn Fn(&Send) -> i64| -> Vec<f64> {
        let windows = batch.agents.iter().map(|a| a.windows.len()).min().unwrap_or(0);
        let mut all = Vec::new();
        for w in 0..windows {
            let lists: Vec<Vec<i64>> = batch.agents.iter().map(|a| a.windows[w].iter().map(of).collect()).collect();
            let from = lists.iter().filter_map(|l| l.first()).max().copied().unwrap_or(0);
            let to = lists.iter().filter_map(|l| l.last()).min().copied().unwrap_or(0);
            let common = |list: &Vec<i64>| list.iter().copied().filter(|t| (from..=to).contains(t)).collect();
            all.extend(anderson::superposed_gaps(&lists.iter().map(common).collect::<Vec<_>>()));
        }
        all
    };
    let sent = streams(&|s| taken(s, grace));
    let pick =
        |from: &[f64], chosen: &[usize]| -> Vec<f64> { chosen.iter().filter_map(|i| from.get(*i)).copied().collect() };
    let chosen = choose(sent.len(), config.max_gaps, random);
    let (test, result) = if config.arrivals == Arrivals::Exponential {
        ("Anderson-Darling, exponential, estimated mean", anderson::exponential(&pick(&sent, &chosen)))
    } else {
        let intended = streams(&|s| s.intended_ns);
        let other = choose(intended.len(), config.max_gaps, random);
        (
            "Anderson-Darling, sent against intended gaps",
            anderson::two_sample(&pick(&sent, &chosen), &pick(&intended, &other)),
        )
    };
    tested(CheckId::ArrivalsSuperposed, test, None, &result, sent.len())
}

fn tested(
    id: CheckId,
    test: &str,
    subject: Option<String>,
    result: &Result<Anderson, Error>,
    available: usize,
) -> Check {
    Check {
        id,
        test: test.to_string(),
        subject,
        passed: false,
        statistic: result.as_ref().map_or(f64::NAN, |a| a.statistic),
        threshold: 0.0,
        threshold_is_p: true,
        // No answer (too few gaps, all zero) is no pass.
        p_value: result.as_ref().ok().map(|a| a.p_value),
        n: result.as_ref().map_or(available, |a| a.n),
    }
}

fn fixed(subject: Option<String>, sent: &[f64], intended: &[f64], tolerance: f64) -> Check {
    let specified = intended.iter().sum::<f64>() / intended.len().max(1) as f64;
    let result = anderson::fixed_gaps(sent, specified, tolerance);
    let statistic = result.as_ref().map_or(f64::NAN, |f| f.outside);
    Check {
        id: CheckId::Arrivals,
        test: format!("share of gaps off the fixed one by more than {:.1} %", tolerance * 100.0),
        subject,
        passed: statistic <= FIXED_OUTSIDE,
        statistic,
        threshold: FIXED_OUTSIDE,
        threshold_is_p: false,
        p_value: None,
        n: sent.len(),
    }
}

/// Requests that left in one call have a gap below the resolution of the clock, not none: of a zero the logarithm is infinite,
/// and a single one would decide the test.
fn gaps(windows: &[Vec<Send>], of: impl Fn(&Send) -> i64) -> Vec<f64> {
    windows.iter().flat_map(|w| w.windows(2).map(|pair| (of(&pair[1]) - of(&pair[0])).max(1) as f64)).collect()
}

/// Up to `most` indices of `n`, at random, each once, in order.
fn choose(n: usize, most: usize, random: &mut Random) -> Vec<usize> {
    if n <= most {
        return (0..n).collect();
    }
    let mut chosen = Vec::with_capacity(most);
    for i in 0..n {
        // Selection sampling: take with the share still to be taken of those still to come.
        if random.below(n - i) < most - chosen.len() {
            chosen.push(i);
        }
    }
    chosen
}
