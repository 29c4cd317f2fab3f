//! The function table: what call stacks count to. The stacks are written from the source of Linux 6.18, innermost first.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use syscalls::Sysno;
use tailsight_diagnose::categories::functions::{FunctionTable, StackClass};
use tailsight_diagnose::{Category, CategoryTable};

static TABLE: LazyLock<FunctionTable> = LazyLock::new(FunctionTable::default);

/// `category/sub by function`, with `~` before a function that answers for a neighbour.
fn said(stack: &str) -> String {
    shown(TABLE.category_of(&stack.split_whitespace().collect::<Vec<_>>()))
}

fn shown(verdict: Option<StackClass<'_>>) -> String {
    verdict.map_or("none".into(), |v| {
        format!("{}/{} by {}{}", v.category, v.sub, if v.via_neighbour { "~" } else { "" }, v.function)
    })
}

/// The frames that end every stack of a system call.
const ENTRY: &str = "x64_sys_call do_syscall_64 entry_SYSCALL_64_after_hwframe";
/// The frames that end every stack of a page fault in user code.
const FAULT: &str = "do_user_addr_fault exc_page_fault asm_exc_page_fault";

fn check(cases: &[(&str, &str)]) {
    for (stack, expected) in cases {
        let stack = stack.replace("ENTRY", ENTRY).replace("FAULT", FAULT);
        assert_eq!(said(&stack), *expected, "{stack}");
    }
}

#[test]
fn sleeps_on_locks() {
    check(&[
        (
            "__schedule schedule futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex ENTRY",
            "lock-wait/futex by futex_do_wait",
        ),
        (
            "__schedule schedule schedule_preempt_disabled rwsem_down_read_slowpath down_read lock_mm_and_find_vma FAULT",
            "lock-wait/mmap_lock by rwsem_down_read_slowpath",
        ),
        (
            "__schedule schedule schedule_preempt_disabled rwsem_down_write_slowpath down_write_killable vm_mmap_pgoff \
             ksys_mmap_pgoff ENTRY",
            "lock-wait/mmap_lock by rwsem_down_write_slowpath",
        ),
        (
            "__schedule schedule schedule_preempt_disabled rwsem_down_write_slowpath down_write_killable do_mprotect_pkey.constprop.0 \
             __x64_sys_mprotect ENTRY",
            "lock-wait/mmap_lock by rwsem_down_write_slowpath",
        ),
        (
            "__schedule schedule schedule_preempt_disabled rwsem_down_write_slowpath down_write ext4_buffered_write_iter \
             ext4_file_write_iter vfs_write ksys_write ENTRY",
            "lock-wait/inode-lock by rwsem_down_write_slowpath",
        ),
        (
            "__schedule schedule schedule_preempt_disabled rwsem_down_write_slowpath down_write unlink_anon_vmas free_pgtables \
             vms_clear_ptes vms_complete_munmap_vmas do_vmi_align_munmap __vm_munmap __x64_sys_munmap ENTRY",
            "lock-wait/rmap-lock by rwsem_down_write_slowpath",
        ),
        (
            "__schedule schedule schedule_preempt_disabled __mutex_lock.constprop.0 __mutex_lock_slowpath mutex_lock \
             unix_stream_read_generic unix_stream_recvmsg sock_recvmsg __sys_recvfrom __x64_sys_recvfrom ENTRY",
            "lock-wait/mutex by __mutex_lock",
        ),
        (
            "__schedule schedule __lock_sock lock_sock_nested tcp_recvmsg inet_recvmsg sock_recvmsg __sys_recvfrom \
             __x64_sys_recvfrom ENTRY",
            "lock-wait/socket-lock by __lock_sock",
        ),
        (
            "__schedule schedule schedule_timeout wait_for_completion __wait_rcu_gp synchronize_rcu_normal synchronize_rcu \
             packet_set_ring packet_setsockopt ENTRY",
            "lock-wait/rcu by __wait_rcu_gp",
        ),
        (
            "__schedule schedule schedule_timeout __wait_for_common wait_for_completion __flush_work flush_work \
             tty_buffer_flush_work n_tty_poll ENTRY",
            "lock-wait/work-flush by __flush_work",
        ),
        (
            "native_queued_spin_lock_slowpath _raw_spin_lock __inet_hash tcp_v4_connect",
            "lock-wait/spinlock by native_queued_spin_lock_slowpath",
        ),
    ]);
}

#[test]
fn sleeps_on_pages() {
    check(&[
        (
            "__schedule schedule io_schedule folio_wait_bit_common filemap_fault __do_fault do_fault __handle_mm_fault handle_mm_fault FAULT",
            "paging/major-fault by folio_wait_bit_common",
        ),
        (
            "__schedule schedule io_schedule __folio_lock_or_retry do_swap_page __handle_mm_fault handle_mm_fault FAULT",
            "paging/major-fault by __folio_lock_or_retry",
        ),
        (
            "__schedule schedule io_schedule migration_entry_wait_on_locked migration_entry_wait do_swap_page __handle_mm_fault \
             handle_mm_fault FAULT",
            "paging/migration by migration_entry_wait_on_locked",
        ),
        (
            "__schedule schedule schedule_timeout schedule_timeout_killable __mem_cgroup_handle_over_high resume_user_mode_work \
             exit_to_user_mode_loop do_syscall_64 entry_SYSCALL_64_after_hwframe",
            "paging/memcg by __mem_cgroup_handle_over_high",
        ),
        (
            "__schedule schedule schedule_timeout reclaim_throttle shrink_node do_try_to_free_pages try_to_free_mem_cgroup_pages \
             try_charge_memcg charge_memcg __mem_cgroup_charge alloc_anon_folio do_anonymous_page __handle_mm_fault FAULT",
            "paging/memcg by reclaim_throttle",
        ),
        (
            "try_to_free_mem_cgroup_pages try_charge_memcg charge_memcg FAULT",
            "paging/memcg by try_to_free_mem_cgroup_pages",
        ),
        (
            "__schedule schedule schedule_timeout reclaim_throttle shrink_node do_try_to_free_pages try_to_free_pages \
             __alloc_pages_slowpath __alloc_frozen_pages_noprof alloc_pages_mpol FAULT",
            "paging/reclaim by reclaim_throttle",
        ),
        (
            "change_pte_range change_protection change_prot_numa task_numa_work task_work_run exit_to_user_mode_loop",
            "paging/numa-balancing by change_pte_range",
        ),
        ("change_prot_numa task_numa_work task_work_run", "paging/numa-balancing by change_prot_numa"),
        (
            "__vmf_anon_prepare do_anonymous_page __handle_mm_fault handle_mm_fault FAULT",
            "paging/page-fault by __vmf_anon_prepare",
        ),
        (
            "clear_page_erms folio_zero_user vma_alloc_anon_folio_pmd do_huge_pmd_anonymous_page handle_mm_fault FAULT",
            "paging/thp by clear_page_erms",
        ),
    ]);
}

#[test]
fn sleeps_on_disks() {
    check(&[
        (
            "__schedule schedule io_schedule jbd2_log_wait_commit jbd2_complete_transaction ext4_fc_commit ext4_sync_file \
             vfs_fsync_range do_fsync __x64_sys_fdatasync ENTRY",
            "disk-wait/journal by jbd2_log_wait_commit",
        ),
        (
            "__schedule schedule io_schedule folio_wait_bit_common folio_wait_writeback __filemap_fdatawait_range \
             file_write_and_wait_range ext4_sync_file vfs_fsync_range do_fsync __x64_sys_fsync ENTRY",
            "disk-wait/writeback by folio_wait_bit_common",
        ),
        (
            "__schedule schedule io_schedule folio_wait_bit_common filemap_read_folio filemap_get_pages filemap_read ext4_file_read_iter \
             vfs_read ksys_read __x64_sys_read ENTRY",
            "disk-wait/page-cache by folio_wait_bit_common",
        ),
        (
            "__schedule schedule io_schedule_timeout balance_dirty_pages balance_dirty_pages_ratelimited_flags generic_perform_write \
             ext4_buffered_write_iter vfs_write ksys_write __x64_sys_write ENTRY",
            "disk-wait/dirty-throttling by balance_dirty_pages",
        ),
        (
            "__schedule schedule io_schedule blk_mq_get_tag __blk_mq_alloc_requests blk_mq_submit_bio __submit_bio submit_bio_noacct \
             ext4_mpage_readpages read_pages page_cache_ra_unbounded filemap_get_pages filemap_read ENTRY",
            "disk-wait/block by blk_mq_get_tag",
        ),
        // Nobody is known: waiting for input or output is waiting for a disk; else the call says what it can.
        ("__schedule schedule io_schedule somefs_wait somefs_read ENTRY", "disk-wait/io by ~io_schedule"),
        ("__schedule schedule somefs_wait __x64_sys_fsync ENTRY", "disk-wait/fsync by ~__x64_sys_fsync"),
    ]);
}

#[test]
fn waits_for_peers() {
    check(&[
        (
            "__schedule schedule schedule_timeout unix_stream_read_generic unix_stream_recvmsg sock_recvmsg __sys_recvfrom \
             __x64_sys_recvfrom ENTRY",
            "app-processing/peer-wait by unix_stream_read_generic",
        ),
        (
            "__schedule schedule anon_pipe_read vfs_read ksys_read __x64_sys_read ENTRY",
            "app-processing/peer-wait by anon_pipe_read",
        ),
        (
            "__schedule schedule pipe_read vfs_read ksys_read __x64_sys_read ENTRY",
            "app-processing/peer-wait by pipe_read",
        ),
        (
            "__schedule schedule eventfd_read vfs_read ksys_read __x64_sys_read ENTRY",
            "app-processing/peer-wait by eventfd_read",
        ),
        (
            "__schedule schedule schedule_hrtimeout_range_clock ep_poll do_epoll_wait __x64_sys_epoll_wait ENTRY",
            "app-processing/peer-wait by ep_poll",
        ),
        (
            "__schedule schedule schedule_timeout wait_woken sk_wait_data tcp_recvmsg_locked tcp_recvmsg inet_recvmsg sock_recvmsg \
             __sys_recvfrom __x64_sys_recvfrom ENTRY",
            "app-processing/peer-wait by sk_wait_data",
        ),
        (
            "__schedule schedule schedule_timeout __skb_wait_for_more_packets __skb_recv_udp udp_recvmsg inet_recvmsg ENTRY",
            "app-processing/peer-wait by __skb_wait_for_more_packets",
        ),
        (
            "__schedule schedule schedule_timeout wait_woken sk_stream_wait_memory tcp_sendmsg_locked tcp_sendmsg __sys_sendto ENTRY",
            "transmit-processing/send-buffer by sk_stream_wait_memory",
        ),
        (
            "__schedule schedule schedule_timeout inet_csk_accept inet_accept do_accept __sys_accept4 __x64_sys_accept4 ENTRY",
            "connection-setup/accept by inet_csk_accept",
        ),
        (
            "__schedule schedule schedule_timeout wait_woken __inet_stream_connect inet_stream_connect __sys_connect __x64_sys_connect ENTRY",
            "connection-setup/connect by __inet_stream_connect",
        ),
        (
            "__schedule schedule do_nanosleep hrtimer_nanosleep common_nsleep __x64_sys_clock_nanosleep ENTRY",
            "app-processing/own-timer by do_nanosleep",
        ),
        // The same functions of a thread that runs are work, not a wait.
        ("anon_pipe_read vfs_read ksys_read __x64_sys_read ENTRY", "app-processing/ipc by anon_pipe_read"),
        ("tcp_recvmsg_locked tcp_recvmsg inet_recvmsg", "app-processing/socket-receive by tcp_recvmsg_locked"),
        // So is one that was preempted there.
        (
            "__schedule preempt_schedule_irq irqentry_exit asm_sysvec_apic_timer_interrupt tcp_recvmsg_locked tcp_recvmsg",
            "app-processing/socket-receive by tcp_recvmsg_locked",
        ),
    ]);
    // With the scheduler's frames left out by the recorder, the caller says that the thread sleeps.
    assert_eq!(
        shown(TABLE.category_of_wait(&["anon_pipe_read", "vfs_read"])),
        "app-processing/peer-wait by anon_pipe_read"
    );
}

#[test]
fn stops_throttles_and_process_life() {
    check(&[
        (
            "__schedule schedule throttle_cfs_rq_work task_work_run exit_to_user_mode_loop do_syscall_64 entry_SYSCALL_64_after_hwframe",
            "throttled/cfs-bandwidth by throttle_cfs_rq_work",
        ),
        (
            "__schedule schedule do_signal_stop get_signal arch_do_signal_or_restart exit_to_user_mode_loop do_syscall_64",
            "stopped/signal by do_signal_stop",
        ),
        (
            "__schedule schedule ptrace_stop ptrace_notify syscall_exit_work do_syscall_64",
            "stopped/ptrace by ptrace_stop",
        ),
        (
            "__schedule schedule __refrigerator get_signal arch_do_signal_or_restart",
            "stopped/freezer by __refrigerator",
        ),
        ("__schedule schedule do_wait kernel_wait4 __x64_sys_wait4 ENTRY", "app-processing/child-wait by do_wait"),
        (
            "copy_page_range dup_mmap copy_process kernel_clone __x64_sys_clone ENTRY",
            "app-processing/process by copy_page_range",
        ),
        (
            "unmap_vmas exit_mmap __mmput mmput do_exit do_group_exit __x64_sys_exit_group ENTRY",
            "paging/mmap by unmap_vmas",
        ),
        ("do_exit do_group_exit __x64_sys_exit_group ENTRY", "app-processing/process by do_exit"),
        (
            "__schedule schedule kvm_async_pf_task_wait_schedule __kvm_handle_async_pf exc_page_fault asm_exc_page_fault",
            "steal/host-paging by kvm_async_pf_task_wait_schedule",
        ),
    ]);
}

/// What runs: the finer half of NSight's Table 1.
#[test]
fn running_functions() {
    check(&[
        (
            "ip_rcv __netif_receive_skb_one_core process_backlog __napi_poll net_rx_action",
            "receive-processing/ip by ip_rcv",
        ),
        (
            "mlx5e_poll_rx_cq mlx5e_napi_poll __napi_poll net_rx_action handle_softirqs",
            "receive-processing/driver by mlx5e_poll_rx_cq",
        ),
        ("ice_clean_rx_irq ice_napi_poll __napi_poll net_rx_action", "receive-processing/driver by ice_clean_rx_irq"),
        ("ena_start_xmit dev_hard_start_xmit sch_direct_xmit", "transmit-processing/driver by ena_start_xmit"),
        (
            "nft_do_chain nf_hook_slow ip_local_deliver ip_rcv net_rx_action __do_softirq __local_bh_enable_ip __dev_queue_xmit ip_finish_output2 ip_output",
            "receive-processing/netfilter by nft_do_chain",
        ),
        (
            "nft_do_chain nf_hook_slow __ip_local_out ip_local_out __ip_queue_xmit tcp_sendmsg",
            "transmit-processing/netfilter by nft_do_chain",
        ),
        (
            "__tcp_transmit_skb __tcp_retransmit_skb tcp_retransmit_skb tcp_retransmit_timer tcp_write_timer",
            "tcp-recovery/retransmission by __tcp_transmit_skb",
        ),
        (
            "tcp_conn_request tcp_v4_conn_request tcp_rcv_state_process tcp_v4_do_rcv tcp_v4_rcv",
            "connection-setup/handshake by tcp_conn_request",
        ),
        (
            "smp_call_function_many_cond on_each_cpu_cond_mask flush_tlb_mm_range change_protection do_mprotect_pkey",
            "interrupts/tlb-shootdown by smp_call_function_many_cond",
        ),
        (
            "smp_call_function_many_cond membarrier_private_expedited __x64_sys_membarrier",
            "interrupts/membarrier by smp_call_function_many_cond",
        ),
        ("cpuidle_enter_state cpuidle_enter do_idle cpu_startup_entry", "wakeup-delay/idle by cpuidle_enter_state"),
        (
            "try_to_wake_up ep_poll_callback __wake_up_common sock_def_readable tcp_data_ready",
            "wakeup-delay/wake-up by try_to_wake_up",
        ),
        (
            "bpf_prog_6deef7357e7b4530_handler bpf_trace_run4 __traceiter_sched_switch __schedule",
            "profiler/bpf by bpf_prog_6deef7357e7b4530_handler",
        ),
        (
            "bpf_prog_6deef7357e7b4530_xdp bpf_prog_run_generic_xdp do_xdp_generic __netif_receive_skb_core",
            "receive-processing/bpf by bpf_prog_6deef7357e7b4530_xdp",
        ),
        (
            "perf_event_task_sched_in __perf_event_task_sched_in finish_task_switch",
            "profiler/perf by perf_event_task_sched_in",
        ),
        ("ksm_scan_thread kthread ret_from_fork", "paging/ksm by ksm_scan_thread"),
        ("exc_page_fault+0x6f/0x1a0 asm_exc_page_fault+0x26/0x30", "paging/page-fault by exc_page_fault"),
        ("xfs_buf_read_map+0x1/0x2 [xfs] ksys_read", "disk-wait/filesystem by xfs_buf_read_map"),
    ]);
}

/// A function that no rule names falls back on its callers, and the verdict says so.
#[test]
fn neighbours_answer_for_unknown_functions() {
    assert_eq!(
        said("memcpy_orig skb_copy_bits tcp_v4_rcv ip_protocol_deliver_rcu"),
        "receive-processing/tcp by ~tcp_v4_rcv"
    );
    assert_eq!(said("mystery_a mystery_b"), "none");
    assert_eq!(said("schedule __schedule"), "none");
    assert_eq!(said(""), "none");
}

/// Every category is known, and those that functions can name are named by one; the rest come from contexts, `runtime` from samples.
#[test]
fn table_is_whole() {
    let table = FunctionTable::default();
    for meaning in table.meanings() {
        assert!(Category::ALL.contains(&meaning.category) && !meaning.sub.is_empty(), "{meaning:?}");
    }
    let named: BTreeSet<Category> = table.meanings().iter().map(|m| m.category).collect();
    for id in Category::ALL {
        let elsewhere = [
            "interference",
            "hol-blocking",
            "backend-wait",
            "client-wait",
            "nic-delay",
            "softirq-delay",
            "runtime",
            "pool-wait",
            "scheduler-wait",
            "unexplained",
        ]
        .contains(&id.as_str());
        assert!(named.contains(&id) != elsewhere, "{id}");
    }
}

/// Every system call, softirq and vector has a meaning; kernel threads have the one of what they work at.
#[test]
fn system_calls() {
    let unknown: Vec<&str> = Sysno::iter()
        .map(|nr| nr.name())
        .filter(|name| TABLE.syscall(name, None).is_none())
        .filter(|name| !UNUSED.contains(name))
        .collect();
    assert!(unknown.is_empty(), "no meaning for {unknown:?}");
    let category_of = |name: &str, uninterruptible| {
        TABLE.syscall(name, uninterruptible).map_or(String::new(), |m| format!("{}/{}", m.category, m.sub))
    };
    for (name, uninterruptible, expected) in [
        ("futex", None, "lock-wait/futex"),
        ("fsync", None, "disk-wait/fsync"),
        ("read", None, "app-processing/peer-wait"),
        ("read", Some(true), "disk-wait/file"),
        ("epoll_wait", None, "app-processing/peer-wait"),
        ("recvfrom", None, "app-processing/peer-wait"),
        ("clock_nanosleep", None, "app-processing/own-timer"),
        ("mprotect", Some(true), "paging/mmap"),
        ("accept4", None, "connection-setup/accept"),
        ("connect", None, "connection-setup/connect"),
        ("sendmsg", None, "transmit-processing/socket"),
        ("membarrier", None, "interrupts/membarrier"),
    ] {
        assert_eq!(category_of(name, uninterruptible), expected, "{name}");
    }
}

/// Calls that Linux does not implement, or that only configure the machine: no message sleeps in them.
const UNUSED: &[&str] = &[
    "syslog",
    "uselib",
    "sysfs",
    "vhangup",
    "_sysctl",
    "acct",
    "reboot",
    "sethostname",
    "setdomainname",
    "create_module",
    "init_module",
    "delete_module",
    "finit_module",
    "get_kernel_syms",
    "query_module",
    "nfsservctl",
    "getpmsg",
    "putpmsg",
    "afs_syscall",
    "tuxcall",
    "security",
    "lookup_dcookie",
    "vserver",
    "kexec_load",
    "kexec_file_load",
];

/// A user's entries go before the built-in ones, replace none of the others, and keep the built-in rules.
#[test]
fn user_functions() {
    let text = "transparent = ['mylib_*']\n\
                [[functions]]\ncategory = 'steal'\nsub = 'mine'\nnames = ['futex_do_wait', 'my_*']\n\
                [[functions]]\ncategory = 'lock-wait'\nsub = 'my-lock'\nnames = ['ip_rcv']\nunder = ['my_caller']\n\
                [[syscalls]]\ncategory = 'stopped'\nsub = 'mine'\nnames = ['futex']\n\
                [[threads]]\ncategory = 'interference'\nsub = 'backup'\nnames = ['kworker']\n";
    let table = CategoryTable::parse(text, "mine.toml").unwrap();
    assert_eq!(table.len(), CategoryTable::default().len());
    let functions = table.functions();
    let said = |stack: &[&'static str]| shown(functions.category_of(stack));
    assert_eq!(said(&["futex_do_wait", "futex_wait"]), "steal/mine by futex_do_wait");
    assert_eq!(said(&["mylib_lock", "my_thing"]), "steal/mine by my_thing");
    assert_eq!(said(&["ip_rcv", "my_caller"]), "lock-wait/my-lock by ip_rcv");
    assert_eq!(said(&["ip_rcv"]), "receive-processing/ip by ip_rcv");
    assert_eq!(functions.syscall("futex", None).unwrap().category, Category::Stopped);
    assert_eq!(functions.syscall("fsync", None).unwrap().category, Category::DiskWait);
    assert_eq!(
        shown(CategoryTable::default().functions().category_of(&["ip_rcv", "my_caller"])),
        "receive-processing/ip by ip_rcv"
    );
}

#[test]
fn errors_name_file_entry_and_field() {
    for (text, place, why) in [
        ("[[functions]]\nsub='x'\nnames=['y']\n", "functions.category", "missing"),
        ("[[functions]]\ncategory='steal'\nnames=['y']\n", "functions.sub", "missing"),
        ("[[functions]]\ncategory='steal'\nsub='x'\n", "functions.names", "missing"),
        ("[[functions]]\ncategory='mine'\nsub='x'\nnames=['y']\n", "functions.category", "not one of interference"),
        ("[[functions]]\ncategory='steal'\nsub='x'\nnames=['y','y']\n", "functions.names", "y is defined twice"),
        ("[[functions]]\ncategory='steal'\nsub='x'\nnames=3\n", "functions.names", "a list of texts"),
        ("[[functions]]\ncategory='steal'\nsub='x'\nnames=['y']\nuntil='new'\n", "functions.until", "no version"),
        ("[[functions]]\ncategory='steal'\nsub='x'\nnames=['y']\nasleep='yes'\n", "functions.asleep", "true or false"),
        ("[[threads]]\ncategory='steal'\nsub='x'\nnames=['y']\nunder=['z']\n", "threads.under", "no such field"),
        ("[[vectors]]\ncategory='steal'\nsub='x'\nnames=['']\n", "vectors.names", "empty"),
        ("softirqs = 3\n", "softirqs.*", "[[softirqs]] table"),
        ("transparent = 'x'\n", "transparent", "a list of texts"),
    ] {
        let message = CategoryTable::parse(text, "mine.toml").expect_err(text).to_string();
        for part in ["mine.toml", place, why] {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
    }
}

proptest! {
    /// No stack and no table text, however odd, makes it panic; a verdict is always of a known category.
    #[test]
    fn any_stack_and_any_text(stack in prop::collection::vec("[a-z_.+ \\[\\]/0-9é]{0,20}", 0..8), text in "\\PC{0,200}") {
        let stack: Vec<&str> = stack.iter().map(String::as_str).collect();
        if let Some(v) = TABLE.category_of(&stack) {
            prop_assert!(Category::ALL.contains(&v.category));
        }
        let _ = CategoryTable::parse(&text, "mine.toml");
        let _ = CategoryTable::parse(&format!("[[functions]]\n{text}"), "mine.toml");
    }
}
