//! Control groups: which ones a process is in, and where they lie in the file system.
//!
//! In: the bytes of `/proc/PID/cgroup` and `/proc/PID/mountinfo`. Out: [`Groups`], [`mounts`], folders. A hierarchy is named by one of its
//! controllers; the empty name is version 2. A line that cannot be parsed is left out, as is a mount point that is no UTF-8; groups keep
//! their bytes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use procfs_core::process::MountInfo;
use procfs_core::{FromBufRead, ProcessCGroups};
use tailsight_units::name;

/// The control groups of a process: controllers, and the path in their hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups(Vec<(Vec<String>, PathBuf)>);

impl Groups {
    /// Takes the lines of `/proc/PID/cgroup`.
    pub fn parse(cgroup: impl AsRef<[u8]>) -> Self {
        // One line at a time, as text without loss: the parser refuses all lines for one that is odd or is no UTF-8.
        let groups = |line: &[u8]| ProcessCGroups::from_buf_read(name::from_bytes(line).as_bytes()).ok();
        let groups = cgroup.as_ref().split(|byte| *byte == b'\n').filter_map(groups).flatten();
        Self(
            groups
                .map(|group| (group.controllers, OsString::from_vec(name::to_bytes(&group.pathname)).into()))
                .collect(),
        )
    }

    /// The group in a hierarchy.
    pub fn path(&self, controller: &str) -> Option<&Path> {
        let named = |all: &[String]| all.iter().any(|c| c == controller) || (all.is_empty() && controller.is_empty());
        self.0.iter().find(|(controllers, _)| named(controllers)).map(|(_, path)| path.as_path())
    }

    /// The groups in all hierarchies, as the kernel lists them.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|(_, path)| path.as_path())
    }

    /// Where a hierarchy is mounted, and the group's folder there.
    pub fn folder(&self, mountinfo: impl AsRef<[u8]>, controller: &str) -> Option<(PathBuf, PathBuf)> {
        let path = self.path(controller)?;
        let hierarchies = mounts(mountinfo, controller);
        // Inside a container a mount may show only a part of the hierarchy.
        let mount = hierarchies.iter().find(|mount| path.starts_with(&mount.shows)).or(hierarchies.first())?;
        let inside = path.strip_prefix(&mount.shows).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
        Some((mount.at.clone(), mount.at.iter().chain(inside).collect()))
    }
}

/// A place where a hierarchy of control groups is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The group that is its top: `/` for the whole hierarchy.
    pub shows: PathBuf,
    /// Where it is.
    pub at: PathBuf,
}

/// The mounts of a hierarchy, in the order of `/proc/PID/mountinfo`.
pub fn mounts(mountinfo: impl AsRef<[u8]>, controller: &str) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let mount = MountInfo::from_line(str::from_utf8(line).ok()?).ok()?;
        let fits = match controller {
            "" => mount.fs_type == "cgroup2",
            one => mount.fs_type == "cgroup" && mount.super_options.contains_key(one),
        };
        fits.then(|| Mount { shows: unescaped(&mount.root), at: unescaped(&mount.mount_point.to_string_lossy()) })
    };
    mountinfo.as_ref().split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// What the kernel escapes in a path, which the parser leaves so. The backslash comes last: it would begin another escape.
pub(crate) fn unescaped(path: &str) -> PathBuf {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(path.to_owned(), |path, (escaped, plain)| path.replace(escaped, plain)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn both_versions_are_told_apart_and_odd_lines_are_left_out() {
        let groups = Groups::parse(
            b"nonsense\nx:cpu:/no number\n4:cpu,cpuacct:/a b/\xff:c\\x41\n1:name=systemd:/s\n0::/v2/x.service (deleted)\n",
        );
        assert_eq!(
            (groups.path("cpu"), groups.path("cpuacct")),
            (Some(Path::new(OsStr::from_bytes(b"/a b/\xff:c\\x41"))), groups.path("cpu"))
        );
        assert_eq!(groups.path("name=systemd"), Some(Path::new("/s")));
        assert_eq!(groups.path(""), Some(Path::new("/v2/x.service (deleted)")));
        assert_eq!((groups.path("memory"), groups.paths().count()), (None, 3));
        assert_eq!(Groups::parse("4:cpu:/a\n").path(""), None, "version 1 alone");
        assert_eq!(Groups::parse(""), Groups::default());
    }

    #[test]
    fn the_mounts_of_a_hierarchy_are_found_among_others() {
        let text = b"31 25 0:27 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n\
                     half a line\n\
                     36 25 0:40 / /mnt/\xff rw - ext4 /dev/x rw\n\
                     33 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                     40 31 0:35 /sub\\134040 /mnt/a\\040part rw shared:x - cgroup2 cgroup2 rw\n\
                     41 31 0:35 /sub\\134040 /mnt/a\\040part rw - cgroup2 cgroup2 rw\n\
                     32 31 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:10 future:1 - cgroup2 cgroup2 rw,later=1";
        let mount = |shows: &str, at: &str| Mount { shows: shows.into(), at: at.into() };
        assert_eq!(mounts(text, ""), [mount("/sub\\040", "/mnt/a part"), mount("/", "/sys/fs/cgroup/unified")]);
        assert_eq!(mounts(text, "cpu"), [mount("/", "/sys/fs/cgroup/cpu,cpuacct")]);
        assert_eq!(mounts(text, "memory"), []);
    }

    #[test]
    fn a_group_lies_below_the_mount_that_shows_it() {
        let mounts = "31 20 0:27 /pod /part rw - cgroup cgroup rw,cpu\n\
                      32 20 0:28 /other /elsewhere rw - cgroup2 none rw\n33 20 0:28 / /all rw - cgroup2 none rw\n";
        let folder = |cgroup: &str, controller| Groups::parse(cgroup).folder(mounts, controller);
        let mounted = |mount: &str, folder: &str| Some((mount.into(), folder.into()));
        assert_eq!(folder("3:cpu:/pod/c1\n", "cpu"), mounted("/part", "/part/c1"));
        assert_eq!(folder("3:cpu:/pod\n", "cpu"), mounted("/part", "/part"));
        assert_eq!(folder("3:cpu:/pod2/c1\n", "cpu"), mounted("/part", "/part/pod2/c1"), "the name only begins so");
        assert_eq!(folder("0::/app/inner\n", ""), mounted("/all", "/all/app/inner"));
        assert_eq!(folder("0::/other\n", ""), mounted("/elsewhere", "/elsewhere"));
        assert_eq!((folder("2:memory:/a\n", "memory"), folder("", "")), (None, None));
    }
}
