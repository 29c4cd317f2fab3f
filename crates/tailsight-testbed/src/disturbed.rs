//! Was the machine quiet enough for a run to count? In: the raw events of a run, and which processes the lab or the test started. Out:
//! a [`Disturbance`]: which part of the slowest messages' excess the machine's other work had.
//!
//! Nothing of the diagnosis, of the lifetimes or of the truth goes in, so the answer cannot: right and wrong runs are held
//! against the same rule. Messages are read from packets, receive and send calls alone ([`residences`]). Other work is
//!
//! - a task that is neither the kernel's nor of one of those processes, on a core for which a thread of the application
//!   waits, ready to run (one that is stopped, asleep or out of its quota waits for no core);
//! - time that the hypervisor gave to somebody else while such a thread had the core or waited for it.
//!
//! Times are CLOCK_MONOTONIC ns.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use serde::Serialize;
use tailsight_trace::event::{flow_flags, switch_flags};
use tailsight_trace::read::CpuEvents;
use tailsight_trace::tables::TaskRow;
use tailsight_trace::{Event, FlowKey, Kind, fields};

use crate::Cover;

/// From this part on a run is disturbed. A fault with half of the part of the tail that the rest of the machine leaves is
/// its first cause as long as the rest has less than a third of it: (1 − d) / 2 > d.
pub const LIMIT: f64 = 1.0 / 3.0;
/// With fewer messages there is no slowest 1 %.
const FEWEST_MESSAGES: usize = 100;

/// The part of other work in the slowest messages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Disturbance {
    /// Its part of their excess over the median message, 0 to 1.
    pub share: f64,
    /// Messages that were looked at.
    pub messages: usize,
    /// Excess of the slowest over the median, ns.
    pub excess_ns: u64,
    /// Other programs' turns while the application waited for the core, whole recording, ns.
    pub tasks_ns: u64,
    /// Stolen while the application had or waited for the core, whole recording, ns.
    pub stolen_ns: u64,
}

impl Disturbance {
    /// Whether the run counts as disturbed.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.share >= LIMIT
    }
}

/// Sorted, disjoint intervals.
type Spans = Vec<(u64, u64)>;

/// The slowest 1 % of messages, which the lab diagnoses.
pub const SLOWEST: f64 = 0.01;

/// The part of the machine's other work in the `slowest` part (0 to 1) of the messages. `ours` are pids of the processes that belong to the experiment. `stolen` says whether stolen time is other
/// work: not where the scenario itself makes the hypervisor work. `None` with too few messages.
#[must_use]
pub fn disturbance(
    tasks: &[TaskRow],
    cores: &[CpuEvents],
    ours: &BTreeSet<u32>,
    leg: &str,
    slowest: f64,
    stolen: bool,
) -> Option<Disturbance> {
    let events = in_order(cores);
    let mut lengths = residences(&events, leg);
    if lengths.len() < FEWEST_MESSAGES {
        return None;
    }
    lengths.sort_unstable_by_key(|(from, to)| to - from);
    let length = |(from, to): &(u64, u64)| to - from;
    let median = length(&lengths[lengths.len() / 2]);
    let slow = &lengths[lengths.len() - (lengths.len() as f64 * slowest) as usize..];
    let whose = Whose::of(tasks, &events, ours);
    let (mut turns, mut theft) = (Spans::new(), Spans::new());
    for (cpu, core) in timeline(&events, &whose) {
        turns.extend(both(&core.others.0, &core.waits.0));
        if stolen {
            let ready = Cover::of(core.waits.0.iter().chain(&core.runs.0).copied().collect());
            theft.extend(both(&steals(cores, cpu), ready.intervals()));
        }
    }
    let sum = |spans: &Spans| Cover::of(spans.clone()).within(0, u64::MAX);
    let (tasks_ns, stolen_ns) = (sum(&turns), sum(&theft));
    turns.extend(theft);
    let cover = Cover::of(turns);
    let excess = |message: &(u64, u64)| length(message) - median;
    let excess_ns: u64 = slow.iter().map(excess).sum();
    let had: u64 = slow.iter().map(|m| cover.within(m.0, m.1).min(excess(m))).sum();
    let share = if excess_ns == 0 { 0.0 } else { had as f64 / excess_ns as f64 };
    Some(Disturbance { share, messages: lengths.len(), excess_ns, tasks_ns, stolen_ns })
}

/// The events of all cores by time, each with its core.
fn in_order(cores: &[CpuEvents]) -> Vec<(u32, &Event)> {
    let mut events: Vec<(u32, &Event)> =
        cores.iter().flat_map(|core| core.events.iter().map(|event| (core.cpu, event))).collect();
    // Stable: events of one core stay in their order.
    events.sort_by_key(|(_, event)| event.ts);
    events
}

/// One end of the application's connections.
#[derive(Default)]
struct Flow {
    /// Segments that came and were not read to their end: first byte, one past the last, when.
    arrived: VecDeque<(u32, u32, u64)>,
    /// One past the last byte that was read.
    read: Option<u32>,
    /// When the message that is served came, was received.
    serving: Option<(u64, u64)>,
    /// When the last reply was sent.
    sent: u64,
}

/// The part of a leg that packets and calls alone show: `receive` from a message's first packet until the receive call that
/// takes it (a datagram from its hand-off), `service` from there, or from the reply before it on the connection, to its
/// reply, every other leg from the first packet to the reply.
fn residences(events: &[(u32, &Event)], leg: &str) -> Spans {
    let mut flows: HashMap<(u64, u32), Flow> = HashMap::new();
    let mut datagrams: HashMap<u32, VecDeque<u64>> = HashMap::new();
    let mut spans = Spans::new();
    for (_, event) in events {
        let Some(kind) = event.kind() else { continue };
        if !matches!(kind, Kind::RxNapi | Kind::RxBacklog | Kind::RxStack | Kind::Handoff | Kind::Recv | Kind::Send) {
            continue;
        }
        let flow = FlowKey::of(event);
        let (udp, key) = (flow.is_udp(), (flow.addrs, flow.ports));
        match kind {
            Kind::RxNapi | Kind::RxBacklog | Kind::RxStack if !udp && event.aux & flow_flags::FOREIGN == 0 => {
                let flow = flows.entry(key).or_default();
                let fields::Packet { sequence: from, bytes, .. } = fields::Packet::of(event);
                let to = from.wrapping_add(bytes);
                // Seen again further up the stack, or sent again, it has come already.
                let is_received = flow.arrived.iter().any(|(first, _, _)| *first == from)
                    || flow.read.is_some_and(|read| !after(to, read));
                if from != to && !is_received {
                    flow.arrived.push_back((from, to, event.ts));
                }
            }
            Kind::Handoff if udp => {
                datagrams.entry(fields::Handoff::of(event).cookie).or_default().push_back(event.ts);
            }
            Kind::Recv => {
                let fields::Recv { copied_seq: read, cookie, .. } = fields::Recv::of(event);
                let flow = flows.entry(key).or_default();
                let came = if udp {
                    datagrams.get_mut(&cookie).and_then(VecDeque::pop_front)
                } else {
                    flow.read = Some(read);
                    let taken = flow.arrived.iter().filter(|(first, _, _)| after(read, *first));
                    let came = taken.map(|(_, _, at)| *at).min();
                    flow.arrived.retain(|(_, end, _)| after(*end, read));
                    came
                };
                let Some(came) = came.filter(|came| *came < event.ts) else { continue };
                if leg == "receive" {
                    spans.push((came, event.ts));
                }
                // Of several messages in one read the first is served from here on.
                flow.serving = Some((flow.serving.map_or(came, |(first, _)| first.min(came)), event.ts));
            }
            Kind::Send => {
                let flow = flows.entry(key).or_default();
                if let Some((came, received)) = flow.serving.take() {
                    match leg {
                        "receive" => {}
                        "service" => spans.push((received.max(flow.sent), event.ts)),
                        _ => spans.push((came, event.ts)),
                    }
                }
                flow.sent = event.ts;
            }
            _ => {}
        }
    }
    spans.retain(|(from, to)| from < to);
    spans
}

/// Whether a sequence number comes after another one (RFC 9293 section 3.4).
fn after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

/// The owner of each thread.
struct Whose {
    app: HashSet<u32>,
    /// The experiment's, and the kernel's.
    known: HashSet<u32>,
}

impl Whose {
    fn of(tasks: &[TaskRow], events: &[(u32, &Event)], ours: &BTreeSet<u32>) -> Self {
        let app_tgids: HashSet<u32> = tasks.iter().filter(|task| task.target).map(|task| task.tgid).collect();
        let mut whose = Self { app: HashSet::new(), known: HashSet::from([0]) };
        let mut add = |tid: u32, tgid: u32, kernel: bool| {
            if app_tgids.contains(&tgid) {
                whose.app.insert(tid);
            } else if kernel || ours.contains(&tgid) {
                whose.known.insert(tid);
            }
        };
        tasks.iter().for_each(|task| add(task.tid, task.tgid, task.kernel));
        /// The kernel's thread that makes the others.
        const KTHREADD: u32 = 2;
        for (_, event) in events.iter().filter(|(_, event)| event.kind() == Some(Kind::TaskFork)) {
            let task = fields::Task::of(event);
            add(task.task_tid, task.task_tgid, event.tid == KTHREADD);
        }
        whose
    }

    fn is_other(&self, tid: u32) -> bool {
        !self.app.contains(&tid) && !self.known.contains(&tid)
    }
}

/// Intervals as they are found, and the begin of one that is still open.
#[derive(Default)]
struct Open(Spans, Option<u64>);

impl Open {
    fn set(&mut self, on: bool, at: u64) {
        match (self.1, on) {
            (None, true) => self.1 = Some(at),
            (Some(from), false) => {
                if from < at {
                    self.0.push((from, at));
                }
                self.1 = None;
            }
            _ => {}
        }
    }
}

/// The state of a core.
#[derive(Default)]
struct Core {
    current: u32,
    waiting: usize,
    /// Other work has it.
    others: Open,
    /// A thread of the application has it.
    runs: Open,
    /// A thread of the application is ready and waits for it.
    waits: Open,
}

/// Which task used each core, and when the application waited for it: by switches, wake-ups and migrations.
fn timeline(events: &[(u32, &Event)], whose: &Whose) -> BTreeMap<u32, Core> {
    let mut cores: BTreeMap<u32, Core> = BTreeMap::new();
    // Threads of the application that are ready, and the core that they wait for.
    let mut ready: HashMap<u32, u32> = HashMap::new();
    for (cpu, event) in events {
        match event.kind() {
            Some(Kind::Current) => cores.entry(*cpu).or_default().current = event.tid,
            Some(Kind::SchedSwitch) => {
                let fields::Switch { flags, previous_tid: previous, next_tid: next, state, .. } =
                    fields::Switch::of(event);
                cores.entry(*cpu).or_default().current = next;
                wait(&mut cores, &mut ready, next, None);
                let preempted = flags & switch_flags::PREEMPTED != 0 || state == 0;
                if preempted && flags & switch_flags::THROTTLED == 0 && whose.app.contains(&previous) {
                    wait(&mut cores, &mut ready, previous, Some(*cpu));
                }
            }
            // Most recordings have the first only: whose wake-up it is, and the core that it had last. If it is put on another
            // one, a migration follows.
            Some(kind @ (Kind::SchedWaking | Kind::SchedWakeup)) => {
                let (tid, cpu) = woken(kind, event);
                if !whose.app.contains(&tid) {
                    continue;
                }
                if !cores.values().any(|core| core.current == tid) {
                    wait(&mut cores, &mut ready, tid, Some(cpu));
                }
            }
            Some(Kind::SchedMigrate) => {
                let moves = fields::Move::of(event);
                if !ready.contains_key(&moves.moved_tid) {
                    continue;
                }
                wait(&mut cores, &mut ready, moves.moved_tid, Some(moves.to_cpu));
            }
            _ => continue,
        }
        for core in cores.values_mut() {
            core.others.set(whose.is_other(core.current), event.ts);
            core.runs.set(whose.app.contains(&core.current), event.ts);
            core.waits.set(core.waiting > 0, event.ts);
        }
    }
    let end = events.last().map_or(0, |(_, event)| event.ts);
    for core in cores.values_mut() {
        [&mut core.others, &mut core.runs, &mut core.waits].into_iter().for_each(|open| open.set(false, end));
    }
    cores
}

/// A thread that is woken, and the core that it is to run on as far as the event knows.
fn woken(kind: Kind, event: &Event) -> (u32, u32) {
    if kind == Kind::SchedWaking {
        let waking = fields::Waking::of(event);
        (waking.woken_tid, waking.last_cpu)
    } else {
        let wakeup = fields::Wakeup::of(event);
        (wakeup.woken_tid, wakeup.target_cpu)
    }
}

/// Makes a thread wait for a core, or for none.
fn wait(cores: &mut BTreeMap<u32, Core>, ready: &mut HashMap<u32, u32>, tid: u32, core: Option<u32>) {
    if let Some(before) = ready.remove(&tid) {
        cores.entry(before).or_default().waiting -= 1;
    }
    if let Some(core) = core {
        ready.insert(tid, core);
        cores.entry(core).or_default().waiting += 1;
    }
}

/// When a core was given to somebody else: each amount just before the event that tells it, for its time within the interval since
/// the one before is not known.
fn steals(cores: &[CpuEvents], cpu: u32) -> Spans {
    let events = cores.iter().filter(|core| core.cpu == cpu).flat_map(|core| &core.events);
    let mut last = 0;
    let mut spans = Spans::new();
    for event in events.filter(|event| event.kind() == Some(Kind::Steal)) {
        let from = event.ts.saturating_sub(fields::Stolen::of(event).since_last_ns).max(last);
        if from < event.ts {
            spans.push((from, event.ts));
        }
        last = event.ts;
    }
    spans
}

/// Where both are.
fn both(one: &[(u64, u64)], other: &[(u64, u64)]) -> Spans {
    let (mut i, mut j, mut overlaps) = (0, 0, Spans::new());
    while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
        let (from, to) = (a.0.max(b.0), a.1.min(b.1));
        if from < to {
            overlaps.push((from, to));
        }
        if a.1 < b.1 { i += 1 } else { j += 1 }
    }
    overlaps
}

#[cfg(test)]
#[path = "disturbed_tests.rs"]
mod tests;
