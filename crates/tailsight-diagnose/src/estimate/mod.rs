//! Estimates of costs that no event measures: page faults, interrupts around their handlers, migrations, and another class of
//! requests.
//!
//! In: the profile of two cohorts. Out: the same profile, with part of the application's own time moved to separate rows, message by
//! message and to the nanosecond: the sum does not change. Only the thread's own work is moved, and never more than its deviation.
//! The [`Costs`] of events are also asked for alone: of the messages ahead in a queue, which are in neither cohort.

pub mod basis;
pub mod classes;
pub mod counted;
pub mod later_arrivals;

use rayon::prelude::*;
use tailsight_lifetime::{Context, LEGS, Leg, Lifetimes, Role};

use crate::Options;
use crate::cause::{Category, Subject};
use crate::cohorts::Cohort;
use crate::rows::classification::Classification;
use crate::rows::profile::{Move, Profile, Slot, Source, slot, slot_of};
use basis::Basis;
use counted::{Cost, Counter};

/// Where a message's own work is: slots of its own context that count to app-processing.
pub struct OwnWork {
    slots: Vec<bool>,
    owners: usize,
    leg: Leg,
    /// The legs that have such slots, as indices into [`LEGS`]: in the others there is nothing to look for.
    segments: Vec<usize>,
    /// What messages have of it, ns, by message, of those that were looked at together; [`NOT_LOOKED_AT`] of others.
    each: Vec<i64>,
}

impl OwnWork {
    /// Of the owners of the message's own context.
    pub fn new(lifetimes: &Lifetimes, classification: &Classification<'_>, profile: &Profile, leg: Leg) -> OwnWork {
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
        let asked = |segment: &usize| leg == LEGS[*segment] || leg == Leg::Total;
        let segments = (0..LEGS.len()).filter(asked).filter(has).collect();
        OwnWork { slots, owners, leg, segments, each: vec![] }
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

    /// Looks at these messages, so that each is looked at once however often it is asked for.
    fn look_at(&mut self, lifetimes: &Lifetimes, ids: &[u32]) {
        let sums_ns: Vec<i64> = ids.par_iter().with_min_len(1024).map(|&id| self.sum(lifetimes, id)).collect();
        self.each.resize(lifetimes.messages.len(), NOT_LOOKED_AT);
        ids.iter().zip(sums_ns).for_each(|(&id, ns)| self.each[id as usize] = ns);
    }

    /// A message's own work, ns.
    pub fn ns(&self, lifetimes: &Lifetimes, id: u32) -> i64 {
        let sum_ns = self.each.get(id as usize).copied().filter(|ns| *ns != NOT_LOOKED_AT);
        sum_ns.unwrap_or_else(|| self.sum(lifetimes, id))
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

/// No time that a message has.
const NOT_LOOKED_AT: i64 = i64::MIN;

/// What events of a kind cost.
#[derive(Clone, Debug, PartialEq)]
pub struct CostOfKind {
    /// The kind, as [`Counter::subject`].
    pub subject: Subject,
    /// The cost of one.
    pub cost: Cost,
}

/// What was estimated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimates {
    /// What events cost that have a number and no duration, where it was moved.
    pub costs: Vec<CostOfKind>,
    /// What the classes were formed by, when they made a difference.
    pub classes: Option<&'static str>,
}

/// What holds of the cohorts, beside the counts of events.
#[derive(Clone, Copy)]
pub struct Premises<'a> {
    /// Both cohorts are of the same run.
    pub same_run: bool,
    /// Whether the focus has no more page faults than the reference, or samples of its own time hardly met one: what correlates with their
    /// number is something else. It is asked only where the counts say that faults took time: the paths of messages are walked for it.
    pub no_faults: &'a dyn Fn() -> bool,
    /// The first cohort was chosen by how long its messages worked. Then that they worked longer than others says nothing about their events,
    /// and an event costs the slope alone.
    pub chosen_by_work: bool,
    /// What events were found to cost in other messages of this run: they cost the same in these.
    pub before: &'a [CostOfKind],
}

/// The own time that an estimate is made of.
struct OwnTime<'a> {
    lifetimes: &'a Lifetimes,
    options: &'a Options,
    own: &'a OwnWork,
    cohorts: (&'a Cohort, &'a Cohort),
    /// What it is made of.
    basis: &'a Basis,
    /// What was moved from it before, by message, ns.
    moved: &'a [i64],
    /// The deviation of what is left, ns.
    deviation: f64,
    premises: Premises<'a>,
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
pub fn estimate(
    lifetimes: &Lifetimes,
    classification: &Classification<'_>,
    options: &Options,
    profile: &mut Profile,
    cohorts: (&Cohort, &Cohort),
    basis: &Basis,
    premises: Premises<'_>,
) -> Estimates {
    let own = OwnWork::new(lifetimes, classification, profile, options.leg);
    let costs = Costs::new(lifetimes, own, options, cohorts, basis, premises);
    costs.apply(lifetimes, profile, cohorts);
    let deviation = costs.left(lifetimes, cohorts);
    // Another run's classes are compared as they are: a change of the mix between runs is a finding of its own.
    let classes = (premises.same_run && deviation > options.granularity_ns as f64).then(|| {
        let Costs { own, moved, .. } = &costs;
        let own_time = OwnTime { lifetimes, options, own, cohorts, basis, moved, deviation, premises };
        classes::apply(&own_time, profile)
    });
    let of_kind = |(counter, cost): (Counter, Cost)| CostOfKind { subject: counter.subject, cost };
    let costs = costs.kinds.into_iter().map(of_kind).collect();
    Estimates { costs, classes: classes.flatten() }
}

/// Kinds of events without a duration with what one costs, and the own work that it is taken from.
pub struct Costs {
    own: OwnWork,
    /// In the order in which they are taken from own work.
    kinds: Vec<(Counter, Cost)>,
    /// What all of them take from a message's own work, ns, of the messages of the cohorts and those that the estimate is made of.
    moved: Vec<i64>,
}

impl Costs {
    /// Of the own work that the first cohort has more of than the second; none where it has no more.
    pub fn new(
        lifetimes: &Lifetimes,
        own: OwnWork,
        options: &Options,
        cohorts: (&Cohort, &Cohort),
        basis: &Basis,
        premises: Premises<'_>,
    ) -> Costs {
        let mut costs = Costs { own, kinds: vec![], moved: vec![] };
        let matters = |deviation: f64| deviation > options.granularity_ns as f64;
        if !matters(costs.left(lifetimes, cohorts)) {
            return costs;
        }
        costs.moved = vec![0; lifetimes.messages.len()];
        let of_cohorts = cohorts.0.ids.iter().chain(&cohorts.1.ids).copied();
        let mut asked: Vec<u32> = of_cohorts.chain(basis.ids()).collect();
        asked.sort_unstable();
        asked.dedup();
        costs.own.look_at(lifetimes, &asked);
        let leg = costs.own.leg;
        let faults = matches!(leg, Leg::Service | Leg::Total).then(|| Counter::faults(lifetimes));
        // A migration brings interrupts with it: it comes first.
        for mut counter in
            faults.into_iter().chain(Counter::migrations_and_interrupts(lifetimes, leg, &asked, &basis.everyone))
        {
            let deviation = costs.left(lifetimes, cohorts);
            if !matters(deviation) {
                break;
            }
            let Costs { own, moved, .. } = &costs;
            let own_time = OwnTime { lifetimes, options, own, cohorts, basis, moved, deviation, premises };
            if let Some(cost) = counted::cost(&own_time, &mut counter)
                && !(counter.category == Category::Paging && (premises.no_faults)())
            {
                for &id in asked.iter().filter(|&&id| counter.of(id) > 0) {
                    let moved = &mut costs.moved[id as usize];
                    *moved += cost.of(&counter, id, costs.own.ns(lifetimes, id) - *moved);
                }
                costs.kinds.push((counter, cost));
            }
        }
        costs
    }

    /// The kinds of events: what their rows are called.
    pub fn kinds(&self) -> impl Iterator<Item = &Counter> {
        self.kinds.iter().map(|(counter, _)| counter)
    }

    /// The deviation of own work that the costs leave, ns.
    fn left(&self, lifetimes: &Lifetimes, cohorts: (&Cohort, &Cohort)) -> f64 {
        let mean_of = |cohort, ns_of: &dyn Fn(u32) -> i64| mean(cohort, |id| ns_of(id) as f64);
        let excess = |each: &dyn Fn(u32) -> i64| mean_of(cohorts.0, each) - mean_of(cohorts.1, each);
        let moved = |id: u32| self.moved.get(id as usize).copied().unwrap_or(0);
        excess(&|id| self.own.ns(lifetimes, id)) - excess(&moved)
    }

    /// Visits what takes time from a message's own work: the kind (as in [`Costs::kinds`]), and the moves to the slot that `to` gives it.
    pub fn each(
        &self,
        lifetimes: &Lifetimes,
        id: u32,
        to: impl Fn(usize) -> Slot,
        mut visit: impl FnMut(usize, &[Move]),
    ) {
        let mut taken = 0;
        for (kind, (counter, cost)) in self.kinds.iter().enumerate() {
            let ns = cost.of(counter, id, self.own.ns(lifetimes, id) - taken);
            if ns > 0 {
                visit(kind, &self.own.moves(lifetimes, id, ns, taken, to(kind)));
                taken += ns;
            }
        }
    }

    /// Moves the costs to rows of their own, in both cohorts.
    fn apply(&self, lifetimes: &Lifetimes, profile: &mut Profile, cohorts: (&Cohort, &Cohort)) {
        let slots: Vec<Slot> = self.kinds().map(|counter| profile.derive(counter.row())).collect();
        for (in_focus, cohort) in [(true, cohorts.0), (false, cohorts.1)] {
            for &id in &cohort.ids {
                self.each(
                    lifetimes,
                    id,
                    |kind| slots[kind],
                    |kind, moves| {
                        profile.shift(in_focus, id, moves, u64::from(self.kinds[kind].0.of(id)));
                    },
                );
            }
        }
    }
}

fn mean(cohort: &Cohort, value_of: impl Fn(u32) -> f64) -> f64 {
    cohort.ids.iter().map(|&id| value_of(id)).sum::<f64>() / cohort.len().max(1) as f64
}

/// The side that own work is on.
const ROLE: Role = Role::A;
