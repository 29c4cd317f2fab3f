//! A server that other servers ask: 8 bytes in, the same 8 bytes out, a thread a connection. In: a port, when it is slow. Out:
//! answers; in the truth log from when each question that came in such a time was received until it was answered.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use super::{null, spawn};
use crate::clock::{now_ns, sleep_until};
use crate::schedule::Schedule;
use crate::truth::{TruthLog, kind};
use crate::{Error, Result};

/// Bytes of a question and of an answer.
const QUESTION: usize = 8;

/// Starts it and gives the port.
pub(super) fn start(port: u16, stall: Option<Schedule>, truth: Option<Arc<TruthLog>>) -> Result<u16> {
    let (listener, port) = null::listen(port)?;
    spawn("lab-accept", move || {
        for stream in listener.incoming().flatten() {
            let truth = truth.clone();
            // Without a thread the connection is closed, which the one who asks sees.
            let _ = stream.set_nodelay(true).is_ok()
                && spawn("lab-backend", move || answer(stream, stall, truth.as_deref())).is_ok();
        }
    })?;
    Ok(port)
}

fn answer(mut stream: TcpStream, stall: Option<Schedule>, truth: Option<&TruthLog>) {
    let mut question = [0; QUESTION];
    while stream.read_exact(&mut question).is_ok() {
        let received = now_ns();
        let window = stall.map(|stall| stall.window(received)).filter(|(begin, _)| *begin <= received);
        if let Some((_, end)) = window {
            sleep_until(end);
        }
        if stream.write_all(&question).is_err() {
            return;
        }
        if let (Some(truth), Some(_)) = (truth, window) {
            truth.add(kind::STALLED, received, now_ns());
        }
    }
}

/// A connection to such a server.
pub(super) struct Behind(TcpStream);

impl Behind {
    /// Connects.
    pub(super) fn connect(address: SocketAddr) -> Result<Self> {
        let connect = || -> std::io::Result<Self> {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            Ok(Self(stream))
        };
        connect().map_err(|e| Error::io(format!("connect to the server behind at {address}"), e))
    }

    /// Asks and waits for the answer.
    pub(super) fn ask(&mut self) {
        let mut answer = [0; QUESTION];
        // A server behind that is gone is seen by the lab, which started it.
        let _ = self.0.write_all(&[1; QUESTION]).and_then(|()| self.0.read_exact(&mut answer));
    }
}
