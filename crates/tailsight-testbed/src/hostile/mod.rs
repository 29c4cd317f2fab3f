//! Servers that do harm to whoever loads them. In: a [`Behaviour`]. Out: an address, and when the last request came.
//!
//! Each is a thread or two of this process and ends when it is dropped. `lab hostile NAME` is the same as a process. The tests of
//! `tailsight load` and of agents run against all of them; what each does is one row of [`behaviour`](Behaviour).

mod behaviour;
mod honest;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub use behaviour::Behaviour;
use behaviour::{Act, Script, When};
use honest::Honest;

use crate::load::now_ns;
use crate::{Error, Result};

/// How often a thread that waits looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of a flood written at a time.
const FLOOD: usize = 64 << 10;

/// What a server counts; shared with its threads.
#[derive(Debug, Default)]
struct Books {
    stop: AtomicBool,
    connections: AtomicU64,
    /// When bytes came last, CLOCK_MONOTONIC ns.
    last_ns: AtomicU64,
    bytes: AtomicU64,
}

impl Books {
    fn came(&self, bytes: usize) {
        self.last_ns.store(now_ns(), Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A hostile server that runs until it is dropped.
#[derive(Debug)]
pub struct Hostile {
    behaviour: Behaviour,
    address: SocketAddr,
    books: Arc<Books>,
    thread: Option<JoinHandle<()>>,
}

impl Hostile {
    /// Listens on a free port of this address's host, or on its port.
    ///
    /// # Errors
    /// [`Error::Io`] when the port cannot be had.
    pub fn start(behaviour: Behaviour, listen: SocketAddr) -> Result<Self> {
        let failed = |e| Error::io(format!("listen on {listen}"), e);
        let books = Arc::new(Books::default());
        let (script, counting) = (behaviour.script(), books.clone());
        let (address, thread) = if script.datagrams {
            let socket = UdpSocket::bind(listen).map_err(failed)?;
            let address = socket.local_addr().map_err(failed)?;
            (address, std::thread::spawn(move || datagrams(&socket, &script, &counting)))
        } else {
            let listener = TcpListener::bind(listen).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            (address, std::thread::spawn(move || accept(&listener, &script, &counting)))
        };
        Ok(Self { behaviour, address, books, thread: Some(thread) })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What `tailsight load` is given to load it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.behaviour.script().scheme, self.address)
    }

    /// When bytes of a client came last, CLOCK_MONOTONIC ns; 0: never.
    #[must_use]
    pub fn last_ns(&self) -> u64 {
        self.books.last_ns.load(Ordering::Relaxed)
    }

    /// Bytes that came.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.books.bytes.load(Ordering::Relaxed)
    }

    /// Connections that were accepted.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.books.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.books.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, script: &Script, books: &Arc<Books>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut kept = Vec::new();
    while !books.over() {
        match listener.accept() {
            Ok((socket, _)) => {
                books.connections.fetch_add(1, Ordering::Relaxed);
                // A client that connects again and again must not make threads without bound here.
                threads.retain(|thread| !thread.is_finished());
                if threads.len() >= 64 {
                    kept.push(socket);
                    kept.truncate(64);
                    continue;
                }
                let (script, books) = (script.clone(), books.clone());
                threads.push(std::thread::spawn(move || {
                    yield_to_others();
                    // However it ends, the connection is over.
                    let _ = serve(socket, &script, &books);
                }));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(2)),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// Floods take what is left of the cores, so that what is tested is the client and not the scheduler.
fn yield_to_others() {
    // SAFETY: changes the niceness of the calling thread only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}

/// One connection: honest until it is time, then the act.
fn serve(mut socket: TcpStream, script: &Script, books: &Books) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(LOOK))?;
    socket.set_write_timeout(Some(LOOK))?;
    if script.when != When::Connected {
        let mut honest = Honest::new(script.protocol);
        let enough = match script.when {
            When::Connected | When::Asked => 1,
            When::Answered(n) => n,
        };
        let (mut asked, mut buffer, mut answer) = (0, vec![0; 16 << 10], Vec::new());
        while asked < enough {
            if books.over() {
                return Ok(());
            }
            let got = match socket.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(got) => got,
                Err(error) if is_time_out(&error) => continue,
                Err(error) => return Err(error),
            };
            books.came(got);
            asked += honest.take(&buffer[..got], &mut answer);
            if script.when == When::Asked && asked > 0 {
                // What HTTP/2 says first is said; the answer is not.
                answer.truncate(honest.greeting(&answer));
            }
            write(&mut socket, &answer, books)?;
            answer.clear();
        }
    }
    act(socket, script, books)
}

fn is_time_out(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Writes all of it, as long as the server lives.
fn write(socket: &mut TcpStream, mut bytes: &[u8], books: &Books) -> io::Result<()> {
    while !bytes.is_empty() && !books.over() {
        match socket.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if is_time_out(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads and counts what comes until the client goes or the server ends; throws it away.
fn drain(socket: &mut TcpStream, books: &Books) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    while !books.over() {
        match socket.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(got) => books.came(got),
            Err(error) if is_time_out(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn wait(books: &Books) {
    while !books.over() {
        std::thread::sleep(LOOK);
    }
}

fn act(mut socket: TcpStream, script: &Script, books: &Books) -> io::Result<()> {
    match &script.act {
        Act::Serve => {
            let mut honest = Honest::new(script.protocol);
            let (mut buffer, mut answer) = (vec![0; 16 << 10], Vec::new());
            while !books.over() {
                match socket.read(&mut buffer) {
                    Ok(0) => return Ok(()),
                    Ok(got) => {
                        books.came(got);
                        honest.take(&buffer[..got], &mut answer);
                        write(&mut socket, &answer, books)?;
                        answer.clear();
                    }
                    Err(error) if is_time_out(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }
        Act::Flood { head, unit, reads } => {
            write(&mut socket, head, books)?;
            let lump = unit.repeat(FLOOD.div_ceil(unit.len()));
            let reader = if *reads { Some(socket.try_clone()?) } else { None };
            std::thread::scope(|scope| {
                // What the client sends meanwhile is read beside, so that it is not its own full socket that stops it.
                if let Some(mut reader) = reader {
                    scope.spawn(move || drain(&mut reader, books));
                }
                let result = loop {
                    if books.over() {
                        break Ok(());
                    }
                    if let Err(error) = write(&mut socket, &lump, books) {
                        break Err(error);
                    }
                };
                let _ = socket.shutdown(std::net::Shutdown::Both);
                result
            })
        }
        Act::Drip { head, byte, every } => {
            write(&mut socket, head, books)?;
            socket.set_read_timeout(Some(*every))?;
            let mut buffer = [0; 4096];
            while !books.over() {
                match socket.read(&mut buffer) {
                    Ok(0) => return Ok(()),
                    Ok(got) => books.came(got),
                    Err(error) if is_time_out(&error) => write(&mut socket, &[*byte], books)?,
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }
        Act::Say { bytes } => {
            write(&mut socket, bytes, books)?;
            drain(&mut socket, books)
        }
        Act::Deaf => {
            wait(books);
            Ok(())
        }
        Act::HalfClose => {
            socket.shutdown(std::net::Shutdown::Write)?;
            drain(&mut socket, books)
        }
        Act::Close => Ok(()),
        Act::Reset => {
            // Closing with unread bytes, or with a linger of 0, sends RST.
            nix::sys::socket::setsockopt(
                &socket,
                nix::sys::socket::sockopt::Linger,
                &libc::linger { l_onoff: 1, l_linger: 0 },
            )?;
            Ok(())
        }
    }
}

fn datagrams(socket: &UdpSocket, script: &Script, books: &Books) {
    yield_to_others();
    // A socket that cannot be told to wake up would never see its end.
    if socket.set_read_timeout(Some(LOOK)).is_err() {
        return;
    }
    let mut buffer = [0; 2048];
    while !books.over() {
        let Ok((got, from)) = socket.recv_from(&mut buffer) else { continue };
        books.came(got);
        if let Act::Flood { unit, .. } = &script.act {
            while !books.over() {
                // A full queue is what a flood makes; a client that has gone ends it.
                match socket.send_to(unit, from) {
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => break,
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_behaviour_listens_and_ends() {
        for behaviour in Behaviour::all() {
            let server = Hostile::start(behaviour, SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            assert!(server.address().port() > 0 && server.url().contains("://"), "{behaviour:?}");
            if !behaviour.script().datagrams {
                drop(TcpStream::connect(server.address()).unwrap());
            }
        }
    }
}
