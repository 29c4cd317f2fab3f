//! The peak memory of another program.
//!
//! In: a command. Out: bytes. A process that was forked has its parent's memory until it becomes another program, and the kernel's figure of its
//! peak counts that: whoever forks must be small. This program is not, while it holds a recording: it starts itself anew as `peak-of`, which forks.

use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use clap::Args;
use nix::sys::resource::{UsageWho, getrusage};

/// `peak-of`.
#[derive(Debug, Args)]
pub struct PeakArgs {
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs it with its output discarded, and prints its peak memory, bytes.
pub fn run(args: &PeakArgs) -> anyhow::Result<ExitCode> {
    let [program, rest @ ..] = &args.command[..] else { bail!("no program was given") };
    let name = program.to_string_lossy();
    let mut command = Command::new(program);
    command.args(rest).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().with_context(|| format!("cannot start {name}"))?;
    if !status.success() {
        bail!("{name} failed: {status}");
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot ask for the memory of a program that ended")?;
    println!("{}", usage.max_rss() * 1024);
    Ok(ExitCode::SUCCESS)
}

/// The peak memory of a command, bytes.
pub fn of(command: &Command) -> anyhow::Result<u64> {
    let mut small = Command::new(std::env::current_exe().context("cannot find this program")?);
    small.arg("peak-of").arg("--").arg(command.get_program()).args(command.get_args());
    let output = small.output().context("cannot start this program again")?;
    if !output.status.success() {
        bail!("the memory of a program is not known: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8_lossy(&output.stdout).trim().parse().context("peak-of printed something else than bytes")
}
