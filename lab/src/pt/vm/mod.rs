//! A whole machine as an Intel PT recording: an emulated one, kernel and user space, between two marks.
//!
//! In: the folder that the emulator's plugin (`plugin.c`) wrote, and the guest's files. Out: a directory as `perf record --kcore -a -e
//! intel_pt//` makes it: `data` (packets and sideband), `kcore_dir` (the kernel's code as it ran, and its symbols), and beside it the
//! programs that ran (`root`), and the execution's own log. The parts: [`log`] reads what the plugin wrote; [`follow`] checks every step
//! of each virtual processor and makes packets of it; [`file`] writes the recording; [`image`] the code that ran.
//!
//! The control flow is real. **Time is not**: each instruction is given a fixed number of ticks, whatever it waited for.
//! `scripts/pt-vm.sh` makes a new one; the agent in the guest is `guest.c`.

pub mod file;
pub mod follow;
pub mod image;
pub mod log;

use std::io::Write;
use std::path::{Path, PathBuf};

use super::encode::Style;
use crate::{Error, Result};
use image::Guest;
use log::Log;

/// What [`make`] wrote.
#[derive(Clone, Debug)]
pub struct Made {
    /// The recording, a directory.
    pub recording: PathBuf,
    /// Instructions that ran.
    pub instructions: u64,
    /// Calls and returns.
    pub transfers: usize,
    /// Context switches.
    pub switches: usize,
    /// Interrupts and exceptions.
    pub interrupts: u64,
    /// System calls.
    pub system_calls: u64,
    /// Threads, the idle ones among them.
    pub threads: usize,
    /// Bytes of trace.
    pub trace_bytes: usize,
}

/// Encodes what a plugin wrote to `from`, of a guest whose files are below `root`, into `out`.
///
/// # Errors
/// [`Error::Io`]: files cannot be read or written, or the log contradicts the code or itself: nothing is guessed.
pub fn make(from: &Path, root: &Path, out: &Path, style: &Style) -> Result<Made> {
    let guest = Guest::read(from, root)?;
    let log = Log::read(from)?;
    let whole = follow::follow(&log, &guest, style)?;
    let recording = out.join("recording");
    let kcore = recording.join("kcore_dir");
    for folder in [&kcore, &out.join("root")] {
        std::fs::create_dir_all(folder).map_err(|e| Error::io(format!("make {}", folder.display()), e))?;
    }
    let data = file::write(&whole, &guest, style);
    write(&recording.join("data"), &data)?;
    write(&kcore.join("kcore"), &guest.kcore())?;
    write(&kcore.join("kallsyms"), guest.symbols_that_ran().as_bytes())?;
    write(&kcore.join("modules"), b"")?;
    for (path, bytes) in guest.programs(&whole.ran)? {
        let to = out.join("root").join(path.trim_start_matches('/'));
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder).map_err(|e| Error::io(format!("make {}", folder.display()), e))?;
        }
        write(&to, &bytes)?;
    }
    write(&out.join("log.txt"), &text(&whole))?;
    Ok(Made {
        recording,
        instructions: whole.truth.values().map(|t| t.instructions).sum(),
        transfers: whole.truth.values().map(|t| t.transfers.len()).sum(),
        switches: whole.switches.len(),
        interrupts: whole.interrupts,
        system_calls: whole.system_calls,
        threads: whole.truth.len(),
        trace_bytes: whole.cpus.iter().map(|c| c.trace.len()).sum(),
    })
}

/// The log: by thread, an idle one as 0 and its processor, calls and returns, then the number of its instructions.
fn text(whole: &follow::Whole) -> Vec<u8> {
    let mut text = Vec::new();
    let _ = writeln!(
        text,
        "# What each thread of the guest did, by the emulator: call or return, from, to; then its instructions."
    );
    for (thread, truth) in &whole.truth {
        for step in &truth.transfers {
            let kind = if step.call { "call" } else { "return" };
            let _ = writeln!(text, "{thread} {kind} {:x} {:x}", step.from, step.to);
        }
    }
    for (thread, truth) in &whole.truth {
        let _ = writeln!(text, "{thread} instructions {}", truth.instructions);
    }
    text
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(|e| Error::io(format!("write {}", path.display()), e))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::io(format!("read {}", path.display()), e))
}

/// What was read contradicts itself.
fn wrong(what: impl Into<String>) -> Error {
    Error::io("encode the guest's execution", std::io::Error::other(what.into()))
}
