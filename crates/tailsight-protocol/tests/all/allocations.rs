//! The timing path allocates nothing per request once its buffers have grown: counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tailsight_protocol::reply::{Datagram, Datagrams, Expect, Op, Parser, Transport};
use tailsight_protocol::{Kind, Value, wire};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting this thread's calls.
struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One round: a request written, its reply in three reads.
fn round(parser: &mut Parser, out: &mut Vec<u8>, reply: &mut Vec<u8>, round: u64) -> usize {
    out.clear();
    reply.clear();
    let (id, value) = (round, Value::Pattern { len: 100, seed: 7 });
    let mut id_on_wire = id;
    let with = |reply: &mut Vec<u8>, head: &[u8], tail: &[u8]| {
        reply.extend_from_slice(head);
        Value::write(reply, 100, 7);
        reply.extend_from_slice(tail);
    };
    match parser.kind() {
        Kind::MemcachedText => {
            wire::memcached::get(out, b"key");
            with(reply, b"VALUE key 0 100\r\n", b"\r\nEND\r\n");
        }
        Kind::MemcachedBinary => {
            wire::memcached_binary::get(out, b"key", id as u32);
            let mut head = [0; 28];
            (head[0], head[4], head[11]) = (0x81, 4, 104);
            head[12..16].copy_from_slice(&(id as u32).to_be_bytes());
            with(reply, &head, b"");
        }
        Kind::Resp => {
            wire::resp::get(out, b"key");
            with(reply, b"|1\r\n+a\r\n+b\r\n$100\r\n", b"\r\n");
        }
        Kind::Http1 => {
            wire::http1::get(out, "host", "/path");
            let head = b"HTTP/1.1 200 OK\r\nServer: x\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n";
            with(reply, head, b"\r\n0\r\n\r\n");
        }
        Kind::Http2 => {
            let get = wire::http2::Request {
                method: "GET",
                scheme: "http",
                authority: "a",
                path: "/x",
                fields: &[],
                body: None,
            };
            let http2 = parser.http2().unwrap();
            http2.output().clear();
            http2.sent();
            id_on_wire = u64::from(http2.request(&get).unwrap());
            let stream = (id_on_wire as u32).to_be_bytes();
            reply.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 1, 4]);
            reply.extend_from_slice(&stream);
            reply.extend_from_slice(&[0x88, 0, 0, 100, 0, 1]);
            let head = stream;
            with(reply, &head, b"");
        }
        Kind::Echo => with(reply, b"", b""),
        Kind::Synthetic => {
            let request = wire::synthetic::Request { id: 7, service_ns: 1, reply_bytes: 132, sleep: false, beside: 0 };
            request.write(out, 128).unwrap();
            wire::synthetic::ReplyHead::new(&request, 1, None).write(reply);
            id_on_wire = 7;
        }
    }
    parser.expect(Expect::new(id_on_wire, Op::Get).value(value));
    let mut ok = 0;
    for part in reply.chunks(reply.len().div_ceil(3)) {
        parser.feed(part, |reply| ok += usize::from(reply.status == tailsight_protocol::reply::Status::Ok)).unwrap();
    }
    ok
}

#[test]
fn nothing_is_allocated_per_request() {
    for kind in Kind::ALL {
        let (mut parser, mut out, mut reply) = (Parser::new(kind, 4), Vec::new(), Vec::new());
        let warm: usize = (0..10).map(|index| round(&mut parser, &mut out, &mut reply, index)).sum();
        let before = COUNT.get();
        let good: usize = (10..1010).map(|index| round(&mut parser, &mut out, &mut reply, index)).sum();
        assert_eq!((COUNT.get() - before, warm, good), (0, 10, 1000), "{kind}");
    }
    let mut datagrams = Datagrams::new(Transport::MemcachedUdp, Kind::MemcachedText, 4);
    let mut bytes = [&wire::memcached::udp_head(0)[..], b"VALUE k 0 1\r\nx\r\nEND\r\n"].concat();
    let mut before = 0;
    for id in 0..1000_u16 {
        if id == 10 {
            before = COUNT.get();
        }
        bytes[..2].copy_from_slice(&id.to_be_bytes());
        datagrams.expect(Expect::new(u64::from(id), Op::Get));
        assert!(matches!(datagrams.feed(&bytes), Datagram::Reply(_)));
    }
    assert_eq!(COUNT.get() - before, 0);
}
