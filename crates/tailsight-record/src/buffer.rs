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

/// The last events of a core, as a buffer that overwrites its oldest ones holds them.
#[derive(Debug, Default)]
pub struct Latest {
    /// In the order in which they were written.
    pub events: Vec<Event>,
    /// Whether earlier ones of the time that was asked for were overwritten, or were taken before.
    pub is_cut: bool,
}

impl Buffers {
    /// Copies the events of a core since `since_ns`, CLOCK_MONOTONIC. Nothing may write meanwhile: the programs do not record. Those that were
    /// taken before (`tail`) are not taken again.
    pub fn latest(&self, cpu: u32, head: &head, since_ns: u64) -> Latest {
        // SAFETY: `head` is shared with the kernel; a plain 64-bit word.
        let written = unsafe { std::ptr::read_volatile(&raw const head.n) };
        // SAFETY: a slot of a live mapping; nothing writes to it now.
        let read = |at| unsafe { std::ptr::read_volatile(self.slot(cpu, at)) };
        latest_of(read, self.slots, head.tail, written, since_ns)
    }
}

/// The last events of a buffer of so many slots into which `written` were written, `taken` of them were taken before. Pure.
fn latest_of(read: impl Fn(u64) -> Event, slots: u64, taken: u64, written: u64, since_ns: u64) -> Latest {
    let oldest = taken.max(written.saturating_sub(slots));
    let shift = slots.trailing_zeros();
    let mut events = Vec::new();
    let mut is_cut = oldest > 0;
    for at in (oldest..written).rev() {
        let mut event = read(at);
        // One that was begun and never finished holds what was there before.
        if event.generation != (((at >> shift) + 1) & 0xff) as u8 {
            continue;
        }
        if event.ts < since_ns {
            is_cut = false;
            break;
        }
        event.generation = 0;
        events.push(event);
    }
    events.reverse();
    Latest { events, is_cut }
}

/// What a core has written so far counts as taken.
pub fn take_everything(head: &mut head) {
    head.tail = head.n;
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

    /// What a core writes, as the programs do: into the slot of its number, with the lap's generation.
    fn ring(slots: u64, written: u64) -> Vec<Event> {
        let mut ring = vec![Event::default(); slots as usize];
        for at in 0..written {
            let generation = (((at >> slots.trailing_zeros()) + 1) & 0xff) as u8;
            ring[(at & (slots - 1)) as usize] = Event { ts: 1_000 + at, generation, ..Event::default() };
        }
        ring
    }

    #[test]
    fn the_last_events_are_those_that_were_not_overwritten_nor_taken() {
        for slots in [1u64, 4, 64] {
            for written in (0..3 * slots + 2).chain([300 * slots + 1, 257 * slots]) {
                let ring = ring(slots, written);
                for taken in [0, written / 2, written.saturating_sub(1), written] {
                    for since_ns in [0, 1_000 + written / 3, 1_000 + written.saturating_sub(2), u64::MAX] {
                        let read = |at: u64| ring[(at & (slots - 1)) as usize];
                        let latest = latest_of(read, slots, taken, written, since_ns);
                        let held = (taken.max(written.saturating_sub(slots))..written).map(|at| 1_000 + at);
                        let expected: Vec<u64> = held.filter(|ts| *ts >= since_ns).collect();
                        assert_eq!(latest.events.iter().map(|event| event.ts).collect::<Vec<_>>(), expected);
                        // Earlier ones of the time that was asked for are missing where the first that is there is not older.
                        let oldest = taken.max(written.saturating_sub(slots));
                        let reaches_back = oldest == 0 || (oldest < written && 1_000 + oldest < since_ns);
                        assert_eq!(latest.is_cut, !reaches_back, "{slots} {written} {taken} {since_ns}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_event_that_was_begun_and_not_finished_is_left_out() {
        let mut ring = ring(8, 20);
        // The writer of 17 has written the time, and the lap before is still in the header.
        ring[1].generation -= 1;
        let latest = latest_of(|at| ring[(at & 7) as usize], 8, 0, 20, 0);
        assert_eq!(latest.events.len(), 7);
        assert!(latest.events.iter().all(|event| event.ts != 1_017));
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
