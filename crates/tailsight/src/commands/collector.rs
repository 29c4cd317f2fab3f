//! Sends spans to a collector of OpenTelemetry: OTLP over HTTP with JSON (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>).
//!
//! In: the address of a collector, and bodies of requests. Out: what it accepted. Plain HTTP only, one connection a request; nothing is
//! sent without `--to`.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

/// Longest wait for a connection, for each write, and for the whole answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait for the answer of a collector that took no more of the request: it has answered then, or never will.
const LAST_LOOK: Duration = Duration::from_millis(200);
/// Most of an answer that is read.
const MOST_ANSWER: u64 = 1 << 20;

/// Where a collector is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// `127.0.0.1:4318`, as it stands in the address.
    host: String,
    path: String,
}

/// `http://HOST[:4318][/v1/traces]`.
pub fn parse(text: &str) -> Result<Collector, String> {
    let wrong = |why: &str| Err(format!("{why}; write for example http://127.0.0.1:4318"));
    let Some(rest) = text.strip_prefix("http://") else {
        return wrong("only http:// addresses are allowed");
    };
    let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
    if host.is_empty() || host.contains('@') || !text.bytes().all(|c| c.is_ascii_graphic()) {
        return wrong("the address has no host, or holds a character that is not allowed");
    }
    let named = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let host = if named { host.to_owned() } else { format!("{host}:4318") };
    Ok(Collector { host, path: if path.is_empty() { "/v1/traces".into() } else { format!("/{path}") } })
}

impl Collector {
    /// The whole address.
    pub fn address(&self) -> String {
        format!("http://{}{}", self.host, self.path)
    }

    /// Sends one request. Gives how many spans the collector rejected, with its words.
    ///
    /// # Errors
    /// When it cannot be reached, or answers anything but 200.
    pub fn send(&self, body: &str) -> anyhow::Result<(u64, String)> {
        let mut stream = self.connect()?;
        let talk = || format!("the connection to {} broke", self.host);
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: tailsight/{}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.path,
            self.host,
            env!("CARGO_PKG_VERSION"),
            body.len()
        );
        // A collector that refuses may answer and close before it has read everything: its answer is then what counts.
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        let (answer, read) = answer(&mut stream, if sent.is_ok() { PATIENCE } else { LAST_LOOK });
        if answer.is_empty() {
            let error = sent.and(read).err();
            if error.as_ref().is_some_and(is_late) {
                bail!(
                    "{} took the connection and did not answer within {} s\n  ask whether a collector listens there, with an otlp \
                     receiver over HTTP; its log may say why it does not answer",
                    self.host,
                    PATIENCE.as_secs()
                );
            }
            if let Some(error) = error {
                return Err(error).with_context(talk);
            }
        }
        let (status, body) = parted(&answer).with_context(|| {
            format!("{} does not answer in HTTP\n  name a collector's otlp receiver over HTTP with --to (port 4318; 4317 is gRPC)", self.host)
        })?;
        if status != 200 {
            bail!("{} answered {status}: {}", self.address(), body.trim());
        }
        Ok(rejected(&body))
    }

    fn connect(&self) -> anyhow::Result<TcpStream> {
        let addresses = self.host.to_socket_addrs().with_context(|| {
            format!("cannot find the host of {}: name another with --to, or its address", self.host)
        })?;
        let mut last = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_write_timeout(Some(PATIENCE))?;
                    return Ok(stream);
                }
                Err(error) => last = Some(error),
            }
        }
        let why = last.map_or_else(|| "it has no address".to_owned(), |error| error.to_string());
        bail!(
            "cannot reach a collector at {}: {why}\n  start one with an otlp receiver over HTTP there, or name another with --to",
            self.host
        )
    }
}

/// What a collector answers until it closes the connection, or until the time is up; and what ended it.
fn answer(stream: &mut TcpStream, patience: Duration) -> (Vec<u8>, std::io::Result<()>) {
    let (mut out, mut part, end) = (Vec::new(), [0; 8192], Instant::now() + patience);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return (out, Err(ErrorKind::TimedOut.into()));
        }
        let read = stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut part));
        match read {
            Ok(0) => return (out, Ok(())),
            Ok(n) => out.extend_from_slice(&part[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (out, Err(error)),
        }
        if out.len() as u64 >= MOST_ANSWER {
            return (out, Ok(()));
        }
    }
}

/// Whether an operation took longer than it was allowed to.
fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Status and body of an answer.
fn parted(answer: &[u8]) -> Option<(u16, String)> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some((status, String::from_utf8_lossy(&answer[end + 4..]).into_owned()))
}

/// What a collector did not take of a request that it took: `{"partialSuccess":{"rejectedSpans":"3","errorMessage":"…"}}`, perhaps in
/// chunks.
fn rejected(body: &str) -> (u64, String) {
    let json = body.find('{').zip(body.rfind('}')).map_or("", |(from, to)| body.get(from..=to).unwrap_or_default());
    let answer: Value = serde_json::from_str(json).unwrap_or_default();
    let part = &answer["partialSuccess"];
    let spans = part["rejectedSpans"].as_u64().or_else(|| part["rejectedSpans"].as_str()?.parse().ok()).unwrap_or(0);
    (spans, part["errorMessage"].as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_usual_port_and_path() {
        let address = |text| parse(text).map(|c| c.address());
        assert_eq!(address("http://127.0.0.1:4318").as_deref(), Ok("http://127.0.0.1:4318/v1/traces"));
        assert_eq!(address("http://collector").as_deref(), Ok("http://collector:4318/v1/traces"));
        assert_eq!(address("http://[::1]:99/a/b").as_deref(), Ok("http://[::1]:99/a/b"));
        assert_eq!(address("http://[::1]/").as_deref(), Ok("http://[::1]:4318/v1/traces"));
        for wrong in
            ["", "127.0.0.1:4318", "https://x", "http://", "http:///x", "http://a b", "http://u@h", "http://h/\r\nX: y"]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    /// One that takes the connection and is silent, one that speaks something else, one that closes: each is told apart.
    #[test]
    fn a_collector_that_does_not_answer_is_told_from_one_that_is_none() {
        let served = |act: fn(TcpStream)| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let at = listener.local_addr().expect("its address");
            let serving = std::thread::spawn(move || act(listener.accept().expect("a connection").0));
            let sent = parse(&format!("http://{at}")).expect("an address").send("{}");
            serving.join().expect("it served");
            format!("{:#}", sent.expect_err("it is no collector"))
        };
        let silent = served(|stream| {
            std::thread::sleep(PATIENCE + Duration::from_secs(1));
            drop(stream);
        });
        assert!(silent.contains("did not answer within 10 s") && silent.contains("its log"), "{silent}");
        let other = served(|mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        });
        assert!(other.contains("does not answer in HTTP") && other.contains("4318"), "{other}");
        let refuses = served(|mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\n\r\nno such path");
        });
        assert!(refuses.contains("answered 404: no such path"), "{refuses}");
        let unknown = parse("http://no-such-host.invalid").expect("an address").send("{}").expect_err("no such host");
        assert!(format!("{unknown:#}").contains("cannot find the host of no-such-host.invalid:4318"), "{unknown:#}");
    }

    #[test]
    fn an_answer_says_what_was_rejected() {
        assert_eq!(parted(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}"), Some((200, "{}".into())));
        assert_eq!(parted(b"SSH-2.0-x\r\n\r\n"), None);
        assert_eq!(rejected("{}"), (0, String::new()));
        assert_eq!(rejected(""), (0, String::new()));
        let chunked = "2e\r\n{\"partialSuccess\":{\"rejectedSpans\":\"3\",\"errorMessage\":\"full\"}}\r\n0\r\n\r\n";
        assert_eq!(rejected(chunked), (3, "full".into()));
    }
}
