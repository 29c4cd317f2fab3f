//! Live recordings of servers that ask another server: the wait is for that one, by name, whichever thread polled.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tailsight_lab::load::{Proto, Workload};
use tailsight_lab::process::spawn_tied;

use crate::support::{Live, address, check_run, json, run, shown};

const PORT: u16 = 21311;
const BEHIND: u16 = 21312;

/// A line in, after 2 ms (each tenth of a connection: 20 ms) a line out; a thread a connection.
const BACKEND: &str = "
import socket, sys, threading, time
def serve(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    n = 0
    for line in c.makefile('rb'):
        n += 1
        time.sleep(0.02 if n % 10 == 0 else 0.002)
        c.sendall(b'answer\\n')
s = socket.create_server(('127.0.0.1', int(sys.argv[1])))
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
";

/// HTTP to the client, a line to the server behind; a thread a connection.
const THREADS: &str = "
import socket, sys, threading
def serve(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    b = socket.create_connection(('127.0.0.1', int(sys.argv[2])))
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

/// The same as an event loop of one thread.
const LOOP: &str = "
import asyncio, sys
async def serve(reader, writer):
    answers, behind = await asyncio.open_connection('127.0.0.1', int(sys.argv[2]))
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

/// The same in Go: what the reading goroutine gets goes to the serving one through a channel, as in its HTTP client.
const GO: &str = r#"
package main
import ("bufio"; "net"; "os")
func serve(c net.Conn) {
	b, err := net.Dial("tcp", "127.0.0.1:"+os.Args[2])
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

/// Waits until somebody listens there.
fn listens(live: &Live, at: (&str, u16)) {
    let until = Instant::now() + Duration::from_secs(20);
    while live.pair.server.run(|| std::net::TcpStream::connect(at).is_err()).expect("the namespace") {
        assert!(Instant::now() < until, "nobody listens on {}:{}", at.0, at.1);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether each request to the server behind can be told whose it is.
#[derive(Clone, Copy, PartialEq)]
enum Whose {
    Known,
    /// A loop that receives several messages before it asks for the first: a part of the wait has no name but the poll's
    /// (docs/lifetimes.md).
    InPart,
}

/// Records the server and checks that the service leg's tail is the other server's, by name, and that no lock is named.
fn waits_for_the_one_behind(live: &Live, server: &Path, args: &[&str], whose: Whose) {
    let ns = live.pair.server.name().to_owned();
    let up = Command::new("ip").args(["-n", &ns, "link", "set", "lo", "up"]).status().expect("iproute2");
    assert!(up.success(), "no loopback in {ns}");
    let (port, behind) = (PORT.to_string(), BEHIND.to_string());
    let _backend = start(live, Path::new("python3"), &["-c", BACKEND, &behind]);
    listens(live, ("127.0.0.1", BEHIND));
    let server = start(live, server, &[args, &[&port, &behind]].concat());
    listens(live, ("10.77.0.1", PORT));
    let out = live.path("run");
    let pid = server.0.id().to_string();
    let load = Workload::new(Proto::Http1, address(false, PORT)).rate(400.0).connections(8);
    let (output, _) = live.under_load(&[load], || run(&["record", "-d", "2s", "-p", &pid, "-o", &out]));
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    check_run(Path::new(&out));
    let output = run(&["diagnose", &out, "--leg", "service", "--json", "--focus", "p92..p100"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let d = json(&output);
    let first = &d["causes"][0];
    let (category, name) = (first["category"].as_str().unwrap(), first["name"].as_str().unwrap());
    assert_eq!(category, "backend-wait", "{}", shown(&output));
    assert!(name.contains(&format!("(127.0.0.1:{BEHIND})")), "{name}");
    let sum = |counts: &dyn Fn(&serde_json::Value) -> bool| -> f64 {
        let causes = d["causes"].as_array().unwrap();
        causes.iter().filter(|c| counts(c)).map(|c| c["share"].as_f64().unwrap()).sum()
    };
    let waited = sum(&|c| {
        let polled = c["name"].as_str().unwrap().starts_with("waits in epoll_wait");
        c["category"] == "backend-wait" || whose == Whose::InPart && polled
    });
    assert!(waited > 0.7, "{}", shown(&output));
    let locks = sum(&|c| c["category"] == "lock-wait");
    assert!(locks < 0.1, "a lock is named: {}", shown(&output));
}

fn in_python(test: &str, script: &str, whose: Whose) {
    if let Some(reason) = tailsight_testing::lacks_program("python3") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    waits_for_the_one_behind(&live, Path::new("python3"), &["-c", script], whose);
}

#[test]
fn a_thread_a_connection_waits_for_the_server_behind() {
    in_python("a_thread_a_connection_waits_for_the_server_behind", THREADS, Whose::Known);
}

#[test]
fn an_event_loop_waits_for_the_server_behind() {
    in_python("an_event_loop_waits_for_the_server_behind", LOOP, Whose::InPart);
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
    waits_for_the_one_behind(&live, &binary, &[], Whose::Known);
}
