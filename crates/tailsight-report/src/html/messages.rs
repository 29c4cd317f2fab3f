//! Messages as columns for the page: latency, arrival, flow, thread, class, and for those in focus the time of each cause.
//!
//! In: the lifetimes and the diagnosis. Out: columns of little-endian numbers. They hold either every message, whose id is then its
//! position, or those in focus and a sample of the others, with the ids as one more column (html/points.rs has the rest). The *dominant
//! cause* of a message is the one that exceeds its mean over the reference by the most time; where the reference is not in this run,
//! the one with the most time. Times are ns.

use std::collections::BTreeMap;

use serde::Serialize;
use tailsight_diagnose::cohorts::chosen_class::InClass;
use tailsight_diagnose::model::Slice;
use tailsight_lifetime::{LEGS, Leg, Message};

use super::Input;
use super::elements::Element;
use super::points::{Part, Points};

/// No dominant cause: the message is not in focus.
const NOT_IN_FOCUS: u8 = 255;
/// In focus, but no cause has time in it.
const NO_CAUSE: u8 = 254;
/// Stands in a 32-bit latency column for a message whose leg is not complete (in the 64-bit column: NaN).
const MISSING: u32 = u32::MAX;
/// With more flows than this, the page names only the flows of the messages in focus.
const MANY_FLOWS: usize = 4096;

/// What the columns are. `ids` `u32`, only where not every message has a row; `latency` `u32` or `f64`; `arrival` `u32` (since the
/// message before) or `f64` (since the run's start);
/// `flow`, `thread` and `class` `u16` or `u32`; `cause` bytes; `focus` `u32` ids; `times` `u32`, a row of `causes` for each of
/// the focus.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Columns {
    /// Messages of the run.
    count: usize,
    /// Of these, complete in the leg.
    complete: usize,
    /// Whether only some of them are in the columns.
    sampled: bool,
    #[cfg_attr(test, schemars(extend("enum" = ["u32", "f64"])))]
    latency_type: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["u32", "f64"])))]
    arrival_type: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["u16", "u32"])))]
    flow_type: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["u16", "u32"])))]
    thread_type: &'static str,
    flow_names: BTreeMap<u32, String>,
    /// Threads that received messages, by the numbers of the column.
    threads: Vec<u32>,
    /// Names of classes, by the numbers of the column; empty without a protocol, and then there is no column.
    classes: Vec<String>,
    /// Causes of a row of `times`.
    causes: usize,
    /// The mean of each cause over the reference, ns; absent where that is not in this run.
    reference_ns: Option<Vec<f64>>,
    /// Whether dominance is measured against the reference mean.
    against_reference: bool,
}

/// The complete messages by (latency, id).
pub(super) fn order(latencies: &[Option<u64>]) -> Vec<u32> {
    let mut order: Vec<(u64, u32)> = (0u32..).zip(latencies).filter_map(|(i, ns)| Some(((*ns)?, i))).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, i)| i).collect()
}

/// The latency of each message that the diagnosis may compare: complete, and of a class that was chosen.
fn compared(input: &Input) -> Vec<Option<u64>> {
    let in_class = InClass::of(input.diagnosis, input.lifetimes);
    let latency = |m: &Message| m.latency(input.diagnosis.leg).filter(|_| in_class.has(m));
    input.lifetimes.messages.iter().map(latency).collect()
}

/// The messages in focus.
pub(super) fn focus(input: &Input) -> Vec<u32> {
    slice(&order(&compared(input)), &input.diagnosis.focus).to_vec()
}

/// Threads that received messages, ascending; the page numbers them in this order.
pub(super) fn threads(messages: &[Message]) -> Vec<u32> {
    let mut threads: Vec<u32> = messages.iter().map(|m| m.tid).collect();
    threads.sort_unstable();
    threads.dedup();
    threads
}

/// The ids that have a row: all, or where these are more than `most` those in focus and a sample of the others.
fn rows(input: &Input, focus: &[u32], most: Option<usize>) -> Option<Vec<u32>> {
    let most = most.filter(|most| *most < input.lifetimes.messages.len())?;
    let (mut ids, _) = Points::new(input).chosen(&Part::WHOLE, most);
    ids.extend(focus);
    ids.sort_unstable();
    ids.dedup();
    Some(ids)
}

/// The columns of all messages, or of about `most` besides those in focus.
pub(super) fn columns(input: &Input, most: Option<usize>) -> (Columns, Vec<Element>) {
    let lifetimes = input.lifetimes;
    let leg = input.diagnosis.leg;
    let latencies = compared(input);
    let order = order(&latencies);
    let mut focus = slice(&order, &input.diagnosis.focus).to_vec();
    focus.sort_unstable();

    let causes = input.diagnosis.causes.len().min(usize::from(NO_CAUSE));
    let mut profile = Profile::new(input, leg, causes);
    let mean = reference_mean(input, &latencies, &order, &mut profile);
    let mut cause = vec![NOT_IN_FOCUS; latencies.len()];
    let mut times: Vec<u32> = Vec::with_capacity(focus.len() * causes);
    for &id in &focus {
        let times_ns = profile.of(id);
        cause[id as usize] = dominant(times_ns, mean.as_deref());
        times.extend(times_ns.iter().map(|&ns| u32::try_from(ns).unwrap_or(u32::MAX)));
    }

    let mut out = Vec::new();
    let complete = order.len();
    let sample = rows(input, &focus, most);
    let sampled = sample.is_some();
    if let Some(ids) = &sample {
        out.push(Element::column("ids", ids.iter().map(|id| id.to_le_bytes())));
    }
    let ids = sample.unwrap_or_else(|| (0..latencies.len() as u32).collect());
    let row = |id: &u32| &lifetimes.messages[*id as usize];
    let latency_type = latency(&ids.iter().map(|id| latencies[*id as usize]).collect::<Vec<_>>(), &mut out);
    let arrival_type = arrival(input, &ids, &mut out);
    let flow_type = index("flow", lifetimes.flows.len(), ids.iter().map(|id| row(id).flow), &mut out);
    let threads = threads(&lifetimes.messages);
    let number = |tid: u32| threads.binary_search(&tid).unwrap_or(0) as u32;
    let thread_type = index("thread", threads.len(), ids.iter().map(|id| number(row(id).tid)), &mut out);
    let classes: Vec<String> = match lifetimes.framing {
        Some(_) => lifetimes.classes.iter().map(|c| c.name.clone()).collect(),
        None => vec![],
    };
    if !classes.is_empty() {
        out.push(Element::column("class", ids.iter().map(|id| row(id).class.to_le_bytes())));
    }
    out.push(Element::new("cause", ids.iter().map(|id| cause[*id as usize]).collect()));
    out.push(Element::column("focus", focus.iter().map(|id| id.to_le_bytes())));
    out.push(Element::column("times", times.iter().map(|ns| ns.to_le_bytes())));

    let columns = Columns {
        count: latencies.len(),
        complete,
        sampled,
        latency_type,
        arrival_type,
        flow_type,
        thread_type,
        flow_names: flow_names(input, &focus),
        threads,
        classes,
        causes,
        against_reference: mean.is_some(),
        reference_ns: mean,
    };
    (columns, out)
}

fn latency(latencies: &[Option<u64>], out: &mut Vec<Element>) -> &'static str {
    if latencies.iter().flatten().any(|&ns| ns >= u64::from(MISSING)) {
        out.push(Element::column(
            "latency",
            latencies.iter().map(|l| l.map_or(f64::NAN, |ns| ns as f64).to_le_bytes()),
        ));
        return "f64";
    }
    out.push(Element::column("latency", latencies.iter().map(|l| l.map_or(MISSING, |ns| ns as u32).to_le_bytes())));
    "u32"
}

/// When each message was first seen. Differences take half the room; they are used where messages are in order and no pause is longer than
/// 4 s.
fn arrival(input: &Input, ids: &[u32], out: &mut Vec<Element>) -> &'static str {
    let start = input.meta.start_ns;
    let arrival_ns = |id: &u32| input.lifetimes.messages[*id as usize].driver_ns.saturating_sub(start);
    let at: Vec<u64> = ids.iter().map(arrival_ns).collect();
    let mut before = 0;
    let steps: Option<Vec<u32>> =
        at.iter().map(|&ns| u32::try_from(ns.checked_sub(std::mem::replace(&mut before, ns))?).ok()).collect();
    match steps {
        Some(steps) => {
            out.push(Element::column("arrival", steps.iter().map(|ns| ns.to_le_bytes())));
            "u32"
        }
        None => {
            out.push(Element::column("arrival", at.iter().map(|&ns| (ns as f64).to_le_bytes())));
            "f64"
        }
    }
}

fn index(name: &str, most: usize, values: impl Iterator<Item = u32>, out: &mut Vec<Element>) -> &'static str {
    if most > usize::from(u16::MAX) {
        out.push(Element::column(name, values.map(u32::to_le_bytes)));
        return "u32";
    }
    out.push(Element::column(name, values.map(|v| (v as u16).to_le_bytes())));
    "u16"
}

fn flow_names(input: &Input, focus: &[u32]) -> BTreeMap<u32, String> {
    let lifetimes = input.lifetimes;
    let named: Vec<u32> = if lifetimes.flows.len() > MANY_FLOWS {
        focus.iter().map(|&id| lifetimes.messages[id as usize].flow).collect()
    } else {
        (0..lifetimes.flows.len() as u32).collect()
    };
    let name = |f: u32| Some((f, lifetimes.flows.get(f as usize)?.name.clone()));
    named.into_iter().filter_map(name).collect()
}

/// The ids in a slice of the latency order: as many as the diagnosis counted, from the slice's end when it reaches the
/// slowest message, else from its start.
fn slice<'a>(order: &'a [u32], slice: &Slice) -> &'a [u32] {
    let n = order.len();
    let want = (slice.messages as usize).min(n);
    if slice.to >= 1.0 {
        return &order[n - want..];
    }
    // The diagnosis compares with a part of them where they are many.
    let want = want.max(((slice.to - slice.from) * n as f64) as usize).min(n);
    let from = ((slice.from * n as f64 - 1e-6).ceil() as usize).min(n - want);
    &order[from..from + want]
}

/// The mean time of each cause over the reference; `None` when the reference is not in these lifetimes, which shows in a mean latency
/// other than the one that the diagnosis states.
fn reference_mean(input: &Input, latencies: &[Option<u64>], order: &[u32], profile: &mut Profile) -> Option<Vec<f64>> {
    let stated = &input.diagnosis.reference;
    let ids = slice(order, stated);
    if ids.is_empty() {
        return None;
    }
    let n = ids.len() as f64;
    let mean = ids.iter().filter_map(|&i| latencies[i as usize]).sum::<u64>() as f64 / n;
    if (mean - stated.mean_ns as f64).abs() > 0.02 * mean + 1.0 {
        return None;
    }
    let mut sum = vec![0.0; profile.times.len()];
    for &id in ids {
        for (total, &ns) in sum.iter_mut().zip(profile.of(id)) {
            *total += ns as f64;
        }
    }
    Some(sum.into_iter().map(|total| total / n).collect())
}

fn dominant(times: &[u64], mean: Option<&[f64]>) -> u8 {
    let above = |i: usize| times[i] as f64 - mean.map_or(0.0, |m| m[i]);
    let most = (0..times.len()).max_by(|&a, &b| above(a).total_cmp(&above(b)).then(b.cmp(&a)));
    most.filter(|&i| above(i) > 0.0).map_or(NO_CAUSE, |i| i as u8)
}

/// The time of each cause in a message. The cause of an owner is looked up once.
struct Profile<'a> {
    input: &'a Input<'a>,
    leg: Leg,
    cause_of_owner: BTreeMap<(Leg, tailsight_lifetime::Role, u32), Option<usize>>,
    times: Vec<u64>,
}

impl<'a> Profile<'a> {
    fn new(input: &'a Input<'a>, leg: Leg, causes: usize) -> Profile<'a> {
        Profile { input, leg, cause_of_owner: BTreeMap::new(), times: vec![0; causes] }
    }

    fn of(&mut self, message: u32) -> &[u64] {
        self.times.fill(0);
        for leg in LEGS.into_iter().filter(|l| self.leg == Leg::Total || self.leg == *l) {
            for part in self.input.lifetimes.part_slice(message, leg) {
                let cause = *self
                    .cause_of_owner
                    .entry((leg, part.role, part.owner))
                    .or_insert_with(|| (self.input.cause_of)(leg, part.role, part.owner));
                if let Some(time) = cause.and_then(|c| self.times.get_mut(c)) {
                    *time += part.ns;
                }
            }
        }
        &self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_have_as_many_messages_as_the_diagnosis_says() {
        let order: Vec<u32> = (0..1000).collect();
        let part = |from, to, messages| Slice { from, to, messages, mean_ns: 0 };
        assert_eq!(slice(&order, &part(0.99, 1.0, 10)), &order[990..]);
        assert_eq!(slice(&order, &part(0.45, 0.55, 100)), &order[450..550]);
        assert_eq!(slice(&order, &part(0.99, 1.0, 5000)), &order[..]);
        assert!(slice(&[], &part(0.45, 0.55, 100)).is_empty());
    }

    #[test]
    fn dominance_is_above_the_reference() {
        // The second cause has more time, but the reference has it too.
        assert_eq!(dominant(&[300, 500], Some(&[0.0, 490.0])), 0);
        assert_eq!(dominant(&[300, 500], None), 1);
        assert_eq!(dominant(&[0, 10], Some(&[5.0, 20.0])), NO_CAUSE);
        assert_eq!(dominant(&[7, 7], None), 0, "the higher rank wins a tie");
    }
}
