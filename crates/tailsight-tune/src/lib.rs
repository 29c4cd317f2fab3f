//! The decisions of `tailsight tune`, without I/O: which fix is tried next, whether it is kept, and when to stop.
//!
//! In: an [`Objective`], [`Settings`], what each diagnosis offers ([`Offer`], made by [`candidates`]) and the logarithms of the ratios that the
//! rounds of a trial measured. Out: what to do [`Next`], and for each trial a [`Step`] that says what was predicted, what was measured, and
//! whether the fix is kept. Times are ns, ratios are latency with the fix over latency without it.
//!
//! The caller does what [`Session::next`] says and reports back: [`Session::diagnosed`], [`Session::level`], [`Session::measured`],
//! [`Session::skipped`]. A fix is applied in a trial only, and a trial that is not kept is undone, so that what is applied at any time is
//! what [`Session::kept`] lists, and the fix of the trial.

mod candidate;
mod family;
mod objective;
mod session;
mod step;

pub use candidate::{Candidate, Prediction, candidates, in_order};
pub use family::Family;
pub use objective::{Level, Objective};
pub use session::{Next, Offer, Session, Settings, Stopped, Trial, share_of_error};
pub use step::{Decision, Measured, Price, Step, Why};
