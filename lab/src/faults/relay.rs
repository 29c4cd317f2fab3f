//! Carries packets between a client's and a server's namespace over two TUN devices, and loses or delays some of those that
//! bring data to the server, as a network would. In: namespaces, the part of packets, a delay (none: lost). Out: devices
//! `tun-c` and `tun-s`; truth log entries, one for each request in a packet, from its arrival until it was passed on (lost:
//! until it came): delayed and lost ones apart from those that were passed on at once.

use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{FaultArgs, needed, ready};
use crate::clock::now_ns;
use crate::truth::{TruthLog, kind};
use crate::wire::{REQUEST_HEAD, id_of};
use crate::{Error, Result};

/// `_IOW('T', 202, int)`, and flags (`include/uapi/linux/if_tun.h`).
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const IFF_TUN: libc::c_short = 1;
const IFF_NO_PI: libc::c_short = 0x1000;

/// A delayed packet; the one to send first is the greatest.
#[derive(PartialEq, Eq)]
struct Kept {
    until_ns: u64,
    from_ns: u64,
    packet: Vec<u8>,
}

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.until_ns.cmp(&self.until_ns)
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

pub(super) fn run(args: &FaultArgs, truth: &TruthLog) -> Result<()> {
    let [client, server] = &args.netns[..] else {
        return Err(needed(args.fault, "--netns CLIENT,SERVER"));
    };
    let mut to_client = device(client, "tun-c")?;
    let mut to_server = device(server, "tun-s")?;
    let io = |e| Error::io("carry packets", e);
    let delay = args.delay.map(|delay| delay.as_nanos() as u64);
    let mut rng = SmallRng::seed_from_u64(1);
    let mut kept: BinaryHeap<Kept> = BinaryHeap::new();
    let mut buffer = vec![0; 1 << 16];
    ready()?;
    loop {
        let timeout = match kept.peek() {
            None => PollTimeout::from(100_u16),
            Some(first) if first.until_ns > now_ns() + 1_500_000 => PollTimeout::from(1_u16),
            Some(_) => PollTimeout::ZERO,
        };
        let mut fds = [&to_client, &to_server].map(|device| PollFd::new(device.as_fd(), PollFlags::POLLIN));
        let _ = poll(&mut fds, timeout);
        while let Some(length) = read(&mut to_client, &mut buffer) {
            let packet = &buffer[..length];
            let now = now_ns();
            let data = payload(packet);
            if data.is_some() && rng.random::<f64>() < args.strength {
                match delay {
                    Some(delay) => kept.push(Kept { until_ns: now + delay, from_ns: now, packet: packet.to_vec() }),
                    None => log(truth, kind::packet, packet, now, now),
                }
            } else {
                // From here on the host has the packet: what it does with it is part of the call.
                let at = now_ns();
                pass(&mut to_server, packet).map_err(io)?;
                log(truth, kind::passed, packet, now, at);
            }
        }
        while let Some(length) = read(&mut to_server, &mut buffer) {
            pass(&mut to_client, &buffer[..length]).map_err(io)?;
        }
        while kept.peek().is_some_and(|first| first.until_ns <= now_ns()) {
            if let Some(first) = kept.pop() {
                let at = now_ns();
                pass(&mut to_server, &first.packet).map_err(io)?;
                log(truth, kind::packet, &first.packet, first.from_ns, at);
            }
        }
    }
}

/// An entry for each request in a packet.
fn log(truth: &TruthLog, kind: fn(u32) -> u64, packet: &[u8], from_ns: u64, to_ns: u64) {
    // All requests are equally long, and no segment is so full that one is cut.
    for request in payload(packet).unwrap_or_default().chunks_exact(REQUEST_HEAD) {
        if let Some(id) = id_of(request) {
            truth.add(kind(id), from_ns, to_ns);
        }
    }
}

/// A packet of a device that has one.
fn read(device: &mut File, buffer: &mut [u8]) -> Option<usize> {
    device.read(buffer).ok().filter(|length| *length > 0)
}

/// Writes a packet to a device; a device that is down or full drops it, as a network does.
fn pass(device: &mut File, packet: &[u8]) -> std::io::Result<()> {
    match device.write(packet) {
        Err(e) if e.raw_os_error() == Some(libc::EBADFD) => Err(e),
        _ => Ok(()),
    }
}

/// The payload of an IPv4 TCP packet; `None` when it has none or is another packet.
fn payload(packet: &[u8]) -> Option<&[u8]> {
    let ip = usize::from(packet.first()? & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    let tcp = usize::from(*packet.get(ip + 12)? >> 4) * 4;
    let is_tcp = packet[0] >> 4 == 4 && *packet.get(9)? == 6;
    packet.get(ip + tcp..total).filter(|payload| is_tcp && !payload.is_empty())
}

/// Makes a TUN device in a named network namespace. It is gone when the file is closed.
fn device(netns: &str, name: &str) -> Result<File> {
    let io = |action: String| move |e: std::io::Error| Error::io(action, e);
    let place = File::open(format!("/run/netns/{netns}")).map_err(io(format!("open the network namespace {netns}")))?;
    // The process stays in the last namespace entered; it opens no sockets.
    setns(&place, CloneFlags::CLONE_NEWNET)
        .map_err(|e| Error::io(format!("enter the network namespace {netns}"), e))?;
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(io("open /dev/net/tun".into()))?;
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = IFF_TUN | IFF_NO_PI;
    // SAFETY: `request` is valid and lives over the call, which copies it.
    if unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw const request) } < 0 {
        return Err(Error::io(format!("make the device {name} in {netns}"), std::io::Error::last_os_error()));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An IPv4 packet of a protocol with so much TCP payload.
    fn packet(protocol: u8, payload: usize) -> Vec<u8> {
        let mut bytes = vec![0; 40 + payload];
        bytes[0] = 0x45;
        let total = u16::try_from(bytes.len()).unwrap();
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes[9] = protocol;
        bytes[32] = 5 << 4;
        bytes
    }

    #[test]
    fn only_tcp_with_payload_is_data() {
        assert_eq!(payload(&packet(6, 3)), Some(&[0; 3][..]));
        assert_eq!(payload(&packet(6, 0)), None);
        assert_eq!(payload(&packet(17, 9)), None);
        assert_eq!(payload(&[]), None);
    }

    #[test]
    fn the_one_to_go_first_is_on_top() {
        let mut kept = BinaryHeap::new();
        for until_ns in [5, 1, 3] {
            kept.push(Kept { until_ns, from_ns: 0, packet: Vec::new() });
        }
        let order: Vec<u64> = std::iter::from_fn(|| kept.pop()).map(|k| k.until_ns).collect();
        assert_eq!(order, [1, 3, 5]);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_payload_or_not(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = payload(&bytes);
        }
    }
}
