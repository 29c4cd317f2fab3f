//! What a person reads: the diagnosis on the terminal, and the report as one HTML file.
//!
//! In: a run's description ([`tailsight_trace::RunMeta`]), its lifetimes and its diagnosis. Out: text. There is no I/O and no
//! error: the output says what is missing in the input. Numbers are the diagnosis's, never computed again, and are shown in human
//! units ([`units`]).
//!
//! Names of tasks and symbols are hostile input. The terminal replaces control characters ([`terminal`]); the page inserts every
//! text as text and escapes the embedded data ([`html`]).

#![warn(missing_docs)]

#[cfg(feature = "export")]
pub mod export;
pub mod html;
pub mod load;
#[cfg(test)]
mod page_types;
pub mod plot;
pub mod terminal;
pub mod units;
mod words;
