//! A thread of the application ended the sleep: it passed work on, and what it did is work for the message.
//!
//! The sleeper waited for work when the message arrived, as a thread of a pool or an actor does. Always answers where there is such a thread.
//!
//! Example: `the_thread_that_hands_the_message_over_works_for_it` in `tests/all/waits.rs`.

use super::{Case, Verdict};

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let waker = case.sibling()?;
    Some(Verdict::Follow { tid: waker.tid, focus: case.followed(None), how: case.wait.how })
}
