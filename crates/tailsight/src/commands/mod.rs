//! The commands, a file each. Where a feature of this crate is off, its commands are [`absent`].

#[cfg(not(all(feature = "export", feature = "intel-pt", feature = "load")))]
pub mod absent;
pub mod completions;
pub mod demo;
pub mod diagnose;
pub mod doctor;
pub mod fix;
pub mod ideal;
pub mod import_json;
pub mod man;
pub mod record;
pub mod report;
pub mod schema;
pub mod serve;
pub mod show;
pub mod symbolise;
pub mod tune_json;
pub mod usage;
pub mod view;
pub mod watch;

#[cfg(not(feature = "export"))]
pub use absent as export;
#[cfg(feature = "export")]
pub mod collector;
#[cfg(feature = "export")]
pub mod export;

#[cfg(feature = "intel-pt")]
pub mod import;
#[cfg(feature = "intel-pt")]
pub mod intel_pt;
#[cfg(not(feature = "intel-pt"))]
pub use absent::{self as import, self as intel_pt};

#[cfg(feature = "load")]
pub mod agent;
#[cfg(feature = "load")]
pub mod live;
#[cfg(feature = "load")]
pub mod load;
#[cfg(feature = "load")]
pub mod source;
#[cfg(feature = "load")]
pub mod sweep;
#[cfg(feature = "load")]
pub mod tune;
#[cfg(not(feature = "load"))]
pub use absent::{self as agent, self as load, self as sweep, self as tune};
