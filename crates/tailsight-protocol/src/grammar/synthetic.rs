//! Replies of a synthetic server; the format is described at [`crate::wire::synthetic`].

use super::{Answer, Asked, Body, Fixed, Grammar, Skip, Step, Unseen};
use crate::exchange::{ErrorKind, Op, ServerTimes, Status};
use crate::wire::synthetic::{REPLY_HEAD, ReplyHead};
use crate::{Kind, ProtocolError};

const KIND: Kind = Kind::Synthetic;

/// Replies.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    head: Fixed<REPLY_HEAD>,
    open: Option<(ReplyHead, Body)>,
}

impl Grammar for Replies {
    type Out = Answer;

    fn step(&mut self, bytes: &[u8], asked: &impl Asked) -> Result<Step<Answer>, ProtocolError> {
        let mut used = 0;
        if self.open.is_none() {
            if self.head.is_empty() && bytes.first().is_some_and(|first| *first != b'T') {
                return Err(ProtocolError::garbage(KIND, "the magic of a reply", bytes));
            }
            let (taken, head) = self.head.take(bytes);
            used = taken;
            if let Some(head) = head {
                let head = ReplyHead::parse(&head)?;
                self.open = Some((head, Body::new(u64::from(head.len) - REPLY_HEAD as u64)));
            }
        }
        let Some((head, body)) = &mut self.open else { return Ok(Step { used, out: None }) };
        let id = Some(u64::from(head.id));
        let value = asked.ask(id).value;
        used += body.take(&bytes[used..], &value);
        if !body.done() {
            return Ok(Step { used, out: None });
        }
        let status = if head.failed { Status::Error(ErrorKind::Server) } else { Status::Ok };
        let mut answer = Answer::new(status, Op::ANY);
        answer.id = id;
        (answer.values, answer.value_bytes, answer.fits) = (1, body.passed(), body.fit(&value));
        answer.server = Some(ServerTimes { service_ns: head.service_ns, queue_ns: head.queue_ns });
        self.open = None;
        Ok(Step { used, out: Some(answer) })
    }

    fn skip(&mut self, _unseen: Unseen, _asked: &impl Asked) -> Option<Skip<Answer>> {
        None
    }

    fn close(&mut self, _asked: &impl Asked) -> Result<Option<Answer>, ()> {
        if self.head.is_empty() && self.open.is_none() { Ok(None) } else { Err(()) }
    }

    fn reset(&mut self) {
        self.head.reset();
        self.open = None;
    }

    fn begins(bytes: &[u8]) -> bool {
        bytes.first_chunk::<REPLY_HEAD>().is_some_and(|head| ReplyHead::parse(head).is_ok())
    }
}
