//! The root of a queue: what delayed the messages ahead of a message (NSight §5.2, phase 4, followed to its end).
//!
//! In: the focus messages that head-of-line blocking hit, all messages' parts. Out: [`Root`]s. The chain of a message is built
//! backwards: from the message to those that its thread received before it since its hand-off or still served then, from the first of
//! these to those before it, until one did not wait itself. What the messages of the chain had more of than ordinary messages, apart
//! from waiting for each other, is the root: the rows of the table over all three legs, without the receive core (a thread is delayed
//! from the hand-off on). Interrupts, hooks and other tasks hold all messages that wait, but the thread only once: of each message
//! counts its turn alone ([`Ahead::turn`]). What events without a duration cost these messages (page faults, the surroundings of
//! interrupts) is taken from their own work: each at what one was found to cost for the focus, else estimated in the same way.

use std::cell::LazyCell;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tailsight_lifetime::{Context, Frame, LEGS, Leg, Lifetimes, Message, Part, Role, Threshold};

use crate::cause::{Category, Subject, names};
use crate::cohorts::Cohort;
use crate::estimate::Costs;
use crate::model::Root;
use crate::phases::overlaps::Ahead;
use crate::rows::classification::Classification;
use crate::rows::profile::owner_of;

/// Most messages of a chain.
const CHAIN: usize = 256;
/// Most messages whose chains are followed.
const FOLLOWED: usize = 1000;
/// Most ordinary messages that say what usually holds a thread; an even part, where there are more.
const USUAL: usize = 2000;
/// Most roots.
const ROOTS: usize = 5;

/// Index into [`Table::rows`].
type RowId = usize;

/// Rows of what holds a thread, by the category table.
struct Table<'a> {
    lifetimes: &'a Lifetimes,
    classification: &'a Classification<'a>,
    rows: Vec<(Category, String, Subject)>,
    ids: BTreeMap<(Category, String), RowId>,
    row_of: FxHashMap<(usize, u32), Option<RowId>>,
    /// What is taken from own work, with the row of each kind.
    costs: Option<(Costs, Vec<RowId>)>,
}

impl Table<'_> {
    /// The row of an owner in the leg `LEGS[segment]`; none where it does not hold the thread.
    fn row(&mut self, segment: usize, owner: u32) -> Option<RowId> {
        if let Some(&row) = self.row_of.get(&(segment, owner)) {
            return row;
        }
        let verdict = self.classification.at(segment, Role::A, owner);
        let holds = !matches!(verdict.category, Category::HolBlocking | Category::Unexplained)
            && !self.lifetimes.owners[owner as usize].frames.contains(&Frame::TxQueued);
        let row = holds.then(|| self.named(verdict.category, verdict.name.clone(), &verdict.subject));
        self.row_of.insert((segment, owner), row);
        row
    }

    fn named(&mut self, category: Category, name: String, subject: &Subject) -> RowId {
        let rows = &mut self.rows;
        *self.ids.entry((category, name.clone())).or_insert_with(|| {
            rows.push((category, name, subject.clone()));
            rows.len() - 1
        })
    }

    /// From now on these are taken from own work.
    fn take(&mut self, costs: Costs) {
        let rows =
            costs.kinds().map(|kind| self.named(kind.category, names::base(&kind.subject), &kind.subject)).collect();
        self.costs = Some((costs, rows));
    }

    /// Adds what held the message's thread in its turn (ns before and after its receive call) to the rows of `sums`, ns. When
    /// within the leg something held the thread is not known here: what does not fit into the turn is reduced in proportion.
    fn add(&mut self, id: u32, turn: [u64; 2], sums: &mut Vec<f64>) {
        let lifetimes = self.lifetimes;
        let mut held: Vec<(usize, RowId, f64)> = vec![];
        for (segment, leg) in LEGS.into_iter().enumerate() {
            for part in lifetimes.part_slice(id, leg).iter().filter(|p| p.role == Role::A) {
                if let Some(row) = self.row(segment, part.owner) {
                    held.push((segment, row, part.ns as f64));
                }
            }
        }
        let side = |segment: usize| usize::from(LEGS[segment] != Leg::Receive);
        let mut had = [0.0; 2];
        held.iter().for_each(|&(segment, _, ns)| had[side(segment)] += ns);
        let of_turn = [0, 1].map(|at| if had[at] > turn[at] as f64 { turn[at] as f64 / had[at] } else { 1.0 });
        held.iter().for_each(|&(segment, row, ns)| add(sums, row, ns * of_turn[side(segment)]));
        let Some((costs, rows)) = self.costs.take() else { return };
        costs.each(
            lifetimes,
            id,
            |kind| kind,
            |kind, moves| {
                for m in moves {
                    let (leg, _, owner) = owner_of(lifetimes.owners.len(), m.from);
                    let segment = LEGS.iter().position(|&other| other == leg).unwrap_or_default();
                    if let Some(row) = self.row(segment, owner as u32) {
                        let ns = m.ns as f64 * of_turn[side(segment)];
                        add(sums, row, -ns);
                        add(sums, rows[kind], ns);
                    }
                }
            },
        );
        self.costs = Some((costs, rows));
    }

    /// What held the message's thread beyond what usually holds one, by row, ns.
    fn excess(&mut self, id: u32, turn: [u64; 2], usual: &[f64]) -> Vec<f64> {
        let mut out: Vec<f64> = usual.iter().map(|ns| -ns).collect();
        self.add(id, turn, &mut out);
        out
    }
}

/// Adds to a row that may be new.
fn add(sums: &mut Vec<f64>, row: RowId, ns: f64) {
    if row >= sums.len() {
        sums.resize(row + 1, 0.0);
    }
    sums[row] += ns;
}

/// A root with the messages that it held.
#[derive(Clone, Debug)]
pub struct HeldRoot {
    /// What held them.
    pub root: Root,
    /// Their ids, in order.
    pub held: Vec<u32>,
}

/// A run with its messages in the order in which they were served.
pub struct Queue<'a> {
    /// The run.
    pub lifetimes: &'a Lifetimes,
    /// Its category table.
    pub classification: &'a Classification<'a>,
    /// What is less is no difference, ns.
    pub granularity_ns: u64,
    /// Its own messages, if another run's are behind them.
    pub mine: &'a [Message],
    /// Which of them were before which.
    pub ahead: &'a Ahead,
    /// Where most of the wait behind others is.
    pub leg: Leg,
}

impl Queue<'_> {
    /// What held the messages ahead of those in `hit`, largest first; nothing when they took no longer than ordinary ones. `costs`: what
    /// events cost the messages ahead.
    pub fn roots(&self, hit: &[u32], reference: &Cohort, costs: impl FnOnce(&Cohort) -> Costs) -> Vec<HeldRoot> {
        let Queue { lifetimes, classification, granularity_ns, mine, ahead, leg } = *self;
        let row_of = FxHashMap::default();
        let mut table = Table { lifetimes, classification, rows: vec![], ids: BTreeMap::new(), row_of, costs: None };
        let chains = chains(mine, ahead, hit);
        let mut is_in_chain = vec![false; mine.len()];
        chains.iter().flat_map(|(_, chain)| chain).for_each(|&id| is_in_chain[id as usize] = true);
        let held = (0..).zip(&is_in_chain).filter(|(_, is_held)| **is_held).map(|(id, _)| &mine[id]);
        let held: Vec<(u64, u32)> = held.map(|m| (m.latency(Leg::Total).unwrap_or(0), m.id)).collect();
        table.take(costs(&Cohort::of(&held)));
        let messages = &lifetimes.messages;
        // Another run's messages, which are behind these, had threads of their own, whose ids may be the same.
        let others = LazyCell::new(|| Ahead::new(&messages[mine.len()..]));
        let turn = |id: u32| {
            let ahead = if (id as usize) < mine.len() { ahead } else { &*others };
            ahead.turn(messages, &messages[id as usize], leg)
        };
        let mut usual = vec![];
        let step = reference.len().div_ceil(USUAL).max(1);
        for &id in reference.ids.iter().step_by(step) {
            table.add(id, turn(id), &mut usual);
        }
        usual.iter_mut().for_each(|ns| *ns /= reference.len().div_ceil(step).max(1) as f64);
        let mut excess: FxHashMap<u32, Vec<f64>> = FxHashMap::default();
        let (mut total, mut wait_ns): (Vec<f64>, f64) = (vec![], 0.0);
        for (id, chain) in &chains {
            let mut of_chain: Vec<f64> = vec![];
            for &before in chain {
                let rows = excess.entry(before).or_insert_with(|| table.excess(before, turn(before), &usual));
                of_chain.resize(of_chain.len().max(rows.len()), 0.0);
                of_chain.iter_mut().zip(rows.iter()).for_each(|(sum, ns)| *sum += ns);
            }
            // A message that came while it lasted was not held for all of it.
            let held_ns: f64 = of_chain.iter().filter(|ns| **ns > 0.0).sum();
            let waited_ns = self.waited_ns(*id) as f64;
            wait_ns += waited_ns;
            let part = if held_ns > waited_ns { waited_ns / held_ns } else { 1.0 };
            total.resize(total.len().max(of_chain.len()), 0.0);
            total.iter_mut().zip(of_chain).for_each(|(sum, ns)| *sum += ns * part);
        }
        let excess_ns: f64 = total.iter().filter(|ns| **ns > 0.0).sum();
        if excess_ns < Threshold::RootExplains.share() * wait_ns {
            return vec![];
        }
        let mut roots = largest(&table, &excess, (&total, wait_ns), granularity_ns);
        for held in &mut roots {
            let waits = |(_, chain): &&(u32, Vec<u32>)| chain.iter().any(|id| held.held.binary_search(id).is_ok());
            held.root.waiters = Some(chains.iter().filter(waits).count() as u64);
        }
        roots
    }

    /// How long a message waited behind others of its own thread, ns.
    fn waited_ns(&self, id: u32) -> u64 {
        let is_own = |part: &&Part| {
            let owner = &self.lifetimes.owners[part.owner as usize];
            part.role == Role::A && !matches!(owner.context, Context::Sibling { .. })
        };
        let parts = LEGS.into_iter().enumerate().flat_map(|(segment, leg)| {
            self.lifetimes.part_slice(id, leg).iter().filter(is_own).map(move |part| (segment, part))
        });
        let waits = parts.filter(|(segment, part)| {
            self.classification.at(*segment, Role::A, part.owner).category == Category::HolBlocking
        });
        waits.map(|(_, part)| part.ns).sum()
    }
}

/// The rows with the largest sums. `excess`: by message and row, ns; `total`: by row, and what was waited in all, ns.
fn largest(
    table: &Table<'_>,
    excess: &FxHashMap<u32, Vec<f64>>,
    (total, wait_ns): (&[f64], f64),
    granularity_ns: u64,
) -> Vec<HeldRoot> {
    let positive: f64 = total.iter().filter(|ns| **ns > 0.0).sum();
    let share = |ns: f64| if positive > 0.0 { ns / positive } else { 0.0 };
    let key = |row: RowId| (table.rows[row].0, &table.rows[row].1);
    let mut largest: Vec<(RowId, f64)> =
        total.iter().copied().enumerate().filter(|&(_, ns)| share(ns) >= Threshold::RootShare.share()).collect();
    largest.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| key(a.0).cmp(&key(b.0))));
    let root = |(row, ns): (RowId, f64)| {
        let most_ns = excess.values().filter_map(|rows| rows.get(row)).copied().fold(0.0, f64::max);
        // Those that had next to nothing of it held nobody.
        let least_ns = (Threshold::RootMessage.share() * most_ns).max(granularity_ns as f64);
        let longer = |rows: &Vec<f64>| rows.get(row).copied().filter(|&ns| ns > least_ns);
        // Summed in the order of the messages, so that the same run gives the same digits.
        let mut held: Vec<(u32, f64)> = excess.iter().filter_map(|(id, rows)| Some((*id, longer(rows)?))).collect();
        held.sort_unstable_by_key(|&(id, _)| id);
        let mean = held.iter().map(|(_, ns)| ns).sum::<f64>() / held.len() as f64;
        let (category, name, subject) = table.rows[row].clone();
        (!held.is_empty()).then(|| HeldRoot {
            root: Root {
                category,
                name,
                subject: Some(subject),
                role: Role::A,
                mean_ns: mean.round() as i64,
                share: share(ns),
                of_wait: (wait_ns > 0.0).then(|| ns / wait_ns),
                messages: held.len() as u64,
                waiters: None,
                samples: None,
                functions: vec![],
                hot_path: vec![],
            },
            held: held.into_iter().map(|(id, _)| id).collect(),
        })
    };
    largest.into_iter().filter_map(root).take(ROOTS).collect()
}

/// The chains of these messages, each with the message's id, or of an even part of them, if they are many.
pub(crate) fn chains(mine: &[Message], ahead: &Ahead, hit: &[u32]) -> Vec<(u32, Vec<u32>)> {
    let mut is_in_chain = vec![false; mine.len()];
    let step = hit.len().div_ceil(FOLLOWED).max(1);
    let followed = hit.iter().step_by(step).filter(|&&id| (id as usize) < mine.len());
    followed.map(|&id| (id, chain(mine, ahead, &mine[id as usize], &mut is_in_chain))).collect()
}

/// The messages that one waited behind, and those that the first of these waited behind, and so on. `seen`: false for every
/// message, before and after.
fn chain(mine: &[Message], ahead: &Ahead, m: &Message, is_in_chain: &mut [bool]) -> Vec<u32> {
    let mut out: Vec<u32> = vec![];
    let mut at = *m;
    while out.len() < CHAIN {
        let before = ahead.waited_behind(mine, &at);
        // The last before it comes first, so the last of the list was taken first.
        let Some(&(recv, first)) = before.first() else { break };
        for &(_, id) in before.iter().rev().take(CHAIN - out.len()) {
            if !std::mem::replace(&mut is_in_chain[id as usize], true) {
                out.push(id);
            }
        }
        if recv >= at.recv_ns {
            break;
        }
        at = mine[first as usize];
    }
    out.iter().for_each(|&id| is_in_chain[id as usize] = false);
    out
}
