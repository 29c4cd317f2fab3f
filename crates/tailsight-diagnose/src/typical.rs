//! Where messages spend their time, without a comparison: the mean profile of the median messages, and of single messages.
//!
//! In: lifetimes, and the messages (by rank) or one of them. Out: rows by (leg, category, name, role) in ns, largest first, that sum
//! to the latency. The causes of a tail are differences from the median, which cannot show what every message waits for.

use std::collections::BTreeMap;

use tailsight_lifetime::{Frame, LEGS, Leg, Lifetimes, Owner, Role};

use crate::categories::unexplained;
use crate::cause::{Category, Subject, names};
use crate::cohorts::focus::{mean, ranks};
use crate::cohorts::{Cohort, even_part};
use crate::model::{SlowMessage, Typical, TypicalRow};
use crate::rows::classification::Classification;
use crate::rows::profile::{Profile, Source, each_part};
use crate::rows::{part_guessed, round_to};
use crate::{MIN_MESSAGES, Options};

/// The messages that are called median.
const MEDIAN: (f64, f64) = (0.45, 0.55);
/// Most of the slowest messages that are listed.
const SLOWEST: usize = 10;

/// What a row is keyed by: leg, category, name, role.
pub type Key = (Leg, Category, String, Role);

/// Times by row, ns, with who or what had them.
pub type Times = BTreeMap<Key, (u64, Subject)>;

/// The row of an owner met in the leg `LEGS[segment]`.
pub fn row_of(classification: &Classification<'_>, segment: usize, role: Role, owner: u32) -> (Key, Subject) {
    let verdict = classification.at(segment, role, owner);
    match verdict.category {
        Category::Unexplained => without_owner(LEGS[segment]),
        category => ((LEGS[segment], category, verdict.name.clone(), role), verdict.subject.clone()),
    }
}

/// The row of what has no known owner.
fn without_owner(leg: Leg) -> (Key, Subject) {
    ((leg, Category::Unexplained, names::base(&unexplained()), Role::A), unexplained())
}

fn add(times: &mut Times, (key, subject): (Key, Subject), ns: u64) {
    times.entry(key).or_insert((0, subject)).0 += ns;
}

/// A message's time by row, ns: they sum to its latency.
pub fn message(lifetimes: &Lifetimes, classification: &Classification<'_>, leg: Leg, id: u32) -> Times {
    let mut out = Times::new();
    let mut sum = 0;
    each_part(lifetimes, id, leg, |segment, part| {
        sum += part.ns;
        add(&mut out, row_of(classification, segment, part.role, part.owner), part.ns);
    });
    // Where a leg between the ends of the total was not seen, its time has no owner.
    let latency = lifetimes.messages[id as usize].latency(leg).unwrap_or(sum);
    if latency > sum {
        add(&mut out, without_owner(leg), latency - sum);
    }
    out
}

/// A row of so many ns, which is such a share of the whole.
pub fn row((leg, category, name, role): Key, subject: Subject, mean_ns: u64, share: f64) -> TypicalRow {
    TypicalRow {
        category,
        name,
        subject: Some(subject),
        role,
        leg,
        mean_ns,
        share,
        guessed: None,
        functions: vec![],
        advice: vec![],
        asked_in_parallel: false,
    }
}

/// Largest first; of equals by category and name.
fn sort(rows: &mut [TypicalRow]) {
    rows.sort_by(|a, b| b.mean_ns.cmp(&a.mean_ns).then_with(|| (a.category, &a.name).cmp(&(b.category, &b.name))));
}

/// The ranks of the median messages: p45..p55, or as many more around the median as make 20; all when there are fewer.
pub(crate) fn median_ranks(n: usize) -> std::ops::Range<usize> {
    let range = ranks(n, MEDIAN);
    if range.len() >= MIN_MESSAGES.min(n) {
        return range;
    }
    let width = MIN_MESSAGES.min(n);
    let from = (n - width) / 2;
    from..from + width
}

/// The median messages that are looked into. `ranked`: all complete messages by (latency, id).
pub(crate) fn cohort(ranked: &[(u64, u32)], options: &Options) -> Vec<(u64, u32)> {
    even_part(&ranked[median_ranks(ranked.len())], options.compared).to_vec()
}

/// Where a median message spends its time. `ranked`: all complete messages by (latency, id).
pub fn typical(
    lifetimes: &Lifetimes,
    classification: &Classification<'_>,
    options: &Options,
    ranked: &[(u64, u32)],
) -> Option<Typical> {
    let (range, complete) = (median_ranks(ranked.len()), ranked.len() as f64);
    let cohort = &cohort(ranked, options)[..];
    let n = cohort.len() as u64;
    if n == 0 {
        return None;
    }
    let sum_ns: u128 = cohort.iter().map(|&(ns, _)| u128::from(ns)).sum();
    let sums = sums(lifetimes, classification, options.leg, cohort, sum_ns);
    let guessed_ns = guessed_ns(lifetimes, classification, options.leg, cohort);
    let queued_ns = queued_ns(lifetimes, options.leg, cohort);
    let symbol = |&symbol: &u32| lifetimes.symbols.get(symbol as usize).map(String::as_str);
    let in_parallel: Vec<&str> = lifetimes.asked_in_parallel.iter().filter_map(symbol).collect();
    let mean_ns = mean(sum_ns, n);
    let scaled: Vec<i128> = sums.values().map(|&(ns, _)| i128::from(ns)).collect();
    let means = round_to(&scaled, i128::from(n), mean_ns as i64);
    let row_of = |((key, (ns, subject)), mean): ((Key, (u64, Subject)), i64)| {
        let share = if sum_ns == 0 { 0.0 } else { ns as f64 / sum_ns as f64 };
        let guessed_ns = guessed_ns.get(&key).copied().unwrap_or(0);
        let mut row = row(key, subject, mean.max(0) as u64, share);
        row.guessed = part_guessed(guessed_ns as f64, ns as f64);
        row.asked_in_parallel = in_parallel.contains(&row.name.as_str());
        row
    };
    let mut rows: Vec<TypicalRow> = sums.into_iter().zip(means).map(row_of).filter(|row| row.mean_ns > 0).collect();
    sort(&mut rows);
    let (from, to) = (range.start as f64 / complete, range.end as f64 / complete);
    Some(Typical { from, to, messages: n, mean_ns, rows, queued_ns })
}

/// The times of all of a cohort by row. Summed by owner first and named once: a run may have tens of thousands of median
/// messages.
pub(crate) fn sums(
    lifetimes: &Lifetimes,
    classification: &Classification<'_>,
    leg: Leg,
    cohort: &[(u64, u32)],
    sum_ns: u128,
) -> Times {
    let profile = Profile::new(lifetimes, leg, &Cohort::of(cohort), &Cohort::of(&[]));
    let mut out = Times::new();
    for slot in profile.occupied() {
        if let Source::Owner(leg, role, owner) = profile.source(slot) {
            let segment = LEGS.iter().position(|l| *l == leg).unwrap_or(0);
            let ns = u64::try_from(profile.focus[slot].ns).unwrap_or(0);
            add(&mut out, row_of(classification, segment, role, owner as u32), ns);
        }
    }
    let owned: u64 = out.values().map(|(ns, _)| ns).sum();
    let rest = u64::try_from(sum_ns.saturating_sub(u128::from(owned))).unwrap_or(0);
    if rest > 0 {
        add(&mut out, without_owner(leg), rest);
    }
    out
}

/// The part of these times of which it is guessed whose they are, ns.
fn guessed_ns(
    lifetimes: &Lifetimes,
    classification: &Classification<'_>,
    leg: Leg,
    cohort: &[(u64, u32)],
) -> BTreeMap<Key, u64> {
    let is_guessed: Vec<bool> = lifetimes.owners.iter().map(Owner::is_guessed).collect();
    let mut guessed_ns = BTreeMap::new();
    if !is_guessed.contains(&true) {
        return guessed_ns;
    }
    for &(_, id) in cohort {
        each_part(lifetimes, id, leg, |segment, part| {
            if is_guessed[part.owner as usize] {
                *guessed_ns.entry(row_of(classification, segment, part.role, part.owner).0).or_default() += part.ns;
            }
        });
    }
    guessed_ns
}

/// How long the median reply waited in the socket or the queueing discipline, ns: a timer shows in the typical one, not in the
/// mean.
fn queued_ns(lifetimes: &Lifetimes, leg: Leg, cohort: &[(u64, u32)]) -> u64 {
    let waits: Vec<bool> = lifetimes
        .owners
        .iter()
        .map(|o| o.frames.iter().any(|f| matches!(f, Frame::TxQueued | Frame::TxSocket)))
        .collect();
    if !waits.contains(&true) {
        return 0;
    }
    let waited = |&(_, id): &(u64, u32)| {
        let mut ns = 0;
        each_part(lifetimes, id, leg, |_, part| ns += if waits[part.owner as usize] { part.ns } else { 0 });
        ns
    };
    let mut queued: Vec<u64> = cohort.iter().map(waited).collect();
    queued.sort_unstable();
    queued[queued.len() / 2]
}

/// Of messages by (latency, id), those that are listed as the slowest, first of all the very slowest.
pub(crate) fn slowest_of(ranked: &[(u64, u32)]) -> impl Iterator<Item = &(u64, u32)> {
    ranked.iter().rev().take(SLOWEST)
}

/// The slowest messages, each with where its time went. `ranked`: all complete messages by (latency, id).
pub fn slowest(
    lifetimes: &Lifetimes,
    classification: &Classification<'_>,
    leg: Leg,
    ranked: &[(u64, u32)],
) -> Vec<SlowMessage> {
    let slow_message = |&(latency_ns, id): &(u64, u32)| {
        let slow = &lifetimes.messages[id as usize];
        let part =
            |(key, (ns, subject)): (Key, (u64, Subject))| row(key, subject, ns, ns as f64 / latency_ns.max(1) as f64);
        let times = message(lifetimes, classification, leg, id);
        let mut parts: Vec<TypicalRow> = times.into_iter().map(part).filter(|p| p.mean_ns > 0).collect();
        sort(&mut parts);
        let flow = lifetimes.flows.get(slow.flow as usize).map_or_else(String::new, |f| f.name.clone());
        SlowMessage { id, latency_ns, ahead: slow.ahead, flow, parts }
    };
    slowest_of(ranked).map(slow_message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CategoryTable;
    use tailsight_lifetime::{Context, Flow, Message, Part};
    use tailsight_trace::FlowKey;

    /// Messages of a server whose replies wait so long in the socket: receive 10 us, own work 600 us, send 1 us.
    fn replies(n: u32, queued_ns: u64) -> Lifetimes {
        waiting(n, Frame::TxQueued, queued_ns)
    }

    /// The same with another wait in the place of that one.
    fn waiting(n: u32, wait: Frame, queued_ns: u64) -> Lifetimes {
        let owners = vec![
            Owner { context: Context::Own, frames: vec![] },
            Owner { context: Context::Blocked, frames: vec![wait] },
        ];
        let part = |owner, ns| Part { role: Role::A, owner, count: 1, ns };
        let parts =
            (0..n).map(|_| [vec![part(0, 10_000)], vec![part(0, 600_000)], vec![part(0, 1_000), part(1, queued_ns)]]);
        let message = |id: u32| {
            let driver_ns = 1_000 + 100_000_000 * u64::from(id);
            let (recv_ns, send_ns) = (driver_ns + 10_000, driver_ns + 610_000);
            Message {
                id,
                tid: 9,
                driver_ns,
                recv_ns,
                send_ns,
                xmit_ns: send_ns + 1_000 + queued_ns,
                ..Message::default()
            }
        };
        let flow = Flow { key: FlowKey { addrs: 1, ports: 1, proto: 0 }, name: "a <- b".into(), messages: n };
        Lifetimes::from_parts("python3", (0..n).map(message).collect(), vec![flow], owners, parts.collect())
    }

    fn of(lifetimes: &Lifetimes) -> Typical {
        let options = Options { leg: Leg::Total, ..Options::default() };
        let ranked: Vec<(u64, u32)> =
            lifetimes.messages.iter().map(|m| (m.latency(Leg::Total).expect("complete"), m.id)).collect();
        let classification = Classification::new(lifetimes, &options.categories);
        typical(lifetimes, &classification, &options, &ranked).expect("messages")
    }

    /// p50 was 41.9 ms, 41.2 ms of it Nagle's algorithm and a delayed acknowledgement, and it was never mentioned.
    #[test]
    fn what_every_message_waits_for_is_a_row() {
        let t = of(&replies(400, 41_200_000));
        assert_eq!((t.messages, t.mean_ns, t.from, t.to), (40, 41_811_000, 0.45, 0.55));
        assert_eq!(t.rows.iter().map(|r| r.mean_ns).sum::<u64>(), t.mean_ns);
        let first = &t.rows[0];
        assert_eq!((first.leg, first.mean_ns, t.queued_ns), (Leg::Transmit, 41_200_000, 41_200_000));
        assert!((first.share - 0.985_387).abs() < 1e-5, "{first:?}");
        assert_eq!((first.category, first.name.as_str()), (Category::TransmitProcessing, "queued"));
    }

    #[test]
    fn a_wait_at_the_nic_is_named_by_its_direction() {
        let name = |wait| of(&waiting(400, wait, 900_000)).rows[0].name.clone();
        assert_eq!([name(Frame::NicToDriver), name(Frame::DriverToNic)], ["NIC to driver", "driver to NIC"]);
    }

    #[test]
    fn a_handful_of_messages_still_has_a_median() {
        let t = of(&replies(5, 0));
        assert_eq!((t.messages, t.from, t.to, t.mean_ns), (5, 0.0, 1.0, 611_000));
        assert_eq!(median_ranks(100), 40..60);
        assert_eq!(median_ranks(2_000), 900..1_100);
        assert_eq!(median_ranks(0), 0..0);
    }

    #[test]
    fn the_slowest_come_first_with_all_of_their_time() {
        let lifetimes = replies(12, 7_000);
        let ranked: Vec<(u64, u32)> = (0..12).map(|id| (618_000, id)).collect();
        let table = CategoryTable::default();
        let slowest = slowest(&lifetimes, &Classification::new(&lifetimes, &table), Leg::Total, &ranked);
        assert_eq!((slowest.len(), slowest[0].id), (10, 11));
        assert!(slowest.iter().all(|m| m.parts.iter().map(|p| p.mean_ns).sum::<u64>() == 618_000));
        assert_eq!(slowest[0].parts[0].mean_ns, 600_000);
    }
}
