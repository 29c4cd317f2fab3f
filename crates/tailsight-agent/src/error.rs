//! What can go wrong between a coordinator and its agents. Every error says what was tried, on what, and what to do.

use std::io;
use std::path::PathBuf;

use tailsight_load::LoadError;

/// What a library says is wrong.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why an agent or a load failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A text that describes an agent, a token or a rule is invalid.
    #[error("`{text}` is not {what}; expected {expected}")]
    Parse {
        /// What was being read.
        what: &'static str,
        /// What was given.
        text: String,
        /// The forms that can be read.
        expected: &'static str,
    },
    /// The operating system refused an operation.
    #[error("cannot {what}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file with a certificate or a key cannot be used.
    #[error("{} is not a certificate or key that can be used; a PEM file is expected", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Cause,
    },
    /// The TLS library refused a configuration.
    #[error("TLS cannot be set up")]
    Tls(#[source] Cause),
    /// The operator of the agent does not allow what the coordinator asks for.
    #[error("refused by the agent's operator: {0}")]
    Refused(String),
    /// No session with the agent.
    #[error("no session with agent {agent}: {reason}")]
    Connect {
        /// HOST:PORT.
        agent: String,
        /// What failed, and what to do.
        reason: String,
    },
    /// A call to an agent failed.
    #[error("agent {agent}: {call} failed: {reason}")]
    Call {
        /// HOST:PORT.
        agent: String,
        /// The call.
        call: &'static str,
        /// What the agent or the transport said.
        reason: String,
    },
    /// The clocks of an agent and the coordinator cannot be compared as exactly as the measurement needs.
    #[error("agent {agent} disagrees on the clock: {reason}")]
    Clock {
        /// HOST:PORT.
        agent: String,
        /// How far they are apart, and what is allowed.
        reason: String,
    },
    /// The user, or the time allowed, ended it before the load ran.
    #[error("{0}")]
    Interrupted(String),
    /// These agents cannot share the plan.
    #[error("the load cannot be shared by the agents: {0}")]
    Split(String),
    /// The load itself.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl AgentError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn parse(what: &'static str, text: &str, expected: &'static str) -> Self {
        Self::Parse { what, text: text.to_owned(), expected }
    }
}
