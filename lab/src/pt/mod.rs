//! The PT lab: Intel PT recordings of real executions, made without the hardware.
//!
//! In: a small program of several threads. Out: a perf.data file with Intel PT packets of an execution that really took place, and
//! the execution's own log. The parts: [`step`] runs the program one instruction at a time (ptrace) and logs each; [`flow`] says
//! what each instruction was (by iced-x86; of those that decode it, perf and libipt have other disassemblers); [`encode`] turns that
//! into packets as the processor manual (Intel SDM, volume 3, chapter "Intel Processor Trace") defines them; [`perf_data`] puts them
//! into a file that perf reads.
//!
//! [`vm`] does the same for a whole machine: an emulated one, kernel and user space.
//!
//! The control flow is real. **Time is not**: each instruction is given a fixed number of ticks. Such a file says nothing of the
//! cost of tracing, of lost trace or of the timing of real hardware.

pub mod encode;
pub mod flow;
pub mod perf_data;
pub mod step;
pub mod vm;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use encode::Style;
use flow::Code;

use crate::{Error, Result};

/// The source of the program.
const PROGRAM: &str = include_str!("program.c");
/// The thread that makes the others; it has no rounds.
const LEADER: u32 = 1000;
/// Its name in the file's records, below the folder that decoders are given as the root.
pub const NAME: &str = "two-threads";

/// What [`make`] wrote into the folder.
#[derive(Clone, Debug)]
pub struct Made {
    /// The recording.
    pub perf_data: PathBuf,
    /// The program, as the recording names it below this folder.
    pub root: PathBuf,
    /// The log: a line for each call and return of a thread.
    pub log: PathBuf,
    /// Instructions that ran.
    pub instructions: u64,
    /// Context switches between the two virtual CPUs' tasks.
    pub switches: usize,
    /// Bytes of trace.
    pub trace_bytes: usize,
    /// Calls and returns.
    pub transfers: u64,
    /// From one system call of a worker to the next: from and to, perf's time, ns.
    pub rounds: Vec<(u64, u64)>,
}

/// How much the program does.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Rounds of each worker: a system call ends each.
    pub rounds: u32,
    /// Requests in each round.
    pub requests: u32,
}

impl Default for Scale {
    fn default() -> Scale {
        Scale { rounds: 20, requests: 1 }
    }
}

/// Compiles the program into `folder`.
///
/// # Errors
/// [`Error::Io`] without a C compiler.
pub fn compile(folder: &Path, scale: Scale) -> Result<PathBuf> {
    let source = folder.join("program.c");
    std::fs::write(&source, PROGRAM).map_err(|e| Error::io(format!("write {}", source.display()), e))?;
    let out = folder.join(NAME);
    let flags = ["-O2", "-g0", "-static", "-nostdlib", "-fno-stack-protector", "-fcf-protection=none", "-no-pie"];
    let scale = [format!("-DROUNDS={}", scale.rounds), format!("-DREQUESTS={}", scale.requests)];
    let done = Command::new("cc")
        .args(flags)
        .args(scale)
        .arg("-fno-asynchronous-unwind-tables")
        .arg("-o")
        .arg(&out)
        .arg(&source)
        .output();
    let done = done.map_err(|e| Error::io("run cc", e))?;
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(Error::io("compile the stepped program", std::io::Error::other(why)));
    }
    Ok(out)
}

/// Steps the program that is in `folder` (see [`compile`]) and encodes what it did, in the style, beside it.
///
/// # Errors
/// [`Error::Io`]: it cannot be stepped, or the files cannot be written.
pub fn make(folder: &Path, style: &Style) -> Result<Made> {
    let program = folder.join(NAME);
    let execution = step::run(&program, style.quantum)?;
    let bytes = std::fs::read(&program).map_err(|e| Error::io(format!("read {}", program.display()), e))?;
    let code = Code::of(&bytes)?;
    let encoded = encode::encode(&execution, &code, style)?;
    let file = perf_data::write(&encoded, &code, style);
    let perf_data = folder.join("perf.data");
    std::fs::write(&perf_data, &file).map_err(|e| Error::io(format!("write {}", perf_data.display()), e))?;
    let log = folder.join("log.txt");
    let mut text = Vec::new();
    let _ = writeln!(
        text,
        "# {NAME}: what each thread did, by single steps: call or return, from, to; then its instructions."
    );
    for (tid, steps) in &encoded.truth {
        for step in &steps.transfers {
            let _ = writeln!(text, "{tid} {} {:x} {:x}", if step.call { "call" } else { "return" }, step.from, step.to);
        }
    }
    for (tid, steps) in &encoded.truth {
        let _ = writeln!(text, "{tid} instructions {}", steps.instructions);
    }
    std::fs::write(&log, text).map_err(|e| Error::io(format!("write {}", log.display()), e))?;
    Ok(Made {
        perf_data,
        root: folder.to_owned(),
        log,
        instructions: encoded.truth.values().map(|t| t.instructions).sum(),
        switches: encoded.switches.len(),
        trace_bytes: encoded.cpus.iter().map(|c| c.trace.len()).sum(),
        transfers: encoded.truth.values().map(|t| t.transfers.len() as u64).sum(),
        rounds: encoded
            .rounds
            .iter()
            .filter(|(tid, ..)| *tid != LEADER)
            .map(|(_, from, to)| (perf_data::ns(*from), perf_data::ns(*to)))
            .collect(),
    })
}

/// A long recording: the same execution many times.
#[derive(Clone, Debug)]
pub struct Long {
    /// The recording.
    pub perf_data: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// How often the execution is in it.
    pub times: u64,
    /// Instructions of all times.
    pub instructions: u64,
    /// Calls and returns of all times.
    pub transfers: u64,
}

/// Steps the program that is in `folder` (see [`compile`]) and writes what it did `style.passes` times, then these packets again and again with later time-stamp counters, until the file has `least` bytes.
///
/// # Errors
/// [`Error::Io`]: it cannot be stepped, or the file cannot be written.
pub fn make_long(folder: &Path, style: &Style, least: u64) -> Result<Long> {
    let program = folder.join(NAME);
    let execution = step::run(&program, style.quantum)?;
    let bytes = std::fs::read(&program).map_err(|e| Error::io(format!("read {}", program.display()), e))?;
    let code = Code::of(&bytes)?;
    let encoded = encode::encode(&execution, &code, style)?;
    let trace: u64 = encoded.cpus.iter().map(|cpu| cpu.trace.len() as u64).sum();
    let times = least.div_ceil(trace.max(1));
    let perf_data = folder.join("long.data");
    let failed = |e| Error::io(format!("write {}", perf_data.display()), e);
    let mut file = std::io::BufWriter::new(std::fs::File::create(&perf_data).map_err(failed)?);
    perf_data::write_repeated(&mut file, &encoded, &code, style, times).map_err(failed)?;
    let file = file.into_inner().map_err(|e| failed(e.into_error()))?;
    let bytes = file.metadata().map_err(failed)?.len();
    let sum = |of: &dyn Fn(&encode::Truth) -> u64| times * encoded.truth.values().map(of).sum::<u64>();
    Ok(Long {
        bytes,
        times,
        instructions: sum(&|truth| truth.instructions),
        transfers: sum(&|truth| truth.transfers.len() as u64),
        perf_data,
    })
}
