//! From lifetimes to named causes (NSight §4.2 and §5.2), with numbers that add up.
//!
//! In: [`Lifetimes`](tailsight_lifetime::Lifetimes), [`Options`] and [`RecordingFacts`] about the recording. Out: a [`Diagnosis`],
//! the JSON contract. Pure computing, no I/O. All times are integer nanoseconds.
//!
//! The way: messages by rank of their latency → *focus* and *reference* ([`cohorts`]) → what each owner of time counts to, by the
//! category table ([`categories`], asked once for each in [`rows::classification`]) → mean profiles per (leg, role, owner) and
//! their difference, the *deviation* ([`rows::profile`]) → costs that no event measures are estimated ([`estimate`]) → rows: by
//! category and name, anomalies inside anomalies by the nesting rule, small ones folded, exact rounding ([`rows`]) → hits,
//! evidence, coverage and intervals by message ([`rows::attribution`], [`rows::bootstrap`]) → which phase found it and how
//! ([`phases`]) → words and fixes ([`advice`]). A cause stays data ([`cause`]) until its name and sentences are made.
//! Deviations are additive: the rows sum to the mean of the focus less the mean of the reference, and what has no owner is the
//! row `unexplained`. Beside it, where a median message spends its time ([`typical`]), the
//! stages of messages ([`stages`]), and single messages ([`show`]).

pub mod advice;
pub mod categories;
pub mod cause;
pub mod cohorts;
mod diagnose;
mod error;
pub mod estimate;
pub mod functions;
mod glob;
pub mod ideal;
pub mod model;
pub mod more;
mod options;
pub mod phases;
pub mod rows;
pub mod sent;
pub mod show;
pub mod stages;
pub mod typical;

pub use categories::CategoryTable;
pub use cause::Category;
pub use cause::names::Titled;
pub use cohorts::focus::parse_focus;
pub use diagnose::{CauseOf, Inputs, diagnose, diagnose_with, overview};
pub use error::Error;
pub use functions::sampled::PathOf;
pub use model::Diagnosis;
pub use options::{Options, RecordingFacts};

/// Fewest messages that a slice must hold for a verdict.
pub const MIN_MESSAGES: usize = 20;

/// Fewest complete messages of which any causes are claimed: below, the fifth that is slowest is no tail.
pub const MIN_COMPLETE: usize = 100;

/// Complete messages with which p99..p100 holds a verdict, with room for those that are not followed to the end.
pub const ENOUGH_MESSAGES: u64 = 2_500;
