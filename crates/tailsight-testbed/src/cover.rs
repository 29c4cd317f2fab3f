//! How much of an interval others cover. In: intervals in ns, which may overlap. Out: sums of their parts.

/// Intervals that do not overlap, in order, with the sums of their lengths: how much of any interval they cover.
pub struct Cover {
    intervals: Vec<(u64, u64)>,
    /// Length of all intervals before the i-th.
    before: Vec<u64>,
}

impl Cover {
    /// Of intervals [from, to) in any order, ns; those that overlap are joined.
    #[must_use]
    pub fn of(mut all: Vec<(u64, u64)>) -> Self {
        all.sort_unstable();
        let mut intervals: Vec<(u64, u64)> = Vec::new();
        for (from, to) in all.into_iter().filter(|(from, to)| *from > 0 && to > from) {
            match intervals.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => intervals.push((from, to)),
            }
        }
        let mut sum = 0;
        let before = intervals
            .iter()
            .map(|(from, to)| {
                sum += to - from;
                sum - (to - from)
            })
            .collect();
        Self { intervals, before }
    }

    /// What is covered.
    #[must_use]
    pub fn intervals(&self) -> &[(u64, u64)] {
        &self.intervals
    }

    /// The covered time before `at`, ns.
    fn until(&self, at: u64) -> u64 {
        let i = self.intervals.partition_point(|(from, _)| *from < at);
        if i == 0 {
            return 0;
        }
        let (from, to) = self.intervals[i - 1];
        self.before[i - 1] + (at.min(to) - from)
    }

    /// The covered part of [from, to), ns.
    #[must_use]
    pub fn within(&self, from: u64, to: u64) -> u64 {
        self.until(to.max(from)) - self.until(from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cover_is_what_a_count_of_units_gives(
            all in prop::collection::vec((1_u64..200, 0_u64..40), 0..20),
            from in 0_u64..260,
            length in 0_u64..260,
        ) {
            let intervals: Vec<(u64, u64)> = all.iter().map(|(from, n)| (*from, from + n)).collect();
            let to = from + length;
            let units = (from..to).filter(|at| intervals.iter().any(|(a, b)| a <= at && at < b)).count() as u64;
            prop_assert_eq!(Cover::of(intervals).within(from, to), units);
        }
    }
}
