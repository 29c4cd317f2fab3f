//! What can go wrong before and during a load. Every error says what was tried, on what, and what to do.

use std::io;
use std::path::PathBuf;

/// What a library says is wrong.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a load could not start, or ended. What the kernel or a library said is the `source`, and not in the message:
/// `tailsight_units::chain` prints both.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A text that describes a workload, a rate, a target or the like is invalid.
    #[error("`{text}` is not {what}; expected {expected}")]
    Parse {
        /// What was being read.
        what: &'static str,
        /// What was given.
        text: String,
        /// The forms that can be read.
        expected: &'static str,
    },
    /// Choices of a plan contradict each other, or a number in it is out of range.
    #[error("the plan cannot be run: {0}")]
    Plan(String),
    /// A replay file cannot be used.
    #[error("{}{}: {reason}", path.display(), at_line(*line))]
    Replay {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1; 0 when it is about the whole file.
        line: usize,
        /// What is wrong with it, and what is expected.
        reason: String,
        /// What the kernel said.
        source: Option<io::Error>,
    },
    /// The host name of the target has no address.
    #[error("cannot resolve `{host}` (check the name, or give an address)")]
    Resolve {
        /// The name, with its port.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// No connection to the target.
    #[error("cannot connect to {target} (is the server running, and reachable from here?)")]
    Connect {
        /// The target.
        target: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The TLS handshake failed.
    #[error("TLS with {target} failed: {reason}")]
    Tls {
        /// The target.
        target: String,
        /// What was refused, and what to do.
        reason: String,
        /// What the TLS library said.
        source: Option<Cause>,
    },
    /// The target does not answer as the protocol requires while the load is prepared.
    #[error("{target} does not serve {protocol} while {step}: {reason}")]
    Setup {
        /// The target.
        target: String,
        /// The protocol.
        protocol: String,
        /// What was being done.
        step: &'static str,
        /// What came instead.
        reason: String,
    },
    /// A first request was answered with an HTTP status that is no good reply.
    #[error(
        "{target} answered a first request with HTTP status {code}; if that is a good reply, say --good-statuses {code}"
    )]
    Status {
        /// The target.
        target: String,
        /// The status.
        code: u16,
    },
    /// The preparation was ended from outside: interrupted, or the time for it was over.
    #[error("{target}: {reason}")]
    Ended {
        /// The target.
        target: String,
        /// By what, and what was being done.
        reason: String,
    },
    /// The operating system refused an operation.
    #[error("cannot {what}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Which line, where it is about one.
fn at_line(line: usize) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}

impl LoadError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn parse(what: &'static str, text: &str, expected: &'static str) -> Self {
        Self::Parse { what, text: text.to_owned(), expected }
    }
}
