//! An agent's clock beside the coordinator's. In: bracketed readings. Out: the offset with the most that it can be wrong.
//!
//! Latencies never need it: they are differences on one agent's clock. It lays the agents' streams beside each other.

use serde::{Deserialize, Serialize};
use tailsight_units::format::duration;

/// A reading of the agent's CLOCK_MONOTONIC between two of the coordinator's, all ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) before_ns: u64,
    pub(crate) agent_ns: u64,
    pub(crate) after_ns: u64,
}

/// Agent's clock minus coordinator's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// The best guess, ns.
    pub offset_ns: i64,
    /// The most that it can be wrong (half the shortest round trip), ns; 0 when both read the very same clock.
    pub bound_ns: u64,
    /// When it was measured, on the coordinator's clock, ns.
    pub at_ns: u64,
}

/// Two Linux hosts under NTP may each be slewed by 500 ppm; beyond their sum one of them does not keep time.
const MOST_DRIFT: f64 = 1e-3;

impl Offset {
    /// From the tightest bracket; `None` without rounds. `same_clock`: host and time namespace are the coordinator's own.
    pub(crate) fn measure(rounds: &[Round], same_clock: bool) -> Option<Self> {
        let best = rounds.iter().filter(|r| r.after_ns >= r.before_ns).min_by_key(|r| r.after_ns - r.before_ns)?;
        let (low, high) = (best.before_ns, best.after_ns);
        // A claim to be the same clock is believed only when no reading contradicts it.
        if same_clock && rounds.iter().all(|r| (r.before_ns..=r.after_ns).contains(&r.agent_ns)) {
            return Some(Self { offset_ns: 0, bound_ns: 0, at_ns: low });
        }
        let middle = u64::midpoint(low, high);
        let bound_ns = (high - low).div_ceil(2) + 1;
        Some(Self { offset_ns: best.agent_ns.wrapping_sub(middle) as i64, bound_ns, at_ns: middle })
    }

    /// What is wrong when `later` cannot be the same clock running on.
    pub(crate) fn contradicts(&self, later: &Self) -> Option<String> {
        let moved = self.offset_ns.abs_diff(later.offset_ns);
        let elapsed = later.at_ns.saturating_sub(self.at_ns);
        let allowed = self.bound_ns + later.bound_ns + (elapsed as f64 * MOST_DRIFT) as u64;
        (moved > allowed).then(|| {
            format!(
                "its clock moved by {} relative to the coordinator's in {}, and drift and measurement error explain at \
                 most {}: one host was suspended, or its clock is wrong",
                duration(moved),
                duration(elapsed),
                duration(allowed)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the delays of each direction, the true offset is within the bound.
        #[test]
        fn the_truth_is_within_the_bound(
            offset in -1_000_000_000_000_i64..1_000_000_000_000,
            delays in proptest::collection::vec((0..5_000_000_u64, 0..5_000_000_u64), 1..30),
        ) {
            let mut now = 2_000_000_000_000_u64;
            let rounds: Vec<Round> = delays.iter().map(|(there, back)| {
                let before_ns = now;
                now += there + back;
                Round { before_ns, agent_ns: (before_ns + there).wrapping_add_signed(offset), after_ns: now }
            }).collect();
            let measured = Offset::measure(&rounds, false).unwrap();
            prop_assert!(measured.offset_ns.abs_diff(offset) <= measured.bound_ns, "{measured:?}");
            let shortest = delays.iter().map(|(a, b)| a + b).min().unwrap();
            prop_assert!(measured.bound_ns <= shortest / 2 + 2);
        }
    }

    #[test]
    fn a_false_claim_to_be_the_same_clock_is_not_believed() {
        let round = |agent_ns| Round { before_ns: 1000, agent_ns, after_ns: 1200 };
        assert_eq!(Offset::measure(&[round(1100)], true).unwrap().bound_ns, 0);
        let measured = Offset::measure(&[round(1100), round(5000)], true).unwrap();
        assert!(measured.bound_ns > 0);
        assert_eq!(Offset::measure(&[], true), None);
    }

    #[test]
    fn steps_are_told_from_drift() {
        let at = |offset_ns, at_ns| Offset { offset_ns, bound_ns: 50_000, at_ns };
        let start = at(7_000_000, 0);
        assert_eq!(start.contradicts(&at(7_000_000 + 900_000, 1_000_000_000)), None);
        let words = start.contradicts(&at(7_000_000 - 1_200_000, 1_000_000_000)).unwrap();
        assert!(words.contains("1.20 ms") && words.contains("1.10 ms"), "{words}");
    }
}
