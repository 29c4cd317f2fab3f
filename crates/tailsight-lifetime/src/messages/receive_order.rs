//! Whether an event loop works on each message as soon as it has received it, or first receives all that is ready.
//!
//! In: when it made receive calls, and did other things. Out: which of both, where there are calls enough to tell. All times in ns.

/// Receive calls directly before another one, and others, that a verdict on a loop needs of each.
const FEWEST_CALLS: usize = 20;
/// A loop works on what it received only after it has received all that was ready, if the stretches after the last of several receive calls
/// are so many times as long, at the median, as those between them. Handlers that run inside the receive call's callback take as long
/// in either place.
const DEFERRED_FACTOR: u64 = 3;

/// Whether the loop first receives all that is ready and then works on it (asyncio), in place of working on each at once (Node, Redis);
/// `None`: too few calls to tell. `calls`: when it did something, in order, each with whether that was a receive call.
pub(super) fn works_after_it_received(calls: impl Iterator<Item = (u64, bool)>) -> Option<bool> {
    let (mut between, mut after): (Vec<u64>, Vec<u64>) = (vec![], vec![]);
    let mut last_ns = None;
    for (at, is_received) in calls {
        match last_ns {
            Some(from) if is_received && from < at => between.push(at - from),
            Some(from) if !is_received => after.push(at - from),
            _ => {}
        }
        last_ns = is_received.then_some(at);
    }
    if between.len() < FEWEST_CALLS || after.len() < FEWEST_CALLS {
        return None;
    }
    let median = |times: &mut [u64]| {
        let middle = times.len() / 2;
        *times.select_nth_unstable(middle).1
    };
    Some(median(&mut after) >= DEFERRED_FACTOR * median(&mut between).max(1))
}
