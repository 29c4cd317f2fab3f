//! The waits of a goroutine beside its calls to other servers.
//!
//! In: waits as looks saw them, calls. Out: the same waits, with what the calls tell of their begins and ends. All times in ns.

use crate::messages::backend_calls::Call;
use crate::messages::routines::Parked;

/// So much of a wait (one of so many parts) may follow after a connection was free until the request is sent on it.
const HANDED_OVER: u64 = 10;

/// The waits of a goroutine with what its calls tell: it did not wait for an answer before it had asked, nor after the answer had come. Where
/// it was before that, the look that saw it wait for the answer does not tell; if the connection was not free until then, it waited for that.
pub fn beside_calls(waits: Vec<Parked>, calls: &[Call]) -> Vec<Parked> {
    let mut out = waits;
    for call in calls.iter().filter(|call| call.sent != 0) {
        let sent = call.sent;
        let in_line =
            |from: u64| (from..sent).contains(&call.freed) && (sent - call.freed) * HANDED_OVER <= sent - from;
        let first = out.partition_point(|wait| wait.looks_ns.1 <= sent);
        if let Some(before) = out[..first].last_mut().filter(|before| in_line(before.looks_ns.1)) {
            before.to = before.to.max(call.freed);
        }
        let upto = out[..first].last().map_or(0, |before| before.to);
        let Some(wait) = out.get_mut(first).filter(|wait| sent < wait.looks_ns.0) else { continue };
        if wait.looks_ns.1 <= call.to {
            wait.to = wait.to.min(call.to.max(wait.looks_ns.1));
        }
        let from = wait.from.max(upto);
        wait.from = wait.from.max(sent);
        if from < sent {
            let waited = Parked {
                is_ready: false,
                from,
                to: sent,
                stack: None,
                looks_ns: (from, from),
                ended: None,
                turn: 0,
                for_others: false,
            };
            let waited = match in_line(from) {
                true => Parked { to: call.freed, turn: call.peer, ..waited },
                false => waited,
            };
            out.insert(first, waited);
        }
    }
    out
}
