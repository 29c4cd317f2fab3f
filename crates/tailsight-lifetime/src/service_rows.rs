//! The turns and waits of the target's threads, as rows: for which messages a thread worked when, and what each sleep of it was for.
//!
//! In: an [`Analysis`]. Out: [`TurnRow`]s and [`WaitRow`]s, in order of threads and of time. All times in ns, CLOCK_MONOTONIC.

use rustc_hash::FxHashMap;
use tailsight_kernel::syscalls;

use crate::Analysis;
use crate::model::{Frame, Leg, Rule};
use crate::path::judged::{Judged, Purpose, judged};
use crate::path::{self, Piece};
use crate::timelines::sleep::Sleep;
use crate::timelines::threads::{Thread, Waker};

/// So many messages before the last one that a thread received are asked whether it still served them.
const MOST_OPEN: usize = 64;

/// What ended a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// The next receive call.
    Receive,
    /// The thread fell asleep, for more work.
    Sleep,
    /// Its last reply: it did other things after that.
    Reply,
    /// The recording.
    Recording,
}

impl TurnEnd {
    /// Its name, as in tables.
    pub fn name(self) -> &'static str {
        match self {
            TurnEnd::Receive => "receive",
            TurnEnd::Sleep => "sleep",
            TurnEnd::Reply => "reply",
            TurnEnd::Recording => "recording",
        }
    }
}

/// A time in which a thread worked for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRow {
    /// The thread.
    pub tid: u32,
    /// The entry of its receive call, ns; of a thread that answers what another one received: the earliest time at which it had it.
    pub from_ns: u64,
    /// When it ended, ns.
    pub to_ns: u64,
    /// Messages whose receive call was entered in it.
    pub took: Vec<u32>,
    /// Messages whose reply it sent.
    pub answered: Vec<u32>,
    /// Requests that it sent to other servers.
    pub asked: u32,
    /// Sends that nobody had asked for.
    pub pushed: u32,
    /// What ended it; none where no event tells.
    pub ended_by: Option<TurnEnd>,
}

/// What ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// A thread of the application.
    Thread,
    /// Another task.
    Task,
    /// A packet of another server.
    Packet,
    /// A timer.
    Timer,
    /// Another interrupt: a packet of a client, a disk.
    Interrupt,
}

impl Edge {
    /// Its name, as in tables.
    pub fn name(self) -> &'static str {
        match self {
            Edge::Thread => "thread",
            Edge::Task => "task",
            Edge::Packet => "packet",
            Edge::Timer => "timer",
            Edge::Interrupt => "interrupt",
        }
    }
}

/// A sleep of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRow {
    /// The thread.
    pub tid: u32,
    /// When it fell asleep, or the recording began, ns.
    pub from_ns: u64,
    /// When it was woken, or the recording ended, ns.
    pub to_ns: u64,
    /// Whether the recording saw its end.
    pub is_whole: bool,
    /// How it slept.
    pub how: Sleep,
    /// Who ended it, and the kind of that; of a lock that was tried for again at once, who ended the last try.
    pub ended_by: Option<(Waker, Edge)>,
    /// It was tried for again at once.
    pub tried_again: bool,
    /// The message that the thread served when it fell asleep, if that one waited for it.
    pub message: Option<u32>,
    /// What it was for.
    pub purpose: Purpose,
    /// The rule that says so.
    pub rule: Option<Rule>,
}

impl WaitRow {
    /// What a sleep in this call is for, as far as the call's name tells.
    pub fn call_waits_for(&self) -> Option<&'static str> {
        let wait = syscalls::wait(self.how.nr).filter(|_| !self.how.stopped && self.how.is_interruptible())?;
        syscalls::Wait::NAMES.into_iter().find(|(_, named)| *named == wait).map(|(name, _)| name)
    }

    /// The sleep as paths name it.
    pub fn frame(&self) -> Frame {
        if self.how.stopped { Frame::Stopped } else { path::sleep_frame(self.how) }
    }
}

impl Analysis {
    /// The turns of every thread that served messages.
    pub fn turns(&self) -> Vec<TurnRow> {
        let (activity, messages) = (&self.scan.activity, &self.lifetimes.messages);
        let periods = activity.service.periods();
        let mut tids: Vec<u32> = periods.keys().copied().collect();
        tids.sort_unstable();
        let mut rows: Vec<TurnRow> = Vec::new();
        let mut first: FxHashMap<u32, usize> = FxHashMap::default();
        for tid in tids {
            first.insert(tid, rows.len());
            let row = |turn: &crate::timelines::busy_periods::BusyPeriod| TurnRow {
                tid,
                from_ns: turn.from,
                to_ns: turn.to,
                took: vec![],
                answered: vec![],
                asked: 0,
                pushed: 0,
                ended_by: self.slept_at(tid, turn.to).then_some(TurnEnd::Sleep),
            };
            rows.extend(periods[&tid].iter().map(row));
        }
        // The turns of a thread that begin by a time are those before the index that this returns, from the thread's first on.
        let begun = |rows: &[TurnRow], tid: u32, ts: u64| {
            let from = *first.get(&tid)?;
            let of_thread = &rows[from..from + periods[&tid].len()];
            Some((from, from + of_thread.partition_point(|turn| turn.from_ns <= ts)))
        };
        for (m, extra) in messages.iter().zip(&self.scan.extras) {
            let received = begun(&rows, m.tid, m.recv_enter_ns).filter(|_| m.recv_ns != 0);
            if let Some((from, upto)) = received {
                // A turn that ends where this one begins was ended by it.
                for turn in rows[from..upto].iter_mut().rev().take(2) {
                    if turn.from_ns <= m.recv_enter_ns && m.recv_enter_ns < turn.to_ns {
                        turn.took.push(m.id);
                    } else if turn.to_ns == m.recv_enter_ns {
                        turn.ended_by = Some(TurnEnd::Receive);
                    }
                }
            }
            if m.send_ns != 0
                && let Some((from, upto)) = begun(&rows, extra.send_tid, m.send_ns)
                && let Some(turn) = rows[from..upto].last_mut().filter(|turn| m.send_ns <= turn.to_ns)
            {
                turn.answered.push(m.id);
                if turn.to_ns == extra.sent_ns {
                    turn.ended_by = turn.ended_by.or(Some(TurnEnd::Reply));
                }
            }
        }
        for sent in &self.lifetimes.sent {
            if let Some((from, upto)) = begun(&rows, sent.tid, sent.send_ns)
                && let Some(turn) = rows[from..upto].last_mut().filter(|turn| sent.send_ns <= turn.to_ns)
            {
                match sent.kind {
                    crate::SentKind::Request => turn.asked += 1,
                    crate::SentKind::Push => turn.pushed += 1,
                }
            }
        }
        for turn in rows.iter_mut().filter(|turn| turn.to_ns == activity.span_ns.1) {
            turn.ended_by = Some(TurnEnd::Recording);
        }
        rows
    }

    /// The command name of a thread, or its number.
    pub fn thread_name(&self, tid: u32) -> String {
        self.scan.activity.threads.names().comm(tid)
    }

    /// Whether a thread fell asleep at this time.
    fn slept_at(&self, tid: u32, ts: u64) -> bool {
        let thread = self.scan.activity.threads.get(tid);
        thread.and_then(|thread| thread.sleep(thread.at(ts)?)).is_some_and(|sleep| sleep.from == ts)
    }

    /// Every sleep of the target's threads, in order of threads and of time. Stops are among them; what no event tells of the time before
    /// a thread's first one is not.
    pub fn waits(&self, mut each: impl FnMut(&WaitRow)) {
        let served = self.served();
        let mut service = Service { message: None, pieces: Vec::new() };
        for (tid, thread) in self.scan.activity.threads.all() {
            let served = served.get(&tid).map_or(&[][..], Vec::as_slice);
            for interval in 0..thread.intervals.len() {
                if let Some(row) = self.wait_row(tid, (thread, interval), served, &mut service) {
                    each(&row);
                }
            }
        }
    }

    fn wait_row(
        &self,
        tid: u32,
        (thread, interval): (&Thread, usize),
        served: &[Served],
        service: &mut Service,
    ) -> Option<WaitRow> {
        let (sleep, wait) = (thread.sleep(interval)?, thread.wait(interval)?);
        let activity = &self.scan.activity;
        let end = activity.span_ns.1.max(sleep.from);
        let begun = served.partition_point(|served| served.from_ns <= sleep.from);
        let latest = served[..begun].iter().rev().take(MOST_OPEN);
        let message = latest.into_iter().find(|served| sleep.from < served.to_ns).map(|served| served.message);
        self.find_service(message, service);
        let Judged { is_of_message, purpose, rule } =
            judged(activity, tid, (wait, wait.to.unwrap_or(end)), &service.pieces);
        Some(WaitRow {
            tid,
            from_ns: sleep.from.max(activity.span_ns.0),
            to_ns: sleep.to.unwrap_or(end),
            is_whole: sleep.to.is_some(),
            how: sleep.how,
            ended_by: wait.waker.map(|waker| (waker, self.edge(waker))),
            tried_again: wait.tried_again,
            message: message.filter(|_| is_of_message),
            purpose,
            rule,
        })
    }

    /// The pieces of a message's service. Waits of a message mostly follow one another.
    fn find_service(&self, message: Option<u32>, service: &mut Service) {
        if service.message == message {
            return;
        }
        service.message = message;
        service.pieces.clear();
        if let Some(id) = message.map(|id| id as usize) {
            let (m, extra) = (&self.lifetimes.messages[id], &self.scan.extras[id]);
            path::pieces(self.scan.sources(), m, extra, Leg::Service, &mut service.pieces);
        }
    }

    fn edge(&self, waker: Waker) -> Edge {
        match waker {
            Waker { interrupt: true, ready: 1.., .. } => Edge::Packet,
            Waker { interrupt: true, timer: true, .. } => Edge::Timer,
            Waker { interrupt: true, .. } => Edge::Interrupt,
            Waker { tid, .. } if self.scan.activity.threads.names().is_target(tid) => Edge::Thread,
            Waker { .. } => Edge::Task,
        }
    }

    /// The messages that each thread answered, from when on it worked for them until the reply, by thread in order of the first.
    fn served(&self) -> FxHashMap<u32, Vec<Served>> {
        let mut served: FxHashMap<u32, Vec<Served>> = FxHashMap::default();
        let messages = self.lifetimes.messages.iter().zip(&self.scan.extras);
        for (m, extra) in messages.filter(|(m, _)| m.recv_ns != 0 && m.send_ns >= m.recv_ns) {
            let from_ns = extra.own_from_ns.max(m.recv_ns);
            served.entry(extra.send_tid).or_default().push(Served { from_ns, to_ns: m.send_ns, message: m.id });
        }
        served
            .values_mut()
            .for_each(|of_thread| of_thread.sort_unstable_by_key(|stretch| (stretch.from_ns, stretch.message)));
        served
    }
}

/// A message that a thread answered.
struct Served {
    from_ns: u64,
    to_ns: u64,
    message: u32,
}

/// The service of the message that was asked for last.
struct Service {
    message: Option<u32>,
    pieces: Vec<Piece>,
}
