//! `tailsight view`: the report's page from a server on 127.0.0.1, which has every message's timeline and the points of every part of the plot.
//!
//! In: a run. Out: an address on standard output, then answers until it is stopped. Only requests with the token of the address in
//! their path and with this server's own name in `Host` are answered, so neither other users of the host nor pages of other sites that
//! a browser shows can read the run (a name that was made to lead to 127.0.0.1 is in `Host`). It never listens on another address.
//!
//! Requests are answered one after the other: diagnosing and the paths of messages use all that there is of a run.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use nix::sys::socket::{setsockopt, sockopt};
use tailsight_diagnose::Options;
use tailsight_report::html::{Beside, Bundle, Part, Points};

use super::diagnose::not_available_or;
use crate::cli_common::Question;
use crate::cli_view::View;
use crate::page::Diagnosed;
use crate::page_server::{Request, Server};
use crate::pipeline::Opened;
use crate::{Exit, pipeline, stop, terminal};

/// Bytes of the token: 256 bits.
const TOKEN: usize = 32;
/// How often a stop is looked for.
const TURN: Duration = Duration::from_millis(200);

/// Serves the page.
pub fn run(args: &View) -> anyhow::Result<Exit> {
    if let Err(error) = pipeline::options(&args.question) {
        return not_available_or(error);
    }
    let opened = pipeline::open(&args.run)?;
    let against = args.against.as_deref().map(pipeline::open).transpose()?;
    let stop = stop::on_interrupt();
    let (server, port) = listen(args.port)?;
    let door = Door { port, token: token()? };
    let viewer = Viewer { server, door, opened, against, stop };

    let mut asked = Asked::of(&args.question);
    let mut waiting = None;
    let mut said = false;
    loop {
        match viewer.answer(args, &asked, waiting.take(), &mut said)? {
            Turn::Stopped => return Ok(Exit::Done),
            Turn::NotAvailable(verdict) => return Ok(verdict),
            Turn::Other(other) => {
                let (request, question) = *other;
                (asked, waiting) = (question, Some(request));
            }
        }
    }
}

/// The part of the question that the page can change.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    focus: Option<String>,
    leg: Option<tailsight_lifetime::Leg>,
}

impl Asked {
    fn of(question: &Question) -> Asked {
        Asked { focus: question.focus.clone(), leg: question.leg }
    }

    /// What a query asks, where it asks; else what the command line did.
    fn from_query(query: &str, usual: &Asked) -> Result<Asked, String> {
        let mut out = usual.clone();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "focus" => {
                    tailsight_diagnose::parse_focus(value).map_err(|error| error.to_string())?;
                    out.focus = Some(value.to_owned());
                }
                "leg" => out.leg = Some(value.parse()?),
                _ => return Err(format!("unknown parameter {name:?}; allowed: focus, leg")),
            }
        }
        Ok(out)
    }
}

/// Why a question's turn ended.
enum Turn {
    Stopped,
    NotAvailable(Exit),
    /// A request asks something else.
    Other(Box<(Request, Asked)>),
}

struct Viewer {
    server: Server,
    door: Door,
    opened: Opened,
    against: Option<Opened>,
    stop: Arc<AtomicBool>,
}

impl Viewer {
    /// Diagnoses and answers all requests of one question. `first`: the request that asked it.
    fn answer(&self, args: &View, asked: &Asked, first: Option<Request>, said: &mut bool) -> anyhow::Result<Turn> {
        let usual = Asked::of(&args.question);
        let question = Question { focus: asked.focus.clone(), leg: asked.leg, ..args.question.clone() };
        let answered = pipeline::options(&question).and_then(|options| {
            let options = Options { more: true, ..options };
            let (options, _) = pipeline::asked(options, &question, &self.opened, self.against.as_ref())?;
            let diagnosed = pipeline::diagnose_against(&self.opened, &options, self.against.as_ref())?;
            Ok((options, diagnosed))
        });
        let (options, (diagnosis, causes)) = match answered {
            Ok(answered) => answered,
            // Of a question that the page asked, the page is told.
            Err(error) => {
                let Some(request) = first else { return not_available_or(error).map(Turn::NotAvailable) };
                request.reply(422, "text/plain", format!("{error:#}").into_bytes());
                return self.next(&usual);
            }
        };
        let diagnosed = Diagnosed {
            opened: &self.opened,
            options: &options,
            diagnosis: &diagnosis,
            causes: &causes,
            against: self.against.as_ref(),
        };
        let page = diagnosed.served(args.points);
        if !*said {
            terminal::print(&format!("{}\n", self.door.address()))?;
            say!("serving {} to this host only, until Ctrl-C", self.opened.run.dir.display());
            *said = true;
        }
        let paths = self.opened.analysis.to_paths();
        diagnosed.with_parts(|timelines, points| {
            let bundle_of = |id| timelines.bundle(&[(id, paths.of(id, diagnosis.leg))]);
            let mut next = first;
            loop {
                let request = match next.take() {
                    Some(request) => request,
                    None => match self.wait()? {
                        Some(request) => request,
                        None => return Ok(Turn::Stopped),
                    },
                };
                match self.door.enter(&request, &usual) {
                    Err((status, why)) => request.reply(status, "text/plain", why.into_bytes()),
                    Ok((_, other)) if other != *asked => return Ok(Turn::Other(Box::new((request, other)))),
                    Ok((Path::Page, _)) => request.reply(200, "text/html", page.clone().into_bytes()),
                    Ok((Path::Points(part), _)) => {
                        request.reply(200, "application/octet-stream", points.bytes(&part, args.points));
                    }
                    Ok((Path::Message(id), _)) => message(request, id, &bundle_of, points, &self.opened),
                }
            }
        })
    }

    /// The next request of those that may enter, for a question of its own.
    fn next(&self, usual: &Asked) -> anyhow::Result<Turn> {
        while let Some(request) = self.wait()? {
            match self.door.enter(&request, usual) {
                Err((status, why)) => request.reply(status, "text/plain", why.into_bytes()),
                Ok((_, asked)) => return Ok(Turn::Other(Box::new((request, asked)))),
            }
        }
        Ok(Turn::Stopped)
    }

    /// The next request; none when it is to stop.
    fn wait(&self) -> anyhow::Result<Option<Request>> {
        while !self.stop.load(Ordering::Relaxed) {
            if let Some(request) = self.server.next(TURN).context("the server stopped")? {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }
}

/// A message's timeline with its neighbours by latency.
#[derive(serde::Serialize)]
struct One {
    #[serde(flatten)]
    bundle: Bundle,
    beside: Option<Beside>,
}

fn message(request: Request, id: u32, bundle_of: &dyn Fn(u32) -> Bundle, points: &Points, opened: &Opened) {
    if opened.analysis.lifetimes.messages.get(id as usize).is_none() {
        let n = opened.analysis.lifetimes.messages.len();
        return request.reply(404, "text/plain", format!("there is no message {id}: the run has {n}").into_bytes());
    }
    match serde_json::to_vec(&One { bundle: bundle_of(id), beside: points.beside(id) }) {
        Ok(json) => request.reply(200, "application/json", json),
        Err(error) => request.reply(500, "text/plain", error.to_string().into_bytes()),
    }
}

/// What a request is for.
#[derive(Debug, PartialEq)]
enum Path {
    Page,
    Message(u32),
    Points(Part),
}

/// Who may come in.
struct Door {
    port: u16,
    token: String,
}

impl Door {
    fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// What a request asks for, or the status and the words with which it is refused.
    fn enter(&self, request: &Request, usual: &Asked) -> Result<(Path, Asked), (u16, String)> {
        self.judge(request.reads, request.host.as_deref(), &request.url, usual)
    }

    fn judge(&self, get: bool, host: Option<&str>, url: &str, usual: &Asked) -> Result<(Path, Asked), (u16, String)> {
        let no = |status, why: &str| Err((status, why.to_owned()));
        let names = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        if !host.is_some_and(|host| names.iter().any(|name| name == host)) {
            return no(403, "this server accepts 127.0.0.1 and localhost only");
        }
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let rest = match path.strip_prefix('/').and_then(|p| p.split_once('/')) {
            Some((token, rest)) if same(token, &self.token) => rest,
            _ => return no(403, "the token is missing or wrong: use the whole address that tailsight view printed"),
        };
        if !get {
            return no(405, "only GET");
        }
        let asked = Asked::from_query(query, usual).map_err(|why| (400, why))?;
        let message = rest.strip_prefix("message/").and_then(|id| id.parse().ok()).map(Path::Message);
        let points = || rest.strip_prefix("points/").and_then(Part::parse).map(Path::Points);
        match message.or_else(points).or_else(|| rest.is_empty().then_some(Path::Page)) {
            Some(path) => Ok((path, asked)),
            None => no(404, "there is no such page"),
        }
    }
}

/// Whether two texts are the same, in a time that tells nothing of where they differ.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |sum, (x, y)| sum | (x ^ y)) == 0
}

/// Listens on this host alone. Connections have the listener's TCP_NODELAY: without it each answer on a kept connection waits for the
/// browser's acknowledgement of its head, which is delayed by 40 ms.
fn listen(port: u16) -> anyhow::Result<(Server, u16)> {
    let refused = |why: std::io::Error| anyhow!("cannot listen on 127.0.0.1:{port}: {why}\n  choose another --port");
    let listener = TcpListener::bind(("127.0.0.1", port)).map_err(refused)?;
    setsockopt(&listener, sockopt::TcpNoDelay, &true).context("cannot set TCP_NODELAY")?;
    let port = listener.local_addr().context("the server has no port")?.port();
    Ok((Server::new(listener).context("cannot start a thread")?, port))
}

/// 256 random bits as text.
fn token() -> anyhow::Result<String> {
    let mut bytes = [0; TOKEN];
    let mut source = std::fs::File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    std::io::Read::read_exact(&mut source, &mut bytes).context("cannot read /dev/urandom")?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_address_enters() {
        let door = Door { port: 7, token: "ab12".into() };
        let usual = Asked { focus: None, leg: None };
        let status = |get, host: Option<&str>, url: &str| match door.judge(get, host, url, &usual) {
            Ok((path, _)) => Ok(path),
            Err((status, _)) => Err(status),
        };
        let here = Some("127.0.0.1:7");
        assert_eq!(status(true, here, "/ab12/"), Ok(Path::Page));
        assert_eq!(status(true, Some("localhost:7"), "/ab12/message/5"), Ok(Path::Message(5)));
        for url in ["/", "/ab12", "/ab13/", "/ab1/", "/ab122/", "//ab12/", "/AB12/", "/message/5"] {
            assert_eq!(status(true, here, url), Err(403), "{url}");
        }
        for host in
            [None, Some("evil.example"), Some("evil.example:7"), Some("127.0.0.1"), Some("127.0.0.1:8"), Some("")]
        {
            assert_eq!(status(true, host, "/ab12/"), Err(403), "{host:?}");
        }
        assert_eq!(status(false, here, "/ab12/"), Err(405));
        let part = Part { ids: (3, 9), ..Part::WHOLE };
        assert_eq!(status(true, here, "/ab12/points/3/9/0/18446744073709551615/all/0"), Ok(Path::Points(part)));
        assert_eq!(status(true, here, "/ab12/points/3/9"), Err(404));
        assert_eq!(status(true, here, "/points/3/9/0/1/all/0"), Err(403));
        assert_eq!(status(true, here, "/ab12/message/-1"), Err(404));
        assert_eq!(status(true, here, "/ab12/etc/passwd"), Err(404));
        assert_eq!(status(true, here, "/ab12/?focus=p50"), Err(400));
        assert_eq!(status(true, here, "/ab12/?leg=arm"), Err(400));
    }

    #[test]
    fn a_query_changes_what_it_names() {
        let usual = Asked { focus: Some("p90..p100".into()), leg: None };
        let question_of = |query| Asked::from_query(query, &usual).expect("a question");
        assert_eq!(question_of(""), usual);
        assert_eq!(question_of("focus=p50..p60").focus.as_deref(), Some("p50..p60"));
        assert_eq!(question_of("leg=receive"), Asked { leg: Some(tailsight_lifetime::Leg::Receive), ..usual.clone() });
        assert!(Asked::from_query("run=/etc", &usual).is_err());
    }

    #[test]
    fn tokens_differ_and_are_long() {
        let (a, b) = (token().expect("random bytes"), token().expect("random bytes"));
        assert!(a != b && a.len() == 2 * TOKEN && a.bytes().all(|c| c.is_ascii_hexdigit()));
    }
}
