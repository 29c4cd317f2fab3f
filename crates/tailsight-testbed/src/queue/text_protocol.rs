//! The protocols of the ideal server: the parts of memcached's text protocol, of RESP and of HTTP/1.1 that load generators
//! use. In: the bytes of a connection, cut anywhere. Out: the next request's reply, and whether it takes service time.
//!
//! Reads take a service time. Stores and questions about the server take none, so that a client's preparations are quick.

use std::collections::HashMap;

use clap::ValueEnum;

/// A language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TextProtocol {
    /// memcached's text protocol: get, gets, set, add, replace, version.
    Memcached,
    #[value(alias = "redis")]
    /// RESP2: GET, SET, PING, CONFIG.
    Resp,
    #[value(alias = "http")]
    /// HTTP/1.1: any request without a body is answered 200.
    Http1,
}

/// The longest head or command line that is accepted, bytes.
const LONGEST_LINE: usize = 4096;
/// The longest value, bytes.
const LONGEST_VALUE: usize = 1 << 20;
/// The most that is kept in all, bytes.
const ROOM: usize = 256 << 20;
/// What HTTP is answered.
const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nideal\n";

/// What is at the front of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// An incomplete request.
    More,
    /// Not this language.
    Bad,
    /// A request.
    Request {
        /// Its bytes.
        used: usize,
        /// Whether it takes a service time.
        timed: bool,
        /// Its answer; empty for none.
        reply: Vec<u8>,
    },
}

/// The values that were stored.
#[derive(Debug)]
pub(super) struct Store {
    protocol: TextProtocol,
    values: HashMap<Vec<u8>, (Vec<u8>, Vec<u8>)>,
    bytes: usize,
}

impl Store {
    /// An empty one.
    pub(super) fn new(protocol: TextProtocol) -> Self {
        Self { protocol, values: HashMap::new(), bytes: 0 }
    }

    /// The request at the front of `bytes`.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Next {
        match self.protocol {
            TextProtocol::Memcached => self.memcached(bytes),
            TextProtocol::Resp => self.resp(bytes),
            TextProtocol::Http1 => http1(bytes),
        }
    }

    /// Keeps a value; false when there is no room.
    fn keep(&mut self, key: &[u8], flags: &[u8], value: &[u8]) -> bool {
        self.bytes += key.len() + value.len();
        if self.bytes > ROOM {
            self.bytes -= key.len() + value.len();
            return false;
        }
        if let Some((_, old)) = self.values.insert(key.to_vec(), (flags.to_vec(), value.to_vec())) {
            self.bytes -= key.len() + old.len();
        }
        true
    }

    fn memcached(&mut self, bytes: &[u8]) -> Next {
        let (line, used) = match line(bytes) {
            Ok(found) => found,
            Err(next) => return next,
        };
        let words: Vec<&[u8]> = line.split(|b| *b == b' ').filter(|word| !word.is_empty()).collect();
        let at_once = |reply: &[u8]| Next::Request { used, timed: false, reply: reply.to_vec() };
        match words[..] {
            [b"get" | b"gets", ref keys @ ..] if !keys.is_empty() => {
                let mut reply = Vec::new();
                for key in keys {
                    if let Some((flags, value)) = self.values.get(*key) {
                        let cas: &[u8] = if words[0] == b"gets" { b" 1" } else { b"" };
                        let size = value.len().to_string();
                        for part in
                            [&b"VALUE "[..], key, b" ", flags, b" ", size.as_bytes(), cas, b"\r\n", value, b"\r\n"]
                        {
                            reply.extend_from_slice(part);
                        }
                    }
                }
                reply.extend_from_slice(b"END\r\n");
                Next::Request { used, timed: true, reply }
            }
            [b"set" | b"add" | b"replace", key, flags, _expires, size, ref rest @ ..] => {
                let Some(size) = number(size).filter(|size| *size <= LONGEST_VALUE) else { return Next::Bad };
                let end = used + size;
                match bytes.get(end..end + 2) {
                    None => return Next::More,
                    Some(b"\r\n") => {}
                    Some(_) => return Next::Bad,
                }
                let kept = self.keep(key, flags, &bytes[used..end]);
                let reply: &[u8] = match (rest, kept) {
                    ([b"noreply"], _) => b"",
                    (_, true) => b"STORED\r\n",
                    (_, false) => b"SERVER_ERROR out of memory\r\n",
                };
                Next::Request { used: end + 2, timed: false, reply: reply.to_vec() }
            }
            [b"version"] => at_once(b"VERSION 0-ideal\r\n"),
            _ => at_once(b"ERROR\r\n"),
        }
    }

    fn resp(&mut self, bytes: &[u8]) -> Next {
        let (words, used) = match array(bytes) {
            Ok(found) => found,
            Err(next) => return next,
        };
        let command = words.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
        let bulk = |value: &[u8]| [b"$", value.len().to_string().as_bytes(), b"\r\n", value, b"\r\n"].concat();
        let (timed, reply) = match (&command[..], &words[..]) {
            (b"GET", [_, key]) => {
                let value = self.values.get(*key).map(|(_, value)| bulk(value));
                (true, value.unwrap_or_else(|| b"$-1\r\n".to_vec()))
            }
            (b"SET", [_, key, value, ..]) => {
                let kept = self.keep(key, b"", value);
                (false, if kept { b"+OK\r\n".to_vec() } else { b"-OOM no room\r\n".to_vec() })
            }
            (b"PING", [_]) => (true, b"+PONG\r\n".to_vec()),
            (b"CONFIG", [_, _, what]) => (false, [b"*2\r\n", &bulk(what)[..], &bulk(b"")].concat()),
            _ => (false, b"-ERR unknown command\r\n".to_vec()),
        };
        Next::Request { used, timed, reply }
    }
}

/// The first line without its end, and the length with it.
fn line(bytes: &[u8]) -> Result<(&[u8], usize), Next> {
    match bytes.iter().take(LONGEST_LINE).position(|b| *b == b'\n') {
        Some(end) => Ok((bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]), end + 1)),
        None if bytes.len() >= LONGEST_LINE => Err(Next::Bad),
        None => Err(Next::More),
    }
}

/// A decimal number.
fn number(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A RESP array of bulk strings, and its length.
fn array(bytes: &[u8]) -> Result<(Vec<&[u8]>, usize), Next> {
    let head = |at: usize, mark: u8| {
        let (text, used) = line(&bytes[at..])?;
        let count = text.strip_prefix(&[mark]).and_then(number).filter(|n| *n <= LONGEST_VALUE).ok_or(Next::Bad)?;
        Ok((count, at + used))
    };
    let (count, mut at) = head(0, b'*')?;
    if count == 0 || count > 64 {
        return Err(Next::Bad);
    }
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (size, begin) = head(at, b'$')?;
        let end = begin + size;
        match bytes.get(end..end + 2) {
            None => return Err(Next::More),
            Some(b"\r\n") => words.push(&bytes[begin..end]),
            Some(_) => return Err(Next::Bad),
        }
        at = end + 2;
    }
    Ok((words, at))
}

/// A head without a body.
fn http1(bytes: &[u8]) -> Next {
    let end = bytes.windows(4).take(LONGEST_LINE).position(|four| four == b"\r\n\r\n");
    match end {
        None if bytes.len() >= LONGEST_LINE => Next::Bad,
        None => Next::More,
        Some(end) => {
            let head = &bytes[..end];
            let first = head.split(|b| *b == b'\r').next().unwrap_or_default();
            let body = String::from_utf8_lossy(head).to_ascii_lowercase().contains("\r\ncontent-length:");
            if body || !first.windows(8).any(|eight| eight == b" HTTP/1.") {
                return Next::Bad;
            }
            Next::Request { used: end + 4, timed: true, reply: PAGE.to_vec() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Everything that is answered to `bytes`, with `!` for each that takes a service time.
    fn talk(store: &mut Store, bytes: &[u8]) -> String {
        let (mut at, mut said) = (0, String::new());
        loop {
            match store.next(&bytes[at..]) {
                Next::Request { used, timed, reply } => {
                    at += used;
                    said += if timed { "!" } else { "" };
                    said += &reply.escape_ascii().to_string();
                }
                Next::More => return said,
                Next::Bad => return said + "BAD",
            }
        }
    }

    #[test]
    fn values_come_back() {
        let mut memcached = Store::new(TextProtocol::Memcached);
        let said = talk(
            &mut memcached,
            b"set a 5 0 2\r\nhi\r\nset b 0 0 0 noreply\r\n\r\nget a b c\r\ngets a\r\nversion\r\nflush\r\nget",
        );
        let wanted = r"STORED\r\n!VALUE a 5 2\r\nhi\r\nVALUE b 0 0\r\n\r\nEND\r\n!VALUE a 5 2 1\r\nhi\r\nEND\r\nVERSION 0-ideal\r\nERROR\r\n";
        assert_eq!(said, wanted);
        let mut resp = Store::new(TextProtocol::Resp);
        let said = talk(
            &mut resp,
            b"*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$4\r\nsave\r\n*2\r\n$3\r\nget\r\n$1\r\nk\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nhi\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        );
        assert_eq!(said, r"*2\r\n$4\r\nsave\r\n$0\r\n\r\n!$-1\r\n+OK\r\n!$2\r\nhi\r\n");
        let mut http = Store::new(TextProtocol::Http1);
        let page = "!".to_owned() + &PAGE.escape_ascii().to_string();
        assert_eq!(
            talk(&mut http, b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /a HTTP/1.1\r\n\r\nGET"),
            page.clone() + &page
        );
        assert_eq!(talk(&mut http, b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"), "BAD");
    }

    #[test]
    fn memory_is_bounded() {
        let mut store = Store::new(TextProtocol::Memcached);
        store.bytes = ROOM - 10;
        assert_eq!(talk(&mut store, b"set key 0 0 8\r\n12345678\r\n"), r"SERVER_ERROR out of memory\r\n");
        assert_eq!(talk(&mut store, b"set key 0 0 2\r\n12\r\nset key 0 0 2\r\n34\r\n"), r"STORED\r\nSTORED\r\n");
        assert_eq!(store.bytes, ROOM - 5);
    }

    proptest! {
        #[test]
        fn any_bytes_are_more_bad_or_a_request(
            protocol in prop::sample::select(vec![TextProtocol::Memcached, TextProtocol::Resp, TextProtocol::Http1]),
            words in prop::collection::vec(prop::sample::select(vec![
                "get ", "set ", "k", " 0", " 2", "\r\n", "hi", "*2\r\n", "$3\r\n", "GET", "$1\r\n", " HTTP/1.1", "\u{7f}",
            ]), 0..30),
        ) {
            let bytes = words.concat();
            let mut store = Store::new(protocol);
            let whole = talk(&mut store, bytes.as_bytes());
            // Cut anywhere, the same is understood.
            let (mut kept, mut said, mut store) = (Vec::new(), String::new(), Store::new(protocol));
            'bytes: for byte in bytes.bytes() {
                kept.push(byte);
                loop {
                    match store.next(&kept) {
                        Next::Request { used, timed, reply } => {
                            prop_assert!(used > 0 && used <= kept.len());
                            kept.drain(..used);
                            said += if timed { "!" } else { "" };
                            said += &reply.escape_ascii().to_string();
                        }
                        Next::More => break,
                        Next::Bad => { said += "BAD"; break 'bytes }
                    }
                }
            }
            prop_assert_eq!(said, whole);
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for protocol in [TextProtocol::Memcached, TextProtocol::Resp, TextProtocol::Http1] {
                let _ = talk(&mut Store::new(protocol), &bytes);
            }
        }
    }
}
