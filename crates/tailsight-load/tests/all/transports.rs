//! The pairs of transport and protocol that the other files leave out: R2P2, TLS with Redis, HTTP/2 with TLS, the synthetic
//! server's protocol; and wrong values, which every protocol with values must find.

use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};

use tailsight_load::{Plan, Protocol, Trust};
use tailsight_protocol::wire::r2p2::{self, Head, Policy, Type};
use tailsight_protocol::wire::synthetic::{ReplyHead, Request};

use crate::support::{alone, echo, plan, run_checked, scripted, start};

/// A server of R2P2 requests of one packet: each is answered by what `serve` makes of it, in as many packets as that takes.
fn r2p2_server(mut serve: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((read, from)) = socket.recv_from(&mut buffer) {
            let Some((head, payload)) = Head::parse(&buffer[..read]) else { continue };
            assert!(head.kind == Type::Request && head.first && head.last, "{head:?}");
            let reply = serve(payload);
            for index in 0..r2p2::packets(Type::Reply, reply.len()) {
                let mut packet = Vec::new();
                r2p2::packet(&mut packet, Type::Reply, Policy::Fixed, head.id, &reply, index).unwrap();
                socket.send_to(&packet, from).unwrap();
            }
        }
    });
    address
}

fn all_ok(plan: Plan) {
    let name = format!("{} {} {}", plan.target, plan.protocol, plan.workload);
    let outcome = run_checked(plan);
    assert!(outcome.counts.intended > 500, "{name}: {:?}", outcome.counts);
    assert_eq!(outcome.counts.ok, outcome.counts.intended, "{name}: {:?} {:?}", outcome.counts, outcome.complaints);
}

/// What the synthetic server answers to a whole request.
fn synthetic(request: &[u8]) -> Vec<u8> {
    let (request, _) = Request::parse(request).unwrap().expect("a whole request");
    let mut reply = Vec::new();
    ReplyHead::new(&request, 0, None).write(&mut reply);
    reply
}

#[test]
fn r2p2_carries_echo_memcached_and_the_synthetic_protocol() {
    let _alone = alone();
    all_ok(plan(format!("r2p2://{}", r2p2_server(<[u8]>::to_vec)), Protocol::Echo));
    // Replies of several packets.
    let mut stored: std::collections::HashMap<Vec<u8>, Vec<u8>> = std::collections::HashMap::new();
    let address = r2p2_server(move |request| {
        let text = String::from_utf8_lossy(request).into_owned();
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let key = words[1].as_bytes().to_vec();
        if words[0] == "set" {
            let head = request.windows(2).position(|w| w == b"\r\n").unwrap() + 2;
            stored.insert(key, request[head..request.len() - 2].to_vec());
            return b"STORED\r\n".to_vec();
        }
        let value = &stored[&key];
        let mut reply = format!("VALUE {} 0 {}\r\n", words[1], value.len()).into_bytes();
        reply.extend_from_slice(value);
        reply.extend_from_slice(b"\r\nEND\r\n");
        reply
    });
    let mut memcached = plan(format!("r2p2://{address}"), Protocol::MemcachedText);
    memcached.workload = "keys=50;value=1000;sets=0.1".parse().unwrap();
    all_ok(memcached);
    let address = r2p2_server(synthetic);
    let mut plan = plan(format!("r2p2://{address}"), Protocol::Synthetic);
    plan.workload = "value=0".parse().unwrap();
    all_ok(plan);
}

#[test]
fn the_synthetic_protocol_over_tcp() {
    let _alone = alone();
    let address = scripted(|_, mut socket| {
        let (mut have, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(read @ 1..) = socket.read(&mut buffer) {
            have.extend_from_slice(&buffer[..read]);
            while let Some((_, whole)) = Request::parse(&have).unwrap() {
                let reply = synthetic(&have[..whole]);
                have.drain(..whole);
                if socket.write_all(&reply).is_err() {
                    return;
                }
            }
        }
    });
    let mut plan = plan(address, Protocol::Synthetic);
    plan.workload = "value=0".parse().unwrap();
    all_ok(plan);
}

/// A self-signed certificate for localhost: its folder, with cert.pem and key.pem. `None`, said, without openssl.
fn certificate() -> Option<tempfile::TempDir> {
    if let Some(reason) = tailsight_testing::lacks_program("openssl") {
        tailsight_testing::skip(reason);
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(dir.path().join("key.pem"))
        .arg("-out")
        .arg(dir.path().join("cert.pem"))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    assert!(made, "openssl makes no certificate");
    Some(dir)
}

#[test]
fn redis_with_tls() {
    let _alone = alone();
    let Some(dir) = certificate() else { return };
    let (port, file) = (tailsight_testing::free_port(), |name: &str| dir.path().join(name).display().to_string());
    let (text, cert, key) = (port.to_string(), file("cert.pem"), file("key.pem"));
    let arguments = [
        "--port",
        "0",
        "--tls-port",
        &text,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-auth-clients",
        "no",
        "--save",
        "",
        "--bind",
        "127.0.0.1",
    ];
    let Some(_process) = start("redis-server", &arguments, port) else { return };
    let mut plan = plan(format!("tls://localhost:{port}"), Protocol::Resp);
    plan.workload = "keys=200;sets=0.1;value=uniform:1,5000".parse().unwrap();
    plan.trust = Trust::File(dir.path().join("cert.pem"));
    all_ok(plan);
}

#[test]
fn nginx_http2_with_tls() {
    let _alone = alone();
    let Some(dir) = certificate() else { return };
    let (port, root) = (tailsight_testing::free_port(), dir.path().display());
    let text = format!(
        "daemon off; master_process off; pid {root}/pid; error_log /dev/null; events {{ }}\n\
         http {{ access_log off; client_body_temp_path {root}; proxy_temp_path {root};\n\
         fastcgi_temp_path {root}; uwsgi_temp_path {root}; scgi_temp_path {root};\n\
         server {{ listen 127.0.0.1:{port} ssl http2; ssl_certificate {root}/cert.pem; ssl_certificate_key {root}/key.pem;\n\
         keepalive_requests 1000000; location / {{ return 200 \"hello\\n\"; }}\n\
         location /gone {{ return 404; }} location /broken {{ return 500; }} }} }}\n"
    );
    let conf = dir.path().join("nginx.conf");
    std::fs::write(&conf, text).unwrap();
    let Some(_process) = start("nginx", &["-c", conf.to_str().unwrap()], port) else { return };
    let mut plan = plan(format!("tls://localhost:{port}"), Protocol::Http2);
    plan.trust = Trust::File(dir.path().join("cert.pem"));
    all_ok(plan.clone());
    // An error is refused before the load; what is said to be good is no error.
    for (path, status) in [("/gone", "404"), ("/broken", "500")] {
        plan.workload.path = path.into();
        let error = tailsight_load::run(plan.clone(), &std::sync::atomic::AtomicBool::new(false), |_| {}).unwrap_err();
        assert!(error.to_string().contains(&format!("HTTP status {status}")), "{error}");
    }
    plan.workload.path = "/gone".into();
    plan.workload.good_statuses = "2xx,404".parse().unwrap();
    let outcome = run_checked(plan.clone());
    assert_eq!(outcome.counts.ok, outcome.counts.sent, "{:?}", outcome.counts);
}

/// What must be said of a server whose values are not those that were stored.
fn wrong(plan: Plan) {
    let name = format!("{} {}", plan.target, plan.protocol);
    let counts = run_checked(plan).counts;
    assert!(counts.wrong > 50 && counts.ok > counts.wrong, "{name}: {counts:?}");
    assert_eq!(counts.ok + counts.wrong, counts.sent, "{name}: {counts:?}");
}

/// Values that are right but for one byte in each fifth reply once the load runs.
#[test]
fn wrong_values_are_found_in_every_protocol_with_values() {
    let _alone = alone();
    let mut count = 0_u32;
    let spoil = move |mut reply: Vec<u8>, at: usize| {
        count += 1;
        if count > 300 && count.is_multiple_of(5) {
            reply[at] ^= 1;
        }
        reply
    };
    let mut of_echo = spoil;
    wrong(plan(format!("r2p2://{}", r2p2_server(move |bytes| of_echo(bytes.to_vec(), 3))), Protocol::Echo));
    // Servers of one connection that keep what was stored and return it damaged.
    for protocol in [Protocol::MemcachedText, Protocol::Resp] {
        let address = scripted(move |_, socket| {
            let (mut spoil, mut stored, mut have) = (spoil, std::collections::HashMap::new(), Vec::new());
            echo(socket, move |bytes, socket| {
                have.extend_from_slice(bytes);
                while let Some((words, used)) = command(&have, protocol == Protocol::Resp) {
                    have.drain(..used);
                    let reply = match (protocol, words.len()) {
                        (Protocol::Resp, 3) => {
                            stored.insert(words[1].clone(), words[2].clone());
                            b"+OK\r\n".to_vec()
                        }
                        (Protocol::Resp, _) => {
                            let value: &Vec<u8> = &stored[&words[1]];
                            let head = format!("${}\r\n", value.len()).into_bytes();
                            let at = head.len() + 5;
                            spoil([&head[..], value, b"\r\n"].concat(), at)
                        }
                        (_, 6) => {
                            stored.insert(words[1].clone(), words[5].clone());
                            b"STORED\r\n".to_vec()
                        }
                        _ => {
                            let value = &stored[&words[1]];
                            let head = format!("VALUE {} 0 {}\r\n", String::from_utf8_lossy(&words[1]), value.len());
                            let at = head.len() + 5;
                            spoil([head.as_bytes(), value, b"\r\nEND\r\n"].concat(), at)
                        }
                    };
                    socket.write_all(&reply).ok()?;
                }
                Some(())
            });
        });
        let mut plan = plan(address, protocol);
        plan.connections = 1;
        plan.workload = "keys=100;value=32".parse().unwrap();
        wrong(plan);
    }
}

/// The words of the first whole command, a value being one of them, and its length.
fn command(have: &[u8], resp: bool) -> Option<(Vec<Vec<u8>>, usize)> {
    let line = |from: usize| {
        let end = from + have.get(from..)?.windows(2).position(|w| w == b"\r\n")?;
        Some((&have[from..end], end + 2))
    };
    let number = |text: &[u8]| std::str::from_utf8(text).unwrap().parse::<usize>().unwrap();
    let (first, mut at) = line(0)?;
    if resp {
        let mut words = Vec::new();
        for _ in 0..number(&first[1..]) {
            let (length, from) = line(at)?;
            let to = from + number(&length[1..]);
            words.push(have.get(from..to)?.to_vec());
            have.get(to..to + 2)?;
            at = to + 2;
        }
        return Some((words, at));
    }
    let mut words: Vec<Vec<u8>> = first.split(|b| *b == b' ').map(<[u8]>::to_vec).collect();
    if words[0] == b"set" {
        let to = at + number(&words[4]);
        words.push(have.get(at..to)?.to_vec());
        have.get(to..to + 2)?;
        at = to + 2;
    }
    Some((words, at))
}
