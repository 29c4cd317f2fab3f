//! The client's price: CPU time a request of the whole load generator, beside the peers with their best flags against the
//! same real server. In: memcached, nginx and Redis on core 0. Out: a section.
//!
//! Waking up is most of the cost of a request at a low rate, so a price depends on the arrivals: each peer is compared with
//! tailsight sending as that peer sends. Poisson arrivals, tailsight's default, are beside them: no peer makes them.
//!
//! CPU time is what `wait4` says of the process and its children, user and system, over all requests that it says were
//! answered: starting, filling keys and computing the result are in it. tailsight's loading threads alone are told apart.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tailsight_lab::servers::TextProtocol;

use super::cells::{self, Cell, Measured};
use super::run::{Shot, not_run_table};
use super::tools::{CONNECTIONS, OURS, Shape, Spacing, Tool, Wait};
use crate::Bench;
use crate::table::{GoalResult, Row, Section, Spread, table, thousands};

/// The goal: at most the cheapest peer's price over this.
const CHEAPER: f64 = 1.5;
/// A tool that is farther from the rate than this did not make the load.
const OFF: f64 = 0.05;
/// Requests outstanding on each connection where they are pipelined.
const PIPELINE: u32 = 16;

fn plan() -> Vec<Cell> {
    use Tool::{H2load, K6, Memcaslap, Oha, RedisBenchmark, Tailsight, Vegeta, Wrk};
    const SLEEP: Tool = Tailsight(Spacing::Poisson, Wait::Sleep);
    const SPIN: Tool = Tailsight(Spacing::Poisson, Wait::Spin);
    const FIXED: Tool = Tailsight(Spacing::Fixed, Wait::Auto);
    const BATCH1: Tool = Tailsight(Spacing::Fixed, Wait::Batch1);
    const BATCH10: Tool = Tailsight(Spacing::Fixed, Wait::Batch10);
    let memcached: &[Tool] = &[OURS, SLEEP, SPIN, FIXED, BATCH1, BATCH10];
    let http: &[Tool] = &[OURS, SLEEP, SPIN, FIXED, BATCH1, Oha, Vegeta, K6, BATCH10, H2load];
    let cell = |name, protocol, shape, tools, guess_per_s| Cell { name, protocol, shape, tools, guess_per_s };
    let flat = Shape::Closed(CONNECTIONS, 1);
    let pipelined = Shape::Closed(CONNECTIONS, PIPELINE);
    vec![
        cell("memcached, 20,000/s", TextProtocol::Memcached, Shape::Rate(20_000.0), memcached, 0.0),
        cell("memcached, 80,000/s", TextProtocol::Memcached, Shape::Rate(80_000.0), memcached, 0.0),
        cell("nginx, 20,000/s", TextProtocol::Http1, Shape::Rate(20_000.0), http, 0.0),
        cell("nginx, 80,000/s", TextProtocol::Http1, Shape::Rate(80_000.0), http, 0.0),
        cell("memcached, flat out", TextProtocol::Memcached, flat, &[OURS, Memcaslap], 0.0),
        cell("Redis, flat out", TextProtocol::Resp, flat, &[OURS, RedisBenchmark], 80_000.0),
        cell("nginx, flat out", TextProtocol::Http1, flat, &[OURS, Wrk, H2load, Oha, Vegeta, K6], 0.0),
        cell("Redis, flat out, pipelined", TextProtocol::Resp, pipelined, &[OURS, RedisBenchmark], 500_000.0),
        cell("nginx, flat out, pipelined", TextProtocol::Http1, pipelined, &[OURS, Wrk, H2load], 0.0),
    ]
}

/// Measures all cells.
pub fn measure(bench: &Bench, patience: &mut Duration) -> anyhow::Result<Section> {
    let (measured, not_run) =
        cells::measure(bench, patience, "the client's price", plan(), false, |_, _, shot| Some(shot))?;
    Ok(section(&measured, &not_run))
}

fn median(shots: &[Shot], of: impl Fn(&Shot) -> Option<f64>) -> Option<Spread> {
    Spread::of(&shots.iter().filter_map(of).collect::<Vec<_>>())
}

/// Whether a tool made the load of the cell: the rate, within [`OFF`].
fn kept(cell: &Cell, shots: &[Shot]) -> bool {
    match cell.shape {
        Shape::Rate(rate) => {
            median(shots, |s| Some(s.figures.per_s)).is_some_and(|reached| (reached.median / rate - 1.0).abs() <= OFF)
        }
        Shape::Closed(..) => !shots.is_empty(),
    }
}

/// The goals: our price against the cheapest peer's that made the load, with the same arrivals.
fn goals(cell: &Cell, tools: &[(Tool, Vec<Shot>)]) -> Vec<Row> {
    let price = |shots: &[Shot]| median(shots, |shot| Some(shot.us_a_request()));
    let at_a_rate = matches!(cell.shape, Shape::Rate(_));
    let mut rows = Vec::new();
    for (tool, shots) in tools {
        let Some(ours) = price(shots).filter(|_| tool.is_ours()) else { continue };
        let mut peers: Vec<(f64, String)> = Vec::new();
        let mut others = Vec::new();
        for (peer, shots) in tools {
            // Without a rate every client waits for replies and sends at once: all arrivals are the same.
            let like = if at_a_rate { peer.ours_like() == Some(*tool) } else { *tool == OURS };
            let Some(spread) = price(shots).filter(|_| !peer.is_ours() && like) else { continue };
            if kept(cell, shots) {
                peers.push((spread.median, format!("{} {}", peer.name(), spread.text(2))));
            } else {
                others.push(format!("{} did not keep the rate", peer.name()));
            }
        }
        let mut name = format!("CPU a request, us: {}", cell.name);
        if at_a_rate {
            name += &format!(", {}", tool.arrivals());
            if let (Tool::Tailsight(_, Wait::Sleep | Wait::Spin), Some((_, flags))) =
                (tool, tool.name().split_once(' '))
            {
                name += &format!(" ({flags})");
            }
            if peers.is_empty() && others.is_empty() {
                others.push("none sends so".to_owned());
            }
        }
        peers.sort_by(|a, b| a.0.total_cmp(&b.0));
        let words: Vec<String> = peers.iter().map(|(_, text)| text.clone()).chain(others).collect();
        let measured = ours.text(2);
        let mut row = match (peers.first(), kept(cell, shots)) {
            (Some((cheapest, _)), true) => Row::goal(
                name,
                format!("≤ {:.2} (the cheapest peer / {CHEAPER})", cheapest / CHEAPER),
                measured,
                words.join("; "),
                ours.median <= cheapest / CHEAPER,
            ),
            (_, false) => Row::fact(name, format!("{measured}, but it did not keep the rate"), words.join("; ")),
            (None, true) => Row::fact(name, measured, words.join("; ")),
        };
        if row.verdict != GoalResult::None && 2 * super::noisy(shots) > shots.len() {
            row.verdict = GoalResult::NotQuiet;
        }
        rows.push(row);
    }
    rows
}

fn section(all: &Measured<Shot>, not_run: &BTreeMap<String, String>) -> Section {
    let mut section = Section { title: "The client's price".into(), ..Section::default() };
    let mut lines = Vec::new();
    let mut raw = Vec::new();
    for (cell, tools) in all {
        section.rows.extend(goals(cell, tools));
        for (tool, shots) in tools {
            let text = |of: &dyn Fn(&Shot) -> Option<f64>, decimals| {
                median(shots, of).map_or(String::new(), |spread| spread.text(decimals))
            };
            let errors: u64 = shots.iter().map(|shot| shot.figures.errors).sum();
            let mut numbers = BTreeMap::<String, u32>::new();
            for verdict in shots.iter().filter_map(|shot| shot.figures.verdict.as_ref()) {
                let word = verdict.as_ref().map_or_else(|id| format!("N/A: {id}"), |_| "a number".to_owned());
                *numbers.entry(word).or_default() += 1;
            }
            let verdicts: Vec<String> = numbers.iter().map(|(word, n)| format!("{n} {word}")).collect();
            lines.push(vec![
                cell.name.to_owned(),
                tool.name(),
                if matches!(cell.shape, Shape::Rate(_)) { tool.arrivals() } else { "closed loop" }.to_owned(),
                median(shots, |shot| Some(shot.figures.per_s))
                    .map_or(String::new(), |s| thousands(s.median.round() as u64)),
                text(&|shot| Some(shot.us_a_request()), 2),
                text(&|shot| shot.figures.threads_us, 2),
                text(&|shot| shot.figures.late_p99_us, 1),
                errors.to_string(),
                verdicts.join("; "),
            ]);
            let shots: Vec<_> = shots.iter().map(super::shot_json).collect();
            raw.push(json!({"load": cell.name, "client": tool.name(), "shots": shots}));
        }
    }
    let head = [
        "load",
        "client",
        "arrivals",
        "requests/s",
        "CPU us a request",
        "of which loading threads",
        "own account of its lateness, p99 us",
        "errors",
        "verdicts",
    ];
    section.notes += &("\n".to_owned() + &table(&head, lines));
    section.notes += &not_run_table(not_run.iter().map(|(what, why)| (&**what, &**why)));
    section.raw = json!({"cells": raw, "not_run": not_run});
    section
}

#[cfg(test)]
mod tests {
    use super::super::parse::Figures;
    use super::super::tools::Job;
    use super::*;

    fn shot(requests: u64, cpu_s: f64, per_s: f64, late_p99_us: Option<f64>) -> Shot {
        Shot { figures: Figures { requests, per_s, late_p99_us, ..Figures::default() }, cpu_s, others: 0.0, seen: None }
    }

    #[test]
    fn the_goal_is_the_cheapest_peer_that_made_the_load_with_the_same_arrivals() {
        let cell = plan().remove(2);
        let (fixed, batch) =
            (Tool::Tailsight(Spacing::Fixed, Wait::Batch1), Tool::Tailsight(Spacing::Fixed, Wait::Batch10));
        let tools = vec![
            (OURS, vec![shot(100_000, 2.5, 20_010.0, Some(4.0))]),
            (batch, vec![shot(100_000, 0.3, 20_010.0, None)]),
            (fixed, vec![shot(100_000, 2.0, 20_010.0, None)]),
            (Tool::H2load, vec![shot(100_000, 0.6, 19_500.0, None)]),
            (Tool::Oha, vec![shot(100_000, 1.5, 20_000.0, None)]),
            (Tool::K6, vec![shot(100_000, 0.1, 9_000.0, None)]),
        ];
        let rows = goals(&cell, &tools);
        let verdicts: Vec<GoalResult> = rows.iter().map(|row| row.verdict).collect();
        // No other tool makes Poisson arrivals. 3 us against 6 of h2load; 20 us against 15 of oha; k6 did not make the load.
        assert_eq!(verdicts, [GoalResult::None, GoalResult::Ok, GoalResult::Miss]);
        assert_eq!(rows[0].peers, "none sends so");
        assert!(rows[1].goal.starts_with("≤ 4.00") && rows[1].measured == "3.00", "{rows:?}");
        assert!(rows[2].goal.starts_with("≤ 10.00") && rows[2].peers.contains("k6 did not keep the rate"), "{rows:?}");
        let slow = vec![(batch, vec![shot(100_000, 0.3, 12_000.0, None)]), tools[3].clone()];
        assert_eq!(goals(&cell, &slow)[0].verdict, GoalResult::None);
    }

    #[test]
    fn flat_out_everybody_is_like_everybody() {
        let cell = plan().remove(6);
        let tools = vec![
            (OURS, vec![shot(100_000, 0.5, 100_000.0, None)]),
            (Tool::Wrk, vec![shot(100_000, 0.6, 100_000.0, None)]),
            (Tool::Vegeta, vec![shot(100_000, 6.0, 10_000.0, None)]),
        ];
        let rows = goals(&cell, &tools);
        assert_eq!((rows.len(), rows[0].verdict), (1, GoalResult::Miss));
        assert!(rows[0].peers.starts_with("wrk 6.00; vegeta 60.00"), "{rows:?}");
    }

    #[test]
    fn every_tool_can_make_the_load_it_is_given() {
        let folder = tempfile::tempdir().unwrap();
        for cell in plan() {
            for tool in cell.tools {
                let addr = "10.77.0.1:1".parse().unwrap();
                let job = Job::new(std::path::Path::new("tailsight"), folder.path(), addr, cell.shape);
                let job = Job { protocol: cell.protocol, guess_per_s: cell.guess_per_s, ..job };
                assert!(tool.command(&job).is_ok(), "{} {}", tool.name(), cell.name);
            }
        }
    }
}
