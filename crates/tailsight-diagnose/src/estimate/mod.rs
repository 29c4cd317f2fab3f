//! Estimates of costs that no event measures: page faults, interrupts around their handlers, migrations, and another class of
//! requests.
//!
//! In: the profile of two cohorts. Out: the same profile, with part of the application's own time moved to separate rows, message by
//! message and to the nanosecond: the sum does not change. Only the thread's own work is moved, and never more than its deviation.

pub mod classes;
pub mod counted;
pub mod later_arrivals;

use std::sync::OnceLock;

use rayon::prelude::*;
use tailsight_lifetime::{Context, LEGS, Leg, Lifetimes, Role};

use crate::Options;
use crate::cause::Category;
use crate::cohorts::Cohort;
use crate::rows::classification::Classification;
use crate::rows::profile::{Move, Profile, Slot, Source, slot, slot_of};
use counted::Counter;

/// Where a message's own work is: slots of its own context that count to app-processing.
pub struct OwnWork {
    slots: Vec<bool>,
    owners: usize,
    /// The legs that have such slots, as indices into [`LEGS`]: in the others there is nothing to look for.
    segments: Vec<usize>,
    /// What each message has of it, ns; looked at when all messages are asked for.
    each: OnceLock<Vec<i64>>,
}

impl OwnWork {
    /// Of the owners of the message's own context.
    pub fn new(
        lifetimes: &Lifetimes,
        classification: &Classification<'_>,
        profile: &Profile,
        options: &Options,
    ) -> OwnWork {
        let own = |slot: Slot| match profile.source(slot) {
            Source::Owner(_, _, owner) => {
                lifetimes.owners[owner].context == Context::Own
                    && classification.of(slot).category == Category::AppProcessing
            }
            Source::Derived(_) => false,
        };
        let slots: Vec<bool> = (0..profile.focus.len()).map(own).collect();
        let owners = lifetimes.owners.len();
        let has = |segment: &usize| slots[slot_of(owners, *segment, Role::R, 0)..][..2 * owners].contains(&true);
        let asked = |segment: &usize| options.leg == LEGS[*segment] || options.leg == Leg::Total;
        let segments = (0..LEGS.len()).filter(asked).filter(has).collect();
        OwnWork { slots, owners, segments, each: OnceLock::new() }
    }

    /// A message's parts that are own work: slot and ns.
    fn parts<'a>(&'a self, lifetimes: &'a Lifetimes, id: u32) -> impl Iterator<Item = (Slot, i64)> + 'a {
        self.segments.iter().flat_map(move |&segment| {
            let parts = lifetimes.part_slice(id, LEGS[segment]).iter();
            parts.map(move |part| (slot(self.owners, segment, part), part.ns as i64)).filter(|(at, _)| self.slots[*at])
        })
    }

    /// A message's own work by slot, largest first.
    fn of(&self, lifetimes: &Lifetimes, id: u32) -> Vec<(Slot, i64)> {
        let mut out: Vec<(Slot, i64)> = self.parts(lifetimes, id).filter(|(_, ns)| *ns > 0).collect();
        out.sort_unstable_by_key(|&(slot, ns)| (std::cmp::Reverse(ns), slot));
        out
    }

    /// Every message's own work, ns.
    pub fn each(&self, lifetimes: &Lifetimes) -> &[i64] {
        let every = 0..lifetimes.messages.len() as u32;
        self.each.get_or_init(|| every.into_par_iter().map(|id| self.sum(lifetimes, id)).collect())
    }

    /// A message's own work, ns.
    pub fn ns(&self, lifetimes: &Lifetimes, id: u32) -> i64 {
        self.each.get().map_or_else(|| self.sum(lifetimes, id), |each| each[id as usize])
    }

    fn sum(&self, lifetimes: &Lifetimes, id: u32) -> i64 {
        self.parts(lifetimes, id).map(|(_, ns)| ns).sum()
    }

    /// Moves that take `ns` from a message's own work: from the largest slots first; what it does not have, and what it is
    /// to get (`ns` below 0), from the largest. `taken`: what was moved from them before.
    fn moves(&self, lifetimes: &Lifetimes, id: u32, ns: i64, taken: i64, to: Slot) -> Vec<Move> {
        let (mut left, mut taken) = (ns, taken);
        let slots = self.of(lifetimes, id);
        let mut out: Vec<Move> = vec![];
        for &(from, has) in &slots {
            let before = taken.min(has);
            taken -= before;
            let part = left.clamp(0, has - before);
            if part > 0 {
                out.push(Move { from, to, ns: part });
                left -= part;
            }
        }
        match (out.first_mut(), slots.first()) {
            _ if left == 0 => {}
            (Some(first), _) => first.ns += left,
            (None, Some(&(from, _))) => out.push(Move { from, to, ns: left }),
            (None, None) => {}
        }
        out
    }
}

/// What was estimated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimates {
    /// What events cost that have a number and no duration, where it was moved, with a sentence's beginning about each.
    pub costs: Vec<(&'static str, counted::Cost)>,
    /// What the classes were formed by, when they made a difference.
    pub classes: Option<&'static str>,
}

/// What is known beside the counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Both cohorts are of the same run.
    pub same_run: bool,
    /// Samples of the focus' own time hardly met a page fault: what correlates with their number is something else.
    pub no_faults: bool,
}

/// The own time that an estimate is made of.
struct OwnTime<'a> {
    lifetimes: &'a Lifetimes,
    options: &'a Options,
    own: &'a OwnWork,
    cohorts: (&'a Cohort, &'a Cohort),
    /// All complete messages by (latency, id).
    ranked: &'a [(u64, u32)],
    /// Their ids, in order of arrival.
    complete: &'a [u32],
    /// What was moved from it before, by message, ns.
    moved: &'a [i64],
    /// The deviation of what is left, ns.
    deviation: f64,
}

impl OwnTime<'_> {
    /// A message's own time, less what was moved from it before, ns.
    fn left(&self, id: u32) -> i64 {
        self.own.ns(self.lifetimes, id) - self.moved[id as usize]
    }

    /// Moves that take `ns` of it.
    fn moves(&self, id: u32, ns: i64, to: Slot) -> Vec<Move> {
        self.own.moves(self.lifetimes, id, ns, self.moved[id as usize], to)
    }
}

/// Moves the cost of events without a duration, one kind after the other, then the difference between classes of requests.
/// `ranked`: all complete messages by (latency, id).
pub fn estimate(
    lifetimes: &Lifetimes,
    classification: &Classification<'_>,
    options: &Options,
    profile: &mut Profile,
    cohorts: (&Cohort, &Cohort),
    ranked: &[(u64, u32)],
    known: Known,
) -> Estimates {
    let own = OwnWork::new(lifetimes, classification, profile, options);
    let worked = |id: u32| own.ns(lifetimes, id);
    let excess = |of: &dyn Fn(u32) -> i64| mean(cohorts.0, |id| of(id) as f64) - mean(cohorts.1, |id| of(id) as f64);
    let all = excess(&worked);
    let mut out = Estimates::default();
    if all <= options.granularity_ns as f64 {
        return out;
    }
    let mut is_complete = vec![false; lifetimes.messages.len()];
    ranked.iter().for_each(|&(_, id)| is_complete[id as usize] = true);
    let complete: Vec<u32> = (0..).zip(is_complete).filter(|(_, is)| *is).map(|(id, _)| id).collect();
    // Own work that was moved before, by message.
    let mut moved = vec![0_i64; lifetimes.messages.len()];
    let left = |moved: &[i64]| all - excess(&|id| moved[id as usize]);
    let matters = |deviation: f64| deviation > options.granularity_ns as f64;
    let faults =
        (matches!(options.leg, Leg::Service | Leg::Total) && !known.no_faults).then(|| Counter::faults(lifetimes));
    // A migration brings interrupts with it: it comes first.
    for mut counter in faults.into_iter().chain(Counter::migrations_and_interrupts(lifetimes, options.leg)) {
        let deviation = left(&moved);
        if !matters(deviation) {
            break;
        }
        let of =
            OwnTime { lifetimes, options, own: &own, cohorts, ranked, complete: &complete, moved: &moved, deviation };
        if let Some(cost) = counted::apply(&of, &mut counter, profile) {
            for (id, moved) in (0..).zip(&mut moved) {
                if counter.counts.get(id as usize).is_some_and(|&count| count > 0) {
                    *moved += cost.of(&counter, id, worked(id) - *moved);
                }
            }
            out.costs.push((counter.note, cost));
        }
    }
    let deviation = left(&moved);
    // Another run's classes are compared as they are: a change of the mix between runs is a finding of its own.
    if known.same_run && matters(deviation) {
        let of =
            OwnTime { lifetimes, options, own: &own, cohorts, ranked, complete: &complete, moved: &moved, deviation };
        out.classes = classes::apply(&of, profile);
    }
    out
}

fn mean(cohort: &Cohort, of: impl Fn(u32) -> f64) -> f64 {
    cohort.ids.iter().map(|&id| of(id)).sum::<f64>() / cohort.len().max(1) as f64
}

/// The side that own work is on.
const ROLE: Role = Role::A;
