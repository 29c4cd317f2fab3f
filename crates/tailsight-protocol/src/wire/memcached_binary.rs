//! memcached's binary protocol. The opaque comes back as the reply's id.

use super::parts;
use crate::grammar::memcached_binary::REQUEST;

/// A request's head and body.
fn write(buf: &mut Vec<u8>, opcode: u8, opaque: u32, extras: &[u8], key: &[u8], value: &[u8]) {
    let body = extras.len() + key.len() + value.len();
    let [key_high, key_low] = (key.len() as u16).to_be_bytes();
    buf.extend_from_slice(&[REQUEST, opcode, key_high, key_low, extras.len() as u8, 0, 0, 0]);
    parts(buf, &[&(body as u32).to_be_bytes(), &opaque.to_be_bytes(), &[0; 8], extras, key, value]);
}

/// Flags and expiry of a store.
fn extras(flags: u32, expires: u32) -> [u8; 8] {
    (u64::from(flags) << 32 | u64::from(expires)).to_be_bytes()
}

/// `get`.
pub fn get(buf: &mut Vec<u8>, key: &[u8], opaque: u32) {
    write(buf, 0x00, opaque, &[], key, &[]);
}

/// `getq`: a miss is not answered.
pub fn get_quiet(buf: &mut Vec<u8>, key: &[u8], opaque: u32) {
    write(buf, 0x09, opaque, &[], key, &[]);
}

/// `getk`: the reply names its key.
pub fn get_key(buf: &mut Vec<u8>, key: &[u8], opaque: u32) {
    write(buf, 0x0c, opaque, &[], key, &[]);
}

/// `set`. `expires` in seconds, 0 never.
pub fn set(buf: &mut Vec<u8>, key: &[u8], flags: u32, expires: u32, value: &[u8], opaque: u32) {
    write(buf, 0x01, opaque, &extras(flags, expires), key, value);
}

/// `setq`: success is not answered.
pub fn set_quiet(buf: &mut Vec<u8>, key: &[u8], flags: u32, expires: u32, value: &[u8], opaque: u32) {
    write(buf, 0x11, opaque, &extras(flags, expires), key, value);
}

/// `delete`.
pub fn delete(buf: &mut Vec<u8>, key: &[u8], opaque: u32) {
    write(buf, 0x04, opaque, &[], key, &[]);
}

/// `noop`: its answer ends a series of quiet requests.
pub fn noop(buf: &mut Vec<u8>, opaque: u32) {
    write(buf, 0x0a, opaque, &[], &[], &[]);
}

/// `version`.
pub fn version(buf: &mut Vec<u8>, opaque: u32) {
    write(buf, 0x0b, opaque, &[], &[], &[]);
}

/// `stat`: several messages, the last with an empty key.
pub fn stat(buf: &mut Vec<u8>, opaque: u32) {
    write(buf, 0x10, opaque, &[], &[], &[]);
}
