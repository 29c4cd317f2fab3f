//! The simulator against what is known without it.

mod closed_forms;
mod disciplines;
mod properties;
