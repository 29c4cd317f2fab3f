//! The commands, a file each.

pub mod agent;
pub mod completions;
pub mod demo;
pub mod diagnose;
pub mod doctor;
pub mod export;
pub mod fix;
pub mod ideal;
pub mod import;
pub mod intel_pt;
pub mod live;
pub mod load;
pub mod man;
pub mod record;
pub mod report;
pub mod schema;
pub mod show;
pub mod source;
pub mod sweep;
pub mod symbolise;
pub mod usage;
pub mod view;
