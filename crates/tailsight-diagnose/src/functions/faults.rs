//! Samples in page faults, and whether samples rule page faults out.
//!
//! In: the samples of a run, the focus and its paths. Out: which stacks are in a page fault, and whether the focus' own time was hardly
//! ever sampled in one.

use tailsight_lifetime::{Context, Leg, Lifetimes, Message};
use tailsight_trace::samples::Samples;

use super::MOST_MESSAGES;
use super::place::ByTime;
use super::sampled::PathOf;
use crate::cohorts::Cohort;

/// Samples of own time with which page faults may be ruled out, and of how many one at most is of a fault then.
const NO_FAULTS: (u64, u64) = (20, 20);

/// The messages are asked in so many turns, until there are so many samples: a twentieth of these is 20, give or take 9 (95 %).
const FAULT_TURNS: (usize, u64) = (12, 400);

/// Of each stack, whether it is in the kernel's handling of a page fault.
pub(super) fn in_faults(samples: &Samples) -> Vec<bool> {
    let stacks = 0..samples.stacks.len() as u32;
    stacks.map(|stack| samples.stack(stack).any(|f| f.kernel && f.function.contains("page_fault"))).collect()
}

/// Whether samples of the focus' own time hardly met page faults: then these did not take that time, however many there were.
pub(crate) fn no_faults(
    lifetimes: &Lifetimes,
    samples: &Samples,
    focus: &Cohort,
    (messages, leg): (&[Message], Leg),
    path: PathOf<'_>,
) -> bool {
    if samples.is_empty() || lifetimes.faults.is_empty() {
        return false;
    }
    let by_time = ByTime::new(&samples.rows);
    let faults = in_faults(samples);
    let (mut enough, mut all_samples, mut in_fault) = (0, 0, 0);
    let asked: Vec<u32> = focus.ids.iter().copied().step_by(focus.len().div_ceil(MOST_MESSAGES).max(1)).collect();
    // Each turn is evenly over the focus; with many samples one turn decides.
    for turn in 0..FAULT_TURNS.0 {
        if enough >= FAULT_TURNS.1 {
            break;
        }
        for &id in asked.iter().skip(turn).step_by(FAULT_TURNS.0) {
            let message_and_leg = (&messages[id as usize], leg);
            by_time.on(
                message_and_leg,
                |part| path(id, leg, part),
                &lifetimes.owners,
                |span, sample| {
                    let own = lifetimes.owners.get(span.owner as usize).is_some_and(|o| o.context == Context::Own);
                    if own {
                        enough += 1;
                        all_samples += u64::from(sample.weight);
                        let fault = faults.get(sample.stack as usize) == Some(&true);
                        in_fault += u64::from(sample.weight) * u64::from(fault);
                    }
                },
            );
        }
    }
    enough >= NO_FAULTS.0 && in_fault * NO_FAULTS.1 <= all_samples
}
