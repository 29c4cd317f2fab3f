//! The errors of the lab. In: what was tried, on what, and what the system said. Out: one sentence a person can act on.

use std::path::PathBuf;

/// What can go wrong in the lab.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A namespace, a server or a load on it failed.
    #[error(transparent)]
    Testbed(#[from] tailsight_testbed::Error),
    /// An invalid option of the lab.
    #[error("cannot read {what} `{text}`: {expected}")]
    Parse {
        /// What was to be read.
        what: &'static str,
        /// The text.
        text: String,
        /// What would have been right.
        expected: &'static str,
    },
    /// A text that is not a duration, rate, number or size.
    #[error(transparent)]
    Units(#[from] tailsight_units::parse::Wrong),
    /// A page of the docs without the marks between which the lab writes.
    #[error("{} cannot be written: it needs a line `{begin}` and below it a line `{end}`", .file.display())]
    NoMarks {
        /// The page.
        file: PathBuf,
        /// The line before the part.
        begin: &'static str,
        /// The line behind it.
        end: &'static str,
    },
    /// A system call failed.
    #[error("cannot {action}")]
    Io {
        /// What was tried, and on what.
        action: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// An [`Error::Io`] of a tried action.
    pub(crate) fn io(action: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Io { action: action.into(), source: source.into() }
    }
}

/// A result of the lab.
pub type Result<T, E = Error> = std::result::Result<T, E>;
