//! What a tick of the clock takes from the program that it interrupts: 12 to 14 us in the virtual machine of docs/results/benchmarks.md, most of it
//! the interrupt itself. How often samples can be taken for a given cost depends on it.
//!
//! In: nothing. Out: nanoseconds.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::{On, open};

/// Time between two ticks while it is measured.
const PERIOD: Duration = Duration::from_micros(125);
/// How long it is measured.
const WINDOW: Duration = Duration::from_millis(10);
/// How often.
const WINDOWS: usize = 3;
/// The least number of ticks in a window: half of those that there are if nothing else has the core. With fewer it goes on.
const LEAST_TICKS: usize = 40;
/// How long it goes on at most: enough where the thread gets a twentieth of a core.
const LONGEST: Duration = Duration::from_millis(120);

/// Readings of a window at most.
const READINGS: usize = 1 << 19;

/// What one tick takes from what it interrupts, ns; none where there is no such clock. Takes 40 ms, on a busy machine up to 0.4 s.
///
/// A loop reads the time while the clock ticks. Its longest gaps are the ticks, as many as there were, and a few interruptions by others: the
/// median is a tick's. The clock ticks in the thread's own time, so how many there were is known from that. Of three windows the least
/// counts: other work makes gaps longer, nothing makes them shorter.
pub fn measure() -> Option<u64> {
    let _clock = open(On::OwnThread, PERIOD.as_nanos() as u64).ok()?;
    // Written to, so that the first use of a page is not measured.
    let mut gaps = vec![1; READINGS];
    (0..WINDOWS).filter_map(|_| window(&mut gaps)).min()
}

/// What a tick takes in one window, ns; none if there were not two. `gaps`: room for the time between each two readings.
fn window(gaps: &mut [u64]) -> Option<u64> {
    let own = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default();
    let (own_at_first, begin) = (own(), Instant::now());
    let (mut last, mut used, mut until) = (Duration::ZERO, 0, WINDOW);
    loop {
        while last < until && used < gaps.len() {
            let now = begin.elapsed();
            gaps[used] = (now - last).as_nanos() as u64;
            (last, used) = (now, used + 1);
        }
        let ticks = ((own() - own_at_first).as_nanos() / PERIOD.as_nanos()) as usize;
        if ticks >= LEAST_TICKS || last >= LONGEST || used == gaps.len() {
            return (ticks > 1).then(|| median_of_longest(&mut gaps[..used], ticks));
        }
        until += WINDOW;
    }
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

    /// The fastest machine takes more than a tenth of a microsecond; without a clock a reading takes less than that.
    fn is_possible(ns: u64) -> bool {
        (100..1_000_000).contains(&ns)
    }

    #[test]
    fn a_tick_takes_some_time_on_this_machine() {
        let Some(ns) = measure() else {
            return tailsight_testing::skip_as(
                "a_tick_takes_some_time_on_this_machine",
                "perf_event_open of a software clock is refused",
            );
        };
        assert!(is_possible(ns), "{ns} ns");
        println!("a tick takes {ns} ns");
    }

    /// Regression: other threads had the cores for most of each window, so that fewer ticks came than its length lets expect, and the longest
    /// gaps were mostly readings without one: a tick took 40 ns, and samples were taken too often on a busy machine.
    #[test]
    fn a_tick_takes_as_much_beside_threads_that_have_the_cores() {
        if open(On::OwnThread, PERIOD.as_nanos() as u64).is_err() {
            return tailsight_testing::skip_as(
                "a_tick_takes_as_much_beside_threads_that_have_the_cores",
                "perf_event_open of a software clock is refused",
            );
        }
        let busy = std::sync::atomic::AtomicBool::new(true);
        let spin = || {
            while busy.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let measured: Vec<Option<u64>> = std::thread::scope(|scope| {
            for _ in 0..4 * cores {
                scope.spawn(spin);
            }
            let measured = (0..5).map(|_| measure()).collect();
            busy.store(false, std::sync::atomic::Ordering::Relaxed);
            measured
        });
        println!("{measured:?}");
        assert!(measured.iter().all(|ns| ns.is_some_and(is_possible)), "{measured:?}");
    }
}
