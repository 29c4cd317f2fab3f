//! When a runtime had no processor free for one more task.
//!
//! In: the timelines of a process's threads. Out: the times in which as many of them ran, or waited for a core, as ever do at once, [`Taken`]. How
//! many tasks a runtime runs at a time (Go's `GOMAXPROCS`, the workers of tokio) no event tells. All times in ns.

use rustc_hash::FxHashMap;

use crate::model::Threshold;
use crate::timelines::threads::{State, ThreadInterval, Threads};

/// When all processors were taken, by process.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    by_process: FxHashMap<u32, Vec<(u64, u64)>>,
}

impl Taken {
    /// Of the processes that some threads are of.
    pub fn of(threads: &Threads, tids: impl Iterator<Item = u32>) -> Taken {
        let process = |tid: u32| threads.names().who(tid).pid;
        let mut of_process: FxHashMap<u32, [Vec<Border>; 2]> =
            tids.map(|tid| (process(tid), Default::default())).collect();
        for (tid, thread) in threads.all() {
            let Some([run, want]) = of_process.get_mut(&process(tid)) else { continue };
            let is_running = |state: State| matches!(state, State::Running { .. });
            add_borders(run, &thread.intervals, is_running);
            add_borders(want, &thread.intervals, |state| is_running(state) || matches!(state, State::Runnable { .. }));
        }
        let times = |[run, want]: [Vec<Border>; 2]| taken(&counts(want), processors(&counts(run)));
        Taken { by_process: of_process.into_iter().map(|(pid, borders)| (pid, times(borders))).collect() }
    }

    /// Since when no processor of a process was free at a time, if none was.
    pub fn since(&self, pid: u32, ts: u64) -> Option<u64> {
        let times = self.by_process.get(&pid)?;
        let last = times[..times.partition_point(|&(from, _)| from < ts)].last();
        last.filter(|&&(_, to)| ts <= to + Threshold::BusyAtOnce.ns()).map(|&(from, _)| from)
    }
}

/// When one more thread is at something (1), or one less (-1).
type Border = (u64, i32);

fn add_borders(borders: &mut Vec<Border>, intervals: &[ThreadInterval], is: impl Fn(State) -> bool) {
    let mut was = false;
    for interval in intervals {
        if is(interval.state) != was {
            was = !was;
            borders.push((interval.from, if was { 1 } else { -1 }));
        }
    }
}

/// From when to when how many are.
fn counts(mut borders: Vec<Border>) -> Vec<(u64, u64, i32)> {
    borders.sort_unstable();
    let mut many = 0;
    let until = borders.iter().skip(1).map(|&(ts, _)| ts);
    let counts = borders.iter().zip(until).map(|(&(from, change), to)| {
        many += change;
        (from, to, many)
    });
    counts.filter(|(from, to, _)| from < to).collect()
}

/// How many threads run at once for long.
fn processors(running: &[(u64, u64, i32)]) -> i32 {
    let for_long = || running.iter().filter(|(from, to, many)| to - from >= Threshold::BusyAtOnce.ns() && *many > 0);
    let longer_than =
        |level: i32| -> u64 { for_long().filter(|(.., many)| *many > level).map(|(from, to, _)| to - from).sum() };
    let any_ns = longer_than(0);
    (1..).find(|&level| longer_than(level) as f64 <= Threshold::BeyondProcessors.share() * any_ns as f64).unwrap_or(1)
}

/// The times in which as many threads run or want to as there are processors.
fn taken(wanting: &[(u64, u64, i32)], processors: i32) -> Vec<(u64, u64)> {
    let mut times: Vec<(u64, u64)> = vec![];
    for &(from, to, _) in wanting.iter().filter(|(.., many)| *many >= processors) {
        match times.last_mut().filter(|last| last.1 == from) {
            Some(last) => last.1 = to,
            None => times.push((from, to)),
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_taken_where_as_many_are_busy_as_ever_for_long() {
        // Two workers, and a monitor that runs for a moment now and then.
        let ms = |ms: u64| ms * 1_000_000;
        let borders = vec![
            (0, 1),
            (ms(10), 1),
            (ms(11), 1),
            (ms(11) + 5_000, -1),
            (ms(20), -1),
            (ms(30), -1),
            (ms(50), 1),
            (ms(55), 1),
            (ms(59), -1),
            (ms(60), -1),
        ];
        let counts = counts(borders);
        assert_eq!(processors(&counts), 2);
        let times = taken(&counts, 2);
        assert_eq!(times, [(ms(10), ms(20)), (ms(55), ms(59))]);
        let taken = Taken { by_process: FxHashMap::from_iter([(7, times)]) };
        assert_eq!((taken.since(7, ms(19)), taken.since(7, ms(9)), taken.since(8, ms(19))), (Some(ms(10)), None, None));
        // The task that waits goes on a moment after the other one has ended.
        assert_eq!(
            (taken.since(7, ms(20) + 10), taken.since(7, ms(59) + Threshold::BusyAtOnce.ns() + 1)),
            (Some(ms(10)), None)
        );
        assert_eq!((super::counts(vec![]), processors(&[])), (vec![], 1));
    }
}
