//! The queueing ideal on the terminal. In: a prediction of a model, a run beside its ideal, a calibration. Out: tables with a row
//! a source and a column a percentile.

use std::collections::BTreeMap;

use tailsight_diagnose::Diagnosis;
use tailsight_diagnose::model::TakenOut;
use tailsight_ideal::queue::predict::Prediction;
use tailsight_ideal::{Capacity, Ideal, Queues};
use tailsight_measure::capacity::Calibration;
use tailsight_units::Untrusted;

use super::text::{clean, paint, wrap};
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
        None => units::three_digits(units),
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

/// A run beside its ideal.
pub fn of_run(ideal: &Ideal, style: &Style) -> String {
    let (m, count) = (&ideal.model, units::count);
    let head = format!(
        "{}: {} messages, {} with a reply; ideal server with the same arrivals",
        Untrusted(&ideal.app),
        count(ideal.arrivals),
        count(ideal.complete)
    );
    let workers = if m.workers == 1 { "1 worker".to_owned() } else { format!("{} workers", m.workers) };
    let queues = match m.queues {
        Queues::One => "one queue, first come first served",
        Queues::OneAWorker => "one queue per worker, because each connection belongs to one thread",
    };
    let cost = format!(
        "{} in user space, {} in the kernel, {} receiving",
        units::duration(m.user_ns),
        units::duration(m.kernel_ns),
        units::duration(m.receive_ns)
    );
    let service = units::duration(m.service_ns);
    let service = match m.service_from.as_str() {
        "run" if m.apart_ns > 0 => {
            format!("service time {service}: the cost of a message in this run without receiving ({cost})")
        }
        "run" => format!("service time {service}: the cost of a message in this run ({cost})"),
        "calibrated" => format!("service time {service}, calibrated; a message of this run cost {cost}"),
        _ => format!("service time {service}, given; a message of this run cost {cost}"),
    };
    let model = format!("{workers}, {queues}; utilisation {:.1} %", m.utilisation * 100.0);
    let mut out = paint(style, "1", &head) + "\n";
    for text in [service, model] {
        wrap(&text, style.columns() - 2, "  ").iter().for_each(|line| out += &format!("  {line}\n"));
    }
    let mut keys: Vec<&String> = ideal.measured_ns.keys().chain(ideal.not_available.keys()).collect();
    keys.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    let times = |latency_ns: &BTreeMap<String, u64>| -> Vec<String> {
        keys.iter().map(|k| latency_ns.get(*k).map_or("N/A".to_owned(), |ns| units::duration(*ns))).collect()
    };
    let ratio =
        keys.iter().map(|k| ideal.ratio.get(*k).map_or("N/A".to_owned(), |r| format!("{} x", units::three_digits(*r))));
    let mut rows = vec![
        ("", keys.iter().map(|k| (*k).clone()).collect()),
        ("measured", times(&ideal.measured_ns)),
        ("ideal", times(&ideal.ideal_ns)),
        ("measured / ideal", ratio.collect()),
    ];
    if let Some(latency_ns) = &ideal.one_queue_ns {
        rows.push(("ideal, one queue", times(latency_ns)));
    }
    out += "\n";
    out += &table(&rows, style);
    for (key, why) in &ideal.not_available {
        wrap(&format!("{key}: N/A, it {why}"), style.columns(), "  ")
            .iter()
            .for_each(|line| out += &format!("{line}\n"));
    }
    if let Some(capacity) = &ideal.capacity {
        for text in says_capacity(capacity, m.workers) {
            wrap(&text, style.columns(), "  ").iter().for_each(|line| out += &format!("{line}\n"));
        }
    }
    for note in &ideal.notes {
        wrap(&format!("note: {note}"), style.columns(), "      ").iter().for_each(|line| out += &format!("{line}\n"));
    }
    out
}

/// The loads that the objective allows, and the cores that packets and requests need: a sentence each.
fn says_capacity(c: &Capacity, workers: usize) -> [String; 2] {
    let rate = |per_s: f64| format!("{} messages/s", units::count(per_s.round() as u64));
    let up_to = |per_s: Option<f64>| per_s.map_or("at no load".to_owned(), |per_s| format!("up to {}", rate(per_s)));
    let limit = units::duration(c.objective.at_most_ns);
    let loads = format!(
        "Capacity: an ideal server keeps {} within {limit} {}; this server, by a replay of its messages, {}; in this \
         run it was {} at {}",
        c.objective,
        up_to(c.ideal_per_s),
        up_to(c.replayed_per_s),
        units::duration(c.measured_ns),
        rate(c.per_s)
    );
    let time = |ns: f64| units::duration(ns.round() as u64);
    let cores = format!(
        "Cores: at that load packets need {:.2} ({} each) and requests {:.2} ({} each); {} at {}, and one core for \
         packets \
         is enough for {:.1} cores for requests",
        c.packet_cores,
        time(c.packet_ns),
        c.request_cores,
        time(c.request_ns),
        if workers == 1 { "its worker saturates".to_owned() } else { format!("its {workers} workers saturate") },
        rate(c.saturated_per_s),
        c.request_cores / c.packet_cores.max(1e-9)
    );
    [loads, cores]
}

/// What was subtracted before a diagnosis; nothing where nothing was.
pub fn without(d: &Diagnosis, style: &Style) -> String {
    let Some(without) = &d.without else { return String::new() };
    let cause = |c: &TakenOut| format!("{} {}", c.category.as_str(), clean(&c.name));
    let causes: Vec<String> = without.causes.iter().map(cause).collect();
    let p99 = percentile_without(&without.measured_ns, &without.latency_ns, &without.ci95_ns);
    let text = format!(
        "Without {}: {}. This is predicted by a replay, not measured; docs/ideal.md says how exact it was in the lab",
        causes.join(", "),
        p99.unwrap_or_else(|| "too few messages for a p99".to_owned())
    );
    wrap(&text, style.columns(), "  ").iter().map(|line| format!("{line}\n")).collect::<String>() + "\n"
}

/// `p99 412 us → 298 us [280 us, 330 us]`; nothing when there are too few messages for a p99.
pub(super) fn percentile_without(
    measured: &BTreeMap<String, u64>,
    without: &BTreeMap<String, u64>,
    interval: &BTreeMap<String, [u64; 2]>,
) -> Option<String> {
    let time = units::duration;
    let (was, is, [low, high]) = (measured.get("p99")?, without.get("p99")?, *interval.get("p99")?);
    Some(format!("p99 {} → {} [{}, {}]", time(*was), time(*is), time(low), time(high)))
}

/// What threads that received nothing ran is said from this part of the service time on.
const OTHERS: f64 = 0.25;

/// The ideal's results beside a diagnosis; nothing where there are none.
pub fn of_diagnosis(d: &Diagnosis, style: &Style) -> String {
    let Some(ideal) = &d.ideal else { return String::new() };
    let (focus, time) = (ideal.focus, units::duration);
    let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let workers =
        if ideal.model.workers == 1 { "1 worker".to_owned() } else { format!("{} workers", ideal.model.workers) };
    // Of a pool that computes for requests this would be inherent, of a thread that compacts it would not: no event tells.
    let others = if ideal.model.others_ns as f64 > OTHERS * ideal.model.service_ns as f64 {
        format!(
            ", or work of the threads that received no message: these ran {} per message, of which nothing is in the ideal",
            time(ideal.model.others_ns)
        )
    } else {
        String::new()
    };
    // At a low utilisation the mean holds what a busy server shares among many messages.
    let [at_most, the_rest] = match ideal.model.tells_service_time() {
        true => ["", "the other"],
        false => ["at most ", "at least"],
    };
    let inherent = format!(
        "Inherent: an ideal server with the same arrivals ({workers}, {at_most}{} of a worker's time for each message, the mean: {:.0} % of their time) \
         would also take {at_most}{} ({:.1} %) of these {}; {the_rest} {} is excess: waits, or work beyond the mean{others}",
        time(ideal.model.service_ns),
        ideal.model.utilisation * 100.0,
        time(focus.inherent_ns),
        share(focus.inherent_ns, focus.mean_ns),
        time(focus.mean_ns),
        time(focus.excess_ns)
    );
    let mut out = "\n".to_owned();
    let mut say = |text: &str, indent: &str| {
        wrap(text, style.columns() - indent.chars().count(), indent)
            .iter()
            .for_each(|line| out += &format!("{line}\n"));
    };
    say(&inherent, "          ");
    if share(focus.excess_ns, focus.mean_ns) < 20.0 && ideal.model.tells_service_time() {
        say("This server is at its ideal: only less load, more cores or cheaper requests shorten its tail", "  ");
    }
    if let Some(capacity) = &ideal.capacity {
        says_capacity(capacity, ideal.model.workers).iter().for_each(|text| say(text, "  "));
    }
    out
}

/// A peak.
pub fn calibration(c: &Calibration, style: &Style) -> String {
    let sure = (c.ci95_per_s[1] - c.peak_per_s) / c.peak_per_s * 100.0;
    let head =
        format!("{}: at most {} requests/s, ± {sure:.1} % (95 %)", c.target, units::count(c.peak_per_s.round() as u64));
    let workers = if c.workers == 1 { "1 worker".to_owned() } else { format!("{} workers", c.workers) };
    let [low, high] = c.service_ci95_ns.map(units::duration);
    let service =
        format!("service time {} ({low} to {high}) with {workers}, the peak inverted", units::duration(c.service_ns));
    let busy = match c.server_cpu {
        Some(share) => format!("the server was busy for {:.0} % of the time", share * 100.0),
        None => "saturation of the server is concluded from the rate alone (--pid checks its process)".into(),
    };
    let asked = match c.rates.last() {
        Some((per_s, _)) => format!("with {} requests/s sent over", units::count(per_s.round() as u64)),
        None => format!("with {} requests outstanding on each of", c.outstanding),
    };
    let windows = format!(
        "mean of {} windows {asked} {} connections; {busy}, the busiest loading thread for {:.0} %",
        c.windows_per_s.len(),
        c.connections,
        c.client_cpu * 100.0
    );
    let mut out = paint(style, "1", &head) + "\n";
    for text in [service, windows] {
        wrap(&text, style.columns() - 2, "  ").iter().for_each(|line| out += &format!("  {line}\n"));
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
