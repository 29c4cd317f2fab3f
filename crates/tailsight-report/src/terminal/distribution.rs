//! The distribution of each leg as a line of blocks, for terminals with Unicode.
//!
//! In: the latencies and a [`Diagnosis`], which says which leg is explained. Out: a title, a line a leg and the axis, all of one
//! logarithmic axis of latency; nothing where there are too few messages. The height of a block is the logarithm of its messages: one
//! message is seen, and a bulk of a million beside it.

use std::ops::Range;

use tailsight_diagnose::Diagnosis;
use tailsight_diagnose::cohorts::legs::Latencies;
use tailsight_lifetime::Leg;

use super::text::{paint, width};
use super::{Style, leg_name, units};

/// Fewer complete messages have no shape.
const LEAST_MESSAGES: usize = 20;
/// Blocks in a line at most.
const MOST_BLOCKS: usize = 64;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The lines, with an empty one before them.
pub fn distribution(latencies: &Latencies, d: &Diagnosis, style: &Style) -> String {
    let of_legs = Leg::ALL.into_iter().map(|leg| (leg, latencies.of_leg(leg)));
    let legs: Vec<(Leg, &[u64])> = of_legs.filter(|(_, values)| values.len() >= LEAST_MESSAGES).collect();
    let latencies_ns = || legs.iter().flat_map(|(_, values)| values.iter().copied());
    let (Some(from), Some(to)) = (latencies_ns().min(), latencies_ns().max()) else { return String::new() };
    // A logarithmic axis has no 0.
    let (from, to) = (from.max(1), to.max(1));
    let name = |leg: Leg| leg_name(d, leg);
    let name_w = legs.iter().map(|(leg, _)| name(*leg).len()).max().unwrap_or(0) + 3;
    let blocks = (style.columns() - name_w).min(MOST_BLOCKS);
    let mut out = format!("\n{}\n", paint(style, "1", "Distribution of the latencies, log axes:"));
    for (leg, values) in &legs {
        let row = format!("{:name_w$}{}", format!("  {}", name(*leg)), sparkline(values, from, to, blocks));
        out += row.trim_end();
        out.push('\n');
    }
    let (low, high) = (units::duration(from), units::duration(to));
    let gap = (blocks).saturating_sub(width(&low) + width(&high));
    out += &paint(style, "2", &format!("{:name_w$}{low}{:gap$}{high}", "", ""));
    out.push('\n');
    out
}

/// A block for each slice of the logarithmic axis from `from` to `to`, ns; a space where there is no message.
fn sparkline(values: &[u64], from: u64, to: u64, blocks: usize) -> String {
    let mut counts = vec![0_u64; blocks];
    let span = (to as f64 / from as f64).ln().max(f64::MIN_POSITIVE);
    let block_of = |ns: u64| ((ns as f64 / from as f64).ln() / span * blocks as f64) as usize;
    // Where each block but the first begins: logarithms of a few latencies instead of all.
    let begins: Vec<u64> = (1..blocks).map(|block| first(from..to + 1, |ns| block_of(ns) >= block)).collect();
    let least = |part| begins.partition_point(|begin| u128::from(*begin) <= least_of(part));
    let by_part: Vec<usize> = (0..u64::BITS as usize * PARTS).map(least).collect();
    for ns in values.iter().map(|ns| (*ns).max(1)) {
        // What is left to look through is a part of a doubling: mostly there is no other block in it.
        let least = by_part[part_of(ns)];
        counts[least + begins[least..].iter().take_while(|begin| **begin <= ns).count()] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1) as f64;
    let block = |n: u64| match n {
        0 => ' ',
        n => {
            let height = (1.0 + n as f64).ln() / (1.0 + most).ln() * BLOCKS.len() as f64;
            BLOCKS[(height.ceil() as usize).clamp(1, BLOCKS.len()) - 1]
        }
    };
    counts.into_iter().map(block).collect()
}

/// Parts of each doubling of the axis.
const PARTS: usize = 16;

/// The part that a latency is in, ns, which is not 0: its magnitude, and the bits that follow the highest one.
fn part_of(ns: u64) -> usize {
    let below = ns << ns.leading_zeros() << 1;
    ns.ilog2() as usize * PARTS + (below >> (u64::BITS - PARTS.ilog2())) as usize
}

/// The least latency that a part can hold, ns.
fn least_of(part: usize) -> u128 {
    (((PARTS + part % PARTS) as u128) << (part / PARTS)) / PARTS as u128
}

/// The first number of a range for which `holds`, which is so for all after it; its end when it holds for none.
fn first(range: Range<u64>, holds: impl Fn(u64) -> bool) -> u64 {
    let Range { start: mut low, end: mut high } = range;
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_slow_message_is_seen_beside_a_million() {
        let mut values = vec![1_000; 1_000_000];
        values.push(1_000_000);
        assert_eq!(sparkline(&values, 1_000, 1_000_000, 10), "█        ▁");
    }

    #[test]
    fn a_latency_is_at_least_its_parts_least_and_no_more_than_a_part_above() {
        for ns in (1..2_000).chain([1 << 40, (1 << 40) + 1, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX]) {
            let least = least_of(part_of(ns));
            assert!(least <= u128::from(ns) && u128::from(ns) <= least + least / PARTS as u128, "{ns}: {least}");
        }
    }

    #[test]
    fn the_axis_is_logarithmic() {
        assert_eq!(sparkline(&[1, 10, 100, 1_000], 1, 1_000, 6), "█ █ ██");
        assert_eq!(sparkline(&[7, 7], 7, 7, 4), "█   ");
    }

    #[test]
    fn blocks_rise_with_the_messages() {
        let mut values = vec![1_u64; 1_000];
        values.extend([10; 100]);
        values.extend([100; 10]);
        let heights: Vec<usize> = sparkline(&values, 1, 1_000, 3)
            .chars()
            .map(|c| BLOCKS.iter().position(|b| *b == c).expect("a block"))
            .collect();
        assert!(heights[0] > heights[1] && heights[1] > heights[2], "{heights:?}");
    }
}
