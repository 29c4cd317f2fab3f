//! Where a median message spends its time, and the slowest messages one by one, on the terminal.
//!
//! In: the `typical` and the `slowest` of a [`Diagnosis`]. Out: lines. Rows under 1 % and those past the sixth are one row with
//! their sum; what is known to cause a row stands below it.

use tailsight_diagnose::model::SlowMessage;
use tailsight_diagnose::{Diagnosis, Titled};

use super::causes::guessed;
use super::text::{clean, cut, paint, wrap};
use super::{Style, units};

const SMALL: f64 = 0.01;
const MOST_ROWS: usize = 6;
/// Where what stands below a row begins.
const BELOW: usize = 10;
/// Parts of one slow message that are shown.
const PARTS: usize = 3;

/// What the block is called: only p45..p55 and what was widened around it are median messages.
fn title(d: &Diagnosis) -> Option<String> {
    let t = d.typical.as_ref().filter(|t| !t.rows.is_empty())?;
    let messages = units::counted(t.messages, "message");
    Some(format!("Where a median message spends its time ({}, mean of {messages}):", units::duration(t.mean_ns)))
}

/// The block; nothing when the diagnosis has none.
pub(super) fn table(d: &Diagnosis, style: &Style) -> Vec<String> {
    let (Some(title), Some(t)) = (title(d), &d.typical) else { return vec![] };
    let mut out = wrap(&title, style.columns(), "");
    out.iter_mut().for_each(|row| *row = paint(style, "1", row));
    let shown = t.rows.iter().take(MOST_ROWS).take_while(|r| r.share >= SMALL).count().max(1);
    let (rows, small) = t.rows.split_at(shown);
    for row in rows {
        let left =
            format!(" {:>6}  {:>7}  {:<8}  ", units::percent(row.share), units::duration(row.mean_ns), row.leg.name());
        let name = clean(&row.with_category()) + guessed(row.guessed);
        out.extend(named(left, &name, style.columns()));
        for text in &row.advice {
            let room = style.columns() - BELOW;
            out.extend(
                wrap(text, room, "").into_iter().map(|line| format!("{:BELOW$}{}", "", paint(style, "33", &line))),
            );
        }
    }
    if !small.is_empty() {
        let (share, ns) = (small.iter().map(|r| r.share).sum(), small.iter().map(|r| r.mean_ns).sum());
        let what = units::counted(small.len() as u64, "smaller row");
        out.push(paint(style, "2", &format!(" {:>6}  {:>7}  {what}", units::percent(share), units::duration(ns))));
    }
    out
}

/// A row with its name, which is whole: it continues on the next line, and stands below where a word of it has no room beside.
fn named(left: String, name: &str, columns: usize) -> Vec<String> {
    let indent = left.chars().count();
    let longest = name.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
    let below = longest > columns - indent;
    let indent = if below { BELOW } else { indent };
    let mut lines = wrap(name, columns - indent, &" ".repeat(indent));
    if below {
        lines[0].insert_str(0, &" ".repeat(indent));
        return std::iter::once(left.trim_end().to_owned())
            .chain(lines.iter().map(|line| cut(line, columns)))
            .collect();
    }
    lines[0].insert_str(0, &left);
    lines
}

/// The slowest messages, a line each with their largest parts.
pub(super) fn slowest(d: &Diagnosis, style: &Style) -> Vec<String> {
    if d.slowest.is_empty() {
        return vec![];
    }
    let mut out = vec![paint(style, "1", "The slowest messages, and where their time went:")];
    let id_w = d.slowest.iter().map(|m| m.id.to_string().len()).max().unwrap_or(0);
    for message in &d.slowest {
        let left = format!("  message {:>id_w$}  {:>7}  ", message.id, units::duration(message.latency_ns));
        let (indent, room) = (" ".repeat(left.chars().count()), style.columns() - left.chars().count());
        for (i, line) in wrap(&parts(message), room.max(20), "").into_iter().enumerate() {
            out.push(if i == 0 { format!("{left}{line}") } else { format!("{indent}{line}") });
        }
    }
    out
}

/// The largest parts: of each name over all legs and both cores, which are not told here.
fn parts(message: &SlowMessage) -> String {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for row in &message.parts {
        let name = clean(&row.with_category());
        match sums.iter_mut().find(|(listed, _)| *listed == name) {
            Some((_, ns)) => *ns += row.mean_ns,
            None => sums.push((name, row.mean_ns)),
        }
    }
    sums.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let part = |(name, ns): &(String, u64)| format!("{} {name}", units::duration(*ns));
    sums.iter().take(PARTS).map(part).collect::<Vec<_>>().join(", ")
}
