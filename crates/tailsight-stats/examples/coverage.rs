//! Coverage of the whole method by Monte Carlo: how often the interval of a p99 that was *not refused* holds the true p99, and
//! how often experiments that are wrong are refused, and what is believed of clients that are late. Prints markdown;
//! `--json FILE` writes the same as JSON.
//!
//! `cargo run --release -p tailsight-stats --example coverage -- [--experiments 2000] [--truth 400000000] [--part good|bad|late|shared|short] [--only TEXT]`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

#[path = "support/sim.rs"]
mod sim;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use sim::{Fault, Server, Shared, World, truth};
use tailsight_stats::method::{
    Arrivals, CheckId, Config, IntervalMethod, Method, MethodOutcome, MethodResult, PercentileResult, Step,
};
use tailsight_stats::quantile::quantile;
use tailsight_stats::random::mix;

/// Requests that a simulated experiment may send.
const BUDGET: u64 = 3_000_000;

fn experiment(server: Server, load: f64, fault: Fault, seed: u64) -> MethodResult {
    experiment_for(&["p99:10%@95"], BUDGET, World::new(server, load, fault, seed), seed)
}

fn experiment_for(targets: &[&str], max_requests: u64, mut world: World, seed: u64) -> MethodResult {
    let targets = targets.iter().map(|target| target.parse().expect("a target")).collect();
    let config = Config { max_requests, seed, ..Config::new(targets, Arrivals::Exponential) };
    let mut method = Method::new(config).expect("sound settings");
    loop {
        match method.step() {
            Step::Load { seconds } => method.on_load(&[world.load(seconds)]),
            Step::Measure { samples, sampling_rate } => method.on_batch(world.batch(samples, sampling_rate)),
            Step::Done(verdict) => return *verdict,
        }
    }
}

/// All experiments of a case, on every core, in the order of their seeds.
fn all(server: Server, load: f64, fault: Fault, experiments: usize) -> Vec<MethodResult> {
    // Streams of their own: cases that share seeds would share their luck.
    let seed = |i| mix((load * 100.0) as u64 * 10 + server as u64, i as u64);
    on_every_core(experiments, |i| experiment(server, load, fault, seed(i)))
}

fn on_every_core<T: Send>(experiments: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= experiments {
                        break;
                    }
                    let verdict = run(i);
                    done.lock().expect("no panic").insert(i, verdict);
                }
            });
        }
    });
    done.into_inner().expect("no panic").into_values().collect()
}

fn refusals(verdicts: &[MethodResult]) -> BTreeMap<String, usize> {
    let mut by_reason = BTreeMap::new();
    for verdict in verdicts {
        if let MethodOutcome::NotAvailable(refusal) = &verdict.outcome {
            *by_reason.entry(id(refusal.failed.id)).or_insert(0) += 1;
        }
    }
    by_reason
}

fn id(check: CheckId) -> String {
    serde_json::to_value(check).ok().and_then(|v| v.as_str().map(String::from)).unwrap_or_default()
}

fn listed(reasons: &BTreeMap<String, usize>) -> String {
    reasons.iter().map(|(reason, n)| format!("{reason} {n}")).collect::<Vec<_>>().join(", ")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn good(experiments: usize, truth_requests: u64, only: &str) -> Vec<serde_json::Value> {
    println!(
        "| server | load | experiments | true p99, us | believed | refused | coverage | too low / too high | independent | dependent | requests, median | width, median |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut rows = Vec::new();
    for server in Server::ALL {
        for load in [0.2, 0.5, 0.8] {
            if !format!("{} {load}", server.name()).contains(only) {
                continue;
            }
            let p99 = truth(server, load, 0.99, truth_requests, 7);
            let verdicts = all(server, load, Fault::None, experiments);
            let mut kinds = [[0usize; 2]; 2];
            let (mut low, mut high, mut widths) = (0, 0, Vec::new());
            for verdict in &verdicts {
                if let MethodOutcome::Number(number) = &verdict.outcome {
                    let p = &number.percentiles[0];
                    let dependent = usize::from(p.how != IntervalMethod::OrderStatistic);
                    let holds = p.lower_ns <= p99 && p99 <= p.upper_ns;
                    kinds[dependent][usize::from(holds)] += 1;
                    low += usize::from(p.upper_ns < p99);
                    high += usize::from(p.lower_ns > p99);
                    widths.push((p.upper_ns - p.lower_ns) / p99);
                }
            }
            let believed: usize = kinds.iter().flatten().sum();
            let holds = kinds[0][1] + kinds[1][1];
            let coverage = 100.0 * holds as f64 / believed.max(1) as f64;
            let kind = |k: [usize; 2]| {
                if k[0] + k[1] == 0 {
                    "–".into()
                } else {
                    format!("{:.1} % of {}", 100.0 * k[1] as f64 / (k[0] + k[1]) as f64, k[0] + k[1])
                }
            };
            let requests = median(verdicts.iter().map(|v| v.requests as f64).collect());
            let reasons = refusals(&verdicts);
            println!(
                "| {} | {:.0} % | {experiments} | {:.1} | {believed} | {} | **{coverage:.1} %** | {low} / {high} | {} | {} | {requests:.0} | {:.1} % |",
                server.name(),
                load * 100.0,
                p99 / 1e3,
                if reasons.is_empty() { "0".into() } else { listed(&reasons) },
                kind(kinds[0]),
                kind(kinds[1]),
                100.0 * median(widths.clone()),
            );
            rows.push(json!({"server": server.name(), "load": load, "true_p99_ns": p99, "experiments": experiments,
                "believed": believed, "holds": holds, "too_low": low, "too_high": high,
                "independent": kinds[0][0] + kinds[0][1], "independent_holds": kinds[0][1],
                "dependent": kinds[1][0] + kinds[1][1], "dependent_holds": kinds[1][1],
                "refused": reasons, "requests_median": requests, "width_median": median(widths)}));
        }
    }
    rows
}

fn bad(experiments: usize, only: &str) -> Vec<serde_json::Value> {
    let cases: [(&str, f64, Fault); 18] = [
        ("drifting: service times +25 % per batch, linear", 0.2, Fault::Linear(0.25)),
        ("drifting: service times +25 % per batch, linear", 0.5, Fault::Linear(0.25)),
        ("drifting: service times +25 % per batch, linear", 0.8, Fault::Linear(0.25)),
        ("drifting: service times a random walk, 20 % per batch", 0.2, Fault::Walk(0.2)),
        ("drifting: service times a random walk, 20 % per batch", 0.5, Fault::Walk(0.2)),
        ("drifting: service times a random walk, 20 % per batch", 0.8, Fault::Walk(0.2)),
        ("drifting: only the tail, slow requests 1 % → 3 % per batch", 0.2, Fault::Tail(0.02)),
        ("drifting: only the tail, slow requests 1 % → 3 % per batch", 0.5, Fault::Tail(0.02)),
        ("overload: 102 % load", 1.02, Fault::None),
        ("closed-loop-limited: 4 connections", 0.8, Fault::Connections(4)),
        ("closed-loop-limited: 8 connections", 0.8, Fault::Connections(8)),
        ("closed-loop-limited: 4 connections, schedule hidden", 0.8, Fault::HiddenConnections(4)),
        ("wrong arrivals: fixed", 0.5, Fault::FixedArrivals),
        ("wrong arrivals: uniform", 0.5, Fault::UniformArrivals),
        ("wrong arrivals: lognormal σ = 1.5", 0.5, Fault::LognormalArrivals),
        ("wrong arrivals: Poisson on a 10 us timer", 0.5, Fault::Ticks(10_000.0)),
        ("wrong arrivals: rate switching ×1.5 / ×0.5", 0.5, Fault::Bursty),
        ("missed load: 5 % of requests not sent", 0.5, Fault::MissedLoad),
    ];
    println!("\n| experiment (M/M/1) | load | experiments | refused | by |\n|---|---|---|---|---|");
    let mut rows = Vec::new();
    for (name, load, fault) in cases.into_iter().filter(|(name, ..)| name.contains(only)) {
        let verdicts = all(Server::Exponential, load, fault, experiments);
        let reasons = refusals(&verdicts);
        let refused: usize = reasons.values().sum();
        let share = 100.0 * refused as f64 / verdicts.len() as f64;
        println!("| {name} | {:.0} % | {experiments} | **{share:.1} %** | {} |", load * 100.0, listed(&reasons));
        rows.push(json!({"case": name, "load": load, "experiments": experiments, "refused": refused, "by": reasons}));
    }
    rows
}

/// Replies that share a stamp: does what is believed hold the percentile of a client that stamps each by itself?
fn shared(experiments: usize, truth_requests: u64, only: &str) -> Vec<serde_json::Value> {
    let often = |how| Fault::SharedReads(4, 20_000.0, how);
    let seldom = |how| Fault::SharedReads(1, 100_000.0, how);
    let cases = [
        ("4 connections read every 20 us: bounded", often(Shared::Bounded)),
        ("4 connections read every 20 us: left out", often(Shared::LeftOut)),
        ("4 connections read every 20 us: ignored", often(Shared::Ignored)),
        ("1 connection read every 100 us: bounded", seldom(Shared::Bounded)),
        ("1 connection read every 100 us: left out", seldom(Shared::LeftOut)),
        ("1 connection read every 100 us: ignored", seldom(Shared::Ignored)),
    ];
    disturbed(&cases, experiments, truth_requests, only)
}

/// Clients that are late: does what is believed hold the percentile of a punctual client?
fn late(experiments: usize, truth_requests: u64, only: &str) -> Vec<serde_json::Value> {
    let cases: [(&str, Fault); 5] = [
        ("late client: a send takes 1 us", Fault::LateClient(1_000.0, 0.0, 0.0)),
        ("late client: a send takes 4 us", Fault::LateClient(4_000.0, 0.0, 0.0)),
        ("late client: 1 us, and 0.1 % woken 100 us late", Fault::LateClient(1_000.0, 0.001, 100_000.0)),
        ("late client: 1 us, and 0.3 % woken 100 us late", Fault::LateClient(1_000.0, 0.003, 100_000.0)),
        ("late client: 1 us, and 2 % woken 100 us late", Fault::LateClient(1_000.0, 0.02, 100_000.0)),
    ];
    disturbed(&cases, experiments, truth_requests, only)
}

fn disturbed(cases: &[(&str, Fault)], experiments: usize, truth_requests: u64, only: &str) -> Vec<serde_json::Value> {
    println!(
        "\n| client | server | load | experiments | believed | coverage | too low / too high | refused by | of these with bounds | that hold it |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut rows = Vec::new();
    for (name, fault) in cases.iter().copied().filter(|(name, _)| name.contains(only)) {
        for (server, load) in [
            (Server::Exponential, 0.2),
            (Server::Exponential, 0.5),
            (Server::Exponential, 0.8),
            (Server::Lognormal, 0.5),
        ] {
            let p99 = truth(server, load, 0.99, truth_requests, 7);
            let verdicts = all(server, load, fault, experiments);
            let (mut believed, mut low, mut high, mut bounded, mut bounding) = (0, 0, 0, 0, 0);
            for verdict in &verdicts {
                match &verdict.outcome {
                    MethodOutcome::Number(number) => {
                        let p = &number.percentiles[0];
                        believed += 1;
                        low += usize::from(p.upper_ns < p99);
                        high += usize::from(p.lower_ns > p99);
                    }
                    MethodOutcome::NotAvailable(refusal) => {
                        for p in refusal.passed.iter().chain(&refusal.bounds) {
                            bounded += 1;
                            bounding += usize::from(p.lower_ns <= p99 && p99 <= p.upper_ns);
                        }
                    }
                }
            }
            let reasons = refusals(&verdicts);
            let holds = believed - low - high;
            let coverage =
                if believed == 0 { "–".into() } else { format!("{:.1} %", 100.0 * holds as f64 / believed as f64) };
            println!(
                "| {name} | {} | {:.0} % | {experiments} | {believed} | **{coverage}** | {low} / {high} | {} | {bounded} | {bounding} |",
                server.name(),
                load * 100.0,
                listed(&reasons)
            );
            rows.push(json!({"case": name, "server": server.name(), "load": load, "experiments": experiments,
                "believed": believed, "holds": holds, "too_low": low, "too_high": high, "refused": reasons,
                "bounded": bounded, "bounds_hold": bounding}));
        }
    }
    rows
}

/// Short experiments in which something is wrong with the samples, or they are few: does each answer that is given hold the truth, be it as
/// narrow as asked or less, and how many are of use (at most half as wide as the percentile)?
///
/// The truth is the long run's where the server has one; where it drifts, that of the same drift, asked again by other clients.
fn short(experiments: usize, only: &str) -> Vec<serde_json::Value> {
    const PERCENTILES: [(&str, f64); 3] = [("p50:10%@95", 0.5), ("p90:10%@95", 0.9), ("p99:10%@95", 0.99)];
    /// Clients that ask for the truth, and requests of each of them.
    const CLIENTS: u64 = 40;
    let cases: [(&str, f64, Fault, u64); 11] = [
        ("nothing wrong", 0.5, Fault::None, 20_000),
        ("nothing wrong", 0.5, Fault::None, 100_000),
        ("nothing wrong, long queues", 0.8, Fault::None, 20_000),
        ("nothing wrong, long queues", 0.8, Fault::None, 100_000),
        ("nothing wrong, very long queues", 0.95, Fault::None, 100_000),
        ("stops of 1 ms every 20 ms", 0.3, Fault::Stopped(1e6, 20e6), 100_000),
        ("stops of 20 ms every 200 ms", 0.3, Fault::Stopped(20e6, 200e6), 100_000),
        ("half a core stolen in short spells", 0.3, Fault::Stolen(0.02), 100_000),
        ("half a core stolen in long spells", 0.3, Fault::Stolen(0.2), 100_000),
        ("service times +25 % per 50,000 requests", 0.3, Fault::Linear(0.25), 100_000),
        ("service times a random walk", 0.3, Fault::Walk(0.2), 100_000),
    ];
    println!(
        "\n| M/M/1 | load | requests | percentile | as narrow as asked | hold the truth | wider | hold it | its level moves | hold it | none | of use |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut rows = Vec::new();
    for (name, load, fault, budget) in cases.into_iter().filter(|(name, ..)| name.contains(only)) {
        let targets = PERCENTILES.map(|(target, _)| target);
        let seed = |i: usize| mix((load * 100.0) as u64 + budget, i as u64);
        let drifts = matches!(fault, Fault::Linear(_) | Fault::Walk(_));
        let of_clients = |path: u64, most: u64| {
            let mut latencies: Vec<f64> = Vec::new();
            for client in 0..CLIENTS {
                let world = World::new(Server::Exponential, load, fault, mix(path, 1_000 + client));
                let mut world = if drifts { world.on_path_of(path) } else { world };
                world.load(1.0);
                let batch = world.batch(most as usize, 1.0);
                latencies.extend(batch.agents[0].samples.iter().map(|s| s.latency_ns));
            }
            latencies.sort_unstable_by(f64::total_cmp);
            PERCENTILES.map(|(_, q)| quantile(&latencies, q).expect("samples"))
        };
        let steady = if drifts { [0.0; 3] } else { of_clients(9, 2_000_000) };
        let results = on_every_core(experiments, |i| {
            let world = World::new(Server::Exponential, load, fault, seed(i));
            let result = experiment_for(&targets, budget, world, seed(i));
            let truth = if drifts { of_clients(seed(i), result.requests) } else { steady };
            (result, truth)
        });
        for (k, (target, _)) in PERCENTILES.iter().enumerate() {
            // Answers by kind, and how many of them hold the truth: as narrow as asked, wider, by a level that moves.
            let (mut answers, mut holding, mut useful) = ([0_usize; 3], [0_usize; 3], 0);
            for (result, truth) in &results {
                let known: Vec<(&PercentileResult, usize)> = match &result.outcome {
                    MethodOutcome::Number(number) => number.percentiles.iter().map(|p| (p, 0)).collect(),
                    MethodOutcome::NotAvailable(refusal) => {
                        let passed = refusal.passed.iter().map(|p| (p, 0));
                        let kind = |p: &PercentileResult| {
                            1 + usize::from(matches!(p.how, IntervalMethod::SelfNormalised { .. }))
                        };
                        passed.chain(refusal.bounds.iter().map(|p| (p, kind(p)))).collect()
                    }
                };
                let Some((p, kind)) = known.into_iter().find(|(p, _)| p.target.to_string() == *target) else {
                    continue;
                };
                answers[kind] += 1;
                holding[kind] += usize::from(p.lower_ns <= truth[k] && truth[k] <= p.upper_ns);
                useful += usize::from(p.upper_ns - p.lower_ns <= 0.5 * p.value_ns);
            }
            let none = experiments - answers.iter().sum::<usize>();
            let share = |kind: usize| match answers[kind] {
                0 => "–".into(),
                n => format!("{:.1} %", 100.0 * holding[kind] as f64 / n as f64),
            };
            println!(
                "| {name} | {:.0} % | {budget} | {} | {} | {} | {} | {} | {} | {} | {none} | {useful} |",
                100.0 * load,
                target.split(':').next().unwrap_or_default(),
                answers[0],
                share(0),
                answers[1],
                share(1),
                answers[2],
                share(2),
            );
            rows.push(
                json!({"case": name, "load": load, "requests": budget, "target": target, "experiments": experiments,
                "answers": answers, "hold": holding, "none": none, "useful": useful}),
            );
        }
    }
    rows
}

fn only_of(arguments: &[String]) -> &str {
    arguments.iter().position(|a| a == "--only").and_then(|i| arguments.get(i + 1)).map_or("", String::as_str)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1));
    if let Some(seed) = value("--one") {
        let server = Server::ALL.into_iter().find(|s| s.name().starts_with(only_of(&arguments))).expect("a server");
        let load = value("--load").map_or(0.5, |v| v.parse().expect("a load"));
        let verdict = experiment(server, load, Fault::None, seed.parse().expect("a seed"));
        return println!("{}", serde_json::to_string_pretty(&verdict).expect("plain data"));
    }
    let number = |name: &str, default: u64| value(name).map_or(default, |v| v.parse().expect("a number"));
    let (experiments, requests) = (number("--experiments", 2_000) as usize, number("--truth", 400_000_000));
    let only = only_of(&arguments);
    let part = value("--part").map_or("both", String::as_str);
    let late = if matches!(part, "both" | "late") { late(experiments, requests, only) } else { Vec::new() };
    let short = if matches!(part, "both" | "short") { short(experiments, only) } else { Vec::new() };
    let shared = if matches!(part, "both" | "shared") { shared(experiments, requests, only) } else { Vec::new() };
    let good = if matches!(part, "bad" | "late" | "shared" | "short") {
        Vec::new()
    } else {
        good(experiments, requests, only)
    };
    let bad = if matches!(part, "good" | "late" | "shared" | "short") { Vec::new() } else { bad(experiments, only) };
    if let Some(file) = value("--json") {
        let text = serde_json::to_string_pretty(
            &json!({"good": good, "bad": bad, "late": late, "shared": shared, "short": short}),
        )
        .expect("plain data");
        std::fs::write(file, text).expect("the JSON file can be written");
    }
}
