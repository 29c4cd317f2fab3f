//! Every integration test of this crate, in one binary: a simulated machine against what the lifetimes say of it, and
//! golden runs of real servers.

mod by_hand;
mod damage;
mod framed;
mod golden;
mod locks;
mod loops;
mod nic;
mod properties;
mod purposes;
mod regressions;
mod routines;
mod rules;
mod sending;
mod service_rows;
mod serving;
mod simulator;
mod slots;
mod tasks;
mod turns;
mod unanswered;
mod waits;
mod work;
