//! False-alarm rate and power of every test by simulation. Prints a markdown table; `--json FILE` writes the same as JSON.
//!
//! `cargo run --release -p tailsight-stats --example false_alarms -- [--runs 2000] [--only TEXT]`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use serde_json::json;
use tailsight_stats::adf::{Lags, Trend, adf};
use tailsight_stats::distributions::{Inverse, Lognormal, Pareto};
use tailsight_stats::random::{Random, mix};
use tailsight_stats::{anderson, compare, drift, effective, kpss, quantile, spearman, warmup};

fn exponentials(random: &mut Random, n: usize) -> Vec<f64> {
    (0..n).map(|_| -random.uniform().ln()).collect()
}

/// Response times of an M/M/1 queue at this load, every `every`-th request on average, at random.
fn queue(random: &mut Random, n: usize, load: f64, every: f64, mut slowness: impl FnMut(f64) -> f64) -> Vec<f64> {
    let mut wait: f64 = 0.0;
    let mut out = Vec::with_capacity(n);
    let mut i = -5_000.0;
    while out.len() < n {
        wait = (wait + random.uniform().ln() / load).max(0.0);
        let service = -random.uniform().ln() * slowness((i / (n as f64 * every)).max(0.0));
        if i >= 0.0 && random.uniform() * every < 1.0 {
            out.push(wait + service);
        }
        wait += service;
        i += 1.0;
    }
    out
}

fn autoregressive(random: &mut Random, n: usize, phi: f64) -> Vec<f64> {
    let mut x = 0.0;
    let mut step = || {
        x = phi * x + random.normal();
        x
    };
    (0..200).for_each(|_| {
        step();
    });
    (0..n).map(|_| step()).collect()
}

fn walk(random: &mut Random, n: usize) -> Vec<f64> {
    let mut x = 0.0;
    (0..n)
        .map(|_| {
            x += random.normal();
            x
        })
        .collect()
}

fn drift_p(series: &[f64]) -> f64 {
    effective::batches(series).and_then(|b| drift::drift(&b.means, 499, 1).ok()).map_or(1.0, |d| d.p_value)
}

fn tail_drift_p(series: &[f64]) -> f64 {
    let threshold = quantile::quantile(&quantile::sorted(series.to_vec()), 0.99).unwrap_or(f64::NAN);
    drift_p(&series.iter().map(|x| f64::from(u8::from(*x > threshold))).collect::<Vec<_>>())
}

fn kpss_p(series: &[f64], lags: Option<usize>) -> f64 {
    kpss::kpss(series, Trend::Constant, lags).map_or(1.0, |k| k.p_value)
}

fn adf_p(series: &[f64]) -> f64 {
    adf(series, Trend::Constant, Lags::Aic).map_or(1.0, |a| a.p_value)
}

fn a2_p(result: Result<anderson::Anderson, tailsight_stats::Error>) -> f64 {
    result.map_or(0.0, |a| a.p_value)
}

fn clusters_p(random: &mut Random, pause: usize) -> f64 {
    let mut x = exponentials(random, 10_000);
    for _ in 0..100 / pause {
        let start = random.below(10_000 - pause);
        x[start..start + pause].iter_mut().for_each(|v| *v += 20.0);
    }
    let threshold = quantile::quantile(&quantile::sorted(x.clone()), 0.99).unwrap_or(f64::NAN);
    spearman::clustering(&x, threshold).p_value
}

type Case = (&'static str, &'static str, bool, Box<dyn Fn(&mut Random) -> f64>);

/// (test, data, whether the hypothesis is true, p-value of one run).
fn cases() -> Vec<Case> {
    fn case(test: &'static str, data: &'static str, good: bool, p: impl Fn(&mut Random) -> f64 + 'static) -> Case {
        (test, data, good, Box::new(p))
    }
    let exponential = "Anderson-Darling, exponential, estimated mean, n = 4,096";
    let none = |_: f64| 1.0;
    vec![
        case(exponential, "Poisson", true, |r| a2_p(anderson::exponential(&exponentials(r, 4_096)))),
        case(exponential, "Weibull, shape 1.05", false, |r| {
            let x: Vec<f64> = exponentials(r, 4_096).into_iter().map(|x| x.powf(1.0 / 1.05)).collect();
            a2_p(anderson::exponential(&x))
        }),
        case(exponential, "Poisson, 5 % of the gaps cut to zero", false, |r| {
            let x: Vec<f64> =
                exponentials(r, 4_096).into_iter().map(|x| if r.uniform() < 0.05 { 1e-3 } else { x }).collect();
            a2_p(anderson::exponential(&x))
        }),
        case("Anderson-Darling, lognormal, estimated, n = 1,000", "lognormal, σ = 1.5", true, |r| {
            let d = Lognormal { mu: 0.0, sigma: 1.5 };
            a2_p(anderson::lognormal(&(0..1_000).map(|_| d.inverse(r.uniform())).collect::<Vec<_>>()))
        }),
        case("Anderson-Darling, lognormal, estimated, n = 1,000", "exponential", false, |r| {
            a2_p(anderson::lognormal(&exponentials(r, 1_000)))
        }),
        case("Anderson-Darling, Pareto, estimated, n = 1,000", "Pareto, shape 1.5", true, |r| {
            let d = Pareto { scale: 2.0, shape: 1.5 };
            a2_p(anderson::pareto(&(0..1_000).map(|_| d.inverse(r.uniform())).collect::<Vec<_>>()))
        }),
        case("Anderson-Darling, Pareto, estimated, n = 1,000", "lognormal, σ = 1", false, |r| {
            let d = Lognormal { mu: 0.0, sigma: 1.0 };
            a2_p(anderson::pareto(&(0..1_000).map(|_| d.inverse(r.uniform())).collect::<Vec<_>>()))
        }),
        case("Anderson-Darling, two samples of 2,000", "both exponential", true, |r| {
            a2_p(anderson::two_sample(&exponentials(r, 2_000), &exponentials(r, 2_000)))
        }),
        case("Anderson-Darling, two samples of 2,000", "one 15 % slower", false, |r| {
            let slow: Vec<f64> = exponentials(r, 2_000).into_iter().map(|x| 1.15 * x).collect();
            a2_p(anderson::two_sample(&slow, &exponentials(r, 2_000)))
        }),
        case("augmented Dickey-Fuller, AIC lags, n = 1,000", "random walk (its hypothesis)", true, |r| {
            adf_p(&walk(r, 1_000))
        }),
        case("augmented Dickey-Fuller, AIC lags, n = 1,000", "AR(1), φ = 0.9 (stationary)", false, |r| {
            adf_p(&autoregressive(r, 1_000, 0.9))
        }),
        case(
            "augmented Dickey-Fuller, AIC lags, n = 1,000",
            "noise on a drifting mean: should *not* pass",
            false,
            |r| adf_p(&(0..1_000).map(|i| 1e-3 * f64::from(i) + r.normal()).collect::<Vec<_>>()),
        ),
        case("KPSS, automatic lags, n = 20,000", "independent", true, |r| kpss_p(&exponentials(r, 20_000), None)),
        case("KPSS, automatic lags, n = 20,000", "AR(1), φ = 0.95 (stationary)", true, |r| {
            kpss_p(&autoregressive(r, 20_000, 0.95), None)
        }),
        case("KPSS, automatic lags, n = 20,000", "M/M/1 at 80 %, 1 in 5 (stationary)", true, move |r| {
            kpss_p(&queue(r, 20_000, 0.8, 5.0, none), None)
        }),
        case("drift (ours), n = 20,000", "independent", true, |r| drift_p(&exponentials(r, 20_000))),
        case("drift (ours), n = 20,000", "AR(1), φ = 0.95 (stationary)", true, |r| {
            drift_p(&autoregressive(r, 20_000, 0.95))
        }),
        case("drift (ours), n = 20,000", "M/M/1 at 80 %, 1 in 5 (stationary)", true, move |r| {
            drift_p(&queue(r, 20_000, 0.8, 5.0, none))
        }),
        case("drift (ours), n = 20,000", "M/M/1 at 20 %, service times +5 % over the run", false, |r| {
            drift_p(&queue(r, 20_000, 0.2, 5.0, |t| 1.0 + 0.05 * t))
        }),
        case("drift (ours), n = 20,000", "M/M/1 at 20 %, service times +10 % half-way", false, |r| {
            drift_p(&queue(r, 20_000, 0.2, 5.0, |t| if t > 0.5 { 1.1 } else { 1.0 }))
        }),
        case("drift (ours), n = 20,000", "M/M/1 at 80 %, service times +10 % over the run", false, |r| {
            drift_p(&queue(r, 20_000, 0.8, 5.0, |t| 1.0 + 0.1 * t))
        }),
        case("KPSS, automatic lags, n = 20,000", "M/M/1 at 20 %, service times +5 % over the run", false, |r| {
            kpss_p(&queue(r, 20_000, 0.2, 5.0, |t| 1.0 + 0.05 * t), None)
        }),
        case("tail drift (ours), p99, n = 20,000", "M/M/1 at 20 % (stationary)", true, move |r| {
            tail_drift_p(&queue(r, 20_000, 0.2, 5.0, none))
        }),
        case("tail drift (ours), p99, n = 20,000", "M/M/1 at 80 % (stationary)", true, move |r| {
            tail_drift_p(&queue(r, 20_000, 0.8, 5.0, none))
        }),
        case("tail drift (ours), p99, n = 20,000", "independent, slow requests 0.5 % → 1.5 %", false, |r| {
            let slow = |r: &mut Random, i: usize| r.uniform() < 0.005 + 0.01 * i as f64 / 20_000.0;
            tail_drift_p(
                &(0..20_000).map(|i| if slow(r, i) { 50.0 } else { 0.0 } - r.uniform().ln()).collect::<Vec<_>>(),
            )
        }),
        case("Spearman autocorrelation, n = 10,000", "independent", true, |r| {
            spearman::autocorrelation(&exponentials(r, 10_000)).map_or(0.0, |a| a.p_value)
        }),
        case("Spearman autocorrelation, n = 10,000", "AR(1), φ = 0.05", false, |r| {
            spearman::autocorrelation(&autoregressive(r, 10_000, 0.05)).map_or(0.0, |a| a.p_value)
        }),
        case("Spearman autocorrelation, n = 10,000", "M/M/1 at 50 %, 1 in 20", false, move |r| {
            spearman::autocorrelation(&queue(r, 10_000, 0.5, 20.0, none)).map_or(0.0, |a| a.p_value)
        }),
        case("clusters above p99, n = 10,000", "1 % slow, each alone", true, |r| clusters_p(r, 1)),
        case("clusters above p99, n = 10,000", "1 % slow, in pauses of 2", false, |r| clusters_p(r, 2)),
        case("warm-up (MSER-5 and its test; level 0.1 %)", "none", true, |r| warm_up_p(&exponentials(r, 5_000))),
        case("warm-up (MSER-5 and its test; level 0.1 %)", "first 5 % twice as slow", false, |r| {
            let x: Vec<f64> = exponentials(r, 5_000)
                .into_iter()
                .enumerate()
                .map(|(i, x)| if i < 250 { 2.0 * x } else { x })
                .collect();
            warm_up_p(&x)
        }),
        case("permutation of p99, 5,000 against 5,000", "the same", true, |r| {
            let (a, b) = (exponentials(r, 5_000), exponentials(r, 5_000));
            compare::permutation_test(&a, &b, 0.99, 0.95, 199, r.bits()).map_or(0.0, |c| c.p_value)
        }),
        case("permutation of p99, 5,000 against 5,000", "one 15 % slower", false, |r| {
            let a: Vec<f64> = exponentials(r, 5_000).into_iter().map(|x| 1.15 * x).collect();
            let b = exponentials(r, 5_000);
            compare::permutation_test(&a, &b, 0.99, 0.95, 199, r.bits()).map_or(0.0, |c| c.p_value)
        }),
    ]
}

/// 0 when a warm-up is cut, 1 when not: the test's own level is 0.1 %, and its p-value is that of a cut chosen to be small.
fn warm_up_p(series: &[f64]) -> f64 {
    let cut = warmup::detect(&spearman::midranks(series), 0.001).is_ok_and(|end| end.cut > 0);
    if cut { 0.0 } else { 1.0 }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1));
    let runs: u64 = value("--runs").map_or(2_000, |v| v.parse().expect("a number"));
    println!("| test | data | alarms at 5 % | at 1 % | |\n|---|---|---|---|---|");
    let mut rows = Vec::new();
    let only = value("--only").map_or("", String::as_str);
    for (number, (test, data, good, p)) in cases().into_iter().enumerate().filter(|(_, c)| c.0.contains(only)) {
        let ps: Vec<f64> = (0..runs).map(|run| p(&mut Random::new(mix(number as u64, run)))).collect();
        let share = |level: f64| 100.0 * ps.iter().filter(|p| **p <= level).count() as f64 / runs as f64;
        let kind = if good { "false alarms" } else { "power" };
        println!("| {test} | {data} | {:.1} % | {:.1} % | {kind} |", share(0.05), share(0.01));
        rows.push(
            json!({"test": test, "data": data, "kind": kind, "runs": runs, "at_5": share(0.05), "at_1": share(0.01)}),
        );
    }
    if let Some(file) = value("--json") {
        std::fs::write(file, serde_json::to_string_pretty(&rows).expect("plain data"))
            .expect("the JSON file can be written");
    }
}
