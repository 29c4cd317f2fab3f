//! Goroutines that have messages which another one received.
//!
//! In: which goroutine received which messages, and which goroutines each made (RoutineMade) or made ready (RoutineWoken) then, and where. Out:
//! of a message the [`Handler`] that had it. All times in ns.
//!
//! Of a connection that requests share (HTTP/2, gRPC) one goroutine receives, and makes another one for each request, or gives it to one that waits
//! for work; a third one may write the replies of all. No event says which request a goroutine is for, but order does: the goroutine that
//! received turns to as many others at one place of the program as it received requests, in the order of these, before it receives again. Where the
//! numbers differ, or those of a place differ more than seldom, nothing is concluded. In `net/http` the one that receives hands each frame to
//! another one, which makes them.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::Threshold;

/// Goroutines between two receive calls that are kept. A call returns some kilobytes of requests.
const MOST_AT_ONCE: usize = 1_024;

/// The goroutine that had a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handler {
    /// Which.
    pub task: u64,
    /// When it was made for it, or made ready.
    pub from_ns: u64,
    /// It was made; else it had waited for work.
    pub was_made: bool,
}

/// A goroutine to which the one that receives turned.
#[derive(Clone, Copy, Debug)]
struct Handed {
    place: u32,
    to: Handler,
}

/// What a goroutine received in one call, and to whom it turned before the next.
#[derive(Clone, Debug, Default)]
struct Batch {
    messages: std::ops::Range<u32>,
    handed: Vec<Handed>,
}

impl Batch {
    /// The goroutines to which it turned at one of these places, in order.
    fn at(&self, is_one: impl Fn(u32) -> bool) -> impl Iterator<Item = Handler> {
        self.handed.iter().filter(move |handed| is_one(handed.place)).map(|handed| handed.to)
    }

    /// The places, in order.
    fn places(&self) -> Vec<u32> {
        let mut places: Vec<u32> = vec![];
        for handed in &self.handed {
            if !places.contains(&handed.place) {
                places.push(handed.place);
            }
        }
        places
    }

    /// Whether there are as many at a place as messages.
    fn has_one_each(&self, place: u32) -> bool {
        self.at(|at| at == place).count() == self.messages.len()
    }
}

/// In how many calls a place had as many goroutines as the call had requests.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    same: u32,
    others: u32,
}

impl Tally {
    /// Whether those of this place are for requests.
    fn is_for_requests(self) -> bool {
        let calls = self.same + self.others;
        calls >= Threshold::HandedRequests.count() as u32
            && f64::from(self.others) <= Threshold::HandedOthers.share() * f64::from(calls)
    }
}

/// Takes the events.
#[derive(Clone, Debug, Default)]
pub struct Handlers {
    /// By goroutine that received: since then.
    open: FxHashMap<u64, Batch>,
    /// By goroutine that one of those made ready: which one.
    given: FxHashMap<u64, u64>,
    /// Goroutines that several of those made ready: they are no connection's own.
    shared: FxHashSet<u64>,
    batches: Vec<Batch>,
    by_place: FxHashMap<u32, Tally>,
    /// By message.
    of_message: FxHashMap<u32, Handler>,
}

impl Handlers {
    /// A goroutine received messages (as found; none: a part of one, or what is none).
    pub fn took(&mut self, task: u64, messages: std::ops::Range<u32>) {
        if let Some(batch) = self.open.insert(task, Batch { messages, handed: vec![] }) {
            self.close(batch);
        }
    }

    /// The goroutine `by` makes another one, or makes it ready, at this place of the program. The message for which it does, if that is known already.
    pub fn turns(&mut self, by: u64, place: Option<u32>, to: Handler) -> Option<u32> {
        if to.was_made {
            // What was known of another one at this address is so no more.
            self.given.remove(&to.task);
            self.shared.remove(&to.task);
        } else if self.open.contains_key(&by)
            && !self.open.contains_key(&to.task)
            && self.given.insert(to.task, by).is_some_and(|before| before != by)
        {
            self.shared.insert(to.task);
        }
        let receiver = match self.open.contains_key(&by) {
            true => by,
            false => *self.given.get(&by).filter(|_| to.was_made)?,
        };
        let (place, batch) = (place?, self.open.get_mut(&receiver)?);
        if batch.handed.len() >= MOST_AT_ONCE {
            return None;
        }
        batch.handed.push(Handed { place, to });
        let by_place = &self.by_place;
        let is_for_requests = |place: u32| by_place.get(&place).is_some_and(|tally| tally.is_for_requests());
        let message = batch.messages.start + batch.at(|at| at == place).count() as u32 - 1;
        (is_for_requests(place) && batch.messages.contains(&message)).then_some(message)
    }

    fn close(&mut self, batch: Batch) {
        if batch.messages.is_empty() {
            return;
        }
        // Some may have gone to those that waited for work, and some to new ones.
        let is_whole = batch.handed.len() == batch.messages.len();
        for place in batch.places() {
            let tally = self.by_place.entry(place).or_default();
            match is_whole || batch.has_one_each(place) {
                true => tally.same += 1,
                false => tally.others += 1,
            }
        }
        self.batches.push(batch);
    }

    /// All events were taken. `answers`: whether a goroutine answers a message.
    pub fn finish(&mut self, answers: impl Fn(u64, u32) -> bool) {
        // What the recording's end cut off may lack some.
        self.open.clear();
        let by_place = &self.by_place;
        let is_for_requests = |place: u32| by_place.get(&place).is_some_and(|tally| tally.is_for_requests());
        for batch in std::mem::take(&mut self.batches) {
            let is_theirs = |place: &u32| is_for_requests(*place) && batch.has_one_each(*place);
            // The one that writes replies is made ready by many, and has none of the messages, unless nobody else has.
            let only_answers = |place: &u32| {
                let mut pairs = batch.at(|at| at == *place).zip(batch.messages.clone());
                pairs.all(|(handler, message)| answers(handler.task, message))
            };
            // Nor has the one to which a connection's frames are handed, where that makes others.
            let hands_on = |place: &u32| {
                let mut theirs = batch.at(|at| at == *place);
                theirs.all(|handler| !handler.was_made && !self.shared.contains(&handler.task))
            };
            let places = batch.places();
            let mut theirs = places.iter().copied().filter(is_theirs);
            let serve = theirs.clone().filter(|place| !only_answers(place));
            let place = serve.clone().find(|place| !hands_on(place)).or_else(|| serve.clone().next());
            let place = place.or_else(|| theirs.next());
            let handlers: Vec<Handler> = match place {
                Some(place) => batch.at(|at| at == place).collect(),
                None => batch.at(is_for_requests).collect(),
            };
            if handlers.len() == batch.messages.len() {
                self.of_message.extend(batch.messages.clone().zip(handlers));
            }
        }
    }

    /// The messages have other numbers from here on. `order`: the number so far of each.
    pub fn renumber(&mut self, order: &[u32]) {
        if self.of_message.is_empty() {
            return;
        }
        let before = std::mem::take(&mut self.of_message);
        self.of_message = order.iter().zip(0..).filter_map(|(was, is)| Some((is, *before.get(was)?))).collect();
    }

    /// The goroutine that had a message.
    pub fn of(&self, message: u32) -> Option<Handler> {
        self.of_message.get(&message).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTION: u64 = 1;
    const GO_STATEMENT: Option<u32> = Some(7);
    const ANOTHER: Option<u32> = Some(8);

    fn handler(task: u64) -> Handler {
        Handler { task, from_ns: task, was_made: true }
    }

    fn woken(task: u64) -> Handler {
        Handler { was_made: false, ..handler(task) }
    }

    /// A connection whose goroutine received so many requests in each call, and turned to goroutines at these places; of `ANOTHER` they waited.
    fn handed(calls: &[(u32, &[Option<u32>])]) -> (Handlers, Vec<Option<u32>>) {
        let mut handlers = Handlers::default();
        let (mut message, mut task) = (0, 100);
        let mut told = vec![];
        for &(messages, places) in calls {
            handlers.took(CONNECTION, message..message + messages);
            message += messages;
            for &place in places {
                let to = if place == ANOTHER { woken(task) } else { handler(task) };
                told.push(handlers.turns(CONNECTION, place, to));
                task += 1;
            }
        }
        handlers.took(CONNECTION, message..message);
        handlers.finish(|_, _| false);
        (handlers, told)
    }

    fn tasks(handlers: &Handlers, messages: u32) -> Vec<u64> {
        (0..messages).map(|message| handlers.of(message).map_or(0, |handler| handler.task)).collect()
    }

    const ONE: (u32, &[Option<u32>]) = (1, &[GO_STATEMENT]);

    #[test]
    fn each_request_has_the_goroutine_that_was_made_in_its_turn() {
        let mut calls = vec![ONE; 9];
        calls.push((2, &[GO_STATEMENT, GO_STATEMENT]));
        let (handlers, told) = handed(&calls);
        assert_eq!(tasks(&handlers, 11), (100..111).collect::<Vec<u64>>());
        // The place is known by then.
        assert_eq!(told[8..], [Some(8), Some(9), Some(10)]);
        assert_eq!(told[0], None);
    }

    #[test]
    fn where_the_numbers_differ_nothing_is_said() {
        let mut calls = vec![ONE; 60];
        calls[20] = (2, &[GO_STATEMENT]);
        calls[30] = (1, &[ANOTHER]);
        let (handlers, _) = handed(&calls);
        let none: Vec<u32> = (0..61).filter(|&message| handlers.of(message).is_none()).collect();
        assert_eq!(none, [20, 21, 31]);
    }

    #[test]
    fn a_place_at_which_others_are_made_too_is_none_for_requests() {
        let mut calls = vec![ONE; 20];
        for call in calls.iter_mut().step_by(4) {
            *call = (1, &[GO_STATEMENT, GO_STATEMENT]);
        }
        assert_eq!(tasks(&handed(&calls).0, 20), [0; 20]);
    }

    /// gRPC with workers: what no worker waits for goes to a new goroutine.
    #[test]
    fn what_waits_for_work_gets_requests_and_new_ones_get_the_rest() {
        let mut calls = vec![ONE; 10];
        calls.extend([(1, &[ANOTHER] as &[Option<u32>]); 10]);
        calls.push((3, &[ANOTHER, GO_STATEMENT, ANOTHER]));
        let (handlers, _) = handed(&calls);
        assert_eq!(tasks(&handlers, 23), (100..123).collect::<Vec<u64>>());
        assert!(!handlers.of(20).unwrap().was_made && handlers.of(21).unwrap().was_made);
    }

    /// The one that writes replies is made ready for each request, too, by the one that receives.
    #[test]
    fn who_only_answers_has_no_message_where_another_one_may_have_it() {
        const WRITER: u64 = 5;
        let of = |writer_first: bool, has_others: bool| {
            let mut handlers = Handlers::default();
            for message in 0..20 {
                handlers.took(CONNECTION, message..message + 1);
                let mut turns = vec![(GO_STATEMENT, handler(100 + u64::from(message))), (ANOTHER, woken(WRITER))];
                if writer_first {
                    turns.reverse();
                }
                turns.retain(|(_, to)| has_others || to.task == WRITER);
                for (place, to) in turns {
                    handlers.turns(CONNECTION, place, to);
                }
            }
            handlers.took(CONNECTION, 20..20);
            handlers.finish(|task, _| task == WRITER);
            tasks(&handlers, 20)
        };
        let made: Vec<u64> = (100..120).collect();
        assert_eq!([of(false, true), of(true, true)], [made.clone(), made]);
        assert_eq!(of(false, false), [WRITER; 20]);
    }

    /// `net/http`: one goroutine reads frames, another one makes a goroutine for each request, and one for each reply that it writes.
    #[test]
    fn one_that_was_handed_what_was_received_makes_them() {
        const SERVE: u64 = 2;
        let mut handlers = Handlers::default();
        handlers.took(CONNECTION, 0..0);
        for message in 0..20 {
            handlers.took(CONNECTION, message..message + 1);
            handlers.turns(CONNECTION, Some(9), woken(SERVE));
            handlers.turns(SERVE, GO_STATEMENT, handler(100 + u64::from(message)));
            handlers.turns(SERVE, ANOTHER, handler(200 + u64::from(message)));
        }
        handlers.took(CONNECTION, 20..20);
        handlers.finish(|task, _| task >= 200);
        assert_eq!(tasks(&handlers, 20), (100..120).collect::<Vec<u64>>());
    }

    #[test]
    fn messages_keep_theirs_where_they_are_sorted() {
        let (mut handlers, _) = handed(&[ONE; 9]);
        handlers.renumber(&[8, 0, 3]);
        assert_eq!(tasks(&handlers, 4), [108, 100, 103, 0]);
    }
}
