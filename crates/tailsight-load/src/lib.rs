//! Sends load on a schedule and measures latency from kernel time stamps. In: a plan. Out: samples and counters, times in ns.

mod arena;
mod arrivals;
mod as_text;
mod cancel;
mod clock;
mod codec;
mod complaint;
mod connection;
mod counts;
mod dialer;
mod driver;
mod engine;
mod error;
mod histogram;
mod host;
pub mod http;
mod keys;
mod nearby;
mod nic;
mod outcome;
mod pacer;
mod pending;
mod plan;
mod poller;
mod rate;
mod replay;
mod rng;
mod sample;
mod schedule;
mod setup;
mod shared_core;
mod sizes;
mod stamps;
mod target;
mod thread_log;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod workload;

pub use arrivals::Arrivals;
pub use cancel::Cancel;
pub use clock::{now_ns, process_cpu_ns};
pub use complaint::Complaint;
pub use counts::Counts;
pub use driver::{Cursor, Driver, LEAD_NS, Prepared, Progress, run};
pub use error::LoadError;
pub use histogram::Histogram;
pub use host::{Treatment, allowed_cpus};
pub use nic::StampSource;
pub use outcome::{Outcome, ThreadReport};
pub use plan::{BurstOver, Limits, Plan, Receive, Trust, Wait};
pub use poller::{Poller, Ready};
pub use rate::Rate;
pub use replay::{read as read_times, read_lengths};
pub use sample::{Interval, Sample, Send, Status};
pub use schedule::Schedule;
pub use sizes::Size;
pub use tailsight_protocol::Kind as Protocol;
pub use tailsight_stats::arrivals::ArrivalProcess;
pub use target::Endpoint;
pub use workload::{Popularity, Workload};
