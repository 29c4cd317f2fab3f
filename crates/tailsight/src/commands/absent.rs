//! What stands in for a command whose feature this build lacks (Cargo.toml): it takes whatever follows its name and refuses.

#[cfg(not(feature = "intel-pt"))]
use std::path::Path;

use crate::Exit;
use crate::cli_absent::Absent;

/// Says so.
pub fn run(_: &Absent) -> anyhow::Result<Exit> {
    refuse("this command")
}

/// Whether Intel PT can be recorded: not by this program.
#[cfg(not(feature = "intel-pt"))]
pub fn check(_: &Path) -> anyhow::Result<()> {
    refuse("Intel PT").map(drop)
}

/// `record --source intel-pt`.
#[cfg(not(feature = "intel-pt"))]
pub fn record(
    _: &crate::cli::Record,
    _: fn(&crate::cli::Record, &Path) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    refuse("Intel PT")
}

fn refuse(what: &str) -> anyhow::Result<Exit> {
    anyhow::bail!("this program was built without {what}, as `make demo` builds it; `make build` builds everything")
}
