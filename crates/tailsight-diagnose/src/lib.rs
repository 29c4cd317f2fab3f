//! From lifetimes to named causes (NSight §4.2 and §5.2), with numbers that add up.
//!
//! In: [`Lifetimes`](tailsight_lifetime::Lifetimes), [`Options`] and [`Facts`] about the recording. Out: a [`Diagnosis`],
//! the JSON contract. Pure computing, no I/O. All times are integer nanoseconds.
//!
//! The way: messages by rank of their latency → *focus* and *reference* ([`focus`]) → mean profiles per (leg, role, owner)
//! and their difference, the *deviation* ([`profile`]) → costs that no event measures are estimated ([`infer`]) → a category and a name for each owner ([`rules`]) → anomalies inside
//! anomalies by the nesting rule ([`nesting`]), small rows folded, exact rounding ([`causes`]) → hits, evidence and coverage by message
//! ([`attribution`]) → intervals ([`bootstrap`]) → which phase found it and how ([`phases`]) → words and fixes ([`words`]). Deviations are additive: the rows sum to the
//! mean of the focus less the mean of the reference, and what has no owner is the row `unexplained`. Beside it, the percentiles
//! of every leg ([`legs`]), and where a median message spends its time ([`typical`]).

pub mod against;
pub mod attribution;
pub mod bootstrap;
pub mod causes;
mod diagnose;
mod error;
pub mod focus;
mod glob;
pub mod ideal;
pub mod infer;
pub mod legs;
pub mod model;
pub mod more;
pub mod nesting;
mod options;
pub mod order;
pub mod phases;
pub mod profile;
pub mod root;
pub mod rules;
pub mod sent;
pub mod show;
pub mod typical;
pub mod who;
pub mod words;

pub use diagnose::{Beside, CauseOf, diagnose, diagnose_with, overview};
pub use error::Error;
pub use focus::parse_focus;
pub use model::Diagnosis;
pub use options::{Facts, Options};
pub use rules::{CATEGORIES, CategoryTable};

/// Fewest messages that a slice must hold for a verdict.
pub const MIN_MESSAGES: usize = 20;

/// Fewest complete messages of which any causes are claimed: below, the fifth that is slowest is no tail.
pub const MIN_COMPLETE: usize = 100;

/// Complete messages with which p99..p100 holds a verdict, with room for those that are not followed to the end.
pub const ENOUGH_MESSAGES: u64 = 2_500;
