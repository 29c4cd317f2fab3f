//! HTTP/2 requests (RFC 9113) and HPACK (RFC 7541) as far as a client needs it. Requests are sent through
//! [`reply::Http2`](crate::reply::Http2), which knows the stream ids and windows.
//!
//! Requests use the static table and literals without indexing, not Huffman-coded: no state, no allocation, and bytes a
//! request that do not depend on those before it. Of replies only `:status` is read, which comes first in a header block:
//! the client announces a dynamic table of 0 bytes, so a block can be read without those before it.

/// A frame's head: length u24, type u8, flags u8, stream u32.
pub(crate) const HEAD: usize = 9;
/// Frame types.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY_FRAME: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
/// Flags.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const PRIORITY: u8 = 32;
/// The last stream id.
pub(crate) const LAST_ID: u32 = (1 << 31) - 1;
/// The largest frame, unless a peer allows larger ones.
pub(crate) const FRAME: usize = 16 << 10;
/// What a client sends first.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a request is made of. Field names must be lower case.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `GET`, `POST`, …
    pub method: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// The authority (host and port).
    pub authority: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// More fields.
    pub fields: &'a [(&'a str, &'a str)],
    /// The body.
    pub body: Option<&'a [u8]>,
}

/// What a frame's head says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameHead {
    /// Bytes behind the head.
    pub length: usize,
    pub kind: u8,
    pub flags: u8,
    /// 0: the connection.
    pub stream: u32,
}

impl FrameHead {
    pub(crate) fn read(head: &[u8; HEAD]) -> FrameHead {
        let [a, b, c, kind, flags, stream @ ..] = *head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        FrameHead { length, kind, flags, stream: u32::from_be_bytes(stream) & LAST_ID }
    }

    /// Whether a frame of this kind may be of this stream: of the connection, or of a stream.
    pub(crate) fn has_its_stream(&self) -> bool {
        match self.kind {
            DATA | HEADERS | PRIORITY_FRAME | RST_STREAM | PUSH_PROMISE | CONTINUATION => self.stream != 0,
            SETTINGS | PING | GOAWAY => self.stream == 0,
            _ => true,
        }
    }
}

/// Appends a frame's head.
pub(crate) fn frame(buf: &mut Vec<u8>, len: usize, kind: u8, flags: u8, stream: u32) {
    buf.extend_from_slice(&(len as u32).to_be_bytes()[1..]);
    buf.extend_from_slice(&[kind, flags]);
    buf.extend_from_slice(&stream.to_be_bytes());
}

/// An HPACK integer behind `bits` bits of prefix (RFC 7541 §5.1).
fn integer(buf: &mut Vec<u8>, first: u8, bits: u8, mut value: usize) {
    let most = (1_usize << bits) - 1;
    if value < most {
        buf.push(first | value as u8);
        return;
    }
    buf.push(first | most as u8);
    value -= most;
    while value >= 128 {
        buf.push(value as u8 | 128);
        value >>= 7;
    }
    buf.push(value as u8);
}

/// A literal string, not Huffman-coded (§5.2).
fn string(buf: &mut Vec<u8>, text: &str) {
    integer(buf, 0, 7, text.len());
    buf.extend_from_slice(text.as_bytes());
}

/// A literal without indexing whose name is in the static table (§6.2.2).
fn named(buf: &mut Vec<u8>, index: usize, value: &str) {
    integer(buf, 0, 4, index);
    string(buf, value);
}

/// Appends a request's header block.
pub(crate) fn header_block(buf: &mut Vec<u8>, request: &Request<'_>) {
    match request.method {
        "GET" => buf.push(0x82),
        "POST" => buf.push(0x83),
        method => named(buf, 2, method),
    }
    match request.scheme {
        "http" => buf.push(0x86),
        "https" => buf.push(0x87),
        scheme => named(buf, 6, scheme),
    }
    named(buf, 1, request.authority);
    match request.path {
        "/" => buf.push(0x84),
        path => named(buf, 4, path),
    }
    for (name, value) in request.fields {
        buf.push(0);
        string(buf, name);
        string(buf, value);
    }
}

/// Reads an integer behind the prefix, `bits` of the first byte (RFC 7541 §5.1): it, and its length.
pub(crate) fn read_integer(bytes: &[u8], bits: u8) -> Option<(usize, usize)> {
    let most = (1_usize << bits) - 1;
    let first = usize::from(*bytes.first()?) & most;
    if first < most {
        return Some((first, 1));
    }
    let mut value = most;
    for (at, byte) in bytes[1..].iter().enumerate().take(4) {
        value += usize::from(byte & 127) << (7 * at);
        if byte & 128 == 0 {
            return Some((value, at + 2));
        }
    }
    None
}

/// Reads a string of digits of at most `most` bytes on the wire: Huffman-coded (digits alone) or not. For names, `:status`.
fn read_string(bytes: &[u8]) -> Option<(Coded<'_>, usize)> {
    let huffman = bytes.first()? & 128 != 0;
    let (len, head) = read_integer(bytes, 7)?;
    let text = bytes.get(head..head.checked_add(len)?)?;
    Some((Coded { text, huffman }, head + len))
}

/// A string as on the wire.
struct Coded<'a> {
    text: &'a [u8],
    huffman: bool,
}

impl Coded<'_> {
    /// Three digits.
    fn code(&self) -> Option<u16> {
        let mut digits = [0_u8; 3];
        if self.huffman {
            // Codes of digits (RFC 7541 Appendix B): 0, 1, 2 are 00000, 00001, 00010; 3 to 9 are 011001 to 011111.
            if self.text.is_empty() || self.text.len() > 3 {
                return None;
            }
            let mut bits = self.text.iter().take(4).fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
            bits <<= 32 - 8 * self.text.len() as u32;
            let mut used = 0;
            for digit in &mut digits {
                *digit = match (bits >> 27, bits >> 26) {
                    (short @ 0..=2, _) => {
                        bits <<= 5;
                        used += 5;
                        short as u8
                    }
                    (_, long @ 0x19..=0x1f) => {
                        bits <<= 6;
                        used += 6;
                        (long - 0x19) as u8 + 3
                    }
                    _ => return None,
                };
            }
            if used > 8 * self.text.len() {
                return None;
            }
        } else {
            let text: &[u8; 3] = self.text.try_into().ok()?;
            for (digit, byte) in digits.iter_mut().zip(text) {
                *digit = byte.is_ascii_digit().then(|| byte - b'0')?;
            }
        }
        Some(digits.iter().fold(0, |code, digit| code * 10 + u16::from(*digit)))
    }

    /// Whether it is `:status`.
    fn is_status(&self) -> bool {
        // `:status` Huffman-coded: 1011100 01000 01001 00011 01001 101101 01000, padded with ones.
        const HUFFMAN: [u8; 5] = [0xb8, 0x84, 0x8d, 0x36, 0xa3];
        if self.huffman { self.text == HUFFMAN } else { self.text == b":status" }
    }
}

/// The status of a reply's header block, read without the dynamic table.
pub(crate) fn status(mut block: &[u8]) -> Option<u16> {
    // Updates of the table's size come first.
    while block.first()? & 0xe0 == 0x20 {
        let (_, len) = read_integer(block, 5)?;
        block = &block[len..];
    }
    let first = *block.first()?;
    if first & 0x80 != 0 {
        const STATIC: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
        let (index, _) = read_integer(block, 7)?;
        return STATIC.get(index.checked_sub(8)?).copied();
    }
    let bits = if first & 0x40 != 0 { 6 } else { 4 };
    let (index, mut at) = read_integer(block, bits)?;
    match index {
        8..=14 => {}
        0 => {
            let (name, len) = read_string(&block[at..])?;
            at += len;
            name.is_status().then_some(())?;
        }
        _ => return None,
    }
    read_string(&block[at..])?.0.code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_in_every_form() {
        assert_eq!(status(&[0x88]), Some(200));
        assert_eq!(status(&[0x20, 0x8e]), Some(500));
        assert_eq!(status(&[0x3f, 0xe1, 0x1f, 0x8d]), Some(404));
        // RFC 7541 C.6.1: `:status` 302, Huffman-coded, with indexing.
        assert_eq!(status(&[0x48, 0x82, 0x64, 0x02]), Some(302));
        // C.6.2: 307.
        assert_eq!(status(&[0x48, 0x83, 0x64, 0x0e, 0xff]), Some(307));
        assert_eq!(status(b"\x08\x03418"), Some(418));
        assert_eq!(status(b"\x00\x07:status\x03503"), Some(503));
        // Regression, found by the fuzz target http2_frames: a Huffman-coded status of no bytes shifted a word by all its bits.
        assert_eq!(status(&[0x48, 0x80]), None);
        // The dynamic table, a name that is not `:status`, and blocks that end too early.
        assert_eq!(status(&[0xbe]), None);
        assert_eq!(status(b"\x00\x06server\x03503"), None);
        for cut in 0..4 {
            assert_eq!(status(&[0x48, 0x82, 0x64, 0x02][..cut]), None);
        }
    }
}
