//! memcached's binary protocol. In: bytes. Out: replies as answers, requests with their class. A message is a head of
//! 24 bytes {magic, opcode, key bytes u16, extras bytes u8, data type u8, status or vbucket u16, body bytes u32, opaque
//! u32, cas u64} and a body of extras, key, value.

use super::{Answer, Asked, Body, Fixed, Grammar, Request, Skip, Step, Unseen, be16, be32};
use crate::class::{Class, Command, Hasher};
use crate::exchange::{ErrorKind, Op, Status};
use crate::{Kind, ProtocolError, Value};

const KIND: Kind = Kind::MemcachedBinary;
/// Magic of requests and replies.
pub(crate) const REQUEST: u8 = 0x80;
pub(crate) const REPLY: u8 = 0x81;
/// Bytes of a head.
pub(crate) const HEAD: usize = 24;
/// Keys are at most this long.
const KEY: usize = 250;
/// The largest body taken for one.
const LARGEST: u32 = 1 << 30;

/// Names of the opcodes; quiet ones end with `q`.
const NAMES: [&str; 0x1f] = [
    "get",
    "set",
    "add",
    "replace",
    "delete",
    "incr",
    "decr",
    "quit",
    "flush",
    "getq",
    "noop",
    "version",
    "getk",
    "getkq",
    "append",
    "prepend",
    "stat",
    "setq",
    "addq",
    "replaceq",
    "deleteq",
    "incrq",
    "decrq",
    "quitq",
    "flushq",
    "appendq",
    "prependq",
    "verbosity",
    "touch",
    "gat",
    "gatq",
];
/// SASL and the GATK pair.
const MORE: [(u8, &str); 5] =
    [(0x20, "sasl_list"), (0x21, "sasl_auth"), (0x22, "sasl_step"), (0x23, "gatk"), (0x24, "gatkq")];
/// STAT is the one with several replies; an empty key ends them.
const STAT: u8 = 0x10;
const QUIT: [u8; 2] = [0x07, 0x17];

fn name(opcode: u8) -> Option<&'static str> {
    let common_name = NAMES.get(usize::from(opcode)).copied();
    common_name.or_else(|| MORE.iter().find(|(code, _)| *code == opcode).map(|(_, name)| *name))
}

/// What an opcode does.
fn op(opcode: u8) -> Op {
    match opcode {
        0x00 | 0x09 | 0x0c | 0x0d | 0x1d | 0x1e | 0x23 | 0x24 => Op::Get,
        0x01..=0x03 | 0x0e | 0x0f | 0x11..=0x13 | 0x19 | 0x1a => Op::Set,
        0x04 | 0x14 => Op::Delete,
        0x0a | 0x0b => Op::Ping,
        _ => Op::Other,
    }
}

/// Whether the opcode is quiet.
fn quiet(opcode: u8) -> bool {
    matches!(opcode, 0x09 | 0x0d | 0x11..=0x1a | 0x1e | 0x24)
}

/// A head that has come, and its body as it passes: first extras and key, then the value.
#[derive(Debug)]
struct Open {
    opcode: u8,
    status: u16,
    opaque: u32,
    /// Extras of the body.
    extras: Body,
    key: Body,
    value: Body,
    key_bytes: u16,
    value_bytes: u32,
    hash: Hasher,
}

impl Open {
    fn new(head: &[u8; HEAD], magic: u8) -> Result<Self, ProtocolError> {
        let garbage = |expected| ProtocolError::garbage(KIND, expected, head);
        if head[0] != magic {
            return Err(garbage(if magic == REPLY { "magic 0x81 of a reply" } else { "magic 0x80 of a request" }));
        }
        let (key, extras, body) = (be16(head, 2), head[4], be32(head, 8));
        let value =
            body.checked_sub(u32::from(key) + u32::from(extras)).ok_or_else(|| garbage("a body that holds its key"))?;
        if body > LARGEST {
            return Err(ProtocolError::TooLarge { kind: KIND, what: "a body", limit: u64::from(LARGEST) });
        }
        if usize::from(key) > KEY || name(head[1]).is_none() || head[5] != 0 {
            return Err(garbage("a known opcode and a key of at most 250 bytes"));
        }
        Ok(Self {
            opcode: head[1],
            status: be16(head, 6),
            opaque: be32(head, 12),
            extras: Body::new(u64::from(extras)),
            key: Body::new(u64::from(key)),
            value: Body::new(u64::from(value)),
            key_bytes: key,
            value_bytes: value,
            hash: Hasher::default(),
        })
    }

    fn take(&mut self, bytes: &[u8], value: &Value) -> usize {
        let mut used = self.extras.take(bytes, &Value::Any);
        let key = self.key.take(&bytes[used..], &Value::Any);
        self.hash.take(&bytes[used..used + key]);
        used += key;
        used + self.value.take(&bytes[used..], value)
    }

    fn skip(&mut self, bytes: u64) -> u64 {
        let mut used = self.extras.skip(bytes);
        let key = self.key.skip(bytes - used);
        if key > 0 {
            self.hash.lost();
        }
        used += key;
        used + self.value.skip(bytes - used)
    }

    fn key_hash(&self) -> u64 {
        if self.key_bytes > 0 { self.hash.value() } else { 0 }
    }

    fn done(&self) -> bool {
        self.extras.done() && self.key.done() && self.value.done()
    }

    fn answer(&self, asked: &impl Asked) -> Option<Answer> {
        if self.opcode == STAT && self.key_bytes > 0 && self.status == 0 {
            // Another line of statistics; the reply goes on.
            return None;
        }
        let status = match self.status {
            0 => Status::Ok,
            // Key not found, key exists, not stored.
            1 | 2 | 5 => Status::Miss,
            // Busy, temporary failure.
            0x85 | 0x86 => Status::Error(ErrorKind::Busy),
            // Out of memory, not supported, internal error.
            0x82..=0x84 => Status::Error(ErrorKind::Server),
            _ => Status::Error(ErrorKind::Client),
        };
        let id = Some(u64::from(self.opaque));
        let get = op(self.opcode) == Op::Get && status == Status::Ok;
        let mut answer = Answer::new(status, op(self.opcode).bit() | Op::Other.bit());
        (answer.id, answer.code, answer.key_hash) = (id, self.status, self.key_hash());
        if get {
            (answer.values, answer.value_bytes) = (1, u64::from(self.value_bytes));
            answer.fits = self.value.fit(&asked.ask(id).value);
        }
        Some(answer)
    }

    fn request(&self) -> Request {
        let mut class = Class::bare(Command::lower(name(self.opcode).unwrap_or("?").as_bytes()));
        class.keys = u32::from(self.key_bytes > 0);
        class.key_bytes = u32::from(self.key_bytes);
        class.value_bytes = u64::from(self.value_bytes);
        class.key_hash = self.key_hash();
        let mut request = Request::new(class, op(self.opcode));
        request.id = Some(u64::from(self.opaque));
        request.answered = match self.opcode {
            opcode if QUIT.contains(&opcode) => Some(opcode == QUIT[0]),
            opcode if quiet(opcode) => None,
            _ => Some(true),
        };
        request
    }
}

/// Messages of one direction.
#[derive(Debug)]
struct Messages {
    magic: u8,
    head: Fixed<HEAD>,
    open: Option<Open>,
    /// A reply of several messages has begun.
    begun: bool,
}

impl Messages {
    fn new(magic: u8) -> Self {
        Self { magic, head: Fixed::default(), open: None, begun: false }
    }

    /// Takes bytes up to the end of the next message.
    fn take(&mut self, bytes: &[u8], asked: &impl Asked) -> Result<(usize, Option<Open>), ProtocolError> {
        let mut used = 0;
        if self.open.is_none() {
            // The magic is looked at at once: garbage must not wait for 24 bytes of it.
            if self.head.is_empty() && bytes.first().is_some_and(|first| *first != self.magic) {
                return Err(ProtocolError::garbage(KIND, "the magic byte of a message", bytes));
            }
            let (taken, head) = self.head.take(bytes);
            used = taken;
            if let Some(head) = head {
                self.open = Some(Open::new(&head, self.magic)?);
            }
        }
        let Some(open) = &mut self.open else { return Ok((used, None)) };
        let value = if op(open.opcode) == Op::Get && open.status == 0 {
            asked.ask(Some(u64::from(open.opaque))).value
        } else {
            Value::Any
        };
        used += open.take(&bytes[used..], &value);
        if open.done() { Ok((used, self.open.take())) } else { Ok((used, None)) }
    }

    fn skip(&mut self, bytes: u64) -> Option<(u64, Option<Open>)> {
        let open = self.open.as_mut()?;
        let used = open.skip(bytes);
        if open.done() { Some((used, self.open.take())) } else { Some((used, None)) }
    }

    fn close<T>(&self) -> Result<Option<T>, ()> {
        if self.head.is_empty() && self.open.is_none() && !self.begun { Ok(None) } else { Err(()) }
    }

    fn reset(&mut self) {
        self.head.reset();
        self.open = None;
        self.begun = false;
    }

    fn begins(bytes: &[u8], magic: u8) -> bool {
        let Some(head) = bytes.first_chunk::<HEAD>() else { return false };
        Open::new(head, magic).is_ok()
    }
}

/// Replies.
#[derive(Debug)]
pub(crate) struct Replies(Messages);

impl Default for Replies {
    fn default() -> Self {
        Self(Messages::new(REPLY))
    }
}

impl Grammar for Replies {
    type Out = Answer;

    fn step(&mut self, bytes: &[u8], asked: &impl Asked) -> Result<Step<Answer>, ProtocolError> {
        let mut used = 0;
        while used < bytes.len() {
            let (taken, message) = self.0.take(&bytes[used..], asked)?;
            used += taken;
            let Some(message) = message else { break };
            let out = message.answer(asked);
            self.0.begun = out.is_none();
            if out.is_some() {
                return Ok(Step { used, out });
            }
        }
        Ok(Step { used, out: None })
    }

    fn skip(&mut self, unseen: Unseen, asked: &impl Asked) -> Option<Skip<Answer>> {
        let (used, message) = self.0.skip(unseen.bytes)?;
        let out = message.as_ref().and_then(|message| message.answer(asked));
        if message.is_some() {
            self.0.begun = out.is_none();
        }
        Some(Skip { used, out, inferred: false })
    }

    fn close(&mut self, _asked: &impl Asked) -> Result<Option<Answer>, ()> {
        self.0.close()
    }

    fn reset(&mut self) {
        self.0.reset();
    }

    fn begins(bytes: &[u8]) -> bool {
        Messages::begins(bytes, REPLY)
    }
}

/// Requests.
#[derive(Debug)]
pub(crate) struct Requests(Messages);

impl Default for Requests {
    fn default() -> Self {
        Self(Messages::new(REQUEST))
    }
}

impl Grammar for Requests {
    type Out = Request;

    fn step(&mut self, bytes: &[u8], asked: &impl Asked) -> Result<Step<Request>, ProtocolError> {
        let (used, message) = self.0.take(bytes, asked)?;
        Ok(Step { used, out: message.map(|message| message.request()) })
    }

    fn skip(&mut self, unseen: Unseen, _asked: &impl Asked) -> Option<Skip<Request>> {
        let (used, message) = self.0.skip(unseen.bytes)?;
        Some(Skip { used, out: message.map(|message| message.request()), inferred: false })
    }

    fn close(&mut self, _asked: &impl Asked) -> Result<Option<Request>, ()> {
        self.0.close()
    }

    fn reset(&mut self) {
        self.0.reset();
    }

    fn begins(bytes: &[u8]) -> bool {
        Messages::begins(bytes, REQUEST)
    }
}
