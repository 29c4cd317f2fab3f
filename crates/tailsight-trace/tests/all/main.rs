//! Every integration test of this crate, in one binary: what a run directory may look like from outside.

mod checksums;
mod damage;
mod reader;
mod sample;
