//! Connects, sets values and tries one request on each connection, blocking. In: a workload. Out: ready sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use super::datagram::Part;
use super::framing::Framer;
use super::request::{self, udp_header};
use super::{Proto, Workload};
use crate::{Error, Result};

/// How long the server may take to accept and to answer while nothing else loads it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A setup error of a workload.
fn failed(workload: &Workload, action: &'static str, reason: impl ToString) -> Error {
    Error::Setup { workload: workload.name.clone(), action, addr: workload.addr, reason: reason.to_string() }
}

/// A TCP connection whose value is set and whose first request was answered well.
pub(super) fn stream(workload: &Workload, connection: usize) -> Result<TcpStream> {
    let mut socket = TcpStream::connect_timeout(&workload.addr, PATIENCE)
        .and_then(|socket| {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))?;
            Ok(socket)
        })
        .map_err(|e| failed(workload, "connect", e))?;
    if let Some(set) = request::set(workload, connection) {
        exchange(&mut socket, workload.proto, &set).map_err(|r| failed(workload, "set a value", r))?;
    }
    let get = request::get(workload, connection);
    exchange(&mut socket, workload.proto, &get).map_err(|r| failed(workload, "get a first reply", r))?;
    Ok(socket)
}

/// Sends one request and reads its reply; the error is a reason for a person.
fn exchange(socket: &mut TcpStream, proto: Proto, bytes: &[u8]) -> Result<(), String> {
    socket.write_all(bytes).map_err(|e| e.to_string())?;
    let mut framer = Framer::new(proto);
    let mut buffer = vec![0; 16 * 1024];
    let (mut filled, mut answer) = (0, None);
    let mut begin = Vec::new();
    while answer.is_none() {
        let read = match socket.read(&mut buffer[filled..]) {
            Ok(0) => return Err("it closed the connection".into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(format!("no answer in {} s", PATIENCE.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        };
        if begin.len() < 60 {
            begin.extend_from_slice(&buffer[filled..filled + read.min(60)]);
        }
        filled += read;
        let used = framer.push(&buffer[..filled], |good| {
            answer = Some(good);
            Ok(())
        })?;
        buffer.copy_within(used..filled, 0);
        filled -= used;
        if filled == buffer.len() {
            return Err("a reply head that does not end".into());
        }
    }
    if answer == Some(true) { Ok(()) } else { Err(format!("it answered `{}`", begin.escape_ascii())) }
}

/// A UDP socket whose value is set and whose first request was answered well.
pub(super) fn datagram(workload: &Workload, connection: usize) -> Result<UdpSocket> {
    let any = match workload.addr {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any)
        .and_then(|socket| {
            socket.connect(workload.addr)?;
            socket.set_read_timeout(Some(PATIENCE / 4))?;
            Ok(socket)
        })
        .map_err(|e| failed(workload, "open a UDP socket", e))?;
    if let Some(set) = request::set(workload, connection) {
        exchange_datagram(&socket, &set, b"STORED").map_err(|r| failed(workload, "set a value", r))?;
    }
    exchange_datagram(&socket, &request::get(workload, connection), b"VALUE ")
        .map_err(|r| failed(workload, "get a first reply", r))?;
    Ok(socket)
}

/// Sends one request and reads all datagrams of its reply; tries again when one is lost.
fn exchange_datagram(socket: &UdpSocket, bytes: &[u8], expected: &[u8]) -> Result<(), String> {
    let request = [&udp_header(0)[..], bytes].concat();
    let mut buffer = vec![0; 65_536];
    let mut reason = String::new();
    for _ in 0..4 {
        if let Err(error) = socket.send(&request) {
            reason = error.to_string();
            std::thread::sleep(Duration::from_millis(50));
            continue;
        }
        let mut seen = 0;
        loop {
            let length = match socket.recv(&mut buffer) {
                Ok(length) => length,
                Err(error) => {
                    reason = match error.kind() {
                        ErrorKind::WouldBlock => "no answer (is UDP on?)".into(),
                        _ => error.to_string(),
                    };
                    break;
                }
            };
            let part = Part::parse(&buffer[..length])?;
            if part.sequence == 0 && !part.payload.starts_with(expected) {
                let begin = &part.payload[..part.payload.len().min(60)];
                return Err(format!("it answered `{}`", begin.escape_ascii()));
            }
            seen += 1;
            if seen == part.total {
                return Ok(());
            }
        }
    }
    Err(reason)
}
