//! The latency of each class of requests on the terminal.
//!
//! In: the classes of a [`Diagnosis`]. Out: a title and one line a class, where there are two or more; the rest is counted.

use tailsight_diagnose::Diagnosis;
use tailsight_diagnose::model::ClassLatency;

use super::text::{clean, cut, paint};
use super::{Style, units};

/// Classes that have a line.
const MOST_LINES: usize = 6;
/// Columns of a class's name.
const NAME_WIDTH: usize = 40;
/// The percentiles that are shown.
const KEYS: [&str; 2] = ["p50", "p99"];

/// The lines of the table; none where there is one class only.
pub(super) fn table(d: &Diagnosis, style: &Style) -> Vec<String> {
    if d.classes.len() < 2 {
        return vec![];
    }
    let (listed, rest) = d.classes.split_at(d.classes.len().min(MOST_LINES));
    let names: Vec<String> = listed.iter().map(|class| cut(&clean(&class.name), NAME_WIDTH)).collect();
    let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let counts: Vec<String> = listed.iter().map(|class| units::count(class.messages)).collect();
    let count_width = counts.iter().map(String::len).max().unwrap_or(0);
    let cell =
        |class: &ClassLatency, key: &str| class.latency_ns.get(key).map_or("N/A".to_owned(), |&ns| units::duration(ns));
    let focus: u64 = d.classes.iter().map(|class| class.focus).sum();
    let are_studied = if d.focus.to >= 1.0 { "slow ones" } else { "under study" };
    let mut out = vec![paint(style, "1", "Requests by class:")];
    for ((class, name), count) in listed.iter().zip(&names).zip(&counts) {
        let latencies: Vec<String> = KEYS.iter().map(|key| format!("{key} {:>7}", cell(class, key))).collect();
        let slow = if focus > 0 {
            format!("  {} of the {} {are_studied}", units::count(class.focus), units::count(focus))
        } else {
            String::new()
        };
        out.push(format!("  {name:name_width$}  {count:>count_width$}  {}{slow}", latencies.join("  ")));
    }
    if !rest.is_empty() {
        let messages = rest.iter().map(|class| class.messages).sum();
        out.push(format!("  {} further: {}", rest.len(), units::counted(messages, "message")));
    }
    out
}
