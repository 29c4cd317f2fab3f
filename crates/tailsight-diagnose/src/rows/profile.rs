//! Mean profiles of two cohorts and their difference (docs/diagnosis.md; NSight §5.2 on means, so that rows add up).
//!
//! In: the ids of the focus and the reference messages. Out: for each *slot*, a (leg, role, owner) triple, the exact sums of both
//! cohorts in ns and counts, in flat vectors indexed by slot. After the slots of owners come those of [`Derived`] time: what
//! [`crate::estimate`] moves from one slot to another, message by message and to the ns, so that all sums stay the same.

use rustc_hash::FxHashMap;
use tailsight_lifetime::{LEGS, Leg, Lifetimes, Part, Role};

use crate::cause::{Category, Subject};
use crate::cohorts::Cohort;

/// Sums of one cohort in one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Nanoseconds; below 0 only if more was moved away than a class of messages had.
    pub ns: i64,
    /// How often it began.
    pub count: u64,
}

/// A row without an owner of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// Its category.
    pub category: Category,
    /// What it is.
    pub subject: Subject,
    /// Whose side.
    pub role: Role,
    /// Used in place of an owner path.
    pub path: String,
    /// Inferred, not measured.
    pub inferred: bool,
}

/// Nanoseconds of one message that count to another slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// From this slot.
    pub from: Slot,
    /// To this one.
    pub to: Slot,
    /// The time, ns.
    pub ns: i64,
}

/// Both cohorts' sums by slot.
#[derive(Clone, Debug)]
pub struct Profile {
    owners: usize,
    leg: Leg,
    /// Sums of the focus.
    pub focus: Vec<Sum>,
    /// Sums of the reference.
    pub reference: Vec<Sum>,
    /// Slots of which a message of either cohort has a part, even if all of its time was moved away.
    met: Vec<bool>,
    derived: Vec<Derived>,
    moves: FxHashMap<u32, Vec<Move>>,
}

/// Index of a (leg, role, owner), or of derived time.
pub type Slot = usize;

/// Whose time a slot holds.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The time of an owner (index) in a leg and role.
    Owner(Leg, Role, usize),
    /// Derived time.
    Derived(&'a Derived),
}

/// The slot of a part met in the leg `LEGS[segment]`.
pub fn slot(owners: usize, segment: usize, part: &Part) -> Slot {
    slot_of(owners, segment, part.role, part.owner)
}

/// The slot of an owner met in the leg `LEGS[segment]`.
pub fn slot_of(owners: usize, segment: usize, role: Role, owner: u32) -> Slot {
    (segment * 2 + usize::from(role == Role::A)) * owners + owner as usize
}

/// Leg, role and owner (index) of an owner's slot.
pub fn owner_of(owners: usize, slot: Slot) -> (Leg, Role, usize) {
    let (rest, owner) = (slot / owners, slot % owners);
    (LEGS[rest / 2], if rest % 2 == 1 { Role::A } else { Role::R }, owner)
}

impl Profile {
    /// Sums up the two cohorts over the leg.
    pub fn new(lifetimes: &Lifetimes, leg: Leg, focus: &Cohort, reference: &Cohort) -> Profile {
        let owners = lifetimes.owners.len();
        let mut met = vec![false; LEGS.len() * 2 * owners];
        let mut sums = |cohort: &Cohort| {
            let mut out = vec![Sum::default(); LEGS.len() * 2 * owners];
            for &id in &cohort.ids {
                each_part(lifetimes, id, leg, |segment, part| {
                    let slot = slot(owners, segment, part);
                    met[slot] = true;
                    let sum = &mut out[slot];
                    sum.ns += part.ns as i64;
                    sum.count += u64::from(part.count);
                });
            }
            out
        };
        let (focus, reference) = (sums(focus), sums(reference));
        Profile { owners, leg, focus, reference, met, derived: vec![], moves: FxHashMap::default() }
    }

    /// Slots in use by either cohort.
    pub fn occupied(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..self.met.len()).filter(|&slot| self.met[slot])
    }

    /// Whose time a slot holds.
    pub fn source(&self, slot: Slot) -> Source<'_> {
        if let Some(derived) = slot.checked_sub(LEGS.len() * 2 * self.owners) {
            return Source::Derived(&self.derived[derived]);
        }
        let (leg, role, owner) = owner_of(self.owners, slot);
        Source::Owner(leg, role, owner)
    }

    /// The owner of a slot, by index.
    pub fn owner_of(&self, slot: Slot) -> Option<usize> {
        match self.source(slot) {
            Source::Owner(_, _, owner) => Some(owner),
            Source::Derived(_) => None,
        }
    }

    /// A new slot for derived time.
    pub fn derive(&mut self, derived: Derived) -> Slot {
        self.derived.push(derived);
        self.focus.push(Sum::default());
        self.reference.push(Sum::default());
        self.met.push(false);
        self.focus.len() - 1
    }

    /// Moves time of one message of a cohort. `count`: how often what it is moved to happened.
    pub fn shift(&mut self, in_focus: bool, id: u32, moves: &[Move], count: u64) {
        let sums = if in_focus { &mut self.focus } else { &mut self.reference };
        for m in moves {
            sums[m.from].ns -= m.ns;
            sums[m.to].ns += m.ns;
            self.met[m.to] = true;
        }
        if let Some(m) = moves.first() {
            sums[m.to].count += count;
        }
        self.moves.entry(id).or_default().extend_from_slice(moves);
    }

    /// Visits the time of a message by slot, after moves.
    pub fn each(&self, lifetimes: &Lifetimes, id: u32, mut visit: impl FnMut(Slot, i64)) {
        each_part(lifetimes, id, self.leg, |segment, part| visit(slot(self.owners, segment, part), part.ns as i64));
        for m in self.moves.get(&id).into_iter().flatten() {
            visit(m.from, -m.ns);
            visit(m.to, m.ns);
        }
    }
}

/// Visits the parts of a message's leg, each with the index of its leg in [`LEGS`].
pub fn each_part(lifetimes: &Lifetimes, id: u32, leg: Leg, mut visit: impl FnMut(usize, &Part)) {
    for (segment, &single) in LEGS.iter().enumerate() {
        if leg == single || leg == Leg::Total {
            for part in lifetimes.part_slice(id, single) {
                visit(segment, part);
            }
        }
    }
}
