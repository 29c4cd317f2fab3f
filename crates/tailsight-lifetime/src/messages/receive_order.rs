//! Whether an event loop works on each message as soon as it has received it, or first receives all that is ready.
//!
//! In: when it made receive calls, and did other things. Out: which of both, where there are calls enough to tell. All times in ns.

use crate::model::Threshold;

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
    if between.len() < Threshold::ReceiveCalls.count() || after.len() < Threshold::ReceiveCalls.count() {
        return None;
    }
    let median = |times: &mut [u64]| {
        let middle = times.len() / 2;
        *times.select_nth_unstable(middle).1
    };
    Some(median(&mut after) >= Threshold::DeferredWork.count() as u64 * median(&mut between).max(1))
}
