//! What can go wrong with a run directory. Each message says what was tried, on what, and what to do next.

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::path::PathBuf;

/// An error of whatever read or wrote: of the system, of Arrow, or a sentence.
pub type Cause = Box<dyn StdError + Send + Sync>;

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
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Cause,
    },
    /// The events of a core are so far out of time order that they can only be sorted as a whole.
    #[error("{path} is too far out of time order to be read in batches; read it as a whole")]
    OutOfOrder {
        /// The file.
        path: PathBuf,
    },
    /// A file of the run could not be written.
    #[error("cannot write {path}{}", if is_full(source.as_ref()) { ", for the disk is full (what was written before is kept \
     and opens as a partial run; free space or give another -o DIR)" } else { "" })]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Cause,
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
    /// A write error.
    pub fn write(path: impl Into<PathBuf>, source: impl Into<Cause>) -> Self {
        Error::Write { path: path.into(), source: source.into() }
    }

    /// A read error.
    pub fn read(path: impl Into<PathBuf>, source: impl Into<Cause>) -> Self {
        Error::Read { path: path.into(), source: source.into() }
    }
}

/// Whether the file system was out of space or quota.
fn is_full(cause: &(dyn StdError + 'static)) -> bool {
    std::iter::successors(Some(cause), |&cause| cause.source()).any(|cause| {
        let kind = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        matches!(kind, Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
    })
}

#[cfg(test)]
mod tests {
    use arrow_schema::ArrowError;

    use super::*;

    #[test]
    fn a_full_disk_is_known_also_behind_arrow() {
        let full = || std::io::Error::from_raw_os_error(28);
        let arrow = ArrowError::IoError("flush".into(), full());
        for error in [Error::write("run", full()), Error::write("run", arrow)] {
            let text = tailsight_units::chain(&error);
            assert!(text.contains("the disk is full") && text.contains("No space left"), "{text}");
        }
        let denied = tailsight_units::chain(&Error::write("run", std::io::Error::from_raw_os_error(13)));
        assert_eq!(denied, "cannot write run: Permission denied (os error 13)");
    }
}
