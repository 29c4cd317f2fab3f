//! Looks at tasks as the rest takes them.
//!
//! In: the looks of a run, and the call stacks that they name. Out: the same looks; a task whose work is in a thread does not wait.

use rustc_hash::{FxHashMap, FxHashSet};
use tailsight_trace::routines::{RoutineRow, State};
use tailsight_trace::samples::Samples;

/// Functions in which a task of asyncio waits for what it gave to a thread: what that thread does says more than that the task waits.
const IN_A_THREAD: [&str; 3] =
    ["asyncio.threads.to_thread", "anyio.to_thread.run_sync", "starlette.concurrency.run_in_threadpool"];

/// The function inside of those in which a task waits until it may give its work to a thread at all: no thread has that yet.
const BEFORE_A_THREAD: &str = "anyio._backends._asyncio.CapacityLimiter.acquire_on_behalf_of";

/// The looks of a run. A task whose work is in a thread is at work, and not waiting: the path follows that thread.
pub fn looks(rows: &[RoutineRow], samples: &Samples) -> Vec<RoutineRow> {
    let gave_to_a_thread = |number: u32| {
        let functions = || samples.stack(number).map(|frame| frame.function.as_str());
        functions().any(|function| IN_A_THREAD.contains(&function))
            && !functions().any(|function| function == BEFORE_A_THREAD)
    };
    let mut by_stack: FxHashMap<u32, bool> = FxHashMap::default();
    let look = |row: &RoutineRow| match row.stack.checked_sub(1) {
        Some(stack) if *by_stack.entry(stack).or_insert_with(|| gave_to_a_thread(stack)) => {
            RoutineRow { state: State::Running, stack: 0, ..*row }
        }
        _ => *row,
    };
    rows.iter().map(look).collect()
}

/// The places, by number of the call stack, whose innermost function is the program's own: it awaits a future, as `run_in_executor` gives one,
/// or one that a callback will set.
pub fn futures(rows: &[RoutineRow], samples: &Samples) -> FxHashSet<u32> {
    let stacks: FxHashSet<u32> = rows.iter().filter_map(|row| row.stack.checked_sub(1)).collect();
    let awaits = |stack: &u32| samples.stack(*stack).next().is_some_and(|frame| frame.own);
    stacks.into_iter().filter(awaits).collect()
}

/// The places, by number of the call stack, at which a goroutine waits for a socket: that is ended by the poller, and not where others make it
/// ready.
pub fn polls(rows: &[RoutineRow], samples: &Samples) -> FxHashSet<u32> {
    let stacks: FxHashSet<u32> = rows.iter().filter_map(|row| row.stack.checked_sub(1)).collect();
    let polls = |stack: &u32| samples.stack(*stack).any(|frame| frame.function == "internal/poll.runtime_pollWait");
    stacks.into_iter().filter(polls).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_trace::samples::FrameRow;

    #[test]
    fn a_future_is_awaited_in_the_program_s_own_function() {
        let frame = |function: &str, own| FrameRow { function: function.into(), own, ..FrameRow::default() };
        let samples = Samples {
            frames: vec![frame("srv.load_thumbnail", true), frame("asyncio.locks.Lock.acquire", false)],
            stacks: vec![vec![0], vec![1, 0]],
            ..Samples::default()
        };
        let row = |stack| RoutineRow { state: State::Waiting, stack, ..RoutineRow::default() };
        assert_eq!(futures(&[row(1), row(2), row(0)], &samples), FxHashSet::from_iter([0]));
    }

    #[test]
    fn a_wait_for_a_socket_is_told_by_go_s_poller() {
        let frame = |function: &str| FrameRow { function: function.into(), ..FrameRow::default() };
        let samples = Samples {
            frames: vec![frame("runtime.gopark"), frame("internal/poll.runtime_pollWait"), frame("sync.(*Mutex).Lock")],
            stacks: vec![vec![0, 1], vec![0, 2]],
            ..Samples::default()
        };
        let row = |stack| RoutineRow { state: State::Waiting, stack, ..RoutineRow::default() };
        assert_eq!(polls(&[row(1), row(2), row(0)], &samples), FxHashSet::from_iter([0]));
    }

    /// A handler of FastAPI that is no coroutine slept in its thread, and "asyncio waiting for a job" was all that was said.
    #[test]
    fn a_task_whose_work_is_in_a_thread_does_not_wait() {
        let frame = |function: &str| FrameRow { function: function.into(), ..FrameRow::default() };
        let samples = Samples {
            frames: vec![
                frame("anyio.to_thread.run_sync"),
                frame("shop.page"),
                frame("asyncio.locks.Lock.acquire"),
                frame(BEFORE_A_THREAD),
            ],
            stacks: vec![vec![0, 1], vec![2, 1], vec![3, 0, 1]],
            ..Samples::default()
        };
        let row = |stack| RoutineRow { state: State::Waiting, stack, ..RoutineRow::default() };
        let states = |stacks: &[u32]| {
            let rows: Vec<RoutineRow> = stacks.iter().map(|&stack| row(stack)).collect();
            looks(&rows, &samples).iter().map(|row| (row.state, row.stack)).collect::<Vec<_>>()
        };
        assert_eq!(states(&[1, 2, 0]), [(State::Running, 0), (State::Waiting, 2), (State::Waiting, 0)]);
        // All threads of the limiter had other jobs, and the request was followed into one of those.
        assert_eq!(states(&[3]), [(State::Waiting, 3)]);
    }
}
