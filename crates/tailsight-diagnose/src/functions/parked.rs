//! What a task waits for, by the functions of the place where it does.
//!
//! In: the owners of a run, its call stacks, what runtimes do in which functions. Out: [`ParkedPlaces`]: of an owner that is such a wait its
//! category and what the runtime does there. A place of which nothing is known has none, and the category table says what it says.

use rustc_hash::FxHashMap;
use tailsight_lifetime::{Context, Frame, Owner};
use tailsight_trace::samples::{FrameRow, Samples};

use super::runtimes::{Runtime, Runtimes};
use crate::categories::CategoryMatch;
use crate::cause::{Category, Subject};

/// What is waited for, by place.
#[derive(Clone, Debug, Default)]
pub struct ParkedPlaces {
    /// By where it began and where it was ended.
    by_places: FxHashMap<Places, CategoryMatch>,
}

impl ParkedPlaces {
    /// Of all places at which tasks that had a message waited.
    /// `other`: the samples of a run that is compared with, whose stacks are numbered behind those of this one.
    pub fn new(owners: &[Owner], samples: &Samples, other: Option<&Samples>, runtimes: &Runtimes) -> ParkedPlaces {
        let own = samples.stacks.len() as u32;
        let waits_at = |stack: u32| {
            let frames: Vec<&FrameRow> = match (stack.checked_sub(own), other) {
                (Some(of_other), Some(other)) => other.stack(of_other).collect(),
                _ => samples.stack(stack).collect(),
            };
            waits_in(frames.into_iter(), runtimes)
        };
        let mut by_places = FxHashMap::default();
        for places in owners.iter().filter_map(places) {
            // Where it began says more; a compiler may have put that into its caller.
            let runtime = places.0.and_then(waits_at).or_else(|| places.1.and_then(waits_at));
            if let Some(runtime) = runtime {
                by_places.entry(places).or_insert_with(|| match_of(runtime));
            }
        }
        ParkedPlaces { by_places }
    }

    /// What an owner waits for, if it is such a wait and its places tell.
    pub fn of(&self, owner: &Owner) -> Option<&CategoryMatch> {
        places(owner).and_then(|places| self.by_places.get(&places))
    }
}

/// Where a wait began and where it was ended: call stacks by number.
type Places = (Option<u32>, Option<u32>);

/// The places of the task's wait that this is.
fn places(owner: &Owner) -> Option<Places> {
    if owner.context != Context::Blocked || owner.frames.first() != Some(&Frame::Parked) {
        return None;
    }
    let places_of = |frame: &Frame| match *frame {
        Frame::Place { stack } => (Some(stack), None),
        Frame::MadeReady { stack } => (None, Some(stack)),
        _ => (None, None),
    };
    Some(owner.frames.iter().map(places_of).fold((None, None), |a, b| (a.0.or(b.0), a.1.or(b.1))))
}

/// What is known of the outermost function that the program called: `database/sql.(*DB).conn` and not the channel inside of it. `frames`:
/// innermost first.
fn waits_in<'a>(frames: impl Iterator<Item = &'a FrameRow>, runtimes: &Runtimes) -> Option<&Runtime> {
    frames.take_while(|frame| !frame.own).filter_map(|frame| runtimes.known(frame)).last()
}

fn match_of(runtime: &Runtime) -> CategoryMatch {
    let subject = Subject::Runtime { of: runtime.of.clone(), does: runtime.does.clone() };
    CategoryMatch::new(runtime.waits_are().unwrap_or(Category::AppProcessing), subject, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A goroutine that waited for a lock was `waits in epoll_pwait`, with advice to look with strace.
    #[test]
    fn the_call_of_the_program_says_what_is_waited_for() {
        let frame = |function: &str, own| FrameRow { function: function.into(), own, ..FrameRow::default() };
        let samples = Samples {
            frames: vec![
                frame("runtime.gopark", false),
                frame("runtime.selectgo", false),
                frame("database/sql.(*DB).conn", false),
                frame("main.report", true),
                frame("net/http.(*conn).serve", false),
                frame("internal/sync.(*Mutex).lockSlow", false),
                frame("main.unknown", true),
                frame("asyncio.locks.Semaphore.acquire", false),
                frame("asyncio.locks._ContextManagerMixin.__aenter__", false),
                frame("shop.render", true),
            ],
            stacks: vec![vec![0, 1, 2, 3, 4], vec![0, 5, 3, 4], vec![7, 8, 9], vec![0, 6, 5]],
            ..Samples::default()
        };
        let owner = |stack| Owner { context: Context::Blocked, frames: vec![Frame::Parked, Frame::Place { stack }] };
        let owners = [owner(0), owner(1), owner(2), owner(3), Owner { context: Context::Own, frames: vec![] }];
        let parked = ParkedPlaces::new(&owners, &samples, None, &Runtimes::default());
        let said = owners.each_ref().map(|owner| parked.of(owner).map(|said| (said.category, said.name.as_str())));
        assert_eq!(said[0], Some((Category::PoolWait, "Go waiting for a free connection to a database")));
        assert_eq!(said[1], Some((Category::LockWait, "Go waiting for a lock of the program")));
        assert_eq!(said[2], Some((Category::PoolWait, "asyncio waiting for a place in a semaphore")));
        assert_eq!(said[3..], [None, None], "what it waits for behind the program's own function is not known");
    }
}
