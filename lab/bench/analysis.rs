//! Speed and memory of the analysis: `tailsight diagnose` of a run of about 2 million events, and `perf script` on a
//! perf.data of the same hooks and load beside it. In: memcached and nginx under load. Out: a section.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use serde_json::json;
use tailsight_lifetime::Analysis;
use tailsight_testbed::process::{pin_thread, spawn_tied};
use tailsight_trace::Run;

use crate::Bench;
use crate::recorder::{self, Job, Tool};
use crate::rig::{LOAD_CPU, Rig};
use crate::table::{Row, Section, Spread, thousands};

/// The number that the goal names.
const EVENTS: u64 = 2_000_000;
/// A recording that should reach it is made no longer than this, s.
const LONGEST_S: f64 = 8.0;
/// ts 8, kind 1, aux 2, tid 4, a 8, b 8, c 8: an event's columns (docs/schema.md).
const BYTES_PER_EVENT: u64 = 39;
/// How long a measured program may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The cost of a program.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Wall time.
    pub wall_s: f64,
    /// User and system time.
    pub cpu_s: f64,
    /// Its peak memory.
    pub peak_bytes: u64,
}

/// Measures.
pub fn measure(bench: &Bench) -> anyhow::Result<Vec<Section>> {
    let repeats = if bench.quick { 2 } else { 7 };
    let (run, recorded_s, events) = make_run(bench)?;
    let millions = |n: f64| format!("{:.2} million events/s", n / 1e6);
    eprintln!("bench: diagnosing a run of {} events", thousands(events));
    let diagnose = |cpu| usage(bench, diagnosis(bench, &run), cpu, Stdio::null());
    diagnose(None)?; // Reads the files into the page cache.
    let mut free = Vec::new();
    let mut pinned = Vec::new();
    for _ in 0..repeats {
        free.push(diagnose(None)?);
        pinned.push(diagnose(Some(LOAD_CPU))?);
    }
    let spread = |values: &[Usage], f: &dyn Fn(&Usage) -> f64| {
        Spread::of(&values.iter().map(f).collect::<Vec<_>>()).context("nothing was measured")
    };
    let speed = spread(&pinned, &|u| events as f64 / u.cpu_s)?;
    let memory = spread(&pinned, &|u| u.peak_bytes as f64 / (events * BYTES_PER_EVENT) as f64)?;
    let wall = spread(&free, &|u| u.wall_s)?;
    let (read_s, both_s) = inside(&run, repeats)?;

    eprintln!("bench: perf script on the same load");
    let perf = perf_script(bench, recorded_s);
    bench.check()?;
    let (beside, raw_perf) = match &perf {
        Ok((theirs, usage)) => (
            format!(
                "perf script: {} ({} events, {:.2} s); {:.1} × slower an event",
                millions(*theirs as f64 / usage.cpu_s),
                thousands(*theirs),
                usage.cpu_s,
                (usage.cpu_s / *theirs as f64) * speed.median
            ),
            json!({"events": theirs, "cpu_s": usage.cpu_s, "wall_s": usage.wall_s, "peak_bytes": usage.peak_bytes}),
        ),
        Err(error) => (format!("perf script not run: {error:#}"), json!({"not_run": format!("{error:#}")})),
    };
    let perf_memory = perf
        .as_ref()
        .map_or(String::new(), |(_, u)| format!("perf script: {:.0} MiB", u.peak_bytes as f64 / 1048576.0));
    let rows = vec![
        Row::fact("the run", format!("{} events", thousands(events)), format!("recorded for {recorded_s:.2} s")),
        Row::goal(
            "lifetimes + diagnosis on one core (the whole `tailsight diagnose`: user + system time)",
            "≥ 5 million events/s",
            format!("{:.2} [{:.2}..{:.2}] million events/s", speed.median / 1e6, speed.min / 1e6, speed.max / 1e6),
            beside,
            speed.median >= 5e6,
        ),
        Row::fact(
            "of it in this process: only reading the run; reading it and building all lifetimes",
            format!("{:.0} ms; {:.0} ms", 1e3 * read_s.median, 1e3 * both_s.median),
            format!("{}; {}", millions(events as f64 / read_s.median), millions(events as f64 / both_s.median)),
        ),
        Row::goal(
            "peak memory of it over the run's size uncompressed (39 bytes an event)",
            "≤ 3 ×",
            format!("{} ×", memory.text(2)),
            perf_memory,
            memory.median <= 3.0,
        ),
        Row::goal(
            format!("`tailsight diagnose` of that run, wall time ({} events)", thousands(events)),
            "< 1 s",
            format!("{} s", wall.text(3)),
            "",
            wall.median < 1.0 && events >= EVENTS,
        ),
    ];
    let runs = |values: &[Usage]| {
        values
            .iter()
            .map(|u| json!({"wall_s": u.wall_s, "cpu_s": u.cpu_s, "peak_bytes": u.peak_bytes}))
            .collect::<Vec<_>>()
    };
    let raw = json!({"events": events, "recorded_s": recorded_s, "one_core": runs(&pinned), "free": runs(&free), "perf_script": raw_perf});
    let notes = "memcached and nginx share core 0 under load, memcached is the target. \"On one core\": the process is pinned to core 1.\n\
                 perf.data: the same hooks, load and length, recorded right after; `perf script` writes to /dev/null, pinned alike.\n";
    Ok(vec![Section { title: "Analysis".into(), rows, notes: notes.into(), raw }])
}

/// Load on memcached and nginx for at most `time`, until `body` is over.
fn loaded<T>(rig: &Rig<'_>, body: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let enough = AtomicBool::new(false);
    let workloads = [rig.gets(60_000.0, 1), rig.pages(15_000.0, 2)?];
    std::thread::scope(|scope| {
        let load = scope.spawn(|| rig.load_until(&workloads, Duration::from_secs(60), &enough));
        std::thread::sleep(Duration::from_millis(500));
        let result = body();
        enough.store(true, Ordering::Relaxed);
        load.join().map_err(|_| anyhow::anyhow!("the load stopped unexpectedly"))??;
        result
    })
}

/// Records 1 s, and longer until the run has [`EVENTS`]; gives the run, its length in s and its events.
fn make_run(bench: &Bench) -> anyhow::Result<(PathBuf, f64, u64)> {
    let mut seconds = 1.0;
    loop {
        eprintln!("bench: recording memcached beside nginx for {seconds:.2} s");
        let rig = Rig::new(bench, true)?;
        let time = Duration::from_secs_f64(seconds);
        let (folder, recorded) = loaded(&rig, || {
            let job = Job { bench, server: &rig.memcached, time, hooks: &[], dump: false, without_hook: &[] };
            let running = recorder::start(Tool::Tailsight, &job, "analysis")?.context("tailsight is a recorder")?;
            let folder = running.folder().join("run");
            Ok((folder, running.finish(false)?))
        })?;
        let events = recorded.events.unwrap_or(0);
        if events >= EVENTS || seconds >= LONGEST_S {
            return Ok((folder, seconds, events));
        }
        seconds = (1.05 * seconds * EVENTS as f64 / events.max(1) as f64).clamp(seconds * 1.1, LONGEST_S);
    }
}

/// `tailsight diagnose` of a run.
fn diagnosis(bench: &Bench, run: &Path) -> Command {
    let mut command = Command::new(&bench.tailsight);
    command.arg("diagnose").arg(run);
    command
}

/// Reading all events into memory; reading and building lifetimes as it goes. Inside this process, on one core, s each.
fn inside(run: &Path, repeats: usize) -> anyhow::Result<(Spread, Spread)> {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                pin_thread(LOAD_CPU)?;
                let (mut read_s, mut both_s) = (Vec::new(), Vec::new());
                for _ in 0..repeats {
                    let begun = Instant::now();
                    std::hint::black_box(&Run::open(run)?.events()?);
                    read_s.push(begun.elapsed().as_secs_f64());
                    let begun = Instant::now();
                    std::hint::black_box(&Analysis::of(&mut Run::open(run)?)?);
                    both_s.push(begun.elapsed().as_secs_f64());
                }
                Spread::of(&read_s).zip(Spread::of(&both_s)).context("nothing was measured")
            })
            .join()
            .map_err(|_| anyhow::anyhow!("reading the run panicked"))?
    })
}

/// perf's recording of the same load and the time of `perf script` on it.
fn perf_script(bench: &Bench, seconds: f64) -> anyhow::Result<(u64, Usage)> {
    let rig = Rig::new(bench, true)?;
    let hooks = recorder::hooks_on(bench, &rig.memcached)?;
    let (folder, recorded) = loaded(&rig, || {
        let time = Duration::from_secs_f64(seconds);
        let job = Job { bench, server: &rig.memcached, time, hooks: &hooks, dump: false, without_hook: &[] };
        let running = recorder::start(Tool::Perf, &job, "perf-script")?.context("perf is a recorder")?;
        let folder = running.folder().to_owned();
        let until = Instant::now() + time;
        while Instant::now() < until {
            bench.check()?;
            std::thread::sleep(Duration::from_millis(20).min(until.saturating_duration_since(Instant::now())));
        }
        Ok((folder, running.finish(true)?))
    })?;
    drop(rig);
    let mut command = Command::new("perf");
    command.args(["script", "--input", "perf.data"]).current_dir(&folder);
    recorder::with_tracefs(&mut command);
    let errors = File::create(folder.join("script-stderr"))?;
    let usage = usage(bench, command, Some(LOAD_CPU), Stdio::from(errors))?;
    Ok((recorded.events.context("perf counted no events")?, usage))
}

/// Runs a program with its output discarded and returns its cost.
pub fn usage(bench: &Bench, mut command: Command, cpu: Option<usize>, stderr: Stdio) -> anyhow::Result<Usage> {
    bench.check()?;
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let begun = Instant::now();
    let mut child = spawn_tied(command, cpu, Signal::SIGKILL)?;
    let pid = child.id().cast_signed();
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    loop {
        // SAFETY: `status` and `usage` are valid for writing; the child is ours and not waited for yet.
        match unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) } {
            0 if begun.elapsed() > PATIENCE || bench.check().is_err() => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("{program} was stopped after {:.1} s", begun.elapsed().as_secs_f64());
            }
            0 => std::thread::sleep(Duration::from_micros(500)),
            waited if waited == pid => break,
            _ => return Err(std::io::Error::last_os_error()).context(format!("cannot wait for {program}")),
        }
    }
    let wall_s = begun.elapsed().as_secs_f64();
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0 {
        bail!("{program} failed (wait status {status})");
    }
    // SAFETY: all zeroes is a valid rusage, and wait4 has filled it.
    let usage = unsafe { usage.assume_init() };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Ok(Usage {
        wall_s,
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        peak_bytes: usage.ru_maxrss as u64 * 1024,
    })
}
