//! The messages that estimates are made of.
//!
//! In: all complete messages by latency. Out: a [`Basis`]: a sample of all of them, and of each class those that say what is usual for it.
//! A run may have hundreds of thousands of messages, and an estimate needs thousands; the others need not be divided for it.

use tailsight_lifetime::{Lifetimes, Message, Threshold};
use tailsight_stats::random::mix;

use crate::Options;
use crate::cohorts::even_part;

/// Most messages of a class's middle that are looked at.
const MOST_IN_MIDDLE: usize = 400;

/// The messages that estimates are made of.
#[derive(Clone, Debug)]
pub struct Basis {
    /// A sample of all complete messages, in order of arrival; all of them where they are no more than it holds. Each has the same chance,
    /// whatever its latency.
    pub everyone: Vec<u32>,
    /// By the key that classes are formed by: of each class the messages that say what is usual for it.
    pub(crate) classes: [Usual; KEYS.len()],
}

impl Basis {
    /// Of the messages that `ranked` (latency, id) lists in the order of both.
    pub(crate) fn of(messages: &[Message], ranked: &[(u64, u32)], options: &Options) -> Basis {
        let chance = options.estimated as f64 / ranked.len().max(1) as f64;
        let draw = |id: u32| mix(options.seed ^ 0xE57, u64::from(id)) as f64 / u64::MAX as f64;
        let is_in = |id: u32| chance >= 1.0 || draw(id) < chance;
        let mut complete = vec![false; messages.len()];
        ranked.iter().for_each(|&(_, id)| complete[id as usize] = true);
        let everyone = (0..).zip(complete).filter(|&(id, complete)| complete && is_in(id)).map(|(id, _)| id).collect();
        Basis { everyone, classes: usual(messages, ranked) }
    }

    /// All of them; one may come more than once.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.everyone.iter().copied().chain(self.classes.iter().flat_map(Usual::ids))
    }
}

/// What classes are formed by: its name, the class of a message, the words for a class.
pub(crate) type Key = (&'static str, fn(&Message) -> u32, fn(&Lifetimes, u32) -> String);

/// The candidates, the coarsest first.
pub(crate) const KEYS: [Key; 3] = [
    ("class", |m| u32::from(m.class), |l, c| l.classes.get(c as usize).map_or(c.to_string(), |c| c.name.clone())),
    ("size", |m| 32 - m.bytes.saturating_sub(1).leading_zeros(), |_, c| of_size(c)),
    ("connection", |m| m.flow, |l, c| l.flows.get(c as usize).map_or(c.to_string(), |f| format!("on {}", f.name))),
];

/// The sizes of a class: from above half a power of two up to it.
fn of_size(power: u32) -> String {
    match (1u64 << power, 1u64 << power.saturating_sub(1)) {
        (most @ 0..=2, _) => format!("of up to {most} bytes"),
        (most, half) => format!("of {} to {most} bytes", half + 1),
    }
}

/// The messages that say what is usual for the classes of a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usual {
    /// Each class that has enough messages, with the middle of them by latency, or an even part of that. None where all messages are of one
    /// class.
    pub(super) classes: Vec<(u32, Vec<u32>)>,
}

impl Usual {
    /// All of the messages.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.classes.iter().flat_map(|(_, ids)| ids).copied()
    }
}

/// The messages that say what is usual, by key. `ranked`: all complete messages by (latency, id).
fn usual(messages: &[Message], ranked: &[(u64, u32)]) -> [Usual; KEYS.len()] {
    let classes: Vec<[u32; KEYS.len()]> = messages.iter().map(|m| KEYS.map(|(_, class_of, _)| class_of(m))).collect();
    std::array::from_fn(|key| {
        let class = |id: u32| classes[id as usize][key];
        let first = ranked.first().map(|&(_, id)| class(id));
        if ranked.iter().all(|&(_, id)| Some(class(id)) == first) {
            return Usual::default();
        }
        // Within a class by latency, since the ranks are.
        let mut members: Vec<Vec<u32>> = vec![];
        for &(_, id) in ranked {
            let class = class(id) as usize;
            if class >= members.len() {
                members.resize(class + 1, vec![]);
            }
            members[class].push(id);
        }
        let large_classes = (0..).zip(&members).filter(|(_, ids)| ids.len() >= Threshold::MessagesOfClass.count());
        Usual { classes: large_classes.map(|(class, ids)| (class, middle(ids))).collect() }
    })
}

/// The middle of the messages of a class, or an even part of it.
fn middle(ids: &[u32]) -> Vec<u32> {
    even_part(&ids[ids.len() * 4 / 10..ids.len() * 6 / 10], MOST_IN_MIDDLE)
}
