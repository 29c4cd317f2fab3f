//! Writes first inputs for the fuzzer: `seeds DIR RUN...`. Each run directory becomes two inputs: whole, and cut in
//! half.

#[path = "../harness.rs"]
#[allow(dead_code, reason = "only packing is needed here")]
mod harness;

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(out) = arguments.next() else {
        eprintln!("usage: seeds DIR RUN...");
        std::process::exit(2);
    };
    std::fs::create_dir_all(&out)?;
    for (i, run) in arguments.enumerate() {
        let files: Vec<(usize, Vec<u8>)> = harness::FILES
            .iter()
            .enumerate()
            .filter_map(|(n, name)| Some((n, std::fs::read(run.join(name)).ok()?)))
            .collect();
        let bytes = harness::pack(&files);
        std::fs::write(out.join(format!("run-{i}")), &bytes)?;
        std::fs::write(out.join(format!("run-{i}-half")), &bytes[..bytes.len() / 2])?;
    }
    Ok(())
}
