//! Where an agent is. In: `HOST:PORT#FINGERPRINT`. Out: an address and the certificate to expect there.

use std::fmt;
use std::str::FromStr;

use crate::AgentError;
use crate::token::hex;

/// SHA-256 of a certificate's DER bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Of a certificate.
    #[must_use]
    pub fn of(der: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, der).as_ref());
        Self(bytes)
    }
}

impl FromStr for Fingerprint {
    type Err = AgentError;

    /// 64 hexadecimal digits; colons between them are fine (`openssl x509 -fingerprint -sha256` prints them).
    fn from_str(text: &str) -> Result<Self, AgentError> {
        let fail = || AgentError::parse("a fingerprint", text, "the 64 hexadecimal digits that the agent printed");
        let digits: Vec<u8> = text.bytes().filter(|b| *b != b':').collect();
        if digits.len() != 64 {
            return Err(fail());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |d: u8| char::from(d).to_digit(16).ok_or_else(fail);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An agent, as `--agent` names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AgentAddress {
    /// Name or address; IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The certificate to expect; `None`: one that the authority given by `--agent-ca` has signed.
    pub fingerprint: Option<Fingerprint>,
}

impl AgentAddress {
    /// `HOST:PORT`, IPv6 in brackets: its name in messages.
    #[must_use]
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl FromStr for AgentAddress {
    type Err = AgentError;

    fn from_str(text: &str) -> Result<Self, AgentError> {
        let fail = || AgentError::parse("an agent", text, "HOST:PORT#FINGERPRINT, as the agent printed it");
        let (authority, fingerprint) = match text.split_once('#') {
            Some((authority, fingerprint)) => (authority, Some(fingerprint.parse()?)),
            None => (text, None),
        };
        let (host, port) = authority.rsplit_once(':').ok_or_else(fail)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|h| h.contains(':')).ok_or_else(fail)?,
            None if host.contains(':') => return Err(fail()),
            None => host,
        };
        if host.is_empty() || !host.bytes().all(|b| b.is_ascii_graphic() && !b"/@[]".contains(&b)) {
            return Err(fail());
        }
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(fail)?;
        Ok(Self { host: host.to_owned(), port, fingerprint })
    }
}

impl fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority())?;
        self.fingerprint.map_or(Ok(()), |fingerprint| write!(f, "#{fingerprint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            if let Ok(address) = text.parse::<AgentAddress>() {
                prop_assert_eq!(address.to_string().parse::<AgentAddress>().unwrap(), address);
            }
        }

        #[test]
        fn addresses_survive_text(bytes: [u8; 32], port in 1..u16::MAX, which in 0..3_usize) {
            let host = ["10.0.0.1", "client-3.example", "2001:db8::7"][which];
            let address = AgentAddress { host: host.into(), port, fingerprint: Some(Fingerprint(bytes)) };
            prop_assert_eq!(address.to_string().parse::<AgentAddress>().unwrap(), address);
        }
    }

    #[test]
    fn bad_ones_are_refused() {
        let print = "a".repeat(64);
        assert!(format!("h:1#{print}").parse::<AgentAddress>().is_ok());
        for bad in ["", "h", "h:", ":1", "h:0", "h:99999", "::1:5", "[h]:5", "h:1#", "h:1#abc", "h/x:1"] {
            assert!(bad.parse::<AgentAddress>().is_err(), "{bad}");
        }
        assert!(format!("h:1#{}g", &print[1..]).parse::<AgentAddress>().is_err());
    }
}
