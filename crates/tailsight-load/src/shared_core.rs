//! Several loads that poll on one core. In: engines that spin, one from each load. Out: the same, run to their ends.
//!
//! Threads that spin on one core preempt each other for milliseconds at a time. So the engines are passed to the thread that
//! is ready last, which runs them in turn, and the other threads sleep until their engine comes back.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::{Ended, Engine};

/// Where the engines meet.
#[derive(Debug)]
pub(crate) struct SharedCore {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Loads that have neither arrived nor been cancelled.
    missing: usize,
    come: Vec<Member>,
}

/// An engine at its start, and where it goes when its load is over.
struct Member {
    engine: Engine,
    start_ns: u64,
    back: Sender<(Engine, Ended)>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("start_ns", &self.start_ns).finish_non_exhaustive()
    }
}

impl SharedCore {
    /// For this many loads.
    pub(crate) fn new(loads: usize) -> Self {
        Self { state: Mutex::new(State { missing: loads, come: Vec::new() }) }
    }

    /// Runs this load together with the others; `None` when the thread that ran them panicked.
    pub(crate) fn run(&self, engine: Engine, start_ns: u64) -> Option<(Engine, Ended)> {
        let (back, over) = channel();
        self.arrive(Some(Member { engine, start_ns, back }));
        over.recv().ok()
    }

    /// This load will not arrive.
    pub(crate) fn give_up(&self) {
        self.arrive(None);
    }

    /// The last to arrive runs all that have arrived.
    fn arrive(&self, member: Option<Member>) {
        let mut state = self.lock();
        state.missing -= 1;
        state.come.extend(member);
        if state.missing == 0 {
            let arrived = std::mem::take(&mut state.come);
            drop(state);
            run_all(arrived);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No holder can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run_all(mut members: Vec<Member>) {
    for member in &mut members {
        member.engine.begin(member.start_ns);
    }
    while !members.is_empty() {
        let mut at = 0;
        while let Some(member) = members.get_mut(at) {
            match member.engine.turn() {
                None => at += 1,
                Some(ended) => {
                    let mut member = members.remove(at);
                    member.engine.end();
                    // A thread that has ended needs nothing back.
                    let _ = member.back.send((member.engine, ended));
                }
            }
        }
    }
}
