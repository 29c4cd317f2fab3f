//! What a failed check means and what would help, in a sentence each.

use super::model::Config;
use super::verdict::{Check, CheckId};

/// What happened.
pub fn reason(check: &Check) -> String {
    let about = check.subject.as_deref().map(|s| format!(" ({s})")).unwrap_or_default();
    let what = match check.id {
        CheckId::Load => "the asked load was not reached and kept",
        CheckId::Errors => "too many requests failed or were lost",
        CheckId::ClientLateness => {
            "the client itself was late: that alone may have moved the percentile by as much as is to be resolved"
        }
        CheckId::Arrivals => "requests were not sent with the specified inter-arrival times",
        CheckId::ArrivalsSuperposed => "the agents' streams together do not have the specified inter-arrival times",
        CheckId::ArrivalIndependence => {
            "the gaps between requests depend on each other, which the specified arrivals do not"
        }
        CheckId::WarmUp => "the warm-up did not end within half of the measurement",
        CheckId::UnitRoot => "latency wanders like a random walk",
        CheckId::Drift => "the level of latency drifts",
        CheckId::TailDrift => "the tail drifts: the share of slow requests changes over time",
        CheckId::RunLength => "the run is too short beside its own memory to tell a drift from a long queue",
        CheckId::Independence => "samples depend on each other at every sampling rate",
        CheckId::IntervalWidth if check.statistic.is_infinite() => {
            "the samples cannot support an interval at this percentile"
        }
        CheckId::IntervalWidth => "the interval is wider than asked",
    };
    format!("{what}{about}")
}

/// What a late client can do about it.
const BE_ON_TIME: &str = "give the client cores of its own (--cpus, and the server others) and let it poll (--wait spin), add threads, \
     connections or agents, lower the rate, or ask for a wider interval";

/// What would help. `needed` is the projected number of requests, where there is one; `late` that the client's lateness takes more
/// than half of the width asked.
pub fn hint(check: &Check, config: &Config, needed: Option<u64>, late: bool) -> String {
    match check.id {
        CheckId::Load => "lower the rate, or add connections, threads or agents until the client can send it".into(),
        CheckId::Errors => "look at the errors by kind; lower the rate or raise the server's limits".into(),
        CheckId::ClientLateness => BE_ON_TIME.into(),
        CheckId::IntervalWidth if late => format!("the client's lateness takes most of the width: {BE_ON_TIME}"),
        // Late, and not merely otherwise than specified.
        CheckId::Arrivals if !check.threshold_is_p => BE_ON_TIME.into(),
        CheckId::Arrivals | CheckId::ArrivalsSuperposed | CheckId::ArrivalIndependence => {
            "add connections or outstanding requests so that no request waits for a reply, or threads or agents".into()
        }
        CheckId::WarmUp => "warm the server up for longer before measuring".into(),
        CheckId::UnitRoot | CheckId::Drift | CheckId::TailDrift => {
            "find what changes on the server (a growing queue, caches, collection, frequency, neighbours), or lower the rate".into()
        }
        CheckId::RunLength => "measure for longer, or lower the rate: near saturation a queue remembers for long".into(),
        CheckId::Independence => "measure for longer, or lower the rate".into(),
        CheckId::IntervalWidth => match needed.filter(|n| *n > config.max_requests) {
            Some(needed) => format!("about {needed} requests would do; allow more, or accept a wider interval or a lower percentile"),
            None => "measure for longer, or accept a wider interval or a lower percentile".into(),
        },
    }
}
