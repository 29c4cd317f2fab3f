//! The lock is one that is waited for with a time limit, again and again (CPython's, a JVM's monitor), and the thread that ended the wait
//! had waited for its client before.
//!
//! Who has such a lock gives it back before it waits for a client: it had the lock only after that. Who had it meanwhile is not known. A
//! monitor may be held in a sleep, or while another server is asked: those are no waits for a client.
//!
//! Example: `nobody_waits_for_a_client_with_an_interpreter_s_lock` in `tests/all/waits.rs`.

use tailsight_kernel::syscalls;

use super::{Case, Verdict};
use crate::model::Frame;

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let because = case.focus.because.filter(|_| case.focus.tried_again && syscalls::polls(case.part.how.nr))?;
    (!matches!(case.ended_by(), Some(Frame::Peer { .. }))).then_some(Verdict::Wait(because))
}
