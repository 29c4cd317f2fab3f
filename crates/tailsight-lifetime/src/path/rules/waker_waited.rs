//! The thread that ended the sleep had slept meanwhile itself, until a packet of another server, a timer or whatever came ended that.
//!
//! So it held no lock: it waited for something, got it, and passed it on. The message waited for that; from then on the thread worked for
//! it. Asked of the message's own sleeps after its receive only. Not if the other thread served other messages, was busy all the while, or
//! kept a transaction open for its client; nor if it was in the middle of something when the message's thread fell asleep, and had not been
//! woken for that by this one: a job that asks a server with a lock held, a pool's only thread.
//!
//! Example: `a_futex_wait_that_a_timer_ends_through_the_poller_is_no_lock` in `tests/all/waits.rs`.

use super::case::{WAKER_DEPTH, holds_for_its_client, peer, serves_others, was_at_something_else};
use super::{Case, Verdict};
use crate::messages::backend_calls::NOBODY;
use crate::model::Frame;
use crate::path::pieces::{Focus, Followed};
use crate::scan::activity::Activity;
use crate::timelines::sleep::Sleep;
use crate::timelines::waits::Wait;

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let focus = case.focus;
    // In the receive leg the thread fell asleep after the message arrived, so it waits for something else.
    if focus.of_message.message == NOBODY || focus.of_message.handoff.is_some() || focus.followed.because.is_some() {
        return None;
    }
    let waker = case.sibling().filter(|_| case.needs_what_another_has())?;
    let (from, ended) = (case.from, case.ended);
    if was_at_something_else(case.activity, waker.tid, case.wait.from, (focus.tid, focus.own_from)) {
        return None;
    }
    let Origin { until, how, by } =
        origin(case.activity, waker.tid, (from, ended), case.place_of_work(), focus, case.depth)?;
    let followed = Followed { handed: true, is_other: true, ..focus.followed };
    let focus = Focus { followed, until: ended, ..focus };
    Some(Verdict::WaitThenFollow { until, how, by, tid: waker.tid, focus })
}

/// A sleep that was the begin of what another thread passed on.
struct Origin {
    /// When it ended.
    until: u64,
    how: Sleep,
    by: Option<Frame>,
}

/// A thread slept from `from` to `to` and `tid` woke it. The last sleep of `tid` by then, or of the thread that ended that one.
/// `place`: where in the program the first sleeper was, 0: not known.
fn origin(
    activity: &Activity,
    tid: u32,
    (from, to): (u64, u64),
    place: u32,
    focus: Focus,
    depth: u32,
) -> Option<Origin> {
    let Wait { from: since, to: until, how, waker, .. } = activity.threads.get(tid)?.sleeps_ended(from, to).next()?;
    let until = until.unwrap_or(to);
    if serves_others(activity, &focus, tid, since) || holds_for_its_client(activity, &focus, tid, how, to) {
        return None;
    }
    let how = if place == 0 { how } else { Sleep { place, ..how } };
    if let Some(peer @ Frame::Peer { .. }) = peer(activity, (tid, focus.of_message.message), waker) {
        return Some(Origin { until, how, by: Some(peer) });
    }
    match waker {
        Some(w) if !w.interrupt && depth < WAKER_DEPTH && activity.threads.names().is_target(w.tid) => {
            origin(activity, w.tid, (from, until), place, focus, depth + 1)
        }
        _ if how.polls() && !how.stopped => Some(Origin { until, how, by: None }),
        _ => None,
    }
}
