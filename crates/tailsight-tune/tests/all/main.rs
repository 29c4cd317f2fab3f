//! Sessions of decisions, on simulated servers.

mod decisions;
mod simulated;
