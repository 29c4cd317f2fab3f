//! `ideal --calibrate`: the peak of a server, found by saturating it, and files of it.

use std::path::Path;

use anyhow::Context;
use tailsight_load::Plan;
use tailsight_measure::Address;
use tailsight_measure::capacity::{Asked, Calibration, Peak, calibrate};

use crate::cli_ideal::Ideal;
use crate::commands::usage::or_usage;
use crate::pipeline;
use crate::stop::on_interrupt;

/// Finds the peak of a target; `None` when there is none, and that was said.
pub fn run(args: &Ideal, target: &str) -> anyhow::Result<Option<Calibration>> {
    let plan = or_usage(Address::parse(target, args.protocol).and_then(|address| {
        let mut plan = Plan::new(address.target, address.protocol);
        if let Some(path) = address.path {
            plan.workload.path = path;
        }
        (plan.connections, plan.threads, plan.sampling) = (args.connections, args.threads, 0.0);
        plan.validate()?;
        Ok(plan)
    }))?;
    let workers = args.workers.unwrap_or(1);
    let pid = args.pid;
    if let Some(pid) = pid {
        cpu_ns(pid).with_context(|| format!("no process has pid {pid}"))?;
    }
    // What would fail at the end is found before the load begins.
    if let Some(path) = &args.out {
        pipeline::writable(path)?;
    }
    let stop = on_interrupt();
    let peak = calibrate(
        &plan,
        workers,
        args.window.as_nanos() as u64,
        || pid.and_then(cpu_ns),
        &stop,
        |asked, per_s| match asked {
            Asked::Outstanding(n) => say!("{n:>5} outstanding on each connection: {per_s:.0} requests/s"),
            Asked::PerSecond(rate) => say!("{rate:>8.0} requests/s asked for: {per_s:.0} answered"),
        },
    );
    match or_usage(peak)? {
        Peak::Found(peak) => {
            if let Some(path) = &args.out {
                write(path, &peak)?;
            }
            Ok(Some(*peak))
        }
        Peak::Never(why) => {
            say!("tailsight: N/A: {why}");
            Ok(None)
        }
    }
}

/// CPU time of all threads of a process, ns.
fn cpu_ns(pid: u32) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let cpu_ns_of = |dir: std::fs::DirEntry| {
        let text = std::fs::read_to_string(dir.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    // A thread may end while it is looked at.
    Some(threads.filter_map(|dir| cpu_ns_of(dir.ok()?)).sum())
}

fn write(path: &Path, peak: &Calibration) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(peak)? + "\n";
    tailsight_output::write(path, text).with_context(|| format!("cannot write the calibration {}", path.display()))
}

/// Reads what [`run`] wrote.
pub fn read(path: &Path) -> anyhow::Result<Calibration> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the calibration {}", path.display()))?;
    let wrong = || {
        format!("{} is not a calibration; make one with `tailsight ideal --calibrate TARGET -o FILE`", path.display())
    };
    let read: Calibration = serde_json::from_str(&text).with_context(wrong)?;
    anyhow::ensure!(read.schema == 1 && read.peak_per_s > 0.0 && read.service_ns > 0, wrong());
    Ok(read)
}
