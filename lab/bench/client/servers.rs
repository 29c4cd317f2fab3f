//! The real servers that prices and lateness are measured against: memcached, nginx and Redis on core 0 in a namespace of
//! their own. In: nothing. Out: where they listen. They and their namespaces are gone when dropped.

use anyhow::{Context, bail};
use tailsight_lab::servers::TextProtocol;
use tailsight_testbed::netns::{Pair, SERVER_V4};
use tailsight_testbed::server::{MemcachedOpts, NginxOpts, RedisOpts, Server};

use super::run::present;
use super::tools::Tool;
use crate::rig::SERVER_CPU;

/// The servers of all cells. They come before the namespace, so that they end before it goes.
pub struct Servers {
    memcached: Server,
    nginx: Server,
    redis: Server,
    /// Their namespace and the clients'.
    pub pair: Pair,
}

impl Servers {
    /// Starts them and stores the keys.
    pub fn start() -> anyhow::Result<Self> {
        let pair = Pair::create("price")?;
        let cpu = Some(SERVER_CPU);
        let memcached = Server::memcached(&pair.server, MemcachedOpts { cpu, ..MemcachedOpts::default() })?;
        let nginx = Server::nginx(&pair.server, NginxOpts { cpu, ..NginxOpts::default() })?;
        let redis = Server::redis(&pair.server, RedisOpts { cpu, ..RedisOpts::default() })?;
        let servers = Self { memcached, nginx, redis, pair };
        servers.fill()?;
        Ok(servers)
    }

    /// The one that speaks it.
    pub fn of(&self, protocol: TextProtocol) -> &Server {
        match protocol {
            TextProtocol::Memcached => &self.memcached,
            TextProtocol::Http1 => &self.nginx,
            TextProtocol::Resp => &self.redis,
        }
    }

    /// Their processes.
    pub fn pids(&self) -> Vec<u32> {
        [&self.memcached, &self.nginx, &self.redis].into_iter().flat_map(Server::pids).collect()
    }

    /// Stores the keys that redis-benchmark reads, with values as long as the other tools': misses would be cheaper.
    fn fill(&self) -> anyhow::Result<()> {
        if present(Tool::RedisBenchmark).is_err() {
            return Ok(());
        }
        let mut command = self.pair.client.command("redis-benchmark");
        let (host, port) = (SERVER_V4.to_string(), self.redis.port().to_string());
        command.args([
            "-h", &host, "-p", &port, "-n", "200000", "-P", "16", "-c", "8", "-r", "10000", "-d", "32", "-t", "set",
            "-q",
        ]);
        let output = command.output().context("cannot run redis-benchmark")?;
        if !output.status.success() {
            bail!("redis-benchmark could not store its keys: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}
