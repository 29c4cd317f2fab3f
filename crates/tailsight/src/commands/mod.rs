//! The commands, a file each.

pub mod demo;
pub mod diagnose;
pub mod doctor;
pub mod export;
pub mod record;
pub mod report;
