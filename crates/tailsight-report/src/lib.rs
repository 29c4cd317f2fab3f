//! What a person reads: the diagnosis on the terminal, and the report as one HTML file.
//!
//! In: a run's description ([`tailsight_trace::RunMeta`]), its lifetimes and its diagnosis. Out: text. Nothing here
//! does I/O and nothing here can fail, so the crate has no error type: whatever is missing in the input is said in the
//! output. Numbers are shown in human units ([`units`]) and are never recomputed: they are the diagnosis's own.
//!
//! Names of tasks and symbols are hostile input. The terminal replaces control characters ([`terminal`]); the page
//! inserts every text as text and escapes the embedded data ([`html`]).

#![warn(missing_docs)]

#[cfg(feature = "export")]
pub mod export;
pub mod html;
pub mod load;
pub mod plot;
pub mod terminal;
pub mod units;
mod words;
