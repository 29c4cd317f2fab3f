//! What a tick of the clock takes from the program that it interrupts: 12 to 14 us in the virtual machine of docs/results/benchmarks.md, most of it
//! the interrupt itself. How often samples can be taken for a given cost depends on it.
//!
//! In: nothing. Out: nanoseconds.

use std::time::{Duration, Instant};

use super::{On, open};

/// Time between two ticks while it is measured.
const PERIOD: Duration = Duration::from_micros(125);
/// How long it is measured.
const WINDOW: Duration = Duration::from_millis(10);
/// How often.
const WINDOWS: usize = 3;

/// Readings of a window at most.
const READINGS: usize = 1 << 19;

/// What one tick takes from what it interrupts, ns; none where there is no such clock. Takes 40 ms.
///
/// A loop reads the time while the clock ticks. Its longest gaps are the ticks, as many as there were, and a few interruptions by others: the
/// median is a tick's. Of three windows the least counts: other work makes gaps longer, nothing makes them shorter.
pub fn measure() -> Option<u64> {
    let _clock = open(On::OwnThread, PERIOD.as_nanos() as u64).ok()?;
    // Written to, so that the first use of a page is not measured.
    let mut gaps = vec![1; READINGS];
    (0..WINDOWS).map(|_| window(&mut gaps)).min()
}

/// What a tick takes in one window, ns. `gaps`: room for the time between each two readings.
fn window(gaps: &mut [u64]) -> u64 {
    let (begin, mut last, mut used) = (Instant::now(), Duration::ZERO, 0);
    while last < WINDOW && used < gaps.len() {
        let now = begin.elapsed();
        gaps[used] = (now - last).as_nanos() as u64;
        (last, used) = (now, used + 1);
    }
    median_of_longest(&mut gaps[..used], (last.as_nanos() / PERIOD.as_nanos()) as usize)
}

/// The median of the `count` longest gaps, less what a reading takes without an interruption.
fn median_of_longest(gaps: &mut [u64], count: usize) -> u64 {
    let middle = count.min(gaps.len()) / 2;
    if middle == 0 {
        return 0;
    }
    let usual = *gaps.select_nth_unstable(gaps.len() / 2).1;
    let of_tick = *gaps.select_nth_unstable_by(middle, |a, b| b.cmp(a)).1;
    of_tick.saturating_sub(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_is_told_from_readings_and_from_other_work() {
        // 10,000 readings, 80 ticks of 13 us, one turn of another program.
        let gap = |i: u32| match i {
            77 => 3_000_000,
            _ if i.is_multiple_of(125) => 13_040,
            _ => 40,
        };
        let mut gaps: Vec<u64> = (0..10_000).map(gap).collect();
        assert_eq!(median_of_longest(&mut gaps, 80), 13_000);
        assert_eq!(median_of_longest(&mut [], 80), 0);
    }

    #[test]
    fn a_tick_takes_some_time_on_this_machine() {
        let Some(ns) = measure() else {
            return tailsight_testing::skip_as(
                "a_tick_takes_some_time_on_this_machine",
                "perf_event_open of a software clock is refused",
            );
        };
        // The fastest machine takes more than a tenth of a microsecond; without a clock a reading takes less than that.
        assert!((100..1_000_000).contains(&ns), "{ns} ns");
        println!("a tick takes {ns} ns");
    }
}
