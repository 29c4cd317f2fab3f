//! Whose a request to another server is that another goroutine sent: the writer of a connection of Go's `net/http`, to which the goroutine of
//! a message hands it.
//!
//! In: such calls, the goroutine of each message, looks at goroutines. Out: the message of each call. All times in ns.
//!
//! Where all connections to a server are in use, the goroutine of a message waits for one, and goes on where the answer to another message is
//! received, on that thread: what the thread did before is no evidence then. What the reader of a connection receives it hands to the
//! goroutine that waits for it, which runs next on its thread and, with its only or last answer, sends its reply: that decides first. Else a
//! call is for the message of its thread, or for the only one in service, where looks at its goroutine allow it: one that was seen to wait at
//! one place before and after sent nothing in between, and one waits at one place for an answer. Nobody's are those that could be of several.

use rustc_hash::FxHashMap;

use super::Extra;
use super::routines::Routines;
use crate::model::{Message, Threshold};

/// A call that another goroutine sent than that of a message.
#[derive(Clone, Copy, Debug)]
pub struct Relayed {
    /// The message that its thread worked for.
    pub of: Option<u32>,
    /// When it was sent.
    pub sent: u64,
    /// When the last part of its answer could be read.
    pub ready: u64,
    /// When the last part of its answer was received, and by which thread.
    pub last: (u64, u32),
}

/// Messages in service at once beyond which the only one that may have asked is not looked for.
const MOST_ACTIVE: usize = 64;

/// The message of each call, and whether the order of calls alone says so. `calls`: in the order in which they were sent; `sleeps`: when a thread began to wait for work, in order. Of a
/// program none of whose messages has a known goroutine it is what their threads say.
pub fn tell(
    calls: &[Relayed],
    routines: &Routines,
    messages: &[Message],
    extras: &[Extra],
    sleeps: &impl Fn(u32) -> Vec<u64>,
) -> Vec<Option<(u32, bool)>> {
    let tasks: Vec<Option<u64>> = messages.iter().zip(extras).map(|(m, extra)| routines.of(m, extra)).collect();
    let mut by_task: FxHashMap<u64, Vec<u32>> = FxHashMap::default();
    for (task, message) in tasks.iter().zip(0..) {
        if let Some(task) = task {
            by_task.entry(*task).or_default().push(message);
        }
    }
    let mut whose: Vec<Option<u32>> = calls.iter().map(|call| call.of).collect();
    if by_task.is_empty() {
        return whose.into_iter().map(|whose| Some((whose?, true))).collect();
    }
    let served = messages.iter().filter(|m| m.send_ns > m.recv_ns).count().max(1);
    let usual = (Threshold::CallsRoundedUp.count() * calls.len())
        .saturating_sub(served)
        .div_ceil(Threshold::CallsRoundedUp.count() * served)
        .max(1);
    let around = |m: &Message, call: &Relayed| m.recv_ns != 0 && m.recv_ns <= call.sent && call.ready <= m.send_ns;

    // When the answers of each message's calls were received.
    let mut answers: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
    let mut is_certain = vec![false; calls.len()];
    for (at, next) in next_on_thread(calls, routines, |task| by_task.contains_key(&task), sleeps) {
        let of_task = by_task.get(&next).map_or(&[][..], Vec::as_slice);
        if let Some(&message) = of_task.iter().find(|&&m| around(&messages[m as usize], &calls[at])) {
            (whose[at], is_certain[at]) = (Some(message), true);
            answers.entry(message).or_default().push(calls[at].last.0);
        }
    }

    let mut by_recv: Vec<u32> = (0..messages.len() as u32).filter(|&m| messages[m as usize].send_ns != 0).collect();
    by_recv.sort_unstable_by_key(|&m| messages[m as usize].recv_ns);
    let (mut next, mut active) = (0, Vec::new());
    for (at, call) in calls.iter().enumerate() {
        while next < by_recv.len() && messages[by_recv[next] as usize].recv_ns <= call.sent {
            active.push(by_recv[next]);
            next += 1;
        }
        active.retain(|&m| messages[m as usize].send_ns >= call.sent);
        if is_certain[at] {
            continue;
        }
        let may = |message: u32| {
            let m = &messages[message as usize];
            let answers_ns = answers.get(&message).map_or(&[][..], Vec::as_slice);
            let went_on = |after: u64| answers_ns.iter().any(|&at| after < at && at < call.sent);
            let allowed = |task| routines.may_have_asked(task, m, (call.sent, call.ready), went_on);
            around(m, call) && answers_ns.len() < usual && tasks[message as usize].is_none_or(allowed)
        };
        let only = || {
            let mut can = active.iter().copied().filter(|&message| may(message));
            let first = can.next().filter(|_| active.len() <= MOST_ACTIVE)?;
            can.next().is_none().then_some(first)
        };
        whose[at] = call.of.filter(|&message| may(message)).or_else(only);
        if let Some(message) = whose[at] {
            answers.entry(message).or_default().push(call.last.0);
        }
    }
    whose.into_iter().zip(is_certain).map(|(whose, is_told)| Some((whose?, !is_told))).collect()
}

/// By call the goroutine that its thread was next told to be in after the answer, without waiting for work in between, and without another
/// answer: of two, which is handed on first is not known.
fn next_on_thread(
    calls: &[Relayed],
    routines: &Routines,
    has_message: impl Fn(u64) -> bool,
    sleeps: &impl Fn(u32) -> Vec<u64>,
) -> Vec<(usize, u64)> {
    let mut by_thread: FxHashMap<u32, Vec<(u64, usize)>> = FxHashMap::default();
    for (call, at) in calls.iter().zip(0..) {
        by_thread.entry(call.last.1).or_default().push((call.last.0, at));
    }
    let mut out = Vec::new();
    for (tid, mut received) in by_thread {
        received.sort_unstable();
        let sleeps = sleeps(tid);
        let slept = |from: u64, to: u64| sleeps.get(sleeps.partition_point(|&at| at < from)).is_some_and(|&at| at < to);
        let alone = |from: u64, to: u64| {
            slept(from, to)
                || routines.next_in(tid, from).is_some_and(|(turned, task)| turned < to && has_message(task))
        };
        for (i, &(last, at)) in received.iter().enumerate() {
            let Some((turned, task)) = routines.next_in(tid, last).filter(|&(turned, _)| !slept(last, turned)) else {
                continue;
            };
            let before = i.checked_sub(1).is_none_or(|i| alone(received[i].0, last));
            let after = received.get(i + 1).is_none_or(|&(next, _)| turned < next);
            if before && after {
                out.push((at, task));
            }
        }
    }
    out
}
