//! From sources to a run. The eBPF source: programs (`tp_btf`, and other types if they see more) that write into memory-mapped,
//! per-core arrays.
//!
//! [`session::record`] does all of it: it resolves the target, loads the probes, lets them run, and writes their events into a run
//! directory. Each probe has a folder in [`probes`], with its C beside its Rust.

mod attachable;
mod background;
pub mod buffer;
pub mod clocks;
pub mod collect;
pub mod command;
mod confine;
pub mod cost;
mod describe;
mod devices;
mod empty_run;
pub mod error;
mod file_systems;
mod link;
pub mod loaded;
pub mod loader;
mod nic_clocks;
mod object;
pub mod probes;
pub mod procfs;
pub mod session;
mod stop;
pub mod tables;
pub mod target;
mod watch;

pub use error::Error;
pub use loader::{HookChoice, HookState};
pub use probes::nic_tx::TxStamps;
pub use session::watched::{Captured, SlowMessage, Watch};
pub use session::{
    Asked, Contents, Options, Payload, Progress, RecordSummary, SampleRate, SlowTime, Traces, Until, record,
};
pub use stop::Stop;
pub use target::Selector;
