//! Work within another network namespace, in a thread of its own so that nothing else of this process moves there.
//!
//! In: the namespace's inode, as `/proc/PID/ns/net` names it, and what to do. The way in is any process in it, or its name
//! under /run/netns: the process that a fix was planned for may have ended. /sys of the namespace is mounted over /sys within
//! that thread, whose mounts end with it.

use std::fs::{self, File};
use std::io;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

/// The inode of a namespace file.
pub fn inode(path: &str) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    // The link names it also where following it is not allowed.
    let named = || fs::read_link(path).ok()?.to_str()?.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok();
    named().or_else(|| fs::metadata(path).ok().map(|m| m.ino()))
}

/// Does something within a namespace; `None` is this one. Fails with ENODEV when nothing is in that namespace any more.
pub fn within<T: Send>(netns: Option<u64>, what: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some(wanted) = netns.filter(|n| inode("/proc/self/ns/net") != Some(*n)) else { return what() };
    let place = find(wanted).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            setns(&place, CloneFlags::CLONE_NEWNET)?;
            unshare(CloneFlags::CLONE_NEWNS)?;
            // What is mounted here is not to be seen elsewhere.
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
            mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)?;
            what()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn find(wanted: u64) -> Option<File> {
    let processes = super::numbers("/proc").into_iter().map(|pid| format!("/proc/{pid}/ns/net"));
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let named = named.map(|e| e.path().display().to_string());
    let mut paths = processes.chain(named);
    paths.find(|path| inode(path) == Some(wanted)).and_then(|path| File::open(path).ok())
}
