//! The per-core event buffers, seen from user space: memory-mapped, read without a system call.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libbpf_rs::{MapHandle, MapType, libbpf_sys};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tailsight_host::Root;
use tailsight_trace::Event;

use crate::error::{Cause, Error};
use crate::object::types::head;

/// Events in one chunk; the same as CHUNK in common.h.
pub const CHUNK_SLOTS: u64 = 1 << 16;
const CHUNK_BYTES: usize = CHUNK_SLOTS as usize * size_of::<Event>();

/// Between two chunks that are given back.
const BETWEEN_CHUNKS: Duration = Duration::from_micros(500);

/// The mapped buffers of all cores: chunks, those of the first core first.
pub struct Buffers {
    chunks: Vec<NonNull<libc::c_void>>,
    maps: Vec<MapHandle>,
    /// Events a core's buffer holds: a power of two, at least a chunk.
    pub slots: u64,
    /// Cores.
    pub cpus: u32,
}

// SAFETY: the mappings are read through raw pointers only; they are not bound to the thread that made them.
unsafe impl Send for Buffers {}

/// How many events a core may hold for a budget of `bytes` over `cpus` cores: a power of two, at least one chunk.
pub fn slots_for(bytes: u64, cpus: u32) -> u64 {
    let fit = bytes / u64::from(cpus.max(1)) / size_of::<Event>() as u64;
    let power = if fit == 0 { 1 } else { 1u64 << (63 - fit.leading_zeros()) };
    power.max(CHUNK_SLOTS)
}

impl Buffers {
    /// Makes and maps the chunks: short system calls, so that other tasks of this core get their turn in between.
    ///
    /// # Errors
    /// [`Error::Buffers`].
    pub fn create(slots: u64, cpus: u32) -> Result<Buffers, Error> {
        let count = (slots / CHUNK_SLOTS) as usize * cpus as usize;
        let bytes = (count as u64).saturating_mul(CHUNK_BYTES as u64);
        let fail = |why: Cause| Error::Buffers { bytes, source: why };
        // Otherwise the kernel would grant chunk after chunk until no memory is left, and then kill a process.
        if let Some(available) = tailsight_host::proc::memory(&Root::host(), "MemAvailable")
            && bytes > available / 2
        {
            let free = available >> 20;
            return Err(fail(format!("that is more than half of the {free} MiB that are free").into()));
        }
        allow_files(count as u64 + 256);
        let mut buffers = Buffers { chunks: Vec::new(), maps: Vec::new(), slots, cpus };
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let length = NonZeroUsize::new(CHUNK_BYTES).ok_or_else(|| fail("no events".into()))?;
        for _ in 0..count {
            let (key, value) = (size_of::<u32>() as u32, size_of::<Event>() as u32);
            let map = MapHandle::create(MapType::Array, Some("ts_chunk"), key, value, CHUNK_SLOTS as u32, &options)
                .map_err(|e| fail(e.into()))?;
            // SAFETY: a fresh shared mapping of the map's own memory; the kernel keeps it alive until munmap.
            let base = unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, map.as_fd(), 0) }
                .map_err(|e| fail(e.into()))?;
            buffers.chunks.push(base);
            buffers.maps.push(map);
        }
        Ok(buffers)
    }

    /// Takes the chunks out, to be given back while other work goes on.
    pub fn take(&mut self) -> Buffers {
        Buffers {
            chunks: std::mem::take(&mut self.chunks),
            maps: std::mem::take(&mut self.maps),
            slots: self.slots,
            cpus: self.cpus,
        }
    }

    /// Gives the chunks back one after another. The kernel frees each in a worker thread of its own choice of core, some 50 us each; all at
    /// once they kept a server from its core for 7 ms.
    pub fn give_back(mut self) {
        for (chunk, map) in std::mem::take(&mut self.chunks).into_iter().zip(std::mem::take(&mut self.maps)) {
            // SAFETY: a mapping made in `create`, unmapped once.
            let _ = unsafe { munmap(chunk, CHUNK_BYTES) };
            drop(map);
            std::thread::sleep(BETWEEN_CHUNKS);
        }
    }

    /// The chunks' map descriptors, in order.
    pub fn fds(&self) -> Vec<i32> {
        self.maps.iter().map(|m| m.as_fd().as_raw_fd()).collect()
    }

    /// Where an event is.
    fn slot(&self, cpu: u32, at: u64) -> *mut Event {
        let index = u64::from(cpu) * self.slots + (at & (self.slots - 1));
        let chunk = self.chunks[(index / CHUNK_SLOTS) as usize];
        // SAFETY: the remainder is below the number of events of a chunk.
        unsafe { chunk.as_ptr().cast::<Event>().add((index % CHUNK_SLOTS) as usize) }
    }

    /// Appends the finished events of a core, at most `most`, to `out` and frees their slots. Stops at the first event
    /// that is still being written (its writer was interrupted); the next call takes it.
    pub fn drain(&self, cpu: u32, head: &mut head, out: &mut Vec<Event>, most: u64) {
        // SAFETY: `head` is shared with the kernel; both fields are plain 64-bit words that only ever change whole.
        let written = unsafe { AtomicU64::from_ptr(&raw mut head.n) }.load(Ordering::Acquire);
        // SAFETY: as above; user space is the only writer of `tail`.
        let tail = unsafe { AtomicU64::from_ptr(&raw mut head.tail) };
        let mut at = tail.load(Ordering::Relaxed);
        let shift = self.slots.trailing_zeros();
        let written = written.min(at.saturating_add(most));
        out.reserve((written - at) as usize);
        while at < written {
            // The kernel may be writing here, so no reference is formed.
            let slot = self.slot(cpu, at);
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
        for &chunk in &self.chunks {
            // SAFETY: a mapping made in `create`, unmapped once.
            let _ = unsafe { munmap(chunk, CHUNK_BYTES) };
        }
    }
}

/// Raises the soft limit of open files to the hard limit. If that is too low, making the first map beyond it fails.
fn allow_files(wanted: u64) {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < wanted
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard);
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

    /// Without the check such a size took all memory of the host, and the kernel killed processes.
    #[test]
    fn more_than_half_of_the_free_memory_is_refused_before_any_is_taken() {
        let Err(error) = Buffers::create(1 << 36, 2) else { panic!("five terabytes") };
        let text = tailsight_units::chain(&error);
        assert!(text.contains("half of") && text.contains("--buffer"), "{text}");
    }

    #[test]
    fn slots_are_a_power_of_two_that_fits_the_budget() {
        assert_eq!(slots_for(256 << 20, 2), 1 << 21);
        assert_eq!(slots_for(1, 64), CHUNK_SLOTS);
        for mib in [1u64, 3, 100, 5000] {
            let s = slots_for(mib << 20, 2);
            assert!(s.is_power_of_two());
            assert!(s == CHUNK_SLOTS || s * 2 * 40 <= mib << 20);
        }
    }
}
