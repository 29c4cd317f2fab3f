//! File systems whose fsync is not seen without fentry programs. In: processes. Out: the names of those on which they have files open
//! for writing.

use nix::sys::statfs::statfs;

/// File systems on a disk or another machine that have no pair of tracepoints around fsync, by their magic numbers (`statfs(2)`).
/// Those that are stacked on others (overlay) call fsync of these, which is seen where it has tracepoints.
const BLIND: [(i64, &str); 7] = [
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x2fc1_2fc1, "zfs"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0x6573_5546, "fuse"),
];

/// Descriptors of a process that are looked at.
const MOST: usize = 4096;

/// The file systems, each once, in order. What cannot be read has none.
pub fn unseen(pids: &[u32]) -> Vec<String> {
    let mut found: Vec<String> = pids.iter().flat_map(|&pid| of_process(pid)).map(str::to_owned).collect();
    found.sort();
    found.dedup();
    found
}

fn of_process(pid: u32) -> Vec<&'static str> {
    let Ok(list) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return vec![] };
    let of = |entry: std::fs::DirEntry| {
        let path = entry.path();
        // A socket, a pipe and the like have no path; to look at them costs nothing but time.
        if !std::fs::read_link(&path).ok()?.starts_with("/") {
            return None;
        }
        let name = entry.file_name();
        let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", name.to_string_lossy())).ok()?;
        if !is_for_writing(&info) || !std::fs::metadata(&path).ok()?.is_file() {
            return None;
        }
        named(statfs(&path).ok()?.filesystem_type().0 as i64)
    };
    list.flatten().take(MOST).filter_map(of).collect()
}

fn named(magic: i64) -> Option<&'static str> {
    BLIND.iter().find(|(of, _)| *of == magic & 0xffff_ffff).map(|(_, name)| *name)
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
        assert_eq!((named(0x5846_5342), named(0x9123_683e)), (Some("xfs"), Some("btrfs")));
        // On 32 bits the number is negative.
        assert_eq!(named(i64::from(0x9123_683e_u32.cast_signed())), Some("btrfs"));
        assert_eq!((named(0xef53), named(0xf2f5_2010), named(0x0102_1994)), (None, None, None), "ext4, f2fs, tmpfs");
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
