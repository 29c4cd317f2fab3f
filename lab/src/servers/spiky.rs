//! A server that is slow when it is told to be, for the proof of `watch`: HTTP/1.1, a thread a connection, one mutex for all requests.
//!
//! In: a port, and a Unix socket on which it is told `hold MS` (another thread keeps the mutex, asleep) or `sync` (the next request
//! writes to a file and waits for the disk, again and again). Out: the port; each order is answered with how long it kept requests waiting, ms, when it is over.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::inside::pin;
use super::null::listen;
use super::spawn;
use crate::clock::now_ns;
use crate::{Error, Result};

/// What a request computes, ns.
const WORK_NS: u64 = 40_000;
/// A request that waits for the disk does so for this long, ns: a disk may take a large file in less than that.
const SYNC_NS: u64 = 90_000_000;
/// What it writes each time.
const WRITTEN_BYTES: usize = 16 << 10;

/// Nobody waits for the disk; the next request is to; one does.
const IDLE: u8 = 0;
const ASKED: u8 = 1;
const SYNCING: u8 = 2;

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

struct Shared {
    table: Mutex<u64>,
    sync: AtomicU8,
    /// How long the last wait for the disk took, ns.
    took_ns: AtomicU64,
    file: PathBuf,
}

/// Starts it. `orders`: the Unix socket; the file that it writes is beside it.
/// `cpu`: where the thread that obeys runs.
pub(super) fn start(port: u16, orders: &Path, cpu: Option<usize>) -> Result<u16> {
    let (listener, port) = listen(port)?;
    let io = |e| Error::io(format!("listen on {}", orders.display()), e);
    let door = UnixListener::bind(orders).map_err(io)?;
    let shared = Shared {
        table: Mutex::new(0),
        sync: AtomicU8::new(IDLE),
        took_ns: AtomicU64::new(0),
        file: orders.with_extension("written"),
    };
    let shared = Arc::new(shared);
    let told = Arc::clone(&shared);
    spawn("lab-compactor", move || {
        pin(cpu);
        door.incoming().flatten().for_each(|stream| obey(&stream, &told));
    })?;
    spawn("lab-accept", move || {
        for stream in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            let _ = stream.set_nodelay(true).is_ok() && spawn("lab-serve", move || serve(stream, &shared)).is_ok();
        }
    })?;
    Ok(port)
}

fn table(shared: &Shared) -> MutexGuard<'_, u64> {
    shared.table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves a connection: a request ends with an empty line.
fn serve(mut stream: TcpStream, shared: &Shared) {
    let mut buffer = [0; 4096];
    let mut held = Vec::new();
    while let Ok(n) = stream.read(&mut buffer) {
        if n == 0 {
            return;
        }
        held.extend_from_slice(&buffer[..n]);
        while let Some(end) = held.windows(4).position(|w| w == b"\r\n\r\n") {
            held.drain(..end + 4);
            look_up(shared);
            if shared.sync.compare_exchange(ASKED, SYNCING, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                let began_ns = now_ns();
                let _ = keep_journal(&shared.file);
                shared.took_ns.store(now_ns() - began_ns, Ordering::Relaxed);
                shared.sync.store(IDLE, Ordering::Relaxed);
            }
            if stream.write_all(REPLY).is_err() {
                return;
            }
        }
    }
}

#[inline(never)]
fn look_up(shared: &Shared) {
    let mut rows = table(shared);
    let until = now_ns() + WORK_NS;
    while now_ns() < until {
        *rows += 1;
    }
}

#[inline(never)]
fn keep_journal(path: &Path) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let until = now_ns() + SYNC_NS;
    while now_ns() < until {
        file.write_all(&[7; WRITTEN_BYTES])?;
        file.sync_all()?;
    }
    Ok(())
}

fn obey(stream: &UnixStream, shared: &Shared) {
    for order in BufReader::new(stream).lines().map_while(std::result::Result::ok) {
        match order.split_once(' ') {
            Some(("hold", ms)) => {
                let began_ns = now_ns();
                compact(shared, Duration::from_millis(ms.parse().unwrap_or(0)));
                shared.took_ns.store(now_ns() - began_ns, Ordering::Relaxed);
            }
            _ => {
                shared.sync.store(ASKED, Ordering::Relaxed);
                while shared.sync.load(Ordering::Relaxed) != IDLE {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        let mut stream = stream;
        let ms = shared.took_ns.load(Ordering::Relaxed) / 1_000_000;
        if stream.write_all(format!("{ms}\n").as_bytes()).is_err() {
            return;
        }
    }
}

#[inline(never)]
fn compact(shared: &Shared, time: Duration) {
    let mut rows = table(shared);
    std::thread::sleep(time);
    *rows += 1;
}
