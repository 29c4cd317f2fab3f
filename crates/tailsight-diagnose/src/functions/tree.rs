//! The call tree of a row: where in it the focus spent more than the reference.
//!
//! In: call stacks with the number of samples of each cohort, and the ns of a message that a sample stands for. Out: [`Tree`], and the
//! functions that the nesting rule selects ([`Tree::split`]).
//!
//! The rule is NSight's (§5.2), applied to calls: from the outermost function inwards, callees that deviate replace their caller if
//! together they explain at least the fraction `nesting` of it. It stops at a function that the reference never has, although it had
//! enough samples to contain it: that function is named, not what it calls. What a runtime does on its own account (a collection of
//! garbage) is taken out of its callers first, and is always named apart: of an interpreter every function is a callee of one loop.

use std::collections::BTreeMap;

use tailsight_lifetime::Threshold;

/// A function in a call path.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The frame, by number; none of the root.
    pub frame: Option<u32>,
    /// Its caller.
    pub parent: usize,
    /// Weights of the samples in it or in what it called: focus, reference.
    pub samples: [u64; 2],
    callees: BTreeMap<u32, usize>,
}

/// All of a row's call paths.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
}

/// What a sample stands for: the ns of a mean message of each cohort.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Mean ns of the row in a message: focus, reference.
    pub mean_ns: [f64; 2],
    /// Weights of the samples of the row: focus, reference.
    pub samples: [f64; 2],
    /// How many samples of the reference these are.
    pub of_reference: f64,
}

impl Scale {
    /// The deviation that so many samples stand for, ns. A reference without samples is taken to do what the focus does: its
    /// time is then taken off in proportion.
    pub fn deviation_ns(&self, samples: [f64; 2]) -> f64 {
        let [focus, reference] = self.mean_ns;
        let share = |i: usize| if self.samples[i] > 0.0 { samples[i] / self.samples[i] } else { 0.0 };
        let usual = if self.samples[1] > 0.0 { share(1) } else { share(0) };
        focus * share(0) - reference * usual
    }

    /// Whether the reference never has what it would have had samples of.
    pub fn is_unexpected(&self, samples: [f64; 2]) -> bool {
        samples[1] == 0.0
            && self.samples[0] > 0.0
            && self.of_reference * samples[0] / self.samples[0] >= Threshold::ExpectedSamples.times()
    }
}

impl Scale {
    /// How likely so few samples of the reference are in a function of which the focus has this part, if the reference had as much of it:
    /// none of n samples has (1 - part)^n.
    pub fn chance_of_none(&self, samples: [f64; 2]) -> f64 {
        (1.0 - (samples[0] / self.samples[0]).clamp(0.0, 1.0)).powf(self.of_reference)
    }
}

impl Default for Tree {
    fn default() -> Tree {
        Tree { nodes: vec![Node::default()] }
    }
}

impl Tree {
    /// Adds samples of this weight of a stack, whose frames come outermost first. Gives the innermost function's node.
    pub fn add(&mut self, frames: impl Iterator<Item = u32>, cohort: usize, n: u64) -> usize {
        let mut at = 0;
        self.nodes[0].samples[cohort] += n;
        for frame in frames {
            let next = self.nodes.len();
            let child = *self.nodes[at].callees.entry(frame).or_insert(next);
            if child == next {
                self.nodes.push(Node { frame: Some(frame), parent: at, ..Node::default() });
            }
            self.nodes[child].samples[cohort] += n;
            at = child;
        }
        at
    }

    /// A node.
    pub fn node(&self, node: usize) -> &Node {
        &self.nodes[node]
    }

    /// Whether a sample of the reference has the frame, on any way.
    pub fn is_in_reference(&self, frame: u32) -> bool {
        self.nodes.iter().any(|node| node.frame == Some(frame) && node.samples[1] > 0)
    }

    /// The frames from the outermost function to the node.
    pub fn path(&self, node: usize) -> Vec<u32> {
        let mut path = vec![];
        let mut at = node;
        while let Some(frame) = self.nodes[at].frame {
            path.push(frame);
            at = self.nodes[at].parent;
        }
        path.reverse();
        path
    }

    fn deviation(&self, node: usize, scale: &Scale) -> f64 {
        scale.deviation_ns(self.nodes[node].samples.map(|n| n as f64))
    }

    /// The deviation of a function with all that it called, whoever called it, ns.
    pub fn deviation_in(&self, frame: u32, scale: &Scale) -> f64 {
        let outermost = self.outermost(|node| self.nodes[node].frame == Some(frame));
        outermost.into_iter().map(|node| self.deviation(node, scale)).sum()
    }

    /// The functions that stand for the row: every sample is in the innermost one of them that is on its path. The root is
    /// among them when something is left that no function explains. `apart`: nodes of functions that are named whatever calls them.
    /// `tells`: whether a node's function tells what was done; one that does not is not named for being unexpected.
    pub fn split(
        &self,
        scale: &Scale,
        nesting: f64,
        apart: impl Fn(usize) -> bool,
        tells: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let noise = (self.deviation(0, scale).abs() * Threshold::SmallCallee.share()).max(1.0);
        let mut out = self.outermost(|node| self.deviation(node, scale) >= noise && apart(node));
        // The samples of each node without theirs.
        let mut left: Vec<[u64; 2]> = self.nodes.iter().map(|node| node.samples).collect();
        for &node in &out {
            let samples = self.nodes[node].samples;
            let mut at = node;
            while self.nodes[at].frame.is_some() {
                at = self.nodes[at].parent;
                left[at] = [left[at][0] - samples[0], left[at][1] - samples[1]];
            }
            left[node] = [0, 0];
        }
        let deviation = |node: usize| scale.deviation_ns(left[node].map(|n| n as f64));
        let mut open = vec![0];
        while let Some(node) = open.pop() {
            let whole = deviation(node);
            let new = node != 0 && scale.is_unexpected(left[node].map(|n| n as f64)) && tells(node);
            let deviates = |&&callee: &&usize| deviation(callee).abs() >= noise;
            let callees: Vec<usize> = self.nodes[node].callees.values().filter(deviates).copied().collect();
            let together: f64 = callees.iter().map(|&callee| deviation(callee)).sum();
            if new || callees.is_empty() || whole == 0.0 || together / whole < nesting {
                out.push(node);
                continue;
            }
            let in_callees =
                callees.iter().fold([0, 0], |sum, &callee| [sum[0] + left[callee][0], sum[1] + left[callee][1]]);
            if in_callees != left[node] {
                out.push(node);
            }
            open.extend(callees);
        }
        out.sort_unstable();
        out
    }

    /// The nodes of which something is true, and of none of their callers.
    fn outermost(&self, is: impl Fn(usize) -> bool) -> Vec<usize> {
        let (mut out, mut open) = (vec![], vec![0]);
        while let Some(node) = open.pop() {
            if node != 0 && is(node) {
                out.push(node);
            } else {
                open.extend(self.nodes[node].callees.values());
            }
        }
        out
    }

    /// The weights of the samples in a node or in what it called, without those in `parts` that are below it. `parts` are in order.
    pub fn samples_without(&self, node: usize, parts: &[usize]) -> [u64; 2] {
        let mut left = self.nodes[node].samples;
        let mut open: Vec<usize> = self.nodes[node].callees.values().copied().collect();
        while let Some(at) = open.pop() {
            if parts.binary_search(&at).is_ok() {
                let apart = self.nodes[at].samples;
                left = [left[0] - apart[0], left[1] - apart[1]];
            } else {
                open.extend(self.nodes[at].callees.values());
            }
        }
        left
    }

    /// Of the callees of a node, on all ways, the weights in the focus of what was done in them, where a function tells it: each sample counts
    /// for the outermost function that tells. What is in `parts`, which are in order, is left out.
    pub fn done_below<T: PartialEq>(
        &self,
        node: usize,
        parts: &[usize],
        tells: impl Fn(u32) -> Option<T>,
    ) -> Vec<(T, u64)> {
        let mut done: Vec<(T, u64)> = vec![];
        let mut open: Vec<usize> = self.nodes[node].callees.values().copied().collect();
        while let Some(at) = open.pop() {
            if parts.binary_search(&at).is_ok() {
                continue;
            }
            let Some(what) = self.nodes[at].frame.and_then(&tells) else {
                open.extend(self.nodes[at].callees.values());
                continue;
            };
            let weight = self.samples_without(at, parts)[0];
            match done.iter_mut().find(|(other, _)| *other == what) {
                Some((_, sum)) => *sum += weight,
                None => done.push((what, weight)),
            }
        }
        done
    }

    /// Of a node, the way on to where most of its time was, innermost last. What is in `parts`, which are in order, is left out.
    pub fn hottest_below(&self, node: usize, parts: &[usize], scale: &Scale) -> Vec<usize> {
        let deviation = |at: usize| scale.deviation_ns(self.samples_without(at, parts).map(|n| n as f64));
        let mut out = vec![];
        let mut at = node;
        loop {
            let callees =
                self.nodes[at].callees.values().copied().filter(|callee| parts.binary_search(callee).is_err());
            let best = callees
                .map(|callee| (callee, deviation(callee)))
                .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
            // Where it was itself for most of it, it ends.
            match best.filter(|&(_, most)| most * 2.0 >= deviation(at)).map(|(next, _)| next) {
                Some(next) if self.samples_without(next, parts)[0] > 0 => {
                    out.push(next);
                    at = next;
                }
                _ => return out,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(stacks: &[(&[u32], [u64; 2])]) -> (Tree, Scale) {
        let mut tree = Tree::default();
        for (frames, n) in stacks {
            tree.add(frames.iter().copied(), 0, n[0]);
            tree.add(frames.iter().copied(), 1, n[1]);
        }
        let samples = tree.node(0).samples.map(|n| n as f64);
        // A sample is 10 ns of a mean message.
        (tree, Scale { mean_ns: samples.map(|n| n * 10.0), samples, of_reference: samples[1] })
    }

    fn functions(stacks: &[(&[u32], [u64; 2])]) -> Vec<Vec<u32>> {
        let (tree, scale) = tree(stacks);
        parts(&tree, &scale, |_| false)
    }

    fn parts(tree: &Tree, scale: &Scale, apart: impl Fn(u32) -> bool) -> Vec<Vec<u32>> {
        let apart = |node: usize| tree.node(node).frame.is_some_and(&apart);
        tree.split(scale, 0.8, apart, |_| true).into_iter().map(|node| tree.path(node)).collect()
    }

    /// 1 the interpreter's loop, 2 a collection, 3 what it calls, 4 a function of the program, which collects, too.
    #[test]
    fn what_a_runtime_does_on_its_own_account_is_apart_from_its_callers() {
        let stacks: &[(&[u32], [u64; 2])] = &[
            (&[1], [40, 20]),
            (&[1, 2, 3], [50, 10]),
            (&[1, 4], [10, 10]),
            (&[1, 4, 2, 2], [20, 5]),
            (&[1, 5], [5, 2]),
        ];
        let (tree, scale) = tree(stacks);
        assert_eq!(parts(&tree, &scale, |_| false), [vec![1]], "together its callees explain too little of the loop");
        assert_eq!(parts(&tree, &scale, |frame| frame == 2), [vec![1], vec![1, 2], vec![1, 4, 2]]);
        assert_eq!(parts(&tree, &scale, |frame| frame == 5), [vec![1]], "too small to be apart");
    }

    /// 1 the interpreter's loop, 2 what calls any method, 3 the method, 4 and 5 what that calls.
    #[test]
    fn what_runs_any_program_is_not_named_for_being_unexpected() {
        let (tree, scale) = tree(&[(&[1], [10, 50]), (&[1, 2, 3, 4], [50, 0]), (&[1, 2, 3, 5], [40, 0])]);
        let named = |tells: fn(u32) -> bool| {
            let tells = |node: usize| tree.node(node).frame.is_none_or(tells);
            tree.split(&scale, 0.8, |_| false, tells).into_iter().map(|n| tree.path(n)).collect::<Vec<_>>()
        };
        assert!(named(|_| true).contains(&vec![1, 2]));
        assert!(named(|frame| frame > 2).contains(&vec![1, 2, 3]));
    }

    /// 1 main, 2 loop, 3 get, 4 slow, 5 and 6 what slow calls.
    #[test]
    fn a_function_that_only_the_focus_has_is_named_and_not_what_it_calls() {
        let paths = functions(&[(&[1, 2, 3], [20, 20]), (&[1, 2, 4, 5], [50, 0]), (&[1, 2, 4, 6], [40, 0])]);
        assert_eq!(paths, [vec![1, 2], vec![1, 2, 4]]);
    }

    #[test]
    fn of_a_usual_caller_the_callee_that_has_more_is_named() {
        let paths = functions(&[(&[1, 2, 3, 7], [100, 10]), (&[1, 2, 3], [10, 10]), (&[1, 2], [5, 5])]);
        assert_eq!(paths, [vec![1, 2], vec![1, 2, 3], vec![1, 2, 3, 7]]);
    }

    /// Two callees with the same deviation and nothing else: both.
    #[test]
    fn a_caller_that_others_explain_is_none() {
        assert_eq!(functions(&[(&[1, 2], [50, 20]), (&[1, 3], [50, 20])]), [vec![1, 2], vec![1, 3]]);
    }

    /// 1 main, 2 update, 3 and 4 locks, 5 what a lock calls and what is called elsewhere too.
    #[test]
    fn what_was_done_below_counts_each_sample_once() {
        let (tree, _) =
            tree(&[(&[1, 2, 3, 5], [50, 0]), (&[1, 2, 4, 5], [40, 0]), (&[1, 2, 5], [7, 0]), (&[1, 2], [3, 0])]);
        let update = (0..).find(|&node| tree.path(node) == [1, 2]).expect("a node");
        let done = |parts: &[usize], tells: fn(u32) -> Option<&'static str>| {
            let mut done = tree.done_below(update, parts, tells);
            done.sort_unstable();
            done
        };
        let locks = |frame| matches!(frame, 3 | 4).then_some("lock").or_else(|| (frame == 5).then_some("wait"));
        assert_eq!(done(&[], locks), [("lock", 90), ("wait", 7)]);
        let fourth = (0..).find(|&node| tree.path(node) == [1, 2, 4]).expect("a node");
        assert_eq!(done(&[fourth], locks), [("lock", 50), ("wait", 7)], "a part of its own is not its caller's");
    }

    #[test]
    fn a_reference_without_samples_takes_its_time_off_in_proportion() {
        let scale = Scale { mean_ns: [1000.0, 100.0], samples: [10.0, 0.0], of_reference: 0.0 };
        assert_eq!(scale.deviation_ns([5.0, 0.0]), 450.0);
        assert!(!scale.is_unexpected([5.0, 0.0]));
    }

    /// Of a reference of which each fourth tick was sampled, 2 samples stand for 8 ticks, and are 2 samples all the same.
    #[test]
    fn a_few_samples_of_much_weight_show_nothing_to_be_unexpected() {
        let scale = Scale { mean_ns: [1000.0, 100.0], samples: [10.0, 8.0], of_reference: 2.0 };
        assert!(!scale.is_unexpected([10.0, 0.0]));
        assert!(Scale { of_reference: 8.0, ..scale }.is_unexpected([10.0, 0.0]));
    }

    /// Of 20 samples with a fair coin each none is heads in one of 2^20 cases.
    #[test]
    fn that_no_sample_met_a_function_has_its_chance() {
        let scale = Scale { mean_ns: [1000.0, 100.0], samples: [10.0, 20.0], of_reference: 20.0 };
        assert!((scale.chance_of_none([5.0, 0.0]) * f64::from(1 << 20) - 1.0).abs() < 1e-9);
        assert_eq!(scale.chance_of_none([10.0, 0.0]), 0.0);
        assert_eq!(Scale { of_reference: 0.0, ..scale }.chance_of_none([5.0, 0.0]), 1.0);
    }

    #[test]
    fn the_hot_path_goes_on_where_most_of_the_time_is() {
        let (tree, scale) = tree(&[(&[1, 2, 3], [60, 0]), (&[1, 2, 4], [20, 0]), (&[1, 5], [20, 20])]);
        let path: Vec<_> =
            tree.hottest_below(0, &[], &scale).into_iter().map(|n| tree.node(n).frame.unwrap()).collect();
        assert_eq!(path, [1, 2, 3]);
    }

    proptest::proptest! {
        /// The functions and what is left of the row sum to it, whatever the stacks.
        #[test]
        fn the_parts_hold_every_sample_once(
            stacks in proptest::collection::vec((proptest::collection::vec(0u32..4, 0..6), 0u64..20, 0u64..20), 1..20),
            apart in 0u32..8,
            tells in 0u32..8,
        ) {
            let mut tree = Tree::default();
            let mut leaves = vec![];
            for (frames, focus, reference) in &stacks {
                leaves.push((tree.add(frames.iter().copied(), 0, *focus), [*focus, *reference]));
                tree.add(frames.iter().copied(), 1, *reference);
            }
            let samples = tree.node(0).samples.map(|n| n as f64);
            let scale = Scale { mean_ns: [5_000.0, 300.0], samples, of_reference: samples[1] };
            let tells = |node: usize| tree.node(node).frame != Some(tells);
            let parts = tree.split(&scale, 0.8, |node| tree.node(node).frame == Some(apart), tells);
            let mut sum = 0.0;
            // A stack without samples is in no part, and nobody asks.
            for (leaf, n) in leaves.into_iter().filter(|(_, n)| *n != [0, 0]) {
                let parts_above = parts.iter().filter(|&&part| tree.path(leaf).starts_with(&tree.path(part)));
                proptest::prop_assert!(parts_above.max_by_key(|&&part| tree.path(part).len()).is_some());
                sum += scale.deviation_ns(n.map(|n| n as f64));
            }
            let whole = if samples[0] > 0.0 { 4_700.0 } else if samples[1] > 0.0 { -300.0 } else { 0.0 };
            proptest::prop_assert!((sum - whole).abs() < 1e-6, "{} {}", sum, whole);
        }
    }
}
