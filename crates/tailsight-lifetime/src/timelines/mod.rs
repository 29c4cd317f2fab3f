//! What each core and each thread did, as a sequence of states.
//!
//! Core timelines ([`cores`]) have nested states ([`tree`]); thread timelines ([`threads`]) have running, waiting and sleeping.
//! How a thread sleeps says [`sleep`], when and who ended it [`waits`]. [`busy_periods`] are the times in which a thread worked for messages, [`service`] says whom it
//! served. [`processors`] are the times in which a runtime had none free. [`time_index`] finds the state at a time. [`work`] is the cost
//! of serving, by thread and by core.

pub mod busy_periods;
pub mod cores;
pub mod processors;
pub mod service;
pub mod sleep;
pub mod threads;
pub mod time_index;
pub mod tree;
pub mod waits;
pub mod work;
