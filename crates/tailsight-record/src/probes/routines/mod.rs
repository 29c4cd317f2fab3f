//! Tasks of runtimes: which one a thread of the target is in where it receives and sends, and what was not answered yet. The C is beside this
//! file, in `routines.bpf.c`.
//!
//! In: the loaded probes, the processes whose tasks are known. Out: what is [`Open`], at any time; the number of a task in events.

use libbpf_rs::{MapCore, MapFlags};

use super::{Extras, OnDemand, Probe};
use crate::error::Error;
use crate::loaded::Loaded;
use crate::object::Opened;

/// No hooks: those of the sockets ask. The program is of breakpoints.
pub const PROBE: Probe = Probe { name: "routines", on_demand: Some(OnDemand { loads, prepare }), hooks: &[] };

/// The program at places where tasks of runtimes begin to run, and where they are made ready.
pub const PROGRAM: &str = "runtime_task";
/// The same where the kernel sets all breakpoints of a file at once.
pub const PROGRAM_OF_MANY: &str = "runtime_tasks";
/// As in the C: what a place is.
pub mod cookie {
    /// A task begins to run.
    pub const RUNS: u64 = 0;
    /// One is made ready.
    pub const WOKEN: u64 = 1;
    /// One asks to be made ready.
    pub const ASKS: u64 = 2;
    /// A goroutine is made ready.
    pub const GO_READY: u64 = 3;
    /// A goroutine is made.
    pub const GO_MADE: u64 = 4;

    /// One of the two of Go, with where a goroutine has its saved frame pointer.
    pub fn of_go(what: u64, saved_frame_pointer: usize) -> u64 {
        what | (saved_frame_pointer as u64) << 8
    }
}

fn loads(extras: &Extras, program: &str) -> bool {
    extras.task_breakpoints && (program == PROGRAM || (program == PROGRAM_OF_MANY && sets_many()))
}

/// Whether the kernel sets many breakpoints at once: Linux 6.6.
fn sets_many() -> bool {
    let release = nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned());
    let mut parts = release.as_deref().unwrap_or_default().split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(6), Some(6))
}

fn prepare(open: &mut Opened, extras: &Extras) -> Result<(), Error> {
    open.constants().routines_on = u32::from(extras.samples.is_some());
    Ok(())
}

/// What received data from a client and did not answer since: a goroutine, or of asyncio a socket. Or a goroutine that such a one made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Its process.
    pub pid: u32,
    /// Where the goroutine's `runtime.g` is.
    pub address: u64,
    /// The goroutine's number in events.
    pub routine: u64,
    /// When it received, or was made, CLOCK_MONOTONIC ns.
    pub since_ns: u64,
    /// It was made by one that received.
    pub was_made: bool,
}

/// Where the programs find the task that a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    /// A goroutine: in the register.
    Register,
    /// A task of asyncio: in the dictionary at this address.
    Dictionary(u64),
}

/// Tells the programs of a process whose tasks are known.
///
/// # Errors
/// [`Error::Bpf`].
pub fn tell(loaded: &mut Loaded, pid: u32, running: Running) -> Result<(), Error> {
    let dictionary = match running {
        Running::Register => 0,
        Running::Dictionary(address) => address,
    };
    let processes = &loaded.probes.maps.routine_processes;
    // `struct routine_process`: the thread of the loop is found by the programs.
    let value = [dictionary.to_ne_bytes(), [0; 8]].concat();
    let updated = processes.update(&pid.to_ne_bytes(), &value, MapFlags::ANY);
    updated.map_err(|e| Error::bpf("telling whose tasks are known", e))?;
    loaded.probes.variables_mut().routine_processes_told += 1;
    Ok(())
}

/// How often the breakpoints of tasks may be hit in a second, all together.
pub fn limit_hits(loaded: &mut Loaded, per_second: u32) {
    loaded.probes.variables_mut().task_hit_limit = (per_second / 10).max(1);
}

/// How often they were hit, and since when they are off because that was too often, CLOCK_MONOTONIC ns.
pub fn hits(loaded: &Loaded) -> (u64, Option<u64>) {
    let hits = &loaded.probes.variables().task_hits;
    (hits.calls, Some(hits.off_ns).filter(|&off_ns| off_ns != 0))
}

/// The number that a task has in events (`routine_of` in ../functions): its address tells nobody where things are in memory.
pub fn number_of(loaded: &Loaded, address: u64) -> u64 {
    (address >> 3).wrapping_add(loaded.probes.task_secret)
}

/// What did not answer yet, as it is now; without what gave to others what it received.
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
            let was_made = entry.was_made != 0;
            let open = Open { pid: entry.tgid, address, routine: entry.routine, since_ns: entry.since, was_made };
            (address != 0 && entry.gives == 0).then_some(open)
        })
    })
}

/// Goroutines that made one ready which has a message, and never received themselves; `since_ns` of each: when it last did so.
pub fn wakers(loaded: &Loaded) -> impl Iterator<Item = Open> {
    loaded.probes.variables().go_wakers.iter().filter_map(|entry| {
        // SAFETY: the reference is live; programs write this word after the rest of the entry.
        let address = unsafe { std::ptr::read_volatile(&raw const entry.address) };
        let was_made = false;
        let waker = Open { pid: entry.tgid, address, routine: entry.routine, since_ns: entry.since, was_made };
        (address != 0).then_some(waker)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a place is, is written down twice: here and in the C.
    #[test]
    fn a_cookie_says_what_the_program_reads() {
        let c = include_str!("routines.bpf.c");
        let names = ["RUNS", "WOKEN", "ASKS", "GO_READY", "GO_MADE"];
        let cookies = [cookie::RUNS, cookie::WOKEN, cookie::ASKS, cookie::GO_READY, cookie::GO_MADE];
        for (name, cookie) in names.into_iter().zip(cookies) {
            assert!(c.contains(&format!("#define COOKIE_{name} {cookie}\n")), "{name}");
        }
    }
}
