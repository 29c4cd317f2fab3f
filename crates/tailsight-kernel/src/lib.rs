//! Facts about the Linux kernel that the recorder, the lifetimes and the diagnosis share: each stands here once.
//!
//! No I/O: what this machine's kernel is like is a question for `tailsight-host`.

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
