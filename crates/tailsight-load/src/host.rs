//! What a loading thread asks of the operating system: a core, exact timers, files, and how it was scheduled.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// The cores on which this thread may run.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

/// Pins this thread to a core.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Runs this thread before all threads of ordinary priority (SCHED_RR, priority 1); whether the kernel does it.
pub(crate) fn real_time() -> bool {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads the structure, which outlives the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameter) == 0 }
}

/// Exact timers for this thread; otherwise Linux fires them up to 50 us late, to save wake-ups.
pub(crate) fn exact_timers() {
    // If this is refused, sends are later, and the lateness shows it.
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// Raises the soft limit of open files to the hard limit when `files` need it. If that is not enough, opening fails with an
/// error.
pub(crate) fn raise_file_limit(files: u64) {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && files + 64 > soft
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// How the scheduler treated this thread since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Treatment {
    /// CPU time, user and system, ns.
    pub cpu_ns: u64,
    /// Time ready to run without running, ns; 0 where the kernel does not say.
    pub waited_ns: u64,
    /// Times that it was taken off the core while it wanted to run.
    pub preempted: u64,
    /// It ran before all threads of ordinary priority.
    #[serde(default)]
    pub real_time: bool,
}

impl Treatment {
    /// Of the calling thread.
    pub(crate) fn now() -> Self {
        // "run_ns wait_ns slices"
        let waited_ns = std::fs::read_to_string("/proc/thread-self/schedstat")
            .ok()
            .and_then(|text| text.split_whitespace().nth(1)?.parse().ok())
            .unwrap_or(0);
        let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_THREAD);
        let preempted = usage.map_or(0, |u| u.involuntary_context_switches().max(0) as u64);
        // SAFETY: no pointers.
        let real_time = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_RR;
        Self { cpu_ns: crate::clock::thread_cpu_ns(), waited_ns, preempted, real_time }
    }

    /// What happened since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
            preempted: self.preempted.saturating_sub(earlier.preempted),
            real_time: self.real_time && earlier.real_time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_stays_on_its_core() {
        std::thread::spawn(|| {
            let cpu = *allowed_cpus().last().unwrap();
            pin(cpu).unwrap();
            assert_eq!(allowed_cpus(), [cpu]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_says_whether_it_runs_before_others() {
        std::thread::spawn(|| {
            assert!(!Treatment::now().real_time);
            let is_permitted = real_time();
            assert_eq!(Treatment::now().real_time, is_permitted);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn work_costs_cpu_time() {
        let before = Treatment::now();
        let mut sum = 0_u64;
        while crate::clock::thread_cpu_ns() - before.cpu_ns < 2_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(Treatment::now().since(before).cpu_ns >= 2_000_000);
    }
}
