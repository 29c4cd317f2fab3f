//! Requests and replies of recorded flows. In: the segments of both directions, each with its place in its stream, its
//! whole length and the first bytes of it. Out: [`Frame`]s, whose ranges tile each direction from its first segment on.
//!
//! A recording may keep only the first bytes of a segment and may miss whole segments. The framer goes on by announced
//! lengths over what it did not see. Where those do not reach it says [`Frame::Lost`], and starts again at the next
//! segment that begins like a message (a body that begins like one by accident can mislead it there). What it
//! concluded rather than read carries `inferred`; a pairing that rests on more than order is told by [`Pairing`].

mod flow;
mod pairs;
mod stream;
mod types;
mod udp;
mod undecided;

pub use flow::Flow;
pub use types::{Direction, Frame, Pairing, ReplyFrame, RequestFrame, Segment, Why};
pub use udp::{UdpFrame, memcached_datagram};
