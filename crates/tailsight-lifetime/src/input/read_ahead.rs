//! Reads and unpacks the next events of each core on a separate thread while the current ones are processed.
//!
//! In: the sources of a run. Out: the same chunks in the same order, from [`Ahead`], which is a source itself. One chunk per core is
//! read ahead, so memory is proportional to the chunks.

use std::sync::mpsc::{Receiver, Sender, channel};

use tailsight_trace::{Error, Event};

use crate::input::merge::Source;

/// A core's events, of which the next chunk is being read.
#[derive(Debug)]
pub struct Ahead {
    cpu: u32,
    events: usize,
    ready: Vec<Event>,
    /// Its place among the sources.
    place: usize,
    /// Asks for the next chunk of the source at a place, in this memory.
    ask: Sender<(usize, Vec<Event>)>,
    /// What was asked for; an empty chunk is the end.
    next: Receiver<Result<Vec<Event>, Error>>,
    /// There is nothing more to ask for.
    ended: bool,
}

impl Source for Ahead {
    fn cpu(&self) -> u32 {
        self.cpu
    }
    fn events(&self) -> usize {
        self.events
    }
    fn ready(&self) -> &[Event] {
        &self.ready
    }
    fn advance(&mut self) -> Result<bool, Error> {
        if self.ended {
            self.ready.clear();
            return Ok(false);
        }
        // A reader that is gone panicked, and the scope that it runs in says so.
        let chunk = self.next.recv().unwrap_or_else(|_| Ok(Vec::new()));
        self.ended = !matches!(&chunk, Ok(events) if !events.is_empty());
        let used = std::mem::replace(&mut self.ready, chunk?);
        if !self.ended {
            let _ = self.ask.send((self.place, used));
        }
        Ok(!self.ended)
    }
}

/// Gives `work` the sources such that the next chunk of each is read while it works on the current one.
pub fn reading_ahead<S: Source + Send, T>(sources: &mut [S], work: impl FnOnce(Vec<Ahead>) -> T) -> T {
    let (ask, asked) = channel();
    let (mut given, mut ahead) = (Vec::new(), Vec::new());
    for (place, source) in sources.iter().enumerate() {
        let (give, next) = channel();
        let (cpu, events) = (source.cpu(), source.events());
        // The receiver is here, so sending cannot fail.
        let _ = ask.send((place, Vec::new()));
        given.push(give);
        ahead.push(Ahead { cpu, events, ready: Vec::new(), place, ask: ask.clone(), next, ended: false });
    }
    drop(ask);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (place, mut chunk) in asked {
                let source = &mut sources[place];
                let read = source.advance().map(|more| {
                    if more {
                        source.take_ready(&mut chunk);
                    } else {
                        chunk.clear();
                    }
                    chunk
                });
                // Whoever asked may have given up since, because of another source's error.
                let _ = given[place].send(read);
            }
        });
        work(ahead)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks of given sizes, then an error or the end.
    struct Chunks {
        left: Vec<usize>,
        fails: bool,
        ready: Vec<Event>,
        given: u64,
    }

    impl Source for Chunks {
        fn cpu(&self) -> u32 {
            7
        }
        fn events(&self) -> usize {
            self.left.iter().sum()
        }
        fn ready(&self) -> &[Event] {
            &self.ready
        }
        fn advance(&mut self) -> Result<bool, Error> {
            if self.left.is_empty() {
                self.ready.clear();
                return if self.fails { Err(Error::OutOfOrder { path: "here".into() }) } else { Ok(false) };
            }
            let size = self.left.remove(0);
            self.ready = (self.given..).take(size).map(|ts| Event { ts, ..Event::default() }).collect();
            self.given += size as u64;
            Ok(true)
        }
    }

    fn chunks(left: &[usize], fails: bool) -> Chunks {
        Chunks { left: left.to_vec(), fails, ready: vec![], given: 0 }
    }

    #[test]
    fn every_chunk_comes_once_in_order_and_the_end_stays_the_end() {
        let mut sources = [chunks(&[3, 1, 4], false), chunks(&[], false), chunks(&[2], false)];
        let sizes = reading_ahead(&mut sources, |mut ahead| {
            assert_eq!((ahead[0].cpu(), ahead[0].events()), (7, 8));
            let mut chunks_and_times = |i: usize| {
                let (mut sizes, mut times) = (Vec::new(), Vec::new());
                while ahead[i].advance().unwrap() {
                    sizes.push(ahead[i].ready().len());
                    times.extend(ahead[i].ready().iter().map(|e| e.ts));
                }
                assert!(!ahead[i].advance().unwrap() && ahead[i].ready().is_empty());
                assert!(times.iter().copied().eq(0..times.len() as u64), "{times:?}");
                sizes
            };
            [chunks_and_times(0), chunks_and_times(1), chunks_and_times(2)]
        });
        assert_eq!(sizes, [vec![3, 1, 4], vec![], vec![2]]);
    }

    #[test]
    fn an_error_comes_after_what_was_read_before_it() {
        let mut sources = [chunks(&[2], true), chunks(&[5, 5], false)];
        reading_ahead(&mut sources, |mut ahead| {
            assert!(ahead[0].advance().unwrap());
            assert!(matches!(ahead[0].advance(), Err(Error::OutOfOrder { .. })));
            assert!(!ahead[0].advance().unwrap());
            // The other one is left in the middle.
            assert!(ahead[1].advance().unwrap());
        });
    }
}
