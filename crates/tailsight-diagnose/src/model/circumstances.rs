//! What the words of a diagnosis rest on beside what its JSON has: counts of the run, and how costs were estimated. Times in ns.

use tailsight_lifetime::messages::RepeatedConnects;
use tailsight_lifetime::messages::requests::Framing;

use crate::cause::Subject;

/// The circumstances of a diagnosis. Not of one that was read.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// The cores that a twentieth of the focus messages met at least: where the stack handed them over, and where they were received.
    pub focus_cores: [Vec<u32>; 2],
    /// Whether a protocol could tell what requests ask for: they came neither in TLS nor by HTTP/2.
    pub is_readable: bool,
    /// What the bytes were found to be, where a protocol was asked for.
    pub framing: Option<Framing>,
    /// Messages, complete or not, with those of the run that is compared with.
    pub messages: u64,
    /// Connections that many requests share.
    pub shared_connections: u64,
    /// Requests to other servers whose answer is not known.
    pub unknown_backend_calls: u64,
    /// Replies that went on after the thread had turned to other work.
    pub continued_replies: u64,
    /// Sends to clients that answer no message, as far as is known.
    pub unasked_sends: u64,
    /// How often a segment of what the application sent was sent again.
    pub retransmitted: u64,
    /// Outgoing packets of replies that this host dropped.
    pub dropped: u64,
    /// How often NUMA balancing moved a thread of the application.
    pub numa_moves: u64,
    /// Connections of clients whose SYN came again.
    pub repeated_connects: RepeatedConnects,
    /// What events cost that have a number and no duration.
    pub costs: Vec<EstimatedCost>,
    /// What classes of requests were formed by, when they made a difference: `class`, `size` or `connection`.
    pub classes: Option<&'static str>,
    /// Whether this run has samples, and the one that is compared with; `None` where samples were not asked for.
    pub has_samples: [Option<bool>; 2],
}

/// What one event of a kind costs.
#[derive(Clone, Debug, PartialEq)]
pub struct EstimatedCost {
    /// The kind: what the row of its cost is.
    pub subject: Subject,
    /// Own time that comes with one more.
    pub slope_ns: f64,
    /// Its 95 % bootstrap interval.
    pub ci95_ns: [f64; 2],
    /// How many more of them a message of the focus has than one of the reference, mean.
    pub more: f64,
    /// What the slope alone moves, of a message of the focus beyond one of the reference.
    pub by_number_ns: f64,
    /// What slow messages with as many events take longer, likewise.
    pub beyond_ns: f64,
}
