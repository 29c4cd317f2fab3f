//! Generates `src/generated/agent.rs` from `proto/agent.proto`. In: the proto, parsed by protox, so no protoc is needed.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = agent.join("src/generated");
    let descriptors = protox::compile(["agent.proto"], [agent.join("proto")])?;
    tonic_prost_build::configure().out_dir(&out).compile_fds(descriptors)?;
    std::fs::rename(out.join("tailsight.agent.v1.rs"), out.join("agent.rs"))?;
    Ok(())
}
