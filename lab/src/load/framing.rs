//! Finds the ends of replies in a byte stream. In: bytes as they came, cut anywhere. Out: one call a reply, good or not.
//!
//! Only heads are looked at; bodies are counted off, however large they are and however often they were cut.

use super::Proto;

/// The state of one connection's reply stream.
#[derive(Debug)]
pub(super) struct Framer {
    proto: Proto,
    /// Bytes of the present reply that are still to come.
    remaining: usize,
    /// Whether the present reply is a good one.
    good: bool,
}

/// The head of a reply.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    /// Its length, bytes.
    len: usize,
    /// What follows it, bytes.
    body: usize,
    /// Whether it is the reply that was hoped for.
    good: bool,
}

impl Framer {
    /// A stream with nothing read yet. [`Proto::MemcachedUdp`] has datagrams instead.
    pub(super) fn new(proto: Proto) -> Self {
        Self { proto, remaining: 0, good: false }
    }

    /// Takes bytes; calls `on_reply` with good or not at the end of each reply; gives how many bytes it has used.
    /// The caller offers the rest again with more behind it.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        mut on_reply: impl FnMut(bool) -> Result<(), String>,
    ) -> Result<usize, String> {
        let mut at = 0;
        loop {
            if self.remaining > 0 {
                let taken = self.remaining.min(bytes.len() - at);
                at += taken;
                self.remaining -= taken;
                if self.remaining > 0 {
                    return Ok(at);
                }
                if self.proto != Proto::Http1 && bytes[at - 1] != b'\n' {
                    return Err("a value of another length than its head says".into());
                }
                on_reply(self.good)?;
            }
            let rest = &bytes[at..];
            let head = match self.proto {
                Proto::Memcached | Proto::MemcachedUdp => memcached_head(rest)?,
                Proto::Resp => resp_head(rest)?,
                Proto::Http1 => http_head(rest)?,
            };
            let Some(head) = head else { return Ok(at) };
            at += head.len;
            if head.body == 0 {
                on_reply(head.good)?;
            } else {
                (self.remaining, self.good) = (head.body, head.good);
            }
        }
    }
}

/// The first line without its end, and the length with it.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|b| *b == b'\n')?;
    let text = &bytes[..end];
    Some((text.strip_suffix(b"\r").unwrap_or(text), end + 1))
}

/// A decimal number.
fn number(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What a message shows of bytes that were not understood.
fn shown(bytes: &[u8]) -> String {
    format!("`{}`", bytes[..bytes.len().min(60)].escape_ascii())
}

/// memcached: `VALUE key flags bytes` + data + `END`, or one line.
fn memcached_head(bytes: &[u8]) -> Result<Option<Head>, String> {
    let Some((text, len)) = line(bytes) else {
        return Ok(None);
    };
    let mut words = text.split(|b| *b == b' ');
    let (body, good) = match words.next().unwrap_or_default() {
        b"VALUE" => {
            let size = words.nth(2).and_then(number);
            // The data and its line end, then the line `END`.
            (size.ok_or_else(|| shown(text))? + 2 + 5, true)
        }
        b"STORED" => (0, true),
        b"END" | b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" | b"NOT_STORED" => (0, false),
        _ => return Err(shown(text)),
    };
    Ok(Some(Head { len, body, good }))
}

/// Redis: `$n` + data, or one line.
fn resp_head(bytes: &[u8]) -> Result<Option<Head>, String> {
    let Some((text, len)) = line(bytes) else {
        return Ok(None);
    };
    let (body, good) = match text.split_first() {
        Some((b'+' | b':', _)) => (0, true),
        Some((b'-' | b'_', _)) | Some((b'$', b"-1")) => (0, false),
        Some((b'$', size)) => (number(size).ok_or_else(|| shown(text))? + 2, true),
        _ => return Err(shown(text)),
    };
    Ok(Some(Head { len, body, good }))
}

/// HTTP/1: status line and header fields, then `Content-Length` bytes.
fn http_head(bytes: &[u8]) -> Result<Option<Head>, String> {
    const START: &[u8] = b"HTTP/1.";
    let known = bytes.len().min(START.len());
    if bytes[..known] != START[..known] {
        return Err(shown(bytes));
    }
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return Ok(None);
    };
    let mut fields = bytes[..end].split(|b| *b == b'\n');
    let first = fields.next().unwrap_or_default();
    let status = first.get(9..12).and_then(number).ok_or_else(|| shown(first))?;
    let length = fields.find_map(|field| {
        let colon = field.iter().position(|b| *b == b':')?;
        let (name, value) = (&field[..colon], field[colon + 1..].trim_ascii());
        name.eq_ignore_ascii_case(b"content-length").then(|| number(value))?
    });
    let body = match (status, length) {
        (204 | 304, _) => 0,
        (_, Some(length)) => length,
        _ => {
            return Err(format!("{} without Content-Length (chunked replies are not read)", shown(first)));
        }
    };
    let good = (200..300).contains(&status);
    Ok(Some(Head { len: end + 4, body, good }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds `stream` cut at `cuts`, as a connection does: unused bytes are kept and offered again.
    fn feed(proto: Proto, stream: &[u8], cuts: &[usize]) -> Result<Vec<bool>, String> {
        let mut framer = Framer::new(proto);
        let (mut kept, mut replies) = (Vec::new(), Vec::new());
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c % (stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        for pair in cuts.windows(2) {
            kept.extend_from_slice(&stream[pair[0]..pair[1]]);
            let used = framer.push(&kept, |good| {
                replies.push(good);
                Ok(())
            })?;
            kept.drain(..used);
        }
        assert!(kept.is_empty() && framer.remaining == 0, "bytes are left over");
        Ok(replies)
    }

    /// One reply: its bytes and whether it is good. Values may look like the protocol itself.
    fn reply(proto: Proto, kind: u8, value: &[u8]) -> (Vec<u8>, bool) {
        let n = value.len();
        let with = |head: String, tail: &str| [head.as_bytes(), value, tail.as_bytes()].concat();
        match (proto, kind % 3) {
            (Proto::Memcached, 0) => (with(format!("VALUE k 0 {n}\r\n"), "\r\nEND\r\n"), true),
            (Proto::Memcached, 1) => (b"END\r\n".to_vec(), false),
            (Proto::Memcached, _) => (b"STORED\r\n".to_vec(), true),
            (Proto::Resp, 0) => (with(format!("${n}\r\n"), "\r\n"), true),
            (Proto::Resp, 1) => (b"$-1\r\n".to_vec(), false),
            (Proto::Resp, _) => (b"+OK\r\n".to_vec(), true),
            (_, 0) => (with(format!("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: {n}\r\n\r\n"), ""), true),
            (_, 1) => (with(format!("HTTP/1.1 404 No\r\ncontent-length:{n}\r\nA: b\r\n\r\n"), ""), false),
            _ => (b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), true),
        }
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            Just(b"END\r\nVALUE k 0 5\r\n$-1\r\nHTTP/1.1 200 OK\r\n\r\n".to_vec()),
        ]
    }

    proptest! {
        #[test]
        fn replies_are_found_wherever_the_stream_is_cut(
            proto in prop_oneof![Just(Proto::Memcached), Just(Proto::Resp), Just(Proto::Http1)],
            parts in prop::collection::vec((any::<u8>(), value()), 1..20),
            cuts in prop::collection::vec(any::<usize>(), 0..40),
        ) {
            let (mut stream, mut expected) = (Vec::new(), Vec::new());
            for (kind, value) in &parts {
                let (bytes, good) = reply(proto, *kind, value);
                stream.extend(bytes);
                expected.push(good);
            }
            prop_assert_eq!(feed(proto, &stream, &cuts).unwrap(), expected);
        }

        #[test]
        fn any_bytes_end_without_a_panic(
            proto in prop_oneof![Just(Proto::Memcached), Just(Proto::Resp), Just(Proto::Http1)],
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let used = Framer::new(proto).push(&bytes, |_| Ok(()));
            prop_assert!(used.is_err() || used.unwrap() <= bytes.len());
        }
    }

    #[test]
    fn one_byte_at_a_time() {
        let stream = b"VALUE k 0 5\r\nEND\r\n\r\nEND\r\nEND\r\n";
        let cuts: Vec<usize> = (0..stream.len()).collect();
        assert_eq!(feed(Proto::Memcached, stream, &cuts).unwrap(), [true, false]);
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for (proto, bytes) in [
            (Proto::Memcached, &b"HTTP/1.1 400 Bad Request\r\n"[..]),
            (Proto::Memcached, b"VALUE k 0\r\n"),
            (Proto::Memcached, b"VALUE k 0 1\r\nxxxxxxxxxxxx"),
            (Proto::Resp, b"ERROR\r\n"),
            (Proto::Resp, b"$x\r\n"),
            (Proto::Http1, b"ERR"),
            (Proto::Http1, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ] {
            assert!(feed(proto, bytes, &[]).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
