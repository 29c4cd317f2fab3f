//! A server on tokio with two workers that speaks HTTP/1.1. In: PORT LOG MODE. Out: `ready`; in LOG what took long, CLOCK_MONOTONIC ns. What
//! is wrong, by MODE: `mutex`, one request in 250 waits for 8 ms with a `std::sync::Mutex` held that every request locks: the worker that
//! serves another request sleeps in the lock, and everything else waits for a worker. `fair`, one request in 300 computes for 6 ms without
//! an await: the other tasks of its worker wait, and what the other worker has waits for the core.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of its own")]

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tailsight_lab::clock::now_ns;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What all connections share.
struct Shared {
    log: File,
    mode: String,
    requests: AtomicU64,
    table: Mutex<u64>,
}

impl Shared {
    fn write(&self, begin: u64) {
        writeln!(&self.log, "{begin} {}", now_ns()).expect("the log can be written");
    }
}

/// Waits for something with the lock held.
#[inline(never)]
fn refresh_table(shared: &Shared) {
    let begin = now_ns();
    std::thread::sleep(Duration::from_millis(8));
    shared.write(begin);
}

/// Computes for 6 ms.
#[inline(never)]
fn render_report(shared: &Shared) {
    let begin = now_ns();
    let mut sum = 0_u64;
    while now_ns() < begin + 6_000_000 {
        (0..1000).for_each(|i| sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(i)));
    }
    shared.write(begin);
}

fn handle(shared: &Shared) {
    let n = shared.requests.fetch_add(1, Ordering::Relaxed);
    match shared.mode.as_str() {
        "mutex" => {
            let mut table = shared.table.lock().expect("nobody panics with the lock held");
            *table += 1;
            if n % 250 == 7 {
                refresh_table(shared);
            }
        }
        _ if n % 300 == 7 => render_report(shared),
        _ => {}
    }
}

async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        while !kept.ends_with(b"\r\n\r\n") {
            match client.read(&mut buffer).await {
                Ok(n) if n > 0 => kept.extend_from_slice(&buffer[..n]),
                _ => return,
            }
        }
        kept.clear();
        handle(&shared);
        if client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n").await.is_err() {
            return;
        }
    }
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, log, mode] = arguments.as_slice() else {
        return Err(std::io::Error::other("usage: tokio_http PORT LOG MODE"));
    };
    let port: u16 = port.parse().map_err(std::io::Error::other)?;
    let log = File::options().create(true).append(true).open(log)?;
    let shared = Arc::new(Shared { log, mode: mode.clone(), requests: AtomicU64::new(0), table: Mutex::new(0) });
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build()?.block_on(async {
        let listener = TcpListener::bind(("0.0.0.0", port)).await?;
        writeln!(std::io::stdout(), "ready")?;
        loop {
            let (client, _) = listener.accept().await?;
            client.set_nodelay(true)?;
            tokio::spawn(serve(client, Arc::clone(&shared)));
        }
    })
}
