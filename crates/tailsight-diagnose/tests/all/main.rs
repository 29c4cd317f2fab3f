//! Tests of the diagnosis from end to end, on built lifetimes.

mod common;
mod rows;
mod table;
mod texts;
