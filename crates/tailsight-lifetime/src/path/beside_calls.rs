//! The waits of a goroutine beside its calls to other servers.
//!
//! In: waits as looks saw them, calls. Out: the same waits, with what the calls tell of their begins and ends. All times in ns.

use crate::messages::backend_calls::Call;
use crate::messages::routines::Parked;
use crate::model::Threshold;

/// The waits of a goroutine with what its calls tell: it did not wait for an answer before it had asked, nor after the answer had come. Where
/// it was before that, the look that saw it wait for the answer does not tell; if the connection was not free until then, it waited for that.
pub fn beside_calls(waits: Vec<Parked>, calls: &[Call]) -> Vec<Parked> {
    let mut out = waits;
    for call in calls.iter().filter(|call| call.sent != 0) {
        let sent = call.sent;
        let in_line = |from: u64| {
            (from..sent).contains(&call.freed)
                && (sent - call.freed) * Threshold::HandedOver.count() as u64 <= sent - from
        };
        let first = out.partition_point(|wait| wait.looks_ns.1 <= sent);
        let waited_in_line = |before: &&mut Parked| !before.is_ready && in_line(before.looks_ns.1);
        if let Some(before) = out[..first].last_mut().filter(waited_in_line) {
            before.to = before.to.max(call.freed);
        }
        let upto = out[..first].last().map_or(0, |before| before.to);
        let Some(wait) = out.get_mut(first).filter(|wait| sent < wait.looks_ns.0) else { continue };
        if wait.is_ready {
            // It has the answer, and nothing saw it wait for that.
            wait.from = wait.from.max(call.to.min(wait.looks_ns.0));
            continue;
        }
        if wait.looks_ns.1 <= call.to {
            wait.to = wait.to.min(call.to.max(wait.looks_ns.1));
        }
        let from = wait.from.max(upto);
        wait.from = wait.from.max(sent);
        if from < sent {
            let waited = Parked { from, to: sent, looks_ns: (from, from), ..Parked::default() };
            let waited = match in_line(from) {
                true => Parked { to: call.freed, turn: call.peer, ..waited },
                false => waited,
            };
            out.insert(first, waited);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It had asked between two looks, and would have been "ready" while it did and while the answer was on its way.
    #[test]
    fn who_is_ready_has_the_answer_to_what_it_asked() {
        let waited = Parked { from: 100, to: 200, looks_ns: (150, 190), stack: Some(3), ..Parked::default() };
        let ready = Parked { is_ready: true, from: 200, to: 900, looks_ns: (700, 900), ..Parked::default() };
        let call = |sent, to| Call {
            from: sent,
            to,
            received: to,
            tid: 1,
            peer: 2,
            sent,
            freed: 0,
            turn: false,
            guessed: false,
        };
        let waits = |calls: &[Call]| beside_calls(vec![waited, ready], calls);
        assert_eq!(waits(&[]), [waited, ready]);
        assert_eq!(waits(&[call(300, 500)]), [waited, Parked { from: 500, ..ready }]);
        assert_eq!(waits(&[call(220, 240), call(300, 500)])[1].from, 500);
        // Looks saw it ready before the answer could be read: they are right.
        assert_eq!(waits(&[call(300, 800)])[1].from, 700);
    }
}
