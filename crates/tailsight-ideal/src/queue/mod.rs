//! Simulates a queue, `A/S/c` in Kendall's notation: the latency of each request.
//!
//! In: arrival times, service times, the number of workers, and the order in which they take requests. Out: the latency of every
//! request (waiting and service) and its percentiles. Times are integers in nanoseconds. No I/O; a seed gives the same numbers on
//! every machine.
//!
//! Start with [`Model`], the notation, and [`simulate`]. Arrivals are drawn by tailsight-stats, as those of the load generator are.

mod discipline;
mod error;
pub mod formulas;
mod model;
pub mod predict;
mod series;
mod service;
mod simulate;
mod summary;

pub use discipline::Discipline;
pub use error::QueueError;
pub use model::{ArrivalKind, Model, Synthetic};
pub use series::{scaled, utilisation};
pub use service::{ServiceDraw, ServiceTimes};
pub use simulate::{Latencies, Request, Server, simulate};
pub use summary::{Ccdf, Percentile, Sorted};
pub use tailsight_stats::arrivals::{ArrivalProcess, Gaps};
pub use tailsight_stats::quantile::needed;
pub use tailsight_stats::random::{Generator as Rng, generator as rng};
