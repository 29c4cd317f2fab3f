//! The lab: what the demo, the live tests and the benchmarks need around a recording.
//!
//! - [`netns`]: two network namespaces of our own joined by a veth pair, gone when dropped;
//! - [`server`]: unmodified memcached, nginx and redis-server inside a namespace, pinned when asked, stopped when dropped;
//! - [`load`]: the product's load generator in the lab's words: any number of workloads at once, latency from the intended
//!   send time;
//! - [`servers`]: servers of our own whose service times are known; [`faults`]: programs that are a known cause;
//! - [`hostile`]: servers that do harm to whoever loads them;
//! - [`probe`]: a client that knows each of its requests; [`wire`], [`schedule`], [`truth`]: what they share;
//! - [`process`]: children that run on a chosen CPU and die with us.
//!
//! In: options. Out: namespaces, servers with their pids, and latency samples in nanoseconds. Linux only; namespaces
//! need root. The lab touches only processes and namespaces it made, by pid and by name.
//!
//! ```no_run
//! use std::net::SocketAddr;
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//! use tailsight_lab::load::{self, Proto, Workload};
//! use tailsight_lab::netns::{Pair, SERVER_V4};
//! use tailsight_lab::server::{MemcachedOpts, Server};
//!
//! # fn main() -> tailsight_lab::Result<()> {
//! let pair = Pair::create("doc")?;
//! let server = Server::memcached(&pair.server, MemcachedOpts::default())?;
//! let workload = Workload::new(Proto::Memcached, SocketAddr::new(SERVER_V4, 11211)).rate(20_000.0);
//! let stop = AtomicBool::new(false);
//! let outcomes =
//!     pair.client.run(|| load::run(&[workload], Duration::from_secs(1), true, &stop))??;
//! println!("pid {}: p99 {:?} ns", server.pid(), outcomes[0].percentile(99.0));
//! # Ok(())
//! # }
//! ```

pub mod clock;
mod error;
pub mod faults;
pub mod hostile;
pub mod load;
pub mod netns;
mod poller;
pub mod probe;
pub mod process;
pub mod schedule;
pub mod server;
pub mod servers;
pub mod truth;
pub mod wire;

pub use error::{Error, Result};
