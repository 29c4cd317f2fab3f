//! A measurement on the terminal: no sentence contradicts another, and what is known is there.

use tailsight_load::{Plan, Protocol};
use tailsight_measure::Latency;
use tailsight_measure::report::{
    Achieved, Assumption, Checked, Client, Estimate, Kept, KnownPercentile, Lateness, Report, SCHEMA, State, Summary,
    Unknown, Verdict,
};
use tailsight_measure::sweep::{Fate, Point, Sweep};
use tailsight_report::load::terminal::{measurement, sweep};
use tailsight_report::terminal::Style;

const PLAIN: Style = Style { color: false, width: 100 };

fn check(id: &str, subject: Option<&str>, passed: bool) -> Checked {
    Checked {
        id: id.into(),
        test: format!("the test of {id}"),
        subject: subject.map(str::to_owned),
        passed,
        statistic: Some(1.5),
        threshold: Some(1.0),
        threshold_is_p: false,
        p_value: None,
        n: 1_000,
    }
}

pub(crate) fn known(percentile: &str, value_ns: f64) -> KnownPercentile {
    KnownPercentile {
        asked: format!("{percentile}:5%@95"),
        percentile: percentile.into(),
        quantile: 0.5,
        level: 0.95,
        value_ns,
        lower_ns: 0.9 * value_ns,
        upper_ns: 1.2 * value_ns,
        how: tailsight_stats::method::IntervalMethod::OrderStatistic,
        n: 1_000,
    }
}

/// N/A by the tail's drift: the p50 passed, the p90 has bounds, of the p99 nothing is known.
pub(crate) fn report() -> Report {
    let plan = Plan::new("127.0.0.1:1".parse().unwrap(), Protocol::Echo);
    let held = |id: &str, state| Assumption { id: id.into(), state, checks: 2, passed: 1, because: None };
    let names = ["p50", "p90", "p99"];
    Report {
        schema: SCHEMA,
        kind: "measurement".into(),
        version: "0".into(),
        began_s: 1,
        target: plan.target.to_string(),
        protocol: plan.protocol.to_string(),
        latency: Latency::Response,
        verdict: Verdict::NotAvailable {
            failed: check("tail-drift", Some("p99"), false),
            reason: "the tail drifts (p99)".into(),
            hint: "find what changes".into(),
            passed: vec![known("p50", 1e5)],
            bounds: vec![known("p90", 2e5)],
            missing: vec![Unknown {
                asked: "p99:5%@95".into(),
                percentile: "p99".into(),
                because: "it was between 1 ms and 9 ms".into(),
            }],
            no_bounds_because: Some("it was between 1 ms and 9 ms".into()),
        },
        response_ns: Summary { percentiles: names.map(|n| (n.to_owned(), None)).into(), ..Summary::default() },
        service_ns: Summary::default(),
        lateness_ns: Lateness {
            percentiles: [("p50".into(), Some(300)), ("p90".into(), Some(4_500)), ("p99".into(), None)].into(),
            ..Lateness::default()
        },
        rate: Achieved::default(),
        leaves_out: None,
        counts: tailsight_load::Counts::default(),
        client: Client { shared: 0.25, shared_samples: 250, ..Client::default() },
        agents: Vec::new(),
        checks: vec![
            check("arrivals", None, true),
            check("arrivals", Some("this host"), false),
            check("tail-drift", Some("p50"), true),
            check("tail-drift", Some("p99"), false),
            check("load", None, true),
        ],
        assumptions: vec![
            held("arrivals", State::NotHeld),
            held("tail-drift", State::NotHeld),
            held("load", State::Held),
            Assumption { because: Some("the end came before".into()), ..held("independence", State::NotChecked) },
        ],
        by_agent: Vec::new(),
        machine: tailsight_measure::Machine::default(),
        warm_up_ns: None,
        steps: Vec::new(),
        restarts: Vec::new(),
        complaints: Vec::new(),
        kept: Kept::default(),
        plan,
        against: None,
        objective: None,
    }
}

/// Regression: "N/A: … drifts" beside "checked: … no drift", and "arrivals as specified" beside arrivals that were not.
#[test]
fn what_did_not_hold_is_not_listed_as_held() {
    let text = measurement(&report(), &PLAIN);
    assert!(text.contains("checks passed: load kept\n"), "{text}");
    for contradiction in ["arrivals as specified", "no drift"] {
        assert!(!text.contains(contradiction), "{text}");
    }
    assert!(text.contains("not held: the test of arrivals (this host)"), "{text}");
    assert!(text.contains("not checked, because the end came before: independence"), "{text}");
}

/// Regression: an N/A said nothing of the percentiles that had passed, nor why nothing was known of the others; the p90 of the
/// lateness was blank.
#[test]
fn each_percentile_is_known_bounded_or_missing_with_a_reason() {
    let text = measurement(&report(), &PLAIN);
    assert!(text.contains("  what passed: p50 response time: 100 us   (90.0 us to 120 us at 95 %"), "{text}");
    assert!(text.contains("  known: p90 response time between 180 us and 240 us at 95 %"), "{text}");
    assert!(text.contains("  no bounds for p99: it was between 1 ms and 9 ms"), "{text}");
    let late = text.lines().find(|l| l.starts_with("client lateness")).unwrap();
    assert_eq!(late.split_whitespace().collect::<Vec<_>>()[2..7], ["300", "ns", "4.50", "us", "N/A"], "{late}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("250 samples (25.0 %) have the time stamp of a later reply"), "{text}");
    assert!(text.contains("the intervals include when they may have arrived"), "{text}");
    // Where there is no interval none is spoken of.
    let mut nothing = report();
    if let Verdict::NotAvailable { passed, bounds, .. } = &mut nothing.verdict {
        passed.clear();
        bounds.clear();
    }
    let text = measurement(&nothing, &PLAIN).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains(
            "have the time stamp of a later reply that was read in the same call, and may have arrived earlier"
        ),
        "{text}"
    );
    assert!(!text.contains("the intervals include"), "{text}");
    // The p90 is 60 us wide of some 200 us; a wider interval is offered where nothing else was in the way.
    for (id, offered) in
        [("tail-drift", false), ("arrivals", false), ("interval-width", true), ("client-lateness", true)]
    {
        let mut other = report();
        if let Verdict::NotAvailable { failed, .. } = &mut other.verdict {
            failed.id = id.into();
        }
        let text = measurement(&other, &PLAIN).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(text.contains("would have been met"), offered, "{id}: {text}");
    }
}

/// The verdict said 0.35 of a test, and "not held" 0.25 of a test of the same name, which was that of another series.
#[test]
fn a_test_that_failed_for_several_series_is_printed_once() {
    let mut report = report();
    let length = |subject: Option<&str>, statistic| Checked {
        statistic: Some(statistic),
        ..check("run-length", subject, false)
    };
    report.checks = vec![length(None, 0.35), length(Some("p50"), 0.25), check("load", None, false)];
    if let Verdict::NotAvailable { failed, .. } = &mut report.verdict {
        *failed = length(None, 0.35);
    }
    let text = measurement(&report, &PLAIN);
    assert!(text.contains("the test of run-length: 0.35") && text.contains("; the same test: p50 0.25\n"), "{text}");
    assert!(
        !text.contains("not held: the test of run-length") && text.contains("not held: the test of load"),
        "{text}"
    );
}

/// A row said "97.1 us  N/A  30.4 ms  N/A", and nothing said why.
#[test]
fn each_cell_without_a_value_has_a_reason_below() {
    let mut report = report();
    let value = Some(Estimate { value: 97_100.0, lower: 9e4, upper: 1e5 });
    let cells = [("p50", value), ("p90", None), ("p99", value), ("p99.9", None), ("p99.99", None)];
    report.response_ns.percentiles = cells.map(|(name, cell)| (name.to_owned(), cell)).into();
    let because = [("p90", "they depend on each other"), ("p99.99", "too few"), ("p99.9", "too few")];
    report.response_ns.because = because.map(|(name, why)| (name.to_owned(), why.to_owned())).into();
    let text = measurement(&report, &PLAIN);
    assert!(text.contains("response time N/A for p90: they depend on each other\n"), "{text}");
    assert!(text.contains("response time N/A for p99.9, p99.99: too few\n"), "{text}");
    assert!(text.contains("client lateness N/A: no request was sent\n"), "{text}");
}

/// Regression: the rows of a sweep had no bounds where the measurement at that rate had them.
#[test]
fn the_rows_of_a_sweep_say_what_is_known() {
    let points = vec![Point { rate: 5_000.0, fate: Fate::Server, report: report() }];
    let text = sweep(&Sweep::of(points, None), &PLAIN);
    for words in ["5,000", "N/A: the tail drifts", "what passed: p50", "known: p90", "no bounds for p99: it was"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.contains("no rate gave a latency; the lowest tried: 5,000 requests/s\n"), "{text}");
}
