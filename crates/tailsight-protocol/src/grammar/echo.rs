//! Echo: the reply is the request's bytes, so that what was asked says where it ends.

use super::{Answer, Asked, Body, Grammar, Skip, Step, Unseen};
use crate::exchange::{Op, Status};
use crate::{Kind, ProtocolError, Value};

/// Replies.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    open: Option<Body>,
}

impl Grammar for Replies {
    type Out = Answer;

    fn step(&mut self, bytes: &[u8], asked: &impl Asked) -> Result<Step<Answer>, ProtocolError> {
        let value = asked.ask(None).value;
        let (Value::Pattern { len, .. } | Value::Len(len)) = value else {
            return Err(ProtocolError::garbage(Kind::Echo, "nothing (no request with a length is outstanding)", bytes));
        };
        let body = self.open.get_or_insert(Body::new(len));
        let used = body.take(bytes, &value);
        if !body.done() {
            return Ok(Step { used, out: None });
        }
        let mut answer = Answer::new(Status::Ok, Op::ANY);
        (answer.values, answer.value_bytes, answer.fits) = (1, body.passed(), body.fit(&value));
        self.open = None;
        Ok(Step { used, out: Some(answer) })
    }

    fn skip(&mut self, _unseen: Unseen, _asked: &impl Asked) -> Option<Skip<Answer>> {
        None
    }

    fn close(&mut self, _asked: &impl Asked) -> Result<Option<Answer>, ()> {
        if self.open.is_none() { Ok(None) } else { Err(()) }
    }

    fn reset(&mut self) {
        self.open = None;
    }

    fn begins(_bytes: &[u8]) -> bool {
        true
    }
}
