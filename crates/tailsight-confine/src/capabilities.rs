//! Capabilities (capabilities(7)): names and numbers, and giving up all but some.
//!
//! Two system calls and a loop of prctl(2); a crate would not make it shorter.

use std::io;

/// A capability: its name and its number.
pub type Capability = (&'static str, u32);

/// To read and write any file.
pub const DAC_OVERRIDE: Capability = ("CAP_DAC_OVERRIDE", 1);
/// To read any file.
pub const DAC_READ_SEARCH: Capability = ("CAP_DAC_READ_SEARCH", 2);
/// To signal processes of any user.
pub const KILL: Capability = ("CAP_KILL", 5);
/// To set a network device's options.
pub const NET_ADMIN: Capability = ("CAP_NET_ADMIN", 12);
/// To look into processes of any user.
pub const SYS_PTRACE: Capability = ("CAP_SYS_PTRACE", 19);
/// To administer the machine.
pub const SYS_ADMIN: Capability = ("CAP_SYS_ADMIN", 21);
/// To set priorities and cores.
pub const SYS_NICE: Capability = ("CAP_SYS_NICE", 23);
/// To see addresses of the kernel.
pub const SYSLOG: Capability = ("CAP_SYSLOG", 34);
/// To observe with BPF and perf events.
pub const PERFMON: Capability = ("CAP_PERFMON", 38);
/// To load BPF programs.
pub const BPF: Capability = ("CAP_BPF", 39);
/// To open the files that a process has mapped.
pub const CHECKPOINT_RESTORE: Capability = ("CAP_CHECKPOINT_RESTORE", 40);

/// The kernel's `__user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// One of the two `__user_cap_data_struct` of version 3.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

fn permitted() -> io::Result<u64> {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: the structures of version 3, for the calling thread.
    let rc = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from(data[0].permitted) | u64::from(data[1].permitted) << 32)
}

fn set(bits: u64) -> io::Result<()> {
    let mut header = Header { version: VERSION, pid: 0 };
    let half = |bits: u64| Data { effective: bits as u32, permitted: bits as u32, inheritable: 0 };
    let data = [half(bits), half(bits >> 32)];
    // SAFETY: the structures of version 3, for the calling thread.
    let rc = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Drops every capability of this thread except those in `list` that it has. Threads that it starts later have no more; a
/// recording has no other threads. Returns the names of what is left.
///
/// # Errors
/// The kernel's.
pub fn keep_only(list: &[Capability]) -> io::Result<Vec<String>> {
    let had = permitted()?;
    let kept = list.iter().fold(0, |bits, (_, number)| bits | 1 << number) & had;
    // So that a program which is started cannot regain them. This needs a capability itself; without it there is nothing to
    // drop that an unprivileged user could use.
    for number in 0..64 {
        if kept >> number & 1 == 0 {
            // SAFETY: no pointers. Numbers that the kernel does not know are refused.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number as libc::c_ulong, 0, 0, 0) };
        }
    }
    // SAFETY: no pointers. Fails on kernels without ambient capabilities, which have none to clear.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong, 0, 0, 0) };
    set(kept)?;
    Ok(list.iter().filter(|(_, number)| kept >> number & 1 == 1).map(|(name, _)| (*name).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own: capabilities are a thread's.
    #[test]
    fn a_thread_keeps_what_is_named_and_what_it_had() {
        let had = permitted().unwrap();
        let (more, less) = ([SYS_PTRACE, SYS_NICE, BPF], [SYS_PTRACE]);
        let (kept, now, again) = std::thread::spawn(move || {
            let kept = keep_only(&more).unwrap();
            let fewer = keep_only(&less).unwrap();
            (kept, permitted().unwrap(), (fewer, keep_only(&more).unwrap()))
        })
        .join()
        .unwrap();
        let names = |list: &[Capability]| -> Vec<String> {
            list.iter().filter(|(_, number)| had >> number & 1 == 1).map(|(name, _)| (*name).to_owned()).collect()
        };
        assert_eq!(kept, names(&more));
        assert_eq!(again.0, names(&less));
        // What was given up does not come back.
        assert_eq!(again.1, again.0);
        assert_eq!(now.count_ones() as usize, again.0.len());
        assert_eq!(permitted().unwrap(), had, "other threads keep theirs");
    }
}
