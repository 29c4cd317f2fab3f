//! Slots to rows: grouping by (category, name, role), the nesting rule, folding of small rows, exact rounding.
//!
//! In: the [`Profile`] of both cohorts and what each owner counts to. Out: [`Rows`], largest part of the deviation first,
//! `unexplained` last. Deviations are exact rationals with one denominator (focus messages x reference messages), so that the
//! rows add up to the last bit.

pub mod attribution;
pub mod bootstrap;
pub mod classification;
pub mod nesting;
pub mod profile;
pub mod who;

use rustc_hash::FxHashMap;
use tailsight_lifetime::{Lifetimes, NamedFrame, Role, Threshold};

use crate::Options;
use crate::categories::{refining, shown_frame, unexplained};
use crate::cause::{Category, Subject, names};
use crate::cohorts::Cohort;
use classification::Classification;
use profile::{Profile, Slot, Source};

/// No row.
const NONE: u32 = u32::MAX;

/// One row, as data.
#[derive(Clone, Debug)]
pub struct Row {
    /// It holds time that was estimated.
    pub inferred: bool,
    /// Its category.
    pub category: Category,
    /// Who or what had the time.
    pub subject: Subject,
    /// The frames that the nesting rule added.
    pub frames: Vec<NamedFrame>,
    /// The name of both.
    pub name: String,
    /// Whose side.
    pub role: Role,
    /// Its deviation times [`Rows::denominator`], ns.
    pub scaled: i128,
    /// Its slots.
    pub slots: Vec<Slot>,
    /// Rows that the nesting rule made of one group have the same number.
    group: usize,
}

/// All rows.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Largest part of the deviation first, `unexplained` last.
    pub rows: Vec<Row>,
    /// The row of each slot, when it was met.
    row_of: Vec<u32>,
    /// What [`Row::scaled`] is a multiple of.
    pub denominator: i128,
    /// The total deviation times the denominator.
    pub total: i128,
    /// Messages of the focus and of the reference.
    pub cohorts: (f64, f64),
}

/// A slot with its deviation and the frame from which its name may be refined.
struct Leaf {
    slot: Slot,
    scaled: i128,
    nested_from: usize,
}

/// The slots of one (category, name, role).
struct Group {
    subject: Subject,
    leaves: Vec<Leaf>,
}

/// What a group is keyed by.
type Key = (Category, String, Role);

impl Rows {
    /// Groups what both cohorts met. `profile` must be that of the same cohorts.
    pub fn new(
        lifetimes: &Lifetimes,
        classification: &Classification<'_>,
        profile: &Profile,
        (focus, reference): (&Cohort, &Cohort),
        options: &Options,
    ) -> Rows {
        let (nf, nr) = (focus.len() as i128, reference.len() as i128);
        let denominator = nf * nr;
        let total = focus.sum_ns as i128 * nr - reference.sum_ns as i128 * nf;
        let noise = i128::from(options.granularity_ns) * denominator;

        let (mut rows, mut unowned) = (vec![], vec![]);
        for (group, ((category, name, role), group_sums)) in
            groups(classification, profile, (nf, nr)).into_iter().enumerate()
        {
            if category == Category::Unexplained {
                unowned.extend(group_sums.leaves.iter().map(|leaf| leaf.slot));
            } else {
                let row = Row {
                    inferred: false,
                    category,
                    subject: group_sums.subject,
                    frames: vec![],
                    name,
                    role,
                    scaled: 0,
                    slots: vec![],
                    group,
                };
                rows.extend(split(lifetimes, profile, &row, &group_sums.leaves, options.nesting, noise));
            }
        }
        let unexplained = Row {
            inferred: false,
            category: Category::Unexplained,
            subject: unexplained(),
            frames: vec![],
            name: names::base(&unexplained()),
            role: Role::A,
            // Latency that the parts do not cover (none, if the partition is exact) has no owner either.
            scaled: total - rows.iter().map(|r| r.scaled).sum::<i128>(),
            slots: unowned,
            group: usize::MAX,
        };
        let rows = in_order(rows, total, noise, unexplained);
        let row_of = rows_of(&rows, profile.focus.len());
        Rows { rows, row_of, denominator, total, cohorts: (nf as f64, nr as f64) }
    }

    /// The same with each of some rows added to another one: pairs (row, the one that it is added to), of which no row is in both places.
    pub fn joined(&self, pairs: &[(usize, usize)]) -> Rows {
        let mut rows = self.rows.clone();
        for &(from, to) in pairs {
            let slots = std::mem::take(&mut rows[from].slots);
            rows[to].slots.extend(slots);
            rows[to].scaled += self.rows[from].scaled;
            rows[to].inferred |= self.rows[from].inferred;
        }
        let unexplained = rows.pop().expect("there is always the last");
        let kept = rows.into_iter().enumerate().filter(|(i, _)| pairs.iter().all(|(from, _)| from != i));
        let rows = sorted(kept.map(|(_, row)| row).collect(), self.total, unexplained);
        Rows { row_of: rows_of(&rows, self.row_of.len()), rows, ..*self }
    }

    /// The row of a slot that one of the cohorts met.
    pub fn row_of(&self, slot: Slot) -> usize {
        self.row_of[slot] as usize
    }

    /// The row of any slot; `None` when neither cohort met it.
    pub fn find_row(&self, slot: Slot) -> Option<usize> {
        self.row_of.get(slot).filter(|&&row| row != NONE).map(|&row| row as usize)
    }

    /// The deviation of each row in whole ns: they sum to `total_ns` exactly, and none is off by 1 ns or more.
    pub fn rounded(&self, total_ns: i64) -> Vec<i64> {
        let scaled: Vec<i128> = self.rows.iter().map(|r| r.scaled).collect();
        round_to(&scaled, self.denominator, total_ns)
    }

    /// The part of a row's time in the focus of which it is guessed whose it is; none below [`Threshold::GuessedPart`].
    pub fn guessed(&self, lifetimes: &Lifetimes, profile: &Profile, row: usize) -> Option<f64> {
        let is_guessed = |slot: Slot| profile.owner_of(slot).is_some_and(|owner| lifetimes.owners[owner].is_guessed());
        let ns = |slot: &Slot| profile.focus[*slot].ns as f64;
        let slots = &self.rows[row].slots;
        let guessed_ns: f64 = slots.iter().filter(|&&slot| is_guessed(slot)).map(ns).sum();
        part_guessed(guessed_ns, slots.iter().map(ns).sum())
    }

    /// A row's part of the total deviation; 0 when there is no deviation.
    pub fn share(&self, row: usize) -> f64 {
        if self.total == 0 { 0.0 } else { self.rows[row].scaled as f64 / self.total as f64 }
    }
}

/// What part of a row is guessed, if it is worth a word.
pub(crate) fn part_guessed(guessed_ns: f64, all_ns: f64) -> Option<f64> {
    let part = guessed_ns / all_ns.max(1.0);
    (part >= Threshold::GuessedPart.share()).then(|| part.min(1.0))
}

/// The slots that were met, by category, name and role.
fn groups(classification: &Classification<'_>, profile: &Profile, (nf, nr): (i128, i128)) -> FxHashMap<Key, Group> {
    let mut groups: FxHashMap<Key, Group> = FxHashMap::default();
    for slot in profile.occupied() {
        let (key, subject, nested_from) = match profile.source(slot) {
            Source::Derived(d) => ((d.category, names::base(&d.subject), d.role), &d.subject, 0),
            Source::Owner(_, role, _) => {
                let verdict = classification.of(slot);
                // All time without an owner is one row.
                let key = match verdict.category {
                    Category::Unexplained => (Category::Unexplained, String::new(), Role::A),
                    category => (category, verdict.name.clone(), role),
                };
                (key, &verdict.subject, verdict.nested_from)
            }
        };
        let scaled = i128::from(profile.focus[slot].ns) * nr - i128::from(profile.reference[slot].ns) * nf;
        let group = groups.entry(key).or_insert_with(|| Group { subject: subject.clone(), leaves: vec![] });
        group.leaves.push(Leaf { slot, scaled, nested_from });
    }
    groups
}

/// The rows that the nesting rule makes of a group, each like `row` except for its frames.
fn split(lifetimes: &Lifetimes, profile: &Profile, row: &Row, leaves: &[Leaf], nesting: f64, noise: i128) -> Vec<Row> {
    let whole: i128 = leaves.iter().map(|l| l.scaled).sum();
    let parts = if whole.abs() >= noise {
        nested(lifetimes, profile, &row.name, leaves, nesting, noise)
    } else {
        vec![(vec![], (0..leaves.len()).collect())]
    };
    let row_of = |(frames, part): (Vec<NamedFrame>, Vec<usize>)| {
        let slots: Vec<Slot> = part.iter().map(|&i| leaves[i].slot).collect();
        Row {
            inferred: slots.iter().any(|&s| matches!(profile.source(s), Source::Derived(d) if d.inferred)),
            name: names::full(&row.name, &frames),
            frames,
            scaled: part.iter().map(|&i| leaves[i].scaled).sum(),
            slots,
            ..row.clone()
        }
    };
    parts.into_iter().map(row_of).collect()
}

/// The rows without small ones, the largest part of the total first: of a negative total (a focus below its reference), the
/// most negative. `unexplained` last.
fn in_order(rows: Vec<Row>, total: i128, noise: i128, unexplained: Row) -> Vec<Row> {
    sorted(fold(rows, |r| r.scaled.abs() < noise && r.scaled.abs() * 100 < total.abs()), total, unexplained)
}

/// The row of each of so many slots.
fn rows_of(rows: &[Row], slots: usize) -> Vec<u32> {
    let mut row_of = vec![NONE; slots];
    for (i, row) in (0..).zip(rows) {
        row.slots.iter().for_each(|&slot| row_of[slot] = i);
    }
    row_of
}

fn sorted(mut rows: Vec<Row>, total: i128, unexplained: Row) -> Vec<Row> {
    let part = |r: &Row| if total < 0 { r.scaled } else { -r.scaled };
    rows.sort_by(|a, b| (part(a), a.category, &a.name, a.role).cmp(&(part(b), b.category, &b.name, b.role)));
    rows.push(unexplained);
    rows.iter_mut().for_each(|row| row.slots.sort_unstable());
    rows
}

/// The rows that the nesting rule makes of a group: frames with the indices of their leaves. A frame with the name of the
/// group adds nothing.
fn nested(
    lifetimes: &Lifetimes,
    profile: &Profile,
    base: &str,
    leaves: &[Leaf],
    nesting: f64,
    noise: i128,
) -> Vec<(Vec<NamedFrame>, Vec<usize>)> {
    let inside = |leaf: &Leaf| -> Vec<NamedFrame> {
        let owner = profile.owner_of(leaf.slot).map(|owner| &lifetimes.owners[owner]);
        let inside = owner.map_or_else(Vec::new, |owner| refining(owner, leaf.nested_from));
        inside.iter().map(|f| shown_frame(&f.named(&lifetimes.symbols))).filter(|f| f.to_string() != base).collect()
    };
    let frames: Vec<Vec<NamedFrame>> = leaves.iter().map(inside).collect();
    let path = |frames: &Vec<NamedFrame>| frames.iter().map(NamedFrame::to_string).collect();
    let tree: Vec<nesting::Leaf> = (frames.iter().zip(leaves))
        .map(|(frames, leaf)| nesting::Leaf { path: path(frames), deviation: leaf.scaled })
        .collect();
    let parts = nesting::split(&tree, nesting, noise);
    let named_part = |part: nesting::Part| {
        let named =
            part.leaves.first().map_or_else(Vec::new, |&i| frames[i][..part.path.len().min(frames[i].len())].to_vec());
        (named, part.leaves)
    };
    parts.into_iter().map(named_part).collect()
}

/// Adds each small row to the largest other row of its group, else of its category and role; one that has none stays.
fn fold(rows: Vec<Row>, small: impl Fn(&Row) -> bool) -> Vec<Row> {
    let (little, mut kept): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(small);
    // The targets are chosen before any row grows, so that the order of folding does not matter.
    let size = |r: &Row| (r.scaled.abs(), std::cmp::Reverse(r.name.clone()));
    let mut by_group: FxHashMap<usize, usize> = FxHashMap::default();
    let mut by_category: FxHashMap<(Category, Role), usize> = FxHashMap::default();
    for (i, row) in kept.iter().enumerate() {
        for best in [by_group.entry(row.group).or_insert(i), by_category.entry((row.category, row.role)).or_insert(i)] {
            if size(row) > size(&kept[*best]) {
                *best = i;
            }
        }
    }
    for row in little {
        match by_group.get(&row.group).or_else(|| by_category.get(&(row.category, row.role))) {
            Some(&i) => {
                kept[i].scaled += row.scaled;
                kept[i].inferred |= row.inferred;
                kept[i].slots.extend(row.slots);
            }
            None => kept.push(row),
        }
    }
    kept
}

/// Rounds rationals so that they sum to `total`: down, then up where the fraction is largest. A 0 in last place stays 0.
pub(crate) fn round_to(scaled: &[i128], denominator: i128, total: i64) -> Vec<i64> {
    let mut out: Vec<i64> = scaled.iter().map(|s| s.div_euclid(denominator) as i64).collect();
    let mut order: Vec<usize> = (0..scaled.len()).collect();
    if scaled.len() > 1 && scaled.last() == Some(&0) {
        order.pop();
    }
    order.sort_by_key(|&i| (std::cmp::Reverse(scaled[i].rem_euclid(denominator)), i));
    let missing = total - out.iter().sum::<i64>();
    let step = missing.signum();
    let places: Box<dyn Iterator<Item = &usize>> =
        if step < 0 { Box::new(order.iter().rev().cycle()) } else { Box::new(order.iter().cycle()) };
    places.take(missing.unsigned_abs() as usize).for_each(|&i| out[i] += step);
    out
}

#[cfg(test)]
mod tests {
    use super::round_to;

    #[test]
    fn rounding_keeps_the_total() {
        // 1/3 + 1/3 + 1/3 = 1; 10/3 - 7/3 + 0 = 1.
        assert_eq!(round_to(&[1, 1, 1], 3, 1), [1, 0, 0]);
        assert_eq!(round_to(&[10, -7, 0], 3, 1), [3, -2, 0]);
        // The total rounded down or up by itself still comes out.
        assert_eq!(round_to(&[5, 5, 0], 3, 4), [2, 2, 0]);
        assert_eq!(round_to(&[6, -3, 0], 3, 0).iter().sum::<i64>(), 0);
        assert_eq!(round_to(&[0], 3, 0), [0]);
    }
}
