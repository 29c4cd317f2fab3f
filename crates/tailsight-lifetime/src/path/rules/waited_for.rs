//! The thread for which the message waits sleeps, too, for something outside of the application.
//!
//! That sleep is its own, and the message waits for that thread. Always answers where another thread is followed.
//!
//! Example: `who_sleeps_in_a_write_waits_for_the_reader` in `tests/all/unanswered.rs`.

use super::{Case, Verdict};

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let because = case.focus.followed.because?;
    Some(Verdict::WaitedFor { because, serves: case.sleeper_serves(), by: case.ended_by() })
}
