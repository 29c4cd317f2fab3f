//! A server whose threads sleep for a purpose that is known: for work, for a lock, for another server, for a timer.
//!
//! In: a [`Plan`]: requests with what their handler does, locks that are fair or not, cores. Out: the events of each core as the probes would
//! write them, and a [`Truth`]: at every nanosecond what each thread did, and who held each lock. Nothing here uses the code under test.
//!
//! A discrete simulation: threads run on cores, take turns of [`TURN_NS`] where others wait, and what they do costs [`CALL_NS`] a call. Each
//! connection carries one request, and belongs to one thread, which waits in epoll. Packets arrive on a core of their own. With a pool, these
//! threads only receive: each request goes into one queue, and the pool's threads, which wait for it in a futex, serve and answer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use proptest::prelude::*;
use tailsight_lifetime::RunContext;
use tailsight_lifetime::input::Names;
use tailsight_trace::Event;
use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::read::CpuEvents;
use tailsight_trace::tables::{SocketRow, TaskRow};

use super::TARGET;
use crate::by_hand::{event, recv, request, send, switch};

/// What a thread does between two steps of its handler, ns: system calls and the like.
const CALL_NS: u64 = 200;
/// How long a thread runs where others wait for its core, ns.
const TURN_NS: u64 = 1_000_000;
/// From a wake-up to the switch on a core that idles, ns.
const WAKE_NS: u64 = 3_000;
const LOOPBACK: u64 = 0x7f00_0001_7f00_0001;
const SERVER_PORT: u64 = 11_211;
const FIRST_CLIENT_PORT: u64 = 4_000;
const BACKEND_PORT: u64 = 9_101;
const FIRST_OWN_PORT: u64 = 20_000;
const RECVFROM: u64 = 45;
const NANOSLEEP: u64 = 35;
const FUTEX: u64 = 202;
const EPOLL: u64 = 281;

/// What a handler does, in order.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Computes for so many ns.
    Compute(u64),
    /// Takes this lock.
    Lock(usize),
    /// Gives it back.
    Unlock(usize),
    /// Asks another server, which answers after so many ns.
    Call(u64),
    /// Sleeps until a timer after so many ns.
    Nap(u64),
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// When it arrives, ns after the one before.
    pub after_ns: u64,
    /// The thread to which its connection belongs.
    pub thread: usize,
    /// What its handler does.
    pub ops: Vec<Op>,
}

/// A server, and what it is asked.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Cores, without that on which packets arrive.
    pub cores: usize,
    /// Threads that wait for packets.
    pub threads: usize,
    /// Threads of the pool; 0: there is none.
    pub pool: usize,
    /// Locks; whether one goes to the first in line, or to whoever tries first once it is free.
    pub fair: Vec<bool>,
    /// In the order of their arrival.
    pub requests: Vec<Request>,
}

/// Plans of up to so many requests, with pools of this many threads.
pub fn plans(requests: usize, pool: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Plan> {
    let compute = || (1_000u64..300_000).prop_map(Op::Compute);
    let nap = || (50_000u64..2_000_000).prop_map(Op::Nap);
    let call = || (50_000u64..2_000_000).prop_map(Op::Call);
    let held = prop_oneof![3 => compute(), 1 => nap(), 1 => call()];
    let locked = (0usize..2, prop::collection::vec(held, 1..3))
        .prop_map(|(lock, held)| [vec![Op::Lock(lock)], held, vec![Op::Unlock(lock)]].concat());
    let part = prop_oneof![
        3 => compute().prop_map(|op| vec![op]),
        1 => nap().prop_map(|op| vec![op]),
        1 => call().prop_map(|op| vec![op]),
        2 => locked,
    ];
    let request = move |threads| {
        (1_000u64..1_000_000, 0..threads, prop::collection::vec(part.clone(), 1..4))
            .prop_map(|(after_ns, thread, parts)| Request { after_ns, thread, ops: parts.concat() })
    };
    (1usize..=3, 1usize..=4, pool, prop::collection::vec(any::<bool>(), 2)).prop_flat_map(
        move |(cores, threads, pool, fair)| {
            let requests = prop::collection::vec(request(threads), 1..requests);
            requests.prop_map(move |requests| Plan { cores, threads, pool, fair: fair.clone(), requests })
        },
    )
}

/// What a thread does at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doing {
    /// Waits for work.
    Rests,
    /// Could run, and has no core.
    Ready,
    /// Runs for this request.
    Works(usize),
    /// Sleeps until this lock is its own, or free.
    ForLock(usize),
    /// Sleeps until another server answers.
    ForAnswer,
    /// Sleeps until a timer.
    ForTimer,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Of each thread, from when it did what, ns.
    pub doing: Vec<Vec<(u64, Doing)>>,
    /// Of each lock, from when which thread held it.
    pub holder: Vec<Vec<(u64, Option<usize>)>>,
    /// Of each request, its thread and when it was received, ns.
    pub received: BTreeMap<usize, (usize, u64)>,
    /// Of each request that a pool serves, when it was put into the queue, which thread took it, and when, ns.
    pub pooled: BTreeMap<usize, (u64, usize, u64)>,
}

impl Truth {
    /// What a thread does at a time.
    pub fn doing(&self, thread: usize, at_ns: u64) -> Doing {
        at(&self.doing[thread], at_ns).unwrap_or(Doing::Rests)
    }

    /// Who holds a lock at a time.
    pub fn holder(&self, lock: usize, at_ns: u64) -> Option<usize> {
        at(&self.holder[lock], at_ns).flatten()
    }

    /// Every time at which something begins, ns, in order.
    pub fn times_ns(&self) -> Vec<u64> {
        let doing = self.doing.iter().flatten().map(|change| change.0);
        let held = self.holder.iter().flatten().map(|change| change.0);
        let mut times: Vec<u64> = doing.chain(held).collect();
        times.sort_unstable();
        times.dedup();
        times
    }
}

fn at<T: Copy>(changes: &[(u64, T)], at_ns: u64) -> Option<T> {
    changes.partition_point(|change| change.0 <= at_ns).checked_sub(1).map(|i| changes[i].1)
}

/// What is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// A request arrives.
    Arrives(usize),
    /// The answer of another server for a thread does.
    Answered(usize),
    /// A thread's timer fires, on the core that it slept on.
    Fires(usize),
    /// A core takes the thread that it was woken for.
    Begins(usize),
    /// What runs on a core goes on: of an earlier turn, if the number is not the core's.
    GoesOn(usize, u64),
}

#[derive(Clone, Debug, Default)]
struct Core {
    runs: Option<usize>,
    /// Woken, and not yet switched to the thread.
    awaits: Option<usize>,
    turn: u64,
    turn_began_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    arrived: VecDeque<usize>,
    /// The request that it serves, and what is left of it.
    serves: Option<(usize, VecDeque<Op>)>,
    last_core: usize,
    answered: bool,
}

struct Machine {
    plan: Plan,
    now_ns: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, Next)>>,
    planned: u64,
    cores: Vec<Core>,
    threads: Vec<Thread>,
    ready: VecDeque<usize>,
    /// Requests that wait for a thread of the pool, each with when it was put there, ns.
    queue: VecDeque<(usize, u64)>,
    in_line: Vec<VecDeque<usize>>,
    events: Vec<Vec<Event>>,
    truth: Truth,
}

/// Runs a plan to its end.
pub fn run(plan: &Plan) -> (RunContext, Vec<CpuEvents>, Truth) {
    let mut machine = Machine {
        now_ns: 1_000,
        agenda: BinaryHeap::new(),
        planned: 0,
        cores: vec![Core::default(); plan.cores],
        threads: vec![Thread::default(); plan.threads + plan.pool],
        ready: VecDeque::new(),
        queue: VecDeque::new(),
        in_line: vec![VecDeque::new(); plan.fair.len()],
        events: vec![vec![]; plan.cores + 1],
        truth: Truth {
            doing: vec![vec![]; plan.threads + plan.pool],
            holder: vec![vec![]; plan.fair.len()],
            ..Truth::default()
        },
        plan: plan.clone(),
    };
    machine.begin();
    while let Some(Reverse((at_ns, _, next))) = machine.agenda.pop() {
        machine.now_ns = machine.now_ns.max(at_ns);
        machine.step(next);
    }
    let events = (0..).zip(machine.events).map(|(cpu, events)| CpuEvents { cpu, events }).collect();
    (facts(plan), events, machine.truth)
}

/// A thread's name.
pub fn name(thread: usize) -> String {
    format!("worker{thread}")
}

fn tid(thread: usize) -> u32 {
    TARGET + thread as u32
}

fn ports(request: usize) -> u64 {
    SERVER_PORT << 16 | (FIRST_CLIENT_PORT + request as u64)
}

fn facts(plan: &Plan) -> RunContext {
    let row =
        |thread| TaskRow { tid: tid(thread), tgid: TARGET, comm: name(thread), target: true, ..TaskRow::default() };
    let mut names = Names::new(&(0..plan.threads + plan.pool).map(row).collect::<Vec<_>>());
    let mut symbols = vec![String::new()];
    names.add_tasks_and_stacks(&[], &mut symbols);
    let backend = SocketRow {
        local_addr: "127.0.0.1".into(),
        local_port: BACKEND_PORT as u16,
        listening: true,
        comm: "backend".into(),
        ..SocketRow::default()
    };
    let ports = [SERVER_PORT as u16].into_iter().collect();
    RunContext {
        app: "server".into(),
        names,
        sockets: vec![backend],
        symbols,
        ports,
        cpus: plan.cores as u16 + 1,
        ..RunContext::default()
    }
}

impl Machine {
    /// Each thread is seen once as it goes to sleep for work; requests come later.
    fn begin(&mut self) {
        for thread in 0..self.threads.len() {
            let core = thread % self.cores.len();
            let ts = self.tick();
            self.events[core].push(switch(ts, 0, tid(thread), 0));
            let ts = self.tick();
            let rests_in = self.rests_in(thread);
            self.events[core].push(switch(ts, tid(thread), 0, rests_in));
            self.threads[thread].last_core = core;
            self.says(thread, Doing::Rests);
        }
        let mut at_ns = self.now_ns + 10_000;
        for (n, request) in self.plan.requests.clone().iter().enumerate() {
            at_ns += request.after_ns;
            self.plan_at(at_ns, Next::Arrives(n));
        }
    }

    /// The next nanosecond: no two events have the same.
    fn tick(&mut self) -> u64 {
        self.now_ns += 1;
        self.now_ns
    }

    fn plan_at(&mut self, at_ns: u64, next: Next) {
        self.planned += 1;
        self.agenda.push(Reverse((at_ns, self.planned, next)));
    }

    fn says(&mut self, thread: usize, doing: Doing) {
        let now_ns = self.now_ns;
        self.truth.doing[thread].push((now_ns, doing));
    }

    fn holds(&mut self, lock: usize, thread: Option<usize>) {
        let now_ns = self.now_ns;
        self.truth.holder[lock].push((now_ns, thread));
    }

    fn is_of_pool(&self, thread: usize) -> bool {
        thread >= self.plan.threads
    }

    /// The call in which a thread waits for work.
    fn rests_in(&self, thread: usize) -> u64 {
        if self.is_of_pool(thread) { FUTEX } else { EPOLL }
    }

    fn step(&mut self, next: Next) {
        match next {
            Next::Arrives(request) => self.arrives(request),
            Next::Answered(thread) => self.answered(thread),
            Next::Fires(thread) => self.fires(thread),
            Next::Begins(core) => {
                let thread = self.cores[core].awaits.take().expect("a thread was woken for this core");
                self.switch_to(core, 0, thread);
            }
            Next::GoesOn(core, turn) if self.cores[core].turn == turn => self.goes_on(core),
            Next::GoesOn(..) => {}
        }
    }

    /// Packets arrive on the last core, in a softirq that interrupts nobody.
    fn in_softirq(&mut self, packets: impl FnOnce(&mut Machine)) {
        let network = self.events.len() - 1;
        let ts = self.tick();
        self.events[network].push(event(ts, Kind::SoftirqEntry, 0, 0, [3, 0, 0]));
        packets(self);
        let ts = self.tick();
        self.events[network].push(event(ts, Kind::SoftirqExit, 0, 0, [3, 0, 0]));
    }

    fn arrives(&mut self, request_id: usize) {
        let thread = self.plan.requests[request_id].thread;
        let network = self.events.len() - 1;
        self.in_softirq(|machine| {
            let ts = machine.tick();
            machine.events[network].extend(request(ts, ports(request_id)));
            machine.now_ns += 1;
            machine.threads[thread].arrived.push_back(request_id);
            if machine.truth.doing(thread, machine.now_ns) == Doing::Rests {
                machine.wake(network, 0, thread);
            }
        });
    }

    fn answered(&mut self, thread: usize) {
        let network = self.events.len() - 1;
        self.in_softirq(|machine| {
            let ts = machine.tick();
            let ports = own_ports(thread);
            machine.events[network].push(event(ts, Kind::PeerReady, 0, 0, [LOOPBACK, ports | 20 << 32, 8]));
            machine.threads[thread].answered = true;
            machine.wake(network, 0, thread);
        });
    }

    /// The timer interrupts whatever runs on the core that the thread slept on.
    fn fires(&mut self, thread: usize) {
        let core = self.threads[thread].last_core;
        let runs = self.cores[core].runs.map_or(0, tid);
        let ts = self.tick();
        self.events[core].push(event(ts, Kind::VectorEntry, 0, runs, [0; 3]));
        self.wake(core, runs, thread);
        let ts = self.tick();
        self.events[core].push(event(ts, Kind::VectorExit, 0, runs, [0; 3]));
    }

    /// `by`, on this core (the last one is the network's), wakes a thread.
    fn wake(&mut self, on: usize, by: u32, thread: usize) {
        let ts = self.tick();
        let id = u64::from(tid(thread));
        self.events[on].push(event(ts, Kind::SchedWaking, 0, by, [id, id, 0]));
        self.says(thread, Doing::Ready);
        match self.cores.iter().position(|core| core.runs.is_none() && core.awaits.is_none()) {
            Some(core) => {
                self.cores[core].awaits = Some(thread);
                self.plan_at(self.now_ns + WAKE_NS, Next::Begins(core));
            }
            None => self.ready.push_back(thread),
        }
    }

    fn switch_to(&mut self, core: usize, from: u32, thread: usize) {
        if from == 0 {
            let ts = self.tick();
            self.events[core].push(switch(ts, 0, tid(thread), 0));
        }
        self.threads[thread].last_core = core;
        let state = &mut self.cores[core];
        (state.runs, state.turn) = (Some(thread), state.turn + 1);
        state.turn_began_ns = self.now_ns;
        let works = self.threads[thread].serves.as_ref().map(|serves| serves.0);
        let arrived = self.threads[thread].arrived.front().copied();
        let queued = self.queue.front().map(|queued| queued.0);
        let next = if self.is_of_pool(thread) { queued } else { arrived };
        // Of a pool, another thread may have been faster.
        self.says(thread, works.or(next).map_or(Doing::Rests, Doing::Works));
        self.go_on_after(core, CALL_NS);
    }

    fn go_on_after(&mut self, core: usize, ns: u64) {
        self.plan_at(self.now_ns + ns, Next::GoesOn(core, self.cores[core].turn));
    }

    /// The thread leaves its core: to sleep in a call, or (0) because its turn is over. The next one comes.
    fn leaves(&mut self, core: usize, call: u64, doing: Doing) {
        let thread = self.cores[core].runs.take().expect("a thread runs");
        self.cores[core].turn += 1;
        let next = self.ready.pop_front();
        let ts = self.tick();
        self.events[core].push(switch(ts, tid(thread), next.map_or(0, tid), call));
        self.says(thread, doing);
        if doing == Doing::Ready {
            self.ready.push_back(thread);
        }
        if let Some(next) = next {
            self.switch_to(core, tid(thread), next);
        }
    }

    /// One step of the thread that runs on a core.
    fn goes_on(&mut self, core: usize) {
        let thread = self.cores[core].runs.expect("a thread runs");
        if !self.ready.is_empty() && self.now_ns - self.cores[core].turn_began_ns >= TURN_NS {
            return self.leaves(core, 0, Doing::Ready);
        }
        let Some((request, mut ops)) = self.threads[thread].serves.take() else { return self.receives(core, thread) };
        if std::mem::take(&mut self.threads[thread].answered) {
            let ts = self.tick();
            let [a, b, c] = [LOOPBACK, own_ports(thread) | 20 << 32, 10 | 8 << 32];
            self.events[core].push(event(ts, Kind::PeerRecv, 0, tid(thread), [a, b, c]));
        }
        let Some(op) = ops.pop_front() else {
            self.answers(core, thread, request);
            return self.receives(core, thread);
        };
        let mut sleeps = None;
        match op {
            Op::Compute(ns) if ns > TURN_NS / 10 => {
                // In parts, so that a turn ends in time.
                ops.push_front(Op::Compute(ns - TURN_NS / 10));
                self.go_on_after(core, TURN_NS / 10);
            }
            Op::Compute(ns) => self.go_on_after(core, ns),
            Op::Lock(lock) => match self.truth.holder(lock, self.now_ns) {
                None => {
                    self.holds(lock, Some(thread));
                    self.go_on_after(core, CALL_NS);
                }
                // It was given to it while it slept.
                Some(holder) if holder == thread => self.go_on_after(core, CALL_NS),
                Some(_) => {
                    self.in_line[lock].push_back(thread);
                    ops.push_front(op);
                    sleeps = Some((FUTEX, Doing::ForLock(lock)));
                }
            },
            Op::Unlock(lock) => {
                self.now_ns += 1;
                let next = self.in_line[lock].pop_front();
                self.holds(lock, next.filter(|_| self.plan.fair[lock]));
                if let Some(next) = next {
                    self.wake(core, tid(thread), next);
                }
                self.go_on_after(core, CALL_NS);
            }
            Op::Call(ns) => {
                let ts = self.tick();
                let asks =
                    event(ts, Kind::Send, 0, tid(thread), [LOOPBACK, own_ports(thread) | 10 << 32, 10 | 8 << 32]);
                self.events[core].push(Event { aux: flow_flags::CLIENT, ..asks });
                self.plan_at(self.now_ns + ns, Next::Answered(thread));
                sleeps = Some((RECVFROM, Doing::ForAnswer));
            }
            Op::Nap(ns) => {
                self.plan_at(self.now_ns + ns, Next::Fires(thread));
                sleeps = Some((NANOSLEEP, Doing::ForTimer));
            }
        }
        self.threads[thread].serves = Some((request, ops));
        if let Some((call, doing)) = sleeps {
            self.leaves(core, call, doing);
        }
    }

    /// The reply is written, and goes to the driver within the call.
    fn answers(&mut self, core: usize, thread: usize, request: usize) {
        let (tid, ports) = (tid(thread), ports(request));
        let ts = self.tick();
        self.events[core].push(event(ts, Kind::SendBegin, 0, tid, [1, ports, 0]));
        self.now_ns += CALL_NS;
        let ts = self.tick();
        self.events[core].push(event(ts, Kind::TxDriver, 0, tid, [1, ports | 500 << 32, 50]));
        let ts = self.tick();
        self.events[core].push(send(ts, ports, tid));
    }

    /// The next request of a thread, or sleep until there is one.
    fn receives(&mut self, core: usize, thread: usize) {
        if self.is_of_pool(thread) {
            return self.takes(core, thread);
        }
        let Some(request) = self.threads[thread].arrived.pop_front() else {
            return self.leaves(core, self.rests_in(thread), Doing::Rests);
        };
        let ts = self.tick();
        self.events[core].push(recv(ts, ports(request), tid(thread)));
        self.truth.received.insert(request, (thread, ts));
        self.says(thread, Doing::Works(request));
        if self.plan.pool == 0 {
            let ops = self.plan.requests[request].ops.iter().copied().collect();
            self.threads[thread].serves = Some((request, ops));
        } else {
            self.now_ns += CALL_NS;
            self.queue.push_back((request, self.now_ns));
            let rests = |&of_pool: &usize| self.truth.doing(of_pool, self.now_ns) == Doing::Rests;
            if let Some(of_pool) = (self.plan.threads..self.threads.len()).find(rests) {
                self.wake(core, tid(thread), of_pool);
            }
        }
        self.go_on_after(core, CALL_NS);
    }

    /// The next request of the pool's queue, or sleep until there is one.
    fn takes(&mut self, core: usize, thread: usize) {
        let Some((request, queued_ns)) = self.queue.pop_front() else {
            return self.leaves(core, self.rests_in(thread), Doing::Rests);
        };
        self.now_ns += 1;
        self.truth.pooled.insert(request, (queued_ns, thread, self.now_ns));
        self.says(thread, Doing::Works(request));
        let ops = self.plan.requests[request].ops.iter().copied().collect();
        self.threads[thread].serves = Some((request, ops));
        self.go_on_after(core, CALL_NS);
    }
}

/// A thread's connection to the other server.
fn own_ports(thread: usize) -> u64 {
    (FIRST_OWN_PORT + thread as u64) << 16 | BACKEND_PORT
}
