//! What the distributions' static libelf leaves for the program to bring.
//!
//! In: nothing. Out: symbols for the linker. Debian 12's `libelf.a` is complete. From elfutils 0.189 on (Ubuntu 24.04,
//! Debian 13) it calls zstd, which `libbpf-sys` does not link; and elfutils 0.192's (Debian 13) lacks the objects of
//! its own `eu_search_tree_*` and `eu_t*` (sourceware bug 32293). Without this file the binary does not link there.

use std::ffi::{c_int, c_void};

/// elfutils' `search_tree`: the root of a `tsearch(3)` tree. A lock follows it where elfutils was built with its
/// experimental thread safety; only the functions of this file touch a tree, so the lock is neither used nor made.
#[repr(C)]
pub struct SearchTree {
    root: *mut c_void,
}

type Compare = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;

unsafe extern "C" {
    fn tsearch(key: *const c_void, root: *mut *mut c_void, compare: Compare) -> *mut c_void;
    fn tfind(key: *const c_void, root: *const *mut c_void, compare: Compare) -> *mut c_void;
    fn tdelete(key: *const c_void, root: *mut *mut c_void, compare: Compare) -> *mut c_void;
    fn tdestroy(root: *mut c_void, free_node: unsafe extern "C" fn(*mut c_void));
}

/// Makes an empty tree.
///
/// # Safety
/// `tree` points to a `search_tree` of libelf.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eu_search_tree_init(tree: *mut SearchTree) {
    // SAFETY: libelf passes its own tree.
    unsafe { (*tree).root = std::ptr::null_mut() }
}

/// Frees a tree's nodes.
///
/// # Safety
/// `tree` was initialised, and `free_node` frees what its nodes hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eu_search_tree_fini(tree: *mut SearchTree, free_node: unsafe extern "C" fn(*mut c_void)) {
    // SAFETY: the tree was made by the functions of this file.
    unsafe { tdestroy((*tree).root, free_node) }
}

/// `tsearch(3)` on a tree.
///
/// # Safety
/// As `tsearch(3)`; `tree` was initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eu_tsearch(key: *const c_void, tree: *mut SearchTree, compare: Compare) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { tsearch(key, &raw mut (*tree).root, compare) }
}

/// `tfind(3)` on a tree.
///
/// # Safety
/// As `tfind(3)`; `tree` was initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eu_tfind(key: *const c_void, tree: *mut SearchTree, compare: Compare) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { tfind(key, &raw const (*tree).root, compare) }
}

/// `tdelete(3)` on a tree.
///
/// # Safety
/// As `tdelete(3)`; `tree` was initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eu_tdelete(key: *const c_void, tree: *mut SearchTree, compare: Compare) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { tdelete(key, &raw mut (*tree).root, compare) }
}

/// An address that the linker must find.
#[repr(transparent)]
struct Needed(#[allow(dead_code)] *const c_void);
// SAFETY: never read; it is here for its relocation.
unsafe impl Sync for Needed {}

/// The zstd functions that `libelf.a` calls, named here so that zstd-sys' copy is linked wherever it stands on the
/// linker's command line.
#[used]
static ZSTD: [Needed; 5] = [
    Needed(zstd_sys::ZSTD_createCCtx as *const c_void),
    Needed(zstd_sys::ZSTD_compressStream2 as *const c_void),
    Needed(zstd_sys::ZSTD_freeCCtx as *const c_void),
    Needed(zstd_sys::ZSTD_decompress as *const c_void),
    Needed(zstd_sys::ZSTD_isError as *const c_void),
];
