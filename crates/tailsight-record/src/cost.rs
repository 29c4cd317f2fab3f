//! What a hook costs: the kernel's BPF statistics over a short window after the recording, so that measuring does not
//! burden what is measured. An empty program's cost is subtracted.

use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::libbpf_sys;

use crate::error::Error;
use crate::loaded::Loaded;

/// The cost of one program.
#[derive(Clone, Debug)]
pub struct ProgramCost {
    /// The program.
    pub name: String,
    /// Runs in the window.
    pub runs: u64,
    /// Mean ns a run, less the empty program's; `None` without runs.
    pub ns_per_run: Option<f64>,
}

/// What the kernel counts of a program.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    runs: u64,
    ns: u64,
    misses: u64,
}

fn counters(fd: i32) -> Counters {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: `info` is a plain struct of `len` bytes that the kernel fills.
    let rc = unsafe { libbpf_sys::bpf_obj_get_info_by_fd(fd, (&raw mut info).cast(), &raw mut len) };
    if rc != 0 {
        return Counters::default();
    }
    Counters { runs: info.run_cnt, ns: info.run_time_ns, misses: info.recursion_misses }
}

/// How often each program was due but did not run, because an interrupt came while the same program was running on that
/// core: events that never reached a buffer.
pub fn missed(loaded: &Loaded) -> Vec<(String, u64)> {
    loaded.programs().into_iter().map(|(name, fd)| (name, counters(fd).misses)).collect()
}

/// Measures every program for `window` while it goes on recording.
///
/// # Errors
/// [`Error::NoCost`] when the kernel refuses its statistics, [`Error::Bpf`] when the empty program cannot be attached.
pub fn measure(loaded: &mut Loaded, window: Duration) -> Result<Vec<ProgramCost>, Error> {
    let programs = loaded.programs();
    loaded.attach_baseline()?;
    // SAFETY: no pointers; returns a new descriptor or a negative error.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        return Err(Error::NoCost { source: std::io::Error::from_raw_os_error(-fd) });
    }
    // SAFETY: a fresh descriptor that nobody else owns; statistics stop when it closes.
    let stats = unsafe { OwnedFd::from_raw_fd(fd) };
    let before: Vec<_> = programs.iter().map(|(_, fd)| counters(*fd)).collect();
    std::thread::sleep(window);
    let after: Vec<_> = programs.iter().map(|(_, fd)| counters(*fd)).collect();
    drop(stats);
    let raw: Vec<(String, u64, f64)> = programs
        .into_iter()
        .zip(before.iter().zip(&after))
        .map(|((name, _), (b, a))| {
            let runs = a.runs.saturating_sub(b.runs);
            (name, runs, a.ns.saturating_sub(b.ns) as f64 / runs.max(1) as f64)
        })
        .collect();
    let empty = raw.iter().find(|(n, runs, _)| n == "baseline" && *runs > 0).map_or(0.0, |(_, _, ns)| *ns);
    Ok(raw
        .into_iter()
        .filter(|(name, ..)| name != "baseline")
        .map(|(name, runs, ns)| ProgramCost { name, runs, ns_per_run: (runs > 0).then_some((ns - empty).max(0.0)) })
        .collect())
}
