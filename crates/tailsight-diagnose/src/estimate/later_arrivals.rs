//! Messages served out of order as a cause (Tales of the Tail §4.2).
//!
//! In: how long each message's thread served later arrivals before it ([`Lifetimes::overtaken`]). Out: the same profile, in
//! which that time counts to a row of its own, taken from the message's `ahead` time in the receive leg, to the nanosecond.

use tailsight_lifetime::{Context, Leg, Lifetimes, Role};

use crate::Options;
use crate::cause::{Category, Subject};
use crate::cohorts::Cohort;
use crate::rows::profile::{Derived, Move, Profile, each_part, slot};

/// Moves the time behind later arrivals to its row.
pub fn apply(lifetimes: &Lifetimes, options: &Options, profile: &mut Profile, (focus, reference): (&Cohort, &Cohort)) {
    let behind = |id: u32| lifetimes.overtaken.get(id as usize).copied().unwrap_or(0);
    let any = focus.ids.iter().chain(&reference.ids).any(|&id| behind(id) > 0);
    if !any || !matches!(options.leg, Leg::Receive | Leg::Total) {
        return;
    }
    let to = profile.derive(Derived {
        category: Category::HolBlocking,
        subject: Subject::LaterArrivals,
        role: Role::A,
        path: "ahead/later-arrivals".into(),
        inferred: false,
    });
    for (in_focus, cohort) in [(true, focus), (false, reference)] {
        for &id in &cohort.ids {
            let (mut left, mut moves) = (behind(id) as i64, vec![]);
            each_part(lifetimes, id, options.leg, |segment, part| {
                let ns = left.min(part.ns as i64);
                if segment == 0 && ns > 0 && lifetimes.owners[part.owner as usize].context == Context::Ahead {
                    moves.push(Move { from: slot(lifetimes.owners.len(), segment, part), to, ns });
                    left -= ns;
                }
            });
            if !moves.is_empty() {
                profile.shift(in_focus, id, &moves, 1);
            }
        }
    }
}
