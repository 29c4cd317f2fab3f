//! Timelines of messages (NSight Figures 5, 8, 9, 11): the owner of each nanosecond from the driver to the end of the leg.
//!
//! In: paths, contiguous spans with one owner each. Out: a [`Bundle`]: messages, and the owners, rows and call stacks that they refer to;
//! besides it a reader needs only the page's list of causes. Times are ns from the start of each path. The page makes the nested boxes
//! and the rows of a message from the spans (web/src/timeline.ts).

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxHashMap;
use serde::Serialize;
use tailsight_diagnose::model::TypicalRow;
use tailsight_diagnose::phases::overlaps::Ahead;
use tailsight_diagnose::rows::classification::Classification;
use tailsight_diagnose::show::{Usual, marks};
use tailsight_diagnose::typical::{row, row_of};
use tailsight_diagnose::{Category, Titled};
use tailsight_lifetime::{Context, LEGS, Leg, Message, PathSpan, Role};
use tailsight_trace::samples::{FrameRow, SampleRow, kind};

use super::Input;
use crate::terminal::role_name;

/// Messages, and what they refer to.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Bundle {
    owners: Vec<OwnerOut>,
    slots: Vec<Slot>,
    keys: Vec<RowKey>,
    /// Functions of the call stacks.
    frames: Vec<String>,
    /// Call stacks, outermost function first, as indices in `frames`.
    stacks: Vec<Vec<usize>>,
    messages: Vec<Timeline>,
}

/// An owner of time.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OwnerOut {
    /// Context and frames, outermost first.
    names: Vec<String>,
    /// Nothing ran: all frames are idle, asleep or not known.
    gap: bool,
}

/// An owner in a leg and a role.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Slot {
    owner: usize,
    /// The leg: 0 receive, 1 service, 2 transmit.
    leg: usize,
    role: Role,
    /// Index in `keys`.
    key: usize,
    /// Index of the cause in the diagnosis.
    cause: Option<usize>,
}

/// A row in the table of a message.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RowKey {
    leg: Leg,
    category: Category,
    name: String,
    /// The name in words.
    title: String,
    role: Role,
    /// Its mean over the reference messages.
    reference_ns: u64,
}

/// A message's timeline.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Timeline {
    id: u32,
    flow: String,
    bytes: u32,
    tid: u32,
    ahead: u32,
    /// Ids of the messages that its thread received before it, the latest first.
    ahead_ids: Vec<u32>,
    length: u64,
    class: Option<String>,
    pairing: Option<&'static str>,
    /// Bytes of its reply, where a protocol is known.
    reply_bytes: u32,
    /// Each stage, and when it was reached.
    marks: Vec<(String, u64)>,
    /// (ns, core or -1, index in `slots`, whether it begins), one after the other in one list.
    spans: Vec<i64>,
    /// Samples of the clock: (when, index in `stacks`).
    samples: Vec<(u64, usize)>,
}

/// Makes bundles of a run.
pub struct Timelines<'a> {
    input: &'a Input<'a>,
    classification: Classification<'a>,
    usual: Usual,
    ahead: Ahead,
    /// Samples of the clock by core: (when, stack), in order.
    samples: FxHashMap<u16, Vec<(u64, u32)>>,
}

impl<'a> Timelines<'a> {
    /// From the parts of a report.
    #[must_use]
    pub fn new(input: &'a Input<'a>) -> Timelines<'a> {
        let classification = Classification::new(input.lifetimes, input.categories);
        let mut samples: FxHashMap<u16, Vec<(u64, u32)>> = FxHashMap::default();
        let clock = |row: &&SampleRow| row.kind == kind::CLOCK;
        for row in input.samples.iter().flat_map(|s| &s.rows).filter(clock) {
            samples.entry(row.cpu).or_default().push((row.ts_ns, row.stack));
        }
        samples.values_mut().for_each(|core| core.sort_unstable());
        Timelines {
            input,
            usual: Usual::new(input.lifetimes, &classification, input.diagnosis),
            classification,
            ahead: Ahead::new(&input.lifetimes.messages),
            samples,
        }
    }

    /// Means over the reference messages, by row.
    pub(super) fn reference(&self) -> Vec<RowKey> {
        self.usual
            .rows
            .iter()
            .map(|((leg, category, name, role), (_, subject))| {
                self.key(row((*leg, *category, name.clone(), *role), subject.clone(), 0, 0.0))
            })
            .collect()
    }

    /// Mean latency of the reference messages, ns.
    pub(super) fn reference_ns(&self) -> u64 {
        self.usual.mean_ns
    }

    fn key(&self, row: TypicalRow) -> RowKey {
        let title = row.title();
        let TypicalRow { leg, category, name, role, .. } = row;
        let key = (leg, category, name, role);
        let reference_ns = self.usual.rows.get(&key).map_or(0, |(ns, _)| *ns);
        RowKey { leg, category, name: key.2, title, role, reference_ns }
    }

    /// The timelines of these messages, without those that do not exist or have no path.
    #[must_use]
    pub fn bundle(&self, paths: &[(u32, Vec<PathSpan>)]) -> Bundle {
        let mut maker = Maker { timelines: self, out: Bundle::default(), ids: Ids::default() };
        for (id, path) in paths {
            maker.add(*id, path);
        }
        maker.out
    }
}

/// Indices of what was added already.
#[derive(Default)]
struct Ids {
    owners: FxHashMap<u32, usize>,
    slots: FxHashMap<(usize, Role, u32), usize>,
    keys: HashMap<(Leg, Category, String, Role), usize>,
    frames: HashMap<String, usize>,
    stacks: FxHashMap<u32, usize>,
}

struct Maker<'a> {
    timelines: &'a Timelines<'a>,
    out: Bundle,
    ids: Ids,
}

impl Maker<'_> {
    fn add(&mut self, id: u32, path: &[PathSpan]) {
        let lifetimes = self.timelines.input.lifetimes;
        let Some(message) = lifetimes.messages.get(id as usize) else { return };
        let (Some(first), Some(last)) = (path.first(), path.last()) else { return };
        let (start, end) = (first.from_ns, last.to_ns);
        let mut spans = Vec::with_capacity(path.len() * 4);
        let mut samples = Vec::new();
        for span in path {
            let slot = self.slot(message, span);
            let cpu = span.cpu.map_or(-1, i64::from);
            spans.extend([(span.to_ns - span.from_ns) as i64, cpu, slot as i64, i64::from(span.begins)]);
            let core = span.cpu.and_then(|cpu| self.timelines.samples.get(&cpu)).map_or(&[][..], Vec::as_slice);
            let from = core.partition_point(|&(ts, _)| ts < span.from_ns);
            for &(ts, stack) in core[from..].iter().take_while(|&&(ts, _)| ts < span.to_ns) {
                samples.push((ts - start, self.stack(stack)));
            }
        }
        self.out.messages.push(Timeline {
            id,
            flow: lifetimes.flows.get(message.flow as usize).map_or_else(String::new, |f| f.name.clone()),
            bytes: message.bytes,
            tid: message.tid,
            ahead: message.ahead,
            ahead_ids: self.timelines.ahead.of(message),
            length: end - start,
            class: lifetimes.class(message).filter(|_| lifetimes.framing.is_some()).map(|c| c.name.clone()),
            pairing: message.pairing(),
            reply_bytes: message.reply_bytes,
            marks: marks(message, start, end).into_iter().map(|m| (m.stage, m.at_ns)).collect(),
            spans,
            samples,
        });
    }

    fn slot(&mut self, message: &Message, span: &PathSpan) -> usize {
        let leg = leg(self.timelines.input.diagnosis.leg, message, span);
        let segment = LEGS.iter().position(|l| *l == leg).unwrap_or(0);
        let slot_key = (segment, span.role, span.owner);
        if let Some(&slot) = self.ids.slots.get(&slot_key) {
            return slot;
        }
        let ((leg_of, category, name, role), subject) =
            row_of(&self.timelines.classification, segment, span.role, span.owner);
        let key = match self.ids.keys.get(&(leg_of, category, name.clone(), role)) {
            Some(&key) => key,
            None => {
                let row = row((leg_of, category, name.clone(), role), subject, 0, 0.0);
                self.out.keys.push(self.timelines.key(row));
                self.ids.keys.insert((leg_of, category, name, role), self.out.keys.len() - 1);
                self.out.keys.len() - 1
            }
        };
        let owner = self.owner(span.owner);
        let cause = (self.timelines.input.cause_of)(leg, span.role, span.owner);
        self.out.slots.push(Slot { owner, leg: segment, role: span.role, key, cause });
        self.ids.slots.insert(slot_key, self.out.slots.len() - 1);
        self.out.slots.len() - 1
    }

    fn owner(&mut self, id: u32) -> usize {
        let (lifetimes, owners) = (self.timelines.input.lifetimes, &mut self.out.owners);
        *self.ids.owners.entry(id).or_insert_with(|| {
            let (mut names, mut gap) = (vec!["unknown".to_owned()], true);
            if let Some(owner) = lifetimes.owners.get(id as usize) {
                names[0] = owner.context_name();
                names.extend(owner.frames.iter().map(|f| f.name(&lifetimes.symbols)));
                // An interrupt on an idle core counts as running.
                gap = matches!(owner.context, Context::Idle | Context::Blocked | Context::Unknown)
                    && !owner.frames.iter().any(is_work);
            }
            owners.push(OwnerOut { names, gap });
            owners.len() - 1
        })
    }

    fn stack(&mut self, number: u32) -> usize {
        if let Some(&place) = self.ids.stacks.get(&number) {
            return place;
        }
        let names: Vec<String> =
            self.timelines.input.samples.into_iter().flat_map(|s| s.stack(number).rev()).map(FrameRow::name).collect();
        let frames = names.into_iter().map(|name| {
            let next = self.out.frames.len();
            *self.ids.frames.entry(name.clone()).or_insert_with(|| {
                self.out.frames.push(name);
                next
            })
        });
        let frames = frames.collect();
        self.out.stacks.push(frames);
        self.ids.stacks.insert(number, self.out.stacks.len() - 1);
        self.out.stacks.len() - 1
    }
}

/// The leg in which a span of a total path lies: its legs follow each other.
fn leg(focus: Leg, message: &Message, span: &PathSpan) -> Leg {
    match focus {
        Leg::Total if span.from_ns < message.recv_ns => Leg::Receive,
        Leg::Total if span.from_ns < message.send_ns => Leg::Service,
        Leg::Total => Leg::Transmit,
        leg => leg,
    }
}

fn is_work(frame: &tailsight_lifetime::Frame) -> bool {
    use tailsight_lifetime::Frame as F;
    !matches!(
        frame,
        F::IdleState { .. }
            | F::Runnable
            | F::SleepIn { .. }
            | F::Stopped
            | F::TxQueued
            | F::TxSocket
            | F::TxQdisc
            | F::TxRecovery
            | F::TxDropped { .. }
            | F::WakePending
            | F::Stack { .. }
            | F::WokenBy { .. }
            | F::Timer { .. }
            | F::Throttled
            | F::Stolen
            | F::TcpHole
            | F::ConnectionSetup
            | F::TaskReady
            | F::JobQueued
            | F::PutAside
    )
}

/// Names of the roles, for the lanes.
pub(super) fn roles() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([("A", role_name(Role::A)), ("R", role_name(Role::R))])
}
