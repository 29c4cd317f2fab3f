//! The running host: /proc, /sys and system calls.
//!
//! A thread is looked up by its start right before it is read or set, so that another one of its id is not touched; between the
//! look and the call lies a system call's time. Files are only those under /proc/sys, /proc/irq and /sys.

mod device;
mod namespace;
mod thread;

use std::fs;
use std::io::{self, Write};

use nix::unistd::{AccessFlags, access, geteuid};
use tailsight_host::Stat;
use tailsight_host::cgroup::Groups;

use crate::{Attribute, Error, Place, System, Task};

/// The running host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live;

/// Of /proc/PID/stat: the kernel lets nobody change the thread's cores (PF_NO_SETAFFINITY).
const BOUND: u64 = 0x0400_0000;

impl System for Live {
    fn boot_id(&self) -> String {
        fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    }

    fn ticks(&self) -> u64 {
        let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
            .map_or(0.0, |t| t.tv_sec() as f64 + t.tv_nsec() as f64 / 1e9);
        // SAFETY: sysconf only reads a constant of the system.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        (time * per_second.max(1) as f64) as u64
    }

    fn processes(&self) -> Vec<u32> {
        numbers("/proc")
    }

    fn threads(&self, pid: u32) -> Vec<u32> {
        numbers(&format!("/proc/{pid}/task"))
    }

    fn task(&self, pid: u32, thread: u32) -> Option<Task> {
        Stat::of_thread(pid, thread).filter(|stat| !stat.is_zombie()).and_then(|stat| task(&stat))
    }

    fn cgroups(&self, pid: u32) -> Option<Groups> {
        fs::read(format!("/proc/{pid}/cgroup")).ok().map(Groups::parse)
    }

    fn netns(&self, pid: Option<u32>) -> Option<u64> {
        namespace::inode(&pid.map_or("/proc/self/ns/net".into(), |pid| format!("/proc/{pid}/ns/net")))
    }

    fn names(&self, folder: &str, netns: Option<u64>) -> Vec<String> {
        let folder = folder.to_owned();
        let list = move || {
            let entries = fs::read_dir(folder)?.flatten();
            let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
            names.sort_unstable();
            Ok(names)
        };
        namespace::within(netns, list).unwrap_or_default()
    }

    fn read(&self, place: &Place) -> Result<Option<String>, Error> {
        let read_value = match place {
            Place::Thread { attribute, pid, thread, .. } => match self.is(place) {
                true => thread::read(*attribute, *pid, *thread),
                false => return Ok(None),
            },
            Place::File { path, netns } => {
                let path = checked(path)?;
                namespace::within(*netns, move || fs::read_to_string(path)).map(|text| shown(&text))
            }
            Place::Device { device, setting, netns } => {
                let (device, setting) = (device.clone(), *setting);
                namespace::within(*netns, move || device::read(&device, setting))
            }
        };
        match read_value {
            Ok(value) => Ok(Some(value)),
            Err(e) if is_gone(&e) => Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Err(Error::Unsupported { what: format!("{place}: the driver does not have this setting") })
            }
            Err(source) => Err(Error::Read { place: place.to_string(), source }),
        }
    }

    fn write(&mut self, place: &Place, value: &str) -> Result<(), Error> {
        let done = match place {
            Place::Thread { attribute, pid, thread, .. } => match self.is(place) {
                true => thread::write(*attribute, *pid, *thread, value),
                false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            },
            Place::File { path, netns } => {
                let (path, value) = (checked(path)?, value.to_owned());
                // Nothing is created and nothing is truncated: the kernel takes what is written as the new value.
                namespace::within(*netns, move || {
                    fs::OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
                })
            }
            Place::Device { device, setting, netns } => {
                let (device, setting, value) = (device.clone(), *setting, value.to_owned());
                namespace::within(*netns, move || device::write(&device, setting, &value))
            }
        };
        done.map_err(|source| Error::Write { place: place.to_string(), value: value.to_owned(), source })
    }

    fn may_write(&self, place: &Place) -> bool {
        if geteuid().is_root() {
            return true;
        }
        match place {
            // A user's own threads, as far as no more than their cores.
            Place::Thread { attribute: Attribute::Cores | Attribute::RunState, pid, .. } => {
                use std::os::unix::fs::MetadataExt;
                fs::metadata(format!("/proc/{pid}")).is_ok_and(|m| m.uid() == geteuid().as_raw())
            }
            Place::File { path, netns } => {
                let here = netns.is_none() || *netns == self.netns(None);
                here && access(path.as_str(), AccessFlags::W_OK).is_ok()
            }
            _ => false,
        }
    }
}

impl Live {
    /// Whether the thread of a place is still that one.
    fn is(&self, place: &Place) -> bool {
        let Place::Thread { pid, thread, started, .. } = place else { return false };
        self.task(*pid, *thread).is_some_and(|t| t.started == *started)
    }
}

/// A thread as fixes know it, while it exists.
fn task(stat: &Stat) -> Option<Task> {
    let bound = stat.field::<u64>(9)? & BOUND != 0;
    Some(Task { started: stat.started()?, comm: stat.comm().to_owned(), bound })
}

fn numbers(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut ids: Vec<u32> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

/// A path that fixes may read and write.
fn checked(path: &str) -> Result<String, Error> {
    let inside = ["/proc/sys/", "/proc/irq/", "/sys/"].iter().any(|root| path.starts_with(root));
    if inside && !path.split('/').any(|part| part == "..") && !path.contains('\0') {
        Ok(path.to_owned())
    } else {
        Err(Error::Outside { path: path.to_owned() })
    }
}

/// A file's value: of `always [madvise] never` the word in brackets.
fn shown(text: &str) -> String {
    let text = text.trim();
    let choice = text.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']'));
    choice.map_or_else(|| text.split_whitespace().collect::<Vec<_>>().join(" "), str::to_owned)
}

/// Whether an error says that what it was about is no longer there.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::ENODEV | libc::ENXIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_bound_by_the_kernel_is_known() {
        let line = |flags: u64| format!("42 (a) b (c)) S 7 42 42 0 -1 {flags} 100 0 0 0 1 2 0 0 20 0 1 0 8812 0 0");
        let task_with = |flags| task(&Stat::parse(line(flags)).unwrap()).unwrap();
        assert_eq!(task_with(69_238_880), Task { started: 8812, comm: "a) b (c)".into(), bound: true });
        assert!(!task_with(0).bound && task(&Stat::parse("42 (a) S 1").unwrap()).is_none());
    }

    #[test]
    fn only_the_kernels_files_are_touched() {
        assert!(checked("/proc/sys/vm/swappiness").is_ok() && checked("/sys/kernel/mm/ksm/run").is_ok());
        for path in
            ["/etc/passwd", "/proc/1/oom_score_adj", "/sys/../etc/passwd", "/proc/sys", "proc/sys/a", "/sys/a\0b"]
        {
            assert!(matches!(checked(path), Err(Error::Outside { .. })), "{path}");
        }
    }

    #[test]
    fn values_of_files() {
        assert_eq!(shown("always defer [madvise] never\n"), "madvise");
        assert_eq!(shown("4096\t87380\t6291456\n"), "4096 87380 6291456");
        assert_eq!(shown(""), "");
    }

    /// A thread that has another's id is not it.
    #[test]
    fn another_start_is_another_thread() {
        let pid = std::process::id();
        let task = Live.task(pid, pid).expect("this process");
        let place = |started| Place::Thread {
            attribute: Attribute::Cores,
            pid,
            process_started: started,
            thread: pid,
            started,
            comm: String::new(),
        };
        assert!(Live.read(&place(task.started)).unwrap().is_some());
        assert_eq!(Live.read(&place(task.started + 1)).unwrap(), None);
        assert!(Live.write(&place(task.started + 1), "0").is_err());
    }
}
