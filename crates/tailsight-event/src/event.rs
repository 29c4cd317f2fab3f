//! The event record: 40 bytes in memory, the same in C (generated, [`c_header`]) and in Rust.
//!
//! One table, [`KINDS`], defines every event kind: its number, its name, and what its fields mean. The C header of the
//! probes, the schema page in `docs/` and the readers all come from it.

/// One event. In the per-CPU buffer the core is implied; `gen` exists only there and is dropped on the way to disk.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// CLOCK_MONOTONIC, ns.
    pub ts: u64,
    /// A [`Kind`] as a number (unknown numbers are kept: a newer recorder may know more).
    pub kind: u8,
    /// Buffer generation of the slot; 0 once read from a run.
    pub generation: u8,
    /// Flags or a small number, by kind.
    pub aux: u16,
    /// The thread that was current on the core (0: the idle task).
    pub tid: u32,
    /// First payload word, by kind.
    pub a: u64,
    /// Second payload word, by kind.
    pub b: u64,
    /// Third payload word, by kind.
    pub c: u64,
}

const _: () = assert!(size_of::<Event>() == 40);

/// The meaning of one event kind.
#[derive(Clone, Copy, Debug)]
pub struct KindSpec {
    /// The kind.
    pub kind: Kind,
    /// Its name, as in the documentation and the C header.
    pub name: &'static str,
    /// The tracepoint it comes from.
    pub hook: &'static str,
    /// What `aux`, `a`, `b`, `c` hold.
    pub fields: &'static str,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $num:literal, $hook:literal, $fields:literal;)*) => {
        /// The kinds of event. Numbers are stable for ever.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Kind { $($(#[$doc])* $variant = $num,)* }

        /// Every kind with its hook and the meaning of its fields.
        pub const KINDS: &[KindSpec] = &[
            $(KindSpec { kind: Kind::$variant, name: stringify!($variant), hook: $hook, fields: $fields },)*
        ];

        impl Kind {
            /// The kind with this number, if this version knows it.
            #[inline]
            pub fn from_u8(n: u8) -> Option<Kind> {
                // A load: what a match makes of it is a jump, which each event would go through.
                const KNOWN: [Option<Kind>; 256] = {
                    let mut known = [None; 256];
                    $(known[$num] = Some(Kind::$variant);)*
                    known
                };
                KNOWN[usize::from(n)]
            }
        }
    };
}

kinds! {
    /// A context switch.
    SchedSwitch = 1, "sched_switch", "aux: switch flags (1 preempted, 2 in I/O wait, 4 throttled by its cgroup's CPU quota) | place in the program that the thread sleeps at << 4 (number in run.json's sampling.sleep_places + 1, 0: not known); a: previous tid | next tid << 32; b: previous state | next priority << 32; c: a sleeping target thread's system call number + 1 (0: not known, 0xffffffff: in none) | index into run.json's stacks << 32 (0: none)";
    /// A task is about to be made runnable; recorded on the waker's core, so it is the causal edge.
    SchedWaking = 2, "sched_waking", "tid: waker; a: woken tid | its last cpu << 32; b: woken tgid";
    /// A task became runnable on a core.
    SchedWakeup = 3, "sched_wakeup", "a: woken tid | target cpu << 32";
    /// A task moved to another core.
    SchedMigrate = 4, "sched_migrate_task", "a: tid; b: from cpu | to cpu << 32";
    /// A task was created.
    TaskFork = 5, "sched_process_fork", "tid: parent; a: child tid | child tgid << 32; b, c: comm, 16 bytes";
    /// A task executed a program.
    TaskExec = 6, "sched_process_exec", "a: tid | tgid << 32; b, c: comm, 16 bytes";
    /// A task ended.
    TaskExit = 7, "sched_process_exit", "a: tid | tgid << 32; older runs only: nothing reads it";
    /// A task changed its name.
    TaskRename = 8, "task_rename", "a: tid | tgid << 32; b, c: new comm, 16 bytes";

    /// A packet reached the stack from a NAPI driver, before GRO.
    RxNapi = 10, "napi_gro_receive_entry", "aux: flow flags; a: address key; b: local port << 16 | remote port | sequence << 32; c: payload bytes | ifindex << 32";
    /// A packet was put on a core's backlog (loopback, veth, RPS), in the context of its sender.
    RxBacklog = 11, "netif_rx_entry", "as RxNapi";
    /// A packet entered protocol processing.
    RxStack = 12, "netif_receive_skb", "as RxNapi; aux FOREIGN: not a port of the target (ports only)";
    /// The NIC's own receive time of the packet whose event comes just before on this core (before its Payload).
    RxHardware = 13, "skb_hwtstamps with RxNapi, RxBacklog, RxStack", "a: hardware time stamp, ns of the NIC's clock (nic_clocks.arrow); b: ifindex, 0 in older runs";
    /// A socket was made readable: the hand-off from the kernel to the application.
    Handoff = 14, "sk_data_ready", "aux: flow flags; a: address key; b: ports | rcv_nxt << 32; c: socket cookie (low 32 bits)";
    /// Data was returned to the application.
    Recv = 15, "sock_recv_length", "aux: flow flags; a: address key; b: ports | copied_seq << 32; c: bytes | socket cookie << 32";
    /// Data was accepted from the application. Fires after an inline transmit.
    Send = 16, "sock_send_length", "aux: flow flags (RECOVERY, FULL, CLIENT too); a: address key; b: ports | write_seq << 32; c: bytes | socket cookie << 32";
    /// Bytes of one skb are about to be copied to the application. Older runs only: sequence ranges tell the same.
    SkbCopy = 17, "skb_copy_datagram_iovec, no longer recorded", "a: bytes";
    /// A packet was given to the queueing discipline.
    TxQueue = 18, "net_dev_queue", "aux: flow flags (CLIENT too); a: address key; b: ports | sequence << 32; c: payload bytes | ifindex << 32";
    /// A packet was given to the driver.
    TxDriver = 19, "net_dev_start_xmit", "as TxQueue";
    /// TCP sent a segment again: to repair a loss (RECOVERY), or as a tail-loss probe.
    TcpRetransmit = 20, "tcp_retransmit_skb", "aux: flow flags (RECOVERY, CLIENT too); a: address key; b: ports | sequence << 32; c: bytes | segments that the other end has reported as received twice << 32 (RECOVERY, b's high half and c are 0 in older runs)";
    /// A packet was dropped: one for the target, or with OUT one that it sent.
    SkbDrop = 21, "kfree_skb", "aux: flow flags (OUT, CLIENT too); a: address key; b: ports | sequence << 32; c: payload bytes | drop reason << 32";
    /// A TCP socket changed state.
    SockState = 22, "inet_sock_set_state", "aux: flow flags; a: address key; b: ports | old state << 32 | new state << 40; c: socket cookie (low 32 bits)";
    /// One end of an IPv6 flow: the address behind an address key.
    FlowAddr6 = 23, "inet_sock_set_state", "aux bit0: 0 local, 1 remote; a: address key; b, c: the 16 bytes of the address";

    /// A thread of the target entered a system call.
    SyscallEnter = 30, "sys_enter", "a: system call number";
    /// A thread of the target returned from a system call.
    SyscallExit = 31, "sys_exit", "b: return value";

    /// A softirq handler starts.
    SoftirqEntry = 40, "softirq_entry", "a: vector (3 is NET_RX)";
    /// A softirq handler ends.
    SoftirqExit = 41, "softirq_exit", "a: vector";
    /// A device interrupt handler starts.
    IrqEntry = 42, "irq_handler_entry", "a: irq number; b, c: handler name, 16 bytes";
    /// A device interrupt handler ends.
    IrqExit = 43, "irq_handler_exit", "a: irq number";
    /// A system vector (timer, reschedule, call-function …) starts.
    VectorEntry = 44, "irq_vectors:*_entry", "aux: which, see VECTORS";
    /// A system vector ends.
    VectorExit = 45, "irq_vectors:*_exit", "aux: which, see VECTORS";
    /// A NAPI poll ended. Older runs only: the softirq and its packets tell when.
    NapiPoll = 46, "napi_poll, no longer recorded", "a: packets | budget << 32; b: ifindex";
    /// A core enters or leaves an idle state.
    CpuIdle = 47, "cpu_idle", "a: state, 0xffffffff on exit";
    /// A page fault taken in user mode by a thread of the target.
    FaultUser = 48, "page_fault_user", "b: error code";
    /// A page fault taken in kernel mode by a thread of the target.
    FaultKernel = 49, "page_fault_kernel", "b: error code";
    /// An inter-processor interrupt was sent.
    IpiSend = 50, "ipi_send_cpu, ipi_send_cpumask", "a: target cpu, 0xffffffff for a mask; older runs only: nothing reads it";
    /// A function was queued for another core.
    CsdQueue = 51, "csd_queue_cpu", "a: target cpu; older runs only: nothing reads it";
    /// A function queued by another core starts.
    CsdEntry = 52, "csd_function_entry", "";
    /// A function queued by another core ends.
    CsdExit = 53, "csd_function_exit", "";
    /// A thread of the target starts to wait for a kernel lock.
    ContentionBegin = 54, "contention_begin", "a: lock flags";
    /// The wait for a kernel lock ended.
    ContentionEnd = 55, "contention_end", "b: return value";
    /// A work item starts.
    WorkStart = 56, "workqueue_execute_start", "a: index into run.json's symbols, 0 when not known";
    /// A work item ends.
    WorkEnd = 57, "workqueue_execute_end", "";
    /// Pages were migrated: the end of what MigrateBegin began (older runs have this event alone, of any task).
    MigratePages = 58, "mm_migrate_pages", "a: pages moved; b: pages failed";
    /// NUMA balancing moved a thread of the target (older runs: any task).
    NumaMove = 59, "sched_move_numa", "a: tid; b: source cpu | destination cpu << 32";
    /// Events of this core were lost from here on, until the next event of this core at the earliest.
    Lost = 60, "recorder", "b: events lost";
    /// The hypervisor gave this core to somebody else at some time since the core's last event of this kind.
    Steal = 61, "sched_switch, local_timer_entry", "a: stolen ns since the last; b: stolen ns since boot";
    /// A thread of the target starts to reclaim memory itself.
    ReclaimBegin = 62, "mm_vmscan_direct_reclaim_begin, mm_vmscan_memcg_reclaim_begin, mm_compaction_begin", "aux: 0 of the host, 1 of its memory cgroup, 2 compaction";
    /// The reclaim ended.
    ReclaimEnd = 63, "mm_vmscan_direct_reclaim_end, mm_vmscan_memcg_reclaim_end, mm_compaction_end", "aux: as ReclaimBegin";
    /// The kernel starts to take data that the application sends. UDP before the route is known: address key 0 or without
    /// the local address.
    SendBegin = 64, "tcp_sendmsg_locked; udp_sendmsg, udpv6_sendmsg or cgroup/sendmsg4, sendmsg6", "aux: flow flags (CLIENT too); a: address key; b: ports | write_seq << 32";
    /// A thread of the target starts to write a file to its disk and waits for it.
    SyncBegin = 66, "ext4_sync_file_enter, f2fs_sync_file_enter, do_fsync or vfs_fsync_range", "";
    /// The file is on its disk.
    SyncEnd = 67, "ext4_sync_file_exit, f2fs_sync_file_exit, do_fsync or vfs_fsync_range", "b: return value";
    /// A thread of the target starts to migrate pages; MigratePages ends it.
    MigrateBegin = 69, "mm_migrate_pages_start", "a: the kernel's enum migrate_reason (5: NUMA balancing)";
    /// The NIC's own transmit time of a TCP reply, only with --nic-tx-stamps.
    NicTx = 80, "sock_ops TSTAMP_SND_HW", "aux: flow flags; a: address key; b: ports | sequence number after its last byte << 32; c: hardware time stamp, ns of the NIC's clock";
    /// Who has this core as the recording starts: `tid`, before any switch says so.
    Current = 68, "recorder", "";
    /// A connection that the target made itself, to a server behind it, was made readable.
    PeerReady = 81, "sk_data_ready", "as Handoff";
    /// Data of such a connection was returned to the application.
    PeerRecv = 82, "sock_recv_length", "as Recv";
    /// A thread of the target enters a function that was named for tracing.
    FunctionBegin = 90, "uprobe, fentry of --uprobe, --usdt, --function", "aux: function flags; a: index into run.json's traced.functions | position of the user stack << 32 (plus a number of the run's own; only differences mean anything); b: goroutine, likewise";
    /// It leaves that function.
    FunctionEnd = 91, "uprobe, uretprobe, fexit of --uprobe, --usdt, --function", "as FunctionBegin";
    /// A function was entered too often and is not recorded from here on. Only in older runs; run.json has the time as `off_ns`.
    FunctionOff = 92, "uprobe, fentry of --uprobe, --usdt, --function", "a: index into run.json's traced.functions; b: calls in the last tenth of a second";
    /// A thread of the target turns to another goroutine, only where functions of a Go program are traced.
    RoutineSwitch = 93, "uprobe of runtime.execute, runtime.schedule", "b: goroutine as in FunctionBegin, 0: to none";
    /// First bytes of the packet whose event came last on this core (RxStack, TxDriver), only with --protocol.
    Payload = 65, "with RxStack, TxDriver", "aux: 24-byte piece number | direction (1 out) << 7 | low byte of the sequence number << 8; a, b, c: 24 bytes";
}

/// Flags in `aux` of context switches.
pub mod switch_flags {
    /// The thread was preempted: it would rather run on.
    pub const PREEMPTED: u16 = 1;
    /// The thread waits for block I/O.
    pub const IO_WAIT: u16 = 2;
    /// The thread's cgroup has used its CPU quota up.
    pub const THROTTLED: u16 = 4;
    /// Behind the flags stands the place of a sleep, 0: not known.
    pub const PLACE_SHIFT: u16 = 4;
    /// The highest place.
    pub const MOST_PLACES: u16 = u16::MAX >> PLACE_SHIFT;
}

/// Flow flags in `aux` of network events.
pub mod flow_flags {
    /// IPv6; the address key is a hash and `FlowAddr6` or sockets.arrow has the addresses.
    pub const V6: u16 = 1;
    /// UDP, else TCP.
    pub const UDP: u16 = 2;
    /// TCP FIN.
    pub const FIN: u16 = 4;
    /// TCP SYN.
    pub const SYN: u16 = 8;
    /// TCP RST.
    pub const RST: u16 = 16;
    /// The packet is not for a port of the target.
    pub const FOREIGN: u16 = 32;
    /// Of a send: the socket was repairing a loss (TCP_CA_Recovery, TCP_CA_Loss) when the call had taken the data.
    pub const RECOVERY: u16 = 64;
    /// Of a drop: the packet was on its way out.
    pub const OUT: u16 = 128;
    /// The local port is none that the target serves: the target asks somebody else.
    pub const CLIENT: u16 = 256;
    /// Of a send: the socket's send buffer was full when the call ended.
    pub const FULL: u16 = 512;
    /// Of a segment in protocol processing: its payload begins like a record of TLS.
    pub const TLS: u16 = 1024;
    /// Of a segment in protocol processing: its payload begins like a frame of HTTP/2, or with its preface.
    pub const HTTP2: u16 = 2048;
    /// Of a segment in protocol processing: the begin of its payload was looked at, for [`TLS`] and [`HTTP2`].
    pub const LOOKED: u16 = 4096;
}

/// Flags in `aux` of events of traced functions.
pub mod function_flags {
    /// A function of the kernel: inside of what the thread does there, and without a position.
    pub const KERNEL: u16 = 1;
    /// A function of a Go program: on the stack of its goroutine, which may go on in another thread.
    pub const GO: u16 = 2;
}

/// The system vectors of `VectorEntry`, by their number in `aux`.
pub const VECTORS: &[&str] = &[
    "local_timer",
    "reschedule",
    "call_function",
    "call_function_single",
    "irq_work",
    "x86_platform_ipi",
    "error_apic",
    "spurious_apic",
    "thermal_apic",
    "deferred_error_apic",
    "threshold_apic",
];

/// The softirq that receives packets (`include/linux/interrupt.h`), by its place in [`SOFTIRQS`].
pub const NET_RX: u8 = 3;

/// The one that frees sent packets and goes on sending.
pub const NET_TX: u8 = 2;

/// Names of the softirq vectors (`include/linux/interrupt.h`).
pub const SOFTIRQS: &[&str] =
    &["hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu"];

impl Event {
    /// The event's kind, if this version knows it.
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_u8(self.kind)
    }
    /// The low half of `a`.
    pub fn a_lo(&self) -> u32 {
        self.a as u32
    }
    /// The high half of `a`.
    pub fn a_hi(&self) -> u32 {
        (self.a >> 32) as u32
    }
    /// The low half of `b` (ports, in network events).
    pub fn b_lo(&self) -> u32 {
        self.b as u32
    }
    /// The high half of `b` (a sequence number, in network events).
    pub fn b_hi(&self) -> u32 {
        (self.b >> 32) as u32
    }
    /// The low half of `c`.
    pub fn c_lo(&self) -> u32 {
        self.c as u32
    }
    /// The high half of `c`.
    pub fn c_hi(&self) -> u32 {
        (self.c >> 32) as u32
    }
    /// The 16 bytes of `b` and `c` as text up to the first NUL.
    pub fn text(&self) -> String {
        let mut bytes = [0u8; 16];
        bytes[..8].copy_from_slice(&self.b.to_le_bytes());
        bytes[8..].copy_from_slice(&self.c.to_le_bytes());
        let end = bytes.iter().position(|&x| x == 0).unwrap_or(16);
        tailsight_units::name::from_bytes(&bytes[..end])
    }
    /// `b` and `c` from text, cut to 15 bytes; the reverse of [`Event::text`].
    pub fn pack_text(text: &str) -> (u64, u64) {
        let mut bytes = [0u8; 16];
        let name = tailsight_units::name::to_bytes(text);
        let n = name.len().min(15);
        bytes[..n].copy_from_slice(&name[..n]);
        let half = |r: std::ops::Range<usize>| bytes[r].iter().rev().fold(0u64, |acc, &x| acc << 8 | u64::from(x));
        (half(0..8), half(8..16))
    }
}

/// The C header with the event struct and every constant, for the probes.
pub fn c_header() -> String {
    let mut out = String::from(
        "/* Generated from crates/tailsight-event/src/event.rs by build.rs. Do not edit. */\n#pragma once\n\
         struct ts_event {\n\t__u64 ts;\n\t__u8 kind;\n\t__u8 generation;\n\t__u16 aux;\n\t__u32 tid;\n\t__u64 a;\n\t__u64 b;\n\t__u64 c;\n};\n\
         _Static_assert(sizeof(struct ts_event) == 40, \"event size\");\n\nenum ts_kind {\n",
    );
    for spec in KINDS {
        out += &format!("\tTS_{} = {},\n", screaming(spec.name), spec.kind as u8);
    }
    out += "};\n\n";
    for (name, value) in [
        ("V6", flow_flags::V6),
        ("UDP", flow_flags::UDP),
        ("FIN", flow_flags::FIN),
        ("SYN", flow_flags::SYN),
        ("RST", flow_flags::RST),
        ("FOREIGN", flow_flags::FOREIGN),
        ("RECOVERY", flow_flags::RECOVERY),
        ("OUT", flow_flags::OUT),
        ("CLIENT", flow_flags::CLIENT),
        ("FULL", flow_flags::FULL),
        ("TLS", flow_flags::TLS),
        ("HTTP2", flow_flags::HTTP2),
        ("LOOKED", flow_flags::LOOKED),
    ] {
        out += &format!("#define TS_FLOW_{name} {value}\n");
    }
    for (name, value) in [
        ("PREEMPTED", switch_flags::PREEMPTED),
        ("IO_WAIT", switch_flags::IO_WAIT),
        ("THROTTLED", switch_flags::THROTTLED),
        ("PLACE_SHIFT", switch_flags::PLACE_SHIFT),
        ("MOST_PLACES", switch_flags::MOST_PLACES),
    ] {
        out += &format!("#define TS_SWITCH_{name} {value}\n");
    }
    for (name, value) in [("KERNEL", function_flags::KERNEL), ("GO", function_flags::GO)] {
        out += &format!("#define TS_FUNCTION_{name} {value}\n");
    }
    for (n, name) in VECTORS.iter().enumerate() {
        out += &format!("#define TS_VECTOR_{} {n}\n", name.to_uppercase());
    }
    out +=
        &format!("#define TS_MIX_K1 {:#x}ULL\n#define TS_MIX_K2 {:#x}ULL\n", crate::flow::MIX_K1, crate::flow::MIX_K2);
    out
}

fn screaming(camel: &str) -> String {
    let mut out = String::new();
    for (i, ch) in camel.chars().enumerate() {
        if ch.is_uppercase() && i > 0 {
            out.push('_');
        }
        out.push(ch.to_ascii_uppercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_numbers_are_unique_and_round_trip() {
        let mut seen = std::collections::HashSet::new();
        for spec in KINDS {
            assert!(seen.insert(spec.kind as u8), "{} repeats a number", spec.name);
            assert_eq!(Kind::from_u8(spec.kind as u8), Some(spec.kind));
        }
        assert_eq!(Kind::from_u8(255), None);
    }

    #[test]
    fn text_round_trips_and_is_cut_at_fifteen_bytes() {
        let (b, c) = Event::pack_text("memcached");
        assert_eq!(Event { b, c, ..Event::default() }.text(), "memcached");
        let (b, c) = Event::pack_text("a-very-long-task-name");
        assert_eq!(Event { b, c, ..Event::default() }.text(), "a-very-long-tas");
    }

    #[test]
    fn the_c_header_names_every_kind() {
        let header = c_header();
        for spec in KINDS {
            assert!(header.contains(&format!("TS_{} = {},", screaming(spec.name), spec.kind as u8)));
        }
    }
}
