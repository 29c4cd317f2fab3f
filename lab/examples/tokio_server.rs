//! A server on tokio: 128 bytes in, the same 128 bytes out. 3 % of requests ask a client library that blocks, inside of their task, for 4 ms:
//! nothing else of that worker goes on meanwhile. In: PORT LOG MODE. Out: `ready`; in LOG the begin and end of each such call, a line
//! each, CLOCK_MONOTONIC ns. On one core tokio starts one worker.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of its own")]

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tailsight_lab::clock::now_ns;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const MESSAGE: usize = 128;

/// A call of a library that knows nothing of tasks: it sleeps until its answer is there.
#[inline(never)]
fn fetch_profile(mut log: &File) {
    let begin = now_ns();
    std::thread::sleep(Duration::from_millis(4));
    writeln!(log, "{begin} {}", now_ns()).expect("the log can be written");
}

async fn serve(mut client: TcpStream, requests: Arc<AtomicU64>, log: Arc<File>) {
    let mut bytes = [0; MESSAGE];
    while client.read_exact(&mut bytes).await.is_ok() {
        if requests.fetch_add(1, Ordering::Relaxed) % 33 == 7 {
            fetch_profile(&log);
        }
        if client.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, log, _mode] = arguments.as_slice() else {
        return Err(std::io::Error::other("usage: tokio_server PORT LOG MODE"));
    };
    let port: u16 = port.parse().map_err(std::io::Error::other)?;
    let log = Arc::new(File::options().create(true).append(true).open(log)?);
    let requests = Arc::new(AtomicU64::new(0));
    tokio::runtime::Builder::new_multi_thread().enable_io().build()?.block_on(async {
        let listener = TcpListener::bind(("0.0.0.0", port)).await?;
        writeln!(std::io::stdout(), "ready")?;
        loop {
            let (client, _) = listener.accept().await?;
            client.set_nodelay(true)?;
            tokio::spawn(serve(client, Arc::clone(&requests), Arc::clone(&log)));
        }
    })
}
