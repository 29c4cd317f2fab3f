//! Anomalies inside an anomaly: which frames of a group's call tree become rows (NSight §4.2, §5.2).
//!
//! In: the leaves of one group, each a path of nested frames (outermost first) with its deviation, in any one unit. Out: a partition of
//! the leaves into [`Part`]s, each named by the path of a frame. A leaf is the own time of its innermost frame, so a frame's deviation
//! is exactly the sum of the leaves at and below it.
//!
//! The rule, level by level and to any depth: the frames directly inside a frame that deviate by the granularity or more are its
//! anomalies. If *together* they explain at least the fraction `nesting` of its deviation, they replace it, and each is examined in
//! turn; the rest (the frame's own time, and nested time that does not deviate) stays as a row of the frame. If not, the frame stays,
//! with everything in it.

use std::collections::BTreeMap;

/// The time of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The frames, outermost first; empty for the group's own time.
    pub path: Vec<String>,
    /// Its deviation.
    pub deviation: i128,
}

/// Leaves that make one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The frame, as the path to it; empty for the group itself.
    pub path: Vec<String>,
    /// Indices of the leaves, in order.
    pub leaves: Vec<usize>,
}

/// Splits a group. Deviations below `noise` are ignored. The parts are in the order of their paths and contain every leaf once.
pub fn split(leaves: &[Leaf], nesting: f64, noise: i128) -> Vec<Part> {
    let mut out = vec![];
    let mut open = vec![(0, (0..leaves.len()).collect::<Vec<usize>>())];
    while let Some((depth, inside)) = open.pop() {
        let sum = |leaves_inside: &[usize]| leaves_inside.iter().map(|&i| leaves[i].deviation).sum::<i128>();
        let mut children: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for &i in &inside {
            if let Some(frame) = leaves[i].path.get(depth) {
                children.entry(frame).or_default().push(i);
            }
        }
        let anomalies: Vec<Vec<usize>> =
            children.into_values().filter(|child| sum(child).abs() >= noise.max(1)).collect();
        let explained: i128 = anomalies.iter().map(|child| sum(child)).sum();
        let mut rest = inside;
        if explains(explained, sum(&rest), nesting) {
            rest.retain(|i| !anomalies.iter().any(|child| child.binary_search(i).is_ok()));
            open.extend(anomalies.iter().map(|child| (depth + 1, child.clone())));
            if rest.is_empty() {
                continue;
            }
            // The rest belongs to the frame itself, which is in the path of each anomaly: the first one is used.
            let path = anomalies[0].first().map_or_else(Vec::new, |&i| leaves[i].path[..depth].to_vec());
            out.push(Part { path, leaves: rest });
        } else {
            let path = rest.first().map_or_else(Vec::new, |&i| leaves[i].path[..depth].to_vec());
            out.push(Part { path, leaves: rest });
        }
    }
    out.sort_by(|a, b| a.path.cmp(&b.path));
    out
}

/// Whether a part of a deviation, in its direction, is at least this fraction of it. Never for a deviation of 0.
fn explains(part: i128, whole: i128, nesting: f64) -> bool {
    whole != 0 && part as f64 / whole as f64 >= nesting
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(path: &str, deviation: i128) -> Leaf {
        Leaf { path: path.split('/').filter(|f| !f.is_empty()).map(str::to_owned).collect(), deviation }
    }

    fn rows(leaves: &[Leaf], nesting: f64) -> Vec<(String, i128)> {
        let sum = |p: &Part| p.leaves.iter().map(|&i| leaves[i].deviation).sum();
        split(leaves, nesting, 10).iter().map(|p| (p.path.join("/"), sum(p))).collect()
    }

    fn named(rows: &[(&str, i128)]) -> Vec<(String, i128)> {
        rows.iter().map(|(path, ns)| ((*path).to_owned(), *ns)).collect()
    }

    /// A parent of 1000 with a child of 900 (the paper's example), and with 700, which explain too little.
    #[test]
    fn a_child_that_explains_enough_replaces_its_parent() {
        assert_eq!(rows(&[leaf("", 100), leaf("a", 900)], 0.8), named(&[("", 100), ("a", 900)]));
        assert_eq!(rows(&[leaf("", 300), leaf("a", 700)], 0.8), named(&[("", 1000)]));
    }

    /// No child alone had 80 %, and the parent stayed: three of them together have 90 %.
    #[test]
    fn children_explain_together() {
        let leaves = [leaf("", 100), leaf("a", 300), leaf("b", 300), leaf("c", 300)];
        assert_eq!(rows(&leaves, 0.8), named(&[("", 100), ("a", 300), ("b", 300), ("c", 300)]));
        assert_eq!(rows(&leaves, 0.95), named(&[("", 1000)]));
    }

    /// Level by level: a stays since a/b explains half of it, c goes on to c/d/e.
    #[test]
    fn levels_are_decided_one_by_one() {
        let leaves = [leaf("a", 200), leaf("a/b", 200), leaf("c/d/e", 390), leaf("c/d", 10), leaf("c", 5)];
        assert_eq!(rows(&leaves, 0.8), named(&[("a", 400), ("c", 5), ("c/d", 10), ("c/d/e", 390)]));
    }

    /// What deviates by less than the granularity is no anomaly: it stays in the parent's row.
    #[test]
    fn small_children_stay_with_their_parent() {
        assert_eq!(rows(&[leaf("a", 95), leaf("b", 9), leaf("", 1)], 0.8), named(&[("", 10), ("a", 95)]));
    }

    /// Of two anomalies in opposite directions only the sum explains.
    #[test]
    fn anomalies_in_both_directions() {
        let leaves = [leaf("a", 500), leaf("b", -410), leaf("", 10)];
        assert_eq!(rows(&leaves, 0.8), named(&[("", 10), ("a", 500), ("b", -410)]));
        assert_eq!(rows(&[leaf("a", 500), leaf("b", -450), leaf("", 50)], 0.8), named(&[("", 100)]));
        // A negative group in the same way.
        assert_eq!(rows(&[leaf("a", -90), leaf("", -10)], 0.8), named(&[("", -10), ("a", -90)]));
    }
}
