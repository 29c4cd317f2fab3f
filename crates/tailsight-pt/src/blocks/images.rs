//! What libipt reads code from: an image for each address space and mode of the processor, whose files one cache a mode keeps mapped, and
//! with them libipt's cache of their branches, when control flow goes to another file.
//!
//! One cache for all modes would be wrong. libipt 2.1 keeps the branches of a file by their place in it, and does not compare the mode that it
//! found them in with the one that the processor is in: after one damaged packet, which said 16 bits, the thread that had decoded it decoded
//! undamaged traces wrongly.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null};

use libipt_sys as sys;

/// Virtual memory for files with code, and four times of it for the cache of their branches: only what is used of it is in memory.
const MOST_MAPPED: u64 = 1 << 44;

/// How the processor reads instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The trace did not say yet.
    Unknown,
    /// As 16-bit code.
    Bits16,
    /// As 32-bit code.
    Bits32,
    /// As 64-bit code.
    Bits64,
}

impl Mode {
    /// As many as there are.
    pub const COUNT: usize = 4;

    /// What libipt calls it.
    pub fn of(mode: sys::pt_exec_mode) -> Mode {
        match mode {
            sys::pt_exec_mode_ptem_16bit => Mode::Bits16,
            sys::pt_exec_mode_ptem_32bit => Mode::Bits32,
            sys::pt_exec_mode_ptem_64bit => Mode::Bits64,
            _ => Mode::Unknown,
        }
    }
}

/// Images and the caches of their files; they live as long as this.
#[derive(Default)]
pub struct Images {
    /// By mode.
    caches: [Option<NonNull<sys::pt_image_section_cache>>; Mode::COUNT],
    all: Vec<NonNull<sys::pt_image>>,
}

impl Images {
    /// An image of files for a mode: of each its path, where in it the code begins, its bytes, and its address in memory. What a file does
    /// not have is missing there, and said when it runs. `None`: there is no memory for it.
    pub fn image<'f>(
        &mut self,
        mode: Mode,
        files: impl Iterator<Item = (&'f Path, u64, u64, u64)>,
    ) -> Option<NonNull<sys::pt_image>> {
        let cache = &mut self.caches[mode as usize];
        if cache.is_none() {
            *cache = new_cache();
        }
        let cache = (*cache)?;
        // SAFETY: an image needs no name.
        let image = NonNull::new(unsafe { sys::pt_image_alloc(null()) })?;
        self.all.push(image);
        for (path, at, len, start) in files {
            let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { continue };
            add(image, cache, &path, (at, len, start));
        }
        Some(image)
    }
}

fn new_cache() -> Option<NonNull<sys::pt_image_section_cache>> {
    // SAFETY: a cache needs no name.
    let cache = NonNull::new(unsafe { sys::pt_iscache_alloc(null()) })?;
    // SAFETY: the cache was made above. A refusal costs time only.
    unsafe { sys::pt_iscache_set_limit(cache.as_ptr(), MOST_MAPPED) };
    Some(cache)
}

fn add(
    image: NonNull<sys::pt_image>,
    cache: NonNull<sys::pt_image_section_cache>,
    path: &CStr,
    (at, len, start): (u64, u64, u64),
) {
    // SAFETY: the cache lives, and copies the path.
    let number = unsafe { sys::pt_iscache_add_file(cache.as_ptr(), path.as_ptr(), at, len, start) };
    if number >= 0 {
        // SAFETY: both live, the cache longer than the image; no address space is named.
        unsafe { sys::pt_image_add_cached(image.as_ptr(), cache.as_ptr(), number, null()) };
    } else {
        // SAFETY: the image lives, and copies the path; no address space is named.
        unsafe { sys::pt_image_add_file(image.as_ptr(), path.as_ptr(), at, len, null(), start) };
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        for image in &self.all {
            // SAFETY: each is here once, and no decoder has it: a decoder lives as long as `decode::piece` runs, which borrows these.
            unsafe { sys::pt_image_free(image.as_ptr()) }
        }
        for cache in self.caches.into_iter().flatten() {
            // SAFETY: the images that used it are gone.
            unsafe { sys::pt_iscache_free(cache.as_ptr()) }
        }
    }
}
