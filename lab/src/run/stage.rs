//! One run of a scenario: namespaces, application, load, faults, recording, diagnosis. In: a [`Scenario`]. Out: a
//! [`Take`]: the diagnosis, the client's own samples, the truth logs, and the run directory.
//!
//! The application is on core 0, the client, the faults beside it and the recorder are on core 1. Everything is noted in
//! the [`State`] before or as it is made, dies with us, and is bounded in time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::os::fd::AsFd;
use tailsight_lab::faults::Fault;
use tailsight_lab::probe::{self, Sample};
use tailsight_lab::truth::{Interval, TruthLog};
use tailsight_lab::wire::Stamps;
use tailsight_testbed::load::{self, LoadSummary, Proto, Workload};
use tailsight_testbed::netns::{Namespace, Pair, SERVER_V4};
use tailsight_testbed::process::{children_of, pin_thread, spawn_tied};
use tailsight_testbed::server::{MemcachedOpts, NginxOpts, PostgresOpts, Server, postgres_installed};
use tailsight_trace::Run;

use super::cgroup::{self, Place};
use super::modern;
use super::programs;
use super::scenario::{App, BEHIND_PORT, DEFAULT_LEG, Load, PORT, Program, Scenario, Step};
use super::state::State;
use super::stop::{Stop, installed};

/// What every run needs.
pub struct Lab {
    pub tailsight: PathBuf,
    pub program: PathBuf,
    pub duration: Duration,
    pub stop: Arc<AtomicBool>,
}

impl Lab {
    /// Fails if Ctrl-C was pressed; called between all steps.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// A fault program.
    fn fault(&self, fault: Fault, schedule: &str, strength: f64) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["fault", fault.name(), "--schedule", schedule, "--strength", &strength.to_string()]);
        command
    }
}

/// The application's core.
pub const SERVER_CPU: usize = 0;
/// The core of the client, of faults beside the application, and of the recorder.
pub const CLIENT_CPU: usize = 1;
/// Pages that nginx is asked for at once: about two milliseconds of CPU time, for which its neighbour waits.
const NGINX_BURST: usize = 64;
/// The port that a flood goes to.
const SINK_PORT: u16 = 7999;
/// How long a program of the lab may take to be ready.
const START: Duration = Duration::from_secs(20);
/// Everything of a run is over after this.
const LONGEST: Duration = Duration::from_secs(90);
/// How long load and faults run before the recorder is started.
const WARM: Duration = Duration::from_millis(250);

/// The result of a run.
pub struct Take {
    /// `tailsight diagnose --json`, when there was enough evidence.
    pub diagnosis: Option<serde_json::Value>,
    /// What diagnose said when there was not.
    pub said: String,
    /// The client's samples; empty when the client was [`load`].
    pub samples: Vec<Sample>,
    /// What other clients measured.
    pub outcomes: Vec<LoadSummary>,
    /// The truth logs, by the task that wrote them.
    pub truth: BTreeMap<String, Vec<Interval>>,
    /// The run directory.
    pub run: PathBuf,
    /// The lab's processes: this one, servers, faults, the recorder.
    pub ours: BTreeSet<u32>,
}

/// What is running for a scenario. Fields end in this order: what disturbs first, then clients, servers, namespaces.
struct Rig<'a> {
    lab: &'a Lab,
    children: Vec<Child>,
    client: Option<JoinHandle<anyhow::Result<Measured>>>,
    stop: Arc<AtomicBool>,
    real: Vec<Server>,
    pair: Arc<Pair>,
    folder: PathBuf,
    logs: BTreeMap<String, TruthLog>,
}

/// The result of the client thread.
type Measured = (Vec<Sample>, Vec<LoadSummary>);

impl Drop for Rig<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for child in &mut self.children {
            // SIGKILL also ends a stopped process.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(client) = self.client.take() {
            let _ = client.join();
        }
    }
}

/// Runs a scenario once in `folder`.
pub fn run(lab: &Lab, state: &mut State, scenario: &Scenario, seed: u64, folder: &Path) -> Result<Take, Stop> {
    let places = check(lab, scenario)?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let pair = Arc::new(Pair::create("run")?);
    let stop = Arc::new(AtomicBool::new(false));
    let mut rig = Rig {
        lab,
        children: Vec::new(),
        client: None,
        stop,
        real: Vec::new(),
        pair,
        folder: folder.to_owned(),
        logs: BTreeMap::new(),
    };
    rig.behind(state, scenario)?;
    let pid = rig.application(state, &scenario.app)?;
    rig.settings(state, scenario, &places, pid)?;
    rig.load(scenario, seed)?;
    rig.faults(state, scenario, pid)?;
    let (warm, duration) = scenario.reading.as_ref().map_or((WARM, lab.duration), |_| (modern::WARM, modern::DURATION));
    rig.rest(warm)?;
    let run = folder.join("run");
    rig.record(state, pid, &run, (!scenario.until_enough).then_some(duration))?;
    let (samples, outcomes) = rig.end()?;
    let truth = rig.truth()?;
    drop(rig);
    keep_samples(folder, &samples)?;
    let (diagnosis, said) = diagnose(lab, &run, scenario.leg, folder)?;
    // The recorder records in a process of its own.
    let recorder = Run::open(&run)?.meta.recorder.map(|recorder| recorder.pid);
    let ours = state.pids().chain([std::process::id()]).chain(recorder).collect();
    Ok(Take { diagnosis, said, samples, outcomes, truth, run, ours })
}

/// Writes the client's samples beside the truth logs, a line each in order of sending: with them a kept run can be judged
/// again. Times in CLOCK_MONOTONIC ns.
fn keep_samples(folder: &Path, samples: &[Sample]) -> anyhow::Result<()> {
    let file = folder.join("samples.csv");
    let mut text = String::from("id,connection,due,sent,received,began,ended,answered,service,flags\n");
    for (id, s) in samples.iter().enumerate() {
        let Stamps { received_ns, began_ns, ended_ns } = s.stamps;
        text += &format!(
            "{id},{},{},{},{received_ns},{began_ns},{ended_ns},{},{},{}\n",
            s.connection, s.due_ns, s.sent_ns, s.answered_ns, s.service_ns, s.flags
        );
    }
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// What the scenario needs and this machine may lack: control groups by controller.
fn check(lab: &Lab, scenario: &Scenario) -> Result<BTreeMap<&'static str, Place>, Stop> {
    lab.check()?;
    let mut places = BTreeMap::new();
    for step in &scenario.steps {
        let controller = match step {
            Step::Quota { .. } => "cpu",
            Step::MemoryLimit(_) => "memory",
            Step::Relay { .. } if !Path::new("/dev/net/tun").exists() => {
                return Err(Stop::NotRun("there is no /dev/net/tun to relay packets with".into()));
            }
            Step::Nginx(_) => {
                installed("nginx")?;
                continue;
            }
            Step::Firewall(_) => {
                installed("nft")?;
                continue;
            }
            Step::Backend(program) | Step::Client(program) => {
                programs::check(program)?;
                continue;
            }
            _ => continue,
        };
        places.insert(controller, cgroup::find(controller).map_err(Stop::NotRun)?);
    }
    match &scenario.app {
        App::Memcached => installed("memcached")?,
        App::Program(program) | App::Configured(program) => programs::check(program)?,
        App::Postgres { .. } => postgres_installed().map_err(|e| Stop::NotRun(e.to_string()))?,
        App::Own(_) => {}
    }
    Ok(places)
}

impl Rig<'_> {
    /// A truth log, made before its writer starts.
    fn log(&mut self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(format!("truth-{name}"));
        self.logs.insert(name.to_owned(), TruthLog::create(&path)?);
        Ok(path)
    }

    /// Starts a program of ours and waits for its `ready`; the error has what it said.
    fn start(&mut self, state: &mut State, mut command: Command, cpu: usize, name: &str) -> anyhow::Result<u32> {
        let words = self.folder.join(format!("{name}.stderr"));
        let stderr = File::create(&words).with_context(|| format!("cannot write {}", words.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = spawn_tied(command, Some(cpu), Signal::SIGKILL)?;
        let pid = child.id();
        let stdout = child.stdout.take();
        self.children.push(child);
        state.process(pid)?;
        let mut stdout = stdout.context("it has no stdout")?;
        let (mut line, deadline) = (Vec::new(), Instant::now() + START);
        while !line.contains(&b'\n') {
            self.lab.check()?;
            let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, PollTimeout::from(50_u16)).unwrap_or(0) > 0 {
                let mut buffer = [0; 64];
                let n = stdout.read(&mut buffer)?;
                if n == 0 {
                    let said = std::fs::read_to_string(&words).unwrap_or_default();
                    bail!("{name} did not start: {}", said.trim());
                }
                line.extend_from_slice(&buffer[..n]);
            } else if Instant::now() > deadline {
                bail!("{name} was not ready within {} s", START.as_secs());
            }
        }
        Ok(pid)
    }

    /// Starts the backend, which the application asks over the loopback device of its namespace.
    fn behind(&mut self, state: &mut State, scenario: &Scenario) -> anyhow::Result<()> {
        for step in &scenario.steps {
            if let Step::Backend(program) = step {
                ip(&["-n", self.pair.server.name(), "link", "set", "lo", "up"])?;
                let command = self.program(program, "backend", BEHIND_PORT, true)?;
                self.start(state, command, CLIENT_CPU, "backend")?;
            }
        }
        let stall = scenario.steps.iter().find_map(|s| if let Step::Behind(stall) = s { Some(*stall) } else { None });
        let Some(stall) = stall else { return Ok(()) };
        ip(&["-n", self.pair.server.name(), "link", "set", "lo", "up"])?;
        let mut command = self.pair.server.command(&self.lab.program);
        command.args(["serve", "backend", "--stall", stall, "--port", &BEHIND_PORT.to_string()]);
        command.arg("--truth").arg(self.log("lab-backend")?);
        self.start(state, command, CLIENT_CPU, "lab-backend").map(drop)
    }

    /// A program that says `ready`, built in a folder of its own, in the server's namespace or the client's. Its log is the run's if there is
    /// no other one.
    fn program(&self, program: &Program, name: &str, port: u16, at_server: bool) -> anyhow::Result<Command> {
        let folder = programs::build(program, &self.folder.join(name))?;
        let log = self.folder.join(programs::LOG);
        let ns = if at_server { &self.pair.server } else { &self.pair.client };
        let mut command = ns.command(Path::new(program.run[0]));
        command.current_dir(folder).args(&program.run[1..]).arg(port.to_string()).arg(log).arg(program.mode);
        Ok(command)
    }

    /// Starts a server of Debian's and waits until its port accepts.
    fn configured(&mut self, state: &mut State, program: &Program) -> anyhow::Result<u32> {
        let folder = programs::build(program, &self.folder)?;
        let words = self.folder.join("server.output");
        let file = || File::options().create(true).append(true).open(&words);
        let mut command = self.pair.server.command(Path::new(program.run[0]));
        command.current_dir(folder).args(&program.run[1..]).stdin(Stdio::null()).stdout(file()?).stderr(file()?);
        let child = spawn_tied(command, Some(SERVER_CPU), Signal::SIGKILL)?;
        let pid = child.id();
        self.children.push(child);
        state.process(pid)?;
        let (deadline, address) = (Instant::now() + START, SocketAddr::new(SERVER_V4, PORT));
        let accepts = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok();
        while !self.pair.server.run(accepts)? {
            let said = || std::fs::read_to_string(&words).unwrap_or_default();
            self.alive().with_context(|| format!("{} did not start: {}", program.run[0], said().trim()))?;
            if Instant::now() > deadline {
                bail!("{} did not accept within {} s", program.run[0], START.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // A worker does not end with its parent when that is killed.
        for worker in children_of(pid) {
            state.process(worker)?;
        }
        Ok(pid)
    }

    /// Starts what is recorded.
    fn application(&mut self, state: &mut State, app: &App) -> anyhow::Result<u32> {
        match app {
            App::Memcached => {
                let opts = MemcachedOpts { cpu: Some(SERVER_CPU), ..MemcachedOpts::default() };
                self.real(state, |ns| Server::memcached(ns, opts))
            }
            App::Postgres { settings, setup } => {
                let opts = PostgresOpts { port: PORT, cpu: Some(SERVER_CPU), settings, setup };
                self.real(state, |ns| Server::postgres(ns, opts))
            }
            App::Program(program) => {
                let folder = programs::build(program, &self.folder)?;
                let log = self.folder.join(programs::LOG);
                let [port, log] = [PORT.to_string(), log.display().to_string()];
                let mut command = self.pair.server.command(Path::new(program.run[0]));
                command.current_dir(folder).args(&program.run[1..]).args([&port, &log]).arg(program.mode);
                self.start(state, command, SERVER_CPU, "server")
            }
            App::Configured(program) => self.configured(state, program),
            App::Own(arguments) => {
                let mut command = self.pair.server.command(&self.lab.program);
                command.arg("serve").args(
                    arguments
                        .iter()
                        .map(|word| if word == "DIR" { self.folder.clone().into_os_string() } else { word.into() }),
                );
                command.args(["--port", &PORT.to_string()]).arg("--truth").arg(self.log("server")?);
                self.start(state, command, SERVER_CPU, "server")
            }
        }
    }

    /// Starts a real server; its workers are noted too.
    fn real(
        &mut self,
        state: &mut State,
        start: impl FnOnce(&Namespace) -> tailsight_testbed::Result<Server>,
    ) -> anyhow::Result<u32> {
        let server = start(&self.pair.server)?;
        for pid in server.pids() {
            state.process(pid)?;
        }
        let pid = server.pid();
        self.real.push(server);
        Ok(pid)
    }

    /// Makes the settings of a scenario, before there is any load.
    fn settings(
        &mut self,
        state: &mut State,
        scenario: &Scenario,
        places: &BTreeMap<&'static str, Place>,
        pid: u32,
    ) -> anyhow::Result<()> {
        for step in &scenario.steps {
            match step {
                Step::ReceiveOnServer => {
                    let mask = format!("{:x}", 1 << SERVER_CPU);
                    self.pair.server.write_sysfs("class/net/veth-s/queues/rx-0/rps_cpus", &mask)?;
                }
                Step::ThreadedNapi => threaded_napi(&self.pair)?,
                Step::Firewall(rules) => firewall(&self.pair.server, *rules)?,
                Step::Quota { quota_us, period_us } => {
                    let v2 = format!("{quota_us} {period_us}");
                    let settings = [
                        ["cpu.cfs_period_us".into(), "cpu.max".into(), period_us.to_string(), v2.clone()],
                        ["cpu.cfs_quota_us".into(), "cpu.max".into(), quota_us.to_string(), v2],
                    ];
                    cgroup::enter(state, &places["cpu"], &settings, pid)?;
                }
                Step::MemoryLimit(bytes) => {
                    let (file1, file2) = ("memory.limit_in_bytes", "memory.max");
                    let settings = [[file1.into(), file2.into(), bytes.to_string(), bytes.to_string()]];
                    cgroup::enter(state, &places["memory"], &settings, pid)?;
                }
                Step::Relay { part, delay_us } => {
                    let mut command = self.lab.fault(Fault::Relay, "always", *part);
                    if *delay_us > 0 {
                        command.args(["--delay", &format!("{delay_us}us")]);
                    }
                    let names = format!("{},{}", self.pair.client.name(), self.pair.server.name());
                    command.args(["--netns", &names]).arg("--truth").arg(self.log("lab-relay")?);
                    self.start(state, command, CLIENT_CPU, "lab-relay")?;
                    for (ns, device, address) in
                        [(&self.pair.server, "tun-s", "10.78.0.1/24"), (&self.pair.client, "tun-c", "10.78.0.2/24")]
                    {
                        ip(&["-n", ns.name(), "addr", "add", address, "dev", device])?;
                        ip(&["-n", ns.name(), "link", "set", device, "up"])?;
                    }
                }
                Step::Nginx(_) => {
                    let opts = NginxOpts { cpu: Some(SERVER_CPU), ..NginxOpts::default() };
                    self.real(state, |ns| Server::nginx(ns, opts))?;
                }
                Step::Behind(_) | Step::Backend(_) | Step::Client(_) | Step::Fault { .. } => {}
            }
        }
        Ok(())
    }

    /// Starts the client, on a thread of its own in the client's namespace.
    fn load(&mut self, scenario: &Scenario, seed: u64) -> anyhow::Result<()> {
        let (pair, stop) = (Arc::clone(&self.pair), Arc::clone(&self.stop));
        let pages =
            scenario.steps.iter().find_map(|step| if let Step::Nginx(rate) = step { Some(*rate) } else { None });
        let mut workloads = Vec::new();
        let (mut plan, mut streams) = (None, Vec::new());
        match &scenario.load {
            Load::Product(with) => {
                let relayed = scenario.steps.iter().any(|step| matches!(step, Step::Relay { .. }));
                let address = if relayed { std::net::Ipv4Addr::new(10, 78, 0, 1).into() } else { SERVER_V4 };
                streams = with.iter().map(|stream| stream.plan(SocketAddr::new(address, PORT), seed)).collect();
            }
            Load::Probe(with) => plan = Some(probe::Plan { seed, ..with.clone() }),
            Load::Gets(rate) => {
                let addr = SocketAddr::new(SERVER_V4, MemcachedOpts::default().port);
                workloads.push(Workload { seed, ..Workload::new(Proto::Memcached, addr).rate(*rate).connections(16) });
            }
        }
        if let Some(rate) = pages {
            let addr = SocketAddr::new(SERVER_V4, NginxOpts::default().port);
            let pages = Workload::new(Proto::Http1, addr).rate(rate).connections(16);
            workloads.push(Workload { seed, pipeline_burst: NGINX_BURST, ..pages });
        }
        let body = move || -> anyhow::Result<Measured> {
            pair.client.enter_thread()?;
            pin_thread(CLIENT_CPU)?;
            let mut samples = plan.map(|plan| probe::run(&plan, LONGEST, &stop)).transpose()?.unwrap_or_default();
            if !streams.is_empty() {
                samples = modern::load(streams, LONGEST, &stop)?;
            }
            let outcomes =
                if workloads.is_empty() { Vec::new() } else { load::run(&workloads, LONGEST / 3, false, &stop)? };
            Ok((samples, outcomes))
        };
        self.client = Some(std::thread::Builder::new().name("lab-client".into()).spawn(body)?);
        Ok(())
    }

    /// Starts the fault programs.
    fn faults(&mut self, state: &mut State, scenario: &Scenario, pid: u32) -> anyhow::Result<()> {
        for step in &scenario.steps {
            if let Step::Client(program) = step {
                let command = self.program(program, "client", PORT, false)?;
                self.start(state, command, CLIENT_CPU, "client")?;
            }
            let Step::Fault { fault, schedule, strength, on_server, task } = step else { continue };
            let name = task.map_or_else(|| fault.task(), str::to_owned);
            let mut command = self.lab.fault(*fault, schedule, *strength);
            command.args(["--task", &name, "--pid", &pid.to_string()]);
            match fault {
                Fault::Flood => {
                    let mut sink = self.pair.server.command(&self.lab.program);
                    sink.args(["serve", "sink", "--port", &SINK_PORT.to_string()]);
                    self.start(state, sink, CLIENT_CPU, "sink")?;
                    let addr = SocketAddr::new(SERVER_V4, SINK_PORT).to_string();
                    // The namespace's closure belongs to the command: made again from the client's side.
                    let mut flood = self.pair.client.command(&self.lab.program);
                    flood.args(command.get_args()).args(["--addr", &addr]);
                    command = flood;
                }
                Fault::RowLock => {
                    let server = self.real.first().context("there is no server whose row could be locked")?;
                    command.arg("--socket").arg(server.socket());
                }
                Fault::Migrator => {
                    command.args(["--cpu", &format!("{SERVER_CPU},{CLIENT_CPU}")]);
                }
                _ => {
                    command.args(["--cpu", &SERVER_CPU.to_string()]);
                }
            }
            command.arg("--truth").arg(self.log(&name)?);
            self.start(state, command, if *on_server { SERVER_CPU } else { CLIENT_CPU }, &name)?;
        }
        Ok(())
    }

    /// Waits, and notices a client or a fault that ended.
    fn rest(&mut self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.alive()?;
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Fails if a program ended that should still run: without it there is no fault.
    fn alive(&mut self) -> anyhow::Result<()> {
        self.lab.check()?;
        for child in &mut self.children {
            if let Some(status) = child.try_wait()? {
                bail!("a server or a fault ended by itself: {status}; see the .stderr files with --keep");
            }
        }
        if self.client.as_ref().is_some_and(JoinHandle::is_finished) {
            match self.client.take().map(JoinHandle::join) {
                Some(Ok(Err(error))) => return Err(error.context("the client failed")),
                _ => bail!("the client ended by itself"),
            }
        }
        Ok(())
    }

    /// Records for so long, or until the recorder has enough.
    fn record(&mut self, state: &mut State, pid: u32, run: &Path, duration: Option<Duration>) -> anyhow::Result<()> {
        let words = self.folder.join("record.stderr");
        let mut command = Command::new(&self.lab.tailsight);
        command.args(["record", "--pid", &pid.to_string(), "--out"]).arg(run);
        if let Some(duration) = duration {
            command.arg("--duration").arg(format!("{}ms", duration.as_millis()));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&words)?);
        let mut recorder = Recorder(spawn_tied(command, Some(CLIENT_CPU), Signal::SIGKILL)?);
        state.process(recorder.0.id())?;
        let deadline = Instant::now() + LONGEST / 2;
        loop {
            if let Some(status) = recorder.0.try_wait()? {
                if status.success() {
                    return Ok(());
                }
                let said = std::fs::read_to_string(&words).unwrap_or_default();
                bail!("tailsight record ended with {status}: {}", said.trim());
            }
            self.alive()?;
            if Instant::now() > deadline {
                bail!("tailsight record did not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the load and takes what it measured. Faults go on until the last reply is in.
    fn end(&mut self) -> anyhow::Result<Measured> {
        self.stop.store(true, Ordering::Relaxed);
        let client = self.client.take().context("the client is gone")?;
        client.join().map_err(|_| anyhow!("the client panicked"))?.context("the client failed")
    }

    /// What the truth logs hold.
    fn truth(&self) -> anyhow::Result<BTreeMap<String, Vec<Interval>>> {
        let own = self.logs.iter().map(|(name, log)| Ok((name.clone(), log.intervals()?)));
        let program = programs::log(&self.folder)?.map(|entries| Ok((programs::TASK.to_owned(), entries)));
        own.chain(program).collect()
    }
}

/// A recorder that is killed when it is no longer needed.
struct Recorder(Child);

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Names the causes, and writes the messages' stages (`messages.parquet`) into the run.
fn diagnose(lab: &Lab, run: &Path, leg: &str, folder: &Path) -> anyhow::Result<(Option<serde_json::Value>, String)> {
    lab.check()?;
    let tailsight = |arguments: &[&str]| {
        let mut command = Command::new(&lab.tailsight);
        command.args(arguments).arg(run).stdin(Stdio::null());
        command.output().context("cannot run tailsight")
    };
    let arguments: &[&str] =
        if leg == DEFAULT_LEG { &["diagnose", "--json"] } else { &["diagnose", "--json", "--leg", leg] };
    let output = tailsight(arguments)?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    std::fs::write(folder.join("diagnosis.json"), &output.stdout)?;
    let diagnosis = match output.status.code() {
        Some(0) => Some(serde_json::from_slice(&output.stdout).context("what diagnose printed is not JSON")?),
        Some(3) => None,
        _ => bail!("tailsight diagnose ended with {}: {said}", output.status),
    };
    let output = tailsight(&["export"])?;
    if !output.status.success() {
        bail!("tailsight export failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok((diagnosis, said))
}

/// Compares datagrams to the flood's port with this many rules of nftables, none of which matches. All other packets are
/// accepted at the first rule. The rules go with the namespace.
fn firewall(ns: &Namespace, rules: usize) -> anyhow::Result<()> {
    let mut text = String::from("table ip lab {\n chain long {\n  type filter hook prerouting priority 0;\n");
    text.push_str(&format!("  ip protocol != udp accept\n  udp dport != {SINK_PORT} accept\n"));
    // No client uses ports below 1024.
    (0..rules).for_each(|i| text.push_str(&format!("  udp sport {} drop\n", i % 1023 + 1)));
    text.push_str(" }\n}\n");
    let file = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    std::fs::write(file.path(), text)?;
    let output = ns.command("nft").arg("-f").arg(file.path()).output().context("cannot run nft")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("nft: {}", said.lines().next().unwrap_or_default());
    }
    Ok(())
}

/// Makes a kernel thread receive for the server's device, and puts it on the application's core.
fn threaded_napi(pair: &Pair) -> anyhow::Result<()> {
    // NAPI of a veth device is on with GRO, and its peer's packets go through it unless the peer segments them late.
    pair.client.run(|| ethtool("veth-c", ETHTOOL_STSO, 0))??;
    pair.server.run(|| ethtool("veth-s", ETHTOOL_SGRO, 1))??;
    pair.server.write_sysfs("class/net/veth-s/threaded", "1")?;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let (true, Some(pid)) = (name.starts_with("napi/veth-s-"), pid) {
            let mut set = nix::sched::CpuSet::new();
            set.set(SERVER_CPU)?;
            nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(pid), &set)
                .context("cannot pin the NAPI thread")?;
            return Ok(());
        }
    }
    bail!("the kernel made no NAPI thread for veth-s")
}

/// Generic receive offload and TCP segmentation offload (`include/uapi/linux/ethtool.h`).
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_STSO: u32 = 0x1f;

/// Switches a feature of a device, in the calling thread's namespace.
fn ethtool(device: &str, feature: u32, on: u32) -> anyhow::Result<()> {
    use std::os::fd::AsRawFd;
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    let mut value = [feature, on];
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    // SAFETY: `request` and the value that it points to live over the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } < 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("cannot switch feature {feature:#x} of {device}"));
    }
    Ok(())
}

/// Runs `ip`.
fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output().context("cannot run ip")?;
    if !output.status.success() {
        bail!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
