//! The queueing ideal on the terminal. In: a prediction of a model. Out: a table with a row a source and a column a percentile.

use tailsight_queue::predict::Prediction;

use super::text::{paint, wrap};
use super::{Style, units};

/// A model's latency.
pub fn model(p: &Prediction, style: &Style) -> String {
    let unit = match p.service_ns {
        Some(ns) => format!("service time {}", units::duration(ns.round() as u64)),
        None => "in mean service times".to_owned(),
    };
    let head = format!("{}, {}: {} requests, {unit}", p.model, p.discipline, units::count(p.requests as u64));
    let mut keys: Vec<&String> = p.in_service_times.keys().chain(p.not_available.keys()).collect();
    // The mean first, then rising: p50 before p99.9.
    keys.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    let show = |units: f64| match p.service_ns {
        Some(ns) => units::duration((units * ns).round() as u64),
        None => digits(units),
    };
    let value = |key: &String| p.in_service_times.get(key).map_or("N/A".to_owned(), |v| show(*v));
    let within = |key: &String| match (p.ci95.get(key), p.in_service_times.get(key)) {
        (Some([_, high]), Some(v)) => format!("{:.2} %", (high - v) / v * 100.0),
        _ => String::new(),
    };
    let exact = |key: &String| p.exact.get(key).map_or(String::new(), |v| show(*v));
    let mut rows: Vec<(&str, Vec<String>)> = vec![
        ("", keys.iter().map(|k| (*k).clone()).collect()),
        ("latency", keys.iter().map(|k| value(k)).collect()),
        ("95 % ±", keys.iter().map(|k| within(k)).collect()),
        ("closed form", keys.iter().map(|k| exact(k)).collect()),
    ];
    rows.retain(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()));
    let mut out = paint(style, "1", &head) + "\n";
    out += &table(&rows, style);
    for (key, why) in &p.not_available {
        wrap(&format!("{key}: N/A, it {why}"), style.columns(), "  ")
            .iter()
            .for_each(|line| out += &format!("{line}\n"));
    }
    out
}

/// Rows of cells under each other, the first row dim.
pub(super) fn table(rows: &[(&str, Vec<String>)], style: &Style) -> String {
    let name_w = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let columns = rows.first().map_or(0, |(_, cells)| cells.len());
    let wide = |i: usize| rows.iter().map(|(_, cells)| cells[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    let mut out = String::new();
    for (n, (name, cells)) in rows.iter().enumerate() {
        let mut line = format!("  {name:name_w$}");
        for (cell, w) in cells.iter().zip(&widths) {
            line += &format!("  {cell:>w$}");
        }
        out += &if n == 0 { paint(style, "2", &line) } else { line };
        out.push('\n');
    }
    out
}

/// The mean first, percentiles by their number.
fn rank(key: &str) -> f64 {
    key.strip_prefix('p').and_then(|n| n.parse().ok()).unwrap_or(-1.0)
}

/// Three significant digits.
fn digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}
