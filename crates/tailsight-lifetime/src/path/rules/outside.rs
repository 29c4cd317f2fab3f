//! Nobody of the application ended the sleep: it is the thread's own wait, for what its call says.
//!
//! The last rule: always answers.
//!
//! Example: `a_call_to_another_server_is_a_wait_for_it` in `tests/all/waits.rs`.

use super::{Case, Verdict};

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    Some(says(case))
}

pub(super) fn says(case: &Case<'_>) -> Verdict {
    Verdict::Blocked { how: case.wait.how, by: case.ended_by() }
}
