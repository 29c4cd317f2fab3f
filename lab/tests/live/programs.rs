//! Programs of the lab for tests: started, waited for until they are ready, killed on drop.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use tailsight_testbed::netns::Namespace;
use tailsight_testbed::process::spawn_tied;

/// The lab's binary.
pub const LAB: &str = env!("CARGO_BIN_EXE_lab");

/// A program that said `ready`.
pub struct Program(Child);

impl Program {
    /// Starts `lab ARGUMENTS` in a namespace.
    pub fn start(ns: &Namespace, arguments: &str) -> Self {
        Self::of(ns.command(LAB), arguments).0
    }

    /// Starts `lab ARGUMENTS` where the test runs; gives the port that it said it listens on.
    pub fn here(arguments: &str) -> (Self, u16) {
        let (program, line) = Self::of(Command::new(LAB), arguments);
        let port = line.trim_start_matches("ready").trim().parse();
        (program, port.unwrap_or_else(|_| panic!("lab {arguments}: {line}")))
    }

    fn of(mut command: Command, arguments: &str) -> (Self, String) {
        command.args(arguments.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = spawn_tied(command, None, Signal::SIGKILL).unwrap();
        let stdout = child.stdout.take().unwrap();
        let program = Self(child);
        let line = BufReader::new(stdout).lines().next();
        let line = line.unwrap_or_else(|| panic!("lab {arguments} ended without a word")).unwrap();
        assert!(line.starts_with("ready"), "lab {arguments}: {line}");
        (program, line)
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that runs the lab's binary here.
pub fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(LAB);
    command.args(arguments).stdin(Stdio::null());
    command
}
