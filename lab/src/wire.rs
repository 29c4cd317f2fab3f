//! What the lab's server and its probe say in the synthetic protocol ([`tailsight_protocol::wire::synthetic`], the one that
//! `tailsight load synthetic://` speaks): what a request asks for beside its service time, and when it was served.
//!
//! A request has no padding: 16 bytes. With [`flags::STAMPS`] the reply's head is followed by the server's [`Stamps`]
//! (CLOCK_MONOTONIC ns, little endian) where there is room. Echo servers give 128 bytes back as they came: a request with
//! padding that its head says nothing of.

use tailsight_protocol::wire::synthetic::Request;
pub use tailsight_protocol::wire::synthetic::{REPLY_HEAD, REQUEST_HEAD, ReplyHead};

/// Bytes of a request and of a reply of the null-RPC servers (Tales of the Tail §3.1.1).
pub const NULL_RPC: usize = 128;

/// What a request makes `lab serve synthetic` do beside its service time: [`Request::beside`].
pub mod flags {
    /// Take the mutex that another thread of the server holds from time to time.
    pub const LOCK: u8 = 1;
    /// Append to a file and `fsync` it.
    pub const FSYNC: u8 = 2;
    /// Give pages back with `MADV_DONTNEED` and touch them again.
    pub const TOUCH: u8 = 4;
    /// Write to pages that are read-only until the SIGSEGV handler allows it, as garbage collectors do.
    pub const PROTECT: u8 = 8;
    /// Touch pages of a file that were not touched before, so that the memory group must evict others.
    pub const RECLAIM: u8 = 16;
    /// Ask the backend, and wait for its answer.
    pub const ASK: u8 = 32;
    /// Put the server's stamps behind the reply's head.
    pub const STAMPS: u8 = 128;
}

/// A request of the probe: stamps are asked for.
#[must_use]
pub fn request(id: u32, service_ns: u32, flags: u8) -> [u8; REQUEST_HEAD] {
    let reply_bytes = (REPLY_HEAD + Stamps::BYTES) as u16;
    Request { id, service_ns, reply_bytes, sleep: false, beside: flags | flags::STAMPS }.head(false)
}

/// The id of the request that bytes begin with; `None` when there are too few, or they are no request.
#[must_use]
pub fn id_of(bytes: &[u8]) -> Option<u32> {
    Request::parse(bytes).ok().flatten().map(|(request, _)| request.id)
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

    #[test]
    fn a_request_of_the_probe_is_one_of_the_protocol() {
        let bytes = request(7, 5_000, flags::FSYNC);
        assert_eq!(&bytes, b"TSrq\0\0\0\x07\0\0\x13\x88\0\x38\x82\0");
        assert_eq!((id_of(&bytes), id_of(&bytes[..15]), id_of(b"get a\r\n")), (Some(7), None, None));
    }

    proptest! {
        #[test]
        fn stamps_come_back(a: u64, b: u64, c: u64) {
            let stamps = Stamps { received_ns: a, began_ns: b, ended_ns: c };
            let mut payload = [7; 40];
            stamps.write(&mut payload);
            prop_assert_eq!(Stamps::read(&payload), Some(stamps));
            prop_assert_eq!(&payload[24..], &[7; 16]);
        }

        #[test]
        fn any_bytes_are_a_request_or_not(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = (id_of(&bytes), Stamps::read(&bytes));
        }
    }
}
