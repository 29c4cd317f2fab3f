//! The event record that the probes write ([`event`]), with the addresses of a flow as its fields hold them ([`flow`]). In: nothing.
//! Out: types, and the C of them. `tailsight-trace` has both under its own name.

pub mod event;
pub mod flow;

pub use event::{Event, Kind};
pub use flow::FlowKey;
