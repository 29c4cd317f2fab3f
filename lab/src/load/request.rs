//! The requests. In: a workload, a key's number. Out: bytes for the wire.

use super::{Proto, Workload};

/// How many keys a workload uses at most: many connections must not fill the server's memory.
const KEYS: usize = 16;

/// Bytes of memcached's UDP frame header: request id, sequence number, datagrams in all, reserved (16 bits each).
pub(super) const UDP_HEADER: usize = 8;

/// The frame header of a request of one datagram.
pub(super) fn udp_header(id: u16) -> [u8; UDP_HEADER] {
    let [high, low] = id.to_be_bytes();
    [high, low, 0, 0, 0, 1, 0, 0]
}

/// The key of a connection.
fn key(workload: &Workload, connection: usize) -> String {
    format!("tailsight:{}:{}", workload.name, connection % KEYS)
}

/// The request of a connection, sent again and again (UDP: without its frame header).
pub(super) fn get(workload: &Workload, connection: usize) -> Vec<u8> {
    let key = key(workload, connection);
    match workload.proto {
        Proto::Memcached | Proto::MemcachedUdp => format!("get {key}\r\n"),
        Proto::Resp => format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()),
        Proto::Http1 => {
            format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", workload.path, workload.addr)
        }
    }
    .into_bytes()
}

/// What sets the value that [`get`] reads; `None` when there is nothing to set, or another connection sets it.
pub(super) fn set(workload: &Workload, connection: usize) -> Option<Vec<u8>> {
    if connection >= KEYS || workload.proto == Proto::Http1 {
        return None;
    }
    let key = key(workload, connection);
    let size = workload.value_size;
    let mut bytes = match workload.proto {
        Proto::Resp => format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${size}\r\n", key.len()),
        _ => format!("set {key} 0 0 {size}\r\n"),
    }
    .into_bytes();
    bytes.resize(bytes.len() + size, b'v');
    bytes.extend_from_slice(b"\r\n");
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn requests_are_what_the_protocols_say() {
        let addr = "[fd77::1]:80".parse().unwrap();
        let mut workload = Workload::new(Proto::Memcached, addr);
        workload.value_size = 3;
        assert_eq!(text(get(&workload, 17)), "get tailsight:memcached:1\r\n");
        assert_eq!(text(set(&workload, 1).unwrap()), "set tailsight:memcached:1 0 0 3\r\nvvv\r\n");
        assert!(set(&workload, 16).is_none());
        workload.proto = Proto::Resp;
        workload.name = "r".into();
        assert_eq!(text(get(&workload, 0)), "*2\r\n$3\r\nGET\r\n$13\r\ntailsight:r:0\r\n");
        assert_eq!(text(set(&workload, 0).unwrap()), "*3\r\n$3\r\nSET\r\n$13\r\ntailsight:r:0\r\n$3\r\nvvv\r\n");
        workload.proto = Proto::Http1;
        assert_eq!(text(get(&workload, 0)), "GET / HTTP/1.1\r\nHost: [fd77::1]:80\r\n\r\n");
        assert!(set(&workload, 0).is_none());
        assert_eq!(udp_header(0x1234), [0x12, 0x34, 0, 0, 0, 1, 0, 0]);
    }
}
