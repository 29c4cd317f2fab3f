//! `load` and `sweep` against real memcached, redis-server and nginx, and against servers that misbehave. What is asserted holds on
//! a busy machine too: there a measurement may be N/A, but it must say why, add up, and keep its samples.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{element, json, run, shown, stderr, tailsight};

/// These tests share the cores, but for those that need them alone.
static MACHINE: RwLock<()> = RwLock::new(());

pub fn together() -> RwLockReadGuard<'static, ()> {
    tailsight_testing::raise_priority();
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

pub fn alone() -> RwLockWriteGuard<'static, ()> {
    tailsight_testing::raise_priority();
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// A server that ends with the test.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program and waits until it listens; `None`, said, where it is not installed.
pub fn server(program: &str, port: u16, args: &[&str]) -> Option<Server> {
    if let Some(reason) = tailsight_testing::lacks_program(program) {
        tailsight_testing::skip(reason);
        return None;
    }
    let child = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let server = Server(child.unwrap_or_else(|error| panic!("cannot start {program}: {error}")));
    let since = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(since.elapsed() < Duration::from_secs(10), "{program} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(server)
}

/// What holds for every measurement that was printed as JSON, number or N/A.
pub fn adds_up(output: &Output) -> serde_json::Value {
    let report = json(output);
    crate::schemas::holds("load", &report);
    let code = output.status.code();
    match report["verdict"]["verdict"].as_str() {
        Some("number") => {
            assert_eq!(code, Some(0), "{}", shown(output));
            let p = &report["verdict"]["percentiles"][0];
            let [lower, value, upper] = ["lower_ns", "value_ns", "upper_ns"].map(|k| p[k].as_f64().unwrap());
            assert!(0.0 < lower && lower <= value && value <= upper, "{p}");
            assert!(report["response_ns"]["n"].as_u64() > Some(0), "{}", shown(output));
        }
        Some("not-available") => {
            assert_eq!(code, Some(3), "{}", shown(output));
            for key in ["reason", "hint"] {
                assert!(report["verdict"][key].as_str().is_some_and(|t| t.len() > 10), "{}", shown(output));
            }
            assert!(report["verdict"]["failed"]["test"].is_string(), "{}", shown(output));
            let verdict = &report["verdict"];
            let listed = |key: &str| verdict[key].as_array().map_or(0, Vec::len);
            assert!(listed("passed") + listed("bounds") + listed("missing") > 0, "{}", shown(output));
            assert_eq!(listed("missing") > 0, verdict["no_bounds_because"].is_string(), "{}", shown(output));
            let blamed = &verdict["failed"]["id"];
            let assumptions = report["assumptions"].as_array().unwrap();
            assert!(assumptions.iter().any(|a| a["id"] == *blamed && a["state"] == "not-held"), "{}", shown(output));
        }
        other => panic!("{other:?}: {}", shown(output)),
    }
    // Nothing is listed as held that had a check which failed.
    for held in report["assumptions"].as_array().unwrap().iter().filter(|a| a["state"] == "held") {
        let checks = report["checks"].as_array().unwrap().iter().filter(|c| c["id"] == held["id"]);
        assert!(checks.clone().count() > 0 && checks.clone().all(|c| c["passed"] == true), "{}", shown(output));
    }
    for late in ["p50", "p90", "p99", "p99.9"] {
        assert!(
            report["lateness_ns"]["percentiles"][late].is_u64() || report["counts"]["sent"] == 0,
            "{}",
            shown(output)
        );
    }
    let count = |name: &str| report["counts"][name].as_u64().unwrap();
    let statuses = ["ok", "miss", "error", "wrong", "closed", "garbage", "lost", "unanswered"];
    assert_eq!(count("sent"), statuses.iter().map(|s| count(s)).sum::<u64>(), "{}", report["counts"]);
    assert_eq!((report["schema"].as_u64(), report["kind"].as_str()), (Some(1), Some("measurement")));
    report
}

fn load(target: &str, more: &[&str]) -> Output {
    run(&[&["load", target, "--json", "--rate", "1k", "--ci", "p50:30%", "--max-time", "2500ms"], more].concat())
}

#[test]
fn memcached_is_measured_and_its_samples_read_back() {
    let _cores = together();
    let port = tailsight_testing::free_port();
    let port_text = port.to_string();
    let Some(_server) =
        server("memcached", port, &["-u", "nobody", "-l", "127.0.0.1", "-p", &port_text, "-U", "0", "-t", "1"])
    else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (file, page) = (dir.path().join("a.parquet"), dir.path().join("a.html"));
    let (file, page) = (file.to_str().unwrap(), page.to_str().unwrap());
    // A busy machine can spoil every window of 2.5 s: then nothing is kept, which is said, and it is measured again.
    let target = format!("memcached://127.0.0.1:{port}");
    let measured = || load(&target, &["-o", file, "--html", page, "--workload", "usr"]);
    let mut output = measured();
    let mut report = adds_up(&output);
    for _ in 0..4 {
        if report["kept"]["n"] != 0 {
            break;
        }
        assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
        output = measured();
        report = adds_up(&output);
    }
    if report["kept"]["n"] == 0 && client_was_late(&report) {
        let test = "memcached_is_measured_and_its_samples_read_back";
        return tailsight_testing::not_judged(test, "the client was late in five measurements, which kept nothing");
    }
    let failed = ["error", "wrong", "garbage", "lost", "miss"].map(|s| report["counts"][s].as_u64().unwrap());
    assert_eq!(failed, [0; 5], "{}", report["counts"]);
    let stored = tailsight_measure::samples::read(file.as_ref()).unwrap();
    assert_eq!(stored.rows.len() as u64, report["kept"]["n"].as_u64().unwrap());
    assert!(stored.rows.len() > 500, "{}", stored.rows.len());
    assert_eq!(serde_json::to_value(&stored.report).unwrap(), report);
    let drawn = element(page, "load");
    let [result] = drawn["results"].as_array().unwrap().as_slice() else { panic!("{drawn}") };
    assert_eq!(result["report"], report);
    assert_eq!(result["load"].as_array().map(Vec::is_empty), Some(false), "the load over time");

    // Twice the same file, one over the other.
    let page = dir.path().join("both.html").display().to_string();
    let output = run(&["report", file, file, "-o", &page]);
    assert!(output.status.success(), "{}", shown(&output));
    let drawn = element(&page, "load");
    let [result_drawn, other] = drawn["results"].as_array().unwrap().as_slice() else { panic!("{drawn}") };
    assert_eq!((&result_drawn["report"], &result_drawn["response"]), (&report, &result["response"]));
    assert_eq!((&other["name"], &other["over_time"]), (&file.into(), &result_drawn["over_time"]));

    // Against itself at another rate: no comparison, said before any load.
    let other = run(&[
        "load",
        &format!("memcached://127.0.0.1:{port}"),
        "--rate",
        "2k",
        "--workload",
        "usr",
        "--against",
        file,
    ]);
    assert_eq!(other.status.code(), Some(2), "{}", shown(&other));
    assert!(stderr(&other).contains("cannot be compared"), "{}", shown(&other));
}

#[test]
fn redis_is_measured() {
    let _cores = together();
    let port = tailsight_testing::free_port();
    let port_text = port.to_string();
    if let Some(_server) =
        server("redis-server", port, &["--port", &port_text, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
    {
        let report = adds_up(&load(&format!("redis://127.0.0.1:{port}"), &["--get-ratio", "0.9", "--keys", "1k"]));
        assert_eq!(report["counts"]["error"], 0, "{}", report["counts"]);
        assert!(report["counts"]["ok"].as_u64() > Some(1_000), "{}", report["counts"]);
    }
}

#[test]
fn nginx_is_measured() {
    let _cores = together();
    let dir = tempfile::tempdir().unwrap();
    let port = tailsight_testing::free_port();
    let d = dir.path().display();
    let conf = format!(
        "daemon off; master_process off; pid {d}/pid; error_log {d}/log; events {{ worker_connections 128; }}\n\
         http {{ access_log off; keepalive_requests 1000000; server {{ listen 127.0.0.1:{port}; location / {{ return 200 'hello'; }} location /no {{ return 500; }} }} }}"
    );
    let path = dir.path().join("nginx.conf");
    std::fs::write(&path, conf).unwrap();
    if let Some(_server) = server("nginx", port, &["-c", path.to_str().unwrap()]) {
        let report = adds_up(&load(&format!("http://127.0.0.1:{port}/"), &[]));
        assert!(report["counts"]["ok"].as_u64() > Some(1_000), "{}", report["counts"]);
        // A closed loop has no rate and is not held against one.
        let closed = run(&[
            "load",
            &format!("http://127.0.0.1:{port}/"),
            "--json",
            "--closed",
            "1",
            "--connections",
            "2",
            "--ci",
            "p50:30%",
            "--max-time",
            "2s",
        ]);
        assert_eq!(adds_up(&closed)["rate"]["asked"], serde_json::Value::Null);
        // A closed loop may miss an objective, and cannot meet one.
        for (objective, decision, code) in [("p50<1ns", "missed", 4), ("p50<10s", "open", 3)] {
            let target = format!("http://127.0.0.1:{port}/");
            let closed = ["load", &target, "--json", "--closed", "1", "--connections", "2", "--max-time", "2s"];
            let slo = run(&[&closed[..], &["--slo", objective]].concat());
            assert_eq!(json(&slo)["objective"]["decision"], decision, "{}", shown(&slo));
            assert_eq!(slo.status.code(), Some(code), "{}", shown(&slo));
        }
        let met = load(&format!("http://127.0.0.1:{port}/"), &["--slo", "p50<10s"]);
        assert_eq!(json(&met)["objective"]["decision"], "met", "{}", shown(&met));
        // What authorises a request, and its body, are in no output.
        let file = dir.path().join("kept.parquet");
        let secret = ["-H", "Authorization: Bearer planted-secret", "-X", "GET", "-d", "body=planted-secret"];
        let words = [&secret[..], &["-o", file.to_str().unwrap()]].concat();
        let kept = load(&format!("http://127.0.0.1:{port}/"), &words);
        assert!(matches!(kept.status.code(), Some(0 | 3)), "{}", shown(&kept));
        let stored = tailsight_measure::samples::read(&file).unwrap();
        let plan = serde_json::to_string(&stored.report.plan).unwrap();
        assert!(plan.contains("Authorization") && !plan.contains("planted-secret"), "{plan}");
        for bytes in [kept.stdout, kept.stderr, std::fs::read(&file).unwrap()] {
            assert!(!bytes.windows(14).any(|at| at == b"planted-secret"));
        }
        let refused = load(&format!("http://127.0.0.1:{port}/no"), &[]);
        assert_eq!(refused.status.code(), Some(1), "{}", shown(&refused));
        assert!(stderr(&refused).contains("with HTTP status"), "{}", shown(&refused));
    }
}

/// Nobody is answered before their service time, whatever the machine does, and half of the requests wait for others besides.
#[test]
fn the_queue_that_is_served_has_the_latency_of_a_queue() {
    let _cores = together();
    let port = tailsight_testing::free_port();
    let port_text = port.to_string();
    let words = ["serve", "--service", "fixed:2ms", "--port", &port_text, "--protocol", "http1", "--for", "60s"];
    let mut server = tailsight(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let first = lines.next().unwrap();
    assert!(first.contains(&format!("serving http://127.0.0.1:{port}:")), "{first}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.parquet");
    let target = format!("http://127.0.0.1:{port}/");
    let output = run(&["load", &target, "--json", "--rate", "250", "--max-time", "5s", "-o", file.to_str().unwrap()]);
    let _ = server.kill();
    let _ = server.wait();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", shown(&output));
    let stored = tailsight_measure::samples::read(&file).unwrap();
    let mut latencies: Vec<u64> = stored.rows.iter().filter_map(|row| row.sample.response_ns()).collect();
    latencies.sort_unstable();
    assert!(latencies.len() > 100, "{}", shown(&output));
    assert!(latencies[0] >= 2_000_000, "answered after {} ns", latencies[0]);
    // At half load half of the requests find the server idle.
    assert!(latencies[latencies.len() * 9 / 10] > 2_500_000, "{latencies:?}");
}

/// A server that answers HTTP until so many requests have come, then does what `then` says.
fn turns(requests: usize, then: fn(&mut TcpStream)) -> u16 {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), served) = (stream, served.clone()) else { return };
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(n) = stream.read(&mut buffer) {
                    if n == 0 {
                        return;
                    }
                    if served.fetch_add(1, Ordering::Relaxed) >= requests {
                        return then(&mut stream);
                    }
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
                }
            });
        }
    });
    port
}

/// Whether a measurement's own client was so late that it kept nothing: other programs had the cores.
fn client_was_late(report: &Value) -> bool {
    const LATE_NS: u64 = 1_000_000;
    report["lateness_ns"]["percentiles"]["p99"].as_u64().is_some_and(|ns| ns > LATE_NS)
}

/// N/A with a word of what happened; whatever was sampled before is in the file.
fn misbehaves(test: &str, then: fn(&mut TcpStream), words: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.parquet");
    for _ in 0..3 {
        let report = misbehaving(&file, then, words);
        let stored = tailsight_measure::samples::read(&file).unwrap();
        if stored.rows.len() > 100 {
            return;
        }
        // Of what a late client measured nothing is kept.
        assert!(client_was_late(&report), "samples are kept: {}; {report:#}", stored.rows.len());
    }
    tailsight_testing::not_judged(test, "the client was late in three measurements, so that samples could not be kept");
}

/// Loads such a server; the report.
fn misbehaving(file: &Path, then: fn(&mut TcpStream), words: &[&str]) -> Value {
    let port = turns(1_500, then);
    let output = run(&[
        "load",
        &format!("http://127.0.0.1:{port}/"),
        "--json",
        "--rate",
        "1k",
        "--max-time",
        "7s",
        "--connections",
        "4",
        "-o",
        file.to_str().unwrap(),
    ]);
    let report = adds_up(&output);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    let text = report["verdict"].to_string() + &report["complaints"].to_string();
    assert!(words.iter().any(|w| text.contains(w)), "{words:?}: {text}");
    report
}

#[test]
fn a_server_that_closes_is_na() {
    let _cores = together();
    misbehaves("a_server_that_closes_is_na", |_| {}, &["no connection is left", "failed", "closed"]);
}

#[test]
fn a_server_that_stalls_is_na() {
    let _cores = together();
    misbehaves("a_server_that_stalls_is_na", |_| std::thread::sleep(Duration::from_secs(15)), &["stopped answering"]);
}

#[test]
fn a_server_that_answers_garbage_is_na() {
    let _cores = together();
    misbehaves(
        "a_server_that_answers_garbage_is_na",
        |s| drop(s.write_all(b"\x00\xff\x17 not http at all\r\n\r\n")),
        &["does not speak the protocol", "garbage"],
    );
}

#[test]
fn a_server_that_answers_half_is_na() {
    let _cores = together();
    misbehaves(
        "a_server_that_answers_half_is_na",
        |s| drop(s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\nhal")),
        &["closed", "no connection is left"],
    );
}

#[test]
fn what_is_wrong_from_the_start_is_an_error_that_says_so() {
    let _cores = together();
    let closed = tailsight_testing::free_port();
    let fails = |args: &[&str], code: i32, words: &[&str]| {
        let output = run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", shown(&output));
        words.iter().for_each(|w| assert!(stderr(&output).contains(w), "{args:?} must say {w:?}: {}", shown(&output)));
        assert!(output.stdout.is_empty(), "{}", shown(&output));
    };
    let refused = format!("redis://127.0.0.1:{closed}");
    fails(&["load", "redis://no-such-host.invalid", "--rate", "1k"], 1, &["cannot resolve", "no-such-host.invalid"]);
    fails(&["load", &refused, "--rate", "1k"], 1, &["cannot connect", "refused", "is the server running"]);
    fails(&["load", "h:1", "--rate", "1k"], 2, &["--protocol"]);
    fails(&["load", "ftp://h:1", "--rate", "1k"], 2, &["not a target", "memcached"]);
    fails(&["load", &refused], 2, &["--rate"]);
    fails(&["load", &refused, "--rate", "1k", "--closed", "2"], 2, &["cannot be used with"]);
    fails(&["load", &refused, "--closed", "2", "--arrivals", "fixed"], 2, &["cannot be used with"]);
    fails(&["load", &refused, "--rate", "0"], 2, &["rate"]);
    fails(
        &["load", &refused, "--rate", "1k", "--threads", "8", "--connections", "4"],
        2,
        &["connections must be 8 (one per thread) to 60000, got 4"],
    );
    fails(&["load", &refused, "--closed", "4", "--outstanding", "2"], 2, &["closed loop with 4 outstanding"]);
    fails(&["load", &refused, "--rate", "1k", "--cpus", "4095"], 2, &["may not use core 4095"]);
    fails(&["load", "redis+udp://127.0.0.1:1", "--rate", "1k"], 2, &["datagrams need request ids"]);
    fails(&["load", &refused, "--rate", "1k", "--max-time", "1s"], 2, &["2 s or more"]);
    fails(&["load", &refused, "--rate", "1k", "--protocol", "echo"], 2, &["remove one"]);
    fails(&["load", &refused, "--rate", "1k", "--server-name", "other"], 2, &["does not use TLS"]);
    fails(&["load", "rediss://127.0.0.1:1", "--rate", "1k", "--server-name", "a b"], 1, &["`a b`"]);
    fails(&["sweep", &refused, "--from", "5k", "--to", "1k"], 2, &["below --from"]);
    fails(&["sweep", &refused, "--slo", "p99"], 2, &["p99<1ms"]);
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let echo = format!("http://127.0.0.1:{}/", turns(usize::MAX, |_| {}));
    fails(&["load", &echo, "--replay", &write("unsorted", "1\n2\n1.5\n")], 1, &["line 3", "sort"]);
    fails(&["load", &echo, "--replay", &write("words", "1\nsoon\n")], 1, &["line 2", "`soon` is not a time"]);
    fails(&["load", &echo, "--replay", "/nonexistent"], 1, &["cannot be opened"]);
    fails(&["load", &echo, "--rate", "1k", "--against", &write("x.parquet", "no")], 1, &["not a Parquet file"]);
    fails(&["load", &echo, "--rate", "1k", "-o", "/nonexistent/x.parquet"], 1, &["cannot write"]);
}

#[test]
fn a_rate_that_nobody_reaches_is_na() {
    let _cores = together();
    // One connection with one outstanding request, and a server that takes 5 ms: 200 requests/s.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut buffer = [0; 4096];
            while stream.read(&mut buffer).is_ok_and(|n| n > 0) {
                std::thread::sleep(Duration::from_millis(5));
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
            }
        }
    });
    let output = load(&format!("http://127.0.0.1:{port}/"), &["--connections", "1"]);
    let report = adds_up(&output);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    let id = report["verdict"]["failed"]["id"].as_str().unwrap();
    assert!(["load", "open-loop"].contains(&id), "{}", report["verdict"]);
    assert!(report["response_ns"]["percentiles"].as_object().unwrap().values().all(serde_json::Value::is_null));
}

#[test]
fn ctrl_c_keeps_the_samples_and_gives_a_verdict() {
    let _cores = alone();
    let port = turns(usize::MAX, |_| {});
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.parquet");
    let mut command = tailsight(&[
        "load",
        &format!("http://127.0.0.1:{port}/"),
        "--json",
        "--rate",
        "500",
        "-o",
        file.to_str().unwrap(),
    ]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(3_000));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let report = adds_up(&output);
    assert_eq!(report["verdict"]["failed"]["id"], "interrupted", "{}", report["verdict"]);
    assert!(tailsight_measure::samples::read(&file).unwrap().rows.len() > 50, "{}", shown(&output));
}

#[test]
fn a_replay_is_sent_as_the_file_says() {
    let _cores = together();
    let port = turns(usize::MAX, |_| {});
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("times");
    let times: Vec<String> = (0..1_500).map(|i| format!("{:.6}", f64::from(i) * 0.001)).collect();
    std::fs::write(&file, times.join("\n")).unwrap();
    let output = run(&[
        "load",
        &format!("http://127.0.0.1:{port}/"),
        "--json",
        "--replay",
        file.to_str().unwrap(),
        "--max-time",
        "6s",
    ]);
    let report = adds_up(&output);
    assert_eq!(report["counts"]["intended"], 1_500, "{}", report["counts"]);
}

/// "interference tailsight 9.8 %" read as the recorder, and was the load.
#[test]
fn a_process_that_generates_load_has_a_name_of_its_own() {
    let _machine = together();
    // It accepts, and answers nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("echo://{}", silent.local_addr().unwrap());
    let rate = ["--rate", "100", "--max-time", "20s"];
    for (args, name) in [
        ([&["load", &target], &rate[..]].concat(), "tailsight-load"),
        (vec!["sweep", &target, "--from", "100", "--max-time", "20s"], "tailsight-sweep"),
        (vec!["agent", "--listen", "127.0.0.1:0"], "tailsight-agent"),
    ] {
        let mut command = tailsight(&args);
        let started = Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let comm = || std::fs::read_to_string(format!("/proc/{}/comm", started.0.id())).unwrap_or_default();
        let since = Instant::now();
        while comm().trim() != name {
            assert!(since.elapsed() < Duration::from_secs(2), "{args:?} is called {}", comm());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
