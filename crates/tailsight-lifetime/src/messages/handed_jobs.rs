//! Whose a request to another server is that a thread sent which had received no message: the job of a message whose thread woke it, and which
//! that thread waited for (the fetch of a cache, the future of an executor).
//!
//! In: such calls, the messages with their replies, the timelines of threads. Out: the message of each call. All times in ns.
//!
//! The thread that sends a call is woken by one that has a single message, and when it has the answer, it ends a sleep of the thread that
//! replies to that message, which slept before the answer came. A background thread that contends a lock with the threads of messages shows
//! the same at times. So it counts only where nearly all calls of such threads to a server show it.

use rustc_hash::FxHashMap;

use super::Extra;
use super::by_thread::by_thread;
use crate::model::{Message, Threshold};
use crate::timelines::threads::{Threads, Waker};

/// Sleeps of a thread before it sends that are looked at for the one that its job ended: it may take a lock in between.
const SLEEPS_BEFORE: usize = 8;
/// Messages of a thread that are looked at for those that are not answered yet.
const MESSAGES_BEFORE: usize = 64;

/// A call by a thread that had received no message.
#[derive(Clone, Copy, Debug)]
pub struct CallOfJob {
    /// The server: index into the run's symbols.
    pub server: u32,
    /// The thread that sent it, and when.
    pub sent: (u32, u64),
    /// When the answer could be read.
    pub ready: u64,
    /// The thread that received it, and when.
    pub received: (u32, u64),
}

/// The message of each call, as found; none where that is not known.
pub fn tell(calls: &[CallOfJob], messages: &[Message], extras: &[Extra], threads: &Threads) -> Vec<Option<u32>> {
    let mut received_by = by_thread(messages, |m| (m.recv_ns, m.send_ns));
    let mut index_of: FxHashMap<(u32, u64), u32> = FxHashMap::default();
    for (m, index) in messages.iter().zip(0..) {
        index_of.insert((m.tid, m.recv_ns), index);
    }
    received_by.values_mut().for_each(|received| received.sort_unstable());
    // The message that a thread had at a time, if it was the only one.
    let only_message = |tid: u32, at: u64| {
        let received = received_by.get(&tid)?;
        let upto = received.partition_point(|&(recv_ns, _)| recv_ns <= at);
        let mut open = received[..upto].iter().rev().take(MESSAGES_BEFORE).filter(|&&(_, send_ns)| send_ns > at);
        let (recv_ns, _) = *open.next()?;
        open.next().is_none().then(|| index_of.get(&(tid, recv_ns)).copied())?
    };
    let by_thread_of = |waker: Option<Waker>| waker.filter(|waker| !waker.interrupt).map(|waker| waker.tid);
    let whose = |call: &CallOfJob| {
        let sleeps = threads.get(call.sent.0)?.sleeps_ended(0, call.sent.1).take(SLEEPS_BEFORE);
        let mut handed = sleeps.filter_map(|sleep| only_message(by_thread_of(sleep.waker)?, sleep.to?));
        let message = handed.next()?;
        let replies = extras[message as usize].send_tid;
        let until = messages[message as usize].send_ns;
        let mut ended = threads.get(replies)?.sleeps_ended(call.received.1, until);
        let is_handed_back = |by: u32| by == call.received.0 && by != replies;
        ended
            .any(|sleep| sleep.from < call.ready && by_thread_of(sleep.waker).is_some_and(is_handed_back))
            .then_some(message)
    };
    let mut told: Vec<Option<u32>> = calls.iter().map(whose).collect();
    // By server: calls, and those of them that are told.
    let mut counts: FxHashMap<u32, (usize, usize)> = FxHashMap::default();
    for (call, whose) in calls.iter().zip(&told) {
        let (of_server, of_messages) = counts.entry(call.server).or_default();
        *of_server += 1;
        *of_messages += usize::from(whose.is_some());
    }
    for (call, whose) in calls.iter().zip(&mut told) {
        let (of_server, of_messages) = counts[&call.server];
        let are_jobs = of_messages >= Threshold::AskersTold.count()
            && of_messages as f64 >= Threshold::AskersAgree.share() * of_server as f64;
        *whose = whose.filter(|_| are_jobs);
    }
    told
}
