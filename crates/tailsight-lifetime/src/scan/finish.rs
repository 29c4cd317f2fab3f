//! The end of the pass: closes what is open, sorts messages by arrival, and fills in what follows from complete timelines.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use tailsight_kernel::syscalls::waits_for_work;
use tailsight_protocol::ProtocolChoice;
use tailsight_trace::FlowKey;

use super::activity::{Activity, Handling};
use super::losses::overlaps;
use super::{Counted, Scan, Scanner};
use crate::input;
use crate::messages::multiplexed::{Carrier, Multiplexed, carriers};
use crate::messages::reorder::{gathered, sort_pairs};
use crate::messages::requests::Framing;
use crate::messages::requests::plain_text::{PlainText, PlainTexts};
use crate::messages::turns::Turns;
use crate::messages::{Extra, Traffic, overtaken, udp_order};
use crate::model::{Flow, Incomplete, Message, Sent, SentKind, Without, flags};
use crate::timelines::busy_periods::BusyPeriod;
use crate::timelines::cores::Core;
use crate::timelines::service::Service;
use crate::timelines::tree::{NodeId, Tree};

impl Scanner<'_> {
    pub(super) fn finish(mut self, start_ns: u64, end_ns: u64) -> Scan {
        self.close(end_ns);
        let multiplexed = self.unpair();
        let is_udp = |flow: u32| self.flows[flow as usize].key.is_udp();
        let sleeps = |tid| self.threads.slept_in(tid, waits_for_work);
        udp_order::put_right(&mut self.traffic, self.peers.answered(), is_udp, sleeps);
        let unstamped = self.nic.judge(&mut self.traffic.messages);
        let by_id = self.flows_paired_by_id();
        let in_turn = |m: &Message| m.flags & flags::PAIRED_BY_ID == 0 || !by_id.contains(&m.flow);
        let (messages, extras) = (&self.traffic.messages, &mut self.traffic.extras);
        let mut busy_periods = self.busy_periods.finish(end_ns, messages, extras, in_turn);
        let (every_message, extras) = (&mut self.traffic.messages, &mut self.traffic.extras);
        let sent = self.traffic.sent.iter_mut().map(|(_, m, extra)| (m, extra));
        let every_message = every_message.iter_mut().zip(extras).chain(sent);
        let outgoing = self.outgoing.finish(&self.flows, every_message, &mut self.traffic.uncommon);
        self.threads.complete();
        input::name_flows(&mut self.flows, self.facts);

        let Traffic {
            mut messages,
            extras,
            uncommon,
            mut incomplete,
            classes,
            framing,
            sent,
            repeated_connects,
            between_sends,
        } = self.traffic;
        let order = in_order(&messages, &self.losses.finish(end_ns), &unstamped, &mut incomplete);
        let sleeps = |tid| self.threads.slept_in(tid, waits_for_work);
        let answers = self.peers.answers();
        // The numbers as found, until they are sorted.
        messages.iter_mut().zip(0..).for_each(|(message, id)| message.id = id);
        self.routines.finish_handlers(&messages, &extras);
        self.routines.finish(&messages, &extras);
        let peers = self.peers.finish(&messages, &extras, &order, sleeps, &self.routines, &self.threads);
        let mut messages = gathered(messages, &order);
        for (id, message) in (0..).zip(&mut messages) {
            message.id = id;
            self.flows[message.flow as usize].messages += 1;
        }
        let framing = self.captures.map(|(choice, _)| framed(framing, choice, &messages));
        let extras: Vec<Extra> = gathered(extras, &order);
        self.routines.renumber(&order);
        overtaken::mark(&mut messages);
        let in_line = messages.iter().zip(&extras).flat_map(|(m, extra)| {
            let waited = peers.calls(m.id).iter().filter(|call| call.turn || call.freed != 0);
            waited.map(move |call| (m, extra, call.peer, if call.turn { call.to } else { call.freed }))
        });
        self.routines.learn_lines(in_line);
        self.routines.learn_sleeps(&messages, &extras, &self.threads);
        let turns = Turns::of(&messages, &extras, &peers, &self.threads);
        turns.add_to(&mut busy_periods);
        complete(&mut self.cores, &self.tree, &busy_periods);
        let sent = in_order_of_sending(sent, &self.flows, &answers);
        let service = Service::new(busy_periods, self.connections.into_loops(), self.polled);
        Scan {
            activity: Activity {
                tree: self.tree,
                cores: self.cores,
                threads: self.threads,
                service,
                peers,
                without_rules: Without::default(),
                span_ns: (start_ns, end_ns),
            },
            handling: Handling {
                turns,
                routines: self.routines,
                uncommon,
                between_sends,
                drop_reasons: self.facts.drop_reasons,
            },
            messages,
            extras,
            sent,
            faults: self.faults,
            counted: Counted {
                flows: self.flows,
                incomplete,
                outgoing,
                numa_moves: self.numa_moves,
                repeated_connects,
                multiplexed,
                classes: classes.into_list(),
                framing,
                nic: self.nic,
            },
        }
    }

    /// The flows in which a protocol was read whose replies have their requests by an id.
    fn flows_paired_by_id(&self) -> FxHashSet<u32> {
        let by_id = self.tcp.values().filter(|flow| flow.framed.as_ref().is_some_and(|framed| framed.pairs_by_id()));
        by_id.filter_map(|flow| flow.index).collect()
    }

    /// Messages of connections that requests share have no replies.
    fn unpair(&mut self) -> Multiplexed {
        let segments = self.tcp.values().filter_map(|flow| Some((flow.index?, flow.segments)));
        let mut carriers = carriers(&self.flows, segments);
        // Where frames were read, what has a reply has its own.
        let by_id = self.flows_paired_by_id();
        let decrypted =
            self.tcp.values().filter(|flow| flow.framed.as_ref().is_some_and(|framed| framed.is_decrypted()));
        let decrypted: FxHashSet<u32> = decrypted.filter_map(|flow| flow.index).collect();
        carriers.retain(|flow, carrier| match carrier {
            Carrier::Http2 => !by_id.contains(flow),
            Carrier::Tls => !decrypted.contains(flow),
            Carrier::Plain | Carrier::Unknown => true,
        });
        Multiplexed::unpair(&mut self.traffic, &self.flows, &carriers)
    }

    /// Ends what is still open: packets, connections, datagrams.
    fn close(&mut self, end_ns: u64) {
        for cpu in 0..self.cores.len() as u16 {
            let open = self.captures.as_mut().and_then(|(_, captures)| captures.close(cpu));
            if let Some(packet) = open.filter(|p| p.out) {
                self.framed_xmit(&packet, cpu);
            }
        }
        let cut: Vec<PlainText> = self.plain_texts.iter_mut().flat_map(PlainTexts::close_rest).collect();
        cut.into_iter().for_each(|text| self.read(Some(text)));
        let others = input::others_flows(self.facts);
        for (key, flow) in &mut self.tcp {
            // Another server on the same port (in another network namespace, or a worker that was not chosen) holds it.
            if !flow.receiver.was_read() && others.contains(&(key.addrs, key.ports)) {
                continue;
            }
            flow.end(Incomplete::RecordingEnded, end_ns, &mut self.traffic);
        }
        self.udp_replies.end(&mut self.traffic);
        self.datagrams.end(&mut self.traffic);
        // Before their stamps, which are those of a reply's last byte.
        std::mem::take(&mut self.later).finish(&self.flows, end_ns, &mut self.traffic);
        self.stamp_replies();
    }
}

/// The indices of messages in the order of their arrival, without those that were on their way while events were lost and those
/// that lack the stamp that the others have; both are counted.
fn in_order(
    messages: &[Message],
    losses: &[(u64, u64)],
    unstamped: &[bool],
    incomplete: &mut BTreeMap<Incomplete, u64>,
) -> Vec<u32> {
    // Messages that arrived at the same time stay in the order of their receive calls.
    let mut order: Vec<(u64, u32)> = messages.iter().map(|m| m.driver_ns).zip(0..).collect();
    let mut without = |why, keep: &dyn Fn(usize) -> bool| {
        let before = order.len();
        order.retain(|&(_, i)| keep(i as usize));
        if order.len() < before {
            incomplete.insert(why, (before - order.len()) as u64);
        }
    };
    if !losses.is_empty() {
        without(Incomplete::EventsLost, &|i| !overlaps(losses, &messages[i]));
    }
    without(Incomplete::NotStamped, &|i| !unstamped[i]);
    sort_pairs(&mut order);
    order.into_iter().map(|(_, i)| i).collect()
}

/// How far requests were framed, of the messages that are left.
fn framed(mut framing: Framing, choice: ProtocolChoice, messages: &[Message]) -> Framing {
    framing.protocol = choice.to_string();
    framing.lost = messages.iter().filter(|m| m.flags & flags::UNFRAMED != 0).count() as u64;
    framing.framed = messages.len() as u64 - framing.lost;
    framing
}

/// `answers`: see [`crate::messages::backend_calls::Peers::answers`].
fn in_order_of_sending(
    sent: Vec<(SentKind, Message, Extra)>,
    flows: &[Flow],
    answers: &FxHashMap<FlowKey, Vec<(u64, u64)>>,
) -> Vec<(Sent, Extra)> {
    // A request that was sent in several pieces has one answer.
    let answered = |flow: u32, sent_ns: u64| {
        let calls = answers.get(&flows[flow as usize].key)?;
        calls[..calls.partition_point(|(sent, _)| *sent <= sent_ns)].last().map(|(_, ready)| *ready)
    };
    let row_and_extra = |(kind, m, extra): (SentKind, Message, Extra)| {
        let Message { flow, bytes, tid, send_ns, xmit_ns, .. } = m;
        let sent_ns = extra.sent_ns;
        let answered_ns = if kind == SentKind::Request { answered(flow, sent_ns).unwrap_or(0) } else { 0 };
        (Sent { kind, flow, bytes, tid, send_ns, sent_ns, xmit_ns, answered_ns }, extra)
    };
    // Without the calls that turned out to be replies.
    let mut sent: Vec<(Sent, Extra)> = sent.into_iter().filter(|(_, m, _)| m.send_ns != 0).map(row_and_extra).collect();
    sent.sort_by_key(|(s, _)| s.send_ns);
    sent
}

/// Completes the timelines of cores, and marks the segments in which a thread of the target ran inside one of its busy periods. Busy periods
/// begin and end at events of the thread itself, which are segment borders wherever the thread ran.
fn complete(cores: &mut [Core], tree: &Tree, periods: &FxHashMap<u32, Vec<BusyPeriod>>) {
    let mut threads: Vec<(&[BusyPeriod], usize)> = Vec::with_capacity(periods.len());
    let mut by_tid: FxHashMap<u32, usize> = FxHashMap::default();
    for (&tid, periods) in periods {
        by_tid.insert(tid, threads.len());
        threads.push((periods, 0));
    }
    let serves: Vec<Option<usize>> =
        (0..tree.len()).map(|node| by_tid.get(&tree.task_of(node as NodeId)).copied()).collect();
    for core in cores {
        threads.iter_mut().for_each(|(_, at)| *at = 0);
        core.complete(|segment| {
            let Some(thread) = serves[segment.node as usize] else { return };
            let (periods, at) = &mut threads[thread];
            while periods.get(*at).is_some_and(|w| w.to <= segment.from) {
                *at += 1;
            }
            segment.serving = periods.get(*at).is_some_and(|w| w.from <= segment.from);
        });
    }
}
