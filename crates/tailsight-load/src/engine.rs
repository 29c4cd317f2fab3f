//! The loop of a thread: send what is due, read what has come, sleep. In: a plan's part. Out: records in the log.
//!
//! All connections of the thread hang on one edge-triggered epoll. A turn sends what is due, then reads, so neither a burst
//! of arrivals nor one of replies holds up the other. Where the kernel stamps arrivals ([`Receive::Lazy`]), the thread
//! sleeps on the timer alone and reads when it wakes to send: one wake-up a request instead of two.

mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rand::RngExt;
use tailsight_protocol::Kind;

use crate::clock::{now_ns, thread_cpu_ns};
use crate::codec::{Ask, Encoder, Replies};
use crate::connection::{Broken, Connection, State};
use crate::dialer::Dialer;
use crate::pacer::{Pacer, sleep_until};
use crate::poller::Poller;
use crate::rng::Rng;
use crate::sample::{Interval, Sample, Status};
use crate::thread_log::{INTERVAL_NS, ThreadLog};
use crate::{Arrivals, BurstOver, Endpoint, LoadError, Plan, Receive, Schedule};

/// Requests drawn ahead of their time.
const AHEAD: usize = 256;
/// Requests sent in one turn before replies are looked at.
const TURN: usize = 16;
/// Requests that were due and not sent are counted one by one up to here, and by the rate beyond: a rate of 1e9 requests/s left 6e9 of
/// them after 6 s, and counting them took 90 s.
const COUNTED_ONE_BY_ONE: u64 = 1 << 20;
/// How often the thread checks for stops, lost datagrams, closed connections and steps of clocks, ns.
const MAINTENANCE_NS: u64 = 10_000_000;
/// Attempts to connect again without a good reply, and the pause before each, ns.
const ATTEMPTS: u32 = 20;
const PAUSE_NS: u64 = 100_000_000;

/// A request that will be due, or several at once ([`Plan::burst`]).
#[derive(Debug, Clone, Copy)]
struct Due {
    intended_ns: u64,
    /// How many; what is drawn is that of the first, and the others are drawn when they are sent.
    count: u32,
    ask: Ask,
    /// Random bits that decide whether it is in the sample.
    sampling: u32,
}

/// Why a thread ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The load lasted as long as planned, or was stopped.
    Planned,
    /// No connection is left: the last reason, and whether it was invalid data.
    Gone { reason: String, garbage: bool },
    /// epoll failed.
    Failed(String),
}

/// A thread's connections and its future requests.
pub(crate) struct Engine {
    pub(crate) plan: Arc<Plan>,
    pub(crate) log: ThreadLog,
    pub(crate) encoder: Encoder,
    pub(crate) connections: Vec<Connection>,
    pub(crate) dialer: Dialer,
    pub(crate) poller: Poller,
    schedule: Option<Schedule>,
    start_ns: u64,
    end_ns: u64,
    ahead: VecDeque<Due>,
    asks: Rng,
    sampling_rng: Rng,
    dirty: Vec<u32>,
    /// Connections that were read for a while and have more.
    unfinished: VecDeque<u32>,
    /// Connections with requests in flight, oldest first: where a lazy thread looks for replies.
    awaiting_reply: VecDeque<u32>,
    turn: usize,
    /// Connections with more than one request in flight.
    pipelined: u32,
    /// Requests in flight on all connections.
    in_flight: u64,
    /// Every connection was full or down when the last request was due, and no connection has changed since.
    full: bool,
    /// A request found every connection full and was not sent yet.
    held: bool,
    /// Until when requests were last held back for that, ns: those that were due by then waited for a connection, not for the client.
    held_until_ns: u64,
    lazy: bool,
    /// Whether epoll reported connections as readable that were not read yet.
    unread: bool,
    /// The age at which a request's reply may be there, ns.
    soonest_ns: u64,
    pacer: Pacer,
    attempts: Vec<u32>,
    gone: Option<Ended>,
    /// When the thread makes its next periodic check, ns.
    maintenance_ns: u64,
    /// Until when replies are waited for, ns, once the last request is sent.
    drain: Option<u64>,
    /// Number of due times drawn for the current interval (replays have no rate).
    drawn: u64,
    /// The current interval: its begin, and the requests sent, answered and failed and the CPU time before it.
    row: (u64, u64, u64, u64, u64),
    /// How often a connection was closed because its bytes were not the protocol's.
    pub(crate) given_up: u64,
    /// What went wrong with connections: the first few reasons.
    pub(crate) troubles: Vec<String>,
}

impl Engine {
    pub(crate) fn new(
        plan: Arc<Plan>,
        log: ThreadLog,
        encoder: Encoder,
        dialer: Dialer,
        schedule: Option<Schedule>,
        rngs: (Rng, Rng),
    ) -> Result<Self, LoadError> {
        let poller = Poller::new().map_err(LoadError::io("create an epoll instance"))?;
        let lazy = match plan.receive {
            Receive::Eager => false,
            Receive::Lazy => true,
            // HTTP servers close connections after a while, and an eager thread sees that before it sends; TLS and Unix
            // sockets have no stamp for each reply.
            Receive::Auto => {
                plan.stamps
                    && schedule.is_some()
                    && !matches!(plan.target, Endpoint::Unix(_) | Endpoint::Tls(_))
                    && !matches!(plan.protocol, Kind::Http1 | Kind::Http2)
            }
        };
        let pacer = Pacer::new(plan.wait);
        Ok(Self {
            plan,
            log,
            encoder,
            connections: Vec::new(),
            dialer,
            poller,
            schedule,
            start_ns: 0,
            end_ns: u64::MAX,
            ahead: VecDeque::with_capacity(AHEAD),
            asks: rngs.0,
            sampling_rng: rngs.1,
            dirty: Vec::new(),
            unfinished: VecDeque::new(),
            awaiting_reply: VecDeque::new(),
            turn: 0,
            pipelined: 0,
            in_flight: 0,
            full: false,
            held: false,
            held_until_ns: 0,
            lazy,
            unread: false,
            soonest_ns: 0,
            pacer,
            attempts: Vec::new(),
            gone: None,
            maintenance_ns: 0,
            drain: None,
            drawn: 0,
            row: (0, 0, 0, 0, 0),
            given_up: 0,
            troubles: Vec::new(),
        })
    }

    /// Sends from `start_ns` until the plan's duration is over or the load is stopped, then waits for the last replies.
    pub(crate) fn run(&mut self, start_ns: u64) -> Ended {
        self.begin(start_ns);
        loop {
            if let Some(ended) = self.turn() {
                self.end();
                return ended;
            }
        }
    }

    /// Waits for the start. Then come [turns](Self::turn) until one ends the load, then [`Self::end`].
    pub(crate) fn begin(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
        self.end_ns = self.plan.duration_ns.map_or(u64::MAX, |ns| start_ns.saturating_add(ns));
        self.attempts = vec![0; self.connections.len()];
        self.dirty.reserve(self.connections.len());
        self.awaiting_reply.reserve(self.connections.len() + 1);
        self.top_up();
        self.log.nics.begin();
        self.sleep_to_start(start_ns.saturating_sub(50_000));
        self.log.recording = true;
        self.row = (start_ns, 0, 0, 0, thread_cpu_ns());
        // A load that is cancelled before its start does not wait for the start.
        self.maintenance_ns = start_ns.min(now_ns());
        if let Some(outstanding) = self.plan.arrivals.outstanding()
            && !self.is_ended()
        {
            for i in 0..self.connections.len() {
                self.refill(i, outstanding);
            }
        }
    }

    /// Whether the load was ended from outside.
    fn is_ended(&self) -> bool {
        let control = &self.log.control;
        control.is_abandoned() || control.stop.load(Ordering::Relaxed)
    }

    /// The start may be seconds away, and the load may be ended before.
    fn sleep_to_start(&self, until_ns: u64) {
        while !self.is_ended() {
            let now = now_ns();
            if now >= until_ns {
                return;
            }
            sleep_until(until_ns.min(now + MAINTENANCE_NS));
        }
    }

    /// Sends due requests, reads replies, and waits until there is more to do; with a plan that spins, a turn returns at
    /// once. Returns why the load is over when it is.
    pub(crate) fn turn(&mut self) -> Option<Ended> {
        let now = now_ns();
        if self.maintenance_is_due(now) {
            self.maintenance_ns = now + MAINTENANCE_NS;
            if self.log.control.punctual.load(Ordering::Relaxed) {
                self.pacer.be_punctual();
            }
            if let Err(error) = self.housekeeping(now) {
                return Some(Ended::Failed(error.to_string()));
            }
            if let Some(ended) = self.gone.take() {
                return Some(ended);
            }
            if self.log.control.is_abandoned() {
                return Some(Ended::Planned);
            }
            if self.drain.is_none() && self.log.control.stop.load(Ordering::Relaxed) {
                self.end_ns = self.end_ns.min(now);
            }
        }
        let next = if let Some(until) = self.drain {
            if now >= until || self.in_flight == 0 {
                return Some(Ended::Planned);
            }
            until
        } else {
            self.send_due(now);
            let next = self.ahead.front().map_or(u64::MAX, |due| due.intended_ns);
            // Late requests are still sent for as long as replies are waited for, and for a third of that if no connection
            // takes them: the replies that would make room may be late.
            let sent_all = self.schedule.is_none() || next >= self.end_ns;
            let drain_ns = self.log.control.drain_ns(&self.plan);
            let patience = if self.full { drain_ns / 3 } else { drain_ns };
            let given_up = now >= self.end_ns.saturating_add(patience);
            if now >= self.end_ns && (sent_all || given_up) || next == u64::MAX && self.schedule.is_some() {
                // A replay may end before the plan's time.
                self.end_ns = self.end_ns.min(now);
                self.count_unsent();
                self.drain = Some(now.saturating_add(drain_ns));
                return None;
            }
            match self.full {
                true if now < self.end_ns => self.end_ns,
                true => self.end_ns.saturating_add(patience),
                false => next.min(self.end_ns),
            }
        };
        self.wait(now, next).err().map(|e| Ended::Failed(e.to_string()))
    }

    /// Completes the counts with the requests still in flight.
    pub(crate) fn end(&mut self) {
        if self.drain.is_none() {
            self.end_ns = self.end_ns.min(now_ns());
            self.count_unsent();
        }
        for connection in &mut self.connections {
            connection.fail_all(&mut self.log, Status::Unanswered);
        }
        self.row(now_ns());
    }

    /// Sends requests that are due, at most [`TURN`] of them, those of one connection in one call.
    #[inline]
    fn send_due(&mut self, now: u64) {
        if self.held && !self.full {
            (self.held, self.held_until_ns) = (false, now);
        }
        for _ in 0..TURN {
            let Some(due) = self.ahead.front().copied() else { break };
            if due.intended_ns > now || due.intended_ns >= self.end_ns {
                break;
            }
            let Some(i) = self.next_connection() else {
                if !self.held {
                    self.held = true;
                    crate::thread_log::bump(&self.log.published.blocked);
                }
                break;
            };
            self.ahead.pop_front();
            let flags = if due.intended_ns <= self.held_until_ns { Sample::BLOCKED } else { 0 };
            self.offer(i, due, flags);
            if due.count > 1 {
                match self.plan.burst_over {
                    BurstOver::Connection => self.offer_rest(i, due, flags),
                    BurstOver::Connections => {
                        let rest = self.next_of_burst(due, due.count - 1);
                        self.ahead.push_front(rest);
                    }
                }
            }
        }
        self.flush_dirty();
        self.top_up();
    }

    #[inline]
    fn offer(&mut self, i: usize, due: Due, flags: u32) {
        let control = &self.log.control;
        let sampled = u64::from(due.sampling) < control.threshold.load(Ordering::Relaxed);
        let window = if sampled { control.window.load(Ordering::Relaxed) << Sample::WINDOW_SHIFT } else { 0 };
        let connection = &mut self.connections[i];
        connection.offer(&mut self.encoder, due.ask, due.intended_ns, flags | window, sampled);
        self.in_flight += 1;
        self.pipelined += u32::from(connection.in_flight() == 2);
        if !connection.listed {
            connection.listed = true;
            self.awaiting_reply.push_back(i as u32);
        }
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(i as u32);
        }
    }

    /// Another request of a burst, with which `count` are left of it.
    fn next_of_burst(&mut self, before: Due, count: u32) -> Due {
        Due { count, ask: self.encoder.draw(&mut self.asks), sampling: self.sampling_rng.random(), ..before }
    }

    /// The other requests of a burst, on the same connection and in the same call as far as there is room.
    fn offer_rest(&mut self, i: usize, first: Due, flags: u32) {
        for count in (1..first.count).rev() {
            let due = self.next_of_burst(first, count);
            if !self.connections[i].has_room(self.plan.outstanding) {
                // Replies that came out of order hold slots: what is left goes to the next connection.
                self.ahead.push_front(due);
                return;
            }
            self.offer(i, due, flags);
        }
    }

    #[inline]
    fn flush_dirty(&mut self) {
        for at in 0..self.dirty.len() {
            let i = self.dirty[at] as usize;
            self.attend(i, |connection, log| connection.flush(log));
        }
        self.dirty.clear();
    }

    /// Draws requests ahead, in the time between sending and waiting.
    #[inline]
    fn top_up(&mut self) {
        let Some(schedule) = &mut self.schedule else { return };
        while self.ahead.len() < AHEAD {
            let Some(at) = schedule.next() else { return };
            let ask = self.encoder.draw(&mut self.asks);
            let (intended_ns, count) = (self.start_ns + at, self.plan.burst);
            self.ahead.push_back(Due { intended_ns, count, ask, sampling: self.sampling_rng.random() });
            self.drawn += u64::from(count);
        }
    }

    /// Requests that were due and not sent because no connection had room until the end.
    fn count_unsent(&mut self) {
        let end = self.end_ns;
        let due = self.ahead.iter().take_while(|due| due.intended_ns < end);
        let (arrivals, mut unsent) = due.fold((0, 0), |(n, sum), due| (n + 1, sum + u64::from(due.count)));
        if arrivals == self.ahead.len()
            && let Some(schedule) = &mut self.schedule
        {
            let start = self.start_ns;
            let mut counted_to = end;
            let mut arrivals = 0;
            for at in schedule.take_while(|at| start + at < end) {
                arrivals += 1;
                if arrivals == COUNTED_ONE_BY_ONE && matches!(self.plan.arrivals, Arrivals::Drawn(_)) {
                    counted_to = start + at;
                    break;
                }
            }
            unsent += u64::from(self.plan.burst) * arrivals + self.expected_between(counted_to, end);
        }
        self.log.unsent(unsent);
        self.ahead.clear();
    }

    /// Requests of this thread that the rate asks for between two times, on average.
    fn expected_between(&self, from_ns: u64, to_ns: u64) -> u64 {
        let since = |at: u64| at.saturating_sub(self.start_ns);
        let of_all = self.plan.rate.expected(since(to_ns)) - self.plan.rate.expected(since(from_ns));
        (of_all / f64::from(self.plan.threads)).max(0.0) as u64
    }

    /// The next connection in turn that has room.
    #[inline]
    fn next_connection(&mut self) -> Option<usize> {
        if self.full {
            return None;
        }
        let count = self.connections.len();
        // A burst on one connection finds room for all of it.
        let outstanding = match self.plan.burst_over {
            BurstOver::Connection => self.plan.outstanding - (self.plan.burst - 1),
            BurstOver::Connections => self.plan.outstanding,
        };
        for _ in 0..count {
            let i = self.turn;
            self.turn = if i + 1 == count { 0 } else { i + 1 };
            if self.connections[i].has_room(outstanding) {
                return Some(i);
            }
        }
        self.full = true;
        None
    }

    /// Runs a step on a connection and updates the state that depends on it: requests in flight, failures.
    #[inline]
    fn attend<T: Default>(
        &mut self,
        i: usize,
        work: impl FnOnce(&mut Connection, &mut ThreadLog) -> Result<T, Broken>,
    ) -> T {
        let connection = &mut self.connections[i];
        let before = connection.in_flight();
        let wanted = connection.wants_write;
        let result = work(connection, &mut self.log);
        let after = connection.in_flight();
        self.settle(before, after);
        match result {
            Ok(value) => {
                if self.connections[i].wants_write && !wanted {
                    // The kernel will report when it takes more bytes.
                    let _ = self.poller.change(self.connections[i].fd(), i, true);
                }
                value
            }
            Err(broken) => {
                self.mend(i, &broken);
                T::default()
            }
        }
    }

    #[inline]
    fn settle(&mut self, before: u32, after: u32) {
        if after < before {
            self.in_flight -= u64::from(before - after);
            self.full = false;
        }
        if before >= 2 && after < 2 {
            self.pipelined -= 1;
        }
    }

    /// Reads a connection; in a closed loop sends the next requests.
    fn receive(&mut self, i: usize) -> bool {
        let (replies, any) = self.attend(i, |connection, log| connection.receive(log));
        let connection = &mut self.connections[i];
        if connection.unfinished && !connection.read_on {
            connection.read_on = true;
            self.unfinished.push_back(i as u32);
        }
        if replies > 0
            && let Some(outstanding) = self.plan.arrivals.outstanding()
            && (self.connections[i].in_flight() == 0 || !matches!(self.plan.arrivals, Arrivals::Batch(_)))
        {
            self.refill(i, outstanding);
        }
        any
    }

    /// Closed loop: fills a connection up to its outstanding requests, due now.
    fn refill(&mut self, i: usize, outstanding: u32) {
        let now = now_ns();
        if now >= self.end_ns {
            return;
        }
        while self.connections[i].in_flight() < outstanding && self.connections[i].has_room(outstanding) {
            let ask = self.encoder.draw(&mut self.asks);
            let due = Due { intended_ns: now, count: 1, ask, sampling: self.sampling_rng.random() };
            self.offer(i, due, 0);
        }
        self.flush_dirty();
    }

    /// The periodic checks.
    fn housekeeping(&mut self, now: u64) -> std::io::Result<()> {
        if now >= self.row.0 + INTERVAL_NS {
            self.row(now);
            self.log.wall.check();
            self.log.nics.renew();
        }
        if self.plan.target.is_datagram() {
            let before = now.saturating_sub(self.plan.lost_after_ns);
            for i in 0..self.connections.len() {
                self.attend(i, |connection, log| Ok(connection.give_up(log, before)));
            }
        }
        for i in 0..self.connections.len() {
            if let State::Down { again_ns } = self.connections[i].state
                && again_ns <= now
            {
                self.connect_anew(i);
            }
        }
        let ready = self.poller.wait(0)?;
        if self.reads_lazily() {
            self.serve_closed(ready);
        } else {
            self.serve(ready);
        }
        Ok(())
    }

    /// Ends an interval row.
    fn row(&mut self, now: u64) {
        let (start, sent, answered, failed, cpu) = self.row;
        let published = &self.log.published;
        let new =
            (now, published.sent.load(Ordering::Relaxed), published.answered(), published.failed(), thread_cpu_ns());
        // A load that is stopped before it began ends before its start.
        let since = |at: u64| at.min(self.end_ns).saturating_sub(self.start_ns);
        let (from, to) = (since(start), since(now));
        let target = match self.plan.arrivals {
            Arrivals::Closed(_) | Arrivals::Batch(_) => 0.0,
            Arrivals::Replay(_) => self.drawn as f64,
            _ => (self.plan.rate.expected(to) - self.plan.rate.expected(from)) / f64::from(self.plan.threads),
        };
        let row = Interval {
            start_ns: start,
            duration_ns: now.saturating_sub(start),
            target,
            sent: new.1 - sent,
            answered: new.2 - answered,
            failed: new.3 - failed,
            late_max_ns: std::mem::take(&mut self.log.late_max_ns),
            cpu_ns: new.4 - cpu,
        };
        // SAFETY: the arena belongs to this thread's log, the only one that appends.
        unsafe { published.intervals.push(row) };
        self.row = new;
        self.drawn = 0;
    }

    /// A connection broke: ends what was in flight, and connects again unless that has failed too often.
    fn mend(&mut self, i: usize, broken: &Broken) {
        let connection = &mut self.connections[i];
        let before = connection.in_flight();
        connection.fail_all(&mut self.log, broken.status());
        let proven = connection.proven;
        self.settle(before, 0);
        if self.troubles.len() < 8 && !self.troubles.iter().any(|t| t == broken.reason()) {
            self.troubles.push(broken.reason().to_owned());
        }
        self.given_up += u64::from(matches!(broken, Broken::Garbage(_)));
        self.attempts[i] = if proven { 0 } else { self.attempts[i] + 1 };
        if self.attempts[i] >= ATTEMPTS {
            self.connections[i].state = State::Down { again_ns: u64::MAX };
            if self.connections.iter().all(|c| c.state == State::Down { again_ns: u64::MAX }) {
                let garbage = matches!(broken, Broken::Garbage(_));
                self.gone = Some(Ended::Gone { reason: broken.reason().to_owned(), garbage });
            }
        } else if proven {
            self.connect_anew(i);
        } else {
            self.connections[i].state = State::Down { again_ns: now_ns() + PAUSE_NS };
        }
    }

    fn connect_anew(&mut self, i: usize) {
        // Replies of the old connection prove nothing about the new one. Where connecting fails at once (a Unix socket
        // without a listener), it would otherwise be retried without a pause, for ever.
        self.connections[i].proven = false;
        crate::thread_log::bump(&self.log.published.reconnects);
        let started = self.dialer.start().and_then(|socket| {
            self.connections[i].replace(socket, Replies::new(&self.plan));
            self.poller.add(self.connections[i].fd(), i, true)
        });
        if let Err(error) = started {
            self.mend(i, &Broken::Closed(error.to_string()));
        }
    }
}

impl Engine {
    /// Whether replies are read when the thread wakes to send.
    pub(crate) fn is_lazy(&self) -> bool {
        self.lazy
    }

    /// Reads replies when they come.
    pub(crate) fn read_eagerly(&mut self) {
        self.lazy = false;
    }

    /// When the last request was due, or the load was stopped, ns.
    pub(crate) fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// How long before a due time the thread last stopped sleeping, ns.
    pub(crate) fn margin_ns(&self) -> u64 {
        self.pacer.margin_ns()
    }
}
