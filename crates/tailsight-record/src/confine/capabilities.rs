//! Capabilities (capabilities(7)): which ones a recording needs from when on, and giving up the others.
//!
//! Two system calls and a loop of prctl(2); a crate would not make it shorter.

use std::io;

use super::{Needs, Stage};

/// A capability: its name and its number.
pub type Capability = (&'static str, u32);

const DAC_OVERRIDE: Capability = ("CAP_DAC_OVERRIDE", 1);
const DAC_READ_SEARCH: Capability = ("CAP_DAC_READ_SEARCH", 2);
const KILL: Capability = ("CAP_KILL", 5);
const NET_ADMIN: Capability = ("CAP_NET_ADMIN", 12);
const SYS_PTRACE: Capability = ("CAP_SYS_PTRACE", 19);
const SYS_ADMIN: Capability = ("CAP_SYS_ADMIN", 21);
/// To set priorities and cores.
pub const SYS_NICE: Capability = ("CAP_SYS_NICE", 23);
const SYSLOG: Capability = ("CAP_SYSLOG", 34);
const PERFMON: Capability = ("CAP_PERFMON", 38);
const BPF: Capability = ("CAP_BPF", 39);
const CHECKPOINT_RESTORE: Capability = ("CAP_CHECKPOINT_RESTORE", 40);

/// The capabilities that a recording still needs from a stage on, if it has them.
pub fn needed(stage: Stage, needs: Needs) -> Vec<Capability> {
    // Descriptors, maps and files of the target; files that were deleted; its priority while it writes; kernel symbols.
    let mut list = vec![SYS_PTRACE, DAC_READ_SEARCH, CHECKPOINT_RESTORE, SYS_NICE, SYSLOG];
    if stage == Stage::Recording {
        // The cost of the hooks is measured at the end, with one more program; the target's namespace is entered for its devices.
        list.extend([BPF, PERFMON, SYS_ADMIN]);
        if needs.stamps {
            list.push(NET_ADMIN);
        }
    }
    if needs.command || needs.jvm {
        list.push(KILL);
    }
    // For a JVM: only its own user may connect to its socket.
    if needs.shared || needs.jvm {
        list.push(DAC_OVERRIDE);
    }
    list
}

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
        let list = needed(Stage::Recording, Needs::default());
        let (kept, now, again) = std::thread::spawn(move || {
            let kept = keep_only(&list).unwrap();
            let less = keep_only(&needed(Stage::Reading, Needs::default())).unwrap();
            (kept, permitted().unwrap(), (less, keep_only(&list).unwrap()))
        })
        .join()
        .unwrap();
        let names = |stage| -> Vec<String> {
            let list = needed(stage, Needs::default()).into_iter();
            list.filter(|(_, number)| had >> number & 1 == 1).map(|(name, _)| name.to_owned()).collect()
        };
        assert_eq!(kept, names(Stage::Recording));
        assert_eq!(again.0, names(Stage::Reading));
        // What was given up does not come back.
        assert_eq!(again.1, again.0);
        assert_eq!(now.count_ones() as usize, again.0.len());
        assert_eq!(permitted().unwrap(), had, "other threads keep theirs");
    }

    #[test]
    fn the_rest_of_the_recording_needs_no_administrator() {
        for needs in [Needs::default(), Needs { command: true, stamps: true, shared: true, jvm: true }] {
            let names: Vec<&str> = needed(Stage::Reading, needs).iter().map(|(name, _)| *name).collect();
            for never in ["CAP_SYS_ADMIN", "CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"] {
                assert!(!names.contains(&never), "{names:?}");
            }
        }
        assert!(!needed(Stage::Recording, Needs::default()).contains(&DAC_OVERRIDE));
    }
}
