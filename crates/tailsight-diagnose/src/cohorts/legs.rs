//! The percentiles of every leg of a run, and the leg that is explained by default.
//!
//! In: messages. Out: the percentiles of every leg (ns), and a [`Leg`]. Percentiles of legs do not add up, because the message at p99
//! of one leg is not the message at p99 of another.

use std::collections::BTreeMap;

use tailsight_lifetime::messages::multiplexed::Multiplexed;
use tailsight_lifetime::{LEGS, Leg, Message, Threshold};

use crate::cohorts::chosen_class::InClass;
use crate::cohorts::focus::percentiles;
use crate::model::LegLatency;

/// The latencies of every leg, ns, of the messages that have it complete, in their order. Messages are a large table, so they are gone over
/// once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    by_leg: [Vec<u64>; Leg::ALL.len()],
    /// Messages on connections that requests share: segments, which have no replies.
    shared: usize,
}

impl Latencies {
    /// Of these messages, all on connections that carry one request at a time.
    pub fn of(messages: &[Message]) -> Latencies {
        Latencies::beside(messages, &Multiplexed::default())
    }

    /// Of these messages, some of which are on connections that requests share.
    pub fn beside(messages: &[Message], multiplexed: &Multiplexed) -> Latencies {
        Latencies { shared: multiplexed.unpaired() as usize, ..Latencies::in_class(messages, &InClass::ANY) }
    }

    /// Of those of the chosen classes: requests, which are no segments that connections share.
    pub fn in_class(messages: &[Message], in_class: &InClass) -> Latencies {
        let mut by_leg = Leg::ALL.map(|_| Vec::with_capacity(messages.len()));
        for m in messages.iter().filter(|m| in_class.has(m)) {
            let legs = by_leg.iter_mut().zip(Leg::ALL);
            legs.for_each(|(latencies, leg)| latencies.extend(m.latency(leg)));
        }
        Latencies { by_leg, shared: 0 }
    }

    /// Those of a leg.
    pub fn of_leg(&self, leg: Leg) -> &[u64] {
        let at = Leg::ALL.iter().position(|other| *other == leg);
        at.map_or(&[], |at| &self.by_leg[at])
    }

    /// Every leg's percentiles by its name; a leg that no message has complete is there with 0 messages.
    pub fn percentiles(&self) -> BTreeMap<String, LegLatency> {
        let mut latencies = Vec::new();
        let percentiles_of = |leg: Leg| {
            latencies.clear();
            latencies.extend_from_slice(self.of_leg(leg));
            let latency_ns = percentiles(&mut latencies);
            (leg.name().to_owned(), LegLatency { messages: latencies.len() as u64, latency_ns })
        };
        Leg::ALL.into_iter().map(percentiles_of).collect()
    }
}

/// Whether so many messages with replies, of those that were received, are what the server is for.
pub fn is_substantial(answered: usize, received: usize) -> bool {
    answered > 0 && answered * Threshold::SubstantialRequests.count() >= received
}

/// The leg to explain when none was asked for, and why it is not the total, when it is not: where most messages that were
/// received have no complete total (nothing is replied to them, or not to each), the leg that takes longest (by the median)
/// of those that most of them have complete. Segments of connections that requests share have no replies, so they do not count, unless they
/// are nearly all there is.
pub fn usual(latencies: &Latencies) -> (Leg, Option<String>) {
    let counted = |leg: Leg| latencies.of_leg(leg).len();
    let (received, answered) = (counted(Leg::Receive), counted(Leg::Total));
    let alone = received.saturating_sub(latencies.shared);
    if answered * 2 > received || received == 0 || answered * 2 > alone && is_substantial(answered, received) {
        return (Leg::Total, None);
    }
    let most = LEGS.into_iter().filter(|&leg| counted(leg) * 2 > received);
    let median = |leg: Leg| {
        let mut latencies = latencies.of_leg(leg).to_vec();
        let middle = latencies.len() / 2;
        (!latencies.is_empty()).then(|| *latencies.select_nth_unstable(middle).1)
    };
    // Of equal ones the first on the way.
    let longest = most.rev().max_by_key(|&leg| median(leg)).unwrap_or(Leg::Receive);
    let those = match answered {
        0 => "",
        _ => "; --leg total explains those that were",
    };
    let why = format!(
        "{answered} of {received} received messages have a reply, so the {} leg is explained instead of the \
         total{those}",
        longest.name()
    );
    (longest, Some(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Received after 100 ns, answered (when `reply`) 1,000 ns later and sent 10 ns after that.
    fn message(id: u32, reply: bool) -> Message {
        let driver_ns = 1_000_000 + 10_000 * u64::from(id);
        let (send_ns, xmit_ns) = if reply { (driver_ns + 1_100, driver_ns + 1_110) } else { (0, 0) };
        Message { id, driver_ns, recv_ns: driver_ns + 100, send_ns, xmit_ns, ..Message::default() }
    }

    #[test]
    fn the_total_is_explained_when_most_messages_are_answered() {
        let messages: Vec<Message> = (0..100).map(|i| message(i, i < 51)).collect();
        assert_eq!(usual(&Latencies::of(&messages)), (Leg::Total, None));
        assert_eq!(usual(&Latencies::default()), (Leg::Total, None));
    }

    /// One-way UDP and subscribers: nothing is answered, and the default had no message to explain.
    #[test]
    fn what_is_not_answered_is_explained_as_far_as_it_goes() {
        let messages: Vec<Message> = (0..100).map(|i| message(i, i < 50)).collect();
        let (leg, why) = usual(&Latencies::of(&messages));
        assert_eq!(leg, Leg::Receive);
        let why = why.expect("a reason");
        assert!(why.contains("50 of 100 received messages") && why.contains("--leg total"), "{why}");
        let (leg, why) = usual(&Latencies::of(&(0..10).map(|i| message(i, false)).collect::<Vec<_>>()));
        assert!(leg == Leg::Receive && why.is_some_and(|w| !w.contains("--leg total")));
        // Sent, but the hand-over to the driver was never seen: the service leg is complete, and longer.
        let cut: Vec<Message> = (0..10).map(|i| Message { xmit_ns: 0, ..message(i, true) }).collect();
        assert_eq!(usual(&Latencies::of(&cut)).0, Leg::Service);
    }

    /// etcd: 1,628 requests of HTTP/1 had a p99 of 179 ms, and what was explained were 1.85 ms of receiving, for etcd asks itself by gRPC.
    #[test]
    fn connections_that_requests_share_do_not_choose_the_leg() {
        let usual_leg = |answered: u32, shared: u32| {
            let messages: Vec<Message> = (0..answered + shared + 1).map(|i| message(i, i < answered)).collect();
            let multiplexed = Multiplexed { http2: u64::from(shared), ..Multiplexed::default() };
            usual(&Latencies::beside(&messages, &multiplexed)).0
        };
        assert_eq!(usual_leg(100, 240), Leg::Total);
        assert_eq!(usual_leg(10, 240), Leg::Receive, "health checks beside gRPC");
        assert_eq!(usual_leg(0, 240), Leg::Receive);
    }

    #[test]
    fn every_leg_has_its_percentiles() {
        let messages: Vec<Message> = (0..800).map(|i| message(i, i < 400)).collect();
        let legs = Latencies::of(&messages).percentiles();
        let percentile = |leg: &str, key: &str| legs[leg].latency_ns.get(key).copied();
        assert_eq!(legs.len(), 4);
        assert_eq!((legs["receive"].messages, percentile("receive", "p50")), (800, Some(100)));
        assert_eq!((legs["service"].messages, percentile("service", "p99")), (400, Some(1_000)));
        assert_eq!((percentile("transmit", "max"), percentile("total", "p50")), (Some(10), Some(1_110)));
        assert_eq!(percentile("total", "p99.9"), None, "400 messages have no p99.9");
        let json = serde_json::to_value(&legs["total"]).expect("JSON");
        assert_eq!((json["messages"].as_u64(), json["p50"].as_u64()), (Some(400), Some(1_110)), "{json}");
        let back: LegLatency = serde_json::from_value(json).expect("what was written");
        assert_eq!(&back, &legs["total"]);
    }
}
