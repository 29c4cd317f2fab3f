//! Measurements for a person: on the terminal ([`terminal`]) and as one HTML file ([`page`], [`sweep_page`]).
//!
//! In: a [`tailsight_measure::Measurement`], sample files, a [`tailsight_measure::sweep::Sweep`]. Out: text.

pub(crate) mod page;
pub mod terminal;

pub use page::{Drawn, page, sweep_page};
