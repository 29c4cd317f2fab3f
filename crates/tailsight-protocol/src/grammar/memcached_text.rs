//! memcached's text protocol with the meta commands (protocol.txt of memcached 1.6). In: bytes. Out: replies as answers,
//! requests with their class. A value is counted off by its announced length and must end with CRLF.

use super::{Answer, Asked, Data, Fit, Grammar, Line, Request, Skip, Step, Unseen, number};
use crate::class::{Class, Command, hash};
use crate::exchange::{ErrorKind, Op, Status};
use crate::{Kind, ProtocolError, Value};

const KIND: Kind = Kind::MemcachedText;
/// The longest reply line: memcached's own texts and meta lines stay far below.
const REPLY_LINE: usize = 8 << 10;
/// The longest request line (memcached itself gives up a `get` of many keys at 64 KiB or so without a line end).
const REQUEST_LINE: usize = 128 << 10;
/// The largest value taken for one (memcached -I allows 1 GiB).
const LARGEST: u64 = 4 << 30;

const GET: u8 = Op::Get.bit() | Op::Other.bit();
const SET: u8 = Op::Set.bit() | Op::Other.bit();
const DELETE: u8 = Op::Delete.bit() | Op::Other.bit();
const PING: u8 = Op::Ping.bit() | Op::Other.bit();
const OTHER: u8 = Op::Other.bit();

/// What a reply line says.
enum Said {
    /// The reply ends with it.
    Whole(Answer),
    /// A value follows, of a `get` (then more lines) or of `mg` (then the reply is whole).
    Value { len: u64, key_hash: u64, id: Option<u64>, meta: bool },
    /// More lines follow (`STAT`, `ITEM`).
    More,
    /// The end of values or lines.
    End,
}

/// The `O` flag of a meta line, as a number, and the `k` flag's hash.
fn meta_flags<'a>(words: impl Iterator<Item = &'a [u8]>) -> (Option<u64>, u64) {
    let (mut id, mut key_hash) = (None, 0);
    for word in words {
        match word.split_first() {
            Some((b'O', opaque)) => id = number(opaque),
            Some((b'k', key)) if !key.is_empty() => key_hash = hash(key),
            _ => {}
        }
    }
    (id, key_hash)
}

fn reply_line(line: &[u8]) -> Result<Said, ProtocolError> {
    let garbage = || ProtocolError::garbage(KIND, "a reply line", line);
    let mut words = line.split(|b| *b == b' ').filter(|word| !word.is_empty());
    let first = words.next().ok_or_else(garbage)?;
    let whole = |status, answers| Ok(Said::Whole(Answer::new(status, answers)));
    let meta = |status, answers, words| {
        let (id, key_hash) = meta_flags(words);
        Ok(Said::Whole(Answer { id, key_hash, ..Answer::new(status, answers) }))
    };
    let size = |size: Option<&[u8]>| size.and_then(number).filter(|size| *size <= LARGEST).ok_or_else(garbage);
    match first {
        b"VALUE" => {
            let key = words.next().ok_or_else(garbage)?;
            let len = size(words.nth(1))?;
            Ok(Said::Value { len, key_hash: hash(key), id: None, meta: false })
        }
        b"END" => Ok(Said::End),
        b"STORED" => whole(Status::Ok, SET),
        b"NOT_STORED" => whole(Status::Miss, SET),
        b"EXISTS" => whole(Status::Miss, SET | DELETE),
        b"NOT_FOUND" => whole(Status::Miss, SET | DELETE),
        b"DELETED" => whole(Status::Ok, DELETE),
        b"TOUCHED" | b"RESET" => whole(Status::Ok, OTHER),
        b"OK" | b"VERSION" => whole(Status::Ok, PING),
        b"MN" => whole(Status::Ok, PING),
        b"HD" => meta(Status::Ok, GET | SET | DELETE, words),
        b"EN" => meta(Status::Miss, GET, words),
        b"NF" => meta(Status::Miss, GET | SET | DELETE, words),
        b"NS" => meta(Status::Miss, SET, words),
        b"EX" => meta(Status::Miss, SET | DELETE, words),
        b"ME" => whole(Status::Ok, OTHER),
        b"VA" => {
            let len = size(words.next())?;
            let (id, key_hash) = meta_flags(words);
            Ok(Said::Value { len, key_hash, id, meta: true })
        }
        b"STAT" | b"ITEM" => Ok(Said::More),
        b"ERROR" | b"CLIENT_ERROR" => whole(Status::Error(ErrorKind::Client), Op::ANY),
        b"SERVER_ERROR" => whole(Status::Error(ErrorKind::Server), Op::ANY),
        b"BUSY" => whole(Status::Error(ErrorKind::Busy), Op::ANY),
        // incr and decr answer with the number alone; memcached may pad it with spaces.
        _ if number(first).is_some() && words.next().is_none() => whole(Status::Ok, OTHER),
        _ => Err(garbage()),
    }
}

/// Replies.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    line: Line,
    data: Option<Data>,
    /// The answer as far as it has come, for replies of several lines.
    open: Option<Answer>,
    /// Whether the value on its way ends the reply.
    meta: bool,
    /// Bytes of [`END`] that have passed, when nothing else can come; 0 when that is not known.
    ended: usize,
}

/// What ends the values of a `get`.
const END: &[u8] = b"END\r\n";

impl Replies {
    /// A value has passed: the reply, when that was its end.
    fn value_ended(&mut self, asked: &impl Asked) -> Option<Answer> {
        let data = self.data.take()?;
        let answer = self.open.as_mut()?;
        let ask = asked.ask(answer.id);
        if answer.fits == Fit::Yes {
            answer.fits = data.fit(&ask.value);
        }
        if self.meta { self.open.take() } else { None }
    }
}

impl Grammar for Replies {
    type Out = Answer;

    fn step(&mut self, bytes: &[u8], asked: &impl Asked) -> Result<Step<Answer>, ProtocolError> {
        let mut used = 0;
        while used < bytes.len() {
            if let Some(data) = &mut self.data {
                let value = asked.ask(self.open.and_then(|open| open.id)).value;
                used += data.take(&bytes[used..], &value, KIND)?;
                if data.done()
                    && let Some(answer) = self.value_ended(asked)
                {
                    return Ok(Step { used, out: Some(answer) });
                }
                continue;
            }
            if self.ended > 0 {
                if bytes[used] != END[self.ended] {
                    return Err(ProtocolError::garbage(KIND, "the rest of END", &bytes[used..]));
                }
                used += 1;
                self.ended = (self.ended + 1) % END.len();
                if self.ended == 0 {
                    return Ok(Step { used, out: self.open.take() });
                }
                continue;
            }
            let (taken, line) = self.line.take(&bytes[used..], KIND, REPLY_LINE)?;
            used += taken;
            let Some(line) = line else { break };
            let said = reply_line(line)?;
            let open = self.open.get_or_insert(Answer::new(Status::Ok, GET));
            match said {
                Said::Value { len, key_hash, id, meta } if open.values == 0 || (!meta && open.answers == GET) => {
                    if open.values == 0 {
                        (open.key_hash, open.id) = (key_hash, id);
                    }
                    open.values = open.values.saturating_add(1);
                    open.value_bytes = open.value_bytes.saturating_add(len);
                    self.meta = meta;
                    self.data = Some(Data::new(len));
                }
                Said::More if open.values == 0 => open.answers = OTHER,
                Said::End => {
                    let mut answer = *open;
                    if answer.values == 0 {
                        answer.status = if answer.answers == GET { Status::Miss } else { Status::Ok };
                        // `stats` of nothing is `END` alone, too.
                        answer.answers |= OTHER;
                    }
                    self.open = None;
                    return Ok(Step { used, out: Some(answer) });
                }
                Said::Whole(answer) if open.values == 0 || matches!(answer.status, Status::Error(_)) => {
                    self.open = None;
                    return Ok(Step { used, out: Some(answer) });
                }
                _ => return Err(ProtocolError::garbage(KIND, "another value or END", line)),
            }
        }
        Ok(Step { used, out: None })
    }

    fn skip(&mut self, unseen: Unseen, asked: &impl Asked) -> Option<Skip<Answer>> {
        if let Some(data) = &mut self.data {
            let used = data.skip(unseen.bytes);
            let out = if data.done() { self.value_ended(asked) } else { None };
            return Some(Skip { used, out, inferred: false });
        }
        let open = self.open?;
        let ask = asked.ask(open.id);
        // After a value comes `VALUE …` or `END`. All that was asked for has come, or `E` was seen: `END`. Or five bytes up
        // to the end of the segment: no VALUE line is that short.
        let partial = self.line.partial();
        let begun = if partial.is_empty() { self.ended } else { partial.len() };
        let has_every_value = ask.values > 0 && open.values >= u32::from(ask.values);
        let short = unseen.to_segment_end && unseen.bytes == END.len() as u64 && begun == 0;
        if open.values == 0 || !END.starts_with(partial) || !(has_every_value || begun > 0 || short) {
            return None;
        }
        let used = unseen.bytes.min((END.len() - begun) as u64);
        self.line.reset();
        self.ended = begun + used as usize;
        let out = if self.ended == END.len() { self.open.take() } else { None };
        self.ended %= END.len();
        Some(Skip { used, out, inferred: !has_every_value && begun == 0 })
    }

    fn close(&mut self, _asked: &impl Asked) -> Result<Option<Answer>, ()> {
        if self.line.is_empty() && self.open.is_none() { Ok(None) } else { Err(()) }
    }

    fn reset(&mut self) {
        *self = Self { line: std::mem::take(&mut self.line), ..Self::default() };
        self.line.reset();
    }

    fn begins(bytes: &[u8]) -> bool {
        let word = bytes.split(|b| matches!(b, b' ' | b'\r')).next().unwrap_or_default();
        const WORDS: [&[u8]; 25] = [
            b"VALUE",
            b"END",
            b"STORED",
            b"NOT_STORED",
            b"EXISTS",
            b"NOT_FOUND",
            b"DELETED",
            b"TOUCHED",
            b"OK",
            b"VERSION",
            b"RESET",
            b"STAT",
            b"ITEM",
            b"ERROR",
            b"CLIENT_ERROR",
            b"SERVER_ERROR",
            b"BUSY",
            b"HD",
            b"VA",
            b"EN",
            b"NF",
            b"NS",
            b"EX",
            b"MN",
            b"ME",
        ];
        let ended = word.len() < bytes.len();
        // A number answers incr; alone on its line, for a body may well begin with a digit.
        let lone = number(word).is_some() && bytes[word.len()..].starts_with(b"\r\n") && bytes.len() == word.len() + 2;
        ended && (WORDS.contains(&word) || lone)
    }
}

/// Requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    line: Line,
    open: Option<(Request, Data)>,
}

/// A request line, and how many bytes of data follow it (with their CRLF).
fn request_line(line: &[u8]) -> Result<(Request, Option<u64>), ProtocolError> {
    let garbage = || ProtocolError::garbage(KIND, "a command line", line);
    let mut words = line.split(|b| *b == b' ').filter(|word| !word.is_empty());
    let name = words.next().ok_or_else(garbage)?;
    if !name.iter().all(|b| b.is_ascii_lowercase() || *b == b'_') {
        return Err(garbage());
    }
    let mut class = Class::bare(Command::lower(name));
    let key = |class: &mut Class, key: Option<&[u8]>| {
        let key = key.ok_or_else(garbage)?;
        (class.keys, class.key_bytes, class.key_hash) = (1, key.len() as u32, hash(key));
        Ok::<(), ProtocolError>(())
    };
    let size = |size: Option<&[u8]>| size.and_then(number).filter(|size| *size <= LARGEST).ok_or_else(garbage);
    let quiet = |words: &mut dyn Iterator<Item = &[u8]>| words.last() == Some(b"noreply");
    match name {
        b"get" | b"gets" | b"gat" | b"gats" => {
            if name.starts_with(b"gat") {
                words.next();
            }
            key(&mut class, words.next())?;
            class.keys = class.keys.saturating_add(words.count() as u32);
            Ok((Request::new(class, Op::Get), None))
        }
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => {
            key(&mut class, words.next())?;
            class.value_bytes = size(words.nth(2))?;
            let mut request = Request::new(class, Op::Set);
            request.answered = Some(!quiet(&mut words));
            Ok((request, Some(class.value_bytes)))
        }
        b"delete" | b"incr" | b"decr" | b"touch" => {
            key(&mut class, words.next())?;
            let mut request = Request::new(class, if name == b"delete" { Op::Delete } else { Op::Other });
            request.answered = Some(!quiet(&mut words));
            Ok((request, None))
        }
        b"mg" | b"ms" | b"md" | b"ma" => {
            key(&mut class, words.next())?;
            let data = if name == b"ms" {
                // `ms key S100 …` was the first form of the command; today's is `ms key 100 …`.
                let word = words.next().map(|word| word.strip_prefix(b"S").unwrap_or(word));
                class.value_bytes = size(word)?;
                Some(class.value_bytes)
            } else {
                None
            };
            let op = match name {
                b"mg" => Op::Get,
                b"ms" => Op::Set,
                b"md" => Op::Delete,
                _ => Op::Other,
            };
            let mut request = Request::new(class, op);
            for word in words {
                match word.split_first() {
                    Some((b'q', [])) => request.answered = None,
                    Some((b'O', opaque)) => request.id = number(opaque),
                    _ => {}
                }
            }
            Ok((request, data))
        }
        b"me" => {
            key(&mut class, words.next())?;
            Ok((Request::new(class, Op::Other), None))
        }
        b"mn" | b"version" => Ok((Request::new(class, Op::Ping), None)),
        b"quit" => Ok((Request { answered: Some(false), ..Request::new(class, Op::Other) }, None)),
        b"watch" => Ok((Request { switches: true, ..Request::new(class, Op::Other) }, None)),
        b"verbosity" | b"flush_all" => {
            let mut request = Request::new(class, Op::Other);
            request.answered = Some(!quiet(&mut words));
            Ok((request, None))
        }
        b"stats" | b"cache_memlimit" | b"slabs" | b"lru" | b"lru_crawler" | b"shutdown" | b"misbehave"
        | b"refresh_certs" | b"auth" => Ok((Request::new(class, Op::Other), None)),
        _ => Err(garbage()),
    }
}

impl Grammar for Requests {
    type Out = Request;

    fn step(&mut self, bytes: &[u8], _asked: &impl Asked) -> Result<Step<Request>, ProtocolError> {
        let mut used = 0;
        while used < bytes.len() {
            if let Some((request, data)) = &mut self.open {
                let request = *request;
                used += data.take(&bytes[used..], &Value::Any, KIND)?;
                if data.done() {
                    self.open = None;
                    return Ok(Step { used, out: Some(request) });
                }
                continue;
            }
            let (taken, line) = self.line.take(&bytes[used..], KIND, REQUEST_LINE)?;
            used += taken;
            let Some(line) = line else { break };
            match request_line(line)? {
                (request, None) => return Ok(Step { used, out: Some(request) }),
                (request, Some(len)) => self.open = Some((request, Data::new(len))),
            }
        }
        Ok(Step { used, out: None })
    }

    fn skip(&mut self, unseen: Unseen, _asked: &impl Asked) -> Option<Skip<Request>> {
        let (request, data) = self.open.as_mut()?;
        let request = *request;
        let used = data.skip(unseen.bytes);
        let done = data.done();
        if done {
            self.open = None;
        }
        Some(Skip { used, out: done.then_some(request), inferred: false })
    }

    fn close(&mut self, _asked: &impl Asked) -> Result<Option<Request>, ()> {
        if self.line.is_empty() && self.open.is_none() { Ok(None) } else { Err(()) }
    }

    fn reset(&mut self) {
        self.line.reset();
        self.open = None;
    }

    fn begins(bytes: &[u8]) -> bool {
        let word = bytes.split(|b| matches!(b, b' ' | b'\r')).next().unwrap_or_default();
        const WORDS: [&[u8]; 24] = [
            b"get",
            b"gets",
            b"gat",
            b"gats",
            b"set",
            b"add",
            b"replace",
            b"append",
            b"prepend",
            b"cas",
            b"delete",
            b"incr",
            b"decr",
            b"touch",
            b"mg",
            b"ms",
            b"md",
            b"ma",
            b"me",
            b"mn",
            b"version",
            b"stats",
            b"flush_all",
            b"quit",
        ];
        word.len() < bytes.len() && WORDS.contains(&word)
    }

    /// A command line that reads as one, as far as it was seen, and not `quit`, which ends connections of many protocols.
    fn is_distinct(bytes: &[u8]) -> bool {
        let end = memchr::memchr(b'\n', bytes);
        let line = &bytes[..end.unwrap_or(bytes.len())];
        let words = line.strip_suffix(b"\r").unwrap_or(line);
        let reads = match end {
            Some(_) => words != b"quit" && request_line(words).is_ok(),
            None => words.iter().all(|b| b.is_ascii_graphic() || *b == b' '),
        };
        reads && Self::begins(bytes)
    }
}
