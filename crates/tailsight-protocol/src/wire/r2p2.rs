//! R2P2 (Kogias et al., ATC 2019, §4.1), a transport of requests and replies over UDP, as its published code has it.
//!
//! Every datagram has a head of 8 bytes: magic 0xCC, bytes of the head, type (high 4 bits) and policy (low 4 bits), flags
//! (0x80 first, 0x40 last), request id u16, packet order u16: in the first packet the number of packets, in the others
//! their index. A request of several packets sends its first alone and waits for an ACK; a reply sends all at once.
//! A request is known by its sender's address and port and its request id.

use crate::grammar::be16;

/// Bytes of the head.
pub const HEAD: usize = 8;
/// Bytes of payload in a packet, for an MTU of 1,500.
pub const PAYLOAD: usize = 1472 - HEAD;
/// Bytes of payload in the first packet of a request of several: it only asks for room.
pub const FIRST_PAYLOAD: usize = 22 - HEAD;
const MAGIC: u8 = 0xCC;
const FIRST: u8 = 0x80;
const LAST: u8 = 0x40;

/// The types of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// A part of a request.
    Request,
    /// A part of a reply.
    Reply,
    /// A server tells the router that it is free.
    Feedback,
    /// A server takes a request of several packets: send the others.
    Ack,
    /// A server refuses a request.
    Drop,
}

/// Who may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The addressed server alone.
    Fixed,
    /// Any server behind the router.
    LoadBalance,
    /// Another, by its number.
    Other(u8),
}

/// The head of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// What it is.
    pub kind: Type,
    /// Who may answer.
    pub policy: Policy,
    /// The first packet of its message.
    pub first: bool,
    /// The last one.
    pub last: bool,
    /// The request's id.
    pub id: u16,
    /// First packet: how many there are. Others: the index, from 1.
    pub order: u16,
}

impl Head {
    /// The bytes of the head.
    pub fn bytes(&self) -> [u8; HEAD] {
        let kind = match self.kind {
            Type::Request => 0,
            Type::Reply => 1,
            Type::Feedback => 2,
            Type::Ack => 3,
            Type::Drop => 4,
        };
        let policy = match self.policy {
            Policy::LoadBalance => 0,
            Policy::Fixed => 1,
            Policy::Other(number) => number & 0xf,
        };
        let flags = if self.first { FIRST } else { 0 } | if self.last { LAST } else { 0 };
        let ([id_high, id_low], [order_high, order_low]) = (self.id.to_be_bytes(), self.order.to_be_bytes());
        [MAGIC, HEAD as u8, kind << 4 | policy, flags, id_high, id_low, order_high, order_low]
    }

    /// The head and the payload of a datagram; `None` when it is not R2P2, or of a type that is not known here.
    pub fn parse(datagram: &[u8]) -> Option<(Self, &[u8])> {
        if datagram.len() < HEAD || datagram[0] != MAGIC {
            return None;
        }
        let payload = datagram.get(usize::from(datagram[1]).max(HEAD)..)?;
        let kind = match datagram[2] >> 4 {
            0 => Type::Request,
            1 => Type::Reply,
            2 => Type::Feedback,
            3 => Type::Ack,
            4 => Type::Drop,
            _ => return None,
        };
        let policy = match datagram[2] & 0xf {
            0 => Policy::LoadBalance,
            1 => Policy::Fixed,
            number => Policy::Other(number),
        };
        let (first, last) = (datagram[3] & FIRST != 0, datagram[3] & LAST != 0);
        Some((Self { kind, policy, first, last, id: be16(datagram, 4), order: be16(datagram, 6) }, payload))
    }
}

/// How many packets a request or reply of this many bytes takes.
pub fn packets(kind: Type, len: usize) -> usize {
    match len {
        0..=PAYLOAD => 1,
        _ if kind == Type::Request => 1 + (len - FIRST_PAYLOAD).div_ceil(PAYLOAD),
        _ => len.div_ceil(PAYLOAD),
    }
}

/// Appends packet `index` of a message (a request's others only after its ACK). `None` when there is no such packet, or
/// the message needs more than 65,535.
pub fn packet(buf: &mut Vec<u8>, kind: Type, policy: Policy, id: u16, message: &[u8], index: usize) -> Option<()> {
    let count = packets(kind, message.len());
    let order = u16::try_from(if index == 0 { count } else { index }).ok()?;
    u16::try_from(count).ok()?;
    if index >= count {
        return None;
    }
    let shift = if kind == Type::Request && count > 1 { PAYLOAD - FIRST_PAYLOAD } else { 0 };
    let end = ((index + 1) * PAYLOAD - shift).min(message.len());
    let start = if index == 0 { 0 } else { index * PAYLOAD - shift };
    let head = Head { kind, policy, first: index == 0, last: index + 1 == count, id, order };
    buf.extend_from_slice(&head.bytes());
    buf.extend_from_slice(&message[start..end]);
    Some(())
}
