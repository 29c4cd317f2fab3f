//! The clock log: the kernel's own conversions of the time-stamp counter, change by change, and what they say of any counter.
//!
//! In: [`ClockChangeRow`]s, one for each change that was seen (`clock_log.arrow`). Out: times on CLOCK_MONOTONIC, CLOCK_REALTIME and
//! CLOCK_TAI, each with a bound of its error. NSight §4.1 (time reconciliation).
//!
//! A change counts from the moment that it was made, which is where its line meets the one before. Between two changes that follow each other the conversion is the kernel's, to the nanosecond. The sequence count says exactly how many
//! changes were missed between two rows; a change that was missed bends the line, and how far it did is seen where the next row
//! begins: the difference between what the earlier row predicts for that moment and what the later one says. That is the bound of
//! the error for every counter in between. A step of a clock is such a difference, too, and no more than it.

use serde::{Deserialize, Serialize};

/// The kernel's conversion from one change on: `base + ((tsc - cycle_last) * mult + shifted >> shift)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockChangeRow {
    /// The page's sequence count: 2 more with each change; wraps.
    pub seq: u32,
    /// The counter when it was made.
    pub cycle_last: u64,
    /// ns of a tick, times `2^shift`.
    pub mult: u32,
    /// Bits.
    pub shift: u32,
    /// CLOCK_MONOTONIC then: whole seconds,
    pub monotonic_s: u64,
    /// and ns times `2^shift`.
    pub monotonic_shifted_ns: u64,
    /// CLOCK_REALTIME then: whole seconds,
    pub realtime_s: u64,
    /// and ns times `2^shift`.
    pub realtime_shifted_ns: u64,
    /// CLOCK_TAI then: whole seconds,
    pub tai_s: u64,
    /// and ns times `2^shift`.
    pub tai_shifted_ns: u64,
}

/// A clock of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// CLOCK_MONOTONIC: the timeline of a run.
    Monotonic,
    /// CLOCK_REALTIME.
    Realtime,
    /// CLOCK_TAI.
    Tai,
}

/// A time with the most that it may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// ns.
    pub ns: u64,
    /// ns.
    pub error_ns: u64,
}

impl ClockChangeRow {
    /// A change as the kernel publishes it. `rate` is `mult` and `shift`; `clocks` are CLOCK_MONOTONIC, CLOCK_REALTIME and CLOCK_TAI then,
    /// each in whole seconds and ns times `2^shift`.
    pub fn new(seq: u32, cycle_last: u64, rate: (u32, u32), clocks: [(u64, u64); 3]) -> ClockChangeRow {
        let ((mult, shift), [monotonic, realtime, tai]) = (rate, clocks);
        ClockChangeRow {
            seq,
            cycle_last,
            mult,
            shift,
            monotonic_s: monotonic.0,
            monotonic_shifted_ns: monotonic.1,
            realtime_s: realtime.0,
            realtime_shifted_ns: realtime.1,
            tai_s: tai.0,
            tai_shifted_ns: tai.1,
        }
    }

    /// What this change says of a counter, ns. `None`: the numbers are those of no clock.
    pub fn at(&self, clock: Clock, tsc: u64) -> Option<u64> {
        let (seconds, shifted) = match clock {
            Clock::Monotonic => (self.monotonic_s, self.monotonic_shifted_ns),
            Clock::Realtime => (self.realtime_s, self.realtime_shifted_ns),
            Clock::Tai => (self.tai_s, self.tai_shifted_ns),
        };
        if self.shift > 63 {
            return None;
        }
        // Before the change the line is drawn backwards.
        let ticks = i128::from(tsc) - i128::from(self.cycle_last);
        let ns = (ticks.checked_mul(i128::from(self.mult))? + i128::from(shifted)) >> self.shift;
        u64::try_from(i128::from(seconds) * 1_000_000_000 + ns).ok()
    }
}

/// Changes in order, ready to convert.
#[derive(Clone, Debug, Default)]
pub struct ClockLog {
    rows: Vec<ClockChangeRow>,
    /// From which counter on each row counts.
    from: Vec<u64>,
}

/// What a log is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogVerdict {
    /// Changes that were seen.
    pub changes: u64,
    /// Changes that were not, by the sequence count.
    pub missed: u64,
    /// The largest difference between what a row predicts for the next one's beginning and what that says, ns, on CLOCK_MONOTONIC.
    pub monotonic_error_ns: u64,
    /// The same of CLOCK_REALTIME; a step of it is in here.
    pub realtime_error_ns: u64,
    /// The longest time between two rows, ns.
    pub longest_ns: u64,
}

impl ClockChangeRow {
    /// The counter at which this conversion gave way to the next. The kernel changes the slope at any moment, and writes the line that goes
    /// through that moment from the last tick on: `cycle_last` is before it, or where it was. The lines meet at the moment, and with a
    /// missed change that brought the slope, at that one's. `None`: they do not near there; a step, or the same slope.
    fn meets(&self, next: &ClockChangeRow) -> Option<u64> {
        if self.shift != next.shift || self.mult == next.mult {
            return None;
        }
        let at_zero = |row: &ClockChangeRow| {
            let base = (i128::from(row.monotonic_s) * 1_000_000_000).checked_shl(row.shift)?
                + i128::from(row.monotonic_shifted_ns);
            Some(base - i128::from(row.cycle_last) * i128::from(row.mult))
        };
        let apart = at_zero(next)?.checked_sub(at_zero(self)?)?;
        let slopes = i128::from(self.mult) - i128::from(next.mult);
        let tick = u64::try_from(apart.div_euclid(slopes)).ok()?;
        // So long after its tick a change is told at most: an idle machine's tick is seldom, but not longer away than this.
        let latest =
            next.cycle_last.saturating_add((100_000_000u128 << next.shift).div_euclid(u128::from(next.mult)) as u64);
        (self.cycle_last..=latest).contains(&tick).then_some(tick)
    }
}

impl ClockLog {
    /// From the rows of a run. Rows that do not go on from the one before them are of no use and left out.
    pub fn new(rows: impl IntoIterator<Item = ClockChangeRow>) -> ClockLog {
        let mut out = ClockLog::default();
        for row in rows {
            let usable = row.mult != 0 && row.shift <= 63 && row.at(Clock::Monotonic, row.cycle_last).is_some();
            let goes_on = |last: &ClockChangeRow| row.cycle_last >= last.cycle_last && row.seq != last.seq;
            if usable && out.rows.last().is_none_or(goes_on) {
                let from = out.rows.last().and_then(|last| last.meets(&row)).unwrap_or(row.cycle_last);
                out.from.push(from.max(out.from.last().copied().unwrap_or(0)));
                out.rows.push(row);
            }
        }
        out
    }

    /// Whether nothing can be converted.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows.
    pub fn rows(&self) -> &[ClockChangeRow] {
        &self.rows
    }

    /// The time of a counter. Before the first row and long behind the last the line is drawn on, and the bound grows by 500 ppm (the
    /// most that the kernel's clock is steered by). `None` without rows.
    pub fn convert(&self, clock: Clock, tsc: u64) -> Option<Bounded> {
        let i = self.from.partition_point(|from| *from <= tsc);
        let row = &self.rows[i.saturating_sub(1).min(self.rows.len().checked_sub(1)?)];
        let ns = row.at(clock, tsc)?;
        let outside = |from: u64| ns.abs_diff(from).div_ceil(2000) + 1;
        let error_ns = match (i, self.rows.get(i)) {
            (0, _) => outside(row.at(clock, row.cycle_last)?),
            // The next change is not known: within a few ticks of the scheduler there was none.
            (_, None) => match ns.saturating_sub(row.at(clock, row.cycle_last)?) {
                since if since < 20_000_000 => 1,
                since => since.div_ceil(2000) + 1,
            },
            (_, Some(next)) if Self::missed(row, next) == 0 => 1,
            (_, Some(next)) => row.at(clock, next.cycle_last)?.abs_diff(next.at(clock, next.cycle_last)?) + 1,
        };
        Some(Bounded { ns, error_ns })
    }

    /// The counter at a time of CLOCK_MONOTONIC; `None` without rows.
    pub fn tsc_at(&self, monotonic_ns: u64) -> Option<u64> {
        let begins = |i: usize| self.rows[i].at(Clock::Monotonic, self.from[i]).unwrap_or(0);
        let (mut i, mut behind) = (0, self.rows.len());
        while i < behind {
            let middle = i.midpoint(behind);
            if begins(middle) <= monotonic_ns { i = middle + 1 } else { behind = middle }
        }
        let row = self.rows.get(i.saturating_sub(1))?;
        let ns = i128::from(monotonic_ns) - i128::from(row.monotonic_s) * 1_000_000_000;
        let shifted = (ns << row.shift) - i128::from(row.monotonic_shifted_ns);
        let ticks =
            shifted.div_euclid(i128::from(row.mult)) + i128::from(shifted.rem_euclid(i128::from(row.mult)) != 0);
        u64::try_from(i128::from(row.cycle_last) + ticks).ok()
    }

    fn missed(before: &ClockChangeRow, next: &ClockChangeRow) -> u64 {
        u64::from(next.seq.wrapping_sub(before.seq) / 2).saturating_sub(1)
    }

    /// What the log is like.
    pub fn judge(&self) -> LogVerdict {
        let mut out = LogVerdict { changes: self.rows.len().saturating_sub(1) as u64, ..LogVerdict::default() };
        for (pair, from) in self.rows.windows(2).zip(self.from.iter().skip(1)) {
            let (before, next) = (&pair[0], &pair[1]);
            out.missed += Self::missed(before, next);
            let apart = |clock| {
                let (predicted, said) = (before.at(clock, *from), next.at(clock, *from));
                predicted.zip(said).map_or(u64::MAX, |(a, b)| a.abs_diff(b))
            };
            out.monotonic_error_ns = out.monotonic_error_ns.max(apart(Clock::Monotonic));
            out.realtime_error_ns = out.realtime_error_ns.max(apart(Clock::Realtime));
            let begins = |row: &ClockChangeRow| row.at(Clock::Monotonic, row.cycle_last).unwrap_or(0);
            out.longest_ns = out.longest_ns.max(begins(next).saturating_sub(begins(before)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A clock of 2 ticks a nanosecond, changed each 4 ms; the mult is that of an NTP-steered kernel, in turn faster and slower.
    fn log(changes: u32, stepped_at: Option<u32>) -> Vec<ClockChangeRow> {
        let shift = 24;
        let mut out: Vec<ClockChangeRow> = Vec::new();
        for i in 0..changes {
            let cycle_last = 1_000_000_000 + u64::from(i) * 8_000_000;
            let mult = (1 << 23) + if i % 2 == 0 { 800 } else { 0 };
            let (mono, real) = match out.last() {
                None => (5_000_000_000u128 << shift, 1_700_000_000_000_000_000u128 << shift),
                Some(last) => {
                    let ticks = u128::from(cycle_last - last.cycle_last) * u128::from(last.mult);
                    let join = |s: u64, ns: u64| ((u128::from(s) * 1_000_000_000) << shift) + u128::from(ns) + ticks;
                    (join(last.monotonic_s, last.monotonic_shifted_ns), join(last.realtime_s, last.realtime_shifted_ns))
                }
            };
            let real = real + if stepped_at == Some(i) { 2_000_000 << shift } else { 0 };
            let second = 1_000_000_000u128 << shift;
            let tai = real + 37 * second;
            out.push(ClockChangeRow {
                seq: 2 * i,
                cycle_last,
                mult,
                shift,
                monotonic_s: (mono / second) as u64,
                monotonic_shifted_ns: (mono % second) as u64,
                realtime_s: (real / second) as u64,
                realtime_shifted_ns: (real % second) as u64,
                tai_s: (tai / second) as u64,
                tai_shifted_ns: (tai % second) as u64,
            });
        }
        out
    }

    #[test]
    fn a_whole_log_is_exact_and_continuous() {
        let rows = log(50, None);
        let log = ClockLog::new(rows.clone());
        let verdict = log.judge();
        assert_eq!((verdict.changes, verdict.missed), (49, 0));
        assert!(verdict.monotonic_error_ns <= 1 && verdict.realtime_error_ns <= 1, "{verdict:?}");
        let mut last = 0;
        for tsc in (rows[0].cycle_last..rows[49].cycle_last).step_by(99_991) {
            let Bounded { ns, error_ns } = log.convert(Clock::Monotonic, tsc).unwrap();
            assert!(ns >= last && error_ns <= 1);
            last = ns;
            assert_eq!(log.tsc_at(ns).unwrap().abs_diff(tsc).min(4), log.tsc_at(ns).unwrap().abs_diff(tsc));
        }
        // 4 ms of 2 ticks a ns, 800 / 2^23 faster.
        assert_eq!(
            log.convert(Clock::Monotonic, rows[0].cycle_last + 8_000_000).unwrap().ns,
            5_000_000_000 + 4_000_381
        );
        let (real, tai) =
            (log.convert(Clock::Realtime, rows[9].cycle_last), log.convert(Clock::Tai, rows[9].cycle_last));
        assert_eq!(tai.unwrap().ns - real.unwrap().ns, 37_000_000_000);
    }

    /// A change that was not seen is counted, and what it may have moved is the bound of the error there and nowhere else.
    #[test]
    fn missed_changes_are_counted_and_bounded() {
        let rows = log(50, None);
        let truth = ClockLog::new(rows.clone());
        let log = ClockLog::new(rows.iter().enumerate().filter(|(i, _)| !(20..25).contains(i)).map(|(_, row)| *row));
        assert_eq!(log.judge().missed, 5);
        let mut worst = 0;
        for tsc in (rows[0].cycle_last..rows[49].cycle_last).step_by(77_777) {
            let (ours, real) =
                (log.convert(Clock::Monotonic, tsc).unwrap(), truth.convert(Clock::Monotonic, tsc).unwrap());
            assert!(ours.ns.abs_diff(real.ns) <= ours.error_ns, "{ours:?} {real:?}");
            worst = worst.max(ours.error_ns);
            let inside = (rows[19].cycle_last..rows[25].cycle_last).contains(&tsc);
            assert!(inside || ours.error_ns <= 1);
        }
        assert!(worst > 100, "{worst}");
    }

    /// The clock was told to go faster between two looks, and a tick came as well: the log has only the second change, and the time in
    /// between was up to 739 ns off, beyond the next row's.
    #[test]
    fn a_missed_change_of_frequency_is_where_the_lines_meet() {
        let whole = log(6, None);
        // Row 2 is seen, row 3 is not, and row 4 goes on with the slope of row 3.
        let mut rows = whole[..4].to_vec();
        rows[3].mult += 2000;
        let ticks = u128::from(whole[4].cycle_last - rows[3].cycle_last) * u128::from(rows[3].mult);
        let mono = ((u128::from(rows[3].monotonic_s) * 1_000_000_000) << 24)
            + u128::from(rows[3].monotonic_shifted_ns)
            + ticks;
        let second = 1_000_000_000u128 << 24;
        let (monotonic_s, monotonic_shifted_ns) = ((mono / second) as u64, (mono % second) as u64);
        rows.push(ClockChangeRow { mult: rows[3].mult, monotonic_s, monotonic_shifted_ns, ..whole[4] });
        let truth = ClockLog::new(rows.clone());
        rows.remove(3);
        let log = ClockLog::new(rows.clone());
        let mut worst = 0;
        for tsc in (rows[2].cycle_last..rows[3].cycle_last).step_by(9_999) {
            let (ours, real) =
                (log.convert(Clock::Monotonic, tsc).unwrap(), truth.convert(Clock::Monotonic, tsc).unwrap());
            assert!(ours.ns.abs_diff(real.ns) <= 1, "{ours:?} {real:?}");
            worst = worst.max(ours.error_ns);
        }
        assert!(worst > 500, "the bound stays: nothing says that it was so");
    }

    /// The kernel was told to go faster 3 ms after a tick: it wrote a line with the tick's `cycle_last` through the moment. Taken to count from
    /// its `cycle_last` on, times before the moment were up to 800 ns off.
    #[test]
    fn a_change_counts_from_the_moment_it_was_made_and_not_from_its_tick() {
        let mut rows = log(3, None);
        let (tick, moment) = (rows[2].cycle_last, rows[2].cycle_last + 6_000_000);
        let mut changed = ClockChangeRow { seq: 6, mult: rows[2].mult + 1600, ..rows[2] };
        changed.monotonic_shifted_ns -= (moment - tick) * 1600;
        changed.realtime_shifted_ns -= (moment - tick) * 1600;
        rows.push(changed);
        let log = ClockLog::new(rows.clone());
        for tsc in (tick..moment + 4_000_000).step_by(10_007) {
            let expected = if tsc < moment { rows[2] } else { changed }.at(Clock::Realtime, tsc).unwrap();
            assert_eq!(log.convert(Clock::Realtime, tsc).unwrap().ns, expected, "{}", tsc - tick);
        }
        assert!(log.judge().monotonic_error_ns <= 1, "{:?}", log.judge());
    }

    /// A clock that was set: done to a recorded log, not to the machine.
    #[test]
    fn a_step_is_seen_with_its_size_and_the_timeline_has_none() {
        let rows = log(50, Some(30));
        let log = ClockLog::new(rows.clone());
        let verdict = log.judge();
        assert!((1_999_999..=2_000_001).contains(&verdict.realtime_error_ns), "{verdict:?}");
        assert!(verdict.monotonic_error_ns <= 1);
        let before = log.convert(Clock::Realtime, rows[30].cycle_last - 1).unwrap().ns;
        let after = log.convert(Clock::Realtime, rows[30].cycle_last).unwrap().ns;
        assert!((1_999_999..=2_000_002).contains(&(after - before)));
    }

    #[test]
    fn beyond_the_log_the_bound_grows() {
        let rows = log(3, None);
        let log = ClockLog::new(rows.clone());
        assert_eq!(log.convert(Clock::Monotonic, rows[2].cycle_last + 2_000_000).unwrap().error_ns, 1);
        // A second later: 500 ppm of it.
        let later = log.convert(Clock::Monotonic, rows[2].cycle_last + 2_000_000_000).unwrap();
        assert!((500_000..600_000).contains(&later.error_ns), "{later:?}");
        assert!(log.convert(Clock::Monotonic, rows[0].cycle_last - 2_000_000).unwrap().error_ns > 400);
        assert_eq!(ClockLog::default().convert(Clock::Monotonic, 5), None);
    }

    proptest! {
        #[test]
        fn any_rows_never_panic(
            rows in proptest::collection::vec(any::<(u32, u64, u32, u32, u64, u64)>(), 0..8),
            tsc in any::<u64>(),
        ) {
            let row = |(seq, cycle_last, mult, shift, s, ns): (u32, u64, u32, u32, u64, u64)| ClockChangeRow {
                seq, cycle_last, mult, shift,
                monotonic_s: s, monotonic_shifted_ns: ns, realtime_s: s, realtime_shifted_ns: ns, tai_s: ns, tai_shifted_ns: s,
            };
            let log = ClockLog::new(rows.into_iter().map(row));
            let _ = log.convert(Clock::Realtime, tsc);
            let _ = log.tsc_at(tsc);
            let _ = log.judge();
        }
    }
}
