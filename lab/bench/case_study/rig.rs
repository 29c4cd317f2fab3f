//! memcached and nginx as a [`Config`] has them, in two namespaces of their own. In: a configuration, rates. Out: outcomes
//! of loads, a recording. Everything ends when the rig is dropped, and with us.
//!
//! The client is on core 1 and sleeps between requests, so that others can use that core too. It stands for another
//! machine, so it runs in real time in every configuration: what happens to the servers must not delay its clock.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use tailsight_testbed::load::{self, LoadSummary, Proto, Workload};
use tailsight_testbed::netns::{Pair, SERVER_V4};
use tailsight_testbed::process::{pin_thread, spawn_tied};
use tailsight_testbed::server::{MemcachedOpts, NginxOpts, Server};

use super::Study;
use super::decide::Config;

/// memcached's core when it has one of its own.
pub const SERVER_CPU: usize = 0;
/// The client's core.
pub const CLIENT_CPU: usize = 1;
/// The client's real-time priority, above that of a server.
const CLIENT_PRIORITY: i32 = 50;
/// memcached's port.
const PORT: u16 = 11211;
/// Load before a measurement or recording.
const WARM: Duration = Duration::from_millis(300);
/// Connections to each server.
const CONNECTIONS: usize = 16;
/// nginx's workers.
const WORKERS: usize = 2;
/// Requests for pages come in bursts of this many.
pub const PAGE_BURST: usize = 64;

/// The servers come first, so that they end before their namespace goes.
pub struct Rig<'a> {
    memcached: Server,
    nginx: Server,
    pair: Pair,
    study: &'a Study,
    /// The commands that made the configuration, with `MEMCACHED` and `NGINX` for the process ids.
    pub commands: Vec<String>,
}

impl<'a> Rig<'a> {
    /// Starts both servers and makes the configuration.
    pub fn new(study: &'a Study, config: &Config) -> anyhow::Result<Self> {
        study.check()?;
        let pair = Pair::create("case")?;
        let mut commands = Vec::new();
        let threads = 1 + config.more_threads;
        let opts = MemcachedOpts { port: PORT, threads, per_event: config.per_event, ..MemcachedOpts::default() };
        commands.push(format!("memcached {}", opts.args(true).join(" ")));
        let memcached = Server::memcached(&pair.server, opts)?;
        let nginx = Server::nginx(&pair.server, NginxOpts { workers: WORKERS, ..NginxOpts::default() })?;
        let mut rig = Self { memcached, nginx, pair, study, commands };
        rig.configure(config)?;
        Ok(rig)
    }

    /// Makes what is made by process id, and the link.
    fn configure(&mut self, config: &Config) -> anyhow::Result<()> {
        let memcached = self.memcached.pid();
        if config.apart {
            self.by_pid(&["taskset", "-acp", &SERVER_CPU.to_string()], memcached, "MEMCACHED")?;
            for pid in self.nginx.pids() {
                self.by_pid(&["taskset", "-acp", &other_cores(self.study.cores)], pid, "NGINX")?;
            }
        }
        if config.real_time {
            let in_time = self.by_pid(&["chrt", "-a", "-f", "-p", "1"], memcached, "MEMCACHED");
            if let Err(error) = in_time {
                eprintln!("bench: no real time here ({error:#}); the highest ordinary priority instead");
                for task in std::fs::read_dir(format!("/proc/{memcached}/task"))?.flatten() {
                    let task = task.file_name().to_string_lossy().parse().context("a task without a number")?;
                    self.by_pid(&["renice", "-n", "-20", "-p"], task, "MEMCACHED")?;
                }
            }
        }
        if config.steered {
            let mask = format!("{:x}", 1_u64 << CLIENT_CPU);
            for (ns, device) in [(&self.pair.server, "veth-s"), (&self.pair.client, "veth-c")] {
                let file = format!("class/net/{device}/queues/rx-0/rps_cpus");
                ns.write_sysfs(&file, &mask)?;
                self.commands.push(format!("echo {mask} > /sys/{file}"));
            }
        }
        Ok(())
    }

    /// Runs a command on a process that the study started.
    fn by_pid(&mut self, words: &[&str], pid: u32, name: &str) -> anyhow::Result<()> {
        let line = words.join(" ");
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(pid.to_string());
        output(command, &format!("run `{line} {pid}`"))?;
        let line = format!("{line} {name}");
        if !self.commands.contains(&line) {
            self.commands.push(line);
        }
        Ok(())
    }

    /// `get`s to memcached and pages from nginx: outcomes in this order.
    fn workloads(&self, seed: u64) -> [Workload; 2] {
        let gets = Workload::new(Proto::Memcached, SocketAddr::new(SERVER_V4, PORT));
        let pages = Workload::new(Proto::Http1, SocketAddr::new(SERVER_V4, self.nginx.port()));
        [
            Workload { seed, ..gets.rate(self.study.rate).connections(CONNECTIONS) },
            Workload {
                seed: seed.wrapping_add(1),
                pipeline_burst: PAGE_BURST,
                ..pages.rate(self.study.nginx_rate).connections(CONNECTIONS)
            },
        ]
    }

    /// Measures: [memcached, nginx]. Fails when Ctrl-C ended it.
    pub fn measure(&self, seed: u64, window: Duration) -> anyhow::Result<Vec<LoadSummary>> {
        let (warm, workloads) = (self.workloads(seed.wrapping_add(1000)), self.workloads(seed));
        let outcomes = self.pair.client.run(|| {
            become_client()?;
            load::run(&warm, WARM, false, &self.study.stop)?;
            anyhow::Ok(load::run(&workloads, window, false, &self.study.stop)?)
        })??;
        self.study.check()?;
        Ok(outcomes)
    }

    /// Records memcached for `time` under load into `run`.
    pub fn record(&self, seed: u64, time: Duration, run: &Path) -> anyhow::Result<()> {
        let (workloads, over) = (self.workloads(seed), AtomicBool::new(false));
        // Bounded even if no one stops it.
        let longest = time + Duration::from_secs(8);
        std::thread::scope(|scope| {
            let client = std::thread::Builder::new().name("lab-client".into()).spawn_scoped(scope, || {
                self.pair.client.enter_thread()?;
                become_client()?;
                anyhow::Ok(load::run(&workloads, longest, false, &over)?)
            })?;
            std::thread::sleep(WARM);
            let recorded = self.recorder(time, run);
            let under_load = !client.is_finished();
            over.store(true, Ordering::Relaxed);
            let loaded = client.join().map_err(|_| anyhow::anyhow!("the client panicked"))?;
            recorded?;
            loaded.context("the load failed")?;
            if !under_load {
                bail!("the load was over before the recording: tailsight took longer than {longest:?} to start");
            }
            Ok(())
        })
    }

    /// Runs `tailsight record` to its end.
    fn recorder(&self, time: Duration, run: &Path) -> anyhow::Result<()> {
        /// Killed when it is no longer needed.
        struct Recorder(Child);
        impl Drop for Recorder {
            fn drop(&mut self) {
                let _ = self.0.kill();
                let _ = self.0.wait();
            }
        }
        let words = run.with_extension("stderr");
        let mut command = Command::new(&self.study.tailsight);
        command.args(["record", "--pid", &self.memcached.pid().to_string(), "--duration"]);
        command.arg(format!("{}ms", time.as_millis())).arg("--out").arg(run);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&words)?);
        let mut recorder = Recorder(spawn_tied(command, Some(CLIENT_CPU), Signal::SIGKILL)?);
        let deadline = Instant::now() + time + Duration::from_secs(60);
        loop {
            if let Some(status) = recorder.0.try_wait()? {
                if status.success() {
                    return Ok(());
                }
                let said = std::fs::read_to_string(&words).unwrap_or_default();
                bail!("tailsight record ended with {status}: {}", said.trim());
            }
            self.study.check()?;
            if Instant::now() > deadline {
                bail!("tailsight record did not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Puts the calling thread on the client's core, with priority over all other tasks there.
pub fn become_client() -> anyhow::Result<()> {
    pin_thread(CLIENT_CPU)?;
    let parameters = libc::sched_param { sched_priority: CLIENT_PRIORITY };
    // SAFETY: `parameters` lives over the call; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } < 0 {
        let error = std::io::Error::last_os_error();
        // SAFETY: three integers; 0 is the calling thread.
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } < 0 {
            bail!("cannot give the client a priority: {error}");
        }
        eprintln!("bench: the client cannot run in real time ({error}); it has the highest ordinary priority");
    }
    Ok(())
}

/// The cores that are neither memcached's nor, where there are more than two, the client's, as taskset has them.
fn other_cores(cores: usize) -> String {
    let other_cores = (0..cores).filter(|cpu| *cpu != SERVER_CPU && (cores == 2 || *cpu != CLIENT_CPU));
    other_cores.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")
}

/// Runs a command; the error has what it said.
fn output(mut command: Command, what: &str) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot {what}"))?;
    if !output.status.success() {
        bail!("cannot {what}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::other_cores;

    #[test]
    fn nginx_gets_the_cores_that_are_left() {
        assert_eq!(other_cores(2), "1");
        assert_eq!(other_cores(4), "2,3");
    }
}
