//! The path of a message through the host, step by step, without gap or overlap.
//!
//! A leg is cut into [`Piece`]s ([`pieces`]); a [`Walk`] goes through each, on the timelines of cores and threads, and hands out
//! steps, each with its owner ([`owners`]). Before the hand-off a message is bound to its receive core; after it, to the thread
//! that took it (or answered it): where that thread ran, what ran on the core that it waited for, and, while it slept, whom it
//! waited for.

mod holder;
pub mod owners;
pub mod pieces;
pub mod walk;

pub use owners::Owners;
pub use pieces::{LONG_NS, Piece, pieces};
pub use walk::{Step, Walk};
