//! One TCP connection of a workload. In: due times. Out: requests on the wire; replies matched to due times in order.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};

use super::framing::Framer;
use super::now_ns;
use super::outcome::Tally;
use super::{Workload, request};

/// Bytes of the receive buffer: the longest reply head.
const BUFFER: usize = 16 * 1024;

/// Why a connection cannot go on.
pub(super) enum Broken {
    /// The server closed or reset it.
    Closed(String),
    /// It sent what is not the protocol.
    Malformed(String),
}

/// A connection, its requests in flight, and its half-read reply.
pub(super) struct Stream {
    socket: TcpStream,
    addr: SocketAddr,
    workload_proto: super::Proto,
    /// The same request several times over, so that a burst is one write.
    requests: Vec<u8>,
    /// Bytes of one request.
    request_len: usize,
    /// Where in `requests` the next write begins.
    at: usize,
    /// Bytes due but not yet taken by the kernel.
    unsent: usize,
    /// Due times of the requests without an answer, ns, oldest first.
    waiting: VecDeque<u64>,
    framer: Framer,
    buffer: Box<[u8]>,
    filled: usize,
    /// Whether anything was answered since it was connected.
    answered: bool,
}

impl Stream {
    /// Takes over a connected socket that has no reply under way.
    pub(super) fn new(workload: &Workload, connection: usize, socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let request = request::get(workload, connection);
        Ok(Self {
            socket,
            addr: workload.addr,
            workload_proto: workload.proto,
            requests: request.repeat(workload.pipeline_burst.max(16)),
            request_len: request.len(),
            at: 0,
            unsent: 0,
            waiting: VecDeque::with_capacity(1024.max(2 * workload.pipeline_burst)),
            framer: Framer::new(workload.proto),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            filled: 0,
            answered: true,
        })
    }

    /// The socket, to be polled.
    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Requests without an answer.
    pub(super) fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    /// Adds `count` requests that are due at `due_ns`; [`Stream::flush`] sends them.
    pub(super) fn offer(&mut self, due_ns: u64, count: usize) {
        self.waiting.extend(std::iter::repeat_n(due_ns, count));
        self.unsent += count * self.request_len;
    }

    /// Writes what is due until all is written or the kernel takes no more.
    pub(super) fn flush(&mut self, tally: &mut Tally) -> Result<(), Broken> {
        while self.unsent > 0 {
            let end = (self.at + self.unsent).min(self.requests.len());
            let now = now_ns();
            let written = match self.socket.write(&self.requests[self.at..end]) {
                Ok(written) => written,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    ErrorKind::Interrupted => continue,
                    _ => return Err(Broken::Closed(error.to_string())),
                },
            };
            let before = self.unsent.div_ceil(self.request_len);
            self.unsent -= written;
            let after = self.unsent.div_ceil(self.request_len);
            let first = self.waiting.len() - before;
            for due in self.waiting.range(first..first + before - after) {
                tally.sent(*due, now);
            }
            // Back to the start when all is out: a later burst then never wraps, and stays one write.
            self.at = if self.unsent == 0 { 0 } else { (self.at + written) % self.requests.len() };
        }
        Ok(())
    }

    /// Reads what has come and counts the replies.
    pub(super) fn receive(&mut self, tally: &mut Tally) -> Result<(), Broken> {
        loop {
            let room = self.buffer.len() - self.filled;
            let read = match self.socket.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Err(Broken::Closed("end of stream".into())),
                Ok(read) => read,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    ErrorKind::Interrupted => continue,
                    _ => return Err(Broken::Closed(error.to_string())),
                },
            };
            let now = now_ns();
            self.filled += read;
            let (waiting, answered) = (&mut self.waiting, &mut self.answered);
            let used = self
                .framer
                .push(&self.buffer[..self.filled], |good| {
                    let due = waiting.pop_front().ok_or("a reply that nobody asked for")?;
                    *answered = true;
                    tally.reply(good, due, now);
                    Ok(())
                })
                .map_err(Broken::Malformed)?;
            self.buffer.copy_within(used..self.filled, 0);
            self.filled -= used;
            if self.filled == self.buffer.len() {
                return Err(Broken::Malformed(format!("a head longer than {BUFFER} bytes")));
            }
            if read < room {
                // The socket is empty; new bytes are a new edge.
                return Ok(());
            }
        }
    }

    /// After the server closed it: counts what was in flight as errors and connects anew without waiting.
    /// Gives false when the last attempt was closed before anything was answered: the server does not want us.
    pub(super) fn reconnect(&mut self, tally: &mut Tally) -> io::Result<bool> {
        tally.errors += self.waiting.len() as u64;
        self.waiting.clear();
        (self.at, self.unsent, self.filled) = (0, 0, 0);
        self.framer = Framer::new(self.workload_proto);
        if !self.answered {
            return Ok(false);
        }
        self.answered = false;
        self.socket = connect_nonblocking(self.addr)?;
        Ok(true)
    }
}

/// Starts a TCP connection; writes wait inside [`Stream`] until it stands.
fn connect_nonblocking(addr: SocketAddr) -> io::Result<TcpStream> {
    let family = if addr.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd: OwnedFd = socket(family, SockType::Stream, flags, None)?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(addr)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let socket = TcpStream::from(fd);
    socket.set_nodelay(true)?;
    Ok(socket)
}
