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
pub(crate) fn mix(x: u64) -> u64 {
    tailsight_stats::random::mix(x, 0)
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
        let mut streams = std::collections::HashSet::new();
        for seed in 0..20 {
            for index in 0..20 {
                for purpose in [Purpose::Arrivals, Purpose::Requests, Purpose::Sampling] {
                    assert!(streams.insert(derive(seed, purpose, index)));
                }
            }
        }
        assert_eq!(derive(7, Purpose::Arrivals, 3), derive(7, Purpose::Arrivals, 3));
        // The published first number of seed 1234567: the draws of a seed are the same in every version.
        assert_eq!(mix(1_234_567), 6_457_827_717_110_365_317);
    }
}
