//! Streams to test with: requests written by `wire`, the replies a server would give, and what the parser must say.

use proptest::prelude::*;
use tailsight_protocol::reply::{ErrorKind, Expect, Op, Parser, Reply, Status, WrongKind};
use tailsight_protocol::{Kind, ProtocolError, Value, wire};

/// What was sent, what came, and what that means.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    pub requests: Vec<u8>,
    pub replies: Vec<u8>,
    pub expects: Vec<Expect>,
    /// Status, values, bytes of values; and the length of the reply on the wire.
    pub says: Vec<(Status, u32, u64, u64)>,
    /// Replies that answer nobody.
    pub unsolicited: u64,
}

impl Sample {
    fn add(&mut self, expect: Expect, reply: &[u8], says: (Status, u32, u64)) {
        self.expects.push(expect);
        self.replies.extend_from_slice(reply);
        self.says.push((says.0, says.1, says.2, reply.len() as u64));
    }
}

/// A value that looks like the protocols themselves, or a pattern.
pub fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        Just(b"END\r\nVALUE k 0 3\r\n$3\r\nHTTP/1.1 200 OK\r\n\r\n".to_vec()),
        (0usize..3000, any::<u64>()).prop_map(|(len, seed)| {
            let mut bytes = Vec::new();
            Value::write(&mut bytes, len, seed);
            bytes
        }),
    ]
}

/// Requests of a kind: which form each has, and its value.
pub fn plan() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    proptest::collection::vec((any::<u8>(), value()), 1..12)
}

const OK: Status = Status::Ok;
const MISS: Status = Status::Miss;

fn text(sample: &mut Sample, id: u64, form: u8, value: &[u8]) {
    let n = value.len() as u64;
    let with = |head: String, tail: &str| [head.as_bytes(), value, tail.as_bytes()].concat();
    let out = &mut sample.requests;
    let get = Expect::new(id, Op::Get).value(Value::Len(n));
    let client = Status::Error(ErrorKind::Client);
    match form % 13 {
        0 => {
            wire::memcached::get(out, b"key");
            sample.add(get, &with(format!("VALUE key 0 {n}\r\n"), "\r\nEND\r\n"), (OK, 1, n));
        }
        1 => {
            wire::memcached::get(out, b"key");
            sample.add(get, b"END\r\n", (MISS, 0, 0));
        }
        2 => {
            wire::memcached::get_many(out, [&b"a"[..], b"b", b"c"]);
            let value = with(format!("VALUE a 0 {n} 77\r\n"), "\r\n");
            let reply = [&value[..], &with(format!("VALUE c 5 {n}\r\n"), "\r\nEND\r\n")].concat();
            sample.add(get.keys(3), &reply, (OK, 2, 2 * n));
        }
        3 => {
            wire::memcached::set(out, b"key", 1, 2, value);
            sample.add(Expect::new(id, Op::Set), b"STORED\r\n", (OK, 0, 0));
        }
        4 => {
            wire::memcached::set(out, b"key", 1, 2, value);
            sample.add(
                Expect::new(id, Op::Set),
                b"SERVER_ERROR out of memory\r\n",
                (Status::Error(ErrorKind::Server), 0, 0),
            );
        }
        5 => {
            wire::memcached::delete(out, b"key");
            sample.add(Expect::new(id, Op::Delete), b"NOT_FOUND\r\n", (MISS, 0, 0));
        }
        6 => {
            wire::memcached::version(out);
            sample.add(Expect::new(id, Op::Ping), b"VERSION 1.6.18\r\n", (OK, 0, 0));
        }
        7 => {
            wire::memcached::meta_get(out, b"key", "v", Some(id), false);
            sample.add(get, &with(format!("VA {n} O{id}\r\n"), "\r\n"), (OK, 1, n));
        }
        8 => {
            wire::memcached::meta_get(out, b"key", "v", None, false);
            sample.add(get, b"EN\r\n", (MISS, 0, 0));
        }
        9 => {
            wire::memcached::meta_set(out, b"key", value, "T0", Some(id), false);
            sample.add(Expect::new(id, Op::Set), format!("HD O{id}\r\n").as_bytes(), (OK, 0, 0));
        }
        10 => {
            wire::memcached::meta_noop(out);
            sample.add(Expect::new(id, Op::Ping), b"MN\r\n", (OK, 0, 0));
        }
        11 => {
            wire::memcached::get(out, b"key");
            sample.add(get, b"STORED\r\n", (Status::Wrong(WrongKind::Kind), 0, 0));
        }
        _ => {
            wire::memcached::meta_arithmetic(out, b"key", "", None, false);
            sample.add(Expect::new(id, Op::Other), b"CLIENT_ERROR bad command line format\r\n", (client, 0, 0));
        }
    }
}

/// A reply of the binary protocol.
fn binary_reply(opcode: u8, status: u16, opaque: u32, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = (extras.len() + key.len() + value.len()) as u32;
    let mut reply = vec![0x81, opcode, 0, key.len() as u8, extras.len() as u8, 0];
    reply.extend(status.to_be_bytes());
    reply.extend(body.to_be_bytes());
    reply.extend(opaque.to_be_bytes());
    reply.extend([0; 8]);
    [&reply[..], extras, key, value].concat()
}

fn binary(sample: &mut Sample, id: u64, form: u8, value: &[u8]) {
    let (n, opaque, out) = (value.len() as u64, id as u32, &mut sample.requests);
    let get = Expect::new(id, Op::Get).value(Value::Len(n));
    match form % 6 {
        0 => {
            wire::memcached_binary::get(out, b"key", opaque);
            sample.add(get, &binary_reply(0, 0, opaque, &[0; 4], b"", value), (OK, 1, n));
        }
        1 => {
            wire::memcached_binary::get_key(out, b"key", opaque);
            sample.add(get, &binary_reply(0x0c, 1, opaque, &[], b"key", b"Not found"), (MISS, 0, 0));
        }
        2 => {
            wire::memcached_binary::set(out, b"key", 0, 0, value, opaque);
            sample.add(Expect::new(id, Op::Set), &binary_reply(1, 0, opaque, &[], b"", b""), (OK, 0, 0));
        }
        3 => {
            wire::memcached_binary::delete(out, b"key", opaque);
            let status = Status::Error(ErrorKind::Server);
            sample.add(
                Expect::new(id, Op::Delete),
                &binary_reply(4, 0x82, opaque, &[], b"", b"Out of memory"),
                (status, 0, 0),
            );
        }
        4 => {
            wire::memcached_binary::noop(out, opaque);
            sample.add(Expect::new(id, Op::Ping), &binary_reply(0x0a, 0, opaque, &[], b"", b""), (OK, 0, 0));
        }
        _ => {
            wire::memcached_binary::stat(out, opaque);
            let reply =
                [binary_reply(0x10, 0, opaque, &[], b"pid", value), binary_reply(0x10, 0, opaque, &[], b"", b"")];
            sample.add(Expect::new(id, Op::Other), &reply.concat(), (OK, 0, 0));
        }
    }
}

fn resp(sample: &mut Sample, id: u64, form: u8, value: &[u8]) {
    let n = value.len() as u64;
    let with = |head: String, tail: &str| [head.as_bytes(), value, tail.as_bytes()].concat();
    let out = &mut sample.requests;
    let get = Expect::new(id, Op::Get).value(Value::Len(n));
    let other = Expect::new(id, Op::Other);
    match form % 12 {
        0 => {
            wire::resp::get(out, b"key");
            sample.add(get, &with(format!("${n}\r\n"), "\r\n"), (OK, 1, n));
        }
        1 => {
            wire::resp::get(out, b"key");
            sample.add(get, if form > 99 { b"$-1\r\n" } else { b"_\r\n" }, (MISS, 0, 0));
        }
        2 => {
            wire::resp::set(out, b"key", value);
            sample.add(Expect::new(id, Op::Set), b"+OK\r\n", (OK, 0, 0));
        }
        3 => {
            wire::resp::get_many(out, &[b"a", b"b", b"c"]);
            let reply =
                [&with(format!("*3\r\n${n}\r\n"), "\r\n$-1\r\n")[..], &with(format!("${n}\r\n"), "\r\n")].concat();
            sample.add(get.keys(3), &reply, (OK, 2, 2 * n));
        }
        4 => {
            wire::resp::del(out, b"key");
            sample.add(Expect::new(id, Op::Delete), b":0\r\n", (MISS, 0, 0));
        }
        5 => {
            wire::resp::inline(out, "PING");
            sample.add(Expect::new(id, Op::Ping), b"+PONG\r\n", (OK, 0, 0));
        }
        6 => {
            wire::resp::command(out, &[b"CONFIG", b"GET", b"*"]);
            let reply = "%2\r\n+first\r\n*2\r\n#t\r\n,1.5e10\r\n=6\r\ntxt:ab\r\n~1\r\n(1234567890123456789012345\r\n";
            sample.add(other, reply.as_bytes(), (OK, 1, 6));
        }
        7 => {
            wire::resp::command(out, &[b"LRANGE", b"key", b"0", b"1"]);
            let reply = "|1\r\n+ttl\r\n$3\r\nabc\r\n*2\r\n|1\r\n+x\r\n:1\r\n:7\r\n_\r\n";
            sample.add(other, reply.as_bytes(), (MISS, 0, 0));
        }
        8 => {
            wire::resp::get(out, b"key");
            sample.add(get, b"-MOVED 12 127.0.0.1:7\r\n", (Status::Error(ErrorKind::Elsewhere), 0, 0));
        }
        9 => {
            wire::resp::command(out, &[b"EXEC"]);
            sample.add(other, b"*2\r\n+OK\r\n-ERR no\r\n", (Status::Error(ErrorKind::Client), 0, 0));
        }
        10 => {
            wire::resp::command(out, &[b"X", b"key"]);
            sample.replies.extend_from_slice(b">2\r\n+invalidate\r\n*1\r\n$3\r\nkey\r\n");
            sample.unsolicited += 1;
            sample.add(other, b"*?\r\n:1\r\n$?\r\n;2\r\nab\r\n;1\r\nc\r\n;0\r\n.\r\n", (OK, 0, 3));
        }
        _ => {
            wire::resp::command(out, &[b"LRANGE", b"key", b"0", b"1"]);
            sample.add(other, b"*0\r\n", (OK, 0, 0));
        }
    }
}

fn http1(sample: &mut Sample, id: u64, form: u8, value: &[u8]) {
    let n = value.len() as u64;
    let with = |head: String, tail: &str| [head.as_bytes(), value, tail.as_bytes()].concat();
    let out = &mut sample.requests;
    let get = Expect::new(id, Op::Get).value(Value::Len(n));
    let some = u32::from(n > 0);
    match form % 8 {
        0 => {
            wire::http1::get(out, "host", "/path?query");
            sample.add(get, &with(format!("HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\n"), ""), (OK, some, n));
        }
        1 => {
            wire::http1::get(out, "host", "/");
            let chunk = if n > 0 { with(format!("{n:x};ext=1\r\n"), "\r\n") } else { Vec::new() };
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            let reply = [head, &chunk[..], &chunk, b"0\r\nTrailer: x\r\n\r\n"].concat();
            sample.add(get.value(Value::Len(2 * n)), &reply, (OK, some, 2 * n));
        }
        2 => {
            wire::http1::head(out, "host", "/");
            sample.add(Expect::new(id, Op::Head), b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", (OK, 0, 0));
        }
        3 => {
            wire::http1::get(out, "host", "/no");
            sample.add(
                get,
                &with(format!("HTTP/1.1 404 Not Found\r\nContent-Length: {n}\r\n\r\n"), ""),
                (MISS, some, n),
            );
        }
        4 => {
            wire::http1::post(out, "host", "/", value);
            sample.replies.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            sample.unsolicited += 1;
            sample.add(Expect::new(id, Op::Set), b"HTTP/1.1 204 No Content\r\n\r\n", (OK, 0, 0));
        }
        5 => {
            let request = wire::http1::Request {
                method: "DELETE",
                target: "/x",
                host: "h",
                fields: &[("A", "b")],
                body: Some(b""),
            };
            wire::http1::request(out, &request);
            sample.add(
                Expect::new(id, Op::Delete),
                b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
                (OK, 0, 0),
            );
        }
        6 => {
            wire::http1::get(out, "host", "/");
            let status = Status::Error(ErrorKind::Busy);
            sample.add(get, b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", (status, 0, 0));
        }
        _ => {
            wire::http1::get(out, "host", "/");
            let reply = with(format!("HTTP/1.0 500 Oh\nContent-Length: {n}\n\n"), "");
            sample.add(get, &reply, (Status::Error(ErrorKind::Server), some, n));
        }
    }
}

fn echo(sample: &mut Sample, id: u64, form: u8, value: &[u8]) {
    let len = value.len() + 1;
    let mut bytes = Vec::new();
    wire::echo::request(&mut bytes, len, id);
    sample.requests.extend_from_slice(&bytes);
    let wrong = form.is_multiple_of(3);
    if wrong {
        bytes[len / 2] ^= 1;
    }
    let status = if wrong { Status::Wrong(WrongKind::Content) } else { OK };
    let expect = Expect::new(id, Op::Other).value(Value::Pattern { len: len as u64, seed: id });
    sample.add(expect, &bytes, (status, 1, len as u64));
}

fn synthetic(sample: &mut Sample, id: u64, form: u8, value: &[u8]) {
    use wire::synthetic::{REPLY_HEAD, ReplyHead, Request};
    let request = Request {
        id: id as u32,
        service_ns: 1000,
        reply_bytes: value.len() as u16,
        sleep: form.is_multiple_of(2),
        beside: 0,
    };
    let size = if value.len() < 20 { 16 } else { value.len() };
    request.write(&mut sample.requests, size).unwrap();
    let (mut reply, failed) = (Vec::new(), form.is_multiple_of(5));
    let head = ReplyHead { failed, ..ReplyHead::new(&request, 1234, Some(55)) };
    head.write(&mut reply);
    let status = if failed { Status::Error(ErrorKind::Server) } else { OK };
    let body = value.len().saturating_sub(REPLY_HEAD) as u64;
    sample.add(Expect::new(id, Op::Other).value(request.value()), &reply, (status, 1, body));
}

/// Builds a stream of a kind by a plan.
pub fn sample(kind: Kind, plan: &[(u8, Vec<u8>)]) -> Sample {
    let mut sample = Sample::default();
    for (index, (form, value)) in plan.iter().enumerate() {
        let id = 100 + index as u64;
        match kind {
            Kind::MemcachedText => text(&mut sample, id, *form, value),
            Kind::MemcachedBinary => binary(&mut sample, id, *form, value),
            Kind::Resp => resp(&mut sample, id, *form, value),
            Kind::Http1 => http1(&mut sample, id, *form, value),
            Kind::Echo => echo(&mut sample, id, *form, value),
            Kind::Synthetic => synthetic(&mut sample, id, *form, value),
            Kind::Http2 => unreachable!("HTTP/2 has its own tests"),
        }
    }
    sample
}

/// Cuts a stream at places (any numbers) and gives the parts.
pub fn cut<'a>(stream: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    places.extend([0, stream.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect()
}

/// Feeds parts to a parser: the replies, with their ends as places in the whole stream.
pub fn feed(parser: &mut Parser, parts: &[&[u8]]) -> (Vec<Reply>, Result<(), ProtocolError>) {
    let (mut replies, mut at) = (Vec::new(), 0);
    for part in parts {
        let result = parser.feed(part, |reply| {
            assert!(reply.end <= part.len(), "an end beyond the bytes given");
            replies.push(Reply { end: at + reply.end, ..reply });
        });
        if result.is_err() {
            return (replies, result);
        }
        at += part.len();
    }
    (replies, Ok(()))
}
