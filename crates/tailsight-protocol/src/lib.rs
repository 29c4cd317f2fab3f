//! Application protocols, without I/O. In: bytes of streams and datagrams, split at any place. Out: encoded requests; replies with
//! their ends and statuses; the requests and replies of a recorded flow as byte ranges.
//!
//! It has two users and one set of grammars ([`Kind`]):
//! - The load generator writes requests ([`wire`]) and parses replies as they arrive ([`reply`]): several in one read, one over
//!   several reads, errors distinguished from wrong answers, no allocation per request once the buffers have grown.
//! - The lifetime builder parses recorded flows ([`frame`]), of which only the first bytes of each segment may be present. It
//!   continues by the lengths that the stream announces, reports where it lost track, and synchronises again.
//!
//! Sizes are bytes, offsets count bytes from the start of a stream, times are nanoseconds. Numbers on the wire are big-endian unless
//! a format says otherwise.

mod class;
mod error;
mod exchange;
pub mod frame;
mod grammar;
mod pattern;
mod protocol;
pub mod reply;
pub mod wire;

pub use class::{Class, Command, Shape, bucket};
pub use error::ProtocolError;
pub use pattern::Value;
pub use protocol::{Kind, Protocol, ProtocolChoice};
