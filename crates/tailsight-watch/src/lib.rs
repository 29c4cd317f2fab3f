//! Which messages are slow, and when a capture is made of one: without I/O.
//!
//! In: what a user asked for ([`Condition`]), latencies as they are counted ([`LatencyCounts`]), the time. Out: limits for the recorder
//! ([`Limits`]), whether a capture may be made now ([`Budget`]), and the metrics as text ([`metrics`]). Times are ns unless they are `Duration`s.

mod budget;
mod condition;
mod latencies;
pub mod metrics;
mod recent;

pub use budget::{Budget, Refused};
pub use condition::{Condition, Limit, Wrong};
pub use latencies::{LATENCY_CLASSES, LatencyCounts, Leg, Limits};
pub use recent::Recent;
