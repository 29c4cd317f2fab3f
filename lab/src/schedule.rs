//! When a fault is on: always, or in bursts on a grid of CLOCK_MONOTONIC. In: `always`, `3ms/60ms`. Out: windows in ns.

use std::time::Duration;

use crate::clock::{now_ns, sleep_until};
use crate::{Error, Result};
use tailsight_units::parse;

/// When a fault is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// All the time.
    Always,
    /// For `on_ns` at the beginning of every `period_ns`.
    Bursts {
        /// Length of a burst, ns.
        on_ns: u64,
        /// From one beginning to the next, ns.
        period_ns: u64,
    },
}

impl std::str::FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "always" {
            return Ok(Self::Always);
        }
        let bursts = |(on, period): (&str, &str)| {
            let (on, period): (Duration, Duration) = (parse::duration(on).ok()?, parse::duration(period).ok()?);
            (on < period).then_some(Self::Bursts { on_ns: on.as_nanos() as u64, period_ns: period.as_nanos() as u64 })
        };
        text.split_once('/').and_then(bursts).ok_or_else(|| Error::Parse {
            what: "schedule",
            text: text.into(),
            expected: "`always`, or a burst and the time from one to the next, such as 3ms/60ms",
        })
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Bursts { on_ns, period_ns } => write!(f, "{}us/{}us", on_ns / 1000, period_ns / 1000),
        }
    }
}

impl Schedule {
    /// The burst that `now_ns` is in or, between two, the next one: [begin, end). `Always` gives slices of 10 ms, so that a
    /// request to stop is noticed.
    #[must_use]
    pub fn window(self, now_ns: u64) -> (u64, u64) {
        match self {
            Self::Always => (now_ns, now_ns + 10_000_000),
            Self::Bursts { on_ns, period_ns } => {
                let begin = now_ns / period_ns * period_ns;
                if now_ns < begin + on_ns {
                    (begin, begin + on_ns)
                } else {
                    (begin + period_ns, begin + period_ns + on_ns)
                }
            }
        }
    }

    /// Sleeps until the next burst begins (one that is under way is skipped) and returns it.
    #[must_use]
    pub fn wait(self) -> (u64, u64) {
        let now = now_ns();
        let (mut begin, mut end) = self.window(now);
        if let Self::Bursts { on_ns, period_ns } = self
            && begin < now
        {
            begin += period_ns;
            end = begin + on_ns;
        }
        sleep_until(begin);
        (begin, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts() {
        assert_eq!("always".parse::<Schedule>().unwrap(), Schedule::Always);
        let bursts = "3ms/60ms".parse::<Schedule>().unwrap();
        assert_eq!(bursts, Schedule::Bursts { on_ns: 3_000_000, period_ns: 60_000_000 });
        assert_eq!(bursts.to_string().parse::<Schedule>().unwrap(), bursts);
        for bad in ["", "3ms", "60ms/3ms", "3ms/3ms", "3/60", "x/y", "0ms/3ms"] {
            assert!(bad.parse::<Schedule>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn windows_lie_on_the_grid_and_not_in_the_past(now in 0_u64..1 << 50, on in 1_u64..1 << 30, off in 1_u64..1 << 30) {
            let schedule = Schedule::Bursts { on_ns: on, period_ns: on + off };
            let (begin, end) = schedule.window(now);
            prop_assert_eq!(begin % (on + off), 0);
            prop_assert_eq!(end - begin, on);
            prop_assert!(now < end && begin <= now + off);
            // The window of any time inside it is the same one.
            prop_assert_eq!(schedule.window(end - 1), (begin, end));
            prop_assert_eq!(schedule.window(begin), (begin, end));
        }
    }
}
