//! Do several clients of one server, at one time, see one percentile? (Lancet §4.2: the symmetric setup shows clients that differ.)
//!
//! In: pooled latencies in time order, the agent of each, a threshold (the pooled percentile). Out: a p-value.
//!
//! The statistic is Kruskal and Wallis' idea on the indicator "above the threshold": the variance between the agents' shares of
//! samples above it. Samples of one queue depend on each other, also across agents, so its distribution is not χ². The run is cut
//! into blocks of time that are as good as independent ([`batches`] of each agent and of all), and in each block the agents' counts change hands at random, all of an agent's
//! together: exact where agents are exchangeable within a block, whatever the server does from block to block.

use crate::effective::{FEWEST_BATCHES, batches};
use crate::random::Random;

/// No more blocks than this. With 2 agents it has 2^20 permutations.
const BLOCKS: usize = 20;

/// Whether agents differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Agents {
    /// Those that have samples, in their order.
    pub agents: Vec<u16>,
    /// Variance between agents of the share of samples above the threshold, over its mean under permutation.
    pub statistic: f64,
    /// Probability of one as large where agents do not differ; not below 1/(permutations + 1).
    pub p_value: f64,
    /// Samples.
    pub n: usize,
    /// Blocks of time.
    pub blocks: usize,
}

/// Compares agents. `None` for fewer than two, or too few samples for blocks.
pub fn differ(series: &[f64], agent: &[u16], threshold: f64, permutations: usize, seed: u64) -> Option<Agents> {
    let mut agents: Vec<u16> = agent.to_vec();
    agents.sort_unstable();
    agents.dedup();
    let k = agents.len();
    if k < 2 {
        return None;
    }
    let above: Vec<f64> = series.iter().map(|x| f64::from(u8::from(*x > threshold))).collect();
    // An agent may have a memory of its own, which the others hide in what is pooled.
    let own = |a: &u16| {
        let own: Vec<f64> = above.iter().zip(agent).filter(|(_, who)| *who == a).map(|(x, _)| *x).collect();
        Some(batches(&own)?.length * series.len() / own.len())
    };
    let length = agents.iter().filter_map(own).chain([batches(&above)?.length]).max()?;
    // Few blocks decide as well as many, and a memory too weak to be seen is shorter than they are.
    let length = length.max(series.len() / BLOCKS).clamp(1, (series.len() / FEWEST_BATCHES).max(1));
    let place = |a: u16| agents.binary_search(&a).unwrap_or(0);
    // (samples above, samples) of each agent in each block.
    let mut cells: Vec<Vec<(f64, f64)>> = Vec::with_capacity(series.len() / length);
    for (values, who) in above.chunks_exact(length).zip(agent.chunks_exact(length)) {
        let mut block = vec![(0.0, 0.0); k];
        for (value, a) in values.iter().zip(who) {
            let cell = &mut block[place(*a)];
            cell.0 += value;
            cell.1 += 1.0;
        }
        cells.push(block);
    }
    let mut sums = vec![(0.0, 0.0); k];
    let mut between = |cells: &[Vec<(f64, f64)>]| {
        sums.iter_mut().for_each(|s| *s = (0.0, 0.0));
        for block in cells {
            for (sum, cell) in sums.iter_mut().zip(block) {
                sum.0 += cell.0;
                sum.1 += cell.1;
            }
        }
        let (hits, samples) = sums.iter().fold((0.0, 0.0), |(h, n), s| (h + s.0, n + s.1));
        let mean = hits / samples;
        sums.iter().filter(|s| s.1 > 0.0).map(|(h, n)| n * (h / n - mean).powi(2)).sum::<f64>()
    };
    let observed = between(&cells);
    let mut random = Random::new(seed);
    let (mut beyond, mut total) = (0, 0.0);
    for _ in 0..permutations {
        cells.iter_mut().for_each(|block| random.shuffle(block));
        let other = between(&cells);
        total += other;
        // Equal up to rounding is as large.
        beyond += usize::from(other >= observed * (1.0 - 1e-9));
    }
    let mean = total / permutations.max(1) as f64;
    Some(Agents {
        agents,
        statistic: if mean > 0.0 { observed / mean } else { 0.0 },
        p_value: (beyond + 1) as f64 / (permutations + 1) as f64,
        n: series.len(),
        blocks: cells.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_has_nobody_to_differ_from() {
        assert_eq!(differ(&[1.0; 1_000], &[3; 1_000], 0.5, 99, 1), None);
        assert_eq!(differ(&[1.0; 10], &[0, 1, 0, 1, 0, 1, 0, 1, 0, 1], 0.5, 99, 1), None);
    }

    /// Every sample of one agent is slow, none of the other: no permutation comes near.
    #[test]
    fn agents_that_have_nothing_in_common_differ() {
        let agent: Vec<u16> = (0..2_000).map(|i| i % 2).collect();
        let series: Vec<f64> = agent.iter().map(|a| f64::from(*a)).collect();
        let difference = differ(&series, &agent, 0.5, 199, 1).unwrap();
        assert_eq!((difference.p_value, difference.agents, difference.n), (1.0 / 200.0, vec![0, 1], 2_000));
        assert!(
            difference.blocks >= 16 && difference.statistic > 10.0,
            "{} {}",
            difference.blocks,
            difference.statistic
        );
        let same = differ(&vec![1.0; 2_000], &agent, 0.5, 199, 1).unwrap();
        assert_eq!((same.p_value, same.statistic), (1.0, 0.0));
    }
}
