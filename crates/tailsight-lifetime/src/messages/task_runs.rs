//! Runs of tasks as breakpoints tell them: when a thread began to run a task of tokio, what the task asked to be made ready by, and who did so.
//!
//! In: the events RoutineRun, RoutineAsks and RoutineWoken. Out: the [`Spell`]s of a message's service: when its task ran, when it waited for
//! another task or for a time, and what that other task did meanwhile. All times in ns.
//!
//! Of goroutines only who made them ready is told, and where they had waited (RoutineWaited): see [`TaskRuns::in_line`].
//!
//! Unlike looks ([`super::routines`]) these are exact: nothing is missed, and a wait ends when its task is made ready, by the holder of the lock
//! that gave it back or the sender into the channel. When a run ends no event tells; it has ended by the time that its thread runs another task
//! or sleeps.

use rustc_hash::FxHashMap;

use crate::input::wakes::Waker;
use crate::model::Doing;

/// How many tasks a request may have gone through before it is sent: a client's connection has a task of its own.
const MOST_TASKS: usize = 4;
/// How many tasks in line for one lock are followed.
const MOST_IN_LINE: u32 = 64;

/// A part of the time in which a task had a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spell {
    /// Start.
    pub from: u64,
    /// End.
    pub to: u64,
    /// What the task did.
    pub what: What,
}

/// What a task does in a spell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A thread runs it from `own_from` on. Before that the thread was to run it, or what the task waited for comes by the kernel.
    Runs {
        /// The thread.
        tid: u32,
        /// When it begins to run the task.
        own_from: u64,
    },
    /// It waits for a time.
    Sleeps {
        /// As of [`What::Waits`].
        stack: Option<u32>,
        /// Likewise.
        ended: Option<u32>,
    },
    /// What it waited for is there, and its runtime runs others.
    IsReady,
    /// A job of its own is in the queue of the threads that may block, which have others.
    JobIsQueued {
        /// The thread that takes it in the end.
        tid: u32,
    },
    /// It waits for another task.
    Waits {
        /// Where in the program it began to: a call stack of the run's samples, by number.
        stack: Option<u32>,
        /// Where in the program it was ended, likewise.
        ended: Option<u32>,
        /// What the task did meanwhile that made it ready; none where no task did.
        meanwhile: Option<Meanwhile>,
    },
}

/// What a task did that another one waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meanwhile {
    /// What.
    pub doing: Doing,
    /// The server whose answer it waited for: index into the run's symbols; 0: for none, or for which is not known.
    pub server: u32,
    /// Where in the program: where it waited, or if it ran where it then made the other one ready.
    pub stack: Option<u32>,
    /// The thread that ran it; 0: none did.
    pub tid: u32,
}

/// A task is made ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// When.
    pub ts: u64,
    /// By which task.
    pub by: u64,
    /// Where that one was in the program.
    pub stack: Option<u32>,
}

/// What happens to a task.
#[derive(Clone, Copy, Debug)]
enum TaskEvent {
    Runs { ts: u64, tid: u32 },
    Asks { ts: u64, stack: Option<u32> },
    Woken { ts: u64, by: u64, stack: Option<u32> },
}

impl TaskEvent {
    fn ts(&self) -> u64 {
        match *self {
            TaskEvent::Runs { ts, .. } | TaskEvent::Asks { ts, .. } | TaskEvent::Woken { ts, .. } => ts,
        }
    }
}

/// A run of a task, and the wait before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TaskRun {
    tid: u32,
    /// When it began.
    from: u64,
    /// Until then it ran at least: it asked for something.
    ran: u64,
    /// When its thread had turned to something else.
    left: u64,
    /// When and where it was made ready for this run, and by which task.
    woken: Option<(u64, u64, Option<u32>)>,
    /// Where it had asked for that.
    asked: Option<u32>,
}

/// Runs and wake-ups, by task, in order of time.
#[derive(Clone, Debug, Default)]
pub struct TaskRuns {
    events: FxHashMap<u64, Vec<TaskEvent>>,
    /// By task: when it made which other ones ready.
    made_ready: FxHashMap<u64, Vec<(u64, u64)>>,
    /// By thread that runs no tasks: when it made which ones ready.
    of_threads: FxHashMap<u32, Vec<(u64, u64)>>,
    /// Who makes tasks ready at a call stack, by its number.
    wakers: FxHashMap<u32, Waker>,
    has_runs: bool,
}

impl TaskRuns {
    /// `wakers`: who makes tasks ready at each call stack.
    pub fn new(wakers: FxHashMap<u32, Waker>) -> TaskRuns {
        TaskRuns { wakers, ..TaskRuns::default() }
    }

    /// Whether nothing was told.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// A thread begins to run a task.
    pub fn runs(&mut self, task: u64, ts: u64, tid: u32) {
        self.has_runs = true;
        self.events.entry(task).or_default().push(TaskEvent::Runs { ts, tid });
    }

    /// A task asks to be made ready. `stack`: where in the program.
    pub fn asks(&mut self, task: u64, ts: u64, stack: Option<u32>) {
        self.events.entry(task).or_default().push(TaskEvent::Asks { ts, stack });
    }

    /// A task is made ready. `by`: the task that the thread runs; 0: none. `stack`: where in the program.
    pub fn woken(&mut self, task: u64, ts: u64, by: u64, stack: Option<u32>) {
        self.events.entry(task).or_default().push(TaskEvent::Woken { ts, by, stack });
        if by != task && matches!(self.who_woke(by, stack), Waker::Task | Waker::Job) {
            self.made_ready.entry(by).or_default().push((ts, task));
        }
    }

    /// A task is made ready by a thread that runs no tasks.
    pub fn woken_by_thread(&mut self, task: u64, ts: u64, tid: u32, stack: Option<u32>) {
        self.woken(task, ts, 0, stack);
        if self.waker(stack) == Waker::Task {
            self.of_threads.entry(tid).or_default().push((ts, task));
        }
    }

    /// The thread that runs no tasks and made a task ready at a time; and when it had made another one ready before that, 0: never.
    fn thread_that_woke(&self, task: u64, ts: u64) -> Option<(u32, u64)> {
        self.of_threads.iter().find_map(|(&tid, made_ready)| {
            let at = made_ready.binary_search(&(ts, task)).ok()?;
            Some((tid, at.checked_sub(1).map_or(0, |before| made_ready[before].0)))
        })
    }

    /// The tasks that a task makes ready in the run in which it is at `ts`, from then on, in order.
    pub fn makes_ready(&self, task: u64, ts: u64) -> impl Iterator<Item = u64> {
        let events = self.events.get(&task).map_or(&[][..], Vec::as_slice);
        let mut later = events[events.partition_point(|event| event.ts() <= ts)..].iter();
        let next_run = later.find(|event| matches!(event, TaskEvent::Runs { .. })).map_or(u64::MAX, TaskEvent::ts);
        let ready = self.made_ready.get(&task).map_or(&[][..], Vec::as_slice);
        let within = &ready[ready.partition_point(|&(at, _)| at < ts)..];
        within.iter().take_while(move |&&(at, _)| at < next_run).map(|&(_, made)| made)
    }

    /// Who made a task ready at a place, on a thread that ran the task `by`.
    fn who_woke(&self, by: u64, stack: Option<u32>) -> Waker {
        match self.waker(stack) {
            // A thread that runs no tasks, or began to run this one before that was recorded.
            Waker::Task | Waker::Job if by == 0 => Waker::Outside,
            who => who,
        }
    }

    fn waker(&self, stack: Option<u32>) -> Waker {
        stack.and_then(|stack| self.wakers.get(&stack)).copied().unwrap_or(Waker::Outside)
    }

    /// The task for which a task that runs now does so, as far as `has_message` knows it: itself, or the only one of those that made it ready
    /// for this run, and so on.
    pub fn runs_for(&self, task: u64, has_message: impl Fn(u64) -> bool) -> Option<u64> {
        let mut task = task;
        for _ in 0..MOST_TASKS {
            if has_message(task) {
                return Some(task);
            }
            task = self.made_ready_by(task)?;
        }
        None
    }

    /// The only other task that made a task ready for the run that it is in now.
    pub fn made_ready_by(&self, task: u64) -> Option<u64> {
        let mut wakers: Vec<u64> = vec![];
        let mut runs = 0;
        for event in self.events.get(&task)?.iter().rev() {
            match *event {
                TaskEvent::Runs { .. } => runs += 1,
                // What makes it ready while it runs is for its next run.
                TaskEvent::Woken { by, stack, .. } if runs == 1 && by != task && self.waker(stack) == Waker::Task => {
                    wakers.push(by)
                }
                TaskEvent::Woken { .. } | TaskEvent::Asks { .. } => {}
            }
            if runs == 2 {
                break;
            }
        }
        wakers.dedup();
        match wakers[..] {
            [waker] => Some(waker),
            _ => None,
        }
    }

    /// The runs of a task between two times, the first of which began before it. `ran`: when the task ran for sure, where that is known. `left`:
    /// when a thread that ran a task at a time had turned to something else.
    fn runs_of(
        &self,
        task: u64,
        (from, to): (u64, u64),
        ran: Option<u64>,
        left: &impl Fn(u32, u64) -> u64,
    ) -> Vec<TaskRun> {
        let events = self.events.get(&task).map_or(&[][..], Vec::as_slice);
        let upto = events.partition_point(|event| event.ts() <= from);
        let first = events[..upto].iter().rposition(|event| matches!(event, TaskEvent::Runs { .. }));
        let mut runs: Vec<TaskRun> = vec![];
        let mut woken: Option<(u64, u64, Option<u32>)> = None;
        let mut asked: Vec<Option<u32>> = vec![];
        for event in events[first.unwrap_or(upto)..].iter().take_while(|event| event.ts() < to) {
            match *event {
                // One that is ready is made ready by nobody.
                TaskEvent::Woken { ts, by, stack } => woken = woken.or(Some((ts, by, stack))),
                TaskEvent::Asks { ts, stack } => {
                    asked.push(stack);
                    if let Some(run) = runs.last_mut() {
                        run.ran = ts;
                    }
                }
                TaskEvent::Runs { ts, tid } => {
                    // What it asked last of the kind that came: of a wait with a time limit there are two.
                    let by_timer = woken.map(|(.., stack)| self.waker(stack) == Waker::Timer);
                    let is_it = |stack: &&Option<u32>| Some(self.waker(**stack) == Waker::Timer) == by_timer;
                    let asked_at = asked.iter().rev().find(is_it).copied().flatten();
                    runs.push(TaskRun { tid, from: ts, ran: ts, left: 0, woken: woken.take(), asked: asked_at });
                }
            }
        }
        if let (Some(first), Some(ran)) = (runs.first_mut(), ran) {
            first.ran = first.ran.max(ran);
        }
        // A sleep before it asked for what it then waited for was in the run.
        runs.iter_mut().for_each(|run| run.left = left(run.tid, run.ran));
        runs
    }

    /// What the task of a message did from its receive call to its reply, in order and without gap; none where that was not told.
    /// `left`: when a thread that ran a task at a time had turned to something else. `woke`: when a thread that runs at a time last woke before,
    /// and which other one had woken it. `server`: whose answer a task waited for in a time, by number among the run's symbols; 0: of none.
    pub fn spells(
        &self,
        task: u64,
        (from, to): (u64, u64),
        left: impl Fn(u32, u64) -> u64,
        woke: impl Fn(u32, u64) -> Option<(u64, Option<u32>)>,
        server: impl Fn(u64, (u64, u64)) -> u32,
    ) -> Option<Vec<Spell>> {
        let runs = self.runs_of(task, (from, to), Some(from), &left);
        let first = runs.first().filter(|run| run.from <= from)?;
        let mut spells = vec![];
        let runs_until =
            |at: u64, end: u64, tid, own_from| Spell { from: at, to: end, what: What::Runs { tid, own_from } };
        let (mut at, mut runs_on) = (from, (first.tid, from));
        let mut ended = first.left;
        for run in &runs[1..] {
            let end = ended.clamp(at, run.from);
            spells.push(runs_until(at, end, runs_on.0, runs_on.1));
            at = end;
            if let Some((ready, by, stack)) = run.woken
                && ready > at
            {
                // Where it asked is not known where its place was not kept.
                let asked = run.asked.or(stack);
                let mut alone = |what| spells.push(Spell { from: at, to: ready, what });
                let mut told_until = ready;
                match self.who_woke(by, stack) {
                    Waker::Job => {
                        // What the thread did from then on the kernel's events tell.
                        let taken = self.begun(by, ready);
                        told_until = taken.map_or(at, |(taken, _)| taken.clamp(at, ready));
                        if let Some((_, tid)) = taken {
                            spells.push(Spell { from: at, to: told_until, what: What::JobIsQueued { tid } });
                        }
                    }
                    Waker::Task => {
                        let mut wait = Wait { asked, ended: stack, left: &left, server: &server, spells: &mut spells };
                        self.waits_for(by, (at, ready), stack, &mut wait, 0);
                    }
                    Waker::Timer => alone(What::Sleeps { stack: asked, ended: stack }),
                    Waker::Runtime => alone(What::Waits { stack: asked, ended: stack, meanwhile: None }),
                    Waker::Outside => {
                        // A thread that was at work all the time had a job of this task, or others before it. Else the kernel's events tell.
                        told_until = at;
                        if let Some((tid, before)) = self.thread_that_woke(task, ready)
                            && woke(tid, ready).is_some_and(|(ts, by)| ts <= at || by == Some(runs_on.0))
                        {
                            let taken = before.clamp(at, ready);
                            spells.push(Spell { from: at, to: taken, what: What::JobIsQueued { tid } });
                            let does = Some(Meanwhile { tid, ..meanwhile(Doing::Runs, stack) });
                            let what = What::Waits { stack: asked, ended: stack, meanwhile: does };
                            spells.push(Spell { from: taken, to: ready, what });
                            told_until = ready;
                        }
                    }
                }
                at = told_until;
            }
            (runs_on, ended) = ((run.tid, run.from), run.left);
        }
        spells.push(runs_until(at, to, runs_on.0, runs_on.1));
        spells.retain(|spell| spell.from < spell.to);
        Some(spells)
    }

    /// When a thread last began to run a task before a time, and which.
    fn begun(&self, task: u64, ts: u64) -> Option<(u64, u32)> {
        let events = self.events.get(&task)?;
        events[..events.partition_point(|event| event.ts() <= ts)].iter().rev().find_map(|event| match *event {
            TaskEvent::Runs { ts, tid } => Some((ts, tid)),
            TaskEvent::Asks { .. } | TaskEvent::Woken { .. } => None,
        })
    }

    /// The sleeps of all tasks until a time: where each began, and how long it lasted, ns.
    pub fn sleeps(&self) -> impl Iterator<Item = (u32, u64)> {
        self.events.values().flat_map(move |events| {
            let mut asked: Option<(u32, u64)> = None;
            events.iter().filter_map(move |event| match *event {
                TaskEvent::Asks { ts, stack } if self.waker(stack) == Waker::Timer => {
                    asked = stack.map(|stack| (stack, ts));
                    None
                }
                TaskEvent::Woken { ts, by, stack } if self.who_woke(by, stack) == Waker::Timer => {
                    asked.take().map(|(place, since)| (place, ts - since))
                }
                _ => None,
            })
        })
    }

    /// Whether runs of tasks are told, and not only who made them ready (as of Go).
    pub fn has_runs(&self) -> bool {
        self.has_runs
    }

    /// When a task was first made ready between two times, and by which other one (0: none), and where that one was in the program.
    pub fn made_ready(&self, task: u64, (from, to): (u64, u64)) -> Option<Ready> {
        let events = self.events.get(&task).map_or(&[][..], Vec::as_slice);
        let first =
            events[events.partition_point(|event| event.ts() <= from)..].iter().take_while(|event| event.ts() <= to);
        let ready = |event: &TaskEvent| match *event {
            TaskEvent::Woken { ts, by, stack } => Some(Ready { ts, by, stack }),
            TaskEvent::Runs { .. } | TaskEvent::Asks { .. } => None,
        };
        first.filter_map(ready).next()
    }

    /// Where in the program a task last asked for what made it ready then.
    pub fn asked_at(&self, task: u64, ready_ns: u64) -> Option<u32> {
        let events = self.events.get(&task)?;
        let upto = events.partition_point(|event| event.ts() <= ready_ns);
        events[..upto].iter().rev().find_map(|event| match *event {
            TaskEvent::Asks { stack, .. } => Some(stack),
            TaskEvent::Runs { .. } | TaskEvent::Woken { .. } => None,
        })?
    }

    /// A wait that another task ended, in parts, each with its begin and its end: whoever is in line waits for the one before it, until that one
    /// makes it ready. `ready`: the wait's end.
    pub fn in_line(&self, ready: Ready, from: u64) -> Vec<(u64, Ready)> {
        let mut parts = vec![];
        let mut readied = ready;
        for _ in 0..MOST_IN_LINE {
            let before = self.last_made_ready(readied.by, (from, readied.ts));
            let begun = before.map_or(from, |before| before.ts);
            parts.push((begun, readied));
            match before {
                Some(before) => readied = before,
                None => break,
            }
        }
        parts.reverse();
        if let Some(first) = parts.first_mut() {
            first.0 = from;
        }
        parts
    }

    /// Who last made a task ready between two times.
    fn last_made_ready(&self, task: u64, (from, to): (u64, u64)) -> Option<Ready> {
        let events = self.events.get(&task)?;
        let upto = events.partition_point(|event| event.ts() < to);
        match events[..upto]
            .iter()
            .rev()
            .take_while(|event| event.ts() > from)
            .find(|event| matches!(event, TaskEvent::Woken { .. }))
        {
            Some(&TaskEvent::Woken { ts, by, stack }) if by != 0 && by != task => Some(Ready { ts, by, stack }),
            _ => None,
        }
    }

    /// A wait that a task ended: what that one did meanwhile. What it waited for itself until another one made it ready is what that one did.
    /// `released`: where it was ended.
    fn waits_for(
        &self,
        by: u64,
        (from, to): (u64, u64),
        released: Option<u32>,
        wait: &mut Wait<'_, impl Fn(u32, u64) -> u64, impl Fn(u64, (u64, u64)) -> u32>,
        depth: u32,
    ) {
        let runs = self.runs_of(by, (from, to + 1), None, wait.left);
        let Some(first) = runs.first() else { return wait.add((from, to), Doing::NotKnown, released) };
        let mut at = first.from.max(from);
        wait.add((from, at), Doing::NotKnown, released);
        for (run, next) in runs.iter().zip(&runs[1..]) {
            let end = run.left.clamp(at, next.from);
            wait.add_by((at, end), Meanwhile { tid: run.tid, ..meanwhile(Doing::Runs, released) });
            let (ready, waker, stack) = next.woken.unwrap_or((next.from, 0, None));
            let ready = ready.clamp(end, next.from);
            match self.who_woke(waker, stack) {
                Waker::Task if depth < MOST_IN_LINE => self.waits_for(waker, (end, ready), stack, wait, depth + 1),
                Waker::Task | Waker::Runtime => wait.add((end, ready), Doing::Waits, next.asked),
                Waker::Timer => wait.add((end, ready), Doing::Sleeps, next.asked),
                Waker::Job | Waker::Outside => {
                    let server = (wait.server)(by, (end, ready));
                    wait.add_by((end, ready), Meanwhile { server, ..meanwhile(Doing::WaitsOutside, next.asked) });
                }
            }
            wait.add((ready, next.from), Doing::IsReady, next.asked);
            at = next.from;
        }
        // It runs, up to here.
        let tid = runs.last().map_or(0, |run| run.tid);
        wait.add_by((at, to), Meanwhile { tid, ..meanwhile(Doing::Runs, released) });
    }
}

/// A wait of a message's task for others.
struct Wait<'a, Left, Server> {
    /// Where it began.
    asked: Option<u32>,
    /// Where it was ended.
    ended: Option<u32>,
    left: &'a Left,
    /// Whose answer a task waited for.
    server: &'a Server,
    spells: &'a mut Vec<Spell>,
}

/// What a task did, at a place.
fn meanwhile(doing: Doing, stack: Option<u32>) -> Meanwhile {
    Meanwhile { doing, stack, tid: 0, server: 0 }
}

impl<Left, Server> Wait<'_, Left, Server> {
    /// A part of it, and what the other task did in that.
    fn add(&mut self, (from, to): (u64, u64), doing: Doing, stack: Option<u32>) {
        self.add_by((from, to), meanwhile(doing, stack));
    }

    fn add_by(&mut self, (from, to): (u64, u64), meanwhile: Meanwhile) {
        let what = What::Waits { stack: self.asked, ended: self.ended, meanwhile: Some(meanwhile) };
        self.spells.push(Spell { from, to, what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: u64 = 7;
    const HOLDER: u64 = 8;
    /// Call stacks: a socket is ready, a lock is given back, a time has come, and where each was asked for.
    const SOCKET: u32 = 1;
    const GIVES_BACK: u32 = 2;
    const TIME: u32 = 3;
    const ASKS_LOCK: u32 = 4;
    const ASKS_TIME: u32 = 5;

    fn runs() -> TaskRuns {
        let wakers = [(SOCKET, Waker::Outside), (TIME, Waker::Timer), (ASKS_TIME, Waker::Timer)];
        let tasks = [(GIVES_BACK, Waker::Task), (ASKS_LOCK, Waker::Task)];
        let mut runs = TaskRuns::new(wakers.into_iter().chain(tasks).collect());
        // The holder sleeps with the lock.
        runs.runs(HOLDER, 50, 1);
        runs.asks(HOLDER, 55, Some(ASKS_TIME));
        // The task waits for the lock with a time limit.
        runs.runs(TASK, 90, 1);
        runs.asks(TASK, 110, Some(ASKS_LOCK));
        runs.asks(TASK, 115, Some(ASKS_TIME));
        runs.woken(HOLDER, 300, 0, Some(TIME));
        runs.runs(HOLDER, 320, 2);
        runs.woken(TASK, 500, HOLDER, Some(GIVES_BACK));
        runs.woken(TASK, 510, 0, Some(TIME));
        runs.runs(TASK, 600, 2);
        runs.woken(TASK, 900, 0, Some(SOCKET));
        runs.runs(TASK, 950, 1);
        runs
    }

    fn left(_: u32, ts: u64) -> u64 {
        ts + 30
    }

    /// Every thread has just woken.
    fn asleep(_: u32, ts: u64) -> Option<(u64, Option<u32>)> {
        Some((ts - 1, None))
    }

    fn nobody(_: u64, _: (u64, u64)) -> u32 {
        0
    }

    /// The holder asked a server: which one is known of its task, though no message is.
    #[test]
    fn a_holder_that_waits_for_an_answer_has_the_server() {
        let mut runs = TaskRuns::new([(SOCKET, Waker::Outside), (GIVES_BACK, Waker::Task)].into_iter().collect());
        runs.runs(HOLDER, 50, 1);
        runs.runs(TASK, 90, 1);
        runs.asks(TASK, 110, Some(ASKS_LOCK));
        runs.woken(HOLDER, 300, 0, Some(SOCKET));
        runs.runs(HOLDER, 310, 1);
        runs.woken(TASK, 320, HOLDER, Some(GIVES_BACK));
        runs.runs(TASK, 330, 1);
        let server = |task, time| if (task, time) == (HOLDER, (140, 300)) { 5 } else { 0 };
        let spells = runs.spells(TASK, (100, 400), left, asleep, server).unwrap();
        let servers: Vec<_> = spells
            .iter()
            .filter_map(|spell| match spell.what {
                What::Waits { meanwhile: Some(m), .. } if m.server != 0 => Some((spell.from, spell.to, m.server)),
                _ => None,
            })
            .collect();
        assert_eq!(servers, [(140, 300, 5)]);
    }

    #[test]
    fn a_wait_is_what_who_ended_it_did_meanwhile() {
        let spell = |from, to, what| Spell { from, to, what };
        let waits = |doing, stack| {
            let tid = if doing == Doing::Runs { 2 } else { 0 };
            let meanwhile = Some(Meanwhile { tid, ..meanwhile(doing, Some(stack)) });
            What::Waits { stack: Some(ASKS_LOCK), ended: Some(GIVES_BACK), meanwhile }
        };
        assert_eq!(
            runs().spells(TASK, (100, 1000), left, asleep, nobody).unwrap(),
            [
                spell(100, 145, What::Runs { tid: 1, own_from: 100 }),
                spell(145, 300, waits(Doing::Sleeps, ASKS_TIME)),
                spell(300, 320, waits(Doing::IsReady, ASKS_TIME)),
                spell(320, 500, waits(Doing::Runs, GIVES_BACK)),
                spell(500, 630, What::Runs { tid: 2, own_from: 600 }),
                // What came by the kernel its events tell.
                spell(630, 1000, What::Runs { tid: 1, own_from: 950 }),
            ]
        );
        assert_eq!(runs().spells(TASK, (50, 1000), left, asleep, nobody), None, "no run of it was told by then");
        assert_eq!(runs().spells(9, (100, 1000), left, asleep, nobody), None);
    }

    /// In a line for a lock the holders follow each other.
    #[test]
    fn who_was_in_line_before_waited_for_the_one_before_it() {
        let (second, third) = (9, 10);
        let mut runs = runs();
        runs.runs(second, 95, 1);
        runs.asks(second, 96, Some(ASKS_LOCK));
        runs.woken(second, 700, TASK, Some(GIVES_BACK));
        runs.runs(second, 710, 2);
        runs.runs(third, 97, 1);
        runs.woken(third, 800, second, Some(GIVES_BACK));
        runs.runs(third, 810, 1);
        let spells = runs.spells(third, (120, 900), left, asleep, nobody).unwrap();
        let slept: Vec<(u64, u64)> = spells
            .iter()
            .filter(|spell| matches!(spell.what, What::Waits { meanwhile: Some(m), .. } if m.doing == Doing::Sleeps))
            .map(|spell| (spell.from, spell.to))
            .collect();
        // The first holder's sleep, through the second and the third in line.
        assert_eq!(slept, [(150, 300)]);
        let whole: u64 = spells.iter().map(|spell| spell.to - spell.from).sum();
        assert_eq!(whole, 780);
        assert!(spells.windows(2).all(|two| two[0].to == two[1].from), "{spells:?}");
    }

    /// What a pool's thread slept for another job was "the server itself", of the request whose job it took next.
    #[test]
    fn a_job_is_in_line_until_a_thread_that_may_block_takes_it() {
        const JOB: u64 = 11;
        const JOB_DONE: u32 = 6;
        let mut runs = TaskRuns::new([(JOB_DONE, Waker::Job)].into_iter().collect());
        runs.runs(TASK, 90, 1);
        runs.asks(TASK, 110, Some(ASKS_LOCK));
        runs.runs(JOB, 400, 3);
        runs.woken(TASK, 500, JOB, Some(JOB_DONE));
        runs.runs(TASK, 600, 2);
        let spell = |from, to, what| Spell { from, to, what };
        assert_eq!(
            runs.spells(TASK, (100, 1000), left, asleep, nobody).unwrap(),
            [
                spell(100, 140, What::Runs { tid: 1, own_from: 100 }),
                spell(140, 400, What::JobIsQueued { tid: 3 }),
                // The job, and then the task.
                spell(400, 1000, What::Runs { tid: 2, own_from: 600 }),
            ]
        );
        assert_eq!(runs.makes_ready(JOB, 450).collect::<Vec<_>>(), [TASK]);
        // It was taken before the task waited, or it is not known when.
        let mut early = TaskRuns::new([(JOB_DONE, Waker::Job)].into_iter().collect());
        early.runs(JOB, 50, 3);
        early.runs(TASK, 90, 1);
        early.woken(TASK, 500, JOB, Some(JOB_DONE));
        early.runs(TASK, 600, 2);
        let spells = early.spells(TASK, (100, 1000), left, asleep, nobody).unwrap();
        assert!(spells.iter().all(|spell| matches!(spell.what, What::Runs { .. })), "{spells:?}");
    }

    /// A client's connection of hyper is a task of its own: the requests that it sent were nobody's.
    #[test]
    fn a_task_runs_for_the_only_one_that_made_it_ready() {
        let connection = 9;
        let mut runs = runs();
        runs.woken(connection, 650, TASK, Some(GIVES_BACK));
        runs.runs(connection, 660, 1);
        let has_message = |task| task == TASK;
        assert_eq!(runs.runs_for(connection, has_message), Some(TASK));
        assert_eq!(runs.runs_for(TASK, has_message), Some(TASK));
        assert_eq!(runs.runs_for(HOLDER, has_message), None);
        runs.woken(connection, 670, TASK, Some(GIVES_BACK));
        runs.woken(connection, 671, HOLDER, Some(GIVES_BACK));
        assert_eq!(runs.runs_for(connection, has_message), Some(TASK), "they are for its next run");
        runs.runs(connection, 680, 1);
        assert_eq!(runs.runs_for(connection, has_message), None, "for two");
    }

    /// A pool of threads that is none of tokio's (rayon) has a job of the task. While its thread sleeps nothing tells whether it had it.
    #[test]
    fn a_job_of_a_thread_that_runs_no_tasks_is_what_the_task_waits_for() {
        const POOL: u32 = 9;
        let mut runs = TaskRuns::new([(GIVES_BACK, Waker::Task), (ASKS_LOCK, Waker::Task)].into_iter().collect());
        runs.runs(TASK, 90, 1);
        runs.asks(TASK, 110, Some(ASKS_LOCK));
        runs.woken_by_thread(HOLDER, 200, POOL, Some(GIVES_BACK));
        runs.woken_by_thread(TASK, 800, POOL, Some(GIVES_BACK));
        runs.runs(TASK, 850, 1);
        let spells = |awake: u64, by| runs.spells(TASK, (100, 1000), left, |_, _| Some((awake, by)), nobody).unwrap();
        let at_work = spells(120, None);
        let what: Vec<_> = at_work.iter().map(|spell| (spell.from, spell.to, spell.what)).collect();
        let does = Meanwhile { tid: POOL, ..meanwhile(Doing::Runs, Some(GIVES_BACK)) };
        let waits = What::Waits { stack: Some(ASKS_LOCK), ended: Some(GIVES_BACK), meanwhile: Some(does) };
        let runs_from = |own_from| What::Runs { tid: 1, own_from };
        assert_eq!(
            what,
            [
                (100, 140, runs_from(100)),
                (140, 200, What::JobIsQueued { tid: POOL }),
                (200, 800, waits),
                (800, 1000, runs_from(850)),
            ]
        );
        assert_eq!(spells(150, Some(1)), at_work, "the task's thread woke it");
        assert_eq!(spells(150, None).len(), 2, "it slept");
    }
}
