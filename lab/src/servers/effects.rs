//! What a request's flags make a worker do: take the mutex, ask the backend, fsync, fault pages. In: flags. Out: truth log
//! entries.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::ServeArgs;
use super::backend::Behind;
use crate::clock::now_ns;
use crate::truth::{TruthLog, kind};
use crate::wire::flags;
use crate::{Error, Result};

/// Bytes of a page of this architecture's base size.
const PAGE: usize = 4096;
/// Bytes of the sparse file that RECLAIM walks through.
const SPARSE: usize = 4 << 30;

/// Memory and files of one worker.
pub(super) struct Effects {
    lock: Arc<Mutex<u64>>,
    truth: Option<Arc<TruthLog>>,
    behind: Option<Behind>,
    pages: usize,
    /// Anonymous memory of `pages` pages for TOUCH.
    touched: usize,
    /// Anonymous memory of `pages` pages for PROTECT.
    guarded: usize,
    /// The file for FSYNC.
    file: Option<File>,
    /// The mapped sparse file for RECLAIM, and the next page of it.
    sparse: Option<(usize, usize)>,
}

/// Where PROTECT's memory is, for the signal handler: begin and bytes. One worker uses it.
static GUARDED: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

impl Effects {
    /// Maps and opens what the options ask for.
    pub(super) fn new(args: &ServeArgs, lock: Arc<Mutex<u64>>, truth: Option<Arc<TruthLog>>) -> Result<Self> {
        let bytes = args.pages.max(1) * PAGE;
        let guarded = map(bytes, None)?;
        // The first worker's memory: PROTECT is for servers of one worker.
        if GUARDED[0].compare_exchange(0, guarded, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            GUARDED[1].store(bytes, Ordering::SeqCst);
            catch_faults()?;
        }
        let (mut file, mut sparse) = (None, None);
        if let Some(dir) = &args.dir {
            file = Some(open(&dir.join(format!("fsync-{}", std::process::id())), 0)?);
            let hole = open(&dir.join(format!("sparse-{}", std::process::id())), SPARSE as u64)?;
            sparse = Some((map(SPARSE, Some(&hole))?, 0));
        }
        let behind = args.behind.map(Behind::connect).transpose()?;
        Ok(Self { lock, truth, behind, pages: args.pages.max(1), touched: map(bytes, None)?, guarded, file, sparse })
    }

    /// Does what the flags ask for, one after the other.
    pub(super) fn run(&mut self, asked: u8) {
        if asked & flags::LOCK != 0 {
            // A poisoned mutex would be a panic of the holder, which only counts.
            *self.lock.lock().unwrap_or_else(|p| p.into_inner()) += 1;
        }
        if asked & flags::ASK != 0
            && let Some(behind) = &mut self.behind
        {
            behind.ask();
        }
        if asked & flags::FSYNC != 0
            && let Some(file) = &mut self.file
        {
            let _ = file.write_all(&[1; 512]);
            let begin = now_ns();
            let _ = file.sync_all();
            log(&self.truth, kind::FSYNC, begin);
        }
        if asked & flags::TOUCH != 0 {
            let begin = now_ns();
            // SAFETY: our own anonymous memory of that many bytes; nothing else refers to what is in it.
            unsafe { libc::madvise(self.touched as *mut libc::c_void, self.pages * PAGE, libc::MADV_DONTNEED) };
            self.touch(self.touched);
            log(&self.truth, kind::PAGES, begin);
        }
        if asked & flags::PROTECT != 0 {
            let begin = now_ns();
            protect(self.guarded, self.pages * PAGE, libc::PROT_READ);
            self.touch(self.guarded);
            log(&self.truth, kind::PAGES, begin);
        }
        if asked & flags::RECLAIM != 0
            && let Some((address, next)) = &mut self.sparse
        {
            let begin = now_ns();
            for _ in 0..self.pages {
                // SAFETY: inside the mapping of SPARSE bytes; a hole of the file reads as zeros.
                unsafe { std::ptr::read_volatile((*address + *next * PAGE) as *const u8) };
                *next = (*next + 1) % (SPARSE / PAGE);
            }
            log(&self.truth, kind::PAGES, begin);
        }
    }

    /// Writes to each page.
    fn touch(&self, address: usize) {
        for page in 0..self.pages {
            // SAFETY: `address` is our own mapping of that many pages. Read-only pages become writable in the handler.
            unsafe { std::ptr::write_volatile((address + page * PAGE) as *mut u8, 1) };
        }
    }
}

/// Logs what began at `begin` and ended now.
fn log(truth: &Option<Arc<TruthLog>>, kind: u64, begin: u64) {
    if let Some(truth) = truth {
        truth.add(kind, begin, now_ns());
    }
}

/// Opens a new file of `bytes` bytes and unlinks it: it is gone with the process.
fn open(path: &Path, bytes: u64) -> Result<File> {
    let open = || {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        std::fs::remove_file(path)?;
        file.set_len(bytes)?;
        Ok(file)
    };
    open().map_err(|e: std::io::Error| Error::io(format!("make {}", path.display()), e))
}

/// Maps memory: anonymous and private, or of a file and shared, without read-ahead around a fault.
fn map(bytes: usize, file: Option<&File>) -> Result<usize> {
    let (flags, fd) = match file {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: a new mapping at an address of the kernel's choice; it is never unmapped.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    if address == libc::MAP_FAILED {
        return Err(Error::io(format!("map {bytes} bytes"), std::io::Error::last_os_error()));
    }
    // There must be as many faults as pages: no huge pages, no read-ahead.
    let advice = if file.is_some() { libc::MADV_RANDOM } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: the mapping made above. A kernel without the advice takes fewer faults, which the truth log shows.
    unsafe { libc::madvise(address, bytes, advice) };
    Ok(address as usize)
}

/// Changes what may be done with pages of ours.
fn protect(address: usize, bytes: usize, what: libc::c_int) {
    // SAFETY: our own mapping; a failure leaves it as it was, and then there is no fault.
    unsafe { libc::mprotect(address as *mut libc::c_void, bytes, what) };
}

/// Makes a write to a guarded page allow that page, as a garbage collector's write barrier does.
fn catch_faults() -> Result<()> {
    extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel gives a valid siginfo to a SA_SIGINFO handler, and SIGSEGV has an address in it.
        let address = unsafe { (*info).si_addr() } as usize;
        let (begin, bytes) = (GUARDED[0].load(Ordering::Relaxed), GUARDED[1].load(Ordering::Relaxed));
        if (begin..begin + bytes).contains(&address) {
            protect(address & !(PAGE - 1), PAGE, libc::PROT_READ | libc::PROT_WRITE);
        } else {
            // SAFETY: both calls are async-signal-safe; the fault happens again and ends the process as it should.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
    // SAFETY: all zeros is a valid sigaction; its fields are set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: `action` is valid, and the handler calls only async-signal-safe functions.
    if unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()) } < 0 {
        return Err(Error::io("catch SIGSEGV", std::io::Error::last_os_error()));
    }
    Ok(())
}
