//! Facts about the host for `tailsight doctor` and for the error messages of `tailsight record`.
//!
//! In: the `/proc`, `/sys` and `/dev` files under a [`Root`], and a few harmless system calls if that root is the live host. Out: a
//! [`HostReport`], which serialises to stable JSON and prints itself as a table.
//!
//! Each check reads through [`Root`], so the same code runs on a fixture tree. Facts that need a system call (`bpf`,
//! `perf_event_open`, the ethtool ioctls, `adjtimex`) are read from the live host only, and are otherwise [`Fact::Unknown`]
//! with that reason. A failed check never makes the report fail.
#![warn(missing_docs)]

pub mod btf;
pub mod cgroup;
pub mod clock;
pub mod container;
pub mod device;
mod error;
mod ethtool;
pub mod fentry;
#[cfg(test)]
mod fixture;
pub mod kernel;
pub mod machine;
pub mod mounts;
pub mod nic;
pub mod phc;
pub mod pmu;
pub mod proc;
pub mod report;
pub mod rights;
mod root;
pub mod settings;
mod stat;
mod syscall;
mod table;
pub mod vvar;

pub use error::HostError;
pub use report::HostReport;
pub use root::{Fact, Root, cpu_list};
pub use settings::{Rating, Setting};
pub use stat::Stat;
