//! Whether a NIC stamps packets. In: the addresses of a connection, or a network namespace. Out: the number of the NIC's
//! clock, or why it does not stamp and what would help. Nothing is changed: stamping is a setting of the whole NIC, and a
//! change would affect its other users.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use nix::sys::socket::{SockaddrStorage, getpeername, getsockname};

use crate::ethtool::{self, TsInfo};

const FILTER_NONE: i32 = libc::HWTSTAMP_FILTER_NONE as i32;
const FILTER_ALL: i32 = libc::HWTSTAMP_FILTER_ALL as i32;
const TX_ON: i32 = libc::HWTSTAMP_TX_ON as i32;

/// Why only the kernel stamps, and a command that would change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Why no NIC stamps.
    pub why: String,
    /// The command, if one would help.
    pub hint: Option<String>,
}

fn because<T>(why: impl Into<String>) -> Result<T, Reason> {
    Err(Reason { why: why.into(), hint: None })
}

/// A NIC that stamps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamping {
    /// Its interface.
    pub interface: String,
    /// The number of its clock, `/dev/ptpN`.
    pub phc: u32,
}

/// The addresses at both ends of a connected socket.
pub fn ends(fd: RawFd) -> Option<(IpAddr, IpAddr)> {
    // The standard library's functions need an owned socket.
    let local: SockaddrStorage = getsockname(fd).ok()?;
    let peer: SockaddrStorage = getpeername(fd).ok()?;
    Some((address(&local)?, address(&peer)?))
}

fn address(of: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = of.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    Some(v4.or_else(|| of.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))?.to_canonical())
}

/// Whether a NIC stamps all that passes between these addresses.
///
/// # Errors
/// The reason why not.
pub fn of_connection(local: IpAddr, peer: IpAddr) -> Result<Stamping, Reason> {
    if local.is_loopback() {
        return because("loopback: no NIC between client and server");
    }
    let interfaces =
        nix::ifaddrs::getifaddrs().map_err(|e| Reason { why: format!("no list of interfaces: {e}"), hint: None })?;
    let mut interface = None;
    for entry in interfaces {
        let Some(has) = entry.address.as_ref().and_then(address) else { continue };
        if has == peer {
            return because(format!("{peer} is on this host: no NIC between client and server"));
        }
        if has == local {
            // A labelled address (eth0:1) belongs to eth0.
            interface = interface.or_else(|| entry.interface_name.split(':').next().map(str::to_owned));
        }
    }
    let Some(interface) = interface else { return because(format!("no interface has the address {local}")) };
    judge(interface.clone(), ethtool::ts_info(&interface), || ethtool::hwtstamp(&interface))
}

/// The answer from what the NIC can do, and from its present setting (transmit type, receive filter).
fn judge(
    interface: String,
    abilities: io::Result<TsInfo>,
    setting: impl FnOnce() -> io::Result<(i32, i32)>,
) -> Result<Stamping, Reason> {
    const NEEDED: u32 =
        libc::SOF_TIMESTAMPING_TX_HARDWARE | libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
    let can = match abilities {
        Ok(can) => can,
        Err(error) => return because(format!("cannot read the time stamping capabilities of {interface} ({error})")),
    };
    if can.so_timestamping & NEEDED != NEEDED {
        return because(format!("{interface} has no packet time stamps"));
    }
    let Ok(phc) = u32::try_from(can.phc_index) else {
        return because(format!("{interface} has time stamps of a clock that cannot be read"));
    };
    match setting() {
        // Other transmit types stamp these packets too, and differ only for some PTP packets.
        Ok((tx, FILTER_ALL)) if tx >= libc::HWTSTAMP_TX_ON as i32 => return Ok(Stamping { interface, phc }),
        Ok(_) => {}
        Err(error) => return because(format!("cannot read whether time stamps of {interface} are on ({error})")),
    }
    if can.tx_types & (1 << libc::HWTSTAMP_TX_ON) == 0 || can.rx_filters & (1 << FILTER_ALL) == 0 {
        return because(format!("{interface} has time stamps for PTP packets only"));
    }
    let hint = Some(format!("hwtstamp_ctl -i {interface} -t 1 -r 1"));
    Err(Reason { why: format!("{interface} has packet time stamps, but they are off"), hint })
}

/// A device with a clock of its own that is set to stamp packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StampingDevice {
    /// Its name.
    pub name: String,
    /// Its index in its network namespace.
    pub ifindex: u32,
    /// The number of its clock.
    pub phc: u32,
    /// Which received packets it stamps: `all`, `ptp_v2_event` and the like; `none`.
    pub rx_filter: String,
    /// Whether it stamps packets that ask for it as it sends them.
    pub tx: bool,
}

/// The devices of this thread's network namespace that are set to stamp, received packets or sent ones.
pub fn here() -> Vec<StampingDevice> {
    let Ok(interfaces) = nix::net::if_::if_nameindex() else { return Vec::new() };
    let device = |name: &str, ifindex| device(name, ifindex, ethtool::ts_info(name), || ethtool::hwtstamp(name));
    interfaces.iter().filter_map(|i| device(&i.name().to_string_lossy(), i.index())).collect()
}

/// The devices of a process' network namespace that are set to stamp.
///
/// # Errors
/// When the process is gone or this one may not enter its namespace.
pub fn of_process(pid: u32) -> Result<Vec<StampingDevice>, crate::HostError> {
    crate::device::inside(pid, || Ok(here()))
}

fn device(
    name: &str,
    ifindex: u32,
    abilities: io::Result<TsInfo>,
    setting: impl FnOnce() -> io::Result<(i32, i32)>,
) -> Option<StampingDevice> {
    let phc = u32::try_from(abilities.ok()?.phc_index).ok()?;
    let (tx, rx) = setting().ok()?;
    let tx = tx >= TX_ON;
    (tx || rx != FILTER_NONE).then(|| StampingDevice {
        name: name.into(),
        ifindex,
        phc,
        rx_filter: crate::nic::filter_name(rx.cast_unsigned()),
        tx,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::process::Command;

    fn can() -> TsInfo {
        // TX_HARDWARE, RX_HARDWARE, RAW_HARDWARE and the software ones; off and on; nothing and all.
        TsInfo { so_timestamping: 0x5f, phc_index: 3, tx_types: 3, rx_filters: 3 }
    }

    fn judged(can: TsInfo, tx: i32, rx: i32) -> Result<Stamping, Reason> {
        judge("eth7".into(), Ok(can), || Ok((tx, rx)))
    }

    #[test]
    fn a_nic_that_is_set_to_stamp_all_is_used() {
        let stamping = Stamping { interface: "eth7".into(), phc: 3 };
        assert_eq!(judged(can(), 1, 1), Ok(stamping.clone()));
        // One-step transmission stamps all other packets as usual. A driver may do more than it reports.
        assert_eq!(judged(TsInfo { rx_filters: 1, ..can() }, 2, 1), Ok(stamping));
    }

    #[test]
    fn a_nic_that_is_not_set_to_stamp_says_how_it_would_be() {
        for (tx, rx) in [(0, 0), (1, 0), (0, 1), (1, 12), (1, 2), (1, 15)] {
            let reason = judged(can(), tx, rx).unwrap_err();
            assert_eq!(reason.why, "eth7 has packet time stamps, but they are off");
            assert_eq!(reason.hint.as_deref(), Some("hwtstamp_ctl -i eth7 -t 1 -r 1"));
        }
    }

    #[test]
    fn a_nic_that_cannot_stamp_says_why_and_nothing_would_help() {
        let fails = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        for (result, why) in [
            (judged(TsInfo { so_timestamping: 0x1a, ..can() }, 1, 1), "eth7 has no packet time stamps"),
            (judged(TsInfo { phc_index: -1, ..can() }, 0, 0), "eth7 has time stamps of a clock that cannot be read"),
            (judged(TsInfo { rx_filters: 1 | 1 << 12, ..can() }, 0, 0), "eth7 has time stamps for PTP packets only"),
            (judge("eth7".into(), Err(fails()), || Ok((1, 1))), "cannot read the time stamping capabilities of eth7"),
            (judge("eth7".into(), Ok(can()), || Err(fails())), "cannot read whether time stamps of eth7 are on"),
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
            assert!(of_connection(local, peer).unwrap_err().why.starts_with("loopback"));
        }
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(ends(socket.as_raw_fd()), None, "not connected");
        // Test-Net-1 is nobody's address; 127.0.0.1 is one of this host's.
        let (nobodys, own) = ("192.0.2.77".parse().unwrap(), "127.0.0.1".parse().unwrap());
        assert!(of_connection(nobodys, own).unwrap_err().why.contains("is on this host"));
        let why = of_connection(nobodys, "192.0.2.78".parse().unwrap()).unwrap_err().why;
        assert_eq!(why, "no interface has the address 192.0.2.77");
    }

    #[test]
    fn a_name_that_is_too_long_or_nobodys_is_refused() {
        for name in ["a-name-longer-than-any-interface-has", "exactly16bytes__", "nobody0", ""] {
            assert!(ethtool::ts_info(name).is_err() && ethtool::hwtstamp(name).is_err(), "{name}");
        }
    }

    #[test]
    fn of_a_host_s_devices_those_count_that_have_a_clock_and_are_set_to_stamp() {
        let device_with = |can: io::Result<TsInfo>, set: (i32, i32)| device("eth7", 4, can, || Ok(set));
        let stamps = |rx_filter: &str, tx| {
            Some(StampingDevice { name: "eth7".into(), ifindex: 4, phc: 3, rx_filter: rx_filter.into(), tx })
        };
        assert_eq!(device_with(Ok(can()), (1, 1)), stamps("all", true));
        assert_eq!(device_with(Ok(can()), (0, 12)), stamps("ptp_v2_event", false));
        assert_eq!(device_with(Ok(can()), (1, 0)), stamps("none", true));
        assert_eq!(device_with(Ok(can()), (0, 0)), None);
        assert_eq!(device_with(Ok(TsInfo { phc_index: -1, ..can() }), (1, 1)), None);
        assert_eq!(device_with(Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)), (1, 1)), None);
        assert!(here().iter().all(|d| d.name != "lo"));
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
                let reason = of_connection(local, peer).unwrap_err();
                assert_eq!(reason, Reason { why: "tsv0 has no packet time stamps".into(), hint: None });
            }
        });
        tested.join().unwrap();
    }
}
