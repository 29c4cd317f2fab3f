//! The message's thread waited for another server's answer, or for a time, before it turned to this message.
//!
//! It did so for an earlier message: this one waits behind that. So does one that an event loop has received already, while the loop stands
//! still in a read for the answer to another message's call: a blocking call in a handler, as in the example of
//! `a_blocking_call_of_an_event_loop_holds_up_those_that_it_has_received`.
//!
//! Example: `a_message_behind_one_that_sleeps_for_a_time_waits_for_that_one` in `tests/all/waits.rs`.

use super::case::serves;
use super::{Case, Verdict};

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let (wait, from, focus) = (case.wait, case.from, case.focus);
    let how = wait.how;
    // Java sleeps in a futex until a time.
    let for_a_time = how.is_for_a_time() || how.is_for_a_lock() && wait.waker.is_some_and(|waker| waker.timer);
    let holds_up = how.is_for_data() || from < focus.own_from && for_a_time;
    let is_before = from < focus.own_from
        || from < focus.of_message.answered && serves(case.activity, &focus, focus.tid, wait.from);
    let is_ahead = case.depth == 0
        && focus.followed.because.is_none()
        && how.is_interruptible()
        && case.activity.service.is_serving(focus.tid, wait.from);
    if !is_ahead {
        return None;
    }
    let for_another = case.answer_to_another().filter(|_| how.is_for_data());
    let by = if is_before && holds_up { Some(case.ended_by()) } else { for_another.map(Some) };
    by.map(|by| Verdict::Ahead { how, by })
}
