//! The parts of the lab's scenarios, built on the [testbed](tailsight_testbed): servers, faults, and the truth about them.
//!
//! - [`servers`]: servers whose service times are known; [`faults`]: programs that are a known cause;
//! - [`probe`]: a client that knows each of its requests; [`wire`], [`postgres`], [`schedule`], [`truth`]: what they share;
//! - [`pt`]: Intel PT recordings of single-stepped programs;
//! - [`generated`]: the sections of docs pages that a program writes.
//!
//! In: options. Out: servers and faults that log what they did and when, samples and truth in CLOCK_MONOTONIC ns. Linux only. The
//! scenarios and how they are judged are in the program (`src/run/`).

pub mod clock;
mod error;
pub mod faults;
pub mod generated;
pub mod postgres;
pub mod probe;
pub mod pt;
pub mod schedule;
pub mod servers;
pub mod truth;
pub mod wire;

pub use error::{Error, Result};
