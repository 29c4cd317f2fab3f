//! Replies in datagrams. In: expectations and datagrams, lost, doubled and disordered as networks do. Out: replies.
//!
//! A reply of several datagrams is put in order by their numbers before it is read. Only those that came too early are
//! kept; in order, nothing is allocated.

use super::parser::{Replies, judge};
use super::{Ask, Expect, Reply, Status, WrongKind};
use crate::Kind;
use crate::grammar::{Answer, Asked, be16};
use crate::wire::{memcached, r2p2};

/// How replies lie in datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A datagram is a reply, known by its own id (synthetic), its bytes (echo), or else taken for the oldest request's.
    Plain,
    /// memcached's head of 8 bytes; ids have 16 bits.
    MemcachedUdp,
    /// R2P2 ([`wire::r2p2`](crate::wire::r2p2)); ids have 16 bits.
    R2p2,
}

/// What a datagram was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagram {
    /// It ended a reply.
    Reply(Reply),
    /// R2P2: the server takes the request of this id: send its other packets.
    Ack {
        /// The request's id.
        id: u64,
    },
    /// A part of a reply; more is to come.
    Part,
    /// Nobody waits for it (a late or doubled reply), or it is not of this transport.
    Stray,
}

/// Datagrams of one reply that came before their turn, at most.
const EARLY: usize = 1024;

/// A request that is outstanding, and its reply as far as it came.
#[derive(Debug)]
struct Slot {
    expect: Expect,
    replies: Replies,
    /// The datagram that is next; how many there are (0: not known).
    next: u16,
    total: u16,
    early: Vec<(u16, Vec<u8>)>,
    bytes: u64,
    answer: Option<Answer>,
    wrong: Option<WrongKind>,
}

impl Asked for Slot {
    fn ask(&self, _id: Option<u64>) -> Ask {
        self.expect.ask
    }
}

/// One expectation.
struct One(Ask);

impl Asked for One {
    fn ask(&self, _id: Option<u64>) -> Ask {
        self.0
    }
}

impl Slot {
    /// The next datagram's payload.
    fn take(&mut self, payload: &[u8]) {
        self.next += 1;
        let mut at = 0;
        while at < payload.len() && self.wrong.is_none() {
            if self.answer.is_some() {
                self.wrong = Some(WrongKind::Size);
                return;
            }
            match self.replies.step(&payload[at..], &One(self.expect.ask)) {
                Ok(step) => {
                    at += step.used;
                    self.answer = step.out;
                }
                Err(_) => self.wrong = Some(WrongKind::Garbage),
            }
        }
    }

    /// A datagram by its number: whether the reply is whole.
    fn datagram(&mut self, index: u16, total: u16, payload: &[u8], bytes: usize) -> Option<bool> {
        if index < self.next || self.early.iter().any(|(early, _)| *early == index) || self.early.len() >= EARLY {
            return None;
        }
        self.bytes += bytes as u64;
        if total > 0 {
            self.total = total;
        }
        if index == self.next {
            self.take(payload);
            while let Some(at) = self.early.iter().position(|(early, _)| *early == self.next) {
                let (_, payload) = self.early.swap_remove(at);
                self.take(&payload);
            }
        } else {
            self.early.push((index, payload.to_vec()));
        }
        Some(self.total > 0 && self.next >= self.total)
    }

    fn reply(&self, end: usize) -> Reply {
        let answer = self.answer.unwrap_or(Answer::new(Status::Wrong(WrongKind::Size), super::Op::ANY));
        Reply {
            end,
            bytes: self.bytes,
            values: answer.values,
            value_bytes: answer.value_bytes,
            status: match self.wrong {
                Some(wrong) => Status::Wrong(wrong),
                None => judge(&answer, &self.expect.ask),
            },
            id: Some(self.expect.id),
            code: answer.code,
            server: answer.server,
        }
    }
}

/// The replies of one socket.
#[derive(Debug)]
pub struct Datagrams {
    transport: Transport,
    kind: Kind,
    slots: Vec<Slot>,
    /// Slots without a request, for the next ones.
    spare: Vec<Slot>,
}

impl Datagrams {
    /// A socket with nothing sent. HTTP/2 has no datagrams: its replies are all strays.
    pub fn new(transport: Transport, kind: Kind, outstanding: usize) -> Self {
        Self { transport, kind, slots: Vec::with_capacity(outstanding), spare: Vec::with_capacity(outstanding) }
    }

    /// A request is about to be sent. Its id must be the one on the wire where the transport or the protocol has one.
    pub fn expect(&mut self, expect: Expect) {
        let mut slot = self.spare.pop().unwrap_or_else(|| Slot {
            expect,
            replies: Replies::new(self.kind, 1),
            next: 0,
            total: 0,
            early: Vec::new(),
            bytes: 0,
            answer: None,
            wrong: None,
        });
        slot.expect = expect;
        self.slots.push(slot);
    }

    /// Requests without a reply.
    pub fn outstanding(&self) -> usize {
        self.slots.len()
    }

    /// A request is given up (its datagrams were lost): whether it was outstanding.
    pub fn forget(&mut self, id: u64) -> bool {
        let Some(at) = self.slots.iter().position(|slot| slot.expect.id == id) else { return false };
        self.free(at);
        true
    }

    fn free(&mut self, at: usize) {
        let mut slot = self.slots.remove(at);
        slot.replies.reset();
        slot.early.clear();
        (slot.next, slot.total, slot.bytes, slot.answer, slot.wrong) = (0, 0, 0, None, None);
        self.spare.push(slot);
    }

    /// Takes a datagram.
    pub fn feed(&mut self, datagram: &[u8]) -> Datagram {
        match self.transport {
            Transport::Plain => self.plain(datagram),
            Transport::MemcachedUdp => {
                let Some((head, payload)) = datagram.split_at_checked(memcached::UDP_HEAD) else {
                    return Datagram::Stray;
                };
                let (id, index, total) = (be16(head, 0), be16(head, 2), be16(head, 4));
                if index >= total { Datagram::Stray } else { self.part(id, index, total, payload, datagram.len()) }
            }
            Transport::R2p2 => {
                let Some((head, payload)) = r2p2::Head::parse(datagram) else { return Datagram::Stray };
                match head.kind {
                    r2p2::Type::Reply if head.first => self.part(head.id, 0, head.order, payload, datagram.len()),
                    r2p2::Type::Reply if head.order > 0 => self.part(head.id, head.order, 0, payload, datagram.len()),
                    r2p2::Type::Ack if self.slots.iter().any(|slot| slot.expect.id == u64::from(head.id)) => {
                        Datagram::Ack { id: u64::from(head.id) }
                    }
                    r2p2::Type::Drop => self.dropped(head.id, datagram.len()),
                    _ => Datagram::Stray,
                }
            }
        }
    }

    /// A part of the reply to `id`.
    fn part(&mut self, id: u16, index: u16, total: u16, payload: &[u8], bytes: usize) -> Datagram {
        let Some(at) = self.slots.iter().position(|slot| slot.expect.id == u64::from(id)) else {
            return Datagram::Stray;
        };
        match self.slots[at].datagram(index, total, payload, bytes) {
            None => Datagram::Stray,
            Some(false) => Datagram::Part,
            Some(true) => {
                let reply = self.slots[at].reply(bytes);
                self.free(at);
                Datagram::Reply(reply)
            }
        }
    }

    /// R2P2: the server refuses.
    fn dropped(&mut self, id: u16, bytes: usize) -> Datagram {
        let Some(at) = self.slots.iter().position(|slot| slot.expect.id == u64::from(id)) else {
            return Datagram::Stray;
        };
        let mut reply = self.slots[at].reply(bytes);
        reply.status = Status::Error(super::ErrorKind::Busy);
        reply.bytes += bytes as u64;
        self.free(at);
        Datagram::Reply(reply)
    }

    fn plain(&mut self, datagram: &[u8]) -> Datagram {
        let at = match self.kind {
            Kind::Synthetic => {
                let id = datagram.get(4..8).map(|id| u64::from(u32::from_be_bytes([id[0], id[1], id[2], id[3]])));
                self.slots.iter().position(|slot| Some(slot.expect.id) == id)
            }
            Kind::Echo => self.slots.iter().position(|slot| {
                let value = slot.expect.ask.value;
                value.len_fits(datagram.len() as u64) && value.fits(0, datagram)
            }),
            Kind::Http2 => None,
            _ if self.slots.is_empty() => None,
            _ => Some(0),
        };
        let Some(at) = at else { return Datagram::Stray };
        let slot = &mut self.slots[at];
        slot.bytes = datagram.len() as u64;
        slot.take(datagram);
        let reply = slot.reply(datagram.len());
        self.free(at);
        Datagram::Reply(reply)
    }
}
