//! `lab trim`: a recording cut to a short interval of it in which its answer is the same, without the names of others, small enough to be kept in
//! the repository and replayed by `make test`.
//!
//! In: runs of `tailsight record`, with their keys (see [`crate::replay`]). Out: for each a folder with the run and its key, or why it was left
//! out. Names of tasks that are not the lab's, the application's or of threads that every kernel has become `task-N`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tailsight_testbed::published::{PublicNames, description};
use tailsight_trace::event::Kind;
use tailsight_trace::meta::State;
use tailsight_trace::read::CpuEvents;
use tailsight_trace::routines::RoutineRow;
use tailsight_trace::samples::Samples;
use tailsight_trace::{Event, Run, RunWriter};
use tailsight_units::parse;

use crate::replay::{Ablation, Key, answer_of};
use crate::run::{Named, causes};

/// `lab trim`.
#[derive(Debug, Args)]
pub struct TrimArgs {
    /// A folder with recordings, at most four folders deep.
    dir: PathBuf,
    /// Where the trimmed ones go, a folder each.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How long an interval is kept.
    #[arg(long = "for", value_name = "TIME", value_parser = parse::duration, default_value = "300ms")]
    length: Duration,
    /// The binary of tailsight [default: beside this one].
    #[arg(long, value_name = "FILE")]
    tailsight: Option<PathBuf>,
}

/// Stretches that are tried of a run, evenly over it.
const TRIES: u64 = 8;

/// `lab trim`.
pub fn trim(args: &TrimArgs) -> anyhow::Result<ExitCode> {
    let tailsight = crate::replay::program(args.tailsight.as_deref())?;
    let runs = crate::replay::runs_in(&args.dir)?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let (mut kept, mut bytes) = (0, 0);
    for path in &runs {
        let key = Key::of(path)?;
        let name = key.scenario.clone().unwrap_or_else(|| named_after(&args.dir, path));
        let to = args.out.join(&name);
        if to.exists() {
            println!("{name:<28} there already");
            continue;
        }
        match first_that_fits(args, &tailsight, path, &key, &to)? {
            Some(size) => {
                kept += 1;
                bytes += size;
                println!("{name:<28} {} KiB", size >> 10);
            }
            None => println!("{name:<28} left out: no interval of it has the same first cause, and right"),
        }
    }
    println!("{kept} of {} runs kept, {:.1} MiB", runs.len(), bytes as f64 / f64::from(1 << 20));
    Ok(ExitCode::SUCCESS)
}

fn named_after(dir: &Path, run: &Path) -> String {
    run.strip_prefix(dir).unwrap_or(run).to_string_lossy().replace('/', "-")
}

/// Writes the first interval whose first cause is that of the whole run, and right if anybody knows; gives its size, bytes.
fn first_that_fits(
    args: &TrimArgs,
    tailsight: &Path,
    path: &Path,
    key: &Key,
    to: &Path,
) -> anyhow::Result<Option<u64>> {
    let leg = key.leg();
    let first = |run: &Path| -> anyhow::Result<Option<Named>> {
        Ok(causes(&answer_of(tailsight, run, leg, &Ablation::default())?).into_iter().next())
    };
    let Some(whole) = first(path)? else { return Ok(None) };
    let mut run = Run::open(path)?;
    let cpus = run.events()?;
    let length = args.length.as_nanos() as u64;
    let span = run.meta.end_ns.saturating_sub(run.meta.start_ns);
    for attempt in 0..TRIES {
        let from = run.meta.start_ns + span.saturating_sub(length) * attempt / TRIES.saturating_sub(1).max(1);
        let folder = to.join("run");
        write(&run, &cpus, (from, from + length), &folder)?;
        let answer = answer_of(tailsight, &folder, leg, &Ablation::default())?;
        let named = causes(&answer);
        let right = key.judge(&named);
        // A name may have that of another program in it, which is replaced: then the key says whether it is the same.
        let same = |now: &Named| now.category == whole.category && (now.name == whole.name || right == Some(true));
        if named.first().is_some_and(same) && right != Some(false) {
            std::fs::write(to.join("key.json"), serde_json::to_vec_pretty(key)?)?;
            return Ok(Some(size_of(&folder)?));
        }
        std::fs::remove_dir_all(to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    Ok(None)
}

fn size_of(dir: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)?.flatten() {
        let about = entry.metadata()?;
        bytes += if about.is_dir() { size_of(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}

/// Writes what a run has from..to, ns, without the names of others.
fn write(run: &Run, cpus: &[CpuEvents], (from, to): (u64, u64), dir: &Path) -> anyhow::Result<()> {
    let mut names = PublicNames::of(run);
    let mut meta = description(run);
    (meta.start_ns, meta.end_ns) = (from, to);
    meta.state = State::Recording;
    let mut writer = RunWriter::create(dir, &meta)?;
    for cpu in cpus {
        let kept = cpu.events.iter().filter(|e| from <= e.ts && e.ts <= to || is_kept_always(e) && e.ts < from);
        let events: Vec<Event> = kept.map(|e| names.in_event(e)).collect();
        writer.events(cpu.cpu, &events)?;
    }
    let mut tasks = run.tasks.clone();
    for task in &mut tasks {
        task.comm = names.shown(&task.comm);
        task.cgroup.clear();
    }
    writer.tasks(&tasks)?;
    let ports: Vec<u16> =
        run.sockets.iter().filter(|s| run.meta.target.pids.contains(&s.tgid)).map(|s| s.local_port).collect();
    let mut sockets = run.sockets.clone();
    sockets.retain(|s| ports.contains(&s.local_port) || ports.contains(&s.remote_port));
    sockets.iter_mut().for_each(|socket| socket.comm = names.shown(&socket.comm));
    writer.sockets(&sockets)?;
    writer.clocks(&run.clocks)?;
    writer.samples(&interval(&run.samples, (from, to)))?;
    let looks: Vec<RoutineRow> =
        run.routines.iter().filter(|look| from <= look.ts_ns && look.ts_ns <= to).copied().collect();
    if !looks.is_empty() {
        writer.routines(&looks)?;
    }
    meta.state = State::Complete;
    writer.finish(&mut meta)?;
    Ok(())
}

/// What is not told again: names, and the addresses of flows.
fn is_kept_always(event: &Event) -> bool {
    matches!(
        event.kind(),
        Some(Kind::TaskFork | Kind::TaskExec | Kind::TaskRename | Kind::FlowAddr6 | Kind::SockState | Kind::Current)
    )
}

/// The samples of an interval. Stacks keep their numbers: places of sleeps are told by them, too.
fn interval(samples: &Samples, (from, to): (u64, u64)) -> Samples {
    let rows: Vec<_> = samples.rows.iter().filter(|row| from <= row.ts_ns && row.ts_ns <= to).cloned().collect();
    Samples { rows, ..samples.clone() }
}
