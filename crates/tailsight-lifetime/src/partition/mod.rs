//! The exact partition: each leg's time by role and owner.
//!
//! Short pieces of a path are walked and summed; for long waits for a busy thread or core the sums come from a [`PrefixSums`]. Messages
//! are processed in chunks, on all cores.

pub mod prefix_sums;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::messages::Extra;
use crate::model::{LEGS, Leg, Message, OwnerId, Part, Role};
use crate::partition::prefix_sums::{Builder, PrefixSums};
use crate::path::{self, LONG_NS, Owners, Piece, Step, Walk};
use crate::scan::Scan;
use crate::scan::activity::{Activity, Sources};

/// Messages per chunk. The number does not depend on the machine, so that owners are found in the same order on every
/// machine.
const CHUNK: usize = 8192;
/// Chunks that one thread takes at a time: it finds most owners in the first of them.
const TOGETHER: usize = 2;

/// Parts of messages, leg by leg (receive, service, transmit): message i owns `parts[offsets[i]..offsets[i + 1]]`.
#[derive(Clone, Debug)]
pub struct Legs {
    /// The parts.
    pub parts: [Vec<Part>; 3],
    /// Where each message's parts begin, and where the last one's end.
    pub offsets: [Vec<u32>; 3],
}

impl Legs {
    /// Of no messages yet.
    fn none() -> Legs {
        Legs { parts: Default::default(), offsets: [vec![0], vec![0], vec![0]] }
    }

    /// The partition of the messages of a run: of those that are `wanted` (by message), or of all. The others have no parts.
    pub fn of(scan: &Scan, wanted: Option<&[bool]>, owners: &mut Owners) -> Legs {
        Legs::in_chunks(scan, wanted, owners, CHUNK)
    }

    /// The same, with a number of messages that are worked on at a time.
    pub fn in_chunks(scan: &Scan, wanted: Option<&[bool]>, owners: &mut Owners, chunk: usize) -> Legs {
        let mut legs = Legs::none();
        legs.offsets.iter_mut().for_each(|offsets| offsets.reserve(scan.messages.len()));
        let divided = wanted.map_or(scan.messages.len(), |wanted| wanted.iter().filter(|is| **is).count());
        legs.parts.iter_mut().for_each(|parts| parts.reserve(divided * 6));
        let several = chunk * TOGETHER;
        // Not all messages at once, because their parts would be in memory twice.
        let at_once = several * rayon::current_num_threads();
        let parts_of = |(messages, extras): (&[Message], &[Extra])| {
            let each = messages.par_chunks(several).zip(extras.par_chunks(several));
            each.map(|(messages, extras)| Legs::of_chunks(scan, wanted, (messages, extras), chunk)).collect::<Vec<_>>()
        };
        let mut batches = scan.messages.chunks(at_once).zip(scan.extras.chunks(at_once));
        let mut done = batches.next().map(parts_of);
        while let Some(before) = done {
            let next = batches.next();
            let append = || before.into_iter().for_each(|(chunk, met)| legs.append(&chunk, &owners.adopt(met)));
            (done, ()) = rayon::join(|| next.map(parts_of), append);
        }
        legs
    }

    /// The partition of some messages that follow one another, with owners of their own. These are in the order in which the chunks
    /// meet them, as if each chunk had owners of its own that were adopted one chunk after the other.
    fn of_chunks(
        scan: &Scan,
        wanted: Option<&[bool]>,
        (messages, extras): (&[Message], &[Extra]),
        chunk: usize,
    ) -> (Legs, Owners) {
        let (mut legs, mut owners) = (Legs::none(), Owners::default());
        for part in messages.chunks(chunk).zip(extras.chunks(chunk)) {
            legs.add_chunk(scan, wanted, &mut owners, part);
        }
        (legs, owners)
    }

    fn add_chunk(
        &mut self,
        scan: &Scan,
        wanted: Option<&[bool]>,
        owners: &mut Owners,
        (messages, extras): (&[Message], &[Extra]),
    ) {
        let is_wanted = |m: &Message| wanted.is_none_or(|wanted| wanted[m.id as usize]);
        let divided = messages.iter().filter(|m| is_wanted(m));
        let legs = divided.flat_map(|m| LEGS.into_iter().filter_map(|leg| m.ends(leg)));
        let mut partition = Partition::within(united(legs.filter(|(from, to)| to - from > LONG_NS).collect()));
        for message_and_extra in messages.iter().zip(extras) {
            for (l, leg) in LEGS.into_iter().enumerate() {
                if is_wanted(message_and_extra.0) {
                    partition.leg(scan.sources(), owners, message_and_extra, leg, &mut self.parts[l]);
                }
                self.offsets[l].push(self.parts[l].len() as u32);
            }
        }
    }

    /// Appends those of later messages, whose owner i is `owners[i]` here.
    fn append(&mut self, later: &Legs, owners: &[OwnerId]) {
        for leg in 0..3 {
            let begin = self.parts[leg].len() as u32;
            let parts = later.parts[leg].iter();
            self.parts[leg].extend(parts.map(|part| Part { owner: owners[part.owner as usize], ..*part }));
            self.offsets[leg].extend(later.offsets[leg][1..].iter().map(|end| begin + end));
        }
    }
}

/// Intervals (from, to) that touch or overlap, each as one, in order.
fn united(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.sort_unstable();
    intervals.dedup_by(|next, kept| {
        let touches = next.0 <= kept.1;
        if touches {
            kept.1 = kept.1.max(next.1);
        }
        touches
    });
    intervals
}

/// Sums legs, one after the other.
pub struct Partition {
    timelines: Timelines,
    sum: Sum,
    pieces: Vec<Piece>,
}

impl Partition {
    /// For legs that are no longer than [`LONG_NS`], and others that lie within one of these intervals (from, to), which are in order and
    /// do not touch.
    pub fn within(long: Vec<(u64, u64)>) -> Partition {
        let timelines = Timelines { long, threads: FxHashMap::default(), cores: FxHashMap::default() };
        Partition { timelines, sum: Sum::default(), pieces: Vec::new() }
    }

    /// Appends the parts of one measured leg to `out`: nothing when the leg was not seen.
    pub fn leg(
        &mut self,
        sources: Sources<'_>,
        owners: &mut Owners,
        (message, extra): (&Message, &Extra),
        leg: Leg,
        out: &mut Vec<Part>,
    ) {
        let activity = sources.activity;
        self.sum.begin();
        let mut pieces = std::mem::take(&mut self.pieces);
        path::pieces(sources, message, extra, leg, &mut pieces);
        for piece in &pieces {
            let sum = &mut self.sum;
            let line = match *piece {
                Piece::Others { tid, unread, from, to } if to.saturating_sub(from) > LONG_NS => {
                    Some((self.timelines.thread(activity, owners, (tid, unread), from), from, to))
                }
                Piece::Core { cpu, from, to } if to - from > LONG_NS => {
                    Some((self.timelines.core(activity, owners, cpu, from), from, to))
                }
                _ => None,
            };
            match line {
                Some((line, from, to)) => line.sum(from, to, |role, owner, ns, begins| match owner {
                    Some(owner) => sum.add(out, role, owner, ns, begins),
                    None => sum.add_hooks(role, ns, begins),
                }),
                None => {
                    let each = |Step { span, hooks_ns }: Step| {
                        if hooks_ns > 0 {
                            sum.add_hooks(span.role, u64::from(hooks_ns), 1);
                        }
                        if span.from_ns < span.to_ns {
                            sum.add(out, span.role, span.owner, span.to_ns - span.from_ns, u32::from(span.begins));
                        }
                    };
                    Walk { activity, owners, each }.piece(piece);
                }
            }
        }
        pieces.clear();
        for (role, hooks) in [Role::R, Role::A].into_iter().zip(std::mem::take(&mut self.sum.hooks)) {
            if hooks.0 > 0 {
                self.sum.add(out, role, owners.profiler(), hooks.0, hooks.1);
            }
        }
        self.pieces = pieces;
    }
}

/// Prefix sums of timelines over the intervals in which there are long waits, each made on first use.
struct Timelines {
    /// The intervals (from, to).
    long: Vec<(u64, u64)>,
    /// By thread, whether for messages that nobody has received, and place of the interval.
    threads: FxHashMap<(u32, bool, usize), PrefixSums>,
    cores: FxHashMap<(u16, usize), PrefixSums>,
}

impl Timelines {
    /// The last interval that begins by a time: its place, from, to.
    fn interval(&self, at: u64) -> (usize, u64, u64) {
        let place = self.long.partition_point(|(from, _)| *from <= at).saturating_sub(1);
        let (from, to) = self.long.get(place).copied().unwrap_or_default();
        (place, from, to)
    }

    /// Of the interval that holds `at`.
    fn thread(&mut self, activity: &Activity, owners: &mut Owners, (tid, unread): (u32, bool), at: u64) -> &PrefixSums {
        let (place, from, to) = self.interval(at);
        let piece = Piece::Others { tid, unread, from, to };
        self.threads.entry((tid, unread, place)).or_insert_with(|| walked(activity, owners, piece))
    }

    fn core(&mut self, activity: &Activity, owners: &mut Owners, cpu: u16, at: u64) -> &PrefixSums {
        let (place, from, to) = self.interval(at);
        let piece = Piece::Core { cpu, from, to };
        self.cores.entry((cpu, place)).or_insert_with(|| walked(activity, owners, piece))
    }
}

fn walked(activity: &Activity, owners: &mut Owners, piece: Piece) -> PrefixSums {
    let mut line = Builder::default();
    Walk { activity, owners, each: |step| line.push(step) }.piece(&piece);
    line.finish()
}

/// Sums spans by (role, owner) without hashing: the stamp of a slot shows whether it belongs to the current leg.
#[derive(Default)]
struct Sum {
    stamp: u32,
    slots: Vec<Slot>,
    /// The recorder's hooks, by role (R, A): ns and how often. Kept apart because nearly every step has some.
    hooks: [(u64, u32); 2],
}

#[derive(Clone, Copy, Default)]
struct Slot {
    stamp: u32,
    /// Index of the part.
    place: u32,
}

impl Sum {
    /// Begins the next leg. Stamps count from 1, so that fresh slots belong to no leg.
    fn begin(&mut self) {
        self.stamp += 1;
    }

    fn add_hooks(&mut self, role: Role, ns: u64, begins: u32) {
        let hooks = &mut self.hooks[usize::from(role == Role::A)];
        *hooks = (hooks.0 + ns, hooks.1.saturating_add(begins));
    }

    fn add(&mut self, out: &mut Vec<Part>, role: Role, owner: OwnerId, ns: u64, begins: u32) {
        let slot = owner as usize * 2 + usize::from(role == Role::A);
        if slot >= self.slots.len() {
            self.slots.resize(slot + 64, Slot::default());
        }
        let slot = &mut self.slots[slot];
        if slot.stamp != self.stamp {
            *slot = Slot { stamp: self.stamp, place: out.len() as u32 };
            out.push(Part { role, owner, count: 0, ns: 0 });
        }
        let part = &mut out[slot.place as usize];
        part.ns += ns;
        part.count = part.count.saturating_add(begins.min(u32::from(u16::MAX)) as u16);
    }
}
