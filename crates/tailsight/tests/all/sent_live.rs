//! Live recordings of the way out: Redis pushes what is published, a Python server asks a backend, memcached answers over
//! UDP. What they send by themselves is told from replies, and each run says where the transmit leg begins.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use tailsight_lifetime::model::flags;
use tailsight_lifetime::{Analysis, Leg, Lifetimes, Sent, SentKind};
use tailsight_testbed::load::{Proto, Workload};
use tailsight_testbed::server::{MemcachedOpts, Server};
use tailsight_trace::event::Kind;
use tailsight_trace::meta::send_entry;
use tailsight_trace::{FlowKey, Run};

use crate::support::{Live, SetWhenDropped, address, json, run, shown};

/// A server of this test's own, ended with it.
struct Own(Child);

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The machine and a program on it; `None`, said by name, where one of them is not to be had.
fn start(test: &str, program: &str, args: &[&str]) -> Option<(Live, Own)> {
    if let Some(reason) = tailsight_testing::lacks_program(program) {
        tailsight_testing::skip_as(test, reason);
        return None;
    }
    let live = Live::new(test)?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Some((live, Own(command.spawn().unwrap_or_else(|e| panic!("{program}: {e}")))))
}

fn connect(port: u16) -> TcpStream {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => {
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                return stream;
            }
            Err(e) => assert!(begun.elapsed() < Duration::from_secs(20), "port {port}: {e}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Records a process while `work` runs in a loop, and gives its lifetimes.
fn record(live: &Live, pid: u32, more: &[&str], mut work: impl FnMut() + Send) -> (Lifetimes, Run) {
    let out = live.path("run");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                work();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let pid = pid.to_string();
        let mut args = vec!["record", "-p", &pid, "-d", "900ms", "-o", &out];
        args.extend(more);
        let output = {
            let _ends = SetWhenDropped(done);
            run(&args)
        };
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    });
    let mut run = Run::open(Path::new(&out)).expect("a run");
    let analysis = Analysis::of(&mut run).expect("its events");
    (analysis.lifetimes, run)
}

/// Send calls of one kind; their parts sum to their leg.
fn of(lifetimes: &Lifetimes, kind: SentKind) -> Vec<Sent> {
    for (i, sent) in lifetimes.sent.iter().enumerate() {
        let sum: u64 = lifetimes.sent_parts(i).iter().map(|p| p.ns).sum();
        assert_eq!(sum, sent.transmit_ns().unwrap_or(0), "{sent:?}");
    }
    lifetimes.sent.iter().copied().filter(|s| s.kind == kind).collect()
}

#[test]
fn redis_pushes_what_is_published_and_that_is_no_reply() {
    let test = "redis_pushes_what_is_published_and_that_is_no_reply";
    const PORT: u16 = 26391;
    let args = ["--port", "26391", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    let Some((live, redis)) = start(test, "redis-server", &args) else { return };
    let mut subscriber = connect(PORT);
    subscriber.write_all(b"SUBSCRIBE news\r\n").unwrap();
    let mut publisher = connect(PORT);
    let mut published = 0_u64;
    let (mut buffer, mut late) = ([0; 4096], None);
    let (lifetimes, _) = record(&live, redis.0.id(), &[], || {
        // This one subscribes while the recording runs: its reply is followed by pushes on the same connection.
        if published == 150 {
            let mut stream = connect(PORT);
            stream.write_all(b"SUBSCRIBE news\r\n").unwrap();
            late = Some(stream);
        }
        publisher.write_all(b"PUBLISH news hello\r\n").unwrap();
        assert!(publisher.read(&mut buffer).unwrap() > 0);
        published += 1;
    });
    let pushes = of(&lifetimes, SentKind::Push);
    let (messages, complete) = (lifetimes.messages.len(), pushes.iter().filter(|s| s.transmit_ns().is_some()).count());
    assert!(messages >= 50, "{messages} messages");
    assert!(pushes.len() * 2 >= messages, "{} pushes beside {messages} messages", pushes.len());
    assert!(complete * 10 >= pushes.len() * 9, "{complete} of {} pushes were followed to the driver", pushes.len());
    // A push would be taken for more of the reply to the subscription, up to the end of the recording.
    let longest = lifetimes.messages.iter().filter_map(|m| m.latency(Leg::Transmit)).max().unwrap_or(0);
    let of_pushes =
        pushes.iter().map(|s| s.send_ns).max().unwrap_or(0) - pushes.iter().map(|s| s.send_ns).min().unwrap_or(0);
    assert!(longest < of_pushes / 4, "{longest} ns of transmit leg; pushes over {of_pushes} ns");
}

/// Each fourth page: the head at once, the body 15 ms later.
const IN_PARTS: &str = r#"
import asyncio, sys
async def serve(reader, writer):
    n = 0
    while await reader.readuntil(b"\r\n\r\n"):
        n += 1
        head, body = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"hello"
        if n % 4 == 0:
            writer.write(head)
            await asyncio.sleep(0.015)
            writer.write(body)
        else:
            writer.write(head + body)
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"#;

/// The client waits for whole pages: what it waited for was not seen, since each message ended with the head.
#[test]
fn a_page_whose_body_comes_later_is_served_until_it_is_sent() {
    let test = "a_page_whose_body_comes_later_is_served_until_it_is_sent";
    let Some((live, python)) = start(test, "python3", &["-c", IN_PARTS, "26395"]) else { return };
    for protocol in [&[][..], &["--protocol", "http1"]] {
        let mut client = connect(26395);
        let mut buffer = [0; 4096];
        let (lifetimes, _) = record(&live, python.0.id(), protocol, || {
            client.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
            let mut read = 0;
            while read < 43 {
                let n = client.read(&mut buffer).unwrap();
                assert!(n > 0, "the server closed the connection");
                read += n;
            }
        });
        let slow: Vec<_> = lifetimes.messages.iter().filter(|m| m.flags & flags::CONTINUED != 0).collect();
        let (messages, pushes) = (lifetimes.messages.len(), of(&lifetimes, SentKind::Push).len());
        assert!(
            slow.len() >= 20 && slow.len() * 4 <= messages + 8,
            "{} of {messages} messages, {protocol:?}",
            slow.len()
        );
        let served = slow.iter().filter_map(|m| m.latency(Leg::Service));
        assert!(served.clone().count() + 1 >= slow.len(), "{protocol:?}");
        assert!(served.clone().all(|ns| ns >= 14_500_000), "{:?} ns, {protocol:?}", served.min());
        assert_eq!(pushes, 0, "{protocol:?}");
        std::fs::remove_dir_all(live.path("run")).unwrap();
    }
}

const PYTHON: &str = r#"
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
backend = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
client, _ = server.accept()
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while True:
    data = client.recv(4096)
    if not data:
        break
    backend.sendall(b"what is it\n")
    answer = backend.recv(4096)
    client.sendall(answer)
"#;

#[test]
fn what_a_server_asks_of_its_backend_is_a_request_of_its_own() {
    let test = "what_a_server_asks_of_its_backend_is_a_request_of_its_own";
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = backend.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (stream, _) = backend.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut stream = stream;
        while let Some(Ok(_)) = lines.next() {
            std::thread::sleep(Duration::from_millis(1));
            if stream.write_all(b"an answer\n").is_err() {
                break;
            }
        }
    });
    let Some((live, python)) = start(test, "python3", &["-c", PYTHON, "26392", &port.to_string()]) else { return };
    let mut client = connect(26392);
    let mut buffer = [0; 4096];
    // The shim of a version manager replaces itself, so the process stays the same.
    let (lifetimes, _) = record(&live, python.0.id(), &[], || {
        client.write_all(b"question\n").unwrap();
        assert!(client.read(&mut buffer).unwrap() > 0);
    });
    let requests = of(&lifetimes, SentKind::Request);
    let answered = lifetimes.messages.iter().filter(|m| m.latency(Leg::Total).is_some()).count();
    assert!(answered >= 20, "{answered} messages answered");
    assert!(requests.len().abs_diff(answered) <= 3, "{} requests for {answered} messages", requests.len());
    let peer = format!("127.0.0.1:{port}");
    for sent in &requests {
        let name = &lifetimes.flows[sent.flow as usize].name;
        assert!(name.ends_with(&peer), "{name} is not to {peer}");
        assert_eq!(sent.bytes, 11);
    }
    let complete = requests.iter().filter(|s| s.transmit_ns().is_some()).count();
    assert!(complete * 10 >= requests.len() * 9, "{complete} of {}", requests.len());
    // The last one may be answered after the recording.
    let waits: Vec<u64> = requests.iter().filter_map(|s| s.wait_ns()).collect();
    assert!(
        waits.len() + 1 >= requests.len() && waits.iter().all(|ns| *ns >= 900_000),
        "{waits:?} of {}",
        requests.len()
    );
    // The answer takes a millisecond: it is in the service leg, not taken for the reply's send.
    let service: Vec<u64> = lifetimes.messages.iter().filter_map(|m| m.latency(Leg::Service)).collect();
    assert!(service.iter().all(|ns| *ns >= 1_000_000), "{:?}", service.iter().min());
    assert_eq!(of(&lifetimes, SentKind::Push).len(), 0);
}

/// A word after each reply, twice; the client has closed by then.
const GOODBYE: &str = r#"
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    client, _ = server.accept()
    try:
        client.recv(4096)
        client.sendall(b"reply")
        time.sleep(0.002)
        client.sendall(b"good")
        client.sendall(b"bye")
    except OSError:
        pass
    client.close()
"#;

/// Regression: the other end's reset takes the port from the socket before the send call is over, and such calls (alerts of TLS, say) were
/// requests to another server.
#[test]
fn what_is_sent_to_a_client_that_has_gone_is_no_request() {
    let test = "what_is_sent_to_a_client_that_has_gone_is_no_request";
    let Some((live, python)) = start(test, "python3", &["-c", GOODBYE, "26396"]) else { return };
    let mut buffer = [0; 5];
    let mut served = 0;
    let (lifetimes, _) = record(&live, python.0.id(), &[], || {
        let mut client = connect(26396);
        client.write_all(b"question").unwrap();
        client.read_exact(&mut buffer).unwrap();
        served += 1;
    });
    let messages = lifetimes.messages.len();
    assert!(messages >= 20, "{messages} messages of {served}");
    let requests = of(&lifetimes, SentKind::Request);
    assert_eq!(requests.len(), 0, "{:?}", requests.first());
}

const ECHO: &str = r#"
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", int(sys.argv[1])))
while True:
    data, peer = s.recvfrom(2048)
    s.sendto(data, peer)
"#;

#[test]
fn a_udp_reply_s_transmit_leg_begins_where_the_run_says() {
    let test = "a_udp_reply_s_transmit_leg_begins_where_the_run_says";
    let Some((live, python)) = start(test, "python3", &["-c", ECHO, "26393"]) else { return };
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect("127.0.0.1:26393").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut buffer = [0; 64];
    let begun = Instant::now();
    while client.send(b"there?").is_err() || client.recv(&mut buffer).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the server did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut ask = || {
        let _ = client.send(b"hello");
        let _ = client.recv(&mut buffer);
    };
    let (lifetimes, run) = record(&live, python.0.id(), &[], &mut ask);
    let sent: Vec<_> = lifetimes.messages.iter().filter(|m| m.latency(Leg::Total).is_some()).collect();
    assert!(sent.len() >= 20, "{} messages", sent.len());
    let later = sent.iter().filter(|m| m.xmit_ns > m.send_ns).count();
    match run.meta.sends_from().udp.as_str() {
        send_entry::FENTRY | send_entry::CGROUP => {
            assert!(later == sent.len(), "{later} of {} replies have a transmit leg", sent.len());
        }
        source => {
            println!("the transmit leg of UDP begins at {source}");
            assert_eq!(later, 0);
        }
    }
    // Without these hooks it begins at the queueing discipline when that is recorded, and the run says so.
    let more = ["--without-hook", "udp_sendmsg", "--with-hook", "net_dev_queue"];
    let (lifetimes, run) = record(&live, python.0.id(), &more, &mut ask);
    assert_eq!(run.meta.sends_from().udp, send_entry::QUEUE);
    let sent: Vec<_> = lifetimes.messages.iter().filter(|m| m.latency(Leg::Total).is_some()).collect();
    let later = sent.iter().filter(|m| m.xmit_ns > m.send_ns).count();
    assert!(!sent.is_empty() && later == sent.len(), "{later} of {}", sent.len());
    let queue = run.meta.hook("net_dev_queue").expect("the hook");
    println!("net_dev_queue: {:?} ns a run, {} runs measured", queue.ns_per_run, queue.measured_runs);
}

/// Packets that the queueing discipline of the server's device has dropped, by its own count.
fn dropped_by_the_device(live: &Live) -> u64 {
    let output = live.pair.server.command("tc").args(["-s", "qdisc", "show", "dev", "veth-s"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let after = text.split_once("(dropped ").unwrap_or_else(|| panic!("{}", shown(&output))).1;
    after.split(',').next().unwrap().parse().unwrap()
}

/// When it looked, ns of CLOCK_MONOTONIC, and how much the device had dropped by then: ten times a second.
fn looks_at_the_device(live: &Live, ended: &AtomicBool) -> Vec<(u64, u64)> {
    let mut looks = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
        looks.push((Duration::from(now).as_nanos() as u64, dropped_by_the_device(live)));
        std::thread::sleep(Duration::from_millis(100));
    }
    looks
}

/// Tail drop in a token bucket that takes five replies. A datagram is gone; a segment waits to be sent again, and both are told.
#[test]
fn replies_that_this_host_drops_are_counted_and_those_sent_again_say_why_they_were_late() {
    const PORT: u16 = 21312;
    let test = "replies_that_this_host_drops_are_counted_and_those_sent_again_say_why_they_were_late";
    if let Some(reason) = tailsight_testing::lacks_program("tc") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let opts = MemcachedOpts { port: PORT, cpu: Some(0), udp: true, ..Default::default() };
    let server = Server::memcached(&live.pair.server, opts).unwrap();
    let mut shape = live.pair.server.command("tc");
    shape.args("qdisc add dev veth-s root tbf rate 20mbit burst 3000 limit 6000".split(' '));
    let shaped = shape.output().unwrap();
    if !shaped.status.success() {
        return tailsight_testing::skip_as(test, format!("no token bucket: {}", shown(&shaped)));
    }
    // With the protocol, a datagram's id says whose reply it is; without, its flow, order and length.
    for (proto, name, more) in [
        (Proto::MemcachedUdp, "udp", &[][..]),
        (Proto::MemcachedUdp, "udp-by-id", &["--protocol", "memcached"][..]),
        (Proto::Memcached, "tcp", &[][..]),
    ] {
        let out = live.path(name);
        let load = Workload { value_size: 1024, ..Workload::new(proto, address(false, PORT)).rate(1_900.0) };
        let pid = server.pid().to_string();
        let record = || {
            let before = dropped_by_the_device(&live);
            let ended = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let looks = scope.spawn(|| looks_at_the_device(&live, &ended));
                let output = run(&[&["record", "-p", &pid, "-d", "2s", "-o", &out], more].concat());
                ended.store(true, Ordering::Relaxed);
                (output, dropped_by_the_device(&live) - before, looks.join().unwrap())
            })
        };
        let ((output, dropped, looks), _) = live.under_load(&[load], record);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        let mut recorded = Run::open(Path::new(&out)).unwrap();
        let (from_ns, to_ns) = (recorded.meta.start_ns, recorded.meta.end_ns);
        let lifetimes = Analysis::of(&mut recorded).unwrap().lifetimes;
        // Starting and ending a recorder takes time, in which the device drops, too: what it dropped between two looks while it recorded, within
        // a third.
        let counted: u64 = lifetimes.outgoing.dropped.values().sum();
        let within: Vec<u64> =
            looks.iter().filter(|look| (from_ns..to_ns).contains(&look.0)).map(|look| look.1).collect();
        let meanwhile = within.last().unwrap_or(&0) - within.first().unwrap_or(&0);
        assert!(
            dropped > 20 && counted <= dropped && counted * 3 > meanwhile && meanwhile > 0,
            "{counted} of {meanwhile} while it recorded, {dropped} in all, {name}"
        );
        let gone = lifetimes.messages.iter().filter(|m| m.flags & flags::REPLY_DROPPED != 0).count() as u64;
        let diagnosis = run(&["diagnose", &out, "--json", "--leg", "transmit", "--focus", "p95..p100"]);
        assert_eq!(diagnosis.status.code(), Some(0), "{}", shown(&diagnosis));
        let d = json(&diagnosis);
        let warned = d["notes"].to_string().contains(&format!("dropped {counted} outgoing packets of its replies"));
        assert!(warned, "{}", d["notes"]);
        let late =
            d["causes"].as_array().unwrap().iter().find(|c| c["name"].as_str().unwrap().starts_with("tx-dropped:"));
        if proto == Proto::MemcachedUdp {
            // One packet each, and nobody sends it again. The others left the queue one by one, most of them after their call.
            assert!(
                gone <= counted && gone * 10 >= counted * 9 && late.is_none(),
                "{gone} of {counted}, {name}: {late:?}"
            );
            let messages = lifetimes.messages.len() as u64;
            let left = lifetimes.messages.iter().filter(|m| m.xmit_ns != 0).count() as u64;
            assert!((left + gone) * 100 >= messages * 98, "{left} left and {gone} were dropped, of {messages}, {name}");
            let mut service: Vec<u64> = lifetimes.messages.iter().filter_map(|m| m.latency(Leg::Service)).collect();
            service.sort_unstable();
            // A datagram that leaves in another's call, or while its thread is interrupted, is not taken for the reply to another message: that
            // would have moved nearly all. A thread that has lost its core, or its host, for a while is late as well.
            let p90_ns = service[service.len() * 9 / 10];
            assert!(p90_ns < 1_000_000, "{p90_ns} ns, {name}");
            let waited = |m: &&tailsight_lifetime::Message| m.latency(Leg::Transmit) > Some(200_000);
            let waited = lifetimes.messages.iter().filter(waited).count() as u64;
            assert!(waited * 10 > messages, "{waited} of {messages} waited in a queue of up to five, {name}");
        } else {
            let late = late.unwrap_or_else(|| panic!("{}", d["causes"]));
            // Near the end of the recording some have not been sent again yet. One that is dropped again waits for twice as long: that is told by
            // the last drop of its connection, which a busy host makes come late.
            let events = recorded.events().unwrap();
            let drops = events.iter().flat_map(|core| &core.events).filter(|event| event.kind() == Some(Kind::SkbDrop));
            let mut last_drop_ns: HashMap<FlowKey, u64> = HashMap::new();
            for event in drops {
                let last_ns = last_drop_ns.entry(FlowKey::of(event)).or_default();
                *last_ns = event.ts.max(*last_ns);
            }
            let long_ago = |m: &&tailsight_lifetime::Message| {
                let key = lifetimes.flows[m.flow as usize].key;
                let last_ns = last_drop_ns.get(&key).copied().unwrap_or(0);
                last_ns.max(m.send_ns) + 1_000_000_000 < to_ns
            };
            let dropped = lifetimes.messages.iter().filter(|m| m.flags & flags::REPLY_DROPPED != 0);
            let never = dropped.filter(long_ago).count();
            assert!(never <= 2 && late["deviation_ns"].as_i64() > Some(0), "{never} of {gone}, {late}");
            assert!(late["fix"].to_string().contains("tc -s qdisc show dev"), "{late}");
        }
    }
}
