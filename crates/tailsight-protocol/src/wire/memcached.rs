//! memcached's text protocol and its meta commands. Keys have at most 250 bytes without spaces and control characters; the
//! caller makes them so.

use super::{decimal, parts};

/// Bytes of the head of a UDP datagram: request id, sequence number, datagrams in all, reserved (16 bits each).
pub const UDP_HEAD: usize = 8;

/// The head of a request of one datagram.
pub fn udp_head(id: u16) -> [u8; UDP_HEAD] {
    let [high, low] = id.to_be_bytes();
    [high, low, 0, 0, 0, 1, 0, 0]
}

/// `get` of one key.
pub fn get(buf: &mut Vec<u8>, key: &[u8]) {
    parts(buf, &[b"get ", key, b"\r\n"]);
}

/// `get` of several keys.
pub fn get_many<'a>(buf: &mut Vec<u8>, keys: impl IntoIterator<Item = &'a [u8]>) {
    buf.extend_from_slice(b"get");
    for key in keys {
        parts(buf, &[b" ", key]);
    }
    buf.extend_from_slice(b"\r\n");
}

/// The line of a `set`; the value and CRLF follow.
fn set_line(buf: &mut Vec<u8>, key: &[u8], flags: u32, expires: u32, len: usize, noreply: bool) {
    parts(buf, &[b"set ", key, b" "]);
    decimal(buf, u64::from(flags));
    buf.push(b' ');
    decimal(buf, u64::from(expires));
    buf.push(b' ');
    decimal(buf, len as u64);
    buf.extend_from_slice(if noreply { b" noreply\r\n" } else { b"\r\n" });
}

/// `set`. `expires` in seconds, 0 never.
pub fn set(buf: &mut Vec<u8>, key: &[u8], flags: u32, expires: u32, value: &[u8]) {
    set_line(buf, key, flags, expires, value.len(), false);
    parts(buf, &[value, b"\r\n"]);
}

/// `set` with `noreply`: nothing is to be expected.
pub fn set_noreply(buf: &mut Vec<u8>, key: &[u8], flags: u32, expires: u32, value: &[u8]) {
    set_line(buf, key, flags, expires, value.len(), true);
    parts(buf, &[value, b"\r\n"]);
}

/// `delete`.
pub fn delete(buf: &mut Vec<u8>, key: &[u8]) {
    parts(buf, &[b"delete ", key, b"\r\n"]);
}

/// `version`: the text protocol's ping.
pub fn version(buf: &mut Vec<u8>) {
    buf.extend_from_slice(b"version\r\n");
}

/// The flags of a meta command: `flags` as they are (such as `v t`), then quiet and opaque.
fn meta_flags(buf: &mut Vec<u8>, flags: &str, opaque: Option<u64>, quiet: bool) {
    if !flags.is_empty() {
        parts(buf, &[b" ", flags.as_bytes()]);
    }
    if quiet {
        buf.extend_from_slice(b" q");
    }
    if let Some(opaque) = opaque {
        buf.extend_from_slice(b" O");
        decimal(buf, opaque);
    }
    buf.extend_from_slice(b"\r\n");
}

/// `mg`: a read. Give the flag `v` to get the value. An opaque comes back as the reply's id.
pub fn meta_get(buf: &mut Vec<u8>, key: &[u8], flags: &str, opaque: Option<u64>, quiet: bool) {
    parts(buf, &[b"mg ", key]);
    meta_flags(buf, flags, opaque, quiet);
}

/// `ms`: a store.
pub fn meta_set(buf: &mut Vec<u8>, key: &[u8], value: &[u8], flags: &str, opaque: Option<u64>, quiet: bool) {
    parts(buf, &[b"ms ", key, b" "]);
    decimal(buf, value.len() as u64);
    meta_flags(buf, flags, opaque, quiet);
    parts(buf, &[value, b"\r\n"]);
}

/// `md`: a removal.
pub fn meta_delete(buf: &mut Vec<u8>, key: &[u8], flags: &str, opaque: Option<u64>, quiet: bool) {
    parts(buf, &[b"md ", key]);
    meta_flags(buf, flags, opaque, quiet);
}

/// `ma`: increments (or with flag `MD` decrements).
pub fn meta_arithmetic(buf: &mut Vec<u8>, key: &[u8], flags: &str, opaque: Option<u64>, quiet: bool) {
    parts(buf, &[b"ma ", key]);
    meta_flags(buf, flags, opaque, quiet);
}

/// `me`: what the server knows of a key.
pub fn meta_debug(buf: &mut Vec<u8>, key: &[u8]) {
    parts(buf, &[b"me ", key, b"\r\n"]);
}

/// `mn`: the end of a series of quiet commands.
pub fn meta_noop(buf: &mut Vec<u8>) {
    buf.extend_from_slice(b"mn\r\n");
}
