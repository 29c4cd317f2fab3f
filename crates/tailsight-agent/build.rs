//! Generates the messages and the service of `proto/agent.proto`. The proto is parsed by protox, so no protoc is needed.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new("proto");
    let descriptors = protox::compile([folder.join("agent.proto")], [folder])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    println!("cargo:rerun-if-changed=proto");
    Ok(())
}
