//! Facts about the Linux kernel that recorder, lifetimes and diagnosis share, each in one place.
//!
//! No I/O: facts about the kernel of this machine are in `tailsight-host`.

pub mod cgroup;
pub mod syscalls;

/// Functions in which read(2) and the like wait for data of a socket (`net/core/sock.c`, `net/core/datagram.c`).
pub const RECEIVE_WAITS: [&str; 2] = ["sk_wait_data", "__skb_wait_for_more_packets"];

/// Page reclaim that a thread does itself: the kinds of `ReclaimBegin`, by number.
pub const RECLAIM_KINDS: [&str; 3] = ["host", "cgroup", "compaction"];

/// `enum migrate_reason` (`include/linux/migrate_mode.h`), by number.
pub const MIGRATE_REASONS: [&str; 10] = [
    "compaction",
    "memory-failure",
    "memory-hotplug",
    "syscall",
    "mempolicy",
    "numa",
    "contiguous-range",
    "long-term-pin",
    "demotion",
    "damon",
];
