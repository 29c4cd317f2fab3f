//! The honest half of a hostile server: answers that any client takes. In: bytes of requests. Out: bytes of answers.
//!
//! Only what a load without stored keys asks: gets, answered with "there is none" or a body of two bytes.

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Memcached,
    MemcachedBinary,
    Resp,
    Http1,
    Http2,
    Echo,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;

/// One connection.
pub(super) struct Honest {
    protocol: Protocol,
    pending: Vec<u8>,
    greeted: bool,
    /// How much of the last answers was HTTP/2's greeting.
    greeting: usize,
}

impl Honest {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self { protocol, pending: Vec::new(), greeted: false, greeting: 0 }
    }

    /// How much of the answers at hand must be said before anything else.
    pub(super) fn greeting(&self, answers: &[u8]) -> usize {
        self.greeting.min(answers.len())
    }

    /// Appends the answers to the requests that end in these bytes; how many there were.
    pub(super) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        self.greeting = 0;
        if self.protocol == Protocol::Echo {
            out.extend_from_slice(bytes);
            return 1;
        }
        self.pending.extend_from_slice(bytes);
        let mut asked = 0;
        while let Some(used) = self.one(out, &mut asked) {
            self.pending.drain(..used);
        }
        asked
    }

    /// The next request: bytes of it, once they are there.
    fn one(&mut self, out: &mut Vec<u8>, asked: &mut usize) -> Option<usize> {
        let line_end =
            |needle: &[u8]| self.pending.windows(needle.len()).position(|w| w == needle).map(|at| at + needle.len());
        let mut answer = |used: usize, bytes: &[u8]| {
            out.extend_from_slice(bytes);
            *asked += 1;
            Some(used)
        };
        match self.protocol {
            Protocol::Echo => None,
            Protocol::Memcached => answer(line_end(b"\r\n")?, b"END\r\n"),
            Protocol::Http1 => answer(line_end(b"\r\n\r\n")?, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
            Protocol::Resp => {
                // Arrays of bulk strings: `*2`, then a length and a text each.
                let first = line_end(b"\r\n")?;
                let parts: usize = std::str::from_utf8(&self.pending[1..first - 2]).ok()?.parse().ok()?;
                let mut at = first;
                for _ in 0..parts {
                    let head = self.pending.get(at..)?.windows(2).position(|w| w == b"\r\n")? + 2;
                    let text: usize = std::str::from_utf8(&self.pending[at + 1..at + head - 2]).ok()?.parse().ok()?;
                    at += head + text + 2;
                }
                if at > self.pending.len() { None } else { answer(at, b"$-1\r\n") }
            }
            Protocol::MemcachedBinary => {
                let head = self.pending.get(..24)?;
                let used = 24 + u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize;
                // Not found, with the request's opcode and opaque.
                let mut reply = [0; 24];
                reply[..2].copy_from_slice(&[0x81, head[1]]);
                reply[7] = 1;
                reply[12..16].copy_from_slice(&head[12..16]);
                if self.pending.len() < used { None } else { answer(used, &reply) }
            }
            Protocol::Http2 => {
                if !self.greeted {
                    self.pending.get(..PREFACE.len())?;
                    self.greeted = true;
                    out.extend_from_slice(&frame(4, 0, 0, b""));
                    self.greeting = out.len();
                    return Some(PREFACE.len());
                }
                let head = self.pending.get(..HEAD)?;
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                let (kind, flags, stream) = (head[3], head[4], [head[5], head[6], head[7], head[8]]);
                self.pending.get(..HEAD + length)?;
                match (kind, flags & 1) {
                    (4, 0) => out.extend_from_slice(&frame(4, 1, 0, b"")),
                    // `:status: 200`, the whole answer.
                    (1, _) => return answer(HEAD + length, &frame(1, 5, u32::from_be_bytes(stream), b"\x88")),
                    _ => {}
                }
                Some(HEAD + length)
            }
        }
    }
}

/// An HTTP/2 frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_however_they_are_cut() {
        let get = [&[0x80, 0, 0, 1][..], &[0; 4], &[0, 0, 0, 1], &[0; 12], b"k"].concat();
        let h2 = [PREFACE, &frame(4, 0, 0, b""), &frame(1, 5, 1, b"\x82")].concat();
        for (protocol, request) in [
            (Protocol::Memcached, b"get a\r\n".to_vec()),
            (Protocol::MemcachedBinary, get),
            (Protocol::Resp, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n".to_vec()),
            (Protocol::Http1, b"GET / HTTP/1.1\r\n\r\n".to_vec()),
            (Protocol::Http2, h2),
        ] {
            let (mut honest, mut out) = (Honest::new(protocol), Vec::new());
            let asked: usize = request.chunks(1).map(|byte| honest.take(byte, &mut out)).sum();
            assert!(asked == 1 && !out.is_empty(), "{protocol:?}: {asked}");
        }
    }
}
