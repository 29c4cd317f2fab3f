//! A measurement for a person: on the terminal ([`terminal`]) and as one HTML file ([`page`]).
//!
//! In: a [`Measurement`]. Out: text. The page holds its data, style and scripts, loads nothing, and its content-security policy
//! forbids it to; it shares `chart.js` and `page.css` with the report of a run. Every sample is in its curves: they are thinned to
//! what a screen can show, with the slowest hundred kept one by one, and the slowest of every instant drawn.

pub mod terminal;

use serde::Serialize;
use tailsight_load::Sample;
use tailsight_measure::report::Report;
use tailsight_measure::{Latency, Measurement, Row};

use crate::html::curves::curve;

const PAGE: &str = include_str!("page.html");
const CSS: &str = include_str!("../html/page.css");
const SCRIPTS: [&str; 2] = [include_str!("../html/chart.js"), include_str!("page.js")];
/// Instants of the plot over time, at least and at most: as many as have samples for a p99.
const INSTANTS: (usize, usize) = (20, 240);
/// Fewer samples in an instant have no p99.
const FOR_P99: usize = 100;

#[derive(Serialize)]
struct Page<'a> {
    /// What chart.js needs of a run's page: there is none here.
    diagnosis: Nothing,
    messages: NoMessages,
    report: &'a Report,
    headline: String,
    evidence: Vec<String>,
    /// Whether the curves are of what the verdict is about; else of all samples kept.
    has_samples: bool,
    samples: usize,
    response: Vec<(u64, f64)>,
    service: Vec<(u64, f64)>,
    over_time: Vec<Instant>,
    load: Vec<Load>,
}

#[derive(Serialize)]
struct Nothing {
    causes: [u8; 0],
}

#[derive(Serialize, Default)]
struct NoMessages {
    latency: &'static str,
    flow: &'static str,
    cause: &'static str,
    flow_names: [u8; 0],
}

/// Latency in a slice of time; ns, time in s since the start of the load.
#[derive(Serialize)]
struct Instant {
    at: f64,
    p50: u64,
    p99: Option<u64>,
    max: u64,
    dropped: bool,
}

/// The load in a slice of time: requests/s, the client's largest lateness in ns.
#[derive(Serialize)]
struct Load {
    at: f64,
    target: f64,
    sent: f64,
    answered: f64,
    late: u64,
}

/// The page.
#[must_use]
pub fn page(m: &Measurement) -> String {
    let has_samples = m.report.response_ns.n > 0;
    let chosen: Vec<&Row> = m.rows.iter().filter(|r| r.in_result || !has_samples).collect();
    let of = |latency: fn(&Sample) -> Option<u64>| {
        let mut values: Vec<u64> = chosen.iter().filter_map(|r| latency(&r.sample)).collect();
        values.sort_unstable();
        curve(&values)
    };
    let page = Page {
        diagnosis: Nothing { causes: [] },
        messages: NoMessages::default(),
        report: &m.report,
        headline: headline(&m.report),
        evidence: m.report.checks.iter().map(terminal::evidence).collect(),
        has_samples,
        samples: chosen.len(),
        response: of(Sample::response_ns),
        service: of(Sample::service_ns),
        over_time: over_time(m),
        load: load(m),
    };
    fill(&serde_json::to_string(&page).expect("plain data with text keys always serialises").replace('<', "\\u003c"))
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

fn over_time(m: &Measurement) -> Vec<Instant> {
    let latency = |row: &Row| match m.report.latency {
        Latency::Response => row.sample.response_ns(),
        Latency::Service => row.sample.service_ns(),
    };
    let (Some(first), Some(last)) = (m.rows.first(), m.rows.last()) else { return Vec::new() };
    let (from, to) = (first.sample.intended_ns, last.sample.intended_ns);
    let instants = (m.rows.len() / (2 * FOR_P99)).clamp(INSTANTS.0, INSTANTS.1);
    let width = ((to - from) / instants as u64).max(1);
    let mut instants = Vec::new();
    // Rows are in the order due.
    for rows in m.rows.chunk_by(|a, b| (a.sample.intended_ns - from) / width == (b.sample.intended_ns - from) / width) {
        let mut values: Vec<u64> = rows.iter().filter_map(latency).collect();
        values.sort_unstable();
        let Some(max) = values.last().copied() else { continue };
        let rank = |q: f64| values[((values.len() as f64 * q).ceil() as usize).clamp(1, values.len()) - 1];
        let start = from + (rows[0].sample.intended_ns - from) / width * width;
        instants.push(Instant {
            at: (start + width / 2).saturating_sub(m.start_ns) as f64 / 1e9,
            p50: rank(0.5),
            p99: (values.len() >= FOR_P99).then(|| rank(0.99)),
            max,
            dropped: m.report.response_ns.n == 0 || !rows.iter().any(|r| r.in_result),
        });
    }
    instants
}

/// Rows of all agents, each hundred milliseconds.
fn load(m: &Measurement) -> Vec<Load> {
    let mut rows: Vec<Load> = Vec::new();
    for agent in 0..m.report.client.agents.len() as u16 {
        let of = m.intervals.iter().filter(|(a, _)| *a == agent).map(|(_, row)| row);
        for (i, row) in of.enumerate() {
            let seconds = row.duration_ns.max(1) as f64 / 1e9;
            let at = row.start_ns.saturating_sub(m.start_ns) as f64 / 1e9;
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

/// The template with each placeholder filled once, in one pass: what is filled in is not searched again.
fn fill(data: &str) -> String {
    let mut out = String::with_capacity(PAGE.len() + CSS.len() + data.len() + 65_536);
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        out += before;
        let (name, after) = after.split_once("}}").expect("a placeholder of page.html is closed");
        match name {
            "css" => out += CSS,
            "data" => out += data,
            "js" => SCRIPTS.iter().for_each(|s| out += s),
            other => unreachable!("page.html names an unknown placeholder {other}"),
        }
        rest = after;
    }
    out + rest
}
