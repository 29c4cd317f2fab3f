//! Replies of a stream as they come. In: what was asked ([`Expect`]), then bytes cut anywhere. Out: one [`Reply`] for each
//! reply that ended, with where in these bytes it ended, and errors for what is not the protocol.
//!
//! A connection has one [`Parser`]. Before a request's bytes are written, `expect` it; give every read to `feed`; answers
//! that a protocol owes the server (HTTP/2 acknowledgements) wait in `output`. Memory: the outstanding expectations, one
//! unfinished head (bounded), nothing else; nothing is allocated per request once these have grown.

mod datagram;
mod parser;

pub use crate::exchange::{Ask, ErrorKind, Expect, Op, Reply, ServerTimes, Status, WrongKind};
pub use crate::grammar::http2::{BlockedBy, Http2};
pub use datagram::{Datagram, Datagrams, Transport};
pub use parser::Parser;
