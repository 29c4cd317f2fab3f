//! The border between kernel and application. The C is beside this file, in `socket.bpf.c`; its header lists hooks and events.

use super::{Probe, cgroup_send, fentry, fexit, hook, tp_btf};

/// The border between kernel and application.
pub const PROBE: Probe = Probe {
    name: "socket",
    on_demand: None,
    hooks: &[
        hook!(
            Required,
            "sk_data_ready",
            "the hand-off to the application (the tracepoint since 6.3, before by fentry)",
            [tp_btf("sk_data_ready"), fentry("fentry_sock_def_readable", "sock_def_readable")]
        ),
        hook!(
            Required,
            "sock_recv_length",
            "the end of each receive, whatever the system call (the tracepoint since 6.3, before by fexit)",
            [
                tp_btf("sock_recv_length"),
                fexit("fexit_inet_recvmsg", "inet_recvmsg").and(&[fexit("fexit_inet6_recvmsg", "inet6_recvmsg")])
            ]
        ),
        hook!(
            Default,
            "tcp_sendmsg_locked",
            "the start of each send on TCP (the tracepoint since 6.16, before by fentry); without it the transmit leg \
             begins at the hand-over to the driver",
            [tp_btf("tcp_sendmsg_locked"), fentry("fentry_tcp_sendmsg_locked", "tcp_sendmsg_locked")]
        ),
        hook!(
            Default,
            "udp_sendmsg",
            "the start of each send on UDP over IPv4 (by fentry, or by the cgroup's sendmsg4 on sockets that are not \
             connected); without it the transmit leg begins at the hand-over to the driver",
            [fentry("fentry_udp_sendmsg", "udp_sendmsg"), cgroup_send("cgroup_sendmsg4")]
        ),
        hook!(
            Default,
            "udpv6_sendmsg",
            "the start of each send on UDP over IPv6 (by fentry, or by the cgroup's sendmsg6 on sockets that are not \
             connected); without it the transmit leg begins at the hand-over to the driver",
            [fentry("fentry_udpv6_sendmsg", "udpv6_sendmsg"), cgroup_send("cgroup_sendmsg6")]
        ),
        hook!(
            Default,
            "sock_send_length",
            "replies (the tracepoint since 6.3, before by fexit); without it there is no service and no transmit leg",
            [
                tp_btf("sock_send_length"),
                fexit("fexit_inet_sendmsg", "inet_sendmsg").and(&[fexit("fexit_inet6_sendmsg", "inet6_sendmsg")])
            ]
        ),
        hook!(Default, "inet_sock_set_state", "connections opened and closed"),
    ],
};
