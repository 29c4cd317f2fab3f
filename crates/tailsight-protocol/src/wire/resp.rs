//! Redis requests: arrays of bulk strings.

use super::{decimal, parts};

/// A command of any arguments.
pub fn command(buf: &mut Vec<u8>, arguments: &[&[u8]]) {
    buf.push(b'*');
    decimal(buf, arguments.len() as u64);
    buf.extend_from_slice(b"\r\n");
    for argument in arguments {
        buf.push(b'$');
        decimal(buf, argument.len() as u64);
        parts(buf, &[b"\r\n", argument, b"\r\n"]);
    }
}

/// `GET`.
pub fn get(buf: &mut Vec<u8>, key: &[u8]) {
    command(buf, &[b"GET", key]);
}

/// `MGET` of several keys.
pub fn get_many(buf: &mut Vec<u8>, keys: &[&[u8]]) {
    buf.push(b'*');
    decimal(buf, keys.len() as u64 + 1);
    buf.extend_from_slice(b"\r\n$4\r\nMGET\r\n");
    for key in keys {
        buf.push(b'$');
        decimal(buf, key.len() as u64);
        parts(buf, &[b"\r\n", key, b"\r\n"]);
    }
}

/// `SET`.
pub fn set(buf: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    command(buf, &[b"SET", key, value]);
}

/// `DEL`.
pub fn del(buf: &mut Vec<u8>, key: &[u8]) {
    command(buf, &[b"DEL", key]);
}

/// `PING`.
pub fn ping(buf: &mut Vec<u8>) {
    command(buf, &[b"PING"]);
}

/// `HELLO 3`: RESP3 from here on. Expect it as [`Op::Other`](crate::reply::Op::Other).
pub fn hello3(buf: &mut Vec<u8>) {
    command(buf, &[b"HELLO", b"3"]);
}

/// An inline command, as people type it.
pub fn inline(buf: &mut Vec<u8>, line: &str) {
    parts(buf, &[line.as_bytes(), b"\r\n"]);
}
