//! Tests of the diagnosis from end to end, on built lifetimes.

mod classes;
mod common;
mod functions;
mod method;
mod nesting;
mod rows;
mod sampled;
mod selection;
mod table;
mod waits;
mod who;
mod work_balance;
