//! The samples that a diagnosis may look at: those of its run, and those of the run that it is compared with.
//!
//! In: the samples of each run and the paths of its messages. Out: [`Sampled`], asked by message: its path, with owners of the joined
//! lifetimes, and the samples on it. The second run's messages, owners, stacks and frames are numbered behind the first's.

use std::borrow::Cow;

use tailsight_lifetime::{Leg, Message, Owner, OwnerId, PathPart, PathSpan};
use tailsight_trace::samples::Samples;

use super::place::{ByTime, StackSample};

/// The path of a message of a run over a leg, in order: at least the part that is asked for.
pub type PathOf<'a> = &'a (dyn Fn(u32, Leg, PathPart<'_>) -> Vec<PathSpan> + Sync);

/// The other run of a comparison.
#[derive(Clone, Copy)]
pub(crate) struct Other<'a> {
    pub samples: &'a Samples,
    pub path: PathOf<'a>,
    /// Its owners by their numbers, as they are in both together.
    pub owner_of: &'a [OwnerId],
    /// Messages and owners of the first run.
    pub first: (usize, usize),
}

/// Samples by message.
pub(crate) struct Sampled<'a> {
    /// Stacks and frames of both runs; rows of the first.
    pub samples: Cow<'a, Samples>,
    own: (ByTime, PathOf<'a>),
    other: Option<(ByTime, Other<'a>)>,
    /// Stacks of the first run.
    stacks: u32,
}

impl<'a> Sampled<'a> {
    /// Of a run, and of the one that it is compared with.
    pub fn new(samples: &'a Samples, path: PathOf<'a>, other: Option<Other<'a>>) -> Sampled<'a> {
        let (stacks, frames) = (samples.stacks.len() as u32, samples.frames.len() as u32);
        let joined_with = |other: &Other<'_>| {
            let mut joined = samples.clone();
            joined.frames.extend(other.samples.frames.iter().cloned());
            let moved = |stack: &Vec<u32>| stack.iter().map(|&frame| frame.saturating_add(frames)).collect();
            joined.stacks.extend(other.samples.stacks.iter().map(moved));
            joined
        };
        Sampled {
            samples: other.as_ref().map_or(Cow::Borrowed(samples), |other| Cow::Owned(joined_with(other))),
            own: (ByTime::new(&samples.rows), path),
            other: other.map(|other| (ByTime::new(&other.samples.rows), other)),
            stacks,
        }
    }

    /// Whether two runs are compared: of two builds of a program a function is the same by its name.
    pub fn of_two_runs(&self) -> bool {
        self.other.is_some()
    }

    fn other(&self, id: u32) -> Option<(&ByTime, &Other<'a>, u32)> {
        let (by_time, other) = self.other.as_ref()?;
        Some((by_time, other, id.checked_sub(other.first.0 as u32)?))
    }

    /// The path of a message. An owner that the partition never met has a number beyond all others.
    pub fn path(&self, id: u32, leg: Leg) -> Vec<PathSpan> {
        self.part(id, leg, PathPart::Whole)
    }

    fn part(&self, id: u32, leg: Leg, part: PathPart<'_>) -> Vec<PathSpan> {
        let Some((_, other, id)) = self.other(id) else {
            let owners = self.other.as_ref().map_or(usize::MAX, |(_, other)| other.first.1);
            let owner = |owner: OwnerId| if (owner as usize) < owners { owner } else { OwnerId::MAX };
            return (self.own.1)(id, leg, part)
                .into_iter()
                .map(|span| PathSpan { owner: owner(span.owner), ..span })
                .collect();
        };
        let owner = |owner: OwnerId| other.owner_of.get(owner as usize).copied().unwrap_or(OwnerId::MAX);
        (other.path)(id, leg, part).into_iter().map(|span| PathSpan { owner: owner(span.owner), ..span }).collect()
    }

    /// Hands out the samples on the path of a message over a leg, as [`ByTime::on`].
    pub fn on(&self, m: &Message, leg: Leg, owners: &[Owner], mut each: impl FnMut(&PathSpan, StackSample)) {
        let by_time = self.other(m.id).map_or(&self.own.0, |(by_time, ..)| by_time);
        let moved = if self.other(m.id).is_some() { self.stacks } else { 0 };
        by_time.on(
            (m, leg),
            |part| self.part(m.id, leg, part),
            owners,
            |span, sample| {
                each(span, StackSample { stack: sample.stack + moved, ..sample });
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_lifetime::{Context, Role};
    use tailsight_trace::samples::{FrameRow, SampleRow};

    fn run(ts_ns: u64, function: &str) -> Samples {
        let frame = FrameRow { function: function.into(), ..FrameRow::default() };
        let row = SampleRow { ts_ns, ..SampleRow::default() };
        Samples { rows: vec![row], stacks: vec![vec![0]], frames: vec![frame] }
    }

    /// Both runs have a sample in stack 0 and an owner 0, which is another one; times of one say nothing of the other.
    #[test]
    fn a_message_has_the_samples_and_owners_of_its_own_run() {
        let span = PathSpan { from_ns: 10, to_ns: 20, cpu: Some(0), role: Role::A, owner: 0, begins: true, rule: None };
        let own = |_: u32, _: Leg, _: PathPart<'_>| vec![span];
        let of_other =
            |id: u32, _: Leg, _: PathPart<'_>| vec![PathSpan { from_ns: 100 + u64::from(id), to_ns: 120, ..span }];
        let (first, second) = (run(15, "mine"), run(105, "theirs"));
        let other = Other { samples: &second, path: &of_other, owner_of: &[1], first: (3, 1) };
        let sampled = Sampled::new(&first, &own, Some(other));
        let owners = vec![Owner { context: Context::Own, frames: vec![] }; 2];
        let met = |id| {
            let mut out = vec![];
            let m = Message { id, driver_ns: 1, recv_ns: 1_000, ..Message::default() };
            sampled.on(&m, Leg::Receive, &owners, |span, sample| {
                let name = sampled.samples.stack(sample.stack).next().map(FrameRow::name).unwrap_or_default();
                out.push((span.owner, name));
            });
            out
        };
        assert_eq!(met(2), [(0, "mine".into())]);
        assert_eq!(met(3), [(1, "theirs".into())]);
        assert_eq!(met(9), [], "that message came after the sample");
    }
}
