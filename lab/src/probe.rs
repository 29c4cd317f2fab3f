//! A client that records each of its requests: when it was due, sent and answered, what it asked for, and the server's
//! stamps. In: a [`Plan`]. Out: a [`Sample`] a request, times in CLOCK_MONOTONIC ns.
//!
//! Open loop on one thread, exponential or equal gaps; [`crate::load`] is for real servers and high rates, this client for
//! the truth.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tailsight_load::Poller;

use crate::clock::now_ns;
use crate::postgres;
use crate::servers::Service;
use crate::wire::{NULL_RPC, REPLY_HEAD, REQUEST_HEAD, ReplyHead, Stamps, id_of, request};
use crate::{Error, Result};

/// How long replies are waited for after the last request, at most, ns.
const DRAIN_NS: u64 = 2_000_000_000;

/// The protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeProtocol {
    /// The synthetic protocol over TCP.
    Synthetic,
    /// 128 bytes that come back, over TCP.
    Echo,
    /// 128 bytes that come back, over UDP.
    EchoUdp,
    /// Statements of PostgreSQL.
    Postgres {
        /// The requests.
        usual: &'static str,
        /// The requests that are mixed in ([`Special`]).
        special: &'static str,
    },
}

/// A kind of request that is mixed in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Special {
    /// Which part of requests, 0 to 1.
    pub part: f64,
    /// Its flags ([`crate::wire::flags`]).
    pub flags: u8,
    /// Its service time, if it differs.
    pub service: Option<Service>,
}

/// What to send.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The server.
    pub addr: SocketAddr,
    /// The protocol.
    pub protocol: ProbeProtocol,
    /// Connections, used in turn.
    pub connections: usize,
    /// Requests a second.
    pub rate_per_s: f64,
    /// Whether arrivals are evenly spaced; else the gaps are exponential.
    pub even: bool,
    /// Requests sent back to back on one connection at each arrival; the rate stays the same.
    pub burst: usize,
    /// Which part of arrivals is a burst, 0 to 1; the others are single requests.
    pub burst_part: f64,
    /// Service times.
    pub service: Service,
    /// Requests mixed in.
    pub special: Option<Special>,
    /// Which part of arrivals opens a connection of its own, 0 to 1.
    pub fresh: f64,
    /// Seed of arrivals, service times and choices.
    pub seed: u64,
}

impl Plan {
    /// 2,000 requests/s over 8 connections, 5 us of service each.
    #[must_use]
    pub fn new(addr: SocketAddr, protocol: ProbeProtocol) -> Self {
        Self {
            addr,
            protocol,
            connections: 8,
            rate_per_s: 2000.0,
            even: false,
            burst: 1,
            burst_part: 0.0,
            service: Service::Fixed(5000.0),
            special: None,
            fresh: 0.0,
            seed: 1,
        }
    }
}

/// A request that was sent, or was due.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// When it was due, ns.
    pub due_ns: u64,
    /// When it was given to the kernel, ns.
    pub sent_ns: u64,
    /// When its reply was read, ns; 0: never.
    pub answered_ns: u64,
    /// The service time that it asked for, ns.
    pub service_ns: u32,
    /// Its flags.
    pub flags: u8,
    /// The connection that it was sent on.
    pub connection: u32,
    /// Whether it came on a connection of its own.
    pub fresh: bool,
    /// The server's stamps; zeros when it sends none.
    pub stamps: Stamps,
}

/// A TCP connection or a UDP socket.
enum Socket {
    Stream(TcpStream),
    Datagram(UdpSocket),
}

impl Socket {
    fn send(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Stream(stream) => stream.write(bytes),
            Self::Datagram(socket) => socket.send(bytes),
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Stream(stream) => stream.read(buffer),
            Self::Datagram(socket) => socket.recv(buffer),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stream(stream) => stream.as_fd(),
            Self::Datagram(socket) => socket.as_fd(),
        }
    }
}

/// A connection.
struct Connection {
    socket: Socket,
    /// Bytes that the kernel did not accept yet.
    unsent: Vec<u8>,
    /// Bytes of an incomplete reply.
    kept: Vec<u8>,
    /// Requests without a reply yet, where replies come in order and have no id.
    asked: VecDeque<u32>,
    /// Whether it is to be closed after its reply.
    fresh: bool,
}

/// The running client.
struct Client<'a> {
    plan: &'a Plan,
    rng: StdRng,
    poller: Poller,
    connections: Vec<Option<Connection>>,
    samples: Vec<Sample>,
    answered: u64,
    turn: usize,
    buffer: Vec<u8>,
}

/// Connects and sends for `duration` or until `stop`; returns a sample a request, in order of sending.
///
/// # Errors
/// [`Error::Io`] when the server cannot be reached or closes a connection.
pub fn run(plan: &Plan, duration: Duration, stop: &AtomicBool) -> Result<Vec<Sample>> {
    // Timers of this thread to the nanosecond; where it is refused sends are later, which the samples show.
    let _ = nix::sys::prctl::set_timerslack(1);
    let mut client = Client {
        plan,
        rng: StdRng::seed_from_u64(plan.seed),
        poller: Poller::new().map_err(|e| Error::io("create an epoll instance", e))?,
        connections: Vec::new(),
        samples: Vec::with_capacity((plan.rate_per_s * duration.as_secs_f64().min(60.0) * 1.2) as usize + 1024),
        answered: 0,
        turn: 0,
        buffer: vec![0; 1 << 16],
    };
    for _ in 0..plan.connections.max(1) {
        client.open(false)?;
    }
    client.run(duration, stop)?;
    Ok(client.samples)
}

impl Client<'_> {
    /// Opens a connection and registers it; gives its place.
    fn open(&mut self, fresh: bool) -> Result<usize> {
        let addr = self.plan.addr;
        let io = |e| Error::io(format!("connect to {addr}"), e);
        let socket = if self.plan.protocol == ProbeProtocol::EchoUdp {
            let socket = UdpSocket::bind("0.0.0.0:0").map_err(io)?;
            socket.connect(addr).map_err(io)?;
            socket.set_nonblocking(true).map_err(io)?;
            Socket::Datagram(socket)
        } else {
            let mut stream = TcpStream::connect_timeout(&addr, Duration::from_secs(2)).map_err(io)?;
            stream.set_nodelay(true).map_err(io)?;
            if matches!(self.plan.protocol, ProbeProtocol::Postgres { .. }) {
                stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(io)?;
                postgres::ask(&mut stream, &postgres::startup())?;
            }
            stream.set_nonblocking(true).map_err(io)?;
            Socket::Stream(stream)
        };
        let place = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
        self.poller.add(socket.as_fd().as_raw_fd(), place, true).map_err(io)?;
        let connection = Connection { socket, unsent: Vec::new(), kept: Vec::new(), asked: VecDeque::new(), fresh };
        if place == self.connections.len() {
            self.connections.push(Some(connection));
        } else {
            self.connections[place] = Some(connection);
        }
        Ok(place)
    }

    fn run(&mut self, duration: Duration, stop: &AtomicBool) -> Result<()> {
        // With bursts in the mix, arrivals are rarer, so that the rate stays the same.
        let per_arrival = 1.0 + self.plan.burst_part * (self.plan.burst.max(1) - 1) as f64;
        let gap = 1e9 / self.plan.rate_per_s * per_arrival;
        let start = now_ns();
        let mut end = start.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        let mut due = start as f64;
        loop {
            let now = now_ns();
            if stop.load(Ordering::Relaxed) {
                end = end.min(now);
            }
            if now >= end && (now >= end + DRAIN_NS || self.answered == self.samples.len() as u64) {
                return Ok(());
            }
            while due as u64 <= now && (due as u64) < end {
                self.arrive(due as u64)?;
                due += if self.plan.even { gap } else { -gap * (1.0 - self.rng.random::<f64>()).ln() };
            }
            let wake = if (due as u64) < end { due as u64 } else { end + DRAIN_NS };
            let timeout = wake.saturating_sub(now_ns()).clamp(1, 20_000_000);
            let ready = self.poller.wait(timeout).map_err(|e| Error::io("wait for replies", e))?;
            for i in 0..ready {
                self.serve(self.poller.ready(i).token)?;
            }
        }
    }

    /// Sends what is due at `due_ns`.
    fn arrive(&mut self, due_ns: u64) -> Result<()> {
        let fresh = self.plan.fresh > 0.0 && self.rng.random::<f64>() < self.plan.fresh;
        let place = if fresh {
            self.open(true)?
        } else {
            self.turn = (self.turn + 1) % self.plan.connections.max(1);
            self.turn
        };
        let burst = self.plan.burst > 1 && self.rng.random::<f64>() < self.plan.burst_part;
        for _ in 0..if burst && !fresh { self.plan.burst } else { 1 } {
            // Each request is a write, and so a segment, of its own.
            self.request(place, due_ns, fresh)?;
        }
        Ok(())
    }

    /// Draws a request and sends it.
    fn request(&mut self, place: usize, due_ns: u64, fresh: bool) -> Result<()> {
        let special = self.plan.special.filter(|special| self.rng.random::<f64>() < special.part);
        let service = special.and_then(|special| special.service).unwrap_or(self.plan.service);
        let (service_ns, flags) = (service.draw(&mut self.rng), special.map_or(0, |special| special.flags));
        let id = self.samples.len() as u32;
        let mut bytes = vec![0; NULL_RPC];
        bytes[..REQUEST_HEAD].copy_from_slice(&request(id, service_ns, flags));
        match self.plan.protocol {
            ProbeProtocol::Synthetic => bytes.truncate(REQUEST_HEAD),
            ProbeProtocol::Postgres { usual, special: other } => {
                bytes = postgres::query(if special.is_some() { other } else { usual });
            }
            ProbeProtocol::Echo | ProbeProtocol::EchoUdp => {}
        }
        self.samples.push(Sample {
            due_ns,
            sent_ns: now_ns(),
            service_ns,
            flags,
            connection: place as u32,
            fresh,
            ..Sample::default()
        });
        if let Some(connection) = &mut self.connections[place] {
            connection.unsent.extend_from_slice(&bytes);
            connection.asked.push_back(id);
        }
        self.flush(place)
    }

    /// Writes what the kernel takes.
    fn flush(&mut self, place: usize) -> Result<()> {
        let Some(connection) = &mut self.connections[place] else { return Ok(()) };
        while !connection.unsent.is_empty() {
            match connection.socket.send(&connection.unsent) {
                Ok(n) => drop(connection.unsent.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io(format!("send to {}", self.plan.addr), e)),
            }
        }
        Ok(())
    }

    /// Reads replies of a connection and sends what is left.
    fn serve(&mut self, place: usize) -> Result<()> {
        self.flush(place)?;
        let stamped = self.plan.protocol == ProbeProtocol::Synthetic;
        let size = if stamped { REPLY_HEAD + Stamps::BYTES } else { NULL_RPC };
        let Some(connection) = &mut self.connections[place] else { return Ok(()) };
        let gone = |e| Error::io(format!("read replies of {}", self.plan.addr), e);
        loop {
            let n = match connection.socket.receive(&mut self.buffer) {
                Ok(0) => return Err(gone(std::io::Error::other("it closed the connection"))),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(gone(e)),
            };
            let now = now_ns();
            connection.kept.extend_from_slice(&self.buffer[..n]);
            let before = self.answered;
            let mut answer = |id: u32, stamps: Stamps| {
                if let Some(sample) = self.samples.get_mut(id as usize)
                    && sample.answered_ns == 0
                {
                    (sample.answered_ns, sample.stamps) = (now, stamps);
                    self.answered += 1;
                }
            };
            if matches!(self.plan.protocol, ProbeProtocol::Postgres { .. }) {
                let done = postgres::take(&mut connection.kept)?;
                let over = done.min(connection.asked.len());
                connection.asked.drain(..over).for_each(|id| answer(id, Stamps::default()));
            } else {
                let mut at = 0;
                while connection.kept.len() - at >= size {
                    let reply = &connection.kept[at..at + size];
                    at += size;
                    let head = || reply.first_chunk::<REPLY_HEAD>().and_then(|head| ReplyHead::parse(head).ok());
                    let id = if stamped { head().map(|head| head.id) } else { id_of(reply) };
                    let Some(id) = id else {
                        return Err(gone(std::io::Error::other("what came is no reply")));
                    };
                    let stamps = if stamped { Stamps::read(&reply[REPLY_HEAD..]) } else { None };
                    answer(id, stamps.unwrap_or_default());
                }
                connection.kept.drain(..at);
            }
            if connection.fresh && self.answered > before {
                self.connections[place] = None;
                return Ok(());
            }
        }
    }
}
