//! Servers for tests: real ones as child processes, and a scripted one on a thread.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tailsight_load::{Outcome, Plan, Protocol, run};

/// One load at a time: several that spin at once on two cores would measure each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    tailsight_testing::raise_priority();
    // A test that failed while it held it says nothing about the others.
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child process that ends with the test.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server and waits until it accepts; `None`, said by name, when the program is missing.
pub fn start(program: &str, arguments: &[&str], port: u16) -> Option<Process> {
    if let Some(reason) = tailsight_testing::lacks_program(program) {
        tailsight_testing::skip(reason);
        return None;
    }
    let child = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let process = Process(child.unwrap_or_else(|error| panic!("cannot start {program}: {error}")));
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{program} does not accept");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(process)
}

/// A server on threads: each connection is given to `serve` with its number.
pub fn scripted(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = std::sync::Arc::new(serve);
    // The threads end with the test process.
    std::thread::spawn(move || {
        for (number, socket) in listener.incoming().flatten().enumerate() {
            socket.set_nodelay(true).unwrap();
            let serve = serve.clone();
            std::thread::spawn(move || serve(number, socket));
        }
    });
    address
}

/// Echoes until the end of the stream; `change` may do otherwise with each read and ends the connection by `None`.
pub fn echo(mut socket: TcpStream, mut change: impl FnMut(&[u8], &mut TcpStream) -> Option<()>) {
    let mut buffer = [0; 65_536];
    while let Ok(read @ 1..) = socket.read(&mut buffer) {
        if change(&buffer[..read], &mut socket).is_none() {
            return;
        }
    }
}

/// Writes back what came.
pub fn plain(bytes: &[u8], socket: &mut TcpStream) -> Option<()> {
    socket.write_all(bytes).ok()
}

/// A short plan: 2,000 requests/s for half a second over 4 connections.
pub fn plan(target: impl std::fmt::Display, protocol: Protocol) -> Plan {
    let mut plan = Plan::new(target.to_string().parse().unwrap(), protocol);
    plan.rate = "2k".parse().unwrap();
    plan.duration_ns = Some(500_000_000);
    plan.connections = 4;
    plan.workload.keys = 100;
    plan.drain_ns = 300_000_000;
    plan
}

/// Runs, and checks what must hold for every run.
pub fn run_checked(plan: Plan) -> Outcome {
    let sampling = plan.sampling;
    let outcome = run(plan, &AtomicBool::new(false), |_| {}).unwrap_or_else(|e| panic!("{e}"));
    let counts = outcome.counts;
    let ends = counts.answered() + counts.closed + counts.garbage + counts.lost + counts.unanswered;
    assert_eq!(counts.sent, ends, "{counts:?}");
    assert_eq!(counts.intended, counts.sent + counts.unsent, "{counts:?}");
    assert!(outcome.samples.is_sorted_by_key(|s| s.intended_ns));
    for sample in &outcome.samples {
        assert!(sample.called_ns == 0 || sample.called_ns >= sample.intended_ns, "sent early: {sample:?}");
        assert!(sample.sent_ns >= sample.called_ns, "{sample:?}");
        assert!(sample.received_ns == 0 || sample.received_ns >= sample.sent_ns, "{sample:?}");
        assert_eq!(sample.received_ns > 0, sample.status().is_answered(), "{sample:?}");
    }
    let rows: u64 = outcome.intervals.iter().flatten().map(|row| row.sent).sum();
    assert_eq!(rows, counts.sent);
    if sampling == 1.0 {
        let samples = outcome.samples.iter().filter(|s| s.called_ns > 0).count() as u64;
        assert_eq!(samples, counts.sent, "every request is a sample");
        assert_eq!(outcome.sends.len() as u64, counts.sent);
    }
    outcome
}
