//! `tailsight export`: a run for other tools, as tables, call stacks, a trace, or the causes of its diagnosis.

use std::path::Path;

use anyhow::{Context, bail};
use clap::ValueEnum;
use tailsight_diagnose::cohorts::chosen_class::InClass;
use tailsight_diagnose::cohorts::{Cohorts, ranked_in};
use tailsight_diagnose::{Options, functions};
use tailsight_ideal::OfRun;
use tailsight_lifetime::PathPart;
use tailsight_report::export::{csv, firefox, otlp, perfetto, pprof};

use super::collector::Collector;
use super::diagnose::not_available_or;
use super::usage::or_usage;
use crate::cli::{Export, ExportFormat};
use crate::page::Diagnosed;
use crate::pipeline::Opened;
use crate::{Exit, pipeline, terminal};

/// Spans of a request to a collector: some 2 MB, of the 20 MiB that collectors accept unless they are told otherwise.
const SPANS: usize = 4_000;

/// Writes the files and prints their paths.
pub fn run(args: &Export) -> anyhow::Result<Exit> {
    let options = match pipeline::options(&args.question) {
        Ok(options) => options,
        Err(error) => return not_available_or(error),
    };
    if args.to.is_some() && args.format != ExportFormat::Otlp {
        let format = args.format.to_possible_value();
        let name = format.as_ref().map_or("another", clap::builder::PossibleValue::get_name);
        let why = format!("--to sends spans, and --format is {name}; write --format otlp");
        return or_usage(Err(tailsight_measure::Error::Contradiction(why)));
    }
    let opened = pipeline::open(&args.run)?;
    let options = match pipeline::asked(options, &args.question, &opened, None) {
        Ok((options, _)) => options,
        Err(error) => return not_available_or(error.into()),
    };
    let dir = args.out.clone().unwrap_or_else(|| args.run.clone());
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let diagnosed = |written| diagnosed(&opened, &options, args.to.as_ref(), written);
    match args.format {
        ExportFormat::Parquet => parquet(&opened, &dir)?,
        ExportFormat::Collapsed => collapsed(&opened, &options, &dir)?,
        ExportFormat::Csv => {
            return diagnosed(&|diagnosed_run| {
                write(&dir.join("causes.csv"), csv::causes(diagnosed_run.diagnosis).as_bytes())
            });
        }
        ExportFormat::Pprof => {
            return diagnosed(&|diagnosed_run| {
                has_samples(&opened)?;
                let meta = &opened.run.meta;
                let length_ns = meta.end_ns.saturating_sub(meta.start_ns);
                write(
                    &dir.join("stacks.pb.gz"),
                    &pprof::profile(&diagnosed_run.stacks(), meta.started_unix_ns, length_ns),
                )
            });
        }
        ExportFormat::FirefoxProfiler => {
            return diagnosed(&|diagnosed_run| {
                has_samples(&opened)?;
                write(&dir.join("profile.json"), &diagnosed_run.with_chosen(firefox::profile))
            });
        }
        ExportFormat::Otlp => {
            return diagnosed(&|diagnosed_run| {
                write(&dir.join("traces.jsonl"), diagnosed_run.with_focus(otlp::traces).as_bytes())
            });
        }
        ExportFormat::Perfetto => {
            return diagnosed(&|diagnosed_run| {
                let threads = threads(&opened);
                write(&dir.join("trace.pftrace"), &diagnosed_run.with_chosen(|input| perfetto::trace(input, &threads)))
            });
        }
    }
    Ok(Exit::Done)
}

/// Diagnoses, and writes by `written` or sends spans to a collector.
fn diagnosed(
    opened: &Opened,
    options: &Options,
    to: Option<&Collector>,
    written: &dyn Fn(&Diagnosed) -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    let (diagnosis, causes) = match pipeline::diagnose(opened, options) {
        Ok(diagnosis_and_causes) => diagnosis_and_causes,
        Err(error) => return not_available_or(error),
    };
    let diagnosed_run = Diagnosed { opened, options, diagnosis: &diagnosis, causes: &causes, against: None };
    match to {
        Some(to) => send(&diagnosed_run, to)?,
        None => written(&diagnosed_run)?,
    }
    Ok(pipeline::verdict(&diagnosis))
}

/// Sends the messages in focus as spans, and prints how many.
fn send(diagnosed_run: &Diagnosed, to: &Collector) -> anyhow::Result<()> {
    let (mut sent, mut refused, mut why) = (0, 0, String::new());
    for (body, spans) in diagnosed_run.with_focus(|input| otlp::parts(input, SPANS)) {
        let (rejected, words) = to.send(&body)?;
        sent += spans;
        refused += rejected;
        why = if words.is_empty() { why } else { words };
    }
    if refused > 0 {
        bail!("{} rejected {refused} of {sent} spans: {}", to.address(), why);
    }
    terminal::print(&format!("{sent} spans: {}\n", to.address()))
}

/// Where the threads that received messages were.
fn threads(opened: &Opened) -> Vec<perfetto::ThreadStep> {
    let lifetimes = &opened.analysis.lifetimes;
    let mut tids: Vec<u32> = lifetimes.messages.iter().map(|m| m.tid).filter(|tid| *tid != 0).collect();
    tids.sort_unstable();
    tids.dedup();
    let mut steps = Vec::new();
    opened.analysis.on_cores(&tids, |tid, span, owner| {
        let owner = owner.path(&lifetimes.symbols);
        steps.push(perfetto::ThreadStep { tid, from_ns: span.from_ns, to_ns: span.to_ns, owner });
    });
    steps
}

fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    pipeline::write_whole(file, bytes)?;
    terminal::print(&format!("{}\n", file.display()))
}

fn parquet(opened: &Opened, dir: &Path) -> anyhow::Result<()> {
    let ideal = tailsight_ideal::of_run(&opened.analysis, &opened.analysis.work());
    let ideal_ns = ideal.as_ref().map_or(&[][..], OfRun::by_id);
    let messages = tailsight_lifetime::tables::write(dir, &opened.analysis.lifetimes, ideal_ns)?;
    let threads = tailsight_lifetime::tables::write_threads(dir, &opened.analysis)?;
    for name in messages.into_iter().chain(threads) {
        terminal::print(&format!("{}\n", dir.join(name).display()))?;
    }
    Ok(())
}

fn has_samples(opened: &Opened) -> anyhow::Result<u64> {
    let run = &opened.run;
    match run.meta.sampling.as_ref().filter(|_| !run.samples.is_empty()) {
        Some(sampling) => Ok(sampling.period_ns),
        None => bail!("{} has no samples\n  record again without --sample off", run.dir.display()),
    }
}

/// A file a cohort, each line a call stack and its ns of a mean message: what flame graphs are made of.
fn collapsed(opened: &Opened, options: &Options, dir: &Path) -> anyhow::Result<()> {
    let (run, lifetimes) = (&opened.run, &opened.analysis.lifetimes);
    let period_ns = has_samples(opened)?;
    let in_class = InClass::new(options.class.as_ref(), &lifetimes.classes);
    let cohorts = Cohorts::of(&ranked_in(&lifetimes.messages, options.leg, &in_class), None, options)?;
    let ids = [&cohorts.focus.ids[..], &cohorts.reference.ids[..]];
    let paths = opened.analysis.to_paths();
    let path = |id, leg, part: PathPart<'_>| paths.part(id, leg, part);
    let stacks = functions::by_stack(lifetimes, &run.samples, ids, period_ns, options.leg, &path);
    for (cohort, name) in ["focus.collapsed", "reference.collapsed"].into_iter().enumerate() {
        let line = |(frames, ns): (&Vec<String>, &[f64; 2])| {
            let frames: Vec<String> = frames.iter().map(|f| f.replace(';', ":")).collect();
            let ns = ns[cohort].round() as u64;
            (ns > 0).then(|| format!("{} {ns}\n", frames.join(";")))
        };
        let file = dir.join(name);
        let text: String = stacks.iter().filter_map(line).collect();
        write(&file, text.as_bytes())?;
    }
    Ok(())
}
