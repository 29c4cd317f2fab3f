//! The synthetic protocol on the wire: a request says how long its service takes, a reply says when it was served.
//!
//! A request is a header of 16 bytes, little endian: magic u32, request id u32, service time in ns u32, bytes of reply
//! payload u16, [`flags`] u16. A reply is the same header and the payload asked for; when that has room for
//! [`Stamps::BYTES`], it begins with the server's stamps (CLOCK_MONOTONIC ns). Echo servers give 128 bytes back as they
//! came: the same header with padding.

/// The first four bytes of a header.
pub const MAGIC: u32 = 0x7453_7954;
/// Bytes of a header, and of a request of the synthetic protocol.
pub const HEADER: usize = 16;
/// Bytes of a request and of a reply of the null-RPC servers (Tales of the Tail §3.1.1).
pub const NULL_RPC: usize = 128;

/// What a request makes the synthetic server do beside its service time.
pub mod flags {
    /// Take the mutex that another thread of the server holds now and then.
    pub const LOCK: u16 = 1;
    /// Append to a file and `fsync` it.
    pub const FSYNC: u16 = 2;
    /// Give pages back with `MADV_DONTNEED` and touch them again.
    pub const TOUCH: u16 = 4;
    /// Write to pages that are read-only until the SIGSEGV handler allows it, as garbage collectors do.
    pub const PROTECT: u16 = 8;
    /// Touch pages of a file that were not touched before, so that the memory group has to give up others.
    pub const RECLAIM: u16 = 16;
}

/// A request, or the head of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Chosen by the client, given back by the server.
    pub id: u32,
    /// Service time, ns; 0 lets the server draw its own.
    pub service_ns: u32,
    /// Payload of the reply, bytes.
    pub reply_bytes: u16,
    /// [`flags`].
    pub flags: u16,
}

impl Header {
    /// The 16 bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.service_ns.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.reply_bytes.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }

    /// Reads a header; `None` when there are too few bytes or another magic.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        (word(0)? == MAGIC).then_some(())?;
        Some(Self { id: word(4)?, service_ns: word(8)?, reply_bytes: half(12)?, flags: half(14)? })
    }
}

/// When the server had a request, CLOCK_MONOTONIC ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamps {
    /// The receive call that brought it returned.
    pub received_ns: u64,
    /// Its service began.
    pub began_ns: u64,
    /// Its service ended: the send call comes next.
    pub ended_ns: u64,
}

impl Stamps {
    /// Their bytes on the wire.
    pub const BYTES: usize = 24;

    /// Writes them at the front of a payload that has room; others stay as they are.
    pub fn write(self, payload: &mut [u8]) {
        if payload.len() >= Self::BYTES {
            payload[0..8].copy_from_slice(&self.received_ns.to_le_bytes());
            payload[8..16].copy_from_slice(&self.began_ns.to_le_bytes());
            payload[16..24].copy_from_slice(&self.ended_ns.to_le_bytes());
        }
    }

    /// Reads them from a payload that has them.
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(payload.get(at..at + 8)?.try_into().ok()?));
        Some(Self { received_ns: word(0)?, began_ns: word(8)?, ended_ns: word(16)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_and_stamps_come_back(id: u32, service_ns: u32, reply_bytes: u16, flags: u16, a: u64, b: u64, c: u64) {
            let header = Header { id, service_ns, reply_bytes, flags };
            prop_assert_eq!(Header::parse(&header.to_bytes()), Some(header));
            let stamps = Stamps { received_ns: a, began_ns: b, ended_ns: c };
            let mut payload = [7; 40];
            stamps.write(&mut payload);
            prop_assert_eq!(Stamps::read(&payload), Some(stamps));
            prop_assert_eq!(&payload[24..], &[7; 16]);
        }

        #[test]
        fn any_bytes_are_a_header_or_not(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(header) = Header::parse(&bytes) {
                prop_assert_eq!(&header.to_bytes()[..], &bytes[..HEADER]);
            }
            let _ = Stamps::read(&bytes);
        }
    }
}
