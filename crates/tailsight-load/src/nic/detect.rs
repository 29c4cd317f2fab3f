//! Whether a NIC stamps the packets of a socket. In: a connected socket. Out: the number of the NIC's clock, or why not and what
//! would help. Nothing is changed: stamping is a setting of the whole NIC, and whoever else uses it would be hit.

use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, RawFd};

use nix::sys::socket::{SockaddrStorage, getpeername, getsockname};

/// `ETHTOOL_GET_TS_INFO` of linux/ethtool.h and `SIOCETHTOOL` of linux/sockios.h, which the C library leaves out.
const GET_TS_INFO: u32 = 0x41;
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const FILTER_ALL: i32 = libc::HWTSTAMP_FILTER_ALL as i32;

/// `struct ethtool_ts_info`: what an interface can stamp.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    command: u32,
    so_timestamping: u32,
    phc_index: i32,
    tx_types: u32,
    tx_reserved: [u32; 3],
    rx_filters: u32,
    rx_reserved: [u32; 3],
}

/// Why the kernel stamps alone, and a command that would change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) why: String,
    pub(crate) hint: Option<String>,
}

fn because<T>(why: impl Into<String>) -> Result<T, Reason> {
    Err(Reason { why: why.into(), hint: None })
}

/// A NIC that stamps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamping {
    pub(crate) interface: String,
    pub(crate) phc: u32,
}

/// The addresses at both ends of a connected socket.
pub(crate) fn ends(fd: RawFd) -> Option<(IpAddr, IpAddr)> {
    // The standard library's functions want to own the socket.
    let local: SockaddrStorage = getsockname(fd).ok()?;
    let peer: SockaddrStorage = getpeername(fd).ok()?;
    Some((address(&local)?, address(&peer)?))
}

fn address(of: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = of.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    Some(v4.or_else(|| of.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))?.to_canonical())
}

/// Whether a NIC stamps what passes between these addresses on this socket.
pub(crate) fn detect(fd: BorrowedFd<'_>, local: IpAddr, peer: IpAddr) -> Result<Stamping, Reason> {
    if local.is_loopback() {
        return because("loopback: no NIC between client and server");
    }
    let all =
        nix::ifaddrs::getifaddrs().map_err(|e| Reason { why: format!("no list of interfaces: {e}"), hint: None })?;
    let mut interface = None;
    for one in all {
        let Some(has) = one.address.as_ref().and_then(address) else { continue };
        if has == peer {
            return because(format!("{peer} is of this host: no NIC between client and server"));
        }
        if has == local {
            // A labelled address (eth0:1) is of eth0.
            interface = interface.or_else(|| one.interface_name.split(':').next().map(str::to_owned));
        }
    }
    let Some(interface) = interface else { return because(format!("no interface has the address {local}")) };
    judge(interface.clone(), abilities(fd, &interface), || setting(fd, &interface))
}

/// What follows from what the NIC can do and (transmit type, receive filter) is set to.
fn judge(
    interface: String,
    abilities: io::Result<Abilities>,
    setting: impl FnOnce() -> io::Result<(i32, i32)>,
) -> Result<Stamping, Reason> {
    const NEEDED: u32 =
        libc::SOF_TIMESTAMPING_TX_HARDWARE | libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
    let can = match abilities {
        Ok(can) => can,
        Err(error) => return because(format!("{interface} does not say what it can stamp ({error})")),
    };
    if can.so_timestamping & NEEDED != NEEDED {
        return because(format!("{interface} stamps no packets"));
    }
    let Ok(phc) = u32::try_from(can.phc_index) else {
        return because(format!("{interface} stamps by a clock that cannot be read"));
    };
    match setting() {
        // Other transmit types stamp these packets too, and treat some of PTP's in their own way besides.
        Ok((tx, FILTER_ALL)) if tx >= libc::HWTSTAMP_TX_ON as i32 => return Ok(Stamping { interface, phc }),
        Ok(_) => {}
        Err(error) => return because(format!("{interface} does not say whether it is set to stamp ({error})")),
    }
    if can.tx_types & (1 << libc::HWTSTAMP_TX_ON) == 0 || can.rx_filters & (1 << FILTER_ALL) == 0 {
        return because(format!("{interface} can stamp packets of PTP only"));
    }
    let hint = Some(format!("hwtstamp_ctl -i {interface} -t 1 -r 1"));
    Err(Reason { why: format!("{interface} can stamp packets and is not set to"), hint })
}

/// Asks about an interface.
fn ask<T>(fd: BorrowedFd<'_>, interface: &str, request: libc::Ioctl, answer: &mut T) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: all zeroes is a valid ifreq (numbers, bytes and null pointers).
    let mut message: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte of zero must be left at the end.
    if interface.len() >= message.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in message.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    message.ifr_ifru.ifru_data = std::ptr::from_mut(answer).cast();
    // SAFETY: both requests take an ifreq whose data points at their structure, which is `T` and lives over the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut message) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn abilities(fd: BorrowedFd<'_>, interface: &str) -> io::Result<Abilities> {
    let mut abilities = Abilities { command: GET_TS_INFO, ..Abilities::default() };
    ask(fd, interface, SIOCETHTOOL, &mut abilities)?;
    Ok(abilities)
}

/// Transmit type and receive filter that are set.
fn setting(fd: BorrowedFd<'_>, interface: &str) -> io::Result<(i32, i32)> {
    let mut config = libc::hwtstamp_config { flags: 0, tx_type: 0, rx_filter: 0 };
    ask(fd, interface, libc::SIOCGHWTSTAMP as libc::Ioctl, &mut config)?;
    Ok((config.tx_type, config.rx_filter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::{AsFd, AsRawFd};
    use std::process::Command;

    fn can() -> Abilities {
        // TX_HARDWARE, RX_HARDWARE, RAW_HARDWARE and the software ones; off and on; nothing and all.
        Abilities { so_timestamping: 0x5f, phc_index: 3, tx_types: 3, rx_filters: 3, ..Abilities::default() }
    }

    fn judged(can: Abilities, tx: i32, rx: i32) -> Result<Stamping, Reason> {
        judge("eth7".into(), Ok(can), || Ok((tx, rx)))
    }

    #[test]
    fn a_nic_that_is_set_to_stamp_all_is_used() {
        let stamping = Stamping { interface: "eth7".into(), phc: 3 };
        assert_eq!(judged(can(), 1, 1), Ok(stamping.clone()));
        // One-step transmission stamps all others as usual. A driver may do more than it says it can.
        assert_eq!(judged(Abilities { rx_filters: 1, ..can() }, 2, 1), Ok(stamping));
    }

    #[test]
    fn a_nic_that_is_not_set_to_stamp_says_how_it_would_be() {
        for (tx, rx) in [(0, 0), (1, 0), (0, 1), (1, 12), (1, 2), (1, 15)] {
            let reason = judged(can(), tx, rx).unwrap_err();
            assert_eq!(reason.why, "eth7 can stamp packets and is not set to");
            assert_eq!(reason.hint.as_deref(), Some("hwtstamp_ctl -i eth7 -t 1 -r 1"));
        }
    }

    #[test]
    fn a_nic_that_cannot_stamp_says_why_and_nothing_would_help() {
        let fails = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        for (result, why) in [
            (judged(Abilities { so_timestamping: 0x1a, ..can() }, 1, 1), "eth7 stamps no packets"),
            (judged(Abilities { phc_index: -1, ..can() }, 0, 0), "eth7 stamps by a clock that cannot be read"),
            (judged(Abilities { rx_filters: 1 | 1 << 12, ..can() }, 0, 0), "eth7 can stamp packets of PTP only"),
            (judge("eth7".into(), Err(fails()), || Ok((1, 1))), "eth7 does not say what it can stamp"),
            (judge("eth7".into(), Ok(can()), || Err(fails())), "eth7 does not say whether it is set to stamp"),
        ] {
            let reason = result.unwrap_err();
            assert!(reason.why.starts_with(why) && reason.hint.is_none(), "{reason:?}");
        }
    }

    #[test]
    fn loopback_of_both_families_and_a_peer_on_this_host_have_no_nic() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (local, peer) = ends(client.as_raw_fd()).unwrap();
            assert_eq!(local, listener.local_addr().unwrap().ip());
            assert!(detect(client.as_fd(), local, peer).unwrap_err().why.starts_with("loopback"));
        }
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(ends(socket.as_raw_fd()), None, "not connected");
        // Test-Net-1 is nobody's address; 127.0.0.1 is one of this host's.
        let (nobodys, own) = ("192.0.2.77".parse().unwrap(), "127.0.0.1".parse().unwrap());
        assert!(detect(socket.as_fd(), nobodys, own).unwrap_err().why.contains("is of this host"));
        let why = detect(socket.as_fd(), nobodys, "192.0.2.78".parse().unwrap()).unwrap_err().why;
        assert_eq!(why, "no interface has the address 192.0.2.77");
    }

    #[test]
    fn a_name_that_is_too_long_or_nobodys_is_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for name in ["a-name-longer-than-any-interface-has", "exactly16bytes__", "nobody0"] {
            assert!(abilities(socket.as_fd(), name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_veth_stamps_no_packets() {
        if let Some(reason) = tailsight_testing::lacks_networks() {
            return tailsight_testing::skip(reason);
        }
        let ip = |line: &str| {
            let output = Command::new("ip").args(line.split_whitespace()).output().unwrap();
            assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr).trim());
        };
        // A thread's own namespace goes away with the thread.
        let tested = std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            ip("link add tsv0 type veth peer name tsv1");
            ip("addr add 10.232.0.1/24 dev tsv0");
            ip("-6 addr add fd00:232::1/64 dev tsv0 nodad");
            ip("link set tsv0 up");
            ip("link set tsv1 up");
            for (own, other) in [("10.232.0.1:0", "10.232.0.2:9"), ("[fd00:232::1]:0", "[fd00:232::2]:9")] {
                let socket = UdpSocket::bind(own).unwrap();
                socket.connect(other).unwrap();
                let (local, peer) = ends(socket.as_raw_fd()).unwrap();
                let reason = detect(socket.as_fd(), local, peer).unwrap_err();
                assert_eq!(reason, Reason { why: "tsv0 stamps no packets".into(), hint: None });
            }
        });
        tested.join().unwrap();
    }
}
