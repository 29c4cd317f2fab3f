//! Between two sends: reading replies, then sleeping, then polling. In: when the next request is due. Out: replies in the log.
//!
//! Nothing may come between waking up and sending, so a thread that sleeps on the timer alone reads *before* it sleeps, what has
//! come until then, and only as long as there is time.

use crate::clock::now_ns;
use crate::connection::{Broken, State};
use crate::engine::Engine;
use crate::pacer::sleep_until;
use crate::poller::Ready;

/// The longest sleep of a lazy thread while replies are awaited, ns.
const LAZIEST_NS: u64 = 1_000_000;
/// About how long reading a connection takes, ns; the periodic checks of all connections take longer.
const READING_NS: u64 = 3_000;
const MAINTENANCE_TAKES_NS: u64 = 30_000;
/// Maintenance waits for a long enough pause, but at most this long, ns.
const MAINTENANCE_WAITS_NS: u64 = 40_000_000;

impl Engine {
    /// Whether the periodic checks are due and the next request is not due while they run.
    #[inline]
    pub(super) fn maintenance_is_due(&self, now: u64) -> bool {
        now >= self.maintenance_ns
            && (self.full
                || self.drain.is_some()
                || now >= self.maintenance_ns + MAINTENANCE_WAITS_NS
                || self.ahead.front().is_none_or(|due| due.intended_ns > now + MAINTENANCE_TAKES_NS))
    }

    /// Whether replies are left until the thread is awake to send: not when two requests on one connection would share a stamp,
    /// nor when there is nothing more to send.
    #[inline]
    pub(super) fn reads_lazily(&self) -> bool {
        self.lazy && self.drain.is_none() && !self.full && self.pipelined == 0
    }

    /// Waits until `next`, reading what comes meanwhile.
    #[inline]
    pub(super) fn wait(&mut self, now: u64, next: u64) -> std::io::Result<()> {
        let before = (self.log.idle_from_ns, self.log.woke_ns);
        let result = self.wait_for(now, next);
        if next <= now {
            // More requests came due in the last sleep than one turn sends: the rest is late because of that sleep, not
            // because of this turn.
            (self.log.idle_from_ns, self.log.woke_ns) = before;
        }
        result
    }

    #[inline]
    fn wait_for(&mut self, now: u64, next: u64) -> std::io::Result<()> {
        let margin = self.pacer.margin_ns();
        // Maintenance that waits for a pause does not wake the thread; the end of its longest wait does.
        let patience = if self.maintenance_ns > now { 0 } else { MAINTENANCE_WAITS_NS };
        let gathered = if next > now { next.max(now + self.pacer.gather_ns()) } else { next };
        let until = gathered.min(self.maintenance_ns.saturating_add(patience));
        self.log.idle_from_ns = u64::MAX;
        if !self.unfinished.is_empty() {
            return self.read_on();
        }
        let sleep_to = until.saturating_sub(margin);
        if self.reads_lazily() && (self.in_flight == 0 || until < now + LAZIEST_NS) {
            self.harvest(now, until, false);
            let idle_from = now_ns();
            self.log.idle_from_ns = idle_from;
            if sleep_to > idle_from + self.pacer.worth_ns() {
                sleep_until(sleep_to);
                self.pacer.woke(sleep_to, now_ns());
            } else if next <= until {
                self.pacer.stayed_awake();
            }
        } else {
            if std::mem::take(&mut self.unread) {
                self.harvest(now, u64::MAX, true);
            }
            let idle_from = now_ns();
            self.log.idle_from_ns = idle_from;
            // Where only replies make room for the next request, replies are waited for.
            let gather = if self.full { 0 } else { self.pacer.gather_ns() };
            if gather > 0 {
                // In a closed loop, a request is due only when a reply has come.
                let due = if self.schedule.is_none() { u64::MAX } else { until };
                sleep_until(due.min(idle_from + gather));
            }
            let left = if gather > 0 { 0 } else { sleep_to.saturating_sub(idle_from) };
            let timeout = if left > self.pacer.worth_ns() { left } else { 0 };
            let ready = self.poller.wait(timeout)?;
            self.log.woke_ns = now_ns();
            if ready == 0 && timeout > 0 {
                self.pacer.woke(sleep_to, self.log.woke_ns);
            } else if timeout == 0 && next <= until {
                self.pacer.stayed_awake();
            }
            self.serve(ready);
            if ready > 0 {
                return Ok(());
            }
            if margin != u64::MAX && next <= until {
                return self.poll_until(next);
            }
        }
        if margin != u64::MAX && next <= until {
            while now_ns() < next {
                std::hint::spin_loop();
            }
        }
        self.log.woke_ns = now_ns();
        Ok(())
    }

    /// Continues reading where more than one turn's bytes were left, each connection once, then reads what else has come;
    /// does not wait.
    fn read_on(&mut self) -> std::io::Result<()> {
        for _ in 0..self.unfinished.len() {
            let Some(i) = self.unfinished.pop_front() else { break };
            let i = i as usize;
            self.connections[i].read_on = false;
            // It may have been replaced meanwhile.
            if self.connections[i].unfinished {
                self.receive(i);
            }
        }
        let ready = self.poller.wait(0)?;
        self.serve(ready);
        self.log.woke_ns = now_ns();
        Ok(())
    }

    /// Stays awake until `next` and reads replies meanwhile, as long as that does not make the request late.
    fn poll_until(&mut self, next: u64) -> std::io::Result<()> {
        loop {
            let now = now_ns();
            let left = next.saturating_sub(now);
            if left == 0 {
                self.log.woke_ns = now;
                return Ok(());
            }
            if left < READING_NS {
                std::hint::spin_loop();
                continue;
            }
            let ready = self.poller.wait_for_some(0, (left / READING_NS) as usize)?;
            if ready > 0 {
                self.serve(ready);
                self.log.idle_from_ns = now_ns();
            }
        }
    }

    /// Reads the connections on which replies may have come, oldest requests first, as long as there is time until `until`;
    /// with `all`, also those that probably have none.
    #[inline]
    fn harvest(&mut self, now: u64, until: u64, all: bool) {
        let (mut misses, mut at) = (0, now);
        for _ in 0..self.awaiting_reply.len() {
            if at.saturating_add(READING_NS) > until {
                break;
            }
            let Some(i) = self.awaiting_reply.pop_front() else { break };
            let i = i as usize;
            let age = at.saturating_sub(self.connections[i].asked_ns());
            // Younger than any recently answered request; later ones in the list are younger still.
            if !all && self.connections[i].in_flight() > 0 && age < self.soonest_ns / 2 {
                self.awaiting_reply.push_front(i as u32);
                break;
            }
            if self.connections[i].in_flight() > 0 {
                let came = self.receive(i);
                misses += u32::from(!came);
                self.learn(age, came);
                at += READING_NS / 2;
            }
            if self.connections[i].in_flight() > 0 {
                self.awaiting_reply.push_back(i as u32);
            } else {
                self.connections[i].listed = false;
            }
            // Servers answer approximately in order: when two connections have nothing, later ones probably have nothing
            // either.
            if misses == 2 && !all {
                break;
            }
        }
    }

    /// Learns the minimum age of a request at which a system call to look for its reply is worth its cost.
    #[inline]
    fn learn(&mut self, age: u64, came: bool) {
        if age >= LAZIEST_NS {
            return;
        }
        if came {
            // Fast answers count at once; slow ones only a little, because the thread did not look earlier.
            self.soonest_ns = if age < self.soonest_ns { age } else { self.soonest_ns + (age - self.soonest_ns) / 64 };
        } else {
            self.soonest_ns = self.soonest_ns.max(age);
        }
    }

    /// Handles connections that epoll reported as closed; the others are read in their turn.
    pub(super) fn serve_closed(&mut self, ready: usize) {
        self.unread |= ready > 0;
        for at in 0..ready {
            let ready = self.poller.ready(at);
            let connection = &self.connections[ready.token];
            if ready.closed() || connection.state != State::Open || connection.wants_write {
                self.serve_one(ready);
            }
        }
    }

    /// Handles connections that epoll reported.
    pub(super) fn serve(&mut self, ready: usize) {
        for at in 0..ready {
            let ready = self.poller.ready(at);
            self.serve_one(ready);
        }
    }

    fn serve_one(&mut self, ready: Ready) {
        let i = ready.token;
        if ready.writable() && self.connections[i].state == State::Connecting {
            self.attend(i, |connection, log| connection.connected(log).map_err(|e| Broken::Closed(e.to_string())));
            self.full = false;
            if let Some(outstanding) = self.plan.arrivals.outstanding() {
                self.refill(i, outstanding);
            }
        }
        if ready.writable() && (self.connections[i].wants_write || self.connections[i].dirty) {
            self.connections[i].wants_write = false;
            self.attend(i, |connection, log| connection.flush(log));
            if !self.connections[i].wants_write {
                let _ = self.poller.change(self.connections[i].fd(), i, false);
            }
        }
        // A stream's error alone is a send stamp, which is read with its reply.
        if ready.readable() || ready.error() && self.plan.target.is_datagram() {
            self.receive(i);
        }
    }
}
