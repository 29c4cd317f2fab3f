//! The records of one thread. In: sends and replies. Out: counters and records that other threads may read meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tailsight_protocol::reply::Reply;

use crate::arena::Arena;
use crate::cancel::Cancel;
use crate::clock::WallWatch;
use crate::http::GoodStatuses;
use crate::nic::{Nics, StampSource};
use crate::pending::status;
use crate::sample::{Interval, Sample, Send, Status};
use crate::stamps::Raw;
use crate::{Endpoint, Histogram, Plan};

/// Length of an interval row, ns.
pub(crate) const INTERVAL_NS: u64 = 100_000_000;

/// What the driver tells all threads; they read it, nothing waits.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Stop sending, drain, end.
    pub(crate) stop: AtomicBool,
    /// Stop without draining: the driver itself goes away.
    pub(crate) abandon: AtomicBool,
    /// The same, set through the load's [`Cancel`].
    pub(crate) released: Arc<AtomicBool>,
    /// The preparation must end by then, ns; 0: only the limits of its steps apply.
    pub(crate) prepared_by_ns: u64,
    /// Replies are waited for at most this long, ns, and not longer than the plan says; 0: as the plan says.
    pub(crate) drain_ns: AtomicU64,
    /// A request is chosen when its 32 random bits are below this; 2^32 chooses all. 0 chooses none.
    pub(crate) threshold: AtomicU64,
    /// Number of the measurement window.
    pub(crate) window: AtomicU32,
    /// Threads with `auto` poll from now on.
    pub(crate) punctual: AtomicBool,
}

impl Control {
    /// The limits of the preparation, for a thread.
    pub(crate) fn cancel(&self) -> Cancel<'_> {
        let until_ns = if self.prepared_by_ns == 0 { u64::MAX } else { self.prepared_by_ns };
        Cancel { until_ns, stop: &self.abandon, abandon: self.released.clone() }
    }

    /// Whether the load is to end without draining.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandon.load(Ordering::Relaxed) || self.released.load(Ordering::Relaxed)
    }

    /// How long replies are waited for, ns.
    pub(crate) fn drain_ns(&self, plan: &Plan) -> u64 {
        match self.drain_ns.load(Ordering::Relaxed) {
            0 => plan.drain_ns,
            ns => plan.drain_ns.min(ns),
        }
    }

    /// The threshold of a sampling rate.
    pub(crate) fn threshold(sampling: f64) -> u64 {
        (sampling.clamp(0.0, 1.0) * 4_294_967_296.0).round() as u64
    }
}

/// What a thread publishes.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) sent: AtomicU64,
    pub(crate) by_status: [AtomicU64; 8],
    /// Replies by HTTP status code; empty for other protocols.
    pub(crate) by_code: Box<[AtomicU64]>,
    pub(crate) blocked: AtomicU64,
    pub(crate) held: AtomicU64,
    pub(crate) unasked: AtomicU64,
    pub(crate) unsent: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) samples: Arena<Sample>,
    pub(crate) sends: Arena<Send>,
    pub(crate) intervals: Arena<Interval>,
}

impl Published {
    pub(crate) fn new(plan: &Plan) -> Self {
        let threads = plan.threads as usize;
        let expected = plan.duration_ns.filter(|_| !plan.arrivals.is_closed()).map_or(usize::MAX, |ns| {
            // A Poisson count is practically never more than 10 % and 1000 above its mean.
            (plan.rate.expected(ns) * 1.1) as usize + 1000
        });
        let each = |room: usize| room.min(expected).div_ceil(threads) + 64;
        let codes = if plan.protocol.is_http() { 600 } else { 0 };
        let rows = plan.duration_ns.map_or(36_000, |ns| (ns / INTERVAL_NS) as usize + 100).min(360_000);
        Self {
            sent: AtomicU64::new(0),
            by_status: Default::default(),
            by_code: (0..codes).map(|_| AtomicU64::new(0)).collect(),
            blocked: AtomicU64::new(0),
            held: AtomicU64::new(0),
            unasked: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
            samples: Arena::new(each(plan.max_samples)),
            sends: Arena::new(each(plan.max_sends)),
            intervals: Arena::new(rows),
        }
    }

    pub(crate) fn count(&self, status: Status) -> u64 {
        self.by_status[status as usize].load(Ordering::Relaxed)
    }

    /// Replies with an HTTP status code.
    pub(crate) fn code(&self, code: u16) -> u64 {
        self.by_code.get(usize::from(code)).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn answered(&self) -> u64 {
        Status::ALL.into_iter().filter(|s| s.is_answered()).map(|s| self.count(s)).sum()
    }

    pub(crate) fn failed(&self) -> u64 {
        let good = self.count(Status::Ok) + self.count(Status::Miss);
        self.by_status.iter().map(|n| n.load(Ordering::Relaxed)).sum::<u64>() - good
    }
}

/// Adds to a counter that only this thread writes: a load and a store, no locked instruction.
#[inline]
pub(crate) fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// When something passed the device, as far as it was stamped; 0 where it was not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// By the kernel, CLOCK_REALTIME ns.
    pub(crate) wall_ns: u64,
    /// By the NIC, on the timeline, ns.
    pub(crate) nic_ns: u64,
}

impl Stamp {
    /// Adds what was not known of the same moment.
    pub(crate) fn or(self, other: Self) -> Self {
        let first = |a: u64, b: u64| if a > 0 { a } else { b };
        Self { wall_ns: first(self.wall_ns, other.wall_ns), nic_ns: first(self.nic_ns, other.nic_ns) }
    }
}

/// The recording half of a thread.
#[derive(Debug)]
pub(crate) struct ThreadLog {
    pub(crate) control: Arc<Control>,
    pub(crate) published: Arc<Published>,
    pub(crate) wall: WallWatch,
    /// Whether the kernel is asked for stamps.
    pub(crate) stamps: bool,
    /// The NICs that stamp.
    pub(crate) nics: Nics,
    /// Nothing is recorded while the load is being prepared.
    pub(crate) recording: bool,
    /// Replies by status, and samples with a receive stamp, while it is being prepared.
    pub(crate) prepared: [u64; 8],
    /// The protocol's own number of the last error among them; 0: none, or it has none.
    pub(crate) prepared_code: u16,
    pub(crate) prepared_stamped: u64,
    /// The client's lateness over all requests but the blocked ones, ns.
    pub(crate) lateness: Histogram,
    /// The part of it in which the thread was idle and its wait ended too late, ns; in the rest it was busy with other
    /// requests.
    pub(crate) overslept: Histogram,
    /// When the last waiting began (`u64::MAX`: there was none) and when it ended, ns.
    pub(crate) idle_from_ns: u64,
    pub(crate) woke_ns: u64,
    /// The largest lateness since the last interval row.
    pub(crate) late_max_ns: u64,
    /// How long blocked requests waited at most, ns.
    pub(crate) blocked_max_ns: u64,
    /// The buffer for reads; shared by all connections of the thread.
    pub(crate) buffer: Box<[u8]>,
    /// Replies of the current read that are in the sample: with the number of their send stamp, if one is expected.
    pub(crate) batch: Vec<(Sample, Option<u32>)>,
}

impl ThreadLog {
    pub(crate) fn new(plan: &Plan, control: Arc<Control>, published: Arc<Published>) -> Self {
        Self {
            control,
            published,
            wall: WallWatch::new(),
            // Unix stream sockets have none.
            stamps: plan.stamps && !matches!(plan.target, Endpoint::Unix(_)),
            nics: Nics::default(),
            recording: false,
            prepared: [0; 8],
            prepared_code: 0,
            prepared_stamped: 0,
            lateness: Histogram::default(),
            overslept: Histogram::default(),
            idle_from_ns: u64::MAX,
            woke_ns: 0,
            late_max_ns: 0,
            blocked_max_ns: 0,
            buffer: vec![0; 128 << 10].into_boxed_slice(),
            batch: Vec::with_capacity(plan.outstanding as usize + 64),
        }
    }

    /// A request whose last byte was given to the kernel by the call that began at `called_ns`.
    #[inline]
    pub(crate) fn sent(&mut self, intended_ns: u64, called_ns: u64, blocked: bool) {
        if !self.recording {
            return;
        }
        bump(&self.published.sent);
        let late = called_ns.saturating_sub(intended_ns);
        if blocked {
            bump(&self.published.held);
            self.blocked_max_ns = self.blocked_max_ns.max(late);
        } else {
            self.lateness.add(late);
            self.overslept.add(self.woke_ns.saturating_sub(intended_ns.max(self.idle_from_ns)));
            self.late_max_ns = self.late_max_ns.max(late);
        }
        if self.control.threshold.load(Ordering::Relaxed) > 0 && !self.published.sends.is_full() {
            // SAFETY: the arena belongs to this thread's log, the only one that appends.
            unsafe { self.published.sends.push(Send { intended_ns, called_ns }) };
        }
    }

    /// Requests that were due and never completely sent.
    pub(crate) fn unsent(&self, count: u64) {
        if self.recording {
            let unsent = &self.published.unsent;
            unsent.store(unsent.load(Ordering::Relaxed) + count, Ordering::Relaxed);
        }
    }

    /// What a reply says; its status code is counted.
    #[inline]
    pub(crate) fn replied(&mut self, reply: &Reply, good: Option<&GoodStatuses>) -> Status {
        let status = status(reply, good);
        if self.recording
            && let Some(count) = self.published.by_code.get(usize::from(reply.code))
        {
            bump(count);
        }
        if !self.recording && status == Status::Error {
            self.prepared_code = reply.code;
        }
        status
    }

    /// A request that has ended, one way or the other.
    #[inline]
    pub(crate) fn ended(&mut self, status: Status) {
        if self.recording {
            bump(&self.published.by_status[status as usize]);
        } else {
            self.prepared[status as usize] += 1;
        }
    }

    /// Keeps a sample.
    #[inline]
    pub(crate) fn keep(&mut self, sample: Sample) {
        if self.recording {
            // SAFETY: the arena belongs to this thread's log, the only one that appends.
            unsafe { self.published.samples.push(sample) };
        } else if sample.flags & Sample::RECEIVED_STAMPED != 0 {
            self.prepared_stamped += 1;
        }
    }

    /// Converts the NIC's stamp to the timeline now, while its clock's offset is known best.
    #[inline]
    pub(crate) fn placed(&mut self, nic: Option<usize>, raw: Raw) -> Stamp {
        let nic_ns = match nic {
            Some(place) if raw.nic_ns > 0 => self.nics.placed(place, raw.nic_ns).unwrap_or(0),
            _ => 0,
        };
        Stamp { wall_ns: raw.wall_ns, nic_ns }
    }

    /// The time of a stamp if it lies between two clock readings as it must, and whether it is the NIC's: the NIC's if
    /// possible, else the kernel's.
    #[inline]
    pub(crate) fn stamp_between(&self, stamp: Stamp, from_ns: u64, to_ns: u64) -> Option<(u64, bool)> {
        let between = |at: u64, error_ns: u64| {
            let slack = error_ns + 1;
            (at.wrapping_add(slack) >= from_ns && at <= to_ns.saturating_add(slack)).then(|| at.clamp(from_ns, to_ns))
        };
        if stamp.nic_ns > 0
            && let Some(at) = between(stamp.nic_ns, self.nics.error_ns())
        {
            return Some((at, true));
        }
        if stamp.wall_ns == 0 {
            return None;
        }
        Some((between(self.wall.offset.to_monotonic(stamp.wall_ns), self.wall.offset.error_ns)?, false))
    }

    /// Where stamps come from.
    pub(crate) fn stamp_source(&self) -> StampSource {
        if self.stamps {
            self.nics.source()
        } else {
            StampSource::none("they were not asked for, or a Unix socket has none")
        }
    }
}
