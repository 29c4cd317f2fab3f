//! From a run to its messages and their exact lifetimes.
//!
//! The modules, in the order of the data: [`input`] gives the events in time order; [`scan`] reads them once and builds the
//! [`timelines`] of cores and threads and the [`messages`]; [`path`] follows each message through the timelines; [`partition`]
//! sums each path into [`Part`]s, whose total is the leg's latency to the nanosecond. [`service_rows`] has what threads did for
//! messages, thread by thread. No I/O except the writer in [`tables`].

pub mod input;
pub mod messages;
pub mod model;
pub mod partition;
pub mod path;
pub mod scan;
pub mod service_rows;
#[cfg(feature = "tables")]
pub mod tables;
pub mod timelines;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tailsight_trace::meta::Container;
use tailsight_trace::read::CpuEvents;
use tailsight_trace::{Error, Run};

pub use input::RunContext;
pub use messages::backend_calls::UNKNOWN_ADDRESS;
pub use messages::requests::Framing;
pub use messages::requests::classes::RequestClass;
pub use model::{
    Context, Doing, Flow, Frame, FrameKind, Incomplete, Interrupt, LEGS, Leg, Message, NamedFrame, Owner, OwnerId,
    Part, PathSpan, Role, Rule, Sent, SentKind, Threshold, ThresholdUnit, Who, Without,
};
pub use tailsight_trace::meta::send_entry;

use input::read_ahead::reading_ahead;
use messages::multiplexed::Multiplexed;
use partition::{Legs, Partition};
use path::{Owners, Piece, Step, Walk};
use scan::{Counted, Scan};
use timelines::threads::State;

/// Every message of a run with the exact partition of its time.
#[derive(Clone, Debug, Default)]
pub struct Lifetimes {
    /// The application's name.
    pub app: String,
    /// Messages in order of arrival; `messages[i].id == i`.
    pub messages: Vec<Message>,
    /// Flows, by [`Message::flow`].
    pub flows: Vec<Flow>,
    /// Owners, by [`OwnerId`].
    pub owners: Vec<Owner>,
    /// Which task each owner was, by [`OwnerId`]; empty when nothing is known. Threads of the same name are owners of their
    /// own, so that they can be counted.
    pub who: Vec<Who>,
    /// Control groups of processes that were owners, as in /proc/PID/cgroup, by process; those that are known.
    pub cgroups: BTreeMap<u32, String>,
    /// The containers of the run, by id.
    pub containers: BTreeMap<String, Container>,
    /// Names that frames refer to.
    pub symbols: Vec<String>,
    /// Messages that could not be followed to the receive call, by reason.
    pub incomplete: BTreeMap<Incomplete, u64>,
    /// Page faults by message: of the thread that answered it, while it worked for it; 0 for those that were not divided. Empty when there
    /// were none.
    pub faults: Vec<u32>,
    /// Pushes and requests to other servers, in the order of the send calls; not part of `messages`.
    pub sent: Vec<Sent>,
    /// Retransmissions and drops of what the target sent its clients.
    pub outgoing: messages::outgoing::Counts,
    /// Messages on connections that requests may share.
    pub multiplexed: Multiplexed,
    /// Requests to other servers whose waits are not known, because several were under way on their connection at a time.
    pub unknown_backend_calls: u64,
    /// The servers that most of the messages that asked them asked beside others, by number of the name among the symbols.
    pub asked_in_parallel: rustc_hash::FxHashSet<u32>,
    /// By message: whether another thread answered it than received it: a server hands requests on, to a pool say. Empty: not known.
    pub handed_on: Vec<bool>,
    /// How often NUMA balancing moved a thread of the target to another core.
    pub numa_moves: u64,
    /// Connections of clients whose SYN came again.
    pub repeated_connects: messages::RepeatedConnects,
    /// Where the transmit leg begins.
    pub send_entry: tailsight_trace::meta::SendEntry,
    /// By message: how long its thread served messages that had arrived later and were received before it, ns, all of it `ahead`
    /// in the receive leg; 0 for those that were not divided. Empty when no message was overtaken.
    pub overtaken: Vec<u64>,
    /// Classes of requests, by [`Message::class`]; empty without a protocol.
    pub classes: Vec<RequestClass>,
    /// How many requests were parsed; `None`: recorded without a protocol, messages are segments and replies are paired by
    /// order on the flow.
    pub framing: Option<Framing>,
    /// How many of the NICs' time stamps could be used.
    pub nic: messages::nic::NicUse,
    /// Which messages were divided into parts, by message; `None`: all.
    divided: Option<Vec<bool>>,
    /// Parts of each leg (receive, service, transmit): message i owns `parts[leg][offsets[leg][i]..offsets[leg][i + 1]]`.
    parts: [Vec<Part>; 3],
    offsets: [Vec<u32>; 3],
    /// Parts of the transmit leg of `sent`, likewise.
    sent_parts: Vec<Part>,
    sent_offsets: Vec<u32>,
}

impl Lifetimes {
    /// The parts of one measured leg, without copying: they sum to [`Message::latency`] exactly. Empty when the leg
    /// was not seen, and for [`Leg::Total`] (go over [`LEGS`]).
    ///
    /// # Panics
    /// When the message was not divided ([`Analysis::of_some`]): an empty list would be read as no time.
    #[inline]
    pub fn part_slice(&self, message: u32, leg: Leg) -> &[Part] {
        assert!(self.is_divided(message), "message {message} was not divided into parts");
        let l = match leg {
            Leg::Receive => 0,
            Leg::Service => 1,
            Leg::Transmit => 2,
            Leg::Total => return &[],
        };
        let (o, i) = (&self.offsets[l], message as usize);
        &self.parts[l][o[i] as usize..o[i + 1] as usize]
    }

    /// Whether a message was divided into parts.
    #[inline]
    pub fn is_divided(&self, message: u32) -> bool {
        self.divided.as_ref().is_none_or(|divided| divided[message as usize])
    }

    /// The parts of a message's leg; for [`Leg::Total`] those of the three legs, one after the other (an owner may
    /// occur in each).
    pub fn parts(&self, message: u32, leg: Leg) -> Vec<Part> {
        match leg {
            Leg::Total => LEGS.iter().flat_map(|l| self.part_slice(message, *l)).copied().collect(),
            _ => self.part_slice(message, leg).to_vec(),
        }
    }

    /// Which task an owner was.
    pub fn who(&self, owner: usize) -> &Who {
        static NOBODY: Who = Who { pid: 0, tid: 0, process: String::new(), recorder: false };
        self.who.get(owner).unwrap_or(&NOBODY)
    }

    /// The parts of the transmit leg of what the application sent by itself: they sum to [`Sent::transmit_ns`]. Empty when
    /// that was not seen.
    pub fn sent_parts(&self, sent: usize) -> &[Part] {
        match self.sent_offsets.get(sent..sent + 2) {
            Some(&[from, to]) => &self.sent_parts[from as usize..to as usize],
            _ => &[],
        }
    }

    /// The class of a message; `None` without a protocol.
    pub fn class(&self, message: &Message) -> Option<&RequestClass> {
        self.classes.get(usize::from(message.class))
    }

    /// Builds lifetimes from given parts, one `[receive, service, transmit]` per message (for tests of later steps).
    pub fn from_parts(
        app: &str,
        messages: Vec<Message>,
        flows: Vec<Flow>,
        owners: Vec<Owner>,
        parts: Vec<[Vec<Part>; 3]>,
    ) -> Lifetimes {
        let mut out = Lifetimes { app: app.into(), messages, flows, owners, ..Lifetimes::default() };
        for leg in 0..3 {
            out.offsets[leg].push(0);
            for message in &parts {
                out.parts[leg].extend_from_slice(&message[leg]);
                out.offsets[leg].push(out.parts[leg].len() as u32);
            }
        }
        out
    }
}

/// By message: whether another thread answered it than received it.
fn handed_on(messages: &[Message], extras: &[messages::Extra]) -> Vec<bool> {
    let is_handed_on = |(m, extra): (&Message, &messages::Extra)| m.tid != 0 && ![0, m.tid].contains(&extra.send_tid);
    messages.iter().zip(extras).map(is_handed_on).collect()
}

/// The pass over events in memory.
fn scanned(facts: &RunContext, cpus: &[CpuEvents]) -> Scan {
    let scan = scan::scan(facts, input::merge::in_memory(cpus).iter_mut());
    scan.expect("events in memory are read without errors")
}

/// Lifetimes together with the timelines they came from, for paths on demand.
#[derive(Debug)]
pub struct Analysis {
    /// The lifetimes.
    pub lifetimes: Lifetimes,
    scan: Scan,
}

/// What of a message's path is asked for.
#[derive(Clone, Copy, Debug)]
pub enum PathPart<'a> {
    /// All of it.
    Whole,
    /// At least the spans that hold these times, ns in ascending order, up to each time, and what is less than [`AROUND_NS`] before it.
    /// Of long waits the rest is left out, so that a walk takes no longer than what is asked for.
    Around(&'a [u64]),
}

/// How much of a path before a time comes with it. The interrupt of a clock that samples is over in less, with what the recorder's hooks
/// take before it.
pub const AROUND_NS: u64 = 50_000;

/// What is asked for around some times: from, to; without overlap.
fn windows(times: &[u64]) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = vec![];
    for &time in times {
        match out.last_mut().filter(|(_, end)| time.saturating_sub(AROUND_NS) <= *end) {
            Some((_, end)) => *end = time + 1,
            None => out.push((time.saturating_sub(AROUND_NS), time + 1)),
        }
    }
    out
}

/// The paths of a run's messages, for any number of threads.
pub struct Paths<'a> {
    analysis: &'a Analysis,
    /// Those that no thread walks with.
    owners: Mutex<Vec<Owners>>,
}

impl Paths<'_> {
    /// As [`Analysis::path`].
    pub fn of(&self, message: u32, leg: Leg) -> Vec<PathSpan> {
        self.part(message, leg, PathPart::Whole)
    }

    /// As [`Paths::of`], a part of it.
    pub fn part(&self, message: u32, leg: Leg, part: PathPart<'_>) -> Vec<PathSpan> {
        let free = self.free().pop();
        let mut owners = free.unwrap_or_else(|| self.analysis.resumed());
        let path = self.analysis.path_with(&mut owners, message, leg, part);
        self.free().push(owners);
        path
    }

    fn free(&self) -> MutexGuard<'_, Vec<Owners>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Analysis {
    /// Builds every lifetime of a run, reading its events as it goes. What the run lacks is noted in it.
    ///
    /// # Errors
    /// Those of [`Run::events`].
    pub fn of(run: &mut Run) -> Result<Analysis, Error> {
        Analysis::read(run, Without::default(), |_, _, _| None)
    }

    /// As [`Analysis::of`], but only some messages are divided into parts: which ones, `wanted` says of all of them, of
    /// their classes, and of how many of them are on connections that requests share. In these, stages are
    /// known but for those that follow from the timelines of threads ([`messages::stages`]). A run of many messages is read in a fraction
    /// of the time so. Paths are there for all. Some rules for sleeps may be left out, to see what they are worth.
    ///
    /// # Errors
    /// Those of [`Run::events`].
    pub fn of_some(
        run: &mut Run,
        without: Without,
        wanted: impl FnOnce(&[Message], &[RequestClass], &Multiplexed) -> Vec<bool>,
    ) -> Result<Analysis, Error> {
        Analysis::read(run, without, |messages, classes, multiplexed| Some(wanted(messages, classes, multiplexed)))
    }

    fn read(
        run: &mut Run,
        without: Without,
        wanted: impl FnOnce(&[Message], &[RequestClass], &Multiplexed) -> Option<Vec<bool>>,
    ) -> Result<Analysis, Error> {
        let facts = RunContext::of(run);
        let mut streams = run.streams()?;
        // On one processor a thread that reads ahead only takes turns with this one.
        let one_processor = std::thread::available_parallelism().is_ok_and(|n| n.get() == 1);
        let pass = match one_processor {
            true => scan::scan(&facts, streams.iter_mut()),
            false => reading_ahead(&mut streams, |mut ahead| scan::scan(&facts, ahead.iter_mut())),
        };
        let mut scan = match pass {
            Ok(scan) => {
                run.conclude(&streams);
                scan
            }
            Err(Error::OutOfOrder { .. }) => scanned(&facts, &run.events()?),
            Err(error) => return Err(error),
        };
        scan.activity.without_rules = without;
        let wanted = wanted(&scan.messages, &scan.counted.classes, &scan.counted.multiplexed);
        Ok(Analysis::from_scan(&facts, scan, wanted))
    }

    /// Builds every lifetime from events in memory.
    pub fn build(facts: &RunContext, cpus: &[CpuEvents]) -> Analysis {
        Analysis::from_scan(facts, scanned(facts, cpus), None)
    }

    fn from_scan(facts: &RunContext, mut scan: Scan, divided: Option<Vec<bool>>) -> Analysis {
        let received = messages::stages::complete(&mut scan.messages, &scan.activity.threads);
        scan.activity.service.add_received(received);
        let mut owners = Owners::default();
        let Counted { flows, incomplete, outgoing, numa_moves, repeated_connects, multiplexed, classes, framing, nic } =
            std::mem::take(&mut scan.counted);
        let activity = &mut scan.activity;
        let mut lifetimes = Lifetimes {
            app: facts.app.clone(),
            symbols: facts.symbols.clone(),
            flows,
            incomplete,
            faults: scan.faults.by_message(scan.messages.iter().zip(&scan.extras), divided.as_deref()),
            outgoing,
            multiplexed,
            unknown_backend_calls: activity.peers.unknown,
            asked_in_parallel: std::mem::take(&mut activity.peers.in_parallel),
            handed_on: handed_on(&scan.messages, &scan.extras),
            numa_moves,
            repeated_connects,
            send_entry: facts.send_entry.clone(),
            overtaken: messages::overtaken::behind_later(
                &scan.messages,
                divided.as_deref(),
                activity.service.periods(),
                &activity.threads,
            ),
            classes,
            framing,
            nic,
            ..Lifetimes::default()
        };
        if !activity.peers.names.is_empty() {
            if lifetimes.symbols.is_empty() {
                lifetimes.symbols.push(String::new());
            }
            lifetimes.symbols.append(&mut activity.peers.names);
        }
        let legs = Legs::of(&scan, divided.as_deref(), &mut owners);
        (lifetimes.parts, lifetimes.offsets, lifetimes.divided) = (legs.parts, legs.offsets, divided);
        lifetimes.sent_offsets.push(0);
        let mut partition = Partition::within(vec![scan.activity.span_ns]);
        for (sent, extra) in &scan.sent {
            let Sent { flow, bytes, tid, send_ns, xmit_ns, .. } = *sent;
            let message = Message { flow, bytes, tid, send_ns, xmit_ns, ..Message::default() };
            partition.leg(scan.sources(), &mut owners, (&message, extra), Leg::Transmit, &mut lifetimes.sent_parts);
            lifetimes.sent_offsets.push(lifetimes.sent_parts.len() as u32);
        }
        lifetimes.sent = scan.sent.iter().map(|(sent, _)| *sent).collect();
        (lifetimes.owners, lifetimes.who) = owners.into_lists();
        for who in &lifetimes.who {
            if let Some(group) = facts.names.cgroup(who.pid) {
                lifetimes.cgroups.entry(who.pid).or_insert_with(|| group.to_owned());
            }
        }
        lifetimes.containers = facts.containers.iter().map(|c| (c.id.clone(), c.clone())).collect();
        lifetimes.messages = std::mem::take(&mut scan.messages);
        Analysis { lifetimes, scan }
    }

    /// The cost of serving: time on cores by thread and by core, over the whole recording.
    pub fn work(&self) -> timelines::work::Work {
        timelines::work::of(&self.scan.activity)
    }

    /// The path of a message's leg: contiguous spans from its first to its last nanosecond. Empty when the leg was not
    /// seen.
    pub fn path(&self, message: u32, leg: Leg) -> Vec<PathSpan> {
        let mut owners = self.resumed();
        self.path_with(&mut owners, message, leg, PathPart::Whole)
    }

    /// Paths of many messages: quicker than [`Analysis::path`] for each, which copies the owners every time.
    pub fn to_paths(&self) -> Paths<'_> {
        Paths { analysis: self, owners: Mutex::default() }
    }

    /// The owners that the partition found, to go on with.
    fn resumed(&self) -> Owners {
        Owners::resume(self.lifetimes.owners.clone(), self.lifetimes.who.clone())
    }

    /// The path of the leg of every message that has it, one after the other: quicker than [`Analysis::path`] for each.
    pub fn paths(&self, leg: Leg, mut each: impl FnMut(&Message, Vec<PathSpan>)) {
        let mut owners = self.resumed();
        for m in self.lifetimes.messages.iter().filter(|m| m.latency(leg).is_some()) {
            each(m, self.path_with(&mut owners, m.id, leg, PathPart::Whole));
        }
    }

    /// Where these threads were on a core, waited for one, or were stopped, over the whole recording: the thread and each step of
    /// it, in order of time. Sleeps are left out. The thread's own work is `ahead`, as it is to whoever waits for it. Owners
    /// that no message met have ids of their own, behind [`Lifetimes::owners`].
    pub fn on_cores(&self, tids: &[u32], mut each: impl FnMut(u32, &PathSpan, &Owner)) {
        let mut owners = self.resumed();
        let (activity, end_ns) = (&self.scan.activity, self.scan.activity.span_ns.1);
        let mut steps: Vec<Step> = Vec::new();
        for &tid in tids {
            let Some(thread) = activity.threads.get(tid) else { continue };
            for (i, interval) in thread.intervals.iter().enumerate() {
                let asleep = match interval.state {
                    State::Sleeping { how } => !how.stopped,
                    State::Unknown => true,
                    State::Running { .. } | State::Runnable { .. } => false,
                };
                if asleep {
                    continue;
                }
                let to = thread.intervals.get(i + 1).map_or(end_ns, |next| next.from);
                let mut walk = Walk { activity, owners: &mut owners, each: |step| steps.push(step) };
                walk.piece(&Piece::Others { tid, unread: false, from: interval.from, to });
                steps.drain(..).for_each(|step| each(tid, &step.span, owners.get(step.span.owner)));
            }
        }
    }

    fn path_with(&self, owners: &mut Owners, message: u32, leg: Leg, part: PathPart<'_>) -> Vec<PathSpan> {
        let mut spans = Vec::new();
        let i = message as usize;
        if let (Some(m), Some(extra)) = (self.lifetimes.messages.get(i), self.scan.extras.get(i)) {
            let legs: &[Leg] = if leg == Leg::Total { &LEGS } else { &[leg] };
            let mut pieces = Vec::new();
            legs.iter().for_each(|l| path::pieces(self.scan.sources(), m, extra, *l, &mut pieces));
            let mut steps = Vec::new();
            let mut walk = Walk { activity: &self.scan.activity, owners, each: |step| steps.push(step) };
            match part {
                PathPart::Whole => pieces.iter().for_each(|piece| walk.piece(piece)),
                PathPart::Around(times) => {
                    let windows = windows(times);
                    let walked = |piece: Piece| piece.within(&self.scan.activity, &windows, |part| walk.piece(&part));
                    pieces.into_iter().for_each(walked);
                }
            }
            spans.reserve(steps.len());
            steps.into_iter().for_each(|step| step.add_to(&mut spans, owners));
        }
        spans
    }
}
