//! The keys of a workload: their names, sizes, values and popularity. In: a workload. Out: for a key its bytes.
//!
//! A key's name and its value's size and content follow from its number and [`Workload::key_seed`] alone, so that every
//! agent agrees, the pre-load and the load agree, and each reply can be checked.

use rand::RngExt;
use rand_distr::{Distribution, Zipf};

use crate::rng::{Purpose, Rng, mix, stream};
use crate::{Popularity, Workload};

/// memcached's limit, the tightest of the protocols.
pub(crate) const MAX_KEY: u32 = 250;

/// All keys of a workload.
#[derive(Debug)]
pub(crate) struct Keys {
    prefix: Vec<u8>,
    /// Name lengths, bytes; one for all, or one each.
    names: Vec<u8>,
    /// Value sizes, bytes; one for all, or one each.
    values: Vec<u32>,
    count: u64,
    popularity: Picker,
}

#[derive(Debug)]
enum Picker {
    Uniform,
    Zipf(Zipf<f64>),
}

impl Keys {
    /// Draws the sizes of all keys.
    pub(crate) fn new(workload: &Workload) -> Self {
        let prefix = workload.key_prefix.clone().into_bytes();
        let digits = (workload.keys - 1).max(1).ilog10() + 1;
        let shortest = prefix.len() as u32 + digits;
        let sizes = |size: &crate::Size, purpose, low, high| -> Vec<u32> {
            // Fixed sizes need no table.
            let n = if matches!(size, crate::Size::Fixed(_)) { 1 } else { workload.keys };
            (0..n).map(|key| size.draw(&mut stream(workload.key_seed, purpose, key), low, high)).collect()
        };
        let names = sizes(&workload.key_size, Purpose::KeySize, shortest, MAX_KEY);
        let popularity = match workload.popularity {
            Popularity::Zipf(skew) => Zipf::new(workload.keys as f64, skew).map_or(Picker::Uniform, Picker::Zipf),
            Popularity::Uniform => Picker::Uniform,
        };
        Self {
            prefix,
            names: names.into_iter().map(|n| n.min(MAX_KEY) as u8).collect(),
            values: sizes(&workload.value_size, Purpose::ValueSize, 0, workload.max_value),
            count: workload.keys,
            popularity,
        }
    }

    /// Draws a key by popularity.
    pub(crate) fn pick(&self, rng: &mut Rng) -> u64 {
        match &self.popularity {
            Picker::Uniform if self.count == 1 => 0,
            Picker::Uniform => rng.random_range(0..self.count),
            // Ranks begin at 1; the key of rank 1 is key 0.
            Picker::Zipf(zipf) => (zipf.sample(rng) as u64 - 1).min(self.count - 1),
        }
    }

    /// The size of a key's value, bytes.
    pub(crate) fn value_len(&self, key: u64) -> u32 {
        self.values[(key as usize).min(self.values.len() - 1)]
    }

    /// The pattern of a key's value.
    pub(crate) fn value_seed(&self, key: u64) -> u64 {
        mix(key)
    }

    /// Writes a key's name over the earlier one: the prefix, zeros, the number. Different keys differ, because their numbers
    /// do.
    pub(crate) fn name(&self, key: u64, name: &mut Vec<u8>) {
        let length = usize::from(self.names[(key as usize).min(self.names.len() - 1)]);
        name.clear();
        name.extend_from_slice(&self.prefix);
        name.resize(length, b'0');
        let mut left = key;
        for digit in name[self.prefix.len()..].iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_sized_and_plain() {
        let workload: Workload = "etc;keys=20k".parse().unwrap();
        let keys = Keys::new(&workload);
        let (mut name, mut distinct) = (Vec::new(), std::collections::HashSet::new());
        let mut bytes = 0;
        for key in 0..keys.count {
            keys.name(key, &mut name);
            assert!(name.iter().all(u8::is_ascii_graphic) && name.len() <= 250, "{name:?}");
            bytes += name.len();
            assert!(distinct.insert(name.clone()));
        }
        // The mean of Facebook's GEV of key sizes.
        let mean = bytes as f64 / keys.count as f64;
        assert!((mean - 36.1).abs() < 0.5, "{mean}");
    }

    #[test]
    fn zipf_is_skewed_and_uniform_is_not() {
        for (text, expected) in [("keys=1000;popularity=zipf:1", 1.0 / 7.4855), ("keys=1000", 0.001)] {
            let keys = Keys::new(&text.parse().unwrap());
            let mut rng = stream(1, Purpose::Requests, 0);
            let picks: Vec<u64> = (0..100_000).map(|_| keys.pick(&mut rng)).collect();
            let first = picks.iter().filter(|k| **k == 0).count() as f64 / picks.len() as f64;
            assert!((first - expected).abs() < 0.004, "{text}: {first}");
            assert!(picks.iter().all(|k| *k < 1000));
        }
    }

    #[test]
    fn sizes_do_not_depend_on_the_order_of_asking() {
        let workload: Workload = "keys=1000;value=uniform:1,1000".parse().unwrap();
        let (a, b) = (Keys::new(&workload), Keys::new(&workload));
        assert!((0..1000).rev().all(|k| a.value_len(k) == b.value_len(k)));
        assert!((0..1000).any(|k| a.value_len(k) != a.value_len(0)));
    }
}
