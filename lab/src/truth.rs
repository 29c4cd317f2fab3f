//! The truth log: what a fault did and when, in a file that outlives its writer. In: intervals in CLOCK_MONOTONIC ns, of a
//! kind. Out: the same, in order of their beginning.
//!
//! The file is mapped and shared: an entry costs a few stores, no system call, and is there even when the writer is
//! killed. Layout, 64-bit words of this machine: capacity, entries begun, then begin, end, kind of each. An entry whose
//! end is 0 was under way when the writer ended.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Entries a log has room for.
const CAPACITY: u64 = 100_000;
/// Words before the entries.
const HEAD: usize = 2;
/// Words of an entry.
const ENTRY: usize = 3;
/// Bytes of the file.
const BYTES: usize = (HEAD + CAPACITY as usize * ENTRY) * 8;

/// Kinds of entries.
pub mod kind {
    /// A task used the core (hog, intruder).
    pub const RAN: u64 = 1;
    /// The server was stopped.
    pub const STOPPED: u64 = 2;
    /// Another thread held the mutex.
    pub const HELD: u64 = 3;
    /// The request's `fsync`.
    pub const FSYNC: u64 = 4;
    /// The request's page faults.
    pub const PAGES: u64 = 5;
    /// A connection waited between accept and its worker.
    pub const HANDOFF: u64 = 6;
    /// A storm was on: packets, interrupts, migrations, shoot-downs.
    pub const STORM: u64 = 7;
    /// A packet was lost or delayed; in the upper half the id of a request in it.
    pub const PACKET: u64 = 8;
    /// A packet was passed on at once; in the upper half the id of a request in it.
    pub const PASSED: u64 = 9;

    /// The backend delayed an answer.
    pub const STALLED: u64 = 10;

    /// The kind of a packet with this request that was lost or delayed.
    #[must_use]
    pub const fn packet(id: u32) -> u64 {
        PACKET | (id as u64) << 32
    }

    /// The kind of a packet with this request that was passed on at once.
    #[must_use]
    pub const fn passed(id: u32) -> u64 {
        PASSED | (id as u64) << 32
    }

    /// The kind and the id of the request.
    #[must_use]
    pub const fn parts(kind: u64) -> (u64, u32) {
        (kind & 0xffff_ffff, (kind >> 32) as u32)
    }
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Interval {
    /// Begin, ns.
    pub begin_ns: u64,
    /// End, ns; `u64::MAX` when it was under way at the end.
    pub end_ns: u64,
    /// One of [`kind`].
    pub kind: u64,
}

/// An open log.
#[derive(Debug)]
pub struct TruthLog {
    words: &'static [AtomicU64],
}

impl TruthLog {
    /// Makes an empty log at `path` and opens it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(path: &Path) -> Result<Self> {
        let io = |e| Error::io(format!("create the truth log {}", path.display()), e);
        File::create(path).and_then(|file| file.set_len(BYTES as u64)).map_err(io)?;
        let log = Self::open(path)?;
        log.words[0].store(CAPACITY, Ordering::Release);
        Ok(log)
    }

    /// Opens a log that was created before. Its pages are mapped at once: an entry never faults. It stays mapped until
    /// the process ends, because threads of every kind keep writing to it.
    ///
    /// # Errors
    /// [`Error::Io`], also for a file of another size.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |e| Error::io(format!("open the truth log {}", path.display()), e);
        let file = File::options().read(true).write(true).open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() != BYTES as u64 {
            return Err(io(std::io::Error::other("it is not a truth log of this version")));
        }
        // SAFETY: a new shared mapping of a file of BYTES bytes, nothing is overwritten in this address space.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io(std::io::Error::last_os_error()));
        }
        // SAFETY: the mapping is aligned to a page, BYTES long, never unmapped, and only ever used as atomics.
        let words = unsafe { std::slice::from_raw_parts(address.cast::<AtomicU64>(), BYTES / 8) };
        // Read faults of a shared file map pages read-only; a store to each word's page now makes later ones free.
        for page in words.chunks(512) {
            page[0].fetch_add(0, Ordering::Relaxed);
        }
        Ok(Self { words })
    }

    /// Begins an entry; gives its place for [`TruthLog::end`]. `None` when the log is full.
    pub fn begin(&self, kind: u64, begin_ns: u64) -> Option<usize> {
        let n = self.words[1].fetch_add(1, Ordering::AcqRel);
        let at = (n < CAPACITY).then_some(HEAD + n as usize * ENTRY)?;
        self.words[at + 2].store(kind, Ordering::Release);
        self.words[at].store(begin_ns, Ordering::Release);
        Some(at)
    }

    /// Ends an entry.
    pub fn end(&self, place: Option<usize>, end_ns: u64) {
        if let Some(at) = place {
            self.words[at + 1].store(end_ns, Ordering::Release);
        }
    }

    /// Adds a whole entry.
    pub fn add(&self, kind: u64, begin_ns: u64, end_ns: u64) {
        let place = self.begin(kind, begin_ns);
        self.end(place, end_ns);
    }

    /// All entries, by their begin.
    ///
    /// # Errors
    /// [`Error::Io`] when more was to be written than there was room for: the truth is then not known.
    pub fn intervals(&self) -> Result<Vec<Interval>> {
        let begun = self.words[1].load(Ordering::Acquire);
        if begun > CAPACITY {
            let full = std::io::Error::other(format!("{begun} entries for {CAPACITY} places"));
            return Err(Error::io("read a truth log", full));
        }
        let mut intervals: Vec<Interval> = self.words[HEAD..HEAD + begun as usize * ENTRY]
            .chunks_exact(ENTRY)
            .map(|words| words.iter().map(|w| w.load(Ordering::Acquire)).collect::<Vec<_>>())
            // A writer that was killed between taking the place and filling it leaves zeros.
            .filter(|entry| entry[0] > 0)
            .map(|entry| Interval {
                begin_ns: entry[0],
                end_ns: if entry[1] == 0 { u64::MAX } else { entry[1] },
                kind: entry[2],
            })
            .collect();
        intervals.sort_by_key(|entry| entry.begin_ns);
        Ok(intervals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_two_openings_come_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("truth");
        let reader = TruthLog::create(&path).unwrap();
        assert!(reader.intervals().unwrap().is_empty());
        let writer = TruthLog::open(&path).unwrap();
        writer.add(kind::RAN, 50, 60);
        let open = writer.begin(kind::STOPPED, 10);
        assert_eq!(
            reader.intervals().unwrap(),
            [
                Interval { begin_ns: 10, end_ns: u64::MAX, kind: kind::STOPPED },
                Interval { begin_ns: 50, end_ns: 60, kind: kind::RAN }
            ]
        );
        writer.end(open, 20);
        assert_eq!(reader.intervals().unwrap()[0].end_ns, 20);
    }

    #[test]
    fn a_full_log_is_an_error_and_not_a_short_truth() {
        let dir = tempfile::tempdir().unwrap();
        let log = TruthLog::create(&dir.path().join("truth")).unwrap();
        (0..=CAPACITY).for_each(|n| log.add(kind::RAN, n + 1, n + 2));
        assert!(log.intervals().is_err());
    }

    #[test]
    fn other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("truth");
        std::fs::write(&path, b"short").unwrap();
        assert!(TruthLog::open(&path).is_err());
    }
}
