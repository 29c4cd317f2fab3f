//! `import` as data.

use std::path::PathBuf;

use clap::Args;

/// `import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The recording: a perf.data file, the directory of `perf record --kcore`, or the text that `perf script` prints of it
    #[arg(value_name = "PERF.DATA")]
    pub file: PathBuf,
    /// Put its functions between the events of this run, which was recorded at the same time on the same machine
    #[arg(long, value_name = "RUN")]
    pub with: Option<PathBuf>,
    /// The run directory that is written; an earlier run in it is replaced
    #[arg(short, long, value_name = "RUN", default_value = "tailsight-run")]
    pub out: PathBuf,
    /// With --with: all of the recording, not only the windows of the messages that a diagnosis compares
    #[arg(long, requires = "with")]
    pub all: bool,
    /// A folder that holds files of the recorded machine under their own paths, or by their names; repeatable
    #[arg(long, value_name = "DIR")]
    pub root: Vec<PathBuf>,
    /// The recorded kernel's code: a copy of kcore, or its vmlinux
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// The recorded kernel's list of symbols: a copy of /proc/kallsyms
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub kallsyms: Option<PathBuf>,
    /// How many functions to print
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Allow an output directory that another user can write to
    #[arg(long)]
    pub into_shared: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
