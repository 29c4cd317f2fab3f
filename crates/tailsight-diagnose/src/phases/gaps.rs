//! Phase 2 (NSight §5.2): gaps, in which nothing ran for the message (idle core, sleep, stolen time), with the reason: what
//! ran last before the gap began.

use std::collections::BTreeMap;

use tailsight_lifetime::{Context, Frame, Leg, Lifetimes, OwnerId, PathPart, PathSpan};

use super::phase_of;
use crate::PathOf;
use crate::cause::Phase;

/// What came before the gaps of these owners on the paths of some messages: the most frequent, with how many of the gaps
/// began so. A gap's own frames say what was slept in; this says what led there.
pub fn before(
    lifetimes: &Lifetimes,
    ids: &[u32],
    in_row: &dyn Fn(&PathSpan) -> bool,
    (path, leg): (PathOf<'_>, Leg),
) -> Option<String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut gaps = 0;
    for &id in ids {
        let mut last: Option<OwnerId> = None;
        let mut open = false;
        for span in path(id, leg, PathPart::Whole) {
            let Some(owner) = lifetimes.owners.get(span.owner as usize) else { continue };
            if phase_of(owner) != Phase::Gaps {
                (last, open) = (Some(span.owner), false);
            } else if in_row(&span) && !open {
                let name = match last.map(|o| &lifetimes.owners[o as usize]) {
                    Some(owner) => owner.path(&lifetimes.symbols),
                    // The thread slept when the message came.
                    None => asleep_in(owner).unwrap_or_else(|| "the message's arrival".into()),
                };
                *counts.entry(name).or_default() += 1;
                gaps += 1;
                open = true;
            }
        }
    }
    let (name, n) = counts.into_iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)))?;
    Some(format!("{} ({n} of {gaps})", crate::categories::shown(&name)))
}

fn asleep_in(owner: &tailsight_lifetime::Owner) -> Option<String> {
    let sleep = owner.frames.iter().find(|f| matches!(f, Frame::SleepIn { .. }));
    sleep.filter(|_| owner.context == Context::Blocked).map(|f| f.name(&[]))
}
