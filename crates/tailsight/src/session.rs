//! A session of the recorder's own, where the kernel divides each core among sessions first: only there a recording gives way to a server that
//! was started from somewhere else.
//!
//! A process that leads a group of processes, as one that a shell starts does, cannot begin a session. So the recording goes on in a child; this
//! process hands on the signals that it gets and ends as the child does. If it is killed, the child is, too.

use std::io;

use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, raise, signal, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid, setsid};
use tailsight_confine::priority::{self, SessionGroup};

/// Goes on in a process that leads a session, and says so; without one where that would change nothing.
///
/// # Errors
/// The kernel's, if it starts no process.
pub fn of_its_own() -> io::Result<bool> {
    if !priority::may_be_raised() || SessionGroup::own().is_none() {
        return Ok(false);
    }
    let handed_on =
        SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGTSTP, Signal::SIGCHLD]);
    let mut before = SigSet::empty();
    // SAFETY: no handler. Who ignores it, as who started this process may, is not told of the child's end.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&handed_on), Some(&mut before))?;
    let parent = getpid();
    // SAFETY: this process has one thread, so that the child may do anything.
    match unsafe { fork() }? {
        ForkResult::Child => {
            setsid()?;
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != parent {
                // It was killed before it could be asked for.
                std::process::exit(1);
            }
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
            Ok(true)
        }
        ForkResult::Parent { child } => end_as(wait(child, &handed_on)?, &before),
    }
}

/// Hands signals on until the child has ended.
fn wait(child: Pid, handed_on: &SigSet) -> nix::Result<WaitStatus> {
    loop {
        match handed_on.wait()? {
            Signal::SIGCHLD => {
                let status = waitpid(child, Some(WaitPidFlag::WNOHANG))?;
                if matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..)) {
                    return Ok(status);
                }
            }
            Signal::SIGTSTP => {
                kill(child, Signal::SIGSTOP)?;
                raise(Signal::SIGSTOP)?;
                kill(child, Signal::SIGCONT)?;
            }
            other => {
                kill(child, other)?;
                raise_session_of(child);
            }
        }
    }
}

/// Gives the child's session the usual weight: it is to end, and on cores that are never free it would get its turn to do so itself late.
fn raise_session_of(child: Pid) {
    if let Ok(group) = SessionGroup::of(child.as_raw().cast_unsigned()) {
        group.as_usual();
    }
}

/// Ends this process with the child's exit code, or by the signal that ended it.
fn end_as(status: WaitStatus, before: &SigSet) -> ! {
    match status {
        WaitStatus::Exited(_, code) => std::process::exit(code),
        WaitStatus::Signaled(_, ended_by, _) => {
            let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(before), None);
            let _ = raise(ended_by);
            std::process::exit(128 + ended_by as libc::c_int)
        }
        _ => std::process::exit(1),
    }
}
