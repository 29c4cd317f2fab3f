//! The percentiles of every leg on the terminal; the explained one is marked.
//!
//! In: the legs of a [`Diagnosis`]. Out: a header and one line a leg. Columns that do not fit are left out, the counts of
//! messages first: they are only shown when the legs differ in them.

use tailsight_diagnose::Diagnosis;
use tailsight_lifetime::Leg;

use super::text::{paint, width};
use super::{PERCENTILES, Style, units};

/// Before a leg that is explained, and before the others.
const MARK: [&str; 2] = ["▸ ", "  "];

/// The lines of the table.
pub(super) fn table(d: &Diagnosis, style: &Style) -> Vec<String> {
    let legs: Vec<_> = Leg::ALL.into_iter().filter_map(|leg| Some((leg, d.legs.get(leg.name())?))).collect();
    let keys: Vec<&str> = PERCENTILES.into_iter().chain(["max"]).collect();
    let name = |leg: Leg| super::leg_name(d, leg);
    let name_w = MARK[0].chars().count() + legs.iter().map(|(leg, _)| name(*leg).len()).max().unwrap_or(0);
    let cell = |ns: Option<&u64>| ns.map_or("N/A".to_owned(), |&ns| units::duration(ns));
    let cell_w =
        |key: &str| legs.iter().map(|(_, leg)| cell(leg.latency_ns.get(key)).len()).max().unwrap_or(0).max(key.len());
    let counts: Vec<String> = legs.iter().map(|(_, leg)| units::count(leg.messages)).collect();
    let count_w = counts.iter().map(String::len).max().unwrap_or(0).max("messages".len());
    let fixed = name_w + keys.iter().map(|key| 2 + cell_w(key)).sum::<usize>();
    let differ = legs.iter().any(|(_, leg)| leg.messages != legs[0].1.messages);
    let counted = differ && fixed + 2 + count_w <= style.columns();

    let mut head = format!("{:name_w$}", "");
    keys.iter().for_each(|key| head += &format!("  {key:>w$}", w = cell_w(key)));
    if counted {
        head += &format!("  {:>count_w$}", "messages");
    }
    let mut out = vec![paint(style, "2", &head)];
    for ((leg, latency), count) in legs.iter().zip(&counts) {
        let explained = *leg == d.leg;
        let mut row = format!("{:name_w$}", format!("{}{}", MARK[usize::from(!explained)], name(*leg)));
        keys.iter().for_each(|key| row += &format!("  {:>w$}", cell(latency.latency_ns.get(*key)), w = cell_w(key)));
        if counted {
            row += &format!("  {count:>count_w$}");
        }
        out.push(if explained { paint(style, "1", &row) } else { row });
    }
    debug_assert!(out.iter().all(|row| width(row) <= style.columns().max(fixed)));
    out
}
