//! `symbolise` as data.

use std::path::PathBuf;

use clap::Args;

/// `symbolise`.
#[derive(Debug, Args)]
pub struct Symbolise {
    /// The run directory; its names of functions are replaced
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// A folder with debug files or with the programs as they were built, in any place below it; files count by their build id.
    /// Repeatable
    #[arg(short, long, value_name = "DIR", default_value = "/usr/lib/debug")]
    pub debug_dir: Vec<PathBuf>,
}
