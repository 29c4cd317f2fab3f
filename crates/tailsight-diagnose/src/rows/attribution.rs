//! The part of each message in each row: hits, evidence, coverage, dominant cause, and the blocks for the bootstrap.
//!
//! In: the rows, and the two cohorts. Out: for each row the focus messages that it hit; for each focus message how much of its own
//! deviation is explained, and which row has most of it. One pass over the parts of both cohorts, and one over the focus when the
//! causes are known. All times in ns.

use std::cmp::Reverse;

use tailsight_lifetime::{Leg, Lifetimes};

use super::Rows;
use super::bootstrap::Blocks;
use super::profile::{Profile, Sum};
use crate::cohorts::Cohort;
use crate::model::Coverage;

/// Most ids of a cause's evidence.
const EVIDENCE: usize = 5;

/// Most messages of [`Coverage::least`].
const MOST_UNCOVERED: usize = 16;

/// How often and how long the messages of the cohorts had a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Occurrence {
    /// Occurrences per message, on average: focus, reference.
    pub times: [f64; 2],
    /// Mean ns per message: focus, reference.
    pub mean_ns: [f64; 2],
    /// Fraction of the reference messages that have it above the granularity.
    pub usual: f64,
}

/// The second pass's results, by row.
#[derive(Clone, Debug)]
pub struct Attribution {
    /// Focus messages with more of it than the reference mean and the granularity.
    pub hits: Vec<u64>,
    /// Those with most of it.
    pub evidence: Vec<Vec<u32>>,
    /// How often, how long, and in how many of the reference messages.
    pub occurrences: Vec<Occurrence>,
    /// How much of the deviation has an owner.
    pub owned: Coverage,
    /// Mean of the reference by row, ns.
    usual: Vec<f64>,
    /// Mean latency of the reference, ns.
    usual_latency: f64,
    granularity: f64,
    /// By focus message, in the cohort's order: the row with most of its deviation, and its latency, ns.
    pub dominant: Vec<(usize, u64)>,
    /// The focus's sums for the bootstrap.
    pub focus: Blocks,
    /// The reference's sums for the bootstrap.
    pub reference: Blocks,
}

impl Attribution {
    /// Visits every message of both cohorts.
    pub fn new(
        lifetimes: &Lifetimes,
        leg: Leg,
        profile: &Profile,
        rows: &Rows,
        (focus, reference): (&Cohort, &Cohort),
        granularity_ns: u64,
    ) -> Attribution {
        let granularity = granularity_ns as f64;
        let fill = |id: u32, ns: &mut [i64]| by_row(lifetimes, leg, profile, rows, id, ns);
        let usual = OfReference::new(rows.rows.len(), reference, granularity, &fill);
        let in_focus = OfFocus::new(rows.rows.len(), focus, &usual, granularity, &fill);
        let last = rows.rows.len() - 1;
        let overall = covered_part(rows.total as f64, rows.rows[last].scaled as f64);
        let occurrence = |(r, row): (usize, &super::Row)| {
            let count = |sums: &[Sum]| row.slots.iter().map(|&s| sums[s].count).sum::<u64>() as f64;
            Occurrence {
                times: [count(&profile.focus) / focus.len() as f64, count(&profile.reference) / reference.len() as f64],
                mean_ns: [in_focus.mean[r], usual.mean[r]],
                usual: usual.have[r] as f64 / reference.len() as f64,
            }
        };
        let evidence = |most: Vec<(i64, Reverse<u32>)>| most.into_iter().map(|(_, Reverse(id))| id).collect();
        Attribution {
            occurrences: rows.rows.iter().enumerate().map(occurrence).collect(),
            hits: in_focus.hits,
            evidence: in_focus.most.into_iter().map(evidence).collect(),
            owned: coverage_of(in_focus.covered, overall),
            usual: usual.mean,
            usual_latency: usual.latency,
            granularity,
            dominant: in_focus.dominant,
            focus: in_focus.blocks,
            reference: usual.blocks,
        }
    }

    /// NSight's coverage (§5.2, §6.3): the part of each focus message's deviation that belongs to reported causes.
    /// `is_reported` says of each row whether it is one.
    pub fn coverage(
        &self,
        lifetimes: &Lifetimes,
        leg: Leg,
        profile: &Profile,
        rows: &Rows,
        focus: &Cohort,
        is_reported: &dyn Fn(usize) -> bool,
    ) -> Coverage {
        let n = rows.rows.len();
        let reported: Vec<bool> = (0..n).map(is_reported).collect();
        let sum = |value: &dyn Fn(usize) -> f64| (0..n).filter(|&row| !reported[row]).map(value).sum::<f64>();
        let mut ns = vec![0i64; n];
        let covered_of = |&id: &u32| {
            let latency = by_row(lifetimes, leg, profile, rows, id, &mut ns);
            let rest = sum(&|row| ns[row] as f64 - self.usual[row]);
            (id, covered_above(latency as f64 - self.usual_latency, rest, self.granularity))
        };
        let covered = focus.ids.iter().map(covered_of).collect();
        let scale = rows.denominator as f64;
        let rest = sum(&|row| rows.rows[row].scaled as f64 / scale);
        coverage_of(covered, covered_above(rows.total as f64 / scale, rest, self.granularity))
    }
}

/// What the reference messages have of each row.
struct OfReference {
    /// Mean ns of a message.
    mean: Vec<f64>,
    /// How many have it above the granularity.
    have: Vec<u64>,
    /// Mean latency, ns.
    latency: f64,
    blocks: Blocks,
}

impl OfReference {
    fn new(n: usize, cohort: &Cohort, granularity: f64, fill: &dyn Fn(u32, &mut [i64]) -> i64) -> OfReference {
        let mut ns = vec![0i64; n];
        let (mut mean, mut have) = (vec![0.0; n], vec![0u64; n]);
        let mut blocks = Blocks::new(n, cohort.len());
        for (i, &id) in cohort.ids.iter().enumerate() {
            fill(id, &mut ns);
            blocks.add(i, &ns);
            mean.iter_mut().zip(&ns).for_each(|(sum, &v)| *sum += v as f64);
            have.iter_mut().zip(&ns).for_each(|(sum, &v)| *sum += u64::from(v as f64 > granularity));
        }
        mean.iter_mut().for_each(|sum| *sum /= cohort.len() as f64);
        OfReference { mean, have, latency: cohort.sum_ns as f64 / cohort.len() as f64, blocks }
    }
}

/// What the focus messages have of each row.
struct OfFocus {
    /// Mean ns of a message.
    mean: Vec<f64>,
    hits: Vec<u64>,
    /// Those with most of it.
    most: Vec<Vec<(i64, Reverse<u32>)>>,
    /// How much of each message's deviation has an owner.
    covered: Vec<(u32, f64)>,
    dominant: Vec<(usize, u64)>,
    blocks: Blocks,
}

impl OfFocus {
    fn new(
        n: usize,
        cohort: &Cohort,
        usual: &OfReference,
        granularity: f64,
        fill: &dyn Fn(u32, &mut [i64]) -> i64,
    ) -> OfFocus {
        let last = n - 1;
        let mut ns = vec![0i64; n];
        let mut out = OfFocus {
            mean: vec![0.0; n],
            hits: vec![0; n],
            most: vec![vec![]; n],
            covered: Vec::with_capacity(cohort.len()),
            dominant: Vec::with_capacity(cohort.len()),
            blocks: Blocks::new(n, cohort.len()),
        };
        for (i, &id) in cohort.ids.iter().enumerate() {
            let latency = fill(id, &mut ns);
            out.blocks.add(i, &ns);
            let deviation = latency as f64 - usual.latency;
            out.covered.push((id, covered_part(deviation, ns[last] as f64 - usual.mean[last])));
            // In the direction of the message's deviation: for a fast message, the row of which it has least.
            let part = |row: usize| (ns[row] as f64 - usual.mean[row]) * if deviation < 0.0 { -1.0 } else { 1.0 };
            let top = (0..n).rev().max_by(|&a, &b| part(a).total_cmp(&part(b))).unwrap_or(last);
            out.dominant.push((top, latency as u64));
            for (row, &v) in ns.iter().enumerate() {
                out.mean[row] += v as f64 / cohort.len() as f64;
                if v as f64 > usual.mean[row] + granularity {
                    out.hits[row] += 1;
                    keep_most(&mut out.most[row], (v, Reverse(id)));
                }
            }
        }
        out
    }
}

/// A message's time by row, ns, into `ns`; its latency.
fn by_row(lifetimes: &Lifetimes, leg: Leg, profile: &Profile, rows: &Rows, id: u32, ns: &mut [i64]) -> i64 {
    ns.fill(0);
    let mut sum = 0;
    profile.each(lifetimes, id, |slot, part| {
        ns[rows.row_of(slot)] += part;
        sum += part;
    });
    let latency = lifetimes.messages[id as usize].latency(leg).unwrap_or(0) as i64;
    if let Some(last) = ns.last_mut() {
        *last += latency - sum;
    }
    latency
}

/// Over the messages, of which there must be at least one.
fn coverage_of(mut covered: Vec<(u32, f64)>, overall: f64) -> Coverage {
    covered.sort_unstable_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    let mean = covered.iter().map(|c| c.1).sum::<f64>() / covered.len() as f64;
    let (p50, min) = (covered[(covered.len() - 1) / 2].1, covered[0].1);
    covered.truncate(MOST_UNCOVERED);
    covered.retain(|c| c.1 < 1.0);
    Coverage { overall, p50, min, mean, least: covered }
}

/// The fraction of a deviation that is covered, given the rest that is not, from 0 to 1.
///
/// The rest is signed: rows that are smaller than usual cannot hide it, and covering more than the deviation is not full coverage.
fn covered_part(deviation: f64, rest: f64) -> f64 {
    if rest == 0.0 {
        1.0
    } else if deviation == 0.0 {
        0.0
    } else {
        (1.0 - (rest / deviation).abs()).clamp(0.0, 1.0)
    }
}

/// As [`covered_part`]; a deviation up to the granularity is noise (NSight §5.2), and covered if the rest is noise, too.
fn covered_above(deviation: f64, rest: f64, granularity: f64) -> f64 {
    if deviation.abs() > granularity { covered_part(deviation, rest) } else { f64::from(rest.abs() <= granularity) }
}

/// Keeps the largest, in order; of equals the earlier message.
fn keep_most(most: &mut Vec<(i64, Reverse<u32>)>, entry: (i64, Reverse<u32>)) {
    let at = most.partition_point(|m| *m > entry);
    if at < EVIDENCE {
        most.insert(at, entry);
        most.truncate(EVIDENCE);
    }
}
