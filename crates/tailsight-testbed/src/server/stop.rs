//! Stops a child and its workers by process descriptor. In: a [`Child`]. Out: none of them runs.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::process::children_of;

/// How long SIGTERM may take before SIGKILL follows.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// Sends SIGTERM to the child, then SIGKILL to it and to the workers that are left; returns when all have ended.
///
/// The workers are held by pidfd from before the first signal, so a pid that is used again is never hit.
pub(super) fn stop(child: &mut Child) {
    if let Ok(Some(_)) = child.try_wait() {
        return;
    }
    let workers: Vec<PidFd> = children_of(child.id()).into_iter().filter_map(PidFd::open).collect();
    if let Some(main) = PidFd::open(child.id()) {
        main.signal(libc::SIGTERM);
    }
    let deadline = Instant::now() + TERM_GRACE;
    while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(2));
    }
    // After `try_wait` saw the end, `kill` does nothing.
    let _ = child.kill();
    let _ = child.wait();
    for worker in workers {
        if !worker.ended_within(Duration::from_millis(50)) {
            worker.signal(libc::SIGKILL);
            worker.ended_within(Duration::from_secs(1));
        }
    }
}

/// A descriptor of a process.
struct PidFd(OwnedFd);

impl PidFd {
    /// Opens a process that exists now.
    fn open(pid: u32) -> Option<Self> {
        // SAFETY: pidfd_open takes two integers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: the kernel has just given us this descriptor; nothing else owns it.
        Some(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends a signal; a process that has ended is no error.
    fn signal(&self, signal: i32) {
        let info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and a null siginfo is allowed: the kernel fills in what kill() would.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, info, 0) };
    }

    /// Waits until the process has ended.
    fn ended_within(&self, limit: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one valid pollfd for the length of the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, limit.as_millis() as i32) };
        ready > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::is_running;
    use std::process::{Command, Stdio};

    #[test]
    fn a_parent_that_ignores_sigterm_and_its_worker_are_killed() {
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; sleep 60 & wait; sleep 60"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut workers = children_of(pid);
        while workers.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            workers = children_of(pid);
        }
        assert!(!workers.is_empty(), "the shell started no worker");
        stop(&mut child);
        assert!(!is_running(pid));
        for worker in workers {
            assert!(!is_running(worker), "worker {worker} still runs");
        }
    }
}
