//! A server on a runtime that parks tasks, as Go's and tokio's: no sleep of a thread is the wait of a task.
//!
//! In: a [`Plan`]: requests with what their handler does, workers, cores. Out: the events of each core as the probes would write them, and a
//! [`Truth`]: at every nanosecond what each worker and each task did, and who held what. Nothing here uses the code under test.
//!
//! Each request has a connection, and a task from its arrival to its reply. Workers, threads on the cores of [`kernel`], take tasks from one
//! queue. A worker without a task looks at what is readable, answered or due; then one worker at a time sleeps in epoll, and the others in a
//! futex. Who makes a task ready wakes a worker that sleeps. A task that waits is put aside, and its worker goes on: locks, permits and
//! channels are no business of the kernel. Jobs that tasks hand over a channel are done by tasks that live as long as the server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use tailsight_lifetime::RunContext;
use tailsight_lifetime::input::Names;
use tailsight_trace::read::CpuEvents;
use tailsight_trace::tables::TaskRow;

use super::TARGET;
use super::kernel::{self, CALL_NS, Kernel, SERVER_PORT, Step, at, backend, name, tid};

const FUTEX: u64 = 202;
const EPOLL: u64 = 281;
/// How many jobs the channel holds.
const CHANNEL_JOBS: usize = 1;

/// What a handler does, in order.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Computes for so many ns.
    Compute(u64),
    /// Takes this lock, which goes to the first in line.
    Lock(usize),
    /// Gives it back.
    Unlock(usize),
    /// Takes one of the permits.
    Acquire,
    /// Gives it back.
    Release,
    /// Asks another server, which answers after so many ns.
    Call(u64),
    /// Waits for a timer after so many ns.
    Nap(u64),
    /// Puts a job of so many ns into the channel.
    Send(u64),
    /// Waits until that job is done.
    Await,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// When it arrives, ns after the one before.
    pub after_ns: u64,
    /// What its handler does.
    pub ops: Vec<Op>,
}

/// A server, and what it is asked.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Cores, without that on which packets arrive.
    pub cores: usize,
    /// Threads that run tasks.
    pub workers: usize,
    /// Locks.
    pub locks: usize,
    /// Permits of the one semaphore.
    pub permits: usize,
    /// Tasks that do jobs of the one channel.
    pub jobs: usize,
    /// In the order of their arrival.
    pub requests: Vec<Request>,
}

/// Plans of up to so many requests.
pub fn plans(requests: usize) -> impl Strategy<Value = Plan> {
    let compute = || (1_000u64..300_000).prop_map(Op::Compute);
    let nap = || (50_000u64..2_000_000).prop_map(Op::Nap);
    let call = || (50_000u64..2_000_000).prop_map(Op::Call);
    let held = || prop::collection::vec(prop_oneof![3 => compute(), 1 => nap(), 1 => call()], 1..3);
    let locked =
        (0usize..2, held()).prop_map(|(lock, held)| [vec![Op::Lock(lock)], held, vec![Op::Unlock(lock)]].concat());
    let permitted = held().prop_map(|held| [vec![Op::Acquire], held, vec![Op::Release]].concat());
    let part = prop_oneof![
        3 => compute().prop_map(|op| vec![op]),
        1 => nap().prop_map(|op| vec![op]),
        1 => call().prop_map(|op| vec![op]),
        1 => locked,
        1 => permitted,
        1 => (1_000u64..1_000_000).prop_map(|ns| vec![Op::Send(ns), Op::Await]),
    ];
    let request = (1_000u64..1_000_000, prop::collection::vec(part, 1..4))
        .prop_map(|(after_ns, parts)| Request { after_ns, ops: parts.concat() });
    let sizes = (1usize..=3, 1usize..=4, 1usize..=3, 1usize..=2);
    (sizes, prop::collection::vec(request, 1..requests)).prop_map(|((cores, workers, permits, jobs), requests)| Plan {
        cores,
        workers,
        locks: 2,
        permits,
        jobs,
        requests,
    })
}

/// What a worker does at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Could run, and has no core.
    Ready,
    /// Sleeps until something is readable, answered or due.
    InPoller,
    /// Sleeps until there are tasks.
    InFutex,
    /// Looks for a task.
    Looks,
    /// Runs this task.
    Works(usize),
}

impl kernel::Doing for Doing {
    const READY: Doing = Doing::Ready;
}

/// What a task does at a time. Those of the requests come first, by number; then those that do jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskDoing {
    /// Its request did not arrive yet, or was answered; of a task that does jobs: there is none.
    Rests,
    /// Its request, its answer or its timer is there, and no worker has looked.
    Unseen,
    /// In the queue of tasks.
    Ready,
    /// On this worker, which may have no core.
    Works(usize),
    /// Waits for this lock.
    ForLock(usize),
    /// Waits for a permit.
    ForPermit,
    /// Waits for room in the channel.
    ForRoom,
    /// Waits for its job.
    ForJob,
    /// Waits for another server.
    ForAnswer,
    /// Waits for a timer.
    ForTimer,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Of each worker, from when it did what, ns.
    pub workers: Vec<Vec<(u64, Doing)>>,
    /// Of each task, from when it did what.
    pub tasks: Vec<Vec<(u64, TaskDoing)>>,
    /// Of each lock, from when which task held it.
    pub holder: Vec<Vec<(u64, Option<usize>)>>,
    /// Of each task, from when it held a permit.
    pub permit: Vec<Vec<(u64, bool)>>,
    /// Of each task that does jobs, from when it did one for which task.
    pub job: Vec<Vec<(u64, Option<usize>)>>,
    /// Of each request, the worker that received it, and when, ns.
    pub received: BTreeMap<usize, (usize, u64)>,
}

impl Truth {
    /// What a worker does at a time.
    pub fn worker(&self, worker: usize, at_ns: u64) -> Doing {
        at(&self.workers[worker], at_ns).unwrap_or(Doing::InFutex)
    }

    /// What a task does at a time.
    pub fn task(&self, task: usize, at_ns: u64) -> TaskDoing {
        at(&self.tasks[task], at_ns).unwrap_or(TaskDoing::Rests)
    }

    /// The task that does a job for another one at a time.
    pub fn job_of(&self, task: usize, at_ns: u64) -> Option<usize> {
        let does = self.job.iter().position(|job| at(job, at_ns) == Some(Some(task)));
        does.map(|job| self.tasks.len() - self.job.len() + job)
    }

    /// For which tasks a task waits at a time: who holds the lock or a permit, or does its job or those before.
    pub fn waits_for(&self, task: usize, at_ns: u64) -> Vec<usize> {
        let first_job = self.tasks.len() - self.job.len();
        let jobs = || first_job..self.tasks.len();
        match self.task(task, at_ns) {
            TaskDoing::ForLock(lock) => at(&self.holder[lock], at_ns).flatten().into_iter().collect(),
            TaskDoing::ForPermit => (0..first_job).filter(|&t| at(&self.permit[t], at_ns) == Some(true)).collect(),
            TaskDoing::ForJob => self.job_of(task, at_ns).map_or_else(|| jobs().collect(), |its| vec![its]),
            TaskDoing::ForRoom => jobs().collect(),
            _ => vec![],
        }
    }

    /// Every time at which something begins, ns, in order.
    pub fn times_ns(&self) -> Vec<u64> {
        let workers = self.workers.iter().flatten().map(|change| change.0);
        let tasks = self.tasks.iter().flatten().map(|change| change.0);
        let held = self.holder.iter().chain(&self.job).flatten().map(|change| change.0);
        let permits = self.permit.iter().flatten().map(|change| change.0);
        let mut times: Vec<u64> = workers.chain(tasks).chain(held).chain(permits).collect();
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
    /// The answer of another server for a task does.
    Answered(usize),
    /// A task's timer is due.
    Due(usize),
}

#[derive(Clone, Debug, Default)]
struct Task {
    /// What is left to do.
    ops: VecDeque<Op>,
    /// The other server's answer was not read yet.
    answered: bool,
    /// Its job is done.
    done: bool,
}

/// A worker that sleeps in epoll.
#[derive(Clone, Copy, Debug)]
struct Poller {
    worker: usize,
    /// Its time limit.
    until_ns: Option<u64>,
}

struct Runtime {
    plan: Plan,
    kernel: Kernel<Next, Doing>,
    /// Of each worker, the task that it runs.
    runs: Vec<Option<usize>>,
    tasks: Vec<Task>,
    queue: VecDeque<usize>,
    /// Tasks that are readable, answered or due, and that no worker has seen.
    unseen: VecDeque<usize>,
    /// When which task is due.
    timers: BTreeSet<(u64, usize)>,
    poller: Option<Poller>,
    /// Workers in a futex that nobody has woken.
    parked: Vec<usize>,
    lock_lines: Vec<VecDeque<usize>>,
    permits: usize,
    permit_line: VecDeque<usize>,
    /// Jobs: for whom, and how long, ns.
    channel: VecDeque<(usize, u64)>,
    room_line: VecDeque<(usize, u64)>,
    resting_jobs: VecDeque<usize>,
    truth: Truth,
}

/// Runs a plan to its end.
pub fn run(plan: &Plan) -> (RunContext, Vec<CpuEvents>, Truth) {
    let requests = plan.requests.len();
    let handlers = plan.requests.iter().map(|request| request.ops.iter().copied().collect());
    let tasks = handlers.map(|ops| Task { ops, ..Task::default() });
    let mut runtime = Runtime {
        kernel: Kernel::new(plan.cores, plan.workers),
        runs: vec![None; plan.workers],
        tasks: tasks.chain((0..plan.jobs).map(|_| Task::default())).collect(),
        queue: VecDeque::new(),
        unseen: VecDeque::new(),
        timers: BTreeSet::new(),
        poller: None,
        parked: vec![],
        lock_lines: vec![VecDeque::new(); plan.locks],
        permits: plan.permits,
        permit_line: VecDeque::new(),
        channel: VecDeque::new(),
        room_line: VecDeque::new(),
        resting_jobs: (requests..requests + plan.jobs).collect(),
        truth: Truth {
            tasks: vec![vec![]; requests + plan.jobs],
            holder: vec![vec![]; plan.locks],
            permit: vec![vec![]; requests],
            job: vec![vec![]; plan.jobs],
            ..Truth::default()
        },
        plan: plan.clone(),
    };
    runtime.begin();
    while let Some(step) = runtime.kernel.next() {
        runtime.step(step);
    }
    let workers = std::mem::take(&mut runtime.kernel.doing);
    (facts(plan), runtime.kernel.into_events(), Truth { workers, ..runtime.truth })
}

fn facts(plan: &Plan) -> RunContext {
    let row =
        |worker| TaskRow { tid: tid(worker), tgid: TARGET, comm: name(worker), target: true, ..TaskRow::default() };
    let mut names = Names::new(&(0..plan.workers).map(row).collect::<Vec<_>>());
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

impl Runtime {
    /// Each worker is seen once as it goes to sleep; requests come later.
    fn begin(&mut self) {
        self.poller = Some(Poller { worker: 0, until_ns: None });
        self.parked = (1..self.plan.workers).collect();
        for worker in 0..self.plan.workers {
            let (call, doing) = if worker == 0 { (EPOLL, Doing::InPoller) } else { (FUTEX, Doing::InFutex) };
            self.kernel.seen_first(worker, call, doing);
        }
        let mut at_ns = self.kernel.now_ns + 10_000;
        for (n, request) in self.plan.requests.iter().enumerate() {
            at_ns += request.after_ns;
            self.kernel.plan_at(at_ns, Next::Arrives(n));
        }
    }

    fn says(&mut self, task: usize, doing: TaskDoing) {
        self.truth.tasks[task].push((self.kernel.now_ns, doing));
    }

    fn is_job(&self, task: usize) -> bool {
        task >= self.plan.requests.len()
    }

    fn step(&mut self, step: Step<Next>) {
        match step {
            Step::Planned(Next::Arrives(request)) => self.packet(|kernel| kernel.request_arrives(request), request),
            Step::Planned(Next::Answered(task)) => {
                self.tasks[task].answered = true;
                self.packet(|kernel| kernel.answer_arrives(task), task);
            }
            Step::Planned(Next::Due(task)) => {
                self.says(task, TaskDoing::Unseen);
                self.timers.retain(|timer| timer.1 != task);
                self.unseen.push_back(task);
                if let Some(poller) = self.poller.take() {
                    self.kernel.timer_wakes(poller.worker);
                }
            }
            Step::Began(worker) => self.began(worker),
            Step::GoesOn { core, thread } => self.goes_on(core, thread),
        }
    }

    /// A packet for a task arrives.
    fn packet(&mut self, arrives: impl FnOnce(&mut Kernel<Next, Doing>), task: usize) {
        self.kernel.softirq_begins();
        arrives(&mut self.kernel);
        self.says(task, TaskDoing::Unseen);
        self.unseen.push_back(task);
        if let Some(poller) = self.poller.take() {
            self.kernel.wake(self.kernel.network(), 0, poller.worker);
        }
        self.kernel.softirq_ends();
    }

    /// A worker has got a core.
    fn began(&mut self, worker: usize) {
        self.kernel.says(worker, self.runs[worker].map_or(Doing::Looks, Doing::Works));
    }

    /// One step of the worker that runs on a core.
    fn goes_on(&mut self, core: usize, worker: usize) {
        if self.kernel.turn_is_over(core) {
            if let Some(next) = self.kernel.makes_way(core) {
                self.began(next);
            }
            return;
        }
        match self.runs[worker] {
            Some(task) if self.is_job(task) => self.does_job(core, worker, task),
            Some(task) => self.handles(core, worker, task),
            None => self.looks(core, worker),
        }
    }

    /// The worker takes a task, or sleeps.
    fn looks(&mut self, core: usize, worker: usize) {
        if self.queue.is_empty() {
            while let Some(task) = self.unseen.pop_front() {
                self.says(task, TaskDoing::Ready);
                self.queue.push_back(task);
            }
            // The first is its own. One worker for each other one, and one that polls, if none does.
            let others = self.queue.len().saturating_sub(1) + usize::from(self.poller.is_none());
            if !self.queue.is_empty() {
                for parked in (0..others).map_while(|_| self.parked.pop()).collect::<Vec<_>>() {
                    self.kernel.wake(core, tid(worker), parked);
                }
            }
        }
        if let Some(task) = self.queue.pop_front() {
            self.runs[worker] = Some(task);
            self.kernel.says(worker, Doing::Works(task));
            self.says(task, TaskDoing::Works(worker));
            return self.kernel.go_on_after(core, CALL_NS);
        }
        let (call, doing) = if self.poller.is_none() {
            let until_ns = self.timers.first().map(|timer| timer.0);
            self.poller = Some(Poller { worker, until_ns });
            (EPOLL, Doing::InPoller)
        } else {
            self.parked.push(worker);
            (FUTEX, Doing::InFutex)
        };
        if let Some(next) = self.kernel.sleeps(core, call, doing) {
            self.began(next);
        }
    }

    /// The worker puts its task aside, and looks for another one.
    fn parks(&mut self, core: usize, worker: usize, doing: TaskDoing) {
        let task = self.runs[worker].take().expect("it runs a task");
        self.says(task, doing);
        self.kernel.says(worker, Doing::Looks);
        self.kernel.go_on_after(core, CALL_NS);
    }

    /// A task goes into the queue, and a worker is woken for it: that which polls, if no other one sleeps.
    fn readies(&mut self, core: usize, worker: usize, task: usize) {
        self.says(task, TaskDoing::Ready);
        self.queue.push_back(task);
        let woken = self.parked.pop().or_else(|| self.poller.take().map(|poller| poller.worker));
        if let Some(woken) = woken {
            self.kernel.wake(core, tid(worker), woken);
        }
    }

    /// One step of the task of a request.
    fn handles(&mut self, core: usize, worker: usize, task: usize) {
        if !self.truth.received.contains_key(&task) {
            let ts = self.kernel.receives(core, worker, task);
            self.truth.received.insert(task, (worker, ts));
            return self.kernel.go_on_after(core, CALL_NS);
        }
        if std::mem::take(&mut self.tasks[task].answered) {
            self.kernel.reads_answer(core, worker, task);
        }
        let Some(op) = self.tasks[task].ops.pop_front() else {
            self.kernel.replies(core, worker, task);
            return self.parks(core, worker, TaskDoing::Rests);
        };
        self.kernel.now_ns += 1;
        let now_ns = self.kernel.now_ns;
        let waits_for = match op {
            Op::Compute(ns) => {
                let left_ns = self.kernel.computes(core, ns);
                if left_ns > 0 {
                    self.tasks[task].ops.push_front(Op::Compute(left_ns));
                }
                return;
            }
            Op::Lock(lock) if at(&self.truth.holder[lock], now_ns).flatten().is_some() => {
                self.lock_lines[lock].push_back(task);
                Some(TaskDoing::ForLock(lock))
            }
            Op::Lock(lock) => {
                self.truth.holder[lock].push((now_ns, Some(task)));
                None
            }
            Op::Unlock(lock) => {
                let next = self.lock_lines[lock].pop_front();
                self.truth.holder[lock].push((now_ns, next));
                if let Some(next) = next {
                    self.readies(core, worker, next);
                }
                None
            }
            Op::Acquire if self.permits == 0 => {
                self.permit_line.push_back(task);
                Some(TaskDoing::ForPermit)
            }
            Op::Acquire => {
                self.permits -= 1;
                self.truth.permit[task].push((now_ns, true));
                None
            }
            Op::Release => {
                self.truth.permit[task].push((now_ns, false));
                match self.permit_line.pop_front() {
                    Some(next) => {
                        self.truth.permit[next].push((now_ns, true));
                        self.readies(core, worker, next);
                    }
                    None => self.permits += 1,
                }
                None
            }
            Op::Call(ns) => {
                self.kernel.asks(core, worker, task);
                self.kernel.plan_at(self.kernel.now_ns + ns, Next::Answered(task));
                Some(TaskDoing::ForAnswer)
            }
            Op::Nap(ns) => {
                self.naps(core, worker, task, now_ns + ns);
                Some(TaskDoing::ForTimer)
            }
            Op::Send(ns) if self.channel.len() >= CHANNEL_JOBS => {
                self.room_line.push_back((task, ns));
                Some(TaskDoing::ForRoom)
            }
            Op::Send(ns) => {
                self.channel.push_back((task, ns));
                if let Some(job) = self.resting_jobs.pop_front() {
                    self.readies(core, worker, job);
                }
                None
            }
            Op::Await if std::mem::take(&mut self.tasks[task].done) => None,
            Op::Await => {
                self.tasks[task].ops.push_front(op);
                Some(TaskDoing::ForJob)
            }
        };
        match waits_for {
            Some(doing) => self.parks(core, worker, doing),
            None => self.kernel.go_on_after(core, CALL_NS),
        }
    }

    /// A timer; the worker that sleeps in epoll is woken if its time limit is later.
    fn naps(&mut self, core: usize, worker: usize, task: usize, due_ns: u64) {
        self.timers.insert((due_ns, task));
        self.kernel.plan_at(due_ns, Next::Due(task));
        if let Some(poller) = self.poller.take_if(|poller| poller.until_ns.is_none_or(|until_ns| until_ns > due_ns)) {
            self.kernel.wake(core, tid(worker), poller.worker);
        }
    }

    /// One step of a task that does jobs.
    fn does_job(&mut self, core: usize, worker: usize, task: usize) {
        let job = task - self.plan.requests.len();
        if let Some(Op::Compute(ns)) = self.tasks[task].ops.pop_front() {
            let left_ns = self.kernel.computes(core, ns);
            if left_ns > 0 {
                self.tasks[task].ops.push_front(Op::Compute(left_ns));
            }
            return;
        }
        self.kernel.now_ns += 1;
        let now_ns = self.kernel.now_ns;
        if let Some(asked) = at(&self.truth.job[job], now_ns).flatten() {
            self.truth.job[job].push((now_ns, None));
            self.tasks[asked].done = true;
            if self.truth.task(asked, now_ns) == TaskDoing::ForJob {
                self.readies(core, worker, asked);
            }
        }
        let Some((asks, ns)) = self.channel.pop_front() else {
            self.resting_jobs.push_back(task);
            return self.parks(core, worker, TaskDoing::Rests);
        };
        self.truth.job[job].push((self.kernel.now_ns, Some(asks)));
        self.tasks[task].ops.push_back(Op::Compute(ns));
        if let Some((next, ns)) = self.room_line.pop_front() {
            self.channel.push_back((next, ns));
            self.readies(core, worker, next);
        }
        self.kernel.go_on_after(core, CALL_NS);
    }
}
