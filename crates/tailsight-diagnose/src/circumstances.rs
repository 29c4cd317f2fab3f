//! What the words of a diagnosis rest on beside what its JSON has.
//!
//! In: [`Lifetimes`], the focus, what was estimated. Out: the parts of [`Circumstances`].

use std::collections::BTreeMap;

use tailsight_lifetime::model::flags;
use tailsight_lifetime::{Lifetimes, Message, SentKind};

use crate::cohorts::Cohort;
use crate::estimate::{CostOfKind, Estimates};
use crate::model::{Circumstances, EstimatedCost};

/// A core that fewer than one in so many of the focus messages met, or that had less than such a part of a cause, is not worth moving
/// anything away from.
pub(crate) const FEW: usize = 20;

/// Those of the run, whatever is compared.
pub(crate) fn of(lifetimes: &Lifetimes) -> Circumstances {
    Circumstances {
        is_readable: lifetimes.multiplexed.is_readable(),
        framing: lifetimes.framing.clone(),
        messages: lifetimes.messages.len() as u64,
        shared_connections: lifetimes.multiplexed.connections,
        unknown_backend_calls: lifetimes.unknown_backend_calls,
        continued_replies: lifetimes.messages.iter().filter(|m| m.flags & flags::CONTINUED != 0).count() as u64,
        unasked_sends: lifetimes.sent.iter().filter(|sent| sent.kind == SentKind::Push).count() as u64,
        retransmitted: lifetimes.outgoing.retransmitted,
        dropped: lifetimes.outgoing.dropped.values().sum(),
        numa_moves: lifetimes.numa_moves,
        repeated_connects: lifetimes.repeated_connects,
        ..Circumstances::default()
    }
}

/// The cores that the focus messages met. With RPS, and over virtual devices, the stack works on another core than the driver.
pub(crate) fn cores(lifetimes: &Lifetimes, focus: &Cohort) -> [Vec<u32>; 2] {
    let met = |core: fn(&Message) -> u16| {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        let cores = focus.ids.iter().map(|id| core(&lifetimes.messages[*id as usize]));
        cores.for_each(|core| *counts.entry(u32::from(core)).or_default() += 1);
        counts.into_iter().filter(|&(_, n)| n * FEW >= focus.len()).map(|(core, _)| core).collect()
    };
    [met(|m| m.handoff_cpu), met(|m| m.recv_cpu)]
}

/// What events were found to cost.
pub(crate) fn costs(estimates: &Estimates) -> Vec<EstimatedCost> {
    let cost = |CostOfKind { subject, cost }: &CostOfKind| EstimatedCost {
        subject: subject.clone(),
        slope_ns: cost.slope_ns,
        ci95_ns: cost.ci95_ns,
        more: cost.more,
        by_number_ns: cost.by_number_ns,
        beyond_ns: cost.beyond_ns,
    };
    estimates.costs.iter().map(cost).collect()
}
