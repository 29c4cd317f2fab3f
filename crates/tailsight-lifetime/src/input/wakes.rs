//! Who makes tasks of tokio ready.
//!
//! In: the call stacks of a run. Out: of each stack who does so there. What comes to a socket, and what a thread did that runs no tasks, the
//! kernel's events tell better.

use rustc_hash::FxHashMap;
use tailsight_trace::samples::Samples;

/// Who makes a task ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waker {
    /// The task that the thread runs, if it runs one.
    Task,
    /// The runtime itself, or what the program runs that is no task.
    Runtime,
    /// A time has come.
    Timer,
    /// A socket is ready, or a thread of the runtime's that may block is.
    Outside,
}

/// Who does, by the stack's number.
pub fn wakers(samples: &Samples) -> FxHashMap<u32, Waker> {
    (0..samples.stacks.len() as u32).map(|number| (number, waker(samples, number))).collect()
}

fn waker(samples: &Samples, number: u32) -> Waker {
    let of = |function: &str| {
        let is_in = |part: &str| function.contains(&format!("tokio::{part}::"));
        if is_in("runtime::io") || is_in("runtime::blocking") {
            Some(Waker::Outside)
        } else if is_in("runtime::time") || is_in("time") {
            Some(Waker::Timer)
        } else if ["harness", "core", "raw"].iter().any(|part| is_in(&format!("runtime::task::{part}"))) {
            Some(Waker::Task)
        } else if is_in("runtime::scheduler") {
            Some(Waker::Runtime)
        } else {
            None
        }
    };
    // Innermost first: the loop that reads sockets calls the timers' code, too, and is run as a task of its own. Of a deep stack the outer
    // functions are not kept: it is a task's.
    let functions = || samples.stack(number).map(|frame| frame.function.as_str());
    let blocks = |function: &str| function.contains("tokio::runtime::blocking::");
    let is_run_by = |function: &&str| function.contains("tokio::runtime::scheduler::") || blocks(function);
    let first = functions().find_map(of).unwrap_or(Waker::Task);
    match functions().find(is_run_by) {
        Some(function) if blocks(function) => Waker::Outside,
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
        let wakers = wakers(&samples);
        let of = [0, 1, 2, 3, 4].map(|number| wakers[&number]);
        assert_eq!(of, [Waker::Outside, Waker::Task, Waker::Outside, Waker::Timer, Waker::Task]);
        assert_eq!(wakers[&5], Waker::Runtime, "the future that block_on runs");
    }
}
