//! Files that the target waits for on their way to the disk. The C is beside this file, in `disk.bpf.c`; its header lists
//! hooks and events.

use super::{Hook, Need, Probe, tp_btf};

/// Files on their way to the disk.
pub const PROBE: Probe = Probe {
    name: "disk",
    hooks: &[
        Hook {
            name: "ext4_sync_file_enter",
            need: Need::Default,
            tells: "fsync of files on ext4, with the work in it (elsewhere only its sleeps)",
            programs: &[tp_btf("ext4_sync_file_enter")],
        },
        Hook {
            name: "ext4_sync_file_exit",
            need: Need::Default,
            tells: "fsync of files on ext4, with the work in it (elsewhere only its sleeps)",
            programs: &[tp_btf("ext4_sync_file_exit")],
        },
    ],
};
