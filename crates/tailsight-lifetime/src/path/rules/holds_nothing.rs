//! The thread for which the message waits in a lock polls for whatever comes, and is not in the middle of other messages.
//!
//! A thread that polls holds no lock, unless it keeps a transaction open for its client between two statements. One that waits for the answer
//! of a server that it asked does not poll, unless the message's thread woke it for that: it may have a lock, or a job of somebody's. And if a
//! thread that serves other messages waited for this one, that one has what the message needs (a connection of a pool), and the answer that this
//! one passes on is for that.
//!
//! A message that its thread has not turned to waits behind the others that it serves, and not for the server that is waited for: that is in
//! Tomcat, whose two threads ask a server through a client with threads of its own, the example of
//! `who_waits_behind_another_whose_thread_waits_for_a_client_s_does_not_wait_for_the_server` in `tests/all/waits.rs`.
//!
//! Example: `a_thread_that_polls_for_whatever_comes_holds_no_lock` in `tests/all/rules.rs`.

use super::case::{holds_for_its_client, was_at_something_else};
use super::file_lock_line::at_first_place;
use super::{Case, Verdict};
use crate::model::Frame;

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let (focus, how) = (&case.focus, case.wait.how);
    let in_a_lock = matches!(focus.followed.because?, Frame::SleepIn { .. });
    let polls = how.polls() && !holds_for_its_client(case.activity, focus, focus.tid, how, focus.until);
    let idle = in_a_lock && polls && !case.sleeper_serves();
    let by = if idle { case.ended_by() } else { None };
    let of_message = (focus.of_message.mine[0].0, focus.of_message.mine[0].1);
    let asked = how.is_for_data()
        && matches!(by, Some(Frame::Peer { .. }))
        && was_at_something_else(case.activity, focus.tid, case.wait.from, of_message);
    let for_others = focus.followed.for_others && by.is_some();
    (idle && !asked && !case.passes_on_to_a_holder(by)).then(|| {
        let how = at_first_place(case);
        if for_others { Verdict::Ahead { how, by } } else { Verdict::Blocked { how, by } }
    })
}
