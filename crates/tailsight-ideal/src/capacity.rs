//! How much load an objective allows, for the ideal server and for the recorded one; and how many cores packets and requests need
//! (Tales of the Tail §4.4).
//!
//! In: a run, the queue that fits its server, an objective such as p99 within 1 ms. Out: messages per second, and cores. The recorded
//! messages are served again with shorter or longer gaps: by the ideal server, and by workers that are as slow and as often delayed as
//! the recorded ones.

use crate::queue::{Percentile, Sorted};
use tailsight_lifetime::timelines::work::Work;
use tailsight_lifetime::{Analysis, Leg};

use super::what_if::WhatIf;
use super::{Fit, latencies_at};
use crate::Error;
use tailsight_diagnose::CauseOf;
use tailsight_diagnose::model::ideal::{Capacity, Objective};

/// The lowest load looked at, to that of the run; how exactly the passing is found.
const LOWEST: f64 = 0.01;
const EXACTLY: f64 = 1.005;

/// Finds the loads.
///
/// # Errors
/// [`Error::NoIdeal`] with too few messages for the percentile, or when the ideal server has no time left at the run's load.
pub fn capacity(analysis: &Analysis, work: &Work, model: &Fit, objective: Objective) -> Result<Capacity, Error> {
    let lifetimes = &analysis.lifetimes;
    let messages = &lifetimes.messages;
    let no = |why: String| Error::NoIdeal { app: lifetimes.app.clone(), why };
    let at = |ns: Vec<u64>| match Sorted::new(ns).percentile(objective.quantile) {
        Percentile::Value(ns) => Ok(ns),
        Percentile::TooFew { have, need } => {
            Err(no(format!("{objective} needs {need} messages with a reply, there are {have}")))
        }
    };
    let measured_ns = at(messages.iter().filter_map(|m| m.latency(Leg::Total)).collect())?;
    let span_s = super::fit::arrivals_span(lifetimes) as f64 / 1e9;
    let arrived = messages.iter().filter(|m| super::arrival(m).is_some()).count();
    let per_s = (arrived - 1) as f64 / span_s;
    let highest = 0.999 / model.utilisation;
    let ideal = |factor: f64| -> Result<u64, Error> {
        let by_id = latencies_at(messages, model, factor)?;
        at(messages.iter().zip(by_id).filter_map(|(m, ns)| m.latency(Leg::Total).and(ns)).collect())
    };
    let replay = WhatIf::new(&[], &[], &CauseOf::new(), analysis, model, &[]);
    let ideal_factor = passes(highest, objective.at_most_ns, ideal)?;
    let replayed_factor = passes(highest, objective.at_most_ns, |factor| at(replay.at_load(factor)))?;
    let receive_ns: u64 = work.receive.values().sum();
    let request_ns = (model.user_ns + model.kernel_ns) as f64;
    let recorded_ns = (work.span_ns.1 - work.span_ns.0).max(1) as f64;
    Ok(Capacity {
        objective,
        per_s,
        measured_ns,
        ideal_per_s: ideal_factor.map(|factor| factor * per_s),
        replayed_per_s: replayed_factor.map(|factor| factor * per_s),
        saturated_per_s: per_s / model.utilisation,
        packet_ns: receive_ns as f64 / work.packets.max(1) as f64,
        request_ns,
        packet_cores: receive_ns as f64 / recorded_ns,
        request_cores: request_ns * per_s / 1e9,
    })
}

/// The largest factor up to `highest` at which the percentile is within the limit, from the run's load on; `None` when it is not at the
/// lowest.
fn passes(highest: f64, limit_ns: u64, mut at: impl FnMut(f64) -> Result<u64, Error>) -> Result<Option<f64>, Error> {
    let (mut low, mut high) = if at(1.0)? <= limit_ns { (1.0, highest) } else { (LOWEST, 1.0) };
    if low < 1.0 && at(low)? > limit_ns {
        return Ok(None);
    }
    if high > 1.0 && at(high)? <= limit_ns {
        return Ok(Some(high));
    }
    while high / low > EXACTLY {
        let middle = (low * high).sqrt();
        let within = at(middle)? <= limit_ns;
        (low, high) = if within { (middle, high) } else { (low, middle) };
    }
    Ok(Some(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_is_a_percentile_and_its_limit() {
        assert_eq!("p99:1ms".parse(), Ok(Objective { quantile: 0.99, at_most_ns: 1_000_000 }));
        assert_eq!("p99.9<500us".parse(), Ok(Objective { quantile: 0.999, at_most_ns: 500_000 }));
        for wrong in ["p99", "99:1ms", "p100:1ms", "p99:0s", "p99:fast", ""] {
            assert!(wrong.parse::<Objective>().unwrap_err().contains("p99<1ms"), "{wrong}");
        }
    }

    #[test]
    fn the_load_at_which_a_curve_passes_the_limit_is_found() {
        let curve = |factor: f64| Ok((100.0 / (1.0 - factor / 10.0)) as u64);
        // 100 / (1 - f / 10) is 200 at f = 5.
        let rate = passes(9.99, 200, curve).unwrap().unwrap();
        assert!((rate / 5.0 - 1.0).abs() < 0.01, "{rate}");
        assert_eq!(passes(9.99, 99, curve).unwrap(), None);
        let below = passes(9.99, 105, curve).unwrap().unwrap();
        assert!((below / 0.566 - 1.0).abs() < 0.02, "{below}");
        assert_eq!(passes(9.99, 1_000_000, curve).unwrap(), Some(9.99));
    }
}
