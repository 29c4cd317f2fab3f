//! memcached as recorded: text, meta and binary, told apart by the first byte of each message.

use super::{Asked, Grammar, Skip, Step, Unseen, memcached_binary as binary, memcached_text as text};
use crate::ProtocolError;

/// Either form of one direction.
#[derive(Debug, Default)]
pub(crate) struct Either<T, B> {
    text: T,
    binary: B,
    /// The form of the message on its way; `None` between messages.
    is_binary: Option<bool>,
}

/// Replies and requests.
pub(crate) type Replies = Either<text::Replies, binary::Replies>;
pub(crate) type Requests = Either<text::Requests, binary::Requests>;

/// Both magics are beyond ASCII, so one test serves both directions.
fn is_magic(first: u8) -> bool {
    first == binary::REQUEST || first == binary::REPLY
}

impl<O, T: Grammar<Out = O>, B: Grammar<Out = O>> Grammar for Either<T, B> {
    type Out = O;

    fn step(&mut self, bytes: &[u8], asked: &impl Asked) -> Result<Step<O>, ProtocolError> {
        let Some(first) = bytes.first() else { return Ok(Step { used: 0, out: None }) };
        let step = if *self.is_binary.get_or_insert(is_magic(*first)) {
            self.binary.step(bytes, asked)
        } else {
            self.text.step(bytes, asked)
        }?;
        if step.out.is_some() {
            self.is_binary = None;
        }
        Ok(step)
    }

    fn skip(&mut self, unseen: Unseen, asked: &impl Asked) -> Option<Skip<O>> {
        let skip = if self.is_binary? { self.binary.skip(unseen, asked) } else { self.text.skip(unseen, asked) }?;
        if skip.out.is_some() {
            self.is_binary = None;
        }
        Some(skip)
    }

    fn close(&mut self, asked: &impl Asked) -> Result<Option<O>, ()> {
        match self.is_binary {
            None => Ok(None),
            Some(true) => self.binary.close(asked),
            Some(false) => self.text.close(asked),
        }
    }

    fn reset(&mut self) {
        self.is_binary = None;
        self.text.reset();
        self.binary.reset();
    }

    fn begins(bytes: &[u8]) -> bool {
        match bytes.first() {
            Some(first) if is_magic(*first) => B::begins(bytes),
            _ => T::begins(bytes),
        }
    }

    fn is_distinct(bytes: &[u8]) -> bool {
        match bytes.first() {
            Some(first) if is_magic(*first) => B::is_distinct(bytes),
            _ => T::is_distinct(bytes),
        }
    }
}
