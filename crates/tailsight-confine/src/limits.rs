//! What a process may use at most: memory, CPU time, the size of files, and no core dumps.
//!
//! In: the limits. Out: nothing, or the kernel's error. What exceeds memory fails; what exceeds CPU time ends the process.

use std::io;

/// The most that a process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Address space, bytes.
    pub memory_bytes: u64,
    /// CPU time, s.
    pub cpu_s: u64,
    /// A file that it writes, bytes.
    pub file_bytes: u64,
}

impl Limits {
    /// Sets them for this process.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set(self) -> io::Result<()> {
        let limits = [
            (libc::RLIMIT_AS, self.memory_bytes),
            (libc::RLIMIT_CPU, self.cpu_s),
            (libc::RLIMIT_FSIZE, self.file_bytes),
            (libc::RLIMIT_CORE, 0),
        ];
        for (resource, most) in limits {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: the kernel reads the structure.
            if unsafe { libc::setrlimit(resource, &raw const limit) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}
