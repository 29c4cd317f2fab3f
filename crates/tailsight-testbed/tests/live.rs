//! Live tests: real memcached, redis-server and nginx in namespaces of our own, under half a second of load.
//! They need root; without it each is skipped by name. Servers that are not installed fail.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tailsight_testbed::Error;
use tailsight_testbed::load::{self, Arrivals, LoadSummary, Proto, Workload};
use tailsight_testbed::netns::{self, Namespace, Pair, SERVER_V4, SERVER_V6};
use tailsight_testbed::process::is_running;
use tailsight_testbed::server::{MemcachedOpts, NginxOpts, RedisOpts, Server};

const HALF: Duration = Duration::from_millis(500);

/// A pair, or `None` and a line that says why the test is skipped.
fn pair(test: &str) -> Option<Pair> {
    if let Some(reason) = tailsight_testing::lacks_networks() {
        tailsight_testing::skip_as(test, reason);
        return None;
    }
    Some(Pair::create("live").unwrap())
}

fn run(ns: &Namespace, workloads: &[Workload], spin: bool) -> Vec<LoadSummary> {
    let stop = AtomicBool::new(false);
    ns.run(|| load::run(workloads, HALF, spin, &stop)).unwrap().unwrap()
}

fn workload(proto: Proto, ip: IpAddr, port: u16) -> Workload {
    Workload::new(proto, SocketAddr::new(ip, port)).rate(2000.0)
}

/// Every request was answered well, and about as many were sent as the rate says.
fn assert_all_answered(outcome: &LoadSummary) {
    let summary = outcome.summary();
    assert!(outcome.received > 0, "{summary:?}");
    assert_eq!(outcome.sent, outcome.intended, "{summary:?}");
    assert_eq!(outcome.received, outcome.sent, "{summary:?}");
    assert_eq!((outcome.errors, outcome.unanswered), (0, 0), "{summary:?}");
    assert_eq!(outcome.samples_ns.len() as u64, outcome.received);
    assert!(outcome.samples_ns.is_sorted());
    // A round trip over a veth pair and through two schedulers takes more than a microsecond and less than a second.
    assert!(outcome.percentile(50.0).is_some_and(|p50| (1_000..1_000_000_000).contains(&p50)), "{summary:?}");
}

/// 2,000 requests/s for half a second: a Poisson count of mean 1000 is within 200 of it (6 sigma).
fn assert_rate_kept(outcome: &LoadSummary) {
    assert!((800..=1200).contains(&outcome.intended), "{:?}", outcome.summary());
}

#[test]
fn memcached_over_tcp_v4_and_v6_and_udp() {
    let Some(pair) = pair("memcached_over_tcp_v4_and_v6_and_udp") else {
        return;
    };
    let opts = MemcachedOpts { udp: true, threads: 2, ..Default::default() };
    let server = Server::memcached(&pair.server, opts).unwrap();
    let mut ips = vec![SERVER_V4];
    if pair.has_ipv6() {
        ips.push(SERVER_V6);
    }
    for ip in ips {
        let mut workloads =
            vec![workload(Proto::Memcached, ip, server.port()), workload(Proto::MemcachedUdp, ip, server.port())];
        // Replies of 4,000 bytes take three datagrams.
        workloads[1].value_size = 4000;
        for outcome in run(&pair.client, &workloads, false) {
            assert_all_answered(&outcome);
            assert_rate_kept(&outcome);
        }
    }
}

#[test]
fn redis_and_nginx_at_once() {
    let Some(pair) = pair("redis_and_nginx_at_once") else {
        return;
    };
    let redis = Server::redis(&pair.server, RedisOpts::default()).unwrap();
    let nginx = Server::nginx(&pair.server, NginxOpts { workers: 2, ..Default::default() }).unwrap();
    assert_eq!(nginx.pids().len(), 3, "a master and two workers");
    let ip = if pair.has_ipv6() { SERVER_V6 } else { SERVER_V4 };
    let mut workloads = vec![
        workload(Proto::Resp, ip, redis.port()),
        workload(Proto::Http1, ip, nginx.port()),
        workload(Proto::Http1, SERVER_V4, nginx.port()),
        workload(Proto::Resp, SERVER_V4, redis.port()),
    ];
    // Replies that are larger than a read, and values longer than the buffer of heads.
    workloads[2].path = "/file".into();
    workloads[2].rate_per_s = 200.0;
    workloads[3].name = "large".into();
    workloads[3].value_size = 50_000;
    workloads[3].rate_per_s = 200.0;
    let outcomes = run(&pair.client, &workloads, false);
    outcomes.iter().for_each(assert_all_answered);
    outcomes[..2].iter().for_each(assert_rate_kept);
}

#[test]
fn bursts_fixed_closed_and_spinning() {
    let Some(pair) = pair("bursts_fixed_closed_and_spinning") else {
        return;
    };
    let server = Server::memcached(&pair.server, MemcachedOpts::default()).unwrap();
    let base = workload(Proto::Memcached, SERVER_V4, server.port()).connections(3);
    let workloads = [
        Workload { name: "burst".into(), pipeline_burst: 20, ..base.clone() },
        Workload { name: "fixed".into(), arrivals: Arrivals::Fixed, ..base.clone() },
    ];
    let outcomes = run(&pair.client, &workloads, true);
    outcomes.iter().for_each(assert_all_answered);
    assert_eq!(outcomes[0].intended % 20, 0);
    // A fixed rate gives its number exactly: 1000 in half a second.
    assert_eq!(outcomes[1].intended, 1000);

    let closed = Workload { name: "closed".into(), arrivals: Arrivals::Closed(4), ..base };
    let outcomes = run(&pair.client, &[closed], false);
    outcomes.iter().for_each(assert_all_answered);
    assert!(outcomes[0].received > 1000, "{:?}", outcomes[0].summary());
}

#[test]
fn the_stop_flag_ends_the_load() {
    let Some(pair) = pair("the_stop_flag_ends_the_load") else {
        return;
    };
    let server = Server::redis(&pair.server, RedisOpts::default()).unwrap();
    let stop = AtomicBool::new(false);
    let workload = workload(Proto::Resp, SERVER_V4, server.port());
    let begin = Instant::now();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
        });
        pair.client.run(|| load::run(&[workload], Duration::from_secs(60), false, &stop))
    })
    .unwrap()
    .unwrap();
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_all_answered(&outcome[0]);
    assert!(outcome[0].duration_ns < 5_000_000_000);
}

#[test]
fn a_server_that_dies_under_load_is_an_error_and_not_a_hang() {
    let Some(pair) = pair("a_server_that_dies_under_load_is_an_error_and_not_a_hang") else {
        return;
    };
    let server = Server::memcached(&pair.server, MemcachedOpts::default()).unwrap();
    let workload = workload(Proto::Memcached, SERVER_V4, server.port());
    let stop = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Long enough to connect while other tests use both cores.
            std::thread::sleep(Duration::from_millis(1000));
            drop(server);
        });
        pair.client.run(|| load::run(&[workload], Duration::from_secs(30), false, &stop))
    })
    .unwrap()
    .unwrap_err();
    assert!(matches!(error, Error::ServerGone { connections: 8, .. }), "{error}");
}

#[test]
fn the_wrong_protocol_is_named() {
    let Some(pair) = pair("the_wrong_protocol_is_named") else {
        return;
    };
    let server = Server::redis(&pair.server, RedisOpts::default()).unwrap();
    let stop = AtomicBool::new(false);
    let workload = workload(Proto::Memcached, SERVER_V4, server.port());
    let error = pair.client.run(|| load::run(&[workload], HALF, false, &stop)).unwrap().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("10.77.0.1:6379") && text.contains("protocol"), "{text}");
}

#[test]
fn a_port_in_use_is_an_error() {
    let Some(pair) = pair("a_port_in_use_is_an_error") else {
        return;
    };
    let first = Server::memcached(&pair.server, MemcachedOpts::default()).unwrap();
    let opts = RedisOpts { port: first.port(), ..Default::default() };
    let error = Server::redis(&pair.server, opts).unwrap_err();
    assert!(error.to_string().contains("already listens"), "{error}");
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let Some(pair) = pair("a_server_that_cannot_start_says_why") else {
        return;
    };
    let opts = MemcachedOpts { threads: 0, ..Default::default() };
    let error = Server::memcached(&pair.server, opts).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("it ended with"), "{text}");
    assert!(text.contains("Number of threads"), "{text}");
}

#[test]
fn pinned_servers_run_where_they_were_told() {
    let Some(pair) = pair("pinned_servers_run_where_they_were_told") else {
        return;
    };
    let server = Server::nginx(&pair.server, NginxOpts { cpu: Some(0), ..Default::default() }).unwrap();
    for pid in server.pids() {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap();
        assert_eq!(allowed.trim(), "0", "pid {pid}");
    }
}

#[test]
fn nothing_is_left_after_drop() {
    let Some(pair) = pair("nothing_is_left_after_drop") else {
        return;
    };
    let names = [pair.server.name().to_owned(), pair.client.name().to_owned()];
    let servers = [
        Server::memcached(&pair.server, MemcachedOpts::default()).unwrap(),
        Server::redis(&pair.server, RedisOpts::default()).unwrap(),
        Server::nginx(&pair.server, NginxOpts { workers: 2, ..Default::default() }).unwrap(),
    ];
    let pids: Vec<u32> = servers.iter().flat_map(Server::pids).collect();
    assert_eq!(pids.len(), 5);
    assert!(pids.iter().all(|pid| is_running(*pid)));
    let listed = namespaces();
    assert!(names.iter().all(|name| listed.contains(name)), "{listed:?}");

    drop(servers);
    drop(pair);
    let left: Vec<&u32> = pids.iter().filter(|pid| is_running(**pid)).collect();
    assert!(left.is_empty(), "still running: {left:?}");
    let listed = namespaces();
    assert!(!names.iter().any(|name| listed.contains(name)), "{listed:?}");
}

#[test]
fn namespaces_of_a_dead_run_are_removed_and_no_others() {
    let Some(pair) = pair("namespaces_of_a_dead_run_are_removed_and_no_others") else {
        return;
    };
    // A pid that is certainly free: of a child that has ended and was waited for.
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let stale = format!("tailsight-{}-0-dead-s", child.id());
    let other = format!("tailsightother-{}", std::process::id());
    for name in [&stale, &other] {
        assert!(Command::new("ip").args(["netns", "add", name]).status().unwrap().success());
    }
    // Another test's `create` may have removed it first; it must be gone either way.
    netns::cleanup_stale().unwrap();
    let listed = namespaces();
    assert!(Command::new("ip").args(["netns", "del", &other]).status().unwrap().success());
    assert!(!listed.contains(&stale), "{listed:?}");
    assert!(listed.contains(&other), "{listed:?}");
    assert!(listed.contains(&pair.server.name().to_owned()), "{listed:?}");
}

/// Set in the copy of this test binary that is to be killed.
const VICTIM: &str = "TAILSIGHT_TESTBED_VICTIM";

#[test]
fn servers_die_with_a_killed_parent_and_its_namespaces_are_found() {
    let test = "servers_die_with_a_killed_parent_and_its_namespaces_are_found";
    let Some(pair) = pair(test) else { return };
    let memcached = MemcachedOpts::default();
    if std::env::var_os(VICTIM).is_some() {
        let servers = [
            Server::memcached(&pair.server, memcached).unwrap(),
            Server::nginx(&pair.server, NginxOpts::default()).unwrap(),
        ];
        let pids: Vec<String> = servers.iter().flat_map(Server::pids).map(|pid| pid.to_string()).collect();
        println!("\nvictim {} {}", pair.server.name(), pids.join(" "));
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = BufReader::new(victim.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("victim ").map(str::to_owned));
    victim.kill().unwrap();
    victim.wait().unwrap();
    let line = line.expect("the victim said nothing");
    let mut words = line.split(' ');
    let name = words.next().unwrap().to_owned();
    let pids: Vec<u32> = words.map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3, "{pids:?}");
    let deadline = Instant::now() + Duration::from_secs(5);
    while pids.iter().any(|pid| is_running(*pid)) {
        assert!(Instant::now() < deadline, "still running: {pids:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    netns::cleanup_stale().unwrap();
    assert!(!namespaces().contains(&name));
}

/// The names that `ip netns list` shows.
fn namespaces() -> Vec<String> {
    let output = Command::new("ip").args(["netns", "list"]).output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}
