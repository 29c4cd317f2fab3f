//! Measurements as one HTML file: of one measurement, of several overlaid, or of a sweep with the measurement at each rate.
//!
//! In: measurements, those just made and those read back from sample files; a sweep. Out: the report's page (`web/`) with the element
//! `load` in place of a run's data: same components, same look, nothing is loaded. Every sample is in the curves: they are thinned to what
//! a screen can show, with the slowest hundred kept one by one, and the slowest of every instant drawn.

use serde::Serialize;
use tailsight_load::{Interval, Sample};
use tailsight_measure::report::Report;
use tailsight_measure::sweep::Sweep;
use tailsight_measure::{Latency, Measurement, Row};

use super::terminal;
use crate::html::curves::curve;
use crate::html::elements::Element;

/// Instants of the plot over time, at least and at most: as many as have samples for a p99.
const INSTANTS: (usize, usize) = (20, 240);
/// Fewer samples in an instant have no p99.
const FOR_P99: usize = 100;

/// A measurement as the page draws it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Result"))]
pub struct Drawn {
    /// What distinguishes it from the others: its file, or its rate in a sweep.
    name: String,
    report: Report,
    headline: String,
    evidence: Vec<String>,
    /// Whether the curves show the samples of the verdict; otherwise all kept samples.
    has_samples: bool,
    samples: usize,
    /// (ns, share of the samples as slow or slower).
    response: Vec<(u64, f64)>,
    service: Vec<(u64, f64)>,
    over_time: Vec<Instant>,
    /// Empty if the measurement was read back: a sample file does not contain it.
    load: Vec<Load>,
}

/// Latency in a slice of time; ns, time in s since the start of the load.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Instant {
    at: f64,
    p50: u64,
    p99: Option<u64>,
    max: u64,
    dropped: bool,
}

/// The load in a slice of time: requests/s, the client's largest lateness in ns.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Load {
    at: f64,
    target: f64,
    sent: f64,
    answered: f64,
    late: u64,
}

/// What the page is given.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "LoadData"))]
pub(crate) struct Page<'a> {
    results: &'a [Drawn],
    sweep: Option<&'a Sweep>,
    /// The answer of a sweep, or none.
    headline: Option<String>,
}

impl Drawn {
    /// Of a new measurement.
    #[must_use]
    pub fn of(name: &str, m: &Measurement) -> Drawn {
        let load = load(&m.intervals, m.report.client.agents.len() as u16, m.start_ns);
        Drawn { load, ..Drawn::of_rows(name, &m.report, &m.rows, m.start_ns) }
    }

    /// From a sample file.
    #[must_use]
    pub fn of_samples(name: &str, report: &Report, rows: &[Row]) -> Drawn {
        let start_ns = rows.first().map_or(0, |row| row.sample.intended_ns);
        Drawn::of_rows(name, report, rows, start_ns)
    }

    fn of_rows(name: &str, report: &Report, rows: &[Row], start_ns: u64) -> Drawn {
        let has_samples = report.response_ns.n > 0;
        let chosen: Vec<&Row> = rows.iter().filter(|r| r.in_result || !has_samples).collect();
        let curve_of = |latency: fn(&Sample) -> Option<u64>| {
            let mut values: Vec<u64> = chosen.iter().filter_map(|r| latency(&r.sample)).collect();
            values.sort_unstable();
            curve(&values)
        };
        Drawn {
            name: name.to_owned(),
            headline: headline(report),
            evidence: report.checks.iter().map(terminal::evidence).collect(),
            has_samples,
            samples: chosen.len(),
            response: curve_of(Sample::response_ns),
            service: curve_of(Sample::service_ns),
            over_time: over_time(report, rows, start_ns),
            load: vec![],
            report: report.clone(),
        }
    }
}

/// The page of one measurement, or of several overlaid.
#[must_use]
pub fn page(results: &[Drawn]) -> String {
    document(&Page { results, sweep: None, headline: None })
}

/// The page of a sweep, with the measurement at each rate.
#[must_use]
pub fn sweep_page(sweep: &Sweep, results: &[Drawn]) -> String {
    document(&Page { results, sweep: Some(sweep), headline: Some(terminal::outcome(sweep)) })
}

fn document(page: &Page) -> String {
    crate::html::document(&[Element::json("load", page)])
}

/// The sentence at the top.
fn headline(r: &Report) -> String {
    use tailsight_measure::Verdict;
    let latency = if r.latency == Latency::Response { "response time" } else { "service time" };
    match &r.verdict {
        Verdict::Number { percentiles } => percentiles.first().map_or_else(String::new, |p| {
            let [value, lower, upper] =
                [p.value_ns, p.lower_ns, p.upper_ns].map(|v| crate::units::duration(v.max(0.0).round() as u64));
            format!(
                "The {} of the {latency} is {value}, between {lower} and {upper} with {} % confidence.",
                p.percentile,
                (p.level * 1000.0).floor() / 10.0
            )
        }),
        Verdict::NotAvailable { reason, .. } => format!("N/A: {reason}."),
    }
}

fn over_time(report: &Report, rows: &[Row], start_ns: u64) -> Vec<Instant> {
    let latency = |row: &Row| match report.latency {
        Latency::Response => row.sample.response_ns(),
        Latency::Service => row.sample.service_ns(),
    };
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Vec::new() };
    let (from, to) = (first.sample.intended_ns, last.sample.intended_ns);
    let instants = (rows.len() / (2 * FOR_P99)).clamp(INSTANTS.0, INSTANTS.1);
    let width = (to.saturating_sub(from) / instants as u64).max(1);
    let slice = |row: &Row| row.sample.intended_ns.saturating_sub(from) / width;
    let mut instants = Vec::new();
    // Rows are in the order due.
    for rows in rows.chunk_by(|a, b| slice(a) == slice(b)) {
        let mut values: Vec<u64> = rows.iter().filter_map(latency).collect();
        values.sort_unstable();
        let Some(max) = values.last().copied() else { continue };
        let rank = |q: f64| values[((values.len() as f64 * q).ceil() as usize).clamp(1, values.len()) - 1];
        let start = from + slice(&rows[0]) * width;
        instants.push(Instant {
            at: (start + width / 2).saturating_sub(start_ns) as f64 / 1e9,
            p50: rank(0.5),
            p99: (values.len() >= FOR_P99).then(|| rank(0.99)),
            max,
            dropped: report.response_ns.n == 0 || !rows.iter().any(|r| r.in_result),
        });
    }
    instants
}

/// Rows of all agents, per 100 ms.
fn load(intervals: &[(u16, Interval)], agents: u16, start_ns: u64) -> Vec<Load> {
    let mut rows: Vec<Load> = Vec::new();
    for agent in 0..agents {
        let of_agent = intervals.iter().filter(|(a, _)| *a == agent).map(|(_, row)| row);
        for (i, row) in of_agent.enumerate() {
            let seconds = row.duration_ns.max(1) as f64 / 1e9;
            let at = row.start_ns.saturating_sub(start_ns) as f64 / 1e9;
            if rows.len() <= i {
                rows.push(Load { at, target: 0.0, sent: 0.0, answered: 0.0, late: 0 });
            }
            rows[i].target += row.target / seconds;
            rows[i].sent += row.sent as f64 / seconds;
            rows[i].answered += row.answered as f64 / seconds;
            rows[i].late = rows[i].late.max(row.late_max_ns);
        }
    }
    rows
}
