//! Made from `proto/agent.proto` by `make generate`; committed so that nothing is generated when Tailsight is built.

#[allow(missing_docs, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
mod agent;

pub(crate) use agent::*;
