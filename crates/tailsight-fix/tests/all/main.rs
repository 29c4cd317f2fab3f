//! Fixes against a host in memory and, where it is allowed, against processes and a namespace of their own on this one.

mod fake;
mod live;
mod plans;
mod properties;
