//! Every integration test of this crate, in one binary: replies and frames cut anywhere, garbage, and real servers.

mod allocations;
mod frames;
mod garbage;
mod http2;
mod http2_flows;
mod replies;
mod samples;
mod servers;
