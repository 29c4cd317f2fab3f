//! Latency against load, until saturation. In: a load whose rate can be set, and rates. Out: a measurement at each.
//!
//! Rates rise until the load is not kept any more; then the gap between the last rate that was kept and the first that was not is
//! halved twice, so that the knee is seen. A rate that was not kept has no latency: in an open loop its queue would grow for ever.

use std::sync::atomic::{AtomicBool, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_load::Rate;
use tailsight_stats::method::CheckId;

use crate::Error;
use crate::assumption::{AssumptionId, Na};
use crate::load::Load;
use crate::measure::{Event, Measurement, measure};
use crate::question::Question;
use crate::report::{Achieved, Report, SCHEMA, Verdict};
use crate::slo::{Highest, round};

/// How often the gap at saturation is halved.
const HALVINGS: usize = 2;
/// A list is left after so many rates in a row at which the server did not keep up.
const LOST_IN_A_ROW: usize = 2;

/// With a smaller share of the requests answered while others are sent, a queue grows.
const ANSWERED: f64 = 0.98;

/// Which rates.
#[derive(Debug, Clone, PartialEq)]
pub enum Rates {
    /// These, in this order.
    List(Vec<f64>),
    /// From the first, each times `factor`, until the load is not kept or `to` is reached.
    Rising {
        /// The first.
        from: f64,
        /// Above 1.
        factor: f64,
        /// The highest.
        to: Option<f64>,
    },
}

/// What a measurement says of the load that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// A number.
    Number,
    /// The server did not keep up: it was sent less than asked, answered less than it was sent, or failed.
    Server,
    /// The client could not make this load, or not punctually.
    Client,
    /// Neither is shown: too few samples, interrupted.
    Unclear,
}

/// Whose fault an N/A is.
#[must_use]
pub fn fate(report: &Report) -> Fate {
    fate_of(&report.verdict, &report.rate)
}

fn fate_of(verdict: &Verdict, rate: &Achieved) -> Fate {
    let Verdict::NotAvailable { failed, .. } = verdict else { return Fate::Number };
    // Fewer requests were answered than sent: a queue grew.
    let stays_behind = rate.answered < ANSWERED * rate.sent;
    use CheckId::{
        ArrivalIndependence, Arrivals, ArrivalsSuperposed, ClientLateness, Drift, Errors, Load, TailDrift, UnitRoot,
    };
    match failed.id {
        // A level that wanders, as other programs come and go, is a queue that grows only where replies stay behind.
        AssumptionId::Method(UnitRoot | Drift | TailDrift) if !stays_behind => Fate::Unclear,
        AssumptionId::Method(Load | Errors | UnitRoot | Drift | TailDrift)
        | AssumptionId::Account(Na::OpenLoop | Na::Stalled | Na::ServerGone) => Fate::Server,
        AssumptionId::Method(ClientLateness | Arrivals | ArrivalsSuperposed | ArrivalIndependence)
        | AssumptionId::Account(Na::ClientCpu | Na::ClientStarved | Na::Client) => Fate::Client,
        _ => Fate::Unclear,
    }
}

/// A measurement at a rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// The rate asked for, requests/s.
    pub rate: f64,
    /// What it says of the load.
    pub fate: Fate,
    /// The measurement.
    pub report: Report,
}

/// Latency against load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sweep {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `sweep`.
    pub kind: String,
    /// The server.
    pub target: String,
    /// What was spoken to it.
    pub protocol: String,
    /// By rising rate.
    pub points: Vec<Point>,
    /// The highest rate with a number, requests/s.
    pub highest_kept: Option<f64>,
    /// The lowest rate above it that was not kept.
    pub lowest_missed: Option<f64>,
    /// Whose limit that is.
    pub limited_by: Option<Fate>,
    /// The search for an objective, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<Highest>,
}

impl Sweep {
    /// Of measurements at several rates.
    #[must_use]
    pub fn of(mut points: Vec<Point>, objective: Option<Highest>) -> Self {
        points.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        let highest_kept = points.iter().rev().find(|p| p.fate == Fate::Number).map(|p| p.rate);
        let missed = points
            .iter()
            .find(|p| matches!(p.fate, Fate::Server | Fate::Client) && highest_kept.is_none_or(|kept| p.rate > kept));
        let (lowest_missed, limited_by) = (missed.map(|p| p.rate), missed.map(|p| p.fate));
        let first = points.first().map(|p| &p.report);
        Self {
            schema: SCHEMA,
            kind: "sweep".into(),
            target: first.map_or_else(String::new, |r| r.target.clone()),
            protocol: first.map_or_else(String::new, |r| r.protocol.clone()),
            points,
            highest_kept,
            lowest_missed,
            limited_by,
            objective,
        }
    }
}

/// Measures at each rate. `each` is told every measurement.
///
/// # Errors
/// When no load can be started at the first rate, or the rate cannot be set. Later failures end the sweep with what there is.
pub fn sweep(
    load: &mut dyn Load,
    question: &Question,
    rates: &Rates,
    stop: &AtomicBool,
    event: &mut dyn FnMut(&Event),
    each: &mut dyn FnMut(f64, &Measurement),
) -> Result<Sweep, Error> {
    let mut points: Vec<Point> = Vec::new();
    let mut plan = Itinerary::new(rates);
    while let Some(rate) = plan.next() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        load.set_rate(rate)?;
        let mut question = question.clone();
        question.plan.rate = Rate::Constant(rate);
        let measurement = match measure(load, &question, stop, event) {
            Ok(measurement) => measurement,
            // The server may be gone for having been overloaded, or an agent: what was measured before stays.
            Err(Error::Load(_) | Error::Agent { .. }) if !points.is_empty() => {
                plan.learn(rate, Fate::Server);
                break;
            }
            Err(error) => return Err(error),
        };
        each(rate, &measurement);
        let fate = fate(&measurement.report);
        points.push(Point { rate, fate, report: measurement.report });
        plan.learn(rate, fate);
    }
    Ok(Sweep::of(points, None))
}

/// Which rate comes next.
#[derive(Debug)]
struct Itinerary {
    rates: Rates,
    position: usize,
    kept: Option<f64>,
    missed: Option<f64>,
    lost_in_a_row: usize,
    halvings: usize,
    done: bool,
}

impl Itinerary {
    fn new(rates: &Rates) -> Self {
        Self { rates: rates.clone(), position: 0, kept: None, missed: None, lost_in_a_row: 0, halvings: 0, done: false }
    }

    fn next(&mut self) -> Option<f64> {
        if self.done {
            return None;
        }
        match &self.rates {
            Rates::List(list) => {
                self.position += 1;
                list.get(self.position - 1).copied().filter(|_| self.lost_in_a_row < LOST_IN_A_ROW)
            }
            Rates::Rising { from, factor, to } => match (self.kept, self.missed) {
                (None, None) => Some(*from),
                (Some(kept), None) => {
                    let top = to.unwrap_or(f64::INFINITY);
                    (kept < top).then(|| round((kept * factor).min(top)))
                }
                (Some(kept), Some(missed)) => {
                    self.halvings += 1;
                    (self.halvings <= HALVINGS).then(|| round((kept * missed).sqrt()))
                }
                (None, Some(_)) => None,
            },
        }
    }

    fn learn(&mut self, rate: f64, fate: Fate) {
        let lost = matches!(fate, Fate::Server | Fate::Client);
        self.lost_in_a_row = if fate == Fate::Server { self.lost_in_a_row + 1 } else { 0 };
        if lost {
            self.missed = Some(self.missed.map_or(rate, |m| m.min(rate)));
        } else {
            self.kept = Some(self.kept.map_or(rate, |k| k.max(rate)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Checked;

    fn tour(rates: Rates, capacity: f64) -> Vec<f64> {
        let mut plan = Itinerary::new(&rates);
        let mut rates = Vec::new();
        while let Some(rate) = plan.next() {
            rates.push(rate);
            plan.learn(rate, if rate < capacity { Fate::Number } else { Fate::Server });
            assert!(rates.len() < 100, "it ends");
        }
        rates
    }

    #[test]
    fn rising_rates_stop_at_saturation_and_look_at_the_knee() {
        let rising = Rates::Rising { from: 1_000.0, factor: 2.0, to: None };
        assert_eq!(tour(rising, 5_000.0), [1_000.0, 2_000.0, 4_000.0, 8_000.0, 5_660.0, 4_760.0]);
        assert_eq!(
            tour(Rates::Rising { from: 1_000.0, factor: 2.0, to: Some(3_000.0) }, 1e9),
            [1_000.0, 2_000.0, 3_000.0]
        );
        assert_eq!(tour(Rates::Rising { from: 1_000.0, factor: 2.0, to: None }, 10.0), [1_000.0]);
    }

    /// At 5,000/s a level that wandered was the server's limit, where calibration found 114,806.
    #[test]
    fn what_does_not_settle_is_the_servers_limit_only_where_replies_stay_behind() {
        let verdict = |id: &str| Verdict::refused_for(Checked::of(id, false));
        let [kept, behind] = [5_000.0, 4_000.0].map(|answered| Achieved { asked: None, sent: 5_000.0, answered });
        for id in ["drift", "tail-drift", "unit-root"] {
            assert_eq!(
                [fate_of(&verdict(id), &kept), fate_of(&verdict(id), &behind)],
                [Fate::Unclear, Fate::Server],
                "{id}"
            );
        }
        assert_eq!(fate_of(&verdict("run-length"), &behind), Fate::Unclear);
        assert_eq!(fate_of(&verdict("load"), &kept), Fate::Server);
        assert_eq!(fate_of(&verdict("client-lateness"), &kept), Fate::Client);
    }

    #[test]
    fn a_list_is_left_when_nothing_is_kept_any_more() {
        assert_eq!(tour(Rates::List(vec![1.0, 2.0, 3.0, 4.0, 5.0]), 2.5), [1.0, 2.0, 3.0, 4.0]);
        // A client that was late says nothing of the server: the rates that were asked for are all tried.
        let mut plan = Itinerary::new(&Rates::List(vec![1.0, 2.0, 3.0, 4.0]));
        let mut tried = 0;
        while let Some(rate) = plan.next() {
            tried += 1;
            plan.learn(rate, Fate::Client);
        }
        assert_eq!(tried, 4);
    }
}
