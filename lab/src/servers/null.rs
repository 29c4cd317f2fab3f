//! The null-RPC server of Tales of the Tail §3.1.1 and its twins: 128 bytes in, the same 128 bytes out. In: a port. Out: the
//! port listened on; the threads serve until the process ends.
//!
//! "A main accept thread spawns new worker threads to handle each arriving client connection. The worker threads enter a
//! blocking loop, reading requests using `read` and immediately writing a response back using `write`."

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};

use super::spawn;
use crate::wire::NULL_RPC;
use crate::{Error, Result};
use tailsight_testbed::queue::epoll::{self, Epoll};

/// Listens on all IPv4 addresses.
pub(super) fn listen(port: u16) -> Result<(TcpListener, u16)> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let io = |e| Error::io(format!("listen on {address}"), e);
    let listener = TcpListener::bind(address).map_err(io)?;
    let port = listener.local_addr().map_err(io)?.port();
    Ok((listener, port))
}

/// A thread a connection.
pub(super) fn threads(port: u16) -> Result<u16> {
    let (listener, port) = listen(port)?;
    spawn("lab-accept", move || {
        for stream in listener.incoming().flatten() {
            // Without a thread the connection is closed, which the client sees.
            let _ = stream.set_nodelay(true).is_ok() && spawn("lab-rpc", move || echo(stream)).is_ok();
        }
    })?;
    Ok(port)
}

/// Serves one connection until it ends.
fn echo(mut stream: TcpStream) {
    let mut request = [0; NULL_RPC];
    while stream.read_exact(&mut request).is_ok() && stream.write_all(&request).is_ok() {}
}

/// One thread and epoll. Requests that come in pieces are put together a connection.
pub(super) fn events(port: u16) -> Result<u16> {
    let (listener, port) = listen(port)?;
    let io = |e| Error::io("make an epoll instance", e);
    listener.set_nonblocking(true).map_err(io)?;
    let epoll = Epoll::new().map_err(io)?;
    let clone = listener.try_clone().map_err(io)?;
    let door = clone.as_raw_fd();
    epoll.give(clone).map_err(io)?;
    spawn("lab-rpc-epoll", move || {
        let mut connections: HashMap<RawFd, (TcpStream, [u8; NULL_RPC], usize)> = HashMap::new();
        let mut events = epoll::room();
        loop {
            for fd in epoll.wait(&mut events) {
                if fd == door {
                    while let Ok((stream, _)) = listener.accept() {
                        let _ = stream.set_nodelay(true);
                        let _ = epoll.give(stream);
                    }
                    continue;
                }
                let connection = connections.entry(fd).or_insert_with(|| {
                    // SAFETY: `give` handed the descriptor over, and this is the first time it is seen.
                    (unsafe { TcpStream::from_raw_fd(fd) }, [0; NULL_RPC], 0)
                });
                let (stream, request, filled) = connection;
                let open = match recv(fd, &mut request[*filled..], MsgFlags::MSG_DONTWAIT) {
                    Ok(0) => false,
                    Ok(n) => {
                        *filled += n;
                        if *filled == NULL_RPC {
                            *filled = 0;
                            stream.write_all(request).is_ok()
                        } else {
                            true
                        }
                    }
                    Err(Errno::EAGAIN | Errno::EINTR) => true,
                    Err(_) => false,
                };
                if !open {
                    connections.remove(&fd);
                }
            }
        }
    })?;
    Ok(port)
}

/// A datagram is a request; `threads` threads take them from one socket.
pub(super) fn datagrams(port: u16, threads: usize) -> Result<u16> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let io = |e| Error::io(format!("bind UDP {address}"), e);
    let socket = UdpSocket::bind(address).map_err(io)?;
    let port = socket.local_addr().map_err(io)?.port();
    for _ in 0..threads {
        let socket = socket.try_clone().map_err(io)?;
        spawn("lab-rpc-udp", move || {
            let mut request = [0; 2048];
            loop {
                match socket.recv_from(&mut request) {
                    // A datagram that is not a request of the protocol gets no answer.
                    Ok((NULL_RPC, from)) => drop(socket.send_to(&request[..NULL_RPC], from)),
                    Ok(_) => {}
                    // ECONNREFUSED reports a client that is gone; the socket continues.
                    Err(error) if error.kind() == ErrorKind::InvalidInput => return,
                    Err(_) => {}
                }
            }
        })?;
    }
    Ok(port)
}
