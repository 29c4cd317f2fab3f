//! Fixes: changes to a running host that are shown first, applied on request, and undone to the previous values.
//!
//! In: a [`Change`] from the diagnosis (pin these processes, this kernel parameter). [`plan()`] reads the host and returns a
//! [`Plan`]: each [`Place`] with its current and its new value. [`apply()`] saves both in the [`State`] before it writes anything,
//! writes, reads back, and reverts everything if one write fails. [`undo()`] restores what is still changed, the last change first.
//! Out: changed settings, and a state file that a person can read ([`FileStore`]).
//!
//! The host is behind [`System`]; [`Live`] is the running one. Nothing is changed without the caller's request
//! (docs/principles.md). A process is changed only if its id, start time and name are still the same.

mod apply;
mod cpus;
mod error;
mod live;
mod place;
mod plan;
mod state;
mod store;
mod system;
mod undo;

pub use apply::{About, Applied, apply};
pub use error::Error;
pub use live::Live;
pub use place::{Attribute, Place, Setting};
pub use plan::{Identity, Origin, Plan, Step, plan, runs_anything};
pub use state::{Entry, Record, State};
pub use store::{FileStore, Journal, Store, default_folder};
pub use system::{System, Task};
pub use tailsight_diagnose::model::{Change, Limit};
pub use undo::{Put, UndoResult, undo, undo_since};
