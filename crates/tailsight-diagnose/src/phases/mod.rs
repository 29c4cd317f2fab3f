//! The four phases of NSight §5.2: which of them finds a cause, and how.
//!
//! In: the rows with what both cohorts met of them. Out: for each row a [`Finding`]. The paper runs the phases over single
//! functions; here each row (category, name, role) is one anomaly, and the kind of its owners says which phase it belongs to:
//!
//! 1. [`contexts`]: whole program contexts and interrupts that a minority of ordinary messages meets;
//! 2. [`gaps`]: nothing ran for the message, with the reason before it;
//! 3. [`functions`]: what runs for the message itself (frames: system calls, softirqs, locks, reclaim) is slower, more
//!    frequent, or not there in ordinary messages;
//! 4. [`overlaps`]: other messages, of the same application (head-of-line blocking) or of others.

pub mod contexts;
pub mod functions;
pub mod gaps;
pub mod overlaps;
pub mod root;

use tailsight_lifetime::{Context, Frame, Lifetimes, Owner};

use crate::cause::{Finding, How, Phase};
use crate::rows::attribution::Occurrence;
use crate::rows::profile::{Profile, Source};

/// The phase that an owner's time belongs to.
pub fn phase_of(owner: &Owner) -> Phase {
    match &owner.context {
        _ if owner.frames.contains(&Frame::Stolen) => Phase::Gaps,
        _ if overlaps::is_other_message(owner) => Phase::Overlaps,
        Context::Foreign { .. } | Context::Profiler => Phase::Contexts,
        _ if contexts::is_interrupt(owner) => Phase::Contexts,
        // An idle core that handles this message's packet is no gap.
        Context::Idle if owner.frames.iter().any(|f| matches!(f, Frame::Softirq { .. })) => Phase::Functions,
        Context::Idle | Context::Blocked | Context::Unknown => Phase::Gaps,
        Context::Own | Context::Sibling { .. } | Context::Ahead => Phase::Functions,
    }
}

/// The phase that found a row of these slots, and how: the phase of most of its deviation decides.
pub fn finding(
    lifetimes: &Lifetimes,
    profile: &Profile,
    slots: &[usize],
    cohorts: (f64, f64),
    occurrence: &Occurrence,
) -> Finding {
    let mut by_phase = [0.0f64; 4];
    for &slot in slots {
        let phase = match profile.source(slot) {
            Source::Owner(_, _, owner) => phase_of(&lifetimes.owners[owner]),
            Source::Derived(_) => Phase::Functions,
        };
        let mean_ns = |sums: &[crate::rows::profile::Sum], n: f64| sums[slot].ns as f64 / n;
        by_phase[phase as usize] += (mean_ns(&profile.focus, cohorts.0) - mean_ns(&profile.reference, cohorts.1)).abs();
    }
    let phases = [Phase::Contexts, Phase::Gaps, Phase::Functions, Phase::Overlaps];
    // The first of equals.
    let phase = phases.into_iter().rev().max_by(|a, b| by_phase[*a as usize].total_cmp(&by_phase[*b as usize]));
    let phase = phase.unwrap_or(Phase::Functions);
    let how = if occurrence.mean_ns[0] < occurrence.mean_ns[1] {
        How::Less
    } else {
        match phase {
            Phase::Contexts => contexts::how(occurrence),
            Phase::Gaps => How::Gap,
            Phase::Functions => functions::how(occurrence),
            Phase::Overlaps => How::Overlap,
        }
    };
    Finding { phase, how }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(context: Context, frames: &[Frame]) -> Owner {
        Owner { context, frames: frames.to_vec() }
    }

    #[test]
    fn owners_belong_to_the_phase_that_looks_for_them() {
        let nginx = Context::Foreign { comm: "nginx".into(), kernel: false };
        let softirq = Frame::Softirq { vec: 3, inline: false };
        let packet = |own| Frame::Packet { own, port: 80, app: 0 };
        let cases = [
            (owner(nginx.clone(), &[]), Phase::Contexts),
            (owner(nginx, &[softirq, packet(false)]), Phase::Overlaps),
            (owner(Context::Own, &[Frame::Vector { which: 0 }]), Phase::Contexts),
            (owner(Context::Own, &[softirq, packet(false)]), Phase::Overlaps),
            (owner(Context::Idle, &[softirq, packet(true)]), Phase::Functions),
            (owner(Context::Own, &[Frame::Syscall { nr: 0 }]), Phase::Functions),
            (owner(Context::Sibling { comm: "w".into() }, &[]), Phase::Functions),
            (owner(Context::Ahead, &[]), Phase::Overlaps),
            (owner(Context::Idle, &[Frame::WakePending]), Phase::Gaps),
            (owner(Context::Blocked, &[Frame::Throttled]), Phase::Gaps),
            (owner(Context::Own, &[Frame::Stolen]), Phase::Gaps),
        ];
        for (owner, phase) in cases {
            assert_eq!(phase_of(&owner), phase, "{owner:?}");
        }
    }
}
