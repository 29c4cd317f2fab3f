//! What connections were taken to speak, of a recording with `--protocol auto`.
//!
//! In: [`Protocols`]. Out: one sentence.

use tailsight_diagnose::model::Protocols;

use super::units;

/// As `http1 on 12 connections, http2 on 3; no protocol told on 1`: the most connections first.
pub fn protocols(protocols: &Protocols) -> String {
    let mut told: Vec<(&str, u64)> = protocols.connections.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    told.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let counted = |first: bool, n: u64| if first { units::counted(n, "connection") } else { units::count(n) };
    let parts: Vec<String> =
        told.iter().enumerate().map(|(at, (name, n))| format!("{name} on {}", counted(at == 0, *n))).collect();
    let mut text = parts.join(", ");
    if protocols.untold_connections > 0 {
        text += if told.is_empty() { "" } else { "; " };
        text += &format!("no protocol told on {}", counted(told.is_empty(), protocols.untold_connections));
    }
    if protocols.segments > 0 {
        text += if text.is_empty() { "" } else { "; " };
        let messages = units::counted(protocols.requests + protocols.segments, "message");
        text += &format!("{} of {messages} are no requests", units::count(protocols.segments));
    }
    if text.is_empty() { "no connection".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_what_they_speak() {
        let said = |told: &[(&str, u64)], untold_connections, requests, segments| {
            let connections = told.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
            protocols(&Protocols { connections, untold_connections, requests, segments })
        };
        assert_eq!(said(&[("http2", 3), ("http1", 12)], 0, 1500, 0), "http1 on 12 connections, http2 on 3");
        assert_eq!(
            said(&[("resp", 1)], 1, 960, 40),
            "resp on 1 connection; no protocol told on 1; 40 of 1,000 messages are no requests"
        );
        assert_eq!(said(&[], 2, 0, 9), "no protocol told on 2 connections; 9 of 9 messages are no requests");
        assert_eq!(said(&[], 0, 0, 0), "no connection");
    }
}
