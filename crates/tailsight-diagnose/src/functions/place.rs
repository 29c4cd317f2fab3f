//! Assigns samples to spans on the paths of messages.
//!
//! In: the samples of the clock, and a message's path. Out: for each sample in the message's time, the owner's span. A path has no
//! overlap, so a sample is in one span of a message or in none. While one message is served others may wait behind it on the same
//! core: the sample is then in the time of each of them, once.

use rustc_hash::FxHashMap;
use tailsight_lifetime::{Context, Frame, Owner, PathSpan};
use tailsight_trace::samples::{SampleRow, kind};

/// What was sampled at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StackSample {
    /// The call stack, by number.
    pub stack: u32,
    /// Ticks of the clock that it stands for.
    pub weight: u16,
}

/// The samples of the clock by core, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct ByCore {
    cores: FxHashMap<u16, Vec<(u64, StackSample)>>,
}

impl ByCore {
    /// Of a run.
    pub fn new(rows: &[SampleRow]) -> ByCore {
        let mut cores: FxHashMap<u16, Vec<(u64, StackSample)>> = FxHashMap::default();
        for &SampleRow { ts_ns, cpu, stack, weight, .. } in rows.iter().filter(|row| row.kind == kind::CLOCK) {
            cores.entry(cpu).or_default().push((ts_ns, StackSample { stack, weight }));
        }
        cores.values_mut().for_each(|core| core.sort_unstable());
        ByCore { cores }
    }

    /// Hands out the samples of a path: the span that each landed in, and what was sampled. The clock's own interrupt is never what ran:
    /// a sample in it counts to what it interrupted.
    pub fn on(&self, path: &[PathSpan], owners: &[Owner], mut each: impl FnMut(&PathSpan, StackSample)) {
        for (i, span) in path.iter().enumerate() {
            let Some(core) = span.cpu.and_then(|cpu| self.cores.get(&cpu)) else { continue };
            let first = core.partition_point(|&(ts, _)| ts < span.from_ns);
            let inside = core[first..].iter().take_while(|&&(ts, _)| ts < span.to_ns);
            for &(_, sampled) in inside {
                // The hooks that told the interrupt's begin have a span of their own before it.
                let of_clock = |span: &PathSpan| {
                    let owner = owners.get(span.owner as usize);
                    let vector = |o: &Owner| matches!(o.frames.last(), Some(Frame::Vector { .. }));
                    owner.is_some_and(|o| o.context == Context::Profiler || vector(o))
                };
                let before = path[..=i].iter().rev().find(|s| !of_clock(s));
                if let Some(of) = before.filter(|s| s.cpu == span.cpu) {
                    each(of, sampled);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tailsight_lifetime::Role;

    fn span(from_ns: u64, to_ns: u64, cpu: Option<u16>, owner: u32) -> PathSpan {
        PathSpan { from_ns, to_ns, cpu, role: Role::A, owner, begins: true }
    }

    fn owners() -> Vec<Owner> {
        let own = |frames| Owner { context: Context::Own, frames };
        let profiler = Owner { context: Context::Profiler, frames: vec![] };
        vec![own(vec![]), own(vec![Frame::Syscall { nr: 0 }]), own(vec![Frame::Vector { which: 0 }]), profiler]
    }

    fn row(ts_ns: u64, cpu: u16, stack: u32) -> SampleRow {
        SampleRow { ts_ns, cpu, stack, ..SampleRow::default() }
    }

    #[test]
    fn a_sample_counts_to_what_the_clock_interrupted() {
        let path = [
            span(10, 19, Some(1), 0),
            span(19, 20, Some(1), 3),
            span(20, 22, Some(1), 2),
            span(22, 30, Some(1), 1),
            span(30, 31, None, 0),
        ];
        let samples = ByCore::new(&[row(10, 1, 0), row(21, 1, 1), row(22, 1, 2), row(29, 0, 3), row(30, 1, 4)]);
        let mut found = vec![];
        samples.on(&path, &owners(), |span, sampled| found.push((span.from_ns, sampled.stack)));
        assert_eq!(found, [(10, 0), (10, 1), (22, 2)]);
        // With the interrupt first, nobody knows what it interrupted.
        found.clear();
        samples.on(&path[1..3], &owners(), |span, sampled| found.push((span.from_ns, sampled.stack)));
        assert_eq!(found, []);
    }

    proptest! {
        /// Each sample of a path's cores and times has exactly one owner's nanoseconds of the message, every other one none.
        #[test]
        fn each_sample_has_one_owner_of_a_message_or_none(
            lengths in proptest::collection::vec((1u64..50, proptest::option::of(0u16..3), 0u32..2), 1..30),
            samples in proptest::collection::vec((0u64..1_500, 0u16..3), 0..200),
        ) {
            let mut at = 100;
            let path: Vec<PathSpan> = lengths.iter().map(|&(ns, cpu, owner)| {
                at += ns;
                span(at - ns, at, cpu, owner)
            }).collect();
            let rows: Vec<SampleRow> = samples.iter().enumerate().map(|(i, &(ts, cpu))| row(ts, cpu, i as u32)).collect();
            let mut met = vec![0; rows.len()];
            let mut wrong = 0;
            ByCore::new(&rows).on(&path, &owners(), |span, sampled| {
                met[sampled.stack as usize] += 1;
                let row = rows[sampled.stack as usize];
                wrong += u32::from(span.cpu != Some(row.cpu) || row.ts_ns < span.from_ns || row.ts_ns >= span.to_ns);
            });
            let inside = |row: &SampleRow| {
                path.iter().filter(|s| s.cpu == Some(row.cpu) && (s.from_ns..s.to_ns).contains(&row.ts_ns)).count()
            };
            prop_assert_eq!(wrong, 0);
            for (row, n) in rows.iter().zip(met) {
                prop_assert_eq!(n, inside(row));
                prop_assert!(n <= 1);
            }
        }
    }
}
