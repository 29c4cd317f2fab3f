//! Cohorts by class. If the own work of ordinary messages depends on what they request, a message of a heavy class that works
//! longer is no anomaly; the cause is that the focus has more messages of that class.
//!
//! The reference of a class is the middle of the class's own latencies. A focus message's own work is compared with that, and the
//! difference between the class's reference and the common one moves to the row `class X`. The rest of the profile keeps the common
//! reference: interference that hits one connection more than others stays interference. The candidates are the request's class (with
//! `--protocol`), its size and its connection; the one that explains most is used.

use std::collections::BTreeMap;

use tailsight_lifetime::{Message, Threshold};

use super::basis::{KEYS, Key, Usual};
use super::{OwnTime, ROLE, mean};
use crate::cause::{Category, Subject};
use crate::rows::profile::{Derived, Profile};

struct ClassEffect {
    what: &'static str,
    /// By class: what is usual for it beyond what is usual for all, ns.
    beyond: BTreeMap<u32, i64>,
    /// Over the focus, ns a message.
    effect: f64,
    name: String,
    class_of: fn(&Message) -> u32,
}

/// Moves what the focus's classes cost beyond what is usual for all to a row of its own; what the classes are formed by.
pub(super) fn apply(own_time: &OwnTime<'_>, profile: &mut Profile) -> Option<&'static str> {
    let mut best: Option<ClassEffect> = None;
    let usual = stats(own_time, &own_time.cohorts.1.ids);
    for (key, classes) in KEYS.into_iter().zip(&own_time.basis.classes) {
        if let Some(effect) = difference(own_time, key, classes, usual)
            // A finer key must explain clearly more than a coarser one.
            && best.as_ref().is_none_or(|b| effect.effect > 1.2 * b.effect)
        {
            best = Some(effect);
        }
    }
    let enough =
        |b: &ClassEffect| b.effect > 0.1 * own_time.deviation && b.effect > own_time.options.granularity_ns as f64;
    let mut best = best.filter(enough)?;
    // Never more than the deviation.
    let scale = (own_time.deviation / best.effect).min(1.0);
    best.beyond.values_mut().for_each(|ns| *ns = (*ns as f64 * scale) as i64);
    let to = profile.derive(Derived {
        category: Category::AppProcessing,
        subject: Subject::Class { name: best.name.clone() },
        role: ROLE,
        path: format!("own/{} (cohorts by {})", best.name, best.what),
        inferred: false,
    });
    for &id in &own_time.cohorts.0.ids {
        let class = (best.class_of)(&own_time.lifetimes.messages[id as usize]);
        let ns = best.beyond.get(&class).copied().unwrap_or(0);
        if ns != 0 {
            profile.shift(true, id, &own_time.moves(id, ns, to), 1);
        }
    }
    Some(best.what)
}

/// `usual`: the own work of the reference, and its standard error.
fn difference(
    own_time: &OwnTime<'_>,
    (what, class_of, words): Key,
    classes: &Usual,
    usual: (f64, f64),
) -> Option<ClassEffect> {
    let (lifetimes, options, focus) = (own_time.lifetimes, own_time.options, own_time.cohorts.0);
    let class = |id: u32| class_of(&lifetimes.messages[id as usize]);
    let mut beyond = BTreeMap::new();
    for &(class, ref middle) in &classes.classes {
        let (its, error) = stats(own_time, middle);
        let by = its - usual.0;
        let noise = Threshold::ClassDiffers.times() * (error * error + usual.1 * usual.1).sqrt();
        if by.abs() > noise && by.abs() > options.granularity_ns as f64 {
            beyond.insert(class, by.round() as i64);
        }
    }
    let by = |id: u32| beyond.get(&class(id)).copied().unwrap_or(0) as f64;
    let effect = mean(focus, by);
    let mut of_class: BTreeMap<u32, f64> = BTreeMap::new();
    focus.ids.iter().for_each(|&id| *of_class.entry(class(id)).or_default() += by(id));
    let (&most, _) = of_class.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
    (effect > 0.0).then(|| ClassEffect { what, name: words(lifetimes, most), beyond, effect, class_of })
}

/// Mean of own work and its standard error.
fn stats(own_time: &OwnTime<'_>, ids: &[u32]) -> (f64, f64) {
    let n = ids.len().max(1) as f64;
    let work: Vec<f64> = ids.iter().map(|&id| own_time.left(id) as f64).collect();
    let mean = work.iter().sum::<f64>() / n;
    let variance = work.iter().map(|ns| (ns - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, (variance / n).sqrt())
}
