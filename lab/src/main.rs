//! The lab's command line. `lab load`: open-loop loads by the product's load generator; in: workloads as options; out: on stdout a table of latency
//! in us or, with `--json`, one object a workload with times in ns. `lab run`: scenarios with known causes, judged, see [`run`].
//! Exit 0 done, 1 failed, 2 usage; `run` also 4 and 130.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool of this repository, run from its scripts")]

mod clock_check;
mod replay;
mod run;
mod trim;

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use tailsight_lab::faults::{self, FaultArgs};
use tailsight_lab::servers::{self, ServeArgs};
use tailsight_testbed::hostile::{Behaviour, Hostile};
use tailsight_testbed::load::{self, Arrivals, LoadSummary, Proto, Workload};
use tailsight_testbed::process::pin_thread;
use tailsight_units::parse;

/// Tailsight's lab: load for test servers.
#[derive(Debug, Parser)]
#[command(name = "lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load servers and print the latency, measured from the time each request was due.
    Load(LoadArgs),
    /// Run scenarios with known causes and judge the diagnosis (root).
    Run(run::RunArgs),
    /// Scenarios with and without their fault: is what a diagnosis predicts without it what is measured? (root)
    WhatIf(run::what_if::WhatIfArgs),
    /// Is what makes a server slow at random moments captured by `tailsight watch`, with the right cause? (root)
    Watch(run::watch::WatchArgs),
    /// Does `tailsight load --slo` decide rightly where the truth has a closed form, and how often
    /// does it decide?
    Objectives(run::objectives::ObjectivesArgs),
    /// Diagnose a folder's recordings again: is the answer what it was, and is it right?
    Replay(replay::ReplayArgs),
    /// Cut recordings to short intervals with the same answer, without the names of others.
    Trim(trim::TrimArgs),
    /// List the scenarios.
    List,
    /// Be a test server until killed.
    Serve(ServeArgs),
    /// Be a fault with a known cause until killed.
    Fault(FaultArgs),
    /// Step a small program of three threads and write what it did as an Intel PT recording; its time is assigned, not measured.
    Pt(PtArgs),
    /// Write what an emulated machine executed between two marks, kernel and user space, as an Intel PT recording; its time is assigned,
    /// not measured (scripts/pt-vm.sh).
    PtVm(PtVmArgs),
    /// Convert the time-stamp counter beside clock reads through thousands of clock changes: is anything out of order?
    ClockCheck(clock_check::ClockCheckArgs),
    /// Be a server that does harm to its clients, for a while; its URL is printed.
    Hostile(HostileArgs),
}

#[derive(Debug, Args)]
struct PtArgs {
    /// Where program, recording and log go.
    out: std::path::PathBuf,
    /// Cycle counts, MTC and TMA, instead of a TSC packet now and then.
    #[arg(long)]
    cycles: bool,
    /// Returns as one bit where the processor would.
    #[arg(long)]
    compress_returns: bool,
    /// An overflow in the first slice from this one on that is long enough.
    #[arg(long, value_name = "SLICE")]
    overflow_in: Option<usize>,
    /// Rounds of each of the two workers.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Requests in each round.
    #[arg(long, default_value_t = 1)]
    requests: u32,
    /// Bytes between two synchronisation points at least.
    #[arg(long, default_value_t = 1024)]
    psb_bytes: usize,
    /// How often the execution is encoded, one time behind the other.
    #[arg(long, default_value_t = 1)]
    passes: usize,
    /// Instead, a file long.data with these packets again and again, until it has so many bytes.
    #[arg(long)]
    long: Option<u64>,
    /// Instructions after which a thread is interrupted.
    #[arg(long, default_value_t = 700)]
    quantum: usize,
}

fn pt(args: &PtArgs) -> anyhow::Result<ExitCode> {
    use tailsight_lab::pt::{self, encode::Style};
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    pt::compile(&args.out, pt::Scale { rounds: args.rounds, requests: args.requests })?;
    let style = Style {
        cycles: args.cycles,
        compress_returns: args.compress_returns,
        overflow_in: args.overflow_in,
        psb_bytes: args.psb_bytes,
        passes: args.passes,
        quantum: args.quantum,
        ..Style::default()
    };
    if let Some(bytes) = args.long {
        let made = pt::make_long(&args.out, &style, bytes)?;
        println!(
            "{}: {} bytes, {} times the same execution: {} instructions; time is assigned, not measured",
            made.perf_data.display(),
            made.bytes,
            made.times,
            made.instructions
        );
        return Ok(ExitCode::SUCCESS);
    }
    let made = pt::make(&args.out, &style)?;
    println!(
        "{}: {} instructions, {} context switches, {} bytes of trace; time is assigned, not measured",
        made.perf_data.display(),
        made.instructions,
        made.switches,
        made.trace_bytes
    );
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
struct PtVmArgs {
    /// The folder that the emulator's plugin wrote.
    from: std::path::PathBuf,
    /// The guest's files.
    #[arg(long)]
    root: std::path::PathBuf,
    /// Where recording, programs and log go.
    #[arg(long)]
    out: std::path::PathBuf,
    /// Cycle counts, MTC and TMA, instead of a TSC packet every 30 ns.
    #[arg(long)]
    cycles: bool,
    /// Returns as one bit where the processor would.
    #[arg(long)]
    compress_returns: bool,
}

fn pt_vm(args: &PtVmArgs) -> anyhow::Result<ExitCode> {
    use tailsight_lab::pt::{encode::Style, vm};
    let (cycles, compress_returns) = (args.cycles, args.compress_returns);
    let style = Style { cycles, tsc_ticks: Some(30), compress_returns, psb_bytes: 16 << 10, ..Style::default() };
    let made = vm::make(&args.from, &args.root, &args.out, &style)?;
    println!(
        "{}: {} instructions of {} threads, {} calls and returns, {} system calls, {} interrupts and exceptions, {} context switches, {} \
         bytes of trace; time is assigned, not measured",
        made.recording.display(),
        made.instructions,
        made.threads,
        made.transfers,
        made.system_calls,
        made.interrupts,
        made.switches,
        made.trace_bytes
    );
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
struct HostileArgs {
    /// What it does.
    #[arg(value_enum)]
    behaviour: Behaviour,
    /// Where it listens; port 0: one that is free.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// For how long.
    #[arg(long = "for", default_value = "60s", value_parser = parse::duration)]
    lasting: Duration,
}

fn hostile(args: &HostileArgs) -> anyhow::Result<ExitCode> {
    let server = Hostile::start(args.behaviour, args.listen)?;
    println!("{}", server.url());
    std::thread::sleep(args.lasting);
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
struct LoadArgs {
    /// What to speak: memcached, memcached-udp, resp or http1.
    #[arg(long, default_value = "memcached")]
    proto: Proto,
    /// The server, such as 10.77.0.1:11211 or [fd77::1]:11211.
    #[arg(long)]
    addr: SocketAddr,
    /// Requests a second over all connections, such as 500 or 20k.
    #[arg(long, default_value = "1k", value_parser = parse::rate)]
    rate: f64,
    /// Connections.
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// How long to send, such as 500ms or 2s.
    #[arg(long, short, default_value = "2s", value_parser = parse::duration)]
    duration: Duration,
    /// When requests are due: poisson, fixed or closed:N (N outstanding on each connection).
    #[arg(long, default_value = "poisson")]
    arrivals: Arrivals,
    /// Requests sent back to back at each arrival.
    #[arg(long, default_value_t = 1)]
    burst: usize,
    /// Size of the values read, such as 32 or 64k.
    #[arg(long, default_value = "32", value_parser = bytes)]
    value_size: usize,
    /// What http1 asks for.
    #[arg(long, default_value = "/")]
    path: String,
    /// Seed of the arrival times.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A further workload at the same time: proto,addr,rate,connections. Can be given several times.
    #[arg(long, value_name = "PROTO,ADDR,RATE,CONNECTIONS")]
    also: Vec<Also>,
    /// Run on this CPU.
    #[arg(long)]
    cpu: Option<usize>,
    /// Poll without a pause, one thread for all workloads: exact, and takes a whole core.
    #[arg(long)]
    spin: bool,
    /// Print one JSON object a workload instead of a table.
    #[arg(long)]
    json: bool,
}

/// A further workload, in short form.
#[derive(Debug, Clone, PartialEq)]
struct Also {
    proto: Proto,
    addr: SocketAddr,
    rate: f64,
    connections: usize,
}

/// A size that fits into memory's addresses.
fn bytes(text: &str) -> Result<usize, String> {
    let size = parse::size(text).map_err(|e| e.to_string())?;
    usize::try_from(size).ok().filter(|n| *n <= 1 << 30).ok_or_else(|| format!("{text:?}: at most 1G"))
}

impl FromStr for Also {
    type Err = tailsight_lab::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || tailsight_lab::Error::Parse {
            what: "workload",
            text: text.into(),
            expected: "proto,addr,rate,connections, such as http1,10.77.0.1:8088,5k,4",
        };
        let parts: Vec<&str> = text.split(',').collect();
        let [proto, addr, rate, connections] = parts[..] else {
            return Err(bad());
        };
        Ok(Self {
            proto: proto.parse()?,
            addr: addr.parse().map_err(|_| bad())?,
            rate: parse::rate(rate)?,
            connections: connections.parse().map_err(|_| bad())?,
        })
    }
}

impl LoadArgs {
    /// The workloads, named by protocol; the second of a protocol gets `-2` behind its name, and so on.
    fn workloads(&self) -> Vec<Workload> {
        let first = Workload {
            connections: self.connections,
            rate_per_s: self.rate,
            arrivals: self.arrivals,
            pipeline_burst: self.burst,
            value_size: self.value_size,
            path: self.path.clone(),
            seed: self.seed,
            ..Workload::new(self.proto, self.addr)
        };
        let further = self.also.iter().zip(1..).map(|(also, i)| Workload {
            seed: self.seed.wrapping_add(i),
            ..Workload::new(also.proto, also.addr).rate(also.rate).connections(also.connections)
        });
        let mut workloads: Vec<Workload> = std::iter::once(first).chain(further).collect();
        for i in 1..workloads.len() {
            let proto = workloads[i].proto;
            let before = workloads[..i].iter().filter(|w| w.proto == proto).count();
            if before > 0 {
                workloads[i].name = format!("{}-{}", proto.name(), before + 1);
            }
        }
        workloads
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Load(args) => load(&args).map(|()| ExitCode::SUCCESS),
        Command::Replay(args) => replay::replay(&args),
        Command::Trim(args) => trim::trim(&args),
        Command::WhatIf(args) => run::what_if::run(&args),
        Command::Run(args) => run::run(&args),
        Command::List => {
            run::list();
            Ok(ExitCode::SUCCESS)
        }
        Command::Serve(args) => servers::serve(&args).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Command::Pt(args) => pt(&args),
        Command::PtVm(args) => pt_vm(&args),
        Command::ClockCheck(args) => clock_check::run(&args),
        Command::Watch(args) => run::watch::run(&args),
        Command::Objectives(args) => run::objectives::run(&args),
        Command::Hostile(args) => hostile(&args),
        Command::Fault(args) => faults::run(&args).map(|()| ExitCode::SUCCESS).map_err(Into::into),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// Runs the load and prints what it measured.
fn load(args: &LoadArgs) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = Arc::clone(&stop);
    ctrlc::set_handler(move || stopper.store(true, Ordering::Relaxed)).context("cannot catch Ctrl-C")?;
    if let Some(cpu) = args.cpu {
        pin_thread(cpu)?;
    }
    let outcomes = load::run(&args.workloads(), args.duration, args.spin, &stop)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        for outcome in &outcomes {
            writeln!(out, "{}", serde_json::to_string(&outcome.summary())?)?;
        }
    } else {
        out.write_all(table(&outcomes).as_bytes())?;
    }
    Ok(())
}

/// The table: latency in us, rates in requests a second.
fn table(outcomes: &[LoadSummary]) -> String {
    let us = |ns: Option<u64>| ns.map_or("N/A".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3));
    let mut text = format!(
        "{:<16} {:>9} {:>9} {:>7} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10}\n",
        "workload",
        "sent",
        "received",
        "errors",
        "unanswered",
        "req/s",
        "p50 us",
        "p90 us",
        "p99 us",
        "p99.9 us",
        "max us"
    );
    for outcome in outcomes {
        let summary = outcome.summary();
        let latency = summary.latency_ns;
        text.push_str(&format!(
            "{:<16} {:>9} {:>9} {:>7} {:>10} {:>9.0} {:>9} {:>9} {:>9} {:>9} {:>10}\n",
            summary.name,
            summary.sent,
            summary.received,
            summary.errors,
            summary.unanswered,
            summary.received_per_s,
            us(latency.p50),
            us(latency.p90),
            us(latency.p99),
            us(latency.p99_9),
            us(latency.max),
        ));
    }
    for outcome in outcomes {
        text.push_str(&format!(
            "{}: requests left the client {} us (p99) after they were due\n",
            outcome.name,
            us(outcome.late_p99_ns)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<LoadArgs, clap::Error> {
        match Cli::try_parse_from(line.split(' '))?.command {
            Command::Load(args) => Ok(args),
            _ => panic!("{line} is not a load"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_become_workloads() {
        let args = parse(
            "lab load --proto memcached --addr 10.77.0.1:11211 --rate 20k --connections 4 --duration 500ms --burst 3 \
             --also http1,10.77.0.1:8088,5k,2 --also memcached,[fd77::1]:11211,1k,1 --cpu 1 --spin --json",
        )
        .unwrap();
        assert_eq!(args.duration, Duration::from_millis(500));
        assert!(args.spin && args.json && args.cpu == Some(1));
        let workloads = args.workloads();
        let names: Vec<&str> = workloads.iter().map(|w| w.name.as_str()).collect();
        assert_eq!(names, ["memcached", "http1", "memcached-2"]);
        assert_eq!(workloads[0].rate_per_s, 20_000.0);
        assert_eq!(workloads[0].pipeline_burst, 3);
        assert_eq!(workloads[1].connections, 2);
        assert!(workloads[2].addr.is_ipv6());
        assert_ne!(workloads[0].seed, workloads[1].seed);
    }

    #[test]
    fn wrong_options_are_refused() {
        for bad in [
            "lab load",
            "lab load --addr nowhere",
            "lab load --addr 10.0.0.1:1 --rate fast",
            "lab load --addr 10.0.0.1:1 --duration 2",
            "lab load --addr 10.0.0.1:1 --proto http2",
            "lab load --addr 10.0.0.1:1 --also http1,10.0.0.1:1,5k",
            "lab load --addr 10.0.0.1:1 --arrivals closed:0",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
