//! The thread for which the message waits sleeps in the same call for a lock of a file, until a task outside ended that.
//!
//! Waiters of a file lock form a queue: each waits for the one before it, which waits for the same lock.
//!
//! Example: `who_waits_for_a_file_lock_behind_a_sibling_waits_for_the_one_who_holds_it` in `tests/all/waits.rs`.

use super::{Case, Verdict};
use crate::model::Frame;
use crate::timelines::sleep::Sleep;

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let how = case.wait.how;
    let same = matches!(case.focus.followed.because?, Frame::SleepIn { nr, .. } if nr == how.nr);
    let by = case.ended_by();
    let queued = same && how.is_for_a_file_lock() && matches!(by, Some(Frame::WokenBy { .. }));
    queued.then(|| Verdict::Blocked { how: at_first_place(case), by })
}

/// The sleep, at the place in the program where the message's own thread waits, if that is known.
pub(super) fn at_first_place(case: &Case<'_>) -> Sleep {
    let (how, place) = (case.wait.how, case.focus.followed.place);
    if place == 0 { how } else { Sleep { place, ..how } }
}
