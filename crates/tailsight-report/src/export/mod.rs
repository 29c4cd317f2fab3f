//! A diagnosed run for other tools: traces of Perfetto's, profiles of pprof's and of Firefox's, spans of OpenTelemetry, and the causes as CSV.
//!
//! In: what the page is made of ([`crate::html::Input`]). Out: bytes. Like the page, traces hold the messages whose paths they are
//! given. Names of tasks are data in all of them.

pub mod csv;
pub mod firefox;
pub mod otlp;
pub mod perfetto;
pub mod pprof;
