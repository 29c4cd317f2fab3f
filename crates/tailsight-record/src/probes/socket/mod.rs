//! The border between kernel and application. The C is beside this file, in `socket.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, tp_btf};

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
            tells: "the begin of each send on TCP (since 6.16); without it the transmit leg begins at the hand-over to the driver",
            programs: &[tp_btf("tcp_sendmsg_locked")],
        },
        Hook {
            name: "sock_send_length",
            need: Need::Default,
            tells: "replies; without it there is no service and no transmit leg",
            programs: &[tp_btf("sock_send_length")],
        },
        Hook {
            name: "skb_copy_datagram_iovec",
            need: Need::Optional,
            tells: "the copy of each skb (sequence ranges tell the same)",
            programs: &[tp_btf("skb_copy_datagram_iovec")],
        },
        Hook {
            name: "inet_sock_set_state",
            need: Need::Default,
            tells: "connections that come and go",
            programs: &[tp_btf("inet_sock_set_state")],
        },
    ],
};
