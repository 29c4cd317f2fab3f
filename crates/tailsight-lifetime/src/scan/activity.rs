//! What walks and rules read: what cores and threads did, whom they served, and which servers they asked.
//!
//! No message is in it. So nothing that follows a thread can ask for messages that were moved elsewhere since, and what it says of a thread
//! is the same for each of them.

use rustc_hash::FxHashMap;

use crate::messages::routines::Routines;
use crate::messages::turns::Turns;
use crate::messages::{UncommonList, backend_calls};
use crate::model::Without;
use crate::timelines::cores::Core;
use crate::timelines::service::Service;
use crate::timelines::threads::Threads;
use crate::timelines::tree::Tree;

/// What cores and threads did.
#[derive(Debug)]
pub struct Activity {
    /// Nodes of the core timelines.
    pub tree: Tree,
    /// Core timelines, by core.
    pub cores: Vec<Core>,
    /// Thread timelines.
    pub threads: Threads,
    /// Whom threads served.
    pub service: Service,
    /// Servers behind the target.
    pub peers: backend_calls::Found,
    /// Rules that walks do not ask.
    pub without_rules: Without,
    /// Times of the first and the last event.
    pub span_ns: (u64, u64),
}

/// How messages were handled, beyond their stages: what the pieces of their paths are made of, besides what threads did.
#[derive(Debug)]
pub struct Handling {
    /// The turns of threads that had several requests open at a time.
    pub turns: Turns,
    /// Goroutines, and tasks of other runtimes.
    pub routines: Routines,
    /// What few messages have, and few of what is sent without a request.
    pub uncommon: UncommonList,
    /// By flow: the times between two send calls of one reply in which its thread went on with it, in order and without overlap.
    pub between_sends: FxHashMap<u32, Vec<(u64, u64)>>,
    /// Where the names of drop reasons begin in the symbols, and how many there are.
    pub(super) drop_reasons: (u32, u32),
}

impl Handling {
    /// The symbol of a drop reason, 0 when its name is not known.
    pub fn drop_reason(&self, reason: u32) -> u32 {
        let (from, names) = self.drop_reasons;
        if reason < names { from + reason } else { 0 }
    }
}

/// What pieces are made of.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// What cores and threads did.
    pub activity: &'a Activity,
    /// How messages were handled.
    pub handling: &'a Handling,
}
