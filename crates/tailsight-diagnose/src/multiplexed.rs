//! What is said of connections that many requests share (HTTP/2, gRPC), of TLS, and of a protocol that the bytes are not of.
//!
//! In: [`Lifetimes`]. Out: the counts of the JSON, notes, and [`Error::WrongProtocol`].

use tailsight_lifetime::{Leg, Lifetimes};

use crate::cohorts::legs::is_substantial;
use crate::model::Multiplexed;
use crate::{Diagnosis, Error};

/// So many segments without a request of the protocol that was asked for are no accident (a health check, the rest of a connection).
const ENOUGH_SEGMENTS: u64 = 10;

/// Messages on connections that requests may share; `None` when there were none.
pub fn summary(lifetimes: &Lifetimes) -> Option<Multiplexed> {
    let counts = &lifetimes.multiplexed;
    let (http2, tls_shared, tls_in_turn) = (counts.http2, counts.tls_shared, counts.tls_in_turn);
    let unknown_shared = counts.unknown_shared;
    (!counts.is_empty()).then_some(Multiplexed { http2, tls_shared, tls_in_turn, unknown_shared })
}

impl Multiplexed {
    /// Messages whose replies cannot be told.
    pub fn unpaired(&self) -> u64 {
        self.http2 + self.tls_shared
    }
}

/// Whether most messages that the diagnosis explains are segments of connections that many requests share. Those have a receive leg only.
pub fn counts_segments(diagnosis: &Diagnosis) -> bool {
    let are_most = |counts: Multiplexed| counts.unpaired() * 2 > diagnosis.messages.total;
    diagnosis.leg == Leg::Receive && diagnosis.multiplexed.is_some_and(are_most)
}

/// Of a diagnosis of segments: whether nothing tells how long requests take. On other connections there may be enough that have replies.
pub fn knows_only_receiving(diagnosis: &Diagnosis) -> bool {
    let messages = |leg: Leg| diagnosis.legs.get(leg.name()).map_or(0, |latency| latency.messages as usize);
    counts_segments(diagnosis) && !is_substantial(messages(Leg::Total), messages(Leg::Receive))
}

/// What a reader must know of these connections before the numbers.
pub fn notes(lifetimes: &Lifetimes, diagnosis: &Diagnosis) -> Vec<String> {
    let mut notes = Vec::new();
    let counts = diagnosis.multiplexed.unwrap_or_default();
    let shared = "many requests share a connection and are answered out of order, so a message here is a segment, not a request: its receive \
                  times are true, and service, transmit and total are N/A, for no event tells which reply is whose";
    if counts.http2 > 0 {
        notes.push(format!("{} messages came by HTTP/2 (or gRPC): {shared}", counts.http2));
    }
    if counts.unpaired() > 0 && !matches!(diagnosis.leg, Leg::Receive) {
        let connections = match lifetimes.multiplexed.connections {
            1 => "the one connection".to_owned(),
            n => format!("the {n} connections"),
        };
        notes.push(format!(
            "{connections} that requests share {} left out here: the {} is that of the {} messages on other connections",
            if lifetimes.multiplexed.connections == 1 { "is" } else { "are" },
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
    if lifetimes.unknown_backend_calls > 0 {
        notes.push(format!(
            "the wait for another server's answer is not known for {} requests to it: several were under way on their connection at a \
             time, and no event tells which answer is whose",
            lifetimes.unknown_backend_calls
        ));
    }
    if let Some(framing) = lifetimes.framing.as_ref().filter(|framing| framing.lost > framing.framed) {
        notes.push(format!(
            "only {} of {} messages are requests of {}; the others are segments in which none was found: is that what the server speaks?",
            framing.framed,
            framing.framed + framing.lost,
            framing.protocol
        ));
    }
    notes
}

/// That some of the bytes were of the protocol that was asked for.
///
/// # Errors
/// [`Error::WrongProtocol`] if none were.
pub fn check_protocol(lifetimes: &Lifetimes) -> Result<(), Error> {
    let Some(framing) = lifetimes.framing.as_ref().filter(|f| f.framed == 0 && f.lost >= ENOUGH_SEGMENTS) else {
        return Ok(());
    };
    let counts = &lifetimes.multiplexed;
    let (seems, advice) = match () {
        () if counts.http2 > 0 => (" (they begin like frames of HTTP/2)", "without --protocol"),
        () if counts.tls_shared + counts.tls_in_turn > 0 => (" (they begin like records of TLS)", "without --protocol"),
        () => ("", "without --protocol, or with the one that the server speaks"),
    };
    let (app, protocol) = (lifetimes.app.clone(), framing.protocol.clone());
    Err(Error::WrongProtocol { app, protocol, segments: framing.lost, seems, advice })
}
