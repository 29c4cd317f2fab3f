//! Records the golden runs: tiny real runs of unmodified servers in network namespaces of our own.
//! `golden TAILSIGHT OUT [NAME]`: the built `tailsight` binary, the folder that gets a run for each server, and the only run
//! to record again. Needs root.
//!
//! Every name of a task that is not the lab's own or the kernel's becomes `task-N`, sockets that are not the server's
//! are left out, and the kernel's build name goes: a run shows nothing else of the machine than its processor.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use tailsight_testbed::load::{self, Proto, Workload};
use tailsight_testbed::netns::{Pair, SERVER_V4, SERVER_V6};
use tailsight_testbed::published::{PublicNames, description};
use tailsight_testbed::server::{MemcachedOpts, NginxOpts, RedisOpts, Server};
use tailsight_trace::meta::State;
use tailsight_trace::{Event, Run, RunWriter};

/// How long is recorded.
const DURATION: &str = "150ms";

/// Starts a server in the pair's server namespace.
type Start = fn(&Pair) -> tailsight_testbed::Result<Server>;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(tailsight), Some(out)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: golden TAILSIGHT OUT [NAME]");
    };
    let only = arguments.next();
    let (tailsight, out) = (Path::new(&tailsight), Path::new(&out));
    let pair = Pair::create("golden")?;
    let workload = |name, proto, ip, port| {
        (name, Workload { pipeline_burst: 3, ..Workload::new(proto, SocketAddr::new(ip, port)) })
    };
    let runs: [(_, Start); 6] = [
        (workload("memcached-tcp", Proto::Memcached, SERVER_V4, 11211), |p| {
            Server::memcached(&p.server, MemcachedOpts { threads: 2, ..Default::default() })
        }),
        (workload("memcached-udp", Proto::MemcachedUdp, SERVER_V4, 11211), |p| {
            Server::memcached(&p.server, MemcachedOpts { udp: true, ..Default::default() })
        }),
        (workload("redis-ipv6", Proto::Resp, SERVER_V6, 6379), |p| {
            Server::redis(&p.server, RedisOpts { port: 6379, ..Default::default() })
        }),
        (workload("nginx-2-workers", Proto::Http1, SERVER_V4, 8088), |p| {
            Server::nginx(&p.server, NginxOpts { port: 8088, workers: 2, ..Default::default() })
        }),
        (workload("memcached-requests", Proto::Memcached, SERVER_V4, 11211), |p| {
            Server::memcached(&p.server, MemcachedOpts { threads: 2, ..Default::default() })
        }),
        (workload("redis-requests", Proto::Resp, SERVER_V4, 6379), |p| {
            Server::redis(&p.server, RedisOpts { port: 6379, ..Default::default() })
        }),
    ];
    let raw = tempfile::tempdir()?;
    for ((name, workload), start) in runs {
        if only.as_ref().is_some_and(|o| o != name) {
            continue;
        }
        // Those with requests keep payload.
        let protocol = name.ends_with("-requests").then(|| workload.proto.name());
        anyhow::ensure!(workload.addr.is_ipv4() || pair.has_ipv6(), "this machine has no IPv6, which {name} needs");
        let served = start(&pair)?;
        let run = raw.path().join(name);
        let args: Vec<&str> = protocol.into_iter().flat_map(|p| ["--protocol", p]).collect();
        record(tailsight, &pair, &served, workload.rate(1_500.0).connections(4), &run, &args)?;
        let port = served.port();
        drop(served);
        let events = publish(&run, &out.join(name), port)?;
        println!("{name}: {events} events");
    }
    Ok(())
}

/// Records the server while the load runs.
fn record(
    tailsight: &Path,
    pair: &Pair,
    server: &Server,
    workload: Workload,
    run: &Path,
    args: &[&str],
) -> anyhow::Result<()> {
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = std::thread::Builder::new().name("lab".into()).spawn_scoped(scope, || {
            pair.client.enter_thread()?;
            load::run(&[workload], Duration::from_secs(60), false, &enough)
        })?;
        // Connections and first replies are not what the run is about.
        std::thread::sleep(Duration::from_millis(500));
        let status = Command::new(tailsight)
            .args(["record", "-d", DURATION, "--buffer", "32M", "-p", &server.pid().to_string()])
            .args(args)
            .arg("-o")
            .arg(run)
            .stdout(Stdio::null())
            .status();
        enough.store(true, Ordering::Relaxed);
        load.join().map_err(|_| anyhow::anyhow!("the load stopped unexpectedly"))??;
        anyhow::ensure!(status.context("cannot start tailsight")?.success(), "the recording failed");
        Ok(())
    })
}

/// Writes the run again without the names of others. Returns how many events it has.
fn publish(raw: &Path, to: &Path, port: u16) -> anyhow::Result<usize> {
    let mut run = Run::open(raw)?;
    let cpus = run.events()?;
    anyhow::ensure!(run.partial.is_empty(), "the recording is not whole: {:?}", run.partial);
    let mut names = PublicNames::of(&run);
    for task in &mut run.tasks {
        task.comm = names.shown(&task.comm);
    }
    run.sockets.retain(|s| s.local_port == port);
    for socket in &mut run.sockets {
        socket.comm = names.shown(&socket.comm);
    }
    let mut meta = description(&run);
    meta.state = State::Recording;
    let mut writer = RunWriter::create(to, &meta)?;
    let mut count = 0;
    for cpu in &cpus {
        let events: Vec<Event> = cpu.events.iter().map(|event| names.in_event(event)).collect();
        count += events.len();
        writer.events(cpu.cpu, &events)?;
    }
    writer.tasks(&run.tasks)?;
    writer.sockets(&run.sockets)?;
    writer.clocks(&run.clocks)?;
    meta.state = State::Complete;
    writer.finish(&mut meta)?;
    Ok(count)
}
