//! What a value should be. In: a seed and a length. Out: bytes to send, and whether bytes that came are them.
//!
//! Byte `i` of a pattern is byte `i % 8` (little-endian) of `seed + (i / 8) × 0x9E3779B97F4A7C15`, so that a value of
//! another key, a shifted one and a cut one all differ.

/// What the reply's value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Value {
    /// Anything.
    #[default]
    Any,
    /// Anything of this many bytes.
    Len(u64),
    /// These bytes ([`Value::write`]): every one is compared.
    Pattern {
        /// How many.
        len: u64,
        /// Which.
        seed: u64,
    },
}

/// The step from one word of a pattern to the next.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

fn word(seed: u64, index: u64) -> [u8; 8] {
    seed.wrapping_add(index.wrapping_mul(STEP)).to_le_bytes()
}

impl Value {
    /// Appends a pattern of `len` bytes.
    pub fn write(buf: &mut Vec<u8>, len: usize, seed: u64) {
        buf.reserve(len);
        let whole = len / 8;
        for index in 0..whole as u64 {
            buf.extend_from_slice(&word(seed, index));
        }
        buf.extend_from_slice(&word(seed, whole as u64)[..len % 8]);
    }

    /// Whether `bytes` are what should be at `at` of the value.
    pub(crate) fn fits(&self, at: u64, bytes: &[u8]) -> bool {
        let Self::Pattern { seed, .. } = *self else { return true };
        let to_word = ((8 - at % 8) % 8).min(bytes.len() as u64) as usize;
        let (head, rest) = bytes.split_at(to_word);
        if !head.is_empty() && !word(seed, at / 8)[(at % 8) as usize..].starts_with(head) {
            return false;
        }
        let first = (at + to_word as u64) / 8;
        let mut words = rest.chunks_exact(8);
        words.by_ref().zip(first..).all(|(chunk, index)| chunk == word(seed, index))
            && word(seed, first + rest.len() as u64 / 8).starts_with(words.remainder())
    }

    /// Whether this many bytes are right.
    pub(crate) fn len_fits(&self, bytes: u64) -> bool {
        match *self {
            Self::Any => true,
            Self::Len(len) | Self::Pattern { len, .. } => len == bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_pattern_is_known_again_from_any_offset(len in 0usize..200, seed: u64, cut in 0usize..200, flip in 0usize..200) {
            let mut bytes = Vec::new();
            Value::write(&mut bytes, len, seed);
            prop_assert_eq!(bytes.len(), len);
            let value = Value::Pattern { len: len as u64, seed };
            let cut = cut.min(len);
            prop_assert!(value.fits(0, &bytes[..cut]) && value.fits(cut as u64, &bytes[cut..]));
            if len > 0 {
                bytes[flip % len] ^= 1;
                prop_assert!(!(value.fits(0, &bytes[..cut]) && value.fits(cut as u64, &bytes[cut..])));
            }
        }
    }
}
