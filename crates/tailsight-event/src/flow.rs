//! Flows: the key that a packet header and a socket both give for the same connection.
//!
//! For IPv4 the address key is exact (local << 32 | remote, host order). For IPv6 it is a 64-bit mix of the two
//! addresses, computed the same way in the probes; the addresses themselves come once per flow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::event::{Event, flow_flags};
use crate::fields::Flow;

/// First multiplier of the IPv6 mix (shared with the probes through the generated header).
pub const MIX_K1: u64 = 0x9e37_79b9_7f4a_7c15;
/// Second multiplier of the IPv6 mix.
pub const MIX_K2: u64 = 0xc2b2_ae3d_27d4_eb4f;

/// A flow as seen from this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// The address key.
    pub addrs: u64,
    /// Local port << 16 | remote port.
    pub ports: u32,
    /// [`flow_flags::V6`] and [`flow_flags::UDP`] of the flow.
    pub proto: u8,
}

impl FlowKey {
    /// The flow of a network event.
    #[inline]
    pub fn of(event: &Event) -> FlowKey {
        let Flow { flags, address_key, local_port, remote_port } = Flow::of(event);
        FlowKey {
            addrs: address_key,
            ports: u32::from(local_port) << 16 | u32::from(remote_port),
            proto: (flags & (flow_flags::V6 | flow_flags::UDP)) as u8,
        }
    }

    /// The flow between two ends; `udp` else TCP.
    pub fn between(local: (IpAddr, u16), remote: (IpAddr, u16), udp: bool) -> FlowKey {
        let proto = if udp { flow_flags::UDP as u8 } else { 0 };
        let ports = u32::from(local.1) << 16 | u32::from(remote.1);
        match (canonical(local.0), canonical(remote.0)) {
            (IpAddr::V4(l), IpAddr::V4(r)) => {
                FlowKey { addrs: u64::from(u32::from(l)) << 32 | u64::from(u32::from(r)), ports, proto }
            }
            (l, r) => FlowKey { addrs: mix6(to6(l), to6(r)), ports, proto: proto | flow_flags::V6 as u8 },
        }
    }

    /// The local port.
    pub fn local_port(&self) -> u16 {
        (self.ports >> 16) as u16
    }
    /// The remote port.
    pub fn remote_port(&self) -> u16 {
        self.ports as u16
    }
    /// Whether the flow is UDP.
    pub fn is_udp(&self) -> bool {
        u16::from(self.proto) & flow_flags::UDP != 0
    }
    /// Whether the flow is IPv6.
    pub fn is_v6(&self) -> bool {
        u16::from(self.proto) & flow_flags::V6 != 0
    }
    /// Both addresses, local first, when the key holds them (IPv4).
    pub fn addresses(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        (!self.is_v6()).then(|| (Ipv4Addr::from((self.addrs >> 32) as u32), Ipv4Addr::from(self.addrs as u32)))
    }
}

/// An IPv4 address mapped into IPv6 becomes the IPv4 address: dual-stack sockets hold such.
fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

fn to6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// The 64-bit mix of two IPv6 addresses; the words are loaded as the machine does, as in the probes.
pub fn mix6(local: Ipv6Addr, remote: Ipv6Addr) -> u64 {
    let words = |ip: Ipv6Addr| {
        let o = ip.octets();
        let mut first = [0u8; 8];
        let mut second = [0u8; 8];
        first.copy_from_slice(&o[..8]);
        second.copy_from_slice(&o[8..]);
        (u64::from_ne_bytes(first), u64::from_ne_bytes(second))
    };
    let (l0, l1) = words(local);
    let (r0, r1) = words(remote);
    let mut h = l0.wrapping_mul(MIX_K1);
    h ^= h >> 29;
    h = h.wrapping_add(l1).wrapping_mul(MIX_K2);
    h ^= h >> 32;
    h = h.wrapping_add(r0).wrapping_mul(MIX_K1);
    h ^= h >> 29;
    h = h.wrapping_add(r1).wrapping_mul(MIX_K2);
    h ^ (h >> 32)
}

impl std::fmt::Display for FlowKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let proto = if self.is_udp() { "udp" } else { "tcp" };
        match self.addresses() {
            Some((l, r)) => write!(f, "{proto} {l}:{} <- {r}:{}", self.local_port(), self.remote_port()),
            None => {
                write!(f, "{proto}6 :{} <- :{} (addresses {:016x})", self.local_port(), self.remote_port(), self.addrs)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_addresses_are_the_ipv4_flow() {
        let v4 = FlowKey::between(("10.0.0.1".parse().unwrap(), 80), ("10.0.0.2".parse().unwrap(), 4000), false);
        let mapped = FlowKey::between(
            ("::ffff:10.0.0.1".parse().unwrap(), 80),
            ("::ffff:10.0.0.2".parse().unwrap(), 4000),
            false,
        );
        assert_eq!(v4, mapped);
        assert_eq!(v4.to_string(), "tcp 10.0.0.1:80 <- 10.0.0.2:4000");
    }

    #[test]
    fn the_mix_depends_on_direction_and_every_half() {
        let a: Ipv6Addr = "fd77::1".parse().unwrap();
        let b: Ipv6Addr = "fd77::2".parse().unwrap();
        let c: Ipv6Addr = "fd78::1".parse().unwrap();
        assert_ne!(mix6(a, b), mix6(b, a));
        assert_ne!(mix6(a, b), mix6(c, b));
        assert_ne!(mix6(a, b), mix6(a, c));
    }
}
