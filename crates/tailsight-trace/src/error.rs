//! What can go wrong with a run directory. Each message says what was tried, on what, and what to do next.

use std::path::PathBuf;

/// An error of the run directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The path does not hold a run.
    #[error(
        "{path} is not a run directory: {why}\n  give the directory that `tailsight record -o DIR` wrote (it holds \
         run.json and events/)"
    )]
    NotARun {
        /// The path as given.
        path: PathBuf,
        /// What was missing or wrong.
        why: String,
    },
    /// The run was written by a newer Tailsight.
    #[error(
        "{path} has run format version {found}, this tailsight reads up to {supported}\n  open it with a newer \
         tailsight"
    )]
    NewerVersion {
        /// The path as given.
        path: PathBuf,
        /// The version found in run.json.
        found: u32,
        /// The newest version this crate reads.
        supported: u32,
    },
    /// A file of the run could not be read.
    #[error("cannot read {path}: {why}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The events of a core are so far out of time order that they can only be sorted as a whole.
    #[error("{path} is too far out of time order to be read in batches; read it as a whole")]
    OutOfOrder {
        /// The file.
        path: PathBuf,
    },
    /// A file of the run could not be written.
    #[error("cannot write {path}: {why}{}", if *full { "\n  the disk is full; what was written before is kept and \
     opens as a partial run; free space or give another -o DIR" } else { "" })]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
        /// Whether the file system was out of space or quota.
        full: bool,
    },
    /// The output directory can be written by somebody else.
    #[error(
        "{path} {why}: other users could read or replace what is recorded there\n  remove it (record creates it \
         again), give another -o DIR, or allow it with --into-shared"
    )]
    SharedOutput {
        /// The directory.
        path: PathBuf,
        /// Who can write to it.
        why: String,
    },
    /// The output directory exists and is not empty.
    #[error("{path} exists and is not a run of tailsight\n  give another -o DIR, or remove it first")]
    OutputExists {
        /// The directory.
        path: PathBuf,
    },
}

impl Error {
    /// A write error with its out-of-space flag read from the cause.
    pub fn write(path: impl Into<PathBuf>, cause: impl std::fmt::Display) -> Self {
        let why = cause.to_string();
        // Arrow wraps I/O errors into text, so the text is all there is to look at.
        let full = why.contains("os error 28") || why.contains("os error 122") || why.contains("No space left");
        Error::Write { path: path.into(), why, full }
    }

    /// A read error.
    pub fn read(path: impl Into<PathBuf>, cause: impl std::fmt::Display) -> Self {
        Error::Read { path: path.into(), why: cause.to_string() }
    }
}
