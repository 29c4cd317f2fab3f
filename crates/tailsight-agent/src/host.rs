//! The abilities of an agent's host. In: harmless system calls. Out: the abilities in `hello`, and the clocks.

use std::io::{IoSliceMut, Read};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};

/// CLOCK_REALTIME, ns.
pub(crate) fn realtime_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Names a boot of this host; empty where the kernel does not say.
pub(crate) fn boot_id() -> String {
    read("/proc/sys/kernel/random/boot_id")
}

/// Names the time namespace: processes of one boot and one such number have one CLOCK_MONOTONIC. 0 without.
pub(crate) fn time_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/time").map_or(0, |meta| meta.ino())
}

pub(crate) fn hostname() -> String {
    read("/proc/sys/kernel/hostname")
}

pub(crate) fn kernel() -> String {
    read("/proc/sys/kernel/osrelease")
}

/// Cores on which this process may run.
pub(crate) fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

fn read(path: &str) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(path);
    let _ = file.and_then(|file| file.take(256).read_to_string(&mut text));
    text.trim().to_owned()
}

/// Whether the kernel stamps received packets: tried with a datagram to itself.
pub(crate) fn kernel_stamps() -> bool {
    let tried = || -> std::io::Result<bool> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        socket.send_to(b"?", socket.local_addr()?)?;
        let mut byte = [0_u8; 1];
        let mut control = nix::cmsg_space!(libc::timespec);
        let mut buffers = [IoSliceMut::new(&mut byte)];
        let fd = socket.as_raw_fd();
        let message = recvmsg::<SockaddrStorage>(fd, &mut buffers, Some(&mut control), MsgFlags::empty())?;
        Ok(message.cmsgs()?.any(|m| matches!(m, ControlMessageOwned::ScmTimestampns(_))))
    };
    tried().unwrap_or(false)
}

/// Whether this process may set SO_BUSY_POLL (beyond `net.core.busy_read` that needs CAP_NET_ADMIN).
pub(crate) fn busy_poll() -> bool {
    UdpSocket::bind("127.0.0.1:0").is_ok_and(|socket| set_busy_poll(socket.as_raw_fd(), 50))
}

fn set_busy_poll(fd: RawFd, us: libc::c_int) -> bool {
    // SAFETY: the value lives over the call and its size is given.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_BUSY_POLL,
            (&raw const us).cast(),
            std::mem::size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    result == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_described() {
        assert!(!kernel().is_empty() && !boot_id().is_empty() && cores() > 0);
        assert!(kernel_stamps(), "every Linux stamps what arrives on loopback");
        // It may be refused, but must not fail otherwise.
        let _ = busy_poll();
    }
}
