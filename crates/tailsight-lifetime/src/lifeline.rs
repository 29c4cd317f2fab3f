//! Sums over long stretches of a timeline without going through them.
//!
//! A server that falls behind makes messages whose lifetimes span hundreds of milliseconds and overlap by the thousand:
//! going through each one's every span would take time in the square of the load. A [`Lifeline`] is a timeline walked
//! once, with running totals by owner at checkpoints; the sum over any range is a difference of two checkpoints plus the
//! spans at its ends. It gives the same parts as the walk, which a test compares.

use crate::model::{OwnerId, PathSpan, Role};
use crate::when::When;

/// Spans between checkpoints, at least.
const STRIDE: usize = 256;

/// A timeline with running totals.
#[derive(Debug)]
pub struct Lifeline {
    spans: Vec<Span>,
    when: When,
    end_ns: u64,
    /// The kinds of span that occur: role and owner.
    kinds: Vec<(Role, OwnerId)>,
    stride: usize,
    /// At every `stride` spans: for each kind, (nanoseconds, beginnings) of all spans before.
    checkpoints: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from_ns: u64,
    kind: u32,
    begins: bool,
}

/// Takes the spans of a [`Lifeline`].
#[derive(Debug, Default)]
pub struct Builder {
    spans: Vec<Span>,
    end_ns: u64,
    kinds: Vec<(Role, OwnerId)>,
    /// Index into `kinds` plus 1, by owner and role.
    index: Vec<[u32; 2]>,
}

impl Builder {
    /// The next span: in order, without gap or overlap.
    pub fn push(&mut self, span: PathSpan) {
        let owner = span.owner as usize;
        if owner >= self.index.len() {
            self.index.resize(owner + 64, [0; 2]);
        }
        let kind = &mut self.index[owner][usize::from(span.role == Role::A)];
        if *kind == 0 {
            self.kinds.push((span.role, span.owner));
            *kind = self.kinds.len() as u32;
        }
        self.spans.push(Span { from_ns: span.from_ns, kind: *kind - 1, begins: span.begins });
        self.end_ns = span.to_ns;
    }

    /// The timeline of the spans so far.
    pub fn finish(self) -> Lifeline {
        let Builder { spans, end_ns, kinds, .. } = self;
        // As many spans between checkpoints as a checkpoint has numbers: memory stays in proportion to the spans.
        let stride = STRIDE.max(kinds.len());
        let mut totals = vec![(0u64, 0u64); kinds.len()];
        let mut checkpoints = Vec::with_capacity(spans.len().div_ceil(stride) * kinds.len());
        for (i, span) in spans.iter().enumerate() {
            if i % stride == 0 {
                checkpoints.extend_from_slice(&totals);
            }
            let to_ns = spans.get(i + 1).map_or(end_ns, |s| s.from_ns);
            let total = &mut totals[span.kind as usize];
            total.0 += to_ns - span.from_ns;
            total.1 += u64::from(span.begins);
        }
        let when = When::new(&spans, |s| s.from_ns);
        Lifeline { spans, when, end_ns, kinds, stride, checkpoints }
    }
}

impl Lifeline {
    fn to_ns(&self, i: usize) -> u64 {
        self.spans.get(i + 1).map_or(self.end_ns, |s| s.from_ns)
    }

    /// Feeds the sums over `from..to` to `add`: role, owner, nanoseconds, beginnings. A span that is already running at
    /// `from` counts as beginning there, as in the walk.
    pub fn sum(&self, from: u64, to: u64, mut add: impl FnMut(Role, OwnerId, u64, u32)) {
        if from >= to || self.spans.is_empty() {
            return;
        }
        let at = |ts| self.when.at(&self.spans, ts, |s| s.from_ns);
        let first = at(from).unwrap_or(0);
        let last = at(to - 1).map_or(0, |i| i + 1);
        let mut single = |i: usize| {
            let span = self.spans[i];
            let ns = self.to_ns(i).min(to).saturating_sub(span.from_ns.max(from));
            let begins = span.begins || i == first;
            if ns > 0 {
                let (role, owner) = self.kinds[span.kind as usize];
                add(role, owner, ns, u32::from(begins));
            }
        };
        // Whole strides between the first and the last span; both of these may be cut.
        let begin = (first + 1).div_ceil(self.stride);
        let end = (last - 1) / self.stride;
        if begin >= end {
            (first..last).for_each(single);
            return;
        }
        (first..begin * self.stride).for_each(&mut single);
        (end * self.stride..last).for_each(&mut single);
        let row = |checkpoint: usize| &self.checkpoints[checkpoint * self.kinds.len()..][..self.kinds.len()];
        for (kind, (a, b)) in row(begin).iter().zip(row(end)).enumerate() {
            if b.0 > a.0 {
                let (role, owner) = self.kinds[kind];
                add(role, owner, b.0 - a.0, (b.1 - a.1) as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Sums = BTreeMap<(Role, OwnerId), (u64, u32)>;

    fn timeline(lengths: &[(u64, u32, bool)]) -> Vec<PathSpan> {
        let mut at = 1000;
        lengths
            .iter()
            .map(|&(ns, owner, begins)| {
                let span = PathSpan { from_ns: at, to_ns: at + ns, cpu: None, role: Role::A, owner, begins };
                at += ns;
                span
            })
            .collect()
    }

    fn plain(path: &[PathSpan], from: u64, to: u64) -> Sums {
        let mut sums = Sums::new();
        let mut first = true;
        for s in path {
            let ns = s.to_ns.min(to).saturating_sub(s.from_ns.max(from));
            if ns > 0 {
                let sum = sums.entry((s.role, s.owner)).or_default();
                sum.0 += ns;
                sum.1 += u32::from(s.begins || first);
                first = false;
            }
        }
        sums
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_spans(
            lengths in prop::collection::vec((1u64..50, 0u32..6, any::<bool>()), 1..3000),
            a in 0f64..1.0,
            b in 0f64..1.0,
        ) {
            let path = timeline(&lengths);
            let mut line = Builder::default();
            path.iter().for_each(|span| line.push(*span));
            let line = line.finish();
            let total = path[path.len() - 1].to_ns - 1000;
            let at = |f: f64| 1000 + (total as f64 * f) as u64;
            let (from, to) = (at(a.min(b)), at(a.max(b)));
            let mut sums = Sums::new();
            line.sum(from, to, |role, owner, ns, begins| {
                let sum = sums.entry((role, owner)).or_default();
                sum.0 += ns;
                sum.1 += begins;
            });
            prop_assert_eq!(sums, plain(&path, from, to));
        }
    }
}
