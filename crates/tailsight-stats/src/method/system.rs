//! System stability (Lancet §4.3): was the asked load reached and kept, by a client that was on time, without failures?
//!
//! In: what the agents report for a batch. Out: [`Check`]s. Counts are requests, times ns.

use std::collections::BinaryHeap;

use super::model::{AgentBatch, Arrivals, Batch, Config, PercentileGoal, Sample, Since, Slice, percentile_name};
use super::number_or_refusal::{Check, CheckId};
use crate::quantile::{quantile, sorted};
use crate::special::normal_quantile;

/// How many times its own lateness a late request can be waited behind: load over idle share of a server at 80 % of its capacity.
const DRAIN: i64 = 4;
/// Counting noise that is let pass beside the tolerance, in standard deviations, for a whole batch.
const DEVIATIONS: f64 = 4.0;
/// False-alarm rate of the check of single slices, all slices of a batch together.
const SLICE_ALPHA: f64 = 1e-4;
/// A single slice may be off by so many times the tolerance.
const SLICE_TOLERANCE: f64 = 5.0;

/// Load on each agent, over the whole time and in every slice of it.
pub fn load<'a>(agents: impl Iterator<Item = (&'a str, &'a [Slice])>, config: &Config) -> Vec<Check> {
    if config.arrivals == Arrivals::ClosedLoop {
        return Vec::new();
    }
    agents.flat_map(|(agent, slices)| [whole(agent, slices, config), kept(agent, slices, config)]).collect()
}

/// The mean rates: sent against asked, answered against sent.
fn whole(agent: &str, slices: &[Slice], config: &Config) -> Check {
    let sum = |of: fn(&Slice) -> u64| slices.iter().map(of).sum::<u64>() as f64;
    let (target, sent, answered) = (sum(|s| s.target), sum(|s| s.sent), sum(|s| s.answered));
    let noise = DEVIATIONS * (dispersion(slices, config) * target).sqrt();
    let excess = |difference: f64, of: f64| (difference - noise).max(0.0) / of.max(1.0);
    // Replies that are still under way at the end of the batch are noise too; more than that and a queue is growing.
    let statistic = excess((sent - target).abs(), target).max(excess(sent - answered, sent));
    Check {
        id: CheckId::Load,
        test: "relative error of the mean rates (sent against asked, answered against sent) beyond counting noise"
            .into(),
        subject: Some(agent.to_string()),
        passed: target > 0.0 && statistic <= config.load_tolerance,
        statistic,
        threshold: config.load_tolerance,
        threshold_is_p: false,
        p_value: None,
        n: sent as usize,
    }
}

/// Every slice: the load is kept, not only right on the mean.
fn kept(agent: &str, slices: &[Slice], config: &Config) -> Check {
    let dispersion = dispersion(slices, config);
    let statistic = slices
        .iter()
        .filter(|slice| slice.target > 0)
        .map(|slice| {
            let target = slice.target as f64;
            let off = (slice.sent as f64 - target).abs() - SLICE_TOLERANCE * config.load_tolerance * target;
            off.max(0.0) / (dispersion * target).sqrt()
        })
        .fold(0.0, f64::max);
    let threshold = -normal_quantile(SLICE_ALPHA / 2.0 / slices.len().max(1) as f64);
    Check {
        id: CheckId::Load,
        test: "largest deviation of a time slice's sends from the asked rate, standard deviations".into(),
        subject: Some(agent.to_string()),
        passed: statistic <= threshold,
        statistic,
        threshold,
        threshold_is_p: false,
        p_value: None,
        n: slices.len(),
    }
}

/// Variance over mean of the counts. Poisson's is 1, or the size of the bursts where several arrive at once; that of heavier gaps
/// is taken from the slices.
fn dispersion(slices: &[Slice], config: &Config) -> f64 {
    if !matches!(config.arrivals, Arrivals::Lognormal | Arrivals::Pareto) || slices.len() < 4 {
        return f64::from(config.burst.max(1));
    }
    let counts: Vec<f64> = slices.iter().filter(|s| s.target > 0).map(|s| s.sent as f64).collect();
    let n = counts.len() as f64;
    let mean = counts.iter().sum::<f64>() / n;
    let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / (n - 1.0);
    if mean > 0.0 { (variance / mean).max(1.0) } else { 1.0 }
}

/// Failed and lost requests.
pub fn errors(batch: &Batch, config: &Config) -> Check {
    let requests: u64 = batch.agents.iter().map(|a| a.requests).sum();
    let failed: u64 = batch.agents.iter().map(|a| a.failed).sum();
    let statistic = failed as f64 / requests.max(1) as f64;
    Check {
        id: CheckId::Errors,
        test: "share of requests that failed or were lost".into(),
        subject: None,
        passed: statistic <= config.max_errors,
        statistic,
        threshold: config.max_errors,
        threshold_is_p: false,
        p_value: None,
        n: requests as usize,
    }
}

/// Checks how far the client's lateness may move the percentiles asked. A latency that counts from when a request was due includes the
/// lateness, one that counts from when it was sent hides it ([`Since`](super::Since)). The truth lies between that value and the same
/// without (with) the lateness, and the interval covers both. So the two quantiles may differ by at most the width asked; with `spare`
/// by at most half of it, because chance needs the rest, and a client that sleeps could poll instead. A server that keeps the client
/// from sending in time (a loop that is not open) moves them far apart.
pub fn lateness(batch: &Batch, config: &Config, spare: bool) -> Vec<Check> {
    if config.arrivals == Arrivals::ClosedLoop {
        return Vec::new();
    }
    batch.agents.iter().map(|agent| lateness_of(agent, config, spare)).collect()
}

/// The same for all samples behind the verdict, percentile by percentile: a late batch among good ones counts only by its effect on
/// all samples.
pub fn lateness_of_all(samples: &[Sample], config: &Config) -> Vec<Check> {
    if config.arrivals == Arrivals::ClosedLoop || samples.is_empty() {
        return Vec::new();
    }
    let as_is = sorted(samples.iter().map(|s| s.latency_ns).collect());
    let other = sorted(samples.iter().map(|s| other_end(s, config)).collect());
    let check_of = |target: &PercentileGoal| {
        let (moved, threshold) = moved(&as_is, &other, target, config).unwrap_or((0.0, f64::INFINITY));
        check(Some(percentile_name(target.quantile)), moved, threshold, samples.len())
    };
    config.targets.iter().map(check_of).collect()
}

/// How far the client's lateness may have moved a percentile, and the limit for that, ns.
fn moved(as_is: &[f64], other: &[f64], target: &PercentileGoal, config: &Config) -> Option<(f64, f64)> {
    let (here, there) = (quantile(as_is, target.quantile)?, quantile(other, target.quantile)?);
    let width = target.max_width_ns(here);
    let width = if width.is_finite() { width } else { here / 2.0 };
    Some(((there - here).abs(), config.max_lateness_ns.unwrap_or(width)))
}

/// Gives each sample the lateness of the latest request behind which it may have waited, if response times are studied. After a stall
/// the client sends a burst that a client on time would not have sent, and requests that leave on time behind it wait, too.
///
/// With a server that serves requests in order, the delay of an answer is at most that of the answer before or the request's own
/// lateness, whichever is larger (Lindley's recursion), and at most the time that the request waited: its latency minus the shortest
/// one. So propagation ends at the first request that did not wait. It also ends after [`DRAIN`] times the lateness, for servers that
/// are idle for at least a fifth of the time: requests that came due meanwhile arrive at once and are served with those that come
/// later. In addition each sample gets the largest lateness of the last requests, as far back as the deepest percentile under study,
/// for servers with several queues of which one is empty.
pub fn propagate_lateness(batch: &mut Batch, config: &Config) {
    if config.arrivals == Arrivals::ClosedLoop || config.since != Since::Due {
        return;
    }
    for agent in &mut batch.agents {
        let ordered = sorted(agent.samples.iter().map(|s| s.latency_ns).collect());
        let deepest = config.targets.iter().filter_map(|t| quantile(&ordered, t.quantile)).fold(0.0, f64::max);
        let (horizon, shortest) = (deepest.max(0.0) as i64, ordered.first().copied().unwrap_or(0.0));
        let late = |intended: i64, sent: i64| (sent, sent.saturating_sub(intended).max(0));
        let sends = agent.windows.iter().flatten().map(|s| late(s.intended_ns, s.sent_ns));
        let mut sends: Vec<(i64, i64)> =
            sends.chain(agent.samples.iter().map(|s| late(s.intended_ns, s.sent_ns))).collect();
        sends.sort_unstable();
        agent.samples.sort_by_key(|s| s.sent_ns);
        // (lateness, until when it counts), the largest on top: of the last requests, and of those that may be waited behind.
        let (mut last, mut queued) = (BinaryHeap::new(), BinaryHeap::new());
        let (mut handed_on, mut next) = (0, sends.into_iter().filter(|(_, late)| *late > 0).peekable());
        for sample in &mut agent.samples {
            while let Some((sent, late)) = next.next_if(|(sent, _)| *sent <= sample.sent_ns) {
                last.push((late, sent.saturating_add(horizon)));
                queued.push((late, sent.saturating_add(horizon).saturating_add(late.saturating_mul(DRAIN))));
                handed_on = handed_on.max(late);
            }
            let largest = |of: &mut BinaryHeap<(i64, i64)>| {
                while of.peek().is_some_and(|(_, until)| *until < sample.sent_ns) {
                    of.pop();
                }
                of.peek().map_or(0, |(late, _)| *late)
            };
            let late = largest(&mut queued).min(handed_on).max(largest(&mut last));
            sample.sent_ns = sample.sent_ns.max(sample.intended_ns.saturating_add(late));
            handed_on = handed_on.min((sample.latency_ns - shortest) as i64);
        }
    }
}

/// The other end of where a sample's latency lies when the client was late, ns.
pub fn other_end(sample: &Sample, config: &Config) -> f64 {
    sample.latency_ns + config.since.other_end() * (sample.sent_ns - sample.intended_ns).max(0) as f64
}

/// The shortest and the longest that a sample's latency can have been for a client that is on time and stamps each reply by itself, ns.
pub fn extremes(sample: &Sample, config: &Config) -> (f64, f64) {
    let other = if config.arrivals == Arrivals::ClosedLoop { sample.latency_ns } else { other_end(sample, config) };
    let low = sample.latency_ns.min(other) - f64::from(sample.shared_ns);
    // No latency is below 0; one that was measured so stays what it is.
    (low.max(0.0).min(sample.latency_ns), sample.latency_ns.max(other))
}

fn lateness_of(agent: &AgentBatch, config: &Config, spare: bool) -> Check {
    let as_is = sorted(agent.samples.iter().map(|s| s.latency_ns).collect());
    let other = sorted(agent.samples.iter().map(|s| other_end(s, config)).collect());
    // Of several percentiles the one that is moved the most, as a part of its width.
    let worst = config.targets.iter().filter_map(|target| {
        let (moved, most) = moved(&as_is, &other, target, config)?;
        Some((moved, most * if spare { 0.5 } else { 1.0 }))
    });
    let (statistic, threshold) =
        worst.max_by(|a, b| (a.0 * b.1).total_cmp(&(b.0 * a.1))).unwrap_or((0.0, f64::INFINITY));
    check(Some(agent.agent.clone()), statistic, threshold, agent.samples.len())
}

fn check(subject: Option<String>, statistic: f64, threshold: f64, n: usize) -> Check {
    Check {
        id: CheckId::ClientLateness,
        test: "shift of the percentile that the client's lateness (sent minus intended) may have caused, ns".into(),
        subject,
        passed: statistic <= threshold,
        statistic,
        threshold,
        threshold_is_p: false,
        p_value: None,
        n,
    }
}
