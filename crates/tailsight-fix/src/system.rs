//! The host as fixes see it. [`crate::Live`] is the running one; tests have one in memory.

use tailsight_host::cgroup::Groups;

use crate::{Error, Place};

/// A thread, told from others that had its id before or have it later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// When it started, clock ticks after the boot.
    pub started: u64,
    /// Its name.
    pub comm: String,
    /// Whether the kernel lets nobody change its cores (kernel threads of one core).
    pub bound: bool,
}

/// What a plan looks at and a fix writes.
pub trait System {
    /// The kernel's id of this boot.
    fn boot_id(&self) -> String;
    /// The time, clock ticks after the boot, as threads' starts are given.
    fn ticks(&self) -> u64;
    /// Every process.
    fn processes(&self) -> Vec<u32>;
    /// The threads of a process, ascending; none when it has ended.
    fn threads(&self, pid: u32) -> Vec<u32>;
    /// A thread of a process, unless it has ended.
    fn task(&self, pid: u32, thread: u32) -> Option<Task>;
    /// The control groups of a process.
    fn cgroups(&self, pid: u32) -> Option<Groups>;
    /// The inode of a process's network namespace, or of this one's.
    fn netns(&self, pid: Option<u32>) -> Option<u64>;
    /// The sorted names in a folder; empty when there is none.
    fn names(&self, folder: &str, netns: Option<u64>) -> Vec<String>;
    /// The value at a place; `None` when the place is no longer there (the thread ended, the device was removed).
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Unsupported`].
    fn read(&self, place: &Place) -> Result<Option<String>, Error>;
    /// Sets it.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::Outside`].
    fn write(&mut self, place: &Place, value: &str) -> Result<(), Error>;
    /// Whether this process has the rights to; a guess for what only the kernel can tell.
    fn may_write(&self, place: &Place) -> bool;
}
