//! SIGSTOP and SIGCONT to processes. In: pids, a schedule. Out: truth log entries from each stop to its continuation.
//!
//! If the stopper is killed in between, the process stays stopped: `lab run` continues and kills what it started, and a
//! server whose lab died gets SIGKILL, which also ends a stopped process.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{FaultArgs, needed, ready};
use crate::clock::{now_ns, sleep_until};
use crate::truth::{TruthLog, kind};
use crate::{Error, Result};

pub(super) fn run(args: &FaultArgs, truth: &TruthLog) -> Result<()> {
    if args.pid.is_empty() {
        return Err(needed(args.fault, "--pid, the processes to stop"));
    }
    let send = |signal: Signal| {
        args.pid.iter().try_for_each(|pid| {
            kill(Pid::from_raw(pid.cast_signed()), signal)
                .map_err(|e| Error::io(format!("send {signal} to process {pid}"), e))
        })
    };
    ready()?;
    loop {
        let (_, end) = args.schedule.wait();
        let place = truth.begin(kind::STOPPED, now_ns());
        let stopped = send(Signal::SIGSTOP);
        sleep_until(end);
        // Also when only some could be stopped.
        let continued = send(Signal::SIGCONT);
        truth.end(place, now_ns());
        stopped.and(continued)?;
    }
}
