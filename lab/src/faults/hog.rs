//! A task that uses its core in bursts; as the intruder under SCHED_FIFO. In: a schedule. Out: truth log entries of the
//! times in which it really used the core, found by the gaps between its own clock reads.

use super::{FaultArgs, ready};
use crate::clock::spin_slices;
use crate::truth::{TruthLog, kind};
use crate::{Error, Result};

/// A gap between two clock reads longer than this means that another task used the core, ns.
const GAP_NS: u64 = 2_000;
/// The intruder's real-time priority: above any default, below the kernel's own threads (99).
const PRIORITY: i32 = 50;

pub(super) fn run(args: &FaultArgs, truth: &TruthLog, real_time: bool) -> Result<()> {
    if real_time {
        let parameters = libc::sched_param { sched_priority: PRIORITY };
        // SAFETY: `parameters` lives over the call; 0 is this thread.
        if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } < 0 {
            return Err(Error::io("run under SCHED_FIFO", std::io::Error::last_os_error()));
        }
    }
    ready()?;
    loop {
        let (_, end) = args.schedule.wait();
        spin_slices(end, GAP_NS, |from, to| {
            // One that gets its core when the burst is over looks at the clock only: it hurts nobody.
            if from < end {
                truth.add(kind::RAN, from, to);
            }
        });
    }
}
