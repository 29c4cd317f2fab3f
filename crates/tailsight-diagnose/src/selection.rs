//! Which messages a diagnosis looks into. Of a run with many messages that is a part of them: the others need not be divided
//! ([`tailsight_lifetime::Analysis::of_some`]), which is a large part of the time that a diagnosis takes.
//!
//! In: all messages with their stages, [`Options`]. Out: a [`Selection`]: the cohorts, the median and the slowest messages, those that the
//! focus waited behind, and those that estimates are made of ([`Basis`]). Of the same messages and options it is the same whether or
//! not all of them were divided, and so is the diagnosis.

use tailsight_lifetime::messages::reorder::sort_pairs;
use tailsight_lifetime::{Leg, Message};

use crate::Options;
use crate::cohorts::chosen_class::InClass;
use crate::cohorts::legs::Latencies;
use crate::cohorts::{Cohorts, even_part, ranked_in};
use crate::estimate::basis::Basis;
use crate::phases::overlaps::Ahead;
use crate::phases::root;
use crate::typical::{median_ranks, slowest_of};

/// The messages that a diagnosis looks into.
pub struct Selection {
    /// The leg that is explained.
    leg: Leg,
    /// The latencies of every leg.
    pub latencies: Latencies,
    /// Complete messages by (latency, id).
    pub(crate) ranked: Vec<(u64, u32)>,
    /// What estimates are made of.
    pub(crate) basis: Basis,
    /// Which messages a thread took before which.
    pub(crate) ahead: Ahead,
}

impl Selection {
    /// The selection for a diagnosis of these messages, whatever their class.
    pub fn of(messages: &[Message], options: &Options) -> Selection {
        Selection::with(messages, Latencies::of(messages), options, &InClass::ANY)
    }

    /// The selection for a diagnosis of those of the chosen classes.
    pub(crate) fn in_class(messages: &[Message], options: &Options, in_class: &InClass) -> Selection {
        Selection::with(messages, Latencies::in_class(messages, in_class), options, in_class)
    }

    /// The same, of messages of which the latencies were asked for before.
    pub fn with(messages: &[Message], latencies: Latencies, options: &Options, in_class: &InClass) -> Selection {
        let of_leg = latencies.of_leg(options.leg);
        let ranked = if of_leg.len() == messages.len() {
            let mut pairs = of_leg.iter().copied().zip(0..).collect::<Vec<_>>();
            sort_pairs(&mut pairs);
            pairs
        } else {
            ranked_in(messages, options.leg, in_class)
        };
        let basis = Basis::of(messages, &ranked, options);
        Selection { leg: options.leg, latencies, ranked, basis, ahead: Ahead::new(messages) }
    }

    /// For each message whether the diagnosis reads its parts; all where there will be no causes. Without [`Options::more`], and not for a
    /// comparison with another run: these read all.
    pub fn read(&self, messages: &[Message], options: &Options) -> Vec<bool> {
        debug_assert_eq!(self.leg, options.leg);
        let Ok(cohorts) = Cohorts::of(&self.ranked, None, options) else { return vec![true; messages.len()] };
        let mut read = vec![false; messages.len()];
        let mut add = |id: u32| read[id as usize] = true;
        cohorts.focus.ids.iter().chain(&cohorts.reference.ids).copied().for_each(&mut add);
        let median = even_part(&self.ranked[median_ranks(self.ranked.len())], options.compared);
        median.iter().chain(slowest_of(&self.ranked)).for_each(|&(_, id)| add(id));
        self.basis.ids().for_each(&mut add);
        let chains = root::chains(messages, &self.ahead, &cohorts.focus.ids);
        chains.into_iter().flat_map(|(_, chain)| chain).for_each(add);
        read
    }
}
