//! Estimated costs of events without a duration (page faults), or that cost more than their hooks measure (interrupts around their
//! handlers).
//!
//! No hook measures how long a page fault takes, or what an interrupt costs before and after its handler (on a virtual machine an
//! exit to the hypervisor, many times the handler). The cost is estimated from the run: own time is regressed on the number of events,
//! over messages outside the focus (over all messages if those do not suffice), by a robust slope (Theil-Sen, pairs weighted by their
//! distance) with a bootstrap interval. If the interval lies above 0, the slope times each message's events moves from its own work
//! to a separate row: at most the own time of each message, and at most the deviation of the own time.
//!
//! The focus holds the slowest messages, so its events cost more than the slope. The own time of a message beyond that of messages with
//! as many events moves, too, by the attributable fraction: how much more often such messages exceed their median by so much than
//! messages without events do. Noise that both have stays ([`Excess`]). More than half of what the slope says is not the events' doing
//! ([`Threshold::DearerEvents`]): then something else is slow in messages that happen to have events, and its time stays own work.
//!
//! A longer request has more interrupts and migrations just because it is longer. If that were all, the slope would be the variance of
//! own time over its mean, as in messages without events, and the focus would meet them as often in its own time as others do. Unless the
//! slope is more than twice that, no more than one such event can cost on any machine, and the focus meets them more often, only messages
//! count that had more events than the run's rate makes plausible. A request that works more and has more page faults for other reasons is
//! still counted here: therefore the row says `inferred`.
//!
//! An interval that is too wide to say what one costs ([`Threshold::CostInterval`]), or that reaches beyond what one can cost, is no estimate.

use std::collections::BTreeMap;

use rayon::prelude::*;
use tailsight_lifetime::{Context, Frame, Leg, Lifetimes, Owner, Threshold};

use tailsight_stats::random::mix;

use super::{OwnTime, ROLE, mean};
use crate::cause::{Category, Subject};
use crate::rows::bootstrap::SplitMix;
use crate::rows::profile::{Derived, each_part};

/// Messages in the regression.
const SAMPLE: usize = 2_000;
/// Pairs that a slope is the median of.
const PAIRS: usize = 2_000;
/// Rounds of the slope's bootstrap.
const ROUNDS: usize = 200;
/// Rounds before it is looked whether the others are needed.
const AT_ONCE: usize = 20;

/// Events that messages have a number of.
pub struct Counter {
    /// How many, by message.
    pub counts: Vec<u32>,
    /// The same where that is more than chance explains and 0 elsewhere, of events that a longer message meets more of.
    unusual: Option<Vec<u32>>,
    /// What one can cost at most, ns: a larger slope is one of length, or of other work.
    most_ns: f64,
    /// The category that their cost goes to.
    pub category: Category,
    /// What the cause is.
    pub subject: Subject,
    /// The path of the row.
    pub path: &'static str,
}

impl Counter {
    /// Page faults of the thread that answered a message.
    pub fn faults(lifetimes: &Lifetimes) -> Counter {
        Counter {
            counts: lifetimes.faults.clone(),
            unusual: None,
            most_ns: Threshold::FaultCost.ns() as f64,
            category: Category::Paging,
            subject: Subject::PageFaults,
            path: "own/page-fault (inferred)",
        }
    }

    /// How often the kernel's migration thread took a message's thread from its core: on the other core it finds cold caches,
    /// which no event tells. And interrupts by other cores that began while a message's own thread worked for it. Counted of the
    /// messages that are `asked` for; how many are usual, `everyone` tells.
    pub fn migrations_and_interrupts(lifetimes: &Lifetimes, leg: Leg, asked: &[u32], everyone: &[u32]) -> [Counter; 2] {
        let migrates = |o: &Owner| match &o.context {
            Context::Foreign { comm, kernel: true } => o.frames.is_empty() && comm.starts_with("migration/"),
            _ => false,
        };
        let from_others = |f: &Frame| matches!(f, Frame::Vector { which } if FROM_OTHER_CORES.contains(which));
        let interrupts = |o: &Owner| o.context == Context::Own && o.frames.last().is_some_and(from_others);
        let [migrations, interrupts] = events(lifetimes, leg, (asked, everyone), [&migrates, &interrupts]);
        [
            Counter {
                counts: migrations.0,
                unusual: Some(migrations.1),
                most_ns: Threshold::MigrationCost.ns() as f64,
                category: Category::OsThreads,
                subject: Subject::AfterMigration,
                path: "own/after-migration (inferred)",
            },
            Counter {
                counts: interrupts.0,
                unusual: Some(interrupts.1),
                most_ns: Threshold::InterruptCost.ns() as f64,
                category: Category::Interrupts,
                subject: Subject::AroundInterrupts,
                path: "own/around-interrupts (inferred)",
            },
        ]
    }

    /// The row that their cost goes to.
    pub(super) fn row(&self) -> Derived {
        Derived {
            category: self.category,
            subject: self.subject.clone(),
            role: ROLE,
            path: self.path.into(),
            inferred: true,
        }
    }

    /// How many a message had.
    pub(super) fn of(&self, id: u32) -> u32 {
        self.counts.get(id as usize).copied().unwrap_or(0)
    }
}

/// Reschedule, call-function and call-function-single, of [`tailsight_trace::event::VECTORS`].
const FROM_OTHER_CORES: [u16; 3] = [1, 2, 3];

/// For each kind of owner: how many of its parts began in each message that is asked for; and the same where that is more than chance
/// explains at the rate at which everyone together met them, none elsewhere. Empty for a kind that does not occur.
fn events<const N: usize>(
    lifetimes: &Lifetimes,
    leg: Leg,
    (asked, everyone): (&[u32], &[u32]),
    kinds: [&dyn Fn(&Owner) -> bool; N],
) -> [(Vec<u32>, Vec<u32>); N] {
    let owners = &lifetimes.owners;
    let kind_of: Vec<Option<usize>> = owners.iter().map(|o| kinds.iter().position(|is| is(o))).collect();
    let occurs = |kind: usize| kind_of.contains(&Some(kind));
    let messages = lifetimes.messages.len();
    let mut counts: [Vec<u32>; N] = std::array::from_fn(|kind| vec![0; if occurs(kind) { messages } else { 0 }]);
    if counts.iter().all(Vec::is_empty) {
        return std::array::from_fn(|_| (vec![], vec![]));
    }
    let own: Vec<bool> = owners.iter().map(|o| o.context == Context::Own).collect();
    let mut worked_ns = vec![0_u64; messages];
    for &id in asked {
        each_part(lifetimes, id, leg, |_, part| {
            if let Some(kind) = kind_of[part.owner as usize] {
                counts[kind][id as usize] += u32::from(part.count);
            }
            if own[part.owner as usize] {
                worked_ns[id as usize] += part.ns;
            }
        });
    }
    let all_ns = everyone.iter().map(|&id| worked_ns[id as usize]).sum::<u64>().max(1) as f64;
    counts.map(|counts| {
        let count = |&id: &u32| u64::from(counts.get(id as usize).copied().unwrap_or(0));
        let rate = everyone.iter().map(count).sum::<u64>() as f64 / all_ns;
        let unusual = |(&count, &ns): (&u32, &u64)| if plausible(count, rate * ns as f64) { 0 } else { count };
        let unusual = counts.iter().zip(&worked_ns).map(unusual).collect();
        (counts, unusual)
    })
}

/// The slope that own time has over the number of events when a longer message only meets more of them, ns: the variance of
/// own time over its mean, of the messages without any. `None` without such.
fn by_length(points: &[(f64, f64)]) -> Option<f64> {
    let none_ns: Vec<f64> = points.iter().filter(|(count, _)| *count == 0.0).map(|(_, ns)| *ns).collect();
    let mean = none_ns.iter().sum::<f64>() / none_ns.len().max(1) as f64;
    (mean > 0.0).then(|| none_ns.iter().map(|ns| (ns - mean).powi(2)).sum::<f64>() / none_ns.len() as f64 / mean)
}

/// Whether a slope may be one that longer messages alone give: one event cannot cost as much as the interval's upper end, `high_ns`, or it is
/// not far above `by_length`.
fn is_of_length((slope_ns, high_ns): (f64, f64), most_ns: f64, by_length: impl FnOnce() -> Option<f64>) -> bool {
    high_ns.max(slope_ns) > most_ns || by_length().is_none_or(|by_length| slope_ns <= 2.0 * by_length)
}

/// Whether the focus met no more events in its own time than chance explains at the rate at which others met them. Events that cost time are
/// met more often by slow messages than by others, as these have the same other work and fewer of them; a long computation meets as many.
fn as_often_as_others(own_time: &OwnTime<'_>, counter: &Counter) -> bool {
    let in_focus = in_focus(own_time);
    let others = own_time.basis.everyone.iter().copied().filter(|&id| !in_focus[id as usize]);
    let (events, ns) =
        others.fold((0, 0), |(events, ns), id| (events + u64::from(counter.of(id)), ns + own_time.left(id)));
    let focus = &own_time.cohorts.0.ids;
    let met = focus.iter().map(|&id| u64::from(counter.of(id))).sum::<u64>();
    let own_ns = focus.iter().map(|&id| own_time.left(id)).sum::<i64>();
    let expected = events as f64 / ns.max(1) as f64 * own_ns as f64;
    plausible(u32::try_from(met).unwrap_or(u32::MAX), expected)
}

/// By message, whether it is in the focus.
fn in_focus(own_time: &OwnTime<'_>) -> Vec<bool> {
    let mut out = vec![false; own_time.lifetimes.messages.len()];
    own_time.cohorts.0.ids.iter().for_each(|&id| out[id as usize] = true);
    out
}

/// Whether a Poisson process with that many expected gives `count` or more once in a hundred times or oftener.
fn plausible(count: u32, expected: f64) -> bool {
    if expected > 500.0 {
        // exp(-expected) would be 0 before long; there the normal distribution is as good.
        return (f64::from(count) - expected) / expected.sqrt() < 2.33;
    }
    let (mut term, mut below) = ((-expected).exp(), 0.0);
    for k in 0..count {
        below += term;
        term *= expected / f64::from(k + 1);
    }
    1.0 - below >= 0.01
}

/// How own time scatters above the line by number of events: for messages with hardly any, and for those with as many as the
/// focus has. All messages, the focus too: in both groups the slowest are in the focus. A group that lies above the line as
/// a whole has other work, which is not the events'; so each group is measured from its own median.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Excess {
    /// Median of own time less the slope's part in the group with many events, ns.
    usual_ns: f64,
    /// Messages with at most the reference's number of events.
    few: Group,
    /// Messages with at least half of the focus's number of events.
    many: Group,
}

/// Messages by their excess over the group's median, ns.
#[derive(Clone, Debug, Default, PartialEq)]
struct Group {
    messages: usize,
    /// The excesses of the upper half, sorted: nobody asks for the others.
    above: Vec<f64>,
}

impl Group {
    /// The median, and the group.
    fn of(mut values: Vec<f64>) -> (f64, Group) {
        let messages = values.len();
        if messages == 0 {
            return (0.0, Group::default());
        }
        let (_, median, above) = values.select_nth_unstable_by(messages / 2, f64::total_cmp);
        let median = *median;
        above.sort_unstable_by(f64::total_cmp);
        (median, Group { messages, above: above.iter().map(|ns| ns - median).collect() })
    }

    /// How many have at least this excess, which is above 0.
    fn exceed(&self, excess: f64) -> f64 {
        (self.above.len() - self.above.partition_point(|x| *x < excess)) as f64
    }
}

impl Excess {
    /// Of (events, own time in ns) of all messages. `few` and `many`: the limits of the two groups.
    fn of(points: &[(f64, f64)], slope_ns: f64, few: f64, many: f64) -> Excess {
        let group = |is: &dyn Fn(f64) -> bool| {
            let in_group = points.iter().filter(|(count, _)| is(*count));
            Group::of(in_group.map(|(count, ns)| ns - slope_ns * count).collect())
        };
        let (usual_ns, many) = group(&|count| count >= many && count > few);
        Excess { usual_ns, few: group(&|count| count <= few).1, many }
    }

    /// What of a message's time beyond the slope's part, `rest_ns`, is the events', ns: its excess times the attributable
    /// fraction 1 − P(that much | few) / P(that much | many).
    fn of_events(&self, rest_ns: f64) -> f64 {
        let excess = rest_ns - self.usual_ns;
        if excess <= 0.0
            || self.many.messages < Threshold::CountedMessages.count()
            || self.few.messages < Threshold::CountedMessages.count()
        {
            return 0.0;
        }
        // A message more than were seen in the group without events: never seen is not never.
        let few = (self.few.exceed(excess) + 1.0) / (self.few.messages + 1) as f64;
        let many = self.many.exceed(excess).max(1.0) / self.many.messages as f64;
        excess * (1.0 - few / many).max(0.0)
    }
}

/// The inferred cost of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Own time that comes with one more, ns.
    pub slope_ns: f64,
    /// Its 95 % bootstrap interval.
    pub ci95_ns: [f64; 2],
    /// Only messages that met more events than is plausible have any of this cost.
    unusual: bool,
    /// What a message's own time is beyond the slope.
    pub excess: Excess,
    /// The part of the slope's cost that is moved: 1, or less where that would be more than the deviation.
    pub part: f64,
    /// The part of the excess that is moved: less than 1 where that would be more than the deviation, or than [`Threshold::DearerEvents`] of the slope's cost.
    pub part_of_excess: f64,
    /// How many more of them a message of the focus has than one of the reference, mean.
    pub more: f64,
    /// What the slope alone moves, ns a message of the focus beyond one of the reference.
    pub by_number_ns: f64,
    /// What the excess moves, likewise.
    pub beyond_ns: f64,
}

impl Cost {
    /// What a message's events cost it, ns, of the `work` that it has.
    pub fn of(&self, counter: &Counter, id: u32, work: i64) -> i64 {
        match counter.of(id) {
            0 => 0,
            count => {
                let typical = self.slope_ns * f64::from(count);
                let beyond = match self.part_of_excess {
                    0.0 => 0.0,
                    part => part * self.excess.of_events(work as f64 - typical),
                };
                ((typical * self.part + beyond) as i64).clamp(0, work.max(0))
            }
        }
    }
}

/// What an event costs; nothing where that is not known to be above 0. Where the slope is one that longer messages alone would have, the
/// counter is left with the numbers of those messages only that met more events than is plausible.
pub(super) fn cost(own_time: &OwnTime<'_>, counter: &mut Counter) -> Option<Cost> {
    let (focus, reference) = own_time.cohorts;
    let everyone = &own_time.basis.everyone;
    let before = own_time.premises.before.iter().find(|earlier| earlier.subject == counter.subject);
    let (line, unusual) = match before.map(|earlier| &earlier.cost) {
        Some(cost) => {
            if let Some(unusual) = counter.unusual.take().filter(|_| cost.unusual) {
                counter.counts = unusual;
            }
            let more = focus_has_more(own_time, counter);
            (more.then_some((cost.slope_ns, cost.ci95_ns)), cost.unusual)
        }
        None => estimated(own_time, counter),
    };
    let (slope_ns, ci95_ns) =
        line.filter(|&(slope_ns, ci95_ns)| says_what_one_costs(slope_ns, ci95_ns, counter.most_ns))?;
    let counter: &Counter = counter;
    let count = |id: u32| f64::from(counter.of(id));
    let excess = match own_time.premises.chosen_by_work {
        true => Excess::default(),
        false => {
            Excess::of(&points(own_time, counter, everyone), slope_ns, mean(reference, count), mean(focus, count) / 2.0)
        }
    };
    let moved = |cost: &Cost| {
        let mean_ns = |cohort| mean(cohort, |id| cost.of(counter, id, own_time.left(id)) as f64);
        mean_ns(focus) - mean_ns(reference)
    };
    let of_slope = Cost {
        slope_ns,
        ci95_ns,
        unusual,
        excess,
        part: 1.0,
        part_of_excess: 0.0,
        more: mean(focus, count) - mean(reference, count),
        by_number_ns: 0.0,
        beyond_ns: 0.0,
    };
    // Never more than the own time's deviation.
    let mut cost = within(of_slope, own_time.deviation, |cost, part| cost.part *= part, &moved);
    cost.by_number_ns = moved(&cost);
    // What is limited already has no room for more.
    if cost.part == 1.0 && !own_time.premises.chosen_by_work {
        cost.part_of_excess = 1.0;
        let most = own_time.deviation.min(cost.by_number_ns * (1.0 + Threshold::DearerEvents.share()));
        let by_number_ns = cost.by_number_ns;
        let beyond = |cost: &Cost| moved(cost) - by_number_ns;
        cost = within(cost, most - by_number_ns, |cost, part| cost.part_of_excess *= part, &beyond);
        cost.beyond_ns = beyond(&cost);
    }
    let moved = cost.by_number_ns + cost.beyond_ns;
    (moved <= own_time.deviation && moved > own_time.options.granularity_ns as f64).then_some(cost)
}

/// Whether a slope with its interval says what one event costs, of which one can cost `most_ns`.
fn says_what_one_costs(slope_ns: f64, [low_ns, high_ns]: [f64; 2], most_ns: f64) -> bool {
    slope_ns.max(high_ns) <= most_ns && high_ns <= Threshold::CostInterval.times() * low_ns
}

/// The cost with so small a part of it that it moves at most `most` ns.
fn within(mut cost: Cost, most: f64, reduce: impl Fn(&mut Cost, f64), moved: &dyn Fn(&Cost) -> f64) -> Cost {
    for _ in 0..8 {
        let ns = moved(&cost);
        if ns <= most {
            break;
        }
        reduce(&mut cost, most.max(0.0) / ns / 1.001);
    }
    cost
}

/// The slope with its interval; and whether it is that of the messages alone that met more events than is plausible.
fn estimated(own_time: &OwnTime<'_>, counter: &mut Counter) -> (Option<(f64, [f64; 2])>, bool) {
    let slope_and_interval = line(own_time, counter);
    if let Some(unusual) = counter.unusual.take()
        && let Some((slope_ns, [_, high_ns])) = slope_and_interval
        && (as_often_as_others(own_time, counter)
            || is_of_length((slope_ns, high_ns), counter.most_ns, || {
                by_length(&points(own_time, counter, &own_time.basis.everyone))
            }))
    {
        counter.counts = unusual;
        return (line(own_time, counter), true);
    }
    (slope_and_interval, false)
}

/// (Events, own time in ns) of messages.
fn points(own_time: &OwnTime<'_>, counter: &Counter, ids: &[u32]) -> Vec<(f64, f64)> {
    ids.iter().map(|&id| (f64::from(counter.of(id)), own_time.left(id) as f64)).collect()
}

/// The slope of own time over events with its interval, where it is above 0 and the focus has more events than the reference: of
/// the messages outside the focus, else of all. The focus was chosen by latency: whatever else is slow in it would bend the
/// slope.
fn line(own_time: &OwnTime<'_>, counter: &Counter) -> Option<(f64, [f64; 2])> {
    if !focus_has_more(own_time, counter) {
        return None;
    }
    let fit = |ids: &mut dyn Iterator<Item = u32>| {
        let some = points(own_time, counter, &sample(counter, ids));
        slope(&some, own_time.options.seed)
    };
    let in_focus = in_focus(own_time);
    let everyone = || own_time.basis.everyone.iter().copied();
    fit(&mut everyone().filter(|&id| !in_focus[id as usize])).or_else(|| fit(&mut everyone()))
}

fn focus_has_more(own_time: &OwnTime<'_>, counter: &Counter) -> bool {
    let (focus, reference) = own_time.cohorts;
    let count = |id: u32| f64::from(counter.of(id));
    mean(focus, count) > mean(reference, count)
}

/// Messages of every number of events, as many of each as there is room for: chosen by the number alone, since a choice
/// by latency would bend the slope. `ids`: in order of arrival.
fn sample(counter: &Counter, ids: &mut dyn Iterator<Item = u32>) -> Vec<u32> {
    let mut by_count: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for id in ids {
        by_count.entry(counter.of(id)).or_default().push(id);
    }
    let messages = by_count.values().map(Vec::len).sum::<usize>();
    let room = (SAMPLE / by_count.len().max(1)).max(8);
    let most = by_count.values().map(Vec::len).max().unwrap_or(0);
    if by_count.len() < 2 || messages - most < Threshold::CountedMessages.count() {
        return vec![];
    }
    by_count
        .into_values()
        .flat_map(|ids| ids.iter().copied().step_by(ids.len().div_ceil(room)).collect::<Vec<_>>())
        .collect()
}

/// The robust slope of the points, with its 95 % bootstrap interval; `None` where that does not lie above 0, and without pairs that
/// differ in x.
pub fn slope(points: &[(f64, f64)], seed: u64) -> Option<(f64, [f64; 2])> {
    let rng = |round: usize| SplitMix(mix(seed ^ 0x5107, round as u64));
    let best = median_slope(points, &mut rng(0), &mut vec![])?;
    let resampled = |[some, slopes]: &mut [Vec<(f64, f64)>; 2], round: usize| {
        let mut rng = rng(round);
        some.iter_mut().for_each(|point| *point = points[rng.below(points.len())]);
        median_slope(some, &mut rng, slopes)
    };
    let rank = |values: usize, per_mille: usize| (values * per_mille).div_ceil(1000).max(1) - 1;
    let mut draws: Vec<f64> = Vec::with_capacity(ROUNDS);
    for first in (1..=ROUNDS).step_by(AT_ONCE) {
        let rounds = (first..first + AT_ONCE).into_par_iter().with_min_len(AT_ONCE / 2);
        let new: Vec<Option<f64>> = rounds.map_init(|| [points.to_vec(), vec![]], resampled).collect();
        draws.extend(new.into_iter().flatten());
        // Whatever the other rounds give, the interval's lower end is one of these.
        if draws.iter().filter(|slope| **slope <= 0.0).count() > rank(ROUNDS, 25) {
            return None;
        }
    }
    if draws.len() < ROUNDS / 2 {
        return None;
    }
    draws.sort_unstable_by(f64::total_cmp);
    let at = |per_mille: usize| draws[rank(draws.len(), per_mille)];
    (at(25) > 0.0).then(|| (best, [at(25), at(975)]))
}

/// The median of the slopes of random pairs, weighted by their distance in x. `slopes`: memory for them.
fn median_slope(points: &[(f64, f64)], rng: &mut SplitMix, slopes: &mut Vec<(f64, f64)>) -> Option<f64> {
    if points.is_empty() {
        return None;
    }
    slopes.resize(PAIRS, (0.0, 0.0));
    let mut pairs = 0;
    for _ in 0..PAIRS * 4 {
        let (a, b) = (points[rng.below(points.len())], points[rng.below(points.len())]);
        let distance = b.0 - a.0;
        // Whether a pair differs cannot be foreseen: without a branch the next one takes the place of one that does not.
        slopes[pairs] = ((b.1 - a.1) / distance, distance.abs());
        pairs += usize::from(distance != 0.0);
        if pairs == PAIRS {
            break;
        }
    }
    weighted_median(&mut slopes[..pairs])
}

/// The least value at which the weights of it and all smaller ones are half of the whole. Of (value, weight); in linear time.
fn weighted_median(weighted: &mut [(f64, f64)]) -> Option<f64> {
    let weight = |weighted: &[(f64, f64)]| weighted.iter().map(|x| x.1).sum::<f64>();
    let (half, mut below) = (weight(weighted) / 2.0, 0.0);
    let mut rest = weighted;
    while rest.len() > 1 {
        let (low, at, high) = rest.select_nth_unstable_by(rest.len() / 2, |a, b| a.0.total_cmp(&b.0));
        let with_low = below + weight(low);
        let with_at = with_low + at.1;
        if with_low >= half {
            rest = low;
        } else if with_at >= half || high.is_empty() {
            return Some(at.0);
        } else {
            (rest, below) = (high, with_at);
        }
    }
    rest.first().map(|x| x.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_group_counts_as_the_sorted_excesses_do(numbers in prop::collection::vec(-50i32..50, 0..90), excess in 1i32..60) {
            let excesses: Vec<f64> = numbers.iter().map(|&x| f64::from(x)).collect();
            let mut sorted = excesses.clone();
            sorted.sort_by(f64::total_cmp);
            let middle = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
            let expected = sorted.iter().filter(|x| *x - middle >= f64::from(excess)).count();
            let (median, group) = Group::of(excesses);
            prop_assert_eq!((median, group.messages), (middle, numbers.len()));
            prop_assert_eq!(group.exceed(f64::from(excess)), expected as f64);
        }

        #[test]
        fn a_weighted_median_is_that_of_the_sorted_values(weighted in prop::collection::vec((-9i32..9, 1u32..5), 0..80)) {
            let mut weighted: Vec<(f64, f64)> = weighted.into_iter().map(|(x, w)| (f64::from(x), f64::from(w))).collect();
            let mut sorted = weighted.clone();
            sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
            let half = sorted.iter().map(|x| x.1).sum::<f64>() / 2.0;
            let mut sum = 0.0;
            let expected = sorted.iter().find(|x| { sum += x.1; sum >= half }).map(|x| x.0);
            prop_assert_eq!(weighted_median(&mut weighted), expected);
        }
    }

    #[test]
    fn longer_requests_meet_more_interrupts_and_that_is_plausible() {
        assert!(plausible(0, 0.0) && plausible(2, 0.6) && plausible(9, 6.0));
        assert!(!plausible(1, 0.001) && !plausible(5, 0.6) && !plausible(2000, 1000.0));
    }

    /// PostgreSQL, which compiled queries for 91 ms: an interrupt cost 82.4 us, between 31.4 us and 8.45 ms, and was 8 % of the difference; a
    /// page fault cost 724 us, and only samples forbade it.
    #[test]
    fn an_interval_that_says_nothing_is_no_estimate() {
        assert!(!says_what_one_costs(82_402.0, [31_362.0, 8_452_725.0], Threshold::InterruptCost.ns() as f64));
        assert!(!says_what_one_costs(82_402.0, [31_362.0, 150_000.0], Threshold::InterruptCost.ns() as f64));
        assert!(!says_what_one_costs(723_868.0, [590_616.0, 914_858.0], Threshold::FaultCost.ns() as f64));
        // The widest one of the lab's page faults, and of its interrupts.
        assert!(says_what_one_costs(1_264.0, [1_222.0, 1_304.0], Threshold::FaultCost.ns() as f64));
        assert!(says_what_one_costs(9_751.0, [9_284.0, 10_587.0], Threshold::InterruptCost.ns() as f64));
    }

    #[test]
    fn a_slope_by_length_alone_is_known() {
        // Three in a hundred requests take 2 ms instead of 5 us, and meet an event every millisecond for that.
        let mut rng = SplitMix(7);
        let points: Vec<(f64, f64)> = (0..20_000)
            .map(|_| {
                let ns = if rng.below(100) < 3 { 2_000_000 } else { 5_000 };
                let met = (0..ns / 1_000).filter(|_| rng.below(1_000) == 0).count();
                (met as f64, ns as f64)
            })
            .collect();
        let (best, _) = slope(&points, 1).unwrap();
        let by_length = by_length(&points).unwrap();
        assert!(best < 2.0 * by_length, "{best} {by_length}");
        assert!(is_of_length((best, best), Threshold::InterruptCost.ns() as f64, || Some(by_length)));
        // Sixteen milliseconds instead of 2 ms: none is without an event, and nothing tells the slope of length. An interrupt that costs
        // a millisecond and a half was the first cause of a slow function.
        let long: Vec<(f64, f64)> =
            points.iter().map(|&(n, ns)| if ns > 1e6 { (n + 8.0, 16e6) } else { (n, ns) }).collect();
        let (best, of_others) = (slope(&long, 1).unwrap().0, super::by_length(&long));
        assert!(best > 2.0 * of_others.unwrap(), "{best} {of_others:?}");
        assert!(is_of_length((best, best), Threshold::InterruptCost.ns() as f64, || of_others));
        // 10 us each, on requests that take 250 us.
        let caused: Vec<(f64, f64)> = (0..20_000)
            .map(|_| (rng.below(4) as f64, rng.below(20_000) as f64))
            .map(|(count, noise)| (count, 250_000.0 + 10_000.0 * count + noise))
            .collect();
        let (best, [_, high]) = slope(&caused, 1).unwrap();
        assert!(!is_of_length((best, high), Threshold::InterruptCost.ns() as f64, || super::by_length(&caused)));
        // The same, where the interval does not tell it from 8.45 ms.
        assert!(is_of_length((best, 8_450_000.0), Threshold::InterruptCost.ns() as f64, || super::by_length(&caused)));
    }

    #[test]
    fn an_excess_is_the_events_as_far_as_messages_without_them_do_not_have_it() {
        let mut rng = SplitMix(3);
        // 1 us each, plus up to 40 us that only messages with events have; one message in fifty of all is 100 us slow.
        let points: Vec<(f64, f64)> = (0..5_000)
            .map(|i| {
                let count = if i % 10 == 0 { 20.0 } else { 0.0 };
                let of_events = if count > 0.0 { rng.below(40_000) as f64 } else { 0.0 };
                let noise = if rng.below(50) == 0 { 100_000.0 } else { rng.below(500) as f64 };
                (count, 5_000.0 + 1_000.0 * count + of_events + noise)
            })
            .collect();
        let excess = Excess::of(&points, 1_000.0, 0.0, 10.0);
        // Half of 40 us and of 500 ns is usual in the one group, and no excess.
        assert!((excess.usual_ns - 25_250.0).abs() < 2_000.0, "{}", excess.usual_ns);
        let part_of = |ns: f64| excess.of_events(excess.usual_ns + ns) / ns;
        assert!(part_of(15_000.0) > 0.75, "{}", part_of(15_000.0));
        assert!(part_of(70_000.0) < 0.5, "{}", part_of(70_000.0));
        assert_eq!(excess.of_events(0.0), 0.0);
        // Too few to tell.
        assert_eq!(Excess::of(&points[..100], 1_000.0, 0.0, 10.0).of_events(40_000.0), 0.0);
    }

    #[test]
    fn slopes_are_robust_and_know_when_there_is_none() {
        let mut rng = SplitMix(9);
        // 700 ns a fault, noise of 400 ns, and one message in fifty that an intruder made a millisecond longer.
        let line: Vec<(f64, f64)> = (0..1_000)
            .map(|i| {
                let x = rng.below(30) as f64;
                (x, 700.0 * x + rng.below(400) as f64 + if i % 50 == 0 { 1e6 } else { 0.0 })
            })
            .collect();
        let (best, [low, high]) = slope(&line, 1).unwrap();
        assert!((best - 700.0).abs() < 15.0 && low < 700.0 && 700.0 < high, "{best} {low} {high}");
        let flat: Vec<(f64, f64)> = (0..1_000).map(|_| (rng.below(30) as f64, rng.below(5_000) as f64)).collect();
        assert_eq!(slope(&flat, 1), None);
        assert_eq!(slope(&[(1.0, 2.0); 50], 1), None);
        assert_eq!(slope(&[], 1), None);
    }
}
