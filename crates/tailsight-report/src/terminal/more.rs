//! What `diagnose --more` adds: what connections speak, pervasive causes, queues, cores (NSight §7.4), the percentiles without a cause, and the settings of the host that lengthen tails.
//!
//! In: a [`Diagnosis`] with its `more`. Out: tables as text; nothing when it was not asked for.

use std::collections::BTreeMap;

use tailsight_diagnose::model::Stage;
use tailsight_diagnose::model::{CoreContexts, More};
use tailsight_diagnose::{Diagnosis, Titled};
use tailsight_ideal::WhatIf;

use super::causes::is_named;
use super::ideal::percentile_without;
use super::protocols::protocols;
use super::text::{clean, cut, paint};
use super::{Style, role_name, units};
use crate::words;

/// The tables.
pub fn more(d: &Diagnosis, style: &Style) -> String {
    let Some(more) = &d.more else { return String::new() };
    let mut out = String::new();
    let mut section = |title: &str, rows: Vec<String>| {
        if !rows.is_empty() {
            out += &format!("\n{}\n", paint(style, "1", title));
            for row in rows {
                out += &format!("  {}\n", cut(row.trim_end(), style.columns() - 2));
            }
        }
    };
    let room = style.columns() - 2;
    section("What connections speak, by their first bytes:", d.protocols.iter().map(protocols).collect());
    section("Stages, messages in focus and reference messages:", stages(&d.stages));
    section("Most frequent causes by percentile:", pervasive(d, more, room));
    section("Queued ahead of a message:", queue(more));
    let [focus, reference] = &more.cores;
    section("What ran on each core during the messages in focus:", cores(d, focus, room));
    section("What ran on each core during the reference messages:", cores(d, reference, room));
    section("Part of the excess; p99 by a replay without (docs/ideal.md):", what_if(d, room));
    let settings = more.settings.iter().filter(|s| s.hurts()).map(|s| clean(&s.in_words()));
    section("Settings of the host that lengthen tails (tailsight doctor):", settings.collect());
    out
}

/// A row a stage: p50, p90, the maximum and the mean of the focus, and p50 and mean of the reference.
fn stages(stages: &[Stage]) -> Vec<String> {
    let time =
        |map: &BTreeMap<String, u64>, key: &str| map.get(key).map_or("N/A".to_owned(), |ns| units::duration(*ns));
    let row = |s: &Stage| {
        let [p50, p90, max, mean] = ["p50", "p90", "max", "mean"].map(|key| time(&s.focus_ns, key));
        let [usual, typical] = ["p50", "mean"].map(|key| time(&s.reference_ns, key));
        let name = format!("{}-{} {}", s.from, s.to, s.name);
        format!("{name:<18} {p50:>8} {p90:>8} {max:>8} {mean:>8}   {usual:>8} {typical:>8}")
    };
    if stages.is_empty() {
        return vec![];
    }
    let head =
        format!("{:<18} {:>8} {:>8} {:>8} {:>8}   {:>8} {:>8}", "stage", "p50", "p90", "max", "mean", "p50", "mean");
    std::iter::once(head).chain(stages.iter().map(row)).collect()
}

/// A row a cause that can be taken out, where the messages carry a p99: its name as far as there is room, its part of the excess, then
/// the p99.
fn what_if(d: &Diagnosis, room: usize) -> Vec<String> {
    let replayed = d.ideal.iter().flat_map(|ideal| &ideal.what_if);
    let p99 = |w: &WhatIf| {
        let part = w.of_excess.map_or_else(|| "N/A".into(), units::percent);
        Some(format!("{part:>7}  {}", percentile_without(&d.latency_ns, &w.latency_ns, &w.ci95_ns)?))
    };
    let rows: Vec<(String, String)> =
        replayed.filter_map(|w| Some((format!("{:>2}  {}", w.rank, clean(&w.name)), p99(w)?))).collect();
    let widest = |width_of: &dyn Fn(&(String, String)) -> usize| rows.iter().map(width_of).max().unwrap_or(0);
    let width = widest(&|row| row.0.chars().count()).min(room.saturating_sub(widest(&|row| row.1.chars().count()) + 2));
    rows.iter().map(|(name, p99)| format!("{:width$}  {p99}", cut(name, width))).collect()
}

/// As many of the items as there is room for, the first one at least; an ellipsis stands for the others.
fn as_fits(before: String, items: &[String], room: usize) -> String {
    let mut out = before;
    for (i, item) in items.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        let rest = if i + 1 < items.len() { 3 } else { 0 };
        if i > 0 && out.chars().count() + comma.len() + item.chars().count() + rest > room {
            out += ", …";
            break;
        }
        out += &format!("{comma}{item}");
    }
    out
}

fn pervasive(d: &Diagnosis, more: &More, room: usize) -> Vec<String> {
    let percentile = |q: f64| format!("p{}", (q * 1e6).round() / 1e4);
    let row = |p: &tailsight_diagnose::model::Pervasive| {
        let named = p.causes.iter().filter_map(|(rank, hit, _)| {
            let cause = d.causes.get((*rank as usize).checked_sub(1)?).filter(|c| is_named(c))?;
            Some(format!("{} {}", clean(&cause.title()), units::percent(*hit)))
        });
        let slice = format!("{}..{}", percentile(p.from), percentile(p.to));
        let names: Vec<String> = named.take(3).collect();
        as_fits(format!("{slice:<12} {:>8}  ", units::duration(p.mean_ns)), &names, room)
    };
    let mut rows: Vec<String> = more.pervasive.iter().map(row).collect();
    if !rows.is_empty() {
        rows.insert(0, format!("{:<12} {:>8}  messages with more of it than usual", "slice", "mean"));
    }
    rows
}

fn queue(more: &More) -> Vec<String> {
    let row = |q: &tailsight_diagnose::model::Queue| {
        format!(
            "{:<16} {:<16} {:>8.1} {:>8.1} {:>10} {:>9}",
            q.function,
            role_name(q.role),
            q.depth[0],
            q.depth[1],
            units::signed_duration(q.mean_ns[0] - q.mean_ns[1]),
            units::count(q.messages)
        )
    };
    let mut rows: Vec<String> = more.queue.iter().map(row).collect();
    if !rows.is_empty() {
        let head = ["function", "on the", "in focus", "usually", "more time", "messages"];
        let [function, core, focus, usually, time, messages] = head;
        rows.insert(0, format!("{function:<16} {core:<16} {focus:>8} {usually:>8} {time:>10} {messages:>9}"));
    }
    rows
}

/// The items with commas, in as many lines as they need; later lines begin below the first item.
fn in_lines(before: String, items: &[String], room: usize) -> Vec<String> {
    let indent = " ".repeat(before.chars().count());
    let mut lines = vec![before];
    for (i, item) in items.iter().enumerate() {
        let text = if i + 1 < items.len() { format!("{item}, ") } else { item.clone() };
        let last = lines.last_mut().expect("never empty");
        if last.len() > indent.len() && last.chars().count() + text.trim_end().chars().count() > room {
            lines.push(format!("{indent}{text}"));
        } else {
            *last += &text;
        }
    }
    lines
}

fn cores(d: &Diagnosis, cores: &[CoreContexts], room: usize) -> Vec<String> {
    let row = |core: &CoreContexts| {
        let name = core.cpu.map_or("no core".to_owned(), |cpu| format!("core {cpu}"));
        let contexts = words::contexts(d, core).take(4);
        let contexts: Vec<String> =
            contexts.map(|(_, words, part)| format!("{} {}", clean(&words), units::percent(part))).collect();
        in_lines(format!("{name:<8} {:>7} of the time: ", units::percent(core.share)), &contexts, room)
    };
    cores.iter().flat_map(row).collect()
}
