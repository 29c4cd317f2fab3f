//! What is counted while spans are built, and how finely time is known.

use rustc_hash::FxHashMap;

use crate::gap::Gap;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Near calls by thread.
    pub calls: FxHashMap<u32, u64>,
    /// Near returns by thread.
    pub returns: FxHashMap<u32, u64>,
    /// Spans: functions entered.
    pub spans: u64,
    /// Of them in code without a symbol.
    pub unnamed: u64,
    /// Returns that no open call belongs to.
    pub strays: u64,
    /// Gaps by reason: how many, and ns in all.
    pub gaps: FxHashMap<Gap, (u64, u64)>,
    /// Steps of time while tracing: [`Granularity`].
    pub granularity: Granularity,
}

/// How finely time is known: the steps that it took between two steps of control flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// By length: up to 1,023 ns each its own, then by powers of two.
    counts: Vec<u64>,
    /// Steps of control flow that share their time with the one before.
    pub same: u64,
}

impl Default for Granularity {
    fn default() -> Granularity {
        Granularity { counts: vec![0; 1024 + 64], same: 0 }
    }
}

impl Granularity {
    pub(super) fn add(&mut self, ns: u64) {
        match ns {
            0 => self.same += 1,
            1..1024 => self.counts[ns as usize] += 1,
            _ => self.counts[1024 + ns.ilog2() as usize] += 1,
        }
    }

    /// A quantile of the steps that are not 0, ns; beyond 1,023 ns the power of two above it. `None` without steps.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let total: u64 = self.counts.iter().sum();
        let rank = ((total as f64 * q).ceil() as u64).clamp(1, total.max(1));
        let mut before = 0;
        let at = self.counts.iter().position(|n| {
            before += n;
            before >= rank && total > 0
        })?;
        Some(if at < 1024 { at as u64 } else { 1 << (at - 1024 + 1).min(63) })
    }
}
