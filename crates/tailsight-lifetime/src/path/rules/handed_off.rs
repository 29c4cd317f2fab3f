//! The interrupt that took the message to its socket also woke the thread, without leaving interrupt context in between.
//!
//! Then the sleep up to there is the end of receive processing, on the core of the interrupt, and no wait of the thread's.
//!
//! Example: `the_interrupt_of_the_message_ends_the_sleep` in `tests/all/rules.rs`.

use super::{Case, Verdict};
use crate::scan::activity::Activity;

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let (cpu, handoff_ns) = case.focus.of_message.handoff?;
    let waker = case.wait.waker.filter(|waker| waker.interrupt && waker.cpu == cpu)?;
    same_softirq(case.activity, cpu, handoff_ns, case.ended).then_some(Verdict::ReceiveCore(waker.cpu))
}

/// Whether a core stayed in interrupt context from the hand-off to the wake-up.
fn same_softirq(activity: &Activity, cpu: u16, handoff_ns: u64, wake_ns: u64) -> bool {
    let Some(core) = activity.cores.get(usize::from(cpu)) else { return false };
    let Some(first) = core.at(handoff_ns) else { return false };
    let until_wake = core.segments[first..].iter().take_while(|s| s.from < wake_ns.max(handoff_ns + 1));
    until_wake.into_iter().all(|s| activity.tree.within(s.node).interrupt)
}
