//! Writes first inputs for the fuzzer: `seeds DIR RUN...`. Each run directory becomes two inputs: its first events on
//! each core (small inputs find more in the same time), and the same cut in half.

#[path = "../harness.rs"]
#[allow(dead_code, reason = "only packing is needed here")]
mod harness;

use std::error::Error;
use std::path::{Path, PathBuf};

use tailsight_trace::meta::State;
use tailsight_trace::{Run, RunWriter};

/// Events of a core that an input keeps.
const EVENTS: usize = 150;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(out) = arguments.next() else {
        eprintln!("usage: seeds DIR RUN...");
        std::process::exit(2);
    };
    std::fs::create_dir_all(&out)?;
    for (i, run) in arguments.enumerate() {
        let bytes = first_events(&run)?;
        std::fs::write(out.join(format!("run-{i}")), &bytes)?;
        std::fs::write(out.join(format!("run-{i}-half")), &bytes[..bytes.len() / 2])?;
    }
    Ok(())
}

/// A run's front, packed.
fn first_events(from: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut run = Run::open(from)?;
    let cpus = run.events()?;
    let dir = tempfile::tempdir()?;
    let mut meta = run.meta.clone();
    // Without checksums, which would keep every changed byte from the reader behind them.
    meta.version = 1;
    // What lifetimes do not look at would only make the input longer.
    meta.hooks.clear();
    for cpu in &mut meta.cpus {
        cpu.events = cpu.events.min(EVENTS as u64);
    }
    let mut writer = RunWriter::create(dir.path(), &meta)?;
    for cpu in &cpus {
        writer.events(cpu.cpu, &cpu.events[..cpu.events.len().min(EVENTS)])?;
    }
    run.tasks.retain(|t| t.target);
    writer.tasks(&run.tasks)?;
    writer.sockets(&run.sockets)?;
    writer.clocks(&run.clocks)?;
    meta.state = State::Complete;
    writer.finish(&mut meta)?;
    let read = |(n, name): (usize, &&str)| Some((n, std::fs::read(dir.path().join(name)).ok()?));
    Ok(harness::pack(&harness::FILES.iter().enumerate().filter_map(read).collect::<Vec<_>>()))
}
