//! Faults, each a small process with a known cause: `lab fault NAME`. In: strength, schedule. Out: the fault, and what it
//! did and when in a truth log ([`crate::truth`]); on stdout `ready` when it is set up.
//!
//! | name | what it does | its task |
//! |---|---|---|
//! | `hog` | uses its core in bursts | `lab-hog` |
//! | `intruder` | the same under SCHED_FIFO | `lab-intruder` |
//! | `stopper` | SIGSTOP and SIGCONT to a process | none runs on the core |
//! | `migrator` | moves a process' threads from core to core | `lab-migrator` |
//! | `flood` | sends UDP datagrams to a socket | `lab-flood` |
//! | `timers` | makes timers expire on a core, without a task there | `lab-timers` |
//! | `relay` | carries packets between two namespaces, and loses or keeps back some | `lab-relay` |
//! | `row-lock` | locks a row of a table of PostgreSQL | none waits for the core |
//!
//! Each runs until it is killed, at most for `--for`. Faults inside a server are switches of `lab serve synthetic`, and
//! settings (quota, memory group, threaded NAPI) are made by `lab run`.

mod flood;
mod hog;
mod migrator;
mod relay;
mod row_lock;
mod stopper;
mod timers;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::schedule::Schedule;
use crate::servers::{set_name, spawn};
use crate::truth::TruthLog;
use crate::{Error, Result};
use tailsight_units::parse;

/// Which fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// Uses a core.
    Hog,
    /// Uses a core under SCHED_FIFO.
    Intruder,
    /// Stops and continues a process.
    Stopper,
    /// Moves threads from core to core.
    Migrator,
    /// Sends UDP datagrams.
    Flood,
    /// Makes timers expire.
    Timers,
    /// Carries packets and loses or delays some.
    Relay,
    /// Locks a row of a table of PostgreSQL.
    RowLock,
}

impl Fault {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hog => "hog",
            Self::Intruder => "intruder",
            Self::Stopper => "stopper",
            Self::Migrator => "migrator",
            Self::Flood => "flood",
            Self::Timers => "timers",
            Self::Relay => "relay",
            Self::RowLock => "row-lock",
        }
    }

    /// The name of its task, as the kernel shows it.
    #[must_use]
    pub fn task(self) -> String {
        format!("lab-{}", self.name())
    }
}

/// `lab fault`.
#[derive(Debug, Clone, Args)]
pub struct FaultArgs {
    /// Which fault.
    #[arg(value_enum)]
    pub fault: Fault,
    /// When it is on.
    #[arg(long, default_value = "always")]
    pub schedule: Schedule,
    /// How strong it is. timers: expiries a millisecond; flood: datagrams a millisecond; relay: the part of packets;
    /// migrator: moves a burst.
    #[arg(long, default_value_t = 1.0)]
    pub strength: f64,
    /// The processes to stop or move (stopper, migrator).
    #[arg(long, value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// The cores: of the timers, or to move between.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    pub cpu: Vec<usize>,
    /// Where datagrams go (flood).
    #[arg(long)]
    pub addr: Option<SocketAddr>,
    /// The client's and the server's network namespace (relay).
    #[arg(long, value_delimiter = ',')]
    pub netns: Vec<String>,
    /// Packets are kept back this long instead of lost (relay).
    #[arg(long, value_parser = parse::duration)]
    pub delay: Option<Duration>,
    /// The server's socket (row-lock).
    #[arg(long, value_name = "FILE")]
    pub socket: Option<PathBuf>,
    /// The truth log to write to.
    #[arg(long, value_name = "FILE")]
    pub truth: Option<PathBuf>,
    /// Another name for its task.
    #[arg(long)]
    pub task: Option<String>,
    /// End after this time, whatever happens.
    #[arg(long = "for", value_parser = parse::duration, default_value = "120s")]
    pub lifetime: Duration,
}

/// Runs until killed or until its time is over.
///
/// # Errors
/// [`Error::Io`] when the fault cannot be had here; nothing was done then.
pub fn run(args: &FaultArgs) -> Result<()> {
    set_name(&args.task.clone().unwrap_or_else(|| args.fault.task()));
    let truth = match &args.truth {
        Some(path) => TruthLog::open(path)?,
        None => {
            // Without `--truth`, the log is written to a file without a name.
            let dir = tempfile::tempdir().map_err(|e| Error::io("make a temporary folder", e))?;
            TruthLog::create(&dir.path().join("truth"))?
        }
    };
    // A fault that hangs in its own loop ends all the same.
    let lifetime = args.lifetime;
    spawn("lab-fault-end", move || {
        std::thread::sleep(lifetime);
        std::process::exit(0);
    })?;
    match args.fault {
        Fault::Hog => hog::run(args, &truth, false),
        Fault::Intruder => hog::run(args, &truth, true),
        Fault::Stopper => stopper::run(args, &truth),
        Fault::Migrator => migrator::run(args, &truth),
        Fault::Flood => flood::run(args, &truth),
        Fault::Timers => timers::run(args, &truth),
        Fault::Relay => relay::run(args, &truth),
        Fault::RowLock => row_lock::run(args, &truth),
    }
}

/// Prints on stdout that everything is set up.
fn ready() -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready").and_then(|()| out.flush()).map_err(|e| Error::io("write to stdout", e))
}

/// An option that this fault needs.
fn needed(fault: Fault, option: &'static str) -> Error {
    Error::Parse { what: "fault", text: fault.name().into(), expected: option }
}
