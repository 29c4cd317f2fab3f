//! Threads that serve one connection each, and read from it what no reply answers.
//!
//! In: receive calls, send calls and sleeps of the target's threads. Out: whether a thread that receives from its connection had waited
//! for more of it, with nothing else to do. It then owed nothing: what it had received before was a part of what it received now, or a
//! message that no reply answers (the end of a prepared statement, a `noreply` command). Without that, such a message was taken as
//! answered by the reply to the next one, and the client's pause between them as the server's time. An event loop is not judged: it may
//! wait for another server's answer in the same call. A thread that comes back to a connection after it has received from another one, or
//! that receives datagrams, is an event loop, whatever it waits in.

use rustc_hash::{FxHashMap, FxHashSet};
use tailsight_trace::FlowKey;

#[derive(Clone, Copy, Debug)]
struct Thread {
    key: FlowKey,
    /// Since when it has received from this connection and from no other one.
    since: u64,
    /// When it last began to wait for data.
    waited: u64,
    /// When it last sent something to anybody else.
    elsewhere: u64,
}

/// All threads of the target that received.
#[derive(Debug, Default)]
pub(super) struct Connections {
    threads: FxHashMap<u32, Thread>,
    /// When each connection was first received from, and by which thread last.
    first: FxHashMap<FlowKey, (u64, u32)>,
    loops: FxHashSet<u32>,
}

impl Connections {
    /// A receive call on a TCP connection returned data at `ts`.
    pub(super) fn received(&mut self, tid: u32, key: FlowKey, ts: u64) {
        let mut before = None;
        let receiver = self.first.entry(key).and_modify(|receiver| before = Some(*receiver)).or_insert((ts, tid));
        receiver.1 = tid;
        let thread = self.threads.entry(tid).or_insert(Thread { key, since: ts, waited: 0, elsewhere: 0 });
        if thread.key != key {
            *thread = Thread { key, since: ts, ..*thread };
            if before.is_some_and(|(_, by)| by == tid) {
                self.loops.insert(tid);
            }
        }
    }

    /// A receive call returned a datagram.
    pub(super) fn received_datagram(&mut self, tid: u32) {
        self.loops.insert(tid);
    }

    /// The threads that serve several connections at a time.
    pub(super) fn into_loops(self) -> FxHashSet<u32> {
        self.loops
    }

    /// A send call ended at `ts`. `key`: none, if it went to another server.
    pub(super) fn sent(&mut self, tid: u32, key: Option<FlowKey>, ts: u64) {
        if let Some(thread) = self.threads.get_mut(&tid).filter(|thread| Some(thread.key) != key) {
            thread.elsewhere = ts;
        }
    }

    /// A thread fell asleep at `ts` in a call that waits for data of one socket or of a few.
    pub(super) fn waits(&mut self, tid: u32, ts: u64) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.waited = ts;
        }
    }

    /// Another connection has these ports now.
    pub(super) fn opened(&mut self, key: FlowKey) {
        self.first.remove(&key);
    }

    /// Whether the thread serves this connection alone, and has waited for more of it since `received`, when it had received something
    /// that it did not answer. To ask before [`Connections::received`] is told of the call.
    pub(super) fn owes_nothing(&self, tid: u32, key: FlowKey, received: u64) -> bool {
        self.threads.get(&tid).is_some_and(|thread| {
            let alone = thread.key == key && self.first.get(&key).is_some_and(|(first, _)| *first == thread.since);
            alone && thread.waited > received && thread.elsewhere < received
        })
    }
}
