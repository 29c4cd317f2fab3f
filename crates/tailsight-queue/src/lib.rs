//! A server that is nothing but a queue, `A/S/c` in Kendall's notation: which latency it gives each request.
//!
//! In: when requests arrive, how long each is served, how many workers take them in which order. Out: the latency of every
//! request (waiting and service) and its percentiles. Times are integers in nanoseconds. Nothing here reads or writes
//! anything, and a seed gives the same numbers on every machine.
//!
//! Start with [`Model`], the notation, and [`simulate`]. The processes in [`arrivals`] are those of the load generator too.

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
pub use summary::{Ccdf, Percentile, Sorted, needed};

/// The generator of everything that is drawn here: its sequence is fixed by its name, so a seed is for ever.
pub type Rng = rand::rngs::Xoshiro256PlusPlus;

/// A generator for stream `stream` of a seed; two streams of one seed do not overlap.
#[must_use]
pub fn rng(seed: u64, stream: u64) -> Rng {
    use rand::SeedableRng;
    Rng::seed_from_u64(tailsight_stats::random::mix(seed, stream))
}
