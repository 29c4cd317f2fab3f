//! What the report's page is made of, gathered from a run and its diagnosis.
//!
//! In: an opened run, its diagnosis, the run that it is compared with. Out: the page, for a file or for the server of `view`. Of the
//! messages, those in focus have their whole timelines in the page, the slowest first, and a random thousand of the others.

use tailsight_diagnose::cohorts::chosen_class::InClass;
use tailsight_diagnose::cohorts::{Cohorts, ranked_in};
use tailsight_diagnose::{CauseOf, Diagnosis, Options, functions};
use tailsight_lifetime::{Leg, OwnerId, PathPart, PathSpan, Role};
use tailsight_report::html::{self, Input, Points, Timelines};

use crate::pipeline::Opened;

/// Timelines of messages that are not in focus.
const OTHERS: usize = 1_000;
/// Spans of all timelines together: with 40 bytes a span in memory and some 3 in the page, a page of less than 60 MB.
const MOST_SPANS: usize = 8_000_000;
/// Messages of a cohort whose call stacks are looked at, evenly over it.
const MOST_SAMPLED: usize = 6_000;

/// A diagnosed run.
pub struct Diagnosed<'a> {
    /// The run.
    pub opened: &'a Opened,
    /// What was asked.
    pub options: &'a Options,
    /// Its diagnosis.
    pub diagnosis: &'a Diagnosis,
    /// To which cause an owner's time counts.
    pub causes: &'a CauseOf,
    /// The run that it is compared with.
    pub against: Option<&'a Opened>,
}

/// Call stacks with ns of a mean message: of the focus, of the reference.
pub type Stacks = Vec<(Vec<String>, [f64; 2])>;

impl Diagnosed<'_> {
    /// The page as a file, with its timelines.
    pub fn file(&self) -> String {
        let ids = self.chosen();
        let paths = self.paths(&ids);
        let stacks = self.stacks();
        self.with_input(&paths, &stacks, html::report)
    }

    /// Calls `f` with what the page as a file is made of.
    pub fn with_chosen<T>(&self, f: impl FnOnce(&Input) -> T) -> T {
        self.with_input(&self.paths(&self.chosen()), &[], f)
    }

    /// Calls `f` with the messages in focus only.
    pub fn with_focus<T>(&self, f: impl FnOnce(&Input) -> T) -> T {
        let mut ids = self.chosen();
        ids.truncate(self.diagnosis.focus.messages as usize);
        self.with_input(&self.paths(&ids), &[], f)
    }

    /// The page as it is served: timelines are asked for one by one, and of more than `most` messages the points of what is looked at.
    pub fn served(&self, most: usize) -> String {
        let stacks = self.stacks();
        self.with_input(&[], &stacks, |input| html::served(input, most))
    }

    /// Calls `f` with the makers of timelines and of points.
    pub fn with_parts<T>(&self, f: impl FnOnce(&Timelines, &Points) -> T) -> T {
        self.with_input(&[], &[], |input| f(&Timelines::new(input), &Points::new(input)))
    }

    fn with_input<T>(
        &self,
        paths: &[(u32, Vec<PathSpan>)],
        stacks: &[(Vec<String>, [f64; 2])],
        f: impl FnOnce(&Input) -> T,
    ) -> T {
        let cause_of = |leg: Leg, role: Role, owner: OwnerId| self.causes.get(&(leg, role, owner)).copied();
        let name = self.against.map(|other| other.run.dir.display().to_string());
        f(&Input {
            meta: &self.opened.run.meta,
            lifetimes: &self.opened.analysis.lifetimes,
            diagnosis: self.diagnosis,
            paths,
            cause_of: &cause_of,
            categories: &self.options.categories,
            samples: Some(&self.opened.run.samples),
            stacks,
            against: name.as_deref().zip(self.against.map(|other| &other.analysis.lifetimes)),
        })
    }

    /// The messages that are compared, by (latency, id).
    fn ranked(&self) -> Vec<(u64, u32)> {
        let lifetimes = &self.opened.analysis.lifetimes;
        ranked_in(&lifetimes.messages, self.diagnosis.leg, &InClass::of(self.diagnosis, lifetimes))
    }

    /// The focus, slowest first; a median message; and a random thousand of the others, the same ones every time.
    fn chosen(&self) -> Vec<u32> {
        let ranked = self.ranked();
        let ids: Vec<u32> = ranked.iter().rev().map(|&(_, id)| id).collect();
        let n = ids.len();
        let to = ((1.0 - self.diagnosis.focus.to) * n as f64).round() as usize;
        let focus = to.min(n)..(to + self.diagnosis.focus.messages as usize).min(n);
        let mut rest: Vec<u32> = ids[..focus.start].iter().chain(&ids[focus.end..]).copied().collect();
        let (mut out, median) = (ids[focus].to_vec(), n / 2);
        let mut seed = 1_u64;
        for i in 0..OTHERS.min(rest.len()) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = i + ((seed >> 33) as usize) % (rest.len() - i);
            rest.swap(i, at);
        }
        rest.truncate(OTHERS);
        if let Some(&median) = ids.get(median)
            && !out.contains(&median)
        {
            rest.retain(|id| *id != median);
            out.push(median);
        }
        out.extend(rest);
        out
    }

    fn paths(&self, ids: &[u32]) -> Vec<(u32, Vec<PathSpan>)> {
        let paths = self.opened.analysis.to_paths();
        let mut spans = 0;
        let mut out = Vec::with_capacity(ids.len());
        for &id in ids {
            let path = paths.of(id, self.diagnosis.leg);
            spans += path.len();
            if spans > MOST_SPANS {
                break;
            }
            out.push((id, path));
        }
        out
    }

    /// The call stacks of the focus and of the reference; none where the run has no samples, or no cohorts.
    pub fn stacks(&self) -> Stacks {
        let (run, lifetimes) = (&self.opened.run, &self.opened.analysis.lifetimes);
        let Some(sampling) = run.meta.sampling.as_ref().filter(|_| !run.samples.is_empty()) else { return vec![] };
        let ranked = self.ranked();
        let Ok(cohorts) = Cohorts::of(&ranked, None, self.options) else { return vec![] };
        let thin = |ids: &[u32]| -> Vec<u32> {
            ids.iter().copied().step_by(ids.len().div_ceil(MOST_SAMPLED).max(1)).collect()
        };
        let ids = [thin(&cohorts.focus.ids), thin(&cohorts.reference.ids)];
        let paths = self.opened.analysis.to_paths();
        let path = |id, leg, part: PathPart<'_>| paths.part(id, leg, part);
        functions::by_stack(lifetimes, &run.samples, [&ids[0], &ids[1]], sampling.period_ns, self.diagnosis.leg, &path)
            .into_iter()
            .collect()
    }
}
