//! The crate's integration tests: the terminal's snapshots and the page.

mod browser;
mod exports;
mod golden;
mod load;
mod page;
mod synthetic;
mod terminal;
