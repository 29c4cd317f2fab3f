//! Packets of the target on their way out. The C is beside this file, in `tx.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// Packets of the target on their way out.
pub const PROBE: Probe = Probe {
    name: "tx",
    on_demand: None,
    hooks: &[
        hook!(Optional, "net_dev_queue", "time in the queueing discipline"),
        hook!(Default, "net_dev_start_xmit", "the hand-over to the driver; without it there is no transmit leg"),
        hook!(Default, "tcp_retransmit_skb", "retransmissions"),
    ],
};
