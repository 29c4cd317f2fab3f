//! `tailsight demo`: the whole product on this machine in a few seconds.
//!
//! Two network namespaces of our own, joined by a veth pair. In one, memcached and nginx share a core; from the other,
//! on another core, an open-loop load runs on both. Records memcached, diagnoses, writes the report. Everything but
//! the run and the report is removed at the end, also on Ctrl-C.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use tailsight_diagnose::Options;
use tailsight_lab::load::{self, Proto, Workload};
use tailsight_lab::netns::Pair;
use tailsight_lab::process::pin_thread;
use tailsight_lab::server::{MemcachedOpts, NginxOpts, Server};
use tailsight_record::Selector;
use tailsight_report::terminal::{diagnosis_of, record_summary};

use super::diagnose::not_available_or;
use crate::cli::Demo;
use crate::{Verdict, pipeline, stop, terminal};

/// The core that both servers share.
const SERVER_CPU: usize = 0;
/// The core that the load runs on.
const LOAD_CPU: usize = 1;
const MEMCACHED_PORT: u16 = 11211;
const NGINX_PORT: u16 = 8088;

/// Runs the demo.
pub fn run(args: &Demo) -> anyhow::Result<Verdict> {
    if !nix::unistd::geteuid().is_root() {
        anyhow::bail!("the demo needs root (it loads BPF programs and makes network namespaces): sudo tailsight demo");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        anyhow::bail!("the demo needs two cores, one for the servers and one for the load; this machine gives us {cores}");
    }
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let stop = stop::on_interrupt();

    eprintln!("starting memcached and nginx on core {SERVER_CPU}, a load on both from core {LOAD_CPU}");
    let pair = Pair::create("demo")?;
    let memcached = Server::memcached(&pair.server, MemcachedOpts { port: MEMCACHED_PORT, cpu: Some(SERVER_CPU), ..Default::default() })?;
    let _nginx = Server::nginx(&pair.server, NginxOpts { port: NGINX_PORT, cpu: Some(SERVER_CPU), ..Default::default() })?;
    let run = args.out.join("run");
    let options = tailsight_record::Options {
        selector: Selector::Pid(memcached.pid()),
        duration: Some(args.duration),
        out: run.clone(),
        buffer_bytes: None,
        hooks: Default::default(),
        version: env!("CARGO_PKG_VERSION").into(),
    };

    let enough = Arc::new(AtomicBool::new(false));
    let (recorded, loaded) = std::thread::scope(|scope| {
        let load = scope.spawn(|| run_load(&pair, args.duration + Duration::from_secs(20), &enough));
        // The first replies are the warm-up's: connections, caches.
        std::thread::sleep(Duration::from_millis(700));
        let mut progress = terminal::Recording::new(Some(args.duration));
        let recorded = tailsight_record::record(&options, &stop, &mut |p| progress.show(p));
        enough.store(true, Ordering::Relaxed);
        (recorded, load.join())
    });
    let outcome = recorded?;
    let workloads = loaded.map_err(|_| anyhow::anyhow!("the load stopped unexpectedly"))?.context("the load failed")?;
    for w in &workloads {
        let us = |p| w.percentile(p).map_or("N/A".into(), |ns| format!("{:.0} us", ns as f64 / 1e3));
        eprintln!("load: {} {:.0} requests/s, response time p50 {} p99 {}", w.name, w.received_per_s(), us(50.0), us(99.0));
    }
    if let Some(error) = &outcome.error {
        eprintln!("tailsight: {error}");
        return Ok(Verdict::Failed);
    }
    if stop.load(Ordering::Relaxed) {
        eprintln!("interrupted: servers, namespaces and load are gone; {} holds what was recorded", run.display());
        return Ok(Verdict::Failed);
    }

    let options = Options::default();
    let opened = pipeline::open(&run)?;
    let (diagnosis, causes) = match pipeline::diagnose(&opened, &options) {
        Ok(found) => found,
        Err(error) => return not_available_or(error.into()),
    };
    let style = terminal::style();
    terminal::print(&record_summary(&outcome.meta, &style))?;
    terminal::print("\n")?;
    terminal::print(&diagnosis_of(&diagnosis, Some(&opened.run.meta), &style))?;
    let page = args.out.join("report.html");
    std::fs::write(&page, pipeline::page(&opened, &diagnosis, &causes)).with_context(|| format!("cannot write {}", page.display()))?;
    terminal::print(&format!("\nReport: {}\n", page.display()))?;
    Ok(Verdict::Done)
}

/// Light queries to memcached, and enough to nginx that it often has the core when memcached wants it.
fn run_load(pair: &Pair, at_most: Duration, stop: &AtomicBool) -> anyhow::Result<Vec<load::Outcome>> {
    pair.client.enter_thread()?;
    pin_thread(LOAD_CPU)?;
    let to = |port| SocketAddr::from(([10, 77, 0, 1], port));
    let workloads = [
        Workload { name: "memcached".into(), ..Workload::new(Proto::Memcached, to(MEMCACHED_PORT)) }.rate(5_000.0).connections(8),
        Workload { name: "nginx".into(), ..Workload::new(Proto::Http1, to(NGINX_PORT)) }.rate(18_000.0).connections(32),
    ];
    Ok(load::run(&workloads, at_most, true, stop)?)
}
