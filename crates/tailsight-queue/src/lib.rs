//! Simulates a queue, `A/S/c` in Kendall's notation: the latency of each request.
//!
//! In: arrival times, service times, the number of workers, and the order in which they take requests. Out: the latency of every
//! request (waiting and service) and its percentiles. Times are integers in nanoseconds. No I/O; a seed gives the same numbers on
//! every machine.
//!
//! Start with [`Model`], the notation, and [`simulate`]. The load generator uses the processes in [`arrivals`], too.

pub mod arrivals;
mod discipline;
mod error;
pub mod formulas;
mod model;
pub mod predict;
mod series;
mod service;
mod simulate;
mod summary;

pub use arrivals::{ArrivalProcess, Gaps};
pub use discipline::Discipline;
pub use error::QueueError;
pub use model::{ArrivalKind, Model, Synthetic};
pub use series::{scaled, utilisation};
pub use service::{ServiceDraw, ServiceTimes};
pub use simulate::{Latencies, Request, Server, simulate};
pub use summary::{Ccdf, Percentile, Sorted};
pub use tailsight_stats::quantile::needed;

/// The generator of everything that is drawn here: its sequence is fixed by its name, so a seed is for ever.
pub type Rng = rand::rngs::Xoshiro256PlusPlus;

/// A generator for stream `stream` of a seed; two streams of one seed do not overlap.
#[must_use]
pub fn rng(seed: u64, stream: u64) -> Rng {
    use rand::SeedableRng;
    Rng::seed_from_u64(tailsight_stats::random::mix(seed, stream))
}
