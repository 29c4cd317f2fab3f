//! Redis requests: arrays of bulk strings, and inline commands. In: bytes. Out: requests with their class.

use super::resp::{LARGEST, LINE};
use super::{Asked, Data, Grammar, Line, Request, Skip, Step, Unseen, number};
use crate::class::{Class, Command, Hasher};
use crate::exchange::Op;
use crate::{Kind, ProtocolError, Value};

const KIND: Kind = Kind::Resp;
/// The most arguments (Redis: 1,048,576 by default, more when told).
const ARGUMENTS: u64 = 1 << 24;

/// Where a command's keys and values are.
struct Layout {
    /// Index of the first key; 0 when it has none.
    key: u64,
    /// Every how many arguments a key comes from there on; 0: only the first is one.
    every: u64,
    /// Which arguments are what it stores.
    values: Values,
}

enum Values {
    /// None.
    No,
    /// One.
    At(u64),
    /// All behind the key that are not keys.
    Rest,
}

fn layout(name: &[u8]) -> Layout {
    let (key, every, values) = match name {
        b"get" | b"strlen" | b"ttl" | b"pttl" | b"type" | b"incr" | b"decr" | b"getdel" | b"hgetall" | b"hkeys"
        | b"hvals" | b"hlen" | b"llen" | b"smembers" | b"scard" | b"zcard" | b"persist" => (1, 0, Values::No),
        b"set" | b"setnx" | b"getset" | b"append" => (1, 0, Values::At(2)),
        b"setex" | b"psetex" => (1, 0, Values::At(3)),
        b"mget" | b"del" | b"unlink" | b"exists" | b"touch" | b"sunion" | b"sinter" | b"sdiff" | b"watch" => {
            (1, 1, Values::No)
        }
        b"mset" | b"msetnx" => (1, 2, Values::Rest),
        b"eval" | b"evalsha" | b"fcall" | b"eval_ro" | b"evalsha_ro" | b"fcall_ro" => (3, 0, Values::Rest),
        b"object" | b"xgroup" | b"xinfo" | b"memory" | b"bitop" => (2, 0, Values::Rest),
        b"ping" | b"echo" | b"auth" | b"hello" | b"client" | b"config" | b"info" | b"select" | b"multi" | b"exec"
        | b"discard" | b"unwatch" | b"command" | b"cluster" | b"acl" | b"script" | b"function" | b"scan"
        | b"dbsize" | b"flushall" | b"flushdb" | b"debug" | b"slowlog" | b"latency" | b"wait" | b"time" | b"save"
        | b"bgsave" | b"quit" | b"keys" | b"publish" | b"subscribe" | b"unsubscribe" | b"psubscribe"
        | b"punsubscribe" | b"monitor" | b"role" | b"reset" | b"swapdb" | b"sync" | b"psync" | b"replconf"
        | b"readonly" | b"readwrite" | b"asking" | b"randomkey" | b"lastsave" | b"shutdown" | b"module" | b"pubsub" => {
            (0, 0, Values::Rest)
        }
        _ => (1, 0, Values::Rest),
    };
    Layout { key, every, values }
}

/// A request as its arguments pass.
#[derive(Debug)]
struct Open {
    /// Arguments in all, and the index of the present one.
    arguments: u64,
    at: u64,
    /// The name, lower case, as far as [`Command`] keeps it, and its whole length.
    name: [u8; Command::MAX + 1],
    name_len: usize,
    key_bytes: u64,
    key: Hasher,
    keys: u64,
    value_bytes: u64,
    /// The first argument is `REPLY` (of CLIENT): what is answered from here on is not told by the order.
    reply: bool,
}

impl Open {
    fn new(arguments: u64) -> Self {
        Self {
            arguments,
            at: 0,
            name: [0; Command::MAX + 1],
            name_len: 0,
            key_bytes: 0,
            key: Hasher::default(),
            keys: 0,
            value_bytes: 0,
            reply: false,
        }
    }

    fn name(&self) -> &[u8] {
        &self.name[..self.name_len]
    }

    /// An argument begins: its length counts for what it is.
    fn argument(&mut self, len: u64) {
        if self.at == 0 {
            return;
        }
        let layout = layout(self.name());
        let is_key = layout.key > 0
            && self.at >= layout.key
            && (self.at == layout.key || (layout.every > 0 && (self.at - layout.key).is_multiple_of(layout.every)));
        if is_key {
            if self.keys == 0 {
                self.key_bytes = len;
            }
            self.keys += 1;
        } else if match layout.values {
            Values::No => false,
            Values::At(index) => self.at == index,
            Values::Rest => self.at > layout.key,
        } {
            self.value_bytes = self.value_bytes.saturating_add(len);
        }
    }

    /// Bytes of the present argument, from its first on.
    fn bytes(&mut self, bytes: &[u8]) {
        if self.at == 0 {
            for byte in bytes {
                if let Some(to) = self.name.get_mut(self.name_len) {
                    *to = byte.to_ascii_lowercase();
                    self.name_len += 1;
                }
            }
        } else if self.at == layout(self.name()).key {
            self.key.take(bytes);
        } else if self.at == 1 {
            self.reply |= bytes.eq_ignore_ascii_case(b"reply");
        }
    }

    fn request(&self) -> Request {
        let mut class = Class::bare(Command::lower(self.name()));
        class.keys = u32::try_from(self.keys).unwrap_or(u32::MAX);
        class.key_bytes = u32::try_from(self.key_bytes).unwrap_or(u32::MAX);
        class.value_bytes = self.value_bytes;
        class.key_hash = if self.keys > 0 { self.key.value() } else { 0 };
        let op = match self.name() {
            b"get" | b"mget" => Op::Get,
            b"del" | b"unlink" => Op::Delete,
            b"ping" => Op::Ping,
            _ => Op::Other,
        };
        let mut request = Request::new(class, op);
        request.switches = match self.name() {
            b"monitor" | b"subscribe" | b"psubscribe" | b"ssubscribe" | b"sync" | b"psync" => true,
            b"client" => self.reply,
            _ => false,
        };
        request
    }
}

/// Requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    line: Line,
    open: Option<Open>,
    data: Option<Data>,
    /// Empty lines before a message belong to it.
    begun: bool,
}

impl Requests {
    fn argument_ended(&mut self) -> Option<Request> {
        self.data = None;
        let open = self.open.as_mut()?;
        open.at += 1;
        let whole = open.at == open.arguments;
        if whole { self.open.take().map(|open| open.request()) } else { None }
    }
}

/// An inline command.
fn inline(line: &[u8]) -> Result<Option<Request>, ProtocolError> {
    let mut words = line.split(|b| b.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let count = words.clone().count() as u64;
    let Some(name) = words.next() else { return Ok(None) };
    if !name.iter().all(|b| b.is_ascii_graphic()) || !name[0].is_ascii_alphabetic() {
        return Err(ProtocolError::garbage(KIND, "a command", line));
    }
    let mut open = Open::new(count);
    open.bytes(name);
    for word in words {
        open.at += 1;
        open.argument(word.len() as u64);
        open.bytes(word);
    }
    Ok(Some(open.request()))
}

impl Grammar for Requests {
    type Out = Request;

    fn step(&mut self, bytes: &[u8], _asked: &impl Asked) -> Result<Step<Request>, ProtocolError> {
        let mut used = 0;
        while used < bytes.len() {
            if let Some(data) = &mut self.data {
                let before = data.body().passed();
                let taken = data.take(&bytes[used..], &Value::Any, KIND)?;
                let body = (data.body().passed() - before) as usize;
                let done = data.done();
                if let Some(open) = &mut self.open {
                    open.bytes(&bytes[used..used + body]);
                }
                used += taken;
                if done && let Some(request) = self.argument_ended() {
                    self.begun = false;
                    return Ok(Step { used, out: Some(request) });
                }
                continue;
            }
            self.begun = true;
            let (taken, line) = self.line.take(&bytes[used..], KIND, LINE)?;
            used += taken;
            let Some(line) = line else { break };
            let garbage = |expected| ProtocolError::garbage(KIND, expected, line);
            match (&mut self.open, line.split_first()) {
                (Some(open), Some((b'$', len))) => {
                    let len = number(len).filter(|len| *len <= LARGEST).ok_or_else(|| garbage("a length"))?;
                    open.argument(len);
                    self.data = Some(Data::new(len));
                }
                (Some(_), _) => return Err(garbage("`$` and a length")),
                // An empty array is ignored, as an empty line is.
                (None, Some((b'*', count))) => {
                    let count = number(count).or(if count == b"-1" { Some(0) } else { None });
                    match count.filter(|count| *count <= ARGUMENTS).ok_or_else(|| garbage("a count"))? {
                        0 => {}
                        count => self.open = Some(Open::new(count)),
                    }
                }
                (None, _) => {
                    if let Some(request) = inline(line)? {
                        self.begun = false;
                        return Ok(Step { used, out: Some(request) });
                    }
                }
            }
        }
        Ok(Step { used, out: None })
    }

    fn skip(&mut self, unseen: Unseen, _asked: &impl Asked) -> Option<Skip<Request>> {
        let open = self.open.as_mut()?;
        let data = self.data.as_mut()?;
        if open.at == 0 && !data.body().done() {
            // The name itself was not seen: the class would be a guess.
            return None;
        }
        let body_unseen = !data.body().done();
        if body_unseen && open.at == layout(open.name()).key {
            open.key.lost();
        }
        let used = data.skip(unseen.bytes);
        let out = if data.done() { self.argument_ended() } else { None };
        self.begun &= out.is_none();
        Some(Skip { used, out, inferred: false })
    }

    fn close(&mut self, _asked: &impl Asked) -> Result<Option<Request>, ()> {
        if self.begun { Err(()) } else { Ok(None) }
    }

    fn reset(&mut self) {
        self.line.reset();
        (self.open, self.data, self.begun) = (None, None, false);
    }

    fn begins(bytes: &[u8]) -> bool {
        let Some((b'*', rest)) = bytes.split_first() else {
            // Inline commands only where they are whole and simple: `PING\r\n`.
            let line = bytes.strip_suffix(b"\r\n").unwrap_or_default();
            let words = line.split(|b| *b == b' ').next().unwrap_or_default();
            let printable = line.iter().all(|b| b.is_ascii_graphic() || *b == b' ');
            return words.len() >= 3 && words.iter().all(u8::is_ascii_alphabetic) && printable;
        };
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        digits > 0 && (rest[digits..].starts_with(b"\r\n$") || b"\r\n$".starts_with(&rest[digits..]))
    }

    /// An array: a line of words begins an inline command, and as well one of memcached, SMTP, NATS.
    fn is_distinct(bytes: &[u8]) -> bool {
        bytes.first() == Some(&b'*') && bytes.contains(&b'\n') && Self::begins(bytes)
    }
}
