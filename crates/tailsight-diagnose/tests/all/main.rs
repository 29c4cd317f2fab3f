//! Tests of the diagnosis from end to end, on built lifetimes.

mod common;
mod functions;
mod method;
mod nesting;
mod rows;
mod selection;
mod table;
mod texts;
mod waits;
mod who;
mod work_balance;
