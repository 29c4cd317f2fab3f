//! The border between kernel and application. The C is beside this file, in `socket.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, cgroup_send, fentry, tp_btf};

/// The border between kernel and application.
pub const PROBE: Probe = Probe {
    name: "socket",
    hooks: &[
        Hook {
            name: "sk_data_ready",
            need: Need::Required,
            tells: "the hand-off to the application",
            programs: &[tp_btf("sk_data_ready")],
        },
        Hook {
            name: "sock_recv_length",
            need: Need::Required,
            tells: "the end of each receive, whatever the system call",
            programs: &[tp_btf("sock_recv_length")],
        },
        Hook {
            name: "tcp_sendmsg_locked",
            need: Need::Default,
            tells: "the begin of each send on TCP (the tracepoint since 6.16, before by fentry); without it the transmit leg begins at the hand-over to the driver",
            programs: &[tp_btf("tcp_sendmsg_locked"), fentry("fentry_tcp_sendmsg_locked", "tcp_sendmsg_locked")],
        },
        Hook {
            name: "udp_sendmsg",
            need: Need::Default,
            tells: "the begin of each send on UDP over IPv4 (by fentry, or by the cgroup's sendmsg4 on sockets that are not connected); without it the transmit leg begins at the hand-over to the driver",
            programs: &[fentry("fentry_udp_sendmsg", "udp_sendmsg"), cgroup_send("cgroup_sendmsg4")],
        },
        Hook {
            name: "udpv6_sendmsg",
            need: Need::Default,
            tells: "the begin of each send on UDP over IPv6 (by fentry, or by the cgroup's sendmsg6 on sockets that are not connected); without it the transmit leg begins at the hand-over to the driver",
            programs: &[fentry("fentry_udpv6_sendmsg", "udpv6_sendmsg"), cgroup_send("cgroup_sendmsg6")],
        },
        Hook {
            name: "sock_send_length",
            need: Need::Default,
            tells: "replies; without it there is no service and no transmit leg",
            programs: &[tp_btf("sock_send_length")],
        },
        Hook {
            name: "inet_sock_set_state",
            need: Need::Default,
            tells: "connections that come and go",
            programs: &[tp_btf("inet_sock_set_state")],
        },
    ],
};
