//! Requests written. In: what to ask. Out: bytes appended to a buffer that the caller keeps, so that a request allocates
//! nothing once the buffer has grown.

pub mod echo;
pub mod http1;
pub mod http2;
pub mod memcached;
pub mod memcached_binary;
pub mod r2p2;
pub mod resp;
pub mod synthetic;

/// Appends a number in decimal.
pub(crate) fn decimal(buf: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    buf.extend_from_slice(&digits[at..]);
}

/// Appends parts.
pub(crate) fn parts(buf: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        buf.extend_from_slice(part);
    }
}
