//! Bootstrap intervals of the causes' deviations.
//!
//! In: per cause, sums over *blocks* of messages. Out: the 95 % percentile interval of each deviation, ns. Slow messages come
//! in bursts (one intruder delays dozens), so single messages are not independent draws: we resample blocks of messages that
//! arrived one after the other (Künsch's block bootstrap), at most [`MAX_BLOCKS`] a cohort, which also makes it cheap. Cohorts
//! up to that size are resampled message by message. The slices are taken as given: the interval does not include that
//! another run would have cut them elsewhere.

/// Most blocks of a cohort.
pub const MAX_BLOCKS: usize = 256;

/// Sums of a cohort by block and cause.
#[derive(Clone, Debug)]
pub struct Blocks {
    causes: usize,
    messages: usize,
    sums: Vec<f64>,
    sizes: Vec<f64>,
}

impl Blocks {
    /// Empty blocks for this many causes and messages.
    pub fn new(causes: usize, messages: usize) -> Blocks {
        let blocks = messages.clamp(1, MAX_BLOCKS);
        Blocks { causes, messages, sums: vec![0.0; blocks * causes], sizes: vec![0.0; blocks] }
    }

    /// Adds the `index`-th message in order of arrival: ns by cause.
    pub fn add(&mut self, index: usize, ns: &[i64]) {
        let block = index * self.sizes.len() / self.messages;
        self.sizes[block] += 1.0;
        for (sum, &v) in self.sums[block * self.causes..][..self.causes].iter_mut().zip(ns) {
            *sum += v as f64;
        }
    }

    /// Means of one resample, into `means`.
    fn resample(&self, rng: &mut SplitMix, means: &mut [f64]) {
        means.fill(0.0);
        let mut size = 0.0;
        for _ in 0..self.sizes.len() {
            let block = rng.below(self.sizes.len());
            size += self.sizes[block];
            for (mean, sum) in means.iter_mut().zip(&self.sums[block * self.causes..][..self.causes]) {
                *mean += sum;
            }
        }
        means.iter_mut().for_each(|m| *m /= size);
    }
}

/// Draws of focus mean less reference mean, by cause, ns.
#[derive(Clone, Debug)]
pub struct Draws(Vec<Vec<f64>>);

impl Draws {
    /// `None` for 0 rounds.
    pub fn of(focus: &Blocks, reference: &Blocks, rounds: u32, seed: u64) -> Option<Draws> {
        let mut rng = SplitMix(seed);
        let (mut f, mut r) = (vec![0.0; focus.causes], vec![0.0; focus.causes]);
        let mut draws = vec![Vec::with_capacity(rounds as usize); focus.causes];
        for _ in 0..rounds {
            focus.resample(&mut rng, &mut f);
            reference.resample(&mut rng, &mut r);
            draws.iter_mut().zip(f.iter().zip(&r)).for_each(|(draws, (f, r))| draws.push(f - r));
        }
        (rounds > 0).then_some(Draws(draws))
    }

    /// The 95 % interval of each cause.
    pub fn intervals(&self) -> Vec<[i64; 2]> {
        self.0.iter().cloned().map(interval).collect()
    }

    /// The 95 % interval of the sum of those causes that are in it.
    pub fn interval_of_sum(&self, is_in: impl Fn(usize) -> bool) -> [i64; 2] {
        let mut sums = vec![0.0; self.0.first().map_or(0, Vec::len)];
        for (_, draws) in self.0.iter().enumerate().filter(|(cause, _)| is_in(*cause)) {
            sums.iter_mut().zip(draws).for_each(|(sum, draw)| *sum += draw);
        }
        if sums.is_empty() { [0; 2] } else { interval(sums) }
    }
}

/// Nearest ranks of 2.5 % and 97.5 %.
fn interval(mut draws: Vec<f64>) -> [i64; 2] {
    let rank = |per_mille: usize| (draws.len() * per_mille).div_ceil(1000).max(1) - 1;
    let (low, high) = (rank(25), rank(975));
    let mut at = |rank: usize| draws.select_nth_unstable_by(rank, f64::total_cmp).1.round() as i64;
    [at(low), at(high)]
}

/// Steele, Lea and Flood's SplitMix64: a seed gives the same numbers in every version of every crate.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let bits = tailsight_stats::random::mix(self.0, 0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits
    }

    /// A number from 0 to below `n` (n > 0; the bias of n / 2^64 does not matter here).
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_is_the_published_one() {
        let mut rng = SplitMix(1_234_567);
        assert_eq!([rng.bits(), rng.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    fn intervals(focus: &Blocks, reference: &Blocks, rounds: u32, seed: u64) -> Vec<[i64; 2]> {
        Draws::of(focus, reference, rounds, seed).expect("rounds").intervals()
    }

    fn blocks(values: impl ExactSizeIterator<Item = i64>) -> Blocks {
        let mut out = Blocks::new(1, values.len());
        values.enumerate().for_each(|(i, v)| out.add(i, &[v]));
        out
    }

    /// For independent values the interval covers the true difference about 95 times in 100, in blocks as without.
    #[test]
    fn coverage_is_nominal() {
        for n in [100, 2000] {
            let mut rng = SplitMix(7);
            let mut covered = 0;
            for seed in 0..300 {
                // Uniform on 0..1000 against uniform on 500..1500: the true difference is 500.
                let f = blocks((0..n).map(|_| 500 + rng.below(1000) as i64).collect::<Vec<_>>().into_iter());
                let r = blocks((0..n * 5).map(|_| rng.below(1000) as i64).collect::<Vec<_>>().into_iter());
                let [low, high] = intervals(&f, &r, 200, seed)[0];
                covered += u32::from(low <= 500 && 500 <= high);
            }
            assert!((270..=297).contains(&covered), "{covered} of 300 with n = {n}");
        }
    }

    /// Bursts make the interval wider than independent draws of the same values would.
    #[test]
    fn bursts_widen_the_interval() {
        let n = 2560;
        let mut rng = SplitMix(3);
        let bursty: Vec<i64> = (0..n / 10).flat_map(|_| [rng.below(1000) as i64; 10]).collect();
        let mut mixed = bursty.clone();
        for i in (1..mixed.len()).rev() {
            mixed.swap(i, rng.below(i + 1));
        }
        let width = |values: Vec<i64>| {
            let [low, high] = intervals(&blocks(values.into_iter()), &blocks(std::iter::once(0)), 500, 1)[0];
            high - low
        };
        assert!(width(bursty) > 2 * width(mixed));
    }
}
