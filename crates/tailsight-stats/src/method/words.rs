//! What a failed check means and what would help, in a sentence each.

use super::model::Config;
use super::number_or_refusal::{Advice, Check, CheckId};

/// What happened.
pub fn reason(check: &Check) -> String {
    let about = check.subject.as_deref().map(|s| format!(" ({s})")).unwrap_or_default();
    let what = match check.id {
        CheckId::Load => "the load asked for was not reached, or not kept up",
        CheckId::Errors => "too many requests failed or were lost",
        CheckId::ClientLateness => {
            "the client sent late: that alone may have moved the percentile by the width asked for"
        }
        CheckId::Arrivals => "requests were not sent with the specified inter-arrival times",
        CheckId::ArrivalsSuperposed => "the agents' streams together do not have the specified inter-arrival times",
        CheckId::ArrivalIndependence => {
            "the gaps between requests are correlated, those of the specified arrivals are not"
        }
        CheckId::WarmUp => "the warm-up did not end within half of the measurement",
        CheckId::UnitRoot => "latency behaves like a random walk",
        CheckId::Drift => "the level of latency drifts",
        CheckId::TailDrift => "the tail drifts: the share of slow requests changes over time",
        CheckId::RunLength => "the run is too short for its autocorrelation: a drift cannot be told from a long queue",
        CheckId::Independence => "samples are correlated at every sampling rate",
        CheckId::IntervalWidth if check.statistic.is_infinite() => {
            "the samples cannot support an interval at this percentile"
        }
        CheckId::IntervalWidth => "the interval is wider than asked",
        CheckId::AgentsDiffer => "the agents measure different percentiles",
    };
    format!("{what}{about}")
}

/// What would help. `needed` is the projected number of requests, where there is one; `late` that the client's lateness takes more
/// than half of the width asked, `shared` that stamps which replies share do.
pub fn advice(check: &Check, config: &Config, needed: Option<u64>, late: bool, shared: bool) -> Advice {
    match check.id {
        CheckId::Load => Advice::MakeTheLoad,
        CheckId::Errors => Advice::LookAtErrors,
        CheckId::ClientLateness => Advice::BeOnTime { takes_the_width: false },
        CheckId::IntervalWidth if late => Advice::BeOnTime { takes_the_width: true },
        CheckId::IntervalWidth if shared => Advice::FewerTogether,
        // Late, and not merely otherwise than specified.
        CheckId::Arrivals if !check.threshold_is_p => Advice::BeOnTime { takes_the_width: false },
        CheckId::Arrivals | CheckId::ArrivalsSuperposed | CheckId::ArrivalIndependence if late => {
            Advice::BeOnTime { takes_the_width: false }
        }
        CheckId::Arrivals | CheckId::ArrivalsSuperposed | CheckId::ArrivalIndependence => Advice::MoreConnections,
        CheckId::WarmUp => Advice::WarmUp,
        CheckId::UnitRoot | CheckId::Drift | CheckId::TailDrift | CheckId::AgentsDiffer => Advice::FindTheChange,
        CheckId::RunLength | CheckId::Independence => Advice::LongerOrSlower,
        CheckId::IntervalWidth => Advice::LongerOrLess { needed: needed.filter(|n| *n > config.max_requests) },
    }
}

/// Advice in a sentence, for any machine.
pub fn hint(advice: Advice) -> String {
    const BE_ON_TIME: &str = "give the client cores of its own, load from more hosts (agents), lower the rate, or ask \
     for a \
         wider interval";
    match advice {
        Advice::MakeTheLoad => "lower the rate, or add connections, threads or agents until the client can send \
         it"
        .into(),
        Advice::LookAtErrors => "look at the errors by kind; lower the rate or raise the server's limits".into(),
        Advice::BeOnTime { takes_the_width: false } => BE_ON_TIME.into(),
        Advice::BeOnTime { takes_the_width: true } => {
            format!("the client's lateness takes most of the width: {BE_ON_TIME}")
        }
        Advice::MoreConnections => {
            "add connections or outstanding requests so that no request waits for a reply, or threads or agents".into()
        }
        Advice::WarmUp => "warm the server up for longer before measuring".into(),
        Advice::FindTheChange => {
            "find what changes on the server (a growing queue, caches, garbage collection, CPU frequency, other \
             programs), or lower the rate"
                .into()
        }
        Advice::LongerOrSlower => "measure for longer; where the server is busy, also at a lower rate".into(),
        Advice::LongerOrLess { needed: Some(needed) } => {
            format!(
                "about {needed} requests would be enough; allow more, or accept a wider interval or a lower \
             percentile"
            )
        }
        Advice::LongerOrLess { needed: None } => {
            "measure for longer, or accept a wider interval or a lower percentile".into()
        }
        Advice::FewerTogether => {
            "replies read in one call share one time stamp, which takes most of the width: use fewer outstanding \
             requests \
             on more connections, or a wider interval"
                .into()
        }
    }
}
