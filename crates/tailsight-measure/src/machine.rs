//! The client's machine while it measured: what advice depends on. In: /proc and the server's address. Out: [`Machine`].
//!
//! Times are CPU time in ns over all cores. What cannot be read is absent, never 0.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_host::proc::CpuTicks;
use tailsight_load::{Endpoint, allowed_cpus, now_ns, process_cpu_ns};

/// Where the client ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Cores on which the client may run; of agents, those of the smallest host.
    pub cores: usize,
    /// Whether the server has an address of this host, or a socket in its file system; absent where it was not looked at (agents).
    pub server_is_here: Option<bool>,
    /// Share of all cores' time that anybody ran while measuring.
    pub busy: Option<f64>,
    /// Of that share, what was not this process: the server, where it is here, and all other programs.
    pub others: Option<f64>,
    /// Share of all cores' time that a hypervisor gave to others.
    pub stolen: Option<f64>,
    /// Share of the time that some task waited for a core, over the last ten seconds (/proc/pressure/cpu).
    pub pressure: Option<f64>,
}

impl Machine {
    /// Client and server have so few cores together that one that polls takes the server's: fewer than two besides the client's
    /// threads.
    #[must_use]
    pub fn shares_cores(&self, threads: usize) -> bool {
        self.server_is_here == Some(true) && self.cores < threads + 2
    }
}

/// A look at the machine's clocks at the beginning, to be compared at the end.
#[derive(Debug, Clone, Copy)]
pub struct Before {
    wall_ns: u64,
    own_ns: u64,
    ticks: Option<CpuTicks>,
}

impl Before {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        let ticks = std::fs::read_to_string("/proc/stat").ok().and_then(|stat| CpuTicks::parse(&stat, None));
        Self { wall_ns: now_ns(), own_ns: process_cpu_ns(), ticks }
    }

    /// The machine from then until now, as a client of this server.
    #[must_use]
    pub fn until_now(&self, target: &Endpoint) -> Machine {
        let now = Self::now();
        let cores = allowed_cpus().len();
        let pressure = std::fs::read_to_string("/proc/pressure/cpu").ok().and_then(|text| pressure(&text));
        let mut machine = Machine { cores, server_is_here: Some(target.is_here()), pressure, ..Machine::default() };
        let (Some(from), Some(to)) = (self.ticks, now.ticks) else { return machine };
        let [busy, idle, stolen] = [(to.busy, from.busy), (to.idle, from.idle), (to.stolen, from.stolen)]
            .map(|(to, from)| to.saturating_sub(from) as f64);
        let total = busy + idle + stolen;
        if total > 0.0 {
            let host_cores = std::thread::available_parallelism().map_or(1, |n| n.get()).max(cores) as f64;
            let wall = (now.wall_ns - self.wall_ns).max(1) as f64 * host_cores;
            let own = (now.own_ns - self.own_ns) as f64 / wall;
            machine.busy = Some(busy / total);
            machine.others = Some((busy / total - own).max(0.0));
            machine.stolen = Some(stolen / total);
        }
        machine
    }
}

/// `some avg10=12.51 …` as a share. (procfs-core wants a line `full` too, which kernels before 5.13 do not have.)
fn pressure(text: &str) -> Option<f64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let percent: f64 = some.split_whitespace().find_map(|f| f.strip_prefix("avg10="))?.parse().ok()?;
    Some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read_as_they_are_written() {
        assert_eq!(pressure("some avg10=12.51 avg60=1.00 avg300=0 total=4\nfull avg10=0.00\n"), Some(0.1251));
        assert_eq!(pressure(""), None);
    }

    #[test]
    fn loopback_is_here_and_a_test_network_is_not() {
        let here = |text: &str| text.parse::<Endpoint>().unwrap().is_here();
        assert!(here("127.0.0.1:11211") && here("localhost:1") && here("unix:/run/x.sock"));
        // TEST-NET-1: nobody has it (RFC 5737).
        assert!(!here("192.0.2.1:80"));
    }

    #[test]
    fn a_process_that_works_shows_in_the_shares() {
        let before = Before::now();
        let until = now_ns() + 300_000_000;
        while now_ns() < until {}
        let machine = before.until_now(&"127.0.0.1:1".parse().unwrap());
        assert!(machine.cores >= 1 && machine.server_is_here == Some(true));
        for share in [machine.busy, machine.others, machine.stolen].into_iter().flatten() {
            assert!((0.0..=1.0).contains(&share), "{machine:?}");
        }
    }
}
