//! Whether an address belongs to this host. In: an address. Out: yes, or no as far as can be seen.
//!
//! An address of this network namespace can be bound. One of another namespace (a container's) is in the tables of that
//! namespace, which every process in it shows under its own /proc/PID/net. Another machine may have the same private
//! address: if the route to it leaves by a hardware device, the namespace on this host is not the one meant.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether a server with this address runs on this host.
pub(crate) fn is_here(address: SocketAddr) -> bool {
    UdpSocket::bind((address.ip(), 0)).is_ok() || another_namespace_has(address.ip()) && !leaves_by_hardware(address)
}

/// Whether a network namespace of a process that can be seen from here has this address.
fn another_namespace_has(ip: IpAddr) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let mut namespaces = HashSet::new();
    for process in processes.flatten() {
        if !process.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit) {
            continue;
        }
        let tables = process.path().join("net");
        // The kernel numbers these files separately for each namespace, and shows that to every user, unlike the namespace
        // itself.
        let Ok(number) = std::fs::metadata(tables.join("dev")).map(|m| m.ino()) else { continue };
        if namespaces.insert(number) && has(&tables, ip) {
            return true;
        }
    }
    false
}

fn has(tables: &Path, ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => std::fs::read_to_string(tables.join("fib_trie")).is_ok_and(|text| is_local_v4(&text, ip)),
        IpAddr::V6(_) => std::fs::read_to_string(tables.join("if_inet6")).is_ok_and(|text| is_local_v6(&text, ip)),
    }
}

/// /proc/net/fib_trie: a leaf `|-- 10.77.0.1`, and below it `/32 host LOCAL` where the address is the namespace's own.
fn is_local_v4(text: &str, ip: IpAddr) -> bool {
    let leaf = format!("|-- {ip}");
    let mut within = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("|--") || line.starts_with("+--") {
            within = line == leaf;
        } else if within && line.starts_with("/32 host LOCAL") {
            return true;
        }
    }
    false
}

/// /proc/net/if_inet6: 32 digits of the address first.
fn is_local_v6(text: &str, ip: IpAddr) -> bool {
    let IpAddr::V6(ip) = ip else { return false };
    let digits = format!("{:032x}", ip.to_bits());
    text.lines().any(|line| line.split_whitespace().next() == Some(&digits))
}

/// Whether packets to it leave by a device behind which there is hardware.
fn leaves_by_hardware(address: SocketAddr) -> bool {
    let any: IpAddr = if address.is_ipv4() { [0_u8; 4].into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    // Connecting a datagram socket sends nothing: the kernel looks up the route and assigns that device's address.
    let own = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    let Ok(own) = own else { return true };
    let Ok(devices) = nix::ifaddrs::getifaddrs() else { return true };
    let mut names = devices.filter(|device| {
        let address = device.address.as_ref();
        let v4 = address.and_then(|a| a.as_sockaddr_in()).map(|a| IpAddr::V4(a.ip()));
        let v6 = address.and_then(|a| a.as_sockaddr_in6()).map(|a| IpAddr::V6(a.ip()));
        v4.or(v6) == Some(own.ip())
    });
    names.any(|device| Path::new("/sys/class/net").join(&device.interface_name).join("device").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.77.0.0/24 2 0 2
        +-- 10.77.0.0/30 2 0 2
           |-- 10.77.0.0
              /24 link UNICAST
           |-- 10.77.0.1
              /32 host LOCAL
        |-- 10.77.0.255
           /32 link BROADCAST
";

    #[test]
    fn the_kernels_tables_tell_whose_an_address_is() {
        let v4 = |ip: &str| is_local_v4(TRIE, ip.parse().unwrap());
        assert!(v4("10.77.0.1"));
        // A network's name, its broadcast address, another's, and one of which this is the beginning.
        for other in ["10.77.0.0", "10.77.0.255", "10.77.0.2", "10.77.0.10"] {
            assert!(!v4(other), "{other}");
        }
        let table = "fd770000000000000000000000000001 02 40 00 80  eth0\n";
        assert!(is_local_v6(table, "fd77::1".parse().unwrap()));
        assert!(!is_local_v6(table, "fd77::2".parse().unwrap()));
    }
}
