//! Requests as messages (`record --protocol`). In: packets with their first bytes, receive and send calls. Out: one message
//! a request, with its class and its own reply; where no request is known, the segments, as without a protocol.
//!
//! [`capture`] puts the payload pieces together, [`plain_text`] those of what TLS libraries gave and took, [`tls`] tells where on the wire that is; [`flow`] turns a flow's received bytes into messages, [`answers`] finds
//! the send calls and hand-overs of their replies, [`classes`] names what they are. The framing itself is
//! `tailsight_protocol::frame`'s.

pub mod answers;
pub mod capture;
pub mod classes;
pub mod flow;
pub mod plain_text;
pub mod tls;

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use tailsight_protocol::frame::Why;
use tailsight_protocol::{Protocol, ProtocolChoice};

use crate::messages::sequence_diff;

/// How far requests were found in a run that was recorded with a protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Framing {
    /// The protocol, as `--protocol` names it.
    pub protocol: String,
    /// Messages that are one request each.
    pub framed: u64,
    /// Messages that are segments, for no request is known in their bytes.
    pub lost: u64,
    /// Requests that should have a reply and for which none was found in the bytes sent (those at the end of the recording
    /// are among them); some have a send call by order all the same.
    pub unpaired: u64,
    /// Intervals of either direction without known messages, by reason.
    pub why: BTreeMap<String, u64>,
    /// With `auto`: TCP connections by the protocol that their first bytes told.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub connections: BTreeMap<String, u64>,
    /// With `auto`: TCP connections whose bytes told none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub untold_connections: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Framing {
    /// Whether some of its segments are TLS whose plain text was not read, although that of others was.
    pub fn has_unread_tls(&self) -> bool {
        self.why.contains_key(ENCRYPTED)
    }

    /// Whether each connection's protocol was told by its first bytes.
    pub fn is_auto(&self) -> bool {
        self.protocol == ProtocolChoice::AUTO
    }

    /// Whether each reply has its request by an id alone, and none by order: [`Protocol::pairs_by_id`] of every protocol that was read.
    pub fn pairs_by_id(&self) -> bool {
        let by_id = |name: &String| name.parse().is_ok_and(Protocol::pairs_by_id);
        match self.is_auto() {
            true => !self.connections.is_empty() && self.connections.keys().all(by_id),
            false => by_id(&self.protocol),
        }
    }
}

/// Why segments of TLS are no requests, where the run has the plain text of some.
const ENCRYPTED: &str = "TLS whose plain text was not read";

/// Why an interval has no messages, in words.
fn reason(why: Why) -> &'static str {
    match why {
        Why::NotABeginning => "does not begin like a message",
        Why::HeadNotCaptured => "a message's head lies beyond the bytes kept",
        Why::Gap => "a segment is missing",
        Why::Garbage => "not the protocol",
        Why::TooLarge => "a head too large",
        Why::Switched => "the connection changed its protocol",
        Why::Unfinished => "the recording ended inside a message",
        _ => "other",
    }
}

/// Where the last range without messages ended, and why it had none: one that goes on from there is the same interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastLost(u64, &'static str);

impl LastLost {
    /// Counts a range, unless it goes on from the last one.
    fn count(&mut self, range: Range<u64>, why: &'static str, framing: &mut Framing) {
        if (self.0, self.1) != (range.start, why) {
            *framing.why.entry(why.to_owned()).or_default() += 1;
        }
        *self = LastLost(range.end, why);
    }
}

/// Where sequence numbers lie in their stream: 64 bits, the first one seen at [`Place::FIRST`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    last: Option<(u32, u64)>,
}

impl Place {
    /// The place of the first sequence number seen; others may lie before it.
    pub const FIRST: u64 = 1 << 40;

    /// The place of a sequence number, which lies within 2 GiB of the one before.
    pub fn at(&mut self, seq: u32) -> u64 {
        let (last, place) = self.last.unwrap_or((seq, Place::FIRST));
        let at = place.saturating_add_signed(i64::from(sequence_diff(seq, last)));
        if at >= place {
            self.last = Some((seq, at));
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_by_id_where_every_protocol_that_was_read_has_ids() {
        let framing = |protocol: &str, told: &[&str]| {
            let connections = told.iter().map(|protocol| (protocol.to_string(), 1)).collect();
            Framing { protocol: protocol.into(), connections, ..Framing::default() }
        };
        assert!(framing("http2", &[]).pairs_by_id() && !framing("http1", &[]).pairs_by_id());
        assert!(framing("auto", &["http2"]).pairs_by_id());
        assert!(!framing("auto", &["http1", "http2"]).pairs_by_id());
        assert!(!framing("auto", &[]).pairs_by_id(), "nothing was read");
    }

    #[test]
    fn places_go_on_over_the_wrap() {
        let mut p = Place::default();
        assert_eq!(p.at(u32::MAX - 5), Place::FIRST);
        assert_eq!(p.at(4), Place::FIRST + 10);
        assert_eq!(p.at(u32::MAX - 15), Place::FIRST - 10);
        assert_eq!(p.at(0x7000_0004), Place::FIRST + 10 + 0x7000_0000);
        assert_eq!(p.at(0xe000_0004), Place::FIRST + 10 + 0xe000_0000);
        assert_eq!(p.at(0x5000_0004), Place::FIRST + 10 + 0x1_5000_0000);
    }
}
