//! A server whose threads sleep for a purpose that is known: for work, for a lock, a pipe, another server or a timer.
//!
//! In: a [`Plan`]: requests with what their handler does, locks that are fair or not, cores. Out: the events of each core as the probes would
//! write them, and a [`Truth`]: at every nanosecond what each thread did, and who held each lock. Nothing here uses the code under test.
//!
//! A discrete simulation on the cores of [`kernel`]. Each connection carries one request, and belongs to one thread, which waits in epoll.
//! With a pool, these threads only receive: each request goes into one queue, and the pool's threads, which wait for it in a futex, serve and
//! answer. Helpers read jobs from a pipe each, which holds [`PIPE_JOBS`], and write answers to a pipe of the thread that asked.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use tailsight_lifetime::RunContext;
use tailsight_lifetime::input::Names;
use tailsight_trace::read::CpuEvents;
use tailsight_trace::tables::TaskRow;

use super::TARGET;
pub use super::kernel::name;
use super::kernel::{self, CALL_NS, Kernel, SERVER_PORT, Step, at, backend, tid};

const READ: u64 = 0;
const WRITE: u64 = 1;
const RECVFROM: u64 = 45;
const NANOSLEEP: u64 = 35;
const FUTEX: u64 = 202;
const EPOLL: u64 = 281;
/// How many jobs a pipe holds.
const PIPE_JOBS: usize = 2;

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
    /// Writes a job to the pipe of a helper.
    Write(usize, Job),
    /// Reads the answer of a helper, which was asked for one before.
    Read(usize),
}

/// What a helper does for a handler.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// It computes for so many ns,
    pub computes_ns: u64,
    /// and sleeps until a timer, unless this is 0.
    pub naps_ns: u64,
    /// Whether it writes an answer.
    pub answers: bool,
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
    /// Helpers, each with a pipe.
    pub helpers: usize,
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
            requests.prop_map(move |requests| Plan { cores, threads, pool, helpers: 0, fair: fair.clone(), requests })
        },
    )
}

/// Plans of up to so many requests, whose handlers ask helpers, and feed them, over pipes.
pub fn piped(requests: usize) -> impl Strategy<Value = Plan> {
    let compute = || (1_000u64..300_000).prop_map(Op::Compute);
    let naps_ns = || prop_oneof![2 => Just(0), 1 => 50_000u64..1_000_000];
    let job = move |answers| {
        (1_000u64..300_000, naps_ns()).prop_map(move |(computes_ns, naps_ns)| Job { computes_ns, naps_ns, answers })
    };
    // The answer may be there before it is read.
    let ask = move || {
        (0usize..2, job(true), prop::option::of(compute())).prop_map(|(helper, job, between)| {
            [Some(Op::Write(helper, job)), between, Some(Op::Read(helper))].into_iter().flatten().collect()
        })
    };
    let feed = (0usize..2, prop::collection::vec(job(false), 1..4))
        .prop_map(|(helper, jobs)| jobs.into_iter().map(|job| Op::Write(helper, job)).collect());
    let held = prop_oneof![1 => ask(), 1 => compute().prop_map(|op| vec![op])];
    let locked =
        (0usize..2, held).prop_map(|(lock, held)| [vec![Op::Lock(lock)], held, vec![Op::Unlock(lock)]].concat());
    let part = prop_oneof![
        2 => compute().prop_map(|op| vec![op]),
        1 => (50_000u64..2_000_000).prop_map(|ns| vec![Op::Nap(ns)]),
        3 => ask(),
        2 => feed,
        1 => locked,
    ];
    let request = move |threads| {
        (1_000u64..1_000_000, 0..threads, prop::collection::vec(part.clone(), 1..4))
            .prop_map(|(after_ns, thread, parts)| Request { after_ns, thread, ops: parts.concat() })
    };
    let requests = move |threads| prop::collection::vec(request(threads), 1..requests);
    (1usize..=3, 1usize..=4, prop::collection::vec(any::<bool>(), 2)).prop_flat_map(move |(cores, threads, fair)| {
        requests(threads).prop_map(move |requests| {
            let fair = fair.clone();
            Plan { cores, threads, pool: 0, helpers: 2, fair, requests }
        })
    })
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
    /// Sleeps until this thread, a helper, answers over a pipe.
    ForHelper(usize),
    /// Sleeps until this thread, a helper, makes room in its pipe.
    ForRoom(usize),
}

impl kernel::Doing for Doing {
    const READY: Doing = Doing::Ready;
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

/// What is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// A request arrives.
    Arrives(usize),
    /// The answer of another server for a thread does.
    Answered(usize),
    /// A thread's timer fires.
    Fires(usize),
}

#[derive(Clone, Debug, Default)]
struct Thread {
    arrived: VecDeque<usize>,
    /// The request that it serves, and what is left of it.
    serves: Option<(usize, VecDeque<Op>)>,
    /// The other server's answer was not read yet.
    answered: bool,
    /// Nor was a helper's.
    helped: bool,
    /// Of a helper: to whom it is to answer.
    answers_to: Option<usize>,
}

/// A job in a pipe.
#[derive(Clone, Copy, Debug)]
struct Written {
    by: usize,
    request: usize,
    job: Job,
}

#[derive(Clone, Debug, Default)]
struct Pipe {
    jobs: VecDeque<Written>,
    /// Threads that sleep until there is room.
    in_line: VecDeque<usize>,
}

struct Machine {
    plan: Plan,
    kernel: Kernel<Next, Doing>,
    threads: Vec<Thread>,
    /// Requests that wait for a thread of the pool, each with when it was put there, ns.
    queue: VecDeque<(usize, u64)>,
    in_line: Vec<VecDeque<usize>>,
    /// Of each helper.
    pipes: Vec<Pipe>,
    truth: Truth,
}

/// Runs a plan to its end.
pub fn run(plan: &Plan) -> (RunContext, Vec<CpuEvents>, Truth) {
    let threads = plan.threads + plan.pool + plan.helpers;
    let mut machine = Machine {
        kernel: Kernel::new(plan.cores, threads),
        threads: vec![Thread::default(); threads],
        queue: VecDeque::new(),
        in_line: vec![VecDeque::new(); plan.fair.len()],
        pipes: vec![Pipe::default(); plan.helpers],
        truth: Truth { holder: vec![vec![]; plan.fair.len()], ..Truth::default() },
        plan: plan.clone(),
    };
    machine.begin();
    while let Some(step) = machine.kernel.next() {
        machine.step(step);
    }
    let doing = std::mem::take(&mut machine.kernel.doing);
    (facts(plan), machine.kernel.into_events(), Truth { doing, ..machine.truth })
}

/// The thread of a helper.
pub fn helper(plan: &Plan, helper: usize) -> usize {
    plan.threads + plan.pool + helper
}

fn facts(plan: &Plan) -> RunContext {
    let row =
        |thread| TaskRow { tid: tid(thread), tgid: TARGET, comm: name(thread), target: true, ..TaskRow::default() };
    let mut names = Names::new(&(0..plan.threads + plan.pool + plan.helpers).map(row).collect::<Vec<_>>());
    let mut symbols = vec![String::new()];
    names.add_tasks_and_stacks(&[], &mut symbols);
    RunContext {
        app: "server".into(),
        names,
        sockets: vec![backend()],
        symbols,
        ports: [SERVER_PORT].into_iter().collect(),
        cpus: plan.cores as u16 + 1,
        ..RunContext::default()
    }
}

/// What a thread is there for.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Waits for packets.
    Receives,
    /// Serves what others received.
    OfPool,
    /// Helper of this pipe.
    Helps(usize),
}

impl Machine {
    /// Each thread is seen once as it goes to sleep for work; requests come later.
    fn begin(&mut self) {
        for thread in 0..self.threads.len() {
            self.kernel.seen_first(thread, self.rests_in(thread), Doing::Rests);
        }
        let mut at_ns = self.kernel.now_ns + 10_000;
        for (n, request) in self.plan.requests.iter().enumerate() {
            at_ns += request.after_ns;
            self.kernel.plan_at(at_ns, Next::Arrives(n));
        }
    }

    fn holds(&mut self, lock: usize, thread: Option<usize>) {
        self.truth.holder[lock].push((self.kernel.now_ns, thread));
    }

    fn part(&self, thread: usize) -> Part {
        match thread.checked_sub(self.plan.threads) {
            None => Part::Receives,
            Some(of_pool) if of_pool < self.plan.pool => Part::OfPool,
            Some(other) => Part::Helps(other - self.plan.pool),
        }
    }

    /// The call in which a thread waits for work.
    fn rests_in(&self, thread: usize) -> u64 {
        match self.part(thread) {
            Part::Receives => EPOLL,
            Part::OfPool => FUTEX,
            Part::Helps(_) => READ,
        }
    }

    fn rests(&self, thread: usize) -> bool {
        self.kernel.doing(thread) == Some(Doing::Rests)
    }

    fn step(&mut self, step: Step<Next>) {
        match step {
            Step::Planned(Next::Arrives(request)) => self.arrives(request),
            Step::Planned(Next::Answered(thread)) => self.answered(thread),
            Step::Planned(Next::Fires(thread)) => self.kernel.timer_wakes(thread),
            Step::Began(thread) => self.began(thread),
            Step::GoesOn { core, thread } => self.goes_on(core, thread),
        }
    }

    fn arrives(&mut self, request: usize) {
        let thread = self.plan.requests[request].thread;
        self.kernel.softirq_begins();
        self.kernel.request_arrives(request);
        self.threads[thread].arrived.push_back(request);
        if self.rests(thread) {
            self.kernel.wake(self.kernel.network(), 0, thread);
        }
        self.kernel.softirq_ends();
    }

    fn answered(&mut self, thread: usize) {
        self.kernel.softirq_begins();
        self.kernel.answer_arrives(thread);
        self.threads[thread].answered = true;
        self.kernel.wake(self.kernel.network(), 0, thread);
        self.kernel.softirq_ends();
    }

    /// A thread has got a core.
    fn began(&mut self, thread: usize) {
        let works = self.threads[thread].serves.as_ref().map(|serves| serves.0);
        let next = match self.part(thread) {
            Part::Receives => self.threads[thread].arrived.front().copied(),
            Part::OfPool => self.queue.front().map(|queued| queued.0),
            Part::Helps(helper) => self.pipes[helper].jobs.front().map(|written| written.request),
        };
        // Of a pool, another thread may have been faster.
        self.kernel.says(thread, works.or(next).map_or(Doing::Rests, Doing::Works));
    }

    /// The thread leaves its core to sleep in a call. The next one comes.
    fn sleeps(&mut self, core: usize, call: u64, doing: Doing) {
        if let Some(next) = self.kernel.sleeps(core, call, doing) {
            self.began(next);
        }
    }

    /// One step of the thread that runs on a core.
    fn goes_on(&mut self, core: usize, thread: usize) {
        if self.kernel.turn_is_over(core) {
            if let Some(next) = self.kernel.makes_way(core) {
                self.began(next);
            }
            return;
        }
        let Some((request, mut ops)) = self.threads[thread].serves.take() else {
            return self.turns_to_work(core, thread);
        };
        if std::mem::take(&mut self.threads[thread].answered) {
            self.kernel.reads_answer(core, thread, thread);
        }
        let Some(op) = ops.pop_front() else {
            match self.part(thread) {
                Part::Helps(_) => self.answers_over_pipe(core, thread),
                Part::Receives | Part::OfPool => self.kernel.replies(core, thread, request),
            }
            return self.turns_to_work(core, thread);
        };
        let sleeps = match op {
            Op::Compute(ns) => {
                let left_ns = self.kernel.computes(core, ns);
                if left_ns > 0 {
                    ops.push_front(Op::Compute(left_ns));
                }
                None
            }
            Op::Lock(lock) => self.locks(core, thread, lock),
            Op::Unlock(lock) => {
                self.kernel.now_ns += 1;
                let next = self.in_line[lock].pop_front();
                self.holds(lock, next.filter(|_| self.plan.fair[lock]));
                if let Some(next) = next {
                    self.kernel.wake(core, tid(thread), next);
                }
                self.kernel.go_on_after(core, CALL_NS);
                None
            }
            Op::Call(ns) => {
                self.kernel.asks(core, thread, thread);
                self.kernel.plan_at(self.kernel.now_ns + ns, Next::Answered(thread));
                Some((RECVFROM, Doing::ForAnswer))
            }
            Op::Nap(ns) => {
                self.kernel.plan_at(self.kernel.now_ns + ns, Next::Fires(thread));
                Some((NANOSLEEP, Doing::ForTimer))
            }
            Op::Write(helper, job) => self.writes(core, helper, Written { by: thread, request, job }),
            Op::Read(helper) if !std::mem::take(&mut self.threads[thread].helped) => {
                Some((READ, Doing::ForHelper(self::helper(&self.plan, helper))))
            }
            Op::Read(_) => {
                self.kernel.go_on_after(core, CALL_NS);
                None
            }
        };
        if sleeps.is_some() && matches!(op, Op::Lock(_) | Op::Write(..) | Op::Read(_)) {
            // It tries again.
            ops.push_front(op);
        }
        self.threads[thread].serves = Some((request, ops));
        if let Some((call, doing)) = sleeps {
            self.sleeps(core, call, doing);
        }
    }

    /// A thread takes a lock, or sleeps.
    fn locks(&mut self, core: usize, thread: usize, lock: usize) -> Option<(u64, Doing)> {
        match self.truth.holder(lock, self.kernel.now_ns) {
            None => self.holds(lock, Some(thread)),
            // It was given to it while it slept.
            Some(holder) if holder == thread => {}
            Some(_) => {
                self.in_line[lock].push_back(thread);
                return Some((FUTEX, Doing::ForLock(lock)));
            }
        }
        self.kernel.go_on_after(core, CALL_NS);
        None
    }

    /// A thread writes a job into the pipe of a helper, or sleeps until there is room.
    fn writes(&mut self, core: usize, helper: usize, written: Written) -> Option<(u64, Doing)> {
        let reader = self::helper(&self.plan, helper);
        if self.pipes[helper].jobs.len() >= PIPE_JOBS {
            self.pipes[helper].in_line.push_back(written.by);
            return Some((WRITE, Doing::ForRoom(reader)));
        }
        self.pipes[helper].jobs.push_back(written);
        if self.rests(reader) {
            self.kernel.wake(core, tid(written.by), reader);
        }
        self.kernel.go_on_after(core, CALL_NS);
        None
    }

    /// A helper's job is done.
    fn answers_over_pipe(&mut self, core: usize, thread: usize) {
        let Some(asked) = self.threads[thread].answers_to.take() else { return };
        self.threads[asked].helped = true;
        if self.kernel.doing(asked) == Some(Doing::ForHelper(thread)) {
            self.kernel.wake(core, tid(thread), asked);
        }
    }

    /// The next work of a thread, or sleep until there is some.
    fn turns_to_work(&mut self, core: usize, thread: usize) {
        let works = match self.part(thread) {
            Part::Receives => self.receives(core, thread),
            Part::OfPool => self.takes(thread),
            Part::Helps(helper) => self.reads_job(core, thread, helper),
        };
        if works {
            self.kernel.go_on_after(core, CALL_NS);
        } else {
            self.sleeps(core, self.rests_in(thread), Doing::Rests);
        }
    }

    /// The next request of a thread that waits for packets, if there is one.
    fn receives(&mut self, core: usize, thread: usize) -> bool {
        let Some(request) = self.threads[thread].arrived.pop_front() else { return false };
        let ts = self.kernel.receives(core, thread, request);
        self.truth.received.insert(request, (thread, ts));
        self.kernel.says(thread, Doing::Works(request));
        if self.plan.pool == 0 {
            self.serves(thread, request);
            return true;
        }
        self.kernel.now_ns += CALL_NS;
        self.queue.push_back((request, self.kernel.now_ns));
        let of_pool = self.plan.threads..self.plan.threads + self.plan.pool;
        if let Some(of_pool) = of_pool.into_iter().find(|&of_pool| self.rests(of_pool)) {
            self.kernel.wake(core, tid(thread), of_pool);
        }
        true
    }

    /// The next request of the pool's queue, if there is one.
    fn takes(&mut self, thread: usize) -> bool {
        let Some((request, queued_ns)) = self.queue.pop_front() else { return false };
        self.kernel.now_ns += 1;
        self.truth.pooled.insert(request, (queued_ns, thread, self.kernel.now_ns));
        self.kernel.says(thread, Doing::Works(request));
        self.serves(thread, request);
        true
    }

    fn serves(&mut self, thread: usize, request: usize) {
        let ops = self.plan.requests[request].ops.iter().copied().collect();
        self.threads[thread].serves = Some((request, ops));
    }

    /// The next job of a helper's pipe, if there is one; who waits for room may write.
    fn reads_job(&mut self, core: usize, thread: usize, helper: usize) -> bool {
        let Some(Written { by, request, job }) = self.pipes[helper].jobs.pop_front() else { return false };
        self.kernel.now_ns += 1;
        self.kernel.says(thread, Doing::Works(request));
        self.threads[thread].answers_to = job.answers.then_some(by);
        let naps = (job.naps_ns > 0).then_some(Op::Nap(job.naps_ns));
        let ops = [Op::Compute(job.computes_ns)].into_iter().chain(naps).collect();
        self.threads[thread].serves = Some((request, ops));
        if let Some(writer) = self.pipes[helper].in_line.pop_front() {
            self.kernel.wake(core, tid(thread), writer);
        }
        true
    }
}
