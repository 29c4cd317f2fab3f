//! The peers on the same hooks, filtered as well as each of them can. In: the hooks of a tailsight recording, the
//! server's threads and port. Out: perf's arguments and bpftrace's program.
//!
//! perf filters on a tracepoint's own fields: the thread, the device, the port where a tracepoint has it. bpftrace also
//! reads the packet and the socket. Where neither can filter (who else runs, interrupts), all is recorded, as tailsight
//! does.

/// How an event is narrowed to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Everything: whoever else runs or interrupts is part of the question.
    All,
    /// By the thread that runs.
    Thread,
    /// A packet on its way in.
    PacketIn,
    /// A packet on its way out.
    PacketOut,
    /// A socket, through `skaddr`.
    Socket,
    /// By the tracepoint's own `sport`.
    SourcePort,
}

/// A hook as tracefs has it.
struct PeerHook {
    /// As tailsight names it.
    hook: &'static str,
    /// As tracefs names it, `group:event`.
    event: &'static str,
    scope: Scope,
    /// The 32-bit value that bpftrace keeps beside time, core and thread.
    value: &'static str,
}

const fn peer(hook: &'static str, event: &'static str, scope: Scope, value: &'static str) -> PeerHook {
    PeerHook { hook, event, scope, value }
}

/// The sequence number of the TCP packet whose IP header is at `$skb->data`.
const SEQUENCE_IN: &str = "*(uint32 *)($skb->data + 24)";
/// The same behind an Ethernet header.
const SEQUENCE_OUT: &str = "*(uint32 *)($skb->data + 38)";

/// Not here: `irq_vectors:irq_work_*` (perf, and bpftrace through it, may not enable them: perf's own wake-ups are irq
/// work), and vectors that do not occur on a healthy machine.
#[rustfmt::skip]
const HOOKS: &[PeerHook] = &[
    peer("sched_switch", "sched:sched_switch", Scope::All, "args->next_pid"),
    peer("sched_waking", "sched:sched_waking", Scope::All, "args->pid"),
    peer("sched_wakeup", "sched:sched_wakeup", Scope::All, "args->pid"),
    peer("sched_migrate_task", "sched:sched_migrate_task", Scope::All, "args->pid"),
    peer("sched_process_fork", "sched:sched_process_fork", Scope::All, "args->child_pid"),
    peer("sched_process_exec", "sched:sched_process_exec", Scope::All, "args->pid"),
    peer("task_rename", "task:task_rename", Scope::All, "args->pid"),
    peer("napi_gro_receive_entry", "net:napi_gro_receive_entry", Scope::PacketIn, SEQUENCE_IN),
    peer("netif_rx_entry", "net:netif_rx_entry", Scope::PacketIn, SEQUENCE_IN),
    peer("netif_receive_skb", "net:netif_receive_skb", Scope::PacketIn, SEQUENCE_IN),
    peer("kfree_skb", "skb:kfree_skb", Scope::All, "args->reason"),
    peer("sk_data_ready", "sock:sk_data_ready", Scope::Socket, "((struct tcp_sock *)$sk)->rcv_nxt"),
    peer("sock_recv_length", "sock:sock_recv_length", Scope::Thread, "args->ret"),
    peer("sock_send_length", "sock:sock_send_length", Scope::Thread, "args->ret"),
    peer("inet_sock_set_state", "sock:inet_sock_set_state", Scope::SourcePort, "args->newstate"),
    peer("net_dev_queue", "net:net_dev_queue", Scope::PacketOut, SEQUENCE_OUT),
    peer("net_dev_start_xmit", "net:net_dev_start_xmit", Scope::PacketOut, SEQUENCE_OUT),
    peer("tcp_retransmit_skb", "tcp:tcp_retransmit_skb", Scope::SourcePort, "args->state"),
    peer("sys_enter", "raw_syscalls:sys_enter", Scope::Thread, "args->id"),
    peer("sys_exit", "raw_syscalls:sys_exit", Scope::Thread, "args->ret"),
    peer("softirq_entry", "irq:softirq_entry", Scope::All, "args->vec"),
    peer("softirq_exit", "irq:softirq_exit", Scope::All, "args->vec"),
    peer("irq_handler_entry", "irq:irq_handler_entry", Scope::All, "args->irq"),
    peer("irq_handler_exit", "irq:irq_handler_exit", Scope::All, "args->irq"),
    peer("local_timer_entry", "irq_vectors:local_timer_entry", Scope::All, "args->vector"),
    peer("local_timer_exit", "irq_vectors:local_timer_exit", Scope::All, "args->vector"),
    peer("reschedule_entry", "irq_vectors:reschedule_entry", Scope::All, "args->vector"),
    peer("reschedule_exit", "irq_vectors:reschedule_exit", Scope::All, "args->vector"),
    peer("call_function_entry", "irq_vectors:call_function_entry", Scope::All, "args->vector"),
    peer("call_function_exit", "irq_vectors:call_function_exit", Scope::All, "args->vector"),
    peer("call_function_single_entry", "irq_vectors:call_function_single_entry", Scope::All, "args->vector"),
    peer("call_function_single_exit", "irq_vectors:call_function_single_exit", Scope::All, "args->vector"),
    peer("cpu_idle", "power:cpu_idle", Scope::All, "args->state"),
    peer("page_fault_user", "exceptions:page_fault_user", Scope::Thread, "args->error_code"),
    peer("page_fault_kernel", "exceptions:page_fault_kernel", Scope::Thread, "args->error_code"),
    peer("mm_migrate_pages", "migrate:mm_migrate_pages", Scope::All, "args->succeeded"),
    peer("csd_function_entry", "csd:csd_function_entry", Scope::All, "0"),
    peer("csd_function_exit", "csd:csd_function_exit", Scope::All, "0"),
    peer("contention_begin", "lock:contention_begin", Scope::Thread, "args->flags"),
    peer("contention_end", "lock:contention_end", Scope::Thread, "args->ret"),
    peer("workqueue_execute_start", "workqueue:workqueue_execute_start", Scope::All, "0"),
    peer("workqueue_execute_end", "workqueue:workqueue_execute_end", Scope::All, "0"),
];

/// The hooks among `wanted` that the peers get too.
fn offered(wanted: &[String]) -> impl Iterator<Item = &'static PeerHook> {
    HOOKS.iter().filter(|peer| wanted.iter().any(|hook| hook == peer.hook))
}

/// How many of the hooks the peers get too.
pub fn count(wanted: &[String]) -> usize {
    offered(wanted).count()
}

/// Samples a second and core of the variants that show what samples cost: so many that it can be told from noise.
pub const SAMPLES_PER_S: &str = "8000";

/// The arguments of a perf that samples call stacks, found in this way; the process comes behind.
pub fn perf_sampling(call_graph: &str) -> Vec<String> {
    ["record", "--event", "cpu-clock", "--freq", SAMPLES_PER_S, "--call-graph", call_graph, "--output", "perf.data"]
        .into_iter()
        .chain(["--clockid", "CLOCK_MONOTONIC", "--no-buildid", "--no-buildid-cache", "--delay", "-1"])
        .chain(["--control", "fifo:control,ack"])
        .map(String::from)
        .collect()
}

/// perf's arguments. It records into `perf.data` of its folder, starts disabled, and obeys the FIFOs `control` and `ack`.
pub fn perf_arguments(hooks: &[String], threads: &[String], port: u16) -> Vec<String> {
    let mut args: Vec<String> = [
        "record",
        "--all-cpus",
        "--output",
        "perf.data",
        "--mmap-pages",
        "64M",
        "--clockid",
        "CLOCK_MONOTONIC",
        "--no-buildid",
        "--no-buildid-cache",
        "--delay",
        "-1",
        "--control",
        "fifo:control,ack",
    ]
    .map(String::from)
    .into();
    let any_thread: Vec<String> = threads.iter().map(|tid| format!("common_pid == {tid}")).collect();
    for peer in offered(hooks) {
        args.extend(["--event".into(), peer.event.into()]);
        let filter = match peer.scope {
            Scope::All => None,
            Scope::Thread => Some(any_thread.join(" || ")),
            Scope::PacketIn | Scope::PacketOut => Some("name == \"veth-s\"".to_owned()),
            Scope::Socket => Some("protocol == 6".to_owned()),
            Scope::SourcePort => Some(format!("sport == {port}")),
        };
        match filter {
            Some(filter) => args.extend(["--filter".into(), filter]),
            // Not its own events.
            None => args.push("--exclude-perf".into()),
        }
    }
    args
}

/// bpftrace's program: every event goes into one hash map, keyed by time, core and hook, with the thread and one value:
/// 16 + 8 bytes, no wake-up. (`printf` an event, the other way to keep single events, wakes bpftrace for each of them.)
/// It prints `tick` ten times a second while it records. With `dump` it prints all events at the end.
pub fn bpftrace_program(hooks: &[String], pid: &str, port: u16, dump: bool) -> String {
    let wire_port = port.swap_bytes();
    let mut text = String::new();
    for (id, peer) in offered(hooks).enumerate() {
        let store = format!(
            "@e[nsecs, ((uint64)cpu << 8) | {id}] = ((uint64)tid << 32) | ((uint64){} & 0xffffffff);",
            peer.value
        );
        let packet = "$skb = (struct sk_buff *)args->skbaddr;";
        let event = peer.event;
        text += &match peer.scope {
            Scope::All => format!("tracepoint:{event} {{ {store} }}\n"),
            Scope::Thread => format!("tracepoint:{event} /pid == {pid}/ {{ {store} }}\n"),
            Scope::SourcePort => format!("tracepoint:{event} /args->sport == {port}/ {{ {store} }}\n"),
            Scope::PacketIn => format!(
                "tracepoint:{event} {{ {packet} if (*(uint16 *)($skb->data + 22) == {wire_port}) {{ {store} }} }}\n"
            ),
            Scope::PacketOut => format!(
                "tracepoint:{event} {{ {packet} if (*(uint16 *)($skb->data + 34) == {wire_port}) {{ {store} }} }}\n"
            ),
            Scope::Socket => format!(
                "tracepoint:{event} {{ $sk = (struct sock *)args->skaddr; if ($sk->__sk_common.skc_num == {port}) {{ {store} }} }}\n"
            ),
        };
    }
    text += "interval:ms:100 { printf(\"tick\\n\"); }\n";
    if !dump {
        text += "END { clear(@e); }\n";
    }
    text
}

/// An argument as a shell wants it.
pub fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_:,./=%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) { argument.to_owned() } else { format!("'{argument}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn perf_filters_follow_their_event() {
        let hooks = names(&["sched_switch", "sys_enter", "netif_receive_skb", "no_such_hook"]);
        let text = perf_arguments(&hooks, &names(&["7", "8"]), 11211).join(" ");
        assert!(text.contains("--event sched:sched_switch --exclude-perf"), "{text}");
        assert!(text.contains("--event raw_syscalls:sys_enter --filter common_pid == 7 || common_pid == 8"), "{text}");
        assert!(text.contains("--event net:netif_receive_skb --filter name == \"veth-s\""), "{text}");
        assert_eq!(count(&hooks), 3);
    }

    #[test]
    fn bpftrace_gives_each_hook_a_number_of_its_own() {
        let hooks: Vec<String> = HOOKS.iter().map(|h| h.hook.to_owned()).collect();
        let text = bpftrace_program(&hooks, "7", 11211, false);
        for id in 0..HOOKS.len() {
            assert_eq!(text.matches(&format!("<< 8) | {id}]")).count(), 1, "{id}");
        }
        assert!(HOOKS.len() < 256 && text.contains("END"));
        assert!(text.contains("== 52011"), "the port in network order");
        assert!(!bpftrace_program(&hooks, "7", 11211, true).contains("END"));
    }

    #[test]
    fn quoting() {
        assert_eq!(quoted("--event"), "--event");
        assert_eq!(quoted("a == 1"), "'a == 1'");
    }
}
