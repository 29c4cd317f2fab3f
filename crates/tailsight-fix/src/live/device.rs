//! Interrupt coalescing of a network device, by the ethtool request that ethtool -c and -C make.
//!
//! In: a device of the calling thread's network namespace. Out: two of its settings. Layout: `struct ethtool_coalesce` of
//! `include/uapi/linux/ethtool.h`; what is not set is given back as it was read.

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::Setting;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const GET: u32 = 0x0e;
const SET: u32 = 0x0f;
/// `cmd` and 22 values.
type Coalesce = [u32; 23];

const fn index(setting: Setting) -> usize {
    match setting {
        Setting::RxUsecs => 1,
        Setting::AdaptiveRx => 10,
    }
}

pub fn read(device: &str, setting: Setting) -> io::Result<String> {
    let mut words: Coalesce = [0; 23];
    request(device, GET, &mut words)?;
    let value = words[index(setting)];
    Ok(match setting {
        Setting::RxUsecs => value.to_string(),
        Setting::AdaptiveRx => if value == 0 { "off" } else { "on" }.into(),
    })
}

pub fn write(device: &str, setting: Setting, value: &str) -> io::Result<()> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("{value:?} is no {}", setting.name()));
    let number = match setting {
        Setting::RxUsecs => value.parse().map_err(|_| invalid())?,
        Setting::AdaptiveRx => match value {
            "on" => 1,
            "off" => 0,
            _ => return Err(invalid()),
        },
    };
    let mut words: Coalesce = [0; 23];
    request(device, GET, &mut words)?;
    words[index(setting)] = number;
    request(device, SET, &mut words)
}

fn request(device: &str, command: u32, words: &mut Coalesce) -> io::Result<()> {
    let bytes = device.as_bytes();
    if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    words[0] = command;
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: an all-zero ifreq is valid.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in ifreq.ifr_name.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    ifreq.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the name ends with a zero byte, ifru_data points at the whole structure of both commands, and both live
    // through the call.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut ifreq) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
