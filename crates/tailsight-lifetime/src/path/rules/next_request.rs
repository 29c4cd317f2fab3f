//! The thread that received the message, or the one that answers it, waited for data until the next request of another client came, and
//! received that.
//!
//! So it did not wait for this message, which was put aside: in a queue, in a waiting list, for another thread. What the message waited for
//! then the kernel does not show. In a call in which only event loops wait (epoll_wait), its name says the same.
//!
//! Puma's requests, which waited for a free thread while the one that had read them waited for the next request of a client in ppoll, were
//! "waits in ppoll", the server itself.
//!
//! Example: `a_thread_that_waits_for_its_next_client_has_put_the_message_aside` in `tests/all/rules.rs`.

use super::{Case, Verdict};
use crate::model::Frame;

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let (wait, focus) = (case.wait, &case.focus);
    let is_own = case.depth == 0 && focus.followed.because.is_none() && !focus.of_message.unread;
    let may_be = wait.how.is_for_data() && !wait.how.is_for_work() && wait.how.is_interruptible();
    let next_came = || is_own && case.was_woken_for_a_request();
    (may_be && next_came()).then_some(Verdict::Blocked { how: wait.how, by: Some(Frame::PutAside) })
}
