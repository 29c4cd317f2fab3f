//! What libipt reads code from: an image for each address space, whose files one cache keeps mapped, and with them libipt's cache of
//! their branches, when control flow goes to another file.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null};

use libipt_sys as sys;

/// Virtual memory for files with code, and four times of it for the cache of their branches: only what is used of it is in memory.
const MOST_MAPPED: u64 = 1 << 44;

/// Images and the cache of their files; they live as long as this.
#[derive(Default)]
pub struct Images {
    cache: Option<NonNull<sys::pt_image_section_cache>>,
    all: Vec<NonNull<sys::pt_image>>,
}

impl Images {
    /// An image of files: of each its path, where in it the code begins, its bytes, and its address in memory. What a file does not have
    /// is missing there, and said when it runs. `None`: there is no memory for it.
    pub fn image<'f>(
        &mut self,
        files: impl Iterator<Item = (&'f Path, u64, u64, u64)>,
    ) -> Option<NonNull<sys::pt_image>> {
        if self.cache.is_none() {
            self.cache = new_cache();
        }
        let cache = self.cache?;
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
        if let Some(cache) = self.cache {
            // SAFETY: the images that used it are gone.
            unsafe { sys::pt_iscache_free(cache.as_ptr()) }
        }
    }
}
