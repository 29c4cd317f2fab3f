//! Whom each thread served and when, as far as its own events tell: the one answer, which all later steps ask.
//!
//! In: busy periods, receive calls, and how threads waited for more. Out: [`Service`]. All times in ns.
//!
//! Four things that a thread may be have names of their own:
//! - it serves several connections at a time, an *event loop* ([`Service::is_loop`]);
//! - it had several requests open at a time ([`crate::messages::turns::Turns::has`]): then its time has turns;
//! - it serves its messages alone, asks, receives and replies by itself (`messages/call_owner.rs`);
//! - the loop of a runtime that has tasks (`messages/routines.rs`).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::timelines::busy_periods::BusyPeriod;
use crate::timelines::sleep::Sleep;
use crate::timelines::time_index::TimeIndex;

/// When a thread received messages, ns.
#[derive(Debug)]
pub struct Received {
    times_ns: Vec<u64>,
    by_time: TimeIndex,
}

impl Received {
    /// Of times in any order.
    pub fn new(mut times_ns: Vec<u64>) -> Received {
        #[expect(clippy::stable_sort_primitive, reason = "nearly in order already, which this sort makes use of")]
        times_ns.sort();
        Received { by_time: TimeIndex::new(&times_ns, |ns| *ns), times_ns }
    }

    /// How many in all.
    pub fn count(&self) -> u64 {
        self.times_ns.len() as u64
    }

    /// How many by this time.
    pub fn upto(&self, ts: u64) -> usize {
        self.by_time.at(&self.times_ns, ts, |ns| *ns).map_or(0, |last| last + 1)
    }
}

/// What is known of the service of each thread.
#[derive(Debug, Default)]
pub struct Service {
    /// By thread, in order, none inside another.
    periods: FxHashMap<u32, Vec<BusyPeriod>>,
    /// Of those that received any.
    received: FxHashMap<u32, Received>,
    /// Threads that serve several connections at a time.
    loops: FxHashSet<u32>,
    /// Threads that slept in a call in which threads wait for data or work, once at least.
    polled: FxHashSet<u32>,
}

impl Service {
    /// `loops`: threads that serve several connections at a time. `polled`: threads that waited for data or work.
    pub fn new(periods: FxHashMap<u32, Vec<BusyPeriod>>, loops: FxHashSet<u32>, polled: FxHashSet<u32>) -> Service {
        Service { periods, received: FxHashMap::default(), loops, polled }
    }

    /// When threads received messages, of those that received any.
    pub fn add_received(&mut self, received: FxHashMap<u32, Received>) {
        self.received = received;
    }

    /// The periods in which threads served messages.
    pub fn periods(&self) -> &FxHashMap<u32, Vec<BusyPeriod>> {
        &self.periods
    }

    /// The period of a thread that holds `ts`.
    pub fn period(&self, tid: u32, ts: u64) -> Option<BusyPeriod> {
        let periods = self.periods.get(&tid)?;
        let next = periods.partition_point(|w| w.to <= ts);
        periods.get(next).filter(|w| w.from <= ts).copied()
    }

    /// Whether a thread served messages at `ts`.
    pub fn is_serving(&self, tid: u32, ts: u64) -> bool {
        self.period(tid, ts).is_some()
    }

    /// When threads received messages.
    pub fn received(&self) -> &FxHashMap<u32, Received> {
        &self.received
    }

    /// How many messages a thread received from `from` on and before `to`.
    pub fn received_between(&self, tid: u32, (from, to): (u64, u64)) -> usize {
        let before = |received: &Received, ts: u64| received.upto(ts.saturating_sub(1));
        self.received.get(&tid).map_or(0, |received| before(received, to).saturating_sub(before(received, from)))
    }

    /// Whether a thread is an event loop, as far as its connections tell: it came back to one after it had received from another, or
    /// receives datagrams.
    pub fn is_loop(&self, tid: u32) -> bool {
        self.loops.contains(&tid)
    }

    /// Whether a thread that sleeps so is an event loop, as far as its connections or this call tell.
    pub fn is_loop_in(&self, tid: u32, how: Sleep) -> bool {
        how.is_for_work() || self.is_loop(tid)
    }

    /// Whether a thread waited for data of anybody, or for work, once at least.
    pub fn has_polled(&self, tid: u32) -> bool {
        self.polled.contains(&tid)
    }
}
