//! What must hold whatever the numbers are.

use proptest::prelude::*;
use tailsight_stats::distributions::{GeneralisedPareto, Gev, Inverse};
use tailsight_stats::method::{PercentileGoal, Width};
use tailsight_stats::quantile::{coverage_of_ranks, interval, interval_ranks, quantile, samples_to_support, sorted};
use tailsight_stats::spearman::{Ranked, clustering, holm, midranks};
use tailsight_stats::{Error, adf, anderson, bootstrap, compare, drift, effective, kpss, spearman, warmup};

fn series() -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![5 => 0.0..1e9f64, 1 => Just(7.0), 1 => -1e3..1e3f64, 1 => Just(0.0)];
    prop::collection::vec(value, 0..300)
}

proptest! {
    /// Regression: n q that is whole in decimals must not be pushed to the next rank by binary fractions.
    #[test]
    fn a_quantile_leaves_its_share_at_or_below(values in series(), per_mille in 1u32..1000) {
        let q = f64::from(per_mille) / 1000.0;
        let ordered = sorted(values);
        if let Some(value) = quantile(&ordered, q) {
            let n = ordered.len() as f64;
            let at_or_below = ordered.iter().filter(|x| **x <= value).count() as f64;
            let below = ordered.iter().filter(|x| **x < value).count() as f64;
            prop_assert!(at_or_below >= n * q - 1e-6, "{at_or_below} of {n}");
            prop_assert!(below < n * q + 1e-6);
        } else {
            prop_assert!(ordered.is_empty());
        }
    }

    #[test]
    fn an_interval_covers_as_promised_or_is_none(n in 1usize..20_000, per_mille in 1u32..1000, level in 0.5..0.999f64) {
        let q = f64::from(per_mille) / 1000.0;
        match interval_ranks(n, q, level) {
            Some((lower, upper)) => {
                prop_assert!(1 <= lower && lower < upper && upper <= n);
                prop_assert!(coverage_of_ranks(n, q, lower, upper) >= level - 1e-9);
                // One rank narrower on both sides and the promise is broken on one of them.
                let side = (1.0 - level) / 2.0;
                prop_assert!(tailsight_stats::special::binomial_cdf(lower as i64, n, q) > side - 1e-9);
            }
            None => prop_assert!(n < samples_to_support(q, level) * 2),
        }
        let needed = samples_to_support(q, level);
        prop_assert!(interval_ranks(needed, q, level).is_some());
    }

    #[test]
    fn no_test_panics_on_any_series(values in series(), extra in prop::sample::select(vec![0.0, f64::NAN, f64::INFINITY, 1e300])) {
        let mut values = values;
        values.push(extra);
        let _ = (anderson::exponential(&values), anderson::normal(&values), anderson::lognormal(&values), anderson::pareto(&values));
        let _ = (anderson::two_sample(&values, &values), anderson::fixed_gaps(&values, 3.0, 0.1));
        let _ = (adf::adf(&values, adf::Trend::ConstantAndTrend, adf::Lags::Aic), kpss::kpss(&values, adf::Trend::Constant, None));
        let _ = (spearman::autocorrelation(&values), drift::drift(&values, 19, 1), warmup::detect(&values, 0.01));
        let _ = (effective::dependent_interval(&values, 0.9, 0.95), bootstrap::interval(&values, 0.5, 0.9, 20, 1));
        let _ = (compare::permutation_test(&values, &values, 0.5, 0.95, 19, 1), compare::confidence_below(&values, 0.5, 3.0));
        let _ = compare::block_permutation_test(&values, &values, 0.5, 0.95, 5, 19, 1);
        let _ = (compare::confidence_below_dependent(&values, 0.9, 3.0), clustering(&values, 5.0), interval(&sorted(values), 0.5, 0.95));
    }

    #[test]
    fn p_values_are_probabilities(values in prop::collection::vec(1e-3..1e6f64, 100..300)) {
        let results = [
            anderson::exponential(&values).map(|a| a.p_value),
            anderson::lognormal(&values).map(|a| a.p_value),
            anderson::pareto(&values).map(|a| a.p_value),
            adf::adf(&values, adf::Trend::Constant, adf::Lags::Aic).map(|a| a.p_value),
            kpss::kpss(&values, adf::Trend::Constant, None).map(|k| k.p_value),
            spearman::autocorrelation(&values).map(|a| a.p_value),
            drift::drift(&values, 19, 1).map(|d| d.p_value),
        ];
        for p in results {
            let p = p.expect("enough values");
            prop_assert!((0.0..=1.0).contains(&p), "{p}");
        }
    }

    #[test]
    fn tests_do_not_depend_on_the_unit(values in prop::collection::vec(1.0..1e6f64, 100..200), unit in prop::sample::select(vec![1e-9, 1e3])) {
        let scaled: Vec<f64> = values.iter().map(|x| x * unit).collect();
        let same = |a: f64, b: f64| (a - b).abs() <= 1e-6 * (1.0 + a.abs());
        let a2 = |x: &[f64]| anderson::exponential(x).expect("enough").a2;
        prop_assert!(same(a2(&values), a2(&scaled)));
        let t = |x: &[f64]| adf::adf(x, adf::Trend::Constant, adf::Lags::Exactly(2)).expect("enough").statistic;
        prop_assert!(same(t(&values), t(&scaled)));
    }

    #[test]
    fn ranks_sum_up_and_filtering_ranks_anew(values in prop::collection::vec(0u8..20, 1..200), keep in prop::collection::vec(any::<bool>(), 200)) {
        let values: Vec<f64> = values.into_iter().map(f64::from).collect();
        let n = values.len() as f64;
        prop_assert!((midranks(&values).iter().sum::<f64>() - n * (n + 1.0) / 2.0).abs() < 1e-6);
        let keep = &keep[..values.len()];
        let kept: Vec<f64> = values.iter().zip(keep).filter(|(_, k)| **k).map(|(v, _)| *v).collect();
        let (filtered, anew) = (Ranked::new(&values, 0.0).filter(keep), Ranked::new(&kept, 0.0));
        prop_assert_eq!(filtered.above(7.0), anew.above(7.0));
        prop_assert_eq!((filtered.ranks, filtered.sorted), (anew.ranks, anew.sorted));
    }

    #[test]
    fn holm_corrects_upwards_and_keeps_the_order(p in prop::collection::vec(0.0..1.0f64, 1..20)) {
        let corrected = holm(&p);
        for i in 0..p.len() {
            prop_assert!(corrected[i] >= p[i] && corrected[i] <= 1.0);
            for j in 0..p.len() {
                prop_assert!(p[i] > p[j] || corrected[i] <= corrected[j]);
            }
        }
    }

    #[test]
    fn inverses_invert(u in 1e-6..0.999_999f64, shape in -0.9..0.9f64) {
        let gp = GeneralisedPareto { location: 5.0, scale: 3.0, shape };
        prop_assert!((gp.cdf(gp.inverse(u)) - u).abs() < 1e-9);
        let gev = Gev { location: 5.0, scale: 3.0, shape };
        prop_assert!((gev.cdf(gev.inverse(u)) - u).abs() < 1e-9);
    }

    #[test]
    fn a_target_is_written_as_it_is_read(per_mille in 1u32..1000, us in 1u32..1_000_000, level in 50u32..100) {
        let target = PercentileGoal {
            quantile: f64::from(per_mille) / 1000.0,
            width: Width::Ns(f64::from(us) * 1e3),
            level: f64::from(level) / 100.0,
        };
        let again: PercentileGoal = target.to_string().parse().expect("what we write can be read");
        prop_assert!((again.quantile - target.quantile).abs() < 1e-12 && (again.level - target.level).abs() < 1e-12);
        prop_assert_eq!(again.width, target.width);
    }

    #[test]
    fn no_text_panics_the_target(text in "\\PC*") {
        let _ = text.parse::<PercentileGoal>();
        let _ = format!("p{text}").parse::<PercentileGoal>();
    }
}

#[test]
fn targets_are_read() {
    let target = |text: &str| text.parse::<PercentileGoal>();
    assert_eq!(target("p99:10us@95"), Ok(PercentileGoal { quantile: 0.99, width: Width::Ns(10_000.0), level: 0.95 }));
    assert_eq!(
        target("p99.9:5%@99"),
        Ok(PercentileGoal { quantile: 0.999, width: Width::Relative(0.05), level: 0.99 })
    );
    assert_eq!(target("p50"), Ok(PercentileGoal::new(0.5, Width::Any)));
    for wrong in
        ["99", "p", "p0", "p100", "p99:", "p99:10", "p99:-3us", "p99:nans", "p99@0", "p99@101", "p99:10us@", "pp99"]
    {
        assert!(matches!(target(wrong), Err(Error::BadTarget { .. })), "{wrong}");
    }
}

#[test]
fn the_papers_example_and_what_a_sample_cannot_support() {
    // Lancet §2.3: n = 10,000, p99 at 95 %: 9880 and 9921 by the normal approximation.
    let (lower, upper) = interval_ranks(10_000, 0.99, 0.95).expect("supported");
    assert!(lower.abs_diff(9_880) <= 1 && upper.abs_diff(9_921) <= 1, "{lower} {upper}");
    assert_eq!(interval_ranks(100, 0.99, 0.95), None);
    assert_eq!(samples_to_support(0.99, 0.95), 368);
}
