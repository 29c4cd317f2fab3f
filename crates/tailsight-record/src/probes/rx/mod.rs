//! Packets on their way in, and packets dropped. The C is beside this file, in `rx.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, tp_btf};

/// Packets on their way in, and packets dropped.
pub const PROBE: Probe = Probe {
    name: "rx",
    hooks: &[
        Hook {
            name: "napi_gro_receive_entry",
            need: Need::Default,
            tells: "arrival at the driver, before GRO",
            programs: &[tp_btf("napi_gro_receive_entry")],
        },
        Hook {
            name: "netif_rx_entry",
            need: Need::Default,
            tells: "arrival over loopback, veth or RPS, before the backlog",
            programs: &[tp_btf("netif_rx_entry")],
        },
        Hook {
            name: "netif_receive_skb",
            need: Need::Required,
            tells: "the packet of each message",
            programs: &[tp_btf("netif_receive_skb")],
        },
        Hook {
            name: "kfree_skb",
            need: Need::Default,
            tells: "drops and their reasons",
            programs: &[tp_btf("kfree_skb")],
        },
    ],
};
