//! Where file systems are mounted for a process, and which of them another process answers for.
//!
//! In: `/proc/PID/mountinfo`. Out: [`Mounts`]: the type of a mount or a device, and whether a file or a path is on a file system that a
//! process serves (FUSE). Whoever looks anything up there waits for as long as that process likes, and cannot be killed meanwhile; so this is
//! asked of the kernel's list, which no file system is touched for.

use std::io::Read;
use std::path::{Path, PathBuf};

use procfs_core::process::MountInfo;

use crate::cgroup::unescaped;

/// Bytes of a list that are read: thousands of mounts make some hundred KB.
const MOST_BYTES: u64 = 16 << 20;

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    id: i32,
    /// Of its file system, `major:minor`.
    device: String,
    at: PathBuf,
    kind: String,
}

/// The mounts that a process sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    list: Vec<Mount>,
}

impl Mounts {
    /// Those of a process; none where they cannot be read.
    #[must_use]
    pub fn of(pid: u32) -> Mounts {
        let mut text = Vec::new();
        // What could be read counts.
        let _ = std::fs::File::open(format!("/proc/{pid}/mountinfo"))
            .map(|file| file.take(MOST_BYTES).read_to_end(&mut text));
        Mounts::parse(&text)
    }

    /// Takes the lines of such a file; those that it does not understand are left out.
    #[must_use]
    pub fn parse(text: &[u8]) -> Mounts {
        let mount = |line: &[u8]| {
            let MountInfo { mnt_id, majmin, mount_point, fs_type, .. } =
                MountInfo::from_line(str::from_utf8(line).ok()?).ok()?;
            Some(Mount { id: mnt_id, device: majmin, at: unescaped(&mount_point.to_string_lossy()), kind: fs_type })
        };
        Mounts { list: text.split(|byte| *byte == b'\n').filter_map(mount).collect() }
    }

    /// The type of a mount, by its number (`mnt_id` of fdinfo).
    #[must_use]
    pub fn kind_of(&self, id: i32) -> Option<&str> {
        self.list.iter().find(|mount| mount.id == id).map(|mount| mount.kind.as_str())
    }

    /// The type of the file system of a device, `(major, minor)`.
    #[must_use]
    pub fn kind_of_device(&self, (major, minor): (u32, u32)) -> Option<&str> {
        let device = format!("{major}:{minor}");
        self.list.iter().find(|mount| mount.device == device).map(|mount| mount.kind.as_str())
    }

    /// Whether a path of the process leads through a file system that another process answers for.
    #[must_use]
    pub fn is_served(&self, path: &Path) -> bool {
        self.list.iter().any(|mount| is_served(&mount.kind) && path.starts_with(&mount.at))
    }
}

/// Whether a file system of this type is one that a process answers for.
#[must_use]
pub fn is_served(kind: &str) -> bool {
    // `fuse`, `fuse.sshfs`; `fuseblk` has a disk and a process.
    kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse.") || kind.starts_with("fuseblk.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        77 22 0:41 / /home/u/a\\040b rw,nosuid - fuse.sshfs host: rw,user_id=0\n\
        78 22 0:42 / /tmp rw - tmpfs tmpfs rw\n\
        nonsense\n";

    #[test]
    fn what_a_process_answers_for_is_told_by_the_list() {
        let mounts = Mounts::parse(TEXT);
        assert_eq!(
            (mounts.kind_of(77), mounts.kind_of(22), mounts.kind_of(9)),
            (Some("fuse.sshfs"), Some("ext4"), None)
        );
        assert_eq!((mounts.kind_of_device((0, 42)), mounts.kind_of_device((0, 43))), (Some("tmpfs"), None));
        let served = |path| mounts.is_served(Path::new(path));
        assert!(served("/home/u/a b/bin/x") && served("/home/u/a b"));
        assert!(!served("/home/u/a") && !served("/tmp/perf-1.map") && !served("/usr/bin/x"));
        assert!(is_served("fuse") && is_served("fuseblk") && !is_served("fusectl") && !is_served("ext4"));
    }

    #[test]
    fn this_process_has_a_root() {
        assert!(Mounts::of(std::process::id()).list.iter().any(|mount| mount.at == Path::new("/")));
        assert_eq!(Mounts::of(u32::MAX), Mounts::default());
    }
}
