//! Causes in words: explanations, fixes, notes and next steps.
//!
//! In: a [`Cause`](crate::model::Cause) with its numbers, and what is known about the run. Out: plain sentences and commands,
//! filled in. The texts are in `data/advice.toml` ([`data`]); commands quote whatever a recorded task may be named.

mod change;
mod data;
mod fill;
mod fixes;
pub mod notes;
pub mod sentences;

use std::collections::BTreeMap;

use tailsight_lifetime::{Lifetimes, Message};

use crate::cohorts::{Cohort, Cohorts};
use crate::{Options, RecordingFacts};
pub use fixes::{number, question};
pub use sentences::{RowFacts, pathology, root_words};

/// What sentences and fixes need to know beside the cause.
pub struct Advisor<'a> {
    app: &'a str,
    facts: &'a RecordingFacts,
    /// Cores of the focus messages: receive core, application core.
    cores: [Vec<u32>; 2],
    /// Messages of the same application served ahead, on average: focus, reference.
    ahead: [f64; 2],
    focus_messages: u64,
    /// Whether the focus is a tail: then its messages are slow.
    tail: bool,
    /// Whether a protocol could tell what the requests ask for: they came neither in TLS nor by HTTP/2.
    readable: bool,
    total_ns: i64,
}

impl<'a> Advisor<'a> {
    /// From the cohorts.
    pub fn new(
        lifetimes: &'a Lifetimes,
        options: &Options,
        facts: &'a RecordingFacts,
        cohorts: &Cohorts,
    ) -> Advisor<'a> {
        let (focus, reference) = cohorts.both();
        let of = |id: &u32| &lifetimes.messages[*id as usize];
        let cores = |core: fn(&Message) -> u16| {
            let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
            focus.ids.iter().for_each(|id| *counts.entry(u32::from(core(of(id)))).or_default() += 1);
            // A core that few of the messages met is not worth moving anything away from.
            counts.into_iter().filter(|&(_, n)| n * 20 >= focus.len()).map(|(core, _)| core).collect()
        };
        let ahead = |c: &Cohort| c.ids.iter().map(|id| f64::from(of(id).ahead)).sum::<f64>() / c.len() as f64;
        Advisor {
            app: if lifetimes.app.is_empty() { "the target" } else { &lifetimes.app },
            facts,
            // With RPS, and over virtual devices, the stack works on another core than the driver.
            cores: [cores(|m| m.handoff_cpu), cores(|m| m.recv_cpu)],
            ahead: [ahead(focus), ahead(reference)],
            focus_messages: focus.len() as u64,
            tail: options.focus.1 == 1.0 && options.focus.0 >= 0.5,
            readable: lifetimes.multiplexed.is_readable(),
            total_ns: cohorts.deviation_ns(),
        }
    }

    /// Messages ahead on average: focus, reference.
    pub fn ahead(&self) -> [f64; 2] {
        self.ahead
    }
}
