//! Were the requests sent as the workload specifies? (Lancet §4.3: every agent tests its inter-transmission intervals.)
//!
//! No client sends two requests at once, so the shortest gaps are never as specified, and with enough of them any test finds that.
//! So most requests must be on time compared with the gaps of the schedule ([`punctual`]), and all late ones except the latest one in
//! [`LATE`] count as sent when they were due, up to one gap. The effect of lateness on the percentiles is in the interval
//! ([`super::system::propagate_lateness`]). `strict_arrivals` tests the times sent as they are.
//!
//! In: windows of consecutive sends. Out: [`Check`]s for each agent and for the superposed stream, whose p-values are held
//! against `alpha_arrivals` divided by their number. Gaps are ns.

use super::model::{AgentBatch, Arrivals, Batch, Config, Send};
use super::number_or_refusal::{Check, CheckId};
use crate::Error;
use crate::anderson::{self, Anderson};
use crate::random::{Random, mix};
use crate::spearman::autocorrelation;

/// Whether the schedule itself is as specified: other requests were then only late. Not for a schedule that waits for replies.
pub fn due_as_specified(batch: &Batch, config: &Config, round: u64) -> bool {
    let mut punctual = batch.clone();
    for send in punctual.agents.iter_mut().flat_map(|a| &mut a.windows).flatten() {
        send.sent_ns = send.intended_ns;
    }
    let checks = arrivals(&punctual, config, round);
    !checks.is_empty() && checks.iter().all(|c| c.passed)
}

/// Share of the gaps of a fixed schedule that may be off by more than the tolerance.
const FIXED_OUTSIDE: f64 = 0.01;

/// One request in this number keeps all of its lateness. A late request changes two gaps, so this is half of [`FIXED_OUTSIDE`].
const LATE: usize = 200;

/// A request is on time when it is late by less than this part of the mean gap …
const ON_TIME: f64 = 0.1;
/// … and this share of them may not be.
const NOT_ON_TIME: f64 = 1.0 / 3.0;

/// What the sends of an agent were late by, ns, and their mean gap in the schedule, ns; nothing where there are no two of them.
fn lateness(agent: &AgentBatch) -> Option<(Vec<i64>, i64)> {
    let sends = || agent.windows.iter().flatten();
    let late = sends().map(|s| s.sent_ns.saturating_sub(s.intended_ns).max(0)).collect();
    let due = |window: &Vec<Send>| {
        let times = || window.iter().map(|s| s.intended_ns);
        Some(times().max()?.saturating_sub(times().min()?))
    };
    let gaps: i64 = agent.windows.iter().map(|w| w.len().saturating_sub(1) as i64).sum();
    let spans = agent.windows.iter().filter_map(due).fold(0, i64::saturating_add);
    Some((late, spans.checked_div(gaps)?))
}

/// How much lateness of an agent's sends is passed over, ns: what all but one in [`LATE`] were late by at most, one mean gap at
/// most.
fn grace_ns(agent: &AgentBatch, config: &Config) -> i64 {
    let Some((mut late, gap)) = lateness(agent).filter(|_| !config.strict_arrivals) else { return 0 };
    let place = late.len() - 1 - late.len() / LATE;
    (*late.select_nth_unstable(place).1).min(gap)
}

/// Whether the stream is the schedule's: most requests left when they were due, beside the gaps between them.
fn punctual(agent: &AgentBatch) -> Check {
    let lateness_and_gap = lateness(agent);
    let n = lateness_and_gap.as_ref().map_or(0, |(late, _)| late.len());
    let statistic = lateness_and_gap.map_or(f64::NAN, |(late, gap)| {
        let limit = ON_TIME * gap as f64;
        late.iter().filter(|ns| **ns as f64 > limit).count() as f64 / n.max(1) as f64
    });
    Check {
        id: CheckId::Arrivals,
        test: format!(
            "share of requests that left later than due by more than {:.0} % of the mean gap",
            ON_TIME * 100.0
        ),
        subject: Some(agent.agent.clone()),
        // No answer is no pass.
        passed: statistic <= NOT_ON_TIME,
        statistic,
        threshold: NOT_ON_TIME,
        threshold_is_p: false,
        p_value: None,
        n,
    }
}

/// When a request was sent, for the tests: at its due time if it was late by the grace at most, else that much earlier.
fn taken(send: &Send, grace: i64) -> i64 {
    send.sent_ns.saturating_sub(send.sent_ns.saturating_sub(send.intended_ns).clamp(0, grace))
}

/// All checks of the arrivals of a batch; `round` varies the random choice of gaps.
pub fn arrivals(batch: &Batch, config: &Config, round: u64) -> Vec<Check> {
    if config.arrivals == Arrivals::ClosedLoop {
        return Vec::new();
    }
    let mut random = Random::new(mix(config.seed, 0x6761_7073 ^ round));
    let mut checks: Vec<Check> = Vec::new();
    for agent in &batch.agents {
        checks.push(punctual(agent));
        checks.extend(agent_checks(agent, config, &mut random));
    }
    if batch.one_clock && batch.agents.len() > 1 {
        checks.push(superposed(batch, config, &mut random));
    }
    let tests = checks.iter().filter(|c| c.threshold_is_p).count().max(1);
    for check in checks.iter_mut().filter(|c| c.threshold_is_p) {
        check.threshold = config.alpha_arrivals / tests as f64;
        check.passed = check.p_value.is_some_and(|p| p >= check.threshold);
    }
    checks
}

fn agent_checks(agent: &AgentBatch, config: &Config, random: &mut Random) -> Vec<Check> {
    let subject = Some(agent.agent.clone());
    let grace = grace_ns(agent, config);
    let sent = gaps(&agent.windows, |s| taken(s, grace));
    let intended = gaps(&agent.windows, |s| s.intended_ns);
    let chosen = choose(sent.len(), config.max_gaps, random);
    let pick = |from: &[f64]| -> Vec<f64> { chosen.iter().map(|i| from[*i]).collect() };
    if let Arrivals::Fixed { tolerance } = config.arrivals {
        return vec![fixed(subject, &sent, &intended, tolerance)];
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

fn superposed(batch: &Batch, config: &Config, random: &mut Random) -> Check {
    let graces: Vec<i64> = batch.agents.iter().map(|agent| grace_ns(agent, config)).collect();
    // Only times at which every agent was sending belong to the superposed stream: its windows' common extent.
    let streams = |of: &dyn Fn(&Send, i64) -> i64| -> Vec<f64> {
        let windows = batch.agents.iter().map(|a| a.windows.len()).min().unwrap_or(0);
        let mut gaps = Vec::new();
        for w in 0..windows {
            let agents = batch.agents.iter().zip(&graces);
            let lists: Vec<Vec<i64>> = agents.map(|(a, grace)| times(&a.windows[w], |s| of(s, *grace))).collect();
            let from = lists.iter().filter_map(|l| l.first()).max().copied().unwrap_or(0);
            let to = lists.iter().filter_map(|l| l.last()).min().copied().unwrap_or(0);
            let common = |list: &Vec<i64>| list.iter().copied().filter(|t| (from..=to).contains(t)).collect();
            gaps.extend(anderson::superposed_gaps(&lists.iter().map(common).collect::<Vec<_>>()));
        }
        gaps
    };
    let sent = streams(&taken);
    let pick =
        |from: &[f64], chosen: &[usize]| -> Vec<f64> { chosen.iter().filter_map(|i| from.get(*i)).copied().collect() };
    let chosen = choose(sent.len(), config.max_gaps, random);
    let (test, result) = if config.arrivals == Arrivals::Exponential {
        ("Anderson-Darling, exponential, estimated mean", anderson::exponential(&pick(&sent, &chosen)))
    } else {
        let intended = streams(&|s, _| s.intended_ns);
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

/// Times in order: threads of an agent overtake each other, and lateness that is passed over changes the order.
fn times(window: &[Send], of: impl Fn(&Send) -> i64) -> Vec<i64> {
    let mut times: Vec<i64> = window.iter().map(of).collect();
    times.sort_unstable();
    times
}

/// Requests that left in one call have a gap below the resolution of the clock, not none: of a zero the logarithm is infinite,
/// and a single one would decide the test.
fn gaps(windows: &[Vec<Send>], of: impl Fn(&Send) -> i64) -> Vec<f64> {
    let gap = |pair: &[i64]| pair[1].saturating_sub(pair[0]).max(1) as f64;
    windows.iter().flat_map(|w| times(w, &of).windows(2).map(gap).collect::<Vec<_>>()).collect()
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
