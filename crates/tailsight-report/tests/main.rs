//! The crate's integration tests: the terminal's snapshots and the page.

mod browser;
mod exports;
mod golden;
mod load;
mod load_page;
mod page;
mod synthetic;
mod terminal;
