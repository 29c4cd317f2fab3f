//! Child processes that run on a chosen CPU with a chosen priority and die with us. In: a [`Command`], a CPU. Out: a [`Child`].
//!
//! `PR_SET_PDEATHSIG` fires when the *thread* that forked ends, not the process; so children are started by one thread
//! that lives as long as we do.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Mutex, OnceLock, mpsc};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};
use tailsight_host::Stat;

use crate::{Error, Result};

/// The CPU set that holds `cpu` only.
fn only(cpu: usize) -> Result<CpuSet> {
    let mut set = CpuSet::new();
    set.set(cpu).map_err(|e| Error::io(format!("pin to CPU {cpu}"), e))?;
    Ok(set)
}

/// Pins the calling thread to a CPU.
///
/// # Errors
/// [`Error::Io`] when there is no such CPU or we may not use it.
pub fn pin_thread(cpu: usize) -> Result<()> {
    sched_setaffinity(Pid::from_raw(0), &only(cpu)?).map_err(|e| Error::io(format!("pin this thread to CPU {cpu}"), e))
}

/// The nice value of the calling thread.
fn nice() -> i32 {
    // SAFETY: a system call on numbers. -1 is a nice value, too, and no error is possible for the thread itself.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Starts `command` on `cpu` (`None`: on the CPUs that the calling thread may use) with the calling thread's nice value, if we may
/// give it; `signal` is sent to it when we die, even by SIGKILL.
///
/// # Errors
/// [`Error::Io`] when the program cannot be started or the CPU cannot be used.
pub fn spawn_tied(mut command: Command, cpu: Option<usize>, signal: Signal) -> Result<Child> {
    let set = match cpu {
        Some(cpu) => only(cpu)?,
        None => sched_getaffinity(Pid::from_raw(0)).map_err(|e| Error::io("read the CPUs of this thread", e))?,
    };
    let program = command.get_program().to_string_lossy().into_owned();
    let (parent, nice) = (getpid(), nice());
    // Ctrl-C on the terminal is for us alone: a server must not be gone before the load on it has stopped.
    command.process_group(0);
    // SAFETY: between fork and exec the closure makes only system calls, on data copied before; it allocates nothing.
    unsafe {
        command.pre_exec(move || {
            sched_setaffinity(Pid::from_raw(0), &set)?;
            // The thread that starts all children has the priority that it began with. Who is not root cannot raise it again.
            libc::setpriority(libc::PRIO_PROCESS, 0, nice);
            nix::sys::prctl::set_pdeathsig(signal)?;
            // The parent may have died before the line above took effect.
            if getppid() != parent {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe));
            }
            Ok(())
        });
    }
    spawner_spawn(command).map_err(|e| {
        let on = cpu.map(|c| format!(" on CPU {c}")).unwrap_or_default();
        Error::io(format!("start {program}{on}"), e)
    })
}

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// Hands a command to the thread that starts all children.
fn spawner_spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    let gone = || io::Error::other("the thread that starts servers has ended");
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, answer) in queue {
                // The caller waits for the answer, so the send cannot fail while it lives.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(jobs)
    });
    let (answer, result) = mpsc::channel();
    spawner.lock().map_err(|_| gone())?.send((command, answer)).map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}

/// Whether a process exists and is not a zombie.
#[must_use]
pub fn is_running(pid: u32) -> bool {
    Stat::of_process(pid).is_some_and(|stat| !stat.is_zombie())
}

/// The processes whose parent is `pid`, by scanning `/proc` (the `children` file is a kernel option).
#[must_use]
pub fn children_of(pid: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|child| Stat::of_process(*child).and_then(|stat| stat.parent()) == Some(pid))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_and_gone_after_wait() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let mut child = spawn_tied(command, None, Signal::SIGKILL).unwrap();
        assert!(is_running(child.id()));
        assert!(children_of(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_running(child.id()));
    }

    #[test]
    fn child_outlives_the_thread_that_asked_for_it() {
        let mut child = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("60");
            spawn_tied(command, None, Signal::SIGKILL).unwrap()
        })
        .join()
        .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let alive = is_running(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(alive, "PDEATHSIG fired at the end of the asking thread");
    }

    #[test]
    fn a_child_has_the_priority_of_the_thread_that_asked_for_it() {
        let nice_of_child = std::thread::spawn(|| {
            // SAFETY: a system call on numbers.
            assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 7) }, 0);
            let mut command = Command::new("sleep");
            command.arg("60");
            let mut child = spawn_tied(command, None, Signal::SIGKILL).unwrap();
            // SAFETY: a system call on numbers.
            let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, child.id()) };
            child.kill().unwrap();
            child.wait().unwrap();
            nice
        });
        assert_eq!(nice_of_child.join().unwrap(), 7);
    }

    #[test]
    fn impossible_cpu_is_an_error() {
        let error = spawn_tied(Command::new("true"), Some(1023), Signal::SIGKILL).unwrap_err();
        assert!(error.to_string().contains("CPU 1023"), "{error}");
    }
}
