//! Fixes as changes to a running host: shown first, made when told to, put back to what was there before.
//!
//! In: a [`Change`] in words of the diagnosis (pin these processes, this kernel parameter). The way: [`plan()`] looks at the host
//! and gives a [`Plan`], each [`Place`] with its value now and the one to come → [`apply()`] keeps both in the [`State`]
//! before it writes anything, writes, reads back, and takes everything back when one write fails → [`undo()`] puts back what
//! is still changed, the last first. Out: changed settings, and a state file that a person can read ([`FileStore`]).
//!
//! The host is behind [`System`]: [`Live`] is the running one. Nothing here is ever done without the caller's word
//! (docs/principles.md); a process is touched only while it is the same one: its id, its start and its name.

mod apply;
mod change;
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
pub use change::{Change, Limit};
pub use error::Error;
pub use live::Live;
pub use place::{Attribute, Place, Setting};
pub use plan::{Identity, Known, Plan, Step, plan};
pub use state::{Entry, Record, State};
pub use store::{FileStore, Journal, Store, default_folder};
pub use system::{System, Task};
pub use undo::{Put, UndoResult, undo};
