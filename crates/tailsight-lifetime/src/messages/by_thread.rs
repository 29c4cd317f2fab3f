//! Something of each message, by the thread that received it, in the order of the messages.
//!
//! Whoever asks what a thread had received before something begins here: the stages of messages, those served out of order, and, in the
//! diagnosis, the messages ahead of one.

use rustc_hash::FxHashMap;

use crate::model::Message;

/// What `what` returns of each message that was received, by thread.
pub fn by_thread<T>(messages: &[Message], what: impl Fn(&Message) -> T) -> FxHashMap<u32, Vec<T>> {
    let mut out: FxHashMap<u32, Vec<T>> = FxHashMap::default();
    // Messages of one thread mostly follow one another.
    for of_thread in messages.chunk_by(|a, b| a.tid == b.tid) {
        let received = of_thread.iter().filter(|m| m.recv_ns != 0).map(&what);
        out.entry(of_thread[0].tid).or_default().extend(received);
    }
    out
}
