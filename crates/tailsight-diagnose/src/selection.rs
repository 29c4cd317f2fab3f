//! Which messages a diagnosis looks into. Of a run with many messages that is a part of them: the others need not be divided
//! ([`tailsight_lifetime::Analysis::of_some`]), which is a large part of the time that a diagnosis takes.
//!
//! In: all messages with their stages, [`Options`]. Out: a [`Selection`]: the cohorts, the median and the slowest messages, those that the
//! focus waited behind, and those that estimates are made of ([`Estimated`]). Of the same messages and options it is the same whether or
//! not all of them were divided, and so is the diagnosis.

use tailsight_lifetime::{Leg, Message};
use tailsight_stats::random::mix;

use crate::Options;
use crate::cohorts::legs::Latencies;
use crate::cohorts::{Cohorts, ranked};
use crate::estimate::classes;
use crate::phases::overlaps::Ahead;
use crate::phases::root;
use crate::typical::{median_ranks, slowest_of};

/// The messages that estimates are made of.
#[derive(Clone, Debug)]
pub struct Estimated {
    /// A sample of all complete messages, in order of arrival; all of them where they are no more than it holds. Each has the same chance,
    /// whatever its latency.
    pub everyone: Vec<u32>,
    /// By the key that classes are formed by: of each class the messages that say what is usual for it.
    pub(crate) classes: [classes::Usual; classes::KEYS.len()],
}

impl Estimated {
    /// Of the messages that `ranked` (latency, id) lists in the order of both.
    fn of(messages: &[Message], ranked: &[(u64, u32)], options: &Options) -> Estimated {
        let chance = options.estimated as f64 / ranked.len().max(1) as f64;
        let draw = |id: u32| mix(options.seed ^ 0xE57, u64::from(id)) as f64 / u64::MAX as f64;
        let is_in = |id: u32| chance >= 1.0 || draw(id) < chance;
        let mut complete = vec![false; messages.len()];
        ranked.iter().for_each(|&(_, id)| complete[id as usize] = true);
        let everyone = (0..).zip(complete).filter(|&(id, complete)| complete && is_in(id)).map(|(id, _)| id).collect();
        Estimated { everyone, classes: classes::usual(messages, ranked) }
    }

    /// All of them; one may come more than once.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.everyone.iter().copied().chain(self.classes.iter().flat_map(classes::Usual::ids))
    }
}

/// The messages that a diagnosis looks into.
pub struct Selection {
    /// The leg that is explained.
    leg: Leg,
    /// The latencies of every leg.
    pub latencies: Latencies,
    /// Complete messages by (latency, id).
    pub(crate) ranked: Vec<(u64, u32)>,
    /// What estimates are made of.
    pub(crate) estimated: Estimated,
    /// Which messages a thread took before which.
    pub(crate) ahead: Ahead,
}

impl Selection {
    /// The selection for a diagnosis of these messages.
    pub fn of(messages: &[Message], options: &Options) -> Selection {
        Selection::with(messages, Latencies::of(messages), options)
    }

    /// The same, of messages of which the latencies were asked for before.
    pub fn with(messages: &[Message], latencies: Latencies, options: &Options) -> Selection {
        let ranked = ranked(messages, options.leg);
        let estimated = Estimated::of(messages, &ranked, options);
        Selection { leg: options.leg, latencies, ranked, estimated, ahead: Ahead::new(messages) }
    }

    /// For each message whether the diagnosis reads its parts; all where there will be no causes. Without [`Options::more`], and not for a
    /// comparison with another run: these read all.
    pub fn read(&self, messages: &[Message], options: &Options) -> Vec<bool> {
        debug_assert_eq!(self.leg, options.leg);
        let Ok(cohorts) = Cohorts::of(&self.ranked, None, options) else { return vec![true; messages.len()] };
        let mut read = vec![false; messages.len()];
        let mut add = |id: u32| read[id as usize] = true;
        cohorts.focus.ids.iter().chain(&cohorts.reference.ids).copied().for_each(&mut add);
        let of_typical = self.ranked[median_ranks(self.ranked.len())].iter().chain(slowest_of(&self.ranked));
        of_typical.for_each(|&(_, id)| add(id));
        self.estimated.ids().for_each(&mut add);
        let chains = root::chains(messages, &self.ahead, &cohorts.focus.ids);
        chains.into_iter().flatten().for_each(add);
        read
    }
}
