//! One pass over all events in time order: core timelines, thread timelines, messages.

pub mod activity;
mod connections;
mod finish;
mod losses;
mod receive;
mod send;
mod tcp_flow;

use rustc_hash::{FxHashMap, FxHashSet};
use tailsight_protocol::ProtocolChoice;
use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::{Error, Event, FlowKey, fields};

use activity::{Activity, Handling, Sources};
use connections::Connections;
use losses::Losses;
use tcp_flow::TcpFlow;

use crate::input::RunContext;
use crate::input::merge::{Source, in_time_order};
use crate::input::sample_clock::Pending;
use crate::messages::backend_calls::Peers;
use crate::messages::continued::Later;
use crate::messages::fault_counts::FaultCounts;
use crate::messages::multiplexed::Multiplexed;
use crate::messages::nic::{NicUse, Stamp};
use crate::messages::outgoing::{self, Outgoing};
use crate::messages::replies::Replies;
use crate::messages::requests::Framing;
use crate::messages::requests::capture::{Captures, Open};
use crate::messages::requests::classes::RequestClass;
use crate::messages::requests::plain_text::PlainTexts;
use crate::messages::routines::Routines;
use crate::messages::task_runs::TaskRuns;
use crate::messages::udp::Datagrams;
use crate::messages::udp_replies::UdpReplies;
use crate::messages::{Extra, RepeatedConnects, Traffic};
use crate::model::{Flow, Incomplete, Message, Sent};
use crate::timelines::busy_periods::BusyPeriods;
use crate::timelines::cores::Core;
use crate::timelines::threads::Threads;
use crate::timelines::tree::Tree;

/// About the fewest events that a message has: its packet twice or three times, the hand-off, the calls, and the softirq around it.
const EVENTS_OF_A_MESSAGE: usize = 8;
/// Messages that there is room for at once, at most.
const MOST_ROOM: usize = 1 << 20;

/// The result of the pass.
#[derive(Debug)]
pub struct Scan {
    /// What cores and threads did.
    pub activity: Activity,
    /// How messages were handled.
    pub handling: Handling,
    /// Messages in order of arrival.
    pub messages: Vec<Message>,
    /// Beside `messages`, what pieces need besides.
    pub extras: Vec<Extra>,
    /// Pushes and requests to other servers, in the order of the send calls, with what pieces need besides.
    pub sent: Vec<(Sent, Extra)>,
    /// Page faults of the target's threads.
    pub faults: FaultCounts,
    /// What the lifetimes have as it is.
    pub counted: Counted,
}

/// What the pass found that lifetimes have as it is.
#[derive(Debug, Default)]
pub struct Counted {
    /// Flows.
    pub flows: Vec<Flow>,
    /// Messages lost, by reason.
    pub incomplete: std::collections::BTreeMap<Incomplete, u64>,
    /// Retransmissions and drops of outgoing packets.
    pub outgoing: outgoing::Counts,
    /// How often NUMA balancing moved a thread of the target.
    pub numa_moves: u64,
    /// Connections whose SYN came again.
    pub repeated_connects: RepeatedConnects,
    /// Messages on connections that requests may share.
    pub multiplexed: Multiplexed,
    /// Classes of requests.
    pub classes: Vec<RequestClass>,
    /// How many requests were parsed, with a protocol.
    pub framing: Option<Framing>,
    /// How many of the NICs' time stamps could be used.
    pub nic: NicUse,
}

impl Scan {
    /// What pieces are made of.
    pub fn sources(&self) -> Sources<'_> {
        Sources { activity: &self.activity, handling: &self.handling }
    }
}

/// What a thread of the target does.
#[derive(Clone, Copy, Debug, Default)]
struct Doing {
    /// When it entered its send call on TCP, if the kernel shows that.
    sending: Option<u64>,
    /// When it ended its last send, if it has received nothing since: it then does other work.
    last_send: Option<u64>,
    /// Its last turn to other work.
    turned: Turn,
}

/// A thread received a message, or waited for work.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    at: u64,
    /// Of which connection it received; none: it waited.
    flow: Option<FlowKey>,
}

struct Scanner<'a> {
    facts: &'a RunContext,
    tree: Tree,
    cores: Vec<Core>,
    /// By core.
    samples: Vec<Pending<'a>>,
    threads: Threads,
    busy_periods: BusyPeriods,
    tcp: FxHashMap<FlowKey, TcpFlow>,
    datagrams: Datagrams,
    udp_replies: UdpReplies,
    /// By thread: the last datagram given to the driver: on which core, and what was kept of it.
    udp_xmit: FxHashMap<u32, (u16, Open)>,
    /// By core: a datagram that was given to the driver while a thread was interrupted, until what was kept of it is there; and that thread.
    udp_outside: Vec<Option<(u32, Open)>>,
    /// By thread: the last datagram that was dropped in a send call: when, and of which flow.
    udp_dropped: FxHashMap<u32, (u64, FlowKey)>,
    /// With a protocol.
    captures: Option<(ProtocolChoice, Box<Captures>)>,
    /// With a protocol, where the plain text of TLS was read.
    plain_texts: Option<PlainTexts>,
    flow_index: FxHashMap<FlowKey, u32>,
    flows: Vec<Flow>,
    traffic: Traffic,
    /// By thread.
    doing: FxHashMap<u32, Doing>,
    /// Connections that the target opened to other servers, and its calls on them.
    clients: FxHashMap<FlowKey, Replies>,
    outgoing: Outgoing,
    /// What is sent to clients that are owed nothing.
    later: Later,
    connections: Connections,
    polled: FxHashSet<u32>,
    numa_moves: u64,
    losses: Losses,
    faults: FaultCounts,
    /// By core: the last packet received, until its time stamp comes.
    arrived: Vec<Option<Event>>,
    /// Stamps of replies: the message's flow and the sequence number after its last byte.
    sent_stamps: FxHashMap<(u32, u32), Vec<Stamp>>,
    nic: NicUse,
    peers: Peers,
    routines: Routines,
    /// By core: what was made readable last, until the softirq processes another packet or ends.
    ready: Vec<u32>,
    /// The target calls other servers. Before the first answer is readable, `ready` is 0 everywhere.
    asks: bool,
}

/// Runs the pass. A source with a number beyond 16 bits is not a core.
///
/// # Errors
/// Those of the sources.
pub fn scan<'a, S: Source + 'a>(facts: &RunContext, sources: impl Iterator<Item = &'a mut S>) -> Result<Scan, Error> {
    let mut sources: Vec<&mut S> = sources.filter(|s| s.cpu() < u32::from(u16::MAX)).collect();
    let highest = sources.iter().map(|s| s.cpu() as usize + 1).max();
    let cores = usize::from(facts.cpus).max(highest.unwrap_or(0));
    let events: usize = sources.iter().map(|s| s.events()).sum();
    let mut scanner = Scanner {
        facts,
        tree: Tree::default(),
        cores: (0..cores)
            .map(|cpu| Core::new(sources.iter().find(|s| s.cpu() as usize == cpu).map_or(0, |s| s.events())))
            .collect(),
        samples: (0..cores).map(|cpu| facts.samples.of_core(cpu)).collect(),
        threads: Threads::new(facts.names.clone()),
        busy_periods: BusyPeriods::default(),
        tcp: FxHashMap::default(),
        datagrams: Datagrams::default(),
        udp_replies: UdpReplies::default(),
        udp_xmit: FxHashMap::default(),
        udp_outside: vec![None; cores],
        udp_dropped: FxHashMap::default(),
        captures: facts.protocol.map(|(protocol, bytes)| (protocol, Box::new(Captures::new(cores, bytes)))),
        plain_texts: facts.protocol.filter(|_| facts.reads_tls).map(|(_, bytes)| PlainTexts::new(bytes)),
        flow_index: FxHashMap::default(),
        flows: Vec::new(),
        traffic: Traffic::with_room((events / EVENTS_OF_A_MESSAGE).min(MOST_ROOM)),
        doing: FxHashMap::default(),
        clients: FxHashMap::default(),
        outgoing: Outgoing::default(),
        later: Later::default(),
        connections: Connections::default(),
        polled: FxHashSet::default(),
        numa_moves: 0,
        losses: Losses::default(),
        faults: FaultCounts::default(),
        arrived: vec![None; cores],
        sent_stamps: FxHashMap::default(),
        nic: NicUse::default(),
        peers: Peers::new(facts.symbols.len()),
        routines: Routines::new(&facts.routines)
            .with_runs(TaskRuns::new(facts.wakes.clone()), facts.task_runs_off_ns)
            .with_futures(facts.futures.clone())
            .with_polls(facts.polls.clone()),
        ready: vec![0; cores],
        asks: false,
    };
    let (mut start_ns, mut end_ns) = (None, 0);
    in_time_order(&mut sources, |cpu, event| {
        start_ns.get_or_insert(event.ts);
        end_ns = event.ts;
        scanner.take(cpu, event);
    })?;
    Ok(scanner.finish(start_ns.unwrap_or(0), end_ns))
}

impl Scanner<'_> {
    /// Takes an event. What is done for packets and calls is never inlined here: two of five events are softirqs.
    fn take(&mut self, cpu: u16, event: &Event) {
        let Some(kind) = event.kind() else { return };
        self.losses.take(cpu, kind, event.ts);
        if self.captures.is_some() {
            self.payload(cpu, kind, event);
        }
        match kind {
            Kind::RxNapi | Kind::RxBacklog => self.early(cpu, event),
            Kind::RxStack => self.stack(cpu, event),
            Kind::RxHardware => self.stamped(cpu, event),
            Kind::NicTx => {
                self.outgoing.left(event);
                self.stamped_out(event);
            }
            Kind::Handoff => self.handoff(cpu, event),
            Kind::SkbDrop if event.aux & flow_flags::OUT != 0 => self.dropped_out(cpu, event),
            Kind::SkbDrop if event.aux & flow_flags::UDP != 0 => self.datagrams.dropped(event, cpu, &mut self.traffic),
            Kind::SkbDrop => {
                if let Some(flow) = self.tcp.get_mut(&FlowKey::of(event)) {
                    flow.receiver.dropped(event);
                }
            }
            Kind::TxQueue => self.outgoing.queued(event),
            Kind::TxDriver => self.xmit(cpu, event),
            Kind::TcpRetransmit => self.outgoing.retransmitted(event),
            Kind::NumaMove => {
                self.numa_moves += u64::from(self.facts.names.is_target(fields::Move::of(event).moved_tid))
            }
            Kind::Recv => self.recv(cpu, event),
            Kind::PlainText | Kind::PlainPiece => self.plain_text(kind, event),
            // Inside the copy loop: the first event of a call is its start.
            Kind::SendBegin => {
                self.doing.entry(event.tid).or_default().sending.get_or_insert(event.ts);
            }
            Kind::Send => self.sent(event),
            Kind::RoutineSeen => {
                self.routines.saw(event.tid, event.ts, fields::Goroutine::of(event).goroutine);
            }
            Kind::RoutineRun => self.routines.runs(event.tid, event.ts, fields::Goroutine::of(event).goroutine),
            Kind::RoutineWoken | Kind::RoutineAsks | Kind::RoutineWaited | Kind::RoutineMade => {
                let woken = fields::Woken::of(event);
                let stack = self.facts.names.place(woken.place).checked_sub(1);
                match kind {
                    Kind::RoutineAsks | Kind::RoutineWaited => self.routines.asks(event.ts, woken.goroutine, stack),
                    Kind::RoutineMade => {
                        let message = self.routines.made(event.tid, event.ts, woken.goroutine, stack);
                        self.peers.is_made(woken.goroutine, message);
                    }
                    _ => {
                        let message = self.routines.woken(event.tid, event.ts, woken.goroutine, stack);
                        message.into_iter().for_each(|message| self.peers.took_in(woken.goroutine, message));
                    }
                }
            }
            Kind::PeerRecv => self.peer_recv(event),
            // A handler cannot wait for a page: what faults in one is a copy that gives up, such as that of a sample's stack.
            Kind::FaultKernel if self.is_interrupted(cpu) => {}
            Kind::FaultUser | Kind::FaultKernel => self.faults.fault(event),
            Kind::SyscallEnter => self.busy_periods.enters(event.tid, fields::Call::of(event).nr, event.ts),
            Kind::SchedSwitch if fields::Switch::of(event).call != 0 => self.slept(event),
            _ => {}
        }
        if self.asks || kind == Kind::PeerReady {
            self.asks = true;
            let is_helper_end = kind == Kind::PeerReady && self.is_helper_end(FlowKey::of(event));
            let ready = &mut self.ready[usize::from(cpu)];
            match kind {
                Kind::PeerReady if is_helper_end => *ready = 0,
                Kind::PeerReady => *ready = self.peers.ready(event, &self.facts.sockets),
                Kind::RxStack | Kind::Handoff | Kind::SoftirqExit | Kind::SchedSwitch => *ready = 0,
                _ => {}
            }
            self.threads.ready = *ready;
        }
        let core = &mut self.cores[usize::from(cpu)];
        while let Some(at) = self.samples[usize::from(cpu)].until(event.ts) {
            core.sampled(&self.tree, at, self.facts.samples.ns_per_sample);
        }
        let node = if core.segments.is_empty() { self.tree.task(event.tid) } else { core.node() };
        self.threads.take(&self.tree, cpu, node, kind, event);
        core.take(&mut self.tree, &mut self.threads, kind, event);
        core.charge(self.facts.costs.of_event(kind, event));
    }
}

fn index_of(index: &mut FxHashMap<FlowKey, u32>, flows: &mut Vec<Flow>, key: FlowKey) -> u32 {
    *index.entry(key).or_insert_with(|| {
        flows.push(Flow { key, name: key.to_string(), messages: 0 });
        flows.len() as u32 - 1
    })
}
