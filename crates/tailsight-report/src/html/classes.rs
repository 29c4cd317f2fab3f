//! The classes of requests for the page, when the run was recorded with a protocol.
//!
//! In: the lifetimes and the diagnosis. Out: for each class how many messages, how slow, how many of them in focus; and in
//! words how requests were paired with their replies. Times are ns of the leg.

use std::collections::BTreeMap;

use serde::Serialize;
use tailsight_lifetime::messages::requests::Framing;
use tailsight_stats::quantile::needed;

use super::{Input, messages};
use crate::units;

/// Most classes that are listed; the rest is one row.
const MOST_CLASSES: usize = 20;

/// The classes of a run.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Requests {
    protocol: String,
    pairing: String,
    classes: Vec<Class>,
}

/// One class.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Class {
    name: String,
    messages: u64,
    p50_ns: u64,
    /// Absent where the class is too small for it.
    p99_ns: Option<u64>,
    focus: u64,
}

/// The classes, most messages first; `None` without a protocol.
pub(super) fn requests(input: &Input) -> Option<Requests> {
    let lifetimes = input.lifetimes;
    let framing = lifetimes.framing.as_ref()?;
    let focus: std::collections::HashSet<u32> = messages::focus(input).into_iter().collect();
    let mut by_class: BTreeMap<&str, (Vec<u64>, u64)> = BTreeMap::new();
    let mut pairs: BTreeMap<&str, u64> = BTreeMap::new();
    for message in &lifetimes.messages {
        *pairs.entry(message.pairing().unwrap_or("none")).or_default() += 1;
        let Some(latency) = message.latency(input.diagnosis.leg) else { continue };
        let name = lifetimes.class(message).map_or("no class", |c| &c.name);
        let class = by_class.entry(name).or_default();
        class.0.push(latency);
        class.1 += u64::from(focus.contains(&message.id));
    }
    let mut classes: Vec<(String, (Vec<u64>, u64))> = by_class.into_iter().map(|(n, c)| (n.to_owned(), c)).collect();
    classes.sort_by(|a, b| b.1.0.len().cmp(&a.1.0.len()).then_with(|| a.0.cmp(&b.0)));
    if classes.len() > MOST_CLASSES {
        let rest = classes.split_off(MOST_CLASSES - 1);
        let name = format!("{} other classes", rest.len());
        let sum = rest.into_iter().fold((vec![], 0), |mut sum: (Vec<u64>, u64), (_, (latencies, n))| {
            sum.0.extend(latencies);
            (sum.0, sum.1 + n)
        });
        classes.push((name, sum));
    }
    Some(Requests {
        protocol: spoken(framing),
        pairing: pairing(&pairs, framing.lost),
        classes: classes.into_iter().map(|(name, (latencies, focus))| class(name, latencies, focus)).collect(),
    })
}

/// The protocols that were read, in words.
fn spoken(framing: &Framing) -> String {
    let told: Vec<&str> = framing.connections.keys().map(String::as_str).collect();
    match told[..] {
        [] => framing.protocol.clone(),
        _ => told.join(" or "),
    }
}

fn class(name: String, mut latencies: Vec<u64>, focus: u64) -> Class {
    latencies.sort_unstable();
    let n = latencies.len();
    let at = |q: usize| latencies[(n * q).div_ceil(100).max(1) - 1];
    Class { name, messages: n as u64, p50_ns: at(50), p99_ns: (n >= needed(0.99)).then(|| at(99)), focus }
}

/// How messages were paired with their replies, in one sentence.
fn pairing(pairs: &BTreeMap<&str, u64>, lost: u64) -> String {
    const KINDS: [(&str, &str); 5] = [
        ("id", "by an id or the key that the reply names"),
        ("order", "by order, with every byte of the connection known"),
        ("assumed", "by order since the middle of the connection (assumed)"),
        ("flow", "as segments (no request was recognised in their bytes)"),
        ("none", "without a reply"),
    ];
    let count_of_kind =
        |(kind, how): &(&str, &str)| pairs.get(kind).filter(|n| **n > 0).map(|n| format!("{} {how}", units::count(*n)));
    let mut text = format!(
        "Paired with their replies: {}.",
        KINDS.iter().filter_map(count_of_kind).collect::<Vec<_>>().join("; ")
    );
    if lost > 0 {
        text += &format!(" {} could not be split into requests.", units::counted(lost, "segment"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_the_percentiles_that_it_can_support() {
        let few = class("get".into(), vec![30, 10, 20], 1);
        assert_eq!((few.messages, few.p50_ns, few.p99_ns, few.focus), (3, 20, None, 1));
        assert_eq!(class("get".into(), (1..=367).collect(), 0).p99_ns, None);
        let many = class("get".into(), (1..=400).rev().collect(), 0);
        assert_eq!((many.p50_ns, many.p99_ns), (200, Some(396)));
    }

    #[test]
    fn connections_that_told_their_protocol_are_named_by_it() {
        let named = Framing { protocol: "resp".into(), ..Framing::default() };
        assert_eq!(spoken(&named), "resp");
        let connections = [("http2".to_owned(), 3), ("http1".to_owned(), 12)].into();
        assert_eq!(spoken(&Framing { protocol: "auto".into(), connections, ..Framing::default() }), "http1 or http2");
    }

    #[test]
    fn pairing_in_words() {
        let pairs = BTreeMap::from([("order", 1200), ("none", 3)]);
        assert_eq!(
            pairing(&pairs, 1),
            "Paired with their replies: 1,200 by order, with every byte of the connection known; 3 without a reply. \
             1 segment could not be split into requests."
        );
    }
}
