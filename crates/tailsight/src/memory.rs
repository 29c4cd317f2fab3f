//! Memory of an analysis: a few tables of tens of MiB, filled once, and many small things.

/// Tables of at least this size are mapped one by one: they grow without being copied, and go back to the kernel.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 4 << 20;

/// Lets the allocator keep what is freed, and use it again for whichever thread asks. By default it gives each decoded batch back to the
/// kernel, which then clears the same pages again for the next one: a tenth of the time of a diagnosis.
pub fn reuse_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt changes parameters of the allocator under its own lock; these may be set at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 << 20);
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
