//! Append-only memory with one writer and any number of readers, allocated and touched before the load. In: records. Out:
//! the records written so far, readable while more are appended; no lock, no allocation, no page fault on the writer's side.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The memory.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Slots that are written and never change again.
    written: AtomicUsize,
    /// Records that had no room.
    refused: AtomicU64,
}

// SAFETY: a slot below `written` is only read, one above it only touched by the one writer (`Writer` is not Clone);
// `written` is stored with Release after the slot and loaded with Acquire before it.
unsafe impl<T: Copy + Send> Sync for Arena<T> {}

impl<T: Copy> Arena<T> {
    /// Room for `capacity` records, every page of it touched.
    pub(crate) fn new(capacity: usize) -> Self {
        let mut slots: Vec<UnsafeCell<MaybeUninit<T>>> = Vec::with_capacity(capacity);
        let bytes = slots.spare_capacity_mut();
        let (start, length) = (bytes.as_mut_ptr().cast::<u8>(), size_of_val(bytes));
        for at in (0..length).step_by(4096) {
            // SAFETY: within the spare capacity, which is ours; volatile, or the write would be left out.
            unsafe { start.add(at).write_volatile(0) };
        }
        // SAFETY: `MaybeUninit` needs no initial value, and the capacity is there.
        unsafe { slots.set_len(capacity) };
        Self { slots: slots.into_boxed_slice(), written: AtomicUsize::new(0), refused: AtomicU64::new(0) }
    }

    /// Appends, or counts that there is no room.
    ///
    /// # Safety
    /// Only one thread may append to an arena.
    #[inline]
    pub(crate) unsafe fn push(&self, record: T) {
        let at = self.written.load(Ordering::Relaxed);
        let Some(slot) = self.slots.get(at) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        // SAFETY: no reader looks at slots from `written` on, and by contract nobody else writes.
        unsafe { (*slot.get()).write(record) };
        self.written.store(at + 1, Ordering::Release);
    }

    /// Whether there is no room.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.written.load(Ordering::Relaxed) == self.slots.len()
    }

    /// What was written so far, from record `from` on.
    pub(crate) fn since(&self, from: usize) -> &[T] {
        let written = self.written.load(Ordering::Acquire);
        let slots = &self.slots[from.min(written)..written];
        // SAFETY: slots below `written` hold values and are not written any more; UnsafeCell and MaybeUninit have the
        // layout of what they hold.
        unsafe { std::slice::from_raw_parts(slots.as_ptr().cast::<T>(), slots.len()) }
    }

    /// How many records are written.
    pub(crate) fn len(&self) -> usize {
        self.written.load(Ordering::Acquire)
    }

    /// Records that had no room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_reader_sees_a_prefix_that_is_whole() {
        let arena = Arc::new(Arena::<[u64; 4]>::new(100_000));
        let writer = {
            let arena = arena.clone();
            std::thread::spawn(move || {
                for i in 0..100_050_u64 {
                    // SAFETY: this thread alone appends.
                    unsafe { arena.push([i; 4]) };
                }
            })
        };
        let mut read = 0;
        while read < 100_000 {
            for record in arena.since(read) {
                assert_eq!(*record, [read as u64; 4]);
                read += 1;
            }
        }
        writer.join().unwrap();
        assert_eq!((arena.len(), arena.refused(), arena.is_full()), (100_000, 50, true));
        assert!(arena.since(usize::MAX).is_empty());
    }
}
