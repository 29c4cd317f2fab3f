//! The thread that ended the wait for a lock had waited for its client before, and had given the lock back by then, if it had it at all.
//!
//! That is so of a lock that is waited for with a time limit, again and again (CPython's, a JVM's monitor): who has one gives it back before
//! it waits for a client. And of any lock when the thread turned to several messages since it was asked for: each of them may have taken
//! it. One that turned to a single message, the one with which it gave the lock away, may have kept it open for its client (a transaction).
//! Who had the lock meanwhile is not known. It may be held in a sleep, or while another server is asked: those are no waits for a client.
//!
//! Example: `nobody_waits_for_a_client_with_an_interpreter_s_lock` in `tests/all/waits.rs`.

use super::{Case, Verdict};
use crate::model::Frame;
use crate::timelines::threads::State;

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let because = case.focus.followed.because?;
    let gave_back = waits_for_its_client(case) && (case.focus.followed.tried_again || served_several(case));
    (gave_back && !matches!(case.ended_by(), Some(Frame::Peer { .. }))).then_some(Verdict::Wait(because))
}

/// A read may be one of a file or a pipe: of a client it is if a message was received when it was over.
fn waits_for_its_client(case: &Case<'_>) -> bool {
    let how = case.wait.how;
    how.polls() || how.is_for_data() && was_for_a_message(case)
}

/// Whether the thread, which is no event loop, turned to several messages while the lock was waited for.
fn served_several(case: &Case<'_>) -> bool {
    let (activity, focus) = (case.activity, &case.focus);
    !activity.service.is_loop_in(focus.tid, case.wait.how)
        && activity.service.received_between(focus.tid, (focus.followed.asked, focus.until)) > 1
}

/// Whether the thread received a message when it had slept, before it slept again.
fn was_for_a_message(case: &Case<'_>) -> bool {
    let (tid, ended) = (case.focus.tid, case.ended);
    let intervals = case.activity.threads.get(tid).map_or(&[][..], |thread| &thread.intervals);
    let later = &intervals[intervals.partition_point(|interval| interval.from < ended)..];
    let sleeps = later.iter().find(|interval| matches!(interval.state, State::Sleeping { .. }));
    case.activity.service.received_between(tid, (ended, sleeps.map_or(u64::MAX, |sleep| sleep.from))) > 0
}
