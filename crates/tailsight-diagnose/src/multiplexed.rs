//! What is known of connections that many requests share (HTTP/2, gRPC), of TLS, of what connections were taken to speak, and of a protocol
//! that the bytes are not of.
//!
//! In: [`Lifetimes`]. Out: the counts of the JSON, and [`Error::WrongProtocol`].

use tailsight_lifetime::messages::requests::Framing;
use tailsight_lifetime::{Leg, Lifetimes, Threshold};

use crate::cohorts::legs::is_substantial;
use crate::model::{Multiplexed, Protocols};
use crate::{Diagnosis, Error};

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
    diagnosis.leg == Leg::Receive && diagnosis.class.is_none() && diagnosis.multiplexed.is_some_and(are_most)
}

/// Of a diagnosis of segments: whether nothing tells how long requests take. On other connections there may be enough that have replies.
pub fn knows_only_receiving(diagnosis: &Diagnosis) -> bool {
    let messages = |leg: Leg| diagnosis.legs.get(leg.name()).map_or(0, |latency| latency.messages as usize);
    counts_segments(diagnosis) && !is_substantial(messages(Leg::Total), messages(Leg::Receive))
}

/// What connections were taken to speak; `None` where that was not asked for.
pub fn protocols(lifetimes: &Lifetimes) -> Option<Protocols> {
    let framing = lifetimes.framing.as_ref().filter(|framing| framing.is_auto())?;
    Some(Protocols {
        connections: framing.connections.clone(),
        untold_connections: framing.untold_connections,
        requests: framing.framed,
        segments: framing.lost,
    })
}

/// The protocols whose requests were looked for, in words.
pub fn looked_for(framing: &Framing) -> String {
    if framing.is_auto() { "memcached, resp, http1 or http2".to_owned() } else { framing.protocol.clone() }
}

/// That some of the bytes were of the protocol that was asked for.
///
/// # Errors
/// [`Error::WrongProtocol`] if none were.
pub fn check_protocol(lifetimes: &Lifetimes) -> Result<(), Error> {
    let Some(framing) = lifetimes
        .framing
        .as_ref()
        .filter(|f| f.framed == 0 && f.lost >= Threshold::SegmentsWithoutRequest.count() as u64)
    else {
        return Ok(());
    };
    let counts = &lifetimes.multiplexed;
    let (seems, advice) = match () {
        () if counts.http2 > 0 => {
            (" (they begin like frames of HTTP/2)", "with --protocol http2, or without --protocol")
        }
        () if counts.tls_shared + counts.tls_in_turn > 0 => (
            " (they begin like records of TLS, whose plain text is read of OpenSSL and GnuTLS only)",
            "without --protocol",
        ),
        () if framing.is_auto() => ("", "without --protocol"),
        () => ("", "without --protocol, or with the one that the server speaks"),
    };
    let (app, protocol) = (lifetimes.app.clone(), looked_for(framing));
    Err(Error::WrongProtocol { app, protocol, segments: framing.lost, seems, advice })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_connection_tells_its_protocol_the_error_names_those_that_were_looked_for() {
        let checked = |protocol: &str, framed| {
            let mut lifetimes = Lifetimes::default();
            lifetimes.framing = Some(Framing { protocol: protocol.into(), framed, lost: 120, ..Framing::default() });
            check_protocol(&lifetimes)
        };
        let refused = |protocol: &str| checked(protocol, 0).expect_err("none is a request").to_string();
        let auto = refused("auto");
        assert!(auto.contains("none of 120 segments is a request of memcached, resp, http1 or http2"), "{auto}");
        assert!(auto.ends_with("record again without --protocol"), "{auto}");
        assert!(refused("resp").contains("a request of resp:"));
        assert!(checked("auto", 1).is_ok());
    }
}
