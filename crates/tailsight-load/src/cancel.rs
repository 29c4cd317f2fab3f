//! What ends a load from outside, whatever its server does. In: a time, flags. Out: whether the load must end, and why.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::LoadError;
use crate::clock::now_ns;

static NEVER: AtomicBool = AtomicBool::new(false);

/// How long the preparation of a load may take, and how it can be ended.
#[derive(Debug, Clone)]
pub struct Cancel<'a> {
    /// The preparation ends at this time, CLOCK_MONOTONIC ns; `u64::MAX`: only the limits of its steps apply.
    pub until_ns: u64,
    /// The preparation ends when this becomes true. The load that follows does not look at it.
    pub stop: &'a AtomicBool,
    /// When this becomes true, the preparation ends, or the running load ends at once, as if its driver were dropped.
    pub abandon: Arc<AtomicBool>,
}

impl Default for Cancel<'_> {
    /// None.
    fn default() -> Self {
        Self { until_ns: u64::MAX, stop: &NEVER, abandon: Arc::default() }
    }
}

impl Cancel<'_> {
    /// Why a preparation is over, in words; `None`: it is not.
    #[must_use]
    pub fn ended(&self) -> Option<&'static str> {
        self.over().map(Over::words)
    }

    /// Why a preparation is over.
    pub(crate) fn over(&self) -> Option<Over> {
        if self.stop.load(Ordering::Relaxed) || self.abandon.load(Ordering::Relaxed) {
            Some(Over::Stopped)
        } else if now_ns() >= self.until_ns {
            Some(Over::OutOfTime)
        } else {
            None
        }
    }
}

/// Why a preparation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Stopped,
    OutOfTime,
}

impl Over {
    fn words(self) -> &'static str {
        match self {
            Self::Stopped => "interrupted",
            Self::OutOfTime => "the time allowed is over",
        }
    }

    /// The error of the step at hand.
    pub(crate) fn during(self, target: &crate::Endpoint, step: &str, came: u64) -> LoadError {
        let what = self.words();
        let came = if came == 0 { String::new() } else { format!(" ({})", bytes_came(came)) };
        LoadError::Ended { target: target.to_string(), reason: format!("{what} while {step}{came}") }
    }
}

/// How much a server had sent, in words.
pub(crate) fn bytes_came(bytes: u64) -> String {
    match bytes {
        0 => "nothing came".into(),
        1..1_000_000 => format!("{bytes} bytes arrived without the end of a reply"),
        _ => format!("{:.0} MB arrived without the end of a reply", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leash_is_over_by_its_time_or_by_either_flag() {
        assert_eq!(Cancel::default().over(), None);
        assert_eq!(Cancel { until_ns: 1, ..Cancel::default() }.over(), Some(Over::OutOfTime));
        let stop = AtomicBool::new(true);
        assert_eq!(Cancel { until_ns: 1, stop: &stop, ..Cancel::default() }.over(), Some(Over::Stopped));
        let cancel = Cancel::default();
        cancel.abandon.store(true, Ordering::Relaxed);
        assert_eq!(cancel.over(), Some(Over::Stopped));
    }
}
