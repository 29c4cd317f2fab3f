//! Tasks of runtimes: the goroutine that received a message and answered it, the task of asyncio that answered it, and when it waited in
//! between.
//!
//! In: the events that tell in which task a thread is, and looks at tasks from outside. Out: of a message the [`Parked`] times of its task,
//! with the place in the program. All times in ns.
//!
//! The thread is not the request: while a task waits, its thread runs others, and another thread may go on with it. A look says that the
//! task waited at that time. It had stopped running before, when its thread turned to something else, and went on after it, when the
//! thread that answered had work again. Between two looks that both saw it wait at one place it is taken to have waited there.
//!
//! A goroutine receives by itself, or turns to another one with each request that it receives ([`super::handlers`]). Of asyncio the loop receives, between
//! its tasks, and gives the bytes to the one that waits for them, or makes one: the task that answers had the message.

use rustc_hash::{FxHashMap, FxHashSet};
use tailsight_trace::routines::{NO_MESSAGE, RoutineRow, State};

use super::Extra;
use super::handlers::{Handler, Handlers};
use super::task_runs::{Meanwhile, Ready, Spell, TaskRuns, What};
use crate::model::{Doing, Message, Threshold};
use crate::timelines::processors::Taken;
use crate::timelines::threads::{State as ThreadState, Threads};

/// A time in which a message's task did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parked {
    /// It was ready to run then, and its runtime ran others; else it waited.
    pub is_ready: bool,
    /// When it had stopped running at the latest.
    pub from: u64,
    /// When it may have gone on at the earliest.
    pub to: u64,
    /// Where: a call stack of the run's samples, by number; none where that is not known.
    pub stack: Option<u32>,
    /// The first look that saw it there, and the last.
    pub looks_ns: (u64, u64),
    /// Who ended it, where breakpoints told. No task: a time had come.
    pub ended: Option<Ready>,
    /// For its turn to ask another server: that one, by number among the run's symbols; 0: not known to be for that.
    pub turn: u32,
    /// It did so for another message, which it answered before it turned to this one.
    pub for_others: bool,
}

/// A part of a wait, by who was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPart {
    /// Start.
    pub from: u64,
    /// End.
    pub to: u64,
    /// Where in the program that one ended the wait: a call stack of the run's samples, by number.
    pub ended: Option<u32>,
    /// What it did; none where nothing tells who it was.
    pub meanwhile: Option<Meanwhile>,
}

impl Parked {
    /// The part of it before a time, which was for others, and the part after it.
    fn divided_at(self, mine: u64) -> [Parked; 2] {
        let at = mine.clamp(self.from, self.to);
        [Parked { to: at, for_others: true, ..self }, Parked { from: at, ..self }]
    }
}

/// The tasks for which a thread sends.
#[derive(Clone, Copy, Debug)]
pub struct SendsFor {
    /// That which it runs.
    pub sender: u64,
    /// The same, or the one that made it run, if that has a message.
    pub task: u64,
    /// The only one that made it run, else itself: a client's connection of tokio has a task of its own.
    pub asked_by: u64,
}

/// By task of asyncio the messages that it answered, in order: received when, answered when, and which.
pub type ByLoops = FxHashMap<u64, Vec<(u64, u64, u32)>>;

/// What is known of tasks.
#[derive(Clone, Debug, Default)]
pub struct Routines {
    /// By thread: since when it was in which task, as told where it received or sent; 0: in none.
    changes: FxHashMap<u32, Vec<(u64, u64)>>,
    /// Looks by task, in order of time.
    looks: FxHashMap<u64, Vec<RoutineRow>>,
    /// The messages that loops received.
    by_loops: ByLoops,
    /// Runs that breakpoints told.
    runs: TaskRuns,
    /// From then on nothing of tasks is told any more.
    off_ns: Option<u64>,
    /// By server: the place where most tasks were seen that waited for their turn to ask it.
    lines: FxHashMap<u32, u32>,
    /// By such a place where many were: that server. Who waits there without that a call tells waits for the same.
    turns_at: FxHashMap<u32, u32>,
    /// Places where a task awaits a future of its own program's making: work that it gave to a thread, or what a callback brings.
    futures: FxHashSet<u32>,
    /// Places where a goroutine waits for a socket.
    polls: FxHashSet<u32>,
    /// By goroutine: when it received data from a socket, and on which thread.
    received: FxHashMap<u64, Vec<(u64, u32)>>,
    /// The goroutines that have messages which another one received.
    handlers: Handlers,
    /// By goroutine: when it made another one ready, and on which thread.
    ran: FxHashMap<u64, Vec<(u64, u32)>>,
    /// Sleeps until a time.
    sleeps: Sleeps,
}

/// Sleeps of tasks until a time came. Who is to wake them may have no processor for it: then they last longer than they were to.
#[derive(Clone, Debug, Default)]
struct Sleeps {
    /// How long those last that are among the shortest, by the place where they began, ns.
    short_ns: FxHashMap<u32, u64>,
    /// When the runtime had no processor free.
    taken: Taken,
}

impl Sleeps {
    /// How long the shortest of each place last. `lasted`: places with how long a sleep there lasted, ns.
    fn short(lasted: impl Iterator<Item = (u32, u64)>) -> FxHashMap<u32, u64> {
        let mut by_place: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
        lasted.for_each(|(place, ns)| by_place.entry(place).or_default().push(ns));
        by_place.retain(|_, lasted_ns| lasted_ns.len() >= Threshold::SleepsOfPlace.count());
        let short = |mut lasted_ns: Vec<u64>| {
            lasted_ns.sort_unstable();
            lasted_ns[(Threshold::ShortestSleeps.share() * lasted_ns.len() as f64) as usize]
        };
        by_place.into_iter().map(|(place, lasted_ns)| (place, short(lasted_ns))).collect()
    }

    /// Since when a sleep lasts longer than such sleeps do because no processor of its process was free; its end if that was not so.
    fn late_from(&self, pid: u32, place: Option<u32>, (from, to): (u64, u64)) -> u64 {
        let due = place.and_then(|place| self.short_ns.get(&place)).map(|short_ns| from + short_ns);
        let late = due.and_then(|due| Some(due.max(self.taken.since(pid, to)?)));
        late.filter(|late| late + Threshold::LateSleep.ns() < to).unwrap_or(to)
    }
}

impl Routines {
    /// With the looks of a run.
    pub fn new(rows: &[RoutineRow]) -> Routines {
        let mut looks: FxHashMap<u64, Vec<RoutineRow>> = FxHashMap::default();
        for row in rows {
            looks.entry(row.routine).or_default().push(*row);
        }
        looks.values_mut().for_each(|rows| rows.sort_by_key(|row| row.ts_ns));
        Routines { looks, ..Routines::default() }
    }

    /// And with runs that breakpoints tell, until `off_ns`.
    #[must_use]
    pub fn with_runs(self, runs: TaskRuns, off_ns: Option<u64>) -> Routines {
        Routines { runs, off_ns, ..self }
    }

    /// And with the places (numbers of call stacks) where a task of asyncio awaits a future of its own program's making.
    #[must_use]
    pub fn with_futures(self, futures: FxHashSet<u32>) -> Routines {
        Routines { futures, ..self }
    }

    /// And with the places (numbers of call stacks) where a goroutine waits for a socket.
    #[must_use]
    pub fn with_polls(self, polls: FxHashSet<u32>) -> Routines {
        Routines { polls, ..self }
    }

    /// Calls were found: where tasks wait for their turn to ask a server, of those that were seen to. `in_line`: messages that did, for which
    /// server, and until when.
    pub fn learn_lines<'a>(&mut self, in_line: impl Iterator<Item = (&'a Message, &'a Extra, u32, u64)>) {
        let mut counts: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        for (m, extra, turn, until) in in_line {
            let Some(task) = self.of(m, extra) else { continue };
            let last = self.looks_at(task, m).take_while(|look| look.ts_ns < until).last();
            if let Some(stack) = last.filter(|l| l.state == State::Waiting).and_then(|l| l.stack.checked_sub(1)) {
                *counts.entry((turn, stack)).or_default() += 1;
            }
        }
        let mut by_number: Vec<_> = counts.into_iter().map(|((turn, stack), n)| (n, turn, stack)).collect();
        by_number.sort_unstable();
        let many = by_number.iter().filter(|(n, ..)| *n >= Threshold::TasksInLine.count() as u32);
        self.turns_at = many.map(|&(_, turn, stack)| (stack, turn)).collect();
        self.lines = by_number.into_iter().map(|(_, turn, stack)| (turn, stack)).collect();
    }

    /// The server for whose turn tasks wait at a place, by number among the run's symbols; 0: none.
    pub fn turn_at(&self, stack: Option<u32>) -> u32 {
        stack.and_then(|stack| self.turns_at.get(&stack)).copied().unwrap_or(0)
    }

    /// The place where most were seen that waited for their turn to ask a server.
    pub fn line(&self, turn: u32) -> Option<u32> {
        self.lines.get(&turn).copied()
    }

    /// A thread begins to run a task.
    pub fn runs(&mut self, tid: u32, ts: u64, task: u64) {
        self.saw(tid, ts, task);
        self.runs.runs(task, ts, tid);
    }

    /// A thread makes a task ready, at this place of the program. The message for which it does, as found, if that is known already.
    pub fn woken(&mut self, tid: u32, ts: u64, task: u64, stack: Option<u32>) -> Option<u32> {
        match self.now(tid, ts) {
            Some(by) => {
                self.runs.woken(task, ts, by, stack);
                if !self.runs.has_runs() {
                    self.ran.entry(by).or_default().push((ts, tid));
                    return self.handlers.turns(by, stack, Handler { task, from_ns: ts, was_made: false });
                }
            }
            None if self.changes.contains_key(&tid) => self.runs.woken(task, ts, 0, stack),
            None => self.runs.woken_by_thread(task, ts, tid, stack),
        }
        None
    }

    /// A task asks to be made ready, at this place of the program.
    pub fn asks(&mut self, ts: u64, task: u64, stack: Option<u32>) {
        self.runs.asks(task, ts, stack);
    }

    /// A goroutine received messages (as found; none: a part of one).
    pub fn took(&mut self, tid: u32, messages: std::ops::Range<u32>, ts: u64) {
        if !self.runs.is_empty()
            && !self.runs.has_runs()
            && let Some(task) = self.now(tid, ts)
        {
            self.handlers.took(task, messages);
        }
    }

    /// A thread makes a goroutine, at this place of the program. The message for which it is, as found, if that is known already.
    pub fn made(&mut self, tid: u32, ts: u64, task: u64, stack: Option<u32>) -> Option<u32> {
        self.handlers.turns(self.now(tid, ts)?, stack, Handler { task, from_ns: ts, was_made: true })
    }

    /// All messages were found, and have their numbers as found: which goroutines have those that another one received.
    pub fn finish_handlers(&mut self, messages: &[Message], extras: &[Extra]) {
        let mut handlers = std::mem::take(&mut self.handlers);
        handlers.finish(|task, message| {
            let (m, extra) = (&messages[message as usize], &extras[message as usize]);
            self.answered(m, extra) == Some(task)
        });
        self.handlers = handlers;
    }

    /// The messages have other numbers from here on. `order`: the number as found of each.
    pub fn renumber(&mut self, order: &[u32]) {
        self.handlers.renumber(order);
    }

    /// The goroutine that has a message which another one received.
    fn handler(&self, m: &Message) -> Option<Handler> {
        self.handlers.of(m.id).filter(|handler| m.recv_ns <= handler.from_ns && handler.from_ns < m.send_ns)
    }

    /// In which task a thread was when it sent the reply; 0: in none.
    fn answered(&self, m: &Message, extra: &Extra) -> Option<u64> {
        self.at(extra.send_tid, m.send_ns.max(extra.sent_ns))
    }

    /// The goroutine that had a message which another one received, if that one does not answer it.
    pub fn handed_to(&self, m: &Message, extra: &Extra) -> Option<u64> {
        let handler = self.handler(m)?;
        self.of(m, extra).filter(|task| *task == handler.task)
    }

    /// When a goroutine last made another one ready in a time, and on which thread.
    pub fn last_ran(&self, task: u64, (from, to): (u64, u64)) -> Option<(u64, u32)> {
        let ran = self.ran.get(&task).map_or(&[][..], Vec::as_slice);
        ran[..ran.partition_point(|&(ts, _)| ts < to)].last().copied().filter(|&(ts, _)| ts >= from)
    }

    /// The tasks for which a thread sends.
    pub fn sends_for(&self, tid: u32, ts: u64, has_message: impl Fn(u64) -> bool) -> Option<SendsFor> {
        let sender = self.now(tid, ts)?;
        let task = self.runs.runs_for(sender, has_message).unwrap_or(sender);
        let asked_by = if task == sender { self.runs.made_ready_by(sender).unwrap_or(task) } else { task };
        Some(SendsFor { sender, task, asked_by })
    }

    /// The tasks that the one which a thread runs at `ts` makes ready in that run from then on, where breakpoints tell.
    pub fn makes_ready(&self, tid: u32, ts: u64) -> impl Iterator<Item = u64> {
        let task = if self.runs.has_runs() { self.at(tid, ts).unwrap_or(0) } else { 0 };
        self.runs.makes_ready(task, ts)
    }

    /// A thread received data from a socket: its goroutine did not wait then.
    pub fn received(&mut self, tid: u32, ts: u64) {
        if !self.runs.is_empty()
            && !self.runs.has_runs()
            && let Some(task) = self.now(tid, ts)
        {
            self.received.entry(task).or_default().push((ts, tid));
        }
    }

    /// When and on which thread a goroutine last received data in a message, up to a time.
    fn last_received(&self, task: u64, m: &Message, upto: u64) -> (u64, u32) {
        let received = self.received.get(&task).map_or(&[][..], Vec::as_slice);
        let last = received[..received.partition_point(|&(ts, _)| ts < upto)].last().copied();
        last.filter(|&(ts, _)| ts > m.recv_ns).unwrap_or((m.recv_ns, m.tid))
    }

    fn is_off(&self, ts: u64) -> bool {
        // Which goroutine a thread is in no breakpoint tells.
        self.runs.has_runs() && self.off_ns.is_some_and(|off_ns| ts >= off_ns)
    }

    /// What the task of a message did from its receive call to its reply, where breakpoints told it.
    /// `server`: whose answer a task waited for in a time, by number among the run's symbols; 0: of none.
    pub fn spells(
        &self,
        m: &Message,
        extra: &Extra,
        threads: &Threads,
        server: impl Fn(u64, (u64, u64)) -> u32,
    ) -> Option<Vec<Spell>> {
        if self.runs.is_empty() {
            return None;
        }
        let left = |tid: u32, ts: u64| self.left(tid, ts, threads);
        let woke = |tid: u32, ts: u64| woke(tid, ts, threads).map(|woken| (woken.at, woken.by));
        let spells = self.runs.spells(self.of(m, extra)?, (m.recv_ns, m.send_ns), left, woke, server)?;
        let pid = threads.names().who(m.tid).pid;
        let in_time =
            spells.into_iter().flat_map(|spell| self.in_time(spell, pid)).filter(|spell| spell.from < spell.to);
        Some(in_time.flat_map(|spell| by_thread(spell, threads)).collect())
    }

    /// A spell, in two if it is a sleep that ended late.
    fn in_time(&self, spell: Spell, pid: u32) -> [Spell; 2] {
        let late = match spell.what {
            What::Sleeps { stack, .. } => self.sleeps.late_from(pid, stack, (spell.from, spell.to)),
            _ => spell.to,
        };
        [Spell { to: late, ..spell }, Spell { from: late, what: What::IsReady, ..spell }]
    }

    /// A thread is in a task; 0: in none.
    pub fn saw(&mut self, tid: u32, ts: u64, routine: u64) {
        self.changes.entry(tid).or_default().push((ts, routine));
    }

    /// The task that a thread was last told to be in; none of other programs.
    pub fn now(&self, tid: u32, ts: u64) -> Option<u64> {
        if self.is_off(ts) {
            return None;
        }
        self.changes.get(&tid)?.last().map(|&(_, routine)| routine).filter(|&routine| routine != 0)
    }

    /// The task that a thread was in at a call of a socket; 0: in none.
    fn at(&self, tid: u32, ts: u64) -> Option<u64> {
        if self.is_off(ts) {
            return None;
        }
        let changes = self.changes.get(&tid)?;
        changes[..changes.partition_point(|&(since, _)| since <= ts)].last().map(|&(_, routine)| routine)
    }

    /// When a thread turned to another task after `ts`, as far as it was told.
    fn turned(&self, tid: u32, ts: u64) -> u64 {
        let changes = self.changes.get(&tid).map_or(&[][..], Vec::as_slice);
        changes.get(changes.partition_point(|&(since, _)| since <= ts)).map_or(u64::MAX, |&(since, _)| since)
    }

    /// The task that a thread was next told to be in, after `ts`; 0: none.
    pub fn next_in(&self, tid: u32, ts: u64) -> Option<(u64, u64)> {
        let changes = self.changes.get(&tid)?;
        changes.get(changes.partition_point(|&(since, _)| since <= ts)).copied()
    }

    /// Looks at the task of a message while it had it. Of a goroutine of another process at the same address the message is another. Of a task
    /// of asyncio a look does not tell the message.
    fn looks_at<'a>(&'a self, task: u64, m: &Message) -> impl Iterator<Item = &'a RoutineRow> + Clone {
        let send_ns = m.send_ns;
        let handler = self.handler(m).filter(|handler| handler.task == task);
        let recv_ns = handler.map_or(m.recv_ns, |handler| handler.from_ns);
        // One that waited for work before is looked at for others' sake.
        let has_none = handler.is_some_and(|handler| !handler.was_made);
        let looks = self.looks.get(&task).map_or(&[][..], Vec::as_slice);
        let first = looks.partition_point(|look| look.ts_ns <= recv_ns);
        let within = looks[first..].iter().take_while(move |look| look.ts_ns < send_ns);
        within.filter(move |look| {
            look.since_ns == 0
                || (has_none && look.since_ns == NO_MESSAGE)
                || (recv_ns.saturating_sub(Threshold::ReceiveCall.ns())..=recv_ns).contains(&look.since_ns)
        })
    }

    /// Whether looks allow that the task of a message handed a request to another task that sent it then, and waited until the answer could be
    /// read. `went_on`: whether another answer to it was received after a time and before that.
    pub fn may_have_asked(
        &self,
        task: u64,
        m: &Message,
        (sent, ready): (u64, u64),
        went_on: impl Fn(u64) -> bool,
    ) -> bool {
        let waiting = |look: &&RoutineRow| look.state == State::Waiting;
        let before = self.looks_at(task, m).take_while(|look| look.ts_ns < sent).last().filter(waiting);
        let mut meanwhile =
            self.looks_at(task, m).skip_while(|look| look.ts_ns <= sent).take_while(|look| look.ts_ns < ready);
        let Some(first) = meanwhile.next() else { return true };
        let stayed = before.is_some_and(|look| look.stack == first.stack && !went_on(look.ts_ns));
        waiting(&first) && !stayed && meanwhile.all(|look| waiting(&look) && look.stack == first.stack)
    }

    /// The task that had a message: that received it and answered it, the one to which that turned with it, or that answered what a loop received between
    /// its tasks. None where these are two, or not known.
    pub fn of(&self, m: &Message, extra: &Extra) -> Option<u64> {
        if self.changes.is_empty() || m.recv_ns == 0 || m.send_ns <= m.recv_ns {
            return None;
        }
        let received = self.at(m.tid, m.recv_ns)?;
        let answered = self.answered(m, extra)?;
        if let Some(handler) = self.handler(m).filter(|_| received != answered) {
            return Some(handler.task);
        }
        let of_loop = received == 0 && m.tid == extra.send_tid;
        (answered != 0 && (answered == received || of_loop)).then_some(answered)
    }

    /// All messages were found: the task of each that a loop received is the one that answered it.
    pub fn finish(&mut self, messages: &[Message], extras: &[Extra]) {
        if self.changes.is_empty() {
            return;
        }
        let mut by_loops = ByLoops::default();
        for ((m, extra), number) in messages.iter().zip(extras).zip(0..) {
            if self.is_of_loop(m)
                && let Some(task) = self.of(m, extra)
            {
                by_loops.entry(task).or_default().push((m.recv_ns, m.send_ns, number));
            }
        }
        by_loops.values_mut().for_each(|had| had.sort_unstable());
        self.by_loops = by_loops;
    }

    /// Threads are complete: how long sleeps until a time last, and when there was no processor to end them.
    pub fn learn_sleeps(&mut self, messages: &[Message], extras: &[Extra], threads: &Threads) {
        let short_ns = match self.runs.has_runs() {
            true => Sleeps::short(self.runs.sleeps()),
            false if self.runs.is_empty() => return,
            false => {
                let parked = messages.iter().zip(extras).flat_map(|(m, extra)| self.parked(m, extra, threads));
                let asleep = parked.filter(|wait| wait.ended.is_some_and(|ready| ready.by == 0));
                Sleeps::short(asleep.filter_map(|wait| Some((wait.stack?, wait.to - wait.from))))
            }
        };
        if !short_ns.is_empty() {
            self.sleeps = Sleeps { short_ns, taken: Taken::of(threads, self.changes.keys().copied()) };
        }
    }

    /// The messages that loops received, by the task that answered them.
    pub fn by_loops(&self) -> &ByLoops {
        &self.by_loops
    }

    /// Whether a loop received a message, between its tasks.
    pub fn is_of_loop(&self, m: &Message) -> bool {
        self.at(m.tid, m.recv_ns) == Some(0)
    }

    /// When the task that answered a message had answered the one before it, if it still had that one when this message was received.
    fn turned_to(&self, task: u64, m: &Message) -> u64 {
        let had = self.by_loops.get(&task).map_or(&[][..], Vec::as_slice);
        let answered = had.iter().map(|&(_, send_ns, _)| send_ns);
        answered.filter(|&send_ns| m.recv_ns < send_ns && send_ns < m.send_ns).max().unwrap_or(m.recv_ns)
    }

    /// A wait in parts: who ended it, and what that one was seen to do meanwhile. The whole where it is not told.
    pub fn parts(&self, wait: &Parked) -> Vec<WaitPart> {
        let Some(ready) = wait.ended.filter(|ready| wait.from < ready.ts) else {
            return vec![WaitPart { from: wait.from, to: wait.to, ended: None, meanwhile: None }];
        };
        let mut parts = vec![];
        if ready.by == 0 {
            let meanwhile = Some(Meanwhile { doing: Doing::TimeCame, stack: None, tid: 0, server: 0 });
            parts.push(WaitPart { from: wait.from, to: ready.ts, ended: None, meanwhile });
        }
        let in_line = if ready.by == 0 { vec![] } else { self.runs.in_line(ready, wait.from) };
        for (from, readied) in in_line {
            let mut at = from;
            let mut add = |to: u64, doing: Doing, stack: Option<u32>| {
                let meanwhile = Some(Meanwhile { doing, stack, tid: 0, server: 0 });
                parts.push(WaitPart { from: at, to, ended: readied.stack, meanwhile });
                at = to;
            };
            for (first, last, doing, stack) in self.seen_to_stay(readied.by, (from, readied.ts)) {
                add(first, Doing::NotKnown, readied.stack);
                add(last, doing, stack.or(readied.stack));
            }
            add(readied.ts, Doing::NotKnown, readied.stack);
        }
        // Up to where a connection was free.
        parts.push(WaitPart { from: ready.ts, to: wait.to, ended: None, meanwhile: None });
        parts.retain(|part| part.from < part.to);
        parts
    }

    /// From which look to which a goroutine was seen to be at one thing, between two times; and where it waited, if it did. What waits does so until it
    /// is made ready.
    fn seen_to_stay(&self, task: u64, (from, to): (u64, u64)) -> Vec<(u64, u64, Doing, Option<u32>)> {
        let looks = self.looks.get(&task).map_or(&[][..], Vec::as_slice);
        let within = &looks[looks.partition_point(|look| look.ts_ns < from)..];
        let within = &within[..within.partition_point(|look| look.ts_ns < to)];
        let stays = |look: &RoutineRow, next: &RoutineRow| {
            (look.state, look.stack, look.pid) == (next.state, next.stack, next.pid)
        };
        let stay = |looks: &[RoutineRow]| {
            let doing = match looks[0].state {
                State::Runnable => Doing::IsReady,
                State::Running => Doing::Runs,
                State::InSyscall => Doing::SleepsInCall,
                State::Waiting => Doing::Waits,
            };
            (looks[0].ts_ns, looks[looks.len() - 1].ts_ns, doing, looks[0].stack.checked_sub(1))
        };
        let mut stays: Vec<_> = within.chunk_by(stays).map(stay).collect();
        for at in 0..stays.len() {
            let next_ns = stays.get(at + 1).map_or(to, |next| next.0);
            let (_, last_ns, doing, _) = &mut stays[at];
            if *doing == Doing::Waits
                && let Some(ready) = self.runs.made_ready(task, (*last_ns, next_ns))
            {
                *last_ns = ready.ts;
            }
        }
        stays
    }

    /// When the task of a message waited, or was ready and did not run, between its receive call and its reply, in order and without overlap.
    pub fn parked(&self, m: &Message, extra: &Extra, threads: &Threads) -> Vec<Parked> {
        let Some(task) = self.of(m, extra) else { return vec![] };
        let mut looks = self.looks_at(task, m).peekable();
        let of_loop = self.is_of_loop(m);
        let mut out: Vec<Parked> = vec![];
        let handler = self.handler(m).filter(|handler| handler.task == task);
        // Until when it is known not to have waited.
        let mut ran = handler.map_or(m.recv_ns, |handler| handler.from_ns);
        // A first wait that was over before any look.
        let looked = looks.clone().find(|look| look.state == State::Waiting).map_or(m.send_ns, |look| look.ts_ns);
        if let Some(ready) = self.runs.made_ready(task, (ran, looked)) {
            // Before that it may have waited for the rest of the request, or for an answer.
            let (received, tid) = match handler {
                Some(handler) => (handler.from_ns, m.tid),
                None => self.last_received(task, m, ready.ts),
            };
            // Looks before it saw it at something else.
            let seen =
                looks.clone().take_while(|look| look.ts_ns < ready.ts).last().map_or(received, |look| look.ts_ns);
            let from = self.left(tid, received, threads).max(seen).clamp(received, ready.ts);
            let stack = self.runs.asked_at(task, ready.ts);
            let (looks_ns, ended) = ((ready.ts, ready.ts), Some(ready).filter(|ready| ready.by != task));
            out.push(Parked { from, to: ready.ts, stack, looks_ns, ended, ..Parked::default() });
            ran = ready.ts;
        }
        while looks.next_if(|look| look.ts_ns < ran).is_some() {}
        while let Some(look) = looks.next() {
            if look.state == State::Runnable && !of_loop {
                // From the end of its wait on, where no look saw it run since.
                let began = if out.last().is_some_and(|wait| wait.to == ran) { ran } else { look.ts_ns };
                let mut last = look.ts_ns;
                while let Some(next) = looks.next_if(|next| next.state == State::Runnable) {
                    last = next.ts_ns;
                }
                let looks_ns = (look.ts_ns, last);
                out.push(Parked { is_ready: true, from: began, to: last, looks_ns, ..Parked::default() });
                ran = last;
                continue;
            }
            if look.state != State::Waiting {
                ran = look.ts_ns;
                continue;
            }
            let stack = look.stack.checked_sub(1);
            let mut last = look.ts_ns;
            while let Some(next) = looks.next_if(|next| next.state == State::Waiting && next.stack == look.stack) {
                last = next.ts_ns;
            }
            // By the time that its thread did something else it waited.
            let left = if out.is_empty() { self.left(m.tid, ran, threads) } else { u64::MAX };
            // Tasks of a loop go on when its thread runs, and not while that sleeps.
            let asleep = |ts| if of_loop { sleep_at(m.tid, ts, threads) } else { None }.unwrap_or((ts, ts));
            let began = left.min(asleep(look.ts_ns).0).clamp(ran, look.ts_ns);
            let to = asleep(last).1.min(m.send_ns);
            let mut parked = Parked { from: began, to, stack, looks_ns: (look.ts_ns, last), ..Parked::default() };
            if looks.peek().is_none() && handler.is_none() {
                // Nothing was seen of it since. The thread that answered slept, and did not run it before it woke.
                let woken = woke(extra.send_tid, m.send_ns, threads);
                parked.to = last.max(woken.map_or(0, |woken| woken.at)).min(m.send_ns);
                // Another thread of the program brought what it awaited: it did the work, or others' before it, which its path tells.
                let by_thread = woken.and_then(|woken| woken.by).is_some_and(|by| threads.names().is_target(by));
                if of_loop && by_thread && stack.is_some_and(|stack| self.futures.contains(&stack)) {
                    ran = parked.to;
                    continue;
                }
            }
            // The first time that it was made ready since it was last seen to wait. Of asyncio nothing tells.
            let next = looks.peek().map_or(m.send_ns, |next| next.ts_ns);
            if !stack.is_some_and(|stack| self.polls.contains(&stack))
                && let Some(ready) = self.runs.made_ready(task, (last, next))
            {
                (parked.to, parked.ended) = (ready.ts, Some(ready).filter(|ready| ready.by != task));
            }
            ran = parked.to;
            out.push(parked);
        }
        let mine = if of_loop { self.turned_to(task, m) } else { m.recv_ns };
        let pid = threads.names().who(m.tid).pid;
        let in_time = out.into_iter().flat_map(|parked| {
            let is_sleep = parked.ended.is_some_and(|ready| ready.by == 0);
            let late =
                if is_sleep { self.sleeps.late_from(pid, parked.stack, (parked.from, parked.to)) } else { parked.to };
            let ready = Parked { is_ready: true, from: late, stack: None, ended: None, ..parked };
            [Parked { to: late, ..parked }, ready]
        });
        in_time.flat_map(|parked| parked.divided_at(mine)).filter(|parked| parked.from < parked.to).collect()
    }

    /// When a thread that was in a task at `ts` slept, or was told to be in another.
    fn left(&self, tid: u32, ts: u64, threads: &Threads) -> u64 {
        let intervals = threads.get(tid).map_or(&[][..], |thread| &thread.intervals);
        let after = &intervals[intervals.partition_point(|interval| interval.from <= ts)..];
        let slept = after.iter().find(|interval| matches!(interval.state, ThreadState::Sleeping { .. }));
        slept.map_or(u64::MAX, |interval| interval.from).min(self.turned(tid, ts))
    }
}

/// A spell, in parts where a thread that ran the task that was waited for had no core or slept in a call.
fn by_thread(spell: Spell, threads: &Threads) -> Vec<Spell> {
    let What::Waits { stack, ended, meanwhile: Some(meanwhile @ Meanwhile { doing: Doing::Runs, tid, .. }) } =
        spell.what
    else {
        return vec![spell];
    };
    let intervals = threads.get(tid).map_or(&[][..], |thread| &thread.intervals);
    let first = intervals.partition_point(|interval| interval.from <= spell.from).saturating_sub(1);
    let mut parts = vec![];
    let mut at = spell.from;
    for (i, interval) in intervals.iter().enumerate().skip(first).take_while(|(_, interval)| interval.from < spell.to) {
        let to = intervals.get(i + 1).map_or(spell.to, |next| next.from.min(spell.to));
        let doing = match interval.state {
            ThreadState::Running { .. } | ThreadState::Unknown => Doing::Runs,
            ThreadState::Runnable { .. } => Doing::HasNoCore,
            ThreadState::Sleeping { .. } => Doing::SleepsInCall,
        };
        if at < to {
            let meanwhile = Some(Meanwhile { doing, ..meanwhile });
            parts.push(Spell { from: at, to, what: What::Waits { stack, ended, meanwhile } });
            at = to;
        }
    }
    if at < spell.to {
        parts.push(Spell { from: at, ..spell });
    }
    parts
}

/// The sleep that a thread is in at `ts`.
fn sleep_at(tid: u32, ts: u64, threads: &Threads) -> Option<(u64, u64)> {
    let thread = threads.get(tid)?;
    let at = thread.at(ts)?;
    let end = thread.intervals.get(at + 1).map_or(ts, |next| next.from);
    matches!(thread.intervals[at].state, ThreadState::Sleeping { .. }).then_some((thread.intervals[at].from, end))
}

/// The end of a sleep.
#[derive(Clone, Copy)]
struct Woken {
    at: u64,
    /// The thread that ended it, if that was no interrupt.
    by: Option<u32>,
}

/// When a thread that runs at `ts` last woke before.
fn woke(tid: u32, ts: u64, threads: &Threads) -> Option<Woken> {
    let thread = threads.get(tid)?;
    let upto = thread.at(ts)?;
    let asleep = |i: &usize| matches!(thread.intervals[*i].state, ThreadState::Sleeping { .. });
    let next = &thread.intervals[(0..upto).rev().find(asleep)? + 1];
    let by = next.waker.filter(|waker| !waker.interrupt && waker.tid != tid).map(|waker| waker.tid);
    Some(Woken { at: next.from, by })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// go-redis: of requests that waited for one of three connections, a third waited for "its turn to ask redis-server", by the calls, and the
    /// others "on a channel", at the same place.
    #[test]
    fn a_place_where_many_wait_for_their_turn_to_ask_a_server_is_for_that() {
        const SERVER: u32 = 5;
        let seen_in_line = |many: u64| {
            let look = |i: u64| RoutineRow { ts_ns: 100 * i + 50, routine: 7, stack: 4, ..RoutineRow::default() };
            let rows: Vec<RoutineRow> = (0..many).map(|i| RoutineRow { state: State::Waiting, ..look(i) }).collect();
            let mut routines = Routines::new(&rows);
            routines.saw(1, 0, 7);
            let of = |i: u64| {
                let message = Message { tid: 1, recv_ns: 100 * i + 10, send_ns: 100 * i + 90, ..Message::default() };
                (message, Extra { send_tid: 1, sent_ns: 100 * i + 90, ..Extra::default() })
            };
            let messages: Vec<(Message, Extra)> = (0..many).map(of).collect();
            routines.learn_lines(messages.iter().map(|(m, extra)| (m, extra, SERVER, m.send_ns - 10)));
            (routines.turn_at(Some(3)), routines.turn_at(Some(2)), routines.turn_at(None), routines.line(SERVER))
        };
        assert_eq!(seen_in_line(8), (SERVER, 0, 0, Some(3)));
        assert_eq!(seen_in_line(7), (0, 0, 0, Some(3)), "may be chance");
    }
}
