//! A cause as data, and the only place where its names are made.

mod category;
pub mod names;
pub(crate) mod phase;
mod subject;

pub use category::Category;
pub use phase::{Finding, How, Phase};
pub use subject::Subject;
