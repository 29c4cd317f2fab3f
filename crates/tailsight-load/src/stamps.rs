//! SO_TIMESTAMPING. In: a socket. Out: when the kernel handed bytes to the device, and when bytes came from it; where a NIC
//! stamps, also when they left it and reached it.
//!
//! Transmit stamps are requested for each send separately (a control message), so that requests outside the sample cost
//! nothing; they come back on the error queue with the offset of the last byte of that send (`OPT_ID`): the kernel's and the
//! NIC's in a message each, in any order. Receive stamps come with the bytes. The kernel's are CLOCK_REALTIME, the NIC's by
//! its own clock ([`crate::nic`]). Missing stamps are not waited for.

mod control;

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::RawFd;

pub(crate) use control::Raw;

const TX_HARDWARE: u32 = libc::SOF_TIMESTAMPING_TX_HARDWARE;
const TX_SOFTWARE: u32 = libc::SOF_TIMESTAMPING_TX_SOFTWARE;
const SOFTWARE: u32 = libc::SOF_TIMESTAMPING_RX_SOFTWARE
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID
    | libc::SOF_TIMESTAMPING_OPT_TSONLY;
/// Without `OPT_TX_SWHW` a kernel leaves out its own stamp of a send when the NIC has promised one, which may come too late.
const HARDWARE: u32 =
    libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE | libc::SOF_TIMESTAMPING_OPT_TX_SWHW;
/// Offsets count from the call, whatever is unacknowledged (Linux 6.2).
const OPT_ID_TCP: u32 = libc::SOF_TIMESTAMPING_OPT_ID_TCP;
/// Room for the control messages of a receive: stamps (64 bytes with header), and an extended error with its address.
const CONTROL: usize = 256;

/// Control data, aligned as the kernel's headers are.
#[repr(align(8))]
struct Control([u8; CONTROL]);

/// What an error queue held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendStamp {
    /// Streams: offset of the last byte of the send, from when stamping was turned on. Datagrams: their number.
    pub(crate) id: u32,
    /// At least one of them.
    pub(crate) stamps: Raw,
}

/// Which stamps of a send are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Nobody.
    Nobody,
    /// The kernel.
    Kernel,
    /// The kernel and the NIC.
    Both,
}

/// What [`enable`] turned on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Enabled {
    /// The kernel's stamps.
    pub(crate) kernel: bool,
    /// The NIC's besides.
    pub(crate) nic: bool,
}

/// Turns stamps on, including the NIC's if wanted, as far as the kernel and the kind of socket support them. Streams must be
/// connected.
pub(crate) fn enable(fd: RawFd, stream: bool, nic: bool) -> Enabled {
    // Older kernels lack OPT_ID_TCP; their offsets are the same while nothing was sent yet.
    let try_set = |flags: u32| (stream && set(fd, flags | OPT_ID_TCP)) || set(fd, flags);
    if nic && try_set(SOFTWARE | HARDWARE) {
        return Enabled { kernel: true, nic: true };
    }
    Enabled { kernel: try_set(SOFTWARE), nic: false }
}

fn set(fd: RawFd, flags: u32) -> bool {
    // SAFETY: the value lives over the call and its size is given.
    let done = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const flags).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    done == 0
}

/// Sends without waiting and without SIGPIPE, asking for the time of the last byte.
#[inline]
pub(crate) fn send(fd: RawFd, bytes: &[u8], ask: Ask) -> io::Result<usize> {
    const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let sent = if ask != Ask::Nobody {
        let flags = if ask == Ask::Both { TX_SOFTWARE | TX_HARDWARE } else { TX_SOFTWARE };
        let mut control = Control([0; CONTROL]);
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: all zeroes is a valid msghdr (null pointers, no lengths).
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE computes; the room that it asks for (24 bytes) is less than CONTROL, so the first header
        // lies inside `control` with room for its u32.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size_of::<u32>() as u32) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SO_TIMESTAMPING;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<u32>() as u32) as usize;
            libc::CMSG_DATA(header).cast::<u32>().write_unaligned(flags);
        }
        // SAFETY: `message` points at `part` and `control`, which live over the call; the kernel only reads the bytes.
        unsafe { libc::sendmsg(fd, &raw const message, FLAGS) }
    } else {
        // SAFETY: the pointer and the length are those of a slice.
        unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), FLAGS) }
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Receives without waiting. With `stamp` also when the last byte of it arrived, as far as the kernel and the NIC know.
#[inline]
pub(crate) fn receive(fd: RawFd, buffer: &mut [u8], stamp: bool) -> io::Result<(usize, Raw)> {
    if !stamp {
        // SAFETY: the pointer and the length are those of a mutable slice.
        let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
        return if got < 0 { Err(io::Error::last_os_error()) } else { Ok((got as usize, Raw::default())) };
    }
    let (got, said) = receive_message(fd, buffer, libc::MSG_DONTWAIT)?;
    Ok((got, said.stamps))
}

/// Takes one message from the error queue; `None` when it is empty (or holds something else, which is dropped).
pub(crate) fn take_send_stamp(fd: RawFd) -> Option<SendStamp> {
    let (_, said) = receive_message(fd, &mut [], libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT).ok()?;
    (said.stamps != Raw::default()).then_some(SendStamp { id: said.id?, stamps: said.stamps })
}

/// recvmsg, and what its control data says.
#[inline]
fn receive_message(fd: RawFd, buffer: &mut [u8], flags: libc::c_int) -> io::Result<(usize, control::Said)> {
    let mut control = Control([0; CONTROL]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeroes is a valid msghdr (null pointers, no lengths).
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL;
    // SAFETY: `message` points at `part`, `buffer` and `control`, which live over the call, with their lengths.
    let got = unsafe { libc::recvmsg(fd, &raw mut message, flags) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // The kernel has set msg_controllen to what it wrote.
    Ok((got as usize, control::read(&control.0[..message.msg_controllen.min(CONTROL)])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{WallOffset, now_ns};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;

    fn between(before: u64, stamp: u64, after: u64) {
        assert!((before..=after).contains(&stamp), "{before} {stamp} {after}");
    }

    #[test]
    fn stream_stamps_are_matched_by_offset_and_lie_between_the_clock_readings() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let fd = client.as_raw_fd();
        if !enable(fd, true, false).kernel {
            return tailsight_testing::skip("no SO_TIMESTAMPING here");
        }
        let offset = WallOffset::measure(50);
        let slack = 2 * offset.error_ns + 10;
        // A send without a stamp moves the offset all the same.
        send(fd, b"12345", Ask::Nobody).unwrap();
        let before = now_ns();
        send(fd, b"678", Ask::Kernel).unwrap();
        let after = now_ns();
        let stamp = take_send_stamp(fd).expect("loopback stamps within the send call");
        assert_eq!(stamp.id, 7);
        between(before - slack, offset.to_monotonic(stamp.stamps.wall_ns), after + slack);
        assert_eq!(take_send_stamp(fd), None);

        server.read_exact(&mut [0; 8]).unwrap();
        // Turning on receive stamps takes effect within a moment of the first such socket of the host.
        let mut buffer = [0; 16];
        let mut stamped = false;
        for _ in 0..100 {
            let before = now_ns();
            server.write_all(b"x").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(2));
            let (got, stamps) = receive(fd, &mut buffer, true).unwrap();
            assert_eq!((got, stamps.nic_ns), (1, 0));
            if stamps.wall_ns > 0 {
                let at = offset.to_monotonic(stamps.wall_ns);
                between(before - slack, at, now_ns() + slack);
                stamped |= at < now_ns() - 1_000_000;
            }
            if stamped {
                return;
            }
        }
        panic!("no receive stamp that is older than the reading");
    }

    #[test]
    fn datagram_stamps_are_numbered() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        let fd = client.as_raw_fd();
        if !enable(fd, false, false).kernel {
            return tailsight_testing::skip("no SO_TIMESTAMPING here");
        }
        send(fd, b"a", Ask::Kernel).unwrap();
        send(fd, b"b", Ask::Kernel).unwrap();
        let ids: Vec<u32> = std::iter::from_fn(|| take_send_stamp(fd)).map(|s| s.id).collect();
        assert_eq!(ids, [0, 1]);
    }

    #[test]
    fn asking_a_nic_that_is_not_there_costs_no_kernel_stamp() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = client.as_raw_fd();
        let enabled = enable(fd, true, true);
        if !enabled.nic {
            return tailsight_testing::skip("no SO_TIMESTAMPING of NICs here");
        }
        assert!(enabled.kernel);
        send(fd, b"abc", Ask::Both).unwrap();
        let stamp = take_send_stamp(fd).expect("loopback stamps within the send call");
        assert_eq!((stamp.id, stamp.stamps.nic_ns), (2, 0));
        assert!(stamp.stamps.wall_ns > 0);
        assert_eq!(take_send_stamp(fd), None);
    }

    #[test]
    fn an_empty_socket_would_block() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for stamp in [false, true] {
            let error = receive(socket.as_raw_fd(), &mut [0; 4], stamp).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }
}
