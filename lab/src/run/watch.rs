//! `lab watch`: does `tailsight watch` capture what makes a server slow at random moments, and is its first cause right?
//!
//! In: how many faults. Out: a row each: what was done, whether it was captured, the first cause; and how often both were so. The server is the lab's
//! (`lab serve spiky`), in a namespace of its own; the truth is what this process did and when. Other captures are listed: the machine's own doing, or
//! ours.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use tailsight_testbed::load::{self, Proto, Workload};
use tailsight_testbed::netns::{self, Pair};
use tailsight_testbed::process::spawn_tied;
use tailsight_units::parse;

use super::state::State;
use super::{Lab, begin, cgroup};

/// `lab watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Faults, each of the five kinds in turn.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    faults: u32,
    /// From one to the next, half of it and as much again at random.
    #[arg(long, value_parser = parse::duration, default_value = "12s")]
    apart: Duration,
    /// Keep the captures here.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// The seed of the moments.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The binary of tailsight [default: beside this one].
    #[arg(long, value_name = "FILE")]
    tailsight: Option<PathBuf>,
}

const PORT: u16 = 7600;
const SERVER_CPU: usize = 0;
const CLIENT_CPU: usize = 1;
/// What is slow: several times what the machine itself does to a request, and half of what a fault does.
const LIMIT_MS: u64 = 40;
const FAULT: Duration = Duration::from_millis(90);
/// A capture is of a fault when its slow message was answered from the fault's begin until so long after its end, ns.
const AFTER_NS: u64 = 250_000_000;

/// What is done to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hog,
    Stop,
    Fsync,
    Quota,
    Lock,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Hog, Kind::Stop, Kind::Fsync, Kind::Quota, Kind::Lock];

    /// Whether the first cause of a capture is this fault's.
    fn is_named_by(self, cause: &Value) -> bool {
        let is = |category: &str| cause["category"] == category;
        let words =
            format!("{} {}", cause["words"].as_str().unwrap_or_default(), cause["root"].as_str().unwrap_or_default());
        match self {
            Kind::Hog => is("interference") && words.contains("lab-intruder"),
            Kind::Stop => is("stopped") || cause["root"].as_str().is_some_and(|root| root.starts_with("stopped")),
            Kind::Fsync => is("disk-wait") || words.contains("fsync"),
            Kind::Quota => is("throttled") || words.contains("quota"),
            Kind::Lock => is("lock-wait") && words.contains("lab-compactor"),
        }
    }
}

/// What was done, and when, ns since 1970; and how long it kept a request waiting, where the server knows.
struct Done {
    kind: Kind,
    from_ns: u64,
    to_ns: u64,
    ms: Option<u64>,
}

/// The server and what is done to it.
struct Bench<'a> {
    lab: &'a Lab,
    pair: &'a Pair,
    server: &'a Child,
    orders: BufReader<UnixStream>,
    group: PathBuf,
}

/// Runs the proof.
pub fn run(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    let (lab, mut state) = begin(args.tailsight.as_deref(), Duration::ZERO)?;
    let result = prove(args, &lab, &mut state);
    state.undo(true)?;
    result
}

fn prove(args: &WatchArgs, lab: &Lab, state: &mut State) -> anyhow::Result<ExitCode> {
    let folder = tempfile::tempdir_in(std::env::current_dir()?).context("cannot make a folder")?;
    let out = args.keep.clone().unwrap_or_else(|| folder.path().join("watch"));
    let pair = Pair::create("watch")?;
    let orders = folder.path().join("orders");
    let mut server = spawn_tied(serve_command(lab, &pair, &orders, args), Some(SERVER_CPU), Signal::SIGKILL)?;
    state.process(server.id())?;
    let mut ready = String::new();
    BufReader::new(server.stdout.take().context("no output")?).read_line(&mut ready)?;
    let place = cgroup::find("cpu").map_err(|why| anyhow::anyhow!(why))?;
    cgroup::enter(state, &place, &[], server.id())?;
    let (cgroup::Place::V1(parent) | cgroup::Place::V2(parent)) = &place;
    let group = parent.join(format!("tailsight-lab-{}-{}", std::process::id(), server.id()));
    let mut watcher = Command::new(&lab.tailsight)
        .args([
            "watch",
            "--json",
            "-p",
            &server.id().to_string(),
            "--when",
            &format!("total > {LIMIT_MS}ms"),
            "--every",
            "1s",
            "--per-hour",
            "3600",
        ])
        .args(["--keep", "3s", "-o"])
        .arg(&out)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the watcher")?;
    let mut lines = BufReader::new(watcher.stdout.take().context("no output")?).lines();
    lines.next().context("the watcher said nothing")??;

    let orders = BufReader::new(UnixStream::connect(&orders).context("the server's orders")?);
    let mut bench = Bench { lab, pair: &pair, server: &server, orders, group };
    let done = under_load(&pair, &lab.stop, || inject(args, &mut bench))?;

    kill(Pid::from_raw(watcher.id().cast_signed()), Signal::SIGINT)?;
    let lines: Vec<Value> = lines.map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok()).collect();
    watcher.wait()?;
    let _ = server.kill();
    let _ = server.wait();
    Ok(judge(&done, &lines))
}

fn serve_command(lab: &Lab, pair: &Pair, orders: &Path, args: &WatchArgs) -> Command {
    let mut serve = pair.server.command(&lab.program);
    let lifetime = args.apart.mul_f64(f64::from(args.faults)) * 2 + Duration::from_secs(60);
    serve.args([
        "serve",
        "spiky",
        "--port",
        &PORT.to_string(),
        "--for",
        &format!("{}s", lifetime.as_secs()),
        "--orders",
    ]);
    serve.arg(orders).args(["--inside-cpu", &CLIENT_CPU.to_string()]).stdout(Stdio::piped());
    serve
}

/// A steady load from the client's namespace while `during` runs.
fn under_load<T>(pair: &Pair, stop: &Arc<AtomicBool>, during: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let ends = AtomicBool::new(false);
    let address = std::net::SocketAddr::new(netns::SERVER_V4, PORT);
    let workload = Workload::new(Proto::Http1, address).rate(600.0).connections(32);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            pair.client.run(|| {
                let _ = tailsight_testbed::process::pin_thread(CLIENT_CPU);
                load::run(&[workload], Duration::from_secs(4 * 3600), false, &ends)
            })
        });
        std::thread::sleep(Duration::from_secs(2));
        let result = if stop.load(Ordering::Relaxed) { bail!("interrupted") } else { during() };
        ends.store(true, Ordering::Relaxed);
        load.join().map_err(|_| anyhow::anyhow!("the load panicked"))???;
        result
    })
}

fn inject(args: &WatchArgs, bench: &mut Bench<'_>) -> anyhow::Result<Vec<Done>> {
    let mut random = StdRng::seed_from_u64(args.seed);
    let mut done = vec![];
    for n in 0..args.faults {
        std::thread::sleep(args.apart.mul_f64(0.5 + random.random::<f64>()));
        if bench.lab.stop.load(Ordering::Relaxed) {
            break;
        }
        let kind = Kind::ALL[n as usize % Kind::ALL.len()];
        let from_ns = unix_ns();
        let ms = bench.make(kind)?;
        done.push(Done { kind, from_ns, to_ns: unix_ns(), ms });
        eprintln!("lab: {} of {}: {kind:?}", n + 1, args.faults);
    }
    // The last capture is diagnosed.
    std::thread::sleep(Duration::from_secs(5));
    Ok(done)
}

impl Bench<'_> {
    fn make(&mut self, kind: Kind) -> anyhow::Result<Option<u64>> {
        let server = Pid::from_raw(self.server.id().cast_signed());
        match kind {
            Kind::Hog => {
                let mut fault = self.pair.server.command(&self.lab.program);
                fault.args(["fault", "intruder", "--for", "10s"]).stdout(Stdio::null());
                let mut fault = spawn_tied(fault, Some(SERVER_CPU), Signal::SIGKILL)?;
                // Its start takes as long as it takes.
                std::thread::sleep(2 * FAULT);
                fault.kill()?;
                fault.wait()?;
            }
            Kind::Stop => {
                kill(server, Signal::SIGSTOP)?;
                std::thread::sleep(FAULT);
                kill(server, Signal::SIGCONT)?;
            }
            Kind::Quota => {
                self.quota("2000", "2000 100000")?;
                std::thread::sleep(3 * FAULT);
                self.quota("-1", "max 100000")?;
            }
            Kind::Fsync => return self.order("sync\n").map(Some),
            Kind::Lock => return self.order(&format!("hold {}\n", FAULT.as_millis())).map(Some),
        }
        Ok(None)
    }

    fn quota(&self, v1_us: &str, v2: &str) -> anyhow::Result<()> {
        let (first, second) = (self.group.join("cpu.cfs_quota_us"), self.group.join("cpu.max"));
        let (file, text) = if first.exists() { (first, v1_us) } else { (second, v2) };
        std::fs::write(&file, text).with_context(|| format!("cannot write {text} to {}", file.display()))
    }

    fn order(&mut self, order: &str) -> anyhow::Result<u64> {
        self.orders.get_mut().write_all(order.as_bytes())?;
        let mut answer = String::new();
        self.orders.read_line(&mut answer).context("the server did not answer an order")?;
        answer.trim().parse().context("the server's answer is no number")
    }
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Prints the table. Exit 4 where a capture is missing or its first cause is wrong.
fn judge(done: &[Done], lines: &[Value]) -> ExitCode {
    let captures: Vec<&Value> = lines.iter().filter(|line| line["event"] == "capture").collect();
    let is_of = |capture: &Value, done: &Done| {
        let at = capture["unix_ns"].as_u64().unwrap_or(0);
        at >= done.from_ns && at <= done.to_ns + AFTER_NS
    };
    let (mut captured, mut right) = (0, 0);
    // What the disk took less time for than is slow is nothing to capture: the server says so, before a capture is looked at.
    let (done, brief): (Vec<&Done>, Vec<&Done>) = done.iter().partition(|one| one.ms.is_none_or(|ms| ms > LIMIT_MS));
    for one in &done {
        let capture = captures.iter().find(|capture| is_of(capture, one));
        let first = capture.map(|capture| &capture["causes"][0]);
        let is_right = first.is_some_and(|cause| one.kind.is_named_by(cause));
        captured += usize::from(capture.is_some());
        right += usize::from(is_right);
        let said = match first {
            None => "not captured".to_owned(),
            Some(cause) => in_words(cause),
        };
        println!("{:6} {} {said}", format!("{:?}", one.kind).to_lowercase(), if is_right { "right" } else { "WRONG" });
    }
    for capture in captures.iter().filter(|capture| !done.iter().chain(&brief).any(|one| is_of(capture, one))) {
        println!(
            "other        {} ms: {}",
            capture["total_ns"].as_u64().unwrap_or(0) / 1_000_000,
            in_words(&capture["causes"][0])
        );
    }
    println!("captured {captured} of {}, first cause right in {right} of {captured}", done.len());
    if !brief.is_empty() {
        println!("{} faults kept no request waiting for {LIMIT_MS} ms and are not counted", brief.len());
    }
    if let Some(ended) = lines.iter().find(|line| line["event"] == "ended") {
        let of_core = 100.0 * ended["cpu_ns"].as_f64().unwrap_or(0.0) / ended["watched_ns"].as_f64().unwrap_or(1.0);
        println!("the watcher took {of_core:.2} % of a core; {} messages, {} slow", ended["messages"], ended["slow"]);
    }
    if captured == done.len() && right == captured { ExitCode::SUCCESS } else { ExitCode::from(4) }
}

fn in_words(cause: &Value) -> String {
    let part = |name: &str| cause[name].as_str().map(|text| format!(", {text}")).unwrap_or_default();
    let share = 100.0 * cause["share"].as_f64().unwrap_or(0.0);
    format!("{share:.0} % {}{}{}", cause["words"].as_str().unwrap_or("no cause"), part("root"), part("function"))
}
