//! perf's time on a run's timeline, and back: by the time-stamp counter that both know.

use tailsight_trace::Run;
use tailsight_trace::clock_log::{Clock, ClockLog};
use tailsight_trace::tables::ClockRow;

use crate::Error;
use crate::sideband::TscClock;

/// A time that is farther than this from every comparison of clocks is not converted, ns.
const MOST_APART_NS: u64 = 1_000_000_000;

/// How perf's time is converted to a run's.
#[derive(Clone, Debug)]
pub enum Timeline {
    /// Both are the same.
    Perf,
    /// By the kernel's own conversions, recorded change by change.
    Log(Box<ClockLog>),
    /// By comparisons of the counter with CLOCK_MONOTONIC, one every 100 ms.
    Compared(Vec<ClockRow>),
}

impl Timeline {
    /// The best conversion that a run has.
    ///
    /// # Errors
    /// [`Error::With`] when the run knows nothing of the time-stamp counter.
    pub fn of(run: &Run) -> Result<Timeline, Error> {
        let log = ClockLog::new(run.clock_log.iter().copied());
        if !log.is_empty() {
            return Ok(Timeline::Log(Box::new(log)));
        }
        let rows: Vec<ClockRow> = run.clocks.iter().filter(|row| row.tsc != 0).copied().collect();
        if rows.len() < 2 {
            let why = "it knows nothing of the time-stamp counter (clocks.arrow, clock_log.arrow)".into();
            return Err(Error::With { run: run.dir.clone(), why });
        }
        Ok(Timeline::Compared(rows))
    }

    /// Converts perf's time to a time of the run, with its largest error, ns.
    pub fn place(&self, clock: TscClock, ns: u64) -> Option<(u64, u64)> {
        match self {
            Timeline::Perf => Some((ns, 0)),
            Timeline::Log(log) => log.convert(Clock::Monotonic, clock.tsc(ns)).map(|t| (t.ns, t.error_ns)),
            Timeline::Compared(rows) => between(rows, clock.tsc(ns)),
        }
    }

    /// Converts a time of the run to perf's time.
    pub fn back(&self, clock: TscClock, ns: u64) -> Option<u64> {
        match self {
            Timeline::Perf => Some(ns),
            Timeline::Log(log) => log.tsc_at(ns).map(|tsc| clock.ns(tsc)),
            Timeline::Compared(rows) => {
                let i = rows.partition_point(|row| row.monotonic_ns <= ns).clamp(1, rows.len() - 1);
                let (a, b) = (&rows[i - 1], &rows[i]);
                let tsc = line((a.monotonic_ns, a.tsc), (b.monotonic_ns, b.tsc), ns)?;
                Some(clock.ns(tsc))
            }
        }
    }
}

/// The line through two points, at x.
fn line(a: (u64, u64), b: (u64, u64), x: u64) -> Option<u64> {
    let (dx, dy) = (i128::from(b.0) - i128::from(a.0), i128::from(b.1) - i128::from(a.1));
    let rise = (i128::from(x) - i128::from(a.0)).checked_mul(dy)? / Some(dx).filter(|dx| *dx != 0)?;
    u64::try_from(i128::from(a.1).checked_add(rise)?).ok()
}

fn between(rows: &[ClockRow], tsc: u64) -> Option<(u64, u64)> {
    let i = rows.partition_point(|row| row.tsc <= tsc).clamp(1, rows.len() - 1);
    let (a, b) = (&rows[i - 1], &rows[i]);
    let ns = line((a.tsc, a.monotonic_ns), (b.tsc, b.monotonic_ns), tsc)?;
    // Between two rows the counter's rate may have been steered; beyond the rows it is unknown.
    let near = ns.abs_diff(a.monotonic_ns).min(ns.abs_diff(b.monotonic_ns));
    let error = a.bracket_ns.max(b.bracket_ns) / 2 + near / 10_000 + 1;
    (near <= MOST_APART_NS).then_some((ns, error))
}
