//! Which request a reply answers. In: requests and replies as framed, in the order of time. Out: frames with their pairs.
//!
//! Servers of these protocols answer in order, so the oldest request that a reply can answer is its own, as long as no
//! message was lost. Behind a hole in either direction the order says less: what was asked before it is taken as answered
//! in it, and the pairs say so. HTTP/2 answers in any order, and the stream's id pairs: no hole changes that.

use std::collections::{BTreeMap, VecDeque};

use super::stream::{Piece, Sink};
use super::{Direction, Frame, Pairing, ReplyFrame, RequestFrame, Why};
use crate::Protocol;
use crate::Value;
use crate::exchange::{Ask, Op};
use crate::grammar::{Answer, Asked, Request, Span};

/// Requests without a reply that are remembered; a flow whose replies are not recorded must not grow without bound.
const WAITING: usize = 1 << 16;

/// A request that waits for its reply, or a hole.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    Request {
        seq: u64,
        request: Request,
    },
    /// Requests were lost here; this many replies have come since.
    Hole {
        replies: usize,
    },
}

/// The state of a flow's pairing.
#[derive(Debug)]
pub(super) struct Pairs {
    protocol: Protocol,
    waiting: VecDeque<Waiting>,
    /// HTTP/2: the requests that wait, by stream.
    streams: BTreeMap<u64, u64>,
    next_seq: u64,
    /// Nothing was lost since the flow's first byte.
    exact: bool,
    /// Replies are being lost: how many entries were waiting when the last lost segment came.
    lost_replies: Option<usize>,
    /// Replies follow no order any more (SUBSCRIBE, MONITOR).
    unordered: bool,
    /// The connection is another protocol's.
    switched: bool,
}

impl Pairs {
    pub(super) fn new(protocol: Protocol, from_start: bool) -> Self {
        Self {
            protocol,
            waiting: VecDeque::new(),
            streams: BTreeMap::new(),
            next_seq: 0,
            exact: from_start,
            lost_replies: None,
            unordered: false,
            switched: false,
        }
    }

    fn asked(&mut self, request: &Request) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        if let (true, Some(id)) = (self.protocol.pairs_by_id(), request.id) {
            if self.streams.len() == WAITING {
                self.streams.pop_first();
            }
            self.streams.insert(id, seq);
            return seq;
        }
        self.unordered |= request.switches && self.protocol != Protocol::Http1;
        if request.answered == Some(false) {
            return seq;
        }
        // More replies since the hole than requests behind it: the hole's have been answered.
        if let Some(Waiting::Hole { replies }) = self.waiting.front()
            && *replies >= self.waiting.len()
        {
            self.waiting.clear();
            self.lost_replies = self.lost_replies.map(|_| 0);
        }
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
            self.lost_replies = self.lost_replies.map(|before| before.saturating_sub(1));
            self.exact = false;
        }
        self.waiting.push_back(Waiting::Request { seq, request: *request });
        seq
    }

    pub(super) fn losing_requests(&mut self) {
        self.exact = false;
        if !self.protocol.pairs_by_id() && !matches!(self.waiting.back(), Some(Waiting::Hole { .. })) {
            self.waiting.push_back(Waiting::Hole { replies: 0 });
        }
    }

    fn losing_replies(&mut self) {
        self.exact = false;
        self.lost_replies = Some(self.waiting.len());
    }

    /// Replies are found again: what was asked before the hole was answered in it, but for the newest request, for the
    /// reply at hand answers something.
    fn found_replies(&mut self) {
        if let Some(before) = self.lost_replies.take() {
            self.waiting.drain(..before.min(self.waiting.len().saturating_sub(1)));
        }
    }

    /// The request that a reply answers.
    fn answered(&mut self, answer: &Answer) -> (Option<u64>, Pairing) {
        if let (true, Some(id)) = (self.protocol.pairs_by_id(), answer.id) {
            let seq = self.streams.remove(&id);
            return (seq, if seq.is_some() { Pairing::Id } else { Pairing::None });
        }
        if self.unordered {
            return (None, Pairing::None);
        }
        if let Some(Waiting::Hole { replies }) = self.waiting.front_mut() {
            *replies += 1;
        }
        let comparable =
            |request: &Request| request.op == Op::Get && request.class.keys == 1 && request.class.key_hash != 0;
        let mut by_key = false;
        let fits = |waiting: &Waiting| {
            let Waiting::Request { request, .. } = waiting else {
                // A hole: what is behind it may be this reply's, or not. An id or a key tells.
                return answer.id.is_none() && answer.key_hash == 0;
            };
            if let Some(id) = answer.id {
                return request.id == Some(id);
            }
            let key = answer.key_hash == 0 || !comparable(request) || request.class.key_hash == answer.key_hash;
            key && (answer.answers & request.op.bit() != 0)
        };
        let Some(at) = self.waiting.iter().position(fits) else { return (None, Pairing::None) };
        let Waiting::Request { seq, request } = self.waiting[at] else { return (None, Pairing::None) };
        by_key |= answer.key_hash != 0 && comparable(&request);
        // Those before it that need no answer have had none; others were answered in a hole, or this is out of order.
        let passed = self.waiting.iter().take(at);
        let quiet =
            |waiting: &Waiting| matches!(waiting, Waiting::Request { request, .. } if request.answered.is_none());
        let in_order = passed.clone().all(quiet);
        let pairing = if answer.id.is_some() || (by_key && !self.exact) {
            Pairing::Id
        } else if self.exact && in_order && (request.answered.is_some() || by_key) {
            Pairing::Order
        } else {
            Pairing::Assumed
        };
        self.exact &= in_order;
        self.waiting.drain(..=at);
        if self.protocol == Protocol::Http1 && request.switches {
            let connect = request.class.command.as_str() == "CONNECT" && (200..300).contains(&answer.code);
            self.switched |= connect || answer.code == 101;
        }
        (Some(seq), pairing)
    }
}

impl Asked for Pairs {
    fn ask(&self, _id: Option<u64>) -> Ask {
        match self.waiting.front() {
            Some(Waiting::Request { request, .. }) if self.lost_replies.is_none() => {
                Ask { op: request.op, values: request.values, value: Value::Any }
            }
            _ => Ask::UNKNOWN,
        }
    }
}

/// The first byte of a message that ends at `to`, and how many bytes are its own.
fn place(from: u64, to: u64, span: Option<Span>) -> (u64, u64) {
    span.map_or((from, to - from), |span| (to.saturating_sub(span.bytes), span.own))
}

/// Takes the parts of the requests' stream.
pub(super) struct RequestSink<'a, F> {
    pub(super) pairs: &'a mut Pairs,
    pub(super) each: &'a mut F,
}

impl<F> Asked for RequestSink<'_, F> {
    fn ask(&self, _id: Option<u64>) -> Ask {
        Ask::UNKNOWN
    }
}

impl<F: FnMut(Frame)> Sink<Request> for RequestSink<'_, F> {
    fn piece(&mut self, piece: Piece<Request>) {
        (self.each)(match piece {
            Piece::Message { from, to, out, inferred } => {
                let seq = self.pairs.asked(&out);
                let (first, bytes) = place(from, to, out.span);
                let (class, answered) = (out.class, out.answered);
                Frame::Request(RequestFrame { seq, from, to, first, bytes, class, answered, inferred })
            }
            Piece::Control { from, to } => Frame::Control { direction: Direction::Requests, from, to },
            Piece::Lost { from, to, why } => Frame::Lost { direction: Direction::Requests, from, to, why },
        });
    }

    fn losing(&mut self) {
        self.pairs.losing_requests();
    }

    fn switched(&self) -> bool {
        self.pairs.switched
    }
}

/// Takes the parts of the replies' stream.
pub(super) struct ReplySink<'a, F> {
    pub(super) pairs: &'a mut Pairs,
    pub(super) each: &'a mut F,
}

impl<F> Asked for ReplySink<'_, F> {
    fn ask(&self, id: Option<u64>) -> Ask {
        self.pairs.ask(id)
    }
}

impl<F: FnMut(Frame)> Sink<Answer> for ReplySink<'_, F> {
    fn piece(&mut self, piece: Piece<Answer>) {
        (self.each)(match piece {
            Piece::Message { from, to, out, .. } if out.unsolicited => Frame::Unsolicited { from, to },
            Piece::Message { from, to, out, inferred } => {
                let (request, pairing) = self.pairs.answered(&out);
                if out.reset && request.is_none() {
                    return (self.each)(Frame::Unsolicited { from, to });
                }
                let (first, bytes) = place(from, to, out.span);
                let Answer { status, values, value_bytes, .. } = out;
                Frame::Reply(ReplyFrame {
                    from,
                    to,
                    first,
                    bytes,
                    request,
                    pairing,
                    status,
                    values,
                    value_bytes,
                    inferred,
                })
            }
            Piece::Control { from, to } => Frame::Control { direction: Direction::Replies, from, to },
            Piece::Lost { from, to, why } => {
                if why != Why::Unfinished {
                    self.pairs.found_replies();
                }
                Frame::Lost { direction: Direction::Replies, from, to, why }
            }
        });
    }

    fn losing(&mut self) {
        self.pairs.losing_replies();
    }

    fn switched(&self) -> bool {
        self.pairs.switched
    }
}
