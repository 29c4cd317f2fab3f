//! The latency of each class of requests, where a protocol was read: which endpoint is slow, and whose requests the slow ones are.
//!
//! In: messages by latency, the ids of those in focus. Out: [`ClassLatency`], most of the focus first; nothing where no protocol was read.

use std::collections::{BTreeMap, BTreeSet};

use tailsight_lifetime::Lifetimes;

use super::focus::percentiles;
use crate::categories::shown;
use crate::model::ClassLatency;

/// Classes that are listed.
const MOST_CLASSES: usize = 32;

/// The classes of these messages. `ranked`: the leg's latency, ns, and the id of each that has it complete.
pub fn by_class(lifetimes: &Lifetimes, ranked: &[(u64, u32)], focus: &[u32]) -> Vec<ClassLatency> {
    if lifetimes.classes.is_empty() {
        return vec![];
    }
    let focus: BTreeSet<u32> = focus.iter().copied().collect();
    let mut by_class: BTreeMap<u16, (Vec<u64>, u64)> = BTreeMap::new();
    for &(latency_ns, id) in ranked {
        let (latencies, in_focus) = by_class.entry(lifetimes.messages[id as usize].class).or_default();
        latencies.push(latency_ns);
        *in_focus += u64::from(focus.contains(&id));
    }
    let of_class = |(class, (mut latencies, focus)): (u16, (Vec<u64>, u64))| {
        let name = lifetimes.classes.get(usize::from(class))?.name.as_str();
        let messages = latencies.len() as u64;
        Some(ClassLatency { name: shown(name), messages, focus, latency_ns: percentiles(&mut latencies) })
    };
    let mut classes: Vec<ClassLatency> = by_class.into_iter().filter_map(of_class).collect();
    classes.sort_by(|a, b| (b.focus, b.messages, &a.name).cmp(&(a.focus, a.messages, &b.name)));
    classes.truncate(MOST_CLASSES);
    classes
}

#[cfg(test)]
mod tests {
    use tailsight_lifetime::{Message, RequestClass};

    use super::*;

    #[test]
    fn classes_come_by_their_part_of_the_focus_and_sum_to_all() {
        let class = |name: &str| RequestClass { name: name.into(), ..RequestClass::default() };
        let message = |id: u32| Message { id, class: 1 + u16::from(id.is_multiple_of(4)), ..Message::default() };
        let messages: Vec<Message> = (0..40).map(message).collect();
        let parts = vec![Default::default(); messages.len()];
        let mut lifetimes = Lifetimes::from_parts("shop", messages, vec![], vec![], parts);
        lifetimes.classes = vec![class("unframed"), class("GET /item"), class("POST /order")];
        let ranked: Vec<(u64, u32)> = (0..40).map(|id| (1_000 + u64::from(id), id)).collect();
        let classes = by_class(&lifetimes, &ranked, &[32, 36, 39]);
        let counts: Vec<(&str, u64, u64)> = classes.iter().map(|c| (c.name.as_str(), c.messages, c.focus)).collect();
        assert_eq!(counts, [("POST /order", 10, 2), ("GET /item", 30, 1)]);
        assert_eq!(classes[0].latency_ns["max"], 1_036);
        assert_eq!(classes[0].latency_ns.get("p99"), None, "ten are too few");
        lifetimes.classes.clear();
        assert!(by_class(&lifetimes, &ranked, &[]).is_empty());
    }
}
