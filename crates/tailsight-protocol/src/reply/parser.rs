//! A connection's replies. In: expectations and bytes. Out: replies, each held against its expectation.

use std::collections::VecDeque;

use super::{Ask, Expect, Op, Reply, Status, WrongKind};
use crate::grammar::{Answer, Asked, Fit, Grammar, Step};
use crate::grammar::{echo, http1, http2, memcached_binary, memcached_text, resp, synthetic};
use crate::{Kind, ProtocolError};

/// What is outstanding.
#[derive(Debug)]
pub(super) struct Outstanding(VecDeque<Expect>);

impl Outstanding {
    pub(super) fn new(capacity: usize) -> Self {
        Self(VecDeque::with_capacity(capacity))
    }

    /// The place of the request that an answer is for.
    fn place(&self, id: Option<u64>) -> Option<usize> {
        match id {
            Some(id) => self.0.iter().position(|expect| expect.id == id),
            // An answer without an id is for the first that must have one.
            None => self.0.iter().position(|expect| !expect.quiet).or(if self.0.is_empty() { None } else { Some(0) }),
        }
    }
}

impl Asked for Outstanding {
    fn ask(&self, id: Option<u64>) -> Ask {
        self.place(id).map_or(Ask::UNKNOWN, |place| self.0[place].ask)
    }
}

/// The grammar of a kind.
#[derive(Debug)]
pub(super) enum Replies {
    Text(memcached_text::Replies),
    Binary(memcached_binary::Replies),
    Resp(resp::Replies),
    Http1(http1::Replies),
    Http2(Box<http2::Http2>),
    Echo(echo::Replies),
    Synthetic(synthetic::Replies),
}

/// Calls a method of whichever grammar it is; HTTP/2 is named apart.
macro_rules! each {
    ($on:expr, $grammar:ident => $do:expr, $http2:ident => $other:expr) => {
        match $on {
            Replies::Text($grammar) => $do,
            Replies::Binary($grammar) => $do,
            Replies::Resp($grammar) => $do,
            Replies::Http1($grammar) => $do,
            Replies::Echo($grammar) => $do,
            Replies::Synthetic($grammar) => $do,
            Replies::Http2($http2) => $other,
        }
    };
}

impl Replies {
    pub(super) fn new(kind: Kind, outstanding: usize) -> Self {
        match kind {
            Kind::MemcachedText => Self::Text(Default::default()),
            Kind::MemcachedBinary => Self::Binary(Default::default()),
            Kind::Resp => Self::Resp(Default::default()),
            Kind::Http1 => Self::Http1(Default::default()),
            Kind::Http2 => Self::Http2(Box::new(http2::Http2::new(outstanding))),
            Kind::Echo => Self::Echo(Default::default()),
            Kind::Synthetic => Self::Synthetic(Default::default()),
        }
    }

    pub(super) fn step(&mut self, bytes: &[u8], asked: &impl Asked) -> Result<Step<Answer>, ProtocolError> {
        each!(self, grammar => grammar.step(bytes, asked), http2 => http2.step(bytes, asked))
    }

    pub(super) fn close(&mut self, asked: &impl Asked) -> Result<Option<Answer>, ()> {
        each!(self, grammar => grammar.close(asked), http2 => http2.close().map(|()| None))
    }

    /// Replies wait that need no more bytes (requests that GOAWAY refused).
    fn has_more(&self) -> bool {
        matches!(self, Self::Http2(http2) if http2.has_more())
    }

    pub(super) fn reset(&mut self) {
        each!(self, grammar => grammar.reset(), _http2 => ());
    }
}

/// What an answer says to what was asked.
pub(super) fn judge(answer: &Answer, ask: &Ask) -> Status {
    if matches!(answer.status, Status::Error(_)) {
        return answer.status;
    }
    if answer.answers & ask.op.bit() == 0 {
        return Status::Wrong(WrongKind::Kind);
    }
    if ask.values > 0 && answer.values > u32::from(ask.values) {
        return Status::Wrong(WrongKind::Values);
    }
    match answer.fits {
        Fit::Length if answer.status == Status::Ok => Status::Wrong(WrongKind::Length),
        Fit::Content if answer.status == Status::Ok => Status::Wrong(WrongKind::Content),
        _ => answer.status,
    }
}

/// Holds an answer against its request and says it; quiet requests that it passes are resolved before it. Gives whether it was for one.
fn resolve(
    ordered: bool,
    outstanding: &mut Outstanding,
    answer: &Answer,
    end: usize,
    bytes: u64,
    each: &mut impl FnMut(Reply),
) -> bool {
    let mut reply = Reply {
        end,
        bytes,
        values: answer.values,
        value_bytes: answer.value_bytes,
        status: Status::Wrong(WrongKind::Unasked),
        id: None,
        code: answer.code,
        server: answer.server,
    };
    let Some(mut place) = outstanding.place(answer.id) else {
        each(reply);
        return false;
    };
    let mut at = 0;
    while ordered && at < place {
        let before = outstanding.0[at];
        if !before.quiet {
            at += 1;
            continue;
        }
        outstanding.0.remove(at);
        place -= 1;
        let status = if before.ask.op == Op::Get { Status::Miss } else { Status::Ok };
        each(Reply {
            bytes: 0,
            values: 0,
            value_bytes: 0,
            code: 0,
            server: None,
            status,
            id: Some(before.id),
            ..reply
        });
    }
    if let Some(expect) = outstanding.0.remove(place) {
        reply.status = judge(answer, &expect.ask);
        reply.id = Some(expect.id);
    }
    each(reply);
    true
}

/// Messages that answer nobody, since the last one that did, before the stream is given up: HTTP clients take a handful of 1xx, a RESP
/// server pushes to those who subscribed, which a client of this parser has not, and answers to no request are nobody's.
const MOST_STRAYS: u64 = 1_000;

/// The replies of one connection.
#[derive(Debug)]
pub struct Parser {
    kind: Kind,
    replies: Replies,
    outstanding: Outstanding,
    /// Bytes since the last reply.
    bytes: u64,
    unsolicited: u64,
    /// Messages that answered nobody since the last one that did.
    strays: u64,
    /// A stream that gave an error gives no more.
    failed: Option<ProtocolError>,
}

impl Parser {
    /// A connection with nothing sent. `outstanding` requests are room enough; more make room (HTTP/2: are refused).
    pub fn new(kind: Kind, outstanding: usize) -> Self {
        Self {
            kind,
            replies: Replies::new(kind, outstanding),
            outstanding: Outstanding::new(outstanding),
            bytes: 0,
            unsolicited: 0,
            strays: 0,
            failed: None,
        }
    }

    /// The protocol.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// A request is about to be sent.
    pub fn expect(&mut self, expect: Expect) {
        self.outstanding.0.push_back(expect);
    }

    /// A request is given up: whether it was outstanding. Without ids on the wire its reply, if it still comes, is taken
    /// for the next one's: close the connection then.
    pub fn forget(&mut self, id: u64) -> bool {
        if let Replies::Http2(http2) = &mut self.replies {
            http2.forget(id);
        }
        match self.outstanding.0.iter().position(|expect| expect.id == id) {
            Some(place) => self.outstanding.0.remove(place).is_some(),
            None => false,
        }
    }

    /// Requests without a reply.
    pub fn outstanding(&self) -> usize {
        self.outstanding.0.len()
    }

    /// Messages that answered nobody (RESP pushes, HTTP 1xx) so far.
    pub fn unsolicited(&self) -> u64 {
        self.unsolicited
    }

    /// HTTP/2: where requests are sent.
    pub fn http2(&mut self) -> Option<&mut http2::Http2> {
        match &mut self.replies {
            Replies::Http2(http2) => Some(http2),
            _ => None,
        }
    }

    /// HTTP/2: bytes for the server (preface, requests, acknowledgements, window updates): send them and clear this.
    pub fn output(&mut self) -> Option<&mut Vec<u8>> {
        self.http2().map(http2::Http2::output)
    }

    /// Takes what was read; says each reply that ended in it, in the order of their ends. After an error the replies said
    /// stand, and every further call gives the same error.
    pub fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(Reply)) -> Result<(), ProtocolError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        // Replies to memcached and Redis come in order, ids or not.
        let ordered = !matches!(self.kind, Kind::Http2 | Kind::Synthetic);
        let mut at = 0;
        while at < bytes.len() || self.replies.has_more() {
            let step = self.replies.step(&bytes[at..], &self.outstanding);
            let Step { used, out } = step.inspect_err(|error| self.failed = Some(error.clone()))?;
            at += used;
            self.bytes += used as u64;
            let Some(answer) = out else { continue };
            let bytes = answer.wire.unwrap_or(std::mem::take(&mut self.bytes));
            let answers = if answer.unsolicited {
                self.unsolicited += 1;
                false
            } else {
                resolve(ordered, &mut self.outstanding, &answer, at, bytes, &mut each)
            };
            self.strays = if answers { 0 } else { self.strays + 1 };
            if self.strays > MOST_STRAYS {
                let what = "the number of messages in a row that answer nobody (1xx, pushes, answers to no request)";
                let error = ProtocolError::TooLarge { kind: self.kind, what, limit: MOST_STRAYS };
                self.failed = Some(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// The connection ended. An HTTP body that this ends is a reply; all else unfinished or unanswered is an error.
    pub fn close(&mut self, mut each: impl FnMut(Reply)) -> Result<(), ProtocolError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let kind = self.kind;
        let result = match self.replies.close(&self.outstanding) {
            Ok(answer) => {
                if let Some(answer) = answer {
                    resolve(false, &mut self.outstanding, &answer, 0, std::mem::take(&mut self.bytes), &mut each);
                }
                match self.outstanding() {
                    0 => return Ok(()),
                    outstanding => ProtocolError::Unanswered { kind, outstanding },
                }
            }
            Err(()) => ProtocolError::HalfReply { kind, bytes: self.bytes, outstanding: self.outstanding() },
        };
        self.failed = Some(result.clone());
        Err(result)
    }
}
