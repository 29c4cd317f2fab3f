//! A cause as data, and the one place that makes names of it.

mod category;
pub mod names;
pub(crate) mod phase;
mod subject;

pub use category::Category;
pub use phase::{Finding, How, Phase};
pub use subject::Subject;
