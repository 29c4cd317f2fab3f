//! The thread for which the message waits in a lock writes to a full buffer, until a reader makes room.
//!
//! It has the lock all the while, and the reader holds nothing: so it is the one that is waited for, and the sleep says who ended it. Without
//! this rule the reader is followed, where that is a process of the target too, and what it did is said to be the holder's (log4j's console
//! appender, whose pipe another process reads: "a lock, perhaps held by python3").
//!
//! Example: `who_has_a_lock_and_writes_to_a_full_pipe_has_it_still` in `tests/all/rules.rs`.

use tailsight_kernel::syscalls;

use super::{Case, Verdict, waited_for};
use crate::model::Frame;

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let in_a_lock = matches!(
        case.focus.followed.because?,
        Frame::SleepIn { nr, .. } if syscalls::may_wait_for_a_lock(nr)
    );
    if case.depth > 0 && case.wait.how.is_for_room() && in_a_lock { waited_for::ask(case) } else { None }
}
