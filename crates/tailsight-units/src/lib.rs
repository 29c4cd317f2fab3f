//! Durations, rates, counts and sizes as people write and read them: one parser and one formatter for all of Tailsight. Also text
//! from untrusted sources.
//!
//! [`parse`] reads `500ms`, `20k`, `1.5M`, `64M`; [`format`] writes `17.2 us` and `20,012`; [`name`] writes the bytes of a task's
//! name as text without loss; [`Untrusted`] is text from anywhere that is to be printed; [`chain`] is an error with its causes.

mod causes;
pub mod format;
pub mod name;
pub mod parse;
pub mod untrusted;

pub use causes::chain;
pub use untrusted::Untrusted;
