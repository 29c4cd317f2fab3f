//! The client's price: CPU time a request of the whole load generator, and how late it is, beside the peers with their best
//! flags against the same real server. In: memcached, nginx and Redis on core 0. Out: a section.
//!
//! CPU time is what `wait4` says of the process and its children, user and system, over all requests that it says were
//! answered: starting, filling keys and computing the result are in it. tailsight's loading threads alone are told apart.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;
use tailsight_lab::netns::{Pair, SERVER_V4};
use tailsight_lab::server::{MemcachedOpts, NginxOpts, RedisOpts, Server};
use tailsight_lab::servers::Speech;

use super::super::Bench;
use super::super::rig::{LOAD_CPU, SERVER_CPU};
use super::super::table::{Row, Section, Spread, Verdict, table, thousands};
use super::run::{Shot, folder, present, shoot};
use super::tools::{CONNECTIONS, Job, Shape, Tool};

/// The goal: at most the cheapest peer's price over this.
const CHEAPER: f64 = 1.5;
/// The goal for the client's own lateness, p99, us.
const LATE_US: f64 = 10.0;
/// A tool that is farther from the rate than this did not make the load.
const OFF: f64 = 0.05;
/// Requests outstanding on each connection where they are pipelined.
const PIPELINE: u32 = 16;

/// One load on one server.
struct Cell {
    name: &'static str,
    speech: Speech,
    shape: Shape,
    tools: &'static [Tool],
    /// For the tool that is given a number of requests.
    guess_per_s: f64,
}

const OURS: Tool = Tool::Tailsight;

fn plan() -> Vec<Cell> {
    use Tool::{H2load, K6, Memcaslap, RedisBenchmark, TailsightSleep, TailsightSpin, Wrk};
    let memcached: &[Tool] = &[OURS, TailsightSleep, TailsightSpin, Memcaslap];
    let http: &[Tool] = &[OURS, TailsightSleep, TailsightSpin, H2load, K6];
    let cell = |name, speech, shape, tools, guess_per_s| Cell { name, speech, shape, tools, guess_per_s };
    let flat = Shape::Closed(CONNECTIONS, 1);
    let pipelined = Shape::Closed(CONNECTIONS, PIPELINE);
    vec![
        cell("memcached, 20,000/s", Speech::Memcached, Shape::Rate(20_000.0), memcached, 0.0),
        cell("memcached, 80,000/s", Speech::Memcached, Shape::Rate(80_000.0), memcached, 0.0),
        cell("nginx, 20,000/s", Speech::Http1, Shape::Rate(20_000.0), http, 0.0),
        cell("nginx, 80,000/s", Speech::Http1, Shape::Rate(80_000.0), http, 0.0),
        cell("memcached, flat out", Speech::Memcached, flat, &[OURS, Memcaslap], 0.0),
        cell("Redis, flat out", Speech::Resp, flat, &[OURS, RedisBenchmark], 80_000.0),
        cell("nginx, flat out", Speech::Http1, flat, &[OURS, Wrk, H2load, K6], 0.0),
        cell("Redis, flat out, pipelined", Speech::Resp, pipelined, &[OURS, RedisBenchmark], 500_000.0),
        cell("nginx, flat out, pipelined", Speech::Http1, pipelined, &[OURS, Wrk, H2load], 0.0),
    ]
}

/// The servers of all cells. They come before the namespace, so that they end before it goes.
struct Servers {
    memcached: Server,
    nginx: Server,
    redis: Server,
    pair: Pair,
}

impl Servers {
    fn start() -> anyhow::Result<Self> {
        let pair = Pair::create("price")?;
        let cpu = Some(SERVER_CPU);
        let memcached = Server::memcached(&pair.server, MemcachedOpts { cpu, ..MemcachedOpts::default() })?;
        let nginx = Server::nginx(&pair.server, NginxOpts { cpu, ..NginxOpts::default() })?;
        let redis = Server::redis(&pair.server, RedisOpts { cpu, ..RedisOpts::default() })?;
        let servers = Self { memcached, nginx, redis, pair };
        servers.fill()?;
        Ok(servers)
    }

    fn of(&self, speech: Speech) -> &Server {
        match speech {
            Speech::Memcached => &self.memcached,
            Speech::Http1 => &self.nginx,
            Speech::Resp => &self.redis,
        }
    }

    fn pids(&self) -> Vec<u32> {
        [&self.memcached, &self.nginx, &self.redis].into_iter().flat_map(Server::pids).collect()
    }

    /// Stores the keys that redis-benchmark reads, with values as long as everybody else's: misses would be cheaper.
    fn fill(&self) -> anyhow::Result<()> {
        if present(Tool::RedisBenchmark).is_err() {
            return Ok(());
        }
        let mut command = self.pair.client.command("redis-benchmark");
        let (host, port) = (SERVER_V4.to_string(), self.redis.port().to_string());
        command.args([
            "-h", &host, "-p", &port, "-n", "200000", "-P", "16", "-c", "8", "-r", "10000", "-d", "32", "-t", "set",
            "-q",
        ]);
        let output = command.output().context("cannot run redis-benchmark")?;
        if !output.status.success() {
            bail!("redis-benchmark could not store its keys: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

/// What was measured of a cell, by tool.
type Measured = Vec<(Cell, Vec<(Tool, Vec<Shot>)>)>;

/// Measures all cells.
pub fn measure(bench: &Bench, patience: &mut Duration) -> anyhow::Result<Section> {
    let servers = Servers::start()?;
    let pids = servers.pids();
    let mut not_run: BTreeMap<String, String> = BTreeMap::new();
    let mut all: Measured = plan()
        .into_iter()
        .map(|cell| {
            let tools = cell.tools.iter().filter(|tool| match present(**tool) {
                Ok(()) => true,
                Err(why) => {
                    not_run.insert(tool.name().to_owned(), why);
                    false
                }
            });
            let tools = tools.map(|tool| (*tool, Vec::new())).collect();
            (cell, tools)
        })
        .collect();
    for round in 0..bench.rounds {
        eprintln!("bench: the client's price, round {} of {}", round + 1, bench.rounds);
        for (cell, tools) in &mut all {
            let n = tools.len();
            for i in 0..n {
                let (tool, shots) = &mut tools[(i + round as usize) % n];
                let place = format!("{}, {}", tool.name(), cell.name);
                if not_run.contains_key(&place) {
                    continue;
                }
                let folder = folder(bench)?;
                let job = Job {
                    tailsight: &bench.tailsight,
                    folder: &folder,
                    addr: SocketAddr::new(SERVER_V4, servers.of(cell.speech).port()),
                    speech: cell.speech,
                    shape: cell.shape,
                    seconds: if bench.quick { 2 } else { 5 },
                    guess_per_s: cell.guess_per_s,
                    cpu: LOAD_CPU,
                    samples: false,
                };
                match shoot(bench, &servers.pair.client, *tool, &job, &pids, patience) {
                    Ok(shot) => shots.push(shot),
                    Err(error) => {
                        bench.check()?;
                        eprintln!("bench: {place} is left out: {error:#}");
                        not_run.insert(place, format!("{error:#}").replace('\n', " "));
                    }
                }
            }
        }
    }
    Ok(section(&all, &not_run))
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

/// The goals: our price against the cheapest peer that made the load, our lateness against [`LATE_US`].
fn goals(cell: &Cell, tools: &[(Tool, Vec<Shot>)]) -> Vec<Row> {
    let price = |shots: &[Shot]| median(shots, |shot| Some(shot.us_a_request()));
    let Some((_, shots)) = tools.iter().find(|(tool, _)| *tool == OURS) else { return Vec::new() };
    let Some(ours) = price(shots) else { return Vec::new() };
    let mut peers: Vec<(f64, String)> = Vec::new();
    let mut others = Vec::new();
    for (tool, shots) in tools {
        let Some(spread) = price(shots) else { continue };
        if tool.is_ours() {
            if *tool != OURS {
                others.push(format!("{} {}", tool.name(), spread.text(2)));
            }
        } else if kept(cell, shots) {
            peers.push((spread.median, format!("{} {}", tool.name(), spread.text(2))));
        } else {
            others.push(format!("{} did not keep the rate", tool.name()));
        }
    }
    peers.sort_by(|a, b| a.0.total_cmp(&b.0));
    let words: Vec<String> = peers.iter().map(|(_, text)| text.clone()).chain(others).collect();
    let name = format!("CPU a request, us: {}", cell.name);
    let measured = ours.text(2);
    let mut rows = vec![match (peers.first(), kept(cell, shots)) {
        (Some((cheapest, _)), true) => Row::goal(
            name,
            format!("≤ {:.2} (the cheapest peer / {CHEAPER})", cheapest / CHEAPER),
            measured,
            words.join("; "),
            ours.median <= cheapest / CHEAPER,
        ),
        (_, false) => Row::fact(name, format!("{measured}, but it did not keep the rate"), words.join("; ")),
        (None, true) => Row::fact(name, measured, words.join("; ")),
    }];
    if let (Shape::Rate(_), Some(late)) = (cell.shape, median(shots, |shot| shot.figures.late_p99_us)) {
        let others: Vec<String> = tools
            .iter()
            .filter(|(tool, _)| *tool != OURS)
            .map(|(tool, shots)| match median(shots, |shot| shot.figures.late_p99_us) {
                Some(late) => format!("{} {}", tool.name(), late.text(1)),
                None => format!("{} does not tell", tool.name()),
            })
            .collect();
        let (goal, met) = (format!("< {LATE_US} us"), late.median < LATE_US);
        rows.push(Row::goal(
            format!("own lateness p99, us: {}", cell.name),
            goal,
            late.text(1),
            others.join("; "),
            met,
        ));
    }
    if 2 * super::noisy(shots) > shots.len() {
        rows.iter_mut().for_each(|row| row.verdict = Verdict::NotQuiet);
    }
    rows
}

fn section(all: &Measured, not_run: &BTreeMap<String, String>) -> Section {
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
                tool.name().to_owned(),
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
        "requests/s",
        "CPU us a request",
        "of which loading threads",
        "late p99 us",
        "errors",
        "verdicts",
    ];
    section.notes += &("\n".to_owned() + &table(&head, lines));
    if !not_run.is_empty() {
        let rows = not_run.iter().map(|(what, why)| vec![what.clone(), why.clone()]);
        section.notes += &("\nNot run:\n\n".to_owned() + &table(&["client", "why"], rows));
    }
    section.raw = json!({"cells": raw, "not_run": not_run});
    section
}

#[cfg(test)]
mod tests {
    use super::super::parse::Figures;
    use super::*;

    fn shot(requests: u64, cpu_s: f64, per_s: f64, late_p99_us: Option<f64>) -> Shot {
        Shot { figures: Figures { requests, per_s, late_p99_us, ..Figures::default() }, cpu_s, others: 0.0 }
    }

    #[test]
    fn the_goal_is_the_cheapest_peer_that_made_the_load() {
        let cell = plan().remove(0);
        // 3 us a request against 6 of a peer that kept the rate and 1 of one that did not.
        let tools = vec![
            (Tool::Tailsight, vec![shot(100_000, 0.3, 20_010.0, Some(4.0))]),
            (Tool::Memcaslap, vec![shot(100_000, 0.6, 19_500.0, None)]),
            (Tool::H2load, vec![shot(100_000, 0.1, 9_000.0, None)]),
        ];
        let rows = goals(&cell, &tools);
        assert_eq!((rows.len(), rows[0].verdict, rows[1].verdict), (2, Verdict::Ok, Verdict::Ok));
        assert!(rows[0].goal.starts_with("≤ 4.00") && rows[0].measured == "3.00", "{rows:?}");
        assert!(rows[0].peers.contains("h2load did not keep the rate"), "{rows:?}");
        let dear = vec![(Tool::Tailsight, vec![shot(100_000, 0.5, 20_000.0, Some(40.0))]), tools[1].clone()];
        assert!(goals(&cell, &dear).iter().all(|row| row.verdict == Verdict::Miss));
    }

    #[test]
    fn every_tool_can_make_the_load_it_is_given() {
        let folder = tempfile::tempdir().unwrap();
        for cell in plan() {
            for tool in cell.tools {
                let job = Job {
                    tailsight: std::path::Path::new("tailsight"),
                    folder: folder.path(),
                    addr: "10.77.0.1:1".parse().unwrap(),
                    speech: cell.speech,
                    shape: cell.shape,
                    seconds: 1,
                    guess_per_s: cell.guess_per_s,
                    cpu: 1,
                    samples: false,
                };
                assert!(tool.command(&job).is_ok(), "{} {}", tool.name(), cell.name);
            }
        }
    }
}
