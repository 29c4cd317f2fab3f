//! The exact partition: each leg's time by role and owner.
//!
//! Short pieces of a path are walked and summed; long waits for a busy thread or core are read off a [`Lifeline`].

use rustc_hash::FxHashMap;

use crate::lifeline::{Builder, Lifeline};
use crate::matching::Extra;
use crate::model::{Leg, Message, OwnerId, Part, Role};
use crate::scan::Scan;
use crate::walk::{self, LONG_NS, Owners, Piece, Step, Walk};

/// Sums legs, one after the other.
pub struct Partition {
    lifelines: Lifelines,
    sum: Sum,
    pieces: Vec<Piece>,
}

impl Partition {
    /// For a scanned run.
    pub fn new(scan: &Scan) -> Partition {
        Partition { lifelines: Lifelines::new(scan), sum: Sum::default(), pieces: Vec::new() }
    }

    /// Appends the parts of one measured leg to `out`: nothing when the leg was not seen.
    pub fn leg(
        &mut self,
        scan: &Scan,
        owners: &mut Owners,
        (message, extra): (&Message, &Extra),
        leg: Leg,
        out: &mut Vec<Part>,
    ) {
        self.sum.begin();
        let mut pieces = std::mem::take(&mut self.pieces);
        walk::pieces(scan, message, extra, leg, &mut pieces);
        for piece in pieces.drain(..) {
            let sum = &mut self.sum;
            let line = match piece {
                Piece::Others { tid, from, to } => Some((self.lifelines.thread(scan, owners, tid), from, to)),
                Piece::Core { cpu, from, to } if to - from > LONG_NS => {
                    Some((self.lifelines.core(scan, owners, cpu), from, to))
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
                    Walk { scan, owners, each }.piece(piece);
                }
            }
        }
        for (role, hooks) in [Role::R, Role::A].into_iter().zip(std::mem::take(&mut self.sum.hooks)) {
            if hooks.0 > 0 {
                self.sum.add(out, role, owners.profiler(), hooks.0, hooks.1);
            }
        }
        self.pieces = pieces;
    }
}

/// Timelines summed ahead, each made when first needed.
struct Lifelines {
    from_ns: u64,
    to_ns: u64,
    threads: FxHashMap<u32, Lifeline>,
    cores: FxHashMap<u16, Lifeline>,
}

impl Lifelines {
    fn new(scan: &Scan) -> Lifelines {
        Lifelines {
            from_ns: scan.start_ns,
            to_ns: scan.end_ns,
            threads: FxHashMap::default(),
            cores: FxHashMap::default(),
        }
    }

    fn thread(&mut self, scan: &Scan, owners: &mut Owners, tid: u32) -> &Lifeline {
        let piece = Piece::Others { tid, from: self.from_ns, to: self.to_ns };
        self.threads.entry(tid).or_insert_with(|| walked(scan, owners, piece))
    }

    fn core(&mut self, scan: &Scan, owners: &mut Owners, cpu: u16) -> &Lifeline {
        let piece = Piece::Core { cpu, from: self.from_ns, to: self.to_ns };
        self.cores.entry(cpu).or_insert_with(|| walked(scan, owners, piece))
    }
}

fn walked(scan: &Scan, owners: &mut Owners, piece: Piece) -> Lifeline {
    let mut line = Builder::default();
    Walk { scan, owners, each: |step| line.push(step) }.piece(piece);
    line.finish()
}

/// Sums spans by (role, owner) without hashing: a stamp a slot says whether it belongs to the current leg.
#[derive(Default)]
struct Sum {
    stamp: u32,
    slots: Vec<Slot>,
    /// The recorder's hooks, by role (R, A): ns and how often. They are at nearly every step, so apart.
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
