//! `lab objectives`: does `tailsight load --slo` decide rightly, and how often does it decide at all?
//!
//! In: how many runs of each case. Out: a row a case: the limit over the truth, and how often it was met, missed and open. The server is the lab's
//! perfect queue (`lab serve ideal`), whose p99 has a closed form: of M/M/1 the response time is exponential with mean 1/(mu - lambda). What the
//! way through the kernel adds (tens of microseconds of some milliseconds) is below the distance of the nearest limit. A second server is
//! stopped for a moment twice a second: its latency has no level, its percentile is N/A, and its side is known all the same.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tailsight_testbed::process::spawn_tied;
use tailsight_units::parse;

/// `lab objectives`.
#[derive(Debug, Args)]
pub struct ObjectivesArgs {
    /// Runs of each case.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Time of a run.
    #[arg(long, value_parser = parse::duration, default_value = "6s")]
    max_time: Duration,
    /// The first port.
    #[arg(long, default_value_t = 7650)]
    port: u16,
    /// The binary of tailsight [default: beside this one].
    #[arg(long, value_name = "FILE")]
    tailsight: Option<PathBuf>,
}

/// Mean service time, and requests/s: the queue's server is busy for half of the time.
const SERVICE_US: f64 = 500.0;
const RATE: f64 = 1_000.0;
/// How long the second server is stopped, and how often: 12 % of its requests wait.
const STOP: Duration = Duration::from_millis(60);
const BETWEEN_STOPS: Duration = Duration::from_millis(440);

/// A limit whose side is known.
struct Case {
    server: &'static str,
    limit_us: f64,
    /// The truth.
    is_met: bool,
    words: String,
}

/// p99 of M/M/1, us: ln(100) / (mu - lambda).
fn p99_of_the_queue_us() -> f64 {
    100.0_f64.ln() / (1.0 / SERVICE_US - RATE / 1e6)
}

fn cases() -> Vec<Case> {
    let of_queue = |factor: f64| Case {
        server: "queue",
        limit_us: factor * p99_of_the_queue_us(),
        is_met: factor > 1.0,
        words: format!("{factor} x p99"),
    };
    let of_stops = |limit_us: f64, is_met: bool| Case {
        server: "stopped",
        limit_us,
        is_met,
        words: format!("{} ms, {} ms stops", limit_us / 1e3, STOP.as_millis()),
    };
    let queue = [0.3, 0.5, 0.7, 0.85, 1.25, 1.5, 2.0, 5.0].map(of_queue);
    queue.into_iter().chain([of_stops(15_000.0, false), of_stops(500_000.0, true)]).collect()
}

/// The server, ended with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGCONT);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(program: &Path, port: u16, longest: Duration) -> anyhow::Result<Server> {
    let mut command = Command::new(program);
    command.args(["serve", "ideal", "--speak", "memcached", "--port", &port.to_string()]);
    command.args(["--service", &format!("exponential:{SERVICE_US}us"), "--for", &format!("{}s", longest.as_secs())]);
    command.stdout(Stdio::piped());
    let mut child = spawn_tied(command, None, Signal::SIGKILL).context("cannot start the server")?;
    let output = child.stdout.take().context("the server has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let server = Server(child);
    if !line.starts_with("ready") {
        bail!("the server did not begin");
    }
    Ok(server)
}

/// Stops a process and lets it go on, until told to end.
fn stop_now_and_then(pid: u32, ended: &AtomicBool) {
    let signal = |signal| {
        let _ = kill(Pid::from_raw(pid as i32), signal);
    };
    while !ended.load(Ordering::Relaxed) {
        std::thread::sleep(BETWEEN_STOPS);
        signal(Signal::SIGSTOP);
        std::thread::sleep(STOP);
        signal(Signal::SIGCONT);
    }
}

/// What was decided, and the check for which the percentile was N/A.
fn decided(
    tailsight: &Path,
    port: u16,
    case: &Case,
    max_time: Duration,
    seed: u32,
) -> anyhow::Result<(String, String)> {
    let output = Command::new(tailsight)
        .args(["load", &format!("memcached://127.0.0.1:{port}"), "--json", "--no-preload", "--keys", "100"])
        .args(["--rate", &RATE.to_string(), "--max-time", &format!("{}ms", max_time.as_millis())])
        .args(["--slo", &format!("p99<{:.0}us", case.limit_us), "--seed", &seed.to_string()])
        .output()
        .context("cannot run tailsight load")?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("tailsight load printed no JSON: {}", String::from_utf8_lossy(&output.stderr)))?;
    let decision = report["objective"]["decision"].as_str().context("the report has no decision")?.to_owned();
    let check = report["verdict"]["failed"]["id"].as_str().unwrap_or("a number").to_owned();
    let code = match decision.as_str() {
        "met" => 0,
        "missed" => 4,
        _ => 3,
    };
    if output.status.code() != Some(code) {
        bail!("{decision}, and the exit code was {:?}", output.status.code());
    }
    Ok((decision, check))
}

/// Runs every case, in turn, and prints.
pub fn run(args: &ObjectivesArgs) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let tailsight = args.tailsight.clone().unwrap_or_else(|| program.with_file_name("tailsight"));
    let longest = (args.max_time + Duration::from_secs(5)) * args.runs * cases().len() as u32;
    let queue = serve(&program, args.port, longest)?;
    let stopped = serve(&program, args.port + 1, longest)?;
    let ended = Arc::new(AtomicBool::new(false));
    let stopper = std::thread::spawn({
        let (pid, ended) = (stopped.0.id(), Arc::clone(&ended));
        move || stop_now_and_then(pid, &ended)
    });
    let cases = cases();
    let mut rows: Vec<[u32; 3]> = vec![[0; 3]; cases.len()];
    let mut numbers = 0;
    let told = (0..args.runs).try_for_each(|seed| {
        cases.iter().zip(&mut rows).try_for_each(|(case, row)| {
            let port = args.port + u16::from(case.server == "stopped");
            let (decision, check) = decided(&tailsight, port, case, args.max_time, seed + 1)?;
            row[["met", "missed", "open"].iter().position(|d| *d == decision).unwrap_or(2)] += 1;
            numbers += u32::from(check == "a number");
            eprintln!("{} {}: {decision} ({check})", case.server, case.words);
            anyhow::Ok(())
        })
    });
    ended.store(true, Ordering::Relaxed);
    let _ = stopper.join();
    drop((queue, stopped));
    told?;
    println!("{:8} {:24} {:>7} {:>5} {:>7} {:>5}", "server", "limit", "truth", "met", "missed", "open");
    let (mut runs, mut open, mut wrong) = (0, 0, 0);
    for (case, row) in cases.iter().zip(&rows) {
        let truth = if case.is_met { "met" } else { "missed" };
        println!("{:8} {:24} {truth:>7} {:>5} {:>7} {:>5}", case.server, case.words, row[0], row[1], row[2]);
        runs += row.iter().sum::<u32>();
        open += row[2];
        wrong += row[usize::from(case.is_met)];
    }
    println!(
        "{} of {runs} decided, {wrong} of these wrongly; the percentile itself was known in {numbers}",
        runs - open
    );
    Ok(if wrong * 50 > runs - open { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queues_tail_is_that_of_its_closed_form() {
        // Mean response of M/M/1 at half load is twice the service time, and the 99th percentile 4.605 times the mean.
        assert!((p99_of_the_queue_us() / (2.0 * SERVICE_US) - 4.605).abs() < 0.001);
        assert!(cases().iter().any(|c| c.is_met) && cases().iter().any(|c| !c.is_met));
    }
}
