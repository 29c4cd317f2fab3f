//! The nesting rule over generated trees of spans, up to 60 deep.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tailsight_diagnose::rows::nesting::{Leaf, split};
use tailsight_diagnose::{Options, RecordingFacts, diagnose};
use tailsight_lifetime::{Context, Frame};

use crate::common::{a, options, owner, r, receive};

const DEEPEST: usize = 60;

/// A tree as the paths of its spans: each goes on from a prefix of the one before it, so that branches share ancestors.
fn tree() -> impl Strategy<Value = Vec<Leaf>> {
    let step =
        (0..=DEEPEST, prop::collection::vec(0..4u8, 0..20), prop_oneof![-2_000..2_000i64, -9..9i64, 0..100_000i64]);
    prop::collection::vec(step, 1..60).prop_map(|steps| {
        let mut path: Vec<String> = vec![];
        let mut own: BTreeMap<Vec<String>, i128> = BTreeMap::new();
        for (keep, more, deviation) in steps {
            path.truncate(keep);
            path.extend(more.iter().map(|f| format!("f{f}")));
            path.truncate(DEEPEST);
            *own.entry(path.clone()).or_default() += i128::from(deviation);
        }
        own.into_iter().map(|(path, deviation)| Leaf { path, deviation }).collect()
    })
}

/// Chains that go straight down to the deepest level.
fn deep() -> impl Strategy<Value = Vec<Leaf>> {
    prop::collection::vec((0..3u8, 0..3_000i64), DEEPEST).prop_map(|levels| {
        let path = |n: usize| (0..n).map(|i| format!("f{}", levels[i].0)).collect::<Vec<_>>();
        let mut out: Vec<Leaf> =
            (0..levels.len()).map(|n| Leaf { path: path(n), deviation: i128::from(levels[n].1) / 50 }).collect();
        out.push(Leaf { path: path(DEEPEST), deviation: 100_000 });
        out
    })
}

/// The rule by its definition, leaf by leaf and without recursion: a leaf's row is the deepest frame on its path whose
/// ancestors are all replaced and that is an anomaly itself, as are all frames on the way to it.
fn by_definition(leaves: &[Leaf], nesting: f64, noise: i128) -> BTreeMap<Vec<String>, BTreeSet<usize>> {
    let mut whole: BTreeMap<&[String], i128> = BTreeMap::new();
    for leaf in leaves {
        (0..=leaf.path.len()).for_each(|n| *whole.entry(&leaf.path[..n]).or_default() += leaf.deviation);
    }
    let anomaly = |frame: &[String]| frame.is_empty() || whole[frame].abs() >= noise;
    let mut together: BTreeMap<&[String], i128> = BTreeMap::new();
    for (frame, deviation) in whole.iter().filter(|(frame, _)| !frame.is_empty() && anomaly(frame)) {
        *together.entry(&frame[..frame.len() - 1]).or_default() += deviation;
    }
    let replaced = |frame: &[String]| {
        let together = together.get(frame).copied().unwrap_or(0);
        whole[frame] != 0 && together as f64 / whole[frame] as f64 >= nesting
    };
    let mut rows: BTreeMap<Vec<String>, BTreeSet<usize>> = BTreeMap::new();
    for (i, leaf) in leaves.iter().enumerate() {
        let goes_on = |n: &usize| replaced(&leaf.path[..n - 1]) && anomaly(&leaf.path[..*n]);
        let deepest = (1..=leaf.path.len()).take_while(goes_on).last().unwrap_or(0);
        rows.entry(leaf.path[..deepest].to_vec()).or_default().insert(i);
    }
    rows
}

fn rows_of(leaves: &[Leaf], nesting: f64, noise: i128) -> BTreeMap<Vec<String>, BTreeSet<usize>> {
    let parts = split(leaves, nesting, noise);
    let n = parts.len();
    let rows: BTreeMap<_, _> = parts.into_iter().map(|p| (p.path, p.leaves.into_iter().collect())).collect();
    assert_eq!(rows.len(), n, "each frame has one row");
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Every leaf is in one row, the row is that of the definition, and the sums are exact.
    #[test]
    fn rows_are_those_of_the_definition(
        leaves in prop_oneof![3 => tree(), 1 => deep()],
        nesting in prop_oneof![Just(0.8), Just(1.0), 0.01..1.0f64],
        noise in prop_oneof![Just(300i128), Just(1i128)],
    ) {
        let rows = rows_of(&leaves, nesting, noise);
        let held_leaves: Vec<usize> = rows.values().flatten().copied().collect();
        prop_assert_eq!(held_leaves.len(), leaves.len());
        prop_assert_eq!(held_leaves.into_iter().collect::<BTreeSet<_>>().len(), leaves.len());
        for (path, held) in &rows {
            prop_assert!(held.iter().all(|&i| leaves[i].path.starts_with(path)));
        }
        prop_assert_eq!(rows, by_definition(&leaves, nesting, noise));
    }

    /// The order in which spans were met changes nothing.
    #[test]
    fn order_changes_nothing(leaves in tree(), seed in any::<u64>(), nesting in 0.01..1.0f64) {
        let mut order: Vec<usize> = (0..leaves.len()).collect();
        let mut rng = tailsight_diagnose::rows::bootstrap::SplitMix(seed);
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i + 1));
        }
        let shuffled: Vec<Leaf> = order.iter().map(|&i| leaves[i].clone()).collect();
        let back = |rows: BTreeMap<Vec<String>, BTreeSet<usize>>| -> BTreeMap<Vec<String>, BTreeSet<usize>> {
            rows.into_iter().map(|(path, held)| (path, held.into_iter().map(|i| order[i]).collect())).collect()
        };
        prop_assert_eq!(back(rows_of(&shuffled, nesting, 300)), rows_of(&leaves, nesting, 300));
    }

    /// Through the whole diagnosis: spans nested 60 deep in head-of-line blocking. The rows add up to the last ns, and each
    /// row's deviation is that of the leaves which the definition gives it.
    #[test]
    fn a_diagnosis_of_deep_spans_adds_up(leaves in prop_oneof![tree(), deep()], nesting in 0.3..1.0f64) {
        let leaves: Vec<Leaf> = leaves.into_iter().filter(|l| l.deviation > 0).collect();
        let mut owners = vec![owner(Context::Own, &[])];
        let symbol = |name: &String| Frame::Work { symbol: name[1..].parse::<u32>().expect("a number") + 1 };
        owners.extend(leaves.iter().map(|l| owner(Context::Ahead, &l.path.iter().map(symbol).collect::<Vec<_>>())));
        let parts = (0..2000u64).map(|i| {
            let mut parts = vec![r(0, 2_000 + i % 10)];
            if i % 50 == 0 {
                parts.extend(leaves.iter().enumerate().map(|(n, l)| a(n as u32 + 1, l.deviation as u64)));
            }
            parts
        });
        let mut lifetimes = receive(owners, parts.collect());
        lifetimes.symbols = ["", "f0", "f1", "f2", "f3"].map(str::to_owned).to_vec();
        let options = Options { focus: (0.98, 1.0), nesting, ..options() };
        let d = diagnose(&lifetimes, &options, &RecordingFacts::default()).unwrap();
        let total = d.focus.mean_ns as i64 - d.reference.mean_ns as i64;
        prop_assert_eq!(d.causes.iter().map(|c| c.deviation_ns).sum::<i64>(), total);
        let whole: i128 = leaves.iter().map(|l| l.deviation).sum();
        // A row of a few ns may be chance beside the own time's: it is listed with those.
        let rows = d.causes.iter().chain(&d.not_significant).filter(|c| c.category.as_str() == "hol-blocking");
        let by_name: BTreeMap<String, i64> = rows.map(|c| (c.name.clone(), c.deviation_ns)).collect();
        // Below the granularity a row may be no cause of its own.
        if whole >= 300 {
            prop_assert_eq!(by_name.values().sum::<i64>(), whole as i64);
            for (path, held) in by_definition(&leaves, nesting, 300) {
                let name = std::iter::once("memcached".to_owned()).chain(path.iter().map(|f| format!("work:{f}")));
                let sum: i128 = held.iter().map(|&i| leaves[i].deviation).sum();
                // Smaller rows join the largest of their group.
                if sum * 100 >= total.unsigned_abs() as i128 || sum >= 300 {
                    let at_least = by_name.get(&name.collect::<Vec<_>>().join("/")).copied();
                    prop_assert!(at_least.is_some_and(|ns| i128::from(ns) >= sum && i128::from(ns) < sum + 300 * leaves.len() as i128));
                }
            }
        }
    }
}
