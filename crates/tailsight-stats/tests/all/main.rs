//! Integration tests of the statistics: against scipy and statsmodels, by property, and of the method by simulated experiments.

mod method;
mod properties;
mod reference;
#[path = "../../examples/support/sim.rs"]
mod sim;
mod simulation;
