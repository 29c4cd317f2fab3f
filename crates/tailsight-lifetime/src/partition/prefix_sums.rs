//! Prefix sums: time by owner over long parts of a timeline without walking them.
//!
//! An overloaded server makes messages whose lifetimes span hundreds of milliseconds and overlap by the thousand: walking each one's
//! every span would take time quadratic in the load. A [`PrefixSums`] is a timeline walked once, with running totals by owner at
//! checkpoints. The sum over any range is the difference of two checkpoints plus the steps at its ends. A test compares it with the
//! walk.

use crate::model::{OwnerId, Role};
use crate::path::Step;
use crate::timelines::time_index::TimeIndex;

/// Steps between checkpoints, at least.
const STRIDE: usize = 64;

/// A kind of time: role and owner; no owner is the recorder's hooks.
type Kind = (Role, Option<OwnerId>);

/// A timeline with running totals.
#[derive(Debug)]
pub struct PrefixSums {
    spans: Vec<Span>,
    by_time: TimeIndex,
    end_ns: u64,
    /// Those that occur; the first two are the hooks', as R and as A.
    kinds: Vec<Kind>,
    stride: usize,
    /// At every `stride` steps: for each kind, (nanoseconds, beginnings) of all steps before.
    checkpoints: Vec<(u64, u64)>,
}

/// A step: the hooks' time, then its owner's.
#[derive(Clone, Copy, Debug)]
struct Span {
    from_ns: u64,
    kind: u32,
    hooks_ns: u16,
    role: Role,
    begins: bool,
}

const _: () = assert!(size_of::<Span>() == 16);

/// Index into [`PrefixSums::kinds`] of the hooks' time.
fn hooks_of(role: Role) -> usize {
    usize::from(role == Role::A)
}

/// Takes the steps of a [`PrefixSums`].
#[derive(Debug)]
pub struct Builder {
    spans: Vec<Span>,
    end_ns: u64,
    kinds: Vec<Kind>,
    /// Index into `kinds` plus 1, by owner and role.
    index: Vec<[u32; 2]>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder { spans: vec![], end_ns: 0, kinds: vec![(Role::R, None), (Role::A, None)], index: vec![] }
    }
}

impl Builder {
    /// The next step: in order, without gap or overlap.
    pub fn push(&mut self, step: Step) {
        let owner = step.span.owner as usize;
        if owner >= self.index.len() {
            self.index.resize(owner + 64, [0; 2]);
        }
        let role = step.span.role;
        let kind = &mut self.index[owner][usize::from(role == Role::A)];
        if *kind == 0 {
            self.kinds.push((role, Some(step.span.owner)));
            *kind = self.kinds.len() as u32;
        }
        let (kind, from_ns) = (*kind - 1, step.from_ns());
        self.spans.push(Span { from_ns, kind, hooks_ns: step.hooks_ns, role, begins: step.span.begins });
        self.end_ns = step.span.to_ns;
    }

    /// The timeline of the steps so far.
    pub fn finish(self) -> PrefixSums {
        let Builder { spans, end_ns, kinds, .. } = self;
        // As many steps between checkpoints as a checkpoint has numbers: memory stays in proportion to the steps.
        let stride = STRIDE.max(kinds.len());
        let mut totals = vec![(0u64, 0u64); kinds.len()];
        let mut checkpoints = Vec::with_capacity(spans.len().div_ceil(stride) * kinds.len());
        for (i, span) in spans.iter().enumerate() {
            if i % stride == 0 {
                checkpoints.extend_from_slice(&totals);
            }
            let to_ns = spans.get(i + 1).map_or(end_ns, |s| s.from_ns);
            let hooks_ns = u64::from(span.hooks_ns);
            let rest = to_ns - span.from_ns - hooks_ns;
            if rest > 0 {
                let total = &mut totals[span.kind as usize];
                *total = (total.0 + rest, total.1 + u64::from(span.begins));
            }
            if hooks_ns > 0 {
                let total = &mut totals[hooks_of(span.role)];
                *total = (total.0 + hooks_ns, total.1 + 1);
            }
        }
        let by_time = TimeIndex::new(&spans, |s| s.from_ns);
        PrefixSums { spans, by_time, end_ns, kinds, stride, checkpoints }
    }
}

impl PrefixSums {
    fn to_ns(&self, i: usize) -> u64 {
        self.spans.get(i + 1).map_or(self.end_ns, |s| s.from_ns)
    }

    /// Feeds the sums over `from..to` to `add`: role, owner (none: the recorder's hooks), nanoseconds, beginnings. What is
    /// already running at `from` counts as beginning there, as in the walk.
    pub fn sum(&self, from: u64, to: u64, mut add: impl FnMut(Role, Option<OwnerId>, u64, u32)) {
        if from >= to || self.spans.is_empty() {
            return;
        }
        let at = |ts| self.by_time.at(&self.spans, ts, |s| s.from_ns);
        let first = at(from).unwrap_or(0);
        let last = at(to - 1).map_or(0, |i| i + 1);
        // The first and the last may be cut.
        let mut cut = |i: usize| {
            let span = self.spans[i];
            let hooks_to = span.from_ns + u64::from(span.hooks_ns);
            let hooks_ns = hooks_to.min(to).saturating_sub(span.from_ns.max(from));
            if hooks_ns > 0 {
                add(span.role, None, hooks_ns, 1);
            }
            let ns = self.to_ns(i).min(to).saturating_sub(hooks_to.max(from));
            if ns > 0 {
                let (role, owner) = self.kinds[span.kind as usize];
                add(role, owner, ns, u32::from(span.begins || i == first && hooks_ns == 0));
            }
        };
        cut(first);
        if last > first + 1 {
            cut(last - 1);
        }
        let mut whole = |i: usize| {
            let span = self.spans[i];
            let hooks_ns = u64::from(span.hooks_ns);
            if hooks_ns > 0 {
                add(span.role, None, hooks_ns, 1);
            }
            let ns = self.spans[i + 1].from_ns - span.from_ns - hooks_ns;
            if ns > 0 {
                let (role, owner) = self.kinds[span.kind as usize];
                add(role, owner, ns, u32::from(span.begins));
            }
        };
        // Whole strides between them.
        let begin = (first + 1).div_ceil(self.stride);
        let end = (last - 1) / self.stride;
        if begin >= end {
            (first + 1..last - 1).for_each(whole);
            return;
        }
        (first + 1..begin * self.stride).for_each(&mut whole);
        (end * self.stride..last - 1).for_each(&mut whole);
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
    use crate::model::PathSpan;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Sums = BTreeMap<Kind, (u64, u32)>;

    /// Steps of the given (owner's ns, hooks' ns, owner, beginning).
    fn timeline(lengths: &[(u64, u16, u32, bool)]) -> Vec<Step> {
        let mut at = 1000;
        let lengths = lengths.iter().filter(|&&(ns, hooks_ns, ..)| ns + u64::from(hooks_ns) > 0);
        lengths
            .map(|&(ns, hooks_ns, owner, begins)| {
                let from_ns = at + u64::from(hooks_ns);
                at = from_ns + ns;
                let role = if owner % 3 == 0 { Role::R } else { Role::A };
                Step { span: PathSpan { from_ns, to_ns: at, cpu: None, role, owner, begins, rule: None }, hooks_ns }
            })
            .collect()
    }

    /// As a walk that begins at `from`.
    fn plain(path: &[Step], from: u64, to: u64) -> Sums {
        let mut sums = Sums::new();
        let mut first = true;
        let mut add = |kind, a: u64, b: u64, begins| {
            let ns = b.min(to).saturating_sub(a.max(from));
            if ns > 0 {
                let sum = sums.entry(kind).or_default();
                sum.0 += ns;
                sum.1 += u32::from(begins || first);
                first = false;
            }
        };
        for Step { span, hooks_ns } in path {
            add((span.role, None), span.from_ns - u64::from(*hooks_ns), span.from_ns, true);
            add((span.role, Some(span.owner)), span.from_ns, span.to_ns, span.begins);
        }
        sums
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_spans(
            lengths in prop::collection::vec((0u64..50, 0u16..9, 0u32..6, any::<bool>()), 1..3000),
            a in 0f64..1.0,
            b in 0f64..1.0,
        ) {
            let path = timeline(&lengths);
            let mut line = Builder::default();
            path.iter().for_each(|step| line.push(*step));
            let line = line.finish();
            let total = path.last().map_or(0, |s| s.span.to_ns - 1000);
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
