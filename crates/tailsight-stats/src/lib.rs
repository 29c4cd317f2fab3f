//! Hypothesis tests, quantile intervals, and the method that decides when a latency may be reported (Lancet, ATC'19).
//!
//! In: measured latencies, gaps and send times. Out: percentiles with intervals, p-values, and a verdict: a number, or N/A with the
//! reason. Also here: how the gaps between requests are drawn ([`arrivals`]). Pure functions: no I/O, no threads, no clocks; randomness has a seed. Start at [`method`], the paper's Figure 4 as a state
//! machine. Every test that it uses is a module of its own, checked against scipy and statsmodels, with its false-alarm rate and
//! power by simulation in `docs/results/method.md`.

pub mod adf;
pub mod agents;
pub mod anderson;
pub mod arrivals;
pub mod bootstrap;
pub mod compare;
pub mod distributions;
pub mod drift;
pub mod effective;
mod error;
pub mod kpss;
pub mod method;
pub mod quantile;
pub mod random;
pub mod rounds;
pub mod self_normalised;
pub mod spearman;
pub mod special;
pub mod warmup;

pub use error::Error;
