//! The event record that the probes write ([`event`]) and its [`fields`], with the addresses of a flow as they hold them ([`flow`]). In:
//! nothing. Out: types, and made of the same tables the C of the probes ([`c_header`]) and views for SQL ([`duckdb`]). `tailsight-trace`
//! has all of them under its own name.

pub mod c_header;
pub mod duckdb;
pub mod event;
pub mod fields;
pub mod flow;

pub use event::{Event, Kind};
pub use flow::FlowKey;
