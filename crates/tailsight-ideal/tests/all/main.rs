//! The simulator against what is known without it, and the ideal of built runs.

mod closed_forms;
mod disciplines;
mod of_runs;
mod properties;
