//! Slots to rows: grouping by (category, name, role), the nesting rule, folding of small rows, exact rounding.
//!
//! In: the [`Profile`] of both cohorts. Out: [`Rows`], largest part of the deviation first, `unexplained` last. Deviations are
//! exact rationals with one denominator (focus messages x reference messages), so that the rows add up to the last bit.

use rustc_hash::FxHashMap;
use tailsight_lifetime::{Lifetimes, Role};

use crate::nesting;
use crate::profile::{Cohort, Profile, Slot, Stands};
use crate::rules::UNEXPLAINED;
use crate::{Options, who};

/// No row.
const NONE: u32 = u32::MAX;

/// One row before words.
#[derive(Clone, Debug)]
pub struct Row {
    /// It holds time that was inferred.
    pub inferred: bool,
    /// Category id.
    pub category: &'static str,
    /// The task, function or flow that did it.
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

impl Rows {
    /// Groups what both cohorts met. `profile` must be that of the same cohorts.
    pub fn new(
        lifetimes: &Lifetimes,
        profile: &Profile,
        focus: &Cohort,
        reference: &Cohort,
        options: &Options,
    ) -> Rows {
        let (nf, nr) = (focus.len() as i128, reference.len() as i128);
        let denominator = nf * nr;
        let total = focus.sum_ns as i128 * nr - reference.sum_ns as i128 * nf;

        let known = who::Known::new(lifetimes);

        let mut groups: FxHashMap<(&'static str, String, Role), Vec<Leaf>> = FxHashMap::default();
        for slot in profile.met() {
            let (key, nested_from) = match profile.stands_for(slot) {
                Stands::Derived(d) => ((d.category, d.name.clone(), d.role), 0),
                Stands::Owner(leg, role, owner) => {
                    let (table, known) = (&options.categories, known.of(owner));
                    let owner = &lifetimes.owners[owner];
                    let verdict = table.classify_as(owner, &known, leg, role, &lifetimes.app, &lifetimes.symbols);
                    let key = match verdict.category {
                        UNEXPLAINED => (UNEXPLAINED, UNEXPLAINED.to_owned(), Role::A),
                        category => (category, verdict.name, role),
                    };
                    (key, verdict.nested_from)
                }
            };
            let scaled = i128::from(profile.focus[slot].ns) * nr - i128::from(profile.reference[slot].ns) * nf;
            groups.entry(key).or_default().push(Leaf { slot, scaled, nested_from });
        }

        let noise = i128::from(options.granularity_ns) * denominator;
        let mut unexplained = Row {
            inferred: false,
            category: UNEXPLAINED,
            name: UNEXPLAINED.into(),
            role: Role::A,
            scaled: 0,
            slots: vec![],
            group: 0,
        };
        let mut rows = Vec::with_capacity(groups.len() + 1);
        for (group, ((category, base, role), leaves)) in groups.into_iter().enumerate() {
            let whole: i128 = leaves.iter().map(|l| l.scaled).sum();
            let parts = if category != UNEXPLAINED && whole.abs() >= noise {
                nested(lifetimes, profile, &base, &leaves, options.nesting, noise)
            } else {
                vec![(base, (0..leaves.len()).collect())]
            };
            for (name, part) in parts {
                let slots: Vec<Slot> = part.iter().map(|&i| leaves[i].slot).collect();
                let scaled = part.iter().map(|&i| leaves[i].scaled).sum();
                let inferred = slots.iter().any(|&s| matches!(profile.stands_for(s), Stands::Derived(d) if d.inferred));
                let row = Row { inferred, category, name, role, scaled, slots, group };
                if category == UNEXPLAINED { unexplained = row } else { rows.push(row) }
            }
        }
        // What the parts leave out of the latency (nothing, when the partition is exact) has no owner either.
        unexplained.scaled = total - rows.iter().map(|r| r.scaled).sum::<i128>();

        let mut rows = fold(rows, |r| r.scaled.abs() < noise && r.scaled.abs() * 100 < total.abs());
        // The largest part of the total first: of a negative total (a focus below its reference), the most negative.
        let part = |r: &Row| if total < 0 { r.scaled } else { -r.scaled };
        rows.sort_by(|a, b| (part(a), a.category, &a.name, a.role).cmp(&(part(b), b.category, &b.name, b.role)));
        rows.push(unexplained);

        let mut row_of = vec![NONE; profile.focus.len()];
        for (i, row) in rows.iter_mut().enumerate() {
            row.slots.sort_unstable();
            row.slots.iter().for_each(|&s| row_of[s] = i as u32);
        }
        Rows { rows, row_of, denominator, total, cohorts: (nf as f64, nr as f64) }
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

    /// A row's part of the total deviation; 0 when there is no deviation.
    pub fn share(&self, row: usize) -> f64 {
        if self.total == 0 { 0.0 } else { self.rows[row].scaled as f64 / self.total as f64 }
    }
}

/// The rows that the nesting rule makes of a group: names with the indices of their leaves. A frame that is called as the
/// group is adds nothing.
fn nested(
    lifetimes: &Lifetimes,
    profile: &Profile,
    base: &str,
    leaves: &[Leaf],
    nesting: f64,
    noise: i128,
) -> Vec<(String, Vec<usize>)> {
    let path = |leaf: &Leaf| -> Vec<String> {
        let frames = profile.owner_of(leaf.slot).map(|owner| lifetimes.owners[owner].frames.as_slice());
        let inside = frames.and_then(|f| f.get(leaf.nested_from..)).unwrap_or_default();
        inside.iter().map(|f| f.name(&lifetimes.symbols)).filter(|frame| frame != base).collect()
    };
    let tree: Vec<nesting::Leaf> =
        leaves.iter().map(|leaf| nesting::Leaf { path: path(leaf), deviation: leaf.scaled }).collect();
    let parts = nesting::split(&tree, nesting, noise);
    let name = |path: Vec<String>| std::iter::once(base.to_owned()).chain(path).collect::<Vec<_>>().join("/");
    parts.into_iter().map(|part| (name(part.path), part.leaves)).collect()
}

/// Adds each small row to the largest other row of its group, else of its category and role; one that has none stays.
fn fold(rows: Vec<Row>, small: impl Fn(&Row) -> bool) -> Vec<Row> {
    let (little, mut kept): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(small);
    // The targets are chosen before any row grows, so that the order of folding does not matter.
    let size = |r: &Row| (r.scaled.abs(), std::cmp::Reverse(r.name.clone()));
    let mut by_group: FxHashMap<usize, usize> = FxHashMap::default();
    let mut by_category: FxHashMap<(&'static str, Role), usize> = FxHashMap::default();
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
