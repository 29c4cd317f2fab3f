//! Functions under the causes: the code in which the focus spent more time than the reference.
//!
//! In: the samples of the run, the rows, and the paths of the messages of both cohorts. Out: for each cause with enough samples, its
//! [`FunctionPart`]s and its hot path. A row's time is known to the nanosecond; samples only divide it. A function's part is its share
//! of the row's samples times the row's time, focus minus reference, with an interval over resampled messages. With too little
//! evidence the row stays whole. The parts and the rest always sum to the row.

pub(crate) mod counted;
mod cut;
pub(crate) mod faults;
mod meanwhile;
mod naming;
pub mod parked;
pub mod place;
pub(crate) mod roots;
pub mod runtimes;
pub(crate) mod sampled;
pub mod tree;
mod typical;

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::{FxHashMap, FxHashSet};
use tailsight_lifetime::{Context, Frame, FrameKind, LEGS, Leg, Lifetimes, Message, PathSpan, Threshold};
use tailsight_trace::samples::{FrameRow, Samples};

use crate::Options;
use crate::cause::{Category, Subject, names};
use crate::cohorts::Cohort;
use crate::model::{CallerPart, Cause, FunctionHow, FunctionPart, HotFrame, InPlaceOf, RuntimePart};
use crate::rows::Rows;
use crate::rows::profile::{Profile, slot_of};
use counted::{Counted, Resampled};
use naming::Named;
pub use naming::without_arguments;
use place::ByTime;
use runtimes::Runtimes;
use sampled::{PathOf, Sampled};
use tree::{Scale, Tree};

/// The call stacks of both cohorts' time, outermost function first, each with ns of a mean message: focus, reference. `ids`: the messages
/// of each, over the leg; `period_ns`: the time that a tick of the clock stands for.
pub fn by_stack(
    lifetimes: &Lifetimes,
    samples: &Samples,
    ids: [&[u32]; 2],
    period_ns: u64,
    leg: Leg,
    path: PathOf<'_>,
) -> BTreeMap<Vec<String>, [f64; 2]> {
    let by_time = ByTime::new(&samples.rows);
    let mut out: BTreeMap<Vec<String>, [f64; 2]> = BTreeMap::new();
    for (cohort, ids) in ids.into_iter().enumerate() {
        let of_message = period_ns as f64 / ids.len().max(1) as f64;
        for &id in ids {
            let message_and_leg = (&lifetimes.messages[id as usize], leg);
            by_time.on(
                message_and_leg,
                |part| path(id, leg, part),
                &lifetimes.owners,
                |_, sample| {
                    let names = samples.stack(sample.stack).rev().map(FrameRow::name).collect();
                    out.entry(names).or_default()[cohort] += of_message * f64::from(sample.weight);
                },
            );
        }
    }
    out
}

/// And in a function, over so many messages.
const LEAST_OF_FUNCTION: (u64, u64) = (5, 3);
/// Messages of a cohort that are looked at, evenly over it.
const MOST_MESSAGES: usize = 6_000;
/// Causes that are divided: the largest.
const MOST_CAUSES: usize = 12;
/// Functions of a cause.
const MOST_FUNCTIONS: usize = 8;

/// What the functions are looked for in.
pub(crate) struct Search<'a> {
    pub lifetimes: &'a Lifetimes,
    /// At the times of their paths.
    pub messages: &'a [Message],
    pub options: &'a Options,
    pub profile: &'a Profile,
    pub rows: &'a Rows,
    pub cohorts: (&'a Cohort, &'a Cohort),
    pub sampled: Sampled<'a>,
    /// Programs and libraries that were sampled and hold an interpreter.
    pub interpreters: FxHashSet<String>,
    /// What the bootstrap was last made with: most causes have cohorts of the same sizes.
    pub last_resampled: Mutex<Option<Arc<Resampled>>>,
}

/// The programs and libraries of these frames that hold an interpreter.
pub(crate) fn interpreters(frames: &[FrameRow], runtimes: &Runtimes) -> FxHashSet<String> {
    frames.iter().filter(|f| runtimes.interprets(f)).map(|f| f.module.clone()).collect()
}

/// A row in the messages of a cohort: ns of it, and the stacks that were sampled in it.
#[derive(Clone, Debug, Default)]
struct InMessage {
    ns: f64,
    /// Stacks with what each stands for: the weights of samples.
    stacks: Vec<(u32, u64)>,
    /// Stacks of sleeps, each with its ns.
    sleeps: Vec<(u32, u64)>,
    /// What was done meanwhile that was waited for, where, and its ns.
    meanwhile: Vec<(meanwhile::Did, u64)>,
}

/// A row in both cohorts, by message.
type InCohorts = [Vec<InMessage>; 2];

impl Search<'_> {
    /// Divides the causes: `row_of` says which row each is, by place.
    pub fn fill(&self, causes: &mut [Cause], row_of: &[Option<usize>]) {
        let function_of = self.functions();
        let worth = |c: &Cause| c.category.is_named() && c.deviation_ns > 0;
        let worth_filling = |(i, row): (usize, &Option<usize>)| row.filter(|_| worth(&causes[i])).map(|row| (i, row));
        let wanted: Vec<(usize, usize)> =
            row_of.iter().enumerate().filter_map(worth_filling).take(MOST_CAUSES).collect();
        let by_row = self.collect(&wanted.iter().map(|&(_, row)| row).collect::<Vec<_>>());
        for ((cause, _), messages) in wanted.into_iter().zip(by_row) {
            self.divide(&mut causes[cause], messages, &function_of);
        }
    }

    /// How the bootstrap resamples cohorts of these sizes.
    fn resampled(&self, sizes: [usize; 2]) -> Arc<Resampled> {
        let mut last = self.last_resampled.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(resampled) if resampled.sizes() == sizes => Arc::clone(resampled),
            _ => Arc::clone(last.insert(Arc::new(Resampled::new(sizes, self.options.seed)))),
        }
    }

    /// Of each frame the first one in the same function.
    fn functions(&self) -> Vec<u32> {
        by_function(&self.sampled.samples.frames, self.sampled.of_two_runs())
    }

    /// What each message has of these rows.
    fn collect(&self, wanted: &[usize]) -> Vec<InCohorts> {
        let mut out = vec![InCohorts::default(); wanted.len()];
        let mut place = vec![None; self.rows.rows.len()];
        wanted.iter().enumerate().for_each(|(i, &row)| place[row] = Some(i));
        let owners = &self.lifetimes.owners;
        // What a class of requests costs beyond others is a part of the messages' own work: samples met that.
        let is_class = |row: usize| matches!(self.rows.rows[row].subject, Subject::Class { .. });
        let classes: Vec<usize> = (0..wanted.len()).filter(|&i| is_class(wanted[i])).collect();
        let is_own_work = |owner: usize, row: usize| {
            owners[owner].context == Context::Own && self.rows.rows[row].category == Category::AppProcessing
        };
        // The time of page faults was taken from the messages' own work: so are the samples that met it.
        let is_of_faults =
            |&row: &usize| self.rows.rows[row].inferred && self.rows.rows[row].category == Category::Paging;
        let of_faults = wanted.iter().copied().find(is_of_faults);
        let in_fault = of_faults.map(|_| faults::in_faults(&self.sampled.samples)).unwrap_or_default();
        for (cohort, members) in [self.cohorts.0, self.cohorts.1].into_iter().enumerate() {
            let step = members.len().div_ceil(MOST_MESSAGES).max(1);
            for &id in members.ids.iter().step_by(step) {
                for rows in &mut out {
                    rows[cohort].push(InMessage::default());
                }
                let mut last = |row: usize, f: &dyn Fn(&mut InMessage)| {
                    let i: Option<usize> = place[row];
                    if let Some(message) = i.and_then(|i| out[i][cohort].last_mut()) {
                        f(message);
                    }
                };
                self.profile.each(self.lifetimes, id, |slot, ns| {
                    let place = self.profile.owner_of(slot).and_then(|owner| match owners[owner].frames.last() {
                        Some(&Frame::Place { stack }) => Some((stack, u64::try_from(ns).ok()?)),
                        _ => None,
                    });
                    let meanwhile = self.profile.owner_of(slot).and_then(|owner| match owners[owner].frames.get(1) {
                        Some(&Frame::Meanwhile { doing, stack, server }) => {
                            Some((meanwhile::Did { doing, stack, server }, u64::try_from(ns).ok()?))
                        }
                        _ => None,
                    });
                    last(self.rows.row_of(slot), &|message| {
                        message.ns += ns as f64;
                        message.sleeps.extend(place);
                        message.meanwhile.extend(meanwhile);
                    });
                });
                let message = &self.messages[id as usize];
                let mut own_work: Vec<(u32, u64)> = vec![];
                self.sampled.on(message, self.options.leg, owners, |span, sample| {
                    let slot = segment(message, span, self.options.leg)
                        .map(|segment| slot_of(owners.len(), segment, span.role, span.owner));
                    // The walk of a single message may name owners that the partition never met.
                    if let Some(row) =
                        slot.filter(|_| (span.owner as usize) < owners.len()).and_then(|s| self.rows.find_row(s))
                    {
                        let taken = (sample.stack, u64::from(sample.weight));
                        let own = is_own_work(span.owner as usize, row);
                        let fault = own && in_fault.get(sample.stack as usize) == Some(&true);
                        let row = of_faults.filter(|_| fault).unwrap_or(row);
                        if own && !fault {
                            own_work.push(taken);
                        }
                        last(row, &|message| message.stacks.push(taken));
                    }
                });
                for &class in &classes {
                    if let Some(message) = out[class][cohort].last_mut() {
                        message.stacks.clone_from(&own_work);
                    }
                }
            }
        }
        out
    }

    /// Divides one cause by its functions, where the evidence is there: by the places of its sleeps, which are known to the ns, where
    /// it mostly slept; else by samples.
    fn divide(&self, cause: &mut Cause, messages: InCohorts, function_of: &[u32]) {
        let ns = |value: &dyn Fn(&InMessage) -> f64| messages[0].iter().map(value).sum::<f64>();
        let asleep = ns(&|m| m.sleeps.iter().map(|s| s.1 as f64).sum());
        let of_focus = messages[0].iter().flat_map(|m| m.meanwhile.iter().copied());
        cause.meanwhile = self.meanwhile(of_focus, ns(&|m| m.ns));
        if asleep * 2.0 < ns(&|m| m.ns) || asleep == 0.0 {
            return self.divide_by(cause, &messages, function_of, false);
        }
        let placed = |m: InMessage| {
            let ns = m.sleeps.iter().map(|s| s.1 as f64).sum();
            InMessage { ns, stacks: m.sleeps, ..InMessage::default() }
        };
        self.divide_by(cause, &messages.map(|cohort| cohort.into_iter().map(placed).collect()), function_of, true);
    }

    /// Divides a cause by the stacks of its samples or, with `waits`, of its sleeps.
    fn divide_by(&self, cause: &mut Cause, messages: &InCohorts, function_of: &[u32], waits: bool) {
        let (tree, leaf_of) = self.tree_of(messages, function_of);
        let weights = tree.node(0).samples;
        let entries = messages.each_ref().map(|cohort| cohort.iter().map(|m| m.stacks.len() as u64).sum::<u64>());
        if !waits {
            cause.samples = Some(entries);
            if entries[0] < Threshold::FunctionSamples.count() as u64 {
                return;
            }
        }
        // Of sleeps the mean is of those that have a place.
        let slept = |cohort: &Vec<InMessage>| cohort.iter().map(|m| m.ns).sum::<f64>() / cohort.len().max(1) as f64;
        let mean = if waits { messages.each_ref().map(slept) } else { cause.mean_ns.map(|ns| ns as f64) };
        // Of sleeps each ns is known.
        let of_reference = if waits { weights[1] } else { entries[1] } as f64;
        let scale = Scale { mean_ns: mean, samples: weights.map(|n| n as f64), of_reference };
        let tells = |node| self.frame(&tree, node).is_none_or(|f| self.tells(f));
        let mut parts = tree.split(&scale, self.options.nesting, |node| self.is_runtime_s_own(&tree, node), tells);
        // A part that is named by a function that has most of it, and not all, is that function; the rest is a part of its own.
        let of_parts = parts.iter().filter(|&&node| node != 0);
        let named_below: Vec<usize> =
            of_parts.filter_map(|&node| self.named(&tree, node, &parts, &scale).below).collect();
        parts.extend(named_below);
        parts.sort_unstable();
        parts.dedup();
        let part: FxHashMap<u32, Option<usize>> =
            leaf_of.iter().map(|(&stack, &leaf)| (stack, part_of(&tree, &parts, leaf))).collect();
        let counted = Counted::new(messages, parts.len(), &|stack| part.get(&stack).copied().flatten());
        let parts_and_places =
            self.parts(cause, &Divided { tree: &tree, scale: &scale, parts: &parts, counted: &counted }, waits);
        if let Some(first) = parts_and_places.first() {
            cause.hot_path = self.hot_path(&tree, parts[first.1], &scale);
        }
        cause.functions =
            merged(parts_and_places.into_iter().map(|(part, place)| (part, counted.times(place))).collect());
        self.as_runtime(cause);
    }

    /// The call tree of the stacks of both cohorts, and the leaf of each stack.
    fn tree_of(&self, messages: &InCohorts, function_of: &[u32]) -> (Tree, FxHashMap<u32, usize>) {
        let mut calls: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for &(stack, _) in messages.iter().flatten().flat_map(|m| &m.stacks) {
            let Some(frames) = self.sampled.samples.stacks.get(stack as usize) else { continue };
            let functions = || frames.iter().rev().map(|&f| function_of.get(f as usize).copied().unwrap_or(f));
            calls.entry(stack).or_insert_with(|| functions().collect());
        }
        let callers = cut::callers(calls.values().map(Vec::as_slice));
        let mut tree = Tree::default();
        let mut leaf_of: FxHashMap<u32, usize> = FxHashMap::default();
        for (cohort, messages) in messages.iter().enumerate() {
            for &(stack, n) in messages.iter().flat_map(|m| &m.stacks) {
                let Some(functions) = calls.get(&stack) else { continue };
                let above = functions.first().and_then(|first| callers.get(first)).copied().unwrap_or_default();
                leaf_of.insert(stack, tree.add(above.iter().chain(functions).copied(), cohort, n));
            }
        }
        (tree, leaf_of)
    }

    /// The functions with enough evidence that have more of the cause in the focus, largest first, each with its place among the parts.
    fn parts(&self, cause: &Cause, divided: &Divided<'_>, waits: bool) -> Vec<(FunctionPart, usize)> {
        let Divided { tree, scale, parts, counted } = divided;
        let intervals = LazyCell::new(|| counted.intervals(&self.resampled(counted.sizes())));
        let mut parts_and_places: Vec<(FunctionPart, usize)> = vec![];
        for (i, &node) in parts.iter().enumerate().filter(|&(_, &node)| node != 0) {
            let entries = counted.entries(i);
            let deviation = scale.deviation_ns(counted.weights(i).map(|n| n as f64));
            let enough = (waits || entries[0] >= LEAST_OF_FUNCTION.0) && counted.hits(i) >= LEAST_OF_FUNCTION.1;
            if !enough || deviation <= 0.0 || intervals[i][0] <= 0 {
                continue;
            }
            let Named { part: named, number, .. } = self.named(tree, node, parts, scale);
            let unknown = named.module.is_empty() && !named.kernel && named.name == FrameRow::default().name();
            // Nothing is known of it; or the row of a traced function, which has its name already.
            if named.runtime.is_none() && (unknown || is_of(&cause.subject, &named.name)) {
                continue;
            }
            let samples = tree.node(node).samples.map(|n| n as f64);
            let unexpected = scale.is_unexpected(samples);
            let share = deviation / cause.deviation_ns as f64;
            let inclusive = number.map(|frame| tree.deviation_in(frame, scale) / cause.deviation_ns as f64);
            let part = FunctionPart {
                share,
                // Elsewhere the focus may have had less of it.
                share_with_callees: Some(inclusive.unwrap_or(share).max(share)),
                deviation_ns: deviation.round() as i64,
                ci95_ns: intervals[i],
                samples: entries,
                waits,
                messages: counted.hits(i),
                how: if unexpected { FunctionHow::Unexpected } else { FunctionHow::More },
                // Of sleeps each is known.
                chance: (unexpected && !waits).then(|| scale.chance_of_none(samples)),
                ..named
            };
            parts_and_places.push((part, i));
        }
        parts_and_places.sort_by(|a, b| b.0.deviation_ns.cmp(&a.0.deviation_ns).then_with(|| a.0.path.cmp(&b.0.path)));
        parts_and_places.truncate(MOST_FUNCTIONS);
        parts_and_places
    }

    /// The path to a function, and on to where most of its time went.
    fn hot_path(&self, tree: &Tree, node: usize, scale: &Scale) -> Vec<HotFrame> {
        let mut nodes = vec![];
        let mut at = node;
        while at != 0 {
            nodes.push(at);
            at = tree.node(at).parent;
        }
        nodes.reverse();
        nodes.extend(tree.hottest_below(node, &[], scale));
        let samples = tree.node(0).samples[0];
        nodes.iter().filter_map(|&n| self.hot_frame(tree, n, samples)).collect()
    }

    /// Makes a cause one of the runtime's when its functions say so.
    fn as_runtime(&self, cause: &mut Cause) {
        let owner = owner_of(cause, self.options.nesting).map(|runtime| (Category::Runtime, runtime));
        let Some((category, runtime)) = owner.or_else(|| waits_for(cause, self.options)) else { return };
        let subject = Subject::Runtime { of: runtime.of.clone(), does: runtime.does.clone() };
        let row = InPlaceOf {
            category: std::mem::replace(&mut cause.category, category),
            name: std::mem::replace(&mut cause.name, names::base(&subject)),
            subject: cause.subject.replace(subject),
            frames: std::mem::take(&mut cause.frames),
            runtime,
        };
        cause.in_place_of = Some(row);
        // That is known of the row's time.
        cause.before_receive = None;
    }

    fn is_runtime_s_own(&self, tree: &Tree, node: usize) -> bool {
        let runtime_of = |f: &FrameRow| self.options.runtimes.known(f);
        self.frame(tree, node).and_then(runtime_of).is_some_and(|runtime| runtime.on_its_own_account)
    }

    /// Whether a function tells what is done. One by which an interpreter runs any program does not, nor one without a name in such an
    /// interpreter, nor one that waits for whatever its caller waits for.
    fn tells(&self, frame: &FrameRow) -> bool {
        let nameless = frame.function.is_empty() && !frame.kernel;
        let in_interpreter = nameless && self.interpreters.contains(&frame.module);
        let runtimes = &self.options.runtimes;
        !runtimes.interprets(frame) && !in_interpreter && !runtimes.only_waits(frame)
    }

    fn frame(&self, tree: &Tree, node: usize) -> Option<&FrameRow> {
        self.sampled.samples.frames.get(tree.node(node).frame? as usize)
    }

    fn hot_frame(&self, tree: &Tree, node: usize, samples: u64) -> Option<HotFrame> {
        let frame = self.frame(tree, node)?;
        Some(HotFrame {
            name: frame.name(),
            module: frame.module.clone(),
            source: frame.source.clone(),
            share: tree.node(node).samples[0] as f64 / samples as f64,
            own: self.is_program_s(frame),
        })
    }
}

/// A cause divided: the call tree of its stacks, what a sample stands for, the nodes that are parts, and the stacks counted by part.
struct Divided<'a> {
    tree: &'a Tree,
    scale: &'a Scale,
    parts: &'a [usize],
    counted: &'a Counted,
}

/// The part of a leaf: the innermost of them on its path. `parts` are in order.
fn part_of(tree: &Tree, parts: &[usize], leaf: usize) -> Option<usize> {
    let mut at = leaf;
    loop {
        match parts.binary_search(&at) {
            Ok(part) => return Some(part),
            Err(_) if at == 0 => return None,
            Err(_) => at = tree.node(at).parent,
        }
    }
}

/// The runtime's work on its own account that together is so much of the application's own time in a cause: by the nesting rule it
/// is reported in that one's place.
fn owner_of(cause: &Cause, nesting: f64) -> Option<RuntimePart> {
    if !matches!(cause.category, Category::AppProcessing | Category::LockWait) {
        return None;
    }
    most_of(cause, nesting, |_, r| r.on_its_own_account)
}

/// What a runtime is known to wait for, in a system call that does not say what for, in so much of a cause; and what such a wait is.
fn waits_for(cause: &Cause, options: &Options) -> Option<(Category, RuntimePart)> {
    if cause.category != Category::AppProcessing {
        return None;
    }
    let is = |r: &RuntimePart| options.runtimes.wait_of(&r.of, &r.does);
    let runtime = most_of(cause, options.nesting, |f, r| f.waits && is(r).is_some())?;
    Some((is(&runtime)?, runtime))
}

/// The work of a runtime that is at least so much of a cause, of that which counts: in several functions together, or in one with what it
/// called, which may have been reached by several ways.
fn most_of(cause: &Cause, nesting: f64, counts: impl Fn(&FunctionPart, &RuntimePart) -> bool) -> Option<RuntimePart> {
    let mut shares: Vec<(&RuntimePart, f64)> = vec![];
    for (f, runtime) in cause.functions.iter().filter_map(|f| Some((f, f.runtime.as_ref()?))) {
        if !counts(f, runtime) {
            continue;
        }
        if f.share_with_callees.is_some_and(|share| share >= nesting) {
            return Some(runtime.clone());
        }
        match shares.iter_mut().find(|(r, _)| r.of == runtime.of && r.does == runtime.does) {
            Some((_, sum)) => *sum += f.share,
            None => shares.push((runtime, f.share)),
        }
    }
    shares.into_iter().find(|(_, share)| *share >= nesting).map(|(runtime, _)| runtime.clone())
}

/// Of each frame the first one in the same function. A frame is a place in a function, and what calls it is another place: without
/// this a function whose samples lie at many places would be many functions, each too small to be named. `any_build`: functions of two
/// builds of a program are the same by their names.
fn by_function(frames: &[FrameRow], any_build: bool) -> Vec<u32> {
    let mut first_frames: FxHashMap<(&str, &str, &str, bool, u64), u32> = FxHashMap::default();
    let mut out = Vec::with_capacity(frames.len());
    for (i, f) in frames.iter().enumerate() {
        // Without a name the offset is where the function begins.
        let begin = if f.function.is_empty() { f.offset } else { 0 };
        let build_id = if any_build && !f.function.is_empty() { "" } else { f.build_id.as_str() };
        out.push(*first_frames.entry((&f.function, &f.module, build_id, f.kernel, begin)).or_insert(i as u32));
    }
    out
}

/// Whether a row is that of a traced function of this name.
fn is_of(subject: &Option<Subject>, name: &str) -> bool {
    let Some(Subject::Frame { frame }) = subject else { return false };
    frame.kind == FrameKind::Function && frame.of.as_deref() == Some(name)
}

/// Parts that are called the same, as a runtime's work that many of its functions share, are one.
fn merged(parts: Vec<(FunctionPart, Vec<f64>)>) -> Vec<FunctionPart> {
    let mut out: Vec<(FunctionPart, Vec<f64>)> = vec![];
    for (part, times) in parts {
        let same = |(o, _): &&mut (FunctionPart, Vec<f64>)| {
            let inside = o.inside == part.inside || part.waits && (o.inside.is_none() || part.inside.is_none());
            o.name == part.name && o.module == part.module && inside
        };
        match out.iter_mut().find(same) {
            Some((first, sums)) => {
                sums.iter_mut().zip(times).for_each(|(sum, ns)| *sum += ns);
                add_caller(first, &part);
                first.share += part.share;
                first.share_with_callees = first.share_with_callees.map(|whole| whole.max(first.share));
                first.deviation_ns += part.deviation_ns;
                // Both ends together: never narrower than the interval of the sum.
                first.ci95_ns = [first.ci95_ns[0] + part.ci95_ns[0], first.ci95_ns[1] + part.ci95_ns[1]];
                first.samples = [first.samples[0] + part.samples[0], first.samples[1] + part.samples[1]];
                first.messages = first.messages.max(part.messages);
            }
            None => out.push((part, times)),
        }
    }
    let with_spread = |(part, times)| FunctionPart { spread_ns: spread(times), ..part };
    let mut out: Vec<FunctionPart> = out.into_iter().map(with_spread).collect();
    out.sort_by(|a, b| b.deviation_ns.cmp(&a.deviation_ns).then_with(|| a.name.cmp(&b.name)));
    out
}

/// Adds who called a part to those that called another part of the same function.
fn add_caller(first: &mut FunctionPart, part: &FunctionPart) {
    let (Some(caller), Some(name)) = (&first.caller, &part.caller) else { return };
    if first.callers.is_empty() && caller == name {
        return;
    }
    if first.callers.is_empty() {
        first.callers.push(CallerPart { name: caller.clone(), share: first.share });
    }
    match first.callers.iter_mut().find(|other| other.name == *name) {
        Some(other) => other.share += part.share,
        None => first.callers.push(CallerPart { name: name.clone(), share: part.share }),
    }
}

/// The percentiles of [`FunctionPart::spread_ns`].
fn spread(mut times: Vec<f64>) -> Option<[i64; 6]> {
    times.sort_unstable_by(f64::total_cmp);
    let at = |p: usize| times.get((times.len() * p).div_ceil(100).max(1) - 1).map(|ns| ns.round() as i64);
    Some([at(5)?, at(25)?, at(50)?, at(75)?, at(95)?, at(100)?])
}

/// The leg of a span, as an index of [`LEGS`].
fn segment(message: &Message, span: &PathSpan, leg: Leg) -> Option<usize> {
    let holds = |l: Leg| {
        let in_leg = message.ends(l).is_some_and(|(from, to)| from <= span.from_ns && span.to_ns <= to);
        (leg == l || leg == Leg::Total) && in_leg
    };
    LEGS.iter().position(|&l| holds(l))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_lifetime::Role;

    fn part(runtime_name: &str, does: &str, own: bool, share: f64) -> FunctionPart {
        let runtime = RuntimePart {
            of: runtime_name.into(),
            does: does.into(),
            on_its_own_account: own,
            ..RuntimePart::default()
        };
        FunctionPart { share, runtime: Some(runtime), ..FunctionPart::default() }
    }

    /// Three messages with samples of two functions and a fourth without any: their times are divided as their samples are.
    #[test]
    fn a_function_has_a_spread_over_the_messages() {
        let message = |ns: f64, stacks: &[u32]| InMessage {
            ns,
            stacks: stacks.iter().map(|&stack| (stack, 1)).collect(),
            ..InMessage::default()
        };
        let focus = vec![message(400.0, &[0, 0, 0, 1]), message(100.0, &[1]), message(90.0, &[0]), message(60.0, &[])];
        let counted = Counted::new(&[focus.clone(), vec![message(10.0, &[0]), message(30.0, &[1])]], 2, &|stack| {
            Some(stack as usize)
        });
        assert_eq!(counted.times(0), [295.0, -5.0, 85.0, 35.0], "5 ns are usual");
        let counted = Counted::new(&[focus, vec![]], 2, &|stack| Some(stack as usize));
        assert_eq!(counted.times(0), [300.0, 0.0, 90.0, 40.0], "4 of 6 samples are of it");
        assert_eq!(counted.times(1), [100.0, 100.0, 0.0, 20.0]);
        assert_eq!(spread(counted.times(0)), Some([0, 0, 40, 90, 300, 300]));
        assert_eq!(spread(vec![]), None);
        let part = |name: &str| FunctionPart { name: name.into(), deviation_ns: 1, ..FunctionPart::default() };
        let part_of = |name: &str, i| (part(name), counted.times(i));
        let parts = merged(vec![part_of("f", 0), part_of("f", 1)]);
        assert_eq!(
            parts[0].spread_ns,
            Some([60, 60, 90, 100, 400, 400]),
            "of one name they are added message by message"
        );
    }

    /// A function with samples at 20 places of it, no one of which has a tenth of the row, is named and not its caller.
    #[test]
    fn the_places_of_a_function_are_one_function() {
        let frame = |function: &str, offset| FrameRow {
            function: function.into(),
            module: "server".into(),
            offset,
            ..FrameRow::default()
        };
        // Its caller calls it from two places.
        let mut frames = vec![frame("serve", 1), frame("serve", 2), frame("look_up", 3)];
        frames.extend((100..120).map(|at| frame("rebuild", at)));
        frames.extend([frame("", 7), frame("", 8), frame("", 7)]);
        let function_of = by_function(&frames, false);
        assert_eq!((&function_of[..4], &function_of[23..]), (&[0, 0, 2, 3][..], &[23, 24, 23][..]));
        assert!(function_of[3..23].iter().all(|&f| f == 3));
        let split = |function_of: &dyn Fn(u32) -> u32| {
            let mut tree = Tree::default();
            for at in 3..23 {
                tree.add([function_of(at % 2), function_of(at)].into_iter(), 0, 2);
            }
            tree.add([function_of(0), function_of(2)].into_iter(), 0, 4);
            tree.add([function_of(0), function_of(2)].into_iter(), 1, 4);
            let scale = Scale { mean_ns: [1_000.0, 100.0], samples: [44.0, 4.0], of_reference: 4.0 };
            tree.split(&scale, 0.8, |_| false, |_| true).into_iter().map(|node| tree.path(node)).collect::<Vec<_>>()
        };
        assert!(split(&|f| function_of[f as usize]).contains(&vec![0, 3]));
        assert!(!split(&|f| f).iter().any(|path| path.len() == 2 && path[1] >= 3), "by places nothing of it is named");
    }

    #[test]
    fn a_runtime_has_a_cause_when_its_work_is_most_of_it() {
        let collects = |own, share| part("Go", "collecting garbage", own, share);
        let named = |category, functions: &[FunctionPart]| {
            let mut cause = Cause::new(category, "user".into(), Subject::named("user"), vec![], Role::A);
            cause.functions = functions.to_vec();
            owner_of(&cause, 0.8).map(|r| r.does)
        };
        let own = Category::AppProcessing;
        assert_eq!(named(own, &[collects(true, 0.5), collects(true, 0.35)]).as_deref(), Some("collecting garbage"));
        assert_eq!(
            named(own, &[collects(true, 0.5), part("Go", "growing a stack", true, 0.5)]),
            None,
            "no one of both"
        );
        assert_eq!(named(own, &[collects(true, 0.79)]), None);
        assert_eq!(named(own, &[collects(false, 1.0)]), None, "the program asked for it");
        assert_eq!(named(Category::HolBlocking, &[collects(true, 1.0)]), None, "a queue stays one, with its root");
    }
}
