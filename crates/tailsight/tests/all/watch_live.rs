//! `watch` beside real servers: a message that is slow becomes a run, the numbers of the kernel's programs are those of the run, and the first
//! cause is right.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tailsight_lifetime::{Analysis, Leg};
use tailsight_testbed::load::{Proto, Workload};
use tailsight_testbed::process::children_of;
use tailsight_testbed::server::{MemcachedOpts, NginxOpts, Server};
use tailsight_trace::Run;

use crate::schemas::holds;
use crate::support::{Live, address, check_run, run, shown, tailsight, wait_for};

const PORT: u16 = 21340;
/// Nothing of the machine itself holds a message up for so long, but where it is very busy.
const LIMIT_MS: u64 = 60;
/// A watcher that has written a run looks for the next slow message after this long at most, ns.
const END_OF_A_CAPTURE_NS: u64 = 200_000_000;
/// How long the server is stopped.
const STOP: Duration = Duration::from_millis(150);

fn memcached(live: &Live) -> Server {
    Server::memcached(&live.pair.server, MemcachedOpts { port: PORT, ..Default::default() }).unwrap()
}

/// A watcher and the lines that it has printed.
struct Watcher {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Watcher {
    /// Starts one, and waits until it watches.
    fn start(args: &[&str]) -> Watcher {
        let mut child = tailsight(&[&["watch", "--json"], args].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        let started: Value = serde_json::from_str(&first).unwrap_or_else(|e| panic!("{e}: {first:?}"));
        assert_eq!((started["event"].as_str(), started["schema"].as_u64()), (Some("started"), Some(1)));
        Watcher { child, lines }
    }

    /// Ends it by a signal; the lines that it has printed since its start.
    fn end(mut self) -> Vec<Value> {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT).unwrap();
        self.rest()
    }

    fn rest(&mut self) -> Vec<Value> {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let lines: Vec<Value> = rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.iter().for_each(|line| holds("watch", line));
        lines
    }
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// The message of a capture's run that has the latencies which the kernel's programs told, to the nanosecond.
fn told_message(capture: &Value) -> Option<usize> {
    let mut run = Run::open(Path::new(capture["run"].as_str().unwrap())).unwrap();
    let told = run.meta.capture.clone().unwrap();
    assert_eq!(
        (capture["total_ns"].as_u64(), capture["receive_ns"].as_u64()),
        (Some(told.total_ns), Some(told.receive_ns))
    );
    assert!(run.partial.is_empty() && run.meta.lost() == 0, "{:?}", run.partial);
    let analysis = Analysis::of(&mut run).unwrap();
    let is_told = |m: &&tailsight_lifetime::Message| {
        (m.latency(Leg::Receive), m.latency(Leg::Service)) == (Some(told.receive_ns), Some(told.service_ns))
    };
    analysis.lifetimes.messages.iter().position(|m| is_told(&m))
}

#[test]
fn a_server_that_is_stopped_is_captured_each_time_with_its_cause() {
    let Some(live) = Live::new("a_server_that_is_stopped_is_captured_each_time_with_its_cause") else { return };
    let server = memcached(&live);
    let out = live.path("watch");
    let (pid, when) = (server.pid().to_string(), format!("total > {LIMIT_MS}ms"));
    let load = Workload::new(Proto::Memcached, address(false, PORT)).rate(2_000.0);
    let ((stops, lines), _) = live.under_load(&[load], || {
        let watcher = Watcher::start(&["-p", &pid, "--when", &when, "-o", &out, "--every", "10ms", "--keep", "2s"]);
        std::thread::sleep(Duration::from_millis(1_500));
        let mut stops = vec![];
        for _ in 0..3 {
            let begin = now_ns();
            signal(server.pid(), Signal::SIGSTOP);
            std::thread::sleep(STOP);
            signal(server.pid(), Signal::SIGCONT);
            stops.push((begin, now_ns()));
            std::thread::sleep(Duration::from_millis(2_500));
        }
        (stops, watcher.end())
    });
    let captures: Vec<&Value> = lines.iter().filter(|line| line["event"] == "capture").collect();
    let mut judged = 0;
    for (begin, end) in stops {
        // On cores that are never free a run is written for seconds: slow messages of that time are only counted.
        let taken_until = |capture: &Value| {
            capture["unix_ns"].as_u64().unwrap() + capture["taken_ns"].as_u64().unwrap() + END_OF_A_CAPTURE_NS
        };
        if captures.iter().any(|c| c["unix_ns"].as_u64().unwrap() < begin && taken_until(c) > begin) {
            continue;
        }
        judged += 1;
        // Replied to right behind the stop.
        let of_stop = |capture: &&&Value| {
            let at = capture["unix_ns"].as_u64().unwrap();
            at > begin && at < end + 100_000_000
        };
        let Some(capture) = captures.iter().find(of_stop) else {
            panic!("no capture of {begin}..{end}: {captures:#?}")
        };
        let total_ms = capture["total_ns"].as_u64().unwrap() / 1_000_000;
        assert!((LIMIT_MS..=(end - begin) / 1_000_000 + 100).contains(&total_ms), "{capture:#}");
        // Where it was stopped while it served one, the others waited for that.
        let first = &capture["causes"][0];
        assert!(first["category"] == "stopped" || first["root"] == "stopped", "{capture:#}");
        assert!(first["share"].as_f64().unwrap() > 0.5, "{capture:#}");
        let path = capture["run"].as_str().unwrap();
        assert!(check_run(Path::new(path)).0 > 500, "{capture:#}");
        assert!(told_message(capture).is_some(), "no message has these latencies: {capture:#}");
        assert!(Path::new(path).join("diagnosis.json").exists());
    }
    if judged == 0 {
        let why = "each stop fell into the writing of another capture";
        return tailsight_testing::not_judged("a_server_that_is_stopped_is_captured_each_time_with_its_cause", why);
    }
    let ended = lines.last().unwrap();
    assert_eq!(ended["event"], "ended");
    assert!(ended["messages"].as_u64().unwrap() > 5_000, "{ended:#}");
    let output = run(&["watch", "--status", "-o", &out]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("stopped"), "{}", shown(&output));
}

/// A condition that no message meets captures nothing, and the folder is whole; the watcher ends with its target.
#[test]
fn nothing_is_captured_where_nothing_is_slow_and_the_watcher_ends_with_its_target() {
    let Some(live) = Live::new("nothing_is_captured_where_nothing_is_slow_and_the_watcher_ends_with_its_target") else {
        return;
    };
    let server = memcached(&live);
    let out = live.path("watch");
    let pid = server.pid().to_string();
    let load = Workload::new(Proto::Memcached, address(false, PORT)).rate(1_000.0);
    let (mut watcher, _) = live.under_load(&[load], || {
        let watcher = Watcher::start(&["-p", &pid, "--when", "total > 100s", "-o", &out]);
        let second = tailsight(&["watch", "-p", &pid, "-o", &out]).output().unwrap();
        assert!(second.status.code() == Some(1) && shown(&second).contains("another tailsight"), "{}", shown(&second));
        std::thread::sleep(Duration::from_secs(2));
        watcher
    });
    drop(server);
    let lines = watcher.rest();
    let [ended] = lines.as_slice() else { panic!("{lines:#?}") };
    assert!(ended["why"].as_str().unwrap().contains("exited"), "{ended:#}");
    assert_eq!((ended["captures"].as_u64(), ended["slow"].as_u64()), (Some(0), Some(0)));
    assert!(ended["messages"].as_u64().unwrap() > 500, "{ended:#}");
    assert_eq!(std::fs::read(Path::new(&out).join("captures.jsonl")).unwrap(), b"");
}

/// A worker that its parent starts while the parent is watched, as servers do after a reload or so many requests, was not known when its birth was
/// no longer in the buffers: all of the message's time was unexplained.
#[test]
fn a_worker_that_was_started_long_before_a_capture_is_the_target_s() {
    let Some(live) = Live::new("a_worker_that_was_started_long_before_a_capture_is_the_target_s") else { return };
    let server = Server::nginx(&live.pair.server, NginxOpts { port: PORT, ..Default::default() }).unwrap();
    let (out, pid, when) = (live.path("watch"), server.pid().to_string(), format!("total > {LIMIT_MS}ms"));
    let watcher = Watcher::start(&["-p", &pid, "--when", &when, "-o", &out, "--every", "10ms", "--keep", "500ms"]);
    let first = children_of(server.pid());
    signal(server.pid(), Signal::SIGHUP);
    let is_new = |pids: &Vec<u32>| !pids.is_empty() && pids.iter().all(|pid| !first.contains(pid));
    let workers = wait_for(|| Some(children_of(server.pid())).filter(is_new));
    // Longer than a capture reaches back.
    std::thread::sleep(Duration::from_secs(2));
    let load = Workload::new(Proto::Http1, address(false, PORT)).rate(1_000.0);
    let (lines, _) = live.under_load(&[load], || {
        std::thread::sleep(Duration::from_secs(1));
        workers.iter().for_each(|&worker| signal(worker, Signal::SIGSTOP));
        // Longer than that, too: a message that takes so long was not in its own capture.
        std::thread::sleep(Duration::from_millis(1_200));
        workers.iter().for_each(|&worker| signal(worker, Signal::SIGCONT));
        std::thread::sleep(Duration::from_millis(800));
        watcher.end()
    });
    let is_stopped = |cause: &Value| cause["category"] == "stopped" || cause["root"] == "stopped";
    let captures: Vec<&Value> = lines.iter().filter(|line| line["event"] == "capture").collect();
    let of_stop = captures.iter().find(|capture| is_stopped(&capture["causes"][0]));
    let capture = of_stop.unwrap_or_else(|| panic!("no capture names the stop: {lines:#?}"));
    assert!(capture["causes"][0]["share"].as_f64().unwrap() > 0.5, "{capture:#}");
    assert!(capture["began_before"] == false && told_message(capture).is_some(), "{capture:#}");
    assert!(capture["total_ns"].as_u64().unwrap() > 1_000_000_000, "{capture:#}");
}

/// Ctrl-C comes while the time behind a slow message is still recorded.
#[test]
fn a_slow_message_that_waits_for_its_capture_is_not_lost_on_ctrl_c() {
    let Some(live) = Live::new("a_slow_message_that_waits_for_its_capture_is_not_lost_on_ctrl_c") else { return };
    let server = memcached(&live);
    let (out, pid, when) = (live.path("watch"), server.pid().to_string(), format!("total > {LIMIT_MS}ms"));
    let load = Workload::new(Proto::Memcached, address(false, PORT)).rate(1_000.0);
    let (lines, _) = live.under_load(&[load], || {
        let watcher = Watcher::start(&["-p", &pid, "--when", &when, "-o", &out, "--after", "60s"]);
        std::thread::sleep(Duration::from_secs(1));
        signal(server.pid(), Signal::SIGSTOP);
        std::thread::sleep(STOP);
        signal(server.pid(), Signal::SIGCONT);
        std::thread::sleep(Duration::from_millis(500));
        watcher.end()
    });
    let [capture, ended] = lines.as_slice() else { panic!("{lines:#?}") };
    assert!(capture["total_ns"].as_u64().unwrap() > LIMIT_MS * 1_000_000, "{capture:#}");
    assert!(capture["causes"].as_array().is_some_and(|causes| !causes.is_empty()), "{capture:#}");
    assert_eq!(ended["captures"], 1, "{ended:#}");
}

/// What a scraper reads while a server is watched.
#[test]
fn metrics_are_served_while_a_server_is_watched() {
    let Some(live) = Live::new("metrics_are_served_while_a_server_is_watched") else { return };
    let server = memcached(&live);
    let (out, pid) = (live.path("watch"), server.pid().to_string());
    let load = Workload::new(Proto::Memcached, address(false, PORT)).rate(1_000.0);
    let address_of_metrics = "127.0.0.1:21341";
    live.under_load(&[load], || {
        let watcher =
            Watcher::start(&["-p", &pid, "-o", &out, "--when", "total > 100s", "--listen", address_of_metrics]);
        let get = |path: &str| {
            let mut stream = TcpStream::connect(address_of_metrics).unwrap();
            stream
                .write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
                .unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        let messages = |text: &str| {
            let line = text.lines().find(|line| {
                line.starts_with("tailsight_message_latency_seconds_count{target=\"memcached\",leg=\"total\"}")
            });
            line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let text = wait_for(|| Some(get("/metrics")).filter(|text| messages(text) > 100));
        assert!(text.starts_with("HTTP/1.1 200") && text.contains("application/openmetrics-text"), "{text}");
        assert!(text.trim_end().ends_with("# EOF"), "{text}");
        assert!(get("/").starts_with("HTTP/1.1 404"));
        let began = Instant::now();
        watcher.end();
        assert!(began.elapsed() < Duration::from_secs(60));
    });
}
