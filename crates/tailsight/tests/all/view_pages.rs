//! The report's page in browsers, and its server: what is on it is the JSON's, and the server answers to its address only.
//!
//! Runs web/test/*.mjs with node and Debian's chromium or Firefox, where these are and web/node_modules is installed
//! (`npm ci` in web/); skipped by name where not. The runs are the golden ones: recorded, and the same everywhere.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{json as stdout_json, run, shown, tailsight};

fn golden(name: &str) -> String {
    format!("{}/../tailsight-lifetime/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web")
}

/// Why no browser test can run here.
fn lacks(browser: &str) -> Option<String> {
    tailsight_testing::lacks_page_packages().or_else(|| tailsight_testing::lacks_program(browser))
}

/// Runs a script of web/test, which must succeed.
fn node(script: &str, args: &[&str]) {
    let _cores = crate::support::cores();
    println!("{script}: {}", tailsight_testing::run_browser_script(&web().join("test").join(script), args));
}

/// A report of a golden run, and what JSON says of it and of its second slowest message.
fn report(dir: &Path, run_name: &str) -> (String, String) {
    let (page, facts) = (dir.join("report.html").display().to_string(), dir.join("facts.json").display().to_string());
    let made = run(&["report", &golden(run_name), "-o", &page]);
    assert!(made.status.success(), "{}", shown(&made));
    std::fs::write(&facts, facts_of(run_name).to_string()).expect("a file");
    (page, facts)
}

fn facts_of(run_name: &str) -> Value {
    let diagnosis = stdout_json(&run(&["diagnose", &golden(run_name), "--more", "--json"]));
    let id = diagnosis["slowest"][1]["id"].as_u64().expect("a slow message").to_string();
    let shown = stdout_json(&run(&["show", &golden(run_name), &id, "--json"]));
    json!({"diagnosis": diagnosis, "shown": shown})
}

#[test]
fn a_report_in_chromium_has_every_view_with_the_numbers_of_the_json() {
    if let Some(reason) = lacks("chromium") {
        return tailsight_testing::skip(reason);
    }
    for run_name in ["memcached-requests", "redis-requests"] {
        let dir = tempfile::tempdir().expect("a folder");
        let (page, facts) = report(dir.path(), run_name);
        node("page.mjs", &[&page, &facts]);
    }
}

/// Two runs, any slice: the comparison, and the queueing breakdown of both.
#[test]
fn a_report_of_two_runs_in_chromium_has_their_differences() {
    if let Some(reason) = lacks("chromium") {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (page, facts) = (dir.path().join("report.html").display().to_string(), dir.path().join("facts.json"));
    let (run_dir, other) = (golden("memcached-requests"), golden("redis-requests"));
    let question = ["--against", &other, "--focus", "p70..p100"];
    let made = run(&[&["report", &run_dir, "-o", &page], &question[..]].concat());
    assert!(made.status.success(), "{}", shown(&made));
    let diagnosis = stdout_json(&run(&[&["diagnose", &run_dir, "--more", "--json"], &question[..]].concat()));
    let id = diagnosis["slowest"][1]["id"].as_u64().expect("a slow message").to_string();
    let shown = stdout_json(&run(&[&["show", &run_dir, &id, "--json"], &question[2..]].concat()));
    let other = stdout_json(&run(&["diagnose", &other, "--json", "--focus", "p70..p100"]));
    let facts_of_both = json!({"diagnosis": diagnosis, "shown": shown, "other": other});
    std::fs::write(&facts, facts_of_both.to_string()).expect("a file");
    node("page.mjs", &[&page, &facts.display().to_string()]);
}

/// Widths, light and dark: labels apart, nothing too wide, and axe-core's rules for people who do not see or do not use a pointer.
#[test]
fn the_page_in_chromium_has_its_labels_apart_and_is_accessible() {
    if let Some(reason) = lacks("chromium") {
        return tailsight_testing::skip(reason);
    }
    for run_name in ["memcached-requests", "memcached-tcp"] {
        let dir = tempfile::tempdir().expect("a folder");
        let page = dir.path().join("report.html").display().to_string();
        run(&["report", &golden(run_name), "-o", &page]);
        node("looks.mjs", &[&page, "3"]);
    }
}

/// Too few messages for causes: the page has what there is.
#[test]
fn a_report_without_causes_in_chromium_has_the_slowest_messages() {
    if let Some(reason) = lacks("chromium") {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().expect("a folder");
    let page = dir.path().join("report.html").display().to_string();
    let made = run(&["report", &golden("memcached-tcp"), "-o", &page]);
    assert_eq!(made.status.code(), Some(3), "{}", shown(&made));
    node("few.mjs", &[&page]);
}

#[test]
fn durations_on_the_page_are_those_of_the_terminal() {
    if let Some(reason) = tailsight_testing::lacks_page_packages() {
        return tailsight_testing::skip(reason);
    }
    let rows = concat!(env!("CARGO_MANIFEST_DIR"), "/../tailsight-units/src/durations.txt");
    node("units.mjs", &[rows]);
}

#[test]
fn a_report_in_firefox_is_drawn_with_the_numbers_of_the_json() {
    if let Some(reason) = lacks("firefox-esr") {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (page, facts) = report(dir.path(), "memcached-requests");
    node("firefox.mjs", &[&page, &facts]);
}

/// A server that ends with the test.
struct Served {
    child: Child,
    address: String,
    port: u16,
    token: String,
}

impl Served {
    fn of(run: &str) -> Served {
        Served::with(run, &[])
    }

    fn with(run: &str, options: &[&str]) -> Served {
        let mut command = tailsight(&[&["view", run], options].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut address = String::new();
        let out = child.stdout.take().expect("its output");
        BufReader::new(out).read_line(&mut address).expect("its address");
        let address = address.trim().to_owned();
        let rest = address.strip_prefix("http://127.0.0.1:").expect("an address of this host");
        let (port, token) = rest.trim_end_matches('/').split_once('/').expect("a port and a token");
        Served { child, port: port.parse().expect("a port"), token: token.to_owned(), address }
    }

    /// Status and body of a request.
    fn get(&self, path: &str, host: &str) -> (u16, String) {
        let (status, body) = self.bytes(path, host);
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// The messages of a part of the plot as (id, latency in ns), and how many the part has.
    fn points(&self, part: &str) -> (Vec<(u32, u64)>, u32) {
        let path = format!("/{}/points/{part}", self.token);
        let (status, body) = self.bytes(&path, &format!("127.0.0.1:{}", self.port));
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        let u32_at = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().expect("4 bytes"));
        let f64_at = |at: usize| f64::from_le_bytes(body[at..at + 8].try_into().expect("8 bytes"));
        let n = u32_at(0) as usize;
        assert_eq!(body.len(), 8 + 32 * n);
        ((0..n).map(|i| (u32_at(8 + 16 * n + 4 * i), f64_at(8 + 8 * i) as u64)).collect(), u32_at(4))
    }

    fn bytes(&self, path: &str, host: &str) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
        let (head, body) = (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end + 4..].to_vec());
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        assert!(head.contains("Cache-Control: no-store"), "{head}");
        (status, body)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_server_refuses_a_wrong_token_and_a_foreign_host_and_tells_every_message() {
    let run_dir = golden("memcached-tcp");
    let served = Served::of(&run_dir);
    let (here, token) = (format!("127.0.0.1:{}", served.port), served.token.clone());
    let (status, page) = served.get(&format!("/{token}/"), &here);
    assert!(status == 200 && page.contains("<title>Tailsight report</title>"), "{status}");
    assert!(page.contains("connect-src 'self'"));
    let wrong = "0".repeat(token.len());
    for path in ["/", "/index.html", "/message/1", &format!("/{wrong}/"), &format!("/{wrong}/message/1")] {
        let (status, body) = served.get(path, &here);
        assert!(status == 403 && !body.contains("memcached") && !body.contains(&token), "{path}: {status} {body}");
    }
    for host in ["evil.example", &format!("evil.example:{}", served.port), "127.0.0.1", "localhost:1", ""] {
        let (status, body) = served.get(&format!("/{token}/"), host);
        assert!(status == 403 && !body.contains("memcached"), "{host:?}: {status}");
    }
    let (status, body) = served.get(&format!("/{token}/message/99999999"), &here);
    assert!(status == 404 && body.contains("there is no message"), "{status} {body}");
    let (status, body) = served.get(&format!("/{token}/?focus=p99..p1"), &here);
    assert!(status == 400, "{status} {body}");

    // A message that no report embeds, as the command shows it.
    let diagnosis = stdout_json(&run(&["diagnose", &run_dir, "--json"]));
    for id in [0, 7, diagnosis["slowest"][0]["id"].as_u64().expect("an id")] {
        let shown = stdout_json(&run(&["show", &run_dir, &id.to_string(), "--leg", "total", "--json"]));
        let (status, body) = served.get(&format!("/{token}/message/{id}"), &here);
        assert_eq!(status, 200, "{body}");
        let bundle: Value = serde_json::from_str(&body).expect("JSON");
        let message = &bundle["messages"][0];
        assert_eq!((&message["id"], &message["length"]), (&shown["id"], &shown["latency_ns"]));
        let spans = message["spans"].as_array().expect("spans");
        assert_eq!(spans.len(), 4 * shown["spans"].as_array().expect("spans").len());
        for (span, expected) in spans.chunks(4).zip(shown["spans"].as_array().expect("spans")) {
            let slot = &bundle["slots"][span[2].as_u64().expect("a place") as usize];
            let key = &bundle["keys"][slot["key"].as_u64().expect("a place") as usize];
            assert_eq!(
                (&span[0], &key["category"], &key["name"]),
                (&expected["ns"], &expected["category"], &expected["name"])
            );
        }
    }
}

/// A browser keeps its connection; an answer must not wait for the acknowledgement of its head, which the kernel delays by 40 ms. The
/// fastest counts: other work on the machine only makes the others slower.
#[test]
fn an_answer_on_a_kept_connection_does_not_wait_for_an_acknowledgement() {
    let served = Served::of(&golden("memcached-tcp"));
    let stream = TcpStream::connect(("127.0.0.1", served.port)).expect("it listens");
    let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
    let mut fastest = std::time::Duration::MAX;
    for turn in 0..40 {
        let began = std::time::Instant::now();
        let id = turn % 8;
        let head = format!("GET /{}/message/{id} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", served.token, served.port);
        (&stream).write_all(head.as_bytes()).expect("a request");
        let (mut length, mut line) = (0, String::new());
        while reader.read_line(&mut line).expect("a head") > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        assert!(length > 1_500, "{length} bytes fit into one packet");
        // The first acknowledgements of a connection are not delayed.
        if turn >= 20 {
            fastest = fastest.min(began.elapsed());
        }
    }
    assert!(fastest.as_millis() < 30, "{fastest:?}");
}

#[test]
fn the_server_in_chromium_opens_any_message_and_asks_again() {
    if let Some(reason) = lacks("chromium") {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().expect("a folder");
    let facts = dir.path().join("facts.json").display().to_string();
    std::fs::write(&facts, facts_of("memcached-tcp").to_string()).expect("a file");
    let served = Served::of(&golden("memcached-tcp"));
    node("served.mjs", &[&served.address, &facts]);
}

/// Everything, as a part.
const WHOLE: &str = "0/4294967295/0/18446744073709551615/all/0";

/// A run of more messages than the page holds: the part that is asked for comes whole, a larger one as a sample with its slowest.
#[test]
fn the_server_has_the_points_of_every_part_of_the_plot() {
    let run_dir = golden("memcached-requests");
    let (few, unlimited) =
        (Served::with(&run_dir, &["--points", "100"]), Served::with(&run_dir, &["--points", "10000000"]));
    let (every, sight) = unlimited.points(WHOLE);
    assert_eq!(every.len(), sight as usize);
    let diagnosis = stdout_json(&run(&["diagnose", &run_dir, "--json"]));
    assert_eq!(diagnosis["legs"]["total"]["messages"], json!(sight));
    let slowest = every.iter().max_by_key(|(_, ns)| *ns).expect("messages");
    assert_eq!(diagnosis["slowest"][0]["id"], json!(slowest.0));
    assert_eq!(diagnosis["slowest"][0]["latency_ns"], json!(slowest.1));

    let (sample, of_all) = few.points(WHOLE);
    assert!(sample.len() < every.len() && of_all == sight && sample.contains(slowest), "{} of {of_all}", sample.len());
    assert!(sample.iter().all(|point| every.contains(point)));
    let (part, of_part) = few.points("20/90/0/18446744073709551615/all/0");
    let expected: Vec<_> = every.iter().filter(|(id, _)| (20..=90).contains(id)).copied().collect();
    assert_eq!((part, of_part), (expected.clone(), expected.len() as u32));
    let limit = diagnosis["latency_ns"]["p90"].as_u64().expect("a number");
    let (slow, _) = few.points(&format!("0/4294967295/{limit}/18446744073709551615/all/0"));
    assert_eq!(slow, every.iter().filter(|(_, ns)| *ns >= limit).copied().collect::<Vec<_>>());
}

#[test]
fn the_server_in_chromium_zooms_into_more_messages_than_the_page_holds() {
    if let Some(reason) = lacks("chromium") {
        return tailsight_testing::skip(reason);
    }
    let (dir, run_dir) = (tempfile::tempdir().expect("a folder"), golden("memcached-requests"));
    let facts = dir.path().join("facts.json").display().to_string();
    let (every, _) = Served::of(&run_dir).points(WHOLE);
    std::fs::write(&facts, json!({"latencies": every}).to_string()).expect("a file");
    let served = Served::with(&run_dir, &["--points", "100"]);
    node("zoom.mjs", &[&served.address, &facts]);
}

/// The committed page is what web/ builds: whoever changes one without the other is told.
#[test]
fn the_committed_page_is_built_from_its_source() {
    let lacking = tailsight_testing::lacks_page_packages().or_else(|| tailsight_testing::lacks_program("npm"));
    if let Some(reason) = lacking {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().expect("a folder");
    let mut build = Command::new("npm");
    build.args(["run", "--silent", "build"]).current_dir(web()).env("TAILSIGHT_PAGE_DIR", dir.path());
    let output = build.output().expect("npm starts");
    assert!(output.status.success(), "{}", shown(&output));
    let built = std::fs::read_to_string(dir.path().join("page.html")).expect("the built page");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tailsight-report/assets/page.html");
    let committed = std::fs::read_to_string(committed).expect("the committed page");
    assert!(built == committed, "assets/page.html is not what web/ builds: `npm run build` in web/ and commit it");
}
