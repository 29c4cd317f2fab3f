//! Goroutines: which one a thread of the target is in where it receives and sends, and which of them did not answer yet. The C is beside
//! this file, in `routines.bpf.c`.
//!
//! In: the loaded probes, the processes that run Go programs. Out: [`Open`] goroutines, at any time.

use libbpf_rs::{MapCore, MapFlags};

use super::{Extras, OnDemand, Probe};
use crate::error::Error;
use crate::loaded::Loaded;
use crate::object::Opened;

/// No hooks and no programs: those of the sockets ask.
pub const PROBE: Probe = Probe { name: "routines", on_demand: Some(OnDemand { loads, prepare }), hooks: &[] };

fn loads(_: &Extras, _: &str) -> bool {
    false
}

fn prepare(open: &mut Opened, extras: &Extras) -> Result<(), Error> {
    open.constants().routines_on = u32::from(extras.samples.is_some());
    Ok(())
}

/// A goroutine that received data from a client and did not answer since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Its process.
    pub pid: u32,
    /// Where its `runtime.g` is.
    pub address: u64,
    /// Its number in events.
    pub routine: u64,
    /// When it received, CLOCK_MONOTONIC ns.
    pub since_ns: u64,
}

/// Tells the programs that a process runs a Go program that keeps its goroutine in the register.
///
/// # Errors
/// [`Error::Bpf`].
pub fn tell(loaded: &mut Loaded, pid: u32) -> Result<(), Error> {
    let told = loaded.probes.maps.go_processes.update(&pid.to_ne_bytes(), &[1], MapFlags::ANY);
    told.map_err(|e| Error::bpf("telling which processes are of Go", e))?;
    loaded.probes.variables_mut().go_processes_told += 1;
    Ok(())
}

/// The goroutines that did not answer yet, as they are now.
pub fn open(loaded: &Loaded) -> impl Iterator<Item = Open> {
    let bss = loaded.probes.variables();
    // SAFETY: the reference is live; programs change the word at any time.
    let words = bss.open_bits.iter().map(|bits| unsafe { std::ptr::read_volatile(bits) });
    words.enumerate().filter(|(_, bits)| *bits != 0).flat_map(move |(word, bits)| {
        let set = (0..u64::BITS as usize).filter(move |bit| bits >> bit & 1 == 1);
        set.filter_map(move |bit| {
            let entry = bss.open_routines.get(word * u64::BITS as usize + bit)?;
            // SAFETY: as above; programs write this word after the rest of the entry.
            let address = unsafe { std::ptr::read_volatile(&raw const entry.address) };
            let open = Open { pid: entry.tgid as u32, address, routine: entry.routine, since_ns: entry.since };
            (address != 0).then_some(open)
        })
    })
}
