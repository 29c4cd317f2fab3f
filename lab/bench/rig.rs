//! The rig of every figure: memcached (and nginx) on core 0 in a namespace of their own, a client that spins on core 1 in
//! another. In: rates, durations. Out: outcomes of loads. Everything is gone when the rig is dropped.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Context;
use tailsight_host::proc::CpuTicks;
use tailsight_testbed::load::{self, Arrivals, LoadSummary, Proto, Workload};
use tailsight_testbed::netns::{Pair, SERVER_V4};
use tailsight_testbed::process::pin_thread;
use tailsight_testbed::server::{MemcachedOpts, NginxOpts, Server};

use crate::Bench;

/// The core of the servers.
pub const SERVER_CPU: usize = 0;
/// The core of the client.
pub const LOAD_CPU: usize = 1;
/// Connections of an open loop.
pub const CONNECTIONS: usize = 16;

/// Servers and namespaces. The servers come first, so that they end before their namespace goes.
pub struct Rig<'a> {
    pub memcached: Server,
    nginx: Option<Server>,
    pair: Pair,
    pub bench: &'a Bench,
}

/// The highest rate that one core serves.
#[derive(Debug, Clone, Copy)]
pub struct Peak {
    /// Requests a second.
    pub per_s: f64,
    /// Connections of the closed loop that reached it.
    pub connections: usize,
    /// How busy the server's core was meanwhile, 0 to 1.
    pub busy: f64,
}

impl<'a> Rig<'a> {
    /// Starts the servers.
    pub fn new(bench: &'a Bench, with_nginx: bool) -> anyhow::Result<Self> {
        bench.check()?;
        let pair = Pair::create("bench")?;
        let memcached =
            Server::memcached(&pair.server, MemcachedOpts { cpu: Some(SERVER_CPU), ..MemcachedOpts::default() })?;
        let nginx = with_nginx
            .then(|| Server::nginx(&pair.server, NginxOpts { cpu: Some(SERVER_CPU), ..NginxOpts::default() }))
            .transpose()?;
        Ok(Self { memcached, nginx, pair, bench })
    }

    /// `get`s to memcached with Poisson arrivals.
    pub fn gets(&self, per_s: f64, seed: u64) -> Workload {
        let workload = Workload::new(Proto::Memcached, SocketAddr::new(SERVER_V4, self.memcached.port()));
        Workload { seed, ..workload.rate(per_s).connections(CONNECTIONS) }
    }

    /// Pages from nginx with Poisson arrivals.
    pub fn pages(&self, per_s: f64, seed: u64) -> anyhow::Result<Workload> {
        let nginx = self.nginx.as_ref().context("this rig has no nginx")?;
        let workload = Workload::new(Proto::Http1, SocketAddr::new(SERVER_V4, nginx.port()));
        Ok(Workload { seed, ..workload.rate(per_s).connections(32) })
    }

    /// Runs a load from the client's core; fails when Ctrl-C ended it.
    pub fn load(&self, workloads: &[Workload], duration: Duration) -> anyhow::Result<Vec<LoadSummary>> {
        let outcomes = self.load_until(workloads, duration, &self.bench.stop)?;
        self.bench.check()?;
        Ok(outcomes)
    }

    /// Runs a load until `stop`, at most for `duration`.
    pub fn load_until(
        &self,
        workloads: &[Workload],
        duration: Duration,
        stop: &AtomicBool,
    ) -> anyhow::Result<Vec<LoadSummary>> {
        self.pair
            .client
            .run(|| {
                pin_thread(LOAD_CPU)?;
                load::run(workloads, duration, true, stop)
            })?
            .context("the load failed")
    }

    /// The highest rate that memcached serves on its core over as many connections as the open loops have, or fewer.
    pub fn peak(&self) -> anyhow::Result<Peak> {
        let mut best = Peak { per_s: 0.0, connections: 0, busy: 0.0 };
        let time = Duration::from_millis(if self.bench.quick { 400 } else { 1000 });
        for connections in [CONNECTIONS / 4, CONNECTIONS / 2, CONNECTIONS] {
            let mut workload = self.gets(1.0, 1).connections(connections);
            workload.arrivals = Arrivals::Closed(1);
            let before = cpu_ticks(Some(SERVER_CPU))?;
            let outcome = self.load(&[workload], time)?.remove(0);
            let busy = busy(before, cpu_ticks(Some(SERVER_CPU))?);
            if outcome.received_per_s() > best.per_s {
                best = Peak { per_s: outcome.received_per_s(), connections, busy };
            }
        }
        Ok(best)
    }
}

/// The time of a core since boot, or of all cores.
pub fn cpu_ticks(core: Option<usize>) -> anyhow::Result<CpuTicks> {
    let stat = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    CpuTicks::parse(&stat, core).context("/proc/stat does not have the core")
}

/// The share of the time from `before` until `after` in which the core was not idle.
pub fn busy(before: CpuTicks, after: CpuTicks) -> f64 {
    1.0 - (after.idle - before.idle) as f64 / ((after.all() - before.all()) as f64).max(1.0)
}

/// CPU time of other programs, and what the hypervisor took, at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Others {
    ticks: u64,
    at: Instant,
}

impl Others {
    /// Now: the time of every process and of its children that it has waited for (so that short-lived ones count), without
    /// this program, `ours`, and the kernel's threads, which often do a recorder's work (writing its file).
    pub fn now(ours: &[u32]) -> anyhow::Result<Self> {
        const KTHREADD: u32 = 2;
        let mut ticks = 0;
        for entry in std::fs::read_dir("/proc").context("cannot read /proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            if pid == std::process::id() || pid == KTHREADD || ours.contains(&pid) {
                continue;
            }
            let Some(stat) = tailsight_host::Stat::of_process(pid) else { continue };
            // Our recorder records in a child of the process that was started.
            if stat.parent().is_some_and(|parent| parent != KTHREADD && !ours.contains(&parent)) {
                // utime, stime, cutime, cstime.
                ticks += (14..=17).filter_map(|number| stat.field::<u64>(number)).sum::<u64>();
            }
        }
        Ok(Self { ticks, at: Instant::now() })
    }

    /// How much of one core they used since `before`, 0 and up.
    pub fn since(&self, before: &Self) -> anyhow::Result<f64> {
        let ticks_per_s = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)?.unwrap_or(100) as f64;
        let seconds = (self.at - before.at).as_secs_f64().max(1e-3);
        Ok(self.ticks.saturating_sub(before.ticks) as f64 / ticks_per_s / seconds)
    }
}

/// CLOCK_MONOTONIC, ns: the clock of recordings.
pub fn now_ns() -> anyhow::Result<u64> {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
