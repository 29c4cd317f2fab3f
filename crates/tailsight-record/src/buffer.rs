//! The per-core event buffers, seen from user space: memory-mapped, read without a system call.

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use tailsight_trace::Event;

use crate::error::Error;
use crate::skel::types::head;

/// The mapped buffers of all cores.
pub struct Buffers {
    base: NonNull<libc::c_void>,
    bytes: usize,
    /// Events a core's buffer holds: a power of two.
    pub slots: u64,
    /// Cores.
    pub cpus: u32,
}

// SAFETY: the mapping is read through raw pointers only; it is not bound to the thread that made it.
unsafe impl Send for Buffers {}

/// How many events a core may hold for a budget of `bytes` over `cpus` cores: a power of two, at least 4,096.
pub fn slots_for(bytes: u64, cpus: u32) -> u64 {
    let fit = bytes / u64::from(cpus.max(1)) / size_of::<Event>() as u64;
    let power = if fit == 0 { 1 } else { 1u64 << (63 - fit.leading_zeros()) };
    power.max(4096)
}

impl Buffers {
    /// Maps the event map.
    ///
    /// # Errors
    /// [`Error::Buffers`].
    pub fn map(fd: BorrowedFd<'_>, slots: u64, cpus: u32) -> Result<Buffers, Error> {
        let bytes = (slots * u64::from(cpus)) as usize * size_of::<Event>();
        let fail = |why: String| Error::Buffers { bytes: bytes as u64, why };
        let page = 4096usize.max(
            usize::try_from(nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096))
                .unwrap_or(4096),
        );
        let bytes = bytes.next_multiple_of(page);
        let length = NonZeroUsize::new(bytes).ok_or_else(|| fail("no events".into()))?;
        // SAFETY: a fresh shared mapping of the map's own memory; the kernel keeps it alive until munmap.
        let base = unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, fd, 0) }
            .map_err(|e| fail(e.to_string()))?;
        Ok(Buffers { base, bytes, slots, cpus })
    }

    /// Appends the finished events of a core to `out` and frees their slots. Stops at the first event that is still
    /// being written (its writer was interrupted); the next call takes it.
    pub fn drain(&self, cpu: u32, head: &mut head, out: &mut Vec<Event>) {
        // SAFETY: `head` is shared with the kernel; both fields are plain 64-bit words that only ever change whole.
        let written = unsafe { AtomicU64::from_ptr(&raw mut head.n) }.load(Ordering::Acquire);
        // SAFETY: as above; user space is the only writer of `tail`.
        let tail = unsafe { AtomicU64::from_ptr(&raw mut head.tail) };
        let mut at = tail.load(Ordering::Relaxed);
        let shift = self.slots.trailing_zeros();
        out.reserve((written - at) as usize);
        while at < written {
            let index = u64::from(cpu) * self.slots + (at & (self.slots - 1));
            // SAFETY: index < slots * cpus, inside the mapping; the kernel may be writing, so no reference is formed.
            let slot = unsafe { self.base.as_ptr().cast::<Event>().add(index as usize) };
            let generation = (((at >> shift) + 1) & 0xff) as u8;
            // The header word is the last store of the writer; seen with this lap's generation, the rest is there.
            // SAFETY: an aligned 64-bit word of the slot (offset 8), read atomically because the kernel writes it.
            let word = unsafe { AtomicU64::from_ptr(slot.cast::<u64>().add(1)) }.load(Ordering::Acquire);
            if (word >> 8) as u8 != generation {
                break;
            }
            // SAFETY: the slot is finished and stays so until `tail` passes it.
            let mut event = unsafe { std::ptr::read_volatile(slot) };
            event.generation = 0;
            out.push(event);
            at += 1;
        }
        tail.store(at, Ordering::Release);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, unmapped once.
        let _ = unsafe { munmap(self.base, self.bytes) };
    }
}

/// How many events wait in a core's buffer.
pub fn waiting(head: &head) -> u64 {
    // SAFETY: plain aligned words shared with the kernel.
    let n = unsafe { std::ptr::read_volatile(&head.n) };
    n.saturating_sub(head.tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_a_power_of_two_that_fits_the_budget() {
        assert_eq!(slots_for(256 << 20, 2), 1 << 21);
        assert_eq!(slots_for(1, 64), 4096);
        for mib in [1u64, 3, 100, 5000] {
            let s = slots_for(mib << 20, 2);
            assert!(s.is_power_of_two());
            assert!(s == 4096 || s * 2 * 40 <= mib << 20);
        }
    }
}
