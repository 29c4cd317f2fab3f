//! Packets of the target on their way out. The C is beside this file, in `tx.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, tp_btf};

/// Packets of the target on their way out.
pub const PROBE: Probe = Probe {
    name: "tx",
    hooks: &[
        Hook {
            name: "net_dev_queue",
            need: Need::Optional,
            tells: "time in the queueing discipline",
            programs: &[tp_btf("net_dev_queue")],
        },
        Hook {
            name: "net_dev_start_xmit",
            need: Need::Default,
            tells: "the hand-over to the driver; without it there is no transmit leg",
            programs: &[tp_btf("net_dev_start_xmit")],
        },
        Hook {
            name: "tcp_retransmit_skb",
            need: Need::Default,
            tells: "retransmissions",
            programs: &[tp_btf("tcp_retransmit_skb")],
        },
    ],
};
