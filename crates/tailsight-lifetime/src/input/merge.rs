//! The events of all cores in time order, from memory or a batch at a time from a run.

use std::borrow::Cow;

use tailsight_trace::read::CpuEvents;
use tailsight_trace::{Error, Event, EventStream};

/// One core's events in time order, a chunk at a time.
pub trait Source {
    /// The core.
    fn cpu(&self) -> u32;
    /// How many events there are.
    fn events(&self) -> usize;
    /// The chunk that the last `advance` made ready.
    fn ready(&self) -> &[Event];
    /// Goes to the next chunk; `false`: there is none.
    ///
    /// # Errors
    /// Those of reading.
    fn advance(&mut self) -> Result<bool, Error>;
    /// Moves the ready events to `chunk`, in place of what it holds; until the next `advance` there are no others.
    fn take_ready(&mut self, chunk: &mut Vec<Event>) {
        chunk.clear();
        chunk.extend_from_slice(self.ready());
    }
}

impl Source for EventStream {
    fn cpu(&self) -> u32 {
        self.cpu
    }
    fn events(&self) -> usize {
        self.rows() as usize
    }
    fn ready(&self) -> &[Event] {
        self.ready()
    }
    fn advance(&mut self) -> Result<bool, Error> {
        self.advance()
    }
    fn take_ready(&mut self, chunk: &mut Vec<Event>) {
        self.take_ready(chunk);
    }
}

/// Events in memory: one chunk.
#[derive(Debug)]
pub struct Whole<'a> {
    cpu: u32,
    events: Cow<'a, [Event]>,
    begun: bool,
}

impl Source for Whole<'_> {
    fn cpu(&self) -> u32 {
        self.cpu
    }
    fn events(&self) -> usize {
        self.events.len()
    }
    fn ready(&self) -> &[Event] {
        &self.events
    }
    fn advance(&mut self) -> Result<bool, Error> {
        Ok(!std::mem::replace(&mut self.begun, true) && !self.events.is_empty())
    }
}

/// Sources of events in memory. Those that are not in time order (the reader of runs gives none such) are put in order
/// first: every difference of times relies on it.
pub fn in_memory(cpus: &[CpuEvents]) -> Vec<Whole<'_>> {
    let mut sources = Vec::with_capacity(cpus.len());
    for core in cpus {
        let mut events = Cow::Borrowed(&core.events[..]);
        if !events.is_sorted_by_key(|e| e.ts) {
            events.to_mut().sort_by_key(|e| e.ts);
        }
        sources.push(Whole { cpu: core.cpu, events, begun: false });
    }
    sources
}

/// Feeds the events of all cores in time order. Bursts of one core are fed without looking at the others.
///
/// # Errors
/// Those of the sources.
pub fn in_time_order<S: Source>(sources: &mut [&mut S], mut each: impl FnMut(u16, &Event)) -> Result<(), Error> {
    let mut heads: Vec<(u64, usize, usize)> = Vec::with_capacity(sources.len());
    for (i, source) in sources.iter_mut().enumerate() {
        if source.advance()? {
            heads.push((source.ready()[0].ts, i, 0));
        }
    }
    heads.sort_unstable_by(|a, b| b.cmp(a)); // the earliest last, where popping is cheap
    while let Some(&(_, i, mut at)) = heads.last() {
        let last = heads.len() - 1;
        let limit = heads[..last].last().map_or(u64::MAX, |h| h.0);
        let source = &mut *sources[i];
        let cpu = source.cpu() as u16;
        loop {
            let rest = &source.ready()[at..];
            let burst = rest.iter().take_while(|e| e.ts <= limit);
            at += burst.map(|event| each(cpu, event)).count();
            if let Some(next) = source.ready().get(at) {
                let head = (next.ts, i, at);
                let place = heads[..last].partition_point(|h| *h > head);
                // Mostly it is the next source's turn: one head moves, which takes no call. What was just written is not moved, for that
                // would wait for the write.
                if place + 1 == last {
                    heads[last] = heads[place];
                } else {
                    heads.copy_within(place..last, place + 1);
                }
                heads[place] = head;
                break;
            }
            at = 0;
            if !source.advance()? {
                heads.pop();
                break;
            }
        }
    }
    Ok(())
}
