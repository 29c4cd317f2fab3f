//! The thread for which the message waits sleeps, too, for something outside of the application.
//!
//! That sleep is its own, and the message waits for that thread; or for the one before it that serves other messages, which waits for this one
//! itself. Always answers where another thread is followed.
//!
//! Example: `who_sleeps_in_a_write_waits_for_the_reader` in `tests/all/unanswered.rs`.

use super::{Case, Verdict};
use crate::path::pieces::Followed;

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let Followed { because, holder, .. } = case.focus.followed;
    let by = case.ended_by();
    let (tid, serves) = match case.passes_on_to_a_holder(by) {
        true => (holder, true),
        false => (case.focus.tid, case.sleeper_serves()),
    };
    Some(Verdict::WaitedFor { tid, because: because?, serves, by })
}
