//! From lifetimes to named causes (NSight §4.2 and §5.2).
//!
//! In: [`Lifetimes`](tailsight_lifetime::Lifetimes), [`Options`], and [`RecordingFacts`] about the recording. Out: a [`Diagnosis`],
//! the JSON contract. Pure computation, no I/O. All times are integer nanoseconds.
//!
//! The steps, in order ([`diagnose()`] runs them):
//!
//! 1. [`cohorts`] ranks the messages by latency and selects *focus* and *reference*.
//! 2. [`rows::classification`] asks the category table ([`categories`]) once for each owner of time.
//! 3. [`rows::profile`] computes the mean profile of both cohorts by (leg, role, owner), and their difference, the *deviation*.
//! 4. [`estimate`] estimates costs that no event measures.
//! 5. [`rows`] groups by category and name, applies the nesting rule, folds small rows and rounds exactly.
//! 6. [`rows::attribution`] and [`rows::bootstrap`] compute hits, evidence, coverage and intervals.
//! 7. [`phases`] determines which phase of the method found each cause, and how.
//!
//! A cause is data ([`cause`]), and its words are empty: tailsight-advice fills them in last.
//!
//! Which messages these steps look into is known before the first of them, from the messages' stages: the others need no parts
//! ([`Selection`]).
//!
//! The rows sum to the mean of the focus minus the mean of the reference; time without an owner is the row `unexplained`. Also here:
//! where a median message spends its time ([`typical`]), stages of messages ([`stages`]), and single messages ([`show`]).

pub mod categories;
pub mod cause;
mod circumstances;
pub mod cohorts;
mod diagnose;
mod error;
pub mod estimate;
pub mod functions;
pub mod glob;
pub mod model;
pub mod more;
pub mod multiplexed;
mod one_cause;
mod options;
pub mod phases;
mod queued;
pub mod rows;
mod selection;
pub mod sent;
pub mod show;
pub mod stages;
pub mod typical;
mod usual;
pub mod work_balance;

pub use categories::CategoryTable;
pub use cause::Category;
pub use cause::names::Titled;
pub use cohorts::focus::parse_focus;
pub use diagnose::{CauseOf, Inputs, diagnose, diagnose_with, overview};
pub use error::Error;
pub use functions::sampled::PathOf;
pub use model::{Diagnosis, RuleShare};
pub use options::{Options, RecordingFacts};
pub use selection::Selection;
pub use usual::nothing_stands_out;

/// Fewest messages that a slice must hold for a verdict.
pub const MIN_MESSAGES: usize = 20;

/// Fewest complete messages of which any causes are claimed: below, the fifth that is slowest is no tail.
pub const MIN_COMPLETE: usize = 100;

/// Complete messages with which p99..p100 holds a verdict, with room for those that are not followed to the end.
pub const ENOUGH_MESSAGES: u64 = 2_500;
