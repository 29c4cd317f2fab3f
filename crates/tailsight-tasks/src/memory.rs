//! Memory of another process, as who reads it gives it.
//!
//! In: places. Out: their bytes, each whole or not at all. The process goes on meanwhile: what is read may be half old and half new, and it
//! may be anything; who reads checks that it is what it should be.

/// Where bytes are read from.
pub trait Memory {
    /// The bytes at several places: address and number of bytes. None of a place where not all can be read.
    fn read_each(&self, places: &[(u64, usize)]) -> Vec<Option<Vec<u8>>>;

    /// The bytes at one place.
    fn read(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        self.read_each(&[(address, bytes)]).pop().flatten()
    }

    /// The 64-bit number at a place.
    fn word(&self, address: u64) -> Option<u64> {
        word(&self.read(address, 8)?, 0)
    }
}

/// The 64-bit number at a place of bytes that were read.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// The 32-bit number at a place of bytes that were read.
pub(crate) fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}
