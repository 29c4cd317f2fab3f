//! What simulated servers share: threads on cores, with turns, sleeps, wake-ups and interrupts.
//!
//! In: what a server does, step by step (`D`: what it says that a thread does, `N`: what it plans). Out: the events of each core as the probes
//! would write them, and from when each thread did what. Nothing here uses the code under test.
//!
//! Threads take turns of [`TURN_NS`] where others wait, and what they do costs [`CALL_NS`] a call. Packets arrive on a core of their own, the
//! last one. No two events have the same time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tailsight_trace::Event;
use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::read::CpuEvents;
use tailsight_trace::tables::SocketRow;

use super::TARGET;
use crate::by_hand::{event, recv, request, send, switch};

/// What a thread does between two steps of its program, ns: system calls and the like.
pub const CALL_NS: u64 = 200;
/// How long a thread runs where others wait for its core, ns.
pub const TURN_NS: u64 = 1_000_000;
/// From a wake-up to the switch on a core that idles, ns.
const WAKE_NS: u64 = 3_000;
const LOOPBACK: u64 = 0x7f00_0001_7f00_0001;
/// The port on which a server is asked.
pub const SERVER_PORT: u16 = 11_211;
const FIRST_CLIENT_PORT: u64 = 4_000;
const BACKEND_PORT: u16 = 9_101;
const FIRST_OWN_PORT: u64 = 20_000;

/// What a server says that a thread does.
pub trait Doing: Copy {
    /// Could run, and has no core.
    const READY: Self;
}

/// What is to happen: `Server(N)` is what a server planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next<N> {
    Server(N),
    /// A core takes the thread that it was woken for.
    Begins(usize),
    /// What runs on a core goes on: of an earlier turn, if the number is not the core's.
    GoesOn(usize, u64),
}

/// What a server is to do next.
#[derive(Clone, Copy, Debug)]
pub enum Step<N> {
    /// What it planned.
    Planned(N),
    /// To say what this thread does, which has just got a core.
    Began(usize),
    /// One step of the thread that runs on this core.
    GoesOn {
        /// The core.
        core: usize,
        /// The thread.
        thread: usize,
    },
}

#[derive(Clone, Debug, Default)]
struct Core {
    runs: Option<usize>,
    /// Woken, and not yet switched to the thread.
    awaits: Option<usize>,
    turn: u64,
    turn_began_ns: u64,
}

/// The cores, the threads on them, and the time.
pub struct Kernel<N, D> {
    /// Now, ns.
    pub now_ns: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, Next<N>)>>,
    planned: u64,
    cores: Vec<Core>,
    /// Of each thread.
    last_core: Vec<usize>,
    ready: VecDeque<usize>,
    events: Vec<Vec<Event>>,
    /// Of each thread, from when it did what, ns.
    pub doing: Vec<Vec<(u64, D)>>,
}

/// What is the case at a time.
pub fn at<T: Copy>(changes: &[(u64, T)], at_ns: u64) -> Option<T> {
    changes.partition_point(|change| change.0 <= at_ns).checked_sub(1).map(|i| changes[i].1)
}

/// A thread's id.
pub fn tid(thread: usize) -> u32 {
    TARGET + thread as u32
}

/// A thread's name.
pub fn name(thread: usize) -> String {
    format!("worker{thread}")
}

/// The ports of the connection of a request.
fn ports(request: usize) -> u64 {
    u64::from(SERVER_PORT) << 16 | (FIRST_CLIENT_PORT + request as u64)
}

/// A connection to the other server: as many as there are threads, or requests.
fn own_ports(own: usize) -> u64 {
    (FIRST_OWN_PORT + own as u64) << 16 | u64::from(BACKEND_PORT)
}

/// The other server, as the recorder would know it.
pub fn backend() -> SocketRow {
    SocketRow {
        local_addr: "127.0.0.1".into(),
        local_port: BACKEND_PORT,
        listening: true,
        comm: "backend".into(),
        ..SocketRow::default()
    }
}

/// A thread falls asleep in a call, whose number may be 0, and another one comes.
fn falls_asleep(ts: u64, (thread, next): (usize, Option<usize>), call: u64) -> Event {
    let (from, to) = (tid(thread), next.map_or(0, tid));
    event(ts, Kind::SchedSwitch, 0, from, [u64::from(from) | u64::from(to) << 32, 1 | 120 << 32, call + 1])
}

impl<N: Ord + Copy, D: Doing> Kernel<N, D> {
    /// So many cores, beside that of the network.
    pub fn new(cores: usize, threads: usize) -> Kernel<N, D> {
        Kernel {
            now_ns: 1_000,
            agenda: BinaryHeap::new(),
            planned: 0,
            cores: vec![Core::default(); cores],
            last_core: vec![0; threads],
            ready: VecDeque::new(),
            events: vec![vec![]; cores + 1],
            doing: vec![vec![]; threads],
        }
    }

    /// The events of each core.
    pub fn into_events(self) -> Vec<CpuEvents> {
        (0..).zip(self.events).map(|(cpu, events)| CpuEvents { cpu, events }).collect()
    }

    /// What a thread does.
    pub fn doing(&self, thread: usize) -> Option<D> {
        self.doing[thread].last().map(|change| change.1)
    }

    /// From now on a thread does this.
    pub fn says(&mut self, thread: usize, doing: D) {
        self.doing[thread].push((self.now_ns, doing));
    }

    /// The core of the network.
    pub fn network(&self) -> usize {
        self.cores.len()
    }

    /// The next nanosecond: no two events have the same.
    fn tick(&mut self) -> u64 {
        self.now_ns += 1;
        self.now_ns
    }

    fn log(&mut self, core: usize, kind: Kind, tid: u32, [a, b, c]: [u64; 3]) {
        let ts = self.tick();
        self.events[core].push(event(ts, kind, 0, tid, [a, b, c]));
    }

    /// Something that is to happen.
    pub fn plan_at(&mut self, at_ns: u64, next: N) {
        self.plan(at_ns, Next::Server(next));
    }

    fn plan(&mut self, at_ns: u64, next: Next<N>) {
        self.planned += 1;
        self.agenda.push(Reverse((at_ns, self.planned, next)));
    }

    /// What happens next.
    pub fn next(&mut self) -> Option<Step<N>> {
        while let Some(Reverse((at_ns, _, next))) = self.agenda.pop() {
            self.now_ns = self.now_ns.max(at_ns);
            match next {
                Next::Server(next) => return Some(Step::Planned(next)),
                Next::Begins(core) => {
                    let thread = self.cores[core].awaits.take().expect("a thread was woken for this core");
                    let ts = self.tick();
                    self.events[core].push(switch(ts, 0, tid(thread), 0));
                    self.begins(core, thread);
                    return Some(Step::Began(thread));
                }
                Next::GoesOn(core, turn) if self.cores[core].turn == turn => {
                    let thread = self.cores[core].runs.expect("a thread runs");
                    return Some(Step::GoesOn { core, thread });
                }
                Next::GoesOn(..) => {}
            }
        }
        None
    }

    /// A thread is seen once, as it goes to sleep in this call.
    pub fn seen_first(&mut self, thread: usize, call: u64, doing: D) {
        let core = thread % self.cores.len();
        let ts = self.tick();
        self.events[core].push(switch(ts, 0, tid(thread), 0));
        let ts = self.tick();
        self.events[core].push(falls_asleep(ts, (thread, None), call));
        self.last_core[thread] = core;
        self.says(thread, doing);
    }

    /// `by`, on this core (the last one is the network's), wakes a thread.
    pub fn wake(&mut self, on: usize, by: u32, thread: usize) {
        let id = u64::from(tid(thread));
        self.log(on, Kind::SchedWaking, by, [id, id, 0]);
        self.says(thread, D::READY);
        match self.cores.iter().position(|core| core.runs.is_none() && core.awaits.is_none()) {
            Some(core) => {
                self.cores[core].awaits = Some(thread);
                self.plan(self.now_ns + WAKE_NS, Next::Begins(core));
            }
            None => self.ready.push_back(thread),
        }
    }

    /// A timer wakes a thread: it interrupts whatever runs on the core that the thread slept on.
    pub fn timer_wakes(&mut self, thread: usize) {
        let core = self.last_core[thread];
        let runs = self.cores[core].runs.map_or(0, tid);
        self.log(core, Kind::VectorEntry, runs, [0; 3]);
        self.wake(core, runs, thread);
        self.log(core, Kind::VectorExit, runs, [0; 3]);
    }

    fn begins(&mut self, core: usize, thread: usize) {
        self.last_core[thread] = core;
        let state = &mut self.cores[core];
        (state.runs, state.turn) = (Some(thread), state.turn + 1);
        state.turn_began_ns = self.now_ns;
        self.go_on_after(core, CALL_NS);
    }

    /// The thread that runs on a core computes, or is in a call, for so long.
    pub fn go_on_after(&mut self, core: usize, ns: u64) {
        self.plan(self.now_ns + ns, Next::GoesOn(core, self.cores[core].turn));
    }

    /// A part of a computation, so that a turn ends in time: what is left of it.
    pub fn computes(&mut self, core: usize, ns: u64) -> u64 {
        let part = ns.min(TURN_NS / 10);
        self.go_on_after(core, part);
        ns - part
    }

    /// Whether the thread that runs on a core is to make way for another one.
    pub fn turn_is_over(&self, core: usize) -> bool {
        !self.ready.is_empty() && self.now_ns - self.cores[core].turn_began_ns >= TURN_NS
    }

    /// The thread leaves its core to sleep in a call. The one that comes, whose doing the server is to say.
    pub fn sleeps(&mut self, core: usize, call: u64, doing: D) -> Option<usize> {
        let (thread, next) = self.leaves(core);
        let ts = self.tick();
        self.events[core].push(falls_asleep(ts, (thread, next), call));
        self.says(thread, doing);
        self.comes(core, next)
    }

    /// The thread leaves its core for another one, whose doing the server is to say.
    pub fn makes_way(&mut self, core: usize) -> Option<usize> {
        let (thread, next) = self.leaves(core);
        let ts = self.tick();
        self.events[core].push(switch(ts, tid(thread), next.map_or(0, tid), 0));
        self.says(thread, D::READY);
        self.ready.push_back(thread);
        self.comes(core, next)
    }

    /// Who leaves a core, and who comes.
    fn leaves(&mut self, core: usize) -> (usize, Option<usize>) {
        let thread = self.cores[core].runs.take().expect("a thread runs");
        self.cores[core].turn += 1;
        (thread, self.ready.pop_front())
    }

    fn comes(&mut self, core: usize, next: Option<usize>) -> Option<usize> {
        next.inspect(|&next| self.begins(core, next))
    }

    /// A softirq of the network begins; it interrupts nobody.
    pub fn softirq_begins(&mut self) {
        self.log(self.network(), Kind::SoftirqEntry, 0, [3, 0, 0]);
    }

    /// It ends.
    pub fn softirq_ends(&mut self) {
        self.log(self.network(), Kind::SoftirqExit, 0, [3, 0, 0]);
    }

    /// In a softirq: a request arrives.
    pub fn request_arrives(&mut self, id: usize) {
        let network = self.network();
        let ts = self.tick();
        self.events[network].extend(request(ts, ports(id)));
        self.now_ns += 1;
    }

    /// In a softirq: the answer of the other server arrives on a connection to it.
    pub fn answer_arrives(&mut self, own: usize) {
        self.log(self.network(), Kind::PeerReady, 0, [LOOPBACK, own_ports(own) | 20 << 32, 8]);
    }

    /// The thread on this core reads a request: when, ns.
    pub fn receives(&mut self, core: usize, thread: usize, id: usize) -> u64 {
        let ts = self.tick();
        self.events[core].push(recv(ts, ports(id), tid(thread)));
        ts
    }

    /// It asks the other server.
    pub fn asks(&mut self, core: usize, thread: usize, own: usize) {
        let ts = self.tick();
        let asks = event(ts, Kind::Send, 0, tid(thread), [LOOPBACK, own_ports(own) | 10 << 32, 10 | 8 << 32]);
        self.events[core].push(Event { aux: flow_flags::CLIENT, ..asks });
    }

    /// It reads the other server's answer.
    pub fn reads_answer(&mut self, core: usize, thread: usize, own: usize) {
        self.log(core, Kind::PeerRecv, tid(thread), [LOOPBACK, own_ports(own) | 20 << 32, 10 | 8 << 32]);
    }

    /// It writes the reply, which goes to the driver within the call.
    pub fn replies(&mut self, core: usize, thread: usize, id: usize) {
        let (tid, ports) = (tid(thread), ports(id));
        self.log(core, Kind::SendBegin, tid, [1, ports, 0]);
        self.now_ns += CALL_NS;
        self.log(core, Kind::TxDriver, tid, [1, ports | 500 << 32, 50]);
        let ts = self.tick();
        self.events[core].push(send(ts, ports, tid));
    }
}
