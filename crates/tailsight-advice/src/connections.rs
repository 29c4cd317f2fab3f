//! What a reader must know of connections that many requests share (HTTP/2, gRPC), of TLS, of bytes that are not of the protocol that
//! was asked for, and of connections that clients had late.
//!
//! In: a [`Diagnosis`]. Out: notes.

use tailsight_diagnose::model::Diagnosis;
use tailsight_diagnose::multiplexed::looked_for;
use tailsight_lifetime::messages::RepeatedConnects;
use tailsight_lifetime::{Framing, Leg};
use tailsight_units::format::duration;

/// What a message is on a connection that requests share.
const SHARED: &str = "many requests share a connection and are answered out of order, so a message here is a segment, not a request: its \
                      receive times are true, and service, transmit and total are N/A, for no event tells which reply is whose";

/// What a reader must know of these connections before the numbers.
pub fn notes(diagnosis: &Diagnosis) -> Vec<String> {
    let (counts, circumstances) = (diagnosis.multiplexed.unwrap_or_default(), &diagnosis.circumstances);
    let of = |n: u64, says: fn(u64) -> String| (n > 0).then(|| says(n));
    let notes = [
        of(counts.http2, |n| {
            format!(
                "{n} messages came by HTTP/2 (or gRPC): {SHARED}; `tailsight record --protocol http2` follows each request to its reply"
            )
        }),
        (counts.unpaired() > 0 && diagnosis.leg != Leg::Receive).then(|| left_out(diagnosis)),
        of(counts.tls_shared, |n| {
            format!(
                "{n} messages came in TLS to a port on which requests do not wait for the reply to the one before (HTTP/2 in TLS, or \
                 pipelining): {SHARED}"
            )
        }),
        of(counts.tls_in_turn, |n| {
            format!(
                "{n} messages came in TLS, whose contents are not seen: one that is replied to is paired with the next reply of its \
                 connection, as requests and replies alternate there"
            )
        }),
        of(counts.unknown_shared, |n| {
            format!(
                "{n} messages came to a port on which requests do not wait for the reply to the one before, and this recording does not \
                 show whether that is pipelining or HTTP/2 (Linux 6.12 and newer let it): they are paired with replies by order, which is \
                 wrong for HTTP/2"
            )
        }),
        of(circumstances.unknown_backend_calls, |n| {
            format!(
                "the wait for another server's answer is not known for {n} requests to it: several were under way on their connection at \
                 a time, and no event tells which answer is whose"
            )
        }),
        connected_late(circumstances.repeated_connects),
        diagnosis.circumstances.framing.as_ref().and_then(other_protocol),
    ];
    notes.into_iter().flatten().collect()
}

/// That clients waited before they had a connection.
fn connected_late(RepeatedConnects { connections, longest_ns }: RepeatedConnects) -> Option<String> {
    let who = if connections == 1 { "1 client".into() } else { format!("{connections} clients") };
    (connections > 0).then(|| {
        format!(
            "{who} asked again for a connection, up to {} after the first time (the queue of connections to be accepted was full, or a \
             packet was lost): that wait is in no message. Queue and its limit: ss -lnt (Recv-Q, Send-Q); the limit is the backlog of \
             listen(), at most net.core.somaxconn",
            duration(longest_ns)
        )
    })
}

/// That messages on shared connections have no such leg.
fn left_out(diagnosis: &Diagnosis) -> String {
    let connections = match diagnosis.circumstances.shared_connections {
        1 => "the one connection that requests share is".to_owned(),
        n => format!("the {n} connections that requests share are"),
    };
    let (leg, messages) = (diagnosis.leg.name(), diagnosis.messages.complete);
    format!("{connections} left out here: the {leg} is that of the {messages} messages on other connections")
}

/// That the bytes are hardly of the protocol that was asked for.
fn other_protocol(framing: &Framing) -> Option<String> {
    let messages = framing.framed + framing.lost;
    if framing.lost <= framing.framed {
        return None;
    }
    if framing.is_auto() {
        return Some(format!(
            "only {} of {messages} messages are requests: the others are segments of connections whose first bytes are of none of {}, or \
             that were not seen, and datagrams",
            framing.framed,
            looked_for(framing)
        ));
    }
    let others = match framing.has_unread_tls() {
        true => "TLS whose plain text was not read, for all or for a part of the recording",
        false => "segments in which none was found: is that what the server speaks?",
    };
    Some(format!(
        "only {} of {messages} messages are requests of {}; the others are {others}",
        framing.framed, framing.protocol
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: of a server whose plain text was read for a part of the recording it was asked whether it speaks another protocol.
    #[test]
    fn segments_of_tls_are_no_other_protocol() {
        let said = |why: &[&str]| {
            let why = why.iter().map(|why| ((*why).to_owned(), 4)).collect();
            let framing = Framing { protocol: "resp".into(), framed: 1_229, lost: 4_008, why, ..Framing::default() };
            other_protocol(&framing).expect("a note")
        };
        assert!(said(&["not the protocol"]).ends_with("is that what the server speaks?"));
        let of_tls = said(&["TLS whose plain text was not read"]);
        assert!(
            of_tls.starts_with("only 1229 of 5237 messages are requests of resp; the others are TLS whose"),
            "{of_tls}"
        );
        assert!(!of_tls.contains('?'), "{of_tls}");
    }
}
