//! The measured distribution beside the idealised server's (Lancet, Figures 6 to 9), and the same of the peers. In: the
//! ideal server with known service times, loads. Out: a section with each tool's bias in us.
//!
//! The truth is M/G/1 at the rate that the tool reached itself, plus a constant: the round trip of a request that finds the
//! server idle, less its service time. That is measured by other code ([`super::base`]: it polls and uses no kernel stamps)
//! at 2 % load. The rest is the tool's bias: its lateness, its clock reads, what it leaves out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tailsight_lab::servers::{Service, TextProtocol};
use tailsight_testbed::netns::{Pair, SERVER_V4};
use tailsight_testbed::process::pin_thread;

use super::base::round_trips;
use super::model::Model;
use super::parse::{NAMES, QUANTILES, Range};
use super::run::{Ideal, Runs, Shot, not_run_table, turned};
use super::tools::{Job, LEFT_OUT, OURS, Shape, Tool};
use crate::Bench;
use crate::rig::LOAD_CPU;
use crate::table::{GoalResult, Row, Section, Spread, table, thousands};

/// The service times: a mean of 50 us each, five to ten times what a reply costs the server.
const SERVICES: [(&str, &str); 3] =
    [("fixed", "fixed:50us"), ("exponential", "exponential:50us"), ("bimodal", "bimodal:26.315us")];
/// The loads of open loops, with tools that have a rate.
const LOADS: [f64; 3] = [0.2, 0.5, 0.8];
/// The connections of closed loops: one leaves the server idle now and then, two hardly.
const CLOSED: [u32; 2] = [1, 2];
/// The load at which the constant is measured.
const IDLE: f64 = 0.02;
/// Simulated windows behind the figure of how much a window varies by itself.
const WINDOWS: usize = 40;
const PROTOCOLS: [TextProtocol; 3] = [TextProtocol::Memcached, TextProtocol::Http1, TextProtocol::Resp];

/// Which load on which server.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    service: usize,
    shape: Shape,
}

/// What was measured of a tool at a cell.
struct Series {
    cell: Cell,
    tool: Tool,
    protocol: TextProtocol,
    shots: Vec<Shot>,
}

/// Everything that is run: tailsight and the peers with a rate at the three loads, the others closed.
fn plan(services: &[usize], not_run: &BTreeMap<String, String>) -> Vec<Series> {
    let open = [
        (OURS, TextProtocol::Memcached),
        (OURS, TextProtocol::Http1),
        (Tool::H2load, TextProtocol::Http1),
        (Tool::Oha, TextProtocol::Http1),
        (Tool::Vegeta, TextProtocol::Http1),
        (Tool::K6, TextProtocol::Http1),
    ];
    let closed = [
        (Tool::Memcaslap, TextProtocol::Memcached),
        (Tool::Wrk, TextProtocol::Http1),
        (Tool::RedisBenchmark, TextProtocol::Resp),
    ];
    let mut cells = Vec::new();
    for service in services.iter().copied() {
        let mean_us = mean_us(service);
        for load in LOADS {
            // A multiple of 16, for tools that give each connection a whole number.
            let shape = Shape::Rate((load * 1e6 / mean_us / 16.0).round() * 16.0);
            cells.extend(open.map(|(tool, protocol)| (Cell { service, shape }, tool, protocol)));
        }
        for connections in CLOSED {
            let shape = Shape::Closed(connections, 1);
            cells.extend(closed.map(|(tool, protocol)| (Cell { service, shape }, tool, protocol)));
        }
    }
    cells.retain(|(_, tool, _)| !not_run.contains_key(&tool.name()));
    cells.into_iter().map(|(cell, tool, protocol)| Series { cell, tool, protocol, shots: Vec::new() }).collect()
}

/// The distribution of a server.
fn service(index: usize) -> Service {
    // Written above and read in a test.
    SERVICES[index].1.parse().unwrap_or(Service::Fixed(50_000.0))
}

fn mean_us(index: usize) -> f64 {
    service(index).mean_ns() / 1e3
}

/// Measures all tools with these services, by their index.
pub fn measure(bench: &Bench, services: &[usize], patience: &mut Duration) -> anyhow::Result<Section> {
    let pair = Pair::create("client")?;
    let mut runs = Runs::new(bench, &pair.client, patience);
    for tool in Tool::PEERS {
        runs.has(tool);
    }
    let seconds = if bench.quick { 2 } else { 4 };
    let mut cells = plan(services, &runs.not_run);
    let mut bases = [const { Vec::new() }; PROTOCOLS.len()];
    for round in 0..bench.rounds {
        eprintln!("bench: the idealised server, round {} of {}", round + 1, bench.rounds);
        for (protocol, bases) in PROTOCOLS.into_iter().zip(&mut bases) {
            bases.push(base(bench, &pair, protocol)?);
        }
        for service in services.iter().copied() {
            let (name, text) = SERVICES[service];
            let mut servers = Vec::new();
            for protocol in PROTOCOLS {
                servers.push((protocol, Ideal::start(&pair.server, protocol, text)?));
            }
            let pids: Vec<u32> = servers.iter().map(|(_, server)| server.pid()).collect();
            let mut these: Vec<&mut Series> = cells.iter_mut().filter(|s| s.cell.service == service).collect();
            for i in turned(these.len(), round) {
                let series = &mut these[i];
                let place = format!("{}, {}, {}", named(series), name, load_of(series.cell));
                let (_, server) =
                    servers.iter().find(|(protocol, _)| *protocol == series.protocol).context("no server")?;
                let addr = SocketAddr::new(SERVER_V4, server.port);
                let job = Job {
                    protocol: series.protocol,
                    seconds,
                    guess_per_s: 0.8e6 / mean_us(service),
                    samples: true,
                    ..runs.job(addr, series.cell.shape)?
                };
                series.shots.extend(runs.shot(&place, series.tool, &job, &pids)?);
            }
        }
    }
    cells.retain(|series| !series.shots.is_empty());
    let bases: Vec<Spread> = bases.iter().filter_map(|values| Spread::of(values)).collect();
    Ok(section(&cells, &bases, &runs.not_run, f64::from(seconds), bench.rounds))
}

/// The constant of a language, us: the median round trip at [`IDLE`] load less the service time.
fn base(bench: &Bench, pair: &Pair, protocol: TextProtocol) -> anyhow::Result<f64> {
    bench.check()?;
    let server = Ideal::start(&pair.server, protocol, SERVICES[0].1)?;
    let addr = SocketAddr::new(SERVER_V4, server.port);
    let n = if bench.quick { 400 } else { 1200 };
    let mut times_ns = pair.client.run(|| {
        pin_thread(LOAD_CPU)?;
        round_trips(|| bench.check(), addr, protocol, n, (mean_us(0) * 1e3 / IDLE) as u64)
    })??;
    times_ns.sort_unstable();
    Ok(times_ns[times_ns.len() / 2] as f64 / 1e3 - mean_us(0))
}

/// A tool's percentile less the truth, as exact as the tool reports it; `None` where there is no truth or no percentile.
struct Bias {
    /// The truth and what was measured, a value a round, us.
    truth: Vec<f64>,
    measured: Vec<Range>,
}

impl Bias {
    fn of(series: &Series, base: f64, which: usize) -> Option<Self> {
        let mut bias = Self { truth: Vec::new(), measured: Vec::new() };
        for shot in &series.shots {
            let model = Model::new(service(series.cell.service), shot.figures.per_s)?;
            bias.truth.push(model.quantile_us(QUANTILES[which]) + base);
            bias.measured.push(shot.figures.quantiles[which]?);
        }
        Some(bias)
    }

    /// The median over the rounds, us, where the tool gives numbers.
    fn median(&self) -> Option<f64> {
        let exact = self.measured.iter().all(|range| range.low == range.high);
        let errors_us: Vec<f64> = self.measured.iter().zip(&self.truth).map(|(m, t)| m.high - t).collect();
        exact.then_some(())?;
        Spread::of(&errors_us).map(|s| s.median)
    }

    /// `412 (+3)`: measured and bias; `256-512` where the tool has bins.
    fn text(&self) -> String {
        let low: Vec<f64> = self.measured.iter().map(|range| range.low).collect();
        let high: Vec<f64> = self.measured.iter().map(|range| range.high).collect();
        let (Some(low), Some(high)) = (Spread::of(&low), Spread::of(&high)) else { return String::new() };
        match self.median() {
            Some(bias) => format!("{:.0} ({bias:+.0})", high.median),
            None => format!("{:.0}–{:.0}", low.median, high.median),
        }
    }
}

fn base_of(bases: &[Spread], protocol: TextProtocol) -> f64 {
    PROTOCOLS.iter().position(|s| *s == protocol).and_then(|i| bases.get(i)).map_or(0.0, |spread| spread.median)
}

fn named(series: &Series) -> String {
    let protocol = match series.protocol {
        TextProtocol::Memcached => "memcached",
        TextProtocol::Resp => "Redis",
        TextProtocol::Http1 => "HTTP",
    };
    format!("{} ({protocol})", series.tool.name())
}

fn load_of(cell: Cell) -> String {
    match cell.shape {
        Shape::Rate(rate) => format!("{:.0} %", rate * mean_us(cell.service) / 1e4),
        Shape::Closed(1, _) => "closed, 1 connection".to_owned(),
        Shape::Closed(n, _) => format!("closed, {n} connections"),
    }
}

/// The tables.
fn section(all: &[Series], bases: &[Spread], not_run: &BTreeMap<String, String>, seconds: f64, rounds: u32) -> Section {
    let mut section = Section { title: "Against a server whose service times are known".into(), ..Section::default() };
    for (i, protocol) in PROTOCOLS.iter().enumerate() {
        let name = format!("round trip of an idle server less its service time ({protocol:?})");
        let text = bases.get(i).map_or("not measured".into(), |base| format!("{} us", base.text(1)));
        section.rows.push(Row::fact(name, text, "one polling connection, 2 % load, without kernel stamps"));
    }
    for (index, (name, text)) in SERVICES.iter().enumerate() {
        if !all.iter().any(|series| series.cell.service == index) {
            continue;
        }
        for load in [0.5, 0.8] {
            section.rows.extend(headline(all, bases, index, name, load));
        }
        section.notes += &format!(
            "\n**{name}** service times (`{text}`), us; in parentheses the bias: measured less the ideal server's value at the rate\nreached. `±`: two standard deviations of the median of {rounds} windows of {seconds} s of the ideal server itself, p99.\n\n"
        );
        let rows = all.iter().filter(|series| series.cell.service == index).map(|series| row(series, bases, seconds));
        let head = [
            "load",
            "client",
            "arrivals",
            "rate (load)",
            "mean",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "ideal p99",
            "±",
            "verdict of p99",
        ];
        section.notes += &table(&head, rows);
    }
    section.notes += &not_run_table(not_run.iter().map(|(tool, why)| (&**tool, &**why)).chain(LEFT_OUT));
    let raw: Vec<_> = all
        .iter()
        .map(|series| {
            let shots: Vec<_> = series.shots.iter().map(super::shot_json).collect();
            let truths: Vec<_> = (0..QUANTILES.len())
                .map(|q| Bias::of(series, base_of(bases, series.protocol), q).map(|bias| bias.truth))
                .collect();
            json!({"service": SERVICES[series.cell.service].1, "load": load_of(series.cell), "client": series.tool.name(),
                   "speaks": format!("{:?}", series.protocol), "shots": shots, "percentiles": NAMES, "ideal_us": truths})
        })
        .collect();
    let bases: Vec<_> = bases.iter().map(|b| json!({"median": b.median, "min": b.min, "max": b.max})).collect();
    section.raw =
        json!({"base_us": bases, "speaks": PROTOCOLS.map(|s| format!("{s:?}")), "series": raw, "not_run": not_run});
    section
}

/// tailsight's bias at p99 beside the peers', at one load.
fn headline(all: &[Series], bases: &[Spread], index: usize, name: &str, load: f64) -> Option<Row> {
    let at = |series: &&Series| {
        let Shape::Rate(rate) = series.cell.shape else { return false };
        series.cell.service == index && (rate * mean_us(index) / 1e6 - load).abs() < 0.05
    };
    let (mut ours, mut peers, mut noisy) = (Vec::new(), Vec::new(), false);
    for series in all.iter().filter(at) {
        let Some(bias) = Bias::of(series, base_of(bases, series.protocol), 2) else {
            peers.push(format!("{} did not keep the rate", named(series)));
            continue;
        };
        let text = bias.median().map_or_else(|| bias.text(), |us| format!("{us:+.0}"));
        let into = if series.tool.is_ours() { &mut ours } else { &mut peers };
        into.push(format!("{} {text}", named(series)));
        noisy |= series.tool.is_ours() && 2 * super::noisy(&series.shots) > series.shots.len();
    }
    let row =
        Row::fact(format!("bias of p99, us: {name}, {:.0} % load", 100.0 * load), ours.join("; "), peers.join("; "));
    let verdict = if noisy { GoalResult::NotQuiet } else { row.verdict };
    (!ours.is_empty()).then_some(Row { verdict, ..row })
}

/// A line of a table.
fn row(series: &Series, bases: &[Spread], seconds: f64) -> Vec<String> {
    let base = base_of(bases, series.protocol);
    let rates: Vec<f64> = series.shots.iter().map(|shot| shot.figures.per_s).collect();
    let rate = Spread::of(&rates).map_or(0.0, |spread| spread.median);
    let model = Model::new(service(series.cell.service), rate);
    let reached = rate * mean_us(series.cell.service) / 1e4;
    let mut cells = vec![
        load_of(series.cell),
        named(series),
        series.tool.arrivals().to_owned(),
        format!("{} ({reached:.0} %)", thousands(rate.round() as u64)),
        mean(series, base),
    ];
    for which in 0..QUANTILES.len() {
        let plain = || {
            let ranges = || series.shots.iter().filter_map(|shot| shot.figures.quantiles[which]);
            let low = Spread::of(&ranges().map(|range| range.low).collect::<Vec<_>>());
            let high = Spread::of(&ranges().map(|range| range.high).collect::<Vec<_>>());
            match (low, high) {
                (Some(low), Some(high)) if low.median < high.median => format!("{:.0}–{:.0}", low.median, high.median),
                (_, Some(high)) => format!("{:.0}", high.median),
                _ => "–".to_owned(),
            }
        };
        cells.push(Bias::of(series, base, which).map_or_else(plain, |bias| bias.text()));
    }
    match model {
        Some(model) => {
            cells.push(format!("{:.0}", model.quantile_us(0.99) + base));
            // The median of n normal values varies by √(π/2n) of what one varies.
            let median = (std::f64::consts::FRAC_PI_2 / series.shots.len() as f64).sqrt().min(1.0);
            cells.push(format!("{:.0}", 2.0 * median * model.spread_us(&[0.99], seconds, WINDOWS)[0]));
        }
        None => cells.extend(["none: saturated".to_owned(), String::new()]),
    }
    cells.push(verdicts(series, base));
    cells
}

/// The mean with its bias, as [`Bias::text`].
fn mean(series: &Series, base: f64) -> String {
    let means: Vec<f64> = series.shots.iter().filter_map(|shot| shot.figures.mean_us).collect();
    let biases: Vec<f64> = series
        .shots
        .iter()
        .filter_map(|shot| {
            let model = Model::new(service(series.cell.service), shot.figures.per_s)?;
            Some(shot.figures.mean_us? - model.mean_us() - base)
        })
        .collect();
    match (Spread::of(&means), Spread::of(&biases)) {
        (Some(mean), Some(bias)) if means.len() == biases.len() => format!("{:.0} ({:+.0})", mean.median, bias.median),
        (Some(mean), _) => format!("{:.0}", mean.median),
        _ => "–".to_owned(),
    }
}

/// tailsight's verdicts: how many intervals, how many of them hold the truth, what the others failed.
fn verdicts(series: &Series, base: f64) -> String {
    let (mut numbers, mut holding, mut failed) = (0, 0, BTreeMap::<&str, u32>::new());
    for shot in &series.shots {
        match &shot.figures.verdict {
            None => return String::new(),
            Some(Err(id)) => *failed.entry(id).or_default() += 1,
            Some(Ok((low, high))) => {
                numbers += 1;
                let truth =
                    Model::new(service(series.cell.service), shot.figures.per_s).map(|m| m.quantile_us(0.99) + base);
                holding += u32::from(truth.is_some_and(|truth| (*low..=*high).contains(&truth)));
            }
        }
    }
    let failed: Vec<String> = failed.iter().map(|(id, n)| format!("{n} N/A: {id}")).collect();
    let mut parts =
        if numbers > 0 { vec![format!("{numbers} intervals, {holding} hold the ideal")] } else { Vec::new() };
    parts.extend(failed);
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_has_a_mean_of_50_us_and_a_model() {
        for (i, (name, text)) in SERVICES.iter().enumerate() {
            assert!(text.parse::<Service>().is_ok());
            assert!((mean_us(i) - 50.0).abs() < 0.01, "{name}");
            assert!(Model::new(service(i), 16_000.0).is_some());
        }
    }

    #[test]
    fn rates_divide_by_sixteen_connections_and_are_the_load() {
        for series in plan(&[0, 1, 2], &BTreeMap::new()) {
            if let Shape::Rate(rate) = series.cell.shape {
                // h2load takes a whole number a connection.
                assert_eq!(rate % 16.0, 0.0);
                let load = rate * mean_us(series.cell.service) / 1e6;
                assert!(LOADS.iter().any(|l| (l - load).abs() < 0.001), "{load}");
            }
        }
    }

    #[test]
    fn a_bias_is_measured_less_the_truth_at_the_rate_reached() {
        let figures = super::super::parse::Figures {
            per_s: 16_000.0,
            quantiles: [None, None, Some(Range::exact(1200.0)), Some(Range { low: 1024.0, high: 2048.0 })],
            ..Default::default()
        };
        let shots = vec![Shot { figures, cpu_s: 1.0, others: 0.0, seen: None }];
        let cell = Cell { service: 1, shape: Shape::Rate(16_000.0) };
        let series = Series { cell, tool: Tool::Memcaslap, protocol: TextProtocol::Memcached, shots };
        let bias = Bias::of(&series, 20.0, 2).unwrap();
        // 250 us × ln 100 + 20 us.
        assert!((bias.median().unwrap() - (1200.0 - 1171.29)).abs() < 0.01);
        assert_eq!(bias.text(), "1200 (+29)");
        assert_eq!(Bias::of(&series, 20.0, 3).unwrap().text(), "1024–2048");
        assert!(Bias::of(&series, 20.0, 0).is_none());
    }
}
