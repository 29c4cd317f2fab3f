//! How late the clients are, all measured alike: from outside, at the servers' interface. In: memcached and nginx on core 0,
//! rates. Out: a section.
//!
//! A client's own figure of its lateness is not independent, and the peers give none. The wire shows it for all: when the
//! requests arrived ([`super::capture`]) against when they were due by the client's schedule ([`super::line`]). Prices are
//! measured in other runs, without a capture.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tailsight_lab::servers::TextProtocol;
use tailsight_load::{Arrivals as Process, Rate, Schedule};

use super::cells::{self, Cell, Measured};
use super::line::{Arrival, Lateness, Line, arrivals, gaps_us};
use super::run::{Shot, not_run_table};
use super::tools::{OURS, Shape, Spacing, Tool, Wait};
use crate::Bench;
use crate::table::{GoalResult, Row, Section, Spread, table, thousands};

/// The goal, p99, us.
const LATE_US: f64 = 10.0;
/// A tool whose rate differs by this much from the rate asked for did not keep it: it has no schedule to be late by.
const OFF: f64 = 0.02;
/// Programs start slowly: this much of each run is left out, ns.
const SKIP_NS: u64 = 500_000_000;
/// Ours tries its connections before the load begins; the pause behind that is longer than this, ns.
const PAUSE_NS: u64 = 1_000_000;
/// The percentiles shown.
const SHOWN: [f64; 4] = [0.5, 0.99, 0.999, 1.0];
/// The seed of our schedules when none is given.
const SEED: u64 = 1;

fn plan() -> Vec<Cell> {
    use Tool::{H2load, K6, Oha, Tailsight, Vegeta};
    const SPIN: Tool = Tailsight(Spacing::Poisson, Wait::Spin);
    const FIXED: Tool = Tailsight(Spacing::Fixed, Wait::Auto);
    const FIXED_SPIN: Tool = Tailsight(Spacing::Fixed, Wait::Spin);
    const BATCH1: Tool = Tailsight(Spacing::Fixed, Wait::Batch1);
    const BATCH10: Tool = Tailsight(Spacing::Fixed, Wait::Batch10);
    let http: &[Tool] = &[OURS, SPIN, FIXED, FIXED_SPIN, BATCH1, Oha, Vegeta, K6, BATCH10, H2load];
    let fast: &[Tool] = &[OURS, SPIN, FIXED, FIXED_SPIN, BATCH1, Oha, BATCH10, H2load];
    let memcached: &[Tool] = &[OURS, SPIN, FIXED, FIXED_SPIN];
    let cell =
        |name, protocol, per_s, tools| Cell { name, protocol, shape: Shape::Rate(per_s), tools, guess_per_s: 0.0 };
    vec![
        cell("nginx, 4,000/s", TextProtocol::Http1, 4_000.0, http),
        cell("nginx, 20,000/s", TextProtocol::Http1, 20_000.0, http),
        cell("nginx, 80,000/s", TextProtocol::Http1, 80_000.0, fast),
        cell("memcached, 20,000/s", TextProtocol::Memcached, 20_000.0, memcached),
        cell("memcached, 80,000/s", TextProtocol::Memcached, 80_000.0, memcached),
    ]
}

/// What the wire shows of a run.
#[derive(Debug, Clone)]
struct Wire {
    /// Requests a second.
    per_s: f64,
    /// Median and 99.9th percentile of the gaps between requests, us.
    gaps_us: (f64, f64),
    /// [`SHOWN`], us, and the drift, or why there is none.
    late: Result<([f64; 4], f64), String>,
    /// Ours: p50 and p99 over all requests, us, as its own account is.
    whole_us: Option<(f64, f64)>,
    /// p0.01, p0.1, p1, p10, us: how far the most punctual request stands before the others.
    low_us: Option<[f64; 4]>,
    /// Segments sent again, and segments that came behind later ones.
    again: (u64, u64),
}

impl Wire {
    fn of(tool: Tool, per_s: f64, shot: &Shot) -> Option<Self> {
        let captured = shot.seen.as_ref()?;
        let requests = arrivals(&captured.segments);
        let fixed = matches!(tool, Tool::Tailsight(Spacing::Fixed, _));
        let after_head = if fixed { &requests.all[head(&requests.all)..] } else { &requests.all[..] };
        let (first, last) = (after_head.first()?.place_ns + SKIP_NS, after_head.last()?.place_ns);
        let counted = after_head.iter().filter(|a| a.place_ns >= first).count();
        let reached = (counted.max(1) - 1) as f64 / (last.saturating_sub(first).max(1) as f64 / 1e9);
        let seconds = (last - after_head.first()?.place_ns) as f64 / 1e9;
        let line = match tool {
            Tool::Tailsight(Spacing::Poisson, _) => Line::Times(drawn(per_s, seconds)?),
            _ => tool.line(per_s)?,
        };
        let lateness = Lateness::of(after_head, &line, SKIP_NS);
        let late = if captured.lost > 0 || requests.missing > 0 {
            Err(format!("the capture has holes ({} frames, {} bytes)", captured.lost, requests.missing))
        } else if tool == Tool::K6 && shot.figures.errors > 0 {
            Err(format!("it left out {} requests, and the wire does not tell which", shot.figures.errors))
        } else if (reached / per_s - 1.0).abs() > OFF {
            Err("it did not keep the rate".to_owned())
        } else {
            lateness.as_ref().map(|l| (SHOWN.map(|q| l.us(q)), l.drift)).ok_or_else(|| "too few requests".to_owned())
        };
        let whole = tool.is_ours().then(|| Lateness::of(after_head, &line, 0)).flatten();
        Some(Self {
            per_s: reached,
            gaps_us: gaps_us(after_head, SKIP_NS)?,
            late,
            low_us: lateness.map(|l| [0.0001, 0.001, 0.01, 0.1].map(|q| l.us(q))),
            whole_us: whole.map(|l| (l.us(0.5), l.us(0.99))),
            again: (requests.repeated, requests.out_of_order),
        })
    }
}

/// How many requests come before our fixed schedule: those before the longest pause near the beginning.
fn head(all: &[Arrival]) -> usize {
    const NEAR: usize = 64;
    let pauses = all.windows(2).take(NEAR).enumerate();
    let longest = pauses.map(|(i, pair)| (pair[1].place_ns - pair[0].place_ns, i + 1)).max();
    longest.filter(|(ns, _)| *ns > PAUSE_NS).map_or(0, |(_, i)| i)
}

/// Our Poisson schedule, drawn again, ns.
fn drawn(per_s: f64, seconds: f64) -> Option<Vec<u64>> {
    let schedule = Schedule::new(&Process::EXPONENTIAL, &Rate::Constant(per_s), SEED).ok().flatten()?;
    Some(schedule.take((per_s * (seconds + 1.0) * 1.1) as usize).collect())
}

/// What is kept of a run.
type Watched = (Shot, Wire);

/// Measures all cells.
pub fn measure(bench: &Bench, patience: &mut Duration) -> anyhow::Result<Section> {
    let with_wire = |tool, cell: &Cell, mut shot: Shot| {
        let wire = Wire::of(tool, per_s(cell), &shot)?;
        shot.seen = None;
        Some((shot, wire))
    };
    let (measured, not_run) = cells::measure(bench, patience, "lateness from the wire", plan(), true, with_wire)?;
    Ok(section(&measured, &not_run))
}

/// All cells here have a rate.
fn per_s(cell: &Cell) -> f64 {
    if let Shape::Rate(per_s) = cell.shape { per_s } else { 0.0 }
}

fn spread(shots: &[Watched], of: impl Fn(&Shot, &Wire) -> Option<f64>) -> Option<Spread> {
    Spread::of(&shots.iter().filter_map(|(shot, wire)| of(shot, wire)).collect::<Vec<_>>())
}

/// The p99 of the runs that have one, us; `None` unless most have.
fn p99(shots: &[Watched]) -> Option<Spread> {
    let good = shots.iter().filter(|(_, wire)| wire.late.is_ok()).count();
    (2 * good > shots.len()).then(|| spread(shots, |_, wire| wire.late.as_ref().ok().map(|late| late.0[1]))).flatten()
}

/// Why runs have no lateness: the first reason.
fn why(shots: &[Watched]) -> String {
    shots.iter().find_map(|(_, wire)| wire.late.as_ref().err().cloned()).unwrap_or_default()
}

/// One figure for each of ours: as it comes, and as the peers send.
fn goals(cell: &Cell, tools: &[(Tool, Vec<Watched>)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (tool, shots) in tools {
        let Tool::Tailsight(spacing, wait) = *tool else { continue };
        let Some(late) = p99(shots).filter(|_| matches!(wait, Wait::Auto | Wait::Spin)) else { continue };
        let peers: Vec<String> = tools
            .iter()
            .filter(|(peer, _)| !peer.is_ours() && spacing == Spacing::Fixed)
            .map(|(peer, shots)| match p99(shots) {
                Some(late) => format!("{} {}", peer.name(), late.text(1)),
                None => format!("{}: {}", peer.name(), why(shots)),
            })
            .collect();
        let peers = if peers.is_empty() { "none sends so".to_owned() } else { peers.join("; ") };
        let name = format!("lateness from the wire, p99, us: {}, {}", cell.name, tool.name());
        let own = spread(shots, |shot, _| shot.figures.late_p99_us);
        let measured = late.text(1) + &own.map_or(String::new(), |own| format!("; own account {}", own.text(1)));
        let mut row = Row::goal(name, format!("< {LATE_US} us"), measured, peers, late.median < LATE_US);
        let noisy = shots.iter().filter(|(shot, _)| shot.others > crate::roundtrip::QUIET).count();
        if 2 * noisy > shots.len() {
            row.verdict = GoalResult::NotQuiet;
        }
        rows.push(row);
    }
    rows
}

/// How far tailsight's own figure is from the wire's, by run. The path of half the requests is longer than the quickest
/// one's by the difference of the medians, which are hardly late; without it, what is left of p99 is where the two disagree.
fn agreement(all: &Measured<Watched>) -> Option<Row> {
    /// Above this, us, p99 is compared as a share: our own account is a histogram.
    const SMALL_US: f64 = 100.0;
    let (mut way, mut small, mut large) = (Vec::new(), Vec::new(), Vec::new());
    let ours = |tool: &Tool| matches!(tool, Tool::Tailsight(_, Wait::Auto | Wait::Spin));
    let tools = all.iter().flat_map(|(_, tools)| tools).filter(|(tool, _)| ours(tool));
    for (shot, wire) in tools.flat_map(|(_, shots)| shots).filter(|(_, wire)| wire.late.is_ok()) {
        let own = (shot.figures.late_p50_us, shot.figures.late_p99_us);
        let (Some((p50, p99)), (Some(own_p50), Some(own_p99))) = (wire.whole_us, own) else { continue };
        way.push(p50 - own_p50);
        let left = p99 - own_p99 - (p50 - own_p50);
        if own_p99 < SMALL_US { small.push(left) } else { large.push(100.0 * left / own_p99) }
    }
    let text = |values: &[f64], decimals| Spread::of(values).map_or("–".to_owned(), |s| s.text(decimals));
    (!way.is_empty()).then(|| {
        Row::fact(
            format!("lateness from the wire less our own account of it, in {} runs", way.len()),
            format!(
                "p50 {} us (the way); p99 less that {} us where it is below {SMALL_US} us, else {} %",
                text(&way, 1),
                text(&small, 1),
                text(&large, 1)
            ),
            "",
        )
    })
}

fn section(all: &Measured<Watched>, not_run: &BTreeMap<String, String>) -> Section {
    let mut section = Section { title: "How late the clients are".into(), ..Section::default() };
    let (mut lines, mut raw) = (Vec::new(), Vec::new());
    for (cell, tools) in all {
        section.rows.extend(goals(cell, tools));
        for (tool, shots) in tools.iter().filter(|(_, shots)| !shots.is_empty()) {
            let text = |of: &dyn Fn(&Shot, &Wire) -> Option<f64>, decimals| {
                spread(shots, of).map_or(String::new(), |spread| spread.text(decimals))
            };
            let late = |i: usize| {
                let late_us = |_: &Shot, wire: &Wire| wire.late.as_ref().ok().map(|late| late.0[i]);
                p99(shots).and_then(|_| spread(shots, late_us)).map_or("N/A".to_owned(), |spread| spread.text(1))
            };
            let drift = spread(shots, |_, wire| wire.late.as_ref().ok().map(|late| late.1 * 1e6));
            let own = |shot: &Shot, _: &Wire| shot.figures.late_p99_us;
            lines.push(vec![
                cell.name.to_owned(),
                tool.name(),
                tool.arrivals().to_owned(),
                spread(shots, |_, wire| Some(wire.per_s)).map_or(String::new(), |s| thousands(s.median.round() as u64)),
                text(&|_, wire| Some(wire.gaps_us.0), 1),
                text(&|_, wire| Some(wire.gaps_us.1), 0),
                late(0),
                late(1),
                late(2),
                late(3),
                drift.map_or(String::new(), |drift| drift.text(0)),
                text(&own, 1),
                why(shots),
            ]);
            let shots: Vec<_> = shots.iter().map(|(shot, wire)| raw_run(shot, wire)).collect();
            raw.push(json!({"load": cell.name, "client": tool.name(), "runs": shots}));
        }
    }
    section.rows.extend(agreement(all));
    let head = [
        "load",
        "client",
        "arrivals",
        "requests/s",
        "median gap, us",
        "p99.9 gap, us",
        "late p50, us",
        "late p99",
        "late p99.9",
        "latest",
        "drift, ppm",
        "own account, p99",
        "",
    ];
    section.notes += &("\n".to_owned() + &table(&head, lines));
    section.notes += &not_run_table(not_run.iter().map(|(what, why)| (&**what, &**why)));
    section.raw = json!({"cells": raw, "not_run": not_run});
    section
}

fn raw_run(shot: &Shot, wire: &Wire) -> serde_json::Value {
    let (late, drift) = match &wire.late {
        Ok((late, drift)) => (json!(late), json!(drift)),
        Err(why) => (json!({"not": why}), json!(null)),
    };
    json!({"wire_per_s": wire.per_s, "gaps_us": wire.gaps_us, "percentiles": SHOWN, "late_us": late, "drift": drift,
           "whole_us": wire.whole_us, "low_us": wire.low_us, "own_p50_us": shot.figures.late_p50_us, "own_p99_us": shot.figures.late_p99_us,
           "sent_again": wire.again.0, "out_of_order": wire.again.1, "others": shot.others})
}

#[cfg(test)]
mod tests {
    use super::super::capture::CapturedFrames;
    use super::super::line::Segment;
    use super::super::parse::Figures;
    use super::*;

    fn segments(times: impl Iterator<Item = u64>) -> Vec<Segment> {
        let segment = |(k, at_ns)| Segment { at_ns, port: 1, seq: 40 * k as u32, len: 40, starts: vec![0] };
        times.enumerate().map(segment).collect()
    }

    fn shot(segments: Vec<Segment>, lost: u32, errors: u64) -> Shot {
        let figures = Figures { errors, late_p50_us: Some(1.0), late_p99_us: Some(5.0), ..Figures::default() };
        Shot { figures, cpu_s: 1.0, others: 0.0, seen: Some(CapturedFrames { segments, lost }) }
    }

    const ZERO: u64 = 1_790_000_000_000_000_000;

    /// Our own schedule, drawn again from its seed, is found on the wire behind the tries of the connections.
    #[test]
    fn our_schedules_are_found_and_their_lateness() {
        for spacing in [Spacing::Poisson, Spacing::Fixed] {
            let due = match spacing {
                Spacing::Poisson => drawn(20_000.0, 2.0).unwrap(),
                Spacing::Fixed => (0..60_000).map(|k| k * 50_000).collect(),
            };
            let tries = (0..16).map(|k| ZERO + k * 100_000);
            // Every 50th request is 30 us late, and holds up those behind it.
            let sent = due.iter().take(40_000).enumerate().scan(0, |last, (k, due)| {
                *last = (*last).max(ZERO + 40_000_000 + due + if k % 50 == 0 { 30_000 } else { 2_000 });
                Some(*last)
            });
            let shot = shot(segments(tries.chain(sent)), 0, 0);
            let wire = Wire::of(Tool::Tailsight(spacing, Wait::Auto), 20_000.0, &shot).unwrap();
            let (late, drift) = wire.late.unwrap();
            assert!(late[0] < 0.01 && (late[1] - 28.0).abs() < 0.01 && (late[3] - 28.0).abs() < 0.01, "{late:?}");
            assert!(drift.abs() < 1e-9 && (wire.per_s / 20_000.0 - 1.0).abs() < 0.01);
        }
    }

    /// 7 us of way, the same lateness otherwise: nothing is left. Runs in batches and N/A ones do not count.
    #[test]
    fn our_own_account_is_held_against_the_wire() {
        let wire = Wire {
            per_s: 4000.0,
            gaps_us: (1.0, 1.0),
            late: Ok(([8.0, 12.0, 20.0, 30.0], 0.0)),
            whole_us: Some((8.0, 12.5)),
            low_us: None,
            again: (0, 0),
        };
        let run = |late| (shot(Vec::new(), 0, 0), Wire { late, ..wire.clone() });
        let runs = vec![run(wire.late.clone()), run(Err("no".into()))];
        let batch = Tool::Tailsight(Spacing::Fixed, Wait::Batch1);
        let measured = vec![(plan().remove(0), vec![(OURS, runs.clone()), (batch, runs)])];
        let row = agreement(&measured).unwrap();
        assert!(row.name.ends_with("in 1 runs"), "{row:?}");
        assert!(row.measured.starts_with("p50 7.0 us (the way); p99 less that 0.5 us"), "{row:?}");
        let rows = goals(&measured[0].0, &measured[0].1);
        assert!(rows.is_empty(), "half of the runs have no lateness: {rows:?}");
    }

    #[test]
    fn what_the_wire_cannot_tell_is_not_told() {
        let even = |gap: u64| segments((0..8000).map(move |k| ZERO + k * gap));
        let late_of = |tool, shot: &Shot| Wire::of(tool, 4000.0, shot).unwrap().late;
        assert!(late_of(Tool::Oha, &shot(even(250_000), 0, 0)).is_ok());
        assert!(late_of(Tool::Oha, &shot(even(250_000), 3, 0)).unwrap_err().contains("holes"));
        assert!(late_of(Tool::K6, &shot(even(250_000), 0, 7)).unwrap_err().contains("left out 7"));
        assert!(late_of(Tool::Vegeta, &shot(even(300_000), 0, 0)).unwrap_err().contains("keep the rate"));
        assert!(Wire::of(Tool::Wrk, 4000.0, &shot(even(250_000), 0, 0)).is_none(), "a closed loop has no schedule");
    }

    #[test]
    fn every_client_here_has_a_schedule() {
        for cell in plan() {
            for tool in cell.tools {
                assert!(tool.is_ours() || tool.line(per_s(&cell)).is_some(), "{}", tool.name());
            }
        }
    }
}
