//! The clock log: comparisons of the clocks while recording, and what they say about steps and slew.

use nix::time::{ClockId, clock_gettime};
use tailsight_trace::tables::ClockRow;

/// CLOCK_MONOTONIC now, ns.
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

fn read(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}

fn tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC reads a counter; every x86_64 processor has it.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        0
    }
}

/// Compares the clocks: the narrowest of five tries.
pub fn compare() -> ClockRow {
    (0..5)
        .map(|_| {
            let before = monotonic_ns();
            // The counter in the middle: where reading a clock is a system call, its place in the bracket is a shift of the timeline.
            let (realtime_ns, tsc, boottime_ns) = (read(ClockId::CLOCK_REALTIME), tsc(), read(ClockId::CLOCK_BOOTTIME));
            let after = monotonic_ns();
            ClockRow {
                monotonic_ns: before + (after - before) / 2,
                realtime_ns,
                boottime_ns,
                tsc,
                bracket_ns: after - before,
            }
        })
        .min_by_key(|r| r.bracket_ns)
        .unwrap_or_default()
}

/// What the log says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockVerdict {
    /// Steps of the wall clock: (CLOCK_MONOTONIC ns, size in ns).
    pub steps: Vec<(u64, i64)>,
}

/// A change of the offset between two rows that no slew explains. The kernel slews by at most 500 ppm (NTP) to 10 %
/// for a moment (adjtime); both stay far below a step.
pub fn judge(rows: &[ClockRow]) -> ClockVerdict {
    let offset = |r: &ClockRow| r.realtime_ns as i128 - r.monotonic_ns as i128;
    let mut verdict = ClockVerdict::default();
    for pair in rows.windows(2) {
        let change = offset(&pair[1]) - offset(&pair[0]);
        let span = i128::from(pair[1].monotonic_ns.saturating_sub(pair[0].monotonic_ns));
        let slew = span / 1000 + i128::from(pair[0].bracket_ns) + i128::from(pair[1].bracket_ns) + 10_000;
        if change.abs() > slew {
            verdict.steps.push((pair[1].monotonic_ns, change as i64));
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ms: u64, wall_offset: i64) -> ClockRow {
        let m = 1_000_000_000 + ms * 1_000_000;
        ClockRow {
            monotonic_ns: m,
            realtime_ns: (m as i64 + wall_offset) as u64,
            bracket_ns: 100,
            ..ClockRow::default()
        }
    }

    #[test]
    fn slew_is_no_step_and_a_step_is_found_with_its_size() {
        // 100 ppm over 100 ms is 10 us.
        let slewed: Vec<_> = (0..10).map(|i| row(i * 100, 5_000_000_000 + i as i64 * 10_000)).collect();
        assert!(judge(&slewed).steps.is_empty());
        let mut stepped = slewed;
        for r in &mut stepped[5..] {
            r.realtime_ns += 2_000_000;
        }
        let verdict = judge(&stepped);
        assert_eq!(verdict.steps.len(), 1);
        assert_eq!(verdict.steps[0].1, 2_010_000);
    }

    #[test]
    fn a_live_comparison_is_narrow_and_ordered() {
        let a = compare();
        let b = compare();
        assert!(b.monotonic_ns > a.monotonic_ns && a.realtime_ns > 0);
        assert!(judge(&[a, b]).steps.is_empty());
    }
}
