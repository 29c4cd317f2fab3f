//! The timeline of one message (NSight Figures 5 and 8): what ran on its cores from driver to receive, as nested boxes.
//!
//! In: a message's path, contiguous spans with one owner each. Out: lanes (one per core and role), boxes by level
//! (0 is the context, each frame one deeper), stages, and the legs between them; times are ns from the start of the
//! path. A box goes on through the interruptions that are nested in it; its `own` is its time less theirs, so over all
//! boxes `own` sums to the latency.

use std::collections::HashMap;

use serde::Serialize;
use tailsight_lifetime::{Context, Leg, Message, PathSpan, Role};

use super::Input;
use crate::terminal::role_name;

/// A message's timeline.
#[derive(Debug, Serialize)]
pub(super) struct Timeline {
    pub(super) id: u32,
    pub(super) flow: String,
    pub(super) bytes: u32,
    pub(super) tid: u32,
    pub(super) ahead: u32,
    pub(super) length: u64,
    pub(super) lanes: Vec<Lane>,
    /// Owner paths, outermost first.
    pub(super) paths: Vec<String>,
    /// The innermost name of each of `paths`.
    pub(super) names: Vec<String>,
    pub(super) boxes: Vec<Box>,
    pub(super) stages: Vec<(&'static str, u64)>,
    /// Where the message moved: time, from lane, to lane.
    pub(super) moves: Vec<(u64, usize, usize)>,
}

/// A core in a role.
#[derive(Debug, Serialize)]
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) depth: usize,
}

/// One box. `kind` says how it is drawn: `run`, or `gap` where nothing ran for anyone.
#[derive(Debug, Serialize)]
pub(super) struct Box {
    pub(super) lane: usize,
    pub(super) level: usize,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) own: u64,
    /// Index into `paths`: the owner path down to this box.
    pub(super) path: usize,
    pub(super) cause: Option<usize>,
    pub(super) kind: &'static str,
}

/// The timeline of the message, or None when there is no such message or no path.
pub(super) fn timeline(input: &Input, id: u32, path: &[PathSpan]) -> Option<Timeline> {
    let message = input.lifetimes.messages.get(id as usize)?;
    let (start, end) = (path.first()?.from_ns, path.last()?.to_ns);
    let mut out = Timeline {
        id,
        flow: input.lifetimes.flows.get(message.flow as usize).map_or_else(String::new, |f| f.name.clone()),
        bytes: message.bytes,
        tid: message.tid,
        ahead: message.ahead,
        length: end - start,
        lanes: Vec::new(),
        paths: Vec::new(),
        names: Vec::new(),
        boxes: Vec::new(),
        stages: stages(message, start, end),
        moves: Vec::new(),
    };
    let mut builder =
        Builder { input, start, out: &mut out, open: Vec::new(), lanes: Vec::new(), paths: HashMap::new() };
    let mut previous = None;
    for span in path {
        let lane = builder.lane(span);
        if previous.is_some_and(|p| p != lane) {
            builder.out.moves.push((span.from_ns - start, previous.unwrap_or(lane), lane));
            builder.open.clear();
        }
        previous = Some(lane);
        builder.add(lane, span);
    }
    colour_parents(&mut out);
    Some(out)
}

/// The stages within the path, in order of time.
fn stages(m: &Message, start: u64, end: u64) -> Vec<(&'static str, u64)> {
    let mut all = vec![
        ("NIC", m.nic_ns),
        ("driver", m.driver_ns),
        ("hand-off", m.handoff_ns),
        ("wake", m.wake_ns),
        ("on core", m.on_cpu_ns),
        ("recv", m.recv_ns),
        ("send", m.send_ns),
        ("xmit", m.xmit_ns),
        ("NIC out", m.nic_tx_ns),
    ];
    all.retain(|&(_, ns)| ns != 0 && (start..=end).contains(&ns));
    all.sort_by_key(|&(_, ns)| ns);
    all.into_iter().map(|(name, ns)| (name, ns - start)).collect()
}

struct Builder<'a> {
    input: &'a Input<'a>,
    start: u64,
    out: &'a mut Timeline,
    /// Boxes that the next span may continue, outermost first: (name at that level, index).
    open: Vec<(String, usize)>,
    lanes: Vec<(Option<u16>, Role)>,
    paths: HashMap<String, usize>,
}

impl Builder<'_> {
    fn lane(&mut self, span: &PathSpan) -> usize {
        let key = (span.cpu, span.role);
        if let Some(known) = self.lanes.iter().position(|l| *l == key) {
            return known;
        }
        self.lanes.push(key);
        let name = match span.cpu {
            Some(cpu) => format!("core {cpu}: {}", role_name(span.role)),
            None => "on no core".into(),
        };
        self.out.lanes.push(Lane { name, depth: 0 });
        self.lanes.len() - 1
    }

    /// The leg that a span of the path lies in: the legs of a total path follow each other.
    fn leg(&self, span: &PathSpan) -> Leg {
        let message = self.input.lifetimes.messages.get(self.out.id as usize);
        match (self.input.diagnosis.leg, message) {
            (Leg::Total, Some(m)) if span.from_ns < m.recv_ns => Leg::Receive,
            (Leg::Total, Some(m)) if span.from_ns < m.send_ns => Leg::Service,
            (Leg::Total, _) => Leg::Transmit,
            (leg, _) => leg,
        }
    }

    fn add(&mut self, lane: usize, span: &PathSpan) {
        let Some(owner) = self.input.lifetimes.owners.get(span.owner as usize) else { return };
        let mut names = vec![owner.context_name()];
        names.extend(owner.frames.iter().map(|f| f.name(&self.input.lifetimes.symbols)));
        let (from, to) = (span.from_ns - self.start, span.to_ns - self.start);
        let mut keep = self.open.iter().zip(&names).take_while(|((open, _), name)| open == *name).count();
        // A second box of the same name right after the first is a new one, not the first gone on.
        if span.begins && keep == names.len() && keep > 1 {
            keep -= 1;
        }
        self.open.truncate(keep);
        let gap = matches!(owner.context, Context::Idle | Context::Blocked | Context::Unknown);
        for level in keep..names.len() {
            let key = names[..=level].join("/");
            let next = self.paths.len();
            let path = *self.paths.entry(key.clone()).or_insert(next);
            if path == next {
                self.out.paths.push(key);
                self.out.names.push(names[level].clone());
            }
            self.open.push((names[level].clone(), self.out.boxes.len()));
            self.out.boxes.push(Box { lane, level, from, to, own: 0, path, cause: None, kind: "run" });
        }
        for (_, index) in &self.open {
            self.out.boxes[*index].to = to;
        }
        let cause = (self.input.cause_of)(self.leg(span), span.role, span.owner);
        let innermost = &mut self.out.boxes[self.open[names.len() - 1].1];
        innermost.own += to - from;
        innermost.cause = cause;
        // An interrupt on an idle core is work: only what is idle, blocked or unknown all the way down is a gap.
        let works = owner.frames.iter().any(is_work);
        innermost.kind = if gap && !works { "gap" } else { "run" };
        let lane = &mut self.out.lanes[lane];
        lane.depth = lane.depth.max(names.len());
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
            | F::Throttled
            | F::Stolen
            | F::TcpHole
            | F::ConnectionSetup
    )
}

/// A box with no time of its own takes the cause that has the most time in it; one over nothing but gaps is a gap.
fn colour_parents(out: &mut Timeline) {
    for i in 0..out.boxes.len() {
        if out.boxes[i].own > 0 {
            continue;
        }
        let parent = &out.boxes[i];
        let mut times: HashMap<Option<usize>, u64> = HashMap::new();
        let mut gap = true;
        let inside = |b: &&Box| b.lane == parent.lane && b.level > parent.level && b.from < parent.to;
        // Boxes are in order of start: those nested in this one follow it.
        for b in out.boxes[i + 1..].iter().take_while(|b| b.from < parent.to).filter(inside) {
            *times.entry(b.cause).or_default() += b.own;
            gap &= b.own == 0 || b.kind == "gap";
        }
        let most = times.into_iter().max_by_key(|&(cause, ns)| (ns, std::cmp::Reverse(cause)));
        out.boxes[i].cause = most.and_then(|(cause, _)| cause);
        out.boxes[i].kind = if gap { "gap" } else { "run" };
    }
}
