//! The replay of a run: which messages waited for which worker, what kept workers from working, what causes had of messages.
//!
//! In: a diagnosis of the total leg, the run it is of, the queue that fits. Out: what the messages' latencies would have been
//! without some of its causes. Times in ns.

use std::collections::{BTreeMap, BTreeSet};

use tailsight_lifetime::model::flags;
use tailsight_lifetime::{
    Analysis, Context, Frame, FrameKind, Interrupt, LEGS, Leg, Lifetimes, Message, NamedFrame, Owner, OwnerId, Part,
    Role,
};

use super::around::{self, Around};
use super::hooks::Hooks;
use super::peel::{self, Named};
use super::prediction::{Base, Prediction};
use super::replay::{Held, Recorded, Replay, Stall};
use super::{Fit, Queues, arrival};
use crate::Error;
use tailsight_diagnose::CauseOf;
use tailsight_diagnose::categories::CategoryTable;
use tailsight_diagnose::cause::{Category, Subject};
use tailsight_diagnose::model::Cause;
use tailsight_diagnose::rows::classification::Classification;

const SEED: u64 = 1;
/// No server is without these: they are brought down to what the reference has of them, all others are taken out whole.
const KEPT: [Category; 4] =
    [Category::AppProcessing, Category::ReceiveProcessing, Category::TransmitProcessing, Category::WakeupDelay];

/// The messages of a run, ready to be served again without causes.
pub struct WhatIf<'a> {
    causes: &'a [Cause],
    replay: Replay,
    /// Messages in order of arrival.
    ids: Vec<u32>,
    base: Base,
    /// What the time of each owner is, by leg, role and owner.
    found: Vec<Option<OwnerTime>>,
}

impl<'a> WhatIf<'a> {
    /// Of these causes, of which those `wanted` (by their places) can be taken out; `of`: which owner's time counts to which.
    #[must_use]
    pub fn new(
        causes: &'a [Cause],
        wanted: &[usize],
        of: &CauseOf,
        analysis: &Analysis,
        model: &Fit,
        percentiles: &[f64],
    ) -> Self {
        let lifetimes = &analysis.lifetimes;
        let table = CategoryTable::default();
        let classification = Classification::new(lifetimes, &table);
        let mut whose = Whose {
            lifetimes,
            rows: causes_of_rows(&classification, of),
            classification,
            causes,
            wanted,
            known: of,
            setup: wanted.iter().find(|i| causes[**i].category == Category::ConnectionSetup).map(|i| *i as u16),
            found: vec![None; LEGS.len() * 2 * lifetimes.owners.len()],
        };
        let around = around::around(lifetimes, SEED, |owner| whose.of(1, Role::A, owner).cause);
        let workers = Workers::of(lifetimes, model);
        let stalls = stalls(analysis, &workers, &mut whose);
        let mut recorded = Vec::with_capacity(lifetimes.messages.len());
        let mut held: Vec<(u16, u32, Held)> = Vec::new();
        for m in &lifetimes.messages {
            let (Some(latency), Some(arrival)) = (m.latency(Leg::Total), arrival(m)) else { continue };
            let others = workers.answers_within(m);
            let Ways { setup, away, own } = message(m, others, &mut whose, &around, &mut held);
            let (queue, worker) = workers.place(m.tid, m.recv_cpu);
            let end = arrival + latency;
            let received = m.recv_ns.clamp(arrival, end);
            let ready = (m.handoff_ns.max(arrival) + setup).min(received);
            let answered = m.send_ns.clamp(received, end);
            recorded.push(Recorded { id: m.id, queue, worker, arrival, ready, received, answered, end, away, own });
        }
        let mut order: Vec<(u64, u32)> = recorded.iter().map(|m| (m.arrival, m.id)).collect();
        order.sort_unstable();
        let ids: Vec<u32> = order.into_iter().map(|(_, id)| id).collect();
        let latency = |id: &u32| lifetimes.messages[*id as usize].latency(Leg::Total).unwrap_or(0);
        let measured = ids.iter().map(latency).collect();
        let mut replay = Replay::new(recorded, stalls, causes.len());
        held.into_iter().for_each(|(cause, id, held)| replay.held(usize::from(cause), id, held));
        let by_id = replay.latencies(&[]);
        let replayed = ids.iter().map(|id| by_id[*id as usize]).collect();
        let by_id = replay.periods();
        let periods = ids.iter().map(|id| by_id[*id as usize]).collect();
        let base = Base::new(measured, replayed, periods, percentiles, SEED);
        Self { causes, replay, ids, base, found: whose.found }
    }

    /// Whether the replay can take a cause out: waiting for messages ahead is what the replay makes itself; what was inferred from
    /// counts has no place in time; receiving its own packets on the application's core is no server without; and what is no cause
    /// has nothing to be taken out.
    #[must_use]
    pub fn can(cause: &Cause) -> bool {
        Self::has_place(cause) && cause.deviation_ns > 0
    }

    fn has_place(cause: &Cause) -> bool {
        let no_cause =
            matches!(cause.category, Category::HolBlocking | Category::Unexplained | Category::NotSignificant);
        let own_packets = cause.category == Category::ReceiveProcessing && cause.role == Role::A && is_kept(cause);
        !no_cause && !own_packets && !cause.inferred
    }

    /// The causes of a diagnosis that are meant by a category and, if given, who.
    ///
    /// # Errors
    /// [`Error::NoSuchCause`] when there is none that can be taken out.
    pub fn named(causes: &[Cause], names: &[Named]) -> Result<Vec<usize>, Error> {
        let mut out = Vec::new();
        for name in names {
            let before = out.len();
            // Also where the focus has less of it than the reference: on the other side, say.
            let fits = |(_, cause): &(usize, &Cause)| name.is(cause) && Self::has_place(cause);
            out.extend(causes.iter().enumerate().filter(fits).map(|(i, _)| i));
            if !out[before..].iter().any(|i| Self::can(&causes[*i])) {
                let can = causes.iter().filter(|cause| Self::can(cause));
                let can: Vec<String> = can.map(|c| format!("{}:{}", c.category.as_str(), c.name)).collect();
                return Err(Error::NoSuchCause { name: name.to_string(), can: can.join(", ") });
            }
        }
        out.sort_unstable();
        out.dedup();
        Ok(out)
    }

    /// As replayed with every cause in place, ns, in order of arrival.
    #[must_use]
    pub fn replayed(&self) -> &[u64] {
        self.base.replayed()
    }

    /// The percentiles without these causes, by their places, with intervals.
    #[must_use]
    pub fn without(&self, causes: &[usize]) -> Prediction {
        self.base.prediction(&self.served(causes))
    }

    /// What each message's latency would have been without these causes: its id, and ns.
    #[must_use]
    pub fn latencies(&self, causes: &[usize]) -> Vec<(u32, u64)> {
        let latencies = self.base.merged(&self.served(causes));
        self.ids.iter().copied().zip(latencies).collect()
    }

    /// As replayed with every cause in place, had the messages come so many times as fast, ns.
    pub(super) fn at_load(&self, factor: f64) -> Vec<u64> {
        self.replay.at_load(factor)
    }

    /// The lifetimes as they would have been without these causes: what they had is taken out, and so is the wait behind others that
    /// they made. The parts of each leg sum to it.
    #[must_use]
    pub fn peeled(&self, lifetimes: &Lifetimes, causes: &[usize]) -> Lifetimes {
        let owners = lifetimes.owners.len();
        let part_of_cause = |segment: usize, part: &Part| {
            let slot = (segment * 2 + usize::from(part.role == Role::A)) * owners + part.owner as usize;
            let owner_time = self.found.get(slot).copied().flatten();
            let out = owner_time.and_then(|f| f.cause).filter(|c| causes.contains(&usize::from(*c)));
            (
                out.map(|c| usual(&self.causes[usize::from(c)])),
                owner_time.is_some_and(|f| f.category == Category::HolBlocking),
            )
        };
        peel::peeled(lifetimes, &self.latencies(causes), &part_of_cause)
    }

    fn served(&self, causes: &[usize]) -> Vec<u64> {
        let without: Vec<(usize, u64)> =
            causes.iter().filter_map(|i| Some((*i, usual(self.causes.get(*i)?)))).collect();
        let by_id = self.replay.latencies(&without);
        self.ids.iter().map(|id| by_id[*id as usize]).collect()
    }
}

/// What is left of a cause in each message, ns.
fn usual(cause: &Cause) -> u64 {
    if is_kept(cause) { cause.mean_ns[1].max(0) as u64 } else { 0 }
}

/// Packets of others are no server's own work.
fn is_kept(cause: &Cause) -> bool {
    let of_a_packet =
        |subject: &Subject| matches!(subject, Subject::Frame { frame: NamedFrame { kind: FrameKind::Packet, .. } });
    KEPT.contains(&cause.category) && !cause.subject.as_ref().is_some_and(of_a_packet)
}

/// Which worker of which queue a thread is.
struct Workers<'a> {
    model: &'a Fit,
    tids: Vec<u32>,
    cpus: BTreeSet<u16>,
    /// When each worker answered, in order, by queue and worker.
    answers: BTreeMap<(u32, u32), Vec<u64>>,
}

impl<'a> Workers<'a> {
    fn of(lifetimes: &Lifetimes, model: &'a Fit) -> Self {
        let cpus = lifetimes.messages.iter().filter(|m| m.recv_ns != 0).map(|m| m.recv_cpu).collect();
        let mut out = Self { model, tids: model.threads_of_workers(), cpus, answers: BTreeMap::new() };
        let mut answers: BTreeMap<(u32, u32), Vec<u64>> = BTreeMap::new();
        for m in lifetimes.messages.iter().filter(|m| m.send_ns != 0) {
            answers.entry(out.place(m.tid, m.recv_cpu)).or_default().push(m.send_ns);
        }
        answers.values_mut().for_each(|of| of.sort_unstable());
        out.answers = answers;
        out
    }

    /// Threads that outnumber their cores are served by cores, which take from one queue.
    fn by_core(&self) -> bool {
        self.model.threads > self.model.workers
    }

    /// Queue and worker.
    fn place(&self, tid: u32, cpu: u16) -> (u32, u32) {
        match (self.by_core(), self.model.queues) {
            (true, _) if self.model.workers == 1 => (0, 0),
            (true, _) => (0, u32::from(cpu)),
            (false, Queues::One) => (0, tid),
            (false, Queues::OneAWorker) => (tid, tid),
        }
    }

    /// Whether its worker was free for others while this message waited for something: a core is, and a thread was when it answered
    /// another message meanwhile.
    fn answers_within(&self, m: &Message) -> bool {
        if self.by_core() {
            return true;
        }
        let Some(answers) = self.answers.get(&self.place(m.tid, m.recv_cpu)) else { return false };
        let from = answers.partition_point(|at| *at <= m.recv_ns);
        answers.get(from).is_some_and(|at| *at < m.send_ns)
    }
}

/// When workers were kept from working.
fn stalls(analysis: &Analysis, workers: &Workers<'_>, whose: &mut Whose<'_>) -> Vec<Stall> {
    let mut stalls: Vec<Stall> = Vec::new();
    let mut new: BTreeMap<OwnerId, bool> = BTreeMap::new();
    let owners = whose.lifetimes.owners.len();
    analysis.on_cores(&workers.tids, |tid, span, owner| {
        let cause = if (span.owner as usize) < owners {
            let owner_time = whose.of(0, Role::A, span.owner);
            if !owner_time.stalls {
                return;
            }
            owner_time.cause
        } else if *new.entry(span.owner).or_insert_with(|| is_other(owner)) {
            None
        } else {
            return;
        };
        let mut push = |(queue, worker): (u32, u32)| {
            stalls.push(Stall { queue, worker, from: span.from_ns, to: span.to_ns, cause });
        };
        match span.cpu {
            // A wait for no core in particular: for the quota, or stopped.
            None if workers.by_core() => workers.cpus.iter().for_each(|cpu| push(workers.place(tid, *cpu))),
            cpu => push(workers.place(tid, cpu.unwrap_or(0))),
        }
    });
    stalls
}

/// An owner that no message met: whether it was none of the application's work.
fn is_other(owner: &Owner) -> bool {
    let interrupted = |f: &Frame| f.is_interrupt(Interrupt::Device) || *f == Frame::Stolen;
    match owner.context {
        Context::Foreign { .. } => true,
        Context::Own | Context::Ahead => owner.frames.iter().any(interrupted),
        _ => false,
    }
}

/// What a message's parts say, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Ways {
    /// How long its connection was set up before it was ready.
    setup: u64,
    /// How long it waited in service, its worker being free for others.
    away: u64,
    /// The rest of its service leg, but for stalls and others' work.
    own: u64,
}

/// The ways of a message; into `held` what causes had of it apart from stalls, and around these. `others`: its worker is free while it
/// waits.
fn message(
    m: &Message,
    others: bool,
    whose: &mut Whose<'_>,
    around: &Around,
    held: &mut Vec<(u16, u32, Held)>,
) -> Ways {
    let mut out = Ways::default();
    let lifetimes = whose.lifetimes;
    for (segment, leg) in LEGS.into_iter().enumerate() {
        let parts = lifetimes.part_slice(m.id, leg);
        // By role: what each cause had begin.
        let mut begins: [BTreeMap<u16, u64>; 2] = Default::default();
        for part in parts {
            let (owner_time, ns) = (whose.of(segment, part.role, part.owner), part.ns);
            if let Some(cause) = owner_time.cause {
                *begins[usize::from(part.role == Role::A)].entry(cause).or_default() += u64::from(part.count);
            }
            if let Some(each) = owner_time.cause.and_then(|cause| around.get(&cause))
                && part.role == Role::A
                && around::is_handler(lifetimes, part.owner)
            {
                let beside_it = beside(leg, Role::A, each * u64::from(part.count));
                held.extend(owner_time.cause.map(|cause| (cause, m.id, beside_it)));
            }
            // The first of a connection also waits for its thread to be woken while the accepting one sets others up.
            let wakes = m.flags & flags::FIRST != 0 && owner_time.category == Category::WakeupDelay;
            let is_setup = owner_time.category == Category::ConnectionSetup || wakes;
            let blocked = || matches!(lifetimes.owners[part.owner as usize].context, Context::Blocked);
            let mut part_held = Held::default();
            match leg {
                Leg::Receive if part.role == Role::R => part_held.before = ns,
                Leg::Receive if is_setup => (out.setup, part_held.before) = (out.setup + ns, ns),
                Leg::Transmit => part_held.after = ns,
                _ if owner_time.stalls => continue,
                Leg::Receive => part_held.taking = ns,
                _ if others && blocked() => (out.away, part_held.away) = (out.away + ns, ns),
                _ if owner_time.category == Category::HolBlocking => {}
                _ => (out.own, part_held.serving) = (out.own + ns, ns),
            }
            let cause = if wakes { whose.setup.or(owner_time.cause) } else { owner_time.cause };
            if let Some(cause) = cause {
                held.push((cause, m.id, part_held));
            }
        }
        for (role, begins) in [Role::R, Role::A].into_iter().zip(begins) {
            let Some(hooks) = Hooks::of(&lifetimes.owners, parts, role) else { continue };
            // The hooks may be a cause of their own.
            if whose.of(segment, role, parts[hooks.place].owner).cause.is_some() {
                continue;
            }
            held.extend(begins.into_iter().map(|(cause, begins)| (cause, m.id, beside(leg, role, hooks.with(begins)))));
        }
    }
    out
}

/// What a cause had of a message beside its own parts, in a leg and role.
fn beside(leg: Leg, role: Role, ns: u64) -> Held {
    match (leg, role) {
        (Leg::Receive, Role::R) => Held { before: ns, ..Held::default() },
        (Leg::Receive, Role::A) => Held { taking: ns, ..Held::default() },
        (Leg::Transmit, _) => Held { after: ns, ..Held::default() },
        (Leg::Service | Leg::Total, _) => Held { serving: ns, ..Held::default() },
    }
}

/// What an owner's time is.
#[derive(Clone, Copy, Debug)]
struct OwnerTime {
    category: Category,
    cause: Option<u16>,
    /// It keeps a worker from working, whatever message is there.
    stalls: bool,
}

/// Which cause an owner's time counts to, also of owners that neither cohort met: another thread of the same intruder.
struct Whose<'a> {
    lifetimes: &'a Lifetimes,
    classification: Classification<'a>,
    causes: &'a [Cause],
    wanted: &'a [usize],
    known: &'a CauseOf,
    /// Which cause an owner's time counts to by its own category and name, where these have one cause.
    rows: BTreeMap<RowKey, Option<usize>>,
    /// Connection set-up, where it is wanted.
    setup: Option<u16>,
    found: Vec<Option<OwnerTime>>,
}

/// The role, category and name that a row of the diagnosis is made by.
type RowKey = (Role, Category, String);

/// The cause of each row, by the owners that the cohorts met. It may be called otherwise: a wait in a call that does not say what for is
/// a wait for a lock where the functions tell.
fn causes_of_rows(classification: &Classification<'_>, known: &CauseOf) -> BTreeMap<RowKey, Option<usize>> {
    let mut out: BTreeMap<RowKey, Option<usize>> = BTreeMap::new();
    for ((leg, role, owner), &cause) in known {
        let Some(segment) = LEGS.iter().position(|one| one == leg) else { continue };
        let verdict = classification.at(segment, *role, *owner);
        let of_row = out.entry((*role, verdict.category, verdict.name.clone())).or_insert(Some(cause));
        *of_row = of_row.filter(|one| *one == cause);
    }
    out
}

impl Whose<'_> {
    fn of(&mut self, segment: usize, role: Role, owner: OwnerId) -> OwnerTime {
        let slot = (segment * 2 + usize::from(role == Role::A)) * self.lifetimes.owners.len() + owner as usize;
        if let Some(owner_time) = self.found[slot] {
            return owner_time;
        }
        let verdict = self.classification.at(segment, role, owner);
        let is_it = |c: &Cause| c.category == verdict.category && c.role == role && c.name == verdict.name;
        let of_row = || self.rows.get(&(role, verdict.category, verdict.name.clone())).copied().flatten();
        // Packets of others, also where a thread of the application ran their softirq.
        let served = matches!(verdict.category, Category::HolBlocking | Category::AppProcessing);
        let foreign = self.lifetimes.owners[owner as usize].frames.iter().rev().find_map(|f| match f {
            Frame::Packet { own: false, .. } => Some(f.name(&self.lifetimes.symbols)),
            _ => None,
        });
        let packets = |name: &String| {
            let is = |c: &Cause| c.category == Category::ReceiveProcessing && c.name == *name;
            let mine = self.causes.iter().position(|c| is(c) && c.role == role);
            mine.or_else(|| self.causes.iter().position(is))
        };
        let foreign = foreign.as_ref().filter(|_| served).and_then(packets);
        let by_owner = foreign.or_else(|| self.known.get(&(LEGS[segment], role, owner)).copied());
        // What is no cause on this side may be one on the other: the same task.
        let merged = |i: &usize| self.causes[*i].category == Category::NotSignificant;
        let other = |i: &&usize| self.causes[**i].category == verdict.category && self.causes[**i].name == verdict.name;
        let by_owner_or_row = by_owner.or_else(of_row).filter(|i| !merged(i));
        let cause = by_owner_or_row.or_else(|| self.causes.iter().position(is_it));
        let cause = cause.or_else(|| self.wanted.iter().find(other).copied()).filter(|i| self.wanted.contains(i));
        let cause = cause.map(|i| i as u16);
        let owned_by = &self.lifetimes.owners[owner as usize];
        let stalls = role == Role::A && (foreign.is_some() || is_stall(owned_by, verdict.category));
        let owner_time = OwnerTime { category: verdict.category, cause, stalls };
        self.found[slot] = Some(owner_time);
        owner_time
    }
}

fn is_stall(owner: &Owner, category: Category) -> bool {
    let inline = || owner.frames.iter().any(|f| matches!(f, Frame::Softirq { inline: true, .. }));
    let its_own = matches!(owner.context, Context::Own | Context::Ahead);
    match category {
        Category::Steal | Category::Throttled | Category::Stopped => true,
        Category::Interference | Category::OsThreads | Category::Profiler => {
            matches!(owner.context, Context::Foreign { .. })
        }
        Category::Interrupts | Category::ReceiveProcessing => !(its_own && inline()),
        Category::AppProcessing => matches!(owner.context, Context::Sibling { .. }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syscalls::Sysno;

    /// A backend of PostgreSQL waits for a row at two places in the program, and the cohorts met only one of them: the waits at the other
    /// were left in the messages.
    #[test]
    fn an_owner_that_the_cohorts_did_not_meet_counts_to_the_cause_of_its_row() {
        let epoll = Frame::SleepIn { nr: Sysno::epoll_wait as u32, uninterruptible: false, io: false };
        let at = |stack| Owner { context: Context::Blocked, frames: vec![epoll, Frame::Place { stack }] };
        let own = Owner { context: Context::Own, frames: vec![] };
        let lifetimes = Lifetimes::from_parts("postgres", vec![], vec![], vec![at(0), at(1), own], vec![]);
        let table = CategoryTable::default();
        let classification = Classification::new(&lifetimes, &table);
        let causes = CauseOf::from([((Leg::Service, Role::A, 0), 0), ((Leg::Service, Role::A, 2), 1)]);
        let rows = causes_of_rows(&classification, &causes);
        let row_of = |owner| {
            let verdict = classification.at(1, Role::A, owner);
            rows.get(&(Role::A, verdict.category, verdict.name.clone())).copied().flatten()
        };
        assert_eq!([0, 1, 2].map(row_of), [Some(0), Some(0), Some(1)]);
        // Two causes of one row: which of them is not known.
        let causes = CauseOf::from([((Leg::Service, Role::A, 0), 0), ((Leg::Service, Role::A, 1), 1)]);
        let of_both = causes_of_rows(&classification, &causes);
        assert!(of_both.values().all(Option::is_none), "{of_both:?}");
    }
}
