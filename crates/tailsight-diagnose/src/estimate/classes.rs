//! Cohorts by class. If the own work of ordinary messages depends on what they request, a message of a heavy class that works
//! longer is no anomaly; the cause is that the focus has more messages of that class.
//!
//! The reference of a class is the middle of the class's own latencies. A focus message's own work is compared with that, and the
//! difference between the class's reference and the common one moves to the row `class X`. The rest of the profile keeps the common
//! reference: interference that hits one connection more than others stays interference. The candidates are the request's class (with
//! `--protocol`), its size and its connection; the one that explains most is used.

use std::collections::BTreeMap;

use tailsight_lifetime::{Lifetimes, Message};

use super::{OwnTime, ROLE, mean};
use crate::cause::{Category, Subject};
use crate::rows::profile::{Derived, Profile};

/// Fewest messages of a class that say what is usual for it.
const FEWEST: usize = 40;
/// Most messages of a class's middle that are looked at.
const MOST: usize = 400;
/// A class differs when its mean is so many standard errors off: with hundreds of classes two would not do.
const ERRORS: f64 = 4.0;

/// What classes are formed by: its name, the class of a message, the words for a class.
pub(crate) type Key = (&'static str, fn(&Message) -> u32, fn(&Lifetimes, u32) -> String);

/// The candidates, the coarsest first.
pub(crate) const KEYS: [Key; 3] = [
    ("class", |m| u32::from(m.class), |l, c| l.classes.get(c as usize).map_or(c.to_string(), |c| c.name.clone())),
    ("size", |m| 32 - m.bytes.saturating_sub(1).leading_zeros(), |_, c| format!("of up to {} bytes", 1u64 << c)),
    ("connection", |m| m.flow, |l, c| l.flows.get(c as usize).map_or(c.to_string(), |f| format!("on {}", f.name))),
];

/// The messages that say what is usual for the classes of a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usual {
    /// Each class that has enough messages, with the middle of them by latency, or an even part of that. None where all messages are of one
    /// class.
    of: Vec<(u32, Vec<u32>)>,
}

impl Usual {
    /// All of the messages.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.of.iter().flat_map(|(_, ids)| ids).copied()
    }
}

/// The messages that say what is usual, by key. `ranked`: all complete messages by (latency, id).
pub(crate) fn usual(messages: &[Message], ranked: &[(u64, u32)]) -> [Usual; KEYS.len()] {
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
        let of = (0..).zip(&members).filter(|(_, ids)| ids.len() >= FEWEST);
        Usual { of: of.map(|(class, ids)| (class, middle(ids))).collect() }
    })
}

/// The middle of the messages of a class, or an even part of it.
fn middle(ids: &[u32]) -> Vec<u32> {
    let middle = &ids[ids.len() * 4 / 10..ids.len() * 6 / 10];
    let n = middle.len().min(MOST);
    (0..n).map(|i| middle[i * middle.len() / n]).collect()
}

struct Found {
    what: &'static str,
    /// By class: what is usual for it beyond what is usual for all, ns.
    beyond: BTreeMap<u32, i64>,
    /// Over the focus, ns a message.
    effect: f64,
    name: String,
    class_of: fn(&Message) -> u32,
}

/// Moves what the focus's classes cost beyond what is usual for all to a row of its own; what the classes are formed by.
pub(super) fn apply(of: &OwnTime<'_>, profile: &mut Profile) -> Option<&'static str> {
    let mut best: Option<Found> = None;
    let usual = stats(of, &of.cohorts.1.ids);
    for (key, classes) in KEYS.into_iter().zip(&of.estimated.classes) {
        if let Some(found) = difference(of, key, classes, usual)
            // A finer key must explain clearly more than a coarser one.
            && best.as_ref().is_none_or(|b| found.effect > 1.2 * b.effect)
        {
            best = Some(found);
        }
    }
    let enough = |b: &Found| b.effect > 0.1 * of.deviation && b.effect > of.options.granularity_ns as f64;
    let mut best = best.filter(enough)?;
    // Never more than the deviation.
    let scale = (of.deviation / best.effect).min(1.0);
    best.beyond.values_mut().for_each(|ns| *ns = (*ns as f64 * scale) as i64);
    let to = profile.derive(Derived {
        category: Category::AppProcessing,
        subject: Subject::Class { name: best.name.clone() },
        role: ROLE,
        path: format!("own/{} (cohorts by {})", best.name, best.what),
        inferred: false,
    });
    for &id in &of.cohorts.0.ids {
        let class = (best.class_of)(&of.lifetimes.messages[id as usize]);
        let ns = best.beyond.get(&class).copied().unwrap_or(0);
        if ns != 0 {
            profile.shift(true, id, &of.moves(id, ns, to), 1);
        }
    }
    Some(best.what)
}

/// `usual`: the own work of the reference, and its standard error.
fn difference(of: &OwnTime<'_>, (what, class_of, words): Key, classes: &Usual, usual: (f64, f64)) -> Option<Found> {
    let (lifetimes, options, focus) = (of.lifetimes, of.options, of.cohorts.0);
    let class = |id: u32| class_of(&lifetimes.messages[id as usize]);
    let mut beyond = BTreeMap::new();
    for &(class, ref middle) in &classes.of {
        let (its, error) = stats(of, middle);
        let by = its - usual.0;
        let noise = ERRORS * (error * error + usual.1 * usual.1).sqrt();
        if by.abs() > noise && by.abs() > options.granularity_ns as f64 {
            beyond.insert(class, by.round() as i64);
        }
    }
    let by = |id: u32| beyond.get(&class(id)).copied().unwrap_or(0) as f64;
    let effect = mean(focus, by);
    let mut of_class: BTreeMap<u32, f64> = BTreeMap::new();
    focus.ids.iter().for_each(|&id| *of_class.entry(class(id)).or_default() += by(id));
    let (&most, _) = of_class.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
    (effect > 0.0).then(|| Found { what, name: words(lifetimes, most), beyond, effect, class_of })
}

/// Mean of own work and its standard error.
fn stats(of: &OwnTime<'_>, ids: &[u32]) -> (f64, f64) {
    let n = ids.len().max(1) as f64;
    let work: Vec<f64> = ids.iter().map(|&id| of.left(id) as f64).collect();
    let mean = work.iter().sum::<f64>() / n;
    let variance = work.iter().map(|ns| (ns - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, (variance / n).sqrt())
}
