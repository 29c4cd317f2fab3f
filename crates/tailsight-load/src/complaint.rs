//! What was wrong with a run. In: counts and how the client was scheduled. Out: sentences, and whether the run is invalid.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_units::format::{count, duration};

use crate::counts::Counts;

/// A reason why a run is not a valid measurement of the server, with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Complaint {
    /// The client sent too late, by its own clock.
    Late {
        /// 99th percentile of its lateness, ns.
        p99_ns: u64,
        /// The plan's limit, ns.
        limit_ns: u64,
        /// The largest, ns.
        max_ns: u64,
        /// Over this many requests.
        requests: u64,
    },
    /// A thread used its core whole: the client was the bottleneck.
    OutOfCpu {
        /// Which one.
        thread: u32,
        /// CPU time over wall time.
        share: f64,
        /// The limit.
        limit: f64,
    },
    /// A thread was ready to run but did not get a core.
    Starved {
        /// Which one.
        thread: u32,
        /// Time ready to run without running, ns.
        waited_ns: u64,
        /// The same over wall time.
        share: f64,
        /// The limit.
        limit: f64,
        /// Times that it was taken off the core.
        preempted: u64,
    },
    /// Requests waited because every connection had its limit outstanding: the loop was closed.
    Blocked {
        /// How many.
        requests: u64,
        /// The same over all that were due.
        share: f64,
        /// The limit.
        limit: f64,
        /// The longest such wait, ns.
        longest_ns: u64,
        /// Requests that waited until a connection had room.
        #[serde(default)]
        held: u64,
        /// Their share of all.
        #[serde(default)]
        held_share: f64,
        /// From this share on they are named as the reason.
        #[serde(default)]
        held_limit: f64,
    },
    /// The rate that was sent is not the rate asked for.
    RateMissed {
        /// Requests/s asked for, on average.
        asked_per_s: f64,
        /// Requests/s sent.
        sent_per_s: f64,
        /// The limit, relative: 0.02.
        limit: f64,
    },
    /// Requests had no good reply.
    Failed {
        /// All counts.
        counts: Counts,
        /// The first few reasons for which connections broke.
        reasons: Vec<String>,
    },
    /// Connections were closed because the server sent bytes that are not the protocol's, or replies without a request.
    GivenUp {
        /// How often.
        times: u64,
        /// Requests that were sent.
        requests: u64,
        /// Replies without a request: the replies before them may belong to other requests too.
        unasked: u64,
        /// The first few reasons for which connections broke.
        reasons: Vec<String>,
    },
    /// The server closed all connections, or speaks another protocol.
    ServerGone {
        /// The last thing that went wrong.
        reason: String,
        /// Whether that was invalid data rather than a closed connection.
        garbage: bool,
    },
    /// A thread failed.
    ClientFailed {
        /// What failed.
        reason: String,
    },
    /// The wall clock was set during the load; impossible stamps were not used.
    ClockStepped {
        /// How often.
        steps: u32,
        /// By how much at most, ns.
        largest_ns: u64,
        /// Samples whose stamps were impossible.
        refused_stamps: u64,
    },
    /// The clock of the NIC whose stamps are used was set during the load; impossible stamps were not used.
    NicClockStepped {
        /// How often.
        steps: u32,
        /// By how much at most, ns.
        largest_ns: u64,
        /// Samples with a stamp that was impossible.
        refused_stamps: u64,
    },
    /// Samples had no room.
    SamplesLost {
        /// How many.
        lost: u64,
        /// How many had room.
        kept: u64,
    },
}

impl Complaint {
    /// Whether the latencies are not those of the server under the load asked for (the other complaints are informative).
    #[must_use]
    pub fn spoils(&self) -> bool {
        // If replies are invalid that often, those between them are not trusted either.
        let is_rare = |times: u64, requests: u64| times.saturating_mul(1_000) <= requests;
        if let Self::GivenUp { times, requests, unasked, .. } = self {
            return *unasked > 0 || !is_rare(*times, *requests);
        }
        // A few long waits are a slow server's; many times is a client with too few connections.
        if let Self::Blocked { share, limit, .. } = self {
            return share > limit;
        }
        !matches!(
            self,
            Self::Failed { .. } | Self::ClockStepped { .. } | Self::NicClockStepped { .. } | Self::SamplesLost { .. }
        )
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_reason(f)?;
        self.advice().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl Complaint {
    /// What it is, without what to do.
    #[must_use]
    pub fn reason(&self) -> String {
        let mut reason = String::new();
        self.write_reason(&mut reason).expect("a text takes whatever is written");
        reason
    }

    /// What to do, where one advice fits all who meet it.
    #[must_use]
    pub const fn advice(&self) -> Option<&'static str> {
        match self {
            Self::OutOfCpu { .. } => Some("add threads or hosts"),
            Self::Starved { .. } => Some("keep other work off its core"),
            Self::Blocked { .. } => Some("add connections, or lower the rate if the server cannot keep up"),
            Self::NicClockStepped { .. } => Some("wait until the clock is steady, or do not set it during a load"),
            Self::SamplesLost { .. } => Some("allow more, or sample less"),
            _ => None,
        }
    }

    fn write_reason(&self, f: &mut impl fmt::Write) -> fmt::Result {
        match self {
            Self::Late { p99_ns, limit_ns, max_ns, requests } => write!(
                f,
                "the client was late: p99 of its own lateness over {} requests is {} (limit {}, largest {})",
                count(*requests),
                duration(*p99_ns),
                duration(*limit_ns),
                duration(*max_ns)
            ),
            Self::OutOfCpu { thread, share, limit } => write!(
                f,
                "the client had too little CPU: thread {thread} used {:.1} % of its core (limit {:.1} %)",
                share * 100.0,
                limit * 100.0
            ),
            Self::Starved { thread, waited_ns, share, limit, preempted } => write!(
                f,
                "the client did not get CPU time: thread {thread} waited {} for a core ({:.1} % of the time, \
                 limit {:.1} %) and was preempted {preempted} times",
                duration(*waited_ns),
                share * 100.0,
                limit * 100.0
            ),
            Self::Blocked { longest_ns, held, held_share, .. } => write!(
                f,
                "not an open loop: {} requests ({:.1} %) were due while every connection waited for replies, and had to \
                 wait, for {} at the longest",
                count(*held),
                held_share * 100.0,
                duration(*longest_ns)
            ),
            Self::RateMissed { asked_per_s, sent_per_s, limit } => write!(
                f,
                "the rate was missed: {asked_per_s:.0} requests/s asked for, {sent_per_s:.0} sent (limit {:.1} %)",
                limit * 100.0
            ),
            Self::Failed { counts, reasons } => {
                write!(
                    f,
                    "{} of {} requests had no good reply: {} errors, {} wrong, {} closed, {} garbage, {} lost, {} \
                     unanswered",
                    counts.failed(),
                    counts.sent,
                    counts.error,
                    counts.wrong,
                    counts.closed,
                    counts.garbage,
                    counts.lost,
                    counts.unanswered
                )?;
                reasons.iter().try_for_each(|reason| write!(f, "; {reason}"))
            }
            Self::GivenUp { times, unasked, reasons, .. } => {
                write!(f, "connections were closed {times} times because of what the server sent")?;
                if *unasked > 0 {
                    write!(f, ", {unasked} replies without a request")?;
                }
                write!(f, " ({})", reasons.join("; "))
            }
            Self::ServerGone { reason, garbage: false } => write!(f, "no connection is left: {reason}"),
            Self::ServerGone { reason, garbage: true } => write!(f, "the server does not speak the protocol: {reason}"),
            Self::ClientFailed { reason } => write!(f, "the client failed: {reason}"),
            Self::ClockStepped { steps, largest_ns, refused_stamps } => write!(
                f,
                "the wall clock was set {steps} times during the load (by up to {}); {refused_stamps} kernel \
                 time stamps \
                 were impossible and were replaced by the client's clock",
                duration(*largest_ns)
            ),
            Self::NicClockStepped { steps, largest_ns, refused_stamps } => write!(
                f,
                "the NIC's clock was set {steps} times during the load (by up to {}); {refused_stamps} of its \
                 time stamps \
                 were impossible and were replaced by the kernel's; others of the 100 ms before may be wrong by as \
                 much",
                duration(*largest_ns)
            ),
            Self::SamplesLost { lost, kept } => {
                write!(f, "{lost} samples were dropped, only {kept} fit")
            }
        }
    }
}
