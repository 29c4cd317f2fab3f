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
    /// A hash of the first key (HTTP: of the path without its query), for "the same key again"; 0 when unseen.
    pub key_hash: u64,
}

impl Class {
    /// A request of which only the command is known.
    pub(crate) fn bare(command: Command) -> Self {
        Self { command, keys: 0, key_bytes: 0, value_bytes: 0, key_hash: 0 }
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
    fn commands_are_short_and_printable() {
        assert_eq!(Command::lower(b"GET").as_str(), "get");
        assert_eq!(Command::exact(b"a\nb\xff").as_str(), "a?b?");
        assert_eq!(Command::lower(b"ZREVRANGEBYSCORE").as_str(), "zrevrangebyscor");
    }
}
