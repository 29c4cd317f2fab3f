//! The message's thread waited for another server's answer, or for a time, before it turned to this message.
//!
//! It did so for an earlier message: this one waits behind that.
//!
//! Example: `a_message_behind_one_that_sleeps_for_a_time_waits_for_that_one` in `tests/all/waits.rs`.

use tailsight_kernel::syscalls;

use super::case::serves;
use super::{Case, Verdict};
use crate::path::holder;
use crate::timelines::busy_periods;

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let (part, focus) = (case.part, case.focus);
    let (from, how) = (part.from, part.how);
    // Java sleeps in a futex until a time.
    let for_a_time = syscalls::wait(how.nr) == Some(syscalls::Wait::Time)
        || holder::is_lock(how) && part.waker.is_some_and(|waker| waker.timer);
    let holds_up = syscalls::waits_for_data(how.nr) || from < focus.own_from && for_a_time;
    let ahead = case.depth == 0
        && focus.because.is_none()
        && (from < focus.own_from || from < focus.answered && serves(case.scan, &focus, focus.tid, part.since))
        && !how.uninterruptible
        && !how.io
        && holds_up
        && busy_periods::serving(&case.scan.busy_periods, focus.tid, part.since);
    ahead.then(|| Verdict::Ahead { by: case.ended_by() })
}
