//! The events of one core in time order, a batch at a time: an analysis takes memory for a window of a run, not for all
//! of its events.
//!
//! In: a stream of the run directory. Out: runs of events, each later than the ones before. A stream is nearly sorted:
//! an event that was interrupted between taking its slot and reading the clock is later than the events nested in it,
//! so the last events of each batch are held back until the next one is there.

use std::path::PathBuf;

use crate::error::Error;
use crate::event::Event;
use crate::read::{Batches, event_rows};
use crate::seal::Seals;
use crate::write::BATCH_EVENTS;

/// Events held back: more than can be nested in one interruption.
const HELD_BACK: usize = 8192;

/// One core's events, see [`crate::Run::streams`].
#[derive(Debug)]
pub struct EventStream {
    /// The core.
    pub cpu: u32,
    path: PathBuf,
    batches: Batches,
    /// Events that are ready, then those held back; in time order.
    window: Vec<Event>,
    ready: usize,
    /// Time of the last event that was given out.
    upto: u64,
    /// Events read.
    taken: u64,
}

impl EventStream {
    /// Opens one core's file.
    pub(crate) fn open(cpu: u32, path: PathBuf, seals: &Seals) -> Result<EventStream, Error> {
        let batches = Batches::open(path.clone(), &format!("events/cpu-{cpu}.arrow"), seals)?;
        let window = Vec::with_capacity(HELD_BACK + (batches.rows as usize).min(BATCH_EVENTS));
        Ok(EventStream { cpu, path, batches, window, ready: 0, upto: 0, taken: 0 })
    }

    /// Events in the file, as far as it can be read.
    pub fn rows(&self) -> u64 {
        self.batches.rows
    }

    /// Events read so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// When everything was read: why the stream is cut there, if it is.
    pub fn cut(&self) -> Option<&str> {
        self.batches.cut.as_deref()
    }

    /// The events that the last [`EventStream::advance`] made ready.
    pub fn ready(&self) -> &[Event] {
        &self.window[..self.ready]
    }

    /// Moves the ready events to `chunk` and uses its memory from now on. Only the events held back are copied: a small part
    /// of the window.
    pub fn take_ready(&mut self, chunk: &mut Vec<Event>) {
        chunk.clear();
        chunk.reserve(self.window.capacity());
        chunk.extend_from_slice(&self.window[self.ready..]);
        self.window.truncate(self.ready);
        std::mem::swap(&mut self.window, chunk);
        self.ready = 0;
    }

    /// Replaces the ready events by the ones after them; `false`: there are none.
    ///
    /// # Errors
    /// [`Error::Read`] when the stream is not one of ours, [`Error::OutOfOrder`] when an event comes so late that events
    /// after it were given out: [`crate::Run::events`] reads such a run.
    pub fn advance(&mut self) -> Result<bool, Error> {
        self.window.drain(..self.ready);
        self.ready = 0;
        let sorted = self.window.len();
        let mut more = true;
        while more && self.window.len() <= HELD_BACK {
            more = self.next_batch()?;
        }
        sort_by_time(&mut self.window, sorted);
        if self.window.first().is_some_and(|e| e.ts < self.upto) {
            return Err(Error::OutOfOrder { path: self.path.clone() });
        }
        self.ready = if more { self.window.len() - HELD_BACK } else { self.window.len() };
        self.upto = self.ready().last().map_or(self.upto, |e| e.ts);
        Ok(self.ready > 0)
    }

    /// Every event, sorted by time.
    pub(crate) fn read_all(&mut self) -> Result<Vec<Event>, Error> {
        self.window.reserve(self.batches.rows as usize);
        while self.next_batch()? {}
        sort_by_time(&mut self.window, 0);
        Ok(std::mem::take(&mut self.window))
    }

    fn next_batch(&mut self) -> Result<bool, Error> {
        let before = self.window.len();
        let more = self.batches.next(|batch| event_rows(batch, &mut self.window))?;
        self.taken += (self.window.len() - before) as u64;
        Ok(more)
    }
}

/// Sorts by time; ties keep the order of recording. The first `sorted` events are in order already, and the rest nearly
/// so: each late one is moved to its place.
fn sort_by_time(events: &mut [Event], sorted: usize) {
    let mut moves_left = 8 * events.len();
    for i in sorted.max(1)..events.len() {
        let ts = events[i].ts;
        if ts >= events[i - 1].ts {
            continue;
        }
        let place = events[..i].partition_point(|e| e.ts <= ts);
        match moves_left.checked_sub(i - place) {
            Some(left) => moves_left = left,
            // Nothing like a recording.
            None => return events.sort_by_key(|e| e.ts),
        }
        events[place..=i].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::State;
    use crate::{Run, RunMeta, RunWriter};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorting_is_that_of_the_standard_library(times in prop::collection::vec(0u64..300, 0..400), sorted in 0usize..400) {
            let mut events: Vec<Event> =
                (0u64..).zip(&times).map(|(i, &ts)| Event { ts, a: i, ..Event::default() }).collect();
            let sorted = sorted.min(events.len());
            events[..sorted].sort_by_key(|e| e.ts);
            let mut expected = events.clone();
            expected.sort_by_key(|e| e.ts);
            sort_by_time(&mut events, sorted);
            prop_assert_eq!(events, expected);
        }
    }

    /// The streams of a run with these events on core 0, in batches of at most `batch`.
    fn recorded(events: &[Event], batch: usize) -> (tempfile::TempDir, Run) {
        let dir = tempfile::tempdir().unwrap();
        let mut meta = RunMeta { format: "tailsight-run".into(), version: crate::FORMAT_VERSION, ..RunMeta::default() };
        let mut writer = RunWriter::create(&dir.path().join("run"), &meta).unwrap();
        events.chunks(batch).for_each(|chunk| writer.events(0, chunk).unwrap());
        meta.state = State::Complete;
        writer.finish(&mut meta).unwrap();
        let run = Run::open(&dir.path().join("run")).unwrap();
        (dir, run)
    }

    fn streamed(run: &Run) -> Result<Vec<Event>, Error> {
        let mut stream = run.streams()?.remove(0);
        let mut events = Vec::new();
        while stream.advance()? {
            events.extend_from_slice(stream.ready());
        }
        Ok(events)
    }

    /// Each third event comes late, by less than what is held back, across the borders of batches as inside them.
    #[test]
    fn a_nearly_sorted_stream_is_that_of_the_whole_run() {
        let late = |i: u64| if i.is_multiple_of(3) { 30_000 + i % 7 } else { 0 };
        let events: Vec<Event> =
            (0..40_000u64).map(|i| Event { ts: 100_000 + 10 * i - late(i), a: i, ..Event::default() }).collect();
        for batch in [1000, 9000, 65_536] {
            let (_dir, mut run) = recorded(&events, batch);
            let whole = run.events().unwrap().remove(0).events;
            assert_eq!(whole.len(), events.len());
            assert!(streamed(&run).unwrap() == whole, "in batches of {batch}");
            let (mut stream, mut chunk, mut taken) = (run.streams().unwrap().remove(0), Vec::new(), Vec::new());
            while stream.advance().unwrap() {
                stream.take_ready(&mut chunk);
                assert!(stream.ready().is_empty());
                taken.extend_from_slice(&chunk);
            }
            assert!(taken == whole, "moved, in batches of {batch}");
        }
    }

    #[test]
    fn an_event_that_comes_far_too_late_is_an_error_for_the_stream_and_none_for_the_whole() {
        let mut events: Vec<Event> = (0..40_000).map(|i| Event { ts: 1000 + i, ..Event::default() }).collect();
        events[39_000].ts = 1;
        let (_dir, mut run) = recorded(&events, 9000);
        assert!(matches!(streamed(&run), Err(Error::OutOfOrder { .. })));
        assert_eq!(run.events().unwrap()[0].events[0].ts, 1);
    }
}
