//! One UDP socket of a memcached workload. In: due times. Out: one datagram a request; replies matched by request id.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;

use super::outcome::Tally;
use super::request::{self, UDP_HEADER, udp_header};
use super::stream::Broken;
use super::{Workload, now_ns};

/// Requests that may be in flight on one socket; older ones are counted as lost. A power of two.
const SLOTS: usize = 4096;

/// A request in flight.
#[derive(Clone, Copy, Default)]
struct Slot {
    due_ns: u64,
    id: u16,
    /// Datagrams of the reply that have come.
    seen: u16,
    waiting: bool,
    good: bool,
}

/// A connected UDP socket and its requests in flight.
pub(super) struct Datagram {
    socket: UdpSocket,
    /// Frame header and request; the id is written anew for each.
    request: Vec<u8>,
    next_id: u16,
    /// Due times of the requests not yet sent, ns.
    unsent: VecDeque<u64>,
    slots: Box<[Slot]>,
    buffer: Box<[u8]>,
}

impl Datagram {
    /// Takes over a connected socket.
    pub(super) fn new(workload: &Workload, connection: usize, socket: UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let get = request::get(workload, connection);
        Ok(Self {
            socket,
            request: [&udp_header(0)[..], &get].concat(),
            // The first exchange used id 0; a late copy of its reply must match nothing.
            next_id: 1,
            unsent: VecDeque::with_capacity(1024.max(2 * workload.pipeline_burst)),
            slots: vec![Slot::default(); SLOTS].into_boxed_slice(),
            buffer: vec![0; 65_536].into_boxed_slice(),
        })
    }

    /// The socket, to be polled.
    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Adds `count` requests that are due at `due_ns`; [`Datagram::flush`] sends them.
    pub(super) fn offer(&mut self, due_ns: u64, count: usize) {
        self.unsent.extend(std::iter::repeat_n(due_ns, count));
    }

    /// Sends what is due until all is sent or the kernel takes no more.
    pub(super) fn flush(&mut self, tally: &mut Tally) -> Result<(), Broken> {
        while let Some(due_ns) = self.unsent.front().copied() {
            let id = self.next_id;
            self.request[..2].copy_from_slice(&id.to_be_bytes());
            let now = now_ns();
            match self.socket.send(&self.request) {
                Ok(_) => {}
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    ErrorKind::Interrupted => continue,
                    _ => return Err(Broken::Closed(error.to_string())),
                },
            }
            self.unsent.pop_front();
            self.next_id = id.wrapping_add(1);
            let slot = &mut self.slots[usize::from(id) % SLOTS];
            tally.lost += u64::from(slot.waiting);
            *slot = Slot { due_ns, id, seen: 0, waiting: true, good: false };
            tally.sent(due_ns, now);
        }
        Ok(())
    }

    /// Reads what has come and counts the replies that are whole.
    pub(super) fn receive(&mut self, tally: &mut Tally) -> Result<(), Broken> {
        loop {
            let length = match self.socket.recv(&mut self.buffer) {
                Ok(length) => length,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    ErrorKind::Interrupted => continue,
                    _ => return Err(Broken::Closed(error.to_string())),
                },
            };
            let now = now_ns();
            let part = Part::parse(&self.buffer[..length]).map_err(Broken::Malformed)?;
            let slot = &mut self.slots[usize::from(part.id) % SLOTS];
            if !slot.waiting || slot.id != part.id {
                // The reply to a request that was given up before.
                continue;
            }
            slot.seen += 1;
            slot.good |= part.sequence == 0 && part.payload.starts_with(b"VALUE ");
            if slot.seen == part.total {
                slot.waiting = false;
                tally.reply(slot.good, slot.due_ns, now);
            }
        }
    }
}

/// One datagram of a reply.
pub(super) struct Part<'a> {
    pub(super) id: u16,
    pub(super) sequence: u16,
    pub(super) total: u16,
    pub(super) payload: &'a [u8],
}

impl<'a> Part<'a> {
    /// Reads the frame header.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let (header, payload) = bytes
            .split_at_checked(UDP_HEADER)
            .ok_or_else(|| format!("a datagram of {} bytes, shorter than its header", bytes.len()))?;
        let field = |i: usize| u16::from_be_bytes([header[i], header[i + 1]]);
        let part = Self { id: field(0), sequence: field(2), total: field(4), payload };
        if part.sequence >= part.total {
            return Err(format!("datagram {} of {}", part.sequence, part.total));
        }
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Proto;

    fn pair() -> (Datagram, UdpSocket) {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        server.connect(client.local_addr().unwrap()).unwrap();
        let workload = Workload::new(Proto::MemcachedUdp, server.local_addr().unwrap());
        (Datagram::new(&workload, 0, client).unwrap(), server)
    }

    /// A datagram of a reply.
    fn part(id: u16, sequence: u16, total: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = [id, sequence, total, 0].iter().flat_map(|f| f.to_be_bytes()).collect();
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn replies_of_several_datagrams_and_out_of_order_are_matched_by_id() {
        let (mut datagram, server) = pair();
        let mut tally = Tally::with_room(8);
        datagram.offer(now_ns(), 3);
        tally.intended = 3;
        assert!(datagram.flush(&mut tally).is_ok());
        assert_eq!(tally.sent, 3);
        for (id, sequence, total, payload) in [
            (3, 0, 1, &b"END\r\n"[..]),
            (2, 1, 2, b"xx\r\nEND\r\n"),
            (9, 0, 1, b"VALUE nobody asked\r\n"),
            (1, 0, 1, b"VALUE k 0 1\r\nx\r\nEND\r\n"),
            (2, 0, 2, b"VALUE k 0 4\r\nxx"),
        ] {
            server.send(&part(id, sequence, total, payload)).unwrap();
        }
        // Loopback delivers within the send, so all five are there.
        assert!(datagram.receive(&mut tally).is_ok());
        assert_eq!((tally.samples.len(), tally.errors, tally.pending()), (2, 1, 0));
    }

    #[test]
    fn a_slot_needed_again_counts_its_request_as_lost() {
        let (mut datagram, _server) = pair();
        let mut tally = Tally::with_room(8);
        datagram.offer(now_ns(), SLOTS + 5);
        tally.intended = (SLOTS + 5) as u64;
        assert!(datagram.flush(&mut tally).is_ok());
        assert_eq!(tally.lost, 5);
        assert_eq!(tally.pending(), SLOTS as u64);
    }

    #[test]
    fn short_and_contradictory_headers_are_malformed() {
        assert!(Part::parse(b"short").is_err());
        assert!(Part::parse(&part(1, 2, 2, b"")).is_err());
        assert!(Part::parse(&part(1, 1, 2, b"")).is_ok());
    }
}
