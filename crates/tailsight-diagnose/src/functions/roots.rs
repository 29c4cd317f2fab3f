//! Functions of what held the messages that others waited behind.
//!
//! In: the roots of a queue with the messages that each held. Out: of each the functions that its time was in, as of a cause: these
//! messages are the focus, the ordinary ones the reference.

use tailsight_lifetime::{Frame, LEGS, Leg, OwnerId, PathSpan, Role};

use super::{InCohorts, InMessage, MOST_MESSAGES, Search, segment};
use crate::cause::Subject;
use crate::model::{Cause, Root};
use crate::phases::root::HeldRoot;
use crate::rows::classification::Classification;

/// Where a message's part of a root goes: the message, the root, the cohort, the place among the cohort's messages.
type Wanted = (u32, usize, usize, usize);

impl Search<'_> {
    /// The roots, divided by functions.
    pub fn roots(&self, roots: &[HeldRoot], classification: &Classification<'_>) -> Vec<Root> {
        let function_of = self.functions();
        let messages = self.in_roots(roots, classification);
        roots.iter().zip(messages).map(|(root, messages)| self.root(root, messages, &function_of)).collect()
    }

    fn root(&self, held: &HeldRoot, messages: InCohorts, function_of: &[u32]) -> Root {
        let Root { category, name, subject, role, .. } = held.root.clone();
        let mean = messages.each_ref().map(|cohort| {
            let sum = cohort.iter().map(|m| m.ns).sum::<f64>();
            (sum / cohort.len().max(1) as f64).round() as i64
        });
        let subject = subject.unwrap_or_else(|| Subject::named(name.clone()));
        let mut cause = Cause {
            mean_ns: mean,
            deviation_ns: mean[0] - mean[1],
            ..Cause::new(category, name, subject, vec![], role)
        };
        if cause.deviation_ns > 0 {
            self.divide(&mut cause, messages, function_of);
        }
        let Cause { category, name, subject, samples, functions, hot_path, .. } = cause;
        Root { category, name, subject, samples, functions, hot_path, ..held.root.clone() }
    }

    /// What the messages that each root held, and the ordinary ones, have of it. A message is looked at once for all roots.
    fn in_roots(&self, roots: &[HeldRoot], classification: &Classification<'_>) -> Vec<InCohorts> {
        let mut wanted: Vec<Wanted> = vec![];
        let mut out = vec![InCohorts::default(); roots.len()];
        for (root, held_root) in roots.iter().enumerate() {
            for (cohort, ids) in [&held_root.held, &self.cohorts.1.ids].into_iter().enumerate() {
                let step = ids.len().div_ceil(MOST_MESSAGES).max(1);
                wanted.extend(ids.iter().step_by(step).enumerate().map(|(place, &id)| (id, root, cohort, place)));
                out[root][cohort].resize(ids.len().div_ceil(step), InMessage::default());
            }
        }
        wanted.sort_unstable();
        let mut rows_of = RootsOf::new(roots, classification, self.lifetimes.owners.len());
        for of_message in wanted.chunk_by(|a, b| a.0 == b.0) {
            let has = self.in_rows(of_message[0].0, &mut rows_of);
            for &(_, root, cohort, place) in of_message {
                out[root][cohort][place].clone_from(&has[root]);
            }
        }
        out
    }

    /// What a message has of each root, over its whole way.
    fn in_rows(&self, id: u32, rows_of: &mut RootsOf<'_>) -> Vec<InMessage> {
        let (lifetimes, owners, message) = (self.lifetimes, &self.lifetimes.owners, &self.messages[id as usize]);
        let mut out = vec![InMessage::default(); rows_of.roots.len()];
        for (segment, leg) in LEGS.into_iter().enumerate() {
            for part in lifetimes.part_slice(id, leg).iter().filter(|part| part.role == Role::A) {
                for &root in rows_of.get(segment, part.owner) {
                    out[root].ns += part.ns as f64;
                    if let Some(&Frame::Place { stack }) = owners[part.owner as usize].frames.last() {
                        out[root].sleeps.push((stack, part.ns));
                    }
                }
            }
        }
        // The walk of a single message may name owners that the partition never met.
        let own = |span: &&PathSpan| span.role == Role::A && (span.owner as usize) < owners.len();
        self.sampled.on(message, Leg::Total, owners, |span, sample| {
            let segment = Some(span).filter(own).and_then(|span| segment(message, span, Leg::Total));
            for &root in segment.map_or(&[][..], |segment| rows_of.get(segment, span.owner)) {
                out[root].stacks.push((sample.stack, u64::from(sample.weight)));
            }
        });
        out
    }
}

/// Which roots an owner's time is of, looked up once.
struct RootsOf<'a> {
    roots: &'a [HeldRoot],
    classification: &'a Classification<'a>,
    /// By the place of the leg and the owner: a number of `sets`; 0: not looked up.
    set_of: Vec<u32>,
    /// Of each leg.
    owners: usize,
    sets: Vec<Vec<usize>>,
}

impl<'a> RootsOf<'a> {
    fn new(roots: &'a [HeldRoot], classification: &'a Classification<'a>, owners: usize) -> RootsOf<'a> {
        RootsOf { roots, classification, set_of: vec![0; owners * LEGS.len()], owners, sets: vec![vec![]] }
    }

    #[inline]
    fn get(&mut self, leg: usize, owner: OwnerId) -> &[usize] {
        let place = leg * self.owners + owner as usize;
        if self.set_of[place] == 0 {
            self.look_up(place, leg, owner);
        }
        &self.sets[self.set_of[place] as usize]
    }

    fn look_up(&mut self, place: usize, leg: usize, owner: OwnerId) {
        let is = self.classification.at(leg, Role::A, owner);
        let same = |root: &HeldRoot| (root.root.category, &root.root.name) == (is.category, &is.name);
        let same_roots: Vec<usize> = (0..self.roots.len()).filter(|&root| same(&self.roots[root])).collect();
        let set = self.sets.iter().skip(1).position(|set| *set == same_roots).map(|at| at + 1);
        self.set_of[place] = set.unwrap_or(self.sets.len()) as u32;
        if set.is_none() {
            self.sets.push(same_roots);
        }
    }
}
