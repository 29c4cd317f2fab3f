//! Who makes tasks of tokio ready, and who is to.
//!
//! In: the call stacks of the places at which that was recorded. Out: of each stack who does so there. What comes to a socket, and what a thread
//! did that runs no tasks, the kernel's events tell better.

use rustc_hash::FxHashMap;
use tailsight_trace::samples::Samples;

/// Who makes a task ready at a place; of a place at which a task asks for that, who is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waker {
    /// The task that the thread runs, if it runs one.
    Task,
    /// The runtime itself, or what the program runs that is no task.
    Runtime,
    /// A time has come.
    Timer,
    /// A job on a thread of the runtime's that may block (`spawn_blocking`): the task that the thread runs.
    Job,
    /// A socket is ready.
    Outside,
}

/// What is behind this in the names of tokio's functions runs tasks on one of its threads.
const SCHEDULES: &str = "tokio::runtime::scheduler::";
/// And on threads that may block.
const BLOCKS: &str = "tokio::runtime::blocking::";
/// What is behind these calls the future of one task.
const RUN_TASKS: [&str; 3] =
    ["tokio::runtime::task::harness::", "tokio::runtime::task::core::", "tokio::runtime::task::raw::"];
/// What is behind this reads sockets.
const READS_SOCKETS: &str = "tokio::runtime::io::";
/// What is behind these waits for times.
const TIMES: [&str; 2] = ["tokio::runtime::time::", "tokio::time::"];

fn has_any(function: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| function.contains(part))
}

/// Whether a function of tokio runs tasks: what called it is no task's.
pub fn runs_tasks(function: &str) -> bool {
    has_any(function, &RUN_TASKS) || function.contains(SCHEDULES)
}

/// Who does, by the stack's number. `places`: of each place of the program its stack, plus 1.
pub fn wakers(samples: &Samples, places: &[u32]) -> FxHashMap<u32, Waker> {
    let stacks = places.iter().filter_map(|place| place.checked_sub(1));
    stacks.map(|number| (number, waker(samples, number))).collect()
}

fn waker(samples: &Samples, number: u32) -> Waker {
    let waker_of = |function: &str| match function {
        f if f.contains(READS_SOCKETS) => Some(Waker::Outside),
        f if f.contains(BLOCKS) => Some(Waker::Job),
        f if has_any(f, &TIMES) => Some(Waker::Timer),
        f if has_any(f, &RUN_TASKS) => Some(Waker::Task),
        f if f.contains(SCHEDULES) => Some(Waker::Runtime),
        _ => None,
    };
    // Innermost first: the loop that reads sockets calls the timers' code, too, and is run as a task of its own. Of a deep stack the outer
    // functions are not kept: it is a task's.
    let functions = || samples.stack(number).map(|frame| frame.function.as_str());
    let first = functions().find_map(waker_of).unwrap_or(Waker::Task);
    match functions().find(|function| has_any(function, &[SCHEDULES, BLOCKS])) {
        // Sockets are read by threads that run tasks, and by those that block until a future is done.
        Some(function) if function.contains(BLOCKS) && first != Waker::Outside => Waker::Job,
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_trace::samples::FrameRow;

    #[test]
    fn the_innermost_part_of_tokio_says_who_it_is() {
        let frame = |function: &str| FrameRow { function: function.into(), ..FrameRow::default() };
        let frames = vec![
            frame("tokio::runtime::task::waker::wake_by_val"),
            frame("tokio::runtime::io::scheduled_io::ScheduledIo::wake"),
            frame("tokio::runtime::scheduler::multi_thread::worker::Context::run"),
            frame("tokio::sync::batch_semaphore::Semaphore::add_permits_locked"),
            frame("tokio::runtime::blocking::pool::Inner::run"),
            frame("tokio::runtime::time::Driver::park_internal"),
            frame("tokio::runtime::task::harness::Harness<T,S>::poll"),
        ];
        let stacks = vec![
            vec![0, 1, 5, 2, 6, 4],
            vec![0, 3, 6, 2, 4],
            vec![0, 6, 4],
            vec![0, 5, 2],
            vec![0, 3],
            vec![0, 3, 2, 6],
        ];
        let samples = Samples { frames, stacks, ..Samples::default() };
        let wakers = wakers(&samples, &[1, 2, 3, 4, 5, 6]);
        let named_wakers = [0, 1, 2, 3, 4].map(|number| wakers[&number]);
        assert_eq!(named_wakers, [Waker::Outside, Waker::Task, Waker::Job, Waker::Timer, Waker::Task]);
        assert_eq!(wakers[&5], Waker::Runtime, "the future that block_on runs");
    }
}
