//! What a thread's wait was for, by itself: asked for the message that the thread served then, or for whoever waits for the thread.
//!
//! In: a wait, the pieces of that message's service. Out: [`Judged`], by the same rules by which paths are walked.

use super::pieces::{Focus, Piece};
use super::rules::{self, Case, Verdict};
use crate::model::{Frame, Rule};
use crate::scan::activity::Activity;
use crate::timelines::waits::Wait;

/// What a wait was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Work: another thread passed it on, or it came by itself while the thread served nobody.
    Work,
    /// What another thread of the application had or did.
    Thread,
    /// What this names: another server, the rest of the request, a time, a task outside of the application.
    Named(Frame),
    /// What the call says, and no more is known.
    Call,
}

/// What a rule says of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Whether the message that the thread served waited for it.
    pub is_of_message: bool,
    /// What it was for.
    pub purpose: Purpose,
    /// The rule that says so; none where the message's calls to other servers do.
    pub rule: Option<Rule>,
}

/// Judges a wait of the thread `tid` that ended by `to`. `service`: the pieces of the service leg of the message that the thread served when
/// it fell asleep; none of a thread that served nobody. Where the thread turned to others, or a task waited, the message did not wait for it.
pub fn judged(activity: &Activity, tid: u32, (wait, to): (Wait, u64), service: &[Piece]) -> Judged {
    let holds = |piece: &&Piece| {
        let (from, to) = piece.ends();
        from <= wait.from && wait.from < to
    };
    let own = match service.iter().find(holds) {
        // It waits for that whatever its threads do.
        Some(Piece::Waits { frame, .. } | Piece::Answer { frame, .. }) => {
            return Judged { is_of_message: true, purpose: Purpose::Named(*frame), rule: None };
        }
        Some(Piece::Thread { focus, .. }) if focus.tid == tid => Some(*focus),
        _ => None,
    };
    let focus = own.unwrap_or(Focus::new(tid, u64::MAX));
    let (rule, verdict) = rules::decide(&Case::new(activity, wait, (wait.from, to), focus, 0), activity.without_rules);
    let idle = own.is_none() && !activity.service.is_serving(tid, wait.from);
    let itself = if idle && wait.how.is_for_what_comes() { Purpose::Work } else { Purpose::Call };
    let purpose = match verdict {
        Verdict::Follow { .. } if rule == Rule::PassedOn => Purpose::Work,
        Verdict::ReceiveCore(_) => Purpose::Work,
        Verdict::Follow { .. } | Verdict::FollowWhileBusy { .. } => Purpose::Thread,
        Verdict::Wait(frame) => Purpose::Named(frame),
        Verdict::WaitThenFollow { by, .. }
        | Verdict::Ahead { by, .. }
        | Verdict::Blocked { by, .. }
        | Verdict::WaitedFor { by, .. } => by.map_or(itself, Purpose::Named),
    };
    Judged { is_of_message: own.is_some(), purpose, rule: Some(rule) }
}
