//! HTTP/1 (RFC 9112). In: bytes. Out: responses as answers, requests with their class. Heads are read by httparse; what
//! follows is counted off: `Content-Length` bytes, chunks, nothing (HEAD, 1xx, 204, 304), or all until the connection ends.

use httparse::{EMPTY_HEADER, Header};

use super::{Answer, Asked, Body, Data, Grammar, Line, Request, Skip, Step, Unseen};
use crate::class::{Class, Command, Shape, hash};
use crate::exchange::{ErrorKind, Op, Status};
use crate::{Kind, ProtocolError, Value};

const KIND: Kind = Kind::Http1;
/// The longest head, and the most header fields in it.
const HEAD: usize = 64 << 10;
const FIELDS: usize = 128;
/// The longest line with a chunk's size, or trailer field.
const CHUNK_LINE: usize = 8 << 10;

/// Collects a head: all up to and with its empty line.
#[derive(Debug, Default)]
struct Head {
    kept: Vec<u8>,
    whole: bool,
}

/// The end of a head in `bytes`, not looking for line feeds before `from`.
fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    memchr::memchr_iter(b'\n', &bytes[from..]).map(|at| from + at).find_map(|at| match &bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

impl Head {
    fn reset(&mut self) {
        self.kept.clear();
        self.whole = false;
    }

    fn partial(&self) -> &[u8] {
        if self.whole { &[] } else { &self.kept }
    }

    fn take<'a>(&'a mut self, bytes: &'a [u8]) -> Result<(usize, Option<&'a [u8]>), ProtocolError> {
        if self.whole {
            self.reset();
        }
        let before = self.kept.len();
        if before == 0
            && let Some(end) = head_end(bytes, 0)
            && end <= HEAD
        {
            return Ok((end, Some(&bytes[..end])));
        }
        if before + bytes.len().min(HEAD + 1) > HEAD && head_end(&bytes[..bytes.len().min(HEAD)], 0).is_none() {
            return Err(ProtocolError::TooLarge { kind: KIND, what: "a head", limit: HEAD as u64 });
        }
        self.kept.extend_from_slice(&bytes[..bytes.len().min(HEAD + 4)]);
        // The empty line may have begun before these bytes.
        match head_end(&self.kept, before.saturating_sub(3)) {
            Some(end) => {
                self.kept.truncate(end);
                self.whole = true;
                Ok((end - before, Some(&self.kept)))
            }
            None => Ok((bytes.len(), None)),
        }
    }
}

/// What follows a head.
#[derive(Debug, Default)]
enum Rest {
    /// Nothing: a head is being read.
    #[default]
    Head,
    Length(Body),
    /// A line with a chunk's size.
    ChunkSize(Body),
    /// A chunk and its CRLF.
    Chunk(Data),
    /// Trailer fields, up to an empty line.
    Trailer(Body),
    /// Everything until the connection ends.
    UntilClose(Body),
}

/// What a head's fields say of what follows.
#[derive(Debug, Default)]
struct Framing {
    length: Option<u64>,
    chunked: bool,
    /// `Transfer-Encoding` that does not end with chunked.
    otherwise: bool,
    upgrade: bool,
}

fn framing(fields: &[Header<'_>], head: &[u8]) -> Result<Framing, ProtocolError> {
    let mut framing = Framing::default();
    for field in fields {
        if field.name.eq_ignore_ascii_case("content-length") {
            for length_text in field.value.split(|b| *b == b',') {
                let length = super::number(length_text.trim_ascii());
                if length.is_none() || framing.length.is_some_and(|before| Some(before) != length) {
                    return Err(ProtocolError::garbage(KIND, "one Content-Length", head));
                }
                framing.length = length;
            }
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            let last = field.value.rsplit(|b| *b == b',').next().unwrap_or_default();
            framing.chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
            framing.otherwise = !framing.chunked;
        } else if field.name.eq_ignore_ascii_case("upgrade") {
            framing.upgrade = true;
        }
    }
    Ok(framing)
}

/// What follows heads, whoever sent them.
#[derive(Debug, Default)]
struct Follow {
    rest: Rest,
    line: Line,
}

impl Follow {
    fn reset(&mut self) {
        self.rest = Rest::Head;
        self.line.reset();
    }

    fn at_head(&self) -> bool {
        matches!(self.rest, Rest::Head)
    }

    /// A body begins: `Some` when there is none.
    fn begin(&mut self, rest: Rest) -> Option<Body> {
        match rest {
            Rest::Head => Some(Body::default()),
            Rest::Length(body) if body.done() => Some(body),
            rest => {
                self.rest = rest;
                None
            }
        }
    }

    /// Takes bytes of what follows; gives the body when it has ended.
    fn take(&mut self, bytes: &[u8], value: &Value) -> Result<(usize, Option<Body>), ProtocolError> {
        match &mut self.rest {
            Rest::Head => Ok((0, None)),
            Rest::Length(body) | Rest::UntilClose(body) => {
                let used = body.take(bytes, value);
                let ended = body.done().then_some(*body);
                if ended.is_some() {
                    self.rest = Rest::Head;
                }
                Ok((used, ended))
            }
            Rest::ChunkSize(body) => {
                let (used, line) = self.line.take(bytes, KIND, CHUNK_LINE)?;
                let Some(line) = line else { return Ok((used, None)) };
                let mut body = *body;
                let size = chunk_size(line).ok_or_else(|| ProtocolError::garbage(KIND, "a chunk's size", line))?;
                self.rest = if size == 0 {
                    Rest::Trailer(body)
                } else {
                    body.extend(size);
                    Rest::Chunk(Data::of(body))
                };
                Ok((used, None))
            }
            Rest::Chunk(data) => {
                let used = data.take(bytes, value, KIND)?;
                if data.done() {
                    self.rest = Rest::ChunkSize(data.body());
                }
                Ok((used, None))
            }
            Rest::Trailer(body) => {
                let (used, line) = self.line.take(bytes, KIND, CHUNK_LINE)?;
                let ended = line.is_some_and(<[u8]>::is_empty).then_some(*body);
                if ended.is_some() {
                    self.rest = Rest::Head;
                }
                Ok((used, ended))
            }
        }
    }

    /// Goes on over unseen bytes: how many, the body when it ended, and whether that is a conclusion.
    fn skip(&mut self, unseen: Unseen) -> Option<(u64, Option<Body>, bool)> {
        match &mut self.rest {
            Rest::Head => None,
            Rest::Length(body) | Rest::UntilClose(body) => {
                let used = body.skip(unseen.bytes);
                let ended = body.done().then_some(*body);
                if ended.is_some() {
                    self.rest = Rest::Head;
                }
                Some((used, ended, false))
            }
            Rest::Chunk(data) => {
                let used = data.skip(unseen.bytes);
                if data.done() {
                    self.rest = Rest::ChunkSize(data.body());
                }
                Some((used, None, false))
            }
            // Five bytes up to the end of a segment are `0 CRLF CRLF`: another chunk and its end need more.
            Rest::ChunkSize(body) if self.line.is_empty() && unseen.to_segment_end && unseen.bytes == 5 => {
                let body = *body;
                self.rest = Rest::Head;
                Some((5, Some(body), true))
            }
            // The empty line behind the last chunk.
            Rest::Trailer(body) if self.line.is_empty() && unseen.to_segment_end && unseen.bytes == 2 => {
                let body = *body;
                self.rest = Rest::Head;
                Some((2, Some(body), true))
            }
            Rest::ChunkSize(_) | Rest::Trailer(_) => None,
        }
    }
}

/// The size of a chunk: hexadecimal, then perhaps extensions.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|b| *b == b';').next()?.trim_ascii();
    if digits.is_empty() || digits.len() > 12 {
        return None;
    }
    digits.iter().try_fold(0, |n, b| Some(n << 4 | u64::from(char::from(*b).to_digit(16)?)))
}

/// Responses.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    head: Head,
    follow: Follow,
    open: Option<Answer>,
}

/// What the parser says of a head, as an error of the protocol unless it is whole.
fn whole(parsed: httparse::Result<usize>, expected: &'static str, head: &[u8]) -> Result<(), ProtocolError> {
    match parsed {
        Ok(httparse::Status::Complete(_)) => Ok(()),
        Err(httparse::Error::TooManyHeaders) => {
            Err(ProtocolError::TooLarge { kind: KIND, what: "the number of header fields", limit: FIELDS as u64 })
        }
        _ => Err(ProtocolError::garbage(KIND, expected, head)),
    }
}

fn response(head: &[u8], op: Op) -> Result<(Answer, Rest), ProtocolError> {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut parsed = httparse::Response::new(&mut fields);
    whole(parsed.parse(head), "a status line and header fields", head)?;
    let code = parsed.code.unwrap_or(0);
    let framing = framing(parsed.headers, head)?;
    let status = match code {
        100..400 => Status::Ok,
        404 | 410 => Status::Miss,
        429 | 503 => Status::Error(ErrorKind::Busy),
        400..500 => Status::Error(ErrorKind::Client),
        500..600 => Status::Error(ErrorKind::Server),
        _ => return Err(ProtocolError::garbage(KIND, "a status of three digits", head)),
    };
    let mut answer = Answer::new(status, Op::ANY);
    answer.code = code;
    answer.unsolicited = (100..200).contains(&code) && code != 101;
    let rest = match (code, framing) {
        (100..200 | 204 | 304, _) => Rest::Head,
        _ if op == Op::Head => Rest::Head,
        (_, Framing { chunked: true, .. }) => Rest::ChunkSize(Body::default()),
        (_, Framing { otherwise: false, length: Some(length), .. }) => Rest::Length(Body::new(length)),
        _ => Rest::UntilClose(Body::new(u64::MAX)),
    };
    Ok((answer, rest))
}

impl Replies {
    fn ended(&mut self, body: Body, asked: &impl Asked) -> Option<Answer> {
        let mut answer = self.open.take()?;
        let ask = asked.ask(None);
        answer.value_bytes = body.passed();
        answer.values = u32::from(answer.value_bytes > 0);
        if ask.op != Op::Head && (200..300).contains(&answer.code) {
            answer.fits = body.fit(&ask.value);
        }
        Some(answer)
    }
}

impl Grammar for Replies {
    type Out = Answer;

    fn step(&mut self, bytes: &[u8], asked: &impl Asked) -> Result<Step<Answer>, ProtocolError> {
        let mut used = 0;
        while used < bytes.len() {
            if !self.follow.at_head() {
                let (taken, ended) = self.follow.take(&bytes[used..], &asked.ask(None).value)?;
                used += taken;
                if let Some(body) = ended {
                    return Ok(Step { used, out: self.ended(body, asked) });
                }
                continue;
            }
            // Looked at at once: garbage may have no empty line for long.
            const START: &[u8] = b"HTTP/1.";
            let (before, come) = (self.head.partial().len(), &bytes[used..]);
            if before < START.len() && !come.iter().zip(&START[before..]).all(|(come, start)| come == start) {
                return Err(ProtocolError::garbage(KIND, "`HTTP/1.`", come));
            }
            let (taken, head) = self.head.take(come)?;
            used += taken;
            let Some(head) = head else { break };
            let (answer, rest) = response(head, asked.ask(None).op)?;
            self.open = Some(answer);
            if let Some(body) = self.follow.begin(rest) {
                return Ok(Step { used, out: self.ended(body, asked) });
            }
        }
        Ok(Step { used, out: None })
    }

    fn skip(&mut self, unseen: Unseen, asked: &impl Asked) -> Option<Skip<Answer>> {
        let (used, body, inferred) = self.follow.skip(unseen)?;
        let out = body.and_then(|body| self.ended(body, asked));
        Some(Skip { used, out, inferred })
    }

    fn close(&mut self, asked: &impl Asked) -> Result<Option<Answer>, ()> {
        match self.follow.rest {
            Rest::UntilClose(body) => {
                self.follow.reset();
                Ok(self.ended(body, asked))
            }
            Rest::Head if self.head.partial().is_empty() => Ok(None),
            _ => Err(()),
        }
    }

    fn reset(&mut self) {
        self.head.reset();
        self.follow.reset();
        self.open = None;
    }

    fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(b"HTTP/1.0 ") || bytes.starts_with(b"HTTP/1.1 ")
    }
}

/// Requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    head: Head,
    follow: Follow,
    open: Option<Request>,
}

/// The method and the path of a request line, as far as they are whole in `head`.
pub(super) fn class(method: &[u8], target: &[u8]) -> Class {
    let mut class = Class::bare(Command::exact(method));
    let path = target.split(|b| *b == b'?').next().unwrap_or_default();
    (class.keys, class.key_bytes, class.key_hash) = (1, path.len() as u32, hash(path));
    class.path = Shape::of(path);
    class
}

pub(super) fn op(method: &[u8]) -> Op {
    match method {
        b"GET" => Op::Get,
        b"HEAD" => Op::Head,
        b"POST" | b"PUT" | b"PATCH" => Op::Set,
        b"DELETE" => Op::Delete,
        _ => Op::Other,
    }
}

fn request(head: &[u8]) -> Result<(Request, Rest), ProtocolError> {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    whole(parsed.parse(head), "a request line and header fields", head)?;
    let method = parsed.method.unwrap_or_default().as_bytes();
    let framing = framing(parsed.headers, head)?;
    let mut request = Request::new(class(method, parsed.path.unwrap_or_default().as_bytes()), op(method));
    request.switches = framing.upgrade || method == b"CONNECT";
    let rest = match framing {
        Framing { chunked: true, .. } => Rest::ChunkSize(Body::default()),
        Framing { otherwise: true, .. } => {
            return Err(ProtocolError::garbage(KIND, "chunked as the last coding", head));
        }
        Framing { length: Some(length), .. } => Rest::Length(Body::new(length)),
        _ => Rest::Head,
    };
    Ok((request, rest))
}

impl Requests {
    fn ended(&mut self, body: Body) -> Option<Request> {
        let mut request = self.open.take()?;
        request.class.value_bytes = body.passed();
        Some(request)
    }
}

impl Grammar for Requests {
    type Out = Request;

    fn step(&mut self, bytes: &[u8], _asked: &impl Asked) -> Result<Step<Request>, ProtocolError> {
        let mut used = 0;
        while used < bytes.len() {
            if !self.follow.at_head() {
                let (taken, ended) = self.follow.take(&bytes[used..], &Value::Any)?;
                used += taken;
                if let Some(body) = ended {
                    return Ok(Step { used, out: self.ended(body) });
                }
                continue;
            }
            let (taken, head) = self.head.take(&bytes[used..])?;
            used += taken;
            let Some(head) = head else { break };
            let (request, rest) = request(head)?;
            self.open = Some(request);
            if let Some(body) = self.follow.begin(rest) {
                return Ok(Step { used, out: self.ended(body) });
            }
        }
        Ok(Step { used, out: None })
    }

    fn skip(&mut self, unseen: Unseen, _asked: &impl Asked) -> Option<Skip<Request>> {
        if self.follow.at_head() {
            // The head of a request without a body that ends somewhere in this segment: one request a segment is what
            // clients send who do not pipeline.
            let head = self.head.partial();
            let mut words = head.split(|b| *b == b' ');
            let (method, target, version) = (words.next()?, words.next()?, words.next()?);
            let bodyless = matches!(method, b"GET" | b"HEAD" | b"DELETE" | b"OPTIONS");
            let framed = find(head, b"ontent-").or_else(|| find(head, b"ransfer-"));
            if !unseen.to_segment_end || !bodyless || !version.starts_with(b"HTTP/1.") || framed.is_some() {
                return None;
            }
            let request = Request::new(class(method, target), op(method));
            self.reset();
            return Some(Skip { used: unseen.bytes, out: Some(request), inferred: true });
        }
        let (used, body, inferred) = self.follow.skip(unseen)?;
        Some(Skip { used, out: body.and_then(|body| self.ended(body)), inferred })
    }

    fn close(&mut self, _asked: &impl Asked) -> Result<Option<Request>, ()> {
        if self.follow.at_head() && self.head.partial().is_empty() { Ok(None) } else { Err(()) }
    }

    fn reset(&mut self) {
        self.head.reset();
        self.follow.reset();
        self.open = None;
    }

    fn begins(bytes: &[u8]) -> bool {
        let mut words = bytes.splitn(3, |b| *b == b' ');
        let method = words.next().unwrap_or_default();
        let target = words.next().unwrap_or_default();
        const METHODS: [&[u8]; 9] =
            [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"CONNECT", b"TRACE"];
        let version = words.next().is_none_or(|version| {
            let compared = version.len().min(7);
            version[..compared] == b"HTTP/1."[..compared]
        });
        METHODS.contains(&method) && !target.is_empty() && !target.contains(&b'\n') && version
    }

    /// With its version: other protocols of lines have words such as `GET`, too.
    fn is_distinct(bytes: &[u8]) -> bool {
        let version = bytes.splitn(3, |b| *b == b' ').nth(2);
        version.is_some_and(|version| version.starts_with(b"HTTP/1.")) && Self::begins(bytes)
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, part)
}
