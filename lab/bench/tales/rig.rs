//! One server of the paper, set up, under load and recorded, in namespaces of its own. In: an [`App`], a [`Setup`], a rate. Out:
//! what was served, and the run. Everything is gone when the rig is dropped, also when we are killed.
//!
//! A server of one core has core 0, and the client polls on core 1. A server of two cores shares core 1 with the client, as does a
//! background process that is moved there; the client then sleeps between requests and goes first, in real time. When the client sends is up to it: latencies count from when the
//! server's host received a request, and so does the ideal.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tailsight_host::Stat;
use tailsight_load::{Arrivals, Driver, Endpoint, Plan, Prepared, Protocol, Rate, Receive, Size, Wait, Workload};
use tailsight_measure::capacity::{ANSWERED, halve};
use tailsight_testbed::netns::{Pair, SERVER_V4};
use tailsight_testbed::process::{pin_thread, spawn_tied};
use tailsight_testbed::server::{MemcachedOpts, NginxOpts, Server};

use super::Tales;
use super::figure::{App, Place, Priority, Setup};
use crate::case_study::become_client;
use crate::rig::{LOAD_CPU, Others, SERVER_CPU, busy, cpu_ticks};

/// Connections (memcached: sockets of the client).
pub const CONNECTIONS: usize = 16;
/// The null-RPC server's port.
const PORT: u16 = 7000;
/// What the background process does: the lab's hog, 8 % of a core.
const BACKGROUND: [&str; 6] = ["fault", "hog", "--schedule", "4ms/50ms", "--for", "15m"];
/// The name of its task.
pub const BACKGROUND_TASK: &str = "lab-hog";
/// Load before anything is measured.
const WARM: Duration = Duration::from_millis(300);
/// Time for a recorder to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests a second between which the peak over datagrams is.
const PEAK_BETWEEN: (f64, f64) = (5e3, 3e5);
/// Loads look for it, each in the middle of what is left, until that is so narrow, or the recording is over.
const ENOUGH: f64 = 1.02;
const LOOKING: Duration = Duration::from_secs(12);
/// How long each of them warms up, and is measured, and what else it takes.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(300));
const OTHERWISE: Duration = Duration::from_millis(400);
/// How long before its end what is recorded is no longer measured.
const BESIDE: Duration = Duration::from_millis(100);
/// How long a process may take to stop.
const STOPS_IN: Duration = Duration::from_secs(2);
/// When a datagram of such a load is given up.
const LOST_AFTER_NS: u64 = 5_000_000;
/// Outstanding requests on each connection of a closed loop.
const OUTSTANDING: u32 = 4;

/// The result of a recorded load.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    /// Replies a second.
    pub per_s: f64,
    /// What other programs and the hypervisor used meanwhile, of one core.
    pub others: f64,
    /// How busy the server's core was (core 0), 0 to 1.
    pub busy: f64,
}

/// A server under load. Fields end in this order: what disturbs first, then the server, then its namespace.
pub struct Rig<'a> {
    background: Option<Own>,
    server: Program,
    pair: Pair,
    app: App,
    cores: usize,
    /// Processes of the server that get the same number of connections each; of a server that does not share them out, none.
    sharers: Vec<Pid>,
    tales: &'a Tales,
}

enum Program {
    Real(Server),
    Own(Own),
}

/// A program of the benchmark that is killed when it is no longer needed.
struct Own(Child);

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl<'a> Rig<'a> {
    /// Starts the server and sets it up.
    pub fn new(tales: &'a Tales, app: App, setup: &Setup) -> anyhow::Result<Self> {
        tales.check()?;
        let pair = Pair::create("tales")?;
        let cpu = (setup.cores() == 1).then_some(SERVER_CPU);
        let server = match app {
            App::NullRpc => {
                let mut command = pair.server.command(&tales.program);
                command.args(["serve", "rpc", "--port", &PORT.to_string()]);
                Program::Own(ready(command, cpu)?)
            }
            App::Memcached => {
                let opts = MemcachedOpts { udp: true, cpu, threads: setup.cores(), ..MemcachedOpts::default() };
                Program::Real(Server::memcached(&pair.server, opts)?)
            }
            App::Nginx => {
                let workers = if setup.worker_each { CONNECTIONS } else { setup.cores() };
                Program::Real(Server::nginx(&pair.server, NginxOpts { cpu, workers, ..NginxOpts::default() })?)
            }
        };
        let sharers = match &server {
            Program::Real(server) if app == App::Nginx && setup.cores() > 1 => server
                .pids()
                .into_iter()
                .filter(|&pid| pid != server.pid())
                .map(|pid| Pid::from_raw(pid.cast_signed()))
                .collect(),
            _ => vec![],
        };
        let mut rig = Self { background: None, server, pair, app, cores: setup.cores(), sharers, tales };
        // The client's own packets are received on its core, as on another machine.
        let mask = |cpu: usize| format!("{:x}", 1_u64 << cpu);
        rig.pair.client.write_sysfs("class/net/veth-c/queues/rx-0/rps_cpus", &mask(LOAD_CPU))?;
        if let Some(cpu) = core(setup.receive) {
            rig.pair.server.write_sysfs("class/net/veth-s/queues/rx-0/rps_cpus", &mask(cpu))?;
        }
        rig.schedule(setup.priority)?;
        if let Some(cpu) = core(setup.background) {
            let mut command = Command::new(&tales.program);
            command.args(BACKGROUND);
            rig.background = Some(ready(command, Some(cpu))?);
        }
        Ok(rig)
    }

    /// Stops the background process as long as the result lives.
    pub fn without_background(&self) -> anyhow::Result<Option<Stopped>> {
        self.background.as_ref().map(|own| Stopped::new(&Pid::from_raw(own.0.id().cast_signed()))).transpose()
    }

    /// What mitigations change: the policies and cores of the server's threads and of the background process, and the cores that
    /// receive packets for the server. Read from /proc and /sys, in an order that does not depend on the threads' ids.
    pub fn settings(&self) -> anyhow::Result<BTreeSet<String>> {
        let mut settings = BTreeSet::new();
        for pid in self.pids() {
            for task in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
                let read = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
                // A thread may have ended meanwhile.
                let Some((stat, status)) = read("stat").and_then(Stat::parse).zip(read("status")) else { continue };
                let number = |field: usize| stat.field::<i64>(field).unwrap_or(-1);
                let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("");
                let (policy, priority, cores) = (number(41), number(18), cores.trim());
                settings.insert(format!("process {pid}: policy {policy}, priority {priority}, cores {cores}"));
            }
        }
        let mask = self.pair.server.read_sysfs("class/net/veth-s/queues/rx-0/rps_cpus")?;
        settings.insert(format!("rps_cpus of veth-s: {mask}"));
        Ok(settings)
    }

    /// The server's process.
    fn pid(&self) -> u32 {
        match &self.server {
            Program::Real(server) => server.pid(),
            Program::Own(own) => own.0.id(),
        }
    }

    /// The server's processes and the benchmark's, which are not other programs.
    fn pids(&self) -> Vec<u32> {
        let mut pids = match &self.server {
            Program::Real(server) => server.pids(),
            Program::Own(own) => vec![own.0.id()],
        };
        pids.extend(self.background.as_ref().map(|own| own.0.id()));
        pids
    }

    /// Gives every thread of the server its priority; threads that it starts later have it from those.
    fn schedule(&self, priority: Priority) -> anyhow::Result<()> {
        let words: &[&str] = match priority {
            Priority::Default => return Ok(()),
            Priority::Nice => &["renice", "-n", "-20", "-p"],
            Priority::RealTime => &["chrt", "-f", "-p", "1"],
        };
        for pid in self.pids() {
            for task in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
                let mut command = Command::new(words[0]);
                command.args(&words[1..]).arg(task.file_name()).stdin(Stdio::null());
                let output = command.output().with_context(|| format!("cannot run {}", words[0]))?;
                if !output.status.success() {
                    bail!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
                }
            }
        }
        Ok(())
    }

    /// The paper's requests to this server.
    fn plan(&self, arrivals: Arrivals, per_s: f64, seed: u64, time: Duration) -> Plan {
        let (target, protocol, workload) = match self.app {
            App::NullRpc => {
                let size = Workload { value_size: Size::Fixed(128), ..Workload::default() };
                (Endpoint::Tcp(SocketAddr::new(SERVER_V4, PORT).to_string()), Protocol::Echo, size)
            }
            App::Memcached => {
                let keys = Workload {
                    key_size: Size::Fixed(64),
                    value_size: Size::Fixed(1024),
                    sets: 0.1,
                    ..Workload::default()
                };
                let address = SocketAddr::new(SERVER_V4, MemcachedOpts::default().port);
                (Endpoint::Udp(address.to_string()), Protocol::MemcachedText, keys)
            }
            App::Nginx => {
                let address = SocketAddr::new(SERVER_V4, NginxOpts::default().port);
                let page = Workload { path: "/page".into(), ..Workload::default() };
                (Endpoint::Tcp(address.to_string()), Protocol::Http1, page)
            }
        };
        let mut plan = Plan::new(target, protocol);
        plan.workload = workload;
        plan.outstanding = match arrivals {
            Arrivals::Closed(n) => n,
            _ => 1024,
        };
        plan.arrivals = arrivals;
        plan.rate = Rate::Constant(per_s);
        plan.seed = seed;
        plan.duration_ns = Some(time.as_nanos() as u64);
        plan.connections = CONNECTIONS as u32;
        plan.wait = if self.client_first() { Wait::Sleep } else { Wait::Spin };
        plan.receive = Receive::Eager;
        plan.stamps = false;
        plan.pin = false;
        plan.max_samples = 1;
        plan.max_sends = 1;
        plan.task = "lab-client".to_owned();
        plan
    }

    /// The most that the server serves, recorded into `run`: in a closed loop for `time` or, over datagrams, of which some may be lost,
    /// as the peak of open loops.
    pub fn saturate(&self, time: Duration, run: &Path) -> anyhow::Result<Served> {
        match self.app {
            App::Memcached => self.peak(run),
            App::NullRpc | App::Nginx => {
                self.recorded(&self.plan(Arrivals::Closed(OUTSTANDING), 1.0, 1, Duration::from_secs(30)), time, run)
            }
        }
    }

    /// Looks for the rate above which the server answers less than it is asked. Far above it, its core takes in more packets than it
    /// answers and serves less than it can; that is not its peak.
    fn peak(&self, run: &Path) -> anyhow::Result<Served> {
        let mut most = Served { per_s: 0.0, others: 0.0, busy: 0.0 };
        // Of the loads that were not answered in full: only those could have been more without other programs.
        let mut others = Vec::new();
        self.recording(LOOKING, run, |recorder| {
            let began = Instant::now();
            let mut failed: Option<(f64, f64)> = None;
            halve([PEAK_BETWEEN.0, PEAK_BETWEEN.1], ENOUGH, |rate| {
                if began.elapsed() + LOOK.0 + LOOK.1 + OTHERWISE > LOOKING {
                    return Ok(None);
                }
                let mut plan = self.plan(Arrivals::FIXED, rate, 1, Duration::from_secs(30));
                plan.lost_after_ns = LOST_AFTER_NS;
                // What the load before left in the server's socket may delay the first replies for too long.
                let drivers = self.start(&plan).or_else(|_| self.start(&plan))?;
                std::thread::sleep(LOOK.0);
                let served = self.served(&drivers, recorder, LOOK.1)?;
                drivers.into_iter().for_each(|driver| drop(driver.stop()));
                if served.per_s > most.per_s {
                    most = served;
                }
                let answered = served.per_s >= rate * ANSWERED;
                match failed {
                    Some((before, least)) if before == rate && !answered => others.push(least.min(served.others)),
                    _ => failed = (!answered).then_some((rate, served.others)),
                }
                anyhow::Ok(Some(answered))
            })
        })?;
        let n = others.len().max(1) as f64;
        Ok(Served { others: others.iter().sum::<f64>() / n, ..most })
    }

    /// Poisson arrivals, recorded into `run` for `time`.
    pub fn load(&self, per_s: f64, seed: u64, time: Duration, run: &Path) -> anyhow::Result<Served> {
        self.recorded(&self.plan(Arrivals::EXPONENTIAL, per_s, seed, Duration::from_secs(30)), time, run)
    }

    /// The load, connected. nginx gives a new connection to the worker that was idle last, so that one of two often has all of them: they
    /// are connected in two parts, while the other worker is stopped, and are balanced as in the paper.
    fn connected(&self, plan: &Plan) -> anyhow::Result<Vec<Prepared>> {
        if self.sharers.is_empty() {
            return Ok(vec![Driver::prepare(plan.clone())?]);
        }
        let n = self.sharers.len();
        let mut parts = vec![];
        for (i, sharer) in self.sharers.iter().enumerate() {
            let others: Vec<Stopped> =
                self.sharers.iter().filter(|pid| *pid != sharer).map(Stopped::new).collect::<Result<_, _>>()?;
            let mut part = plan.clone();
            part.connections = (CONNECTIONS / n) as u32;
            part.seed = plan.seed + 1_000 * i as u64;
            if let Rate::Constant(per_s) = plan.rate {
                part.rate = Rate::Constant(per_s / n as f64);
            }
            parts.push(Driver::prepare(part)?);
            // Until it has accepted what is connected.
            std::thread::sleep(Duration::from_millis(50));
            drop(others);
        }
        Ok(parts)
    }

    /// Runs the load from before the recording begins until after it has ended.
    fn recorded(&self, plan: &Plan, time: Duration, run: &Path) -> anyhow::Result<Served> {
        let drivers = self.start(plan)?;
        std::thread::sleep(WARM);
        let served =
            self.recording(time, run, |recorder| self.served(&drivers, recorder, time.saturating_sub(BESIDE)))?;
        drivers.into_iter().for_each(|driver| drop(driver.stop()));
        Ok(served)
    }

    /// Whether the client shares its core, with the server or the background process.
    fn client_first(&self) -> bool {
        self.cores > 1 || self.tales.client_first
    }

    /// Starts a load.
    fn start(&self, plan: &Plan) -> anyhow::Result<Vec<Driver>> {
        let prepared = self.pair.client.run(|| {
            if self.client_first() {
                become_client()?;
            } else {
                pin_thread(LOAD_CPU)?;
            }
            self.connected(plan)
        })??;
        Ok(prepared.into_iter().map(|part| part.go(0)).collect())
    }

    /// What is served in `time`, while `recorder` records.
    fn served(&self, drivers: &[Driver], recorder: u32, time: Duration) -> anyhow::Result<Served> {
        let answered = || drivers.iter().map(|driver| driver.progress().answered).sum::<u64>();
        let ours = [self.pids(), vec![recorder]].concat();
        let (began, replies) = (Instant::now(), answered());
        let (others, stolen, before) = (Others::now(&ours)?, stolen_s()?, cpu_ticks(Some(SERVER_CPU))?);
        std::thread::sleep(time.saturating_sub(began.elapsed()));
        let (passed, replies) = (began.elapsed().as_secs_f64(), answered() - replies);
        let stolen = (stolen_s()? - stolen) / passed;
        let others = Others::now(&ours)?.since(&others)? + stolen;
        let busy = busy(before, cpu_ticks(Some(SERVER_CPU))?);
        if drivers.iter().any(|driver| driver.progress().ended) {
            bail!("the load ended by itself");
        }
        Ok(Served { per_s: replies as f64 / passed, others, busy })
    }

    /// Records the server for `time`; meanwhile does something with the recorder's process id, which takes less.
    fn recording<T>(
        &self,
        time: Duration,
        run: &Path,
        meanwhile: impl FnOnce(u32) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let _ = std::fs::remove_dir_all(run);
        let mut command = self.tales.command("record");
        command.args(["--pid", &self.pid().to_string(), "--duration", &format!("{}ms", time.as_millis())]);
        command.arg("--out").arg(run).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut recorder = Own(spawn_tied(command, None, Signal::SIGKILL)?);
        let words = recorder.0.stderr.take().context("the recorder's stderr")?;
        let mut said = Vec::new();
        let mut lines = BufReader::new(words).lines();
        let began = loop {
            match lines.next() {
                Some(Ok(line)) if line.contains("recording for") => break Instant::now(),
                Some(Ok(line)) => said.push(line),
                _ => bail!("tailsight record did not begin: {}", said.join("; ")),
            }
        };
        let done = meanwhile(recorder.0.id())?;
        let deadline = began + time + PATIENCE;
        let status = loop {
            if let Some(status) = recorder.0.try_wait()? {
                break status;
            }
            self.tales.check()?;
            if Instant::now() > deadline {
                bail!("tailsight record did not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        said.extend(lines.map_while(Result::ok));
        if !status.success() {
            bail!("tailsight record ended with {status}: {}", said.join("; "));
        }
        Ok(done)
    }
}

/// A process of ours that is stopped as long as this lives.
pub struct Stopped(Pid);

impl Stopped {
    fn new(pid: &Pid) -> anyhow::Result<Self> {
        kill(*pid, Signal::SIGSTOP).with_context(|| format!("cannot stop process {pid}"))?;
        let stopped = Self(*pid);
        // Until it has taken the signal it still waits for connections, and a connection that wakes it wakes no other worker.
        let began = Instant::now();
        while !matches!(Stat::of_process(pid.as_raw().cast_unsigned()).and_then(|stat| stat.state()), Some('T')) {
            if began.elapsed() > STOPS_IN {
                bail!("process {pid} did not stop in {} s", STOPS_IN.as_secs());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// Stolen time of all cores since boot, s.
fn stolen_s() -> anyhow::Result<f64> {
    let ticks_per_s = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)?.unwrap_or(100) as f64;
    Ok(cpu_ticks(None)?.stolen as f64 / ticks_per_s)
}

/// The core of a place.
fn core(place: Place) -> Option<usize> {
    match place {
        Place::Absent => None,
        Place::ServerCore => Some(SERVER_CPU),
        Place::OtherCore => Some(LOAD_CPU),
    }
}

/// Starts a program of ours and waits until it says that it is ready.
fn ready(mut command: Command, cpu: Option<usize>) -> anyhow::Result<Own> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut own = Own(spawn_tied(command, cpu, Signal::SIGKILL)?);
    let out = own.0.stdout.take().context("the program's stdout")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    if !line.starts_with("ready") {
        bail!("a program of ours did not begin; it said `{}`", line.trim());
    }
    Ok(own)
}
