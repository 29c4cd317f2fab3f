//! What each message had of each row: hits, evidence, coverage, and the blocks for the bootstrap.
//!
//! In: the rows, and the two cohorts. Out: per row the focus messages it hit; per focus message how much of its own deviation
//! is explained. One pass over the parts of both cohorts; all times in ns.

use std::cmp::Reverse;

use tailsight_lifetime::{Leg, Lifetimes};

use crate::bootstrap::Blocks;
use crate::causes::Rows;
use crate::model::Coverage;
use crate::profile::{Cohort, Profile, each_part, slot};

/// Most ids of a cause's evidence.
const EVIDENCE: usize = 5;

/// The second pass's results, by row.
#[derive(Clone, Debug)]
pub struct Attribution {
    /// Focus messages with more of it than the reference mean and the granularity.
    pub hits: Vec<u64>,
    /// Those with most of it.
    pub evidence: Vec<Vec<u32>>,
    /// How often it began in a message, on average: focus, reference.
    pub times: Vec<[f64; 2]>,
    /// How much of the deviation is explained.
    pub coverage: Coverage,
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
        let n = rows.rows.len();
        let (owners, last) = (lifetimes.owners.len(), n - 1);
        let mut ns = vec![0i64; n];
        let fill = |id: u32, ns: &mut [i64]| -> i64 {
            ns.fill(0);
            let mut sum = 0;
            each_part(lifetimes, id, leg, |segment, part| {
                ns[rows.row_of(slot(owners, segment, part))] += part.ns as i64;
                sum += part.ns as i64;
            });
            let latency = lifetimes.messages[id as usize].latency(leg).unwrap_or(0) as i64;
            ns[last] += latency - sum;
            latency
        };

        let mut usual = vec![0.0; n];
        let mut reference_blocks = Blocks::new(n, reference.len());
        for (i, &id) in reference.ids.iter().enumerate() {
            fill(id, &mut ns);
            reference_blocks.add(i, &ns);
            usual.iter_mut().zip(&ns).for_each(|(sum, &v)| *sum += v as f64);
        }
        usual.iter_mut().for_each(|sum| *sum /= reference.len() as f64);
        let usual_latency = reference.sum_ns as f64 / reference.len() as f64;

        let mut hits = vec![0; n];
        let mut most: Vec<Vec<(i64, Reverse<u32>)>> = vec![vec![]; n];
        let mut covered = Vec::with_capacity(focus.len());
        let mut focus_blocks = Blocks::new(n, focus.len());
        for (i, &id) in focus.ids.iter().enumerate() {
            let latency = fill(id, &mut ns);
            focus_blocks.add(i, &ns);
            covered.push(coverage(latency as f64 - usual_latency, ns[last] as f64 - usual[last]));
            for (row, &v) in ns.iter().enumerate() {
                if v as f64 > usual[row] + granularity_ns as f64 {
                    hits[row] += 1;
                    keep_most(&mut most[row], (v, Reverse(id)));
                }
            }
        }
        covered.sort_unstable_by(f64::total_cmp);
        let overall = coverage(rows.total as f64, rows.rows[last].scaled as f64);
        let times = rows.rows.iter().map(|row| {
            let count = |of: &[crate::profile::Sum]| row.slots.iter().map(|&s| of[s].count).sum::<u64>() as f64;
            [count(&profile.focus) / focus.len() as f64, count(&profile.reference) / reference.len() as f64]
        });
        Attribution {
            hits,
            evidence: most.into_iter().map(|m| m.into_iter().map(|(_, Reverse(id))| id).collect()).collect(),
            times: times.collect(),
            coverage: Coverage { overall, p50: covered[(covered.len() - 1) / 2], min: covered[0] },
            focus: focus_blocks,
            reference: reference_blocks,
        }
    }
}

/// The explained fraction of a deviation (NSight §6.3): all of it but the part without an owner, from 0 to 1.
///
/// Signed, so that time without owner cannot hide behind rows that are smaller than usual.
fn coverage(deviation: f64, unexplained: f64) -> f64 {
    if unexplained == 0.0 {
        1.0
    } else if deviation == 0.0 {
        0.0
    } else {
        (1.0 - (unexplained / deviation).abs()).clamp(0.0, 1.0)
    }
}

/// Keeps the largest, in order; of equals the earlier message.
fn keep_most(most: &mut Vec<(i64, Reverse<u32>)>, entry: (i64, Reverse<u32>)) {
    let at = most.partition_point(|m| *m > entry);
    if at < EVIDENCE {
        most.insert(at, entry);
        most.truncate(EVIDENCE);
    }
}
