//! Connections that many requests share: HTTP/2 (and gRPC), in the clear or in TLS. There a segment is no request and the order of sends
//! tells of no reply whose it is, so their messages have none.
//!
//! In: what the payload of each segment begins like (classes, no bytes), and the messages of each connection with their replies by order.
//! Out: the messages of shared connections without replies, and how many there were.
//!
//! HTTP/2 in the clear is seen by its frames. What TLS carries cannot be seen; whether requests wait for each other can: a client of
//! HTTP/1 sends its next request after the reply to the one before, so that requests and replies alternate.

use rustc_hash::{FxHashMap, FxHashSet};
use tailsight_trace::Event;
use tailsight_trace::event::flow_flags;

use super::{Extra, Traffic};
use crate::model::{Flow, Message, Threshold, flags};

/// The first segments of a new connection of TLS: its hello, its key exchange or end of the handshake, and the request that comes with it.
const HANDSHAKE: u32 = 3;

/// What those segments of a connection begin like that were looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    looked: u32,
    tls: u32,
    http2: u32,
}

/// What carries the requests of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Nothing that is known to be shared by requests.
    Plain,
    /// TLS.
    Tls,
    /// HTTP/2 in the clear.
    Http2,
    /// No segment to this port was looked at: the kernel does not show their bytes (before Linux 6.12), or the run is older.
    Unknown,
}

impl Segments {
    /// A segment in protocol processing.
    #[inline]
    pub fn take(&mut self, event: &Event) {
        self.looked += u32::from(event.aux & flow_flags::LOOKED != 0);
        self.tls += u32::from(event.aux & flow_flags::TLS != 0);
        self.http2 += u32::from(event.aux & flow_flags::HTTP2 != 0);
    }

    /// Both together.
    fn with(self, other: Segments) -> Segments {
        let Segments { looked, tls, http2 } = other;
        Segments { looked: self.looked + looked, tls: self.tls + tls, http2: self.http2 + http2 }
    }

    /// What these segments are of.
    pub fn carrier(self) -> Carrier {
        let alike =
            |n: u32| n > 0 && u64::from(n) * 10 >= u64::from(self.looked) * Threshold::SegmentsAlike.count() as u64;
        match () {
            () if alike(self.http2) => Carrier::Http2,
            () if alike(self.tls) => Carrier::Tls,
            () => Carrier::Plain,
        }
    }
}

/// What carries the requests of each connection, by flow; connections that carry them plainly are left out. Of a connection none of whose
/// segments was looked at, it is what the others of its port are of.
pub fn carriers(flows: &[Flow], segments: impl Iterator<Item = (u32, Segments)>) -> FxHashMap<u32, Carrier> {
    let segments: Vec<(u32, Segments)> = segments.collect();
    let port = |flow: u32| flows[flow as usize].key.local_port();
    let mut by_port: FxHashMap<u16, Segments> = FxHashMap::default();
    for &(flow, counts) in segments.iter().filter(|(_, counts)| counts.looked > 0) {
        let sum = by_port.entry(port(flow)).or_default();
        *sum = sum.with(counts);
    }
    let carrier = |(flow, counts): (u32, Segments)| match counts.looked {
        0 => (flow, by_port.get(&port(flow)).map_or(Carrier::Unknown, |counts| counts.carrier())),
        _ => (flow, counts.carrier()),
    };
    segments.into_iter().map(carrier).filter(|(_, carrier)| *carrier != Carrier::Plain).collect()
}

/// Messages of a run by what carries them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Multiplexed {
    /// On connections of HTTP/2: they have no replies.
    pub http2: u64,
    /// On connections of TLS to ports on which requests do not wait for each other: they have no replies.
    pub tls_shared: u64,
    /// On connections of TLS to ports on which requests and replies alternate: they are paired by order.
    pub tls_in_turn: u64,
    /// On connections of which it is not known what carries them, to ports on which requests do not wait for each other: they are paired by
    /// order, which is right for pipelining and wrong for HTTP/2.
    pub unknown_shared: u64,
    /// The connections of HTTP/2, and those of TLS that requests share.
    pub connections: u64,
}

impl Multiplexed {
    /// Whether all messages are on other connections.
    pub fn is_empty(&self) -> bool {
        *self == Multiplexed::default()
    }

    /// Whether a protocol of one request at a time may be read in the bytes: none was seen in TLS or by HTTP/2.
    pub fn is_readable(&self) -> bool {
        self.http2 + self.tls_shared + self.tls_in_turn == 0
    }

    /// Messages whose replies cannot be told.
    pub fn unpaired(&self) -> u64 {
        self.http2 + self.tls_shared
    }

    /// Takes the replies of messages on shared connections away. `carriers`: by flow.
    pub fn unpair(traffic: &mut Traffic, flows: &[Flow], carriers: &FxHashMap<u32, Carrier>) -> Multiplexed {
        let mut counts = Multiplexed::default();
        if carriers.is_empty() {
            return counts;
        }
        let shared_ports = ports_with_overlaps(&traffic.messages, flows, carriers, Carrier::Tls);
        let unknown_ports = ports_with_overlaps(&traffic.messages, flows, carriers, Carrier::Unknown);
        // Requests that were read in the connection's bytes have replies by these.
        let by_order = |m: &Message| m.class == 0 || m.flags & flags::UNFRAMED != 0;
        let messages = traffic.messages.iter_mut().zip(&mut traffic.extras).filter(|(m, _)| by_order(m));
        let mut connections = FxHashSet::default();
        for (m, extra) in messages {
            match carriers.get(&m.flow).unwrap_or(&Carrier::Plain) {
                Carrier::Plain => continue,
                Carrier::Unknown => {
                    counts.unknown_shared +=
                        u64::from(unknown_ports.contains(&flows[m.flow as usize].key.local_port()));
                    continue;
                }
                Carrier::Http2 => counts.http2 += 1,
                Carrier::Tls if shared_ports.contains(&flows[m.flow as usize].key.local_port()) => {
                    counts.tls_shared += 1
                }
                Carrier::Tls => {
                    counts.tls_in_turn += 1;
                    continue;
                }
            }
            connections.insert(m.flow);
            (m.send_ns, m.xmit_ns, m.nic_tx_ns, m.nic_tx_error_ns, m.reply_bytes) = (0, 0, 0, 0, 0);
            m.flags &= !(flags::SHARED_REPLY | flags::CONTINUED | flags::REPLY_DROPPED);
            *extra = Extra { stack_cpu: extra.stack_cpu, uncommon: extra.uncommon, ..Extra::default() };
        }
        counts.connections = connections.len() as u64;
        counts
    }
}

/// The ports, of connections that are carried so, on which requests come while another one of their connection has no reply yet.
fn ports_with_overlaps(
    messages: &[Message],
    flows: &[Flow],
    carriers: &FxHashMap<u32, Carrier>,
    carried: Carrier,
) -> Vec<u16> {
    // By port: requests, and those that came before the reply to the one before them.
    let mut by_port: FxHashMap<u16, (u64, u64)> = FxHashMap::default();
    let mut last_reply: FxHashMap<u32, u64> = FxHashMap::default();
    let by_order = messages.iter().filter(|m| carriers.get(&m.flow) == Some(&carried) && m.send_ns != 0);
    // Segments of new connections: those of a handshake come when they can.
    let mut handshakes: FxHashMap<u32, u32> = FxHashMap::default();
    for m in by_order {
        if m.flags & flags::FIRST != 0 {
            handshakes.insert(m.flow, HANDSHAKE);
        }
        if let Some(left) = handshakes.get_mut(&m.flow).filter(|left| **left > 0) {
            *left -= 1;
            let last = last_reply.entry(m.flow).or_default();
            *last = (*last).max(m.send_ns);
            continue;
        }
        let (requests, overlaps) = by_port.entry(flows[m.flow as usize].key.local_port()).or_default();
        let last = last_reply.entry(m.flow).or_default();
        // Segments of one request share its reply.
        if m.send_ns != *last {
            *requests += 1;
            *overlaps += u64::from(m.recv_ns < *last);
        }
        *last = (*last).max(m.send_ns);
    }
    let are_shared = |(requests, overlaps): (u64, u64)| {
        overlaps > Threshold::FewOverlaps.count() as u64
            && overlaps * 1_000 > requests * Threshold::Overlaps.count() as u64
    };
    by_port.into_iter().filter(|(_, counts)| are_shared(*counts)).map(|(port, _)| port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_trace::FlowKey;

    fn segments(looked: u32, tls: u32, http2: u32) -> Segments {
        Segments { looked, tls, http2 }
    }

    /// Requests of a connection to port 443: (received, answered).
    fn traffic(times: &[(u64, u64)]) -> (Traffic, Vec<Flow>) {
        let key = FlowKey { addrs: 1, ports: 443 << 16 | 4000, proto: 0 };
        let mut traffic = Traffic::default();
        for &(recv_ns, send_ns) in times {
            traffic.messages.push(Message { recv_ns, send_ns, xmit_ns: send_ns + 1, ..Message::default() });
            traffic.extras.push(Extra { send_tid: 7, sent_ns: send_ns, stack_cpu: 1, ..Extra::default() });
        }
        (traffic, vec![Flow { key, name: String::new(), messages: 0 }])
    }

    #[test]
    fn a_carrier_is_told_by_what_most_segments_begin_like() {
        assert_eq!(segments(0, 0, 0).carrier(), Carrier::Plain);
        assert_eq!(segments(10, 0, 1).carrier(), Carrier::Plain, "chance");
        assert_eq!(segments(10, 0, 5).carrier(), Carrier::Http2, "an upload: frames of several segments");
        assert_eq!(segments(10, 9, 0).carrier(), Carrier::Tls);
    }

    #[test]
    fn a_short_connection_is_of_what_the_others_of_its_port_are() {
        let flow = |ports: u32| Flow { key: FlowKey { addrs: 1, ports, proto: 0 }, name: String::new(), messages: 0 };
        let flows = [flow(443 << 16 | 4000), flow(443 << 16 | 4001), flow(80 << 16 | 4002)];
        let carrier_of_flow =
            carriers(&flows, [(0, segments(9, 9, 0)), (1, segments(0, 0, 0)), (2, segments(0, 0, 0))].into_iter());
        assert_eq!(
            carrier_of_flow,
            FxHashMap::from_iter([(0, Carrier::Tls), (1, Carrier::Tls), (2, Carrier::Unknown)])
        );
    }

    #[test]
    fn requests_of_http2_have_no_reply_by_order() {
        let (mut traffic, flows) = traffic(&[(10, 20), (30, 40)]);
        let carriers = FxHashMap::from_iter([(0, Carrier::Http2)]);
        let counts = Multiplexed::unpair(&mut traffic, &flows, &carriers);
        assert_eq!(counts, Multiplexed { http2: 2, connections: 1, ..Multiplexed::default() });
        assert!(traffic.messages.iter().all(|m| (m.send_ns, m.xmit_ns) == (0, 0) && m.recv_ns != 0));
        assert!(traffic.extras.iter().all(|e| (e.send_tid, e.sent_ns, e.stack_cpu) == (0, 0, 1)));
    }

    #[test]
    fn requests_in_tls_keep_their_replies_where_they_alternate() {
        let carriers = FxHashMap::from_iter([(0, Carrier::Tls)]);
        let (mut in_turn, flows) = traffic(&[(10, 20), (30, 40), (50, 60)]);
        assert_eq!(Multiplexed::unpair(&mut in_turn, &flows, &carriers).tls_in_turn, 3);
        assert!(in_turn.messages.iter().all(|m| m.send_ns != 0));
        // Three of a thousand come before the one before them has its reply: 36 of 1,833 requests took 6 ms or more, and the p99 was 5.4 ms.
        let times = |early: &[u64]| -> Vec<(u64, u64)> {
            (0..1_000).map(|i| (i * 100 + 50 - if early.contains(&i) { 60 } else { 0 }, i * 100 + 95)).collect()
        };
        let (mut shared, flows) = traffic(&times(&[100, 300, 500]));
        assert_eq!(Multiplexed::unpair(&mut shared, &flows, &carriers).tls_shared, 1_000);
        assert!(shared.messages.iter().all(|m| m.send_ns == 0));
        // One or two are clients that gave up.
        let (mut given_up, flows) = traffic(&times(&[100, 300]));
        assert_eq!(Multiplexed::unpair(&mut given_up, &flows, &carriers).tls_in_turn, 1_000);
        // An upload in three segments, answered once.
        let (mut upload, flows) = traffic(&[(10, 40), (20, 40), (30, 40), (50, 60)]);
        assert_eq!(Multiplexed::unpair(&mut upload, &flows, &carriers).tls_in_turn, 4);
    }

    /// Each connection of TLS carried one request, and its handshake's segments overlap with it: the server lost all its replies.
    #[test]
    fn a_handshake_is_no_overlap() {
        let flow = |i: u32| Flow {
            key: FlowKey { addrs: 1, ports: 443 << 16 | i, proto: 0 },
            name: String::new(),
            messages: 3,
        };
        let flows: Vec<Flow> = (0..100).map(flow).collect();
        let segments = (0..100u64).flat_map(|i| {
            let at = i * 1_000;
            let message = |recv_ns, send_ns, first| Message {
                recv_ns,
                send_ns,
                flow: i as u32,
                flags: if first { flags::FIRST } else { 0 },
                ..Message::default()
            };
            [message(at + 10, at + 20, true), message(at + 30, at + 60, false), message(at + 40, at + 80, false)]
        });
        let mut traffic = Traffic { messages: segments.collect(), ..Traffic::default() };
        traffic.extras = traffic.messages.iter().map(|_| Extra::default()).collect();
        let carriers = (0..100).map(|flow| (flow, Carrier::Tls)).collect();
        assert_eq!(Multiplexed::unpair(&mut traffic, &flows, &carriers).tls_in_turn, 300);
    }

    /// A kernel that does not show a packet's bytes: pipelining or HTTP/2, nothing tells.
    #[test]
    fn requests_that_overlap_in_what_is_not_known_are_counted() {
        let carriers = FxHashMap::from_iter([(0, Carrier::Unknown)]);
        let (mut overlapping, flows) = traffic(&[(10, 40), (20, 50), (30, 60), (35, 70), (45, 80)]);
        let counts = Multiplexed::unpair(&mut overlapping, &flows, &carriers);
        assert_eq!(counts, Multiplexed { unknown_shared: 5, ..Multiplexed::default() });
        assert!(overlapping.messages.iter().all(|m| m.send_ns != 0), "most are pipelined, whose replies come in order");
        let (mut in_turn, flows) = traffic(&[(10, 20), (30, 40), (50, 60)]);
        assert!(Multiplexed::unpair(&mut in_turn, &flows, &carriers).is_empty());
    }

    #[test]
    fn pipelined_requests_in_the_clear_keep_their_replies() {
        let (mut pipelined, flows) = traffic(&[(10, 40), (20, 50), (30, 60)]);
        let carriers = FxHashMap::from_iter([(0, Carrier::Plain)]);
        assert_eq!(Multiplexed::unpair(&mut pipelined, &flows, &carriers), Multiplexed::default());
        assert!(pipelined.messages.iter().all(|m| m.send_ns != 0));
    }
}
