//! When the server's host first got each request. In: the client's samples, and the log of the relay between client and server, where there
//! is one. Out: the samples as the host sees them; times in ns.

use std::collections::BTreeMap;

use tailsight_lab::probe::Sample;
use tailsight_lab::truth::{Interval, kind};

/// The requests as the server's host sees them. Behind a relay, a request begins when the host first gets it, whatever
/// happened to its packet before; requests of one packet are one message there, as in a diagnosis without a protocol.
pub fn as_seen(samples: &[Sample], logs: &BTreeMap<String, Vec<Interval>>) -> Vec<Sample> {
    if !logs.contains_key(RELAY) {
        return samples.to_vec();
    }
    let arrived = arrived(logs);
    let mut received: BTreeMap<(u32, u64), Sample> = BTreeMap::new();
    for (id, sample) in samples.iter().enumerate() {
        let Some(&sent_ns) = arrived.get(&(id as u32)) else { continue };
        let message = received.entry((sample.connection, sent_ns)).or_insert(Sample { sent_ns, ..*sample });
        // Received when the last of them is.
        if sample.stamps.received_ns > message.stamps.received_ns {
            *message = Sample { sent_ns, ..*sample };
        }
    }
    received.into_values().collect()
}

/// The log of packets on their way.
const RELAY: &str = "lab-relay";

/// When the server's host first got each request: its first packet that was passed on, or the delayed one.
fn arrived(logs: &BTreeMap<String, Vec<Interval>>) -> BTreeMap<u32, u64> {
    let mut first = BTreeMap::new();
    for entry in logs.get(RELAY).map(Vec::as_slice).unwrap_or_default() {
        let came = match kind::parts(entry.kind) {
            (kind::PASSED, id) => Some(id),
            // One that was lost ends where it began.
            (kind::PACKET, id) if entry.end_ns > entry.begin_ns => Some(id),
            _ => None,
        };
        if let Some(id) = came {
            first.entry(id).and_modify(|at: &mut u64| *at = entry.end_ns.min(*at)).or_insert(entry.end_ns);
        }
    }
    first
}

/// By connection and arrival of a message: when all bytes up to its own were at the host. TCP passes nothing to an
/// application before (RFC 9293 section 3.10.7.4); the time between is the hole's, and later time is not.
pub(super) fn whole(samples: &[Sample], logs: &BTreeMap<String, Vec<Interval>>) -> BTreeMap<(u32, u64), u64> {
    let arrived = arrived(logs);
    let mut latest: BTreeMap<u32, u64> = BTreeMap::new();
    let mut whole = BTreeMap::new();
    // In the order of the connection's bytes: requests are numbered as they are sent.
    for (id, sample) in samples.iter().enumerate() {
        let Some(&at) = arrived.get(&(id as u32)) else { continue };
        let latest = latest.entry(sample.connection).or_default();
        *latest = at.max(*latest);
        whole.insert((sample.connection, at), *latest);
    }
    whole
}

#[cfg(test)]
mod tests {
    use tailsight_lab::wire::Stamps;

    use super::*;

    /// Four requests on one connection, 10 apart: the second is lost and comes again at 70, the third comes in time, the
    /// fourth in one packet with the second. The server reads all of them at 90.
    fn held_back() -> (Vec<Sample>, BTreeMap<String, Vec<Interval>>) {
        let request = |sent_ns, received_ns| {
            let stamps = Stamps { received_ns, began_ns: received_ns, ended_ns: received_ns + 1 };
            Sample { sent_ns, stamps, ..Sample::default() }
        };
        let samples = vec![request(10, 15), request(20, 90), request(30, 90), request(40, 90)];
        let entry = |kind, begin_ns, end_ns| Interval { begin_ns, end_ns, kind };
        let log = vec![
            entry(kind::passed(0), 11, 12),
            entry(kind::packet(1), 21, 21),
            entry(kind::passed(2), 31, 32),
            entry(kind::passed(1), 69, 70),
            entry(kind::passed(3), 69, 70),
            // A retransmission that nobody needed.
            entry(kind::passed(2), 79, 80),
        ];
        (samples, BTreeMap::from([(RELAY.to_owned(), log)]))
    }

    #[test]
    fn a_relayed_request_begins_when_the_host_gets_it_and_one_packet_is_one_message() {
        let (samples, logs) = held_back();
        assert_eq!(arrived(&logs), BTreeMap::from([(0, 12), (1, 70), (2, 32), (3, 70)]));
        let received = as_seen(&samples, &logs);
        assert_eq!(received.iter().map(|s| s.sent_ns).collect::<Vec<_>>(), [12, 32, 70]);
        // Kept back, not lost: it came when it was passed on.
        let late = Interval { begin_ns: 5, end_ns: 60, kind: kind::packet(4) };
        assert_eq!(arrived(&BTreeMap::from([(RELAY.to_owned(), vec![late])])), BTreeMap::from([(4, 60)]));
        assert_eq!(as_seen(&samples, &BTreeMap::new()), samples, "no relay: as the client has them");
    }

    /// The truth used to give the hole all the time until the application had read the missing request, and to the ones
    /// that came before it on the connection too: up to 16 points more than TCP held anything back.
    #[test]
    fn a_hole_ends_when_the_missing_bytes_are_there_and_holds_only_what_is_behind_it() {
        let (samples, logs) = held_back();
        let whole = whole(&samples, &logs);
        assert_eq!(whole, BTreeMap::from([((0, 12), 12), ((0, 32), 70), ((0, 70), 70)]));
    }
}
