//! Page faults and reclaim of the target, page migration, NUMA moves. The C is beside this file, in `memory.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// Page faults and reclaim of the target, page migration, NUMA moves.
pub const PROBE: Probe = Probe {
    name: "memory",
    hooks: &[
        hook!(Default, "page_fault_user", "page faults in user mode (x86)"),
        hook!(Default, "page_fault_kernel", "page faults in kernel mode (x86)"),
        hook!(
            Default,
            "mm_migrate_pages_start",
            "page migration by the target's threads, with its reason (NUMA balancing)"
        ),
        hook!(Default, "mm_migrate_pages", "page migration by the target's threads, with its reason (NUMA balancing)"),
        hook!(Default, "sched_move_numa", "how often NUMA balancing moved the target's threads"),
        hook!(Default, "mm_vmscan_direct_reclaim_begin", "memory that the target reclaims itself"),
        hook!(Default, "mm_vmscan_direct_reclaim_end", "memory that the target reclaims itself"),
        hook!(Default, "mm_vmscan_memcg_reclaim_begin", "memory that the target reclaims within its cgroup's limit"),
        hook!(Default, "mm_vmscan_memcg_reclaim_end", "memory that the target reclaims within its cgroup's limit"),
        hook!(Default, "mm_compaction_begin", "memory that the target compacts itself"),
        hook!(Default, "mm_compaction_end", "memory that the target compacts itself"),
    ],
};
