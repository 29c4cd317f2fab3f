//! Every message as columns for the page: latency, flow, and the dominant cause of those in focus.
//!
//! In: the lifetimes and the diagnosis. Out: base64 columns, position = message id. The *dominant cause* of a message
//! is the one with the most time in it above the mean of the reference; where the reference is not in this run, the
//! one with the most time.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use tailsight_diagnose::model::Slice;
use tailsight_lifetime::{LEGS, Leg};

use super::Input;

/// No dominant cause: the message is not in focus.
const NOT_IN_FOCUS: u8 = 255;
/// In focus, and none of the causes has time in it.
const NO_CAUSE: u8 = 254;
/// A message whose leg is not complete, in a 32-bit latency column (NaN in the other).
const MISSING: u32 = u32::MAX;
/// Above so many flows, only the flows of the messages in focus keep their names in the page.
const MANY_FLOWS: usize = 4096;

/// The columns. `latency` is `u32` or `f64`, `flow` `u16` or `u32`, `cause` bytes: little-endian, base64.
#[derive(Serialize)]
pub(super) struct Columns {
    pub(super) count: usize,
    pub(super) latency_type: &'static str,
    pub(super) latency: String,
    pub(super) flow_type: &'static str,
    pub(super) flow: String,
    pub(super) cause: String,
    pub(super) flow_names: BTreeMap<u32, String>,
    /// Whether dominance is measured against the reference mean.
    pub(super) against_reference: bool,
}

/// The complete messages by (latency, id).
fn order(latencies: &[Option<u64>]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..latencies.len() as u32).filter(|&i| latencies[i as usize].is_some()).collect();
    order.sort_by_key(|&i| (latencies[i as usize], i));
    order
}

/// The messages in focus.
pub(super) fn focus(input: &Input) -> Vec<u32> {
    let latencies: Vec<_> = input.lifetimes.messages.iter().map(|m| m.latency(input.diagnosis.leg)).collect();
    slice(&order(&latencies), &input.diagnosis.focus).to_vec()
}

/// The columns of all messages.
pub(super) fn columns(input: &Input) -> Columns {
    let lifetimes = input.lifetimes;
    let leg = input.diagnosis.leg;
    let latencies: Vec<Option<u64>> = lifetimes.messages.iter().map(|m| m.latency(leg)).collect();
    let order = order(&latencies);
    let focus = slice(&order, &input.diagnosis.focus);

    let causes = input.diagnosis.causes.len().min(usize::from(NO_CAUSE));
    let mut profile = Profile::new(input, leg, causes);
    let mean = reference_mean(input, &latencies, &order, &mut profile);
    let mut cause = vec![NOT_IN_FOCUS; latencies.len()];
    for &id in focus {
        cause[id as usize] = dominant(profile.of(id), mean.as_deref());
    }

    let wide = latencies.iter().flatten().any(|&ns| ns >= u64::from(MISSING));
    let latency = if wide {
        BASE64.encode(bytes(latencies.iter().map(|l| l.map_or(f64::NAN, |ns| ns as f64).to_le_bytes())))
    } else {
        BASE64.encode(bytes(latencies.iter().map(|l| l.map_or(MISSING, |ns| ns as u32).to_le_bytes())))
    };
    let many = lifetimes.flows.len() > usize::from(u16::MAX);
    let flows = lifetimes.messages.iter().map(|m| m.flow);
    let flow = if many {
        BASE64.encode(bytes(flows.map(u32::to_le_bytes)))
    } else {
        BASE64.encode(bytes(flows.map(|f| (f as u16).to_le_bytes())))
    };
    let named: Vec<u32> = if lifetimes.flows.len() > MANY_FLOWS {
        focus.iter().map(|&id| lifetimes.messages[id as usize].flow).collect()
    } else {
        (0..lifetimes.flows.len() as u32).collect()
    };
    let name = |f: u32| Some((f, lifetimes.flows.get(f as usize)?.name.clone()));
    Columns {
        count: latencies.len(),
        latency_type: if wide { "f64" } else { "u32" },
        latency,
        flow_type: if many { "u32" } else { "u16" },
        flow,
        cause: BASE64.encode(&cause),
        flow_names: named.into_iter().filter_map(name).collect(),
        against_reference: mean.is_some(),
    }
}

fn bytes<const N: usize>(items: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
    items.flatten().collect()
}

/// The ids in a slice of the latency order: as many as the diagnosis counted, from the slice's end when it reaches the
/// slowest message, else from its start.
fn slice<'a>(order: &'a [u32], slice: &Slice) -> &'a [u32] {
    let n = order.len();
    let want = (slice.messages as usize).min(n);
    if slice.to >= 1.0 {
        return &order[n - want..];
    }
    let from = ((slice.from * n as f64 - 1e-6).ceil() as usize).min(n - want);
    &order[from..from + want]
}

/// The mean time of each cause over the reference, or None when the reference is not in these lifetimes: its mean
/// latency is then not the one that the diagnosis states.
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

/// The time of each cause in a message; the cause of an owner is asked once.
struct Profile<'a> {
    input: &'a Input<'a>,
    leg: Leg,
    known: BTreeMap<(Leg, tailsight_lifetime::Role, u32), Option<usize>>,
    times: Vec<u64>,
}

impl<'a> Profile<'a> {
    fn new(input: &'a Input<'a>, leg: Leg, causes: usize) -> Profile<'a> {
        Profile { input, leg, known: BTreeMap::new(), times: vec![0; causes] }
    }

    fn of(&mut self, message: u32) -> &[u64] {
        self.times.fill(0);
        for leg in LEGS.into_iter().filter(|l| self.leg == Leg::Total || self.leg == *l) {
            for part in self.input.lifetimes.part_slice(message, leg) {
                let cause = *self
                    .known
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
