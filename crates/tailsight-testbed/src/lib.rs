//! A testbed on one host: servers in network namespaces of our own and loads on them, for the demo, the live tests, the
//! lab and the benchmarks.
//!
//! - [`netns`]: two network namespaces of our own joined by a veth pair, gone when dropped;
//! - [`server`]: unmodified memcached, nginx and redis-server inside a namespace, pinned when asked, stopped when dropped;
//! - [`load`]: the product's load generator in few words: any number of workloads at once, latency from the intended
//!   send time;
//! - [`queue`]: a perfect FIFO queue behind a port, whose latency has a closed form;
//! - [`hostile`]: servers that do harm to whoever loads them;
//! - [`disturbed`]: whether the machine's other work made a recording's slow messages slow;
//! - [`process`]: children that run on a chosen CPU and die with us.
//!
//! In: options. Out: namespaces, servers with their pids, and latency samples in nanoseconds. Linux only; namespaces
//! need root. It touches only processes and namespaces it made, by pid and by name.
//!
//! ```no_run
//! use std::net::SocketAddr;
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//! use tailsight_testbed::load::{self, Proto, Workload};
//! use tailsight_testbed::netns::{Pair, SERVER_V4};
//! use tailsight_testbed::server::{MemcachedOpts, Server};
//!
//! # fn main() -> tailsight_testbed::Result<()> {
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

mod cover;
pub mod disturbed;
mod error;
pub mod hostile;
pub mod load;
pub mod netns;
pub mod process;
pub mod published;
pub mod queue;
pub mod server;

pub use cover::Cover;
pub use error::{Error, Result};
