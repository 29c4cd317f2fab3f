//! `fix` as data: its words on the command line.

use std::path::PathBuf;

use clap::Args;

use crate::cli_common::Question;

/// `fix`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("other").args(["undo", "status"])
)]
pub struct Fix {
    /// The run directory
    #[arg(value_name = "RUN", required_unless_present = "other", conflicts_with = "other")]
    pub run: Option<PathBuf>,
    /// The fix to make, by its number in the list
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub number: Option<u32>,
    /// Make it without asking
    #[arg(short, long, requires = "number")]
    pub yes: bool,
    /// Print the fix in shell, and change nothing
    #[arg(long, requires = "number", conflicts_with = "yes")]
    pub shell: bool,
    /// Put back everything that is still changed, the last change first
    #[arg(long)]
    pub undo: bool,
    /// With --undo: also what somebody else has set since
    #[arg(long, requires = "undo")]
    pub force: bool,
    /// List what is still changed
    #[arg(long)]
    pub status: bool,
    /// Print JSON; with N and without --yes, what it would change, and change nothing
    #[arg(long, conflicts_with = "shell")]
    pub json: bool,
    /// Of which question the fixes are.
    #[command(flatten)]
    pub question: Question,
    /// Compare with the same slice of this other run
    #[arg(long, value_name = "RUN2", conflicts_with = "reference")]
    pub against: Option<PathBuf>,
}
