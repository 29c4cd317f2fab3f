//! `tailsight export`: a run's messages and lifetimes as Parquet, or the call stacks of its slow and its ordinary messages.

use std::path::Path;

use anyhow::{Context, bail};
use tailsight_diagnose::cohorts::{Cohorts, ranked};
use tailsight_diagnose::{Options, functions};

use crate::cli::Export;
use crate::pipeline::Opened;
use crate::{Verdict, pipeline, terminal};

/// Writes the files and prints their paths.
pub fn run(args: &Export) -> anyhow::Result<Verdict> {
    let opened = pipeline::open(&args.run)?;
    let dir = args.out.clone().unwrap_or_else(|| args.run.clone());
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    match args.format.as_str() {
        "collapsed" => collapsed(&opened, &dir)?,
        _ => parquet(&opened, &dir)?,
    }
    Ok(Verdict::Done)
}

fn parquet(opened: &Opened, dir: &Path) -> anyhow::Result<()> {
    tailsight_lifetime::tables::write(dir, &opened.analysis.lifetimes)?;
    for name in ["messages.parquet", "lifetimes.parquet"] {
        terminal::print(&format!("{}\n", dir.join(name).display()))?;
    }
    Ok(())
}

/// A file a cohort, each line a call stack and its ns of a mean message: what flame graphs are made of.
fn collapsed(opened: &Opened, dir: &Path) -> anyhow::Result<()> {
    let (run, lifetimes) = (&opened.run, &opened.analysis.lifetimes);
    let Some(sampling) = run.meta.sampling.as_ref().filter(|_| !run.samples.is_empty()) else {
        bail!("{} has no samples\n  record again without --sample off", run.dir.display());
    };
    let options = pipeline::chosen(Options::default(), None, opened, None);
    let cohorts = Cohorts::of(&ranked(&lifetimes.messages, options.leg), None, &options)?;
    let ids = [&cohorts.focus.ids[..], &cohorts.reference.ids[..]];
    let path = |id| opened.analysis.path(id, options.leg);
    let stacks = functions::by_stack(lifetimes, &run.samples, ids, sampling.period_ns, &path);
    for (cohort, name) in ["focus.collapsed", "reference.collapsed"].into_iter().enumerate() {
        let line = |(frames, ns): (&Vec<String>, &[f64; 2])| {
            let frames: Vec<String> = frames.iter().map(|f| f.replace(';', ":")).collect();
            let ns = ns[cohort].round() as u64;
            (ns > 0).then(|| format!("{} {ns}\n", frames.join(";")))
        };
        let file = dir.join(name);
        let text: String = stacks.iter().filter_map(line).collect();
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        terminal::print(&format!("{}\n", file.display()))?;
    }
    Ok(())
}
