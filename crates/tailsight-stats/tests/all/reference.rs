//! Every statistic against the committed values of scipy, statsmodels, numpy and arch (tests/reference/make_reference.py).

use serde_json::Value;
use tailsight_stats::adf::{self, Lags, Trend, adf};
use tailsight_stats::distributions::{GeneralisedPareto, Gev, Inverse, Lognormal, Pareto};
use tailsight_stats::spearman::{holm, midranks, spearman};
use tailsight_stats::{anderson, bootstrap, kpss, quantile, special, warmup};

fn reference() -> Value {
    serde_json::from_str(include_str!("../reference/reference.json")).expect("the committed reference is JSON")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(number).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn close(what: &str, ours: f64, theirs: f64, relative: f64, absolute: f64) {
    let error = (ours - theirs).abs();
    assert!(error <= absolute + relative * theirs.abs(), "{what}: ours {ours}, reference {theirs}, off by {error:e}");
}

fn each_dataset(mut f: impl FnMut(&str, &[f64], &Value)) {
    let reference = reference();
    let sets = reference["datasets"].as_object().expect("data sets");
    assert!(sets.len() >= 19);
    for (name, set) in sets {
        f(name, &numbers(&set["values"]), set);
    }
}

fn trend(value: &Value) -> Trend {
    if value == "c" { Trend::Constant } else { Trend::ConstantAndTrend }
}

#[test]
fn anderson_darling_is_scipys() {
    let mut compared = 0;
    each_dataset(|name, x, set| {
        let theirs = &set["anderson"];
        let mut check = |key: &str, ours: f64| {
            if let Some(value) = theirs[key].as_f64() {
                close(&format!("{name} {key}"), ours, value, 1e-7, 1e-9);
                compared += 1;
            }
        };
        check("normal_a2", anderson::normal(x).expect("a normal test").a2);
        if x.iter().all(|v| *v > 0.0) {
            check("exponential_a2", anderson::exponential(x).expect("an exponential test").a2);
            check("exponential_a2_by_definition", anderson::exponential(x).expect("an exponential test").a2);
            if name != "large_level" {
                // The logarithms of 1e12 ± 1e3 keep too few digits to compare.
                check("lognormal_a2", anderson::lognormal(x).expect("a lognormal test").a2);
            }
            check("pareto_a2", anderson::pareto(x).map_or(f64::NAN, |a| a.a2));
        }
        let (low, high) = x.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
        let u = anderson::specified(x, |v| (v - low + 0.5) / (high - low + 1.0)).expect("a specified test");
        check("uniform_a2", u.a2);
    });
    assert!(compared > 80, "{compared}");
}

#[test]
fn two_sample_anderson_darling_is_scipys() {
    for case in reference()["two_samples"].as_array().expect("cases") {
        let ours = anderson::two_sample(&numbers(&case["a"]), &numbers(&case["b"])).expect("a two-sample test");
        let name = format!("{}", case["names"]);
        close(&name, ours.a2, number(&case["a2"]), 1e-9, 1e-9);
        // Their p-value is interpolated in a table from 0.001 to 0.25; both must agree on which side of 1 % they are.
        let theirs = number(&case["p_table"]);
        if theirs > 0.0011 && theirs < 0.249 {
            close(&name, ours.p_value, theirs, 0.15, 0.005);
        } else {
            assert_eq!(ours.p_value < 0.01, theirs < 0.01, "{name}: {} {theirs}", ours.p_value);
        }
    }
}

#[test]
fn augmented_dickey_fuller_is_statsmodels() {
    let mut compared = 0;
    each_dataset(|name, x, set| {
        for case in set["series"]["adf"].as_array().expect("cases") {
            let lags = match (case["autolag"].as_bool(), case["maxlag"].as_u64()) {
                (Some(true), None) => Lags::Aic,
                (Some(true), Some(max)) => Lags::AicUpTo(max as usize),
                (_, max) => Lags::Exactly(max.unwrap_or(0) as usize),
            };
            let ours = adf(x, trend(&case["regression"]), lags).expect("an ADF test");
            let what = format!("{name} {case}");
            assert_eq!(ours.lags as u64, case["lags"].as_u64().expect("lags"), "{what}");
            assert_eq!(ours.n as u64, case["n"].as_u64().expect("n"), "{what}");
            close(&what, ours.statistic, number(&case["statistic"]), 1e-6, 1e-6);
            close(&what, ours.p_value, number(&case["p"]), 0.0, 1e-7);
            for (a, b) in ours.critical.iter().zip(numbers(&case["critical"])) {
                close(&what, *a, b, 1e-12, 0.0);
            }
            compared += 1;
        }
    });
    assert!(compared > 120, "{compared}");
    let functions = &reference()["functions"];
    for case in functions["mackinnon"].as_array().expect("cases") {
        let ours = adf::p_value(number(&case["statistic"]), trend(&case["regression"]));
        close(&case.to_string(), ours, number(&case["p"]), 1e-9, 1e-12);
    }
    for case in functions["mackinnon_critical"].as_array().expect("cases") {
        let ours = adf::critical(trend(&case["regression"]), number(&case["n"]) as usize);
        for (a, b) in ours.iter().zip(numbers(&case["values"])) {
            close(&case.to_string(), *a, b, 1e-12, 0.0);
        }
    }
}

#[test]
fn kpss_is_statsmodels() {
    each_dataset(|name, x, set| {
        for case in set["series"]["kpss"].as_array().expect("cases") {
            let lags = (!case["auto"].as_bool().expect("a flag")).then(|| number(&case["lags"]) as usize);
            let trend = trend(&case["regression"]);
            let ours = kpss::kpss(x, trend, lags).expect("a KPSS test");
            let what = format!("{name} {case}");
            assert_eq!(ours.lags as u64, case["lags"].as_u64().expect("lags"), "{what}");
            close(&what, ours.statistic, number(&case["statistic"]), 1e-6, 1e-9);
            let table = number(&case["p_table"]);
            if trend == Trend::ConstantAndTrend {
                close(&what, ours.p_value, table, 0.0, 1e-6);
            } else if table > 0.0101 && table < 0.0999 {
                // Theirs is interpolated between four points of a table, ours is the limit distribution.
                close(&what, ours.p_value, table, 0.06, 0.001);
            }
        }
    });
}

#[test]
fn spearman_and_ranks_are_scipys() {
    each_dataset(|name, x, set| {
        for case in set["series"]["spearman"].as_array().expect("cases") {
            let lag = number(&case["lag"]) as usize;
            let ours = spearman(&x[..x.len() - lag], &x[lag..]).expect("a correlation");
            close(&format!("{name} {case}"), ours.rho, number(&case["rho"]), 1e-10, 1e-12);
            close(&format!("{name} {case}"), ours.p_value, number(&case["p"]), 1e-7, 1e-14);
        }
        let squares: f64 = midranks(x).iter().map(|r| r * r).sum();
        close(name, squares, number(&set["series"]["ranks_sum_of_squares"]), 1e-12, 0.0);
    });
    let functions = &reference()["functions"]["holm"];
    for (ours, theirs) in holm(&numbers(&functions["p"])).iter().zip(numbers(&functions["corrected"])) {
        close("holm", *ours, theirs, 1e-12, 0.0);
    }
}

#[test]
fn mser_and_block_lengths_are_the_references() {
    each_dataset(|name, x, set| {
        let Some(mser) = set["series"]["mser5"].as_object() else { return };
        let ours = warmup::mser(x, 5).expect("MSER");
        close(name, ours.statistic, number(&mser["statistic"]), 1e-6, 0.0);
        assert_eq!(ours.cut as f64, number(&mser["cut"]), "{name}");
        // arch does not keep its length from falling below one.
        let theirs = number(&set["series"]["block_length"]).max(1.0);
        close(name, bootstrap::block_length(x), theirs, 1e-6, 1e-9);
    });
}

#[test]
fn quantiles_are_numpys_and_interval_ranks_are_scipys_binomial() {
    each_dataset(|name, x, set| {
        let sorted = quantile::sorted(x.to_vec());
        for case in set["quantiles"].as_array().expect("cases") {
            let (q, level) = (number(&case["q"]), number(&case["level"]));
            assert_eq!(quantile::quantile(&sorted, q), case["value"].as_f64(), "{name} {case}");
            let theirs = case["ranks"].as_array().map(|r| (number(&r[0]) as usize, number(&r[1]) as usize));
            assert_eq!(quantile::interval_ranks(x.len(), q, level), theirs, "{name} {case}");
        }
    });
}

#[test]
fn functions_are_scipys() {
    let functions = &reference()["functions"];
    let cases = |key: &str| functions[key].as_array().cloned().unwrap_or_else(|| panic!("{key}"));
    let inverse = |case: &Value, ours: &dyn Inverse, tolerance: f64| {
        for (u, x) in numbers(&case["u"]).into_iter().zip(numbers(&case["x"])) {
            close(&format!("{case} at {u}"), ours.inverse(u), x, tolerance, 0.0);
            close(&format!("{case} cdf at {x}"), ours.cdf(x), u, 1e-7, 1e-9);
        }
        if let Some(mean) = case["mean"].as_f64() {
            close(&format!("{case} mean"), ours.mean(), mean, 1e-9, 0.0);
        }
    };
    for case in cases("genpareto") {
        let at = |key: &str| number(&case[key]);
        inverse(&case, &GeneralisedPareto { location: at("location"), scale: at("scale"), shape: at("shape") }, 1e-9);
    }
    for case in cases("genextreme") {
        let at = |key: &str| number(&case[key]);
        inverse(&case, &Gev { location: at("location"), scale: at("scale"), shape: at("shape") }, 1e-9);
    }
    let (pareto, lognormal) = (&functions["pareto"], &functions["lognormal"]);
    inverse(pareto, &Pareto { scale: number(&pareto["scale"]), shape: number(&pareto["shape"]) }, 1e-9);
    inverse(lognormal, &Lognormal { mu: number(&lognormal["mu"]), sigma: number(&lognormal["sigma"]) }, 1e-7);
    for case in cases("binomial") {
        let at = |key: &str| number(&case[key]);
        close(
            &case.to_string(),
            special::binomial_cdf(at("k") as i64, at("n") as usize, at("p")),
            at("cdf"),
            1e-6,
            1e-9,
        );
    }
    for case in cases("student") {
        let ours = special::student_two_sided(number(&case["t"]), number(&case["df"]));
        close(&case.to_string(), ours, number(&case["two_sided"]), 1e-8, 1e-15);
    }
    for case in cases("student_quantile") {
        close(
            &case.to_string(),
            special::student_quantile(number(&case["p"]), number(&case["df"])),
            number(&case["t"]),
            1e-8,
            0.0,
        );
    }
    for case in cases("poisson_tail") {
        let ours = special::poisson_tail(number(&case["k"]) as u64, number(&case["mean"]));
        close(&case.to_string(), ours, number(&case["p"]), 1e-7, 1e-12);
    }
    for case in cases("chi_square") {
        close(
            &case.to_string(),
            special::chi_square_tail(number(&case["x"]), number(&case["df"])),
            number(&case["p"]),
            1e-7,
            1e-12,
        );
    }
    for case in cases("cramer_von_mises") {
        close(&case.to_string(), special::cramer_von_mises_tail(number(&case["x"])), number(&case["p"]), 1e-6, 1e-9);
    }
}
