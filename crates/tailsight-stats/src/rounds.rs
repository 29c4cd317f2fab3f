//! Two conditions that were measured in turn, in rounds: is the first one's value larger or smaller, and by how much? In: of each round the
//! logarithm of the ratio of the two values, any unit. Out: the mean ratio with an interval, and p-values.
//!
//! The unit of the test is the round, because the two values of a round are near each other in time. That the conditions are alike is tested
//! by exchanging them in rounds: in each of the 2^n ways, or in as many ways as are drawn. The interval is Student's over the rounds'
//! logarithms.

use crate::random::{Random, mix};
use crate::special::student_quantile;

/// Fewest rounds that can decide: of the 2^8 ways to exchange the conditions, one is 0.4 %.
pub const FEWEST: usize = 8;
/// Of so many rounds each way to exchange the conditions is tried; of more, as many ways are drawn.
const EVERY_WAY: u32 = 14;

/// What rounds say together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    /// The first condition's value over the other's, the geometric mean of the rounds.
    pub ratio: f64,
    /// Its interval at the level that was asked for.
    pub interval: [f64; 2],
    /// One-sided p-value of "it is not larger".
    pub p_larger: f64,
    /// One-sided p-value of "it is not smaller".
    pub p_smaller: f64,
}

/// Tests rounds. `level` (inside 0..1) is the interval's, `seed` draws the ways. `None` for fewer than [`FEWEST`].
#[must_use]
pub fn test(log_ratios: &[f64], level: f64, seed: u64) -> Option<Rounds> {
    if log_ratios.len() < FEWEST {
        return None;
    }
    let n = log_ratios.len() as f64;
    let mean = log_ratios.iter().sum::<f64>() / n;
    let deviation = (log_ratios.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let half = student_quantile(0.5 + level / 2.0, n - 1.0) * deviation / n.sqrt();
    let opposite: Vec<f64> = log_ratios.iter().map(|l| -l).collect();
    Some(Rounds {
        ratio: mean.exp(),
        interval: [(mean - half).exp(), (mean + half).exp()],
        p_larger: p_of_larger(log_ratios, seed),
        p_smaller: p_of_larger(&opposite, seed),
    })
}

/// Fewest rounds in which a difference that each of them has gives a p-value below `alpha` (above 0), with one round more, so that no single
/// round decides alone; never fewer than [`FEWEST`].
#[must_use]
pub fn needed(alpha: f64) -> usize {
    let ways = (1.0 / alpha).log2().floor() as usize + 1;
    (ways + 1).max(FEWEST)
}

/// The share of the ways to exchange the conditions in which the sum is as large as it is, or larger.
fn p_of_larger(log_ratios: &[f64], seed: u64) -> f64 {
    let observed: f64 = log_ratios.iter().sum();
    let as_large = |sum: f64| sum >= observed - 1e-12 * observed.abs();
    if log_ratios.len() <= EVERY_WAY as usize {
        let ways = 1_u32 << log_ratios.len();
        let signed =
            |way: u32| log_ratios.iter().enumerate().map(|(i, l)| if way >> i & 1 == 0 { *l } else { -l }).sum();
        return (0..ways).filter(|way| as_large(signed(*way))).count() as f64 / f64::from(ways);
    }
    let mut random = Random::new(mix(seed, 4));
    let mut exchanged = || log_ratios.iter().map(|l| if random.uniform() < 0.5 { *l } else { -l }).sum::<f64>();
    let drawn = 1_u32 << EVERY_WAY;
    let beyond = (0..drawn).filter(|_| as_large(exchanged())).count();
    (beyond + 1) as f64 / f64::from(drawn + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_agree_have_the_smallest_p_value_and_few_have_none() {
        let logs = [0.1, 0.11, 0.12, 0.1, 0.13, 0.11, 0.1, 0.12];
        let rounds = test(&logs, 0.95, 1).unwrap();
        assert!((rounds.p_larger - 1.0 / 256.0).abs() < 1e-12 && (rounds.p_smaller - 1.0).abs() < 1e-12, "{rounds:?}");
        // Computed apart, with t = 2.364624 of seven degrees of freedom.
        assert!((rounds.interval[0].ln() - 0.101_836).abs() < 1e-5, "{rounds:?}");
        assert!((rounds.interval[1].ln() - 0.120_664).abs() < 1e-5, "{rounds:?}");
        assert_eq!(test(&logs[..7], 0.95, 1), None);
    }

    #[test]
    fn as_many_rounds_as_are_needed_can_fall_below_the_level() {
        assert_eq!((needed(0.05), needed(0.01), needed(0.001)), (8, 8, 11));
        for alpha in [0.05, 0.01, 0.005, 0.001, 1e-4] {
            let logs: Vec<f64> = (0..needed(alpha)).map(|i| 0.5 + 0.01 * (i % 3) as f64).collect();
            assert!(test(&logs, 0.95, 1).unwrap().p_larger < alpha, "{alpha}");
        }
    }
}
