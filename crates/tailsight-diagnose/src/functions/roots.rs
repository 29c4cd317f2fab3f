//! Functions of what held the messages that others waited behind.
//!
//! In: the roots of a queue with the messages that each held. Out: of each the functions that its time was in, as of a cause: these
//! messages are the focus, the ordinary ones the reference.

use tailsight_lifetime::{Frame, Leg, PathSpan, Role};

use super::{FunctionPart, InMessage, MOST_MESSAGES, Search, segment, sentence};
use crate::cause::{Category, Subject};
use crate::model::{Cause, Root};
use crate::phases::root::Found;
use crate::rows::classification::Classification;

impl Search<'_> {
    /// Divides the roots by functions, and says them of the causes that are queues.
    pub fn fill_roots(&self, causes: &mut [Cause], roots: &[Found], classification: &Classification<'_>) {
        let function_of = self.functions();
        let divided: Vec<Root> = roots.iter().map(|found| self.root(found, classification, &function_of)).collect();
        let first: Option<&FunctionPart> = divided.first().and_then(|root| root.functions.first());
        for cause in causes.iter_mut().filter(|c| c.category == Category::HolBlocking && !c.root.is_empty()) {
            cause.root.clone_from(&divided);
            if let Some(first) = first {
                cause.explanation = sentence(&cause.explanation, "what held those", first);
                let documented = first.runtime.as_ref().map(super::documented_fix);
                if let Some(fix) = documented.filter(|fix| !cause.fix.contains(fix)) {
                    cause.fix.push(fix);
                }
            }
        }
    }

    fn root(&self, found: &Found, classification: &Classification<'_>, function_of: &[u32]) -> Root {
        let Root { category, name, subject, role, .. } = found.root.clone();
        let of = |ids: &[u32]| -> Vec<InMessage> {
            let step = ids.len().div_ceil(MOST_MESSAGES).max(1);
            ids.iter().step_by(step).map(|&id| self.in_row(id, (category, &name), classification)).collect()
        };
        let messages = [of(&found.held), of(&self.cohorts.1.ids)];
        let mean = messages.each_ref().map(|of| {
            let sum = of.iter().map(|m| m.ns).sum::<f64>();
            (sum / of.len().max(1) as f64).round() as i64
        });
        let known = subject.unwrap_or_else(|| Subject::named(name.clone()));
        let mut cause =
            Cause { mean_ns: mean, deviation_ns: mean[0] - mean[1], ..Cause::new(category, name, known, vec![], role) };
        if cause.deviation_ns > 0 {
            self.divide(&mut cause, messages, function_of);
        }
        let Cause { category, name, subject, samples, functions, hot_path, .. } = cause;
        Root { category, name, subject, samples, functions, hot_path, ..found.root.clone() }
    }

    /// What a message has of a row, over its whole way.
    fn in_row(&self, id: u32, row: (Category, &str), classification: &Classification<'_>) -> InMessage {
        let (owners, message) = (&self.lifetimes.owners, &self.messages[id as usize]);
        let path = self.sampled.path(id);
        let belongs = |span: &PathSpan| {
            // The walk of a single message may name owners that the partition never met.
            let known = span.role == Role::A && (span.owner as usize) < owners.len();
            let leg = segment(message, span, Leg::Total).filter(|_| known);
            leg.map(|leg| classification.at(leg, Role::A, span.owner)).is_some_and(|v| (v.category, &*v.name) == row)
        };
        let mut out = InMessage::default();
        for span in path.iter().filter(|span| belongs(span)) {
            let ns = span.to_ns - span.from_ns;
            out.ns += ns as f64;
            if let Some(&Frame::Place { stack }) = owners[span.owner as usize].frames.last() {
                out.sleeps.push((stack, ns));
            }
        }
        self.sampled.on(id, &path, owners, |span, sample| {
            if belongs(span) {
                out.stacks.push((sample.stack, u64::from(sample.weight)));
            }
        });
        out
    }
}
