//! Why a process or a file could not be looked into.

use std::path::PathBuf;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of /proc cannot be read: the process is gone, or there is no right to.
    #[error("cannot read {path}")]
    Proc {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A program or library cannot be opened.
    #[error("cannot open {path}")]
    Module {
        /// As the process has it mapped.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is another file than the one that was mapped.
    #[error("{path} was replaced since it was mapped")]
    Replaced {
        /// As the process has it mapped.
        path: PathBuf,
    },
    /// A program or library cannot be decoded.
    #[error("{path} cannot be decoded")]
    Damaged {
        /// As the process has it mapped.
        path: PathBuf,
        /// Why.
        source: Box<Error>,
    },
    /// No ELF file, or a damaged one.
    #[error("it is not an ELF file, or is damaged")]
    Elf {
        /// What the parser says; none where it panicked.
        source: Option<object::Error>,
    },
}
