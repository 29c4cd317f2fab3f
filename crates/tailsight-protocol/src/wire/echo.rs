//! Echo: any bytes, which must come back. Expect them with [`Value::Pattern`] of the same seed.

use crate::Value;

/// A request of `len` bytes.
pub fn request(buf: &mut Vec<u8>, len: usize, seed: u64) {
    Value::write(buf, len, seed);
}
