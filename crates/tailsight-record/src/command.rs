//! The command that a recording starts (`record -- CMD…`): found, started in a process group of its own, and stopped
//! with everything that it started.
//!
//! In: words. Out: a [`Command`] with its process id; nothing of it runs any more after [`Command::stop`].

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::{Cause, Error};

/// How long the command may take to end when asked.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How long where the recorder itself is to end within a second.
pub const IN_HASTE: Duration = Duration::from_millis(300);

/// A command that was started for a recording.
#[derive(Debug)]
pub struct Command {
    child: Child,
}

/// Checks that the command's program can be found, so that a typing error costs nothing.
///
/// # Errors
/// [`Error::Command`].
pub fn check(words: &[String]) -> Result<(), Error> {
    let program = words.first().ok_or_else(|| failed("", "no command given"))?;
    if program.contains('/') {
        return match std::fs::metadata(program) {
            Err(e) => Err(failed(program, e)),
            Ok(_) if runs(Path::new(program)) => Ok(()),
            Ok(_) => Err(failed(program, "it is not an executable file")),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).any(|dir| runs(&dir.join(program))) {
        true => Ok(()),
        false => Err(failed(program, "no such program in PATH")),
    }
}

fn runs(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn failed(program: &str, why: impl Into<Cause>) -> Error {
    Error::Command { command: program.into(), source: why.into() }
}

impl Command {
    /// Starts the command. Its group is its own, so that Ctrl-C at the terminal ends the recording and not the server
    /// under it, and so that workers it forks can be stopped with it.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn start(words: &[String]) -> Result<Command, Error> {
        let (program, arguments) = words.split_first().ok_or_else(|| failed("", "no command given"))?;
        let child = std::process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|e| failed(program, e))?;
        Ok(Command { child })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, when it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.pid().cast_signed())
    }

    /// Ends the command and its group: SIGTERM, and SIGKILL to what is left after that time. `true`: it had to be killed.
    pub fn stop(mut self, patience: Duration) -> bool {
        let group = self.group();
        let _ = killpg(group, Signal::SIGTERM);
        let asked = Instant::now();
        while asked.elapsed() < patience {
            // The group lives as long as one of its processes does, our own child until it was waited for.
            if self.ended().is_some() && killpg(group, None).is_err() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.child.wait();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        ["sh", "-c", text].map(str::to_owned).to_vec()
    }

    #[test]
    fn what_cannot_be_started_is_found_before() {
        assert!(check(&words("true")).is_ok());
        assert!(check(&[]).is_err());
        for program in ["no-such-program-anywhere", "/no/such/program", "/etc", "/etc/passwd"] {
            let e = check(&[program.to_owned()]).unwrap_err().to_string();
            assert!(e.contains(program), "{e}");
        }
    }

    #[test]
    fn workers_are_stopped_with_their_parent_even_when_it_ended_before() {
        for text in ["sleep 300 & sleep 300", "sleep 300 &"] {
            let command = Command::start(&words(text)).unwrap();
            let group = command.group();
            std::thread::sleep(Duration::from_millis(100));
            assert!(!command.stop(PATIENCE));
            assert!(killpg(group, None).is_err(), "{text}: somebody is left");
        }
    }
}
