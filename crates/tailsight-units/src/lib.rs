//! Durations, rates, counts and sizes as people write and read them: one parser and one formatter for all of Tailsight.
//!
//! [`parse`] reads `500ms`, `20k`, `1.5M`, `64M`; [`format`] writes `17.2 us` and `20,012`.

pub mod format;
pub mod parse;
