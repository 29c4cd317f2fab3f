//! A latency measurement as a user asks for it (Lancet, ATC'19 §4). In: a source of load and a question. Out: a [`Report`] with a
//! number and its interval, or N/A with the reason, and every sample. Times are CLOCK_MONOTONIC ns, rates requests/s.
//!
//! [`tailsight_stats::method`] decides (without I/O), [`tailsight_load`] sends; this crate is the loop between them ([`measure()`])
//! and the uses of measurements: files (`samples`, a feature), comparisons ([`against`], and in turn: [`in_turn`]), objectives ([`decide`]), sweeps over the rate ([`sweep`]), and the search
//! for the highest rate that meets an objective ([`slo`]).

mod account;
mod address;
pub mod against;
pub mod assumption;
mod batch;
pub mod capacity;
mod conclude;
pub mod decide;
mod error;
pub mod hint;
pub mod in_turn;
pub mod latencies;
mod load;
mod local;
pub mod machine;
mod measure;
pub mod objective;
mod question;
pub mod report;
#[cfg(feature = "samples")]
pub mod samples;
pub mod slo;
pub mod sweep;

pub use address::Address;
pub use error::Error;
pub use load::{Ending, Load, Records};
pub use local::{Local, sum_rows};
pub use machine::Machine;
pub use measure::{Event, Measurement, Row, Tick, measure};
pub use question::{Latency, Question};
pub use report::{Report, Verdict};
