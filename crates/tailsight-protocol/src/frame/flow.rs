//! Both directions of a flow. In: segments in the order of time. Out: frames, replies paired with their requests.

use super::pairs::{Pairs, ReplySink, RequestSink};
use super::stream::Stream;
use super::undecided::Undecided;
use super::{Direction, Frame, Segment};
use crate::grammar::{Answer, Grammar, Request, http1, http2_streams, memcached, resp, resp_requests};
use crate::{Protocol, ProtocolChoice};

/// The streams of one protocol.
#[derive(Debug)]
struct Both<Q, R> {
    requests: Stream<Q>,
    replies: Stream<R>,
}

impl<Q: Grammar<Out = Request> + Default, R: Grammar<Out = Answer> + Default> Both<Q, R> {
    fn new(from_start: bool) -> Self {
        Self { requests: Stream::new(from_start), replies: Stream::new(from_start) }
    }
}

#[derive(Debug)]
enum Streams {
    Memcached(Box<Both<memcached::Requests, memcached::Replies>>),
    Resp(Both<resp_requests::Requests, resp::Replies>),
    Http1(Both<http1::Requests, http1::Replies>),
    Http2(Box<Both<http2_streams::Requests, http2_streams::Replies>>),
}

/// Calls the same for whichever protocol it is.
macro_rules! each {
    ($on:expr, $both:ident => $do:expr) => {
        match $on {
            Streams::Memcached($both) => $do,
            Streams::Resp($both) => $do,
            Streams::Http1($both) => $do,
            Streams::Http2($both) => $do,
        }
    };
}

/// A flow whose protocol is known.
#[derive(Debug)]
struct Decided {
    protocol: Protocol,
    streams: Streams,
    pairs: Pairs,
}

impl Decided {
    fn new(protocol: Protocol, from_start: bool) -> Self {
        let streams = match protocol {
            Protocol::Memcached => Streams::Memcached(Box::new(Both::new(from_start))),
            Protocol::Resp => Streams::Resp(Both::new(from_start)),
            Protocol::Http1 => Streams::Http1(Both::new(from_start)),
            Protocol::Http2 => Streams::Http2(Box::new(Both::new(from_start))),
        };
        Self { protocol, streams, pairs: Pairs::new(protocol, from_start) }
    }

    /// A flow that was of no known protocol before.
    fn behind(before: &Undecided, protocol: Protocol) -> Self {
        let mut decided = Self::new(protocol, before.is_at_start());
        each!(&mut decided.streams, both => {
            both.requests.lost_until(before.passed(Direction::Requests));
            both.replies.lost_until(before.passed(Direction::Replies));
        });
        if before.owes_replies() {
            decided.pairs.losing_requests();
        }
        decided
    }
}

#[derive(Debug)]
enum State {
    Undecided(Undecided),
    Decided(Box<Decided>),
}

/// A flow: one connection's requests and replies.
#[derive(Debug)]
pub struct Flow(State);

impl Flow {
    /// A flow without segments. `from_start`: its first segments are the connection's first (the handshake was seen); else
    /// the first segment must begin like a message, and pairings by order are [`Pairing::Assumed`](super::Pairing::Assumed).
    ///
    /// With [`ProtocolChoice::Auto`] the first segment to the server that begins like a request of one protocol only decides what the flow
    /// speaks, for good. What came before is [`Frame::Lost`], a segment at a time.
    pub fn new(protocol: impl Into<ProtocolChoice>, from_start: bool) -> Self {
        Self(match protocol.into() {
            ProtocolChoice::Named(protocol) => State::Decided(Box::new(Decided::new(protocol, from_start))),
            ProtocolChoice::Auto => State::Undecided(Undecided::new(from_start)),
        })
    }

    /// What it speaks, as far as that is known.
    pub fn protocol(&self) -> Option<Protocol> {
        match &self.0 {
            State::Decided(decided) => Some(decided.protocol),
            State::Undecided(_) => None,
        }
    }

    /// The next segment to the server. Each direction in stream order (what was there before is cut off, what is missing
    /// is a gap); both directions in the order of time, for a reply answers what was asked before it.
    pub fn request(&mut self, segment: Segment<'_>, mut each: impl FnMut(Frame)) {
        if let State::Undecided(undecided) = &mut self.0 {
            match undecided.protocol_of(&segment) {
                Some(protocol) => self.0 = State::Decided(Box::new(Decided::behind(undecided, protocol))),
                None => undecided.lose(Direction::Requests, &segment, &mut each),
            }
        }
        let State::Decided(decided) = &mut self.0 else { return };
        let Decided { streams, pairs, .. } = &mut **decided;
        let mut sink = RequestSink { pairs, each: &mut each };
        each!(streams, both => both.requests.segment(&segment, &mut sink));
    }

    /// The next segment to the client.
    pub fn reply(&mut self, segment: Segment<'_>, mut each: impl FnMut(Frame)) {
        match &mut self.0 {
            State::Undecided(undecided) => undecided.lose(Direction::Replies, &segment, &mut each),
            State::Decided(decided) => {
                let Decided { streams, pairs, .. } = &mut **decided;
                let mut sink = ReplySink { pairs, each: &mut each };
                each!(streams, both => both.replies.segment(&segment, &mut sink));
            }
        }
    }

    /// Where the oldest request began that has not ended, if others may have ended since (HTTP/2): from there on its segments are needed.
    pub fn open_requests_from(&self) -> Option<u64> {
        let State::Decided(decided) = &self.0 else { return None };
        each!(&decided.streams, both => both.requests.open_from())
    }

    /// The same of replies.
    pub fn open_replies_from(&self) -> Option<u64> {
        let State::Decided(decided) = &self.0 else { return None };
        each!(&decided.streams, both => both.replies.open_from())
    }

    /// The connection or the recording ended.
    pub fn finish(&mut self, mut each: impl FnMut(Frame)) {
        let State::Decided(decided) = &mut self.0 else { return };
        let Decided { streams, pairs, .. } = &mut **decided;
        let mut sink = RequestSink { pairs, each: &mut each };
        each!(streams, both => both.requests.finish(&mut sink));
        let mut sink = ReplySink { pairs, each: &mut each };
        each!(streams, both => both.replies.finish(&mut sink));
    }
}
