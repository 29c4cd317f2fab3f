//! Finds the state at a time in a timeline of millions of steps, without a binary search over all of it.

/// Steps of a timeline by time: buckets of equal length, about [`PER_BUCKET`] steps each.
#[derive(Clone, Debug, Default)]
pub struct TimeIndex {
    from: u64,
    shift: u32,
    /// For each bucket, how many steps begin before it; one more at the end.
    before: Vec<u32>,
}

/// Steps a bucket: a quarter of the memory of a number a step, and one cache line of steps to look at.
const PER_BUCKET: usize = 4;

impl TimeIndex {
    /// Of steps by their beginnings, in order. Few steps need no index.
    pub fn new<T>(steps: &[T], from: impl Fn(&T) -> u64) -> TimeIndex {
        // What was before the recording begins at 0, far from everything else.
        let (Some(first), Some(last)) = (steps.get(1), steps.last()) else { return TimeIndex::default() };
        TimeIndex::of(steps.iter().map(&from), steps.len(), (from(first), from(last)))
    }

    /// Of the beginnings of so many steps, in order; those of the second and the last are known. All of them are asked for, once.
    pub fn of(begins: impl Iterator<Item = u64>, steps: usize, (second, last): (u64, u64)) -> TimeIndex {
        let buckets = (steps / PER_BUCKET).max(1) as u64;
        let shift = (u64::BITS - ((last - second) / buckets).leading_zeros()).min(63);
        let mut before = Vec::with_capacity(((last - second) >> shift) as usize + 2);
        before.push(0);
        for (i, begin) in (0u32..).zip(begins) {
            let bucket = (begin.saturating_sub(second) >> shift) as usize;
            if bucket >= before.len() {
                before.resize(bucket + 1, i);
            }
        }
        before.push(steps as u32);
        TimeIndex { from: second, shift, before }
    }

    /// The step that holds at `ts`: the last one that begins by then.
    pub fn at<T>(&self, steps: &[T], ts: u64, from: impl Fn(&T) -> u64) -> Option<usize> {
        let bucket =
            (ts.saturating_sub(self.from) >> self.shift).min(self.before.len().saturating_sub(2) as u64) as usize;
        let range = match self.before.get(bucket..bucket + 2) {
            Some(&[first, last]) => first as usize..last as usize,
            _ => 0..steps.len(),
        };
        let inside = steps[range.clone()].partition_point(|s| from(s) <= ts);
        (range.start + inside).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_binary_search(mut steps in prop::collection::vec(1_000u64..9_000, 0..200), gap in any::<bool>()) {
            steps.sort_unstable();
            if let Some(first) = steps.first_mut().filter(|_| gap) {
                *first = 0;
            }
            let by_time = TimeIndex::new(&steps, |s| *s);
            for ts in (0..10_000).step_by(7).chain(steps.clone()).chain([u64::MAX]) {
                let expected = steps.partition_point(|s| *s <= ts).checked_sub(1);
                prop_assert_eq!(by_time.at(&steps, ts, |s| *s), expected);
            }
        }
    }
}
