//! The metrics as OpenMetrics text (openmetrics.io, version 1.0): latencies as histograms, what was captured, what it costs.
//!
//! In: what a watcher counted. Out: the text that a scraper reads.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::latencies::{LatencyCounts, Leg};

/// The type of the text, for HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper ends of the buckets, seconds: from 1 us on, three in each power of ten, to 50 s.
const BUCKETS_S: [f64; 24] = [
    1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0,
    5.0, 10.0, 20.0, 50.0,
];

/// What a watcher counted since its start.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// The application.
    pub target: String,
    /// Latencies.
    pub latencies: LatencyCounts,
    /// Messages beyond a limit.
    pub slow: u64,
    /// Captures.
    pub captures: u64,
    /// Captures by the category of their first cause.
    pub causes: BTreeMap<String, u64>,
    /// Slow messages of which no capture was made, by why.
    pub refused: BTreeMap<&'static str, u64>,
    /// Captures that could not be written.
    pub failed: u64,
    /// Events of the recorder's programs.
    pub events: u64,
    /// CPU time of the watcher's process, ns.
    pub cpu_ns: u64,
}

impl Metrics {
    /// As text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.histograms(&mut out);
        let target = label(&self.target);
        let mut counter = |name: &str, help: &str, samples: &[(String, u64)]| {
            let _ = writeln!(out, "# TYPE tailsight_{name} counter\n# HELP tailsight_{name} {help}");
            for (labels, value) in samples {
                let _ = writeln!(out, "tailsight_{name}_total{{target={target}{labels}}} {value}");
            }
        };
        let one = |value| vec![(String::new(), value)];
        let each = |name: &str, values: &mut dyn Iterator<Item = (&str, u64)>| -> Vec<(String, u64)> {
            values.map(|(key, value)| (format!(",{name}={}", label(key)), value)).collect()
        };
        counter("slow_messages", "Messages that took longer than a limit.", &one(self.slow));
        counter("captures", "Captures.", &one(self.captures));
        let causes = each("cause", &mut self.causes.iter().map(|(cause, n)| (cause.as_str(), *n)));
        counter("capture_causes", "Captures by their first cause.", &causes);
        let refused = each("reason", &mut self.refused.iter().map(|(why, n)| (*why, *n)));
        counter("slow_messages_not_captured", "Slow messages without a capture.", &refused);
        counter("captures_failed", "Captures that could not be written.", &one(self.failed));
        counter("events", "Events of the recorder.", &one(self.events));
        let _ = write!(
            out,
            "# TYPE tailsight_cpu_seconds counter\n# UNIT tailsight_cpu_seconds seconds\n# HELP tailsight_cpu_seconds CPU time of \
             the watcher.\ntailsight_cpu_seconds_total{{target={target}}} {}\n# EOF\n",
            seconds(self.cpu_ns)
        );
        out
    }

    fn histograms(&self, out: &mut String) {
        const NAME: &str = "tailsight_message_latency_seconds";
        let target = label(&self.target);
        let _ = writeln!(
            out,
            "# TYPE {NAME} histogram\n# UNIT {NAME} seconds\n# HELP {NAME} Messages by leg: total is from the driver until the reply begins."
        );
        for leg in Leg::ALL {
            let classes: Vec<(u64, u64)> = self.latencies.classes(leg).collect();
            let labels = format!("target={target},leg=\"{}\"", leg.name());
            for upper in BUCKETS_S {
                // Of a class that reaches beyond the bucket none is counted to it: a bucket holds no message that is slower.
                let below: u64 = classes.iter().filter(|(ns, _)| *ns as f64 <= upper * 1e9).map(|(_, n)| n).sum();
                let _ = writeln!(out, "{NAME}_bucket{{{labels},le=\"{upper:?}\"}} {below}");
            }
            let messages: u64 = classes.iter().map(|(_, n)| n).sum();
            let sum_ns: u128 = classes.iter().map(|(ns, n)| u128::from(*ns) * u128::from(*n)).sum();
            let _ = writeln!(out, "{NAME}_bucket{{{labels},le=\"+Inf\"}} {messages}");
            let _ = writeln!(out, "{NAME}_count{{{labels}}} {messages}");
            let _ = writeln!(out, "{NAME}_sum{{{labels}}} {}", seconds(sum_ns as u64));
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A value of a label, in quotes: names of programs hold any character.
fn label(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_grow_and_end_with_all_messages() {
        let mut metrics = Metrics { target: "a\"b\\c\nd".into(), slow: 3, ..Metrics::default() };
        for us in 1..=2_000 {
            metrics.latencies.add(Leg::Total, us * 1_000);
        }
        metrics.causes.insert("lock-wait".into(), 2);
        let text = metrics.text();
        assert!(text.ends_with("# EOF\n"));
        let total = |line: &&str| {
            line.starts_with("tailsight_message_latency_seconds_bucket") && line.contains("leg=\"total\"")
        };
        let buckets: Vec<u64> =
            text.lines().filter(total).map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert!(buckets.is_sorted() && buckets.last() == Some(&2_000), "{buckets:?}");
        let millisecond = text.lines().filter(total).find(|line| line.contains("le=\"0.001\"")).unwrap();
        let below: u64 = millisecond.rsplit(' ').next().unwrap().parse().unwrap();
        assert!((875..=1_000).contains(&below), "no more than there are, and at most an eighth less: {below}");
        assert!(text.contains("tailsight_slow_messages_total{target=\"a\\\"b\\\\c\\nd\"} 3\n"));
        assert!(text.contains("cause=\"lock-wait\"} 2\n"));
        assert_eq!(text.lines().filter(|line| !line.starts_with('#') && !line.contains("} ")).count(), 0, "{text}");
    }
}
