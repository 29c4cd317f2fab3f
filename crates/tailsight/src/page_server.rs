//! A web server for one reader on this host: requests with a head and nothing else, answered one after the other by whoever asks for them.
//!
//! In: a listening socket. Out: [`Request`]s, each with the means to answer it. Any user of the host may connect, so each connection has
//! limits: [`MOST_HEAD`] bytes, [`HEAD_TIME`] to send them, no body, one `Host`; and there are [`MOST_CONNECTIONS`] at a time. Heads are
//! parsed by httparse.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Bytes of a request at most.
const MOST_HEAD: usize = 16 << 10;
/// Headers of a request at most.
const MOST_HEADERS: usize = 64;
/// How long a connection may take from its begin, or from the answer before, to the end of a request.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long a reader may take to take a part of an answer.
const WRITE_TIME: Duration = Duration::from_secs(10);
/// Connections at a time. A browser makes six.
const MOST_CONNECTIONS: usize = 32;

/// Accepts connections until the process ends.
pub struct Server {
    requests: Receiver<Request>,
}

/// A request that waits for its answer.
pub struct Request {
    /// GET or HEAD.
    pub reads: bool,
    /// The path with the query.
    pub url: String,
    /// `Host`.
    pub host: Option<String>,
    answer: SyncSender<Response>,
}

/// An answer.
struct Response {
    status: u16,
    kind: String,
    body: Vec<u8>,
}

impl Request {
    /// Answers it. Whoever asked may be gone.
    pub fn reply(self, status: u16, kind: &str, body: Vec<u8>) {
        let _ = self.answer.send(Response { status, kind: kind.to_owned(), body });
    }
}

impl Server {
    /// Begins to accept.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn new(listener: TcpListener) -> io::Result<Server> {
        let (sender, requests) = sync_channel(MOST_CONNECTIONS);
        std::thread::Builder::new().name("tailsight-accept".into()).spawn(move || accept(&listener, &sender))?;
        Ok(Server { requests })
    }

    /// The next request; none when there was none in this time.
    ///
    /// # Errors
    /// Nothing accepts any more.
    pub fn next(&self, time: Duration) -> io::Result<Option<Request>> {
        match self.requests.recv_timeout(time) {
            Ok(request) => Ok(Some(request)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

/// A place among the connections.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn accept(listener: &TcpListener, requests: &SyncSender<Request>) {
    let taken = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((connection, _)) = listener.accept() else {
            // No descriptors are left, say: the next may be accepted.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let place = Place(Arc::clone(&taken));
        if taken.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
            let _ = refuse(&connection, 503, "too many connections");
            continue;
        }
        let requests = requests.clone();
        let serve = move || {
            let _place = place;
            let _ = serve(&connection, &requests);
        };
        let _ = std::thread::Builder::new().name("tailsight-serve".into()).stack_size(256 << 10).spawn(serve);
    }
}

/// Answers the requests of a connection until it ends or does what it may not.
fn serve(connection: &TcpStream, requests: &SyncSender<Request>) -> io::Result<()> {
    connection.set_write_timeout(Some(WRITE_TIME))?;
    let mut read = Vec::new();
    loop {
        let Some(head) = next_head(connection, &mut read)? else { return Ok(()) };
        let head = match head {
            Ok(head) => head,
            Err((status, why)) => return refuse(connection, status, why),
        };
        let (answer, answered) = sync_channel(1);
        let Head { reads, url, host, without_body, keeps } = head;
        let _ = requests.send(Request { reads, url, host, answer });
        // A request that is dropped has no answer.
        let Ok(response) = answered.recv() else { return Ok(()) };
        write(connection, &response, without_body, keeps)?;
        if !keeps {
            return Ok(());
        }
    }
}

/// What a head says.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    reads: bool,
    url: String,
    host: Option<String>,
    /// HEAD: the answer is a head alone.
    without_body: bool,
    /// The connection stays.
    keeps: bool,
}

/// Why a request is refused: the status and the words.
type Refused = (u16, &'static str);

/// Reads up to the end of the next head; none at the connection's end. What is read beyond it is the begin of the next.
fn next_head(mut connection: &TcpStream, read: &mut Vec<u8>) -> io::Result<Option<Result<Head, Refused>>> {
    let until = Instant::now() + HEAD_TIME;
    let mut part = [0; 4096];
    loop {
        match parse(read) {
            Ok(Some((head, bytes))) => {
                read.drain(..bytes);
                return Ok(Some(Ok(head)));
            }
            Ok(None) if read.len() >= MOST_HEAD => return Ok(Some(Err((431, "the request is too long")))),
            Ok(None) => {}
            Err(refused) => return Ok(Some(Err(refused))),
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // A browser keeps connections for a request that may come.
            if read.is_empty() {
                return Ok(None);
            }
            return Ok(Some(Err((408, "the request took too long"))));
        }
        connection.set_read_timeout(Some(left))?;
        match connection.read(&mut part) {
            Ok(0) => return Ok(None),
            Ok(n) => read.extend_from_slice(&part[..n]),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(e) => return Err(e),
        }
    }
}

/// A head and its length in bytes; none when it is not whole. Pure.
fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Refused> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err((400, "this is no HTTP/1 request")),
    };
    let values = |name: &'static str| {
        let of_name = request.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        of_name.map(|header| std::str::from_utf8(header.value).unwrap_or_default().trim())
    };
    if values("transfer-encoding").next().is_some() || values("content-length").any(|value| value != "0") {
        return Err((413, "a request has no body here"));
    }
    if values("host").count() > 1 {
        return Err((400, "there is one Host in a request"));
    }
    let method = request.method.unwrap_or_default();
    let head = Head {
        reads: matches!(method, "GET" | "HEAD"),
        url: request.path.unwrap_or_default().to_owned(),
        host: values("host").next().map(str::to_owned),
        without_body: method == "HEAD",
        keeps: request.version == Some(1) && !values("connection").any(|value| value.eq_ignore_ascii_case("close")),
    };
    Ok(Some((head, length)))
}

fn refuse(connection: &TcpStream, status: u16, why: &str) -> io::Result<()> {
    connection.set_write_timeout(Some(Duration::from_secs(1)))?;
    let response = Response { status, kind: "text/plain".into(), body: why.into() };
    write(connection, &response, false, false)?;
    connection.shutdown(std::net::Shutdown::Both)
}

fn write(mut connection: &TcpStream, response: &Response, without_body: bool, keeps: bool) -> io::Result<()> {
    let Response { status, kind, body } = response;
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    };
    let (length, connection_stays) = (body.len(), if keeps { "keep-alive" } else { "close" });
    // Nothing of a run stays in a browser's cache, and its address goes nowhere.
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: {connection_stays}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
         X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nCross-Origin-Resource-Policy: same-origin\r\n\r\n"
    );
    connection.write_all(head.as_bytes())?;
    if !without_body {
        connection.write_all(body)?;
    }
    connection.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<(Head, usize)>, u16> {
        parse(text.as_bytes()).map_err(|(status, _)| status)
    }

    #[test]
    fn heads_are_read_and_what_has_a_body_is_refused() {
        let get = "GET /a?b=c HTTP/1.1\r\nHost: x:7\r\n\r\n";
        let (request, length) = head(get).unwrap().unwrap();
        assert_eq!(
            (request.url.as_str(), request.host.as_deref(), request.reads, request.keeps),
            ("/a?b=c", Some("x:7"), true, true)
        );
        assert_eq!(length, get.len());
        assert_eq!(head(&get[..get.len() - 1]), Ok(None));
        let with = |line: &str| head(&format!("POST / HTTP/1.1\r\nHost: x\r\n{line}\r\n\r\n")).map(|h| h.is_some());
        assert_eq!(with("Content-Length: 99999999999999"), Err(413));
        assert_eq!(with("Transfer-Encoding: chunked"), Err(413));
        assert_eq!(with("Content-Length: 0"), Ok(true));
        assert_eq!(with("host: y"), Err(400), "two of them");
        assert_eq!(head("GET / HTTP/1.0\r\n\r\n").unwrap().map(|(h, _)| h.keeps), Some(false));
        assert_eq!(head("\x16\x03\x01\x02\x00\x01\r\n\r\n"), Err(400));
    }

    fn server() -> (Server, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (Server::new(listener).unwrap(), address)
    }

    fn answer(mut connection: TcpStream) -> String {
        let mut text = String::new();
        connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = connection.read_to_string(&mut text);
        text
    }

    #[test]
    fn requests_on_one_connection_are_answered_in_turn() {
        let (server, address) = server();
        let mut connection = TcpStream::connect(address).unwrap();
        let requests = "GET /1 HTTP/1.1\r\n\r\nHEAD /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\nConnection: close\r\n\r\n";
        connection.write_all(requests.as_bytes()).unwrap();
        for url in ["/1", "/2", "/3"] {
            let request = server.next(Duration::from_secs(20)).unwrap().expect("a request");
            assert_eq!(request.url, url);
            request.reply(200, "text/html", url.as_bytes().to_vec());
        }
        let text = answer(connection);
        assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 3, "{text}");
        assert!(text.contains("\r\n\r\n/1HTTP") && !text.contains("/2") && text.ends_with("\r\n\r\n/3"), "{text}");
    }

    /// A request line without end kept 210 MB in 3 s, and each connection a thread for ever.
    #[test]
    fn what_has_no_end_is_cut_and_connections_are_counted() {
        let (server, address) = server();
        let mut connection = TcpStream::connect(address).unwrap();
        let endless = [b'a'; 1 << 12];
        while connection.write_all(&endless).is_ok() {}
        drop(connection);
        let mut connection = TcpStream::connect(address).unwrap();
        let _ = connection.write_all(format!("GET /{} HTTP/1.1\r\n", "a".repeat(MOST_HEAD)).as_bytes());
        assert!(answer(connection).starts_with("HTTP/1.1 431"));
        let open: Vec<TcpStream> = (0..MOST_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        let begun = Instant::now();
        let refused = loop {
            let text = answer(TcpStream::connect(address).unwrap());
            if !text.is_empty() || begun.elapsed() > Duration::from_secs(20) {
                break text;
            }
        };
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        drop(open);
        let begun = Instant::now();
        let served = loop {
            let mut connection = TcpStream::connect(address).unwrap();
            let _ = connection.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
            if let Some(request) = server.next(Duration::from_millis(200)).unwrap() {
                request.reply(200, "text/plain", vec![]);
                break answer(connection);
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "no place is given back");
        };
        assert!(served.starts_with("HTTP/1.1 200"), "{served}");
    }
}
