//! Live recordings of servers whose code a runtime compiles, or names by tables of its own: their slow function is named. Each is skipped by
//! name where the runtime is not installed.

use std::path::Path;
use std::process::Command;

use tailsight_lifetime::{Analysis, Leg, Message};
use tailsight_trace::Run;

use crate::functions_live::{PORT, first_function, recorded};
use crate::support::{Live, built, json, run, shown};

/// HTTP; of 33 requests one has its index rebuilt.
const JAVA_SERVER: &str = r#"
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
class Server {
    static long sink;
    static void rebuildIndex() { for (int i = 0; i < 3000; i++) sink += mixIn(i, 1500); }
    static long mixIn(long n, int times) { long x = n; for (int i = 0; i < times; i++) x = x * 6364136223846793005L + sink; return x; }
    public static void main(String[] args) throws Exception {
        ByteBuffer reply = ByteBuffer.wrap("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".getBytes());
        ByteBuffer buffer = ByteBuffer.allocate(4096);
        Selector selector = Selector.open();
        ServerSocketChannel door = ServerSocketChannel.open();
        door.bind(new InetSocketAddress("10.77.0.1", Integer.parseInt(args[0])));
        door.configureBlocking(false);
        door.register(selector, SelectionKey.OP_ACCEPT);
        for (int i = 0; i < 20; i++) rebuildIndex();
        for (int n = 0;;) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel client = door.accept();
                    client.configureBlocking(false);
                    client.setOption(StandardSocketOptions.TCP_NODELAY, true);
                    client.register(selector, SelectionKey.OP_READ);
                    continue;
                }
                SocketChannel client = (SocketChannel) key.channel();
                buffer.clear();
                if (client.read(buffer) < 0) { client.close(); continue; }
                sink += mixIn(n, 20000);
                if (++n % 33 == 0) rebuildIndex();
                client.write(reply.duplicate());
            }
            selector.selectedKeys().clear();
        }
    }
}
"#;

const NODE_SERVER: &str = r"
const net = require('net');
let sink = 0, n = 0;
function rebuildIndex() { for (let i = 0; i < 3e6; i++) sink = (sink * 31 + i) % 1000003; }
function lookUp() { for (let i = 0; i < 5e4; i++) sink = (sink * 31 + i) % 1000003; }
for (let i = 0; i < 20; i++) { rebuildIndex(); lookUp(); }
net.createServer(c => {
    c.setNoDelay(true);
    c.on('error', () => {});
    c.on('data', () => {
        lookUp();
        if (++n % 33 == 0) rebuildIndex();
        c.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    });
}).listen(Number(process.argv.at(-1)), '10.77.0.1');
";

const GO_SERVER: &str = r#"package main

import (
	"net"
	"os"
	"runtime"
	"sync/atomic"
)

var sink, count uint64

//go:noinline
func rebuildIndex(n uint64) {
	for i := uint64(0); i < n; i++ {
		sink += i * i
	}
	// It gives its thread away in between, as code that waits does.
	runtime.Gosched()
	for i := uint64(0); i < n; i++ {
		sink += i
	}
}

//go:noinline
func lookUp() {
	for i := uint64(0); i < 30000; i++ {
		sink += i
	}
}

func serve(c net.Conn) {
	buffer := make([]byte, 4096)
	for {
		if n, err := c.Read(buffer); n == 0 || err != nil {
			return
		}
		lookUp()
		if atomic.AddUint64(&count, 1)%33 == 0 {
			rebuildIndex(1000000)
		}
		c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	}
}

func main() {
	door, err := net.Listen("tcp", "10.77.0.1:"+os.Args[1])
	if err != nil {
		panic(err)
	}
	for {
		c, err := door.Accept()
		if err == nil {
			go serve(c)
		}
	}
}
"#;

/// A live machine, when the programs are installed.
fn with(test: &str, programs: &[&str]) -> Option<Live> {
    if let Some(reason) = programs.iter().find_map(|program| tailsight_testing::lacks_program(program)) {
        tailsight_testing::skip_as(test, reason);
        return None;
    }
    Live::new(test)
}

fn write(live: &Live, name: &str, text: &str) -> String {
    let path = live.path(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Nanoseconds of a mean slow message in call stacks with such a function.
fn in_focus(live: &Live, function: &str) -> u64 {
    let output = run(&["export", &live.path("run"), "--format", "collapsed"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let text = std::fs::read_to_string(Path::new(&live.path("run")).join("focus.collapsed")).unwrap();
    let lines = text.lines().filter(|line| line.contains(function));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn a_jvm_is_asked_for_its_map_and_its_method_is_named() {
    let test = "a_jvm_is_asked_for_its_map_and_its_method_is_named";
    let Some(live) = with(test, &["java", "javac"]) else { return };
    let source = write(&live, "Server.java", JAVA_SERVER);
    built("javac", &[&source], live.dir.path());
    let folder = live.dir.path().to_str().unwrap().to_owned();
    let command = ["java", "-XX:+PreserveFramePointer", "-XX:-Inline", "-cp", &folder, "Server"];
    let Some((meta, d, text)) = recorded(&live, test, &command, 400.0, &[]) else { return };
    let notes = meta["sampling"]["notes"].to_string();
    assert!(!notes.contains("--perf-basic-prof"), "{notes}");
    assert!(in_focus(&live, "Server.mixIn") + in_focus(&live, "Server.rebuildIndex") > 100_000, "{text}\n{notes}");
    let first = first_function(&d);
    assert!(first["name"].as_str().is_some_and(|name| name.contains("Server.")), "{first:#} {text}");
}

#[test]
fn a_function_that_node_compiled_is_named_by_its_map() {
    let test = "a_function_that_node_compiled_is_named_by_its_map";
    let Some(live) = with(test, &["node"]) else { return };
    let source = write(&live, "server.js", NODE_SERVER);
    // Some versions of V8 write a log of their own with the map.
    let log = format!("--logfile={}", live.path("v8.log"));
    let Some((meta, _, text)) = recorded(&live, test, &["node", "--perf-basic-prof", &log, &source], 300.0, &[]) else {
        return;
    };
    assert!(in_focus(&live, "rebuildIndex") > 100_000, "{text} {meta:#}");
    // Its map is in the one /tmp of this machine.
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", meta["target"]["pids"][0]));
}

#[test]
fn without_a_map_compiled_code_is_said_once_and_the_rest_goes_on() {
    let test = "without_a_map_compiled_code_is_said_once_and_the_rest_goes_on";
    let Some(live) = with(test, &["node"]) else { return };
    let source = write(&live, "server.js", NODE_SERVER);
    let Some((meta, d, text)) = recorded(&live, test, &["node", &source], 300.0, &[]) else { return };
    let notes = meta["sampling"]["notes"].as_array().unwrap();
    let said = notes.iter().filter(|note| note.as_str().unwrap().contains("--perf-basic-prof")).count();
    assert_eq!(said, 1, "{notes:?}");
    assert!(
        meta["sampling"]["samples"].as_u64().unwrap() > 50 && !d["causes"].as_array().unwrap().is_empty(),
        "{text}"
    );
}

#[test]
fn a_stripped_go_program_is_named_by_its_own_table() {
    let test = "a_stripped_go_program_is_named_by_its_own_table";
    let Some(live) = with(test, &["go"]) else { return };
    let (source, program) = (write(&live, "server.go", GO_SERVER), live.path("go-server"));
    built("go", &["build", "-ldflags=-s -w", "-o", &program, &source], live.dir.path());
    let Some((_, d, text)) = recorded(&live, test, &[&program], 400.0, &[]) else { return };
    assert_eq!(first_function(&d)["name"], "main.rebuildIndex", "{text}\n{d:#}");
}

/// Go: no return address is touched, and the calls belong to the goroutine.
#[test]
fn a_go_function_is_traced_with_its_goroutine() {
    let test = "a_go_function_is_traced_with_its_goroutine";
    let Some(live) = with(test, &["go"]) else { return };
    let (source, program) = (write(&live, "server.go", GO_SERVER), live.path("go-server"));
    built("go", &["build", "-o", &program, &source], live.dir.path());
    let traced =
        ["--uprobe", "go-server:main.rebuildIndex", "--uprobe", "go-server:main.lookUp", "--function-limit", "100000"];
    let Some((meta, d, text)) = recorded(&live, test, &[&program], 300.0, &traced) else { return };
    let functions = meta["traced"]["functions"].as_array().unwrap();
    assert!(
        functions.iter().all(|f| f["ends_by"] == "instructions" && f["calls"].as_u64() > Some(10)),
        "{functions:#?}"
    );
    let causes = d["causes"].as_array().unwrap();
    let calls = |name: &str| functions.iter().find(|f| f["name"] == name).unwrap()["calls"].as_f64().unwrap();
    let ratio = calls("main.lookUp") / calls("main.rebuildIndex");
    assert!((30.0..36.0).contains(&ratio), "{ratio}");
    let slow = causes.iter().find(|c| c["name"] == "function:main.rebuildIndex").unwrap_or_else(|| panic!("{text}"));
    let app = causes.iter().find(|c| c["category"] == "app-processing").unwrap();
    assert_eq!(app["name"], slow["name"], "{text}");
    assert!(std::net::TcpStream::connect(("127.0.0.1", PORT)).is_err(), "the server ran in its own namespace");
}

/// What a server in Go has beside its `serve`.
const GO_LISTEN: &str = r#"
func listen() {
	l, err := net.Listen("tcp4", "10.77.0.1:"+os.Args[1])
	if err != nil {
		panic(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go serve(c)
	}
}
"#;

/// On the only processor that it takes a job computes for 40 ms, four times a second, in goroutines that give way when they are made to (10 ms);
/// requests wait a moment, and answer.
const GO_BUSY: &str = r#"package main

import (
	"net"
	"os"
	"runtime"
	"time"
)

var sink uint64

//go:noinline
func rebuildIndex(end time.Time, done chan bool) {
	for time.Now().Before(end) {
		for i := uint64(0); i < 100000; i++ {
			sink += i * i
		}
	}
	done <- true
}

func job() {
	for {
		time.Sleep(250 * time.Millisecond)
		done, end := make(chan bool), time.Now().Add(40*time.Millisecond)
		for i := 0; i < 4; i++ {
			go rebuildIndex(end, done)
		}
		for i := 0; i < 4; i++ {
			<-done
		}
	}
}

func serve(c net.Conn) {
	buffer := make([]byte, 4096)
	for {
		if n, err := c.Read(buffer); n == 0 || err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
		c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	}
}

func main() {
	runtime.GOMAXPROCS(1)
	go job()
	listen()
}
"#;

/// What ran in place of a goroutine that was ready was the request's own work: "itself took longer (running)".
#[test]
fn a_goroutine_that_is_ready_waits_for_the_function_that_has_the_processor() {
    let test = "a_goroutine_that_is_ready_waits_for_the_function_that_has_the_processor";
    let Some(live) = with(test, &["go"]) else { return };
    let (source, program) = (write(&live, "busy.go", &[GO_BUSY, GO_LISTEN].concat()), live.path("go-busy"));
    built("go", &["build", "-o", &program, &source], live.dir.path());
    if recorded(&live, test, &[&program], 300.0, &[]).is_none() {
        return;
    }
    if let Some(reason) = looks_missed(&live) {
        return tailsight_testing::not_judged(test, reason);
    }
    let output = run(&["diagnose", &live.path("run"), "--leg", "service", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let d = json(&output);
    let causes = d["causes"].as_array().unwrap();
    let waits = causes.iter().find(|cause| cause["category"] == "scheduler-wait").unwrap_or_else(|| panic!("{d:#}"));
    assert_eq!(waits["functions"][0]["name"], "main.rebuildIndex", "{waits:#}");
    assert!(waits["share"].as_f64() > Some(0.5), "{waits:#}");
    // The sleep ended late, and was none for longer than in other requests.
    let sleeps = causes.iter().filter(|cause| cause["name"] == "Go sleeping until a time");
    let sleeps: f64 = sleeps.filter_map(|cause| cause["share"].as_f64()).sum();
    assert!(sleeps < 0.25, "{causes:#?}");
    // None of it is called the request's own, beyond what no look met.
    let own = causes.iter().filter(|cause| cause["category"] == "app-processing" && cause["name"] == "user");
    let own: f64 = own.filter_map(|cause| cause["share"].as_f64()).sum();
    assert!(own < 0.3, "{causes:#?}");
}

/// A job holds a mutex for 20 ms, again and again; requests read the table that it protects.
const GO_LOCK: &str = r#"package main

import (
	"net"
	"os"
	"sync"
	"time"
)

var (
	mutex sync.Mutex
	table = map[int]string{1: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"}
)

func refresh() {
	for {
		time.Sleep(180 * time.Millisecond)
		mutex.Lock()
		time.Sleep(20 * time.Millisecond)
		mutex.Unlock()
	}
}

//go:noinline
func readTable() string {
	mutex.Lock()
	defer mutex.Unlock()
	return table[1]
}

func serve(c net.Conn) {
	buffer := make([]byte, 4096)
	for {
		if n, err := c.Read(buffer); n == 0 || err != nil {
			return
		}
		c.Write([]byte(readTable()))
	}
}

func main() {
	go refresh()
	listen()
}
"#;

/// A goroutine that waited for a mutex was `waits in epoll_pwait`, the sleep of its thread, with advice to look with strace.
#[test]
fn a_goroutine_s_wait_for_a_mutex_is_a_lock_and_names_who_locks() {
    let test = "a_goroutine_s_wait_for_a_mutex_is_a_lock_and_names_who_locks";
    let Some(live) = with(test, &["go"]) else { return };
    let (source, program) = (write(&live, "lock.go", &[GO_LOCK, GO_LISTEN].concat()), live.path("go-lock"));
    built("go", &["build", "-o", &program, &source], live.dir.path());
    let Some((meta, d, text)) = recorded(&live, test, &[&program], 300.0, &[]) else { return };
    let looks = &meta["routines"];
    let count = |name: &str| looks[name].as_u64().unwrap_or_else(|| panic!("{looks:#}"));
    assert!(count("looks") > 20 && looks["notes"] == serde_json::json!([]), "{looks:#}");
    if let Some(reason) = looks_missed(&live) {
        return tailsight_testing::not_judged(test, reason);
    }
    let first = &d["causes"][0];
    assert_eq!(first["category"], "lock-wait", "{text}");
    assert_eq!(first["name"], "Go waiting for a lock of the program", "{text}");
    let function = &first["functions"][0];
    assert_eq!([&function["name"], &function["inside"]], ["main.readTable", "sync.(*Mutex).Lock"], "{first:#}");
    // Who had it is a goroutine of the program's own, which slept with it and gave it back there. Nobody looks at it the first time.
    let meanwhile = first["meanwhile"].as_array().unwrap();
    let in_refresh = |part: &&serde_json::Value| part["function"] == "main.refresh";
    let share: f64 = meanwhile.iter().filter(in_refresh).map(|part| part["share"].as_f64().unwrap()).sum();
    assert!(share > 0.8, "{first:#}");
    let sentence = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Who looks at goroutines from outside may be late on a busy machine: then it met the holder in few of its sleeps, or in none.
    let met = meanwhile.iter().filter(|part| part["doing"] != "not-known");
    if met.filter(in_refresh).count() == 0 {
        return tailsight_testing::not_judged(test, "no look at the holder came while it had the lock");
    }
    assert!(sentence.contains("waited (Go sleeping until a time) in main.refresh"), "{text}");
}

/// The same, where the goroutine of a connection only reads: it makes another one for each request, and a third one writes the replies (gRPC).
const GO_SHARED: &str = r#"package main

import (
	"net"
	"os"
	"sync"
	"time"
)

var (
	mutex sync.Mutex
	table = map[int]string{1: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"}
)

func refresh() {
	for {
		time.Sleep(180 * time.Millisecond)
		mutex.Lock()
		time.Sleep(20 * time.Millisecond)
		mutex.Unlock()
	}
}

//go:noinline
func readTable() string {
	mutex.Lock()
	defer mutex.Unlock()
	return table[1]
}

func handle(replies chan string) {
	replies <- readTable()
}

func write(c net.Conn, replies chan string) {
	for reply := range replies {
		c.Write([]byte(reply))
	}
}

func serve(c net.Conn) {
	replies := make(chan string)
	defer close(replies)
	go write(c, replies)
	buffer := make([]byte, 4096)
	for {
		if n, err := c.Read(buffer); n == 0 || err != nil {
			return
		}
		go handle(replies)
	}
}

func main() {
	go refresh()
	listen()
}
"#;

/// A goroutine that was made for a request had no message: its wait for a mutex was `other messages in its other workers`.
#[test]
fn a_goroutine_that_was_made_for_a_request_waits_for_a_lock() {
    let test = "a_goroutine_that_was_made_for_a_request_waits_for_a_lock";
    let Some(live) = with(test, &["go"]) else { return };
    let (source, program) = (write(&live, "shared.go", &[GO_SHARED, GO_LISTEN].concat()), live.path("go-shared"));
    built("go", &["build", "-o", &program, &source], live.dir.path());
    let Some((meta, d, text)) = recorded(&live, test, &[&program], 300.0, &[]) else { return };
    let looks = &meta["routines"];
    // One place makes goroutines ready, and one makes new ones.
    assert_eq!(looks["breakpoints"]["places"], 2, "{looks:#}");
    assert_eq!(looks["breakpoints"]["off_ns"], serde_json::Value::Null, "{looks:#}");
    // What has returned is looked at no more, and is no memory that cannot be read.
    assert!(looks["unreadable"].as_u64().unwrap() * 10 <= looks["looks"].as_u64().unwrap(), "{looks:#}");
    if let Some(reason) = looks_missed(&live) {
        return tailsight_testing::not_judged(test, reason);
    }
    let first = &d["causes"][0];
    assert_eq!(first["name"], "Go waiting for a lock of the program", "{text}");
    assert!(first["share"].as_f64() > Some(0.8), "{text}");
    let function = &first["functions"][0];
    assert_eq!([&function["name"], &function["inside"]], ["main.readTable", "sync.(*Mutex).Lock"], "{first:#}");
    let meanwhile = first["meanwhile"].as_array().unwrap();
    let in_refresh = meanwhile.iter().filter(|part| part["function"] == "main.refresh");
    let share: f64 = in_refresh.map(|part| part["share"].as_f64().unwrap()).sum();
    assert!(share > 0.8, "{first:#}");
}

/// A task holds a lock of asyncio for 20 ms, again and again; requests read what it protects.
const PYTHON_LOCK: &str = r#"import asyncio, sys

lock = asyncio.Lock()

async def refresh():
    while True:
        await asyncio.sleep(0.18)
        async with lock:
            await asyncio.sleep(0.02)

async def read_table():
    async with lock:
        return b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

async def serve(reader, writer):
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(await read_table())
    except asyncio.IncompleteReadError:
        writer.close()

async def main():
    refreshing = asyncio.create_task(refresh())
    server = await asyncio.start_server(serve, "10.77.0.1", int(sys.argv[1]))
    await server.serve_forever()

asyncio.run(main())
"#;

/// A task that waited for a lock was `waits for what the kernel does not show (epoll_wait)`, the sleep of its loop's thread.
#[test]
fn a_task_s_wait_for_a_lock_of_asyncio_is_a_lock_and_names_who_locks() {
    let test = "a_task_s_wait_for_a_lock_of_asyncio_is_a_lock_and_names_who_locks";
    let Some(live) = with(test, &["python3"]) else { return };
    if let Some(reason) = no_known_cpython() {
        return tailsight_testing::skip_as(test, reason);
    }
    let source = write(&live, "shop.py", PYTHON_LOCK);
    let Some((meta, d, text)) = recorded(&live, test, &["python3", &source], 300.0, &[]) else { return };
    let looks = &meta["routines"];
    let count = |name: &str| looks[name].as_u64().unwrap_or_else(|| panic!("{looks:#}"));
    assert!(count("looks") > 20 && looks["notes"] == serde_json::json!([]), "{looks:#}");
    if let Some(reason) = looks_missed(&live) {
        return tailsight_testing::not_judged(test, reason);
    }
    let first = &d["causes"][0];
    assert_eq!(
        [&first["category"], &first["name"]],
        ["lock-wait", "asyncio waiting for a lock of the program"],
        "{looks:#} {text}"
    );
    let function = &first["functions"][0];
    assert_eq!(
        [&function["name"], &function["inside"]],
        ["shop.read_table", "asyncio.locks.Lock.acquire"],
        "{first:#}"
    );
    assert_eq!(function["source"], "shop.py:12", "{first:#}");
}

/// A thread for each connection. Of 33 requests one asks for a token, which takes 15 ms of sleep, and one has its prices added up. Line 9: the
/// sleep; line 13: the sum.
const PYTHON_THREADS: &str = r#"import sys, time
from http.server import ThreadingHTTPServer, BaseHTTPRequestHandler

n = 0

def fetch_token():
    # Asks nobody here.
    global n
    time.sleep(0.015)

def price(x):
    s = 0
    for i in range(60000): s = (s * 31 + i + x) % 1000003
    return s

class Shop(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *_): pass
    def setup(self):
        super().setup()
        self.request.setsockopt(6, 1, 1)
    def do_GET(self):
        global n
        n += 1
        # One request does both: of two kinds the slower one alone may be the slowest hundredths, and which that is the machine decides.
        if n % 33 == 0:
            self.check_out()
            self.add_up()
        self.send_response(200)
        self.send_header('Content-Length', '2')
        self.end_headers()
        self.wfile.write(b'ok')
    def check_out(self): fetch_token()
    def add_up(self): return sorted([3, 1, 2], key=price)

ThreadingHTTPServer(('10.77.0.1', int(sys.argv[1])), Shop).serve_forever()
"#;

/// Without `-X perf`: "read what pysleep waits for, and who calls it", and of what computes "Python's interpreter".
#[test]
fn functions_of_python_are_named_where_they_sleep_and_where_they_compute() {
    let test = "functions_of_python_are_named_where_they_sleep_and_where_they_compute";
    let Some(live) = with(test, &["python3"]) else { return };
    if let Some(reason) = no_known_cpython() {
        return tailsight_testing::skip_as(test, reason);
    }
    let source = write(&live, "shop.py", PYTHON_THREADS);
    let Some((_, d, text)) = recorded(&live, test, &["python3", &source], 300.0, &[]) else { return };
    let causes = d["causes"].as_array().unwrap();
    let slept = causes.iter().find(|cause| cause["name"] == "clock_nanosleep").unwrap_or_else(|| panic!("{text}"));
    let asleep = &slept["functions"][0];
    assert_eq!([&asleep["name"], &asleep["caller"]], ["shop.fetch_token", "shop.Shop.check_out"], "{asleep:#}");
    assert_eq!(asleep["source"], "shop.py:9", "{asleep:#}");
    // Functions that a C function called, `sorted`, have the place of that call.
    assert!(in_focus(&live, "shop.price") > 100_000, "{text}");
    let collapsed = std::fs::read_to_string(Path::new(&live.path("run")).join("focus.collapsed")).unwrap();
    let in_order = |line: &str| {
        let at = |name: &str| line.find(name);
        matches!((at("shop.Shop.add_up"), at("sort"), at("shop.price")), (Some(a), Some(b), Some(c)) if a < b && b < c)
    };
    assert!(collapsed.lines().any(in_order), "{collapsed}");
}

/// Why what tasks waited for cannot be judged: fewer than four of five messages that took 10 ms to serve have a look at tasks meanwhile. Who
/// looks may be late on a machine that others fill.
fn looks_missed(live: &Live) -> Option<String> {
    let mut run = Run::open(Path::new(&live.path("run"))).expect("a run");
    let analysis = Analysis::of(&mut run).expect("its events");
    let is_slow = |m: &&Message| m.latency(Leg::Service) > Some(10_000_000);
    let slow: Vec<&Message> = analysis.lifetimes.messages.iter().filter(is_slow).collect();
    // A table is in the order of time.
    let first_look = |m: &Message| run.routines.get(run.routines.partition_point(|look| look.ts_ns < m.recv_ns));
    let is_met = |m: &&&Message| first_look(m).is_some_and(|look| look.ts_ns < m.send_ns);
    let met = slow.iter().filter(is_met).count();
    (met * 5 < slow.len() * 4).then(|| format!("looks met {met} of the {} requests that waited", slow.len()))
}

/// Why tasks of this machine's Python cannot be read: its version, where that is none whose fields are known.
fn no_known_cpython() -> Option<String> {
    let asked = Command::new("python3").args(["-c", "import sys; print(sys.version_info[:2])"]).output().ok()?;
    let version = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    let is_known = ["(3, 11)", "(3, 12)", "(3, 13)"].contains(&version.as_str());
    (!is_known).then(|| format!("python3 is {version}, of which it is not known where it keeps tasks"))
}
