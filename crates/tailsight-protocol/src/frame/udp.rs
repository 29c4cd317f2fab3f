//! memcached over UDP as recorded. In: a datagram's first bytes. Out: whose message it is, and a request's class.

use crate::Class;
use crate::grammar::{Grammar, Nobody, Unseen, be16, memcached};
use crate::wire::memcached::UDP_HEAD;

/// A datagram of memcached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpFrame {
    /// The request's id, which its reply's datagrams carry.
    pub id: u16,
    /// The place of this datagram in its message.
    pub index: u16,
    /// Datagrams of the message.
    pub total: u16,
    /// What the request is; `None` for replies, and where too little of it was captured.
    pub class: Option<Class>,
}

/// Reads a datagram: `len` bytes, of which the first were captured. `request`: it goes to the server.
pub fn memcached_datagram(captured: &[u8], len: u64, request: bool) -> Option<UdpFrame> {
    let captured = &captured[..captured.len().min(usize::try_from(len).unwrap_or(usize::MAX))];
    let (head, payload) = captured.split_at_checked(UDP_HEAD)?;
    let (id, index, total) = (be16(head, 0), be16(head, 2), be16(head, 4));
    if index >= total {
        return None;
    }
    let class = if request && index == 0 { class(payload, len - UDP_HEAD as u64) } else { None };
    Some(UdpFrame { id, index, total, class })
}

fn class(payload: &[u8], len: u64) -> Option<Class> {
    let mut requests = memcached::Requests::default();
    let step = requests.step(payload, &Nobody).ok()?;
    if let Some(request) = step.out {
        return Some(request.class);
    }
    let bytes = len - payload.len() as u64;
    let skip = requests.skip(Unseen { bytes, to_segment_end: true }, &Nobody)?;
    skip.out.map(|request| request.class)
}
