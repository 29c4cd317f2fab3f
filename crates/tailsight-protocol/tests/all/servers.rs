//! Real servers: memcached, redis-server and nginx as child processes, on ports of loopback. A program that is missing is
//! named and its test passes over.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tailsight_protocol::frame::{Frame, Pairing};
use tailsight_protocol::reply::{
    Datagram, Datagrams, ErrorKind, Expect, Op, Parser, Reply, Status, Transport, WrongKind,
};
use tailsight_protocol::{Kind, Protocol, Value, wire};

use super::frames::Recording;

/// A server that is stopped at the end of its test.
struct Server {
    child: Child,
    addr: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a program and waits until it takes connections; `None` when it is not installed.
fn start(program: &str, arguments: &[String], port: u16) -> Option<Server> {
    if let Some(reason) = tailsight_testing::lacks_program(program) {
        tailsight_testing::skip(reason);
        return None;
    }
    let child = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
    let mut server = Server { child, addr: SocketAddr::from(([127, 0, 0, 1], port)) };
    let begun = Instant::now();
    while TcpStream::connect(server.addr).is_err() {
        if let Ok(Some(status)) = server.child.try_wait() {
            panic!("{program} ended at once: {status}");
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{program} does not listen on {}", server.addr);
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(server)
}

/// memcached run as an unprivileged user when the tests run as root.
fn memcached() -> Option<Server> {
    let port = tailsight_testing::free_port();
    let text = format!("-u nobody -l 127.0.0.1 -p {port} -U {port} -m 16 -t 1");
    start("memcached", &text.split(' ').map(str::to_owned).collect::<Vec<_>>(), port)
}

/// A connection that records itself.
struct Client {
    stream: TcpStream,
    parser: Parser,
    recording: Option<Recording>,
    replies: Vec<Reply>,
}

impl Client {
    fn new(server: &Server, kind: Kind, record: Option<(Protocol, usize)>) -> Self {
        let stream = TcpStream::connect(server.addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let recording = record.map(|(protocol, keep)| Recording::new(protocol, true, keep, 0));
        Self { stream, parser: Parser::new(kind, 8), recording, replies: Vec::new() }
    }

    /// Writes requests and reads until all are answered: the replies.
    fn ask(&mut self, bytes: &[u8], expects: &[Expect]) -> Vec<Reply> {
        expects.iter().for_each(|expect| self.parser.expect(*expect));
        self.stream.write_all(bytes).unwrap();
        if let Some(recording) = &mut self.recording {
            recording.request(bytes);
        }
        let mut buffer = [0; 3000];
        while self.parser.outstanding() > 0 {
            if let Some(output) = self.parser.output() {
                self.stream.write_all(output).unwrap();
                output.clear();
            }
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the server closed; {} are outstanding", self.parser.outstanding());
            if let Some(recording) = &mut self.recording {
                recording.reply(&buffer[..read]);
            }
            self.parser.feed(&buffer[..read], |reply| self.replies.push(reply)).unwrap();
        }
        std::mem::take(&mut self.replies)
    }

    fn statuses(&mut self, bytes: &[u8], expects: &[Expect]) -> Vec<Status> {
        self.ask(bytes, expects).iter().map(|reply| reply.status).collect()
    }
}

/// Every request and reply of a recorded connection is framed, and each reply has its request.
fn framed(client: Client, requests: usize) {
    let mut recording = client.recording.unwrap();
    recording.finish();
    let count = |which: fn(&Frame) -> bool| recording.frames.iter().filter(|frame| which(frame)).count();
    assert_eq!(count(|frame| matches!(frame, Frame::Lost { .. })), 0, "{:?}", recording.frames);
    assert_eq!(count(|frame| matches!(frame, Frame::Request(_))), requests);
    let paired = |frame: &Frame| match frame {
        Frame::Reply(reply) => reply.request.is_some() && matches!(reply.pairing, Pairing::Order | Pairing::Id),
        _ => true,
    };
    assert!(recording.frames.iter().all(paired), "{:?}", recording.frames);
}

const OK: Status = Status::Ok;
const MISS: Status = Status::Miss;
const BIG: usize = 100_000;

fn big() -> (Vec<u8>, Value) {
    let mut value = Vec::new();
    Value::write(&mut value, BIG, 42);
    (value, Value::Pattern { len: BIG as u64, seed: 42 })
}

#[test]
fn memcached_text_and_meta() {
    let Some(server) = memcached() else { return };
    let mut client = Client::new(&server, Kind::MemcachedText, Some((Protocol::Memcached, usize::MAX)));
    let (value, expected) = big();
    let (get, set) = (|id| Expect::new(id, Op::Get).value(expected), |id| Expect::new(id, Op::Set));
    let mut out = Vec::new();
    wire::memcached::get(&mut out, b"a");
    wire::memcached::set(&mut out, b"a", 0, 0, &value);
    wire::memcached::get(&mut out, b"a");
    wire::memcached::get_many(&mut out, [&b"x"[..], b"a", b"a"]);
    wire::memcached::delete(&mut out, b"nothing");
    wire::memcached::version(&mut out);
    out.extend_from_slice(b"incr a 1\r\nnonsense\r\nstats\r\n");
    let other = |id| Expect::new(id, Op::Other);
    // `nonsense` is not a command: the framer of recordings would give up there, so it goes by another connection.
    let nonsense = out.windows(10).position(|part| part == b"nonsense\r\n").unwrap();
    out.drain(nonsense..nonsense + 10);
    let replies = client.ask(
        &out,
        &[
            get(1),
            set(2),
            get(3),
            get(4).keys(3),
            Expect::new(5, Op::Delete),
            Expect::new(6, Op::Ping),
            other(7),
            other(8),
        ],
    );
    let said: Vec<_> = replies.iter().map(|reply| (reply.id.unwrap(), reply.status, reply.values)).collect();
    let client_error = Status::Error(ErrorKind::Client);
    let expected =
        [(1, MISS, 0), (2, OK, 0), (3, OK, 1), (4, OK, 2), (5, MISS, 0), (6, OK, 0), (7, client_error, 0), (8, OK, 0)];
    assert_eq!(said, expected);
    out.clear();
    wire::memcached::meta_set(&mut out, b"m", b"12", "", Some(11), false);
    wire::memcached::meta_get(&mut out, b"m", "v t k", Some(12), false);
    wire::memcached::meta_get(&mut out, b"none", "v", Some(13), true);
    wire::memcached::meta_get(&mut out, b"m", "v", Some(14), true);
    wire::memcached::meta_arithmetic(&mut out, b"m", "v", Some(15), false);
    wire::memcached::meta_delete(&mut out, b"m", "", Some(16), true);
    wire::memcached::meta_debug(&mut out, b"a");
    wire::memcached::meta_noop(&mut out);
    let any = |id| Expect::new(id, Op::Get);
    let replies = client.ask(
        &out,
        &[
            set(11),
            any(12).value(Value::Len(2)),
            any(13).quiet(),
            any(14).quiet(),
            other(15),
            Expect::new(16, Op::Delete).quiet(),
            other(17),
            Expect::new(18, Op::Ping),
        ],
    );
    let said: Vec<_> = replies.iter().map(|reply| (reply.id.unwrap(), reply.status)).collect();
    assert_eq!(said, [(11, OK), (12, OK), (13, MISS), (14, OK), (15, OK), (16, OK), (17, OK), (18, OK)]);
    framed(client, 8 + 8);
    // A value of other bytes, and words that are no command.
    let mut client = Client::new(&server, Kind::MemcachedText, None);
    let wrong = Expect::new(1, Op::Get).value(Value::Pattern { len: BIG as u64, seed: 43 });
    let said = client.statuses(b"get a\r\nnonsense\r\n", &[wrong, Expect::new(2, Op::Get)]);
    assert_eq!(said, [Status::Wrong(WrongKind::Content), client_error]);
}

#[test]
fn memcached_binary() {
    let Some(server) = memcached() else { return };
    let mut client = Client::new(&server, Kind::MemcachedBinary, Some((Protocol::Memcached, usize::MAX)));
    let (value, expected) = big();
    let mut out = Vec::new();
    let get = |id| Expect::new(id, Op::Get).value(expected);
    wire::memcached_binary::set(&mut out, b"key", 0, 0, &value, 1);
    wire::memcached_binary::get(&mut out, b"key", 2);
    wire::memcached_binary::get_quiet(&mut out, b"none", 3);
    wire::memcached_binary::get_key(&mut out, b"key", 4);
    wire::memcached_binary::set_quiet(&mut out, b"b", 0, 0, b"v", 5);
    wire::memcached_binary::delete(&mut out, b"none", 6);
    wire::memcached_binary::stat(&mut out, 7);
    wire::memcached_binary::version(&mut out, 8);
    wire::memcached_binary::noop(&mut out, 9);
    let said = client.ask(
        &out,
        &[
            Expect::new(1, Op::Set),
            get(2),
            get(3).quiet(),
            get(4),
            Expect::new(5, Op::Set).quiet(),
            Expect::new(6, Op::Delete),
            Expect::new(7, Op::Other),
            Expect::new(8, Op::Ping),
            Expect::new(9, Op::Ping),
        ],
    );
    let said: Vec<_> = said.iter().map(|reply| (reply.id.unwrap(), reply.status)).collect();
    assert_eq!(said, [(1, OK), (2, OK), (3, MISS), (4, OK), (5, OK), (6, MISS), (7, OK), (8, OK), (9, OK)]);
    framed(client, 9);
}

#[test]
fn memcached_udp() {
    let Some(server) = memcached() else { return };
    let (value, expected) = big();
    let mut out = Vec::new();
    wire::memcached::set(&mut out, b"key", 0, 0, &value);
    Client::new(&server, Kind::MemcachedText, None).ask(&out, &[Expect::new(1, Op::Set)]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.connect(server.addr).unwrap();
    let mut datagrams = Datagrams::new(Transport::MemcachedUdp, Kind::MemcachedText, 2);
    let mut buffer = [0; 2000];
    for (id, key, says) in [(7, "key", OK), (65_535, "none", MISS)] {
        datagrams.expect(Expect::new(u64::from(id), Op::Get).value(expected));
        let mut request = wire::memcached::udp_head(id).to_vec();
        wire::memcached::get(&mut request, key.as_bytes());
        socket.send(&request).unwrap();
        let reply = loop {
            let read = socket.recv(&mut buffer).unwrap();
            match datagrams.feed(&buffer[..read]) {
                Datagram::Reply(reply) => break reply,
                other => assert_eq!(other, Datagram::Part),
            }
        };
        assert_eq!((reply.id, reply.status), (Some(u64::from(id)), says));
    }
}

#[test]
fn redis_resp2_and_resp3() {
    let port = tailsight_testing::free_port();
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "--port {port} --bind 127.0.0.1 --save  --appendonly no --enable-debug-command yes --dir {}",
        dir.path().display()
    );
    let Some(server) = start("redis-server", &text.split(' ').map(str::to_owned).collect::<Vec<_>>(), port) else {
        return;
    };
    let (value, expected) = big();
    for resp3 in [false, true] {
        let mut client = Client::new(&server, Kind::Resp, Some((Protocol::Resp, usize::MAX)));
        let mut out = Vec::new();
        let (mut expects, mut says, mut id) = (Vec::new(), Vec::new(), 0);
        let mut add = |op, value, status| {
            id += 1;
            expects.push(Expect::new(id, op).keys(0).value(value));
            says.push(status);
        };
        if resp3 {
            wire::resp::hello3(&mut out);
            add(Op::Other, Value::Any, OK);
        }
        let command = |out: &mut Vec<u8>, line: &str| {
            wire::resp::command(out, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        };
        wire::resp::inline(&mut out, "PING");
        add(Op::Ping, Value::Any, OK);
        wire::resp::set(&mut out, b"key", &value);
        add(Op::Set, Value::Any, OK);
        wire::resp::get(&mut out, b"key");
        add(Op::Get, expected, OK);
        wire::resp::get(&mut out, b"none");
        add(Op::Get, expected, MISS);
        wire::resp::get_many(&mut out, &[b"key", b"none", b"key"]);
        add(Op::Get, expected, OK);
        let error = Status::Error(ErrorKind::Client);
        for (line, op, status) in [
            ("DEL none", Op::Delete, MISS),
            ("DEL hash", Op::Delete, if resp3 { OK } else { MISS }),
            ("HSET hash a 1 b 2", Op::Other, OK),
            ("HGETALL hash", Op::Other, OK),
            ("HGET key a", Op::Other, error),
            ("ZADD zset 1.5 a 2.5 b", Op::Other, OK),
            ("ZRANGE zset 0 -1 WITHSCORES", Op::Other, OK),
            ("SMEMBERS nothing", Op::Other, OK),
            ("COMMAND DOCS get", Op::Other, OK),
            ("INFO", Op::Other, OK),
            ("LOLWUT", Op::Other, OK),
            ("DEBUG PROTOCOL attrib", Op::Other, OK),
            ("DEBUG PROTOCOL map", Op::Other, OK),
            ("DEBUG PROTOCOL set", Op::Other, OK),
            ("DEBUG PROTOCOL double", Op::Other, OK),
            ("DEBUG PROTOCOL null", Op::Other, MISS),
            ("DEBUG PROTOCOL bignum", Op::Other, OK),
            ("DEBUG PROTOCOL true", Op::Other, OK),
            ("DEBUG PROTOCOL verbatim", Op::Other, OK),
            ("CLIENT TRACKING on", Op::Other, OK),
            ("GET hash", Op::Get, error),
            ("MULTI", Op::Other, OK),
            ("INCR n", Op::Other, OK),
            ("EXEC", Op::Other, OK),
            ("NOSUCHCOMMAND", Op::Other, error),
        ] {
            command(&mut out, line);
            add(op, Value::Any, status);
        }
        let said = client.statuses(&out, &expects);
        assert_eq!(said, says, "RESP3: {resp3}");
        if resp3 {
            // What is tracked and changed is pushed between the replies.
            out.clear();
            wire::resp::get(&mut out, b"key");
            wire::resp::set(&mut out, b"key", b"new");
            wire::resp::ping(&mut out);
            let says =
                client.statuses(&out, &[Expect::new(90, Op::Get), Expect::new(91, Op::Set), Expect::new(92, Op::Ping)]);
            assert_eq!((says, client.parser.unsolicited()), (vec![OK; 3], 1));
        }
        framed(client, expects.len() + if resp3 { 3 } else { 0 });
    }
}

/// nginx with a file of `BIG` bytes, a chunked reply, and HTTP/2 on a second port.
fn nginx() -> Option<(Server, SocketAddr, tempfile::TempDir)> {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (port, http2) = (tailsight_testing::free_port(), tailsight_testing::free_port());
    let path = dir.path().display();
    std::fs::create_dir(dir.path().join("www")).unwrap();
    std::fs::write(dir.path().join("www/big"), big().0).unwrap();
    let conf = format!(
        "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log; worker_processes 1;
        events {{ worker_connections 64; }}
        http {{ access_log off; client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;
          fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;
          gzip_types *; gzip_min_length 1; gzip_comp_level 1;
          server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{http2} http2; root {path}/www;
            location /chunked {{ gzip on; alias {path}/www/big; }}
            location /empty {{ return 204; }} location /moved {{ return 301 /; }} location /busy {{ return 503; }}
            location /teapot {{ return 418; }} location /ok {{ return 200 hello; }} }} }}"
    );
    std::fs::write(dir.path().join("conf"), conf).unwrap();
    let arguments = ["-c".to_owned(), format!("{path}/conf"), "-p".to_owned(), path.to_string()];
    let server = start("nginx", &arguments, port)?;
    Some((server, SocketAddr::from(([127, 0, 0, 1], http2)), dir))
}

#[test]
fn nginx_http1_and_http2() {
    let Some((mut server, http2, _dir)) = nginx() else { return };
    let (_, expected) = big();
    let (client_error, busy) = (Status::Error(ErrorKind::Client), Status::Error(ErrorKind::Busy));
    let wants = [
        ("GET", "/big", OK, 200, expected),
        ("HEAD", "/big", OK, 200, Value::Any),
        ("GET", "/none", MISS, 404, Value::Any),
        ("GET", "/chunked", OK, 200, Value::Any),
        ("GET", "/empty", OK, 204, Value::Any),
        ("GET", "/moved", OK, 301, Value::Any),
        ("GET", "/ok", OK, 200, Value::Len(5)),
        ("GET", "/busy", busy, 503, Value::Any),
        ("GET", "/teapot", client_error, 418, Value::Any),
        ("POST", "/big", client_error, 405, Value::Any),
        ("GET", "/ok", Status::Wrong(WrongKind::Length), 200, Value::Len(6)),
    ];
    let op = |method| match method {
        "HEAD" => Op::Head,
        "POST" => Op::Set,
        _ => Op::Get,
    };
    // Pipelined on one connection.
    let mut client = Client::new(&server, Kind::Http1, Some((Protocol::Http1, usize::MAX)));
    let (mut out, mut expects) = (Vec::new(), Vec::new());
    for (id, (method, target, _, _, value)) in wants.iter().enumerate() {
        let body = (*method == "POST").then_some(&[b'b'; 5000][..]);
        let fields = [("Accept-Encoding", "gzip")];
        let fields = if *target == "/chunked" { &fields[..] } else { &[] };
        wire::http1::request(&mut out, &wire::http1::Request { method, target, host: "h", fields, body });
        expects.push(Expect::new(id as u64, op(method)).value(*value));
    }
    let replies = client.ask(&out, &expects);
    let said: Vec<_> = replies.iter().map(|reply| (reply.status, reply.code)).collect();
    assert_eq!(said, wants.map(|want| (want.2, want.3)));
    assert_eq!(replies[0].value_bytes, BIG as u64);
    assert!(replies[3].value_bytes > 0);
    framed(client, wants.len());

    // All at once on one HTTP/2 connection.
    server.addr = http2;
    let mut client = Client::new(&server, Kind::Http2, None);
    let mut ids = Vec::new();
    for (method, path, _, _, value) in &wants {
        let body = (*method == "POST").then_some(&[b'b'; 5000][..]);
        let request = wire::http2::Request {
            method,
            scheme: "http",
            authority: "h",
            path,
            fields: &[("user-agent", "test")],
            body,
        };
        let http2 = client.parser.http2().unwrap();
        if http2.ready().is_err() {
            break;
        }
        let id = u64::from(http2.request(&request).unwrap());
        ids.push(id);
        client.parser.expect(Expect::new(id, op(method)).value(*value));
    }
    assert_eq!(ids.len(), 8, "as many as the parser was made for");
    let mut replies = client.ask(&[], &[]);
    replies.sort_by_key(|reply| reply.id);
    for ((reply, id), want) in replies.iter().zip(&ids).zip(&wants) {
        assert_eq!((reply.id, reply.status, reply.code), (Some(*id), want.2, want.3), "{want:?}");
    }
    // The connection goes on.
    for want in &wants[8..] {
        let body = (want.0 == "POST").then_some(&[b'b'; 5000][..]);
        let request =
            wire::http2::Request { method: want.0, scheme: "http", authority: "h", path: want.1, fields: &[], body };
        let id = u64::from(client.parser.http2().unwrap().request(&request).unwrap());
        let replies = client.ask(&[], &[Expect::new(id, op(want.0)).value(want.4)]);
        assert_eq!((replies[0].status, replies[0].code), (want.2, want.3), "{want:?}");
    }
}
