//! Messages ranked by latency, and the two slices that are compared: focus and reference.
//!
//! In: messages, [`Options`]. Out: [`Cohorts`], the number of messages, and why some are not complete. All times in ns.

pub mod against;
pub mod chosen_class;
pub mod classes;
pub mod focus;
pub mod legs;

use std::collections::BTreeMap;

use tailsight_lifetime::messages::reorder::sort_pairs;
use tailsight_lifetime::model::flags;
use tailsight_lifetime::{Incomplete, Leg, Lifetimes, Message};

use crate::model::{MessageCounts, Slice};
use crate::{Error, Options, RecordingFacts};
use chosen_class::InClass;
use focus::enough;

/// Messages of one slice.
#[derive(Clone, Debug)]
pub struct Cohort {
    /// Their ids, in order of arrival.
    pub ids: Vec<u32>,
    /// Sum of their latencies, ns.
    pub sum_ns: u128,
}

impl Cohort {
    /// From ranks of the messages sorted by (latency, id).
    pub fn of(ranked: &[(u64, u32)]) -> Cohort {
        let mut ids: Vec<u32> = ranked.iter().map(|&(_, id)| id).collect();
        ids.sort_unstable();
        Cohort { ids, sum_ns: ranked.iter().map(|&(ns, _)| u128::from(ns)).sum() }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Their mean latency, ns, rounded.
    pub fn mean_ns(&self) -> u64 {
        focus::mean(self.sum_ns, self.ids.len() as u64)
    }
}

/// Complete messages by (latency, id), whatever their class.
pub fn ranked(messages: &[Message], leg: Leg) -> Vec<(u64, u32)> {
    ranked_in(messages, leg, &InClass::ANY)
}

/// Complete messages of the chosen classes by (latency, id).
pub fn ranked_in(messages: &[Message], leg: Leg, in_class: &InClass) -> Vec<(u64, u32)> {
    let of_class = messages.iter().filter(|m| in_class.has(m));
    let mut ranked: Vec<(u64, u32)> = of_class.filter_map(|m| Some((m.latency(leg)?, m.id))).collect();
    sort_pairs(&mut ranked);
    ranked
}

/// So many of a list, evenly over all of it; all where there are no more.
pub(crate) fn even_part<T: Copy>(items: &[T], most: usize) -> Vec<T> {
    let n = items.len().min(most);
    (0..n).map(|i| items[i * items.len() / n]).collect()
}

/// The messages that are compared.
#[derive(Clone, Debug)]
pub struct Cohorts {
    /// The messages under study.
    pub focus: Cohort,
    /// Those that they are compared with: at most [`Options::compared`] of their slice.
    pub reference: Cohort,
    /// The focus as a slice of the latencies.
    pub focus_slice: Slice,
    /// The reference as a slice, of the other run where there is one.
    pub reference_slice: Slice,
}

impl Cohorts {
    /// The slices of the ranked messages. `others`: those of another run; then the same slice of them is the reference.
    ///
    /// # Errors
    /// [`Error::NotEnough`] when one holds fewer than [`crate::MIN_MESSAGES`].
    pub fn of(ranked: &[(u64, u32)], others: Option<&[(u64, u32)]>, options: &Options) -> Result<Cohorts, Error> {
        let focus = Cohort::of(&ranked[enough(ranked.len(), options.focus, "focus")?]);
        let (compared, quantiles, name) = match others {
            None => (ranked, options.reference, "reference"),
            Some(others) => (others, options.focus, "against"),
        };
        let reference = &compared[enough(compared.len(), quantiles, name)?];
        let reference = match others {
            None => Cohort::of(&even_part(reference, options.compared)),
            Some(_) => Cohort::of(reference),
        };
        let slice =
            |cohort: &Cohort, (from, to)| Slice { from, to, messages: cohort.len() as u64, mean_ns: cohort.mean_ns() };
        let (focus_slice, reference_slice) = (slice(&focus, options.focus), slice(&reference, quantiles));
        Ok(Cohorts { focus, reference, focus_slice, reference_slice })
    }

    /// Focus and reference.
    pub fn both(&self) -> (&Cohort, &Cohort) {
        (&self.focus, &self.reference)
    }

    /// Mean latency of the focus less that of the reference, ns.
    pub fn deviation_ns(&self) -> i64 {
        self.focus_slice.mean_ns as i64 - self.reference_slice.mean_ns as i64
    }
}

/// Messages of the chosen classes by whether their leg is complete. Those that were not followed to the receive call are in
/// [`Lifetimes::incomplete`], whether or not they are also in the list; their class is not known, so of a chosen class they are not counted.
pub fn counts(
    lifetimes: &Lifetimes,
    (mine, in_class): (&[Message], &InClass),
    leg: Leg,
    complete: u64,
) -> MessageCounts {
    let mut incomplete: BTreeMap<Incomplete, u64> =
        if in_class.is_any() { lifetimes.incomplete.clone() } else { BTreeMap::new() };
    let named: u64 = incomplete.values().sum();
    let last_sends_ns = last_sends_ns(lifetimes);
    let (mut unreceived, mut unsent, mut unanswered, mut sent, mut dropped, mut out_of_order) = (0_u64, 0, 0, 0, 0, 0);
    for m in mine.iter().filter(|m| in_class.has(m)) {
        let has = |flag: u16| u64::from(m.flags & flag != 0);
        out_of_order += has(flags::OVERTAKEN);
        match (m.latency(Leg::Receive), m.latency(leg)) {
            (None, _) => unreceived += 1,
            (Some(_), None) => {
                let is_last = last_sends_ns.get(m.flow as usize).is_some_and(|ns| (1..m.recv_ns).contains(ns));
                unsent += u64::from(m.send_ns == 0 && !is_last);
                unanswered += u64::from(m.send_ns == 0 && is_last);
                sent += u64::from(m.send_ns != 0);
                dropped += has(flags::REPLY_DROPPED);
            }
            (Some(_), Some(_)) => {}
        }
    }
    let mut add = |reason: Incomplete, n: u64| {
        if n > 0 {
            *incomplete.entry(reason).or_default() += n;
        }
    };
    add(Incomplete::ReceiveNotSeen, unreceived.saturating_sub(named));
    // The segments of a shared connection are not answered one by one, the last ones neither.
    let segments = if in_class.is_any() { lifetimes.multiplexed.unpaired() } else { 0 };
    let multiplexed = segments.min(unsent + unanswered);
    add(Incomplete::Multiplexed, multiplexed);
    // Where frames were read, all sends are seen; a reply is missing when its frames are.
    let is_read = lifetimes.framing.as_ref().is_some_and(|framing| framing.pairs_by_id());
    let reason = if is_read { Incomplete::ReplyNotKept } else { Incomplete::SendNotSeen };
    add(reason, unsent.saturating_sub(multiplexed));
    add(Incomplete::Unanswered, unanswered - multiplexed.saturating_sub(unsent));
    add(Incomplete::ReplyDropped, dropped);
    add(Incomplete::TransmitNotSeen, sent - dropped);
    let total = complete + incomplete.values().sum::<u64>();
    MessageCounts { total, complete, incomplete, out_of_order }
}

/// When the application last sent something on each flow, CLOCK_MONOTONIC ns; 0 where it was not seen to send.
fn last_sends_ns(lifetimes: &Lifetimes) -> Vec<u64> {
    let mut last_ns = vec![0; lifetimes.flows.len()];
    let replies = lifetimes.messages.iter().map(|m| (m.flow, m.send_ns));
    let unasked = lifetimes.sent.iter().map(|s| (s.flow, s.send_ns));
    for (flow, send_ns) in replies.chain(unasked) {
        if let Some(last_ns) = last_ns.get_mut(flow as usize) {
            *last_ns = send_ns.max(*last_ns);
        }
    }
    last_ns
}

/// The error for a run without a complete message.
pub fn nothing(lifetimes: &Lifetimes, leg: Leg, counts: &MessageCounts, facts: &RecordingFacts) -> Error {
    let reasons = if counts.incomplete.is_empty() {
        "no message was seen".to_owned()
    } else {
        counts.incomplete.iter().map(|(reason, n)| format!("{n}: {}", reason.text())).collect::<Vec<_>>().join("; ")
    };
    let advice = if facts.damaged {
        "the run is damaged: its files were changed or cut after the recording; copy it again from where it was recorded, or \
         record again"
    } else if counts.incomplete.is_empty() && !facts.partial.is_empty() {
        "the recording is partial and too short: record again"
    } else if counts.incomplete.is_empty() && facts.lost_events > 0 {
        "events were lost: record again for a shorter time, or with larger buffers"
    } else if counts.incomplete.is_empty() {
        "send it requests while recording, and check the target's process and port"
    } else if leg != Leg::Receive {
        "try --leg receive"
    } else {
        "tailsight doctor shows which hooks this machine lacks"
    };
    let app = if lifetimes.app.is_empty() { "the target".into() } else { lifetimes.app.clone() };
    Error::NoMessages { app, leg, reasons, advice: advice.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_list_is_even_and_all_of_a_short_one() {
        let numbers: Vec<u32> = (0..1_000).collect();
        assert_eq!(even_part(&numbers, 1_000), numbers);
        assert_eq!(even_part(&numbers, 5_000), numbers);
        assert_eq!(even_part(&numbers, 4), [0, 250, 500, 750]);
        let some = even_part(&numbers, 300);
        assert!(some.len() == 300 && some.windows(2).all(|two| (3..=4).contains(&(two[1] - two[0]))));
        assert!(even_part(&numbers[..0], 7).is_empty() && even_part(&numbers, 0).is_empty());
    }
}
