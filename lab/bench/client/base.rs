//! The round trip of one request that finds an idle server, by code that shares only the clock with the load
//! generator under test.
//! In: an ideal server, its language. Out: round trips, ns: from before the send call to the return of the receive call.
//!
//! One connection, one request at a time, a pause between them; the thread polls its socket and asks for no kernel stamps.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tailsight_lab::clock::{now_ns, spin_until};
use tailsight_lab::servers::TextProtocol;

/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends `n` requests, one every `gap_ns` or later, from the calling thread and its network namespace.
pub fn round_trips(
    check: impl Fn() -> anyhow::Result<()>,
    addr: SocketAddr,
    protocol: TextProtocol,
    n: usize,
    gap_ns: u64,
) -> anyhow::Result<Vec<u64>> {
    let mut socket =
        TcpStream::connect_timeout(&addr, PATIENCE).with_context(|| format!("cannot connect to {addr}"))?;
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    // The value is stored first, so that a read finds 32 bytes, as those of the load generators do.
    let value = "v".repeat(32);
    let (set, stored, get, end) = match protocol {
        TextProtocol::Memcached => (format!("set k 0 0 32\r\n{value}\r\n"), "STORED\r\n", "get k\r\n", "END\r\n"),
        TextProtocol::Resp => {
            let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$32\r\n{value}\r\n");
            (set, "+OK\r\n", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "v\r\n")
        }
        TextProtocol::Http1 => (String::new(), "", "GET / HTTP/1.1\r\nHost: ideal\r\n\r\n", "ideal\n"),
    };
    if !set.is_empty() {
        exchange(&mut socket, set.as_bytes(), stored.as_bytes())?;
    }
    let mut times_ns = Vec::with_capacity(n);
    for _ in 0..n {
        check()?;
        let begin = now_ns();
        exchange(&mut socket, get.as_bytes(), end.as_bytes())?;
        times_ns.push(now_ns() - begin);
        spin_until(begin + gap_ns);
    }
    Ok(times_ns)
}

/// Sends a request and polls until its reply has come, which ends with `end`.
fn exchange(socket: &mut TcpStream, request: &[u8], end: &[u8]) -> anyhow::Result<()> {
    socket.write_all(request).context("cannot send to the ideal server")?;
    let mut reply = [0; 512];
    let (mut filled, mut deadline) = (0, None);
    while !reply[..filled].ends_with(end) {
        match socket.read(&mut reply[filled..]) {
            Ok(0) => bail!("the ideal server closed, or said `{}`", reply[..filled].escape_ascii()),
            Ok(n) => filled += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + PATIENCE) {
                    bail!("the ideal server did not answer in {} s", PATIENCE.as_secs());
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot receive from the ideal server"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use tailsight_lab::servers::{ServeArgs, serve};

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        serve: ServeArgs,
    }

    #[test]
    fn a_round_trip_takes_the_service_time_and_more_in_every_language() {
        for (name, protocol) in
            [("memcached", TextProtocol::Memcached), ("resp", TextProtocol::Resp), ("http1", TextProtocol::Http1)]
        {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let port = free.port().to_string();
            let words = ["x", "ideal", "--speak", name, "--service", "fixed:300us", "--port", &port];
            let args = Only::parse_from(words).serve;
            std::thread::spawn(move || serve(&args));
            while TcpStream::connect(free).is_err() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let times_ns = round_trips(|| Ok(()), free, protocol, 20, 400_000).unwrap();
            assert!(times_ns.len() == 20 && times_ns.iter().all(|ns| *ns >= 300_000), "{name}: {times_ns:?}");
        }
    }
}
