//! Replies that go on after other work: the head of a page at once, its body when a disk or another server has answered.
//!
//! In: the pushes of the pass (sends to a client that was owed no reply) and the messages of their connections. Out: pushes that are
//! more of the reply before them become a part of it, and its message ends with the last of them.
//!
//! Without the payload nothing in a send call says to what it belongs, but the client does: one that waits for the whole reply sends
//! its next request a while after the last part, however long the server took for that part. A send that has nothing to do with the
//! requests lies anywhere between the reply before it and the request after it, as often nearer to the one as to the other, and so do the
//! first and the last of several. Which is nearer is counted over the connections of a port; where it is mostly the same one, more often
//! than by chance, those sends belong to the requests. A part in the turn in which its thread received another connection's message may
//! be what that one published, and proves nothing. On a port where such sends belong to the requests, those before a connection's first request
//! are the rest of a reply whose request came before the recording. And a reply that nothing followed for less than such replies pause, when the
//! recording ended, may go on: where it ends is not known, and its message has no reply.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{Extra, SENT, Traffic};
use crate::model::{Flow, Message, SentKind, Threshold, flags};

/// The pushes of the pass, over TCP and without a protocol.
#[derive(Clone, Debug, Default)]
pub struct Later {
    pushes: Vec<Push>,
}

#[derive(Clone, Copy, Debug)]
struct Push {
    /// Place in [`Traffic::sent`].
    at: usize,
    /// Its thread had received another connection's message last.
    published: bool,
}

/// A reply and what was sent after it, until the client's next request.
#[derive(Debug)]
struct Cycle {
    port: u16,
    /// The reply's messages: several, if they share it.
    messages: Vec<u32>,
    pushes: Vec<Push>,
    /// From the reply to the first of them, and from the last of them to the next request, ns; none: no request followed.
    gaps: Option<(u64, u64)>,
    /// The longest time between two sends of it, ns.
    pause_ns: u64,
}

/// What was seen on a port.
#[derive(Debug, Default)]
struct Evidence {
    /// Replies with later parts that a request followed, none of which may be published: the gap from the reply to its first part was not
    /// longer than that from the last part to the request.
    soon_after_reply: usize,
    /// The same, and it was longer.
    soon_before_request: usize,
    /// Parts, and those of them that may be published.
    parts: usize,
    published: usize,
    /// The most parts of a reply that a request followed.
    longest: usize,
    /// The longest pause in a reply that a request followed, ns.
    longest_pause_ns: u64,
    /// Parts of the replies that no request followed, by reply.
    open: Vec<usize>,
}

impl Later {
    /// A push; `index`: as [`Traffic::send`] gave it. `published`: its thread had received another connection's message last.
    pub fn pushed(&mut self, index: u32, published: bool) {
        self.pushes.push(Push { at: (index & !SENT) as usize, published });
    }

    /// All messages are found, and the recording ended at `end_ns`. Returns how many of them end with a part that was sent after other work.
    pub fn finish(self, flows: &[Flow], end_ns: u64, traffic: &mut Traffic) -> u64 {
        let (cycles, before_requests) = cycles(self.pushes, flows, traffic);
        let mut evidence: BTreeMap<u16, Evidence> = BTreeMap::new();
        for cycle in &cycles {
            evidence.entry(cycle.port).or_default().add(cycle);
        }
        let mut continued = 0;
        for cycle in cycles.iter().filter(|c| evidence[&c.port].belongs()) {
            continued += cycle.messages.len() as u64;
            cycle.join(traffic);
        }
        for (port, parts) in before_requests {
            let is_rest = evidence.get(&port).is_some_and(|totals| totals.belongs() && parts.len() <= totals.longest);
            for part in parts.iter().filter(|_| is_rest) {
                traffic.sent[part.at].1.send_ns = 0; // No push.
            }
        }
        let pauses_ns: BTreeMap<u16, u64> =
            evidence.iter().filter(|(_, e)| e.belongs()).map(|(&port, e)| (port, e.longest_pause_ns)).collect();
        continued - leave_open(&pauses_ns, end_ns, flows, traffic)
    }
}

/// The last reply of each connection, if it may go on behind the end of the recording, is none. `pauses_ns`: how long replies that go on pause, by
/// port. Returns how many of these messages had later parts.
fn leave_open(pauses_ns: &BTreeMap<u16, u64>, end_ns: u64, flows: &[Flow], traffic: &mut Traffic) -> u64 {
    if pauses_ns.is_empty() {
        return 0;
    }
    let pause_ns = |m: &Message| pauses_ns.get(&flows[m.flow as usize].key.local_port()).copied();
    let mut last_received: FxHashMap<u32, u64> = FxHashMap::default();
    for m in traffic.messages.iter().filter(|m| pause_ns(m).is_some()) {
        let last_ns = last_received.entry(m.flow).or_default();
        *last_ns = m.recv_ns.max(*last_ns);
    }
    let mut continued = 0;
    for (m, extra) in traffic.messages.iter_mut().zip(&mut traffic.extras) {
        let Some(pause_ns) = pause_ns(m).filter(|_| m.send_ns != 0 && last_received[&m.flow] == m.recv_ns) else {
            continue;
        };
        if end_ns < extra.sent_ns + pause_ns {
            continued += u64::from(m.flags & flags::CONTINUED != 0);
            (m.send_ns, m.xmit_ns) = (0, 0);
            m.flags &= !flags::CONTINUED;
            (extra.send_tid, extra.sent_ns, extra.reply_end, extra.xmit_cpu) = (0, 0, 0, 0);
        }
    }
    continued
}

impl Evidence {
    fn add(&mut self, cycle: &Cycle) {
        let published = cycle.pushes.iter().filter(|p| p.published).count();
        self.parts += cycle.pushes.len();
        self.published += published;
        let Some((before, after)) = cycle.gaps else { return self.open.push(cycle.pushes.len()) };
        self.longest = self.longest.max(cycle.pushes.len());
        self.longest_pause_ns = self.longest_pause_ns.max(cycle.pause_ns);
        if published == 0 {
            self.soon_after_reply += usize::from(before <= after);
            self.soon_before_request += usize::from(before > after);
        }
    }

    /// Whether the later sends of this port belong to the requests.
    fn belongs(&self) -> bool {
        let (after, before) = (self.soon_after_reply, self.soon_before_request);
        let (replies, agree) = (after + before, after.max(before));
        // A fair coin's heads of n throws deviate by half the square root of n.
        let by_chance = after.abs_diff(before).pow(2) < Threshold::ContinuedDeviations.count().pow(2) * replies;
        let agrees = replies >= Threshold::ContinuedReplies.count()
            && !by_chance
            && 10 * agree >= Threshold::ContinuedAgree.count() * replies;
        // A connection to which more and more is sent, and from which nothing more comes, is a stream.
        let streamed: usize = self.open.iter().filter(|parts| **parts > self.longest).sum();
        agrees && 10 * self.published <= 9 * self.parts && 10 * streamed <= self.parts
    }
}

impl Cycle {
    /// The later parts become the reply's: it is served until the last of them is sent.
    fn join(&self, traffic: &mut Traffic) {
        let Traffic { messages, extras, sent, .. } = traffic;
        for push in &self.pushes {
            let (_, part, reply): &mut (SentKind, Message, Extra) = &mut sent[push.at];
            for &index in &self.messages {
                let (message, extra) = (&mut messages[index as usize], &mut extras[index as usize]);
                (message.send_ns, message.xmit_ns) = (part.send_ns, part.xmit_ns);
                message.flags |= flags::CONTINUED;
                (extra.send_tid, extra.sent_ns) = (reply.send_tid, reply.sent_ns);
                (extra.reply_end, extra.xmit_cpu) = (reply.reply_end, reply.xmit_cpu);
            }
            part.send_ns = 0; // No push.
        }
    }
}

/// Pushes of a connection before its first request, and its port.
type BeforeRequests = (u16, Vec<Push>);

/// The pushes by the reply before them, without those that came after the client's next request; and those before the first request.
fn cycles(pushes: Vec<Push>, flows: &[Flow], traffic: &Traffic) -> (Vec<Cycle>, Vec<BeforeRequests>) {
    let mut by_flow: FxHashMap<u32, Vec<Push>> = FxHashMap::default();
    // Calls that turned out to be replies have no send time.
    for push in pushes.into_iter().filter(|p| traffic.sent[p.at].1.send_ns != 0) {
        by_flow.entry(traffic.sent[push.at].1.flow).or_default().push(push);
    }
    if by_flow.is_empty() {
        return (vec![], vec![]);
    }
    let mut messages: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    let mut is_pushed = vec![false; flows.len()];
    by_flow.keys().for_each(|&flow| is_pushed[flow as usize] = true);
    for (index, m) in (0..).zip(&traffic.messages).filter(|(_, m)| is_pushed[m.flow as usize]) {
        messages.entry(m.flow).or_default().push(index);
    }
    let mut out: Vec<Cycle> = Vec::new();
    let mut before_requests: Vec<BeforeRequests> = Vec::new();
    let mut by_flow: Vec<(u32, Vec<Push>)> = by_flow.into_iter().collect();
    by_flow.sort_unstable_by_key(|(flow, _)| *flow);
    for (flow, mut pushes) in by_flow {
        let Some(messages) = messages.get(&flow) else { continue };
        pushes.sort_unstable_by_key(|p| traffic.sent[p.at].1.send_ns);
        let port = flows[flow as usize].key.local_port();
        let cycle = |parts: &[Push]| cycle(port, parts, messages, traffic);
        for parts in pushes.chunk_by(|a, b| received(messages, traffic, *a) == received(messages, traffic, *b)) {
            match received(messages, traffic, parts[0]) {
                0 => before_requests.push((port, parts.to_vec())),
                _ => out.extend(cycle(parts)),
            }
        }
    }
    (out, before_requests)
}

/// How many of a connection's messages had been received when this was sent: all of them were answered then, or owed no answer.
fn received(messages: &[u32], traffic: &Traffic, push: Push) -> usize {
    let sent = traffic.sent[push.at].1.send_ns;
    messages.partition_point(|&m| traffic.messages[m as usize].recv_ns <= sent)
}

/// These pushes, which follow the same reply; none, if there is no reply before them, or if the next request was there before them all.
fn cycle(port: u16, pushes: &[Push], messages: &[u32], traffic: &Traffic) -> Option<Cycle> {
    let (before, after) = messages.split_at(received(messages, traffic, pushes[0]));
    let (first, sent) = (traffic.sent[pushes[0].at].1.send_ns, |m: &u32| traffic.messages[*m as usize].send_ns);
    let reply = before.iter().rev().map(sent).find(|ns| (1..=first).contains(ns))?;
    let shares = before.iter().rev().skip_while(|m| sent(m) != reply).take_while(|m| sent(m) == reply);
    let answered: Vec<u32> = shares.copied().collect();
    let before = traffic.extras[*answered.first()? as usize].sent_ns;
    let next = after.iter().map(|&m| traffic.messages[m as usize].driver_ns).min();
    let in_time = |p: &&Push| next.is_none_or(|next| traffic.sent[p.at].2.sent_ns <= next);
    let pushes: Vec<Push> = pushes.iter().take_while(in_time).copied().collect();
    let (first, last) = (pushes.first()?, pushes.last()?);
    let (begun, taken) = (traffic.sent[first.at].1.send_ns, traffic.sent[last.at].2.sent_ns);
    let gaps = next.map(|next| (begun.saturating_sub(before), next - taken));
    let sends = pushes.iter().map(|p| (traffic.sent[p.at].1.send_ns, traffic.sent[p.at].2.sent_ns));
    let (pause_ns, _) = sends
        .fold((0, before), |(pause_ns, sent_ns), (begun, taken)| (pause_ns.max(begun.saturating_sub(sent_ns)), taken));
    Some(Cycle { port, messages: answered, pushes, gaps, pause_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tailsight_trace::FlowKey;

    /// A connection's requests, each answered 10 ns after it was received: (what is sent later, ns after that; the next request, too).
    type Requests<'a> = &'a [(&'a [u64], u64)];

    fn flow(connection: u16) -> Flow {
        let ports = 8080 << 16 | u32::from(connection);
        Flow { key: FlowKey { addrs: 1, ports, proto: 0 }, name: String::new(), messages: 0 }
    }

    /// Sends of one connection after another. `published`: all were made in the turn of another connection's message.
    fn simulated(connections: &[Requests<'_>], published: bool) -> (Vec<Flow>, Traffic, Later) {
        let (mut traffic, mut later) = (Traffic::default(), Later::default());
        for (flow, requests) in (0..).zip(connections) {
            let mut at = 1000;
            for (parts, next) in *requests {
                let (recv_ns, send_ns) = (at + 5, at + 10);
                let m = Message { flow, driver_ns: at, recv_ns, send_ns, xmit_ns: at + 11, ..Message::default() };
                traffic.add(m, Extra { sent_ns: at + 10, send_tid: 1, ..Extra::default() });
                for part in *parts {
                    let send_ns = at + 10 + part;
                    let index = traffic
                        .send(SentKind::Push, Message { flow, send_ns, xmit_ns: send_ns + 2, ..Message::default() });
                    let extra = traffic.at(index).1;
                    (extra.sent_ns, extra.send_tid, extra.reply_end) = (send_ns + 1, 2, 700);
                    later.pushed(index, published);
                }
                at += 10 + next;
            }
        }
        let flows = (0..connections.len() as u16).map(flow).collect();
        (flows, traffic, later)
    }

    /// How many messages go on later.
    fn joined(connections: &[Requests<'_>], published: bool) -> u64 {
        let (flows, mut traffic, later) = simulated(connections, published);
        later.finish(&flows, LATE, &mut traffic)
    }

    /// The recording's end, long after all of it.
    const LATE: u64 = 1_000_000_000;
    const SLOW: (&[u64], u64) = (&[20_000], 20_100);
    const PLAIN: (&[u64], u64) = (&[], 100);

    #[test]
    fn a_reply_whose_client_asks_again_as_soon_as_it_has_the_last_part_ends_with_that() {
        let connection: Vec<_> = [PLAIN, SLOW].repeat(21);
        let (flows, mut traffic, later) = simulated(&[&connection], false);
        // The last one has no next request, and is one of them all the same.
        assert_eq!(later.finish(&flows, LATE, &mut traffic), 21);
        let (plain, slow) = (&traffic.messages[0], &traffic.messages[1]);
        assert_eq!((plain.send_ns, plain.xmit_ns, plain.flags), (1010, 1011, 0));
        let sent = slow.driver_ns + 20_010;
        assert_eq!((slow.send_ns, slow.xmit_ns, slow.flags), (sent, sent + 2, flags::CONTINUED));
        let extra = traffic.extras[1];
        assert_eq!((extra.sent_ns, extra.send_tid, extra.reply_end), (sent + 1, 2, 700));
        assert!(traffic.sent.iter().all(|(_, push, _)| push.send_ns == 0), "none is a push");
    }

    /// The head of a page was sent when the recording had begun, its request had come before that: its body was a push.
    #[test]
    fn what_is_sent_before_the_first_request_is_the_rest_of_a_reply_where_replies_go_on() {
        let before = |parts: u64, replies: usize| {
            let (flows, mut traffic, mut later) = simulated(&[&vec![SLOW; replies]], false);
            for send_ns in 500..500 + parts {
                let push = Message { flow: 0, send_ns, xmit_ns: send_ns + 2, ..Message::default() };
                later.pushed(traffic.send(SentKind::Push, push), false);
            }
            later.finish(&flows, LATE, &mut traffic);
            traffic.sent.iter().rev().take(parts as usize).filter(|(_, push, _)| push.send_ns != 0).count()
        };
        assert_eq!(before(1, 30), 0);
        assert_eq!(before(2, 30), 2, "more parts than any reply has");
        assert_eq!(before(1, 3), 1, "of replies too few are known");
    }

    #[test]
    fn so_does_one_whose_client_thinks_for_longer_than_the_server_took() {
        let connection: Vec<(&[u64], u64)> = vec![(&[100, 150], 3_000); 25];
        assert_eq!(joined(&[&connection], false), 25);
    }

    #[test]
    fn few_replies_and_what_others_published_prove_nothing() {
        let few: Vec<_> = vec![SLOW; Threshold::ContinuedReplies.count()];
        assert_eq!(joined(&[&few], false), 0, "one less than needed is followed by a request");
        let many = vec![SLOW; 100];
        assert_eq!((joined(&[&many], false), joined(&[&many], true)), (100, 0));
    }

    #[test]
    fn a_stream_of_which_no_end_is_known_is_no_reply() {
        let replies = vec![SLOW; 30];
        let stream: Vec<u64> = (1..100).map(|i| 1_000 * i).collect();
        let streams: &[(&[u64], u64)] = &[(&stream, 100_000)];
        assert_eq!(joined(&[&replies, streams], false), 0);
        let short: &[(&[u64], u64)] = &[(&stream[..1], 100_000)];
        assert_eq!(joined(&[&replies, short], false), 31, "under way when the recording ended");
    }

    /// Three replies of nginx with `limit_rate` counted as complete at 207 ms, which took a second.
    #[test]
    fn a_reply_that_may_go_on_behind_the_end_of_the_recording_has_no_end() {
        let connection = vec![SLOW; 30];
        let (flows, traffic, later) = simulated(&[&connection], false);
        let last = traffic.messages.len() - 1;
        let sent_ns = traffic.sent.last().expect("a part").2.sent_ns;
        let ended = |end_ns: u64| {
            let mut traffic = traffic.clone();
            let continued = later.clone().finish(&flows, end_ns, &mut traffic);
            (continued, traffic.messages[last].send_ns != 0, traffic.messages[last].flags & flags::CONTINUED != 0)
        };
        assert_eq!(ended(sent_ns + 19_998), (29, false, false), "the parts come after 20,000 ns");
        assert_eq!(ended(sent_ns + 20_000), (30, true, true));
        let is_push = |end_ns| {
            let mut traffic = traffic.clone();
            later.clone().finish(&flows, end_ns, &mut traffic);
            traffic.sent.iter().any(|(_, push, _)| push.send_ns != 0)
        };
        assert!(!is_push(sent_ns), "its parts are no pushes all the same");
        // Nor is it known whether one goes on that has no later part yet.
        let with_head = [vec![SLOW; 30], vec![PLAIN]].concat();
        let (flows, mut traffic, later) = simulated(&[&with_head], false);
        let head_ns = traffic.extras[30].sent_ns;
        assert_eq!((later.finish(&flows, head_ns + 19_998, &mut traffic), traffic.messages[30].send_ns), (30, 0));
    }

    #[test]
    fn what_is_sent_when_the_client_has_asked_again_is_none_of_the_reply() {
        let mut connection = vec![SLOW; 30];
        connection[3] = (&[20_000, 20_102], 20_100);
        let (flows, mut traffic, later) = simulated(&[&connection], false);
        // Sent 2 ns after the request came, and 3 ns before it was received.
        let last = traffic.sent.len() - 1;
        let at =
            traffic.sent.iter().position(|(_, m, _)| m.send_ns == traffic.messages[3].driver_ns + 20_112).expect("it");
        assert!(at < last);
        assert_eq!(later.finish(&flows, LATE, &mut traffic), 30);
        assert_ne!(traffic.sent[at].1.send_ns, 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        /// What has nothing to do with the requests lies anywhere between them, once or several times.
        #[test]
        fn sends_at_any_time_stay_pushes(
            cycles in prop::collection::vec((1_000u64..50_000, prop::collection::vec(0f64..1.0, 1..6)), 200..300),
        ) {
            let cycles: Vec<(Vec<u64>, u64)> = cycles
                .into_iter()
                .map(|(next, at)| {
                    let mut at: Vec<u64> = at.into_iter().map(|f| (f * (next - 20) as f64) as u64 + 5).collect();
                    at.sort_unstable();
                    (at, next)
                })
                .collect();
            let connection: Vec<(&[u64], u64)> = cycles.iter().map(|(at, next)| (at.as_slice(), *next)).collect();
            prop_assert_eq!(joined(&[&connection], false), 0);
        }
    }
}
