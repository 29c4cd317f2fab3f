//! What hostile servers do, one row each.

use std::time::Duration;

use clap::ValueEnum;

use super::honest::{Protocol, frame};

/// When it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// As soon as somebody connects.
    Connected,
    /// At the first request.
    Asked,
    /// After so many good answers on a connection: a load then runs.
    Answered(usize),
}

/// What it does then.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// Answers on.
    Serve,
    /// Says something once and then one thing for ever, as fast as it is taken; reads meanwhile or does not.
    Flood { head: Vec<u8>, unit: Vec<u8>, reads: bool },
    /// Says something once and then a byte now and then.
    Drip { head: Vec<u8>, byte: u8, every: Duration },
    /// Says something once, and no more.
    Say { bytes: Vec<u8> },
    /// Neither reads nor writes.
    Deaf,
    /// Says that it will say no more, and reads on.
    HalfClose,
    /// Closes.
    Close,
    /// Resets.
    Reset,
}

/// One behaviour in full.
#[derive(Debug, Clone)]
pub(super) struct Script {
    /// Of the URL that a load is given.
    pub(super) scheme: &'static str,
    pub(super) protocol: Protocol,
    pub(super) when: When,
    pub(super) act: Act,
    pub(super) datagrams: bool,
}

macro_rules! behaviours {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a server does to its clients.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
        pub enum Behaviour { $($(#[$doc])* $name,)* }

        impl Behaviour {
            /// Every one that is hostile.
            pub fn all() -> impl Iterator<Item = Self> {
                [$(Self::$name,)*].into_iter().filter(|behaviour| !behaviour.is_honest())
            }
        }
    };
}

behaviours! {
    /// None: an ordinary memcached, to compare with.
    HonestMemcached,
    /// None: an ordinary HTTP/2 server.
    HonestHttp2,
    /// memcached: `END` for ever once the load runs.
    MemcachedEndFlood,
    /// memcached: `END` for ever as the first answer.
    MemcachedEndFloodAtOnce,
    /// memcached: `END` for ever to whoever connects.
    MemcachedEndFloodUnasked,
    /// memcached: errors for ever.
    MemcachedErrorFlood,
    /// memcached: a value that does not end.
    MemcachedEndlessValue,
    /// memcached: a line that does not end.
    MemcachedEndlessLine,
    /// memcached: a value of 2^64 - 1 bytes is announced.
    MemcachedHugeLength,
    /// memcached: the first answer comes a byte at a time.
    MemcachedSlowLoris,
    /// memcached: a value comes a byte at a time, once the load runs.
    MemcachedSlowLorisLater,
    /// memcached: no first answer.
    MemcachedStall,
    /// memcached: no answer any more.
    MemcachedStallLater,
    /// memcached: says at once that it will say nothing.
    MemcachedHalfClose,
    /// memcached: says so once the load runs, and reads on.
    MemcachedHalfCloseLater,
    /// memcached: closes after every few answers.
    MemcachedCloses,
    /// memcached: closes instead of the first answer.
    MemcachedClosesAtOnce,
    /// memcached: resets after every few answers.
    MemcachedResets,
    /// memcached: reads no more.
    MemcachedDeaf,
    /// memcached: bytes of no protocol for ever.
    MemcachedGarbage,
    /// memcached, binary: answers for ever that nobody asked for.
    BinaryFlood,
    /// memcached, binary: a body of 4 GB.
    BinaryHugeBody,
    /// RESP: pushes for ever.
    RespPushFlood,
    /// RESP: pushes for ever as the first answer.
    RespPushFloodAtOnce,
    /// RESP: an array in an array in an array …
    RespNestedArrays,
    /// RESP: a string of 1 TB.
    RespHugeBulk,
    /// RESP: an array of 10^9.
    RespHugeArray,
    /// RESP: attributes for ever.
    RespAttributeFlood,
    /// RESP: the first answer comes a byte at a time.
    RespSlowLoris,
    /// HTTP/1.1: `100 Continue` for ever.
    Http1InterimFlood,
    /// HTTP/1.1: the same as the first answer.
    Http1InterimFloodAtOnce,
    /// HTTP/1.1: chunks of a byte for ever.
    Http1ChunkFlood,
    /// HTTP/1.1: the same as the first answer.
    Http1ChunkFloodAtOnce,
    /// HTTP/1.1: a body until the end of a connection that does not end.
    Http1EndlessBody,
    /// HTTP/1.1: a body of 10^18 bytes.
    Http1HugeLength,
    /// HTTP/1.1: fields for ever.
    Http1FieldFlood,
    /// HTTP/1.1: a field that does not end.
    Http1EndlessField,
    /// HTTP/1.1: an extension of a chunk that does not end.
    Http1EndlessExtension,
    /// HTTP/1.1: trailers for ever.
    Http1TrailerFlood,
    /// HTTP/1.1: the first answer comes a byte at a time.
    Http1SlowLoris,
    /// HTTP/1.1: half a body.
    Http1HalfBody,
    /// HTTP/2: PING for ever (CVE-2019-9512).
    Http2PingFlood,
    /// HTTP/2: the same, and reads no acknowledgement.
    Http2PingFloodDeaf,
    /// HTTP/2: SETTINGS for ever (CVE-2019-9515).
    Http2SettingsFlood,
    /// HTTP/2: the same, and reads no acknowledgement.
    Http2SettingsFloodDeaf,
    /// HTTP/2: CONTINUATION for ever (CVE-2024-27316 and others).
    Http2ContinuationFlood,
    /// HTTP/2: empty CONTINUATION for ever.
    Http2EmptyContinuationFlood,
    /// HTTP/2: RST_STREAM for ever (the server's side of CVE-2023-44487).
    Http2ResetFlood,
    /// HTTP/2: WINDOW_UPDATE for ever.
    Http2WindowFlood,
    /// HTTP/2: DATA without a byte for ever (CVE-2019-9518).
    Http2EmptyDataFlood,
    /// HTTP/2: DATA for ever.
    Http2DataFlood,
    /// HTTP/2: PRIORITY for ever (CVE-2019-9513).
    Http2PriorityFlood,
    /// HTTP/2: GOAWAY for ever.
    Http2GoawayFlood,
    /// HTTP/2: `103 Early Hints` for ever.
    Http2InterimFlood,
    /// HTTP/2: SETTINGS, and no more.
    Http2Stall,
    /// HTTP/2: lets nobody ask.
    Http2NoStreams,
    /// TLS: no handshake.
    TlsStall,
    /// TLS: bytes of no protocol for ever.
    TlsGarbage,
    /// TLS: records of a handshake for ever.
    TlsRecordFlood,
    /// TLS: the server's hello comes a byte at a time.
    TlsSlowLoris,
    /// TLS: warnings for ever.
    TlsAlertFlood,
    /// UDP: datagrams for ever.
    UdpFlood,
    /// UDP: no answer.
    UdpSilent,
}

/// Answers on a connection before a server that begins later begins.
const LATER: When = When::Answered(20);

impl Behaviour {
    /// Whether it is an ordinary server.
    #[must_use]
    pub fn is_honest(self) -> bool {
        matches!(self, Self::HonestMemcached | Self::HonestHttp2)
    }

    #[allow(clippy::too_many_lines, reason = "a row each")]
    pub(super) fn script(self) -> Script {
        use Protocol::{Echo, Http1, Http2, Memcached, MemcachedBinary, Resp};
        let flood = |unit: &[u8]| Act::Flood { head: Vec::new(), unit: unit.to_vec(), reads: true };
        let deaf = |unit: &[u8]| Act::Flood { head: Vec::new(), unit: unit.to_vec(), reads: false };
        let after = |head: &[u8], unit: &[u8]| Act::Flood { head: head.to_vec(), unit: unit.to_vec(), reads: true };
        let say = |bytes: &[u8]| Act::Say { bytes: bytes.to_vec() };
        let drip = |head: &[u8], byte: u8| Act::Drip { head: head.to_vec(), byte, every: Duration::from_millis(100) };
        // Of the first request of a client, and of one that is under way after twenty.
        let (first, later) = (1, 41);
        let begun = frame(1, 4, later, b"\x88");
        let ok = b"HTTP/1.1 200 OK\r\n";
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (protocol, when, act) = match self {
            Self::HonestMemcached => (Memcached, When::Connected, Act::Serve),
            Self::HonestHttp2 => (Http2, When::Connected, Act::Serve),
            Self::MemcachedEndFlood => (Memcached, LATER, flood(b"END\r\n")),
            Self::MemcachedEndFloodAtOnce => (Memcached, When::Asked, flood(b"END\r\n")),
            Self::MemcachedEndFloodUnasked => (Memcached, When::Connected, flood(b"END\r\n")),
            Self::MemcachedErrorFlood => (Memcached, LATER, flood(b"SERVER_ERROR no\r\n")),
            Self::MemcachedEndlessValue => (Memcached, LATER, after(b"VALUE k 0 999999999999\r\n", &[b'x'; 1024])),
            Self::MemcachedEndlessLine => (Memcached, When::Asked, flood(&[b'E'; 1024])),
            Self::MemcachedHugeLength => (Memcached, When::Asked, say(b"VALUE k 0 18446744073709551615\r\nx")),
            Self::MemcachedSlowLoris => (Memcached, When::Asked, drip(b"VALUE k 0 1000000\r\n", b'x')),
            Self::MemcachedSlowLorisLater => (Memcached, LATER, drip(b"VALUE k 0 1000000\r\n", b'x')),
            Self::MemcachedStall => (Memcached, When::Asked, say(b"")),
            Self::MemcachedStallLater => (Memcached, LATER, say(b"")),
            Self::MemcachedHalfClose => (Memcached, When::Asked, Act::HalfClose),
            Self::MemcachedHalfCloseLater => (Memcached, LATER, Act::HalfClose),
            Self::MemcachedCloses => (Memcached, LATER, Act::Close),
            Self::MemcachedClosesAtOnce => (Memcached, When::Asked, Act::Close),
            Self::MemcachedResets => (Memcached, LATER, Act::Reset),
            Self::MemcachedDeaf => (Memcached, LATER, Act::Deaf),
            Self::MemcachedGarbage => (Memcached, LATER, flood(b"\0\xff\x80garbage\x01\r")),
            Self::BinaryFlood => (
                MemcachedBinary,
                LATER,
                flood(&[&[0x81, 0, 0, 0, 0, 0, 0, 1][..], &[0; 4], &[0xee; 4], &[0; 8]].concat()),
            ),
            Self::BinaryHugeBody => {
                let head = [&[0x81, 0, 0, 0, 4, 0, 0, 0][..], &[0xff; 4], &[0; 12]].concat();
                (MemcachedBinary, When::Asked, after(&head, &[b'x'; 1024]))
            }
            Self::RespPushFlood => (Resp, LATER, flood(b">2\r\n+a\r\n+b\r\n")),
            Self::RespPushFloodAtOnce => (Resp, When::Asked, flood(b">2\r\n+a\r\n+b\r\n")),
            Self::RespNestedArrays => (Resp, When::Asked, flood(b"*1\r\n")),
            Self::RespHugeBulk => (Resp, LATER, after(b"$1000000000000\r\n", &[b'x'; 1024])),
            Self::RespHugeArray => (Resp, LATER, after(b"*1000000000\r\n", b"+a\r\n")),
            Self::RespAttributeFlood => (Resp, LATER, flood(b"|1\r\n+a\r\n+b\r\n")),
            Self::RespSlowLoris => (Resp, When::Asked, drip(b"$1000000\r\n", b'x')),
            Self::Http1InterimFlood => (Http1, LATER, flood(b"HTTP/1.1 100 Continue\r\n\r\n")),
            Self::Http1InterimFloodAtOnce => (Http1, When::Asked, flood(b"HTTP/1.1 100 Continue\r\n\r\n")),
            Self::Http1ChunkFlood => (Http1, LATER, after(chunked, b"1\r\nx\r\n")),
            Self::Http1ChunkFloodAtOnce => (Http1, When::Asked, after(chunked, b"1\r\nx\r\n")),
            Self::Http1EndlessBody => (Http1, When::Asked, after(b"HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 1024])),
            Self::Http1HugeLength => {
                (Http1, LATER, after(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000000\r\n\r\n", &[b'x'; 1024]))
            }
            Self::Http1FieldFlood => (Http1, When::Asked, after(ok, b"A: b\r\n")),
            Self::Http1EndlessField => (Http1, LATER, after(b"HTTP/1.1 200 OK\r\nA: ", &[b'x'; 1024])),
            Self::Http1EndlessExtension => (Http1, LATER, after(&[&chunked[..], b"1;"].concat(), &[b'x'; 1024])),
            Self::Http1TrailerFlood => (Http1, LATER, after(&[&chunked[..], b"0\r\n"].concat(), b"A: b\r\n")),
            Self::Http1SlowLoris => {
                (Http1, When::Asked, drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b'x'))
            }
            Self::Http1HalfBody => (Http1, LATER, say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")),
            Self::Http2PingFlood => (Http2, LATER, flood(&frame(6, 0, 0, b"8 bytes."))),
            Self::Http2PingFloodDeaf => (Http2, LATER, deaf(&frame(6, 0, 0, b"8 bytes."))),
            Self::Http2SettingsFlood => (Http2, When::Asked, flood(&frame(4, 0, 0, b""))),
            Self::Http2SettingsFloodDeaf => (Http2, LATER, deaf(&frame(4, 0, 0, b""))),
            Self::Http2ContinuationFlood => {
                (Http2, LATER, after(&frame(1, 0, later, b"\x88"), &frame(9, 0, later, &[0; 1000])))
            }
            Self::Http2EmptyContinuationFlood => {
                (Http2, When::Asked, after(&frame(1, 0, first, b"\x88"), &frame(9, 0, first, b"")))
            }
            Self::Http2ResetFlood => (Http2, LATER, flood(&frame(3, 0, later, &[0, 0, 0, 7]))),
            Self::Http2WindowFlood => (Http2, LATER, flood(&frame(8, 0, 7, &[0, 0, 0, 1]))),
            Self::Http2EmptyDataFlood => (Http2, LATER, after(&begun, &frame(0, 0, later, b""))),
            Self::Http2DataFlood => (Http2, LATER, after(&begun, &frame(0, 0, later, &[b'x'; 8192]))),
            Self::Http2PriorityFlood => (Http2, LATER, flood(&frame(2, 0, 3, &[0, 0, 0, 1, 9]))),
            Self::Http2GoawayFlood => (Http2, LATER, flood(&frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]))),
            Self::Http2InterimFlood => (Http2, LATER, flood(&frame(1, 4, later, b"\x08\x03103"))),
            Self::Http2Stall => (Http2, When::Asked, say(b"")),
            Self::Http2NoStreams => (Http2, LATER, say(&frame(4, 0, 0, &[0, 3, 0, 0, 0, 0]))),
            Self::TlsStall => (Http1, When::Connected, say(b"")),
            Self::TlsGarbage => (Http1, When::Connected, flood(b"\0\xff\x80garbage\x01\r")),
            // Records of type 22 that hold a part of a message of 16 MB.
            Self::TlsRecordFlood => {
                let part = [&[22, 3, 3, 4, 0][..], &[0; 1024]].concat();
                (Http1, When::Connected, after(&[22, 3, 3, 0, 4, 2, 0xff, 0xff, 0xff], &part))
            }
            Self::TlsSlowLoris => (Http1, When::Connected, drip(&[22, 3, 3, 4, 0, 2, 0, 3, 0xfc], 3)),
            Self::TlsAlertFlood => (Http1, When::Connected, flood(&[21, 3, 3, 0, 2, 1, 90])),
            Self::UdpFlood => (Echo, When::Connected, flood(b"nobody asked for this")),
            Self::UdpSilent => (Echo, When::Connected, say(b"")),
        };
        let datagrams = matches!(self, Self::UdpFlood | Self::UdpSilent);
        let tls = matches!(
            self,
            Self::TlsStall | Self::TlsGarbage | Self::TlsRecordFlood | Self::TlsSlowLoris | Self::TlsAlertFlood
        );
        let scheme = match protocol {
            _ if datagrams => "echo+udp",
            _ if tls => "https",
            Memcached => "memcached",
            MemcachedBinary => "memcached-binary",
            Resp => "redis",
            Http1 => "http",
            Http2 => "http2",
            Echo => "echo",
        };
        Script { scheme, protocol, when, act, datagrams }
    }
}
