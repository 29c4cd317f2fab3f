//! Threads of the synthetic server that disturb its workers from another core. In: options. Out: truth log entries.

use std::sync::{Arc, Mutex};

use super::{Disturb, ServeArgs, spawn};
use crate::clock::{now_ns, sleep_until};
use crate::schedule::Schedule;
use crate::truth::{TruthLog, kind};
use crate::{Error, Result};
use tailsight_testbed::process::pin_thread;

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and its registration (`include/uapi/linux/membarrier.h`).
const MEMBARRIER: libc::c_long = 8;
const MEMBARRIER_REGISTER: libc::c_long = 16;

/// Starts the threads that the options ask for.
pub(super) fn start(args: &ServeArgs, lock: &Arc<Mutex<u64>>, truth: Option<&Arc<TruthLog>>) -> Result<()> {
    let cpu = args.inside_cpu;
    if let Some(schedule) = args.hold {
        let (lock, truth) = (Arc::clone(lock), truth.cloned());
        spawn("lab-holder", move || {
            pin(cpu);
            hold(&lock, schedule, truth.as_deref());
        })?;
    }
    if let Some(what) = args.disturb {
        if what == Disturb::Membarrier {
            membarrier(MEMBARRIER_REGISTER)?;
        }
        let (schedule, truth) = (args.disturb_schedule, truth.cloned());
        let name = if what == Disturb::Tlb { "lab-tlb" } else { "lab-membarrier" };
        spawn(name, move || {
            pin(cpu);
            disturb(what, schedule, truth.as_deref());
        })?;
    }
    Ok(())
}

/// Pins the thread; without, it runs on any core.
pub(super) fn pin(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        let _ = pin_thread(cpu);
    }
}

/// Holds the mutex in bursts, asleep: a thread that waits for it waits for nothing else.
fn hold(lock: &Mutex<u64>, schedule: Schedule, truth: Option<&TruthLog>) {
    loop {
        let (_, end) = schedule.wait();
        let mut guard = lock.lock().unwrap_or_else(|p| p.into_inner());
        let place = truth.and_then(|truth| truth.begin(kind::HELD, now_ns()));
        sleep_until(end);
        *guard += 1;
        let released = now_ns();
        drop(guard);
        if let Some(truth) = truth {
            truth.end(place, released);
        }
    }
}

/// Interrupts the other cores of this process in bursts.
fn disturb(what: Disturb, schedule: Schedule, truth: Option<&TruthLog>) {
    let page = page();
    loop {
        let (begin, end) = schedule.wait();
        let place = truth.and_then(|truth| truth.begin(kind::STORM, begin));
        while now_ns() < end {
            match what {
                Disturb::Tlb => protect_and_allow(page),
                // Registered above: the command cannot fail from here on.
                Disturb::Membarrier => drop(membarrier(MEMBARRIER)),
            }
        }
        if let Some(truth) = truth {
            truth.end(place, now_ns());
        }
    }
}

/// A page that is there.
fn page() -> *mut libc::c_void {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new private mapping of a page, never unmapped, written to by this thread only.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        if page != libc::MAP_FAILED {
            std::ptr::write_volatile(page.cast::<u8>(), 1);
        }
        page
    }
}

/// Takes the right to write to a page away and gives it back: every core that runs this process must forget the page.
fn protect_and_allow(page: *mut libc::c_void) {
    // SAFETY: the mapping of `page`, which nobody else uses; a failed mapping makes the calls fail.
    unsafe {
        libc::mprotect(page, 4096, libc::PROT_READ);
        if libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_WRITE) == 0 {
            std::ptr::write_volatile(page.cast::<u8>(), 1);
        }
    }
}

/// The system call.
fn membarrier(command: libc::c_long) -> Result<()> {
    // SAFETY: the call takes no pointers.
    if unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } < 0 {
        return Err(Error::io("use membarrier", std::io::Error::last_os_error()));
    }
    Ok(())
}
