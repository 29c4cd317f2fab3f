//! The demo's situation without the recording: memcached pinned to core 0, first alone and then sharing it with nginx,
//! loaded from core 1. In: nothing (root). Out: two tables of latency in us and how late the client itself was.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tailsight_testbed::load::{self, Arrivals, Proto, Workload};
use tailsight_testbed::netns::{Pair, SERVER_V4};
use tailsight_testbed::process::pin_thread;
use tailsight_testbed::server::{MemcachedOpts, NginxOpts, Server};

fn main() -> anyhow::Result<()> {
    let pair = Pair::create("example")?;
    let opts = MemcachedOpts { cpu: Some(0), ..Default::default() };
    let memcached = Server::memcached(&pair.server, opts)?;
    let nginx = Server::nginx(&pair.server, NginxOpts { cpu: Some(0), ..Default::default() })?;
    let gets = |rate| Workload::new(Proto::Memcached, SocketAddr::new(SERVER_V4, memcached.port())).rate(rate);
    let pages = |rate| Workload::new(Proto::Http1, SocketAddr::new(SERVER_V4, nginx.port())).rate(rate);
    let mut busy = pages(1.0);
    busy.arrivals = Arrivals::Closed(1);
    for (title, workloads) in [
        ("memcached alone, 20k/s", vec![gets(20_000.0)]),
        ("memcached 5k/s and nginx 10k/s on one core", vec![gets(5_000.0), pages(10_000.0)]),
        ("memcached 5k/s and nginx as fast as it can on one core", vec![gets(5_000.0), busy]),
    ] {
        for spin in [true, false] {
            println!("{title}, {}", if spin { "client spins" } else { "client sleeps" });
            let stop = AtomicBool::new(false);
            let outcomes = pair.client.run(|| {
                pin_thread(1)?;
                load::run(&workloads, Duration::from_secs(2), spin, &stop)
            })??;
            for outcome in outcomes {
                let us = |percent| outcome.percentile(percent).unwrap_or(0) as f64 / 1e3;
                println!(
                    "  {:<10} sent {:>6} received {:>6} p50 {:.1} p90 {:.1} p99 {:.1} p99.9 {:.1} max {:.1} us, sent late by {:.1} us (p99)",
                    outcome.name,
                    outcome.sent,
                    outcome.received,
                    us(50.0),
                    us(90.0),
                    us(99.0),
                    us(99.9),
                    us(100.0),
                    outcome.late_p99_ns.unwrap_or(0) as f64 / 1e3,
                );
            }
        }
    }
    Ok(())
}
