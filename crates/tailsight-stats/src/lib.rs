//! Hypothesis tests, quantile intervals and the method that decides when a latency can be believed (Lancet, ATC'19).
//!
//! In: latencies, gaps and send times that others measured. Out: percentiles with intervals, p-values, and a verdict: a number
//! or N/A with the reason. Pure functions: no I/O, no threads, no clocks; what is random has a seed. Start reading at
//! [`method`], the paper's Figure 4 as a state machine; every test it uses is a module of its own, checked against scipy and
//! statsmodels, with its false-alarm rate and power by simulation in `docs/results/method.md`.

pub mod adf;
pub mod agents;
pub mod anderson;
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
pub mod spearman;
pub mod special;
pub mod warmup;

pub use error::Error;
