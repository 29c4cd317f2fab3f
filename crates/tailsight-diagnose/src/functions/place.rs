//! Assigns samples to spans on the paths of messages.
//!
//! In: the samples of the clock, and a message's path. Out: for each sample in the message's time, the owner's span. A path has no
//! overlap, so a sample is in one span of a message or in none. In the time of others (another program, a hypervisor, the idle core) the
//! target ran nothing: a sample there was taken at its edge, of what was interrupted, and is in no span. While one message is served others may wait behind it on the same
//! core: the sample is then in the time of each of them, once.

use tailsight_lifetime::{Context, Frame, LEGS, Leg, Message, Owner, PathPart, PathSpan};
use tailsight_trace::samples::{SampleRow, kind};

/// What was sampled at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StackSample {
    /// The call stack, by number.
    pub stack: u32,
    /// Ticks of the clock that it stands for.
    pub weight: u16,
}

/// The samples of the clock in the order of time, each with its core.
#[derive(Clone, Debug, Default)]
pub struct ByTime(Vec<(u64, u16, StackSample)>);

impl ByTime {
    /// Of a run.
    pub fn new(rows: &[SampleRow]) -> ByTime {
        let of_clock = rows.iter().filter(|row| row.kind == kind::CLOCK);
        let mut samples: Vec<_> = of_clock
            .map(|&SampleRow { ts_ns, cpu, stack, weight, .. }| (ts_ns, cpu, StackSample { stack, weight }))
            .collect();
        samples.sort_unstable();
        ByTime(samples)
    }

    /// Those of a time, on any core.
    fn within(&self, (from_ns, to_ns): (u64, u64)) -> impl Iterator<Item = &(u64, u16, StackSample)> {
        let first = self.0.partition_point(|&(ts, ..)| ts < from_ns);
        self.0[first..].iter().take_while(move |&&(ts, ..)| ts < to_ns)
    }

    /// Hands out the samples of a message in the legs that it has, of those asked for: the span of its `path` that each landed in, and
    /// what was sampled. The path is asked for where something was sampled: most messages are over between two ticks of the clock. The
    /// clock's own interrupt is never what ran: a sample in it counts to what it interrupted.
    pub fn on(
        &self,
        (message, leg): (&Message, Leg),
        path: impl FnOnce(PathPart<'_>) -> Vec<PathSpan>,
        owners: &[Owner],
        mut each: impl FnMut(&PathSpan, StackSample),
    ) {
        let legs =
            LEGS.into_iter().filter(|&part| leg == part || leg == Leg::Total).filter_map(|part| message.ends(part));
        let Some(time) = legs.reduce(|whole, part| (whole.0.min(part.0), whole.1.max(part.1))) else { return };
        let times: Vec<u64> = self.within(time).map(|&(ts, ..)| ts).collect();
        if times.is_empty() {
            return;
        }
        let path = path(PathPart::Around(&times));
        // The hooks that told the interrupt's begin have a span of their own before it.
        let of_clock = |span: &PathSpan| {
            let owner = owners.get(span.owner as usize);
            let vector = |o: &Owner| matches!(o.frames.last(), Some(Frame::Vector { .. }));
            owner.is_some_and(|o| o.context == Context::Profiler || vector(o))
        };
        for &(ts, cpu, sampled) in self.within(time) {
            let there = path.partition_point(|span| span.to_ns <= ts);
            if path.get(there).is_none_or(|span| span.cpu != Some(cpu) || ts < span.from_ns) {
                continue;
            }
            // Before a gap nothing is known.
            let next_to = |&at: &usize| at == there || path[at].to_ns == path[at + 1].from_ns;
            let before = (0..=there).rev().take_while(next_to).map(|at| &path[at]).find(|span| !of_clock(span));
            let runs = |span: &&PathSpan| owners.get(span.owner as usize).is_none_or(target_runs);
            if let Some(interrupted) = before.filter(|span| span.cpu == Some(cpu)).filter(runs) {
                each(interrupted, sampled);
            }
        }
    }
}

/// Whether threads of the target may have run in an owner's time. Where the recording cannot tell who ran they may.
fn target_runs(owner: &Owner) -> bool {
    let theirs = matches!(owner.context, Context::Foreign { .. } | Context::Idle | Context::Profiler);
    !theirs && !owner.frames.iter().any(|frame| matches!(frame, Frame::Stolen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tailsight_lifetime::Role;

    fn span(from_ns: u64, to_ns: u64, cpu: Option<u16>, owner: u32) -> PathSpan {
        PathSpan { from_ns, to_ns, cpu, role: Role::A, owner, begins: true, rule: None }
    }

    fn message(recv_ns: u64) -> Message {
        Message { driver_ns: 1, recv_ns, ..Message::default() }
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
        let samples = ByTime::new(&[row(10, 1, 0), row(21, 1, 1), row(22, 1, 2), row(29, 0, 3), row(30, 1, 4)]);
        let mut placed = vec![];
        samples.on(
            (&message(100), Leg::Receive),
            |_| path.to_vec(),
            &owners(),
            |span, sampled| placed.push((span.from_ns, sampled.stack)),
        );
        assert_eq!(placed, [(10, 0), (10, 1), (22, 2)]);
        // With the interrupt first, nobody knows what it interrupted.
        placed.clear();
        samples.on(
            (&message(100), Leg::Receive),
            |_| path[1..3].to_vec(),
            &owners(),
            |span, sampled| placed.push((span.from_ns, sampled.stack)),
        );
        assert_eq!(placed, []);
    }

    /// A neighbour's cause named `EVP_DigestFinal_ex`, and stolen time `_PyEval_EvalFrameDefault`: functions that the target was
    /// interrupted in.
    #[test]
    fn what_the_target_was_interrupted_in_is_no_function_of_its_neighbour() {
        let neighbour = Context::Foreign { comm: "rustc".into(), kernel: false };
        let owners = [
            Owner { context: Context::Own, frames: vec![] },
            Owner { context: neighbour, frames: vec![] },
            Owner { context: Context::Own, frames: vec![Frame::Stolen] },
            Owner { context: Context::Idle, frames: vec![] },
        ];
        let path =
            [span(10, 20, Some(1), 0), span(20, 30, Some(1), 1), span(30, 40, Some(1), 2), span(40, 50, Some(1), 3)];
        let samples = ByTime::new(&[row(19, 1, 0), row(20, 1, 1), row(39, 1, 2), row(41, 1, 3)]);
        let mut met = vec![];
        samples.on(
            (&message(100), Leg::Receive),
            |_| path.to_vec(),
            &owners,
            |span, s| met.push((span.owner, s.stack)),
        );
        assert_eq!(met, [(0, 0)]);
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
            ByTime::new(&rows).on((&message(2_000), Leg::Receive), |_| path.clone(), &owners(), |span, sampled| {
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
