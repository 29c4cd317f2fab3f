//! What a reader must know of connections that many requests share (HTTP/2, gRPC), of TLS, and of bytes that are not of the protocol that
//! was asked for.
//!
//! In: a [`Diagnosis`]. Out: notes.

use tailsight_diagnose::model::Diagnosis;
use tailsight_lifetime::Leg;

/// What a reader must know of these connections before the numbers.
pub fn notes(diagnosis: &Diagnosis) -> Vec<String> {
    let mut notes = Vec::new();
    let circumstances = &diagnosis.circumstances;
    let counts = diagnosis.multiplexed.unwrap_or_default();
    let shared = "many requests share a connection and are answered out of order, so a message here is a segment, not a request: its receive \
                  times are true, and service, transmit and total are N/A, for no event tells which reply is whose";
    if counts.http2 > 0 {
        notes.push(format!("{} messages came by HTTP/2 (or gRPC): {shared}", counts.http2));
    }
    if counts.unpaired() > 0 && !matches!(diagnosis.leg, Leg::Receive) {
        let connections = match circumstances.shared_connections {
            1 => "the one connection".to_owned(),
            n => format!("the {n} connections"),
        };
        notes.push(format!(
            "{connections} that requests share {} left out here: the {} is that of the {} messages on other connections",
            if circumstances.shared_connections == 1 { "is" } else { "are" },
            diagnosis.leg.name(),
            diagnosis.messages.complete,
        ));
    }
    if counts.tls_shared > 0 {
        notes.push(format!(
            "{} messages came in TLS to a port on which requests do not wait for the reply to the one before (HTTP/2 in TLS, or \
             pipelining): {shared}",
            counts.tls_shared
        ));
    }
    if counts.tls_in_turn > 0 {
        notes.push(format!(
            "{} messages came in TLS, whose contents are not seen: one that is replied to is paired with the next reply of its \
             connection, as requests and replies alternate there",
            counts.tls_in_turn
        ));
    }
    if counts.unknown_shared > 0 {
        notes.push(format!(
            "{} messages came to a port on which requests do not wait for the reply to the one before, and this recording does not show \
             whether that is pipelining or HTTP/2 (Linux 6.12 and newer let it): they are paired with replies by order, which is wrong for \
             HTTP/2",
            counts.unknown_shared
        ));
    }
    if circumstances.unknown_backend_calls > 0 {
        notes.push(format!(
            "the wait for another server's answer is not known for {} requests to it: several were under way on their connection at a \
             time, and no event tells which answer is whose",
            circumstances.unknown_backend_calls
        ));
    }
    if let Some(framing) = circumstances.framing.as_ref().filter(|framing| framing.lost > framing.framed) {
        notes.push(format!(
            "only {} of {} messages are requests of {}; the others are segments in which none was found: is that what the server speaks?",
            framing.framed,
            framing.framed + framing.lost,
            framing.protocol
        ));
    }
    notes
}
