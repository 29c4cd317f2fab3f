//! The transmit side: where the transmit leg begins, what the application sent by itself, and what was lost.
//!
//! In: [`Lifetimes`]. Out: parts of the [`Diagnosis`](crate::Diagnosis).

use std::collections::{BTreeMap, BTreeSet};

use tailsight_lifetime::{Flow, Lifetimes, Sent, SentKind, Threshold, UNKNOWN_ADDRESS, send_entry};

use crate::cohorts::focus::percentiles;
use crate::model::{self, SentCalls};

/// Peers that are named at most.
const PEERS: usize = 8;

/// Where the transmit leg of the messages' protocols begins.
pub fn entry(lifetimes: &Lifetimes) -> BTreeMap<String, String> {
    let entry = &lifetimes.send_entry;
    let answered = |udp| {
        let is_answered = |m: &tailsight_lifetime::Message| {
            m.send_ns != 0 && lifetimes.flows.get(m.flow as usize).is_some_and(|f| f.key.is_udp() == udp)
        };
        lifetimes.messages.iter().any(is_answered)
    };
    [("tcp", false, &entry.tcp), ("udp", true, &entry.udp)]
        .into_iter()
        .filter(|(_, udp, source)| !source.is_empty() && answered(*udp))
        .map(|(name, _, source)| (name.to_owned(), source.clone()))
        .collect()
}

/// What the transmit leg is called: where it begins when that is not the send call, for every protocol of the messages.
pub fn transmit_name(entry: &BTreeMap<String, String>) -> &'static str {
    let all_from = |source: &str| !entry.is_empty() && entry.values().all(|s| s == source);
    match () {
        () if all_from(send_entry::DRIVER) => "transmit (from the driver)",
        () if all_from(send_entry::QUEUE) => "transmit (from the qdisc)",
        () => "transmit",
    }
}

/// What the application sent by itself; `None` when that was nothing.
pub fn summary(lifetimes: &Lifetimes) -> Option<model::Sent> {
    let remote = |sent: &Sent| lifetimes.flows.get(sent.flow as usize).map_or("", Flow::remote);
    let answering: BTreeSet<&str> = lifetimes.sent.iter().filter(|s| s.wait_ns().is_some()).map(remote).collect();
    let is_datagram = |sent: &Sent| lifetimes.flows.get(sent.flow as usize).is_some_and(|flow| flow.key.is_udp());
    // Datagrams to somebody who never answers (a log, a counter) ask for nothing.
    let kind_of = |sent: &Sent| match sent.kind {
        SentKind::Request if is_datagram(sent) && !answering.contains(remote(sent)) => SentKind::Push,
        kind => kind,
    };
    let summary_of = |kind| {
        let calls: Vec<&Sent> = lifetimes.sent.iter().filter(|s| kind_of(s) == kind).collect();
        if calls.is_empty() {
            return None;
        }
        let mut ns: Vec<u64> = calls.iter().filter_map(|s| s.transmit_ns()).collect();
        let mut waits: Vec<u64> = calls.iter().filter_map(|s| s.wait_ns()).collect();
        let mut peers: BTreeMap<&str, u64> = BTreeMap::new();
        for sent in &calls {
            *peers.entry(remote(sent)).or_default() += 1;
        }
        // Of clients there are many, each with a port of its own.
        let mut peers: Vec<(String, u64)> = match kind {
            SentKind::Push => vec![],
            SentKind::Request => peers.into_iter().map(|(peer, n)| (peer.to_owned(), n)).collect(),
        };
        // A socket of UDP that is not connected does not say to whom it sent.
        let is_known = |peer: &str| !peer.ends_with(":0");
        let without_address: u64 = peers.iter().filter(|(peer, _)| !is_known(peer)).map(|(_, calls)| calls).sum();
        peers.retain(|(peer, _)| is_known(peer));
        peers.extend((without_address > 0).then(|| (UNKNOWN_ADDRESS.to_owned(), without_address)));
        peers.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        peers.truncate(PEERS);
        let biased = kind == SentKind::Request
            && lifetimes.unknown_backend_calls * Threshold::UnknownAnswers.count() as u64 > calls.len() as u64;
        Some(SentCalls {
            calls: calls.len() as u64,
            complete: ns.len() as u64,
            bytes: calls.iter().map(|s| u64::from(s.bytes)).sum(),
            transmit_ns: percentiles(&mut ns),
            answered: waits.len() as u64,
            // Connections that requests share are those with the slow answers: what is known of the others is no sample of all.
            wait_ns: if biased { BTreeMap::new() } else { percentiles(&mut waits) },
            peers,
        })
    };
    let sent = model::Sent { pushes: summary_of(SentKind::Push), requests: summary_of(SentKind::Request) };
    (sent != model::Sent::default()).then_some(sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_lifetime::{Flow, Message};
    use tailsight_trace::FlowKey;
    use tailsight_trace::meta::SendEntry;

    fn flow(name: &str, udp: bool) -> Flow {
        let proto = if udp { 2 } else { 0 };
        Flow { key: FlowKey { addrs: 1, ports: 2, proto }, name: name.into(), messages: 1 }
    }

    #[test]
    fn a_transmit_leg_that_begins_at_the_driver_is_called_that() {
        let name_of = |entries: &[(&str, &str)]| {
            transmit_name(&entries.iter().map(|(p, s)| ((*p).to_owned(), (*s).to_owned())).collect())
        };
        assert_eq!(name_of(&[]), "transmit");
        assert_eq!(name_of(&[("tcp", "driver")]), "transmit (from the driver)");
        assert_eq!(name_of(&[("tcp", "driver"), ("udp", "fentry")]), "transmit");
        assert_eq!(name_of(&[("udp", "net_dev_queue")]), "transmit (from the qdisc)");
    }

    #[test]
    fn what_was_sent_by_itself_is_summed_apart_from_messages() {
        let sent = |kind, flow, send_ns, xmit_ns| {
            let (sent_ns, answered_ns) = (send_ns + 2, if xmit_ns == 15 { 500 } else { 0 });
            Sent { kind, flow, bytes: 100, tid: 1, send_ns, sent_ns, xmit_ns, answered_ns }
        };
        let flows =
            vec![flow("tcp 10.0.0.1:80 <- 10.0.0.2:4000", false), flow("tcp 10.0.0.1:5000 <- 10.0.0.3:9101", false)];
        let mut lifetimes = Lifetimes::from_parts("app", vec![], flows, vec![], vec![]);
        lifetimes.sent = vec![
            sent(SentKind::Push, 0, 10, 30),
            sent(SentKind::Request, 1, 10, 15),
            sent(SentKind::Request, 1, 20, 0),
        ];
        let sent = summary(&lifetimes).unwrap();
        let requests = sent.requests.unwrap();
        assert_eq!((requests.calls, requests.complete, requests.bytes), (2, 1, 200));
        assert_eq!(requests.peers, [("10.0.0.3:9101".to_owned(), 2)]);
        assert_eq!(requests.transmit_ns["max"], 5);
        assert_eq!((requests.answered, requests.wait_ns["max"]), (1, 488));
        let pushes = sent.pushes.unwrap();
        assert_eq!((pushes.calls, pushes.transmit_ns["max"], pushes.peers.len()), (1, 20, 0));
        assert_eq!((pushes.answered, pushes.wait_ns.len()), (0, 0));
        assert_eq!(summary(&Lifetimes::default()), None);
    }

    #[test]
    fn the_transmit_leg_is_named_by_where_it_begins() {
        let answered = Message { flow: 1, send_ns: 5, ..Message::default() };
        let flows = vec![flow("a", false), flow("b", true)];
        let mut lifetimes = Lifetimes::from_parts("app", vec![answered], flows, vec![], vec![Default::default()]);
        lifetimes.send_entry = SendEntry { tcp: "tcp_sendmsg_locked".into(), udp: "driver".into() };
        assert_eq!(entry(&lifetimes), [("udp".to_owned(), "driver".to_owned())].into());
    }

    /// haproxy: "16,508 own requests, most to a server whose address is not known (8,255)", which were lines to a log over UDP.
    #[test]
    fn datagrams_that_nobody_answers_are_no_requests() {
        let flows = vec![flow("udp 10.0.0.1:5000 <- 10.0.0.3:0", true), flow("udp 10.0.0.1:5001 <- 10.0.0.4:53", true)];
        let mut lifetimes = Lifetimes::from_parts("app", vec![], flows, vec![], vec![]);
        let sent = |flow, answered_ns| Sent {
            kind: SentKind::Request,
            flow,
            bytes: 90,
            tid: 1,
            send_ns: 10,
            sent_ns: 12,
            xmit_ns: 15,
            answered_ns,
        };
        lifetimes.sent = vec![sent(0, 0), sent(0, 0), sent(1, 500), sent(1, 0)];
        let summed = summary(&lifetimes).unwrap();
        assert_eq!(summed.pushes.unwrap().calls, 2);
        let requests = summed.requests.unwrap();
        assert_eq!((requests.calls, requests.answered), (2, 1));
        assert_eq!(requests.peers, [("10.0.0.4:53".to_owned(), 2)]);
    }
}
