//! Page faults and reclaim of the target, page migration, NUMA moves. The C is beside this file, in `memory.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, tp_btf};

/// Page faults and reclaim of the target, page migration, NUMA moves.
pub const PROBE: Probe = Probe {
    name: "memory",
    hooks: &[
        Hook {
            name: "page_fault_user",
            need: Need::Default,
            tells: "page faults in user mode (x86)",
            programs: &[tp_btf("page_fault_user")],
        },
        Hook {
            name: "page_fault_kernel",
            need: Need::Default,
            tells: "page faults in kernel mode (x86)",
            programs: &[tp_btf("page_fault_kernel")],
        },
        Hook {
            name: "mm_migrate_pages_start",
            need: Need::Default,
            tells: "page migration by the target's threads, with its reason (NUMA balancing)",
            programs: &[tp_btf("mm_migrate_pages_start")],
        },
        Hook {
            name: "mm_migrate_pages",
            need: Need::Default,
            tells: "page migration by the target's threads, with its reason (NUMA balancing)",
            programs: &[tp_btf("mm_migrate_pages")],
        },
        Hook {
            name: "sched_move_numa",
            need: Need::Default,
            tells: "how often NUMA balancing moved the target's threads",
            programs: &[tp_btf("sched_move_numa")],
        },
        Hook {
            name: "mm_vmscan_direct_reclaim_begin",
            need: Need::Default,
            tells: "memory that the target reclaims itself",
            programs: &[tp_btf("mm_vmscan_direct_reclaim_begin")],
        },
        Hook {
            name: "mm_vmscan_direct_reclaim_end",
            need: Need::Default,
            tells: "memory that the target reclaims itself",
            programs: &[tp_btf("mm_vmscan_direct_reclaim_end")],
        },
        Hook {
            name: "mm_vmscan_memcg_reclaim_begin",
            need: Need::Default,
            tells: "memory that the target reclaims within its cgroup's limit",
            programs: &[tp_btf("mm_vmscan_memcg_reclaim_begin")],
        },
        Hook {
            name: "mm_vmscan_memcg_reclaim_end",
            need: Need::Default,
            tells: "memory that the target reclaims within its cgroup's limit",
            programs: &[tp_btf("mm_vmscan_memcg_reclaim_end")],
        },
        Hook {
            name: "mm_compaction_begin",
            need: Need::Default,
            tells: "memory that the target compacts itself",
            programs: &[tp_btf("mm_compaction_begin")],
        },
        Hook {
            name: "mm_compaction_end",
            need: Need::Default,
            tells: "memory that the target compacts itself",
            programs: &[tp_btf("mm_compaction_end")],
        },
    ],
};
