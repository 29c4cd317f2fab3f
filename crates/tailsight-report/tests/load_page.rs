//! The page of measurements in a browser (web/test/load.mjs): one, several overlaid, a sweep; numbers are the report's, names are text.

use std::path::Path;

use serde_json::{Value, json};
use tailsight_load::{Interval, Sample};
use tailsight_measure::objective::Decision;
use tailsight_measure::report::{Achieved, Estimate, ObjectiveResult, Summary, Verdict};
use tailsight_measure::sweep::{Fate, Point, Sweep};
use tailsight_measure::{Measurement, Row};
use tailsight_report::load::{Drawn, page, sweep_page};

use super::load::{known, report};
use super::synthetic::HOSTILE;

/// 4,000 requests in 2 s; latencies are `scale` ns and more, one in a hundred ten times that. The first quarter is not in the result.
fn measured(scale: u64, rate: f64) -> Measurement {
    let row = |i: u64| {
        let due = 1_000_000_000 + i * 500_000;
        let ns = (scale + scale * (i * 37 % 101) / 100) * if i % 100 == 7 { 10 } else { 1 };
        let sample = Sample {
            intended_ns: due,
            called_ns: due + 800,
            sent_ns: due + 1_000,
            received_ns: due + ns,
            connection: 0,
            flags: 0,
            shared_ns: 0,
        };
        Row { sample, agent: 0, batch: 1, in_result: i >= 1_000 }
    };
    let rows: Vec<Row> = (0..4_000).map(row).collect();
    let mut kept: Vec<u64> = rows.iter().filter(|r| r.in_result).filter_map(|r| r.sample.response_ns()).collect();
    kept.sort_unstable();
    let at = |q: f64| kept[(kept.len() as f64 * q) as usize] as f64;
    let percentile = |(name, q): (&str, f64)| {
        (name.to_owned(), Some(Estimate { value: at(q), lower: 0.9 * at(q), upper: 1.2 * at(q) }))
    };
    let percentiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)].map(percentile).into();
    let mut report = report();
    report.response_ns =
        Summary { n: kept.len(), mean: Some(at(0.5)), max: Some(at(0.9999)), percentiles, ..Summary::default() };
    report.service_ns = report.response_ns.clone();
    report.verdict = Verdict::Number { percentiles: vec![known("p50", at(0.5)), known("p99", at(0.99))] };
    report.rate = Achieved { asked: Some(rate), sent: rate, answered: rate };
    report.client.agents = vec!["this host".into()];
    let interval = |i: u64| Interval {
        start_ns: 1_000_000_000 + i * 100_000_000,
        duration_ns: 100_000_000,
        target: rate / 10.0,
        sent: (rate / 10.0) as u64,
        answered: (rate / 10.0) as u64,
        ..Interval::default()
    };
    let intervals = (0..20).map(|i| (0, interval(i))).collect();
    Measurement { report, rows, intervals, accepted: None, start_ns: 1_000_000_000 }
}

fn facts(measurements: &[(&str, &Measurement)], sweep: bool) -> Value {
    let percentiles_of = |(name, m): &(&str, &Measurement)| {
        let percentiles = m.report.response_ns.percentiles.iter().map(|(k, e)| (k.clone(), e.map(|e| e.value)));
        json!({"name": name, "percentiles_ns": percentiles.collect::<std::collections::BTreeMap<_, _>>()})
    };
    let says = measurements[0].1.report.objective.as_ref().map(|_| "The objective p99 < 500 µs is met");
    json!({"results": measurements.iter().map(percentiles_of).collect::<Vec<_>>(), "sweep": sweep, "says": says})
}

/// The page of one, of three of which one has a hostile name and one no number, and of a sweep.
fn pages() -> Vec<(&'static str, String, Value)> {
    let (mut slow, fast) = (measured(200_000, 2_000.0), measured(50_000, 2_000.0));
    let objective = "p99<500us".parse().expect("an objective");
    slow.report.objective = Some(ObjectiveResult {
        objective,
        confidence: Some(0.99),
        met: true,
        decision: Decision::Met,
        reason: None,
        n: 1_000,
        above: 2,
    });
    let mut none = measured(400_000, 3_000.0);
    none.report.verdict = report().verdict;
    none.report.response_ns.n = 0;
    let three = [("this run", &slow), (HOSTILE, &fast), ("none.parquet", &none)];
    let drawn = |measurements: &[(&str, &Measurement)]| {
        measurements.iter().map(|(name, m)| Drawn::of(name, m)).collect::<Vec<_>>()
    };
    let rates: Vec<Measurement> = [1_000.0, 2_000.0, 4_000.0].map(|r| measured(50_000 + r as u64 * 20, r)).into();
    let names = ["1000/s", "2000/s", "4000/s", "6000/s"];
    let mut points: Vec<Point> = rates
        .iter()
        .map(|m| Point { rate: m.report.rate.asked.expect("a rate"), fate: Fate::Number, report: m.report.clone() })
        .collect();
    points.push(Point { rate: 6_000.0, fate: Fate::Server, report: none.report.clone() });
    let of_rates: Vec<(&str, &Measurement)> = names.into_iter().zip(rates.iter().chain([&none])).collect();
    vec![
        ("one", page(&drawn(&three[..1])), facts(&three[..1], false)),
        ("three", page(&drawn(&three)), facts(&three, false)),
        ("sweep", sweep_page(&Sweep::of(points, None), &drawn(&of_rates)), facts(&of_rates, true)),
    ]
}

#[test]
fn measurements_in_chromium_have_the_numbers_of_their_reports() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    if let Some(reason) = super::browser::lacks_chromium(&web) {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().expect("a folder");
    for (name, text, facts) in pages() {
        let (file, said) = (dir.path().join(format!("{name}.html")), dir.path().join("facts.json"));
        // A page to look at, where a folder is named.
        if let Some(folder) = std::env::var_os("TAILSIGHT_LOAD_PAGES") {
            std::fs::write(Path::new(&folder).join(format!("{name}.html")), &text).expect("a file");
        }
        std::fs::write(&file, text).expect("a file");
        std::fs::write(&said, facts.to_string()).expect("a file");
        tailsight_testing::run_browser_script(&web.join("test/load.mjs"), &[&file, &said]);
    }
}

/// The data is no markup, and the file loads nothing.
#[test]
fn the_page_of_measurements_is_one_file() {
    for (name, text, _) in pages() {
        assert!(!text.contains(HOSTILE), "{name}");
        assert!(text.contains("id=\"data-load\"") && !text.contains("id=\"data-page\""), "{name}");
        assert!(text.contains("content=\"default-src 'none';") && !text.contains("connect-src"), "{name}");
    }
}
