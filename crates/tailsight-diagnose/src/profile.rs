//! Mean profiles of two cohorts and their difference (DESIGN: deviation; NSight §5.2 on means, so that rows add up).
//!
//! In: the ids of the focus and the reference messages. Out: for each *slot*, a (leg, role, owner) triple, the exact sums of
//! both cohorts in ns and counts. Flat vectors indexed by slot: no hashing on the way.

use tailsight_lifetime::{LEGS, Leg, Lifetimes, Part, Role};

/// Messages of one slice.
#[derive(Clone, Debug)]
pub struct Cohort {
    /// Their ids, in order of arrival.
    pub ids: Vec<u32>,
    /// Sum of their latencies, ns.
    pub sum_ns: u128,
}

impl Cohort {
    /// From ranks of the messages sorted by (latency, id).
    pub fn of(ranked: &[(u64, u32)]) -> Cohort {
        let mut ids: Vec<u32> = ranked.iter().map(|&(_, id)| id).collect();
        ids.sort_unstable();
        Cohort { ids, sum_ns: ranked.iter().map(|&(ns, _)| u128::from(ns)).sum() }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Their mean latency, ns, rounded.
    pub fn mean_ns(&self) -> u64 {
        crate::focus::mean(self.sum_ns, self.ids.len() as u64)
    }
}

/// Sums of one cohort in one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Nanoseconds.
    pub ns: u64,
    /// How often it began.
    pub count: u64,
}

/// Both cohorts' sums by slot.
#[derive(Clone, Debug)]
pub struct Profile {
    owners: usize,
    /// Sums of the focus.
    pub focus: Vec<Sum>,
    /// Sums of the reference.
    pub reference: Vec<Sum>,
}

/// Index of a (leg, role, owner).
pub type Slot = usize;

/// The slot of a part met in the leg `LEGS[segment]`.
pub fn slot(owners: usize, segment: usize, part: &Part) -> Slot {
    (segment * 2 + usize::from(part.role == Role::A)) * owners + part.owner as usize
}

impl Profile {
    /// Sums up the two cohorts over the leg.
    pub fn new(lifetimes: &Lifetimes, leg: Leg, focus: &Cohort, reference: &Cohort) -> Profile {
        let owners = lifetimes.owners.len();
        let sums = |cohort: &Cohort| {
            let mut out = vec![Sum::default(); LEGS.len() * 2 * owners];
            for &id in &cohort.ids {
                each_part(lifetimes, id, leg, |segment, part| {
                    let sum = &mut out[slot(owners, segment, part)];
                    sum.ns += part.ns;
                    sum.count += u64::from(part.count);
                });
            }
            out
        };
        Profile { owners, focus: sums(focus), reference: sums(reference) }
    }

    /// Slots that either cohort met.
    pub fn met(&self) -> impl Iterator<Item = Slot> + '_ {
        let some = |s: &Sum| s.ns != 0 || s.count != 0;
        (0..self.focus.len()).filter(move |&s| some(&self.focus[s]) || some(&self.reference[s]))
    }

    /// Leg, role and owner of a slot.
    pub fn parts_of(&self, slot: Slot) -> (Leg, Role, usize) {
        let (rest, owner) = (slot / self.owners, slot % self.owners);
        (LEGS[rest / 2], if rest % 2 == 1 { Role::A } else { Role::R }, owner)
    }
}

/// Visits the parts of a message's leg, each with the index of its leg in [`LEGS`].
pub fn each_part(lifetimes: &Lifetimes, id: u32, leg: Leg, mut visit: impl FnMut(usize, &Part)) {
    for (segment, &one) in LEGS.iter().enumerate() {
        if leg == one || leg == Leg::Total {
            for part in lifetimes.part_slice(id, one) {
                visit(segment, part);
            }
        }
    }
}
