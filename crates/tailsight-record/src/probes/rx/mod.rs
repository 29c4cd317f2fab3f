//! Packets on their way in, and packets dropped. The C is beside this file, in `rx.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// Packets on their way in, and packets dropped.
pub const PROBE: Probe = Probe {
    name: "rx",
    on_demand: None,
    hooks: &[
        hook!(Default, "napi_gro_receive_entry", "arrival at the driver, before GRO"),
        hook!(Default, "netif_rx_entry", "arrival over loopback, veth or RPS, before the backlog"),
        hook!(Required, "netif_receive_skb", "the packet of each message"),
        hook!(Default, "kfree_skb", "drops and their reasons"),
    ],
};
