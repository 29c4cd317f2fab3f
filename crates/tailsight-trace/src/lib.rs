//! Tailsight's vocabulary as types, and the run directory.
//!
//! A *run* is one recording: a directory of Arrow IPC streams plus `run.json`. This crate defines the event record
//! that the probes write ([`event`]), the tables beside the events ([`tables`]), the description of the run
//! ([`meta`]), and how a run is written ([`write`]) and opened again ([`read`]).
//!
//! # Compatibility promise
//! [`FORMAT_VERSION`] grows when a reader of the old version could misread a new run. A reader opens every version up
//! to its own and refuses newer ones with [`Error::NewerVersion`]. Event kinds and columns are only ever added; a
//! number that once meant one thing never means another. `docs/schema.md` is generated from this crate.
//!
//! All times are CLOCK_MONOTONIC nanoseconds unless a name says otherwise.

pub mod clock_log;
pub mod error;
pub mod event_stream;
mod folder;
pub mod meta;
pub mod read;
pub mod routines;
pub mod samples;
pub mod schema_page;
mod seal;
mod stream;
pub mod tables;
pub mod write;

pub use error::Error;
pub use event_stream::EventStream;
pub use meta::RunMeta;
pub use read::Run;
pub use tailsight_event::{Event, FlowKey, Kind, duckdb, event, fields, flow};
pub use write::RunWriter;

/// The version of the run directory that this crate writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 2;
