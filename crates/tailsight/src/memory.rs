//! Memory of an analysis: a few tables of tens of MiB, filled once, and many small things.

use std::alloc::{GlobalAlloc, Layout, System};

/// The allocator of the standard library, which asks the kernel for huge pages for large tables: a page of 4 KiB at a time, to get them takes
/// a tenth of a diagnosis. Where huge pages are off, nothing changes.
pub struct Allocator;

/// Tables of at least this size are mapped one by one ([`reuse_memory`]), so that the advice about one is about nothing else.
const LARGE: usize = 4 << 20;

/// Lets the allocator keep what is freed, and use it again for whichever thread asks. By default it gives each decoded batch back to the
/// kernel, which then clears the same pages again for the next one: a tenth of the time of a diagnosis. Large tables still go back, and grow
/// without being copied.
pub fn reuse_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt changes parameters of the allocator under its own lock; these may be set at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE as libc::c_int);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 << 20);
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Asks for huge pages for the pages that a table is on. All of them, so that what is mapped stays one mapping, which can grow in its place.
fn advise(table: *mut u8, size: usize) {
    const PAGE: usize = 4096;
    let begin = table as usize / PAGE * PAGE;
    let pages = (table as usize + size).next_multiple_of(PAGE) - begin;
    if !table.is_null() {
        // SAFETY: these pages are mapped, for the table is on them. The advice changes nothing that the program sees, so a failure (no
        // huge pages, other pages than of 4 KiB) need not be known.
        unsafe { libc::madvise(begin as *mut libc::c_void, pages, libc::MADV_HUGEPAGE) };
    }
}

// SAFETY: every block comes from `System` and goes back to it with the layout that it has.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        let table = unsafe { System.alloc(layout) };
        if layout.size() >= LARGE {
            advise(table, layout.size());
        }
        table
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let table = unsafe { System.alloc_zeroed(layout) };
        if layout.size() >= LARGE {
            advise(table, layout.size());
        }
        table
    }

    unsafe fn realloc(&self, table: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let grown = unsafe { System.realloc(table, layout, size) };
        // What was large keeps the advice as it grows.
        if size >= LARGE && layout.size() < LARGE {
            advise(grown, size);
        }
        grown
    }

    unsafe fn dealloc(&self, table: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(table, layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the kernel was asked for huge pages for the memory at an address.
    fn is_advised(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("this process's mappings");
        let mut here = false;
        for line in maps.lines() {
            if let Some(flags) = line.strip_prefix("VmFlags:") {
                if here {
                    return flags.split_whitespace().any(|flag| flag == "hg");
                }
            } else if let Some((from, rest)) = line.split_once('-')
                && let (Ok(from), Some(to)) = (usize::from_str_radix(from, 16), rest.split(' ').next())
                && let Ok(to) = usize::from_str_radix(to, 16)
            {
                here = (from..to).contains(&address);
            }
        }
        false
    }

    /// The address in the middle of a table.
    fn middle(table: &[u64]) -> usize {
        table.as_ptr().wrapping_add(table.len() / 2) as usize
    }

    #[test]
    fn large_tables_are_asked_to_have_huge_pages_however_they_came_to_be() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        let mut grown: Vec<u64> = Vec::with_capacity(1000);
        assert!(!is_advised(grown.as_ptr() as usize));
        grown.resize(LARGE / 8, 1);
        grown.resize(3 * LARGE / 8, 2);
        assert!(is_advised(middle(&grown)), "grown");
        assert!(grown[..LARGE / 8].iter().all(|n| *n == 1) && grown[LARGE / 8..].iter().all(|n| *n == 2));
        assert!(is_advised(middle(&vec![0; LARGE / 8])), "zeroed");
        assert!(is_advised(middle(&vec![7; LARGE / 8])), "filled");
    }
}
