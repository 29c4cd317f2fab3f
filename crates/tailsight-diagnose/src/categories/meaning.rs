//! What a function, a system call or a softirq means: a category, and a finer name.

use crate::cause::Category;

/// A category with its finer name (NSight Table 1 has such: `Paging`, `NIC delay`, `Receive processing`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The category.
    pub category: Category,
    /// The sub-category, e.g. `futex`, `mmap_lock`, `page-fault`.
    pub sub: String,
}
