//! Application protocols, without any I/O. In: bytes of streams and datagrams, cut anywhere. Out: requests written,
//! replies with their ends and statuses, the requests and replies of a recorded flow as byte ranges.
//!
//! Two users, two faces, one set of grammars ([`Kind`]):
//! - the load generator writes requests ([`wire`]) and parses replies as they come ([`reply`]): several in one read, one
//!   over several reads, errors told from wrong answers, nothing allocated per request once the buffers have grown;
//! - the lifetime builder frames recorded flows ([`frame`]): only the first bytes of each segment may be there, so a
//!   stream goes on by the lengths that it announces, says where it lost track, and finds its feet again.
//!
//! Sizes are bytes, offsets count bytes from the start of a stream, times are nanoseconds. Numbers on the wire are
//! big-endian unless a format says otherwise.

mod class;
mod error;
pub mod frame;
mod grammar;
mod pattern;
mod protocol;
pub mod reply;
pub mod wire;

pub use class::{Class, Command, bucket};
pub use error::ProtocolError;
pub use pattern::Value;
pub use protocol::{Kind, Protocol};
