//! The event record: 40 bytes in memory, the same in C (generated, [`crate::c_header`]) and in Rust.
//!
//! One table, [`KINDS`], defines every event kind: its number, its name, where it comes from, and which [`fields`] it has. The C header
//! of the probes, the schema page in `docs/`, the views for SQL and the readers all come from it.

use crate::fields::{self, LayoutSpec};

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
    /// First payload word; [`fields`] has what lies in it.
    pub a: u64,
    /// Second payload word.
    pub b: u64,
    /// Third payload word.
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
    /// Its fields.
    pub layout: &'static LayoutSpec,
    /// What is particular to this kind among those that have these fields.
    pub note: &'static str,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $num:literal, $hook:literal, $layout:ident $(, $note:literal)?;)*) => {
        /// The kinds of event. Numbers are stable for ever.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Kind { $($(#[$doc])* $variant = $num,)* }

        /// Every kind with its hook and its fields.
        pub const KINDS: &[KindSpec] = &[
            $(KindSpec {
                kind: Kind::$variant,
                name: stringify!($variant),
                hook: $hook,
                layout: &fields::$layout::SPEC,
                note: concat!($($note)?),
            },)*
        ];

        impl Kind {
            /// The kind with this number, if this version knows it.
            #[inline]
            pub fn from_u8(n: u8) -> Option<Kind> {
                // A load: what a match makes of it is a jump, which each event would go through.
                const KNOWN: [Option<Kind>; 256] = {
                    let mut kinds = [None; 256];
                    $(kinds[$num] = Some(Kind::$variant);)*
                    kinds
                };
                KNOWN[usize::from(n)]
            }
        }
    };
}

kinds! {
    /// A context switch.
    SchedSwitch = 1, "sched_switch", Switch;
    /// A task is about to be made runnable; recorded on the waker's core, so it is the causal edge.
    SchedWaking = 2, "sched_waking", Waking, "tid: the waker";
    /// A task became runnable on a core.
    SchedWakeup = 3, "sched_wakeup", Wakeup;
    /// A task moved to another core.
    SchedMigrate = 4, "sched_migrate_task", Move;
    /// A task was created.
    TaskFork = 5, "sched_process_fork", Task, "tid: the parent";
    /// A task executed a program.
    TaskExec = 6, "sched_process_exec", Task;
    /// A task ended.
    TaskExit = 7, "sched_process_exit", Exit, "older runs only: nothing reads it";
    /// A task changed its name.
    TaskRename = 8, "task_rename", Task;

    /// A packet reached the stack from a NAPI driver, before GRO.
    RxNapi = 10, "napi_gro_receive_entry", Packet;
    /// A packet was put on a core's backlog (loopback, veth, RPS), in the context of its sender.
    RxBacklog = 11, "netif_rx_entry", Packet;
    /// A packet entered protocol processing.
    RxStack = 12, "netif_receive_skb", Packet, "FOREIGN: not a port of the target (ends only)";
    /// The NIC's own receive time of the packet whose event comes just before on this core (before its Payload).
    RxHardware = 13, "skb_hwtstamps with RxNapi, RxBacklog, RxStack", Stamp;
    /// A socket was made readable: the hand-off from the kernel to the application.
    Handoff = 14, "sk_data_ready", Handoff;
    /// Data was returned to the application.
    Recv = 15, "sock_recv_length", Recv;
    /// Data was accepted from the application. Fires after an inline transmit.
    Send = 16, "sock_send_length", Send, "flow flags: RECOVERY, FULL, CLIENT too";
    /// Bytes of one skb are about to be copied to the application. Older runs only: sequence ranges tell the same.
    SkbCopy = 17, "skb_copy_datagram_iovec, no longer recorded", Copied;
    /// A packet was given to the queueing discipline.
    TxQueue = 18, "net_dev_queue", Packet, "flow flags: CLIENT too";
    /// A packet was given to the driver.
    TxDriver = 19, "net_dev_start_xmit", Packet, "flow flags: CLIENT too";
    /// TCP sent a segment again: to repair a loss (RECOVERY), or as a tail-loss probe.
    TcpRetransmit = 20, "tcp_retransmit_skb", Retransmit, "flow flags: RECOVERY, CLIENT too; RECOVERY is 0 in older runs";
    /// A packet was dropped: one for the target, or with OUT one that it sent.
    SkbDrop = 21, "kfree_skb", Drop, "flow flags: OUT, CLIENT too";
    /// A TCP socket changed state.
    SockState = 22, "inet_sock_set_state", State;
    /// One end of an IPv6 flow: the address behind an address key.
    FlowAddr6 = 23, "inet_sock_set_state", Address;

    /// A thread of the target entered a system call.
    SyscallEnter = 30, "sys_enter", Call;
    /// A thread of the target returned from a system call.
    SyscallExit = 31, "sys_exit", Return;

    /// A softirq handler starts.
    SoftirqEntry = 40, "softirq_entry", Softirq;
    /// A softirq handler ends.
    SoftirqExit = 41, "softirq_exit", Softirq;
    /// A device interrupt handler starts.
    IrqEntry = 42, "irq_handler_entry", Handler;
    /// A device interrupt handler ends.
    IrqExit = 43, "irq_handler_exit", Irq;
    /// A system vector (timer, reschedule, call-function …) starts.
    VectorEntry = 44, "irq_vectors:*_entry", Vector;
    /// A system vector ends.
    VectorExit = 45, "irq_vectors:*_exit", Vector;
    /// A NAPI poll ended. Older runs only: the softirq and its packets tell when.
    NapiPoll = 46, "napi_poll, no longer recorded", Poll;
    /// A core enters or leaves an idle state.
    CpuIdle = 47, "cpu_idle", Idle;
    /// A page fault taken in user mode by a thread of the target.
    FaultUser = 48, "page_fault_user", Fault;
    /// A page fault taken in kernel mode by a thread of the target.
    FaultKernel = 49, "page_fault_kernel", Fault;
    /// An inter-processor interrupt was sent.
    IpiSend = 50, "ipi_send_cpu, ipi_send_cpumask", OtherCpu, "older runs only: nothing reads it";
    /// A function was queued for another core.
    CsdQueue = 51, "csd_queue_cpu", OtherCpu, "older runs only: nothing reads it";
    /// A function queued by another core starts.
    CsdEntry = 52, "csd_function_entry", Nothing;
    /// A function queued by another core ends.
    CsdExit = 53, "csd_function_exit", Nothing;
    /// A thread of the target starts to wait for a kernel lock.
    ContentionBegin = 54, "contention_begin", Lock;
    /// The wait for a kernel lock ended.
    ContentionEnd = 55, "contention_end", Return;
    /// A work item starts.
    WorkStart = 56, "workqueue_execute_start", Work;
    /// A work item ends.
    WorkEnd = 57, "workqueue_execute_end", Nothing;
    /// Pages were migrated: the end of what MigrateBegin began (older runs have this event alone, of any task).
    MigratePages = 58, "mm_migrate_pages", Migrated;
    /// NUMA balancing moved a thread of the target (older runs: any task).
    NumaMove = 59, "sched_move_numa", Move;
    /// Events of this core were lost from here on, until the next event of this core at the earliest.
    Lost = 60, "recorder", Loss;
    /// The hypervisor gave this core to somebody else at some time since the core's last event of this kind.
    Steal = 61, "sched_switch, local_timer_entry", Stolen;
    /// A thread of the target starts to reclaim memory itself.
    ReclaimBegin = 62, "mm_vmscan_direct_reclaim_begin, mm_vmscan_memcg_reclaim_begin, mm_compaction_begin", Reclaim;
    /// The reclaim ended.
    ReclaimEnd = 63, "mm_vmscan_direct_reclaim_end, mm_vmscan_memcg_reclaim_end, mm_compaction_end", Reclaim;
    /// The kernel starts to take data that the application sends.
    SendBegin = 64, "tcp_sendmsg_locked; udp_sendmsg, udpv6_sendmsg or cgroup/sendmsg4, sendmsg6", SendBegin, "flow flags: CLIENT too; UDP before the route is known: address key 0 or without the local address";
    /// A thread of the target starts to write a file to its disk and waits for it.
    SyncBegin = 66, "ext4_sync_file_enter, f2fs_sync_file_enter, do_fsync or vfs_fsync_range", Nothing;
    /// The file is on its disk.
    SyncEnd = 67, "ext4_sync_file_exit, f2fs_sync_file_exit, do_fsync or vfs_fsync_range", Return;
    /// A thread of the target starts to migrate pages; MigratePages ends it.
    MigrateBegin = 69, "mm_migrate_pages_start", Migrating;
    /// The NIC's own transmit time of a TCP reply, only with --nic-tx-stamps.
    NicTx = 80, "sock_ops TSTAMP_SND_HW", SentStamp;
    /// Who has this core as the recording starts: `tid`, before any switch says so.
    Current = 68, "recorder", Nothing;
    /// A connection that the target made itself, to a server behind it, was made readable.
    PeerReady = 81, "sk_data_ready", Handoff;
    /// Data of such a connection was returned to the application.
    PeerRecv = 82, "sock_recv_length", Recv;
    /// A thread of the target enters a function that was named for tracing.
    FunctionBegin = 90, "uprobe, fentry of --uprobe, --usdt, --function", Function;
    /// It leaves that function.
    FunctionEnd = 91, "uprobe, uretprobe, fexit of --uprobe, --usdt, --function", Function;
    /// A function was entered too often and is not recorded from here on. Only in older runs; run.json has the time as `off_ns`.
    FunctionOff = 92, "uprobe, fentry of --uprobe, --usdt, --function", FunctionOff;
    /// A thread of the target turns to another goroutine, only where functions of a Go program are traced.
    RoutineSwitch = 93, "uprobe of runtime.execute, runtime.schedule", Goroutine;
    /// A thread of the target is in this goroutine or task of asyncio, told where it receives or sends and was in another one when it last did.
    RoutineSeen = 94, "with Recv, PeerRecv, SendBegin of programs of Go, of asyncio; with RoutineWoken, RoutineMade, PlainText of Go", Goroutine;
    /// A thread of the target begins to run this task of a runtime that is linked into the program (tokio).
    RoutineRun = 95, "uprobe of tokio's task::raw::poll", Goroutine;
    /// A task of such a runtime, or a goroutine, is made ready; by what the thread runs.
    RoutineWoken = 96, "uprobe of tokio's task::waker::wake_by_val, wake_by_ref, of Go's runtime.ready", Woken;
    /// A task of such a runtime is to be made ready by something that it waits for: it begins to wait for a lock, a channel, a time, a socket.
    RoutineAsks = 97, "uprobe of tokio's task::waker::clone_waker", Woken;
    /// Where a goroutine waited that is made ready; its RoutineWoken follows.
    RoutineWaited = 98, "with RoutineWoken of programs of Go", Woken;
    /// A goroutine is made by the one that the thread runs, which said so in its RoutineSeen; where that one is.
    RoutineMade = 99, "uprobe in Go's runtime.newproc", Woken;
    /// First bytes of the packet whose event came last on this core (RxStack, TxDriver), only with --protocol.
    Payload = 65, "with RxStack, TxDriver", Piece;
    /// A function of a TLS library returned: so much plain text it gave to a thread of the target, or took from it; only with --protocol.
    PlainText = 70, "uretprobe of SSL_read, SSL_write and the like, uprobe inside of Go's crypto/tls", PlainText;
    /// First bytes of the plain text of the thread's last PlainText.
    PlainPiece = 71, "with PlainText", Piece, "low_sequence: of the connection's number";
}

/// Flags in `aux` of context switches.
pub mod switch_flags {
    /// The thread was preempted: it would rather run on.
    pub const PREEMPTED: u16 = 1;
    /// The thread waits for block I/O.
    pub const IO_WAIT: u16 = 2;
    /// The thread's cgroup has used its CPU quota up.
    pub const THROTTLED: u16 = 4;
    /// The highest place of a sleep: what its field has room for.
    pub const MOST_PLACES: u16 = u16::MAX >> 4;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_numbers_are_unique_and_round_trip() {
        let mut numbers = std::collections::HashSet::new();
        for spec in KINDS {
            assert!(numbers.insert(spec.kind as u8), "{} repeats a number", spec.name);
            assert_eq!(Kind::from_u8(spec.kind as u8), Some(spec.kind));
        }
        assert_eq!(Kind::from_u8(255), None);
    }
}
