//! Live recordings of servers that ask another server: the wait is for that one, by name, whichever thread polled.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tailsight_lifetime::Analysis;
use tailsight_testbed::load::{Proto, Workload};
use tailsight_testbed::process::spawn_tied;
use tailsight_trace::Run;

use crate::support::{Live, Quiet, address, check_run, json, run, shown};

const PORT: u16 = 21311;
const BEHIND: u16 = 21312;

/// A line in, after 2 ms (each tenth of a connection: 20 ms) a line out; a thread a connection.
const BACKEND: &str = "
import socket, sys, threading, time
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
def serve(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    n = 0
    for line in c.makefile('rb'):
        n += 1
        time.sleep(0.02 if n % 10 == 0 else 0.002)
        c.sendall(b'answer\\n')
s = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
";

/// The same with datagrams.
const DATAGRAMS: &str = "
import socket, sys, threading, time
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
asked = {}
def answer(line, who, late):
    time.sleep(late)
    s.sendto(b'answer\\n', who)
while True:
    line, who = s.recvfrom(1500)
    asked[who[0]] = asked.get(who[0], 0) + 1
    late = 0.02 if asked[who[0]] % 10 == 0 else 0.002
    threading.Thread(target=answer, args=(line, who, late), daemon=True).start()
";

/// HTTP to the client, a line to the server behind; a thread a connection.
const THREADS: &str = "
import socket, sys, threading
def serve(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    b = socket.create_connection((sys.argv[2], int(sys.argv[3])))
    answers = b.makefile('rb')
    buffer = b''
    while True:
        data = c.recv(65536)
        if not data: return
        buffer += data
        while b'\\r\\n\\r\\n' in buffer:
            buffer = buffer.split(b'\\r\\n\\r\\n', 1)[1]
            b.sendall(b'question\\n')
            answers.readline()
            c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')
s = socket.create_server(('10.77.0.1', int(sys.argv[1])))
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
";

/// The same with datagrams: on a connected socket (`connected`), or on one that is told the address each time, of each thread or, as
/// resolvers do it, of each question (`fresh`).
const ASKS_BY_DATAGRAM: &str = "
import socket, sys, threading
family = socket.AF_INET6 if ':' in sys.argv[2] else socket.AF_INET
behind, connected = (sys.argv[2], int(sys.argv[3])), sys.argv[4] == 'connected'
def serve(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    b = socket.socket(family, socket.SOCK_DGRAM)
    if connected: b.connect(behind)
    buffer = b''
    while True:
        data = c.recv(65536)
        if not data: return
        buffer += data
        while b'\\r\\n\\r\\n' in buffer:
            buffer = buffer.split(b'\\r\\n\\r\\n', 1)[1]
            if sys.argv[4] == 'fresh': b = socket.socket(family, socket.SOCK_DGRAM)
            if connected: b.send(b'question\\n')
            else: b.sendto(b'question\\n', behind)
            b.recv(1500)
            c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')
s = socket.create_server(('10.77.0.1', int(sys.argv[1])))
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
";

/// The same as an event loop of one thread.
const LOOP: &str = "
import asyncio, sys
async def serve(reader, writer):
    answers, behind = await asyncio.open_connection(sys.argv[2], int(sys.argv[3]))
    try:
        while True:
            await reader.readuntil(b'\\r\\n\\r\\n')
            behind.write(b'question\\n')
            await answers.readline()
            writer.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')
    except asyncio.IncompleteReadError:
        pass
async def main():
    server = await asyncio.start_server(serve, '10.77.0.1', int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
";

/// The same with a pool of connections that every client's requests go out on.
const POOL: &str = "
import asyncio, sys
free = []
async def serve(reader, writer):
    try:
        while True:
            await reader.readuntil(b'\\r\\n\\r\\n')
            answers, behind = free.pop() if free else await asyncio.open_connection(sys.argv[2], int(sys.argv[3]))
            behind.write(b'question\\n')
            await answers.readline()
            writer.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')
            free.append((answers, behind))
    except asyncio.IncompleteReadError:
        pass
async def main():
    server = await asyncio.start_server(serve, '10.77.0.1', int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
";

/// The same in Go: what the reading goroutine gets goes to the serving one through a channel, as in its HTTP client.
const GO: &str = r#"
package main
import ("bufio"; "net"; "os")
func serve(c net.Conn) {
	b, err := net.Dial("tcp", net.JoinHostPort(os.Args[2], os.Args[3]))
	if err != nil { return }
	questions, answers := make(chan bool), make(chan bool)
	go func() { for range questions { b.Write([]byte("question\n")) } }()
	go func() {
		lines := bufio.NewReader(b)
		for { if _, err := lines.ReadString('\n'); err != nil { return }; answers <- true }
	}()
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil { return }
		if line != "\r\n" { continue }
		questions <- true
		<-answers
		c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	}
}
func main() {
	l, err := net.Listen("tcp", "10.77.0.1:"+os.Args[1])
	if err != nil { panic(err) }
	for { c, err := l.Accept(); if err != nil { return }; go serve(c) }
}
"#;

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(live: &Live, program: &Path, args: &[&str]) -> Program {
    let mut command = live.pair.server.command(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null());
    Program(spawn_tied(command, None, Signal::SIGKILL).expect("the program starts"))
}

/// The server behind: a script, and its address.
#[derive(Clone, Copy)]
struct Behind {
    script: &'static str,
    host: &'static str,
}

const OVER_TCP: Behind = Behind { script: BACKEND, host: "127.0.0.1" };

impl Behind {
    /// How a wait for it is named: its process, and where it listens.
    fn name(self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_owned() };
        format!("python3 ({host}:{BEHIND})")
    }

    fn answers(self) -> bool {
        if self.script == BACKEND {
            return std::net::TcpStream::connect((self.host, BEHIND)).is_ok();
        }
        let any = if self.host.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
        let asked = || {
            let socket = std::net::UdpSocket::bind(any)?;
            socket.set_read_timeout(Some(Duration::from_millis(100)))?;
            socket.send_to(b"question", (self.host, BEHIND))?;
            socket.recv(&mut [0; 16])
        };
        asked().is_ok()
    }
}

/// Waits until this is so, in the server's namespace.
fn until(live: &Live, what: &str, is: impl Fn() -> bool + Copy + Send) {
    let until = Instant::now() + Duration::from_secs(20);
    while !live.pair.server.run(is).expect("the namespace") {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Records the server and checks that the service leg's tail is the other server's, by name, and that no lock is named.
fn waits_for_the_one_behind(
    live: &Live,
    test: &str,
    server: &Path,
    args: &[&str],
    backend_setup: Behind,
    further: &[&str],
) {
    let ns = live.pair.server.name().to_owned();
    let up = Command::new("ip").args(["-n", &ns, "link", "set", "lo", "up"]).status().expect("iproute2");
    assert!(up.success(), "no loopback in {ns}");
    let (port, behind) = (PORT.to_string(), BEHIND.to_string());
    let backend = start(live, Path::new("python3"), &["-c", backend_setup.script, backend_setup.host, &behind]);
    until(live, "the server behind answers", || backend_setup.answers());
    let server = start(live, server, &[args, &[&port, backend_setup.host, &behind], further].concat());
    until(live, "the server listens", || std::net::TcpStream::connect(("10.77.0.1", PORT)).is_ok());
    let out = live.path("run");
    let pid = server.0.id().to_string();
    let load = Workload::new(Proto::Http1, address(false, PORT)).rate(400.0).connections(8);
    // A third, the usual limit, leaves too little of what is judged here.
    let quiet = Quiet { ours: &[backend.0.id()], limit: 0.2, ..Quiet::of(test, &out, "service", 0.08) };
    let recorded = quiet.recorded(|| {
        let record = || run(&["record", "-d", "2s", "-p", &pid, "-o", &out]);
        let (output, _) = live.under_load(std::slice::from_ref(&load), record);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        check_run(Path::new(&out));
    });
    if recorded.is_none() {
        return;
    }
    let output = run(&["diagnose", &out, "--leg", "service", "--json", "--focus", "p92..p100"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let d = json(&output);
    let first = &d["causes"][0];
    let (category, name) = (first["category"].as_str().unwrap(), first["name"].as_str().unwrap());
    // On a busy machine a client has several requests outstanding: one receive call returns them together, and they wait for those before them
    // that wait for the server behind. A queue is nothing else.
    let lifetimes = Analysis::of(&mut Run::open(Path::new(&out)).unwrap()).unwrap().lifetimes;
    let together = lifetimes.messages.iter().filter(|m| m.batch > 1 || m.ahead > 0).count() as u64;
    let is_queue = |c: &serde_json::Value| {
        let of_the_server = c["name"].as_str().unwrap().ends_with(&format!("/peer:{}", backend_setup.name()));
        c["category"] == "hol-blocking" && of_the_server && c["messages"].as_u64() <= Some(together)
    };
    assert!(is_queue(first) || category == "backend-wait" && name == backend_setup.name(), "{}", shown(&output));
    let sum = |counts: &dyn Fn(&serde_json::Value) -> bool| -> f64 {
        let causes = d["causes"].as_array().unwrap();
        causes.iter().filter(|c| counts(c)).map(|c| c["share"].as_f64().unwrap()).sum()
    };
    // Of an event loop it was 0.44 where a question counted to the message received last.
    let waited = sum(&|c| c["category"] == "backend-wait" || c["category"] == "pool-wait" || is_queue(c));
    // What other programs of the machine have is no part of what the server waits for.
    let others = sum(&|c| ["interference", "os-threads", "steal"].contains(&c["category"].as_str().unwrap())).max(0.0);
    assert!(waited > 0.7 * (1.0 - others) && waited > 0.3, "{}", shown(&output));
    let locks = sum(&|c| c["category"] == "lock-wait");
    assert!(locks < 0.1, "a lock is named: {}", shown(&output));
}

fn in_python(test: &str, script: &str, behind: Behind, further: &[&str]) {
    if let Some(reason) = tailsight_testing::lacks_program("python3") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    waits_for_the_one_behind(&live, test, Path::new("python3"), &["-c", script], behind, further);
}

#[test]
fn a_thread_a_connection_waits_for_the_server_behind() {
    in_python("a_thread_a_connection_waits_for_the_server_behind", THREADS, OVER_TCP, &[]);
}

#[test]
fn a_server_behind_is_named_over_ipv6() {
    let behind = Behind { host: "::1", ..OVER_TCP };
    in_python("a_server_behind_is_named_over_ipv6", THREADS, behind, &[]);
}

#[test]
fn a_server_behind_is_named_over_udp() {
    let behind = Behind { script: DATAGRAMS, ..OVER_TCP };
    in_python("a_server_behind_is_named_over_udp", ASKS_BY_DATAGRAM, behind, &["connected"]);
}

#[test]
fn a_server_behind_is_named_over_udp_without_a_connection() {
    let behind = Behind { script: DATAGRAMS, ..OVER_TCP };
    in_python("a_server_behind_is_named_over_udp_without_a_connection", ASKS_BY_DATAGRAM, behind, &["-"]);
}

/// The first packet of a socket was not known to be the target's, and the server was called `0.0.0.0:0`.
#[test]
fn a_server_behind_is_named_over_udp_when_each_question_has_a_socket() {
    let behind = Behind { script: DATAGRAMS, ..OVER_TCP };
    let test = "a_server_behind_is_named_over_udp_when_each_question_has_a_socket";
    in_python(test, ASKS_BY_DATAGRAM, behind, &["fresh"]);
}

#[test]
fn a_server_behind_is_named_over_udp_and_ipv6() {
    let behind = Behind { script: DATAGRAMS, host: "::1" };
    in_python("a_server_behind_is_named_over_udp_and_ipv6", ASKS_BY_DATAGRAM, behind, &["connected"]);
}

#[test]
fn an_event_loop_waits_for_the_server_behind() {
    in_python("an_event_loop_waits_for_the_server_behind", LOOP, OVER_TCP, &[]);
}

#[test]
fn an_event_loop_with_a_pool_of_connections_waits_for_the_server_behind() {
    in_python("an_event_loop_with_a_pool_of_connections_waits_for_the_server_behind", POOL, OVER_TCP, &[]);
}

#[test]
fn goroutines_wait_for_the_server_behind() {
    let test = "goroutines_wait_for_the_server_behind";
    for program in ["go", "python3"] {
        if let Some(reason) = tailsight_testing::lacks_program(program) {
            return tailsight_testing::skip_as(test, reason);
        }
    }
    let Some(live) = Live::new(test) else { return };
    let source = live.dir.path().join("server.go");
    std::fs::write(&source, GO).unwrap();
    let binary: PathBuf = live.dir.path().join("gosrv");
    let built = Command::new("go")
        .arg("build")
        .arg("-o")
        .arg(&binary)
        .arg(&source)
        .current_dir(live.dir.path())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    waits_for_the_one_behind(&live, test, &binary, &[], OVER_TCP, &[]);
}
