//! What can go wrong with a protocol's bytes. A stream that gave an error is out of step: its connection must be closed.

use crate::Kind;

/// Why bytes are not what the protocol says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The bytes are not this protocol.
    #[error("{kind}: expected {expected}, got `{shown}`; does the server speak this protocol?")]
    Garbage {
        /// The protocol that was expected.
        kind: Kind,
        /// What should have come.
        expected: &'static str,
        /// The first bytes of what came, escaped.
        shown: String,
    },
    /// Something is larger than this parser keeps or believes.
    #[error("{kind}: {what} is larger than {limit}; the connection is closed to bound memory")]
    TooLarge {
        /// The protocol.
        kind: Kind,
        /// What is too large.
        what: &'static str,
        /// The most that is taken.
        limit: u64,
    },
    /// The connection ended inside a reply.
    #[error(
        "{kind}: the connection ended inside a reply, after {bytes} bytes of it; {outstanding} requests had no \
         complete reply"
    )]
    HalfReply {
        /// The protocol.
        kind: Kind,
        /// Bytes of the unfinished reply that came.
        bytes: u64,
        /// Requests without a whole reply.
        outstanding: usize,
    },
    /// The connection ended between replies, with requests outstanding.
    #[error("{kind}: the connection ended with {outstanding} requests outstanding")]
    Unanswered {
        /// The protocol.
        kind: Kind,
        /// Requests without a reply.
        outstanding: usize,
    },
    /// The server ends the connection in the protocol's own words (HTTP/2 GOAWAY with an error).
    #[error("{kind}: the server ended the connection with error code {code}; requests after id {last} were not served")]
    GoAway {
        /// The protocol.
        kind: Kind,
        /// The protocol's error code.
        code: u32,
        /// The last request that the server has taken.
        last: u64,
    },
    /// A request cannot be written.
    #[error("{kind}: cannot write the request: {what}")]
    Request {
        /// The protocol.
        kind: Kind,
        /// Why, and what to change.
        what: &'static str,
    },
    /// A name that is not one of the protocols.
    #[error("`{name}` is not a protocol; choose one of {choices}")]
    UnknownName {
        /// What was given.
        name: String,
        /// What there is.
        choices: &'static str,
    },
}

impl ProtocolError {
    /// Bytes that are not the protocol, with the first of them shown.
    pub(crate) fn garbage(kind: Kind, expected: &'static str, bytes: &[u8]) -> Self {
        let shown = bytes[..bytes.len().min(60)].escape_ascii().to_string();
        Self::Garbage { kind, expected, shown }
    }
}
