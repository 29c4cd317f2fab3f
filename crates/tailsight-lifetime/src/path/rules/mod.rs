//! What a sleep on a message's path was for: rules with names, of which the first that answers decides.
//!
//! In: a [`Case`], the sleep and what the walk knows of the message there. Out: the [`Rule`] that decided and its [`Verdict`]. A rule is a
//! file of this folder: when it asks, what it says, and why. [`Rule::ALL`] is their order; the last one always answers.
//!
//! The id of the rule is kept with each step of a path ([`crate::PathSpan::rule`]), for whoever wants to know why a time has its owner. A walk
//! without a rule ([`Without`]) says what that rule is worth.

mod answered_later;
mod case;
mod file_lock_line;
mod given_back;
mod handed_off;
mod held;
mod holder_writes;
mod holds_nothing;
mod next_request;
mod other_messages;
mod outside;
mod passed_on;
mod request_arriving;
mod waited_for;
mod waker_waited;

pub(super) use case::{Case, LOCK_DEPTH, WAKER_DEPTH, serves};

use super::pieces::Focus;
use crate::model::{Frame, Rule, Without};
use crate::timelines::sleep::Sleep;

/// What a sleep is to the message.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// Receive processing of this core.
    ReceiveCore(u16),
    /// What the thread `tid` did meanwhile; `how` is the sleep that it ended.
    Follow { tid: u32, focus: Focus, how: Sleep },
    /// A wait, `how`, that `by` ended at `until`; from then on what the thread `tid` did, which only passed that on.
    WaitThenFollow { until: u64, how: Sleep, by: Option<Frame>, tid: u32, focus: Focus },
    /// What the thread `tid` did while it was busy; else this thread's own wait.
    FollowWhileBusy { tid: u32, focus: Focus },
    /// A wait that has no task.
    Wait(Frame),
    /// A wait, `how`, of the message's thread while it served others, or of a thread that it waited for then.
    Ahead { how: Sleep, by: Option<Frame> },
    /// A wait for something outside of the application.
    Blocked { how: Sleep, by: Option<Frame> },
    /// A sleep of the thread `tid`, or of one that it waited for, because of which the message's thread waited; `serves`: it served other messages.
    WaitedFor { tid: u32, because: Frame, serves: bool, by: Option<Frame> },
}

/// The first rule that answers, and its answer.
pub(super) fn decide(case: &Case<'_>, without: Without) -> (Rule, Verdict) {
    let asked = Rule::ALL.iter().filter(|rule| !without.has(**rule));
    let mut answers = asked.filter_map(|&rule| Some((rule, ask(rule, case)?)));
    answers.next().unwrap_or_else(|| (Rule::Outside, outside::says(case)))
}

fn ask(rule: Rule, case: &Case<'_>) -> Option<Verdict> {
    match rule {
        Rule::HandedOff => handed_off::ask(case),
        Rule::WakerWaited => waker_waited::ask(case),
        Rule::HolderWrites => holder_writes::ask(case),
        Rule::Held => held::ask(case),
        Rule::PassedOn => passed_on::ask(case),
        Rule::RequestArriving => request_arriving::ask(case),
        Rule::AnsweredLater => answered_later::ask(case),
        Rule::OtherMessages => other_messages::ask(case),
        Rule::NextRequest => next_request::ask(case),
        Rule::GivenBack => given_back::ask(case),
        Rule::FileLockLine => file_lock_line::ask(case),
        Rule::HoldsNothing => holds_nothing::ask(case),
        Rule::WaitedFor => waited_for::ask(case),
        Rule::Outside => outside::ask(case),
    }
}
