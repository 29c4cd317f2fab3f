//! An event loop slept, and another thread hands it this message's answer later.
//!
//! What woke the loop was not that answer. While the other thread was busy the message waited for it; while that one waited for work itself,
//! nobody is known to have had the message.
//!
//! Example: `an_event_loop_whose_answer_another_thread_hands_back_waits_for_that_one` in `tests/all/waits.rs`.

use super::{Case, Verdict};
use crate::path::owners::sleep_frame;
use crate::path::pieces::{Focus, Followed};

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let how = case.wait.how;
    let tid = case.focus.of_message.answerer.filter(|_| case.depth == 0 && how.is_for_what_comes())?;
    if case.ended_by().is_some() {
        return None;
    }
    let because = Some(sleep_frame(how));
    let followed = Followed { because, is_other: true, ..case.focus.followed };
    let focus = Focus { followed, until: case.ended, ..case.focus };
    Some(Verdict::FollowWhileBusy { tid, focus })
}
