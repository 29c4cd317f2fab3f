//! Runs a load generator as a whole process. In: a command line, a namespace, a core. Out: what it printed and the CPU time
//! of all of its threads and processes. It is killed when it overruns, when the benchmark is interrupted, and when the
//! benchmark dies.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::Signal;
use tailsight_lab::servers::{Service, TextProtocol};
use tailsight_testbed::netns::Namespace;
use tailsight_testbed::process::spawn_tied;

use super::capture::{Capture, CapturedFrames};
use super::parse::Figures;
use super::tools::{Job, Shape, Tool};
use crate::Bench;
use crate::rig::{LOAD_CPU, Others, SERVER_CPU};
use crate::roundtrip::{QUIET, wait_for_quiet};
use crate::table::table;

/// How much longer than asked a tool may take: start, preload, computing.
const GRACE: Duration = Duration::from_secs(30);
/// The servers' interface in their namespace, see [`tailsight_testbed::netns::Pair`].
const SERVER_LINK: &str = "veth-s";
/// How often a run is made again.
const AGAIN: u32 = 2;

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Shot {
    /// The tool's figures.
    pub figures: Figures,
    /// CPU time of the whole process and its children, user and system, s.
    pub cpu_s: f64,
    /// Share of a core that other programs used meanwhile.
    pub others: f64,
    /// What arrived at the servers, where that was watched.
    pub seen: Option<CapturedFrames>,
}

impl Shot {
    /// CPU time a request, us.
    pub fn us_a_request(&self) -> f64 {
        self.cpu_s * 1e6 / (self.figures.requests.max(1)) as f64
    }
}

/// The runs of a table, and what is not in it.
pub struct Runs<'a> {
    bench: &'a Bench,
    clients: &'a Namespace,
    patience: &'a mut Duration,
    /// Clients, or clients at a load, that were not run, with the reason.
    pub not_run: BTreeMap<String, String>,
}

impl<'a> Runs<'a> {
    /// In the clients' namespace; all runs together wait for other programs no longer than `patience`.
    pub fn new(bench: &'a Bench, clients: &'a Namespace, patience: &'a mut Duration) -> Self {
        Self { bench, clients, patience, not_run: BTreeMap::new() }
    }

    /// Whether a tool is here; one that is not is listed.
    pub fn has(&mut self, tool: Tool) -> bool {
        present(tool).map_err(|why| self.not_run.insert(tool.name(), why)).is_ok()
    }

    /// A run in an empty folder.
    pub fn job<'j>(&self, addr: SocketAddr, shape: Shape) -> anyhow::Result<Job<'j>> {
        let job = Job::new(&self.bench.tailsight, &folder(self.bench)?, addr, shape);
        Ok(Job { seconds: if self.bench.quick { 2 } else { 3 }, ..job })
    }

    /// Runs a tool; one that fails at a place is left out there from then on, with its reason.
    pub fn shot(&mut self, place: &str, tool: Tool, job: &Job<'_>, servers: &[u32]) -> anyhow::Result<Option<Shot>> {
        if self.not_run.contains_key(place) {
            return Ok(None);
        }
        shoot(self.bench, self.clients, tool, job, servers, self.patience).map(Some).or_else(|error| {
            self.bench.check()?;
            eprintln!("bench: {place} is left out: {error:#}");
            self.not_run.insert(place.to_owned(), format!("{error:#}").replace('\n', " "));
            Ok(None)
        })
    }
}

/// What was not run, as a table; nothing when all was.
pub fn not_run_table<'a>(not_run: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let rows: Vec<_> = not_run.map(|(what, why)| vec![what.to_owned(), why.to_owned()]).collect();
    if rows.is_empty() { String::new() } else { format!("\nNot run:\n\n{}", table(&["client", "why"], rows)) }
}

/// An order that rotates from round to round, so that no tool always follows the same one.
pub fn turned(n: usize, round: u32) -> impl Iterator<Item = usize> {
    (0..n).map(move |i| (i + round as usize) % n)
}

/// Runs a tool in a namespace on the load's core; repeats it when other programs disturb it, and when it fails.
fn shoot(
    bench: &Bench,
    ns: &Namespace,
    tool: Tool,
    job: &Job<'_>,
    servers: &[u32],
    patience: &mut Duration,
) -> anyhow::Result<Shot> {
    let mut tried = 0;
    loop {
        wait_for_quiet(bench, patience, servers)?;
        let shot = match once(bench, ns, tool, job, servers) {
            Ok(shot) => shot,
            Err(error) => {
                bench.check()?;
                if tried >= AGAIN {
                    return Err(error);
                }
                eprintln!("bench: {error:#}; once more");
                tried += 1;
                continue;
            }
        };
        tried += 1;
        // A quick run shows that everything works; it has no time for a second try.
        if shot.others <= QUIET || bench.quick || tried > AGAIN || patience.is_zero() {
            return Ok(shot);
        }
        eprintln!("bench: other programs took {:.0} % of a core meanwhile, once more", 100.0 * shot.others);
    }
}

/// One run.
fn once(bench: &Bench, ns: &Namespace, tool: Tool, job: &Job<'_>, servers: &[u32]) -> anyhow::Result<Shot> {
    bench.check()?;
    let words = tool.command(job)?;
    let mut command = ns.command(&words[0]);
    let log = |name: &str| File::create(job.folder.join(name)).with_context(|| format!("cannot write {name}"));
    command.args(&words[1..]).current_dir(&job.folder).stdin(Stdio::null());
    command.stdout(log("stdout")?).stderr(log("stderr")?);
    let capture = job.watch.map(|ns| Capture::start(ns, SERVER_LINK, job.addr.port(), job.protocol)).transpose()?;
    let child = spawn_tied(command, Some(LOAD_CPU), Signal::SIGKILL)?;
    let ours: Vec<u32> = servers.iter().copied().chain([child.id()]).collect();
    let before = Others::now(&ours)?;
    let limit = Duration::from_secs(job.seconds.into()) + GRACE;
    let ended = wait(bench, child, limit).with_context(|| tool.name())?;
    let others = Others::now(&ours)?.since(&before)?;
    let captured = capture.map(Capture::finish).transpose()?;
    let read = |name: &str| std::fs::read(job.folder.join(name)).map(|b| String::from_utf8_lossy(&b).into_owned());
    let (stdout, stderr) = (read("stdout")?, read("stderr")?);
    let said = || {
        let text = [stdout.trim(), stderr.trim()].join(" ");
        text.chars().rev().take(300).collect::<Vec<_>>().into_iter().rev().collect::<String>()
    };
    match ended.code {
        Some(code) if tool.accepts(code) => {}
        code => bail!("{} ended with {code:?}: {}", tool.name(), said()),
    }
    let figures = tool.figures(job, &stdout).with_context(|| format!("{}: {}", words.join(" "), said()))?;
    if figures.requests == 0 {
        bail!("{} got no answer: {}", tool.name(), said());
    }
    Ok(Shot { figures, cpu_s: ended.cpu_s, others, seen: captured })
}

/// How a process ended.
struct Ended {
    code: Option<i32>,
    cpu_s: f64,
}

/// Waits for a process, with its resource usage; kills it after `limit`, and when Ctrl-C was pressed.
fn wait(bench: &Bench, mut child: Child, limit: Duration) -> anyhow::Result<Ended> {
    let deadline = Instant::now() + limit;
    let mut killed = None;
    loop {
        let mut status = 0;
        // SAFETY: all zeros is a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid for writing. The child was not waited for yet, so the pid is its own.
        let pid = unsafe { libc::wait4(child.id().cast_signed(), &raw mut status, libc::WNOHANG, &raw mut usage) };
        if pid < 0 {
            return Err(anyhow!(std::io::Error::last_os_error()).context("cannot wait for a load generator"));
        }
        if pid > 0 {
            if let Some(error) = killed {
                return Err(error);
            }
            let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
            let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
            return Ok(Ended { code, cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime) });
        }
        if killed.is_none() {
            let late = Instant::now() > deadline;
            let stopped = bench.check().err();
            if stopped.is_some() || late {
                // Waited for in the next turns, so that it is gone when this returns.
                let _ = child.kill();
                killed = Some(stopped.unwrap_or_else(|| anyhow!("not over after {} s", limit.as_secs())));
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One of the lab's ideal servers (`lab serve ideal`) on the servers' core. Killed and waited for when dropped.
pub struct Ideal {
    child: Child,
    /// Where it listens.
    pub port: u16,
}

impl Ideal {
    /// Starts one and waits until it listens.
    pub fn start(ns: &Namespace, protocol: TextProtocol, service: &str) -> anyhow::Result<Self> {
        service.parse::<Service>()?;
        let speak = match protocol {
            TextProtocol::Memcached => "memcached",
            TextProtocol::Resp => "resp",
            TextProtocol::Http1 => "http1",
        };
        let mut command = ns.command(std::env::current_exe().context("cannot find our own program")?);
        command.args(["serve", "ideal", "--port", "0", "--for", "30m", "--speak", speak, "--service", service]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = spawn_tied(command, Some(SERVER_CPU), Signal::SIGKILL)?;
        let mut server = Self { child, port: 0 };
        let mut word = Vec::new();
        let mut out = server.child.stdout.take().context("no stdout")?;
        let mut byte = [0];
        while out.read(&mut byte)? == 1 && byte[0] != b'\n' {
            word.push(byte[0]);
        }
        let word = String::from_utf8_lossy(&word).into_owned();
        let port = word.strip_prefix("ready ").and_then(|port| port.parse().ok());
        server.port = port.with_context(|| format!("`lab serve ideal` said `{word}`"))?;
        Ok(server)
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Ideal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a tool can be started here; else why not.
pub fn present(tool: Tool) -> Result<(), String> {
    if tool.is_ours() {
        return Ok(());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|folder| folder.join(tool.name()).is_file());
    if there { Ok(()) } else { Err(format!("{} is not installed ({})", tool.name(), tool.source())) }
}

/// An empty folder for a run.
pub fn folder(bench: &Bench) -> anyhow::Result<std::path::PathBuf> {
    let folder = bench.scratch.path().join("client");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// What a tool says about itself.
pub fn version(tool: Tool, tailsight: &Path) -> String {
    let program = if tool.is_ours() { tailsight.to_owned() } else { tool.name().into() };
    let Ok(output) = std::process::Command::new(program).arg(tool.version_flag()).output() else {
        return "not installed".to_owned();
    };
    // wrk says it with an exit code of 1 and a page of usage.
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("?");
    // vegeta has one only where its makers built it.
    if line.trim() == "Version:" {
        return "does not tell (built by `go install`)".to_owned();
    }
    line.split(" Copyright").next().unwrap_or(line).trim().to_owned()
}
