//! Seeds. In: one seed a run. Out: a generator for each thread, connection and key, none of which share a stream.

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

/// The generator of all random draws: its sequence is fixed by its name, so a seed gives the same draws in every version.
pub(crate) type Rng = Xoshiro256PlusPlus;

/// What a stream is for; two purposes never share one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Arrivals = 1,
    Requests = 2,
    KeySize = 3,
    ValueSize = 4,
    Sampling = 5,
}

/// A 64-bit mix in which every input bit changes half of the output (splitmix64's finaliser).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The seed of stream `index` of a purpose.
pub(crate) fn derive(seed: u64, purpose: Purpose, index: u64) -> u64 {
    mix(mix(seed ^ mix(purpose as u64)) ^ mix(index.wrapping_add(0x5851_f42d_4c95_7f2d)))
}

/// The generator of stream `index` of a purpose.
pub(crate) fn stream(seed: u64, purpose: Purpose, index: u64) -> Rng {
    Rng::seed_from_u64(derive(seed, purpose, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..20 {
            for index in 0..20 {
                for purpose in [Purpose::Arrivals, Purpose::Requests, Purpose::Sampling] {
                    assert!(seen.insert(derive(seed, purpose, index)));
                }
            }
        }
        assert_eq!(derive(7, Purpose::Arrivals, 3), derive(7, Purpose::Arrivals, 3));
    }
}
