//! Files that the target waits for on their way to the disk. The C is beside this file, in `disk.bpf.c`; its header lists
//! hooks and events.

use super::{Probe, fentry, fexit, hook, tp_btf};

const EXT4: &str = "fsync with the work in it: of any file system where the kernel allows fentry, else of ext4 (xfs and btrfs have a tracepoint at the start only: there only its sleeps are known)";
const CALLS: &str =
    "fsync with the work in it, where the compiler put vfs_fsync_range into the system calls (by fentry)";
const F2FS: &str = "fsync of files on f2fs, with the work in it";

/// The program that sees the begin of fsync on whatever file system.
pub const ANY_FILE_SYSTEM: &str = "fentry_vfs_fsync_range";

/// Files on their way to the disk.
pub const PROBE: Probe = Probe {
    name: "disk",
    on_demand: None,
    hooks: &[
        hook!(
            Default,
            "ext4_sync_file_enter",
            EXT4,
            [fentry(ANY_FILE_SYSTEM, "vfs_fsync_range"), tp_btf("ext4_sync_file_enter")]
        ),
        hook!(
            Default,
            "ext4_sync_file_exit",
            EXT4,
            [fexit("fexit_vfs_fsync_range", "vfs_fsync_range"), tp_btf("ext4_sync_file_exit")]
        ),
        hook!(Default, "f2fs_sync_file_enter", F2FS),
        hook!(Default, "f2fs_sync_file_exit", F2FS),
        hook!(Default, "do_fsync_enter", CALLS, [fentry("fentry_do_fsync", "do_fsync")]),
        hook!(Default, "do_fsync_exit", CALLS, [fexit("fexit_do_fsync", "do_fsync")]),
    ],
};
