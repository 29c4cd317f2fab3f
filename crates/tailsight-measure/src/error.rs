//! Why there is no measurement at all. What was measured and cannot be believed is no error but N/A in the report.

use std::path::PathBuf;

/// An error of whatever wrote or read.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// What failed, on what, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The load could not be started.
    #[error(transparent)]
    Load(tailsight_load::LoadError),
    /// What is asked contradicts itself.
    #[error(transparent)]
    Question(#[from] tailsight_stats::Error),
    /// What is asked contradicts itself.
    #[error("{0}")]
    Contradiction(String),
    /// It was ended before the load ran.
    #[error("{0}")]
    Interrupted(String),
    /// An agent on another machine failed.
    #[error("agent {agent}: {reason}")]
    Agent {
        /// Its name.
        agent: String,
        /// What happened, and what to do.
        reason: String,
    },
    /// A file of samples cannot be written or read.
    #[error("cannot {what} {}", path.display())]
    File {
        /// read or write.
        what: &'static str,
        /// Which one.
        path: PathBuf,
        /// Why.
        source: Cause,
    },
    /// A file does not hold samples of ours.
    #[error("cannot read {}: {reason}; expected a file that `tailsight load -o FILE.parquet` wrote", path.display())]
    NotSamples {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
        /// What its parser says.
        source: Option<Cause>,
    },
}
