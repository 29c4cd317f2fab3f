//! SO_TIMESTAMPING. In: a socket. Out: when the kernel handed bytes to the device, and when bytes came from it.
//!
//! Transmit stamps are asked for one send at a time (a control message), so that requests outside the sample pay nothing;
//! they come back on the error queue with the offset of the last byte of that send (`OPT_ID`). Receive stamps come with
//! the bytes. Both are CLOCK_REALTIME; a stamp that is missing stays missing, nothing waits for it.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::RawFd;

const RX_SOFTWARE: u32 = 1 << 3;
const TX_SOFTWARE: u32 = 1 << 1;
const SOFTWARE: u32 = 1 << 4;
const OPT_ID: u32 = 1 << 7;
const OPT_TSONLY: u32 = 1 << 11;
/// Offsets count from the call, whatever is unacknowledged (Linux 6.2).
const OPT_ID_TCP: u32 = 1 << 16;
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
    /// CLOCK_REALTIME, ns.
    pub(crate) wall_ns: u64,
}

/// Turns stamps on; false where the kernel or the kind of socket has none. Streams must be connected.
pub(crate) fn enable(fd: RawFd, stream: bool) -> bool {
    let flags = RX_SOFTWARE | SOFTWARE | OPT_ID | OPT_TSONLY;
    // Older kernels know no OPT_ID_TCP; their offsets count the same while nothing was sent yet.
    (stream && set(fd, flags | OPT_ID_TCP)) || set(fd, flags)
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

/// Sends without waiting and without SIGPIPE; with `stamp` the kernel is asked for the time of the last byte.
#[inline]
pub(crate) fn send(fd: RawFd, bytes: &[u8], stamp: bool) -> io::Result<usize> {
    const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let sent = if stamp {
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
            libc::CMSG_DATA(header).cast::<u32>().write_unaligned(TX_SOFTWARE);
        }
        // SAFETY: `message` points at `part` and `control`, which live over the call; the kernel only reads the bytes.
        unsafe { libc::sendmsg(fd, &raw const message, FLAGS) }
    } else {
        // SAFETY: the pointer and the length are those of a slice.
        unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), FLAGS) }
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Receives without waiting. With `stamp` also when the last byte of it arrived, CLOCK_REALTIME ns, if the kernel knows.
#[inline]
pub(crate) fn receive(fd: RawFd, buffer: &mut [u8], stamp: bool) -> io::Result<(usize, Option<u64>)> {
    if !stamp {
        // SAFETY: the pointer and the length are those of a mutable slice.
        let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
        return if got < 0 { Err(io::Error::last_os_error()) } else { Ok((got as usize, None)) };
    }
    let mut wall = None;
    let got = receive_message(fd, buffer, libc::MSG_DONTWAIT, |header| {
        // SAFETY: `receive_message` gives headers of the control data that the kernel wrote.
        wall = wall.or(unsafe { software_stamp(header) });
    })?;
    Ok((got, wall))
}

/// Takes one stamp from the error queue; `None` when it is empty (or holds something else, which is dropped).
pub(crate) fn take_send_stamp(fd: RawFd) -> Option<SendStamp> {
    let (mut wall, mut id) = (None, None);
    receive_message(fd, &mut [], libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT, |header| {
        // SAFETY: `receive_message` gives headers of the control data that the kernel wrote, with the data whole.
        unsafe {
            wall = wall.or(software_stamp(header));
            let (level, kind) = ((*header).cmsg_level, (*header).cmsg_type);
            if (level, kind) == (libc::SOL_IP, libc::IP_RECVERR)
                || (level, kind) == (libc::SOL_IPV6, libc::IPV6_RECVERR)
            {
                let error = libc::CMSG_DATA(header).cast::<libc::sock_extended_err>().read_unaligned();
                if error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING {
                    id = Some(error.ee_data);
                }
            }
        }
    })
    .ok()?;
    Some(SendStamp { id: id?, wall_ns: wall? })
}

/// recvmsg, giving each control message to `each`.
fn receive_message(
    fd: RawFd,
    buffer: &mut [u8],
    flags: libc::c_int,
    mut each: impl FnMut(*const libc::cmsghdr),
) -> io::Result<usize> {
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
    // SAFETY: the kernel has set msg_controllen to what it wrote; the macros walk within it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            each(header);
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(got as usize)
}

/// The software stamp of a control message, if it is one.
///
/// # Safety
/// `header` must be a control message that the kernel wrote.
unsafe fn software_stamp(header: *const libc::cmsghdr) -> Option<u64> {
    // SAFETY: by contract the header is readable, and a message of this type holds three timespecs.
    unsafe {
        if (*header).cmsg_level != libc::SOL_SOCKET || (*header).cmsg_type != libc::SCM_TIMESTAMPING {
            return None;
        }
        let time = libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned();
        (time.tv_sec > 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
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
        if !enable(fd, true) {
            eprintln!("skipped: no SO_TIMESTAMPING here");
            return;
        }
        let offset = WallOffset::measure(50);
        let slack = 2 * offset.error_ns + 10;
        // A send without a stamp moves the offset all the same.
        send(fd, b"12345", false).unwrap();
        let before = now_ns();
        send(fd, b"678", true).unwrap();
        let after = now_ns();
        let stamp = take_send_stamp(fd).expect("loopback stamps within the send call");
        assert_eq!(stamp.id, 7);
        between(before - slack, offset.to_monotonic(stamp.wall_ns), after + slack);
        assert_eq!(take_send_stamp(fd), None);

        server.read_exact(&mut [0; 8]).unwrap();
        // Turning on receive stamps takes effect within a moment of the first such socket of the host.
        let mut buffer = [0; 16];
        let mut stamped = false;
        for _ in 0..100 {
            let before = now_ns();
            server.write_all(b"x").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(2));
            let (got, wall) = receive(fd, &mut buffer, true).unwrap();
            assert_eq!(got, 1);
            if let Some(wall) = wall {
                let at = offset.to_monotonic(wall);
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
        if !enable(fd, false) {
            eprintln!("skipped: no SO_TIMESTAMPING here");
            return;
        }
        send(fd, b"a", true).unwrap();
        send(fd, b"b", true).unwrap();
        let ids: Vec<u32> = std::iter::from_fn(|| take_send_stamp(fd)).map(|s| s.id).collect();
        assert_eq!(ids, [0, 1]);
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
