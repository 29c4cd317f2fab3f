//! The part of PostgreSQL's protocol (version 3) that a client needs to send statements and wait for their end.
//!
//! In: statements; the server's bytes. Out: the bytes to send; how many statements are over. A server that asks for a password, or an
//! error of a statement, is an error: what the lab sends is known to be right.

use std::io::{Read, Write};

use crate::{Error, Result};

/// What a connection begins with.
#[must_use]
pub fn startup() -> Vec<u8> {
    let body = b"user\0postgres\0database\0postgres\0\0";
    [&(body.len() as u32 + 8).to_be_bytes()[..], &0x0003_0000_u32.to_be_bytes(), body].concat()
}

/// A statement, by the simple query protocol.
#[must_use]
pub fn query(statement: &str) -> Vec<u8> {
    [b"Q", &(statement.len() as u32 + 5).to_be_bytes()[..], statement.as_bytes(), b"\0"].concat()
}

/// Removes the complete messages at the front of what the server sent. Returns how many of them say that it is ready for the
/// next statement.
///
/// # Errors
/// [`Error::Io`] with what the server says, when it refuses a connection or a statement.
pub fn take(bytes: &mut Vec<u8>) -> Result<usize> {
    let (mut at, mut done) = (0, 0);
    while let Some(&[tag, a, b, c, d]) = bytes.get(at..at + 5) {
        let size = u32::from_be_bytes([a, b, c, d]) as usize + 1;
        if size < 5 {
            return Err(failed("it sent no message of PostgreSQL's protocol"));
        }
        let Some(body) = bytes.get(at + 5..at + size) else { break };
        match tag {
            b'Z' => done += 1,
            b'E' => return Err(failed(&String::from_utf8_lossy(body).replace('\0', " "))),
            b'R' if body != [0; 4] => return Err(failed("it asks for a password")),
            _ => {}
        }
        at += size;
    }
    bytes.drain(..at);
    Ok(done)
}

/// Sends bytes and waits until the server is ready again.
///
/// # Errors
/// [`Error::Io`].
pub fn ask(stream: &mut (impl Read + Write), bytes: &[u8]) -> Result<()> {
    let io = |e| Error::io("ask PostgreSQL", e);
    stream.write_all(bytes).map_err(io)?;
    let (mut kept, mut buffer) = (vec![], [0; 4096]);
    while take(&mut kept)? == 0 {
        match stream.read(&mut buffer).map_err(io)? {
            0 => return Err(failed("it closed the connection")),
            n => kept.extend_from_slice(&buffer[..n]),
        }
    }
    Ok(())
}

fn failed(why: &str) -> Error {
    Error::io("ask PostgreSQL", std::io::Error::other(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_over_when_the_server_is_ready() {
        assert_eq!(query("SELECT 1"), b"Q\0\0\0\x0dSELECT 1\0");
        let answer = b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I".to_vec();
        for cut in 0..answer.len() {
            let mut kept = answer[..cut].to_vec();
            assert_eq!(take(&mut kept).unwrap(), 0, "{cut}");
            kept.extend_from_slice(&answer[cut..]);
            assert_eq!((take(&mut kept).unwrap(), kept.len()), (1, 0), "{cut}");
        }
        assert_eq!(take(&mut [&answer[..], &answer[..]].concat()).unwrap(), 2);
        let refused = |answer: &[u8]| tailsight_units::chain(&take(&mut answer.to_vec()).unwrap_err());
        let error = refused(b"E\0\0\0\x0bno such");
        assert!(error.contains("no such"), "{error}");
        assert!(refused(b"R\0\0\0\x08\0\0\0\x05").contains("password"));
        assert!(take(&mut b"Z\0\0\0\x01".to_vec()).is_err());
    }
}
