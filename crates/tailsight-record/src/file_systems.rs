//! File systems whose fsync is not seen without fentry programs. In: processes. Out: the names of those on which they have files open
//! for writing.

use tailsight_host::mounts::{Mounts, is_served};

/// File systems on a disk or another machine that have no pair of tracepoints around fsync, by the type of their mount, with their names.
/// Those that are stacked on others (overlay) call fsync of these, which is seen where it has tracepoints.
const BLIND: [(&str, &str); 9] = [
    ("xfs", "xfs"),
    ("btrfs", "btrfs"),
    ("bcachefs", "bcachefs"),
    ("zfs", "zfs"),
    ("nfs", "nfs"),
    ("nfs4", "nfs"),
    ("cifs", "cifs"),
    ("smb3", "cifs"),
    ("smb2", "cifs"),
];

/// Descriptors of a process that are looked at.
const MOST_DESCRIPTORS: usize = 4096;

/// The file systems, each once, in order. What cannot be read has none.
pub fn unseen(pids: &[u32]) -> Vec<String> {
    let mut file_systems: Vec<String> = pids.iter().flat_map(|&pid| of_process(pid)).map(str::to_owned).collect();
    file_systems.sort();
    file_systems.dedup();
    file_systems
}

fn of_process(pid: u32) -> Vec<&'static str> {
    let Ok(list) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return vec![] };
    let mounts = Mounts::of(pid);
    let unseen_of = |entry: std::fs::DirEntry| {
        // A socket, a pipe and the like have no path; to look at them costs nothing but time.
        if !std::fs::read_link(entry.path()).ok()?.starts_with("/") {
            return None;
        }
        let name = entry.file_name();
        let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", name.to_string_lossy())).ok()?;
        // The file itself is not touched: who answers for its file system might never answer.
        is_for_writing(&info).then(|| named(mounts.kind_of(mount_of(&info)?)?)).flatten()
    };
    list.flatten().take(MOST_DESCRIPTORS).filter_map(unseen_of).collect()
}

fn named(kind: &str) -> Option<&'static str> {
    let listed = BLIND.iter().find(|(kernel_name, _)| *kernel_name == kind).map(|(_, name)| *name);
    listed.or_else(|| is_served(kind).then_some("fuse"))
}

/// The number of the mount that a file was opened on.
fn mount_of(fdinfo: &str) -> Option<i32> {
    fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// Whether `flags:` (octal) of an fdinfo has an access mode with writing: its last two bits.
fn is_for_writing(fdinfo: &str) -> bool {
    let flags = fdinfo.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).is_some_and(|flags| flags & 3 != 0)
}

/// What a reader of the run has to know of it.
pub fn warning(file_systems: &[String]) -> String {
    format!(
        "the target had files open for writing on {}, where fsync is seen only by fentry programs, which this kernel does not \
         take: of a wait for such a disk only the sleeps are seen, and its work counts to the program",
        file_systems.join(" and ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_without_tracepoints_have_names() {
        assert_eq!((named("xfs"), named("btrfs"), named("nfs4")), (Some("xfs"), Some("btrfs"), Some("nfs")));
        assert_eq!((named("fuse.sshfs"), named("fusectl")), (Some("fuse"), None));
        assert_eq!((named("ext4"), named("f2fs"), named("tmpfs")), (None, None, None));
        assert_eq!((mount_of("pos:\t0\nflags:\t02\nmnt_id:\t29\n"), mount_of("pos:\t0\n")), (Some(29), None));
        let text = warning(&["btrfs".into(), "xfs".into()]);
        assert!(text.contains("on btrfs and xfs,") && text.contains("fentry"), "{text}");
    }

    #[test]
    fn only_files_that_are_written_count() {
        assert!(is_for_writing("pos:\t0\nflags:\t0100001\nmnt_id:\t29\n") && is_for_writing("flags:\t02002\n"));
        assert!(!is_for_writing("pos:\t0\nflags:\t0100000\n") && !is_for_writing(""));
        // This process: whatever it is, it can be read, and a process that is not there has none.
        let _ = unseen(&[std::process::id()]);
        assert_eq!(unseen(&[u32::MAX]), [""; 0]);
    }
}
