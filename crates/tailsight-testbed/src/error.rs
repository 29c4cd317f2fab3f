//! The errors of the testbed. In: what was tried, on what, and what the system said. Out: one sentence a person can act on.

use std::net::SocketAddr;

/// What can go wrong in the testbed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Namespaces need `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`.
    #[error(
        "network namespaces need root (CAP_SYS_ADMIN and CAP_NET_ADMIN); run this with sudo, in a container with --privileged"
    )]
    NeedsRoot,
    /// A command of the system (`ip`) failed.
    #[error("`{command}` failed ({status}): {stderr}")]
    Command {
        /// The whole command line.
        command: String,
        /// Its exit status.
        status: String,
        /// What it wrote to stderr.
        stderr: String,
    },
    /// A program is not installed.
    #[error(
        "{program} is not installed (looked in PATH, /usr/sbin, /usr/local/sbin and /sbin); install it with: apt-get install {package}"
    )]
    MissingProgram {
        /// The program.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A server did not start.
    #[error("{program} did not accept connections on port {port}: {reason}; it wrote: {output}")]
    ServerStart {
        /// The program.
        program: &'static str,
        /// The port it was to listen on.
        port: u16,
        /// What was seen instead.
        reason: String,
        /// The end of what it wrote to stdout, stderr and its error log.
        output: String,
    },
    /// A workload cannot be run as it was asked for.
    #[error("workload {workload}: {reason}")]
    InvalidWorkload {
        /// Its name.
        workload: String,
        /// Why, and what to ask for instead.
        reason: String,
    },
    /// The server could not be reached, or refused the preload or the first request.
    #[error("workload {workload}: cannot {action} at {addr}: {reason}")]
    Setup {
        /// The workload's name.
        workload: String,
        /// What was tried.
        action: &'static str,
        /// The server's address.
        addr: SocketAddr,
        /// What happened, and what to look at.
        reason: String,
    },
    /// Bytes came back that are not a reply of the protocol.
    #[error("workload {workload}: {addr} sent what is not a reply of this protocol: {reason}; check --proto")]
    Malformed {
        /// The workload's name.
        workload: String,
        /// The server's address.
        addr: SocketAddr,
        /// What was found.
        reason: String,
    },
    /// The server closed every connection of a workload.
    #[error(
        "workload {workload}: {addr} closed all {connections} connections ({reason}); look at the server's log and connection limit"
    )]
    ServerGone {
        /// The workload's name.
        workload: String,
        /// The server's address.
        addr: SocketAddr,
        /// How many connections there were.
        connections: usize,
        /// The last error seen.
        reason: String,
    },
    /// A protocol, a kind of arrivals or a tag that cannot be read.
    #[error("cannot read {what} `{text}`: {expected}")]
    Parse {
        /// What was to be read.
        what: &'static str,
        /// The text.
        text: String,
        /// What would have been right.
        expected: &'static str,
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

/// A result of the testbed.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    /// It was printed twice: once in the error's own text, once as its source.
    #[test]
    fn what_the_system_said_is_not_in_the_text_of_the_error_itself() {
        let error = Error::io("bind 127.0.0.1:80", std::io::Error::from_raw_os_error(libc::EACCES));
        assert_eq!(error.to_string(), "cannot bind 127.0.0.1:80");
        assert!(std::error::Error::source(&error).is_some());
    }
}
