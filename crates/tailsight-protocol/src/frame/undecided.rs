//! A flow of which it is not known yet what it speaks. In: segments of both directions. Out: the protocol, once a segment to the server begins
//! like a request of one only; until then each segment as a lost range.

use super::{Direction, Frame, Segment, Why};
use crate::Protocol;
use crate::grammar::{Grammar, http1, http2_streams, memcached, resp_requests};

/// The protocol of a request that begins so, when no other one has such.
fn protocol_of(bytes: &[u8]) -> Option<Protocol> {
    let mut protocols = Protocol::ALL.into_iter().filter(|protocol| match protocol {
        Protocol::Memcached => memcached::Requests::is_distinct(bytes),
        Protocol::Resp => resp_requests::Requests::is_distinct(bytes),
        Protocol::Http1 => http1::Requests::is_distinct(bytes),
        Protocol::Http2 => http2_streams::Requests::is_distinct(bytes),
    });
    protocols.next().filter(|_| protocols.next().is_none())
}

/// What passed of such a flow.
#[derive(Debug)]
pub(super) struct Undecided {
    from_start: bool,
    /// The place behind the last segment of each direction.
    requests: Option<u64>,
    replies: Option<u64>,
    /// The last segment was one to the server.
    owes_replies: bool,
}

impl Undecided {
    pub(super) fn new(from_start: bool) -> Self {
        Self { from_start, requests: None, replies: None, owes_replies: false }
    }

    /// Whether nothing has passed since the connection's first byte.
    pub(super) fn is_at_start(&self) -> bool {
        self.from_start && self.requests.is_none() && self.replies.is_none()
    }

    /// The place up to which bytes of a direction have passed.
    pub(super) fn passed(&self, direction: Direction) -> Option<u64> {
        match direction {
            Direction::Requests => self.requests,
            Direction::Replies => self.replies,
        }
    }

    /// Whether replies to what passed may still come: nothing was sent to the client since. They would pair with the first requests behind.
    pub(super) fn owes_replies(&self) -> bool {
        self.owes_replies
    }

    /// What the flow speaks, if this segment to the server tells.
    pub(super) fn protocol_of(&self, segment: &Segment<'_>) -> Option<Protocol> {
        let kept = usize::try_from(segment.len).unwrap_or(usize::MAX).min(segment.captured.len());
        // What came again of the segment before is not looked at twice.
        let again = self.requests.map_or(0, |passed| passed.saturating_sub(segment.offset));
        protocol_of(segment.captured[..kept].get(usize::try_from(again).ok()?..)?)
    }

    /// A segment that does not tell.
    pub(super) fn lose(&mut self, direction: Direction, segment: &Segment<'_>, each: &mut impl FnMut(Frame)) {
        let passed = match direction {
            Direction::Requests => &mut self.requests,
            Direction::Replies => &mut self.replies,
        };
        let to = segment.offset.saturating_add(segment.len);
        // With what is missing before it.
        let from = passed.unwrap_or(segment.offset);
        if from < to && segment.len > 0 {
            each(Frame::Lost { direction, from, to, why: Why::NotABeginning });
            *passed = Some(to);
            self.owes_replies = direction == Direction::Requests;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Flow;
    use crate::{ProtocolChoice, wire};
    use proptest::prelude::*;

    /// The client's side of a TLS connection: a record with each of these lengths.
    fn records(lengths: &[u16], filling: u8) -> Vec<u8> {
        let kinds = [0x16_u8, 0x14, 0x16, 0x17, 0x15];
        let record = |(at, length): (usize, &u16)| {
            let kind = if at < kinds.len() { kinds[at] } else { 0x17 };
            [&[kind, 3, if at == 0 { 1 } else { 3 }][..], &length.to_be_bytes(), &vec![filling; usize::from(*length)]]
                .concat()
        };
        lengths.iter().enumerate().flat_map(record).collect()
    }

    #[test]
    fn each_protocol_is_told_by_its_first_request() {
        let http2 = wire::http2::PREFACE;
        let mut headers = Vec::new();
        wire::http2::frame(&mut headers, 1, wire::http2::HEADERS, wire::http2::END_HEADERS, 7);
        headers.push(0x82);
        let binary = [&[0x80, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3][..], &[0; 12], b"key"].concat();
        let told: [(&[u8], Protocol); 13] = [
            (b"GET / HTTP/1.1\r\n", Protocol::Http1),
            (b"POST /a?b=c HTTP/1.0\r\nHost: x\r\n\r\n", Protocol::Http1),
            (http2, Protocol::Http2),
            (&http2[..9], Protocol::Http2),
            (&headers, Protocol::Http2),
            (b"*1\r\n$4\r\nPING\r\n", Protocol::Resp),
            (b"*3\r\n", Protocol::Resp),
            (b"get key\r\n", Protocol::Memcached),
            (b"set key 0 0 5\r\nhello\r\n", Protocol::Memcached),
            (b"mg key v\r\n", Protocol::Memcached),
            (b"version\r\n", Protocol::Memcached),
            (b"gets a-key another", Protocol::Memcached),
            (&binary, Protocol::Memcached),
        ];
        for (bytes, protocol) in told {
            assert_eq!(protocol_of(bytes), Some(protocol), "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    /// What begins like one of them and is as well another's.
    #[test]
    fn what_other_protocols_have_too_tells_nothing() {
        let nothing: [&[u8]; 16] = [
            b"",
            b"GET",
            b"GET /",
            b"GET key\r\n",
            b"GET / RTSP/1.0\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"PING\r\n",
            b"CONNECT {\"verbose\":false}\r\n",
            b"EHLO there\r\n",
            b"quit\r\n",
            b"set key\r\n",
            b"get\r\n",
            b"*3",
            b"* OK IMAP4rev1\r\n",
            // PostgreSQL: a request for TLS, and a query.
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            b"Q\0\0\0\x0dSELECT 1\0",
        ];
        for bytes in nothing {
            assert_eq!(protocol_of(bytes), None, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    /// Of a million beginnings by chance so many are taken for HTTP/2's frames, the only form that has no fixed byte.
    #[test]
    fn chance_tells_nothing_but_once_in_many() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut told = [0_u64; 2];
        for at in 0..2_000_000 {
            let mut bytes: Vec<u8> = (0..8).flat_map(|_| next().to_be_bytes()).collect();
            // Every second one begins with two zeros, as a length of four bytes does.
            if at % 2 == 1 {
                bytes[..2].fill(0);
            }
            told[at % 2] += u64::from(protocol_of(&bytes).is_some());
        }
        println!("of a million each: {told:?}");
        assert!(told[0] <= 3, "{told:?}");
        assert!(told[1] <= 600, "{told:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn tls_decides_nothing(lengths in proptest::collection::vec(1_u16..16_640, 1..6), filling: u8, cuts in proptest::collection::vec(0_usize..6, 1..6)) {
            let stream = records(&lengths, filling);
            let mut flow = Flow::new(ProtocolChoice::Auto, true);
            // Segments begin with records, as they do unless a record is larger than a segment.
            let mut at = 0;
            for (length, first) in lengths.iter().zip(cuts.iter().cycle()) {
                let end = at + 5 + usize::from(*length);
                let cut = if *first > 0 { at + 5 + usize::from(*length) / 2 } else { end };
                flow.request(Segment { offset: at as u64, len: (cut - at) as u64, captured: &stream[at..cut] }, |_| ());
                prop_assert_eq!(flow.protocol(), None);
                at = end;
            }
        }

        /// So that the deciding segment is where the flow's requests begin.
        #[test]
        fn what_tells_a_protocol_begins_its_request(bytes in proptest::collection::vec(proptest::sample::select(&b"\0\x01\x04\x80 *$13\r\ngetGET/HTP."[..]), 0..40)) {
            if let Some(protocol) = protocol_of(&bytes) {
                let begins = match protocol {
                    Protocol::Memcached => memcached::Requests::begins(&bytes),
                    Protocol::Resp => resp_requests::Requests::begins(&bytes),
                    Protocol::Http1 => http1::Requests::begins(&bytes),
                    Protocol::Http2 => http2_streams::Requests::begins(&bytes),
                };
                prop_assert!(begins);
            }
        }
    }
}
