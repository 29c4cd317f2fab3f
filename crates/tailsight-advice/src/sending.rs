//! What a reader should know of the way out: where the transmit leg begins, replies in parts, and what was lost.
//!
//! In: a [`Diagnosis`]. Out: notes.

use tailsight_diagnose::model::{Circumstances, Diagnosis};
use tailsight_lifetime::{Leg, send_entry};

/// What a reader should know of the way out.
pub fn notes(diagnosis: &Diagnosis) -> Vec<String> {
    let has_transmit = matches!(diagnosis.leg, Leg::Transmit | Leg::Total);
    let entries = diagnosis.send_entry.iter().filter(|_| has_transmit);
    let begins = entries.filter_map(|(protocol, source)| begins(&protocol.to_uppercase(), source));
    let counts = &diagnosis.circumstances;
    let of = |n: u64, says: fn(u64) -> String| (n > 0).then(|| says(n));
    let others = [
        parts_of_replies(counts),
        of(counts.retransmitted, |n| {
            let times = if n == 1 { "once".into() } else { format!("{n} times") };
            format!(
                "a segment of what it sent was lost and sent again {times}: its client waited longer than the transmit leg, which ends \
                 with the first hand-over to the driver"
            )
        }),
        of(counts.dropped, |n| {
            format!("this host dropped {n} outgoing {} of its replies", if n == 1 { "packet" } else { "packets" })
        }),
        of(counts.numa_moves, |n| {
            format!(
                "NUMA balancing moved its threads to other cores {n} times (sysctl kernel.numa_balancing=0 stops that)"
            )
        }),
    ];
    begins.chain(others.into_iter().flatten()).collect()
}

/// Where the transmit leg begins, when that is not the send call.
fn begins(protocol: &str, source: &str) -> Option<String> {
    Some(match source {
        send_entry::DRIVER => format!(
            "transmit (from the driver: {protocol}): no hook saw the start of a send, so the leg begins with the first byte at the driver; \
             the time before is in the service leg"
        ),
        send_entry::QUEUE => format!(
            "transmit (from the queueing discipline: {protocol}): no hook saw the start of a send, so the leg begins there; the time before \
             is in the service leg"
        ),
        send_entry::CGROUP => format!(
            "transmit ({protocol}): begins with the send call on sockets that are not connected, on others at the driver"
        ),
        _ => return None,
    })
}

/// Of how many pushes to a message it is worth a word that they may be parts of replies: one in a hundred.
const PUSHES_NOTED: u64 = 100;

/// What was made of sends that came after a reply and other work.
fn parts_of_replies(circumstances: &Circumstances) -> Option<String> {
    let (continued, pushes) = (circumstances.continued_replies, circumstances.unasked_sends);
    if continued > 0 {
        let replies = if continued == 1 { "1 reply goes".into() } else { format!("{continued} replies go") };
        let means = if circumstances.framing.is_some() { "" } else { " (told by when the client asks next)" };
        return Some(format!(
            "{replies} on after the thread had turned to other work{means}: the service leg lasts until the last part \
             is sent"
        ));
    }
    (pushes > 0 && pushes * PUSHES_NOTED >= circumstances.messages).then(|| {
        let tells = if circumstances.is_readable { ": `tailsight record --protocol` tells" } else { "" };
        format!(
            "{pushes} sends to clients came after a reply and other work, and count as sent unasked; if they are parts \
             of replies, the messages took longer than this{tells}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_of_sends_after_a_reply_is_said() {
        let with = |continued_replies, messages, unasked_sends, protocol: bool| {
            let framing = protocol.then(Default::default);
            let counts = Circumstances { continued_replies, messages, unasked_sends, ..Default::default() };
            parts_of_replies(&Circumstances { framing, is_readable: true, ..counts })
        };
        assert_eq!(with(0, 300, 2, false), None, "less than one in a hundred");
        let pushes = with(0, 300, 3, false).expect("a note");
        assert!(
            pushes.starts_with("3 sends to clients came after a reply") && pushes.contains("--protocol"),
            "{pushes}"
        );
        let in_tls = Circumstances { messages: 3, unasked_sends: 1, ..Circumstances::default() };
        let in_tls = parts_of_replies(&in_tls).expect("a note");
        assert!(!in_tls.contains("--protocol"), "no protocol is read in TLS: {in_tls}");
        let parsed = with(2, 2, 0, true).expect("a note");
        assert!(parsed.starts_with("2 replies go on after the thread had turned to other work: "), "{parsed}");
        let guessed = with(1, 1, 9, false).expect("a note");
        assert!(
            guessed.starts_with("1 reply goes on") && guessed.contains("told by when the client asks next"),
            "{guessed}"
        );
    }
}
