//! What each core and each thread did, as one sequence of states each.
//!
//! Core timelines ([`cores`]) have what was nested there ([`tree`]); thread timelines ([`threads`]) have running, waiting and
//! sleeping. [`busy_periods`] are when a thread worked for messages. [`time_index`] finds the state at a time. [`work`] is what serving cost, by thread and by core.

pub mod busy_periods;
pub mod cores;
pub mod threads;
pub mod time_index;
pub mod tree;
pub mod work;
