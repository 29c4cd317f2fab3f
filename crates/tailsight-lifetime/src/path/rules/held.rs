//! A thread of the application ended a sleep that was no wait for work.
//!
//! The sleeper was in the middle of this message, or of others, when it fell asleep, or it wrote to a full buffer: the other thread had what
//! it needed, a lock above all, or the answer that it read from a pipe. What that one did meanwhile is what the message waited for, and the
//! sleep says why. Nothing tells that a futex is a lock and no queue or condition: who held it is an inference.
//!
//! Example: `a_message_behind_the_one_that_waits_for_a_lock_waits_for_it_too` in `tests/all/locks.rs`.

use super::{Case, Verdict};
use crate::path::owners::sleep_frame;

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let waker = case.sibling().filter(|_| case.needs_what_another_has())?;
    let focus = case.followed(Some(sleep_frame(case.wait.how)));
    Some(Verdict::Follow { tid: waker.tid, focus, how: case.wait.how })
}
