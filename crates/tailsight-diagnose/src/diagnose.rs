//! The diagnosis from end to end: the steps of the crate's documentation in order.

use std::cell::{LazyCell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use tailsight_lifetime::{
    Context, Leg, Lifetimes, Message, NamedFrame, OwnerId, PathPart, PathSpan, Role, Rule, Threshold,
};
use tailsight_trace::samples::Samples;

use crate::categories::{shown, shown_frame};
use crate::cause::{Category, Finding, How, Subject, names};
use crate::circumstances;
use crate::cohorts::against::{Joined, join};
use crate::cohorts::chosen_class::InClass;
use crate::cohorts::classes::by_class;
use crate::cohorts::focus::mean;
use crate::cohorts::{Cohort, Cohorts, counts, nothing, ranked_in};
use crate::estimate::{Costs, Estimates, OwnWork, Premises, estimate, later_arrivals};
use crate::functions::sampled::{Other, PathOf, Sampled};
use crate::functions::{self, Search};
use crate::model::{self, Cause, Circumstances, Cluster, Diagnosis, Loss, MessageCounts, Overhead, Slice, WorkBalance};
use crate::more::{MoreInput, more};
use crate::one_cause;
use crate::phases::{self, overlaps::Ahead, root};
use crate::queued::Walks;
use crate::rows::attribution::Attribution;
use crate::rows::bootstrap::Draws;
use crate::rows::classification::Classification;
use crate::rows::profile::{Profile, Source, Sum};
use crate::rows::{Row, Rows, who};
use crate::stages::stages;
use crate::typical::{slowest, typical};
use crate::{Error, Options, RecordingFacts, Selection};

/// Most owner paths of a cause.
const PATHS: usize = 8;

/// The thresholds in force, by name.
fn thresholds() -> BTreeMap<String, f64> {
    Threshold::ALL.iter().map(|threshold| (threshold.id().to_owned(), threshold.value())).collect()
}

/// Finds what distinguishes the focus messages from the reference messages (NSight §5.2).
///
/// # Errors
/// [`Error::Focus`] and [`Error::Option`] for options out of range, [`Error::NoMessages`] when no message has the leg
/// complete, [`Error::NotEnough`] (N/A) when focus or reference hold fewer than [`crate::MIN_MESSAGES`].
pub fn diagnose(lifetimes: &Lifetimes, options: &Options, facts: &RecordingFacts) -> Result<Diagnosis, Error> {
    diagnose_with(lifetimes, options, facts, &Inputs::default()).map(|(diagnosis, _)| diagnosis)
}

/// Which cause (index into [`Diagnosis::causes`]) the time of an owner in a leg and role counts to. Owners that neither
/// cohort met are absent.
pub type CauseOf = BTreeMap<(Leg, Role, OwnerId), usize>;

/// What a diagnosis may use besides the parts of the messages.
#[derive(Clone, Copy, Default)]
pub struct Inputs<'a> {
    /// The path of a message over a leg, in order: for what came before a gap, and for the cores.
    pub path: Option<PathOf<'a>>,
    /// Another run, by name: the same slice of its messages is the reference.
    pub against: Option<(&'a str, &'a Lifetimes)>,
    /// The run's samples, for functions.
    pub samples: Option<&'a Samples>,
    /// Of the run that is compared with: its samples, and the path of a message of it.
    pub against_samples: Option<(&'a Samples, PathOf<'a>)>,
    /// The messages at their recorded times, if those that are diagnosed have others: paths are of these.
    pub at_their_times: Option<&'a [Message]>,
    /// The messages that are looked into, if that was asked for before: of the same messages and options.
    pub selection: Option<&'a Selection>,
}

/// As [`diagnose`], with more input, and also returns the cause of every owner in the cohorts, for drawing messages.
///
/// # Errors
/// As [`diagnose`].
pub fn diagnose_with(
    lifetimes: &Lifetimes,
    options: &Options,
    facts: &RecordingFacts,
    inputs: &Inputs<'_>,
) -> Result<(Diagnosis, CauseOf), Error> {
    options.check()?;
    let first = lifetimes.messages.len();
    let stacks = inputs.samples.map_or(0, |samples| samples.stacks.len() as u32);
    let joined = inputs.against.map(|(_, other)| join(lifetimes, other, stacks));
    let lifetimes = joined.as_ref().map_or(lifetimes, |joined| &joined.lifetimes);
    let other_samples = inputs.against_samples.map(|(samples, _)| samples);
    let options = &options.of_run(&lifetimes.owners, inputs.samples, other_samples);
    let (mine, others) = lifetimes.messages.split_at(first);
    let in_class = InClass::new(options.class.as_ref(), &lifetimes.classes);
    let selected = LazyCell::new(|| Selection::in_class(mine, options, &in_class));
    let selection = inputs.selection.unwrap_or_else(|| &selected);
    let summary = Summary::new(lifetimes, (mine, &in_class), (options, selection), facts)?;
    let others = inputs.against.map(|_| ranked_in(others, options.leg, &in_class));
    let cohorts = Cohorts::of(&selection.ranked, others.as_deref(), options)?;

    let mut analysis = Analysis::new(&summary, options, inputs, &cohorts);
    let (mut causes, mut not_significant, mut cause_of_row) = analysis.causes(mine);
    analysis.functions(&mut causes, &cause_of_row, joined.as_ref());
    // That rows are one cause is known when their functions are.
    let pairs = one_cause::pairs(&causes);
    if !pairs.is_empty() {
        let row_of = |cause: usize| cause_of_row.iter().position(|&other| other == cause).expect("each has a row");
        let pairs: Vec<_> = pairs.into_iter().map(|(from, to)| (row_of(from), row_of(to))).collect();
        analysis = analysis.joined(&pairs);
        (causes, not_significant, cause_of_row) = analysis.causes(mine);
        analysis.functions(&mut causes, &cause_of_row, joined.as_ref());
    }
    let summarised = summary.diagnosis(options, facts, &cohorts.focus.ids);
    let mut diagnosis = Diagnosis {
        focus: cohorts.focus_slice,
        reference: cohorts.reference_slice,
        clusters: clusters(&causes, &analysis.attribution.dominant, &cohorts.focus, &cause_of_row),
        causes,
        not_significant,
        against: inputs.against.map(|(name, _)| name.to_owned()),
        coverage: analysis.coverage(),
        owned: analysis.attribution.owned.clone(),
        stages: stages(analysis.lifetimes, &cohorts),
        work: analysis.work(),
        more: options.more.then(|| analysis.more(&cause_of_row, joined.as_ref())),
        rules: if options.why { analysis.rules() } else { vec![] },
        thresholds: if options.why { thresholds() } else { BTreeMap::new() },
        circumstances: Circumstances {
            focus_cores: circumstances::cores(lifetimes, &cohorts.focus),
            has_samples: [inputs.samples, other_samples].map(|of| of.map(|samples| !samples.is_empty())),
            costs: circumstances::costs(&analysis.estimates),
            classes: analysis.estimates.classes,
            ..summarised.circumstances
        },
        ..summarised
    };
    if let Some(typical) = &mut diagnosis.typical {
        analysis.typical(typical);
    }
    Ok((diagnosis, analysis.cause_of(&cause_of_row)))
}

/// The diagnosis if there can be no causes ([`Error::NotEnough`]): percentiles, where a median message spends its time, the
/// slowest messages one by one; no focus and no causes.
///
/// # Errors
/// [`Error::NoMessages`] when no message has the leg complete.
pub fn overview(
    lifetimes: &Lifetimes,
    options: &Options,
    facts: &RecordingFacts,
    why: &Error,
) -> Result<Diagnosis, Error> {
    let in_class = InClass::new(options.class.as_ref(), &lifetimes.classes);
    let selection = Selection::in_class(&lifetimes.messages, options, &in_class);
    let summary = Summary::new(lifetimes, (&lifetimes.messages, &in_class), (options, &selection), facts)?;
    Ok(Diagnosis { not_available: Some(why.to_string()), ..summary.diagnosis(options, facts, &[]) })
}

/// The results about a run's messages that need no comparison.
struct Summary<'a> {
    lifetimes: &'a Lifetimes,
    classification: Classification<'a>,
    counts: MessageCounts,
    /// The run's, of any class.
    messages: &'a [Message],
    selection: &'a Selection,
}

impl<'a> Summary<'a> {
    fn new(
        lifetimes: &'a Lifetimes,
        (mine, in_class): (&'a [Message], &InClass),
        (options, selection): (&'a Options, &'a Selection),
        facts: &RecordingFacts,
    ) -> Result<Summary<'a>, Error> {
        crate::multiplexed::check_protocol(lifetimes)?;
        let counts = counts(lifetimes, (mine, in_class), options.leg, selection.ranked.len() as u64);
        if selection.ranked.is_empty() {
            return Err(nothing(lifetimes, options.leg, &counts, facts));
        }
        let classification = Classification::new(lifetimes, &options.categories);
        Ok(Summary { lifetimes, classification, counts, messages: mine, selection })
    }

    /// A diagnosis without causes. `focus`: the ids of the messages under study.
    fn diagnosis(&self, options: &Options, facts: &RecordingFacts, focus: &[u32]) -> Diagnosis {
        let (lifetimes, leg, ranked) = (self.lifetimes, options.leg, &self.selection.ranked[..]);
        let legs = self.selection.latencies.percentiles();
        let empty = |(from, to): (f64, f64)| Slice { from, to, ..Slice::default() };
        let of_any_class = options.class.as_ref().map(|_| ranked_in(self.messages, leg, &InClass::ANY));
        Diagnosis {
            schema: 1,
            run: facts.run.clone(),
            app: lifetimes.app.clone(),
            leg,
            messages: self.counts.clone(),
            latency_ns: legs.get(leg.name()).map_or_else(BTreeMap::new, |leg_latency| leg_latency.latency_ns.clone()),
            legs,
            classes: by_class(lifetimes, of_any_class.as_deref().unwrap_or(ranked), focus),
            class: options.class.clone(),
            protocols: crate::multiplexed::protocols(lifetimes),
            not_available: None,
            typical: typical(lifetimes, &self.classification, options, ranked),
            slowest: slowest(lifetimes, &self.classification, leg, ranked),
            focus: empty(options.focus),
            reference: empty(options.reference),
            clusters: vec![],
            causes: vec![],
            not_significant: vec![],
            against: None,
            coverage: model::Coverage::default(),
            owned: model::Coverage::default(),
            send_entry: crate::sent::entry(lifetimes),
            sent: crate::sent::summary(lifetimes),
            multiplexed: crate::multiplexed::summary(lifetimes),
            work: None,
            stages: vec![],
            more: None,
            rules: vec![],
            thresholds: BTreeMap::new(),
            ideal_ns: None,
            ideal: None,
            without: None,
            loss: Loss { events: facts.lost_events, clock_error_ns: facts.clock_error_ns },
            overhead: Overhead { ns_per_event: facts.ns_per_event, events: facts.events },
            notes: vec![],
            next: vec![],
            next_steps: vec![],
            circumstances: circumstances::of(lifetimes),
        }
    }
}

/// Whether the slow messages met no more page faults than others, or samples of their own time hardly met one.
fn no_faults(lifetimes: &Lifetimes, inputs: &Inputs<'_>, (slow, reference): (&Cohort, &Cohort), leg: Leg) -> bool {
    let faults = |id: &u32| u64::from(lifetimes.faults.get(*id as usize).copied().unwrap_or(0));
    let mean = |cohort: &Cohort| cohort.ids.iter().map(faults).sum::<u64>() as f64 / cohort.len().max(1) as f64;
    if mean(slow) <= mean(reference) {
        return true;
    }
    let own_samples = inputs.samples.zip(inputs.path).filter(|_| inputs.against.is_none());
    let at_their_times = (inputs.at_their_times.unwrap_or(&lifetimes.messages), leg);
    own_samples
        .is_some_and(|(samples, path)| functions::faults::no_faults(lifetimes, samples, slow, at_their_times, path))
}

/// The comparison of two cohorts, from their profiles to intervals.
struct Analysis<'a> {
    lifetimes: &'a Lifetimes,
    classification: &'a Classification<'a>,
    selection: &'a Selection,
    options: &'a Options,
    inputs: &'a Inputs<'a>,
    cohorts: &'a Cohorts,
    profile: Profile,
    estimates: Estimates,
    rows: Rows,
    attribution: Attribution,
    /// None when no intervals were asked for.
    draws: Option<Draws>,
    intervals: Option<Vec<[i64; 2]>>,
    /// What held the messages ahead, once that was asked for: of the whole focus, so the same for every row of head-of-line blocking.
    roots: OnceCell<Vec<root::HeldRoot>>,
}

impl<'a> Analysis<'a> {
    fn new(
        summary: &'a Summary<'a>,
        options: &'a Options,
        inputs: &'a Inputs<'a>,
        cohorts: &'a Cohorts,
    ) -> Analysis<'a> {
        let Summary { lifetimes, classification, selection, .. } = summary;
        let (leg, both_cohorts) = (options.leg, cohorts.both());
        let mut profile = Profile::new(lifetimes, leg, both_cohorts.0, both_cohorts.1);
        let no_faults = || no_faults(lifetimes, inputs, both_cohorts, leg);
        let premises =
            Premises { same_run: inputs.against.is_none(), no_faults: &no_faults, chosen_by_work: false, before: &[] };
        let estimates =
            estimate(lifetimes, classification, options, &mut profile, both_cohorts, &selection.basis, premises);
        later_arrivals::apply(lifetimes, options, &mut profile, both_cohorts);
        let rows = Rows::new(lifetimes, classification, &profile, both_cohorts, options);
        let attribution = Attribution::new(lifetimes, leg, &profile, &rows, both_cohorts, options.granularity_ns);
        let draws = Draws::of(&attribution.focus, &attribution.reference, options.bootstrap_rounds, options.seed);
        let intervals = draws.as_ref().map(Draws::intervals);
        Analysis {
            lifetimes,
            classification,
            selection,
            options,
            inputs,
            cohorts,
            profile,
            estimates,
            rows,
            attribution,
            draws,
            intervals,
            roots: OnceCell::new(),
        }
    }

    /// The same with some rows added to others: pairs (row, the one that it is added to).
    fn joined(self, pairs: &[(usize, usize)]) -> Analysis<'a> {
        let (options, both_cohorts) = (self.options, self.cohorts.both());
        let rows = self.rows.joined(pairs);
        let attribution =
            Attribution::new(self.lifetimes, options.leg, &self.profile, &rows, both_cohorts, options.granularity_ns);
        let draws = Draws::of(&attribution.focus, &attribution.reference, options.bootstrap_rounds, options.seed);
        let intervals = draws.as_ref().map(Draws::intervals);
        Analysis { rows, attribution, draws, intervals, roots: OnceCell::new(), ..self }
    }

    /// The row `unexplained`.
    fn last(&self) -> usize {
        self.rows.rows.len() - 1
    }

    /// Whether a row is a cause, or `unexplained`: its interval does not contain 0.
    fn is_cause(&self, row: usize) -> bool {
        let holds_0 = |intervals: &Vec<[i64; 2]>| intervals[row][0] <= 0 && 0 <= intervals[row][1];
        row == self.last() || !self.intervals.as_ref().is_some_and(holds_0)
    }

    fn coverage(&self) -> model::Coverage {
        let is_reported = |row: usize| row != self.last() && self.is_cause(row);
        let (lifetimes, leg) = (self.lifetimes, self.options.leg);
        self.attribution.coverage(lifetimes, leg, &self.profile, &self.rows, &self.cohorts.focus, &is_reported)
    }

    /// What messages are said to have worked themselves once they were received: before, a thread on its way to several messages delays all
    /// of them. What the threads ran is not known here.
    fn work(&self) -> Option<WorkBalance> {
        // What the threads ran is of all classes.
        if self.options.leg != Leg::Total || self.inputs.against.is_some() || self.options.class.is_some() {
            return None;
        }
        let own = OwnWork::new(self.lifetimes, self.classification, &self.profile, Leg::Service);
        let everyone = &self.selection.basis.everyone;
        let sum: i64 = everyone.iter().map(|&id| own.ns(self.lifetimes, id)).sum();
        Some(WorkBalance { own_ns: sum.max(0) as u64 / everyone.len().max(1) as u64, ran_ns: 0 })
    }

    /// The causes in their order, then one row for all that are no causes, then the row without an owner; the rows that are no
    /// causes; and the cause (index) that each row counts to.
    fn causes(&self, mine: &[Message]) -> (Vec<Cause>, Vec<Cause>, Vec<usize>) {
        let total_ns = self.cohorts.deviation_ns();
        let ahead = &self.selection.ahead;
        let mean_ahead = self.mean_ahead();
        // For the whole focus, so the same for every row of head-of-line blocking.
        let deviations = self.rows.rounded(total_ns);
        let roots = || {
            let (focus, reference) = self.cohorts.both();
            let (lifetimes, classification, granularity_ns) =
                (self.lifetimes, self.classification, self.options.granularity_ns);
            // Other threads' messages are not in the queue of this one.
            let own = |row: &Row| !elsewhere(lifetimes, &self.profile, &row.slots);
            let (mut waited_ns, mut to_be_received) = (0.0, 0.0);
            for (i, ns) in deviations.iter().map(|&ns| ns as f64).enumerate() {
                let row = &self.rows.rows[i];
                if row.category == Category::HolBlocking && ns > 0.0 && own(row) {
                    waited_ns += ns;
                    to_be_received += ns * before_receive(&self.profile, &self.rows, i);
                }
            }
            let leg = if to_be_received * 2.0 >= waited_ns { Leg::Receive } else { Leg::Service };
            let queue = root::Queue { lifetimes, classification, granularity_ns, mine, ahead, leg };
            queue.roots(&focus.ids, reference, |held| self.costs_ahead(held, reference))
        };
        let (mut causes, mut not_significant) = (Vec::with_capacity(self.rows.rows.len()), vec![]);
        for (i, deviation_ns) in deviations.iter().copied().enumerate() {
            let mut cause = self.cause(i, deviation_ns);
            // Between two threads a message waits behind others than those that its own thread received before it.
            let in_line = cause.is_received() && self.is_handed_on(&cause);
            if cause.category == Category::HolBlocking && !in_line {
                let others = elsewhere(self.lifetimes, &self.profile, &self.rows.rows[i].slots);
                cause.ahead = Some(ahead_of(&cause, mine, ahead, others, mean_ahead));
                if deviation_ns > 0 && !others {
                    let roots = self.roots.get_or_init(roots).iter().map(|root| root.root.clone());
                    cause.root = roots.collect();
                    // Once a message is received, its thread may run for later ones, or on its own account: it was those ahead that held
                    // it where they explain the wait, and else nothing tells.
                    let explained: f64 = cause.root.iter().filter_map(|root| root.of_wait).sum();
                    if cause.is_received() && explained < Threshold::HeldByAhead.share() {
                        cause.root.clear();
                    }
                }
            }
            (cause.paths, cause.path_frames) = paths(self.lifetimes, &self.profile, &self.rows, i).into_iter().unzip();
            if self.is_cause(i) {
                cause.cores = self.cores(i, &cause);
                cause.before = self.before(i, &cause);
                causes.push(cause);
            } else {
                not_significant.push(cause);
            }
        }
        let cause_of_row = self.rank(&mut causes, &mut not_significant);
        (causes, not_significant, cause_of_row)
    }

    /// Whether another thread answered most of a cause's evidence than received it.
    fn is_handed_on(&self, cause: &Cause) -> bool {
        let handed_on = |id: &&u32| self.lifetimes.handed_on.get(**id as usize).is_some_and(|handed_on| *handed_on);
        cause.evidence.iter().filter(handed_on).count() * 2 > cause.evidence.len()
    }

    /// On which cores another program had the time of a cause's evidence: a message may wait on one core and be received on another.
    fn cores(&self, row: usize, cause: &Cause) -> Vec<u32> {
        let is_others = matches!(cause.category, Category::Interference | Category::OsThreads);
        let Some(path) = self.inputs.path.filter(|_| is_others && self.inputs.against.is_none()) else {
            return vec![];
        };
        let slots = self.rows.rows[row].slots.iter();
        let owners: BTreeSet<usize> = slots.filter_map(|&slot| self.profile.owner_of(slot)).collect();
        let mut ns_on: BTreeMap<u32, u64> = BTreeMap::new();
        for &id in &cause.evidence {
            let its = |span: &PathSpan| span.role == cause.role && owners.contains(&(span.owner as usize));
            for span in path(id, self.options.leg, PathPart::Whole).into_iter().filter(its) {
                if let Some(cpu) = span.cpu {
                    *ns_on.entry(u32::from(cpu)).or_default() += span.to_ns - span.from_ns;
                }
            }
        }
        let sum_ns: u64 = ns_on.values().sum();
        ns_on.into_iter().filter(|(_, ns)| ns * circumstances::FEW as u64 >= sum_ns).map(|(core, _)| core).collect()
    }

    /// Messages ahead, mean: of the focus, of the reference.
    fn mean_ahead(&self) -> [f64; 2] {
        let ahead = |id: &u32| f64::from(self.lifetimes.messages[*id as usize].ahead);
        let mean = |cohort: &Cohort| cohort.ids.iter().map(ahead).sum::<f64>() / cohort.len() as f64;
        [mean(&self.cohorts.focus), mean(&self.cohorts.reference)]
    }

    /// What events without a duration cost the messages ahead in a queue, beside ordinary ones: of all legs, as a thread is held in all.
    fn costs_ahead(&self, held: &Cohort, reference: &Cohort) -> Costs {
        let own = OwnWork::new(self.lifetimes, self.classification, &self.profile, Leg::Total);
        let no_faults = || no_faults(self.lifetimes, self.inputs, (held, reference), Leg::Total);
        // Of the messages ahead all legs are looked at: what an event costs there is known if all legs of the focus were, too.
        let before = if self.options.leg == Leg::Total { &self.estimates.costs[..] } else { &[] };
        let same_run = self.inputs.against.is_none();
        let premises = Premises { same_run, no_faults: &no_faults, chosen_by_work: true, before };
        Costs::new(self.lifetimes, own, self.options, (held, reference), &self.selection.basis, premises)
    }

    /// A row with its numbers.
    fn cause(&self, i: usize, deviation_ns: i64) -> Cause {
        let (row, occurrence) = (&self.rows.rows[i], &self.attribution.occurrences[i]);
        let cohorts = self.rows.cohorts;
        let Finding { phase, how } = phases::finding(self.lifetimes, &self.profile, &row.slots, cohorts, occurrence);
        let who = || who::of(self.lifetimes, &self.profile, &row.slots, cohorts);
        Cause {
            share: self.rows.share(i),
            deviation_ns,
            ci95_ns: self.intervals.as_ref().map_or([deviation_ns; 2], |intervals| intervals[i]),
            messages: self.attribution.hits[i],
            evidence: self.attribution.evidence[i].clone(),
            times: occurrence.times,
            phase: Some(phase),
            how: Some(how),
            mean_ns: occurrence.mean_ns.map(|ns| ns.round() as i64),
            inferred: row.inferred,
            guessed: self.rows.guessed(self.lifetimes, &self.profile, i),
            who: is_task(row.category).then(who).flatten(),
            before_receive: Some(before_receive(&self.profile, &self.rows, i)),
            ..Cause::new(row.category, row.name.clone(), row.subject.clone(), row.frames.clone(), row.role)
        }
    }

    /// For a gap that is larger in the focus: what ran before it.
    fn before(&self, row: usize, cause: &Cause) -> Option<String> {
        let path = self.inputs.path.filter(|_| cause.how == Some(How::Gap) && cause.deviation_ns > 0)?;
        let row = &self.rows.rows[row];
        // In any leg.
        let in_row = |span: &PathSpan| {
            row.slots.iter().any(|&slot| {
                matches!(self.profile.source(slot), Source::Owner(_, role, owner)
                    if role == span.role && owner as OwnerId == span.owner)
            })
        };
        phases::gaps::before(self.lifetimes, &cause.evidence, &in_row, (path, self.options.leg))
    }

    /// Puts the row `not significant` before the last, and numbers the causes.
    fn rank(&self, causes: &mut Vec<Cause>, not_significant: &mut [Cause]) -> Vec<usize> {
        if !not_significant.is_empty() {
            let interval = |draws: &Draws| draws.interval_of_sum(|i| !self.is_cause(i));
            let ci = self.draws.as_ref().map_or([0; 2], interval);
            causes.insert(causes.len() - 1, merged_row(not_significant, ci));
        }
        let (merged, end) = (causes.len().saturating_sub(2), causes.len() - 1);
        let mut next = 0..;
        let cause_of_row = (0..self.rows.rows.len()).map(|i| match (i == self.last(), self.is_cause(i)) {
            (true, _) => end,
            (false, false) => merged,
            (false, true) => next.next().unwrap_or(end),
        });
        let cause_of_row = cause_of_row.collect();
        causes.iter_mut().zip(1..).for_each(|(cause, rank)| cause.rank = rank);
        not_significant.iter_mut().for_each(|cause| cause.rank = merged as u32 + 1);
        cause_of_row
    }

    /// Where functions are looked for, if the run has samples.
    fn search(&self, joined: Option<&'a Joined>) -> Option<Search<'_>> {
        let samples = self.inputs.samples.filter(|samples| !samples.is_empty())?;
        let other = match (joined, self.inputs.against_samples) {
            (None, _) => None,
            (Some(Joined { owner_of, first, .. }), Some((samples, path))) if !samples.is_empty() => {
                Some(Other { samples, path, owner_of, first: *first })
            }
            // What one run alone has is no comparison.
            (Some(_), _) => return None,
        };
        let sampled = Sampled::new(samples, self.inputs.path?, other);
        Some(Search {
            lifetimes: self.lifetimes,
            messages: self.inputs.at_their_times.unwrap_or(&self.lifetimes.messages),
            options: self.options,
            profile: &self.profile,
            rows: &self.rows,
            cohorts: self.cohorts.both(),
            interpreters: functions::interpreters(&sampled.samples.frames, &self.options.runtimes),
            sampled,
            last_resampled: Mutex::default(),
        })
    }

    /// Divides the causes by functions, if the run has samples.
    fn functions(&self, causes: &mut [Cause], cause_of_row: &[usize], joined: Option<&'a Joined>) {
        let Some(search) = self.search(joined) else { return };
        let mut row_of = vec![None; causes.len()];
        for (row, &cause) in
            cause_of_row.iter().enumerate().filter(|&(row, _)| row != self.last() && self.is_cause(row))
        {
            row_of[cause] = Some(row);
        }
        let (roots, classification) = (self.roots.get(), self.classification);
        let (divided, ()) =
            rayon::join(|| roots.map(|roots| search.roots(roots, classification)), || search.fill(causes, &row_of));
        if let Some(divided) = divided {
            let queues = causes.iter_mut().filter(|cause| !cause.root.is_empty());
            queues.for_each(|cause| cause.root.clone_from(&divided));
        }
    }

    /// Says where in the program the median messages wait, if the run has samples and is not compared with another one.
    fn typical(&self, typical: &mut model::Typical) {
        let Some(search) = self.search(None).filter(|_| self.inputs.against.is_none()) else { return };
        search.typical(typical, self.classification, crate::typical::cohort(&self.selection.ranked, self.options));
    }

    /// The rules that decided what the sleeps of the focus were for, by their time.
    fn rules(&self) -> Vec<model::RuleShare> {
        let Some(path) = self.inputs.path else { return vec![] };
        let focus = &self.cohorts.both().0.ids;
        let mut ns_and_messages: BTreeMap<Rule, (u64, u64)> = BTreeMap::new();
        for &id in focus {
            let mut of_message: BTreeMap<Rule, u64> = BTreeMap::new();
            for span in path(id, self.options.leg, PathPart::Whole) {
                if let Some(rule) = span.rule {
                    *of_message.entry(rule).or_default() += span.to_ns - span.from_ns;
                }
            }
            for (rule, ns) in of_message {
                let sum = ns_and_messages.entry(rule).or_default();
                *sum = (sum.0 + ns, sum.1 + 1);
            }
        }
        let share = |(rule, (ns, messages)): (Rule, (u64, u64))| model::RuleShare {
            rule: rule.id().to_owned(),
            mean_ns: ns / focus.len().max(1) as u64,
            messages,
        };
        let mut rules: Vec<model::RuleShare> = ns_and_messages.into_iter().map(share).collect();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.mean_ns));
        rules
    }

    fn more(&self, cause_of_row: &[usize], joined: Option<&Joined>) -> model::More {
        // Paths alone: functions are not looked for here.
        let none = Samples::default();
        let other = joined.zip(self.inputs.against_samples).map(|(joined, (_, path))| Other {
            samples: &none,
            path,
            owner_of: &joined.owner_of,
            first: joined.first,
        });
        let has_both_samples = joined.is_none() || other.is_some();
        let paths = self.inputs.path.filter(|_| has_both_samples).map(|path| Sampled::new(&none, path, other));
        let walks = paths.as_ref().map(|paths| Walks {
            paths,
            messages: self.inputs.at_their_times.unwrap_or(&self.lifetimes.messages),
            first: joined.map_or(usize::MAX, |joined| joined.first.0),
        });
        more(&MoreInput {
            walks,
            lifetimes: self.lifetimes,
            options: self.options,
            profile: &self.profile,
            rows: &self.rows,
            occurrences: &self.attribution.occurrences,
            cause_of_row,
            cohorts: self.cohorts.both(),
            ranked: &self.selection.ranked,
            path: self.inputs.path,
            same_run: self.inputs.against.is_none(),
        })
    }

    fn cause_of(&self, cause_of_row: &[usize]) -> CauseOf {
        let cause_of_slot = |slot| match self.profile.source(slot) {
            Source::Owner(leg, role, owner) => {
                Some(((leg, role, owner as OwnerId), cause_of_row[self.rows.row_of(slot)]))
            }
            Source::Derived(_) => None,
        };
        self.profile.occupied().filter_map(cause_of_slot).collect()
    }
}

/// The row that stands for the rows which are no causes.
fn merged_row(rows: &[Cause], ci95_ns: [i64; 2]) -> Cause {
    let sum = |of: fn(&Cause) -> i64| rows.iter().map(of).sum::<i64>();
    let subject = Subject::named("not significant");
    Cause {
        share: rows.iter().map(|r| r.share).sum(),
        deviation_ns: sum(|r| r.deviation_ns),
        ci95_ns,
        mean_ns: [sum(|r| r.mean_ns[0]), sum(|r| r.mean_ns[1])],
        ..Cause::new(Category::NotSignificant, names::base(&subject), subject, vec![], Role::A)
    }
}

/// For a row of head-of-line blocking: the messages ahead of those of its evidence. `others`: also with other threads.
fn ahead_of(cause: &Cause, mine: &[Message], ahead: &Ahead, others: bool, mean: [f64; 2]) -> model::Ahead {
    let ids_ahead = |id: u32| match (&mine[id as usize], others) {
        (m, true) => ahead.elsewhere(mine, m),
        (m, false) => ahead.of(m),
    };
    let ids = cause.evidence.iter().map(|&id| (id, ids_ahead(id))).collect();
    model::Ahead { focus: mean[0], reference: mean[1], ids }
}

/// Whether causes of the category are tasks. Time of other categories may be in a task's context without being caused by it.
fn is_task(category: Category) -> bool {
    matches!(
        category,
        Category::Interference
            | Category::OsThreads
            | Category::Profiler
            | Category::AppProcessing
            | Category::LockWait
            | Category::PoolWait
            | Category::ConnectionSetup
    )
}

/// Whether a row is time of other threads that served other messages.
fn elsewhere(lifetimes: &Lifetimes, profile: &Profile, slots: &[usize]) -> bool {
    let sibling = |&slot: &usize| {
        let owner = profile.owner_of(slot).map(|o| &lifetimes.owners[o].context);
        matches!(owner, Some(Context::Sibling { .. }))
    };
    slots.iter().any(sibling)
}

/// The focus messages by dominant cause, the largest cluster first.
fn clusters(causes: &[Cause], dominant: &[(usize, u64)], focus: &Cohort, cause_of_row: &[usize]) -> Vec<Cluster> {
    let mut by_cause: BTreeMap<usize, (u64, u128, (u64, u32))> = BTreeMap::new();
    for (&(row, latency), &id) in dominant.iter().zip(&focus.ids) {
        let (n, sum, slowest) = by_cause.entry(cause_of_row[row]).or_default();
        *n += 1;
        *sum += u128::from(latency);
        if *n == 1 || latency > slowest.0 {
            *slowest = (latency, id);
        }
    }
    let cluster = |(cause, (messages, sum, slowest)): (usize, (u64, u128, (u64, u32)))| {
        let Cause { rank, category, name, subject, frames, role, .. } = &causes[cause];
        Cluster {
            rank: *rank,
            category: *category,
            name: name.clone(),
            subject: subject.clone(),
            frames: frames.clone(),
            role: *role,
            messages,
            mean_ns: mean(sum, messages),
            example: slowest.1,
        }
    };
    let mut out: Vec<Cluster> = by_cause.into_iter().map(cluster).collect();
    out.sort_by_key(|c| (std::cmp::Reverse(c.messages), c.rank));
    out
}

/// Which part of a row's deviation is in the receive leg, 0 to 1.
fn before_receive(profile: &Profile, rows: &Rows, row: usize) -> f64 {
    let (nf, nr) = rows.cohorts;
    let (mut total_ns, mut before_ns) = (0.0, 0.0);
    for &slot in &rows.rows[row].slots {
        let ns = (profile.focus[slot].ns as f64 / nf - profile.reference[slot].ns as f64 / nr).max(0.0);
        total_ns += ns;
        before_ns += match profile.source(slot) {
            Source::Owner(Leg::Receive, ..) => ns,
            // What was received later and served first is ahead of this message, which waits to be received.
            Source::Derived(row) if row.subject == Subject::LaterArrivals => ns,
            _ => 0.0,
        };
    }
    if total_ns > 0.0 { before_ns / total_ns } else { 0.0 }
}

/// The largest owner paths of a row, each with its deviation, ns, and its frames.
fn paths(lifetimes: &Lifetimes, profile: &Profile, rows: &Rows, row: usize) -> Vec<((String, i64), Vec<NamedFrame>)> {
    let (nf, nr) = rows.cohorts;
    // An owner in several legs is one path.
    let mut by_name: BTreeMap<String, (f64, Option<usize>)> = BTreeMap::new();
    for &slot in &rows.rows[row].slots {
        let ns = |sums: &[Sum], n: f64| sums[slot].ns as f64 / n;
        let (path, owner) = match profile.source(slot) {
            Source::Owner(_, _, owner) => (lifetimes.owners[owner].path(&lifetimes.symbols), Some(owner)),
            Source::Derived(derived) => (derived.path.clone(), None),
        };
        by_name.entry(shown(&path)).or_insert((0.0, owner)).0 += ns(&profile.focus, nf) - ns(&profile.reference, nr);
    }
    let mut largest: Vec<(String, i64, Option<usize>)> =
        by_name.into_iter().map(|(path, (ns, owner))| (path, ns.round() as i64, owner)).collect();
    largest.sort_by(|a, b| b.1.abs().cmp(&a.1.abs()).then_with(|| a.0.cmp(&b.0)));
    largest.truncate(PATHS);
    let named = |owner: usize| {
        let frames = lifetimes.owners[owner].frames.iter().filter(|f| !f.is_place());
        frames.map(|frame| shown_frame(&frame.named(&lifetimes.symbols))).collect()
    };
    let path = |(name, deviation_ns, owner): (String, i64, Option<usize>)| {
        ((name, deviation_ns), owner.map_or_else(Vec::new, named))
    };
    largest.into_iter().map(path).collect()
}
