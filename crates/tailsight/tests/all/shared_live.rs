//! Live recordings of servers on which several requests are open at a time: on a thread (an event loop), on a connection (HTTP/2).

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tailsight_testbed::load::{Proto, Workload};
use tailsight_testbed::process::spawn_tied;

use crate::support::{Live, address, json, run, shown, stderr};

const PORT: u16 = 21321;

/// What a request's handler computes, in thread CPU time, before it awaits and after, ns.
const COMPUTES_NS: i64 = 2 * 3_000_000;

/// HTTP on an event loop: 3 ms of work, 2 ms of waiting for a timer, 3 ms of work.
const AWAITS: &str = "
import asyncio, sys, time
def work():
    end = time.thread_time_ns() + 3_000_000
    while time.thread_time_ns() < end: pass
async def serve(reader, writer):
    while True:
        line = await reader.readline()
        if not line: return
        if line != b'\\r\\n': continue
        work()
        await asyncio.sleep(0.002)
        work()
        writer.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')
async def main():
    server = await asyncio.start_server(serve, '10.77.0.1', int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
";

/// HTTP/2 in the clear: 2 ms a request, one of 33 takes 20 ms.
const HTTP2_SERVER: &str = "
const http2 = require('http2');
let n = 0;
const server = http2.createServer();
server.on('stream', (stream) => {
    stream.on('error', () => {});
    setTimeout(() => { stream.respond({ ':status': 200 }); stream.end('done'); }, n++ % 33 == 0 ? 20 : 2);
});
server.listen(Number(process.argv[1]), '10.77.0.1');
";

/// 400 requests a second on one connection, for 12 s.
const HTTP2_CLIENT: &str = "
const client = require('http2').connect('http://10.77.0.1:' + process.argv[1]);
client.on('error', () => {});
let due = Date.now();
const end = due + 60000;
setInterval(() => {
    for (; due < Date.now(); due += 2.5) {
        const request = client.request({ ':path': '/' });
        request.on('error', () => {});
        request.resume();
        request.end();
    }
    if (due > end) process.exit(0);
}, 1);
";

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(space: &tailsight_testbed::netns::Namespace, program: &str, args: &[&str]) -> Program {
    let mut command = space.command(Path::new(program));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Program(spawn_tied(command, None, Signal::SIGKILL).expect("the program starts"))
}

fn listens(live: &Live) {
    let until = Instant::now() + Duration::from_secs(20);
    let connects = || std::net::TcpStream::connect(("10.77.0.1", PORT)).is_ok();
    while !live.pair.server.run(connects).expect("the namespace") {
        assert!(Instant::now() < until, "the server listens");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// "Itself took longer (user): 123 ms, 20 of 20" of a handler with 6 ms of work: all that the loop ran during its await was its own.
#[test]
fn work_for_other_requests_during_an_await_is_not_the_handlers_own() {
    let test = "work_for_other_requests_during_an_await_is_not_the_handlers_own";
    if let Some(reason) = tailsight_testing::lacks_program("python3") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let server = start(&live.pair.server, "python3", &["-c", AWAITS, &PORT.to_string()]);
    listens(&live);
    let (pid, out) = (server.0.id().to_string(), live.path("run"));
    let load = Workload::new(Proto::Http1, address(false, PORT)).rate(110.0).connections(16);
    let (output, _) =
        live.under_load(&[load], || run(&["record", "-p", &pid, "-d", "5s", "--sample", "off", "-o", &out]));
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let d = json(&run(&["diagnose", &out, "--json"]));
    let slower_ns = d["focus"]["mean_ns"].as_i64().unwrap() - d["reference"]["mean_ns"].as_i64().unwrap();
    // Whatever else runs on the machine: what a message is said to have worked is not more than what its handler computes, with the calls
    // of the interpreter and of the kernel around it, and a turn in which another handler went on before its reply.
    let own = |row: &serde_json::Value| {
        row["category"] == "app-processing" && row["name"].as_str().unwrap().starts_with("user")
    };
    let rows = d["causes"].as_array().unwrap().iter().chain(d["not_significant"].as_array().unwrap());
    let own_ns: i64 = rows.filter(|row| own(row)).map(|row| row["deviation_ns"].as_i64().unwrap()).sum();
    let typical = d["typical"]["rows"].as_array().unwrap().iter().filter(|row| own(row));
    let typical_ns: i64 = typical.map(|row| row["mean_ns"].as_i64().unwrap()).sum();
    println!("own work: {own_ns} ns of {slower_ns} more than the median messages' {typical_ns}");
    assert!(typical_ns <= 2 * COMPUTES_NS, "{typical_ns} ns of own work in a median message");
    assert!(
        typical_ns + own_ns <= 3 * COMPUTES_NS,
        "{typical_ns} and {own_ns} ns of own work in a slow message: {}",
        shown(&output)
    );
    if slower_ns < 4 * COMPUTES_NS {
        return tailsight_testing::skip_as(
            test,
            format!("the slow messages are only {slower_ns} ns slower: no queue formed"),
        );
    }
    let behind = d["causes"].as_array().unwrap().iter().find(|row| row["category"] == "hol-blocking");
    assert!(behind.is_some_and(|row| row["deviation_ns"].as_i64().unwrap() > own_ns), "{}", d["causes"]);
}

/// The client's p99 was 21.6 ms and ours 3.07 ms, "unexplained 0.0 %"; and with `--protocol http1` 4,800 requests were 1,600 "messages".
#[test]
fn replies_on_a_connection_that_requests_share_are_not_paired_by_order() {
    let test = "replies_on_a_connection_that_requests_share_are_not_paired_by_order";
    if let Some(reason) = tailsight_testing::lacks_program("node") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let server = start(&live.pair.server, "node", &["-e", HTTP2_SERVER, &PORT.to_string()]);
    listens(&live);
    let _client = start(&live.pair.client, "node", &["-e", HTTP2_CLIENT, &PORT.to_string()]);
    std::thread::sleep(Duration::from_millis(500));
    let (pid, out) = (server.0.id().to_string(), live.path("run"));
    let record =
        |more: &[&str]| run(&[&["record", "-p", &pid, "-d", "2s", "--sample", "off", "-o", &out], more].concat());
    let output = record(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let diagnosis = run(&["diagnose", &out, "--json"]);
    let d = json(&diagnosis);
    if d["multiplexed"].is_null() && stderr(&output).contains("payload") {
        return tailsight_testing::skip_as(test, "this kernel does not show the begin of segments (6.12)");
    }
    let segments = d["multiplexed"]["http2"].as_u64().unwrap_or(0);
    // One that waits to be received when the recording ends may be in the total alone.
    let [complete, total] = ["complete", "total"].map(|key| d["messages"][key].as_u64().unwrap());
    assert!(segments > 100 && (complete..=total).contains(&segments), "{} {}", d["messages"], d["multiplexed"]);
    assert_eq!(d["leg"], "receive");
    for leg in ["service", "transmit", "total"] {
        assert_eq!(d["legs"][leg]["messages"], 0, "{}", d["legs"]);
    }
    assert!(d["notes"][0].as_str().unwrap().contains("HTTP/2"), "{}", d["notes"]);
    let text = shown(&run(&["diagnose", &out]));
    assert!(text.contains("segments in"), "{text}");
    let total = run(&["diagnose", &out, "--leg", "total"]);
    assert_eq!(total.status.code(), Some(3), "{}", shown(&total));
    assert!(shown(&total).contains("on a connection that many requests share"), "{}", shown(&total));

    std::fs::remove_dir_all(&out).unwrap();
    let wrong = record(&["--protocol", "http1"]);
    assert_eq!(wrong.status.code(), Some(1), "{}", shown(&wrong));
    assert!(
        stderr(&wrong).contains("frames of HTTP/2") && stderr(&wrong).contains("with --protocol http2"),
        "{}",
        shown(&wrong)
    );
}
