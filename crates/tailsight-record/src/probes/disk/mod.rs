//! Files that the target waits for on their way to the disk. The C is beside this file, in `disk.bpf.c`; its header lists
//! hooks and events.

use super::{Hook, Need, Probe, fentry, fexit, tp_btf};

const EXT4: &str = "fsync with the work in it: of any file system where the kernel allows fentry, else of ext4 (xfs and btrfs have a tracepoint at the begin only: there only its sleeps are known)";
const CALLS: &str =
    "fsync with the work in it, where the compiler put vfs_fsync_range into the system calls (by fentry)";
const F2FS: &str = "fsync of files on f2fs, with the work in it";

/// Files on their way to the disk.
pub const PROBE: Probe = Probe {
    name: "disk",
    hooks: &[
        Hook {
            name: "ext4_sync_file_enter",
            need: Need::Default,
            tells: EXT4,
            programs: &[fentry("fentry_vfs_fsync_range", "vfs_fsync_range"), tp_btf("ext4_sync_file_enter")],
        },
        Hook {
            name: "ext4_sync_file_exit",
            need: Need::Default,
            tells: EXT4,
            programs: &[fexit("fexit_vfs_fsync_range", "vfs_fsync_range"), tp_btf("ext4_sync_file_exit")],
        },
        Hook {
            name: "f2fs_sync_file_enter",
            need: Need::Default,
            tells: F2FS,
            programs: &[tp_btf("f2fs_sync_file_enter")],
        },
        Hook {
            name: "f2fs_sync_file_exit",
            need: Need::Default,
            tells: F2FS,
            programs: &[tp_btf("f2fs_sync_file_exit")],
        },
        Hook {
            name: "do_fsync_enter",
            need: Need::Default,
            tells: CALLS,
            programs: &[fentry("fentry_do_fsync", "do_fsync")],
        },
        Hook {
            name: "do_fsync_exit",
            need: Need::Default,
            tells: CALLS,
            programs: &[fexit("fexit_do_fsync", "do_fsync")],
        },
    ],
};
