//! Load agents on other machines, driven over gRPC, and the coordinator that drives them.
//!
//! In: agents' addresses, a token, a plan. Out: pooled samples on the coordinator's clock. Lancet §4.1, Table 2, Figure 3.

mod address;
mod allow;
mod anything;
pub mod coordinator;
mod error;
mod gate;
/// Messages, client and server of `proto/agent.proto`, which `build.rs` makes of it.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
mod proto {
    tonic::include_proto!("tailsight.agent.v1");
}
mod host;
mod policy;
mod server;
mod service;
mod session;
mod tls;
mod token;
mod wire;

pub use address::{AgentAddress, Fingerprint};
pub use allow::{Allow, Rule};
pub use anything::read_any;
pub use error::AgentError;
pub use policy::Policy;
pub use server::{Agent, Config};
pub use session::Log;
pub use tls::Identity;
pub use token::Token;
pub use wire::{Records, Summary};
