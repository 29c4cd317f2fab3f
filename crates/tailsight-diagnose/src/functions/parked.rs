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
            let runtime = places.at.and_then(waits_at).or_else(|| places.ended.and_then(waits_at));
            // Of a turn to ask a server the calls tell which one: only a pool or a lock says more.
            let tells = |runtime: &&Runtime| !places.is_turn || runtime.waits_are().is_some_and(is_in_line);
            if let Some(runtime) = runtime.filter(tells) {
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

/// Where a task waited: call stacks by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Places {
    /// Where it began to.
    at: Option<u32>,
    /// Where that was ended.
    ended: Option<u32>,
    /// It is known to have waited for its turn to ask a server.
    is_turn: bool,
}

/// The places of the task's wait that this is.
fn places(owner: &Owner) -> Option<Places> {
    let is_turn = match owner.frames.first()? {
        Frame::Parked => false,
        Frame::Turn { .. } => true,
        _ => return None,
    };
    if owner.context != Context::Blocked {
        return None;
    }
    let mut places = Places { at: None, ended: None, is_turn };
    for frame in &owner.frames {
        match *frame {
            Frame::Place { stack } => places.at = places.at.or(Some(stack)),
            Frame::MadeReady { stack } => places.ended = places.ended.or(Some(stack)),
            _ => {}
        }
    }
    Some(places)
}

/// Whether who waits so is in line with others of its program.
fn is_in_line(waits_are: Category) -> bool {
    matches!(waits_are, Category::PoolWait | Category::LockWait)
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
                frame("asyncio.queues.Queue.get", false),
            ],
            stacks: vec![vec![0, 1, 2, 3, 4], vec![0, 5, 3, 4], vec![7, 8, 9], vec![0, 6, 5], vec![10, 9]],
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

        // The turn to ask a server that calls tell and that looks tell are one wait; a place that tells less than the calls says nothing.
        let turn = |stack| {
            let turn = Frame::Turn { symbol: 1, guessed: false };
            Owner { context: Context::Blocked, frames: vec![turn, Frame::Place { stack }] }
        };
        let turns = [turn(2), turn(3), turn(4)];
        let places = ParkedPlaces::new(&turns, &samples, None, &Runtimes::default());
        assert_eq!(places.of(&turns[0]), parked.of(&owners[2]));
        assert_eq!((places.of(&turns[1]), places.of(&turns[2])), (None, None));
    }
}
