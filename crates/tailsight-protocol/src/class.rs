//! The class of a request: what its cohort is formed by. In: a request as framed. Out: command, sizes, path.

use std::fmt;

/// A command or method, at most [`Command::MAX`] bytes of its name, lower case for memcached and Redis, as sent for HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Command {
    name: [u8; Self::MAX],
    len: u8,
}

impl Command {
    /// Longer names are cut to this many bytes.
    pub const MAX: usize = 15;

    /// A name, ASCII lower case; what is not printable ASCII becomes `?`.
    pub fn lower(name: &[u8]) -> Self {
        let mut command = Self::exact(name);
        command.name.make_ascii_lowercase();
        command
    }

    /// A name as it is; what is not printable ASCII becomes `?`.
    pub fn exact(name: &[u8]) -> Self {
        let len = name.len().min(Self::MAX);
        let mut command = Self { name: [0; Self::MAX], len: len as u8 };
        for (to, from) in command.name.iter_mut().zip(name) {
            *to = if from.is_ascii_graphic() { *from } else { b'?' };
        }
        command
    }

    /// What stands for a method that was not seen.
    pub(crate) fn unknown() -> Self {
        Self::exact(b"(unknown)")
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.name[..usize::from(self.len)]).unwrap_or("?")
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The shape of an HTTP path: the path without what tells one thing from another of its kind, at most [`Shape::MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    text: [u8; Self::MAX],
    len: u8,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { text: [0; Self::MAX], len: 0 }
    }
}

impl Shape {
    /// A longer one is cut before the part that does not fit, which becomes `…`.
    pub const MAX: usize = 47;

    /// What stands for a path that was not seen.
    pub const UNKNOWN: &str = "(unknown path)";

    /// The path was not seen.
    pub(crate) fn unknown() -> Shape {
        let mut shape = Shape::default();
        shape.push(Self::UNKNOWN.as_bytes());
        shape
    }

    /// Of a path, without its query. A part of it that looks like an id (with a digit, or longer than a word of a route) becomes `*`; what
    /// is not printable ASCII becomes `?`.
    pub fn of(path: &[u8]) -> Shape {
        let mut shape = Shape::default();
        let path = path.split(|b| b"?#".contains(b)).next().unwrap_or_default();
        for (i, part) in path.split(|b| *b == b'/').enumerate() {
            let before: &[u8] = if i > 0 { b"/" } else { b"" };
            let room = Self::MAX - usize::from(shape.len) - "/…".len();
            let part = if is_id(part) { b"*" } else { part };
            if before.len() + part.len() > room {
                shape.push("/…".as_bytes());
                break;
            }
            shape.push(before);
            let printable: Vec<u8> = part.iter().map(|b| if b.is_ascii_graphic() { *b } else { b'?' }).collect();
            shape.push(&printable);
        }
        shape
    }

    fn push(&mut self, bytes: &[u8]) {
        let from = usize::from(self.len);
        let room = self.text.get_mut(from..from + bytes.len());
        if let Some(to) = room {
            to.copy_from_slice(bytes);
            self.len += bytes.len() as u8;
        }
    }

    /// The shape; empty where there is none.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..usize::from(self.len)]).unwrap_or("?")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// Whether a part of a path names one thing of many: routes have words there, and versions (`v1`).
fn is_id(part: &[u8]) -> bool {
    const LONGEST_WORD: usize = 24;
    let version =
        matches!(part, [b'v', rest @ ..] if (1..3).contains(&rest.len()) && rest.iter().all(u8::is_ascii_digit));
    !version && (part.len() > LONGEST_WORD || part.iter().any(u8::is_ascii_digit))
}

/// What a request is, as far as its latency may depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Class {
    /// The command (memcached, Redis) or method (HTTP).
    pub command: Command,
    /// How many keys it names (`get a b c`, `MGET`); 0 when it has none.
    pub keys: u32,
    /// Bytes of its first key (HTTP: of the path without its query).
    pub key_bytes: u32,
    /// Bytes that it carries to store (HTTP: of its body, as far as announced). A read's value is in the reply frame.
    pub value_bytes: u64,
    /// HTTP: the shape of the path, [`Shape::UNKNOWN`] where HTTP/2 compressed it with bytes that were not seen; else empty.
    pub path: Shape,
    /// A hash of the first key (HTTP: of the path without its query), for "the same key again"; 0 when unseen.
    pub key_hash: u64,
}

impl Class {
    /// A request of which only the command is known.
    pub(crate) fn bare(command: Command) -> Self {
        Self { command, keys: 0, key_bytes: 0, value_bytes: 0, path: Shape::default(), key_hash: 0 }
    }
}

/// The power-of-two bucket of a size: the smallest power of two that is not below it (0 stays 0), so that 65..=128 is 128.
pub fn bucket(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { bytes.checked_next_power_of_two().unwrap_or(u64::MAX) }
}

/// A hash of a key (FNV-1a, 64 bits; never 0, which says "unseen").
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = Hasher::default();
    hasher.take(bytes);
    hasher.value()
}

/// The same over parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hasher {
    state: u64,
    lost: bool,
}

impl Default for Hasher {
    fn default() -> Self {
        Self { state: 0xcbf2_9ce4_8422_2325, lost: false }
    }
}

impl Hasher {
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
        self.state = bytes.iter().fold(self.state, step);
    }

    /// A part was not seen.
    pub(crate) fn lost(&mut self) {
        self.lost = true;
    }

    pub(crate) fn value(&self) -> u64 {
        if self.lost { 0 } else { self.state.max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_the_next_power_of_two() {
        let buckets = [0, 1, 2, 3, 64, 65, 128, u64::MAX].map(bucket);
        assert_eq!(buckets, [0, 1, 2, 4, 64, 128, 128, u64::MAX]);
    }

    #[test]
    fn paths_have_the_shape_of_their_route() {
        let shape = |path: &str| Shape::of(path.as_bytes()).as_str().to_owned();
        assert_eq!(shape("/report"), "/report");
        assert_eq!(shape("/report?user=7#x"), "/report");
        assert_eq!(shape("/v1/users/4711/orders"), "/v1/users/*/orders");
        assert_eq!(shape("/files/0b5c7e0a-9d1f-4a2b-8c3d-1e2f3a4b5c6d/"), "/files/*/");
        assert_eq!(shape("/a b\u{7}"), "/a?b?");
        assert_eq!(shape("/"), "/");
        assert_eq!(shape(""), "");
        assert_eq!(shape("http://host/report"), "http://host/report");
        let long = shape(&"/words".repeat(20));
        assert_eq!(long, format!("{}/…", "/words".repeat(7)));
        assert!(long.len() <= Shape::MAX);
    }

    #[test]
    fn commands_are_short_and_printable() {
        assert_eq!(Command::lower(b"GET").as_str(), "get");
        assert_eq!(Command::exact(b"a\nb\xff").as_str(), "a?b?");
        assert_eq!(Command::lower(b"ZREVRANGEBYSCORE").as_str(), "zrevrangebyscor");
    }
}
