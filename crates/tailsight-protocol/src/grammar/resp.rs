//! Redis' RESP2 and RESP3. In: bytes. Out: replies as answers, requests with their class. A tree of values is walked with
//! a stack of counts, so that a reply of any size takes the same memory.

use super::{Answer, Asked, Data, Fit, Grammar, Line, Skip, Step, Unseen, number};
use crate::exchange::{ErrorKind, Op, Status};
use crate::{Kind, ProtocolError, Value};

const KIND: Kind = Kind::Resp;
/// The longest line (Redis: 64 KiB inline).
pub(super) const LINE: usize = 64 << 10;
/// The largest bulk string taken for one.
pub(super) const LARGEST: u64 = 4 << 30;
/// Aggregates within each other.
const DEPTH: usize = 32;
/// The most elements taken for a count.
const ELEMENTS: u64 = 1 << 32;
/// An aggregate whose end is a line `.`.
const STREAMED: u64 = u64::MAX;

const GET: u8 = Op::Get.bit() | Op::Other.bit();

/// An aggregate whose elements are being read.
#[derive(Debug, Clone, Copy)]
struct Level {
    left: u64,
    /// Attributes come before the value that they belong to.
    attribute: bool,
}

/// Replies.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    line: Line,
    data: Option<Data>,
    /// The bulk on its way is one of `;` chunks.
    chunk: bool,
    /// Attributes are not part of the answer.
    levels: Vec<Level>,
    open: Option<Answer>,
    nulls: u32,
}

/// The kind of error by its first word.
fn error(text: &[u8]) -> Status {
    let word = text.split(|b| *b == b' ').next().unwrap_or_default();
    Status::Error(match word {
        b"MOVED" | b"ASK" => ErrorKind::Elsewhere,
        b"LOADING" | b"BUSY" | b"TRYAGAIN" | b"CLUSTERDOWN" | b"MASTERDOWN" => ErrorKind::Busy,
        b"OOM" | b"MISCONF" | b"NOREPLICAS" | b"READONLY" => ErrorKind::Server,
        _ => ErrorKind::Client,
    })
}

/// What follows a line.
enum Next {
    /// The value ended with its line.
    Ended,
    /// A string of this many bytes and CRLF.
    Bulk(u64),
    /// Elements.
    Elements(Level),
    /// Strings in `;` chunks.
    Chunks,
    /// The last chunk, or the end of a streamed aggregate.
    Last,
}

impl Replies {
    /// Takes a line in: what it says of the answer, and what follows.
    fn read(
        open: &mut Option<Answer>,
        nulls: &mut u32,
        line: &[u8],
        depth: usize,
        attribute: bool,
    ) -> Result<Next, ProtocolError> {
        let garbage = || ProtocolError::garbage(KIND, "a RESP value", line);
        let (first, rest) = line.split_first().ok_or_else(garbage)?;
        let count = |times: u64| {
            if rest == b"?" {
                return Ok(STREAMED);
            }
            let n = number(rest).filter(|n| *n <= ELEMENTS).ok_or_else(garbage)?;
            Ok(n * times)
        };
        let length = || number(rest).filter(|n| *n <= LARGEST).ok_or_else(garbage);
        let signed = rest.strip_prefix(b"-").or_else(|| rest.strip_prefix(b"+")).unwrap_or(rest);
        let mut fresh = Answer::new(Status::Ok, Op::Other.bit());
        let next = match first {
            b'+' => {
                fresh.answers |= match rest {
                    b"OK" => Op::Set.bit() | Op::Delete.bit(),
                    b"PONG" => Op::Ping.bit(),
                    _ => Op::ANY,
                };
                Next::Ended
            }
            b'-' => {
                fresh = Answer::new(error(rest), Op::ANY);
                Next::Ended
            }
            b':' => {
                number(signed).ok_or_else(garbage)?;
                fresh.answers |= Op::Set.bit() | Op::Delete.bit();
                Next::Ended
            }
            b'(' if !signed.is_empty() && signed.iter().all(u8::is_ascii_digit) => Next::Ended,
            b',' if !rest.is_empty() && rest.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b)) => {
                Next::Ended
            }
            b'#' if rest == b"t" || rest == b"f" => Next::Ended,
            b'_' if rest.is_empty() => {
                fresh = Answer::new(Status::Miss, Op::ANY);
                Next::Ended
            }
            b'$' | b'*' if rest == b"-1" => {
                fresh = Answer::new(Status::Miss, Op::ANY);
                Next::Ended
            }
            b'$' if rest == b"?" => {
                fresh.answers |= GET;
                Next::Chunks
            }
            b'$' | b'=' => {
                fresh.answers |= GET | Op::Ping.bit();
                Next::Bulk(length()?)
            }
            b'!' => {
                fresh = Answer::new(Status::Error(ErrorKind::Client), Op::ANY);
                Next::Bulk(length()?)
            }
            b';' => match length()? {
                0 => Next::Last,
                n => Next::Bulk(n),
            },
            b'.' if rest.is_empty() => Next::Last,
            b'*' | b'~' | b'%' | b'>' | b'|' => {
                let left = count(if matches!(first, b'%' | b'|') { 2 } else { 1 })?;
                fresh.answers |= GET | Op::Ping.bit();
                fresh.unsolicited = *first == b'>';
                if fresh.unsolicited && depth > 0 {
                    return Err(garbage());
                }
                Next::Elements(Level { left, attribute: *first == b'|' })
            }
            _ => return Err(garbage()),
        };
        if matches!(first, b';' | b'.' | b'|') || attribute {
            return Ok(next);
        }
        match open {
            None => *open = Some(fresh),
            // An error within (of EXEC) is an error of the whole; a hole is counted.
            Some(open) => match fresh.status {
                Status::Error(_) if !matches!(open.status, Status::Error(_)) => open.status = fresh.status,
                Status::Miss => *nulls = nulls.saturating_add(1),
                _ => {}
            },
        }
        Ok(next)
    }

    /// Whether what is being read belongs to an attribute.
    fn in_attribute(&self) -> bool {
        self.levels.iter().any(|level| level.attribute)
    }

    /// A value ended: whether the whole reply did.
    fn ended(&mut self) -> bool {
        while let Some(level) = self.levels.last_mut() {
            if level.left != STREAMED {
                level.left -= 1;
            }
            if level.left > 0 {
                return false;
            }
            if self.pop() {
                return false;
            }
        }
        true
    }

    /// Leaves an aggregate: whether it was an attribute, whose value is still to come.
    fn pop(&mut self) -> bool {
        self.levels.pop().is_some_and(|level| level.attribute)
    }

    fn finish(&mut self) -> Option<Answer> {
        let mut answer = self.open.take()?;
        if answer.status == Status::Ok && answer.values == 0 && self.nulls > 0 {
            answer.status = Status::Miss;
        }
        self.nulls = 0;
        Some(answer)
    }

    /// A line: `Some` when it ended the reply.
    fn line_ended(&mut self, next: Next) -> Result<Option<Answer>, ProtocolError> {
        let whole = match next {
            Next::Ended => self.ended(),
            Next::Bulk(len) => {
                self.data = Some(Data::new(len));
                false
            }
            Next::Chunks => {
                self.chunk = true;
                false
            }
            Next::Last if self.chunk => {
                self.chunk = false;
                self.ended()
            }
            Next::Last => match self.levels.last() {
                Some(level) if level.left == STREAMED => !self.pop() && self.ended(),
                _ => return Err(ProtocolError::garbage(KIND, "a RESP value, not an end", b".")),
            },
            Next::Elements(level) if level.left == 0 => !level.attribute && self.ended(),
            Next::Elements(level) => {
                if self.levels.len() >= DEPTH {
                    return Err(ProtocolError::TooLarge { kind: KIND, what: "the nesting", limit: DEPTH as u64 });
                }
                self.levels.push(level);
                false
            }
        };
        Ok(if whole { self.finish() } else { None })
    }

    /// A string has passed: the reply, when that was its end.
    fn bulk_ended(&mut self, asked: &impl Asked) -> Option<Answer> {
        let data = self.data.take()?;
        if !self.in_attribute()
            && let Some(answer) = &mut self.open
        {
            let len = data.body().passed();
            answer.value_bytes = answer.value_bytes.saturating_add(len);
            if !matches!(answer.status, Status::Error(_)) {
                answer.values = answer.values.saturating_add(u32::from(!self.chunk));
                let ask = asked.ask(None);
                if answer.fits == Fit::Yes && ask.op == Op::Get && !answer.unsolicited && !self.chunk {
                    answer.fits = data.fit(&ask.value);
                }
            }
        }
        if !self.chunk && self.ended() { self.finish() } else { None }
    }
}

impl Grammar for Replies {
    type Out = Answer;

    fn step(&mut self, bytes: &[u8], asked: &impl Asked) -> Result<Step<Answer>, ProtocolError> {
        let mut used = 0;
        while used < bytes.len() {
            if let Some(data) = &mut self.data {
                let ask = asked.ask(None);
                let value = if ask.op == Op::Get { ask.value } else { Value::Any };
                used += data.take(&bytes[used..], &value, KIND)?;
                if data.done()
                    && let Some(answer) = self.bulk_ended(asked)
                {
                    return Ok(Step { used, out: Some(answer) });
                }
                continue;
            }
            // The first byte is looked at at once: garbage may have no line end for long.
            if self.line.is_empty() && !b"+-:$*_#,(!=%~>|;.".contains(&bytes[used]) {
                return Err(ProtocolError::garbage(KIND, "a RESP value", &bytes[used..]));
            }
            let (depth, attribute) = (self.levels.len(), self.in_attribute());
            let (taken, line) = self.line.take(&bytes[used..], KIND, LINE)?;
            used += taken;
            let Some(line) = line else { break };
            let is_chunk = matches!(line.first(), Some(b';'));
            if is_chunk != self.chunk {
                return Err(ProtocolError::garbage(KIND, "chunks of a streamed string where they belong", line));
            }
            let next = Self::read(&mut self.open, &mut self.nulls, line, depth, attribute)?;
            // DEL of nothing.
            if line == b":0"
                && depth == 0
                && asked.ask(None).op == Op::Delete
                && let Some(open) = &mut self.open
            {
                open.status = Status::Miss;
            }
            if let Some(answer) = self.line_ended(next)? {
                return Ok(Step { used, out: Some(answer) });
            }
        }
        Ok(Step { used, out: None })
    }

    fn skip(&mut self, unseen: Unseen, asked: &impl Asked) -> Option<Skip<Answer>> {
        let data = self.data.as_mut()?;
        let used = data.skip(unseen.bytes);
        let out = if data.done() { self.bulk_ended(asked) } else { None };
        Some(Skip { used, out, inferred: false })
    }

    fn close(&mut self, _asked: &impl Asked) -> Result<Option<Answer>, ()> {
        let idle = self.line.is_empty() && self.open.is_none() && self.levels.is_empty() && self.data.is_none();
        if idle { Ok(None) } else { Err(()) }
    }

    fn reset(&mut self) {
        self.line.reset();
        self.levels.clear();
        (self.data, self.open, self.chunk, self.nulls) = (None, None, false, 0);
    }

    fn begins(bytes: &[u8]) -> bool {
        let Some((first, rest)) = bytes.split_first() else { return false };
        // A line that ends as far as it is seen, of a form that a body rarely has by accident.
        let line = rest.split(|b| *b == b'\r').next().unwrap_or_default();
        let ended = line.len() < rest.len() && rest[line.len()..].starts_with(b"\r\n");
        let digits = |text: &[u8]| number(text.strip_prefix(b"-").unwrap_or(text)).is_some();
        match first {
            b'+' => line.first().is_some_and(u8::is_ascii_uppercase) && ended,
            b'-' => line.first().is_some_and(u8::is_ascii_uppercase),
            b':' | b'$' | b'*' | b'=' | b'%' | b'~' | b'>' | b'|' | b'(' | b'!' => ended && digits(line),
            b'#' => ended && (line == b"t" || line == b"f"),
            b'_' => ended && line.is_empty(),
            b',' => ended && line.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b)) && !line.is_empty(),
            _ => false,
        }
    }
}
