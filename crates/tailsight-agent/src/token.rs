//! The secret that a caller must have. In: a file, or nothing. Out: a token; comparison in constant time.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

use crate::AgentError;

/// A secret of 16 to 256 printable characters. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// 256 random bits from the kernel, as hexadecimal digits.
    ///
    /// # Errors
    /// [`AgentError::Io`] when the kernel gives no random bytes.
    pub fn random() -> Result<Self, AgentError> {
        let mut bytes = [0_u8; 32];
        let fail = |_| AgentError::io("get random bytes for the token")(std::io::Error::other("getrandom failed"));
        SystemRandom::new().fill(&mut bytes).map_err(fail)?;
        Ok(Self(hex(&bytes)))
    }

    /// The first line of a file that only its owner can read.
    ///
    /// # Errors
    /// [`AgentError::Io`] when it cannot be read or others can read it too, [`AgentError::Parse`] when it is no token.
    pub fn from_file(path: &Path) -> Result<Self, AgentError> {
        let fail = || format!("read the token in {}", path.display());
        let mode = std::fs::metadata(path).map_err(AgentError::io(fail()))?.permissions().mode();
        if mode & 0o077 != 0 {
            let reason = format!("other users can read it (mode {:03o}); run chmod 600 on it", mode & 0o777);
            return Err(AgentError::io(fail())(std::io::Error::other(reason)));
        }
        let text = std::fs::read_to_string(path).map_err(AgentError::io(fail()))?;
        text.lines().next().unwrap_or_default().trim().parse()
    }

    /// The secret itself, to be shown once or sent over TLS.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether it is the same, in a time that depends neither on where it differs nor on its length.
    #[must_use]
    pub fn matches(&self, offered: &[u8]) -> bool {
        let hash = |bytes: &[u8]| digest(&SHA256, bytes);
        hash(self.0.as_bytes()).as_ref().ct_eq(hash(offered).as_ref()).into()
    }
}

impl FromStr for Token {
    type Err = AgentError;

    fn from_str(text: &str) -> Result<Self, AgentError> {
        if !(16..=256).contains(&text.len()) || !text.bytes().all(|b| b.is_ascii_graphic()) {
            // Not shown: it may be a secret with a typing error in it.
            return Err(AgentError::parse("a token", "(hidden)", "16 to 256 printable characters without spaces"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_matches() {
        let (a, b) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(a.reveal().len(), 64);
        assert!(a.matches(a.reveal().as_bytes()) && !a.matches(b.reveal().as_bytes()));
        assert!(!a.matches(b"") && !a.matches(&a.reveal().as_bytes()[..63]));
        assert!(!format!("{a:?}").contains(a.reveal()));
        for bad in ["", "short", "has a space in its middle", "not\u{e9}ascii-but-long-enough"] {
            assert!(bad.parse::<Token>().is_err());
        }
    }

    #[test]
    fn a_token_file_is_private() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "0123456789abcdef\n").unwrap();
        assert_eq!(Token::from_file(file.path()).unwrap().reveal(), "0123456789abcdef");
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(tailsight_units::chain(&Token::from_file(file.path()).unwrap_err()).contains("chmod 600"));
    }
}
