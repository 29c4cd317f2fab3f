//! Requests, counted by their result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Requests, counted. `intended = sent + unsent`, and `sent` is the sum of all the statuses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Requests that were due.
    pub intended: u64,
    /// Of these, completely given to the kernel.
    pub sent: u64,
    /// Of these, never completely sent: every connection was full or broken until the end.
    pub unsent: u64,
    /// Answered as expected.
    pub ok: u64,
    /// Answered without the thing asked for.
    pub miss: u64,
    /// Answered with an error.
    pub error: u64,
    /// Answered with something else.
    pub wrong: u64,
    /// Not answered before the connection ended.
    pub closed: u64,
    /// Not answered before the connection sent bytes that are not the protocol's.
    pub garbage: u64,
    /// Datagrams not answered in time.
    pub lost: u64,
    /// Not answered by the end of the drain.
    pub unanswered: u64,
    /// How often a request was due and found every connection full: those that were due until one had room waited with it.
    pub blocked: u64,
    /// Requests that waited until a connection had room: the ones counted as blocked, and those that were due behind them.
    #[serde(default)]
    pub held: u64,
    /// Replies without a request, or to a request that was given up.
    pub unasked: u64,
    /// Connections made again.
    pub reconnects: u64,
    /// Of the replies, redirects (HTTP 3xx but 304): they are not followed.
    #[serde(default)]
    pub redirects: u64,
}

impl Counts {
    /// Replies that came, of whatever kind.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.ok + self.miss + self.error + self.wrong
    }

    /// Requests sent that had no good reply.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.sent - self.ok - self.miss
    }
}
