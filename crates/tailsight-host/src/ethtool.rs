//! The ethtool ioctls that only read: driver, time stamping abilities, interrupt coalescing, queues.
//!
//! In: an interface name of this network namespace. Out: the kernel's structs as plain values.
//! Layouts: `include/uapi/linux/ethtool.h`.

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::io;
use std::os::fd::AsRawFd;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;

/// `struct ethtool_ts_info`, the fields used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TsInfo {
    pub(crate) so_timestamping: u32,
    pub(crate) phc_index: i32,
    pub(crate) tx_types: u32,
    pub(crate) rx_filters: u32,
}

/// `struct ethtool_coalesce`, the fields used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CoalesceInfo {
    pub(crate) rx_usecs: u32,
    pub(crate) rx_frames: u32,
    pub(crate) tx_usecs: u32,
    pub(crate) adaptive_rx: bool,
    pub(crate) adaptive_tx: bool,
}

/// Time stamping abilities of an interface.
pub(crate) fn ts_info(name: &str) -> io::Result<TsInfo> {
    // cmd, so_timestamping, phc_index, tx_types, 3 reserved, rx_filters, 3 reserved
    let mut words = [0u32; 11];
    words[0] = ETHTOOL_GET_TS_INFO;
    ask(name, &mut words)?;
    Ok(TsInfo {
        so_timestamping: words[1],
        phc_index: words[2].cast_signed(),
        tx_types: words[3],
        rx_filters: words[7],
    })
}

/// Which packets an interface is set to stamp: transmit type and receive filter (`HWTSTAMP_TX_*`, `HWTSTAMP_FILTER_*`).
pub(crate) fn hwtstamp(name: &str) -> io::Result<(i32, i32)> {
    // struct hwtstamp_config: flags, tx_type, rx_filter
    let mut words = [0u32; 3];
    request(name, libc::SIOCGHWTSTAMP as _, &mut words)?;
    Ok((words[1].cast_signed(), words[2].cast_signed()))
}

/// Interrupt coalescing of an interface.
pub(crate) fn coalesce(name: &str) -> io::Result<CoalesceInfo> {
    let mut words = [0u32; 23];
    words[0] = ETHTOOL_GCOALESCE;
    ask(name, &mut words)?;
    Ok(CoalesceInfo {
        rx_usecs: words[1],
        rx_frames: words[2],
        tx_usecs: words[5],
        adaptive_rx: words[10] != 0,
        adaptive_tx: words[11] != 0,
    })
}

/// The driver's name; virtual devices such as veth have one too.
pub(crate) fn driver(name: &str) -> io::Result<String> {
    driver_and_bus(name).map(|(driver, _)| driver)
}

/// The driver's name, and the device's address on its bus (`0000:00:03.0`; empty for virtual devices).
pub(crate) fn driver_and_bus(name: &str) -> io::Result<(String, String)> {
    // cmd, then driver, version, firmware version and bus info of 32 bytes each, and what follows: 196 bytes
    let mut words = [0u32; 49];
    words[0] = ETHTOOL_GDRVINFO;
    ask(name, &mut words)?;
    Ok((text(&words[1..9]), text(&words[25..33])))
}

/// Receive and transmit queues in use; those that do both count as each.
pub(crate) fn channels(name: &str) -> io::Result<(u32, u32)> {
    // cmd, the most of each kind (rx, tx, other, combined), then how many there are (the same order)
    let mut words = [0u32; 9];
    words[0] = ETHTOOL_GCHANNELS;
    ask(name, &mut words)?;
    Ok((words[5].saturating_add(words[8]), words[6].saturating_add(words[8])))
}

/// Bytes up to the first zero as text.
fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One ethtool request. `words` starts with the command and is as long as the command's struct, which the kernel fills.
fn ask(name: &str, words: &mut [u32]) -> io::Result<()> {
    request(name, SIOCETHTOOL, words)
}

/// One request about an interface; `words` is as long as its struct, which the kernel fills.
fn request(name: &str, call: libc::c_ulong, words: &mut [u32]) -> io::Result<()> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the name ends with a zero byte, ifru_data points at a buffer of the command's full struct, and both live
    // through the call. Only requests that read the device's state are sent.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), call as _, &raw mut request) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
