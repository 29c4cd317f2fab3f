//! A perfect FIFO server with one queue: the latency of a queue when only its arrivals and service times matter. In: a port, a law of
//! service times, requests in a language that load generators speak. Out: replies, each at the time at which the ideal server would
//! have given it.
//!
//! Request n, seen at A(n), leaves at D(n) = max(D(n-1), A(n)) + S(n). While it has connections the thread never sleeps and looks
//! at them all the time, also while a request is "in service": so it sees arrivals when they happen, its own system
//! calls are part of the service times and do not add to them, and what interrupts it delays the requests of that moment
//! but not those behind them. With Poisson arrivals this is M/G/1; S should be well above the price of a reply (5-10 us).

pub mod epoll;
mod service;
mod text_protocol;

use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::rc::Rc;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::load::now_ns;
use crate::{Error, Result};
use epoll::Epoll;
pub use service::Service;
pub use text_protocol::TextProtocol;
use text_protocol::{Next, Store};

/// A request that was seen.
struct Waiting {
    /// D(n), CLOCK_MONOTONIC ns.
    leaves_ns: u64,
    stream: Rc<TcpStream>,
    reply: Vec<u8>,
}

/// The queue.
struct Ideal {
    service: Service,
    rng: SmallRng,
    store: Store,
    waiting: VecDeque<Waiting>,
    /// D(n-1), ns.
    last_ns: u64,
}

/// Starts the server on a thread that lives as long as the process; gives where it listens.
///
/// # Errors
/// [`Error::Io`] when the address cannot be listened on, or the thread not started.
pub fn start(address: SocketAddr, service: Service, protocol: TextProtocol) -> Result<SocketAddr> {
    let listener = TcpListener::bind(address).map_err(|e| Error::io(format!("listen on {address}"), e))?;
    let io = |e: std::io::Error| Error::io("watch the listening socket", e);
    let listens_at = listener.local_addr().map_err(io)?;
    listener.set_nonblocking(true).map_err(io)?;
    let epoll = Epoll::new().map_err(io)?;
    let clone = listener.try_clone().map_err(io)?;
    let door = clone.as_raw_fd();
    epoll.give(clone).map_err(io)?;
    let serve = move || {
        let (rng, store) = (SmallRng::seed_from_u64(now_ns()), Store::new(protocol));
        let ideal = Ideal { service, rng, store, waiting: VecDeque::new(), last_ns: 0 };
        ideal.serve(&listener, door, &epoll);
    };
    let thread = std::thread::Builder::new().name("queue".into()).spawn(serve);
    thread.map_err(|e| Error::io("start the server's thread", e))?;
    Ok(listens_at)
}

impl Ideal {
    /// Serves until the process ends.
    fn serve(mut self, listener: &TcpListener, door: RawFd, epoll: &Epoll) {
        let mut connections: HashMap<RawFd, (Rc<TcpStream>, Vec<u8>)> = HashMap::new();
        let mut events = epoll::room();
        let mut buffer = vec![0; 1 << 16];
        loop {
            // Without a client there is no reason to poll.
            let alone = connections.is_empty() && self.waiting.is_empty();
            let ready = if alone { epoll.wait(&mut events) } else { epoll.poll(&mut events) };
            for fd in ready {
                if fd == door {
                    while let Ok((stream, _)) = listener.accept() {
                        let _ = stream.set_nodelay(true);
                        // A connection that cannot be watched is closed by `give`.
                        let _ = epoll.give(stream);
                    }
                    continue;
                }
                let (stream, kept) = connections.entry(fd).or_insert_with(|| {
                    // SAFETY: `give` handed the descriptor over, and this is the first time it is seen.
                    (Rc::new(unsafe { TcpStream::from_raw_fd(fd) }), Vec::new())
                });
                let open = match recv(fd, &mut buffer, MsgFlags::MSG_DONTWAIT) {
                    Ok(0) => false,
                    Ok(n) => {
                        kept.extend_from_slice(&buffer[..n]);
                        self.arrive(now_ns(), stream, kept)
                    }
                    Err(Errno::EAGAIN | Errno::EINTR) => true,
                    Err(_) => false,
                };
                if !open {
                    epoll.forget(fd);
                    connections.remove(&fd);
                }
            }
            while self.waiting.front().is_some_and(|first| first.leaves_ns <= now_ns()) {
                if let Some(first) = self.waiting.pop_front() {
                    answer(&first);
                }
            }
        }
    }

    /// Takes the complete requests out of what a connection has sent; false if the bytes are not of the language.
    fn arrive(&mut self, now: u64, stream: &Rc<TcpStream>, kept: &mut Vec<u8>) -> bool {
        let mut at = 0;
        let good = loop {
            match self.store.next(&kept[at..]) {
                Next::More => break true,
                Next::Bad => break false,
                Next::Request { used, timed, reply } => {
                    at += used;
                    let time = if timed { u64::from(self.service.draw(&mut self.rng)) } else { 0 };
                    self.last_ns = leaves(self.last_ns, now, time);
                    self.waiting.push_back(Waiting { leaves_ns: self.last_ns, stream: Rc::clone(stream), reply });
                }
            }
        };
        kept.drain(..at);
        good
    }
}

/// When a request leaves an ideal FIFO server: D(n) = max(D(n-1), A(n)) + S(n), ns.
fn leaves(last_ns: u64, arrived_ns: u64, service_ns: u64) -> u64 {
    last_ns.max(arrived_ns) + service_ns
}

/// Sends a reply.
fn answer(waiting: &Waiting) {
    let mut rest = &waiting.reply[..];
    while !rest.is_empty() {
        match send(waiting.stream.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::EINTR) => {}
            // The client is gone; the reader will see it too.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::time::Duration;

    #[test]
    fn a_queue_adds_up_and_an_idle_server_begins_anew() {
        assert_eq!(leaves(0, 100, 10), 110);
        assert_eq!(leaves(110, 105, 10), 120);
        assert_eq!(leaves(120, 500, 10), 510);
    }

    /// Pipelined requests leave a service time after each other; stores take none.
    #[test]
    fn requests_in_one_packet_are_served_one_after_the_other() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let address = start(any, "fixed:3ms".parse().unwrap(), TextProtocol::Memcached).unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let begin = now_ns();
        socket.write_all(b"set k 0 0 1\r\nx\r\nget k\r\nget k\r\nget no\r\n").unwrap();
        let wanted = b"STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\nVALUE k 0 1\r\nx\r\nEND\r\nEND\r\n";
        let mut reply = vec![0; wanted.len()];
        socket.read_exact(&mut reply).unwrap();
        assert_eq!(reply.escape_ascii().to_string(), wanted.escape_ascii().to_string());
        assert!(now_ns() - begin >= 9_000_000, "three service times");
        socket.write_all(b"what is this").unwrap();
        socket.write_all(&[b'x'; 5000]).unwrap();
        // Not of the language: the connection is closed.
        let _ = socket.read(&mut reply);
    }
}
