//! `load` against servers that do harm ([`tailsight_testbed::hostile`]): it ends when it was told to, with a reason, in little memory;
//! and an agent's load ends with its lease, whatever its server does.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tailsight_testbed::hostile::{Behaviour, Hostile};
use tailsight_testbed::netns::{Pair, SERVER_V4, permitted};

use crate::agents_live::{Agent, token};
use crate::load_live::alone;
use crate::support::tailsight;

/// How long a load may take, and how much later it may end.
const MAX_TIME: Duration = Duration::from_secs(2);
const SLACK: Duration = Duration::from_secs(1);
/// When it is interrupted, and how soon it must end then.
const INTERRUPT: Duration = Duration::from_millis(900);
/// Memory beyond that of the same load on an ordinary server, KiB.
const MORE_KIB: i64 = 64 << 10;
/// Loads at one time.
const AT_ONCE: usize = 8;

fn here() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// How a load ended.
#[derive(Debug)]
struct End {
    behaviour: Behaviour,
    took: Duration,
    code: Option<i32>,
    /// Of the most memory that it had, KiB.
    peak_kib: i64,
    out: String,
    err: String,
}

/// The most memory that a process had so far, KiB. (What wait4 tells is also that of the process from which it was started, and so is
/// what this file tells for an instant: a parent is woken before the memory of its child is the new program's.)
fn peak_kib(pid: u32) -> Option<i64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    if !status.starts_with("Name:\ttailsight\n") {
        return None;
    }
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// Waits for a child, and kills it when it does not end until `limit`: its exit code, when it ended, and its most memory, KiB.
fn wait(child: &mut Child, began: Instant, limit: Duration) -> (Option<i32>, Duration, i64) {
    let mut peak = 0;
    loop {
        peak = peak_kib(child.id()).unwrap_or(0).max(peak);
        if let Some(status) = child.try_wait().unwrap() {
            return (status.code(), began.elapsed(), peak);
        }
        if began.elapsed() > limit {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn load(behaviour: Behaviour, max_time: Duration, interrupt: Option<Duration>) -> End {
    let server = Hostile::start(behaviour, here()).unwrap();
    let (mut out, mut err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let milliseconds = format!("{}ms", max_time.as_millis());
    let url = server.url();
    let arguments = ["load", &url, "--json", "--rate", "500", "--connections", "2", "--no-preload", "--insecure"];
    let more = ["--keys", "100", "--ci", "p50:30%", "--max-time", &milliseconds];
    let given: Vec<&str> = arguments.iter().chain(&more).copied().collect();
    let given: Vec<&str> = given.into_iter().filter(|a| *a != "--insecure" || url.starts_with("https")).collect();
    let mut command = tailsight(&given);
    command.stdout(Stdio::from(out.try_clone().unwrap())).stderr(Stdio::from(err.try_clone().unwrap()));
    let began = Instant::now();
    let mut child = command.spawn().unwrap();
    if let Some(after) = interrupt {
        std::thread::sleep(after);
        // SAFETY: the child has not been waited for, so the number is still its own.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    }
    let (code, took, peak_kib) = wait(&mut child, began, max_time + Duration::from_secs(8));
    let text = |file: &mut File| {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    };
    End { behaviour, took, code, peak_kib, out: text(&mut out), err: text(&mut err) }
}

/// What happened, as the load said it; what is missing in it.
fn said(end: &End) -> Result<String, String> {
    if end.err.contains("panicked") {
        return Err(format!("panicked: {}", end.err));
    }
    match end.code {
        Some(1) => {
            let line = end.err.lines().find(|line| line.starts_with("tailsight: ")).ok_or("exit 1 without a word")?;
            if line.len() > 40 { Ok(line.to_owned()) } else { Err(format!("says little: {line}")) }
        }
        Some(3) => {
            let report: serde_json::Value = serde_json::from_str(&end.out).map_err(|e| format!("no JSON: {e}"))?;
            let reason = report["verdict"]["reason"].as_str().filter(|reason| reason.len() > 10);
            reason.map(str::to_owned).ok_or_else(|| format!("N/A without a reason: {}", report["verdict"]))
        }
        // A server that ends connections between two requests, when by chance none is under way, has answered all of them.
        Some(0) if matches!(end.behaviour, Behaviour::MemcachedResets | Behaviour::MemcachedCloses) => {
            let report: serde_json::Value = serde_json::from_str(&end.out).map_err(|e| format!("no JSON: {e}"))?;
            let failed = report["checks"].as_array().into_iter().flatten().find(|check| check["id"] == "errors");
            let share = failed.and_then(|check| check["statistic"].as_f64()).ok_or("a number without its errors")?;
            if share <= 0.001 {
                Ok(format!("a number, with {share} of the requests failed"))
            } else {
                Err(report.to_string())
            }
        }
        code => Err(format!("exit {code:?}: {}", end.err)),
    }
}

/// What is not as it must be.
#[derive(Debug)]
enum Fault {
    /// It ended too late, or had too much memory, and all else was well.
    Limit(String),
    Wrong(String),
}

/// Runs all behaviours, several at a time, and gives those that were not as they must be.
fn table(run: impl Fn(Behaviour) -> Result<String, Fault> + Sync) -> (usize, Vec<String>) {
    let left: Mutex<VecDeque<Behaviour>> = Mutex::new(Behaviour::all().collect());
    let (limits, wrong) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let count = left.lock().unwrap().len();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(behaviour) = { left.lock().unwrap().pop_front() } {
                    match run(behaviour) {
                        Ok(words) => println!("{behaviour:?}: {words}"),
                        Err(Fault::Limit(words)) => {
                            println!("{behaviour:?}, beside others: {words}");
                            limits.lock().unwrap().push(behaviour);
                        }
                        Err(Fault::Wrong(words)) => wrong.lock().unwrap().push(format!("{behaviour:?}: {words}")),
                    }
                }
            });
        }
    });
    let mut failed = wrong.into_inner().unwrap();
    // Beside others on two cores one may be late by what they took, and once in some hundred times one had 90 MiB, which nothing
    // repeats: it is tried once more alone, and that counts. What a server makes grow grows alone as well.
    for behaviour in limits.into_inner().unwrap() {
        failed.extend(run(behaviour).err().map(|fault| format!("{behaviour:?}, alone: {fault:?}")));
    }
    (count, failed)
}

/// The most memory of a load on an ordinary server, KiB.
fn ordinary_kib() -> i64 {
    let ends = [Behaviour::HonestMemcached, Behaviour::HonestHttp2].map(|b| load(b, MAX_TIME, None));
    for end in &ends {
        assert!(matches!(end.code, Some(0 | 3)), "an ordinary server: {end:?}");
    }
    ends.iter().map(|end| end.peak_kib).min().unwrap()
}

fn judge(end: &End, latest: Duration, ordinary_kib: i64) -> Result<String, Fault> {
    let words = said(end).map_err(Fault::Wrong)?;
    let more = end.peak_kib - ordinary_kib;
    let figures = format!("{:.2} s, {more} KiB more; {words}", end.took.as_secs_f64());
    if more > MORE_KIB {
        Err(Fault::Limit(format!("too much memory: {figures}")))
    } else if end.took > latest {
        Err(Fault::Limit(format!("late: {figures}")))
    } else {
        Ok(figures)
    }
}

/// Regression: floods (memcached `END`, RESP pushes, HTTP 1xx, chunks) and answers without end kept a load for ever, and HTTP/2 floods
/// took gigabytes.
#[test]
fn whatever_the_server_does_a_load_ends_with_its_time_and_says_why() {
    let _cores = alone();
    let ordinary = ordinary_kib();
    let (count, failed) = table(|behaviour| judge(&load(behaviour, MAX_TIME, None), MAX_TIME + SLACK, ordinary));
    assert!(count >= 30 && failed.is_empty(), "{} of {count}:\n{}", failed.len(), failed.join("\n"));
}

/// Regression: the first Ctrl-C was not obeyed either.
#[test]
fn whatever_the_server_does_one_interrupt_ends_a_load() {
    let _cores = alone();
    let ordinary = ordinary_kib();
    let long = Duration::from_secs(30);
    let (count, failed) = table(|behaviour| {
        let end = load(behaviour, long, Some(INTERRUPT));
        judge(&end, INTERRUPT + SLACK, ordinary)
    });
    assert!(count >= 30 && failed.is_empty(), "{} of {count}:\n{}", failed.len(), failed.join("\n"));
}

/// Threads of a process by name.
fn threads(pid: u32, name: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.filter(|comm| comm.starts_with(name)).count()
}

/// How long an agent may send after its coordinator is gone.
const PROMISED: Duration = Duration::from_millis(2500);

/// Loads a server through an agent, kills the coordinator and waits until the agent sends nothing more: when its last request came;
/// what is wrong with it.
fn orphaned(behaviour: Behaviour, agent: &Agent, token: &str) -> Result<String, String> {
    let server = Hostile::start(behaviour, here()).unwrap();
    let url = server.url();
    let arguments = ["load", &url, "--json", "--rate", "500", "--connections", "4", "--no-preload", "--keys", "100"];
    let more = ["--max-time", "30s", "--agent", &agent.name, "--agent-token-file", token];
    let arguments: Vec<&str> = arguments.iter().chain(&more).copied().collect();
    let mut coordinator = tailsight(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    while server.bytes() < if behaviour == Behaviour::MemcachedSlowLoris { 1 } else { 100 } {
        assert!(since.elapsed() < Duration::from_secs(10), "{behaviour:?}: no load");
        std::thread::sleep(Duration::from_millis(5));
    }
    // A part of the reasons for which a load ends at once is over by then: a flood must be under way.
    std::thread::sleep(Duration::from_millis(700));
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    let gone_ns = tailsight_load::now_ns();
    // Until it sends nothing more: no thread of it is left, and none will begin but while it is prepared.
    let (since, longest) = (Instant::now(), PROMISED + Duration::from_millis(1200));
    let prepared = behaviour != Behaviour::MemcachedSlowLoris;
    while since.elapsed() < longest && !(prepared && threads(agent.process.0.id(), "load-") == 0) {
        std::thread::sleep(Duration::from_millis(20));
    }
    // What was on its way is there by then.
    std::thread::sleep(Duration::from_millis(200));
    let late = Duration::from_nanos(server.last_ns().saturating_sub(gone_ns));
    let left = threads(agent.process.0.id(), "load-");
    match (late <= PROMISED, left) {
        (true, 0) => Ok(format!("the last request came {late:?} after the coordinator was gone")),
        (false, _) => Err(format!("a request came {late:?} after the coordinator was gone")),
        (true, left) => Err(format!("{left} loading threads are left")),
    }
}

/// Regression: a thread that was stuck in a flood kept the watchdog waiting, and the load ran on when its coordinator was killed.
#[test]
fn no_request_leaves_an_agent_after_its_coordinator_is_gone() {
    let _cores = alone();
    let (_dir, token) = token();
    // An agent has one coordinator at a time; what is waited for here is time, so that several agents wait at once.
    let each_agents = [
        [Behaviour::HonestMemcached, Behaviour::MemcachedEndFlood, Behaviour::MemcachedStallLater],
        [Behaviour::RespPushFlood, Behaviour::MemcachedHalfCloseLater, Behaviour::Http1ChunkFlood],
        // The last one is killed while it is prepared.
        [Behaviour::MemcachedDeaf, Behaviour::Http2PingFlood, Behaviour::MemcachedSlowLoris],
    ];
    let try_again = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for behaviours in each_agents {
            let (try_again, token) = (&try_again, &token);
            scope.spawn(move || {
                let agent = Agent::start(token, &[]);
                for behaviour in behaviours {
                    match orphaned(behaviour, &agent, token) {
                        Ok(words) => println!("{behaviour:?}: {words}"),
                        Err(words) => {
                            println!("{behaviour:?}, beside others: {words}");
                            try_again.lock().unwrap().push(behaviour);
                        }
                    }
                }
            });
        }
    });
    // Floods of others take the cores: what was late beside them is tried once more alone, with an agent of its own, and that counts.
    for behaviour in try_again.into_inner().unwrap() {
        let words = orphaned(behaviour, &Agent::start(&token, &[]), &token);
        println!("{behaviour:?}, alone: {words:?}");
        assert!(words.is_ok(), "{behaviour:?}: {words:?}");
    }
}

/// Regression: a server in a container of the same host passed for one on another machine, and the client was told to poll.
#[test]
fn a_server_in_another_network_namespace_is_on_this_host() {
    if !permitted() {
        return tailsight_testing::skip("needs root for network namespaces");
    }
    let pair = Pair::create("here").unwrap();
    // An address that no other pair of namespaces has: tests beside this one have servers at the usual one.
    let address = format!("10.77.254.{}", 1 + std::process::id() % 250);
    let ip = |namespace: &str, words: &str| {
        let status = Command::new("ip").args(["-n", namespace]).args(words.split_whitespace()).status().unwrap();
        assert!(status.success(), "ip -n {namespace} {words}");
    };
    ip(pair.server.name(), &format!("address add {address}/32 dev lo"));
    ip(pair.client.name(), &format!("route add {address}/32 via {SERVER_V4}"));
    let is_here = || {
        let target: tailsight_load::Endpoint = format!("tcp://{address}:1").parse().unwrap();
        pair.client.run(|| target.is_here()).unwrap()
    };
    // A namespace without a process serves nobody.
    assert!(!is_here());
    let mut inside = pair.server.command("sleep").arg("30").spawn().unwrap();
    // It is inside once `ip` has become it, which other programs may delay.
    let until = Instant::now() + Duration::from_secs(10);
    let mut is_inside = is_here();
    while !is_inside && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
        is_inside = is_here();
    }
    inside.kill().unwrap();
    inside.wait().unwrap();
    assert!(is_inside);
}
