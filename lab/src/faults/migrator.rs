//! Moves all threads of processes from core to core. In: pids, cores, a schedule, moves a burst. Out: truth log entries,
//! one a burst.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::{FaultArgs, needed, ready};
use crate::clock::{now_ns, sleep_until};
use crate::truth::{TruthLog, kind};
use crate::{Error, Result};

pub(super) fn run(args: &FaultArgs, truth: &TruthLog) -> Result<()> {
    if args.pid.is_empty() || args.cpu.len() < 2 {
        return Err(needed(args.fault, "--pid, the processes to move, and --cpu with two cores or more"));
    }
    let moves = (args.strength as u64).max(2).next_multiple_of(args.cpu.len() as u64);
    place(args, 0)?;
    ready()?;
    loop {
        let (begin, end) = args.schedule.wait();
        let entry = truth.begin(kind::STORM, begin);
        for n in 1..=moves {
            // Ends where it began, on the first core.
            place(args, n as usize % args.cpu.len())?;
            sleep_until(begin + (end - begin) * n / moves);
        }
        truth.end(entry, now_ns());
    }
}

/// Puts all threads on the nth core.
fn place(args: &FaultArgs, n: usize) -> Result<()> {
    let mut set = CpuSet::new();
    let cpu = args.cpu[n];
    set.set(cpu).map_err(|e| Error::io(format!("choose CPU {cpu}"), e))?;
    for pid in &args.pid {
        let folder = format!("/proc/{pid}/task");
        let threads = std::fs::read_dir(&folder).map_err(|e| Error::io(format!("read {folder}"), e))?;
        for tid in threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            // A thread may end between the listing and the move.
            let _ = sched_setaffinity(Pid::from_raw(tid), &set);
        }
    }
    Ok(())
}
