//! What is known to make a row of the median messages large.
//!
//! In: a [`Typical`] with its rows. Out: their advice: of each the first of the data's entries that fits, which are ordered from the special
//! to the general.

use tailsight_diagnose::cause::names::Titled;
use tailsight_diagnose::glob;
use tailsight_diagnose::model::{Typical, TypicalRow};
use tailsight_units::format::signed_duration as human;

use crate::data::{ADVICE, Pathology};
use crate::functions::Of;
use crate::{functions, placeholders};

/// Advises on the rows that are large.
pub fn fill(typical: &mut Typical, app: &str) {
    let queued_ns = typical.queued_ns;
    typical.rows.iter_mut().for_each(|row| row.advice = advice(row, queued_ns, app).into_iter().collect());
}

/// `queued_ns`: how long the median reply waits to be sent.
fn advice(row: &TypicalRow, queued_ns: u64, app: &str) -> Option<String> {
    let entry = ADVICE.typical.iter().find(|entry| row.is_large() && fits(entry, row, queued_ns))?;
    let place = row.functions.first().map(|first| functions::clause(&Of::IT, first));
    let says = place.as_ref().and(entry.placed.as_ref()).unwrap_or(&entry.says);
    placeholders::replace(says, |key| match key {
        "app" => Some(app.to_owned()),
        "place" => place.clone(),
        "at" => Some(place.as_ref().map_or_else(String::new, |place| format!(" ({place})"))),
        "name" => Some(row.title()),
        "time" => Some(human(row.mean_ns as i64)),
        _ => None,
    })
}

fn fits(entry: &Pathology, row: &TypicalRow, queued_ns: u64) -> bool {
    let in_us = |[from, to]: &[u64; 2]| (from * 1_000..=to * 1_000).contains(&queued_ns);
    entry.category == row.category
        && (entry.only.is_empty() || glob::any(&entry.only, &row.name))
        && (row.is_own_wait() || !entry.own_wait)
        && (row.asked_in_parallel || !entry.in_parallel)
        && (entry.queued_us.is_empty() || entry.queued_us.iter().any(in_us))
        && row.mean_ns >= entry.least_us * 1_000
}

#[cfg(test)]
mod tests {
    use tailsight_lifetime::{Leg, Role};

    use super::*;
    use tailsight_diagnose::cause::{Category, Subject};
    use tailsight_diagnose::typical;

    /// What is said of a row that is most of a median message.
    fn advice_of((category, name): (Category, &str), mean_ns: u64, queued_ns: u64) -> String {
        let key = (Leg::Transmit, category, name.to_owned(), Role::A);
        advice(&typical::row(key, Subject::named(name), mean_ns, 0.9), queued_ns, "python3").unwrap_or_default()
    }

    /// p50 was 41.9 ms, 41.2 ms of it Nagle's algorithm and a delayed acknowledgement, and it was never mentioned.
    #[test]
    fn what_every_message_waits_for_is_named_with_its_cure() {
        let queued = |ns| advice_of((Category::TransmitProcessing, "queued"), ns, ns);
        let by_timer = queued(41_200_000);
        assert!(by_timer.contains("TCP_NODELAY") && by_timer.contains("python3"), "{by_timer}");
        // As long in the queue, but not by that timer: an acknowledgement is one of what it may wait for.
        let other = queued(9_000_000);
        assert!(other.contains("Nagle's algorithm: set TCP_NODELAY), or the client's window"), "{other}");
        // A queue of a few microseconds is nobody's fault.
        assert_eq!(queued(5_000), "");
        // Nor is a small part of a message.
        let key = (Leg::Transmit, Category::TransmitProcessing, "queued".to_owned(), Role::A);
        assert_eq!(advice(&typical::row(key, Subject::named("queued"), 41_200_000, 0.09), 41_200_000, "a"), None);
    }

    /// The transmit leg of an emulated NIC was told to see to interrupt coalescing, for replies that wait for no interrupt.
    #[test]
    fn a_reply_on_its_way_to_the_nic_waits_for_no_interrupt() {
        let of = |name| advice_of((Category::NicDelay, name), 900_000, 0);
        assert!(of("NIC to driver").contains("interrupt"));
        assert_eq!(of("driver to NIC"), "");
    }

    /// "Every message waits for a lock" was said of an Event, and "in parallel" of servers that are asked in parallel.
    #[test]
    fn advice_claims_no_more_than_is_known() {
        let held = advice_of((Category::LockWait, "python3 holds it"), 1_000_000, 0);
        assert!(held.contains("or for what another thread is to hand over"), "{held}");
        assert!(advice_of((Category::LockWait, "futex"), 1_000_000, 0).starts_with("every message waits for a lock: "));
        let shard = "shard (127.0.0.1:22002)";
        assert!(advice_of((Category::BackendWait, shard), 1_000_000, 0).contains("in parallel"));
        let key = (Leg::Service, Category::BackendWait, shard.to_owned(), Role::A);
        let row = typical::row(key, Subject::named(shard), 1_000_000, 0.9);
        let beside = advice(&TypicalRow { asked_in_parallel: true, ..row }, 0, "python3").expect("advice");
        assert!(beside.contains("until the last has answered") && !beside.contains("in parallel"), "{beside}");
    }
}
