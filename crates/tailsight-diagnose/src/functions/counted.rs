//! How the samples of a row lie in its parts, message by message.
//!
//! In: what each message has of the row, and the part of each stack. Out: [`Counted`], asked by part: its samples and their weights, the
//! messages that have it, its time in each, and the interval of its deviation.

use super::tree::Scale;
use super::{InCohorts, InMessage};
use crate::rows::bootstrap::SplitMix;

/// Rounds of the bootstrap.
const ROUNDS: usize = 200;

/// Of a message: ns, what its stacks stand for, and of each part that it has what its stacks stand for, and how many they are.
type OfMessage = (f64, f64, Vec<(usize, u64, u64)>);

/// Samples by message and part.
pub(super) struct Counted {
    /// By cohort.
    messages: [Vec<OfMessage>; 2],
    parts: usize,
}

impl Counted {
    pub(super) fn new(messages: &InCohorts, parts: usize, part_of: &dyn Fn(u32) -> Option<usize>) -> Counted {
        let count = |message: &InMessage| {
            let mut by_part: Vec<(usize, u64, u64)> = vec![];
            for (part, n) in message.stacks.iter().filter_map(|&(stack, n)| Some((part_of(stack)?, n))) {
                match by_part.iter_mut().find(|(p, ..)| *p == part) {
                    Some((_, sum, times)) => (*sum, *times) = (*sum + n, *times + 1),
                    None => by_part.push((part, n, 1)),
                }
            }
            (message.ns, message.stacks.iter().map(|s| s.1 as f64).sum(), by_part)
        };
        Counted { messages: [0, 1].map(|cohort: usize| messages[cohort].iter().map(count).collect()), parts }
    }

    pub(super) fn weights(&self, part: usize) -> [u64; 2] {
        [0, 1].map(|c: usize| {
            self.messages[c].iter().flat_map(|m| &m.2).filter(|(p, ..)| *p == part).map(|(_, n, _)| n).sum()
        })
    }

    pub(super) fn entries(&self, part: usize) -> [u64; 2] {
        [0, 1].map(|c: usize| {
            self.messages[c].iter().flat_map(|m| &m.2).filter(|(p, ..)| *p == part).map(|(.., times)| times).sum()
        })
    }

    /// What each focus message has of a part above the mean of the reference, ns.
    pub(super) fn times(&self, part: usize) -> Vec<f64> {
        let samples_of = |parts: &[(usize, u64, u64)]| {
            parts.iter().filter(|(p, ..)| *p == part).map(|(_, n, _)| *n as f64).sum::<f64>()
        };
        let [focus, reference] = self.messages.each_ref().map(|messages| {
            let sums = messages.iter().fold((0.0, 0.0), |sum, (_, n, parts)| (sum.0 + samples_of(parts), sum.1 + n));
            let share = if sums.1 > 0.0 { sums.0 / sums.1 } else { 0.0 };
            let time = |(ns, n, parts): &OfMessage| ns * if *n > 0.0 { samples_of(parts) / n } else { share };
            messages.iter().map(time).collect::<Vec<f64>>()
        });
        let usual = reference.iter().sum::<f64>() / reference.len().max(1) as f64;
        focus.into_iter().map(|ns| ns - usual).collect()
    }

    pub(super) fn hits(&self, part: usize) -> u64 {
        self.messages[0].iter().filter(|m| m.2.iter().any(|(p, ..)| *p == part)).count() as u64
    }

    /// The 95 % interval of each part's deviation, ns: messages of both cohorts are resampled whole, since a message's samples are
    /// not independent of each other.
    pub(super) fn intervals(&self, resampled: &Resampled) -> Vec<[i64; 2]> {
        // What each message adds to the mean. Of most messages nothing was sampled.
        let added = self.messages.each_ref().map(|messages| {
            let of_all = messages.len() as f64;
            messages.iter().map(|(ns, ..)| ns / of_all).collect::<Vec<f64>>()
        });
        let with_samples = self.messages.each_ref().map(|messages| {
            messages.iter().enumerate().filter(|(_, (_, n, _))| *n > 0.0).collect::<Vec<(usize, &OfMessage)>>()
        });
        let mut draws = vec![Vec::with_capacity(ROUNDS); self.parts];
        for round in 0..ROUNDS {
            let (mut mean_ns, mut samples) = ([0.0; 2], [0.0; 2]);
            let mut by_part = vec![[0.0; 2]; self.parts];
            for (cohort, with_samples) in with_samples.iter().enumerate() {
                let times = resampled.times(round, cohort);
                mean_ns[cohort] = dot(times, &added[cohort]);
                for &(message, (_, n, parts)) in with_samples {
                    let times = f64::from(times[message]);
                    samples[cohort] += times * n;
                    parts.iter().for_each(|&(part, n, _)| by_part[part][cohort] += times * n as f64);
                }
            }
            let scale = Scale { mean_ns, samples, of_reference: samples[1] };
            draws.iter_mut().zip(by_part).for_each(|(draws, samples)| draws.push(scale.deviation_ns(samples)));
        }
        let interval = |mut draws: Vec<f64>| {
            draws.sort_unstable_by(f64::total_cmp);
            let at = |q: f64| {
                draws.get((draws.len() as f64 * q) as usize).or(draws.last()).copied().unwrap_or(0.0).round() as i64
            };
            [at(0.025), at(0.975)]
        };
        draws.into_iter().map(interval).collect()
    }

    /// How many messages each cohort has.
    pub(super) fn sizes(&self) -> [usize; 2] {
        self.messages.each_ref().map(Vec::len)
    }
}

/// How often each round of the bootstrap draws each message of two cohorts. Rows of cohorts of the same sizes are resampled alike.
pub(crate) struct Resampled {
    sizes: [usize; 2],
    /// By cohort: message by message, round after round.
    times: [Vec<u8>; 2],
}

impl Resampled {
    pub(super) fn new(sizes: [usize; 2], seed: u64) -> Resampled {
        let mut rng = SplitMix(seed);
        let mut times = sizes.map(|size| vec![0_u8; ROUNDS * size]);
        for round in 0..ROUNDS {
            for (times, size) in times.iter_mut().zip(sizes) {
                let times = &mut times[round * size..][..size];
                (0..size).for_each(|_| {
                    let drawn = &mut times[rng.below(size)];
                    *drawn = drawn.saturating_add(1);
                });
            }
        }
        Resampled { sizes, times }
    }

    pub(super) fn sizes(&self) -> [usize; 2] {
        self.sizes
    }

    fn times(&self, round: usize, cohort: usize) -> &[u8] {
        let size = self.sizes[cohort];
        &self.times[cohort][round * size..][..size]
    }
}

/// The sum of products, in several sums at once.
fn dot(times: &[u8], values: &[f64]) -> f64 {
    let ((times, last_times), (values, last)) = (times.as_chunks::<8>(), values.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (times, values) in times.iter().zip(values) {
        sums.iter_mut().zip(times).zip(values).for_each(|((sum, &times), values)| *sum += f64::from(times) * values);
    }
    let rest = last_times.iter().zip(last).map(|(&times, values)| f64::from(times) * values);
    sums.into_iter().chain(rest).sum()
}
