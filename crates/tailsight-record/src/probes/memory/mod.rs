//! Page faults and reclaim of the target, page migration, NUMA moves. The C is beside this file, in `memory.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// Page faults and reclaim of the target, page migration, NUMA moves.
pub const PROBE: Probe = Probe {
    name: "memory",
    on_demand: None,
    hooks: &[
        hook!(Default, "page_fault_user", "page faults in user mode (x86)"),
        hook!(Default, "page_fault_kernel", "page faults in kernel mode (x86)"),
        hook!(
            Default,
            "mm_migrate_pages_start",
            "page migration by the target's threads, with its reason (NUMA balancing)"
        ),
        hook!(Default, "mm_migrate_pages", "page migration by the target's threads, with its reason (NUMA balancing)"),
        hook!(Default, "sched_move_numa", "number of moves of the target's threads by NUMA balancing"),
        hook!(Default, "mm_vmscan_direct_reclaim_begin", "direct reclaim by the target"),
        hook!(Default, "mm_vmscan_direct_reclaim_end", "direct reclaim by the target"),
        hook!(Default, "mm_vmscan_memcg_reclaim_begin", "direct reclaim by the target within its cgroup's limit"),
        hook!(Default, "mm_vmscan_memcg_reclaim_end", "direct reclaim by the target within its cgroup's limit"),
        hook!(Default, "mm_compaction_begin", "direct compaction by the target"),
        hook!(Default, "mm_compaction_end", "direct compaction by the target"),
    ],
};
