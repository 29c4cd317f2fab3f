//! The path of a message through the host, step by step, without gap or overlap.
//!
//! A leg is divided into [`Piece`]s ([`pieces`]). A [`Walk`] goes through each, on the timelines of cores and threads, and returns steps,
//! each with its owner ([`owners`]). Before the hand-off a message is on its receive core. After it, it follows the thread that received
//! (or answered) it: where that thread ran, what ran on the core for which it waited, and what it waited for while it slept, which
//! [`rules`] decide. [`judged`] asks them of a thread's wait by itself.

mod beside_calls;
mod holder;
pub mod judged;
pub mod owners;
pub mod pieces;
mod rules;
mod until_timer;
pub mod walk;

pub use owners::Owners;
pub(crate) use owners::sleep_frame;
pub use pieces::{LONG_NS, Piece, pieces};
pub use walk::{Step, Walk};
