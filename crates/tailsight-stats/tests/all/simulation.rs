//! Small simulations of what the examples measure at length: false alarms, power, coverage. Seeds are fixed, so the counts are.

use tailsight_stats::adf::Trend;
use tailsight_stats::distributions::{Inverse, Lognormal, Pareto};
use tailsight_stats::random::Random;
use tailsight_stats::{adf, agents, anderson, bootstrap, compare, drift, effective, kpss, quantile, spearman, warmup};

/// Share of `runs` in which `alarm` is true.
fn rate(runs: u64, mut alarm: impl FnMut(&mut Random) -> bool) -> f64 {
    (0..runs).filter(|run| alarm(&mut Random::new(77_000 + run))).count() as f64 / runs as f64
}

fn exponentials(random: &mut Random, n: usize) -> Vec<f64> {
    (0..n).map(|_| -random.uniform().ln()).collect()
}

fn autoregressive(random: &mut Random, n: usize, phi: f64) -> Vec<f64> {
    let mut x = 0.0;
    (0..n + 100)
        .map(|_| {
            x = phi * x + random.normal();
            x
        })
        .skip(100)
        .collect()
}

/// Regression: testing an estimated exponential against the critical values of a specified one never rejects, against those
/// of a normal rejects a quarter of good runs.
#[test]
fn anderson_darling_rejects_five_in_a_hundred_of_each_family() {
    let near = |share: f64| assert!((0.03..0.075).contains(&share), "{share}");
    near(rate(1_000, |r| anderson::exponential(&exponentials(r, 200)).expect("A²").p_value < 0.05));
    let lognormal = Lognormal { mu: 1.0, sigma: 1.5 };
    near(rate(1_000, |r| {
        let x: Vec<f64> = (0..200).map(|_| lognormal.inverse(r.uniform())).collect();
        anderson::lognormal(&x).expect("A²").p_value < 0.05
    }));
    let pareto = Pareto { scale: 3.0, shape: 1.3 };
    near(rate(1_000, |r| {
        let x: Vec<f64> = (0..200).map(|_| pareto.inverse(r.uniform())).collect();
        anderson::pareto(&x).expect("A²").p_value < 0.05
    }));
    near(rate(1_000, |r| {
        let (a, b) = (exponentials(r, 200), exponentials(r, 300));
        anderson::two_sample(&a, &b).expect("A²").p_value < 0.05
    }));
    near(rate(300, |r| {
        let x: Vec<f64> = exponentials(r, 50);
        let fit = |x: &[f64]| Some(x.iter().sum::<f64>() / x.len() as f64);
        let seed = r.bits();
        let cdf = |mean: &f64, x: f64| 1.0 - (-x / mean).exp();
        let inverse = |mean: &f64, u: f64| -mean * (1.0 - u).ln();
        anderson::bootstrap(&x, fit, cdf, inverse, 99, seed).expect("A²").p_value <= 0.05
    }));
}

#[test]
fn the_superposition_of_poisson_streams_is_poisson_and_that_of_fixed_ones_is_not() {
    let mut random = Random::new(4);
    let mut stream = |fixed: bool| -> Vec<i64> {
        let mut t = random.uniform() * 1e6;
        (0..3_000)
            .map(|_| {
                t += if fixed { 1e6 } else { -1e6 * random.uniform().ln() };
                t as i64
            })
            .collect()
    };
    let poisson = anderson::superposed_gaps(&[stream(false), stream(false), stream(false)]);
    let fixed = anderson::superposed_gaps(&[stream(true), stream(true)]);
    // The ends, where not all streams run, are left out.
    assert!(anderson::exponential(&poisson[..6_000]).expect("A²").p_value > 0.01);
    assert!(anderson::exponential(&fixed).expect("A²").p_value < 1e-6);
}

#[test]
fn dickey_fuller_keeps_its_level_and_passes_a_drift() {
    let unit_root = rate(400, |r| {
        let mut x = 0.0;
        let walk: Vec<f64> = (0..300)
            .map(|_| {
                x += r.normal();
                x
            })
            .collect();
        adf::adf(&walk, Trend::Constant, adf::Lags::Aic).expect("ADF").p_value < 0.05
    });
    assert!((0.02..0.10).contains(&unit_root), "{unit_root}");
    // Why there is a drift test beside it: a mean that moves by half a deviation is no unit root.
    let drifting = |r: &mut Random| -> Vec<f64> { (0..1_000).map(|i| 0.0005 * f64::from(i) + r.normal()).collect() };
    assert!(rate(100, |r| adf::adf(&drifting(r), Trend::Constant, adf::Lags::Aic).expect("ADF").p_value < 0.05) > 0.95);
    assert!(
        rate(100, |r| drift::drift(&effective::batches(&drifting(r)).expect("long").means, 499, 1)
            .expect("drift")
            .p_value
            < 0.05)
            > 0.9
    );
}

#[test]
fn drift_keeps_its_level_under_strong_dependence_where_kpss_does_not() {
    let batched = rate(300, |r| {
        let x = autoregressive(r, 20_000, 0.95);
        drift::drift(&effective::batches(&x).expect("long").means, 499, 1).expect("drift").p_value < 0.05
    });
    assert!((0.02..0.11).contains(&batched), "{batched}");
    let plain = rate(300, |r| {
        kpss::kpss(&autoregressive(r, 20_000, 0.95), Trend::Constant, Some(5)).expect("KPSS").p_value < 0.05
    });
    assert!(plain > 0.3, "{plain}");
}

#[test]
fn independence_keeps_its_level_and_finds_dependence() {
    let none = rate(400, |r| spearman::autocorrelation(&exponentials(r, 2_000)).expect("ρ").p_value < 0.05);
    assert!((0.01..0.08).contains(&none), "{none}");
    let weak = rate(100, |r| spearman::autocorrelation(&autoregressive(r, 2_000, 0.15)).expect("ρ").p_value < 0.05);
    assert!(weak > 0.99, "{weak}");
}

/// A pause that slows a hundred requests in a row is nothing to the ranks of all, and everything to the p99.
#[test]
fn clusters_of_slow_requests_are_found() {
    let clusters = |r: &mut Random, length: usize| {
        let mut x = exponentials(r, 10_000);
        for _ in 0..100 / length {
            let start = r.below(10_000 - length);
            x[start..start + length].iter_mut().for_each(|v| *v += 20.0);
        }
        let threshold = quantile::quantile(&quantile::sorted(x.clone()), 0.99).expect("p99");
        spearman::clustering(&x, threshold).p_value < 0.01
    };
    let alone = rate(300, |r| clusters(r, 1));
    assert!(alone < 0.04, "{alone}");
    assert!(rate(50, |r| clusters(r, 5)) > 0.99);
}

#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    let truth = 100f64.ln();
    let iid = rate(1_000, |r| {
        let i = quantile::interval(&quantile::sorted(exponentials(r, 2_000)), 0.99, 0.95).expect("supported");
        i.lower <= truth && truth <= i.upper
    });
    assert!((0.93..0.98).contains(&iid), "{iid}");
    // The 90th percentile of an AR(1) with φ = 0.9, whose deviation is 1/√(1 − φ²).
    let truth = 1.281_551_565_5 / (1.0f64 - 0.81).sqrt();
    let mut ignoring = 0;
    let dependent = rate(300, |r| {
        let x = autoregressive(r, 10_000, 0.9);
        let (i, e) = effective::dependent_interval(&x, 0.9, 0.95).expect("supported");
        assert!(e.effective_n < 3_000.0, "{e:?}");
        let plain = quantile::interval(&quantile::sorted(x), 0.9, 0.95).expect("supported");
        ignoring += usize::from(plain.lower <= truth && truth <= plain.upper);
        i.lower <= truth && truth <= i.upper
    });
    assert!((0.92..0.985).contains(&dependent), "{dependent}");
    assert!(ignoring < 240, "without regard to dependence {ignoring} of 300 hold");
    let block = rate(150, |r| {
        let x = autoregressive(r, 5_000, 0.9);
        let i = bootstrap::interval(&x, 0.9, 0.95, 300, 1).expect("supported").interval;
        i.lower <= truth && truth <= i.upper
    });
    assert!((0.88..0.99).contains(&block), "{block}");
}

/// With a memory of a twentieth of the series batches are too short, and partial sums need none.
#[test]
fn an_interval_of_a_wandering_level_holds_the_truth_where_that_of_batches_does_not() {
    let (mut by_batches, mut answered) = (0, 0);
    let truth = 0.0;
    let held = rate(300, |r| {
        let x = autoregressive(r, 10_000, 0.998);
        let ordered = quantile::sorted(x.clone());
        let plain = effective::dependent_interval_sorted(&x, &ordered, 0.5, 0.95);
        by_batches += usize::from(plain.is_some_and(|(i, _)| i.lower <= truth && truth <= i.upper));
        let wandering = effective::wandering_interval_sorted(&x, &ordered, 0.5, 0.95);
        answered += usize::from(wandering.is_some());
        wandering.is_some_and(|(i, _)| i.lower <= truth && truth <= i.upper)
    });
    // No interval is no claim.
    let held = held * 300.0 / answered as f64;
    assert!(held > 0.92 && answered > 200, "{held} of {answered}");
    assert!(by_batches < 270, "{by_batches} of 300");
    // What it costs where nothing is wrong.
    let mut wider = Vec::new();
    for run in 0..100 {
        let x = exponentials(&mut Random::new(run), 10_000);
        let ordered = quantile::sorted(x.clone());
        let (wandering, _) = effective::wandering_interval_sorted(&x, &ordered, 0.9, 0.95).expect("supported");
        wider.push(wandering.width() / quantile::interval(&ordered, 0.9, 0.95).expect("supported").width());
    }
    wider.sort_by(f64::total_cmp);
    assert!((1.1..1.6).contains(&wider[50]), "{}", wider[50]);
}

#[test]
fn densities_and_widths_project_the_samples_needed() {
    let mut random = Random::new(3);
    let x = quantile::sorted(exponentials(&mut random, 20_000));
    // By Bahadur: 0.01 × 0.99 × (2 × 1.96 / (0.1 × 0.01))².
    let theory = 0.0099 * (2.0 * 1.959_964 / (0.1 * 0.01f64)).powi(2);
    let density = quantile::samples_for_width_by_density(&x, 0.99, 0.95, 0.1).expect("a density") as f64;
    assert!((density / theory - 1.0).abs() < 0.3, "{density} {theory}");
    let width = quantile::interval(&x, 0.99, 0.95).expect("supported").width();
    let by_width = quantile::samples_for_width(x.len(), width, 0.1) as f64;
    assert!((by_width / theory - 1.0).abs() < 0.4, "{by_width} {theory}");
}

#[test]
fn comparisons_keep_their_level_and_see_what_is_worse() {
    let same = rate(400, |r| {
        let (a, b) = (exponentials(r, 800), exponentials(r, 500));
        compare::permutation_test(&a, &b, 0.95, 0.95, 99, r.bits()).expect("a comparison").p_value <= 0.05
    });
    assert!((0.02..0.09).contains(&same), "{same}");
    let mut held = 0;
    let worse = rate(100, |r| {
        let a: Vec<f64> = exponentials(r, 2_000).into_iter().map(|x| 1.5 * x).collect();
        let b = exponentials(r, 2_000);
        let c = compare::permutation_test(&a, &b, 0.95, 0.95, 199, r.bits()).expect("a comparison");
        let truth = 0.5 * 20f64.ln();
        held += usize::from(c.lower <= truth && truth <= c.upper);
        c.p_larger <= 0.05 && c.difference > 0.0
    });
    assert!(worse > 0.95, "{worse}");
    assert!(held >= 88, "{held}");
    // Dependent samples: single samples that change sides see differences everywhere, blocks do not.
    let dependent = |block: usize| {
        rate(200, |r| {
            let (a, b) = (autoregressive(r, 3_000, 0.9), autoregressive(r, 3_000, 0.9));
            compare::block_permutation_test(&a, &b, 0.9, 0.95, block, 99, r.bits()).expect("a comparison").p_value
                <= 0.05
        })
    };
    let (single, blocks) = (dependent(1), dependent(100));
    assert!(single > 0.2 && blocks < 0.11, "{single} {blocks}");
}

#[test]
fn confidence_below_a_limit_is_one_it_keeps() {
    let truth = 100f64.ln();
    // At a limit equal to the truth, a confidence above 95 % is wrong and may happen 5 times in 100.
    let wrong = rate(1_000, |r| compare::confidence_below(&exponentials(r, 3_000), 0.99, truth) > 0.95);
    assert!((0.02..0.07).contains(&wrong), "{wrong}");
    assert!(rate(50, |r| compare::confidence_below(&exponentials(r, 3_000), 0.99, 1.3 * truth) > 0.95) > 0.95);
    let truth = 1.281_551_565_5 / (1.0f64 - 0.81).sqrt();
    let wrong = rate(200, |r| {
        compare::confidence_below_dependent(&autoregressive(r, 10_000, 0.9), 0.9, truth).expect("long") > 0.95
    });
    assert!(wrong < 0.1, "{wrong}");
    let wrong = rate(100, |r| {
        bootstrap::confidence_below(&autoregressive(r, 5_000, 0.9), 0.9, truth, 200, 1).expect("long") > 0.95
    });
    assert!(wrong < 0.13, "{wrong}");
}

#[test]
fn a_warm_up_is_found_where_there_is_one() {
    let cold = |r: &mut Random, slow: usize| -> Vec<f64> {
        exponentials(r, 3_000).into_iter().enumerate().map(|(i, x)| if i < slow { 3.0 * x } else { x }).collect()
    };
    let none = rate(200, |r| warmup::detect(&spearman::midranks(&cold(r, 0)), 0.001).expect("long").cut > 0);
    assert!(none < 0.1, "{none}");
    let detected = rate(100, |r| {
        let end = warmup::detect(&spearman::midranks(&cold(r, 300)), 0.001).expect("long");
        (200..600).contains(&end.cut)
    });
    assert!(detected > 0.9, "{detected}");
}

/// Samples of one queue (M/M/1 at this load), each recorded by one of `k` agents; those of the first are slower by `factor`.
fn agents_of_a_queue(r: &mut Random, n: usize, k: usize, load: f64, factor: f64) -> (Vec<f64>, Vec<u16>) {
    let mut wait = 0.0_f64;
    (0..n)
        .map(|_| {
            let service = -r.uniform().ln();
            let latency = wait + service;
            wait = (latency + r.uniform().ln() / load).max(0.0);
            let agent = r.below(k) as u16;
            (if agent == 0 { factor * latency } else { latency }, agent)
        })
        .unzip()
}

fn differ(r: &mut Random, n: usize, k: usize, load: f64, factor: f64, alpha: f64) -> bool {
    let (series, who) = agents_of_a_queue(r, n, k, load, factor);
    let p99 = quantile::quantile(&quantile::sorted(series.clone()), 0.99).expect("p99");
    agents::differ(&series, &who, p99, 199, r.bits()).expect("two agents").p_value <= alpha
}

/// Agents of one queue depend on each other and on what was before: the blocks keep the level.
#[test]
fn agents_of_one_queue_are_told_apart_five_times_in_a_hundred() {
    for (k, load) in [(2, 0.5), (3, 0.8), (8, 0.5)] {
        let alarms = rate(400, |r| differ(r, 20_000, k, load, 1.0, 0.05));
        assert!((0.015..0.085).contains(&alarms), "{k} agents at {load}: {alarms}");
    }
    // Agents whose noise lasts: each is slow for spells of its own, all equally often.
    let spells = rate(300, |r| {
        let mut slow = [false; 3];
        let (series, who): (Vec<f64>, Vec<u16>) = (0..30_000)
            .map(|_| {
                let agent = r.below(3);
                if r.uniform() < 0.01 {
                    slow[agent] = r.uniform() < 0.1;
                }
                (-r.uniform().ln() * if slow[agent] { 2.0 } else { 1.0 }, agent as u16)
            })
            .unzip();
        let p99 = quantile::quantile(&quantile::sorted(series.clone()), 0.99).expect("p99");
        agents::differ(&series, &who, p99, 199, r.bits()).expect("three agents").p_value <= 0.01
    });
    // Spells as long as a fifth of a block cost some of the level: at the method's 1 % it stays below 5 %.
    assert!(spells < 0.05, "{spells}");
}

#[test]
fn an_agent_that_is_a_fifth_slower_is_found() {
    // At the level at which the method tests.
    let detected = rate(100, |r| differ(r, 40_000, 2, 0.5, 1.2, 0.01));
    assert!(detected > 0.9, "{detected}");
    let of_eight = rate(50, |r| differ(r, 100_000, 8, 0.5, 1.2, 0.01));
    assert!(of_eight > 0.9, "{of_eight}");
}
